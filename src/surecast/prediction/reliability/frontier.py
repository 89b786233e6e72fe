"""The probability that two brokers are connected, exactly, by sweeping a frontier over the graph.

Brokers are taken up one by one. The frontier holds those that still have links to brokers not yet taken up; a state
says which of them are down and which of the others are connected with each other, with the source or with the target.
States that agree are merged, so their number depends on the width of the frontier and not on the size of the graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from surecast.kernels import njit

__all__ = ["WIDTH_MAX", "FrontierSteps", "plan_sweep", "run_sweep"]

WIDTH_MAX = 13
"""Brokers in the frontier: a state has four bits for each, in one 64-bit word."""
_TAKE, _LINK, _DROP = 0, 1, 2
_SOURCE, _TARGET, _OTHER = 1, 2, 3

Words = NDArray[np.uint64]
Numbers = NDArray[np.int64]
Array = NDArray[np.float64]


@dataclass(frozen=True)
class FrontierSteps:
    """The steps of a sweep: take up a broker at a place of the frontier, join two places by a link, drop a place."""

    kind: Numbers
    first: Numbers
    second: Numbers
    up: Array
    width: int


Neighbours = tuple[tuple[int, tuple[int, ...]], ...]
"""The neighbours of each broker of a graph, whatever the availability of its links."""
Step = tuple[int, int, int, int, int]
"""A step's kind, two places or a label, and the one broker or two whose availability it has; -1: none."""
ORDERS_MAX = 20_000
"""Orders of sweeps that are remembered: a search for improvements asks for the same pairs of the same graph again."""


def plan_sweep(
    adjacency: dict[int, dict[int, float]], node_up: dict[int, float], source: int, target: int
) -> FrontierSteps:
    """Returns an order that keeps the frontier narrow: the best of a greedy order from either end."""
    graph = tuple((v, tuple(neighbours)) for v, neighbours in adjacency.items())
    steps, width = _order(graph, source, target)
    up = [1.0 if a < 0 else node_up[a] if b < 0 else adjacency[a][b] for _, _, _, a, b in steps]
    kind, first, second = np.array([step[:3] for step in steps], dtype=np.int64).T.copy()
    return FrontierSteps(kind, first, second, np.array(up), width)


@lru_cache(maxsize=ORDERS_MAX)
def _order(graph: Neighbours, source: int, target: int) -> tuple[tuple[Step, ...], int]:
    """Returns the steps of the better of two greedy orders, and the width of the frontier."""
    adjacency = dict(graph)
    _, steps, width = min((_steps(adjacency, source, target, first) for first in (source, target)), key=lambda o: o[0])
    return steps, width


def _steps(
    adjacency: dict[int, tuple[int, ...]], source: int, target: int, first: int
) -> tuple[tuple[int, int], tuple[Step, ...], int]:
    """Returns the width and cost of an order that begins at a broker, its steps, and its width."""
    left = {v: set(neighbours) for v, neighbours in adjacency.items()}
    slots: dict[int, int] = {}
    free: list[int] = []
    steps: list[Step] = []
    width = cost = 0
    waiting = set(adjacency)
    entered: dict[int, int] = {}
    chosen = first
    while waiting:
        waiting.discard(chosen)
        entered[chosen] = len(entered)
        slot = free.pop() if free else len(slots)
        slots[chosen] = slot
        width = max(width, len(slots))
        cost += 3 ** len(slots)
        label = {source: _SOURCE, target: _TARGET}.get(chosen, _OTHER)
        steps.append((_TAKE, slot, label, chosen if label == _OTHER else -1, -1))
        for other in sorted(adjacency[chosen], key=lambda v: entered.get(v, -1)):
            if other in slots:
                steps.append((_LINK, slots[other], slot, chosen, other))
                for u, v in ((other, chosen), (chosen, other)):
                    left[u].discard(v)
                if not left[other]:
                    free.append(slots.pop(other))
                    steps.append((_DROP, free[-1], 0, -1, -1))
        if not left[chosen]:
            free.append(slots.pop(chosen))
            steps.append((_DROP, free[-1], 0, -1, -1))
        free.sort(reverse=True)
        near = {v for other in slots for v in adjacency[other] if v in waiting} or waiting
        if near:
            chosen = min(near, key=lambda v: _growth(v, adjacency, left, slots, entered))
    return (width, cost), tuple(steps), width


def _growth(
    v: int,
    adjacency: dict[int, tuple[int, ...]],
    left: dict[int, set[int]],
    slots: dict[int, int],
    entered: dict[int, int],
) -> tuple[int, int, int]:
    """By how much taking up v widens the frontier; then the longest-waiting neighbour first."""
    inside = [u for u in adjacency[v] if u in slots]
    stays = 1 if len(inside) < len(adjacency[v]) else 0
    freed = sum(1 for u in inside if len(left[u]) == 1)
    return stays - freed, min((entered[u] for u in inside), default=0), v


def run_sweep(sweep: FrontierSteps, states_max: int) -> tuple[float | None, int]:
    """Returns P[source and target connected, given that both are up], or None beyond `states_max`; and the work done,
    in states times steps.
    """
    if sweep.width > WIDTH_MAX:
        return None, 0
    bits = 12
    while True:
        room = min(2**bits, states_max)
        value, work = _sweep(sweep.kind, sweep.first, sweep.second, sweep.up, sweep.width, room)
        if value >= 0:
            return float(value), int(work)
        if room >= states_max:
            return None, int(work)
        bits += 3


