"""The capacities of the links and nodes of an overlay, some of which have failed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from surecast.errors import ConfigurationError
from surecast.scenario.system import Overlay

__all__ = ["CapacityGraph", "Link"]

Link: TypeAlias = tuple[int, int]
"""A link in one direction: from which node to which."""


class CapacityGraph:
    """Nodes with numbers, directed links with capacities in packets per second, and capacities of nodes.

    A node without a capacity of its own passes on whatever its links can carry. The capacity of a node limits each flow
    through it; flows to several sinks share it as they share a link, by coding. What has failed has capacity 0 until
    it is restored, and keeps its own capacity for that time.

    >>> graph = CapacityGraph({(0, 1): 5.0, (1, 2): 3.0}, {1: 2.0})
    >>> graph.capacity(0, 1), graph.node_capacity(1), graph.node_capacity(2)
    (5.0, 2.0, inf)
    >>> graph.fail_link(0, 1)
    >>> graph.capacity(0, 1), list(graph.links())
    (0.0, [((1, 2), 3.0)])
    """

    def __init__(self, links: Mapping[Link, float], nodes: Mapping[int, float] | None = None):
        self._links: dict[Link, float] = {}
        self._nodes: dict[int, float] = {}
        self._failed_links: set[Link] = set()
        self._failed_nodes: set[int] = set()
        self._known: set[int] = set()
        for (a, b), capacity_per_s in links.items():
            self.set_link(a, b, capacity_per_s)
        for node, capacity_per_s in (nodes or {}).items():
            self.set_node(node, capacity_per_s)

    @classmethod
    def both_ways(
        cls, links: Iterable[tuple[int, int, float]], nodes: Mapping[int, float] | None = None
    ) -> CapacityGraph:
        """Returns links that carry their capacity in each direction at once.

        >>> CapacityGraph.both_ways([(0, 1, 5.0)]).capacity(1, 0)
        5.0
        """
        directed: dict[Link, float] = {}
        for a, b, capacity_per_s in links:
            directed[a, b] = directed[b, a] = capacity_per_s
        return cls(directed, nodes)

    @classmethod
    def of_overlay(cls, overlay: Overlay, nodes: Mapping[int, float] | None = None) -> CapacityGraph:
        """Returns the links of a scenario's overlay, each with its capacity in both directions; nodes are broker
        indices."""
        return cls.both_ways(((link.a, link.b, link.capacity_per_s) for link in overlay.links), nodes)

    def __contains__(self, node: int) -> bool:
        return node in self._known

    def set_link(self, a: int, b: int, capacity_per_s: float) -> None:
        """Gives a link a capacity; a link that was not there is added."""
        if a == b:
            raise ConfigurationError(f"link ({a}, {b}): a link joins two different nodes")
        self._links[a, b] = _capacity(f"link ({a}, {b})", capacity_per_s)
        self._known.update((a, b))

    def set_node(self, node: int, capacity_per_s: float) -> None:
        """Gives a node a capacity: the packets per second that it can pass on or, at either end of a flow, handle."""
        self._nodes[node] = _capacity(f"node {node}", capacity_per_s)
        self._known.add(node)

    def fail_link(self, a: int, b: int) -> None:
        """Marks one direction of a link as failed."""
        self._must_know((a, b))
        self._failed_links.add((a, b))

    def restore_link(self, a: int, b: int) -> None:
        """Restores one direction of a link."""
        self._must_know((a, b))
        self._failed_links.discard((a, b))

    def fail_node(self, node: int) -> None:
        """Marks a node, and with it all its links, as failed."""
        self._failed_nodes.add(node)

    def restore_node(self, node: int) -> None:
        """Restores a node."""
        self._failed_nodes.discard(node)

    def capacity(self, a: int, b: int) -> float:
        """Returns the present capacity of a link; 0 if there is none."""
        if (a, b) in self._failed_links or a in self._failed_nodes or b in self._failed_nodes:
            return 0.0
        return self._links.get((a, b), 0.0)

    def node_capacity(self, node: int) -> float:
        """Returns the present capacity of a node."""
        return 0.0 if node in self._failed_nodes else self._nodes.get(node, math.inf)

    def links(self) -> Iterable[tuple[Link, float]]:
        """Yields the links with a present capacity above 0, in the order of their nodes."""
        for link in sorted(self._links):
            capacity_per_s = self.capacity(*link)
            if capacity_per_s > 0.0:
                yield link, capacity_per_s

    def link_count(self) -> int:
        """Returns the number of links, failed ones included."""
        return len(self._links)

    def _must_know(self, link: Link) -> None:
        if link not in self._links:
            raise ConfigurationError(f"link {link}: there is no such link; set_link adds one")


def _capacity(where: str, capacity_per_s: float) -> float:
    if not capacity_per_s >= 0.0:
        raise ConfigurationError(f"{where}: capacity {capacity_per_s} must be 0 or more packets per second")
    return float(capacity_per_s)
