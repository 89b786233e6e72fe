"""The number of link-state messages of the bypass schemes: expected floods in the part of the overlay that is up.

Who announces what at a change, and what is sent when neighbours come together again, is as in the protocol
(`protocol.overlay.link_state`) without latency. All brokers that are up are taken to know the same: what those in
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
    outbids = _outbids(frequency, first, neighbour, link)
    floods = _floods(*_states(system, up, frequency, len(neighbour)), frequency, outbids, *graph)
    others = _announcers(frequency, ends, len(components.broker_up)) - 1
    return float(floods + _resynchronisation(up, frequency, outbids, *graph, others))


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


def _announcers(frequency: Array, ends: Index, brokers: int) -> int:
    """Returns the number of brokers that ever announce anything: those with a link that fails, or with an end that
    does.
    """
    fails = frequency > 0
    changing = fails[brokers:] | fails[ends].any(axis=1)
    return len(np.unique(ends[changing]))


def _outbids(frequency: Array, first: Index, neighbour: Index, link: Index) -> Flags:
    """Returns whether each broker, once back, has to announce its state under a higher number than before it went down.

    Where none of its neighbours and links ever fails it gets to the same number with the same state by itself.
    """
    brokers = len(first) - 1
    changes = (frequency[neighbour] > 0) | (frequency[brokers + link] > 0)
    return np.array([changes[first[v] : first[v + 1]].any() for v in range(brokers)], dtype=np.bool_)


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
    outbids: Flags,
    first: Index,
    neighbour: Index,
    link: Index,
    ends: Index,
    others: int,
) -> float:
    """Returns messages per second, besides floods, when neighbours reconnect, each of which knows `others` others.

    The ends of a link send each other all they know. A broker x that was down, with d neighbours in reach, starts to
    count its announcements anew: it makes one for each neighbour it finds, to those found so far, and is answered by
    its last one from before: d (d + 1) in all, or d less where it need not outbid that. Each neighbour tells it all it
    knows; what it has from the first one it passes on to the others. What it hears of neighbours that have announced
    its return by then is old news: it answers with newer ones, and so do neighbours of each other to whom it passes old
    news on.
    """
    brokers = len(first) - 1
    between = {(min(a, b), max(a, b)): up[brokers + i] for i, (a, b) in enumerate(ends.tolist())}
    total = float((frequency[brokers:] * up[ends].prod(axis=1)).sum()) * 2 * others
    for x in np.flatnonzero(frequency[:brokers]).tolist():
        around = neighbour[first[x] : first[x + 1]].tolist()
        reach = up[around] * up[brokers + link[first[x] : first[x + 1]]]
        none_before = np.cumprod(np.append(1.0, 1.0 - reach))
        mean = float(reach.sum())
        square = mean**2 + float((reach * (1.0 - reach)).sum())
        own = square + mean if outbids[x] else square
        copied = mean * others + (others - 1) * (mean - (1.0 - none_before[-1]))
        newer = (square - mean) / 2
        for j, v in enumerate(around):
            for k in range(j + 1, len(around)):
                pair = between.get((min(v, around[k]), max(v, around[k])), 0.0)
                newer += 2 * pair * reach[j] * reach[k] * (1.0 - none_before[j])
        total += frequency[x] * (own + copied + newer)
    return float(total)


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
def _floods(
    states: Flags,
    weights: Array,
    failing: Index,
    cycle: int,
    frequency: Array,
    outbids: Flags,
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
    queue, mark_of, origins = np.empty(brokers, np.intp), np.zeros(brokers, np.intp), np.empty(brokers, np.intp)
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
                    if is_up and n > 0 and outbids[c]:
                        origins[n] = c
                        n += 1
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
