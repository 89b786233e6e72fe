"""The extent of a simulation: what is asked for, else what the scenario says."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from surecast.documents.units import seconds_of
from surecast.errors import ConfigurationError, refuse_unknown

if TYPE_CHECKING:
    from surecast.scenario.system import System

__all__ = ["Method", "Progress", "SimulationPlan", "plan_simulation", "whole_number"]

Method: TypeAlias = Literal["compiled", "protocol"]
"""Compiled code that follows events through failures, or the protocol code itself."""
Progress: TypeAlias = Callable[[int, int], None]
"""Called with how many steps of how many are done."""

WORKERS_MAX: Final = 64
ROUTING_DURATION_S, ROUTING_WARM_UP_S = 60.0, 5.0


@dataclass(frozen=True)
class SimulationPlan:
    """The extent of a simulation: runs, duration, seed, warm-up, method, workers."""

    runs: int
    duration_s: float
    seed: int
    warm_up_s: float
    method: Method = "compiled"
    workers: int = 1
    progress: Progress | None = None


def plan_simulation(
    system: System,
    *,
    runs: int | None = None,
    duration: str | float | None = None,
    seed: int | None = None,
    method: Method = "compiled",
    workers: int = 1,
    progress: Progress | None = None,
) -> SimulationPlan:
    """Returns the extent of a simulation; `duration` is text such as 14d, or seconds.

    Where neither the caller nor the scenario says how long, filter classes are simulated for a minute: their messages
    are many.
    """
    experiment = system.experiment
    refuse_unknown("method", [method], get_args(Method))
    brief = not system.subscribers and "duration" not in experiment.model_fields_set
    duration_s = seconds_of("`duration`", duration)
    if duration_s is None:
        duration_s = ROUTING_DURATION_S if brief else experiment.duration
    if not 0 < duration_s < math.inf:
        raise ConfigurationError("`duration` must be above 0 and finite, such as 14d")
    number = experiment.runs if runs is None else whole_number("runs", runs, 1)
    # Coded delivery takes its intervals over batches of the events of one run.
    if number < 2 and system.delivery.coding is None:
        raise ConfigurationError("one run gives no confidence interval; use `runs` 2 or more")
    return SimulationPlan(
        number,
        duration_s,
        system.seed if seed is None else whole_number("seed", seed, 0),
        ROUTING_WARM_UP_S if brief and not experiment.warm_up else experiment.warm_up,
        method,
        whole_number("workers", workers, 1, WORKERS_MAX),
        progress,
    )


def whole_number(argument: str, value: int, least: int, most: int | None = None) -> int:
    """Refuses what is no whole number, or out of range, and names the argument.

    >>> whole_number("workers", 65, 1, 64)
    Traceback (most recent call last):
    ...
    surecast.errors.ConfigurationError: `workers` is 65; give a whole number from 1 to 64
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        span = f"of {least} or more" if most is None else f"from {least} to {most}"
        raise ConfigurationError(f"`{argument}` is {value!r}; give a whole number {span}")
    return value
