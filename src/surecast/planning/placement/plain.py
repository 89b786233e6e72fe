"""Placements by the plain capacity model, one at a time: for what compiled code does not follow.

Some two hundred times slower than compiled code, and right for every scenario that `predict_capacity` accepts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from surecast.prediction.capacity.capacity_model import CapacityModel, Loads, capacity_model
from surecast.prediction.capacity.delays import delays_of, mean_waiting_s
from surecast.prediction.capacity.headroom import headroom
from surecast.prediction.capacity.kernel_overlay import PlacementArrays, rebuild
from surecast.scenario import System
from surecast.scenario.system import ClassWorkload, OverlayLink

__all__ = ["PlainPlacements"]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class PlainPlacements:
    """A system with all candidates and a link between any two of them, out of which each placement is cut.

    `client_group` is the group of each client in the arrays of the placement problem, `queues` the names of its queues.
    """

    system: System
    workload: ClassWorkload
    client_group: NDArray[np.int64]
    queues: tuple[str, ...]
    shared_directions: bool

    def scaled(self, publications: float, subscriptions: float) -> PlainPlacements:
        """Returns the same placements with rates multiplied."""
        workload = replace(
            self.workload,
            publication_rate_per_s=publications * self.workload.publication_rate_per_s,
            subscription_rate_per_s=subscriptions * self.workload.subscription_rate_per_s,
        )
        return replace(self, workload=workload)

    def figures(
        self, arrays: PlacementArrays, placements: Mask, algorithms: tuple[str, ...], with_headroom: bool
    ) -> Array:
        """Returns the figures of `evaluate_placements`, in the same columns."""
        figures = [self._figures(arrays, mask, algorithms, with_headroom) for mask in placements]
        return np.array(figures, dtype=np.float64).reshape(len(placements), len(algorithms), -1)

    def _figures(
        self, arrays: PlacementArrays, mask: Mask, algorithms: tuple[str, ...], with_headroom: bool
    ) -> list[list[float]]:
        placed, members = self._placed(arrays, mask)
        model = capacity_model(placed, shared_directions=self.shared_directions)
        rows = []
        for algorithm in algorithms:
            loads = model.loads(model.flows(algorithm))
            worst, subscription, mean = math.nan, math.nan, math.nan
            if loads.stable:
                delays = delays_of(model, algorithm, loads)
                worst = math.nan if delays.notification_worst_s is None else delays.notification_worst_s
                subscription = math.nan if delays.subscription_worst_s is None else delays.subscription_worst_s
                mean = _mean_delay(model, loads)
            factor, saturated = math.nan, -1
            if with_headroom:
                limit = headroom(model, algorithm)
                factor = math.inf if limit is None else limit.factor
                saturated = -1 if limit is None else self._component(model, members, limit.queue)
            busiest = int(loads.utilisation.argmax()) if loads.utilisation.max(initial=0.0) > 0.0 else -1
            rates = loads.link_rates[:, :, 0].sum(axis=1)
            entries = model.lifetime_s * float((model.subscriptions @ model.count).sum())
            entries += float((model.remote_entries(algorithm) @ model.count).sum())
            most = float(loads.utilisation.max(initial=0.0))
            used = self._component(model, members, busiest)
            rows.append([worst, subscription, mean, *rates.tolist(), most, used, factor, saturated, entries])
        return rows

    def _placed(self, arrays: PlacementArrays, mask: Mask) -> tuple[System, NDArray[np.int64]]:
        """Returns the system of a placement, and which candidates its brokers are."""
        members, order, parent, home = rebuild(arrays, mask)
        complete = self.system.overlay
        links: list[OverlayLink] = []
        for broker, above in enumerate(parent.tolist()):
            if above >= 0:
                a, b = min(broker, above), max(broker, above)
                pair = complete.links[int(arrays.pair_number[members[a], members[b]])]
                links.append(replace(pair, a=a, b=b))
        brokers = tuple(complete.brokers[i] for i in members.tolist())
        overlay = replace(complete, brokers=brokers, links=tuple(links), root=int(order[0]), candidates=())
        homes = tuple(home[self.client_group].tolist())
        workload = replace(self.workload, client_home=homes)
        return replace(self.system, overlay=overlay, class_workload=workload), members

    def _component(self, model: CapacityModel, members: NDArray[np.int64], queue: int) -> int:
        """Returns a queue of the model by its number in the placement problem."""
        if queue < 0:
            return -1
        if queue < model.tree.brokers:
            return int(members[queue])
        network, servers, i = self.system.network, model.servers, queue - model.tree.brokers
        if network is None:
            return -1
        component = int(servers.component[i])
        if servers.is_router[i]:
            name = f"router {network.routers[component].name}"
        else:
            name = f"physical link {network.links[component].name}" + " (backward)" * bool(servers.backward[i])
        return len(self.system.overlay.brokers) + self.queues.index(name)


def _mean_delay(model: CapacityModel, loads: Loads) -> float:
    """Returns the mean delay of notifications to the brokers whose own clients want them; NaN if there are none."""
    wanted = model.by_class(
        lambda kind, x: kind.notification_probability("simple", x), model.lifetime_s * model.subscriptions
    )
    tree, servers, waiting = model.tree, model.servers, mean_waiting_s(loads)
    start = model.publications * wanted.sum(axis=0) * model.count
    passing = model.publications_behind * tree.beyond(wanted) * model.count
    fixed, service = model.latency_s.copy(), np.zeros(2 * tree.links)
    np.add.at(fixed, servers.by, waiting[tree.brokers :][servers.used])
    np.add.at(service, servers.by, servers.moments[servers.used, 0])
    broker = waiting[: tree.brokers, None] + loads.notification_s
    link = fixed[:, None] + service[:, None] * model.factor
    rate = float(start.sum())
    total = float((start * broker).sum() + (passing * (link + broker[tree.head])).sum())
    return total / rate if rate > 0.0 else math.nan
