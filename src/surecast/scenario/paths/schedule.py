"""The number of packets of an event on each link, and which packets they are.

A sink's packets are divided among its paths in proportion to their flow, as whole numbers. For coding only the number
on a link counts, and it is the largest that any sink needs there. For forwarding it matters which packets they are:
each path takes a block of them, and a link carries what any sink needs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from surecast.errors import ConfigurationError
from surecast.scenario.paths.graph import CapacityGraph, Link
from surecast.scenario.paths.path_plan import PathPlan

__all__ = ["BLOCKS_MAX", "Block", "Branch", "Forwarding", "Schedule", "apportion"]

Block: TypeAlias = tuple[int, int]
"""Packets from a number up to, and without, another."""

BLOCKS_MAX: Final = 100
"""Blocks of one link."""


@dataclass(frozen=True, slots=True)
class Branch:
    """The packets that one node sends to a neighbour: so many with coding, and these blocks of them without."""

    neighbour: int
    count: int
    blocks: tuple[Block, ...]

    @property
    def is_contended(self) -> bool:
        """True if sinks want different packets over this link, so that coding saves some of them."""
        return sum(end - begin for begin, end in self.blocks) > self.count

    def wants(self, index: int) -> bool:
        """Returns whether a plain packet is forwarded this way."""
        return any(begin <= index < end for begin, end in self.blocks)


@dataclass(frozen=True, slots=True)
class Forwarding:
    """The forwarding of one node for the packets of an event: how many it expects, and where they go."""

    node: int
    packets: int
    expected: int
    branches: tuple[Branch, ...] = ()


@dataclass(frozen=True, slots=True)
class Schedule:
    """The packets of an event on the links of a plan."""

    source: int
    packets: int
    counts: dict[Link, int]
    blocks: dict[Link, tuple[Block, ...]]
    rates_per_s: dict[Link, float]

    @classmethod
    def of(cls, plan: PathPlan, packets: int) -> Schedule:
        """Divides a number of packets among the paths of a plan.

        >>> from surecast.scenario.paths import FlowPath
        >>> ways = (FlowPath((0, 1, 3), 2.0), FlowPath((0, 2, 3), 1.0))
        >>> schedule = Schedule.of(PathPlan("maximum-flow", 0, 3.0, {3: ways}, {3: 3.0}), 10)
        >>> schedule.counts[0, 1], schedule.blocks[0, 2]
        (7, ((7, 10),))
        """
        if packets < 1:
            raise ConfigurationError(f"schedule: {packets} packets; an event has at least one")
        counts: dict[Link, int] = {}
        needed: dict[Link, list[Block]] = {}
        for paths in plan.paths.values():
            ordered = sorted(paths, key=lambda path: path.nodes)
            mine: dict[Link, int] = {}
            begin = 0
            for path, share in zip(ordered, apportion(packets, [p.rate_per_s for p in ordered]), strict=True):
                for link in path.links if share else ():
                    mine[link] = mine.get(link, 0) + share
                    needed.setdefault(link, []).append((begin, begin + share))
                begin += share
            for link, count in mine.items():
                counts[link] = max(counts.get(link, 0), count)
        blocks = {link: _joined(parts) for link, parts in needed.items()}
        return cls(plan.source, packets, counts, blocks, plan.coded_links())

    def forwarding(self, node: int) -> Forwarding:
        """Returns the part of one node."""
        expected = self.packets if node == self.source else sum(n for (_, b), n in self.counts.items() if b == node)
        branches = [Branch(b, n, self.blocks[a, b]) for (a, b), n in sorted(self.counts.items()) if a == node]
        return Forwarding(node, self.packets, expected, tuple(branches))

    def nodes(self) -> tuple[int, ...]:
        """Returns every node that takes part."""
        return tuple(sorted({self.source, *(node for link in self.counts for node in link)}))

    def load(self, coded: bool) -> dict[Link, int]:
        """Returns packets on each link for one event, with coding or without."""
        if coded:
            return dict(self.counts)
        return {link: sum(end - begin for begin, end in blocks) for link, blocks in self.blocks.items()}

    def rate_per_s(self, graph: CapacityGraph, coded: bool) -> float:
        """Returns the packets per second that a source can sustain in this way without overloading a link.

        Without coding this is below the multicast capacity wherever a link is contended.
        """
        load = self.load(coded)
        return min((graph.capacity(*link) * self.packets / n for link, n in load.items()), default=math.inf)


def apportion(total: int, weights: Sequence[float]) -> list[int]:
    """Returns whole numbers with a given sum, as close to the weights as can be: largest remainders, the first among
    equals.

    >>> apportion(10, [2.0, 1.0]), apportion(3, [1.0, 1.0]), apportion(4, [float("inf")])
    ([7, 3], [2, 1], [4])
    """
    if len(weights) == 1:
        return [total]
    whole = math.fsum(weights)
    exact = [total * weight / whole for weight in weights]
    parts = [math.floor(share) for share in exact]
    order = sorted(range(len(parts)), key=lambda i: (parts[i] - exact[i], i))
    for i in order[: total - sum(parts)]:
        parts[i] += 1
    return parts


def _joined(blocks: list[Block]) -> tuple[Block, ...]:
    """Returns the union of blocks in order, joined over the smallest gaps if there are too many for one message."""
    joined: list[Block] = []
    for begin, end in sorted(blocks):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((begin, end))
    while len(joined) > BLOCKS_MAX:
        gap = min(range(1, len(joined)), key=lambda i: joined[i][0] - joined[i - 1][1])
        joined[gap - 1 : gap + 1] = [(joined[gap - 1][0], joined[gap][1])]
    return tuple(joined)
