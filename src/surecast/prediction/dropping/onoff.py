"""The probabilistic on/off queue in closed form, for whole arrays of parameters at once.

Events arrive at a rate; they join the queue while the subscriber is connected and with a probability while it is not.
They are transmitted one at a time, in order, while it is connected. Connected and disconnected periods are exponential.
All functions take numbers or arrays that broadcast, and refuse what they cannot answer with the place in the array.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surecast.errors import ConfigurationError, SaturationError

__all__ = [
    "ArrivalAnswer",
    "JoinAnswer",
    "TargetVerdict",
    "accepted_rate_per_s",
    "arrival_limit_per_s",
    "arrival_rate_for",
    "checked",
    "join_probability_for",
    "mean_number",
    "rate_matrix",
    "refuse_unstable",
    "response_mean_s",
    "stationary",
    "success_share",
]

Array = NDArray[np.float64]
Codes = NDArray[np.int8]


class TargetVerdict(IntEnum):
    """The verdict on a target: it can be met, or why not.

    >>> TargetVerdict(2).name
    'IMPOSSIBLE'
    """

    DROPPING = 0
    """The target is met with equality, by dropping some events."""
    NOT_NEEDED = 1
    """The target is met although nothing is dropped."""
    IMPOSSIBLE = 2
    """The target is not met even when everything is dropped that may be."""
    UNSTABLE = 3
    """Connected periods alone bring more than can be transmitted, so that the queue grows without end."""


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    """Join probabilities and, for each, what became of the target (codes of `TargetVerdict`); NaN where there is
    none."""

    join_probability: Array
    verdict: Codes


@dataclass(frozen=True, slots=True)
class ArrivalAnswer:
    """Largest arrival rates and, for each, what became of the target (codes of `TargetVerdict`); NaN where there is
    none."""

    arrival_per_s: Array
    verdict: Codes


def _first(values: Array, wrong: NDArray[np.bool_]) -> str:
    index = np.argwhere(wrong)[0]
    place = f" at index {index[0] if len(index) == 1 else tuple(int(i) for i in index)}" if values.ndim else ""
    return f"{float(values[tuple(index)])!r}{place}"


def checked(**parameters: ArrayLike) -> tuple[Array, ...]:
    """Returns the parameters as arrays; all must be above 0 and finite, a join probability between 0 and 1."""
    arrays = []
    for name, value in parameters.items():
        array = np.asarray(value, dtype=np.float64)
        if name == "join_probability":
            right, rule = (array >= 0.0) & (array <= 1.0), "between 0 and 1"
        elif name == "quantile":
            right, rule = (array > 0.0) & (array < 1.0), "between 0 and 1, both excluded"
        else:
            right, rule = (array > 0.0) & np.isfinite(array), "above 0 and finite"
        if not right.all():
            raise ConfigurationError(f"{name}: {_first(array, ~right)} must be {rule}")
        arrays.append(array)
    return tuple(arrays)


def refuse_unstable(arrival: Array, service: Array, on: Array, off: Array, join: Array) -> None:
    """Refuses parameters whose queue grows without end (the corrected condition: lambda_eff < mu P_ON)."""
    offered = arrival * (1.0 + join * off / on)
    wrong = np.broadcast_to(offered >= service, np.broadcast(offered, service).shape)
    if wrong.any():
        load = np.broadcast_to(offered / service, wrong.shape)
        raise SaturationError(
            f"the queue is unstable: its utilisation while connected would be {_first(load, wrong)}; it needs "
            "arrival_per_s * (1 + join_probability * off_s / on_s) < service_per_s"
        )


def arrival_limit_per_s(
    service_per_s: ArrayLike, on_s: ArrayLike, off_s: ArrayLike, join_probability: ArrayLike
) -> Array:
    """Returns the arrival rate from which on the queue grows without end.

    >>> float(arrival_limit_per_s(8.0, 20.0, 20.0, 1.0))
    4.0
    """
    service, on, off, join = checked(
        service_per_s=service_per_s, on_s=on_s, off_s=off_s, join_probability=join_probability
    )
    return np.asarray(service / (1.0 + join * off / on))


def success_share(on_s: ArrayLike, off_s: ArrayLike, join_probability: ArrayLike) -> Array:
    """Returns the share of the events that join the queue; in a stable queue all of them are delivered.

    >>> float(success_share(20.0, 20.0, 0.5))
    0.75
    """
    on, off, join = checked(on_s=on_s, off_s=off_s, join_probability=join_probability)
    return np.asarray((on + join * off) / (on + off))


def accepted_rate_per_s(
    arrival_per_s: ArrayLike, on_s: ArrayLike, off_s: ArrayLike, join_probability: ArrayLike
) -> Array:
    """Events that join the queue per second (dropping Eq. 28, lambda_eff).

    >>> float(accepted_rate_per_s(2.0, 20.0, 20.0, 0.5))
    1.5
    """
    (arrival,) = checked(arrival_per_s=arrival_per_s)
    return np.asarray(arrival * success_share(on_s, off_s, join_probability))


def rate_matrix(
    arrival_per_s: float, service_per_s: float, on_s: float, off_s: float, join_probability: float
) -> Array:
    """Returns the rate matrix R of the queue (dropping Eq. 19); first row and column: disconnected.

    >>> rate_matrix(2.0, 8.0, 20.0, 20.0, 1.0).round(4).tolist()
    [[0.9817, 0.25], [0.0061, 0.25]]
    """
    queue = _queue(arrival_per_s, service_per_s, on_s, off_s, join_probability)
    arrival, service, on, off, join = (float(v) for v in queue)
    leaving = arrival * join + 1.0 / off
    # dropping Eq. 19
    rows = [[join * (service + 1.0 / on) / leaving, join], [1.0 / on / leaving, 1.0]]
    return np.asarray(arrival / service * np.array(rows))


def stationary(
    arrival_per_s: float, service_per_s: float, on_s: float, off_s: float, join_probability: float, levels: int
) -> Array:
    """Returns the probability of 0, 1, ... events (rows) while disconnected and while connected (columns).

    >>> stationary(2.0, 8.0, 20.0, 20.0, 1.0, 2).round(5).tolist()
    [[0.0061, 0.25], [0.00751, 0.06402]]
    """
    rate = rate_matrix(arrival_per_s, service_per_s, on_s, off_s, join_probability)
    arrival, service, on, off, join = _queue(arrival_per_s, service_per_s, on_s, off_s, join_probability)
    refuse_unstable(arrival, service, on, off, join)
    # dropping Eq. 22
    empty_on = (on - arrival / service * (on + join * off)) / (on + off)
    probability = np.empty((levels, 2))
    probability[0] = empty_on * np.array([1.0 / on / (arrival * join + 1.0 / off), 1.0])
    for level in range(1, levels):
        # dropping Eq. 13
        probability[level] = probability[level - 1] @ rate
    return probability


def mean_number(
    arrival_per_s: ArrayLike,
    service_per_s: ArrayLike,
    on_s: ArrayLike,
    off_s: ArrayLike,
    join_probability: ArrayLike = 1.0,
    *,
    refuse: bool = True,
) -> Array:
    """Returns the mean number of events in the queue, the one in transmission included.

    An unstable queue is refused; without `refuse` its mean is infinite.

    >>> float(mean_number(2.0, 8.0, 20.0, 20.0, 1.0))
    41.0
    >>> mean_number(5.0, 8.0, 20.0, 20.0, 1.0)
    Traceback (most recent call last):
    ...
    surecast.errors.SaturationError: the queue is unstable: its utilisation while connected would be 1.25; it needs \
