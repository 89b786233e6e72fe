"""The stages before the subscribers' queues: the brokers' input queues, and the share of each flow that passes them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surecast.prediction.broker_inputs import BrokerInput, broker_inputs
from surecast.prediction.dropping.connection_phases import Phases, fitted_phases
from surecast.prediction.dropping.queue import OnOffQueue
from surecast.scenario.flows import flows_of
from surecast.scenario.system import Subscriber, System

__all__ = ["SubscriberQueue", "outlets_of"]

Array = NDArray[np.float64]
_PROMPT = 1000.0
"""A transmission that takes no time is taken this much shorter than periods and times between events."""


@dataclass(frozen=True, eq=False)
class SubscriberQueue:
    """The queue of one subscriber, and the mean time that events take to get there.

    `exact` says whether all that precedes the queue, and the queue itself, are as the formulas assume; `exponential`
    whether the time before the queue is exponential, as in a single broker.
    """

    subscriber: Subscriber
    queue: OnOffQueue
    before_s: float
    exact: bool
    exponential: bool


def outlets_of(
    system: System, note: Callable[[str], None], warn: Callable[[str], None]
) -> tuple[list[SubscriberQueue], list[BrokerInput]]:
    """Returns the queues of all subscribers that disconnect and that have a publisher; assumptions go to the notes."""
    flows = flows_of(system)
    inputs = broker_inputs(system, flows)
    count = len(flows.interests)
    rates = np.bincount(flows.interest, weights=flows.rate_per_s, minlength=count)
    routes = flows.routes
    latency = [math.fsum(system.overlay.links[i].latency_s for i in route.links) for route in routes]
    before = np.array([math.fsum(inputs[b].delay_mean_s for b in r.brokers) for r in routes]) + np.array(latency)
    mean_before = flows.weighted(before[flows.route]) if len(flows.route) else np.zeros(count)
    alone = len(system.overlay.brokers) == 1
    if not alone:
        note(
            "several brokers: the input queues on the way are taken as independent M/M/1 queues and arrivals at each "
            "as Poisson; failures of brokers and links are left out"
        )
    if any(not broker_input.exact for broker_input in inputs):
        note("input queues whose service is not exponential have the mean delay of M/G/1; their output is not Poisson")
    outlets = []
    phases: dict[str, tuple[Phases, bool]] = {}
    for subscriber, interest in zip(system.subscribers, flows.interest_of.tolist(), strict=True):
        rate = float(rates[interest])
        if subscriber.connectivity is None:
            note("subscribers that never disconnect are left out: dropping does not concern them")
            continue
        if rate == 0.0:
            note(f"subscriber {subscriber.name} has no queue: nobody publishes to it")
            continue
        connectivity = subscriber.connectivity
        key = f"{connectivity.on!r} {connectivity.off!r}"
        if key not in phases:
            phases[key] = fitted_phases(connectivity.on, connectivity.off)
        chain, exact = phases[key]
        if not exact:
            note(
                "periods that are not phase-type are replaced by phase-type ones with two or three of the same moments"
            )
        service, as_assumed = _service_per_s(subscriber, rate, note, warn)
        queue = OnOffQueue(rate, service, chain)
        home = inputs[subscriber.home]
        certain = exact and as_assumed and alone and home.exact
        outlets.append(SubscriberQueue(subscriber, queue, float(mean_before[interest]), certain, alone and home.exact))
    return outlets, inputs


def _service_per_s(
    subscriber: Subscriber, rate: float, note: Callable[[str], None], warn: Callable[[str], None]
) -> tuple[float, bool]:
    """Returns the rate of transmission to a subscriber, and whether the formulas use its distribution unchanged."""
    service, connectivity = subscriber.service, subscriber.connectivity
    if service is None:
        assert connectivity is not None
        note("a transmission that takes no time is taken as a thousandth of the time between events, or less")
        shortest = min(connectivity.on.mean_s, connectivity.off.mean_s)
        return _PROMPT * max(1.0 / shortest, rate), False
    if abs(service.squared_cv - 1.0) > 1e-9:
        warn(
            f"subscriber {subscriber.name}: transmission times are taken as exponential with the same mean, although "
            f"they are {service.kind} (squared coefficient of variation {service.squared_cv:.3g})"
        )
        return 1.0 / service.mean_s, False
    return 1.0 / service.mean_s, True
