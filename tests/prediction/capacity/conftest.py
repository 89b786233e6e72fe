"""A plain simulation of notifications that flood a tree of brokers: one heap of arrivals, first come first served."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from surecast.scenario import System


@dataclass(frozen=True)
class Flood:
    """What became of notifications: the class, the broker of origin, and times to the end of processing by broker."""

    kind: np.ndarray
    origin: np.ndarray
    delay_s: np.ndarray


def simulate_flood(system: System, notifications: int, seed: int) -> Flood:
    """Floods notifications from every broker; subscriptions and revocations arrive too and go no farther."""
    rng = np.random.default_rng(seed)
    overlay, workload = system.overlay, system.class_workload
    brokers = len(overlay.brokers)
    near: list[list[tuple[int, float]]] = [[] for _ in range(brokers)]
    for link in overlay.links:
        near[link.a].append((link.b, link.latency_s))
        near[link.b].append((link.a, link.latency_s))
    published = workload.by_broker(workload.publication_rate_per_s, brokers)
    control = 2 * workload.by_broker(workload.subscription_rate_per_s, brokers)
    rates = np.stack([published, control]).ravel()
    arrivals = int(notifications * rates.sum() / published.sum())
    times = np.cumsum(rng.exponential(1 / rates.sum(), arrivals))
    drawn = rng.choice(len(rates), size=arrivals, p=rates / rates.sum())
    is_control, kind, origin = np.unravel_index(drawn, (2, *published.shape))
    factor = np.array([each.service_factor for each in workload.classes])[kind].tolist()
    laws = [(each.notification_service, each.control_service) for each in overlay.brokers]

    def drawing(law: object) -> Iterator[float]:
        while True:
            yield from law.sample(rng, 5000).tolist()  # type: ignore[attr-defined]

    service = [[drawing(law) for law in pair] for pair in laws]
    delay = np.full((arrivals, brokers), np.nan)
    heap = [(t, i, int(b), -1) for i, (t, b) in enumerate(zip(times.tolist(), origin.tolist(), strict=True))]
    free, control_of = [0.0] * brokers, is_control.tolist()
    while heap:
        t, message, broker, before = heapq.heappop(heap)
        done = max(t, free[broker]) + factor[message] * next(service[broker][control_of[message]])
        free[broker] = done
        if control_of[message]:
            continue
        delay[message, broker] = done - times[message]
        for neighbour, latency in near[broker]:
            if neighbour != before:
                heapq.heappush(heap, (done + latency, message, neighbour, broker))
    kept = np.flatnonzero(is_control == 0)
    kept = kept[len(kept) // 20 :]  # the queues were empty at first
    return Flood(kind[kept], origin[kept], delay[kept])


@pytest.fixture(scope="session")
def flood() -> Callable[[System, int, int], Flood]:
    return simulate_flood
