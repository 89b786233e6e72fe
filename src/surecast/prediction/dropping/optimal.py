"""The best that admission to the queue can do: a constrained Markov decision process, solved as a linear program.

A policy sees the state of the connection and the length of the queue when an event arrives, and lets it join or not,
perhaps at random. Among all such policies the program finds the one that delivers the largest share of the events while
the mean response time meets the target. Its variables are the stationary probabilities p of the states and the parts w
of them in which an arrival joins, so 0 <= w <= p. Balance is linear in both, and so is the target: by Little's law
sum n p <= target * rate * sum w. The optimum takes thresholds, one for each state of the connection, and chance at one
level at most. The thresholds are read off the program, and the chance is found again on the exact chain.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, linprog
from scipy.sparse import coo_array, csr_array, vstack

from surecast.errors import AssumptionError
from surecast.prediction.dropping.onoff import TargetVerdict
from surecast.prediction.dropping.queue import OnOffQueue, QueueAnswer, evaluate
from surecast.prediction.dropping.search import ResponseTarget
from surecast.scenario.mechanism import JoinTable, Mechanism

__all__ = ["OptimalPolicy", "Program", "optimal_policy", "program_bound", "threshold_policy"]

Array = NDArray[np.float64]
Index = NDArray[np.signedinteger]
_LEVELS_MAX = 2048
_THRESHOLD_MAX = 16384
_SCALE_MIN = 1e-7
"""Least size of a variable; the solver leaves out coefficients below 1e-9."""
_TOP = 1e-9
"""Probability of the highest level at most, or the program is made larger."""


@dataclass(frozen=True, eq=False)
class Program:
    """The solved program: the largest share that can be delivered, and what it lets join by state and level."""

    success_share: float
    probability: Array
    """Of each level (rows) while disconnected and while connected (columns)."""
    joining: Array
    """The part of it in which an arrival joins."""

    @property
    def truncation(self) -> float:
        """Probability of the highest level: what cutting the queue off there may have cost."""
        return float(self.probability[-1].sum())


@dataclass(frozen=True, eq=False)
class OptimalPolicy:
    """The best policy. `bound_share` is the optimum of the program, which no policy of this kind exceeds.

    With protection the threshold is found without the program, and `bound_share` is not a number in the rare case that
    the solver gives up.
    """

    verdict: TargetVerdict
    mechanism: Mechanism | None
    answer: QueueAnswer | None
    bound_share: float
    truncation: float


class _UnsolvedError(AssumptionError):
    """The solver gave up on a program that has a solution."""


def program_bound(queue: OnOffQueue, target_s: float, levels: int, *, protect_connected: bool = True) -> Program:
    """Solves the linear program on a queue that is cut off at a number of events.

    >>> queue = OnOffQueue.exponential(2.0, 8.0, 20.0, 20.0)
    >>> round(program_bound(queue, 7.0, 100).success_share, 4)
    0.6988
    """
    if queue.periods_s is None:
        raise AssumptionError("the optimal policy is for exponential connected and disconnected periods")
    count = 2 * (levels + 1)
    state = np.arange(count)
    may = state // 2 < levels
    equal = _balance(queue, levels)
    right = np.zeros(count)
    right[-1] = 1.0
    if protect_connected:
        # while connected everything joins: w = p
        always = state[may & (state % 2 == 1)]
        equal = coo_array(vstack([_pairs(count + always, always, 2 * count), equal]))
        right = np.concatenate([np.zeros(len(always)), right])
    # by Little's law the mean response time is sum n p / (rate sum w)
    little = np.concatenate([(state // 2) / target_s, np.full(count, -queue.arrival_per_s)])
    limits = vstack([_pairs(count + state, state, 2 * count), csr_array(little[None, :])])
    upper = np.concatenate([np.ones(count), np.where(may, 1.0, 0.0)])
    least = _least_mean_s(queue, protect_connected)
    feasible = least is not None and target_s > least * (1.0 + 1e-9)
    result = _solve(
        np.concatenate([np.zeros(count), -np.ones(count)]),
        limits,
        equal,
        right,
        upper,
        np.tile(_scale(queue, state // 2), 2),
        feasible=feasible,
    )
    if result is None:
        return Program(0.0, np.zeros((levels + 1, 2)), np.zeros((levels + 1, 2)))
    solution = np.maximum(result, 0.0).reshape(2, levels + 1, 2)
    return Program(float(solution[1].sum()), solution[0], solution[1])


def _least_mean_s(queue: OnOffQueue, protect_connected: bool) -> float | None:
    """Returns the lowest mean response time of any policy; None if the queue grows under all of them.

    With protection it is that of dropping everything while disconnected (1 + r)/(service - arrival rate); without, that
    of events which join an empty queue while connected, a transmission with its interruptions.
    """
    assert queue.periods_s is not None
    on, off = queue.periods_s
    left = queue.service_per_s - (queue.arrival_per_s if protect_connected else 0.0)
    return (1.0 + off / on) / left if left > 0.0 else None


def _scale(queue: OnOffQueue, level: Index) -> Array:
    """Returns roughly an upper bound of each level's probability, so that the solver sees numbers near 1 at low rates,
    too.
    """
    assert queue.periods_s is not None
    on, off = queue.periods_s
    # one more event joins before the connection is back, or before one is transmitted
    climb = queue.arrival_per_s * (1.0 / (queue.arrival_per_s + 1.0 / off) + (1.0 + off / on) / queue.service_per_s)
    # near saturation, too, high levels are rare, and the solver's tolerance is to be small beside them
    return np.maximum(np.power(min(climb, 0.99), level.astype(np.float64)), _SCALE_MIN)


def _solve(
    cost: Array, limits: Any, equal: Any, right: Array, upper: Array, scale: Array, *, feasible: bool
) -> Array | None:
    """Returns the solution of the program, None if there is none; if the solver gives up it is asked for fewer digits.

    So it is where it calls a program infeasible that is known to be `feasible`.
    """
    limits, equal = csr_array(limits) * scale, csr_array(equal) * scale
    heights = [abs(rows).max(axis=1).toarray().ravel() for rows in (limits, equal)]
    limits, equal = (rows * (1.0 / height)[:, None] for rows, height in zip((limits, equal), heights, strict=True))
    message = ""
    for tolerance in (1e-10, 1e-9, 1e-8, 1e-7):
        result = linprog(  # type: ignore[call-overload]
            cost * scale,
            A_ub=limits,
            b_ub=np.zeros(limits.shape[0]),
            A_eq=equal,
            b_eq=right / heights[1],
            bounds=np.stack([np.zeros(len(cost)), upper / scale], axis=1),
            method="highs",
            options={"primal_feasibility_tolerance": tolerance, "dual_feasibility_tolerance": tolerance},
        )
        if result.status == 2 and not feasible:
            return None
        if result.success and np.abs(equal @ result.x - right / heights[1]).max() < 1e-6:
            return np.asarray(result.x, dtype=np.float64) * scale
        message = result.message
    raise _UnsolvedError(f"the linear program of the optimal policy was not solved: {message}")


def _pairs(plus: Index, minus: Index, width: int) -> coo_array:
    """Returns rows that hold 1 in one column and -1 in another."""
    each = np.arange(len(plus))
    values = np.concatenate([np.ones(len(plus)), -np.ones(len(plus))])
    return coo_array((values, (np.tile(each, 2), np.concatenate([plus, minus]))), shape=(len(plus), width))


def _balance(queue: OnOffQueue, levels: int) -> coo_array:
    """Returns the flow into each state less the flow out of it, in p and then in w; the last row sums the
    probabilities.

    Where events are rarer than connections, the rows of the connected states give way to the balance between each level
    and the next, what joins against what is transmitted: it holds rates of events only, and keeps their digits.
    """
    count, arrival, generator = 2 * (levels + 1), queue.arrival_per_s, queue.phases.generator
    level, low = np.arange(levels + 1), np.arange(levels)
    back, away = float(generator[0, 1]), float(generator[1, 0])
    # probabilities p and parts w that join, while disconnected and while connected, by level
    off, on, off_joins, on_joins = (2 * level, 2 * level + 1, count + 2 * low, count + 2 * low + 1)
    second = levels + 1 + low
    entries = [
        (level, off, -back),
        (level, on, away),
        (low, off_joins, -arrival),
        (low + 1, off_joins, arrival),
        (second, on[1:], queue.service_per_s),
        (second, on_joins, -arrival),
        # one balance equation is redundant and gives way to the sum
        (np.full(count, count - 1), np.arange(count), 1.0),
    ]
    if arrival < back:
        entries.append((second, off_joins, -arrival))
    else:
        entries += [
            (second, off[:-1], back),
            (second, on[:-1], -away),
            (second[1:], on[1:-1], -queue.service_per_s),
            (second[1:], on_joins[:-1], arrival),
        ]
    rows, columns = (np.concatenate([entry[axis] for entry in entries]) for axis in (0, 1))
    values = np.concatenate([np.full(len(entry[0]), entry[2]) for entry in entries])
    return coo_array((values, (rows, columns)), shape=(count, 2 * count))


def _row(threshold: float) -> tuple[float, ...]:
    """Join surely below a threshold, with its fraction at it, never above; an infinite one lets all join."""
    if math.isinf(threshold):
        return (1.0,)
    whole = math.floor(threshold)
    return (*(1.0,) * whole, threshold - whole, 0.0)


def _mechanism(off: float, on: float) -> Mechanism:
    table: JoinTable = (_row(off), _row(on))
    return Mechanism(join_table=table, protect_connected=math.isinf(on))


def threshold_policy(queue: OnOffQueue, target: ResponseTarget, on: float = math.inf) -> Mechanism | None:
    """Returns the largest threshold while disconnected that meets a target, with a given one while connected.

    Thresholds are real numbers: the fraction is the join probability at the level where it is reached. None if even
    dropping everything while disconnected misses the target.

    >>> queue = OnOffQueue.exponential(2.0, 8.0, 20.0, 20.0)
    >>> [round(entry, 4) for entry in threshold_policy(queue, ResponseTarget(7.0)).join_table[0][-3:]]
    [1.0, 0.0415, 0.0]
    """

    def excess(off: float) -> float:
        return target.excess(evaluate(queue, _mechanism(off, on)))

    threshold = _largest_threshold(excess)
    if threshold is None or math.isfinite(threshold):
        return None if threshold is None else _mechanism(threshold, on)
    endless = Mechanism() if math.isinf(on) else _mechanism(threshold, on)
    if (math.isinf(on) and not queue.is_stable()) or target.excess(evaluate(queue, endless)) > 0.0:
        raise AssumptionError(
            f"every threshold of up to {_THRESHOLD_MAX} events meets the target, and larger ones are not tried; choose "
            "another mechanism, or a shorter target"
        )
    return endless


def _largest_threshold(excess: Callable[[float], float]) -> float | None:
    """Returns the largest threshold that meets a target, infinite if all that are tried do; None if none does."""
    if excess(0.0) > 0.0:
        return None
    high = 1.0
    while excess(high) <= 0.0:
        high *= 2.0
        if high > _THRESHOLD_MAX:
            return math.inf
    low = 0.0 if high == 1.0 else high / 2.0
    root = float(brentq(excess, low, high, xtol=1e-12, rtol=1e-14))
    return root if excess(root) <= 1e-12 else max(low, root - 1e-11)


def optimal_policy(queue: OnOffQueue, target_s: float, *, protect_connected: bool = True) -> OptimalPolicy:
    """Returns the policy that delivers the largest share of events while the mean response time meets the target.

    With `protect_connected` nothing is dropped while the subscriber is connected, as in the paper. Targets that allow
    queues of more than about a thousand events are refused.

    >>> queue = OnOffQueue.exponential(2.0, 8.0, 20.0, 20.0)
    >>> best = optimal_policy(queue, 7.0)
    >>> round(best.answer.success_share, 4), round(best.answer.response_mean_s, 6)
    (0.6988, 7.0)
    """
    target = ResponseTarget(target_s)
    if queue.is_stable():
        free = evaluate(queue, Mechanism())
        if target.excess(free) <= 0.0:
            return OptimalPolicy(TargetVerdict.NOT_NEEDED, Mechanism(), free, 1.0, 0.0)
    least = _least_mean_s(queue, protect_connected)
    if least is None:
        return OptimalPolicy(TargetVerdict.UNSTABLE, None, None, 0.0, 0.0)
    if target_s < least:
        return OptimalPolicy(TargetVerdict.IMPOSSIBLE, None, None, 0.0, 0.0)
    _check_size(queue, target_s)
    try:
        program = _large_enough(queue, target_s, protect_connected)
    except _UnsolvedError:
        best = _candidate(queue, target, math.inf) if protect_connected else None
        if best is None:
            raise
        return OptimalPolicy(TargetVerdict.DROPPING, best.mechanism, best, math.nan, math.nan)
    if program.success_share < 1e-9:
        return OptimalPolicy(TargetVerdict.IMPOSSIBLE, None, None, 0.0, program.truncation)
    if protect_connected:
        best = _candidate(queue, target, math.inf)
    else:
        best = _climb(queue, target, _threshold(program, 0), _threshold(program, 1))
    if best is None:
        return OptimalPolicy(TargetVerdict.IMPOSSIBLE, None, None, program.success_share, program.truncation)
    return OptimalPolicy(TargetVerdict.DROPPING, best.mechanism, best, program.success_share, program.truncation)


def _check_size(queue: OnOffQueue, target_s: float) -> None:
    number = queue.arrival_per_s * target_s
    if 2.0 * number > _LEVELS_MAX:
        raise AssumptionError(
            f"the optimal policy is computed for queues of up to {_LEVELS_MAX // 2} events, and "
            f"{queue.arrival_per_s:.6g} events/s with a mean of {target_s:.6g} s make about {number:.6g}; choose "
            "another mechanism, or a shorter target"
        )


def _large_enough(queue: OnOffQueue, target_s: float, protect_connected: bool) -> Program:
    # the queue that meets the target holds about rate * target events
    levels = max(32, 2 * math.ceil(queue.arrival_per_s * target_s))
    program = program_bound(queue, target_s, levels, protect_connected=protect_connected)
    while program.truncation > _TOP and 2 * levels <= _LEVELS_MAX:
        levels *= 2
        program = program_bound(queue, target_s, levels, protect_connected=protect_connected)
    return program


def _threshold(program: Program, state: int) -> int:
    """Returns the first level at which joining is not the rule, among levels that are ever reached."""
    reached = program.probability[:, state] > 1e-8
    share = program.joining[:, state] / np.where(reached, program.probability[:, state], 1.0)
    rare = np.flatnonzero(reached & (share < 0.5))
    return int(rare[0]) if len(rare) else int(np.flatnonzero(reached)[-1]) + 1 if reached.any() else 0


def _climb(queue: OnOffQueue, target: ResponseTarget, off: int, on: int) -> QueueAnswer | None:
    """Returns the best pair of thresholds near those of the program, whose small probabilities are not exact."""
    near = range(-2, 3)
    candidates = []
    for k in near:
        # a threshold that would have to be larger than those tried is none of the best
        with suppress(AssumptionError):
            candidates += [_candidate(queue, target, float(on + k))] if on + k >= 1 else []
    candidates += [_between(queue, target, off + k, on) for k in near if off + k >= 0]
    if queue.is_stable(0.0):
        candidates.append(_candidate(queue, target, math.inf))
    answers = [answer for answer in candidates if answer is not None]
    return max(answers, key=lambda answer: answer.success_share, default=None)


def _candidate(queue: OnOffQueue, target: ResponseTarget, on: float) -> QueueAnswer | None:
    """Returns the best policy with the given threshold while connected; None if there is none."""
    mechanism = threshold_policy(queue, target, on)
    return None if mechanism is None else evaluate(queue, mechanism)


def _between(queue: OnOffQueue, target: ResponseTarget, off: int, on: int) -> QueueAnswer | None:
    """Returns the best policy with the given threshold while disconnected, and the other near that of the program."""

    def excess(free: float) -> float:
        return target.excess(evaluate(queue, _mechanism(off, free)))

    # far below, hardly anything joins while connected and the mean is that of the others: so look near only
    for low in range(max(on - 3, 0 if off else 1), on + 3):
        if excess(low) <= 0.0 < excess(low + 1):
            root = float(brentq(excess, low, low + 1, xtol=1e-12, rtol=1e-14))
            return evaluate(queue, _mechanism(off, root if excess(root) <= 1e-12 else max(low, root - 1e-11)))
    return None
