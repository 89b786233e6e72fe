"""Answers by running: real broker processes, real MQTT clients, and a measured QoS report.

>>> from surecast.measurement import run_system
>>> callable(run_system)
True
"""

from surecast.measurement.measurement_plan import RunPlan, make_plan
from surecast.measurement.replayed_traces import TraceReplay
from surecast.measurement.system_run import run_plan, run_system
from surecast.measurement.workload_drive import RunInterrupted

__all__ = ["RunInterrupted", "RunPlan", "TraceReplay", "make_plan", "run_plan", "run_system"]
