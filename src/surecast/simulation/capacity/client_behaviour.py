"""What one client does in the course of time: it subscribes, takes subscriptions back, and publishes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from surecast.protocol.filters import Event
from surecast.scenario import Streams
from surecast.simulation.capacity.checks import Subscription
from surecast.simulation.capacity.contents import draw_event, draw_filter, repeats
from surecast.simulation.capacity.draws import arrivals, times
from surecast.simulation.capacity.routing_plan import RoutingPlan
from surecast.simulation.equilibrium import residual_times

__all__ = ["Client"]


class Client:
    """A client, by index. It draws from streams of its own, so that it does the same whatever the brokers do."""

    def __init__(self, plan: RoutingPlan, index: int, streams: Streams, run: int):
        workload = plan.workload
        name = workload.clients[index]

        def stream(purpose: str) -> np.random.Generator:
            return streams.generator(f"routing run {run}/{purpose}", name)

        self.index = index
        self._name = name
        self._classes = workload.classes
        self._repeats = [repeats(each) for each in workload.classes]
        self._made = 0
        self._mean_active = workload.subscription_rate_per_s[:, index] * workload.lifetime.mean_s
        self._lifetime = workload.lifetime
        self._start = stream("first subscriptions")
        self._filters, self._events = stream("filters"), stream("events")
        self._subscriptions = arrivals(workload.subscription_rate_per_s[:, index], stream("subscriptions"))
        self._publications = arrivals(workload.publication_rate_per_s[:, index], stream("publications"))
        self._lifetimes = times(workload.lifetime, stream("lifetimes"))

    def first_subscriptions(self) -> Iterator[tuple[Subscription, float]]:
        """The subscriptions that are active at the start, with the time they have left.

        Their number is Poisson distributed (M/G/infinity), whatever the distribution of lifetimes.
        """
        active = self._start.poisson(self._mean_active)
        left = residual_times(self._lifetime, self._start, int(active.sum())).tolist()
        which = np.repeat(np.arange(len(active)), active).tolist()
        for class_index, left_s in zip(which, left, strict=True):
            yield self._make(class_index, self._start), left_s

    def next_subscription(self) -> tuple[float, int] | None:
        """The time until the next subscription, and its class; None if there never is one."""
        return next(self._subscriptions, None)

    def next_publication(self) -> tuple[float, int] | None:
        """The time until the next publication, and its class; None if there never is one."""
        return next(self._publications, None)

    def subscription(self, class_index: int) -> tuple[Subscription, float]:
        """A new subscription of a class, and how long it lives."""
        return self._make(class_index, self._filters), next(self._lifetimes)

    def event(self, class_index: int) -> Event:
        """A new event of a class."""
        return draw_event(self._classes[class_index], self._events)

    def _make(self, class_index: int, rng: np.random.Generator) -> Subscription:
        subscriber = self._name
        if self._repeats[class_index]:
            self._made += 1
            subscriber = f"{self._name}#{self._made}"
        return Subscription(self.index, class_index, draw_filter(self._classes[class_index], rng), subscriber)
