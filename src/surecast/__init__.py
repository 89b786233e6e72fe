"""Surecast: a publish/subscribe system that knows its quality of service before it is deployed.

>>> from surecast import Scenario, predict
>>> predict(Scenario.load("examples/dropping.yaml")).value("success_share", name="subscriber") > 0.6
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from surecast.lazy import lazy_names

if TYPE_CHECKING:
    from surecast.api import compare, plan, predict, run, simulate
    from surecast.errors import SurecastError
    from surecast.report import Comparison, QoSReport
    from surecast.scenario import Scenario, System
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "surecast.api": ["compare", "plan", "predict", "run", "simulate"],
            "surecast.errors": ["SurecastError"],
            "surecast.report": ["Comparison", "QoSReport"],
            "surecast.scenario": ["Scenario", "System"],
        },
    )

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


def __dir__() -> list[str]:
    """Lists the public names too, for completion."""
    return sorted({*globals(), *__all__})
