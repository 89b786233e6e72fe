"""The parameter of a mechanism that meets a target: the largest join probability, buffer or lifetime."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.optimize import brentq

from surecast.errors import AssumptionError, ConfigurationError
from surecast.prediction.dropping.onoff import TargetVerdict, join_probability_for
from surecast.prediction.dropping.queue import OnOffQueue, QueueAnswer, evaluate
from surecast.scenario.mechanism import Mechanism

__all__ = ["Parameter", "ParameterAnswer", "ResponseTarget", "largest_parameter"]

Parameter = Literal["join_probability", "buffer_size", "lifetime_s"]
_BUFFER_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class ResponseTarget:
    """A response time to meet: by the mean over delivered events, or by a share (`quantile`) of them.

    >>> ResponseTarget(7.0, 0.95)
    ResponseTarget(time_s=7.0, quantile=0.95)
    """

    time_s: float
    quantile: float | None = None

    def __post_init__(self) -> None:
        if not 0.0 < self.time_s < math.inf:
            raise ConfigurationError(f"time_s: a target of {self.time_s!r} s must be above 0 and finite")
        if self.quantile is not None and not 0.0 < self.quantile < 1.0:
            raise ConfigurationError(f"quantile: {self.quantile!r} must be between 0 and 1, both excluded")

    def excess(self, answer: QueueAnswer) -> float:
        """Above 0 where the target is missed."""
        if self.quantile is None:
            return answer.response_mean_s / self.time_s - 1.0
        return self.quantile - answer.within(self.time_s)


@dataclass(frozen=True, eq=False)
class ParameterAnswer:
    """The result of a search. If the target can be met, `mechanism` meets it and `answer` is the service under it."""

    verdict: TargetVerdict
    mechanism: Mechanism | None
    answer: QueueAnswer | None


def largest_parameter(
    queue: OnOffQueue, parameter: Parameter, target: ResponseTarget, base: Mechanism | None = None
) -> ParameterAnswer:
    """Returns the largest join probability, buffer size or lifetime that meets a target, all else being as in `base`.

    The response time grows with each of the three. `NOT_NEEDED` means that the target is met without the parameter;
    the mechanism found is then `base` itself.

    >>> queue = OnOffQueue.exponential(2.0, 8.0, 20.0, 20.0)
    >>> for parameter in ("join_probability", "buffer_size", "lifetime_s"):
    ...     search = largest_parameter(queue, parameter, ResponseTarget(7.0))
    ...     print(parameter, round(getattr(search.mechanism, parameter), 4), round(search.answer.success_share, 4))
    join_probability 0.3537 0.6768
    buffer_size 22 0.6925
    lifetime_s 29.3223 0.853
    """
    base = Mechanism() if base is None else base
    if parameter == "join_probability" and base.join_table is not None:
        raise ConfigurationError("join_probability: a join table already says who joins")
    free = _with(base, parameter, {"join_probability": 1.0, "buffer_size": None, "lifetime_s": math.inf}[parameter])
    if _settles(queue, free):
        answer = evaluate(queue, free)
        if target.excess(answer) <= 0.0:
            return ParameterAnswer(TargetVerdict.NOT_NEEDED, free, answer)
    if parameter == "buffer_size":
        return _largest_buffer(queue, target, free)
    if parameter == "lifetime_s":
        return _largest_lifetime(queue, target, free)
    return _largest_join(queue, target, free)


def _with(base: Mechanism, parameter: Parameter, value: float | None) -> Mechanism:
    return replace(base, **{parameter: value})  # type: ignore[arg-type]


def _settles(queue: OnOffQueue, mechanism: Mechanism) -> bool:
    if mechanism.expires or mechanism.buffer_size is not None:
        return True
    if mechanism.join_table is not None:
        try:
            evaluate(queue, mechanism)
        except AssumptionError:
            return False
        return True
    return queue.is_stable(mechanism.join_probability)


def _largest_join(queue: OnOffQueue, target: ResponseTarget, free: Mechanism) -> ParameterAnswer:
    lowest = replace(free, join_probability=0.0)
    if not _settles(queue, lowest):
        return ParameterAnswer(TargetVerdict.UNSTABLE, None, None)
    if target.excess(evaluate(queue, lowest)) > 0.0:
        return ParameterAnswer(TargetVerdict.IMPOSSIBLE, None, None)
    periods = queue.periods_s
    if free == Mechanism() and target.quantile is None and periods is not None:
        solution = join_probability_for(target.time_s, queue.arrival_per_s, queue.service_per_s, *periods)
        return _answer_for(queue, replace(free, join_probability=float(solution.join_probability)))

    def excess(join: float) -> float:
        mechanism = replace(free, join_probability=join)
        return target.excess(evaluate(queue, mechanism)) if _settles(queue, mechanism) else 1.0

    return _answer_for(queue, replace(free, join_probability=_last_below(excess, 0.0, 1.0)))


def _largest_lifetime(queue: OnOffQueue, target: ResponseTarget, free: Mechanism) -> ParameterAnswer:
    def excess(lifetime: float) -> float:
        return target.excess(evaluate(queue, replace(free, lifetime_s=lifetime)))

    low = target.time_s
    while excess(low) > 0.0:
        low *= 0.5
        if low < 1e-9 * target.time_s:
            return ParameterAnswer(TargetVerdict.IMPOSSIBLE, None, None)
    high = 2.0 * low
    while excess(high) <= 0.0:
        low, high = high, 2.0 * high
    return _answer_for(queue, replace(free, lifetime_s=_last_below(excess, low, high)))


def _largest_buffer(queue: OnOffQueue, target: ResponseTarget, free: Mechanism) -> ParameterAnswer:
    def missed(size: int) -> bool:
        return target.excess(evaluate(queue, replace(free, buffer_size=size))) > 0.0

    if missed(1):
        return ParameterAnswer(TargetVerdict.IMPOSSIBLE, None, None)
    low, high = 1, 2
    while not missed(high):
        low, high = high, 2 * high
        if high > _BUFFER_MAX:
            # the buffer is left out where the queue without it settles just above the target
            raise AssumptionError(f"every buffer of up to {low} events meets the target of {target.time_s:.6g} s")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if missed(middle) else (middle, high)
    return _answer_for(queue, replace(free, buffer_size=low))


def _last_below(excess: Callable[[float], float], low: float, high: float) -> float:
    """Returns the last point at which a growing function is at most 0, so that it still meets the target."""
    root = float(brentq(excess, low, high, xtol=1e-13 * high, rtol=4.0 * float(np.finfo(float).eps)))
    while root > low and excess(root) > 1e-12:
        root = max(low, root * (1.0 - 1e-13))
    return root


def _answer_for(queue: OnOffQueue, mechanism: Mechanism) -> ParameterAnswer:
    return ParameterAnswer(TargetVerdict.DROPPING, mechanism, evaluate(queue, mechanism))
