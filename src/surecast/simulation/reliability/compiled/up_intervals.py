"""Compiled arithmetic on sorted lists of half-open intervals [start, end) and on periodic instants.

A component's trace is such a list: the times at which it is up. Periodic instants, the *ticks* of a clock, are always
computed as `phase + k * period`, so that comparing them with the ends of intervals is exact.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from surecast.kernels import njit

__all__ = [
    "Floats",
    "Intervals",
    "count_ticks",
    "first_tick",
    "flood",
    "intersect",
    "join",
    "refreshed",
    "total_ticks",
    "unite",
]

Floats: TypeAlias = NDArray[np.float64]
Intervals: TypeAlias = tuple[Floats, Floats]
"""Starts and ends, sorted, not overlapping."""


@njit(cache=True)
def first_tick(phase: float, period: float, time: float) -> int:
    """The smallest k from 0 on with `phase + k * period >= time`.

    >>> first_tick(1.0, 10.0, 21.0), first_tick(1.0, 10.0, 21.5), first_tick(1.0, 10.0, -5.0)
    (2, 3, 0)
    """
    k = max(0, math.ceil((time - phase) / period))
    while k > 0 and phase + (k - 1) * period >= time:
        k -= 1
    while phase + k * period < time:
        k += 1
    return k


@njit(cache=True)
def count_ticks(  # type: ignore[no-untyped-def]
    starts, ends, phase, period, first, stride, stop
):
    """Returns how many of the ticks `first`, `first + stride`, ... below `stop` fall into the intervals."""
    total = 0
    last = phase + stop * period
    for i in range(len(starts)):
        if starts[i] > last:
            break
        low = max(first, first_tick(phase, period, starts[i]))
        high = stop if ends[i] > last else min(stop, first_tick(phase, period, ends[i]))
        if high > low:
            total += (high - 1 - first) // stride - (low - 1 - first) // stride
    return total


def total_ticks(first: int, stride: int, stop: int) -> int:
    """Returns how many ticks `first`, `first + stride`, ... there are below `stop`.

    >>> total_ticks(1, 3, 8)
    3
    """
    return len(range(first, stop, stride))


@njit(cache=True)
def intersect(starts_a, ends_a, starts_b, ends_b):  # type: ignore[no-untyped-def]
    """The times in both lists; intervals that only touch stay apart, as the crash between them is real."""
    size = len(starts_a) + len(starts_b)
    starts, ends = np.empty(size), np.empty(size)
    i = j = n = 0
    while i < len(starts_a) and j < len(starts_b):
        low, high = max(starts_a[i], starts_b[j]), min(ends_a[i], ends_b[j])
        if low < high:
            starts[n], ends[n] = low, high
            n += 1
        if ends_a[i] < ends_b[j]:
            i += 1
        else:
            j += 1
    return starts[:n].copy(), ends[:n].copy()


@njit(cache=True)
def unite(starts_a, ends_a, starts_b, ends_b):  # type: ignore[no-untyped-def]
    """The times in at least one of two lists."""
    size = len(starts_a) + len(starts_b)
    starts, ends = np.empty(size), np.empty(size)
    i = j = n = 0
    while i < len(starts_a) or j < len(starts_b):
        if j == len(starts_b) or (i < len(starts_a) and starts_a[i] <= starts_b[j]):
            low, high = starts_a[i], ends_a[i]
            i += 1
        else:
            low, high = starts_b[j], ends_b[j]
            j += 1
        if n > 0 and low <= ends[n - 1]:
            ends[n - 1] = max(ends[n - 1], high)
        else:
            starts[n], ends[n] = low, high
            n += 1
    return starts[:n].copy(), ends[:n].copy()


@njit(cache=True)
def refreshed(  # type: ignore[no-untyped-def]
    starts, ends, broker_starts, broker_ends, phase, period, timeout, horizon
):
    """Returns the times at which a broker holds a routing entry.

    `starts` and `ends` say when a refresh gets through to the broker, `broker_starts` and `broker_ends` when it is
    up. Refreshes are issued at the ticks of (phase, period); an entry lasts from the first one that gets through until
    the broker crashes, or until `timeout` after the last one. At time 0 every broker that is up holds the entry,
    refreshed at the tick before.
    """
    out_starts, out_ends = np.empty(len(starts) + 1), np.empty(len(starts) + 1)
    n = 0
    if len(broker_starts) > 0 and broker_starts[0] <= 0.0 < phase - period + timeout:
        out_starts[0], out_ends[0] = 0.0, min(broker_ends[0], phase - period + timeout)
        n = 1
    b = 0
    for i in range(len(starts)):
        if starts[i] > horizon:
            break
        k = first_tick(phase, period, starts[i])
        low = phase + k * period
        if low >= ends[i]:
            continue
        last = phase + (first_tick(phase, period, min(ends[i], horizon + 2 * period)) - 1) * period
        while broker_ends[b] <= starts[i]:
            b += 1
        high = min(max(last, low) + timeout, broker_ends[b])
        if n > 0 and low <= out_ends[n - 1]:
            out_ends[n - 1] = max(out_ends[n - 1], high)
        else:
            out_starts[n], out_ends[n] = low, high
            n += 1
    return out_starts[:n].copy(), out_ends[:n].copy()


@njit(cache=True)
def flood(  # type: ignore[no-untyped-def]
    starts, ends, offsets, order, before, link, onward, phase, period, first, stop
):
    """Returns when messages flooded along a tree get to each broker, and how many are sent at the ticks of a clock.

    `starts`, `ends` and `offsets` are the joined traces of all components. `order` has the brokers from the origin on;
    `before` is the position of the one each gets messages from (-1 for the origin), `link` the component between them,
    `onward` to how many it passes them on. Returns joined lists, in that order, and the number of messages.
    """
    size, used, messages = 256, 0, 0
    out_starts, out_ends = np.empty(size), np.empty(size)
    out_offsets = np.zeros(len(order) + 1, dtype=np.int64)
    for i in range(len(order)):
        low, high = offsets[order[i]], offsets[order[i] + 1]
        got_starts, got_ends = starts[low:high].copy(), ends[low:high].copy()
        if before[i] >= 0:
            low, high = offsets[link[i]], offsets[link[i] + 1]
            got_starts, got_ends = intersect(got_starts, got_ends, starts[low:high], ends[low:high])
            low, high = out_offsets[before[i]], out_offsets[before[i] + 1]
            got_starts, got_ends = intersect(got_starts, got_ends, out_starts[low:high], out_ends[low:high])
        while used + len(got_starts) > size:
            size *= 2
            out_starts, out_ends = np.append(out_starts, out_starts), np.append(out_ends, out_ends)
        out_starts[used : used + len(got_starts)] = got_starts
        out_ends[used : used + len(got_starts)] = got_ends
        used += len(got_starts)
        out_offsets[i + 1] = used
        messages += onward[i] * count_ticks(got_starts, got_ends, phase, period, first, 1, stop)
    return out_starts[:used], out_ends[:used], out_offsets, messages


def join(lists: list[Intervals]) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Several lists as one: all starts, all ends, and where each list begins (one more offset at the end).

    >>> join([(np.array([0.0]), np.array([2.0])), (np.array([1.0, 5.0]), np.array([3.0, 6.0]))])[2].tolist()
    [0, 1, 3]
    """
    offsets = np.zeros(len(lists) + 1, dtype=np.int64)
    np.cumsum([len(starts) for starts, _ in lists], out=offsets[1:])
    if not lists:
        return np.empty(0), np.empty(0), offsets
    return np.concatenate([starts for starts, _ in lists]), np.concatenate([ends for _, ends in lists]), offsets
