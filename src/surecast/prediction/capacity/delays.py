"""Delays of queues, links and paths in a stable system: mean waiting times, and distributions of sojourn times.

The time in an M/G/1 queue is the waiting time plus a service time. Its mean and variance are exact (the second moment
of the waiting time is Takács's, from the third moment of the service time); times in different queues are taken as
independent, so that both add up along a path. What varies is then given a gamma distribution with these two moments,
shifted by the constant latency of the path. In one M/M/1 queue this is exact: the time is exponential.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, ndtri

from surecast.prediction.capacity.capacity_model import CapacityModel, LinkFlows, Loads
from surecast.prediction.capacity.overlay_tree import BrokerTree
from surecast.prediction.capacity.service_times import Services, services_of
from surecast.scenario.distributions import Distribution
from surecast.scenario.system import System

__all__ = [
    "Cubes",
    "Delays",
    "Gammas",
    "Sojourns",
    "delays_of",
    "longest_paths",
    "mean_waiting_s",
    "mixture_quantiles",
    "path_sums",
    "paths_of",
    "service_cubes",
    "sojourns_of",
]

Array = NDArray[np.float64]

_GRID_REFINED, _GRID = 48, 257
_REFINED_MAX = 20_000
_ROUNDS = 9
_LEVELS = np.array([0.001, 0.01, *np.linspace(0.03, 0.97, 17), 0.98, 0.99, 0.995, 0.999])


@dataclass(frozen=True)
class Gammas:
    """Gamma distributions, each shifted by a constant; a variance of 0 makes a constant of it."""

    shift_s: Array
    mean_s: Array
    variance_s2: Array

    @property
    def total_s(self) -> Array:
        """The means, shift included."""
        return self.shift_s + self.mean_s

    def flat(self) -> Gammas:
        """Returns the same distributions in one row."""
        return Gammas(self.shift_s.ravel(), self.mean_s.ravel(), self.variance_s2.ravel())

    def below(self, time_s: Array) -> Array:
        """Returns the distribution functions at each of the times, which go along the last axis of the answer.

        >>> mm1 = Gammas(np.array([0.0]), np.array([2.0]), np.array([4.0]))
        >>> mm1.below(np.array([2.0])).round(4).tolist()  # exponential
        [[0.6321]]
        """
        over = time_s - self.shift_s[..., None]
        mean, variance = self.mean_s[..., None], self.variance_s2[..., None]
        varies = variance > 0
        shape = np.where(varies, mean**2 / np.where(varies, variance, 1.0), 1.0)
        rate = np.where(varies, mean / np.where(varies, variance, 1.0), 1.0)
        return np.where(varies, gammainc(shape, np.maximum(over, 0.0) * rate), over >= mean)


@dataclass(frozen=True)
class Cubes:
    """Third moments of the service times: of brokers for notifications and for control messages, of the network."""

    notification: Array
    control: Array
    servers: Array


@dataclass(frozen=True)
class Sojourns:
    """Times of notifications in queues under one algorithm; the second axis is by distinct service factor.

    `broker` is the time at each broker. `hop` is that of each directed link: its latency (the shift), its queues, and
    the broker it leads to.
    """

    factors: Array
    broker: Gammas
    hop: Gammas


def service_cubes(system: System, model: CapacityModel) -> Cubes:
    """Returns the third moments of a system's service times, 0 where there is none."""
    brokers, network, servers = system.overlay.brokers, system.network, model.servers
    physical: list[Distribution | None] = []
    if network is not None:
        for is_router, component in zip(servers.is_router.tolist(), servers.component.tolist(), strict=True):
            physical.append(network.routers[component].service if is_router else network.links[component].service)
    return Cubes(
        _third(broker.notification_service for broker in brokers),
        _third(broker.control_service for broker in brokers),
        _third(physical),
    )


def _third(services: Iterable[Distribution | None]) -> Array:
    return np.array([0.0 if service is None else service.moments()[2] for service in services], dtype=np.float64)