@njit(cache=True)
def _canonical(key: np.uint64, width: int) -> np.uint64:
    """Returns the same state with the labels of other components in order of appearance."""
    names = np.zeros(16, dtype=np.uint64)
    following = np.uint64(3)
    result = np.uint64(0)
    for i in range(width):
        label = (key >> np.uint64(4 * i)) & np.uint64(15)
        if label >= np.uint64(3):
            if names[label] == np.uint64(0):
                names[label] = following
                following += np.uint64(1)
            label = names[label]
        result |= label << np.uint64(4 * i)
    return result


@njit(cache=True)
def _relabel(key: np.uint64, width: int, old: np.uint64, new: np.uint64) -> np.uint64:
    result = np.uint64(0)
    for i in range(width):
        label = (key >> np.uint64(4 * i)) & np.uint64(15)
        if label == old:
            label = new
        result |= label << np.uint64(4 * i)
    return result


@njit(cache=True)
def _places_with(key: np.uint64, width: int, label: np.uint64) -> int:
    count = 0
    for i in range(width):
        if (key >> np.uint64(4 * i)) & np.uint64(15) == label:
            count += 1
    return count


@njit(cache=True)
def _spot(table: Numbers, key: np.uint64) -> np.uint64:
    return ((key * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20)) & np.uint64(len(table) - 1)


@njit(cache=True)
def _add(table: Numbers, keys: Words, masses: Array, count: int, key: np.uint64, mass: float) -> int:
    """Adds mass to a state, found by hashing; returns the number of states, more than there is room for if full."""
    if mass <= 0.0 or count > len(keys):
        return count
    spot = _spot(table, key)
    while table[spot] >= 0:
        if keys[table[spot]] == key:
            masses[table[spot]] += mass
            return count
        spot = (spot + np.uint64(1)) & np.uint64(len(table) - 1)
    if count < len(keys):
        table[spot] = count
        keys[count] = key
        masses[count] = mass
    return count + 1


@njit(cache=True)
def _clear(table: Numbers, keys: Words, count: int) -> None:
    """Empties the hash table again: each key from its spot to the end of its cluster."""
    for i in range(count):
        spot = _spot(table, keys[i])
        while table[spot] >= 0:
            table[spot] = -1
            spot = (spot + np.uint64(1)) & np.uint64(len(table) - 1)


@njit(cache=True)
def _step(
    kind: int,
    first: int,
    second: int,
    up: float,
    width: int,
    table: Numbers,
    state: tuple[np.uint64, float],
    keys: Words,
    masses: Array,
    count: int,
) -> tuple[int, float]:
    """Applies one step to one state: adds its successors; returns their number and the mass that is connected."""
    key, mass = state
    a, b = np.uint64(4 * first), np.uint64(4 * second)
    first_part = (key >> a) & np.uint64(15)
    if kind == _TAKE:
        label = np.uint64(second) if second < _OTHER else np.uint64(15)
        count = _add(table, keys, masses, count, _canonical(key | (label << a), width), mass * up)
        return _add(table, keys, masses, count, key, mass * (1.0 - up)), 0.0
    if kind == _DROP:
        # an end whose component has left the frontier can be reached no more
        if first_part != np.uint64(0) and first_part < np.uint64(3) and _places_with(key, width, first_part) == 1:
            return count, 0.0
        rest = key & ~(np.uint64(15) << a)
        return _add(table, keys, masses, count, _canonical(rest, width), mass), 0.0
    second_part = (key >> b) & np.uint64(15)
    if first_part == np.uint64(0) or second_part == np.uint64(0) or first_part == second_part:
        return _add(table, keys, masses, count, key, mass), 0.0
    count = _add(table, keys, masses, count, key, mass * (1.0 - up))
    low, high = min(first_part, second_part), max(first_part, second_part)
    if high == np.uint64(2):
        return count, mass * up
    joined = _canonical(_relabel(key, width, high, low), width)
    return _add(table, keys, masses, count, joined, mass * up), 0.0


@njit(cache=True)
def _sweep(kind: Numbers, first: Numbers, second: Numbers, up: Array, width: int, room: int) -> tuple[float, int]:
    """Returns the probability and the work; a negative probability if there was no room."""
    size = 16
    while size < 3 * room:
        size *= 2
    table = np.full(size, -1, dtype=np.int64)
    keys, fresh_keys = np.zeros(room, dtype=np.uint64), np.zeros(room, dtype=np.uint64)
    masses, fresh_masses = np.zeros(room), np.zeros(room)
    count, success, work = 1, 0.0, 0
    masses[0] = 1.0
    for s in range(len(kind)):
        work += count
        fresh = 0
        for i in range(count):
            state = (keys[i], masses[i])
            fresh, connected = _step(
                kind[s], first[s], second[s], up[s], width, table, state, fresh_keys, fresh_masses, fresh
            )
            success += connected
        if fresh > room:
            return -1.0, work
        _clear(table, fresh_keys, fresh)
        keys, fresh_keys = fresh_keys, keys
        masses, fresh_masses = fresh_masses, masses
        count = fresh
    return success, work