arrival_per_s * (1 + join_probability * off_s / on_s) < service_per_s
    """
    arrival, service, on, off, join = _queue(arrival_per_s, service_per_s, on_s, off_s, join_probability)
    if refuse:
        refuse_unstable(arrival, service, on, off, join)
    ratio = off / on
    offered = arrival * (1.0 + join * ratio)
    spare = service - offered
    # dropping Eq. 25 in a shorter and better conditioned form
    busy = offered + (arrival * join) ** 2 * ratio * off
    with np.errstate(divide="ignore"):
        value = np.where(spare > 0.0, busy / np.where(spare > 0.0, spare, 1.0), np.inf)
    return np.asarray(value + arrival * join * off * off / (on + off))


def response_mean_s(
    arrival_per_s: ArrayLike,
    service_per_s: ArrayLike,
    on_s: ArrayLike,
    off_s: ArrayLike,
    join_probability: ArrayLike = 1.0,
    *,
    refuse: bool = True,
) -> Array:
    """Returns the mean time from joining the queue to the end of transmission, by Little's law (dropping Eq. 28).

    >>> float(response_mean_s(2.0, 8.0, 20.0, 20.0, 1.0))
    20.5
    """
    number = mean_number(arrival_per_s, service_per_s, on_s, off_s, join_probability, refuse=refuse)
    return np.asarray(number / accepted_rate_per_s(arrival_per_s, on_s, off_s, join_probability))


def join_probability_for(
    target_s: ArrayLike,
    arrival_per_s: ArrayLike,
    service_per_s: ArrayLike,
    on_s: ArrayLike,
    off_s: ArrayLike,
) -> JoinAnswer:
    """Returns the largest join probability with which the mean response time meets a target, and whether there is one.

    >>> answer = join_probability_for([1.0, 7.0, 30.0, 0.1], 2.0, 8.0, 20.0, 20.0)
    >>> answer.join_probability.round(4).tolist()
    [0.0335, 0.3537, 1.0, nan]
    >>> [TargetVerdict(code).name for code in answer.verdict]
    ['DROPPING', 'DROPPING', 'NOT_NEEDED', 'IMPOSSIBLE']
    """
    target, *queue = checked(
        target_s=target_s, arrival_per_s=arrival_per_s, service_per_s=service_per_s, on_s=on_s, off_s=off_s
    )
    arrival, service, on, off = queue
    ratio, spare = off / on, service - arrival
    # response <= target, multiplied out, is a z**2 + b z + c <= 0 with a > 0: if c <= 0 it has one root z >= 0
    a = arrival * ratio * (off + ratio * target)
    b = ratio * (1.0 + ratio + (off - target) * spare + target * arrival)
    c = 1.0 + ratio - target * spare
    root = np.sqrt(np.maximum(b * b - 4.0 * a * c, 0.0))
    # the two forms of the root, each where nothing cancels
    with np.errstate(divide="ignore", invalid="ignore"):
        zeta = np.where(b > 0.0, -2.0 * c / (b + root), (root - b) / (2.0 * a))
    reachable, stable = c <= 0.0, spare > 0.0
    verdict = np.where(
        reachable, np.where(zeta >= 1.0, TargetVerdict.NOT_NEEDED, TargetVerdict.DROPPING), TargetVerdict.IMPOSSIBLE
    )
    verdict = np.where(stable, verdict, TargetVerdict.UNSTABLE)
    zeta = np.where(verdict <= TargetVerdict.NOT_NEEDED, np.clip(zeta, 0.0, 1.0), np.nan)
    return JoinAnswer(np.asarray(zeta), verdict.astype(np.int8))


def arrival_rate_for(
    target_s: ArrayLike,
    service_per_s: ArrayLike,
    on_s: ArrayLike,
    off_s: ArrayLike,
    join_probability: ArrayLike,
) -> ArrivalAnswer:
    """Returns the largest arrival rate at which the mean response time meets a target with a given join probability.

    >>> answer = arrival_rate_for([7.0, 12.0], 8.0, 20.0, 20.0, [0.25, 0.25])
    >>> answer.arrival_per_s.round(4).tolist()
    [3.8261, 5.1667]
    >>> float(response_mean_s(answer.arrival_per_s[0], 8.0, 20.0, 20.0, 0.25).round(9))
    7.0
    """
    target, service, on, off, join = checked(
        target_s=target_s, service_per_s=service_per_s, on_s=on_s, off_s=off_s, join_probability=join_probability
    )
    ratio = off / on
    more = 1.0 + join * ratio
    # response <= target, multiplied out, is linear in the arrival rate; at rate 0 it reads b <= 0, and then a > 0
    a = target * more**2 - join * ratio * off * (1.0 - join)
    b = (1.0 + ratio) * more + service * (join * ratio * off - target * more)
    reachable = b < 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = np.where(reachable, -b / a, np.nan)
    verdict = np.where(reachable, TargetVerdict.DROPPING, TargetVerdict.IMPOSSIBLE)
    return ArrivalAnswer(np.asarray(rate), verdict.astype(np.int8))


def _queue(
    arrival_per_s: ArrayLike, service_per_s: ArrayLike, on_s: ArrayLike, off_s: ArrayLike, join_probability: ArrayLike
) -> tuple[Array, ...]:
    return checked(
        arrival_per_s=arrival_per_s,
        service_per_s=service_per_s,
        on_s=on_s,
        off_s=off_s,
        join_probability=join_probability,
    )