def sojourns_of(model: CapacityModel, flows: LinkFlows, loads: Loads, cubes: Cubes) -> Sojourns:
    """Returns times in the queues of a stable system, for notifications of each service factor.

    Where routing tables add to service times, classes with the same factor differ in these; the mixture of them that
    comes to a broker is taken for all.
    """
    tree, servers = model.tree, model.servers
    services = services_of(model, flows)
    notified, controlled = model.publications.copy(), 2.0 * model.subscriptions
    np.add.at(notified, tree.head, flows.notifications)
    np.add.at(controlled, tree.head, flows.controls)
    third = _cubed(model, services, cubes)
    passing = (flows.notifications + flows.controls) @ (model.count * model.factor**3)
    physical = np.zeros(len(servers.component))
    np.add.at(physical, servers.used, passing[servers.by])
    cubed = np.concatenate([(notified * third[0] + controlled * third[1]) @ model.count, physical * cubes.servers])
    mean = mean_waiting_s(loads)
    # Takács: E[W²] = 2 E[W]² + rate E[S³] / (3 (1 - U))
    variance = mean**2 + cubed / (3.0 * (1.0 - loads.utilisation))
    factors = np.unique(model.factor)
    service = _by_factor(model, services, notified, factors)
    broker_mean = mean[: tree.brokers, None] + service[0]
    broker_variance = variance[: tree.brokers, None] + np.maximum(service[1] - service[0] ** 2, 0.0)
    hop_mean, hop_variance = broker_mean[tree.head], broker_variance[tree.head]
    served, spread = servers.moments[:, :1], np.maximum(servers.moments[:, 1:] - servers.moments[:, :1] ** 2, 0.0)
    np.add.at(hop_mean, servers.by, (mean[tree.brokers :, None] + served * factors)[servers.used])
    np.add.at(hop_variance, servers.by, (variance[tree.brokers :, None] + spread * factors**2)[servers.used])
    latency = np.broadcast_to(model.latency_s[:, None], hop_mean.shape)
    broker = Gammas(np.zeros_like(broker_mean), broker_mean, broker_variance)
    return Sojourns(factors, broker, Gammas(latency, hop_mean, hop_variance))


def _cubed(model: CapacityModel, services: Services, cubes: Cubes) -> Array:
    """Returns the third moments of service times by kind of message, broker and class.

    Where a routing table adds to the service time only two moments are known, and the third is a gamma's.
    """
    stated = np.stack([cubes.notification, cubes.control])[:, :, None] * model.factor**3
    first, second = services.first, services.second
    gamma = second * (2.0 * np.divide(second, first, out=np.zeros(first.shape), where=first > 0) - first)
    adds = np.array([each is not None for each in model.matching], dtype=np.bool_)
    return np.where(adds[:, None], gamma, stated)


def _by_factor(model: CapacityModel, services: Services, rates: Array, factors: Array) -> Array:
    """Returns the first and second moments of the service times of notifications, by broker and service factor."""
    moments = np.empty((2, model.tree.brokers, len(factors)))
    for k, factor in enumerate(factors):
        classes = model.factor == factor
        weight = rates[:, classes] * model.count[classes]
        total = weight.sum(axis=1, keepdims=True)
        weight = np.divide(weight, total, out=np.full(weight.shape, 1.0 / weight.shape[1]), where=total > 0)
        for moment, values in enumerate((services.first[0], services.second[0])):
            moments[moment, :, k] = (values[:, classes] * weight).sum(axis=1)
    return moments


def path_sums(tree: BrokerTree, weight: Array) -> Array:
    """Returns the sums of weights over the directed links from every broker (first axis) to every other (second)."""
    total = np.zeros((tree.brokers, tree.brokers, *weight.shape[1:]))
    reached = [tree.root]
    for broker in tree.order[1:]:
        up = tree.up[broker]
        parent = int(tree.head[up])
        # No broker reached so far lies beyond this one, so every path between them passes its parent.
        total[reached, broker] = total[reached, parent] + weight[tree.back(up)]
        total[broker, reached] = weight[up] + total[parent, reached]
        reached.append(broker)
    return total


def paths_of(tree: BrokerTree, sojourns: Sojourns) -> Gammas:
    """Returns times from publication at each broker to the end of processing at each other, by service factor."""
    broker, hop = sojourns.broker, sojourns.hop
    return Gammas(
        path_sums(tree, hop.shift_s),
        broker.mean_s[:, None] + path_sums(tree, hop.mean_s),
        broker.variance_s2[:, None] + path_sums(tree, hop.variance_s2),
    )


