"""What every broker knows about the overlay and never loses: who is whose neighbour, in the graph and in each tree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from surecast.scenario.system import Overlay

__all__ = ["OverlayMap"]


class OverlayMap:
    """The broker graph and the broker tree of each topic. It is on disk at every broker and survives a crash.

    >>> stock = [("b1", "b2"), ("b2", "b3"), ("b2", "b4")]
    >>> overlay = OverlayMap([*stock, ("b1", "b3")], {"Stock": stock})
    >>> overlay.neighbours["b1"], overlay.tree_neighbours("Stock", "b1")
    (('b2', 'b3'), ('b2',))
    """

    def __init__(
        self,
        links: Iterable[tuple[str, str]],
        trees: Mapping[str, Iterable[tuple[str, str]]],
        brokers: Iterable[str] = (),
    ):
        self.neighbours = _adjacency(links, brokers)
        known: dict[tuple[tuple[str, str], ...], dict[str, tuple[str, ...]]] = {}
        self._trees: dict[str, dict[str, tuple[str, ...]]] = {}
        for topic, pairs in trees.items():
            tree = tuple(pairs)
            if tree not in known:
                known[tree] = _adjacency(tree, self.neighbours)
            self._trees[topic] = known[tree]

    @classmethod
    def of(cls, overlay: Overlay) -> OverlayMap:
        """The map of a scenario's overlay."""
        names = [broker.name for broker in overlay.brokers]
        pairs = [(names[link.a], names[link.b]) for link in overlay.links]
        trees = {topic: [pairs[i] for i in links] for topic, links in overlay.trees.items()}
        return cls(pairs, trees, names)

    @property
    def brokers(self) -> tuple[str, ...]:
        return tuple(self.neighbours)

    def tree_neighbours(self, topic: str, broker: str) -> tuple[str, ...]:
        """A broker's neighbours in the tree of a topic; none where the topic has no tree."""
        tree = self._trees.get(topic)
        return () if tree is None else tree[broker]


def _adjacency(links: Iterable[tuple[str, str]], brokers: Iterable[str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {broker: {} for broker in brokers}
    for a, b in links:
        found.setdefault(a, {})[b] = None
        found.setdefault(b, {})[a] = None
    return {broker: tuple(sorted(others)) for broker, others in found.items()}
