"""The filter statistics of a class: how often messages pass a link, and what its entries cost, from measured laws.

Everything is a function of x, the mean number of active subscriptions of the class behind a link, as in `filters`. The
number is Poisson distributed; attributes are independent of each other. A notification passes unless nobody wants it,
and each subscription wants it with the product of the probabilities of its attributes: exp(-x p). The hull of a class
under merging depends on the attributes through the number of subscriptions alone, so it is averaged over that number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial, reduce
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, xlogy

from surecast.errors import AssumptionError
from surecast.prediction.capacity import filter_probabilities as filters
from surecast.prediction.capacity.attribute_distributions import (
    Intervals,
    NumberDistribution,
    Values,
    interval_law,
    value_points,
)
from surecast.prediction.capacity.filter_probabilities import checked_count
from surecast.prediction.capacity.transform import Transform
from surecast.scenario.system import AttributeStatistics, Histogram

__all__ = ["UNIFORM", "FilterStatistics", "statistics_of"]

Array = NDArray[np.float64]
Index = NDArray[np.intp]

UNIFORM: Final = AttributeStatistics("", Histogram((0.0, 1.0), (1.0,)), Histogram((0.0, 1.0), (1.0,)))
"""The one attribute of the capacity paper: uniform values, intervals with uniform ends."""

_SUMMED_BELOW: Final = 150.0
_SUMMED: Final = np.arange(0.0, 320.0)
_CHARLIER_ORDER: Final = 10
_ATOMS_MAX: Final = 4096
_ATOMS_EACH: Final = 1024


class _Attribute:
    """The laws of one attribute with the subscriptions that do not constrain it counted in."""

    def __init__(self, statistics: AttributeStatistics):
        self.constrained = q = statistics.constrained
        value, law = NumberDistribution(statistics.value), interval_law(statistics)
        v, s = value_points(value, law), law.points(value)
        free = 1.0 - q
        self.values = Values(v.weight, free + q * v.held, free + q * v.begun, free + q * v.reached)

        def mixed(inside: Array, own: float) -> Array:
            return np.append(inside, own)

        # The last point is the subscription that does not constrain the attribute: only its like cover it.
        self.intervals = Intervals(
            mixed(q * s.weight, free),
            mixed(free + q * s.covered, free),
            mixed(free + q * s.begun, free),
            mixed(free + q * s.reached, free),
            mixed(q * s.within, q),
            mixed(s.matched, 1.0),
            mixed(q * s.equal, free),
        )

    @cached_property
    def held(self) -> Transform:
        return Transform.of(self.values.held, self.values.weight)

    @cached_property
    def covered(self) -> Transform:
        return Transform.of(self.intervals.covered, self.intervals.weight)

    @cached_property
    def covered_matched(self) -> Transform:
        """As `covered`, each subscription weighted with the probability that a notification meets it here."""
        return Transform.of(self.intervals.covered, self.intervals.weight * self.intervals.matched)

    @cached_property
    def covered_satisfied(self) -> Transform:
        """As `covered_matched`, of subscriptions that constrain the attribute."""
        weight = self.intervals.weight * self.intervals.matched
        weight[-1] = 0.0
        return Transform.of(self.intervals.covered, weight)

    @cached_property
    def outside_hull(self) -> tuple[Transform, ...]:
        """By the number k of subscriptions: that all begin after a value, that all end before it (of k > 0)."""
        v = self.values
        return _power(v.weight, -v.begun), _power(v.weight, -v.reached)

    @cached_property
    def widens_hull(self) -> tuple[Transform, ...]:
        """By k: that all begin after an interval, that all end before it does, and that all lie strictly within."""
        s = self.intervals
        return _power(s.weight, -s.begun), _power(s.weight, -s.reached), _power(s.weight, s.within - 1.0)

    @cached_property
    def begun(self) -> tuple[Transform, Transform]:
        return (
            Transform.of(self.values.begun, self.values.weight),
            Transform.of(self.values.reached, self.values.weight),
        )

    def in_hull(self, k: Array) -> Array:
        """Returns the probability that a value lies in the hull of k > 0 subscriptions."""
        after, before = self.outside_hull
        return np.maximum(1.0 - after(k) - before(k), 0.0)

    def not_in_hull_interval(self, k: Array) -> Array:
        """Returns the probability that an interval widens the hull of k subscriptions here (the first always does)."""
        after, before, inside = self.widens_hull
        return np.clip(after(k) + before(k) - inside(k), 0.0, 1.0)


@dataclass(frozen=True)
class _Atoms:
    """Filters that occur again and again: the probabilities that another one covers each and that it is equal.

    By attribute, `matched` is the probability that a notification meets the filter, `bounded` whether it asks anything.
    """

    covered: Array
    equal: Array
    matched: Array
    bounded: Array

    def some(self, indices: Index) -> _Atoms:
        return _Atoms(self.covered[indices], self.equal[indices], self.matched[indices], self.bounded[indices])


class FilterStatistics:
    """Traffic and table sizes derived from the attributes of a class; without attributes, the closed forms of
    `filters`.

    >>> measured = Histogram((0.0, 1.0, 5.0), (0.25, 0.75))
    >>> stock = FilterStatistics((AttributeStatistics("price", measured, measured, constrained=0.5),))
    >>> stock.notification_probability("covering", [0.0, 1.0, 100.0]).round(4).tolist()
    [0.0, 0.4851, 1.0]
    >>> uniform = FilterStatistics(None)
    >>> uniform.notification_probability("covering", [0.0, 1.0, 1e6]).round(4).tolist()
    [0.0, 0.2752, 1.0]
    """

    def __init__(self, attributes: Sequence[AttributeStatistics] | None = None):
        self.is_uniform = not attributes
        self._given = tuple(attributes) if attributes else (UNIFORM,)

    def notification_probability(self, routing: str, x: ArrayLike) -> Array:
        """Returns the probability that a notification passes a link with x subscriptions of its class behind it (Eq.
        12).
        """
        if self._is_closed(routing) or routing in ("flooding", "identity"):
            return filters.notification_probability(routing, x)
        if routing == "merging":
            return _each(self._in_hull, checked_count(routing, x))
        return _each(self._held.complement, checked_count(routing, x))

    def subscription_probability(self, routing: str, x: ArrayLike) -> Array:
        """Returns the probability that a subscription passes a link when x others of its class come the same way (Eq.
        20).

        Equal subscriptions cover each other: the second one does not pass.
        """
        if self._is_closed(routing) or routing in ("flooding", "simple", "identity"):
            return filters.subscription_probability(routing, x)
        if routing == "merging":
            return _each(self._widens_hull, checked_count(routing, x))
        return _each(self._covered, checked_count(routing, x))

    def remote_entries(self, routing: str, x: ArrayLike) -> Array:
        """Returns the mean number of routing entries for a neighbour with x subscriptions of a class behind it (Eq. 5).

        Of equal subscriptions covering keeps one.
        """
        if self._is_closed(routing) or routing != "covering":
            return filters.remote_entries(routing, x)
        count = checked_count(routing, x)
        return _each(lambda u: u * self._covered(u) + self._repeated(u), count)

    def _is_closed(self, routing: str) -> bool:
        """Returns whether functions of x describe the routing completely; a registered algorithm has no others."""
        if not self.is_uniform and routing in filters.LAWS:
            raise AssumptionError(f"routing {routing!r} is known for uniform filters only; leave out workload.filters")
        return self.is_uniform

    def matching_entries(self, routing: str, x: ArrayLike) -> Array:
        """Returns the mean number of these entries that a notification matches.

        >>> FilterStatistics().matching_entries("simple", [3.0]).round(6).tolist()
        [1.0]
        """
        count = checked_count(routing, x)
        if routing == "simple":
            return count * float(self._held_moments[0].prod())
        if routing == "covering":
            return self._uncovered(self._matched, self._atoms.matched.prod(axis=1), count)
        return np.zeros_like(count) if routing == "flooding" else self.notification_probability(routing, count)

    def satisfied_predicates(self, routing: str, x: ArrayLike) -> Array:
        """Returns the mean number of predicates of these entries that hold for a notification, one per attribute
        constrained.

        >>> FilterStatistics().satisfied_predicates("merging", [3.0]).round(4).tolist()
        [0.6294]
        """
        count = checked_count(routing, x)
        if routing in ("flooding", "identity"):
            return np.zeros_like(count)
        predicates = np.zeros_like(count)
        for attribute, part in enumerate(self._attributes):
            free = 1.0 - part.constrained
            if routing == "simple":
                predicates += count * (self._held_moments[0][attribute] - free)
            elif routing == "covering":
                again = self._atoms.matched[:, attribute] * self._atoms.bounded[:, attribute]
                predicates += self._uncovered(self._satisfied_at[attribute], again, count)
            else:
                # The hull is bounded here if all k > 0 subscriptions are; then as for one attribute.
                begun, reached = part.begun
                predicates += np.maximum(np.exp(-count * free) - begun(count) - reached(count) + np.exp(-count), 0.0)
        return predicates

    def candidate_entries(self, routing: str, x: ArrayLike) -> Array:
        """Returns the mean number of these entries whose most selective predicate holds, or that have none.

        Exact for one attribute. For several it is exact under simple routing, and under covering and merging that of
        the one attribute that is most selective on average: an upper bound.
        """
        count = checked_count(routing, x)
        if len(self._attributes) == 1 or routing in ("flooding", "identity"):
            return self.matching_entries(routing, count)
        if routing == "simple":
            return count * self._least_matched
        entries = self.remote_entries(routing, count)
        for attribute, part in enumerate(self._attributes):
            if routing == "merging":
                here = _each(partial(_poisson_mean, part.in_hull), count)
            else:
                here = self._uncovered(self._matched_at[attribute], self._atoms.matched[:, attribute], count)
            entries = np.minimum(entries, here)
        return entries

    def comparisons(self, routing: str, x: ArrayLike) -> Array:
        """Returns the mean number of filters that a control message is compared with before it passes a link, or not.

        Half of the messages are subscriptions. Covering compares one with the entries of its class there, to see
        whether it is covered, and if not again, to see what it covers; merging compares it with the hull. A revocation
        is compared with all x filters of the class if it was an entry, or made the hull.

        >>> FilterStatistics().comparisons("covering", [100.0]).round(2).tolist()
        [6.04]
        """
        count = checked_count(routing, x)
        if routing not in ("covering", "merging"):
            return np.zeros_like(count)
        passed = self.subscription_probability(routing, count)
        again = 1.0 + passed if routing == "covering" else 1.0
        return 0.5 * (self.remote_entries(routing, count) * again + count * passed)

    def matching_variance(self, predicate: float, match: float) -> float:
        """Returns the variance, over notifications, of predicates that hold and entries that match, so weighted, per
        entry.

        It is for entries that are all the subscriptions: x² times this adds to the variance of their Poisson number.

        >>> round(FilterStatistics().matching_variance(0.0, 1.0), 6)  # of 2v(1 - v) with v uniform
        0.022222
        """
        first, second = self._held_moments
        spread = np.maximum(second - first**2, 0.0)
        whole, square = float(first.prod()), float(second.prod())
        shared = sum(spread[i] * np.delete(first, i).prod() for i in range(len(first)))
        return float(predicate**2 * spread.sum() + 2.0 * predicate * match * shared + match**2 * (square - whole**2))

    @cached_property
    def _attributes(self) -> tuple[_Attribute, ...]:
        return tuple(_Attribute(each) for each in self._given)

    @cached_property
    def _held(self) -> Transform:
        return reduce(Transform.times, (part.held for part in self._attributes))

    @cached_property
    def _covered(self) -> Transform:
        return reduce(Transform.times, (part.covered for part in self._attributes))

    @cached_property
    def _matched(self) -> Transform:
        return reduce(Transform.times, (part.covered_matched for part in self._attributes))

    @cached_property
    def _matched_at(self) -> list[Transform]:
        """Subscriptions weighted by what one attribute says, by attribute."""
        return [self._with_others(attribute, part.covered_matched) for attribute, part in enumerate(self._attributes)]

    @cached_property
    def _satisfied_at(self) -> list[Transform]:
        return [self._with_others(attribute, part.covered_satisfied) for attribute, part in enumerate(self._attributes)]

    def _with_others(self, attribute: int, weighted: Transform) -> Transform:
        others = (other.covered for index, other in enumerate(self._attributes) if index != attribute)
        return reduce(Transform.times, others, weighted)

    @cached_property
    def _least_matched(self) -> float:
        return _least_mean([(part.intervals.matched, part.intervals.weight) for part in self._attributes])

    @cached_property
    def _held_moments(self) -> tuple[Array, Array]:
        values = [part.values for part in self._attributes]
        return np.array([v.weight @ v.held for v in values]), np.array([v.weight @ v.held**2 for v in values])

    def _uncovered(self, weighted: Transform, again: Array, x: Array) -> Array:
        """Entries under covering, so weighted."""
        return _each(lambda u: u * weighted(u) + self._repeated(u, again), x)

    def _in_hull(self, x: Array) -> Array:
        # capacity Eqs. 12, 16: given their number, hulls are independent of each other from attribute to attribute
        return _poisson_mean(lambda k: np.prod([part.in_hull(k) for part in self._attributes], axis=0), x)

    def _widens_hull(self, x: Array) -> Array:
        def stays(k: Array) -> Array:
            with np.errstate(divide="ignore"):
                return sum((np.log1p(-part.not_in_hull_interval(k)) for part in self._attributes), np.zeros_like(k))

        return _poisson_mean(lambda k: -np.expm1(stays(k)), x, first=1.0)

    @cached_property
    def _atoms(self) -> _Atoms:
        atoms = _Atoms(np.ones(1), np.ones(1), np.ones((1, 0)), np.ones((1, 0)))
        for part in self._attributes:
            s = part.intervals
            again = _largest(s.equal, _ATOMS_EACH)
            atoms = atoms.some(_largest(atoms.equal, _ATOMS_EACH))
            bounded = (again < len(s.equal) - 1).astype(np.float64)
            old, new = (grid.ravel() for grid in np.meshgrid(np.arange(len(atoms.equal)), again, indexing="ij"))
            atoms = _Atoms(
                atoms.covered[old] * s.covered[new],
                atoms.equal[old] * s.equal[new],
                np.column_stack([atoms.matched[old], s.matched[new]]),
                np.column_stack([atoms.bounded[old], np.tile(bounded, len(atoms.equal))]),
            )
        return atoms.some(_largest(atoms.equal, _ATOMS_MAX))

    def _repeated(self, x: Array, each: Array | float = 1.0) -> Array:
        """Returns the entries that x P_s misses: it counts none of several equal subscriptions, but the table keeps
        one.

        A filter that is equal to a share e of all is in the table if one of them is active and none that covers it is:
        exp(-x (c - e)) - exp(-x c), and x e exp(-x c) of it are in x P_s. Each counts as much as `each` says.
        """
        atoms = self._atoms
        times = np.multiply.outer(x, atoms.equal)
        alone = np.exp(-np.multiply.outer(x, atoms.covered - atoms.equal))
        repeated = alone * (-np.expm1(-times) - times * np.exp(-times))
        return np.asarray(repeated @ (np.ones(len(atoms.equal)) * each), dtype=np.float64)


@cache
def statistics_of(attributes: tuple[AttributeStatistics, ...] | None) -> FilterStatistics:
    """Returns the statistics of a class, computed once for all that are alike."""
    return FilterStatistics(attributes)


def _largest(shares: Array, most: int) -> Index:
    """Returns the indices of the largest shares above 0; rare filters hardly ever meet an equal one."""
    positive = np.flatnonzero(shares > 0)
    return positive if len(positive) <= most else positive[np.sort(np.argpartition(shares[positive], -most)[-most:])]


def _each(function: Callable[[Array], Array], x: Array) -> Array:
    """Returns a function of x, evaluated once for each different x."""
    different, inverse = np.unique(x, return_inverse=True)
    return function(different)[inverse].reshape(x.shape)


def _power(weight: Array, less_one: Array) -> Transform:
    """Returns the mean of the k-th power of shares, given less 1, as a transform at k."""
    with np.errstate(divide="ignore"):
        return Transform.of(-np.log1p(np.clip(less_one, -1.0, 0.0)) + 0.0, weight)


def _poisson_mean(function: Callable[[Array], Array], x: Array, first: float = 0.0) -> Array:
    """Returns the mean of a function of a Poisson number with mean x, which has the value `first` at 0.

    Up to 150 the sum itself; beyond, Gauss quadrature for the Poisson distribution (Charlier polynomials).
    """
    means = np.empty_like(x)
    few = x < _SUMMED_BELOW
    if few.any():
        values = np.concatenate([[first], function(_SUMMED[1:])])
        mean = x[few][:, None]
        means[few] = np.exp(xlogy(_SUMMED, mean) - mean - gammaln(_SUMMED + 1.0)) @ values
    if not few.all():
        many = x[~few]
        n = np.arange(float(_CHARLIER_ORDER))
        # In standard deviations from the mean, so that the matrix keeps its digits.
        root = np.sqrt(many)[:, None, None]
        matrix = np.diag(n) / root + np.diag(np.sqrt(n[1:]), 1) + np.diag(np.sqrt(n[1:]), -1)
        nodes, vectors = np.linalg.eigh(matrix)
        means[~few] = (function(many[:, None] + root[:, 0] * nodes) * vectors[:, 0, :] ** 2).sum(axis=1)
    return means


def _least_mean(laws: list[tuple[Array, Array]]) -> float:
    """Returns the mean of the least of independent numbers between 0 and 1, each given by points and weights."""
    sides = []
    for values, weights in laws:
        order = np.argsort(values)
        sides.append((values[order], np.append(np.cumsum(weights[order][::-1])[::-1], 0.0)))
    marks = np.unique(np.concatenate([[0.0], *(values for values, _ in sides)]))
    above = np.ones(len(marks) - 1)
    for values, tail in sides:
        above *= tail[np.searchsorted(values, marks[:-1], side="right")]
    return float(above @ np.diff(marks))
