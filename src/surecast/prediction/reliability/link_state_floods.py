"""The number of link-state messages of the bypass schemes: expected floods in the part of the overlay that is up.

Who announces what at a change, and what is sent when neighbours come together again, is as in the protocol
(`protocol.overlay.overlay_view`) without latency. All brokers that are up are taken to know the same: what those in
separate parts have missed of each other is left out. The formulas are in docs/background/reliability.md.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from surecast.kernels import njit
from surecast.prediction.reliability.component_chains import Components
from surecast.scenario.streams import Streams
from surecast.scenario.system import System

__all__ = ["link_state_rate"]

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Flags = NDArray[np.bool_]
States = tuple[Flags, Array, Index, int]
"""States of all brokers and links, their weights, the components that fail, and how many states these take turns in."""

EXACT_MAX = 13
"""Components that can fail up to which all states of the overlay are gone through; beyond that they are sampled."""
WORK_MAX = 25_000_000
"""Brokers and links visited in all sampled states together, some hundredths of a second's worth."""
SAMPLES = 50, 50_000
"""At least and at most so many sampled states."""
SHARE = 8
"""Components that share a sampled state: more states for fewer components each are worth more than the reverse."""


def link_state_rate(system: System, components: Components) -> float:
    """Returns the link-state messages per second in the long run.

    In the example both brokers announce that their link is back, and tell each other what they know.

    >>> from surecast.prediction.reliability.component_chains import components_of
    >>> from surecast.scenario import build, parse_text
    >>> system = build(parse_text('''
    ... surecast: 1
    ... name: pair
    ... overlay: {brokers: [{name: a}, {name: b}], links: [[a, b]]}
    ... availability: {links: {mtbf: 9s, mttr: 1s}}
    ... '''))
    >>> round(10 * link_state_rate(system, components_of(system)), 6)
    4.0
    """
    up = np.append(components.broker_up, components.link_up)
    repair = np.append(components.broker_repair, components.link_repair)
    failure = np.append(components.broker_failure, components.link_failure)
    frequency = failure * repair / (failure + repair)
    if not frequency.any():
        return 0.0
    first, neighbour, link = _neighbours(system)
    ends = np.array([(each.a, each.b) for each in system.overlay.links], dtype=np.intp).reshape(-1, 2)
    graph = first, neighbour, link, ends
    floods = _floods(*_states(system, up, frequency, len(neighbour)), frequency, *graph)
    others = len(np.unique(ends)) - 1
    return float(floods + _resynchronisation(up, frequency, *graph, others))


def _neighbours(system: System) -> tuple[Index, Index, Index]:
    """Neighbours of each broker in the protocol's order, by name: where its list starts, the neighbours, the links."""
    overlay = system.overlay
    names = [broker.name for broker in overlay.brokers]
    both = [(each.a, names[each.b], each.b, i) for i, each in enumerate(overlay.links)]
    both += [(each.b, names[each.a], each.a, i) for i, each in enumerate(overlay.links)]
    both.sort()
    first = np.zeros(len(names) + 1, dtype=np.intp)
    np.cumsum(np.bincount([row[0] for row in both], minlength=len(names)), out=first[1:])
    return first, np.array([row[2] for row in both], dtype=np.intp), np.array([row[3] for row in both], dtype=np.intp)


