"""Answers by running: real broker processes, real MQTT clients, and a measured QoS report.

>>> from surecast.measurement import run_system
>>> callable(run_system)
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from surecast.lazy import lazy_names

if TYPE_CHECKING:
    from surecast.measurement.measurement_plan import RunPlan, make_plan
    from surecast.measurement.replayed_traces import TraceReplay
    from surecast.measurement.system_run import run_plan, run_system
    from surecast.measurement.workload_drive import RunInterrupted
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "surecast.measurement.measurement_plan": ["RunPlan", "make_plan"],
            "surecast.measurement.replayed_traces": ["TraceReplay"],
            "surecast.measurement.system_run": ["run_plan", "run_system"],
            "surecast.measurement.workload_drive": ["RunInterrupted"],
        },
    )

__all__ = ["RunInterrupted", "RunPlan", "TraceReplay", "make_plan", "run_plan", "run_system"]
