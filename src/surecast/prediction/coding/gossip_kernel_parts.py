"""Compiled parts that draws share: random numbers, links that lose in bursts, and a heap of what happens next."""
# The kernels take many arrays and are typed by Numba.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surecast.kernels import njit

__all__ = [
    "BAD",
    "GOOD",
    "UNMET",
    "PendingEvents",
    "among",
    "moved",
    "new",
    "new_pending_events",
    "pop",
    "push",
    "some_of",
    "through",
    "unit",
]

UNMET, GOOD, BAD = 0, 1, 2
"""The knowledge of a link: nothing, so that it is met as it is at any time, or its state at the last packet."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


@njit(cache=True)
def unit(words):
    """Returns a uniform number in [0, 1), by SplitMix64; `words` holds its state. NumPy's generators would do, but take
    half a minute to compile.
    """
    words[0] += _GOLDEN
    value = words[0]
    value = (value ^ (value >> np.uint64(30))) * _MIX_1
    value = (value ^ (value >> np.uint64(27))) * _MIX_2
    return np.float64((value ^ (value >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53


@njit(cache=True)
def moved(words, state, loss, to_bad, to_good):
    """Returns the next state of a link."""
    chance = unit(words)
    if state == UNMET:
        is_bad = chance < loss
    elif state == BAD:
        is_bad = chance >= to_good
    else:
        is_bad = chance < to_bad
    return BAD if is_bad else GOOD


@njit(cache=True)
def through(words, ways, links, here, there, sent):
    """Returns the number of packets, sent back to back, that get from one place to another. A bursty link moves on by
    one step with each packet on it, whoever sent it.
    """
    received = 0
    if len(ways.first) == 1:
        for _ in range(sent):
            received += unit(words) < ways.success[here, there]
        return received
    pair = here * len(ways.success) + there
    for _ in range(sent):
        passes = ways.beside >= 1.0 or unit(words) < ways.beside
        hop = ways.first[pair]
        while passes and hop < ways.first[pair + 1]:
            link = ways.way[hop]
            links[link] = moved(words, links[link], ways.loss[link], ways.to_bad[link], ways.to_good[link])
            passes = links[link] == GOOD
            hop += 1
        received += passes
    return received


@njit(cache=True)
def new(words, waste, missing, received):
    """Returns the number of received combinations that are innovative to a member that misses packets."""
    innovative = 0
    for _ in range(received):
        if innovative < missing and unit(words) >= waste ** (missing - innovative):
            innovative += 1
    return innovative


@njit(cache=True)
def among(words, whole, marked, drawn):
    """Returns the number of marked items among items drawn at random from a whole."""
    hits = 0
    for k in range(drawn):
        if unit(words) * (whole - k) < marked - hits:
            hits += 1
    return hits


@njit(cache=True)
def some_of(words, order, view, me):
    """Writes a random part of the group, without the member itself, to `view`; returns its size."""
    size = 0
    members = len(order)
    for k in range(members):
        if size == len(view):
            break
        j = k + int(unit(words) * (members - k))
        order[k], order[j] = order[j], order[k]
        if order[k] != me:
            view[size] = order[k]
            size += 1
    return size


class PendingEvents(NamedTuple):
    """The pending events: a heap of times, and with each its kind, the member, two numbers and a serial number; their
    count, the next serial number, and whether there was no room for one.
    """

    times_s: NDArray[np.float64]
    things: NDArray[np.int64]
    numbers: NDArray[np.int64]


def new_pending_events(capacity: int) -> PendingEvents:
    return PendingEvents(np.empty(capacity), np.empty((capacity, 5), dtype=np.int64), np.zeros(3, dtype=np.int64))


@njit(cache=True)
def push(queue, due_s, kind, who, a, b):
    """Notes what happens at a time, if ever; without room for it, that."""
    times_s, things, numbers = queue
    i = numbers[0]
    if i == len(times_s):
        numbers[2] = 1
    if due_s == np.inf or i == len(times_s):
        return
    # The serial number is the highest: of things at one moment those noted before come first.
    while i > 0 and due_s < times_s[(i - 1) // 2]:
        times_s[i] = times_s[(i - 1) // 2]
        things[i] = things[(i - 1) // 2]
        i = (i - 1) // 2
    times_s[i] = due_s
    things[i, 0], things[i, 1], things[i, 2], things[i, 3], things[i, 4] = kind, who, a, b, numbers[1]
    numbers[0] += 1
    numbers[1] += 1


@njit(cache=True)
def pop(queue):
    """Takes out the first."""
    times_s, things, numbers = queue
    numbers[0] -= 1
    size = numbers[0]
    last_s, serial = times_s[size], things[size, 4]
    i = 0
    while 2 * i + 1 < size:
        child = 2 * i + 1
        other = child + 1
        if other < size and (
            times_s[other] < times_s[child]
            or (times_s[other] == times_s[child] and things[other, 4] < things[child, 4])
        ):
            child = other
        if last_s < times_s[child] or (last_s == times_s[child] and serial < things[child, 4]):
            break
        times_s[i] = times_s[child]
        things[i] = things[child]
        i = child
    times_s[i] = last_s
    things[i] = things[size]
