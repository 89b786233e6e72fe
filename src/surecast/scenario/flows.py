"""The flows of events from publishers to subscribers along brokers, from which predictions and simulations of delivery
start."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surecast.scenario.system import Overlay, System

__all__ = ["Flows", "OverlayPath", "flows_of"]


@dataclass(frozen=True, slots=True)
class OverlayPath:
    """A way through the overlay: brokers from the publisher's home to the subscriber's, and the links between them."""

    brokers: tuple[int, ...]
    links: tuple[int, ...]


@dataclass(frozen=True)
class Flows:
    """All flows of events, with everything that coincides computed once.

    Subscribers at the same home broker with the same topics have the same *interest*: `interest_of` has the index of
    each subscriber's, `interests` its home broker and topics. Each flow is one publisher's events on one topic for
    one interest; the arrays `interest`, `publisher`, `topic`, `route` and `rate_per_s` have one entry per flow.
    """

    routes: tuple[OverlayPath, ...]
    interests: tuple[tuple[int, tuple[str, ...]], ...]
    interest_of: NDArray[np.intp]
    interest: NDArray[np.intp]
    publisher: NDArray[np.intp]
    topic: NDArray[np.intp]
    route: NDArray[np.intp]
    rate_per_s: NDArray[np.float64]

    def weighted(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the mean of a value per flow over the flows of each interest, weighted by rate; NaN where nothing
        flows."""
        count = len(self.interests)
        total = np.bincount(self.interest, weights=self.rate_per_s, minlength=count)
        sums = np.bincount(self.interest, weights=self.rate_per_s * values, minlength=count)
        return np.asarray(np.divide(sums, total, out=np.full(count, np.nan), where=total > 0), dtype=np.float64)

    def per_subscriber(self, by_interest: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns a value per interest, spread to the subscribers that have it."""
        return np.asarray(by_interest[self.interest_of], dtype=np.float64)


def flows_of(system: System) -> Flows:
    """Returns the flows of a system (reliability Eq. 1: a publisher's rate where topics agree, else none)."""
    for counted, flows in _LAST_FLOWS:
        if counted is system:
            return flows
    flows = _flows(system)
    _LAST_FLOWS.append((system, flows))
    del _LAST_FLOWS[:-2]
    return flows


_LAST_FLOWS: list[tuple[System, Flows]] = []
"""The systems whose flows were found last: several models of a large one start from them, and they take seconds."""


def _flows(system: System) -> Flows:
    interests: dict[tuple[int, tuple[str, ...]], int] = {}
    interest_of = [interests.setdefault((s.home, tuple(sorted(s.topics))), len(interests)) for s in system.subscribers]
    publishers_on: dict[str, list[int]] = {}
    for i, publisher in enumerate(system.publishers):
        for topic in publisher.topics:
            publishers_on.setdefault(topic, []).append(i)
    topic_index = {topic.name: i for i, topic in enumerate(system.topics)}
    finder = _RouteFinder(system.overlay)
    rows: list[tuple[int, int, int, int, float]] = []
    for (home, topics), interest in interests.items():
        for topic in topics:
            for i in publishers_on.get(topic, ()):
                publisher = system.publishers[i]
                route = finder.find(topic, publisher.home, home)
                rows.append((interest, i, topic_index[topic], route, publisher.rate_per_s / len(publisher.topics)))
    columns = list(zip(*rows, strict=True)) if rows else [()] * 5
    interest_of_flow, publisher_of_flow, topic_of_flow, route_of_flow = (
        np.array(column, dtype=np.intp) for column in columns[:4]
    )
    return Flows(
        tuple(finder.routes),
        tuple(interests),
        np.array(interest_of, dtype=np.intp),
        interest_of_flow,
        publisher_of_flow,
        topic_of_flow,
        route_of_flow,
        np.array(columns[4], dtype=np.float64),
    )


class _RouteFinder:
    """Routes along topic trees, each found once."""

    def __init__(self, overlay: Overlay):
        self.overlay = overlay
        self.routes: list[OverlayPath] = []
        self._index: dict[tuple[tuple[int, ...], int, int], int] = {}
        self._parents: dict[tuple[tuple[int, ...], int], dict[int, tuple[int, int]]] = {}

    def find(self, topic: str, start: int, end: int) -> int:
        tree = self.overlay.trees[topic]
        key = (tree, start, end)
        if key not in self._index:
            parents = self._from(tree, start)
            brokers, links = [end], []
            while brokers[-1] != start:
                parent, link = parents[brokers[-1]]
                brokers.append(parent)
                links.append(link)
            self._index[key] = len(self.routes)
            self.routes.append(OverlayPath(tuple(reversed(brokers)), tuple(reversed(links))))
        return self._index[key]

    def _from(self, tree: tuple[int, ...], start: int) -> dict[int, tuple[int, int]]:
        """Returns, for each broker but the start, the broker before it on the way from the start, and the link
        between."""
        if (tree, start) not in self._parents:
            neighbours: dict[int, list[tuple[int, int]]] = {}
            for index in tree:
                link = self.overlay.links[index]
                neighbours.setdefault(link.a, []).append((link.b, index))
                neighbours.setdefault(link.b, []).append((link.a, index))
            parents: dict[int, tuple[int, int]] = {}
            reached = [start]
            for broker in reached:
                for other, index in neighbours.get(broker, ()):
                    if other != start and other not in parents:
                        parents[other] = (broker, index)
                        reached.append(other)
            self._parents[tree, start] = parents
        return self._parents[tree, start]
