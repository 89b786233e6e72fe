"""The worst path of a system, from the mean waiting times that were measured at its queues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surecast.simulation.capacity.routing_plan import RoutingPlan

__all__ = ["WorstPath", "worst_path"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class WorstPath:
    """The largest mean delay over all paths in use, and the queues on that path."""

    delay_s: float
    queues: tuple[int, ...]


@dataclass(frozen=True)
class _Search:
    """Delays of one class: at each broker, on each directed link, and which of these may be passed."""

    plan: RoutingPlan
    broker_s: Sequence[float]
    link_s: Sequence[float]
    passes: Sequence[bool]

    def longest_from(self, broker: int, came_from: int = -1) -> WorstPath:
        """The longest way on from a broker, itself included."""
        plan, best = self.plan, WorstPath(0.0, ())
        for link in plan.leaving(broker):
            if plan.head[link] == came_from or not self.passes[link]:
                continue
            onward = self.longest_from(plan.head[link], broker)
            delay_s = self.link_s[link] + onward.delay_s
            if delay_s > best.delay_s:
                queues = tuple(queue for queue, _ in plan.stages[link])
                best = WorstPath(delay_s, queues + onward.queues)
        return WorstPath(self.broker_s[broker] + best.delay_s, (broker, *best.queues))


def worst_path(plan: RoutingPlan, algorithm: str, waiting_s: Floats, *, control: bool) -> WorstPath | None:
    """The worst path of notifications or of subscriptions (capacity Eqs. 40-45), None where there are none of them.

    A path counts if it may be used at all, however rarely. All paths are tried.
    """
    workload = plan.workload
    starts = workload.by_broker(workload.publication_rate_per_s, plan.brokers) > 0
    wanted = workload.by_broker(workload.subscription_rate_per_s, plan.brokers) > 0
    worst: WorstPath | None = None
    seen = set()
    for each, begins, ends in zip(workload.classes, starts, wanted, strict=True):
        key = (each.service_factor, begins.tobytes(), ends.tobytes())
        if key in seen:
            continue
        seen.add(key)
        search = _search(plan, algorithm, waiting_s, each.service_factor, ends, control)
        for broker in np.flatnonzero(ends if control else begins).tolist():
            found = search.longest_from(broker)
            if worst is None or found.delay_s > worst.delay_s:
                worst = found
    return worst


def _search(
    plan: RoutingPlan, algorithm: str, waiting_s: Floats, factor: float, wanted: NDArray[np.bool_], control: bool
) -> _Search:
    # capacity Eqs. 30, 31, 36-39, with waiting times as measured and the means of the given service times
    there = [
        wait + factor * queue.mean_s(control=control)
        for wait, queue in zip(waiting_s.tolist(), plan.queues, strict=True)
    ]
    links = range(2 * plan.links)
    link_s = [plan.lead_s[k] + sum(there[queue] + after_s for queue, after_s in plan.stages[k]) for k in links]
    rising = [plan.head[k] == plan.parent[plan.tail[k]] for k in links]
    if control:
        passes = [algorithm != "flooding" and (rising[k] or algorithm.startswith("peer")) for k in links]
    else:
        up = algorithm.startswith("hierarchical")
        beyond = [bool(wanted[sorted(_beyond(plan, k))].any()) for k in links]
        passes = [algorithm == "flooding" or beyond[k] or (up and rising[k]) for k in links]
    return _Search(plan, there[: plan.brokers], link_s, passes)


def _beyond(plan: RoutingPlan, link: int) -> set[int]:
    """The brokers that a directed link leads to."""
    found, ahead = {plan.tail[link]}, [plan.head[link]]
    while ahead:
        broker = ahead.pop()
        found.add(broker)
        ahead += [plan.head[k] for k in plan.leaving(broker) if plan.head[k] not in found]
    return found - {plan.tail[link]}
