"""Delays of links and of worst paths, from the waiting times of a stable system."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surecast.prediction.capacity.capacity_model import CapacityModel, Loads

__all__ = ["Delays", "delays_of", "longest_paths", "mean_waiting_s"]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Delays:
    """Mean waiting times, mean delays of directed overlay links, and the worst mean delay over all paths in use.

    The waiting times list brokers first, then the physical queues. A worst delay is None where nobody publishes, or
    nobody subscribes.
    """

    waiting_s: Array
    link_s: Array
    notification_worst_s: float | None
    subscription_worst_s: float | None


def mean_waiting_s(loads: Loads) -> Array:
    """Returns the mean waiting times in M/G/1 queues (Pollaczek-Khinchine, capacity Eqs. 29, 35) of stable loads."""
    return loads.squares / (2.0 * (1.0 - loads.utilisation))


def delays_of(model: CapacityModel, algorithm: str, loads: Loads) -> Delays:
    """Returns delays under an algorithm; the loads must be stable."""
    waiting = mean_waiting_s(loads)
    fixed, service = _link_parts(model, waiting)
    rates = loads.link_rates.sum(axis=0)
    # Of the messages that pass; a link without traffic is shown with service factor 1.
    factor = np.divide(rates[:, 1], rates[:, 0], out=np.ones(len(rates)), where=rates[:, 0] > 0)
    link = fixed[:, None] + service[:, None] * model.factor
    broker_wait = waiting[: model.tree.brokers, None]
    # capacity Eqs. 30, 31
    notification, control = broker_wait + loads.notification_s, broker_wait + loads.control_s
    notified, subscribed = model.passing(algorithm)
    return Delays(
        waiting,
        fixed + service * factor,
        _worst(_longest(model, link, notification, notified), model.publications > 0),
        _worst(_longest(model, link, control, subscribed), model.subscriptions > 0),
    )


def longest_paths(model: CapacityModel, algorithm: str, loads: Loads) -> Array:
    """Returns the longest mean delay of a notification by broker and class (capacity Eqs. 40, 41), for stable loads."""
    waiting = mean_waiting_s(loads)
    fixed, service = _link_parts(model, waiting)
    link = fixed[:, None] + service[:, None] * model.factor
    broker = waiting[: model.tree.brokers, None] + loads.notification_s
    return _longest(model, link, broker, model.passing(algorithm)[0])


def _link_parts(model: CapacityModel, waiting: Array) -> tuple[Array, Array]:
    """Returns, for each directed link, latency and waiting times, and the mean service times at service factor 1."""
    tree, servers = model.tree, model.servers
    # capacity Eqs. 36-39; a physical queue serves both kinds of message alike
    fixed, service = model.latency_s.copy(), np.zeros(2 * tree.links)
    np.add.at(fixed, servers.by, waiting[tree.brokers :][servers.used])
    np.add.at(service, servers.by, servers.moments[servers.used, 0])
    return fixed, service


def _longest(model: CapacityModel, link: Array, broker: Array, passes: Mask) -> Array:
    """Returns the longest mean delay from each broker (capacity Eqs. 40, 41, 43, 44), over links that may be passed.

    Unlike in print the first hop must be passable too, and a maximum over no hop is 0.
    """
    onward = model.tree.fold(link + broker[model.tree.head], np.maximum, passes)
    first = np.zeros_like(broker)
    np.maximum.at(first, model.tree.tail, np.where(passes, onward, 0.0))
    return broker + first


def _worst(longest: Array, starts: Mask) -> float | None:
    """Returns the longest of all, from brokers where messages start (capacity Eqs. 42, 45)."""
    return float(longest[starts].max()) if starts.any() else None
