"""P[delay <= time] of very many routes at once.

The delay of a route is a sum of independent hops, so its Laplace transform is the product of theirs, and each hop's is
a short sum of simple fractions (`hops.py`). The distribution at a time is then a weighted sum of that product over a
few complex numbers. Where all rates are real (exponential and hyperexponential times) these lie on the parabola of
Weideman and Trefethen (2007), and the result is exact to about 1e-12 whatever the time; where some are complex they lie
on the line of the Euler method of Abate and Whitt (2006), to about 1e-8.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surecast.kernels import njit
from surecast.prediction.reliability.hops import SpectralHop

__all__ = ["HopTable", "Mixtures", "RouteTable"]

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]
Index = NDArray[np.intp]
_Paths = tuple[Index, Index, Array]
_Hops = tuple[Array, Complex, Complex, Complex, Complex]

_PARABOLA_POINTS = 28
_EULER_ORDER = 15


def parabola() -> tuple[Complex, Complex]:
    """Returns points and weights for transforms whose poles are real and not positive."""
    n = _PARABOLA_POINTS
    theta = math.pi * np.arange(1, n, 2) / n
    points = n * (0.1309 - 0.1194 * theta**2 + 0.25j * theta)
    slopes = n * (-0.2388 * theta + 0.25j)
    weights = -2.0j / n * np.exp(points) * slopes
    return points.astype(np.complex128), weights.astype(np.complex128)


def euler_line() -> tuple[Complex, Complex]:
    """Returns points and weights for transforms with poles anywhere to the left of the imaginary axis."""
    m = _EULER_ORDER
    xi = np.ones(2 * m + 1)
    xi[0] = 0.5
    xi[2 * m] = 2.0**-m
    for k in range(1, m):
        xi[2 * m - k] = xi[2 * m - k + 1] + 2.0**-m * math.comb(m, k)
    signs = (-1.0) ** np.arange(2 * m + 1)
    points = m * math.log(10.0) / 3.0 + 1j * math.pi * np.arange(2 * m + 1)
    return points.astype(np.complex128), (10.0 ** (m / 3.0) * signs * xi).astype(np.complex128)


@dataclass(frozen=True)
class HopTable:
    """All hops, padded to the same number of terms; and the points their transforms are taken at."""

    atoms: Array
    weights: Complex
    up_weights: Complex
    rates: Complex
    means: Array
    up_means: Array
    excess_weights: Complex
    excess_means: Array
    points: Complex
    point_weights: Complex

    @classmethod
    def of(cls, hops: Sequence[SpectralHop]) -> HopTable:
        terms = max((len(hop.weights) for hop in hops), default=0)
        weights = np.zeros((len(hops), terms), dtype=np.complex128)
        up_weights, excess_weights = np.zeros_like(weights), np.zeros_like(weights)
        rates = np.ones((len(hops), terms), dtype=np.complex128)
        for i, hop in enumerate(hops):
            weights[i, : len(hop.weights)] = hop.weights
            up_weights[i, : len(hop.weights)] = hop.up_weights
            excess_weights[i, : len(hop.weights)] = hop.excess_weights
            rates[i, : len(hop.rates)] = hop.rates
        points, point_weights = parabola() if all(hop.is_real for hop in hops) else euler_line()
        return cls(
            np.array([hop.atom for hop in hops], dtype=np.float64),
            weights,
            up_weights,
            rates,
            np.array([hop.mean for hop in hops], dtype=np.float64),
            np.array([hop.up_mean for hop in hops], dtype=np.float64),
            excess_weights,
            np.array([hop.excess_mean for hop in hops], dtype=np.float64),
            points,
            point_weights,
        )

    def with_excess(self, hop: Index, shift: Array) -> HopTable:
        """This table, followed by the factors of excesses: the transform L(s + shift) of each `hop`, or, where `shift`
        is NaN, that of its excess. The mean of a factor is what it brings to the mean of a product."""
        last = np.isnan(shift)
        by = np.where(last, 0.0, shift)[:, None]
        rates = self.rates[hop] + by
        weights = np.where(last[:, None], self.excess_weights[hop], self.weights[hop] * self.rates[hop] / rates)
        atoms = np.where(last, -1.0, 1.0) * self.atoms[hop]
        means = np.where(last, self.excess_means[hop], atoms + weights.sum(axis=1).real)
        none, zeros = np.zeros_like(weights), np.zeros(len(hop))
        points = self.points, self.point_weights
        return self.joined(HopTable(atoms, weights, none, rates, means, zeros, none, zeros, *points))

    def joined(self, other: HopTable) -> HopTable:
        """Returns the hops of this table, then those of another one; with the points of the one that has more."""
        terms = max(self.rates.shape[1], other.rates.shape[1])

        def both(a: Complex, b: Complex, value: float = 0.0) -> Complex:
            wide = [np.pad(x, ((0, 0), (0, terms - x.shape[1])), constant_values=value) for x in (a, b)]
            return np.concatenate(wide)

        contour = max(self, other, key=lambda table: len(table.points))
        return HopTable(
            np.concatenate([self.atoms, other.atoms]),
            both(self.weights, other.weights),
            both(self.up_weights, other.up_weights),
            both(self.rates, other.rates, 1.0),
            np.concatenate([self.means, other.means]),
            np.concatenate([self.up_means, other.up_means]),
            both(self.excess_weights, other.excess_weights),
            np.concatenate([self.excess_means, other.excess_means]),
            contour.points,
            contour.point_weights,
        )


@dataclass(frozen=True)
class Mixtures:
    """Mixtures of routes. Mixture m has the entries `start[m]:start[m+1]`, and the tail sum of `factor` * P[delay > t]
    over them; beyond its `limit_s` an entry's P[delay > t] stays at `tail_at_limit`."""

    start: Index
    route: Index
    factor: Array
    limit_s: Array
    tail_at_limit: Array


