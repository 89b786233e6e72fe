"""Answer by running: real broker processes, real MQTT clients, and a measured QoS report.

>>> from surecast.run import run_system
>>> callable(run_system)
True
"""

from surecast.run.answer import run_plan, run_system
from surecast.run.drive import RunInterrupted
from surecast.run.plan import RunPlan, make_plan

__all__ = ["RunInterrupted", "RunPlan", "make_plan", "run_plan", "run_system"]
