"""Answer by running: real broker processes, real MQTT clients, and a measured QoS report.

>>> from surecast.run import run_system
>>> callable(run_system)
True
"""

from surecast.run.answer import run_system
from surecast.run.plan import RunPlan, make_plan

__all__ = ["RunPlan", "make_plan", "run_system"]
