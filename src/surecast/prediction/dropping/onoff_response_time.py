"""The distribution of the response time of the probabilistic on/off queue: a sum of four exponentials.

Given the state an event finds, its response time is a number of transmissions, interrupted at random, after perhaps the
rest of a disconnected period. Summed over the states it finds, the transform is rational with four poles on the
negative axis, two for each eigenvalue of the rate matrix; so the tail is a sum of four exponentials.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surecast.kernels import njit
from surecast.prediction.dropping.onoff import Codes, JoinAnswer, checked, refuse_unstable

__all__ = [
    "join_probability_for_quantile",
    "probability_within",
    "response_quantile_s",
    "tail_terms",
]

Array = NDArray[np.float64]
_STEPS_MAX = 200


@njit(cache=True)
def terms_of(arrival: float, service: float, on: float, off: float, join: float, weight: Array, rate: Array) -> None:
    """Fills in weights and rates: P(response > t) is the sum of weight * exp(-rate t)."""
    alpha, beta = 1.0 / on, 1.0 / off
    load, leaving, ratio = arrival / service, arrival * join + beta, off / on
    trace = load * (1.0 + join * (service + alpha) / leaving)
    determinant = load * arrival * join / leaving
    gap = math.sqrt(max(trace * trace - 4.0 * determinant, 0.0))
    larger = 0.5 * (trace + gap)
    smaller = determinant / larger
    # det(I - R), in a form that keeps its digits near saturation
    empty = beta * (1.0 - load) - load * join * alpha
    rest = empty / leaving / (1.0 - smaller)
    # P_0,1 of dropping Eq. 22, over the share of events that join
    scale = empty / (alpha + beta) * (1.0 + ratio) / (1.0 + join * ratio) * service / leaving
    for k in range(2):
        eigenvalue, left = (larger, rest) if k == 0 else (smaller, 1.0 - smaller)
        slowed = service * left
        linear = slowed + alpha + beta
        root = math.sqrt((slowed + alpha - beta) ** 2 + 4.0 * alpha * beta)
        fast = 0.5 * (linear + root)
        slow = slowed * beta / fast
        for j in range(2):
            s = -slow if j == 0 else -fast
            slope = root if j == 0 else -root
            # beta + s without cancellation: the poles solve (s + beta)(s + slowed + alpha) = alpha beta
            above = beta - slow if j == 0 else -alpha * fast / (fast - slowed) if fast > slowed else beta - fast
            top = eigenvalue * (join * alpha * beta + leaving * above) - arrival * join * above
            sign = 1.0 if k == 0 else -1.0
            weight[2 * k + j] = scale * top * sign / (gap * slope) / -s
            rate[2 * k + j] = -s


@njit(cache=True)
def tail_of(t: float, weight: Array, rate: Array) -> float:
    total = 0.0
    for i in range(4):
        total += weight[i] * math.exp(-rate[i] * t)
    return total


@njit(cache=True)
def quantile_of(left: float, weight: Array, rate: Array) -> float:
    """Returns the time that is exceeded with probability `left`: Newton's method on the tail's logarithm, kept in
    bounds.
    """
    low, high, time = 0.0, np.inf, -math.log(left) / rate[0]
    for _ in range(_STEPS_MAX):
        tail, slope = 0.0, 0.0
        for i in range(4):
            part = weight[i] * math.exp(-rate[i] * time)
            tail += part
            slope += rate[i] * part
        if tail > left:
            low = time
        else:
            high = time
        step = math.log(tail / left) * tail / slope if tail > 0.0 and slope > 0.0 else np.inf
        if abs(step) <= 1e-13 * time or high - low <= 1e-15 * high:
            break
        time += step
        if not low < time < high:
            time = 0.5 * (low + high) if high < np.inf else 2.0 * low
    return float(time)


@njit(cache=True)
def _tails(table: Array, out: Array) -> None:
    weight, rate = np.empty(4), np.empty(4)
    for i in range(len(out)):
        row = table[i]
        terms_of(row[1], row[2], row[3], row[4], row[5], weight, rate)
        out[i] = tail_of(row[0], weight, rate)


@njit(cache=True)
def _quantiles(table: Array, out: Array) -> None:
    weight, rate = np.empty(4), np.empty(4)
    for i in range(len(out)):
        row = table[i]
        terms_of(row[1], row[2], row[3], row[4], row[5], weight, rate)
        out[i] = quantile_of(1.0 - row[0], weight, rate)


@njit(cache=True)
def _excess(row: Array, join: float, weight: Array, rate: Array) -> float:
    """By how much too many events are late; the most there can be in an unstable queue."""
    if row[2] * (1.0 + join * row[5] / row[4]) >= row[3]:
        return 1.0
    terms_of(row[2], row[3], row[4], row[5], join, weight, rate)
    return float(tail_of(row[0], weight, rate) - (1.0 - row[1]))


@njit(cache=True)
def _joins(table: Array, out: Array, verdict: Codes) -> None:
    """Largest join probabilities by regula falsi in the Illinois form, which needs a dozen steps."""
    weight, rate = np.empty(4), np.empty(4)
    for i in range(len(out)):
        row = table[i]
        out[i] = np.nan
        if row[2] >= row[3]:
            verdict[i] = 3
            continue
        low, f_low = 0.0, _excess(row, 0.0, weight, rate)
        if f_low > 0.0:
            verdict[i] = 2
            continue
        high, f_high = 1.0, _excess(row, 1.0, weight, rate)
        if f_high <= 0.0:
            verdict[i], out[i] = 1, 1.0
            continue
        verdict[i] = 0
        side = 0
        for _ in range(_STEPS_MAX):
            join = (low * f_high - high * f_low) / (f_high - f_low)
            if not low < join < high:
                join = 0.5 * (low + high)
            value = _excess(row, join, weight, rate)
            if value <= 0.0:
                low, f_low = join, value
                if side == -1:
                    f_high *= 0.5
                side = -1
            else:
                high, f_high = join, value
                if side == 1:
                    f_low *= 0.5
                side = 1
            if abs(value) <= 1e-13:
                low = join
                break
            if high - low <= 1e-12 * high:
                break
        out[i] = low


def _table(arrays: tuple[Array, ...]) -> tuple[Array, tuple[int, ...]]:
    spread = np.broadcast_arrays(*arrays)
    return np.ascontiguousarray(np.stack([a.ravel() for a in spread], axis=1)), spread[0].shape


def tail_terms(
    arrival_per_s: float, service_per_s: float, on_s: float, off_s: float, join_probability: float = 1.0
) -> tuple[Array, Array]:
    """Returns weights and rates per second such that P(response > t) is the sum of weight * exp(-rate t).

    >>> weights, rates = tail_terms(2.0, 8.0, 20.0, 20.0, 1.0)
    >>> float(weights.sum().round(12)), float((weights / rates).sum().round(12))
    (1.0, 20.5)
    """
    queue = checked(arrival_per_s=arrival_per_s, service_per_s=service_per_s, on_s=on_s, off_s=off_s)
    (join,) = checked(join_probability=join_probability)
    arrival, service, on, off = queue
    refuse_unstable(arrival, service, on, off, join)
    weight, rate = np.empty(4), np.empty(4)
    terms_of(float(arrival), float(service), float(on), float(off), float(join), weight, rate)
    return weight, rate


def probability_within(
    deadline_s: ArrayLike,
    arrival_per_s: ArrayLike,
    service_per_s: ArrayLike,
    on_s: ArrayLike,
    off_s: ArrayLike,
    join_probability: ArrayLike = 1.0,
) -> Array:
    """Returns the probability that an event that joined the queue is delivered within a time.

    >>> float(probability_within(7.0, 2.0, 8.0, 20.0, 20.0, 0.3822).round(4))
    0.761
    """
    queue = checked(
        deadline_s=deadline_s, arrival_per_s=arrival_per_s, service_per_s=service_per_s, on_s=on_s, off_s=off_s
    )
    (join,) = checked(join_probability=join_probability)
    _, arrival, service, on, off = queue
    refuse_unstable(arrival, service, on, off, join)
    table, shape = _table((*queue, join))
    out = np.empty(len(table))
    _tails(table, out)
    return np.asarray(1.0 - out.reshape(shape))


def response_quantile_s(
    quantile: ArrayLike,
    arrival_per_s: ArrayLike,
    service_per_s: ArrayLike,
    on_s: ArrayLike,
    off_s: ArrayLike,
    join_probability: ArrayLike = 1.0,
) -> Array:
    """Returns the time within which a share of the events that joined the queue is delivered.

    >>> response_quantile_s([0.5, 0.99], 2.0, 8.0, 20.0, 20.0, 0.3822).round(3).tolist()
    [0.259, 78.567]
    """
    queue = checked(quantile=quantile, arrival_per_s=arrival_per_s, service_per_s=service_per_s, on_s=on_s, off_s=off_s)
    (join,) = checked(join_probability=join_probability)
    _, arrival, service, on, off = queue
    refuse_unstable(arrival, service, on, off, join)
    table, shape = _table((*queue, join))
    out = np.empty(len(table))
    _quantiles(table, out)
    return out.reshape(shape)


def join_probability_for_quantile(
    target_s: ArrayLike,
    quantile: ArrayLike,
    arrival_per_s: ArrayLike,
    service_per_s: ArrayLike,
    on_s: ArrayLike,
    off_s: ArrayLike,
) -> JoinAnswer:
    """Returns the largest join probability with which a share of the accepted events is delivered within the target.

    >>> answer = join_probability_for_quantile(7.0, [0.5, 0.8, 0.99], 2.0, 8.0, 20.0, 20.0)
    >>> answer.join_probability.round(4).tolist()
    [0.9144, 0.3126, 0.0058]
    """
    queue = checked(
        target_s=target_s,
        quantile=quantile,
        arrival_per_s=arrival_per_s,
        service_per_s=service_per_s,
        on_s=on_s,
        off_s=off_s,
    )
    table, shape = _table(queue)
    out, verdict = np.empty(len(table)), np.empty(len(table), dtype=np.int8)
    _joins(table, out, verdict)
    return JoinAnswer(out.reshape(shape), verdict.reshape(shape))