def _states(system: System, up: Array, frequency: Array, directed_links: int) -> States:
    """Returns all states with their probabilities where they are few, else a sample, in which components take turns."""
    failing = np.flatnonzero(frequency)
    if len(failing) <= EXACT_MAX:
        states = np.ones((2 ** len(failing), len(up)), dtype=np.bool_)
        states[:, failing] = (np.arange(len(states))[:, None] >> np.arange(len(failing))) & 1
        return states, np.where(states, up, 1.0 - up).prod(axis=1), failing, 1
    rng = Streams(system.seed).generator("predict/link-state")
    cycle = -(-len(failing) // SHARE)
    samples = WORK_MAX // (2 * SHARE * (len(up) + directed_links))
    samples = min(max(samples, SAMPLES[0]), SAMPLES[1])
    if samples > cycle:
        samples -= samples % cycle
    states = rng.random((samples, len(up))) < up
    return states, np.full(samples, cycle / samples), rng.permutation(failing), cycle


def _resynchronisation(
    up: Array,
    frequency: Array,
    first: Index,
    neighbour: Index,
    link: Index,
    ends: Index,
    others: int,
) -> float:
    """Returns messages per second, besides floods, when neighbours reconnect, each of which knows `others` others.

    The ends of a link send each other all they know. So does each neighbour of a broker that was down; what that has
    from the first one it passes on to the others.
    """
    brokers = len(first) - 1
    total = float((frequency[brokers:] * up[ends].prod(axis=1)).sum()) * 2 * others
    for x in np.flatnonzero(frequency[:brokers]).tolist():
        around = neighbour[first[x] : first[x + 1]]
        reach = up[around] * up[brokers + link[first[x] : first[x + 1]]]
        mean, some = float(reach.sum()), 1.0 - float(np.prod(1.0 - reach))
        total += frequency[x] * (mean * others + (others - 1) * (mean - some))
    return total


@njit(cache=True)
def _flood(
    origin: int, first: Index, neighbour: Index, link: Index, up: Flags, queue: Index, mark_of: Index, mark: int
) -> int:
    """Returns messages of a flood in the up graph: each broker sends to all its neighbours but the one it has it
    from."""
    brokers = len(first) - 1
    queue[0] = origin
    mark_of[origin] = mark
    head, tail, messages = 0, 1, 0
    while head < tail:
        v = queue[head]
        head += 1
        for j in range(first[v], first[v + 1]):
            w = neighbour[j]
            if up[w] and up[brokers + link[j]]:
                messages += 1
                if mark_of[w] != mark:
                    mark_of[w] = mark
                    queue[tail] = w
                    tail += 1
    return messages - (tail - 1)


@njit(cache=True)
def _return(
    x: int, first: Index, neighbour: Index, link: Index, up: Flags, queue: Index, distance: Index, last: Index
) -> int:
    """Returns messages for the states of a broker that is back, which it announces anew with each neighbour it finds.

    The state of its k-th link goes to the first k neighbours, and from there on. A broker takes it for news if none of
    the later ones, which all are sent at the same moment, is there before: if no later neighbour is nearer to it.
    """
    brokers = len(first) - 1
    messages, found = 0, 0
    last[:] = brokers
    for turn in range(2):  # how far all neighbours are from each broker, then who hears which state
        distance[:] = brokers
        for j in range(first[x], first[x + 1]):
            w = neighbour[j]
            if not (up[w] and up[brokers + link[j]]):
                continue
            distance[w] = 0
            queue[0] = w
            head, tail = 0, 1
            while head < tail:
                v = queue[head]
                head += 1
                for i in range(first[v], first[v + 1]):
                    other = neighbour[i]
                    is_near = up[other] and up[brokers + link[i]] and other != x
                    if is_near and distance[v] + 1 < distance[other]:
                        distance[other] = distance[v] + 1
                        queue[tail] = other
                        tail += 1
            if turn == 1:
                found += 1
                messages += found
                for v in range(brokers):
                    if distance[v] < brokers and distance[v] == last[v]:
                        messages -= 1
                        for i in range(first[v], first[v + 1]):
                            messages += up[neighbour[i]] and up[brokers + link[i]]
        last[:] = distance
    return messages


@njit(cache=True)
def _floods(
    states: Flags,
    weights: Array,
    failing: Index,
    cycle: int,
    frequency: Array,
    first: Index,
    neighbour: Index,
    link: Index,
    ends: Index,
) -> float:
    """Returns messages per second of floods: for each component, going down and coming up with all others in each
    state.

    Both ends of a link announce its change, all neighbours in reach that of a broker, and the broker its return.
    """
    brokers = len(first) - 1
    queue, mark_of, origins = np.empty(len(link) + 1, np.intp), np.zeros(brokers, np.intp), np.empty(brokers, np.intp)
    distance, last = np.empty(brokers, np.intp), np.empty(brokers, np.intp)
    mark = 0
    total = 0.0
    for s in range(len(states)):
        up = states[s].copy()
        for i in range(s % cycle, len(failing), cycle):
            c = failing[i]
            before, messages = up[c], 0
            for is_up in (False, True):
                up[c] = is_up
                n = 0
                if c >= brokers:
                    if up[ends[c - brokers, 0]] and up[ends[c - brokers, 1]]:
                        origins[0], origins[1], n = ends[c - brokers, 0], ends[c - brokers, 1], 2
                else:
                    for j in range(first[c], first[c + 1]):
                        if up[neighbour[j]] and up[brokers + link[j]]:
                            origins[n] = neighbour[j]
                            n += 1
                    if is_up:
                        messages += _return(c, first, neighbour, link, up, queue, distance, last)
                cost = 0
                for k in range(n):
                    # a flood costs the same from wherever in a connected part it starts
                    if k == 0 or mark_of[origins[k]] != mark:
                        mark += 1
                        cost = _flood(origins[k], first, neighbour, link, up, queue, mark_of, mark)
                    messages += cost
            up[c] = before
            total += weights[s] * frequency[c] * messages
    return total
