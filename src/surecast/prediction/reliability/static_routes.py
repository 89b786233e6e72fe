"""Static routes without acknowledgements: reliability under periodic subscription.

With ideal refreshes an event arrives if all of its route is up (reliability Eq. 3). The paper does not model that a
repaired broker has no routing entry until a refresh reaches it; `with_refresh` does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surecast.kernels import njit
from surecast.prediction.reliability.component_chains import Components

__all__ = ["RouteParts", "route_up", "with_refresh"]

Array = NDArray[np.float64]
Index = NDArray[np.intp]

_PHASES = 12
"""Points of the Gauss-Legendre rule over the time since the last refresh."""


@dataclass(frozen=True)
class RouteParts:
    """Routes as flat arrays: route r has `broker[start[r]+r : start[r+1]+r+1]` and `link[start[r] : start[r+1]]`."""

    start: Index
    broker: Index
    link: Index


def route_up(parts: RouteParts, broker_up: Array, link_up: Array) -> Array:
    """Returns P[all brokers and links of the route are up], for each route.

    >>> parts = RouteParts(np.array([0, 1]), np.array([0, 1]), np.array([0]))
    >>> route_up(parts, np.array([0.9, 0.8]), np.array([0.5])).round(12).tolist()
    [0.36]
    """
    return np.asarray(_route_up(parts.start, parts.broker, parts.link, broker_up, link_up), dtype=np.float64)


def with_refresh(
    parts: RouteParts, chosen: Index, components: Components, interval_s: float, timeout_s: float
) -> Array:
    """Returns P[the route is up and every broker of it has a routing entry], for each chosen route: an approximation.

    The subscriber's home sends a refresh against the direction of events every `interval_s`; it gets as far as the
    route is up. A broker loses its entry when it fails and when the entry is `timeout_s` old. All brokers must have
    been up since the last refresh. Where a link blocked that refresh but is up again, the brokers beyond it must have
    been up since an earlier one that got through; these are summed until the time-out. Approximated is what blocks a
    refresh twice: it is taken to be the same link, and everything nearer to the subscriber to have been up.
    """
    nodes, weights = np.polynomial.legendre.leggauss(_PHASES)
    ages, shares = interval_s * (nodes + 1.0) / 2.0, weights / 2.0
    return np.asarray(
        _with_refresh(
            chosen,
            parts.start,
            parts.broker,
            parts.link,
            components.broker_up,
            components.broker_failure,
            components.broker_failure + components.broker_repair,
            components.link_up,
            components.link_failure + components.link_repair,
            ages,
            shares,
            interval_s,
            timeout_s,
        ),
        dtype=np.float64,
    )


@njit(cache=True)
def _route_up(start: Index, broker: Index, link: Index, broker_up: Array, link_up: Array) -> Array:
    result = np.ones(len(start) - 1)
    for r in range(len(result)):
        # reliability Eq. 3
        for j in range(start[r] + r, start[r + 1] + r + 1):
            result[r] *= broker_up[broker[j]]
        for j in range(start[r], start[r + 1]):
            result[r] *= link_up[link[j]]
    return result


@njit(cache=True)
def _with_refresh(
    chosen: Index,
    start: Index,
    broker: Index,
    link: Index,
    broker_up: Array,
    failure: Array,
    broker_change: Array,
    link_up: Array,
    link_change: Array,
    ages: Array,
    shares: Array,
    interval: float,
    timeout: float,
) -> Array:
    result = np.zeros(len(chosen))
    for c in range(len(chosen)):
        r = chosen[c]
        brokers = broker[start[r] + r : start[r + 1] + r + 1]
        links = link[start[r] : start[r + 1]]
        for i in range(len(ages)):
            result[c] += shares[i] * _entries(
                brokers, links, broker_up, failure, broker_change, link_up, link_change, ages[i], interval, timeout
            )
    return result


@njit(cache=True)
def _entries(
    brokers: Index,
    links: Index,
    broker_up: Array,
    failure: Array,
    broker_change: Array,
    link_up: Array,
    link_change: Array,
    age: float,
    interval: float,
    timeout: float,
) -> float:
    """Returns P[route up, entries everywhere] when the last refresh was `age` ago. Link m leads from broker m to
    m+1."""
    hops = len(links)
    all_up = 1.0
    for b in brokers:
        all_up *= broker_up[b] * math.exp(-failure[b] * age)
    blocked = np.zeros(hops)
    passed = all_up
    for m in range(hops - 1, -1, -1):
        a = link_up[links[m]]
        fade = math.exp(-link_change[links[m]] * age)
        blocked[m] = passed * a * (1.0 - a) * (1.0 - fade)
        for j in range(m):
            blocked[m] *= link_up[links[j]]
        passed *= a * (a + (1.0 - a) * fade)
    total = passed
    while True:
        age += interval
        if age >= timeout or blocked.sum() < 1e-13:
            return total
        later = np.zeros(hops)
        nearer = 1.0
        for m in range(hops - 1, -1, -1):
            a = link_up[links[m]]
            up = broker_up[brokers[m + 1]]
            nearer *= up + (1.0 - up) * math.exp(-broker_change[brokers[m + 1]] * interval)
            fade = math.exp(-link_change[links[m]] * interval)
            through = nearer * a * (1.0 - fade)
            nearer *= a + (1.0 - a) * fade
            mass = blocked[m]
            for j in range(m + 1):
                mass *= math.exp(-failure[brokers[j]] * interval)
            later[m] += mass * (1.0 - through)
            mass *= through
            for j in range(m - 1, -1, -1):
                beyond = link_up[links[j]]
                still = beyond + (1.0 - beyond) * math.exp(-link_change[links[j]] * age)
                later[j] += mass * (1.0 - still)
                mass *= still
            total += mass
        blocked = later
