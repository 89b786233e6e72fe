"""Surecast: a publish/subscribe system that knows its quality of service before it is deployed.

>>> from surecast import Scenario, predict
>>> predict(Scenario.load("examples/dropping.yaml")).value("success_share", name="subscriber") > 0.8
True
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from surecast.api import compare, plan, predict, run, simulate
    from surecast.errors import SurecastError
    from surecast.report import Comparison, QoSReport
    from surecast.scenario import Scenario, System

__version__ = "0.1.0"

__all__ = [
    "Comparison",
    "QoSReport",
    "Scenario",
    "SurecastError",
    "System",
    "__version__",
    "compare",
    "plan",
    "predict",
    "run",
    "simulate",
]

_HOME = {
    "Comparison": "surecast.report",
    "QoSReport": "surecast.report",
    "Scenario": "surecast.scenario",
    "SurecastError": "surecast.errors",
    "System": "surecast.scenario",
    "compare": "surecast.api",
    "plan": "surecast.api",
    "predict": "surecast.api",
    "run": "surecast.api",
    "simulate": "surecast.api",
}


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used, so that `import surecast` stays instant."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    """Lists the public names too, for completion."""
    return sorted({*globals(), *__all__})