def mixture_quantiles(weights: Array, parts: Gammas, levels: Array) -> Array:
    """Returns quantiles of mixtures of the same distributions: one row per row of weights, one column per level.

    The distribution functions are tabulated once, on a grid that is dense where the mixtures have their mass, and
    inverted by interpolation, which is then refined unless there are very many rows. Rows that sum to 0 give NaN.

    >>> two = Gammas(np.zeros(2), np.array([1.0, 3.0]), np.array([1.0, 9.0]))
    >>> mixture_quantiles(np.array([[1.0, 0.0], [0.5, 0.5]]), two, np.array([0.5])).round(3).tolist()
    [[0.693], [1.147]]
    """
    total = weights.sum(axis=1)
    quantiles = np.full((len(weights), len(levels)), np.nan)
    used = weights.sum(axis=0) > 0
    if not used.any():
        return quantiles
    parts = Gammas(parts.shift_s[used], parts.mean_s[used], parts.variance_s2[used])
    share = weights[:, used] / np.where(total > 0, total, 1.0)[:, None]
    refine = share.size <= _REFINED_MAX
    grid = _grid(parts, share.sum(axis=0), float(levels.max()), _GRID_REFINED if refine else _GRID)
    below = share @ parts.below(grid)
    some = np.flatnonzero(total > 0)
    for row in some:
        quantiles[row] = np.interp(levels, below[row], grid)
    if refine:
        for row in some:
            right = np.clip(np.searchsorted(below[row], levels), 1, len(grid) - 1)
            quantiles[row] = _refined(share[row], parts, levels, grid[right - 1], grid[right])
    return quantiles


def _refined(share: Array, parts: Gammas, levels: Array, low: Array, high: Array) -> Array:
    """Returns quantiles of one mixture, each between two times: the Illinois form of false position."""
    some = share > 0
    share, parts = share[some], Gammas(parts.shift_s[some], parts.mean_s[some], parts.variance_s2[some])
    under, over = share @ parts.below(low) - levels, share @ parts.below(high) - levels
    last_side = np.zeros(len(levels))
    for _ in range(_ROUNDS):
        span = np.where(over > under, over - under, 1.0)
        time = np.clip(high - over * (high - low) / span, low, high)
        value = share @ parts.below(time) - levels
        left = value < 0
        over = np.where(left & (last_side < 0), over / 2, over)
        under = np.where(~left & (last_side > 0), under / 2, under)
        low, under = np.where(left, time, low), np.where(left, value, under)
        high, over = np.where(left, high, time), np.where(left, over, value)
        last_side = np.where(left, -1.0, 1.0)
    return high


def _grid(parts: Gammas, importance: Array, highest: float, points: int) -> Array:
    """Returns times at which to tabulate: quantiles of the distributions (Wilson and Hilferty's), more of the
    important.
    """
    deviation = np.sqrt(parts.variance_s2)
    shape = np.where(deviation > 0, parts.mean_s**2 / np.where(deviation > 0, parts.variance_s2, 1.0), np.inf)
    root = 1.0 - 1.0 / (9.0 * shape[:, None]) + ndtri(_LEVELS) / (3.0 * np.sqrt(shape[:, None]))
    times = parts.shift_s[:, None] + parts.mean_s[:, None] * np.maximum(root, 0.0) ** 3
    weight = np.repeat(importance / importance.sum() + 1.0 / len(importance), len(_LEVELS))
    order = np.argsort(times, axis=None)
    pool, rank = times.ravel()[order], np.cumsum(weight[order])
    chosen = pool[np.searchsorted(rank, np.linspace(0.0, rank[-1], points)[:-1])]
    # The table must reach beyond the highest quantile whatever the fit: a gamma distribution with shape k has less
    # than exp(-u) beyond its mean + sqrt(2 k u) + u, in units of its scale.
    most = -np.log1p(-highest) + 1.0
    scale = np.where(deviation > 0, parts.variance_s2 / np.where(parts.mean_s > 0, parts.mean_s, 1.0), 0.0)
    tail = (parts.shift_s + parts.mean_s + deviation * np.sqrt(2.0 * most) + scale * most).max()
    far = np.linspace(chosen[-1], max(float(tail), float(chosen[-1])), 9)
    constant = parts.total_s[deviation == 0]
    ends = [parts.shift_s.min(), *np.nextafter(constant, -np.inf), *constant]
    return np.unique(np.concatenate([ends, chosen, far]))


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
