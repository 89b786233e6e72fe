"""The models of a publish/subscribe system: which of them answer a question, by formula and by simulation.

`surecast.predict` and `surecast.simulate` ask this table; `register_model` adds a row to it.
"""

from surecast.models.builtin import Model, joined
from surecast.models.model_table import MODELS, predict_question, register_model, simulate_question, unregister_model
from surecast.models.question import Question, ask
from surecast.models.simulation_extent import Method, Progress, SimulationPlan, plan_simulation

__all__ = [
    "MODELS",
    "Method",
    "Model",
    "Progress",
    "Question",
    "SimulationPlan",
    "ask",
    "joined",
    "plan_simulation",
    "predict_question",
    "register_model",
    "simulate_question",
    "unregister_model",
]
