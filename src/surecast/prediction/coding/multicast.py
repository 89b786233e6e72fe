"""Ranks at all home brokers of an event at once, where paths share links.

With fields that are not tiny, the rank at a broker is the maximum flow to it in the graph whose links carry as many
packets as got through them. Its distribution over random losses has no closed form where paths share links, so that
losses are drawn; each draw is the same for all brokers, which keeps what they have in common.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surecast.kernels import njit
from surecast.prediction.coding.bursty_links import passing

__all__ = ["CodedLink", "Way", "sample_ranks"]

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CodedLink:
    """A link in one direction, the packets of an event that it is given, the share of them that it loses, and how many
    in a row on average; None: each on its own."""

    a: int
    b: int
    sent: int
    loss: float
    burst_mean: float | None = None


@dataclass(frozen=True, slots=True)
class Way:
    """The way of packets to one broker: the broker, and the indices of the links that they may use."""

    broker: int
    links: tuple[int, ...]


def sample_ranks(
    source: int, packets: int, links: Sequence[CodedLink], ways: Sequence[Way], samples: int, seed: int
) -> Ints:
    """Returns the rank of `packets` sent packets at the broker of each way (columns) in draws of the losses (rows).

    >>> links = [CodedLink(0, 1, 20, 0.0), CodedLink(0, 2, 20, 0.0), CodedLink(1, 3, 20, 0.0), CodedLink(2, 3, 15, 0.0)]
    >>> sample_ranks(0, 40, links, [Way(1, (0,)), Way(3, (0, 1, 2, 3))], samples=1, seed=1).tolist()
    [[20, 35]]
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    sent = np.array([link.sent for link in links], dtype=np.int64)
    chances = np.array([1.0 - link.loss for link in links])
    through = rng.binomial(sent, chances, size=(samples, len(links))).astype(np.int64)
    for i, link in enumerate(links):
        if link.burst_mean is not None and link.loss > 0.0:
            below = np.cumsum(passing(link.sent, link.loss, link.burst_mean)[:-1])
            through[:, i] = np.searchsorted(below, rng.random(samples), side="right")
    ranks = np.empty((samples, len(ways)), dtype=np.int64)
    for column, way in enumerate(ways):
        if way.broker == source:
            ranks[:, column] = packets
            continue
        brokers = sorted({source, way.broker, *(n for i in way.links for n in (links[i].a, links[i].b))})
        number = {broker: i for i, broker in enumerate(brokers)}
        tails = np.array([number[links[i].a] for i in way.links], dtype=np.int64)
        heads = np.array([number[links[i].b] for i in way.links], dtype=np.int64)
        mine = np.ascontiguousarray(through[:, list(way.links)])
        ranks[:, column] = _flows(tails, heads, mine, len(brokers), number[source], number[way.broker], packets)
    return ranks


@njit(cache=True)
def _flows(tails: Ints, heads: Ints, through: Ints, nodes: int, source: int, sink: int, most: int) -> Ints:
    """Returns the maximum flow of each row of capacities, by augmenting paths, up to `most`."""
    samples, count = through.shape
    flows = np.zeros(samples, dtype=np.int64)
    before = np.empty(nodes, dtype=np.int64)
    for s in range(samples):
        room = through[s].copy()
        back = np.zeros(count, dtype=np.int64)
        total = 0
        while total < most:
            before[:] = -1
            before[source] = 2 * count
            grown = True
            while grown and before[sink] < 0:
                grown = False
                for e in range(count):
                    if room[e] > 0 and before[tails[e]] >= 0 and before[heads[e]] < 0:
                        before[heads[e]] = e
                        grown = True
                    if back[e] > 0 and before[heads[e]] >= 0 and before[tails[e]] < 0:
                        before[tails[e]] = count + e
                        grown = True
            if before[sink] < 0:
                break
            least = most - total
            node = sink
            while node != source:
                e = before[node]
                least = min(least, room[e] if e < count else back[e - count])
                node = tails[e] if e < count else heads[e - count]
            node = sink
            while node != source:
                e = before[node]
                if e < count:
                    room[e] -= least
                    back[e] += least
                    node = tails[e]
                else:
                    room[e - count] += least
                    back[e - count] -= least
                    node = heads[e - count]
            total += least
        flows[s] = total
    return flows
