"""The table of models, and the answers that it gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from surecast.errors import ConfigurationError
from surecast.models.builtin import BUILT_IN, Model, joined
from surecast.models.question import Question
from surecast.models.simulation_extent import SimulationPlan
from surecast.report import QoSReport
from surecast.scenario.system import System

__all__ = ["MODELS", "predict_question", "register_model", "simulate_question", "unregister_model"]

MODELS: Final[dict[str, Model]] = {model.name: model for model in BUILT_IN}
"""Every model by its name, in the order of their figures: those that come with Surecast, then those registered."""

_BUILT_IN: Final = frozenset(MODELS)


def register_model(
    name: str,
    predict: Callable[[System], QoSReport | None],
    simulate: Callable[[System, SimulationPlan], QoSReport | None] | None = None,
) -> None:
    """Adds a model, whose figures `predict` and `simulate` then show beside the others.

    Each returns None where the model has nothing to say of a system. A model registered again is replaced.

    >>> register_model("nothing", lambda system: None)
    >>> list(MODELS)
    ['composed', 'coding', 'reliability', 'dropping', 'capacity', 'replication', 'nothing']
    >>> unregister_model("nothing")
    """
    if not name:
        raise ConfigurationError("a model needs a name")
    if name in _BUILT_IN:
        raise ConfigurationError(f"a model of one's own cannot be called {name!r}; choose another name")
    MODELS[name] = Model(
        name,
        lambda question: True,
        lambda question: predict(question.system),
        None if simulate is None else lambda question, plan: simulate(question.system, plan),
    )


def unregister_model(name: str) -> None:
    """Takes a registered model away again; for tests and for extensions that are unloaded."""
    if name not in _BUILT_IN:
        MODELS.pop(name, None)


def predict_question(question: Question) -> QoSReport:
    """Returns the report by formula, of all models that apply."""
    reports = [model.predict(question) for model in _applying(question)]
    system = question.system
    return joined([report for report in reports if report is not None], system.name, "predicted", system.seed)


def simulate_question(question: Question, plan: SimulationPlan) -> QoSReport:
    """Returns the report in virtual time, of all models that apply and simulate."""
    reports = [model.simulate(question, plan) for model in _applying(question) if model.simulate is not None]
    return joined([report for report in reports if report is not None], question.system.name, "simulated", plan.seed)


def _applying(question: Question) -> list[Model]:
    """The models that apply; a system that has no steady state is refused."""
    from surecast.prediction.overload import refuse_overload

    refuse_overload(question.system, question.algorithms)
    return [model for model in MODELS.values() if model.applies(question)]
