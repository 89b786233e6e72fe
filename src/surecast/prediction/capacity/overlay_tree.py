"""The tree of brokers, and sums and maxima over what lies beyond each of its links."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surecast.errors import AssumptionError
from surecast.scenario.system import Overlay

__all__ = ["BrokerTree", "broker_tree"]

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class BrokerTree:
    """An acyclic overlay. Link i is the directed link i from its first end to its second, and i + `links` back.

    `tail` and `head` are the sending and the receiving broker of each directed link; `rising` says whether the
    receiver is the sender's parent. `order` lists the brokers from the root outwards, `up` the directed link of each
    to its parent (-1 at the root), `children` the brokers below it.
    """

    brokers: int
    links: int
    root: int
    tail: Index
    head: Index
    rising: Mask
    order: tuple[int, ...]
    up: tuple[int, ...]
    children: tuple[tuple[int, ...], ...]

    def reverse(self, values: Array) -> Array:
        """Returns values by directed link, each at the place of the opposite direction."""
        return np.roll(values, self.links, axis=0)

    def back(self, link: int) -> int:
        """Returns the directed link of the opposite direction."""
        return (link + self.links) % (2 * self.links)

    def beyond(self, own: Array) -> Array:
        """Returns, for each directed link, the sum of the brokers' own values in the part of the tree that it leads to.

        This is the recursion of capacity Eqs. 2, 23 and 26.
        """
        return self.fold(own[self.head], np.add)

    def fold(self, weight: Array, combine: np.ufunc, passes: Mask | None = None) -> Array:
        """Returns, for each directed link, its weight plus `combine` of the links that lead on from its head.

        A link where `passes` is false counts as 0 for those before it. Both weights and results are 0 or more, so that
        0 is neutral for sums and for maxima. Nothing is ever subtracted: what is 0 stays 0.
        """
        value = np.array(weight, dtype=np.float64)
        none = np.zeros(value.shape[1:])

        def passing(link: int) -> Array:
            return value[link] if passes is None else np.where(passes[link], value[link], 0.0)

        for broker in reversed(self.order[1:]):
            rest = none
            for child in self.children[broker]:
                rest = combine(rest, passing(self.back(self.up[child])))
            value[self.back(self.up[broker])] += rest
        for broker in self.order:
            ways = [self.back(self.up[child]) for child in self.children[broker]]
            before = none if broker == self.root else passing(self.up[broker])
            others = []
            for way in ways:
                others.append(before)
                before = combine(before, passing(way))
            after = none
            for way, other in zip(reversed(ways), reversed(others), strict=True):
                value[self.back(way)] += combine(other, after)
                after = combine(after, passing(way))
        return value


def broker_tree(overlay: Overlay) -> BrokerTree:
    """Returns the overlay as a tree with its root; refuses an overlay with a cycle."""
    _refuse_cycle(overlay)
    brokers, links = len(overlay.brokers), len(overlay.links)
    ends = np.array([(link.a, link.b) for link in overlay.links], dtype=np.intp).reshape(links, 2)
    tail, head = np.concatenate([ends[:, 0], ends[:, 1]]), np.concatenate([ends[:, 1], ends[:, 0]])
    leaving: list[list[int]] = [[] for _ in range(brokers)]
    for link, broker in enumerate(tail.tolist()):
        leaving[broker].append(link)
    receiver: list[int] = head.tolist()
    up, order = [-1] * brokers, [overlay.root]
    below: list[list[int]] = [[] for _ in range(brokers)]
    for broker in order:
        for link in leaving[broker]:
            if link != up[broker]:
                child = receiver[link]
                up[child] = (link + links) % (2 * links)
                below[broker].append(child)
                order.append(child)
    rising = np.zeros(2 * links, dtype=np.bool_)
    rising[[link for link in up if link >= 0]] = True
    return BrokerTree(
        brokers, links, overlay.root, tail, head, rising, tuple(order), tuple(up), tuple(tuple(c) for c in below)
    )


def _refuse_cycle(overlay: Overlay) -> None:
    import networkx as nx

    graph, names = overlay.graph, [broker.name for broker in overlay.brokers]
    advice = "the capacity model needs an acyclic overlay: write links: {build: spanning-tree}, or leave out a link"
    if graph.number_of_edges() < len(overlay.links):
        pairs = [tuple(sorted((link.a, link.b))) for link in overlay.links]
        a, b = next(pair for pair in pairs if pairs.count(pair) > 1)
        raise AssumptionError(f"the overlay has several links between {names[a]} and {names[b]}; {advice}")
    try:
        cycle = nx.find_cycle(graph)
    except nx.NetworkXNoCycle:
        pass
    else:
        around = " - ".join(names[edge[0]] for edge in [*cycle, cycle[0]])
        raise AssumptionError(f"the overlay has the cycle {around}; {advice}")
    if not overlay.is_tree:
        raise AssumptionError("the overlay falls into several parts; the capacity model needs it connected")
