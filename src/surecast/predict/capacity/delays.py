"""Delays of links and of worst paths, from the waiting times of a stable system."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surecast.predict.capacity.model import CapacityModel, Flows, Loads

__all__ = ["Delays", "delays_of", "wait_spread"]

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


def delays_of(model: CapacityModel, algorithm: str, loads: Loads) -> Delays:
    """Delays under an algorithm; the loads must be stable."""
    tree, servers = model.tree, model.servers
    waiting = loads.waiting_s()
    broker_wait, server_wait = waiting[: tree.brokers], waiting[tree.brokers :]
    # capacity Eqs. 36-39; a physical queue serves both kinds of message alike
    fixed, service = model.latency_s.copy(), np.zeros(2 * tree.links)
    np.add.at(fixed, servers.by, server_wait[servers.used])
    np.add.at(service, servers.by, servers.moments[servers.used, 0])
    link = fixed[:, None] + service[:, None] * model.factor
    rates = loads.link_rates.sum(axis=0)
    # Of the messages that pass; a link without traffic is shown with service factor 1.
    factor = np.divide(rates[:, 1], rates[:, 0], out=np.ones(len(rates)), where=rates[:, 0] > 0)
    # capacity Eqs. 30, 31
    notification = broker_wait[:, None] + model.notification_service[:, :1] * model.factor
    control = broker_wait[:, None] + model.control_service[:, :1] * model.factor
    notified, subscribed = model.passing(algorithm)
    return Delays(
        waiting,
        fixed + service * factor,
        _worst(model, link, notification, notified, model.publications > 0),
        _worst(model, link, control, subscribed, model.subscriptions > 0),
    )


def _worst(model: CapacityModel, link: Array, broker: Array, passes: Mask, starts: Mask) -> float | None:
    """The longest mean delay from a broker where messages start (capacity Eqs. 40-45), over links that may be passed.

    Unlike in print the first hop must be passable too, and a maximum over no hop is 0.
    """
    if not starts.any():
        return None
    onward = model.tree.fold(link + broker[model.tree.head], np.maximum, passes)
    first = np.zeros_like(broker)
    np.maximum.at(first, model.tree.tail, np.where(passes, onward, 0.0))
    return float((broker + first)[starts].max())


def wait_spread(model: CapacityModel, flows: Flows, loads: Loads) -> Array:
    """How far the set of active subscriptions moves each broker's spare capacity, at most, relative to it.

    Given the subscriptions, the share of notifications that pass a link lies in [0, 1] with mean P_n, so its variance
    is at most P_n (1 - P_n). Classes are independent; links into one broker are taken as fully dependent. A mean
    waiting time computed from the mean rate is too low by about the square of this.
    """
    deviation = model.publications_behind * np.sqrt(np.maximum(flows.notify * (1.0 - flows.notify), 0.0))
    by_broker = np.zeros_like(model.publications)
    np.add.at(by_broker, model.tree.head, deviation * model.factor)
    spread = model.notification_service[:, 0] * np.sqrt(by_broker**2 @ model.count)
    return np.asarray(spread / (1.0 - loads.utilisation[: model.tree.brokers]), dtype=np.float64)
