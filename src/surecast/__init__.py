"""Surecast: a publish/subscribe system that knows its quality of service before it is deployed.

>>> from surecast import load_system
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from surecast.errors import SurecastError
    from surecast.report import QoSReport
    from surecast.scenario import Scenario, System, load_scenario, load_system

__version__ = "0.1.0"

__all__ = ["QoSReport", "Scenario", "SurecastError", "System", "__version__", "load_scenario", "load_system"]

_HOME = {
    "QoSReport": "surecast.report",
    "Scenario": "surecast.scenario",
    "SurecastError": "surecast.errors",
    "System": "surecast.scenario",
    "load_scenario": "surecast.scenario",
    "load_system": "surecast.scenario",
}


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used, so that `import surecast` stays instant."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
