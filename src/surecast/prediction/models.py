"""Prediction models of one's own, beside those that come with Surecast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from surecast.errors import ConfigurationError
from surecast.report import QoSReport
from surecast.scenario.system import System

__all__ = ["MODELS", "Model", "register_model", "unregister_model"]

Model: TypeAlias = Callable[[System], QoSReport | None]
"""A model: the report about a system, or None where it has nothing to say of it."""

MODELS: Final[dict[str, Model]] = {}
"""The models that `register_model` added; `surecast predict` adds their figures to its own."""


def register_model(name: str, model: Model) -> None:
    """Adds a model, whose figures `surecast predict` then shows beside the others.

    >>> register_model("nothing", lambda system: None)
    >>> list(MODELS)
    ['nothing']
    >>> unregister_model("nothing")
    """
    if not name:
        raise ConfigurationError("a model needs a name")
    MODELS[name] = model


def unregister_model(name: str) -> None:
    """Takes a registered model away again; for tests and for extensions that are unloaded."""
    MODELS.pop(name, None)
