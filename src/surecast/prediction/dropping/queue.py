"""The queue of one subscriber under any dropping mechanism for which there is an exact answer."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from surecast.errors import AssumptionError, ConfigurationError, SaturationError
from surecast.prediction.dropping.connection_phases import Phases, exponential_phases, infinite_queue
from surecast.prediction.dropping.levels import delivered_moments, delivery_transforms, level_distribution
from surecast.prediction.dropping.lifetimes import lifetime_queue
from surecast.prediction.dropping.onoff import mean_number, success_share
from surecast.prediction.dropping.onoff_response_time import tail_terms
from surecast.prediction.dropping.response_distributions import ExponentialSum, ResponseLaw, TransformLaw
from surecast.scenario.mechanism import Mechanism

__all__ = ["OnOffQueue", "QueueAnswer", "after", "evaluate"]

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]
_LEFT_OUT = 1e-13
"""Probability that truncation may leave out."""
_LEVELS_MAX = 2_000_000

_REJECTED = ("rejected while disconnected", "rejected while connected")
_FULL = ("buffer full while disconnected", "buffer full while connected")
_EXPIRED = ("expired while disconnected", "expired while connected")


@dataclass(frozen=True, eq=False)
class OnOffQueue:
    """The queue of one subscriber: arrivals, transmission rate, and connected and disconnected periods.

    >>> OnOffQueue.exponential(2.0, 8.0, 20.0, 20.0).phases.connected_share.__round__(6)
    0.5
    """

    arrival_per_s: float
    service_per_s: float
    phases: Phases

    def __post_init__(self) -> None:
        for name in ("arrival_per_s", "service_per_s"):
            value = getattr(self, name)
            if not 0.0 < value < np.inf:
                raise ConfigurationError(f"{name}: {value!r} must be above 0 and finite")

    @classmethod
    def exponential(cls, arrival_per_s: float, service_per_s: float, on_s: float, off_s: float) -> OnOffQueue:
        """Returns the queue of a subscriber with exponential connected and disconnected periods, as in the paper."""
        return cls(arrival_per_s, service_per_s, exponential_phases(on_s, off_s))

    @property
    def periods_s(self) -> tuple[float, float] | None:
        """Means of the connected and the disconnected periods where both are exponential, else None."""
        if len(self.phases.generator) != 2:
            return None
        off, on = (-1.0 / float(self.phases.generator[i, i]) for i in range(2))
        return on, off

    def is_stable(self, join_probability: float = 1.0) -> bool:
        """Returns whether the queue without a bound and without expiry is stable (the corrected condition of the
        paper).
        """
        share = self.phases.connected_share
        return self.arrival_per_s * (share + (1.0 - share) * join_probability) < self.service_per_s * share


@dataclass(frozen=True, eq=False)
class QueueAnswer:
    """The service to a subscriber under a mechanism. Shares are of all events that arrive at its queue."""

    mechanism: Mechanism
    success_share: float
    response_mean_s: float
    """Over the events that are delivered."""
    queue_length_mean: float
    dropped: dict[str, float]
    """Share of the events dropped, by reason."""
    connected_share: float
    law: ResponseLaw
    """Distribution of the response time of the events that are delivered."""
    levels: Array
    """Probability of 0, 1, ... events (rows) by phase (columns); empty where it is not computed."""
    truncation: float = 0.0
    """Probability of the highest level that was kept of a queue without a bound; 0 where none was cut off."""

    @property
    def lost_while_connected(self) -> float:
        """Share of the events that arrive while connected that are turned away (dropping Fig. 7)."""
        return (self.dropped.get(_REJECTED[1], 0.0) + self.dropped.get(_FULL[1], 0.0)) / self.connected_share

    def within(self, time_s: float) -> float:
        """Returns the probability that a delivered event takes at most this long."""
        return self.law.within(time_s)

    def quantile_s(self, quantile: float) -> float:
        """Returns the time within which a share of the delivered events is delivered."""
        return self.law.quantile_s(quantile)


def evaluate(queue: OnOffQueue, mechanism: Mechanism) -> QueueAnswer:
    """Success share, response time and losses of a queue under a mechanism, exactly.

    Lifetimes count from the arrival at this queue. A deterministic lifetime stands alone: together with another
    mechanism there is no exact answer, and it is refused. Input buffers belong to the broker and are refused here.

    >>> queue = OnOffQueue.exponential(2.0, 8.0, 20.0, 20.0)
    >>> for mechanism in (Mechanism(join_probability=0.35), Mechanism(buffer_size=20), Mechanism(lifetime_s=30.0)):
    ...     answer = evaluate(queue, mechanism)
    ...     print(f"{mechanism.name}: {answer.success_share:.4f}, {answer.response_mean_s:.3f} s")
    probabilistic: 0.6750, 6.932 s
    finite-buffer: 0.6790, 6.471 s
    expiry: 0.8567, 7.171 s
    """
    if mechanism.input_buffer_size is not None:
        raise AssumptionError("input_buffer_size: the broker's input queue is no part of a subscriber's queue")
    if mechanism.expires and mechanism.lifetime_distribution == "deterministic":
        return _deterministic(queue, mechanism)
    if mechanism.expires or mechanism.buffer_size is not None or mechanism.join_table is not None:
        return _by_levels(queue, mechanism)
    return _unbounded(queue, mechanism)


def _unbounded(queue: OnOffQueue, mechanism: Mechanism) -> QueueAnswer:
    join, periods, share = mechanism.join_probability, queue.periods_s, queue.phases.connected_share
    dropped = {_REJECTED[0]: (1.0 - share) * (1.0 - join)} if join < 1.0 else {}
    if periods is not None:
        on, off = periods
        number = float(mean_number(queue.arrival_per_s, queue.service_per_s, on, off, join))
        success = float(success_share(on, off, join))
        law: ResponseLaw = ExponentialSum(*tail_terms(queue.arrival_per_s, queue.service_per_s, on, off, join))
        response = number / (queue.arrival_per_s * success)
        return QueueAnswer(mechanism, success, response, number, dropped, share, law, np.zeros((0, 2)))
    empty, climb = infinite_queue(queue.phases, queue.arrival_per_s, queue.service_per_s, join)
    rest = np.linalg.inv(np.eye(len(climb)) - climb)
    number = float((empty @ climb @ rest @ rest).sum())
    success = share + (1.0 - share) * join
    response = number / (queue.arrival_per_s * success)
    levels, left = _geometric(empty, climb)
    law = _level_law(queue, levels * queue.phases.by_state(join, 1.0), 0.0, response)
    return QueueAnswer(mechanism, success, response, number, dropped, share, law, levels, left)


def _geometric(empty: Array, climb: Array) -> tuple[Array, float]:
    """Returns the levels of a matrix-geometric distribution that matter, and the probability of the last (dropping Eq.
    13).
    """
    rows = [empty]
    total = float(empty.sum())
    while 1.0 - total > _LEFT_OUT and len(rows) < 100_000:
        rows.append(rows[-1] @ climb)
        gained = float(rows[-1].sum())
        if gained == 0.0 or gained < 1e-17:
            break
        total += gained
    return np.array(rows), float(rows[-1].sum())


def _deterministic(queue: OnOffQueue, mechanism: Mechanism) -> QueueAnswer:
    if mechanism != Mechanism(lifetime_s=mechanism.lifetime_s, protect_connected=mechanism.protect_connected):
        raise AssumptionError(
            f"{mechanism.name}: a deterministic lifetime together with another mechanism has no exact formula; make "
            "the lifetime exponential, or simulate"
        )
    answer = lifetime_queue(queue.phases, queue.arrival_per_s, queue.service_per_s, mechanism.lifetime_s)
    connected = queue.phases.connected
    dropped = dict(zip(_EXPIRED, (float(answer.expired_share[c].sum()) for c in (~connected, connected)), strict=True))
    return QueueAnswer(
        mechanism,
        answer.success_share,
        answer.response_mean_s,
        answer.mean_number,
        dropped,
        queue.phases.connected_share,
        answer.law,
        np.zeros((0, len(connected))),
    )


def _join_rows(queue: OnOffQueue, mechanism: Mechanism, levels: int) -> Array:
    """Join probability by level and phase, the buffer left aside."""
    if mechanism.join_table is None:
        return np.tile(queue.phases.by_state(mechanism.join_probability, 1.0), (levels, 1))
    rows = np.empty((levels, len(queue.phases.connected)))
    for state, row in enumerate(mechanism.join_table):
        column = np.array([row[min(n, len(row) - 1)] for n in range(levels)])
        rows[:, queue.phases.connected == bool(state)] = column[:, None]
    return rows


def _by_levels(queue: OnOffQueue, mechanism: Mechanism) -> QueueAnswer:
    """Returns the answer for finite buffers, exponential lifetimes and join tables, together or alone."""
    expiry = 1.0 / mechanism.lifetime_s if mechanism.expires else 0.0
    table = mechanism.join_table
    if mechanism.buffer_size is not None:
        levels, bounded = mechanism.buffer_size + 1, True
    else:
        longest = 0 if table is None else max(len(row) for row in table)
        bounded = table is not None and all(row[-1] == 0.0 for row in table)
        levels = longest + 1 if bounded else longest + 64
        if not bounded and not expiry and table is not None:
            _refuse_drift(queue, table)
    _check_size(levels, queue)
    probability = _solve(queue, mechanism, levels, expiry)
    while not bounded and probability[-1].sum() > _LEFT_OUT:
        levels *= 2
        _check_size(levels, queue)
        probability = _solve(queue, mechanism, levels, expiry)
    return _level_answer(queue, mechanism, probability, expiry, 0.0 if bounded else float(probability[-1].sum()))


def _refuse_drift(queue: OnOffQueue, table: tuple[tuple[float, ...], tuple[float, ...]]) -> None:
    share = queue.phases.connected_share
    joining = queue.arrival_per_s * (share * table[1][-1] + (1.0 - share) * table[0][-1])
    if joining >= queue.service_per_s * share:
        raise SaturationError(
            f"the queue is unstable: with the last entries of the join table {joining:.6g} events/s join, and "
            f"{queue.service_per_s * share:.6g}/s can be transmitted"
        )


def _check_size(levels: int, queue: OnOffQueue) -> None:
    if levels * len(queue.phases.generator) ** 2 > 4 * _LEVELS_MAX:
        raise AssumptionError(
            f"the queue would need {levels} levels to be computed; it is nearly unstable, or its buffer is so large "
            "that it may be left out"
        )


def _solve(queue: OnOffQueue, mechanism: Mechanism, levels: int, expiry: float) -> Array:
    up = queue.arrival_per_s * _join_rows(queue, mechanism, levels)
    up[-1] = 0.0
    rest = expiry * np.arange(levels, dtype=np.float64)[:, None]
    down = np.asarray(rest + queue.phases.by_state(0.0, queue.service_per_s), dtype=np.float64)
    down[0] = 0.0
    return np.asarray(level_distribution(queue.phases.generator, up, down))


def _level_answer(
    queue: OnOffQueue, mechanism: Mechanism, probability: Array, expiry: float, truncation: float
) -> QueueAnswer:
    connected, arrival = queue.phases.connected, queue.arrival_per_s
    join = _join_rows(queue, mechanism, len(probability))
    full = np.zeros(len(probability), dtype=np.bool_)
    full[-1] = mechanism.buffer_size is not None
    refused = probability * (1.0 - join) * ~full[:, None]
    dropped = {}
    number = np.arange(len(probability)) @ probability
    for state, columns in enumerate((~connected, connected)):
        dropped[_REJECTED[state]] = float(refused[:, columns].sum())
        dropped[_FULL[state]] = float(probability[full][:, columns].sum())
        dropped[_EXPIRED[state]] = expiry * float(number[columns].sum()) / arrival
    joins = probability * join * ~full[:, None]
    accepted = float(joins.sum())
    if accepted == 0.0:
        raise AssumptionError(f"{mechanism.name}: no event ever joins the queue, so there is no response time")
    length = float(number.sum())
    share, time = 1.0, length / (arrival * accepted)
    if expiry:
        serve = queue.phases.by_state(0.0, queue.service_per_s)
        share, spent = delivered_moments(
            queue.phases.generator, serve, expiry, np.asarray(joins / accepted, dtype=np.float64)
        )
        time = spent / share
    law = _level_law(queue, joins, expiry, time)
    reasons = {reason: lost for reason, lost in dropped.items() if lost > 0.0}
    success = accepted * share
    return QueueAnswer(
        mechanism, success, time, length, reasons, queue.phases.connected_share, law, probability, truncation
    )


def _level_law(queue: OnOffQueue, joins: Array, expiry: float, mean_s: float) -> TransformLaw:
    """Returns the response time of a delivered event that joins behind k others in a phase with these weights."""
    serve, generator = queue.phases.by_state(0.0, queue.service_per_s), queue.phases.generator
    weights = joins / joins.sum()
    matters = int(np.argmax(np.cumsum(weights.sum(axis=1)) >= 1.0 - _LEFT_OUT)) + 1
    weights_used = np.ascontiguousarray(weights[:matters])
    share = delivered_moments(generator, serve, expiry, weights_used)[0]

    def transform(points: Complex) -> Complex:
        return np.asarray(delivery_transforms(generator, serve, expiry, weights_used, points)) / share

    return TransformLaw(transform, mean_s)


def after(law: ResponseLaw, mean_s: float) -> ResponseLaw | None:
    """Returns a response time plus an independent exponential time before it; None where it is not computed."""
    if mean_s == 0.0:
        return law
    if isinstance(law, ExponentialSum):
        return replace(law, after_s=mean_s)
    if isinstance(law, TransformLaw):
        inner = law.transform
        return TransformLaw(lambda points: inner(points) / (1.0 + points * mean_s), law.mean_s + mean_s)
    return None
