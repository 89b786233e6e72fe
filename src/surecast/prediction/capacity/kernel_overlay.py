"""The overlay of a placement, rebuilt by compiled code, and sums over both sides of its links."""
# The kernels take many arrays and are typed by Numba.
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surecast.kernels import njit

__all__ = ["PlacementArrays", "both_sides", "rebuild"]

Array = NDArray[np.float64]
Index = NDArray[np.int64]


class PlacementArrays(NamedTuple):
    """A placement problem as arrays for the kernels. `planning.placement.PlacementProblem` explains each array."""

    pairs: Index
    pair_number: Index
    path_start: Index
    path_forward: Index
    path_backward: Index
    latency_s: Array
    nearest: Index
    publications: Array
    subscriptions: Array
    copies: Array
    factor: Array
    statistics: Index
    kinds: Index
    lifetime_s: float
    services: Array
    entry_services: Array
    queue_moments: Array
    central: bool


@njit(cache=True)
def _farthest(start, near, around, degree, before):
    """Returns the last broker that a search from `start` reaches; `before` gets the way back."""
    queue = np.empty(len(degree), dtype=np.int64)
    queue[0], count, last = start, 1, start
    before[start] = -1
    i = 0
    while i < count:
        last = queue[i]
        for j in range(degree[last]):
            other = around[near[last] + j]
            if other != before[last]:
                before[other] = last
                queue[count] = other
                count += 1
        i += 1
    return last


@njit(cache=True)
def _centre(near, around, degree):
    """Returns the broker with the fewest hops to the farthest other, of two the first: the middle of a longest path."""
    before = np.empty(len(degree), dtype=np.int64)
    end = _farthest(_farthest(0, near, around, degree, before), near, around, degree, before)
    path = np.empty(len(degree), dtype=np.int64)
    count = 0
    while end >= 0:
        path[count] = end
        count += 1
        end = before[end]
    return min(path[(count - 1) // 2], path[count // 2])


@njit(cache=True)
def _spanning_tree(problem, number, brokers):
    """Ends of the links of a minimum spanning tree, and the number of links of each broker.

    `number` has the place of each candidate among the members, -1 for others. Of equally long links that between
    earlier brokers wins.
    """
    part = np.arange(brokers)
    ends = np.empty((max(brokers - 1, 0), 2), dtype=np.int64)
    degree = np.zeros(brokers, dtype=np.int64)
    links = 0
    for k in range(len(problem.pairs)):
        if links == brokers - 1:
            break
        a, b = number[problem.pairs[k, 0]], number[problem.pairs[k, 1]]
        if a < 0 or b < 0 or part[a] == part[b]:
            continue
        old, new = part[b], part[a]
        for i in range(brokers):
            if part[i] == old:
                part[i] = new
        ends[links, 0], ends[links, 1] = a, b
        degree[a] += 1
        degree[b] += 1
        links += 1
    return ends, degree


@njit(cache=True)
def _homes(problem, chosen, number):
    """Returns the nearest member of each group of clients."""
    home = np.empty(len(problem.nearest), dtype=np.int64)
    for client in range(len(problem.nearest)):
        i = 0
        while not chosen[problem.nearest[client, i]]:
            i += 1
        home[client] = number[problem.nearest[client, i]]
    return home


@njit(cache=True)
def rebuild(problem, chosen):
    """Returns the overlay on chosen candidates: members, order from the root, parent (-1 at the root), home of each
    group.

    Brokers are numbered by their place among the members.
    """
    members = np.flatnonzero(chosen)
    brokers = len(members)
    number = np.full(len(chosen), -1, dtype=np.int64)
    for i in range(brokers):
        number[members[i]] = i
    ends, degree = _spanning_tree(problem, number, brokers)
    near = np.zeros(brokers + 1, dtype=np.int64)
    for i in range(brokers):
        near[i + 1] = near[i] + degree[i]
    filled = np.zeros(brokers, dtype=np.int64)
    around = np.empty(2 * len(ends), dtype=np.int64)
    for k in range(len(ends)):
        a, b = ends[k, 0], ends[k, 1]
        around[near[a] + filled[a]] = b
        around[near[b] + filled[b]] = a
        filled[a] += 1
        filled[b] += 1
    root = _centre(near, around, degree) if problem.central else 0
    parent = np.full(brokers, -1, dtype=np.int64)
    order = np.empty(brokers, dtype=np.int64)
    order[0], count = root, 1
    for i in range(brokers):
        broker = order[i]
        for j in range(degree[broker]):
            other = around[near[broker] + j]
            if other != parent[broker]:
                parent[other] = broker
                order[count] = other
                count += 1
    return members, order, parent, _homes(problem, chosen, number)


@njit(cache=True)
def _add_others(order, below, above, so_far, start, stop, step):
    """Adds to what is above each of some siblings a sum so far, which grows by each."""
    for i in range(start, stop, step):
        b = order[i]
        for c in range(len(so_far)):
            above[b, c] += so_far[c]
            so_far[c] += below[b, c]


@njit(cache=True)
def both_sides(own, order, parent, below, above):
    """Sums of the brokers' own values on both sides of each link: `below` it and `above` it.

    These are the recursions of capacity Eqs. 2, 23 and 26. Nothing is ever subtracted: what is 0 stays 0.
    """
    brokers, classes = len(order), own.shape[1]
    # Loops in place of slices: they compile in a fraction of the time.
    for b in range(brokers):
        for c in range(classes):
            below[b, c] = own[b, c]
            above[b, c] = 0.0
    for i in range(brokers - 1, 0, -1):
        b = order[i]
        for c in range(classes):
            below[parent[b], c] += below[b, c]
    so_far = np.empty(classes)
    first = 1
    while first < brokers:
        # The children of a broker follow each other in the order.
        p = parent[order[first]]
        last = first
        while last < brokers and parent[order[last]] == p:
            last += 1
        for c in range(classes):
            so_far[c] = own[p, c] + above[p, c]
        _add_others(order, below, above, so_far, first, last, 1)
        for c in range(classes):
            so_far[c] = 0.0
        _add_others(order, below, above, so_far, last - 1, first - 1, -1)
        first = last