@dataclass(frozen=True)
class RouteTable:
    """Routes as sequences of hops: route r has the hops `hop[start[r]:start[r+1]]`.

    Some may be no delays but *excesses*: by how much P[delay > t] of a route is higher if its last broker is known to
    be down at first. Such a tail starts at P[delay = 0], and its transform is a product too.
    """

    hops: HopTable
    start: Index
    hop: Index
    is_excess: NDArray[np.bool_] | None = None

    @property
    def atoms(self) -> Array:
        """P[delay = 0] of each route, with a minus for an excess."""
        return np.asarray(_products(self.start, self.hop, self.hops.atoms), dtype=np.float64)

    @property
    def totals(self) -> Array:
        """The transform of each route at 0."""
        totals = np.ones(len(self.start) - 1)
        if self.is_excess is not None:
            totals[self.is_excess] = 0.0
        return totals

    @property
    def means(self) -> Array:
        """Mean delay of each route."""
        sums = np.asarray(_sums(self.start, self.hop, self.hops.means), dtype=np.float64)
        return np.where(self.totals > 0, sums, _products(self.start, self.hop, self.hops.means))

    def with_excess(self, routes: Index, shifts: Array) -> RouteTable:
        """This table, followed by the excesses of some routes whose last brokers forget their state at rates `shifts`.

        The event gets to the last but one broker after a time T that has nothing to do with the last one, and finds it
        as if it had been down at first with probability exp(-shift T), else in its stationary state.
        """
        counts = self.start[routes + 1] - self.start[routes]
        ends = np.cumsum(counts)
        position = np.arange(ends[-1] if len(ends) else 0) + np.repeat(self.start[routes] - ends + counts, counts)
        distinct, which = np.unique(shifts, return_inverse=True)
        choice = np.repeat(which, counts)
        choice[ends - 1] = len(distinct)
        keys, back = np.unique(self.hop[position] * (len(distinct) + 1) + choice, return_inverse=True)
        by = np.append(distinct, np.nan)[keys % (len(distinct) + 1)]
        return RouteTable(
            self.hops.with_excess(keys // (len(distinct) + 1), by),
            np.concatenate([self.start, self.start[-1] + ends]),
            np.concatenate([self.hop, len(self.hops.atoms) + back]),
            np.concatenate([self.totals == 0, np.ones(len(routes), dtype=np.bool_)]),
        )

    def joined(self, other: RouteTable) -> RouteTable:
        """Returns the routes of this table, then those of another one."""
        return RouteTable(
            self.hops.joined(other.hops),
            np.concatenate([self.start, self.start[-1] + other.start[1:]]),
            np.concatenate([self.hop, len(self.hops.atoms) + other.hop]),
            np.concatenate([self.totals == 0, other.totals == 0]),
        )

    def tails(self, routes: Index, times_s: Array) -> tuple[Array, Array]:
        """Returns P[delay > time] of each route at its time, and the mean of min(delay, time)."""
        tails, means = np.empty(len(routes)), np.empty(len(routes))
        atoms, totals, infinite = self.atoms, self.totals, self.means
        table = self.hops
        for time in np.unique(times_s):
            chosen = np.flatnonzero(times_s == time)
            if time == math.inf:
                tails[chosen], means[chosen] = 0.0, infinite[routes[chosen]]
            elif time <= 0:
                tails[chosen], means[chosen] = (totals - atoms)[routes[chosen]], 0.0
            else:
                transforms = _transforms(table.points / time, table.atoms, table.weights, table.rates)
                points, weights = table.points, table.point_weights
                inverted = _invert(routes[chosen], self.start, self.hop, transforms, points, weights, time, totals)
                tails[chosen], means[chosen] = inverted
        return np.clip(tails, 0.0, 1.0), np.maximum(means, 0.0)

    def up_times(self, routes: Index, times_s: Array) -> Array:
        """Returns the mean time until `times_s` in which the event waits at the last hop of each route with its holder
        up.
        """
        result = np.empty(len(routes))
        last = self.hop[self.start[routes + 1] - 1]
        table = self.hops
        for time in np.unique(times_s):
            chosen = np.flatnonzero(times_s == time)
            if time == math.inf or time <= 0:
                result[chosen] = table.up_means[last[chosen]] if time > 0 else 0.0
            else:
                points, weights = table.points, table.point_weights
                before = _transforms(points / time, table.atoms, table.weights, table.rates)
                here = _resolvents(points / time, table.up_weights, table.rates)
                result[chosen] = _invert_last(routes[chosen], self.start, self.hop, before, here, points, weights)
        return np.maximum(result, 0.0)

    def quantiles(self, mixtures: Mixtures, targets: Array) -> Array:
        """For each mixture the least time at which its tail is at most its target."""
        table, m = self.hops, mixtures
        hops = (table.atoms, table.weights, table.rates, table.points, table.point_weights)
        entries = (m.route, m.factor, m.limit_s, m.tail_at_limit)
        scale = np.maximum(self.means, 1e-12)
        times = _quantiles(m.start, entries, targets, self.atoms, scale, (self.start, self.hop, self.totals), hops)
        return np.asarray(times, dtype=np.float64)


@njit(cache=True)
def _products(start: Index, hop: Index, values: Array) -> Array:
    result = np.ones(len(start) - 1)
    for r in range(len(result)):
        for j in range(start[r], start[r + 1]):
            result[r] *= values[hop[j]]
    return result


@njit(cache=True)
def _sums(start: Index, hop: Index, values: Array) -> Array:
    result = np.zeros(len(start) - 1)
    for r in range(len(result)):
        for j in range(start[r], start[r + 1]):
            result[r] += values[hop[j]]
    return result


@njit(cache=True)
def _transforms(points: Complex, atoms: Array, weights: Complex, rates: Complex) -> Complex:
    """Laplace transform of each hop's delay at each point."""
    result = np.empty((len(atoms), len(points)), dtype=np.complex128)
    for h in range(len(atoms)):
        for k in range(len(points)):
            value = complex(atoms[h])
            for j in range(weights.shape[1]):
                value += weights[h, j] * rates[h, j] / (points[k] + rates[h, j])
            result[h, k] = value
    return result


@njit(cache=True)
def _resolvents(points: Complex, weights: Complex, rates: Complex) -> Complex:
    """Laplace transform of the sum of `weights` * exp(-`rates` * t) of each hop at each point."""
    result = np.zeros((len(weights), len(points)), dtype=np.complex128)
    for h in range(len(weights)):
        for k in range(len(points)):
            for j in range(weights.shape[1]):
                result[h, k] += weights[h, j] / (points[k] + rates[h, j])
    return result


@njit(cache=True)
def _invert_last(
    routes: Index, start: Index, hop: Index, before: Complex, here: Complex, points: Complex, weights: Complex
) -> Array:
    """Returns the inverse of the product of all hops' transforms but the last, times the last one's integral."""
    result = np.zeros(len(routes))
    for i in range(len(routes)):
        for k in range(len(points)):
            stop = start[routes[i] + 1] - 1
            product = here[hop[stop], k]
            for j in range(start[routes[i]], stop):
                product *= before[hop[j], k]
            result[i] += (weights[k] * product / points[k]).real
    return result


@njit(cache=True)
def _invert(
    routes: Index,
    start: Index,
    hop: Index,
    transforms: Complex,
    points: Complex,
    weights: Complex,
    time: float,
    totals: Array,
) -> tuple[Array, Array]:
    tails, means = np.empty(len(routes)), np.empty(len(routes))
    for i in range(len(routes)):
        tail, mean = 0.0, 0.0
        for k in range(len(points)):
            product = 1.0 + 0.0j
            for j in range(start[routes[i]], start[routes[i] + 1]):
                product *= transforms[hop[j], k]
            value = weights[k] * (totals[routes[i]] - product) / points[k]
            tail += value.real
            mean += (value / points[k]).real
        tails[i], means[i] = tail, mean * time
    return tails, means


@njit(cache=True)
def _log_excess(
    time: float, goal: float, entries: tuple[Index, Array, Array, Array], paths: _Paths, hops: _Hops
) -> float:
    """Logarithm of a mixture's tail at a time over the goal."""
    routes, factors, limits, at_limit = entries
    start, hop, totals = paths
    atoms, weights, rates, points, point_weights = hops
    tail = 0.0
    for i in range(len(routes)):
        if time >= limits[i]:
            tail += factors[i] * at_limit[i]
            continue
        for k in range(len(points)):
            product = 1.0 + 0.0j
            s = points[k] / time
            for position in range(start[routes[i]], start[routes[i] + 1]):
                h = hop[position]
                value = complex(atoms[h])
                for j in range(weights.shape[1]):
                    value += weights[h, j] * rates[h, j] / (s + rates[h, j])
                product *= value
            tail += factors[i] * (point_weights[k] * (totals[routes[i]] - product) / points[k]).real
    return math.log(max(tail, 1e-14 * goal) / goal)


@njit(cache=True)
def _root_between(
    low: float,
    high: float,
    f_low: float,
    f_high: float,
    goal: float,
    entries: tuple[Index, Array, Array, Array],
    paths: _Paths,
    hops: _Hops,
) -> float:
    """Regula falsi (Illinois) between a time with too much tail and one with too little."""
    side = 0
    for _ in range(100):
        if high - low < 1e-9 * high:
            break
        middle = (f_low * high - f_high * low) / (f_low - f_high)
        f = _log_excess(middle, goal, entries, paths, hops)
        if abs(f) < 1e-10:
            return middle
        if f > 0.0:
            low, f_low = middle, f
            if side == 1:
                f_high *= 0.5
            side = 1
        else:
            high, f_high = middle, f
            if side == -1:
                f_low *= 0.5
            side = -1
    return high


@njit(cache=True)
def _quantiles(
    starts: Index,
    all_entries: tuple[Index, Array, Array, Array],
    targets: Array,
    route_atoms: Array,
    scale: Array,
    paths: _Paths,
    hops: _Hops,
) -> Array:
    result = np.zeros(len(targets))
    all_routes, all_factors, all_limits, all_at_limit = all_entries
    for m in range(len(targets)):
        if starts[m] == starts[m + 1]:
            continue
        mine = slice(starts[m], starts[m + 1])
        entries = (all_routes[mine], all_factors[mine], all_limits[mine], all_at_limit[mine])
        routes, factors, limits, _ = entries
        goal, low = targets[m], 0.0
        at_zero = np.sum(factors * (paths[2][routes] - route_atoms[routes]))
        high = np.max(np.minimum(scale[routes], limits))
        last = np.max(limits)
        if at_zero <= goal * (1.0 + 1e-12):
            continue
        if goal <= 0.0:
            result[m] = last
            continue
        f_low, f_high = math.log(at_zero / goal), _log_excess(high, goal, entries, paths, hops)
        while f_high > 0.0 and high < last:
            low, f_low = high, f_high
            high = min(3.0 * high, last)
            f_high = _log_excess(high, goal, entries, paths, hops)
        result[m] = high
        if f_high < 0.0:
            result[m] = _root_between(low, high, f_low, f_high, goal, entries, paths, hops)
    return result
