"""The laws of one attribute: of the value of a notification, and of the interval a subscription asks for.

Every law is a histogram (uniform within its bins) or a list of numbers that occur. What is needed of an interval law
are four probabilities as functions of points a <= b: that an interval holds both, that it begins by a, that it reaches
b, and that it lies strictly between them. They are exact; expectations over them are sums over quadrature points.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import isqrt
from typing import Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from surecast.scenario.system import AttributeStatistics, Histogram

__all__ = ["IntervalLaw", "Intervals", "NumberDistribution", "Values", "interval_law", "value_points"]

Array = NDArray[np.float64]

_POINTS_MAX: Final = 250_000
_WORK_MAX: Final = 2_000_000
_ORDER_MAX: Final = 240
_SMOOTH_FROM: Final = 4
_SMOOTH_MAX: Final = 12
_EXPONENTIAL_FROM: Final = 48
_CELLS_MAX: Final = 500
_CUTS: Final = 24
_KINKS_MAX: Final = 9
_ROUNDING: Final = 1e-12


@dataclass(frozen=True)
class Values:
    """Values of notifications: weights, and the probabilities that an interval holds one, begins by it, reaches it."""

    weight: Array
    held: Array
    begun: Array
    reached: Array


@dataclass(frozen=True)
class Intervals:
    """Intervals of subscriptions: weights, and what another interval and a notification do with each.

    Another one covers it, begins no later, reaches its end, or lies strictly within; `matched` is the probability that
    a value lies in it, `equal` that another one is the same (0 where the law is continuous).
    """

    weight: Array
    covered: Array
    begun: Array
    reached: Array
    within: Array
    matched: Array
    equal: Array


class IntervalLaw(Protocol):
    """The law of an interval by the probabilities of what it does with points."""

    def covers(self, a: Array, b: Array) -> Array:
        """Returns the probability that an interval begins no later than a and ends no earlier than b."""

    def begins_by(self, a: Array) -> Array:
        """Returns the probability that an interval begins no later than a."""

    def reaches(self, b: Array) -> Array:
        """Returns the probability that an interval ends no earlier than b."""

    def breaks(self) -> Array:
        """Returns the points at which these functions may have kinks, for a = b."""

    def points(self, value: NumberDistribution) -> Intervals:
        """Returns quadrature points for intervals; `value` is the law of the values that they match."""


class NumberDistribution:
    """A distribution of numbers with exact distribution functions."""

    def __init__(self, histogram: Histogram):
        self.points = np.array(histogram.points, dtype=np.float64)
        self.weights = np.array(histogram.weights, dtype=np.float64)
        self.continuous = histogram.is_continuous
        # Sums of ends may miss a number that occurs by the rounding of a few operations.
        self._slack = 0.0 if self.continuous else _ROUNDING * max(1.0, float(np.abs(self.points).max()))
        self.below_point = np.concatenate([[0.0], np.cumsum(self.weights)])
        self.above_point = np.concatenate([np.cumsum(self.weights[::-1])[::-1], [0.0]])

    @cached_property
    def density(self) -> Array:
        return self.weights / np.diff(self.points)

    def at_most(self, t: Array) -> Array:
        """Returns P(X <= t)."""
        if self.continuous:
            return self._line(self.below_point, t)
        return self._step(self.below_point, t + self._slack, "right")

    def below(self, t: Array) -> Array:
        """Returns P(X < t)."""
        if self.continuous:
            return self._line(self.below_point, t)
        return self._step(self.below_point, t - self._slack, "left")

    def at_least(self, t: Array) -> Array:
        """Returns P(X >= t)."""
        if self.continuous:
            return self._line(self.above_point, t)
        return self._step(self.above_point, t - self._slack, "left")

    def above(self, t: Array) -> Array:
        """Returns P(X > t)."""
        if self.continuous:
            return self._line(self.above_point, t)
        return self._step(self.above_point, t + self._slack, "right")

    def _line(self, heights: Array, t: Array) -> Array:
        return np.asarray(np.interp(t, self.points, heights), dtype=np.float64)

    def _step(self, heights: Array, t: Array, side: Literal["left", "right"]) -> Array:
        values: Array = heights[np.searchsorted(self.points, t, side=side)]
        return values

    def equal(self, t: Array) -> Array:
        """Returns P(X = t)."""
        if self.continuous:
            return np.zeros_like(t)
        return np.maximum(self.at_most(t) - self.below(t), 0.0)

    def between(self, a: Array, b: Array) -> Array:
        """Returns P(a <= X <= b)."""
        return np.maximum(self.at_most(b) - self.below(a), 0.0)

    @cached_property
    def _areas(self) -> Array:
        """The integral of the distribution function up to each point."""
        gaps = np.diff(self.points)
        left = self.below_point[:-1] if self.continuous else self.below_point[1:-1]
        bend = self.density * gaps**2 / 2.0 if self.continuous else 0.0
        return np.concatenate([[0.0], np.cumsum(left * gaps + bend)])

    def area(self, t: Array) -> Array:
        """Returns the integral of P(X <= u) over u up to t."""
        cell = np.searchsorted(self.points, t, side="right") - 1
        inside = np.maximum(cell, 0)
        past = np.where(cell >= 0, t - self.points[inside], 0.0)
        height = self.below_point[inside] if self.continuous else self.below_point[inside + 1]
        bend = 0.0
        if self.continuous:
            bend = np.concatenate([self.density, [0.0]])[inside] * past**2 / 2.0
        return np.asarray(self._areas[inside] + height * past + bend, dtype=np.float64)

    def quantile(self, u: Array) -> Array:
        """Returns the number below which a share u of a continuous law lies."""
        return np.asarray(np.interp(u, self.below_point, self.points), dtype=np.float64)


def _intervals(
    law: _EqualEnds | _Centred, weight: Array, a: Array, b: Array, value: NumberDistribution, equal: Array
) -> Intervals:
    """Returns intervals from a to b with all that a law and the distribution of values say of them."""
    covering = law.covers(a, b), law.begins_by(a), law.reaches(b), law.within(a, b)
    return Intervals(weight, *covering, value.between(a, b), equal)


class _EqualEnds:
    """Both ends are drawn from one law."""

    def __init__(self, ends: NumberDistribution):
        self.ends = ends

    def covers(self, a: Array, b: Array) -> Array:
        # The ends of another interval do not cover it if both lie below b or both above a (and a <= b).
        ends = self.ends
        before, after = ends.at_most(a), ends.at_least(b)
        same = ends.equal(a)
        apart = 2.0 * before * after
        together = 2.0 * ends.below(a) * ends.above(a) + same * (2.0 * ends.below(a) + 2.0 * ends.above(a) + same)
        return np.where(a < b, apart, together)

    def begins_by(self, a: Array) -> Array:
        return self.ends.at_most(a) * (1.0 + self.ends.above(a))

    def reaches(self, b: Array) -> Array:
        return self.ends.at_least(b) * (1.0 + self.ends.below(b))

    def within(self, a: Array, b: Array) -> Array:
        return np.maximum(self.ends.below(b) - self.ends.at_most(a), 0.0) ** 2

    def breaks(self) -> Array:
        return self.ends.points

    def points(self, value: NumberDistribution) -> Intervals:
        if self.ends.continuous:
            return self._continuous(value)
        i, j = np.triu_indices(len(self.ends.points))
        a, b = self.ends.points[i], self.ends.points[j]
        weight = np.where(i == j, 1.0, 2.0) * self.ends.weights[i] * self.ends.weights[j]
        return _intervals(self, weight, a, b, value, weight.copy())

    def _continuous(self, value: NumberDistribution) -> Intervals:
        """In shares of the law of ends everything but the values is as with uniform ends, whatever the histogram."""
        marks = np.array([0.0, 1.0])
        shares = np.unique(np.concatenate([self.ends.below_point, self.ends.at_most(value.points), marks]))
        if len(shares) <= _KINKS_MAX:  # where the values have kinks; many of them are small
            marks = np.clip(shares[np.append(np.diff(shares) > 1e-14, True)], 0.0, 1.0)
            marks[0] = 0.0
        width, rest = np.diff(marks), 1.0 - marks[1:]
        cells = len(width)
        order = min(_ORDER_MAX, isqrt(2 * _POINTS_MAX // (cells * (cells + 1))))
        node, back, mass = _rule(order)
        # Share below each point and above it, by cell; near 1 the second keeps its digits.
        under, over = marks[:-1, None] + width[:, None] * node, rest[:, None] + width[:, None] * back
        i, j = np.triu_indices(cells, 1)
        shape = (len(i), order, order)
        cell = 2.0 * (width[i] * width[j])[:, None, None] * np.multiply.outer(mass, mass)
        parts = [(under[i][:, :, None], over[i][:, :, None], under[j][:, None, :], over[j][:, None, :], cell)]
        # The triangle of one cell: the second point lies in what the first leaves of it.
        left = np.multiply.outer(back, back)
        second_under = marks[1:, None, None] - width[:, None, None] * left
        second_over = rest[:, None, None] + width[:, None, None] * left
        triangle = 2.0 * (width**2)[:, None, None] * np.multiply.outer(mass * back, mass)
        parts.append((under[:, :, None], over[:, :, None], second_under, second_over, triangle))
        shapes = (shape, (cells, order, order))
        low, low_over, high, high_over, weight = (
            np.concatenate([np.broadcast_to(p[k], s).ravel() for p, s in zip(parts, shapes, strict=True)])
            for k in range(5)
        )
        return Intervals(
            weight,
            2.0 * low * high_over,
            low * (1.0 + low_over),
            high_over * (1.0 + high),
            np.maximum(1.0 - low - high_over, 0.0) ** 2,
            value.between(self.ends.quantile(low), self.ends.quantile(high)),
            np.zeros_like(weight),
        )


class _Centred:
    """A centre and a width, independent of each other."""

    def __init__(self, centre: NumberDistribution, width: NumberDistribution):
        self.centre, self.width = centre, width

    def covers(self, a: Array, b: Array) -> Array:
        return self._mean(a, b, 1.0)

    def within(self, a: Array, b: Array) -> Array:
        return self._mean(a, b, -1.0)

    def begins_by(self, a: Array) -> Array:
        probability = np.zeros_like(a)
        for low, high, weight in self._widths():
            if low == high:
                probability += weight * self.centre.at_most(a + low / 2.0)
            else:
                probability += weight * self._rising(a, low, high) / (high - low)
        return probability

    def reaches(self, b: Array) -> Array:
        probability = np.zeros_like(b)
        for low, high, weight in self._widths():
            if low == high:
                probability += weight * self.centre.at_least(b - low / 2.0)
            else:
                probability += weight * (1.0 - self._falling(b, low, high) / (high - low))
        return probability

    def breaks(self) -> Array:
        steps = np.concatenate([-self.width.points, self.width.points]) / 2.0
        return np.unique(np.add.outer(self.centre.points, steps))

    def points(self, value: NumberDistribution) -> Intervals:
        along = isqrt(min(100_000, _WORK_MAX // len(self.width.weights)))
        centre, centre_weight = _law_points(self.centre, along)
        width, width_weight = _law_points(self.width, along)
        a = np.subtract.outer(centre, width / 2.0).ravel()
        b = np.add.outer(centre, width / 2.0).ravel()
        weight = np.multiply.outer(centre_weight, width_weight).ravel()
        equal = np.zeros_like(weight) if self.centre.continuous or self.width.continuous else weight.copy()
        return _intervals(self, weight, a, b, value, equal)

    def _mean(self, a: Array, b: Array, sign: float) -> Array:
        """Returns, averaged over widths, the share of centres from b - w/2 to a + w/2 (sign 1), or strictly the other
        way round (-1).
        """
        mean = np.zeros_like(a)
        for low, high, weight in self._widths():
            if low == high:
                share = self.centre.at_most(a + low / 2.0) - self.centre.below(b - low / 2.0)
                mean += weight * np.maximum(sign * share, 0.0)
            else:
                gap = np.clip(b - a, low, high)
                start, end = (gap, high) if sign > 0 else (low, gap)
                area = self._rising(a, start, end) - self._falling(b, start, end)
                mean += weight * np.maximum(sign * area, 0.0) / (high - low)
        return mean

    def _rising(self, a: Array, low: Array | float, high: Array | float) -> Array:
        """Returns the integral of P(centre <= a + w/2) over w from low to high."""
        return 2.0 * (self.centre.area(a + np.asarray(high) / 2.0) - self.centre.area(a + np.asarray(low) / 2.0))

    def _falling(self, b: Array, low: Array | float, high: Array | float) -> Array:
        """Returns the integral of P(centre < b - w/2) over w from low to high."""
        return 2.0 * (self.centre.area(b - np.asarray(low) / 2.0) - self.centre.area(b - np.asarray(high) / 2.0))

    def _widths(self) -> list[tuple[float, float, float]]:
        """Bins of widths, from, to and weight; a width that occurs as such is a bin of length 0."""
        points: list[float] = self.width.points.tolist()
        ends = points[1:] if self.width.continuous else points
        weights: list[float] = self.width.weights.tolist()
        return [part for part in zip(points, ends, weights, strict=False) if part[2] > 0]


def interval_law(attribute: AttributeStatistics) -> IntervalLaw:
    """Returns the law of the intervals of an attribute."""
    if attribute.centre is not None and attribute.width is not None:
        return _Centred(NumberDistribution(attribute.centre), NumberDistribution(attribute.width))
    return _EqualEnds(NumberDistribution(attribute.ends or attribute.value))


def value_points(value: NumberDistribution, intervals: IntervalLaw) -> Values:
    """Returns quadrature points for the values of notifications."""
    if value.continuous:
        breaks = intervals.breaks()
        inside = breaks[(breaks > value.points[0]) & (breaks < value.points[-1])]
        marks = np.unique(np.concatenate([value.points, inside]))
        if len(marks) > _CELLS_MAX:
            marks = np.unique(np.concatenate([value.points, inside[:: len(inside) // _CELLS_MAX + 1]]))
        node, _, mass = _rule(min(_ORDER_MAX, max(8, 20_000 // len(marks))))
        points = (marks[:-1, None] + np.diff(marks)[:, None] * node).ravel()
        weight = np.multiply.outer(np.diff(value.at_most(marks)), mass).ravel()
    else:
        points, weight = value.points, value.weights
    return Values(weight, intervals.covers(points, points), intervals.begins_by(points), intervals.reaches(points))


def _law_points(law: NumberDistribution, most: int) -> tuple[Array, Array]:
    """Returns about `most` quadrature points of one law and their weights; the numbers themselves where it is not
    continuous.

    The bins are cut, since kinks should meet small cells, and the outermost cells have rules for thin layers.
    """
    if not law.continuous:
        return law.points, law.weights
    bins = len(law.weights)
    cuts = max(1, _CUTS // bins)
    marks = np.interp(np.arange(cuts * bins + 1) / cuts, np.arange(bins + 1), law.points)
    outer = _rule(_EXPONENTIAL_FROM)
    inner = _rule(min(_SMOOTH_MAX, max(1, (most - 2 * _EXPONENTIAL_FROM) // (cuts * bins))))
    points, weights = [], []
    for cell, share in enumerate(np.diff(law.at_most(marks))):
        node, _, mass = outer if cell in (0, cuts * bins - 1) else inner
        points.append(marks[cell] + (marks[cell + 1] - marks[cell]) * node)
        weights.append(share * mass)
    return np.concatenate(points), np.concatenate(weights)


def _rule(order: int) -> tuple[Array, Array, Array]:
    """Returns points of [0, 1], their distances from 1 to full accuracy, and weights.

    What is integrated may live in a thin layer at either end. Of many points most are there, spread evenly over its
    orders of magnitude (double exponential quadrature); with fewer, Gauss quadrature after a change of variable.
    """
    if order >= _EXPONENTIAL_FROM:
        step = np.linspace(-3.2, 3.2, order)
        node = 1.0 / (1.0 + np.exp(-np.pi * np.sinh(step)))
        mass = np.cosh(step) * node * node[::-1]
        return node, node[::-1], mass / mass.sum()
    gauss, mass = np.polynomial.legendre.leggauss(order)
    node, mass = 0.5 + 0.5 * gauss, mass / 2.0
    if order >= _SMOOTH_FROM:
        mass = 30.0 * (node * (1.0 - node)) ** 2 * mass
        node = node**3 * (10.0 - 15.0 * node + 6.0 * node**2)
    return node, node[::-1], mass / mass.sum()
