"""The real-time reliability of clients under a placement."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from surecast.errors import AssumptionError
from surecast.planning.placement.problem import PlacementProblem, complete_overlay
from surecast.prediction.capacity.kernel_overlay import rebuild
from surecast.prediction.reliability.pairs import PairConnections
from surecast.prediction.reliability.reliability_model import delivery_model
from surecast.prediction.reliability.scheme_reliability import answers
from surecast.scenario import Scenario, System
from surecast.scenario.system import Publisher, Subscriber, Topic

__all__ = ["PlacementReliability"]

Array = NDArray[np.float64]
Path = tuple[int, ...]


class PlacementReliability:
    """The reliability of the worst client under each placement, with the scenario's scheme and availabilities.

    A client's reliability is the mean over the notifications it asks for: a client of each home broker counts by its
    publications in the classes that the client subscribes to. In a tree the way from one broker to another is unique,
    so a path is predicted once for all placements that have it. It does not depend on the routing algorithm.
    """

    def __init__(self, problem: PlacementProblem, system: System, scenario: Scenario):
        workload = system.class_workload
        if workload is None:
            raise AssumptionError(f"{system.name} has no filter classes, so there are no clients to be reliable for")
        self._problem = problem
        self._system = replace(system, overlay=complete_overlay(system, scenario), class_workload=None)
        deadline = scenario.workload.deadline
        self._deadline_s = math.inf if deadline is None else float(deadline)
        groups = len(problem.nearest)
        published = np.zeros((len(workload.classes), groups))
        np.add.at(published.T, problem.client_group, workload.publication_rate_per_s.T)
        weights = workload.subscription_rate_per_s.T @ published
        total = weights.sum(axis=1, keepdims=True)
        # Clients without any notification of their interest have no reliability.
        self._clients = np.flatnonzero(total[:, 0] > 0.0)
        self._weights = weights[self._clients] / total[self._clients]
        self._known: dict[Path, float] = {}

    def worst(self, placements: NDArray[np.bool_]) -> Array:
        """Returns the least reliability of any client under each placement; NaN if no client receives anything."""
        trees = [rebuild(self._problem.arrays, chosen) for chosen in placements]
        paths = [_paths(members, order, parent) for members, order, parent, _ in trees]
        self._learn(sorted({path for rows in paths for row in rows for path in row} - self._known.keys()))
        worst = np.full(len(placements), np.nan)
        for i, ((*_, home), rows) in enumerate(zip(trees, paths, strict=True)):
            table = np.array([[self._known[path] for path in row] for row in rows])
            here = home[self._problem.client_group[self._clients]]
            by_client = (self._weights * table[home][:, here].T).sum(axis=1)
            worst[i] = by_client.min() if len(by_client) else np.nan
        return worst

    def _learn(self, paths: list[Path]) -> None:
        """Predicts paths: each is the tree of a topic of its own, with one publisher and one subscriber."""
        if not paths:
            return
        link = self._problem.pair_number
        names = [str(i) for i in range(len(paths))]
        trees = {
            name: tuple(int(link[min(a, b), max(a, b)]) for a, b in pairwise(path))
            for name, path in zip(names, paths, strict=True)
        }
        system = replace(
            self._system,
            overlay=replace(self._system.overlay, trees=trees),
            topics=tuple(Topic(name, 1.0 / len(names)) for name in names),
            publishers=tuple(
                Publisher(name, path[0], (name,), 1.0, self._deadline_s)
                for name, path in zip(names, paths, strict=True)
            ),
            subscribers=tuple(Subscriber(name, path[-1], (name,)) for name, path in zip(names, paths, strict=True)),
        )
        scheme = system.delivery.fault_tolerance.scheme
        # Queues depend on the placement as a whole: its utilisation and its delays are constraints of their own.
        model = delivery_model(system, timed=True, queues=False)
        spread = model.spread
        delays = (np.zeros(0), np.zeros(0))
        if scheme.endswith("buffering"):
            delays = model.delays(spread.path, model.spread_patience_s)
        # In a tree, brokers that are connected at all are connected along the path.
        connections = _connected(model.path_up[model.flow_path])
        bare = _connected(model.bare.path_up[model.flow_path])
        answer = answers(model, (scheme,), delays, connections, bare)[0]
        in_time = answer.reliability * model.in_time
        for publisher, value in zip(model.flows.publisher.tolist(), in_time.tolist(), strict=True):
            # The links of the publisher and of the subscriber to their home brokers must be up as well.
            self._known[paths[publisher]] = model.client_up**2 * value


def _connected(probability: Array) -> PairConnections:
    return PairConnections(probability, None, None, "exact", "")


def _paths(members: NDArray[np.int64], order: NDArray[np.int64], parent: NDArray[np.int64]) -> list[list[Path]]:
    """Returns the candidates on the way from each broker to each other, both included."""
    count = len(members)
    paths: list[list[Path]] = [[() for _ in range(count)] for _ in range(count)]
    placed: list[int] = []
    for broker in order.tolist():
        own = (int(members[broker]),)
        paths[broker][broker] = own
        above = int(parent[broker])
        for other in placed:
            paths[other][broker] = (*paths[other][above], *own)
            paths[broker][other] = paths[other][broker][::-1]
        placed.append(broker)
    return paths
