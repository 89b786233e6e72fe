"""The expected latest delivery of a notification: the mean of a maximum over the brokers that it must reach.

The capacity paper defines the delay of a notification so, and then computes the mean over its worst path instead
(Eqs. 40-42). Here are that, a value in between, and the mean of the maximum itself with branches of the tree taken as
independent. All three are means over the notifications that reach anyone, weighted by publication rates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincc

from surecast.prediction.capacity.attribute_distributions import NumberDistribution, interval_law, value_points
from surecast.prediction.capacity.averaging import coinciding
from surecast.prediction.capacity.capacity_model import CapacityModel, Loads
from surecast.prediction.capacity.delays import Gammas, Sojourns, longest_paths, paths_of
from surecast.prediction.capacity.filter_statistics import FilterStatistics, statistics_of
from surecast.scenario.system import ClassWorkload

__all__ = ["Contents", "LatestDelivery", "contents_of", "latest_delivery"]

Array = NDArray[np.float64]

_STEPS, _STEPS_COARSE = 256, 128
_CELLS_FINE, _CELLS_MAX = 12_000, 100_000
_DEVIATIONS = 8.0
_VALUES = 8


@dataclass(frozen=True)
class LatestDelivery:
    """Mean time until the last broker with a matching subscription has processed a notification, three ways.

    `worst_path_s` is the largest mean over the paths that may be used, however rarely. `mean_path_s` is the mean of the
    largest mean over the paths that are used. `branches_s` is the mean of the largest time over the paths that are
    used; None where the system is too large for it.
    """

    worst_path_s: float
    mean_path_s: float
    branches_s: float | None


@dataclass(frozen=True)
class _Classes:
    """Distinct classes (columns) of one service factor: who publishes, and the subscriptions by broker and by link.

    Notifications of a class have several values, in the last axis: `match` is the probability that a subscription
    matches, `weight` that of the value. Given the value, brokers have matching subscriptions independently.
    """

    factor: int
    published: Array
    longest_s: Array
    at_home: Array
    beyond: Array
    match: Array
    weight: Array

    @property
    def reaching(self) -> Array:
        """Rates of the notifications that reach anyone, by broker and class."""
        some = -np.expm1(-self.at_home.sum(axis=0)[:, None] * self.match) @ self.weight
        return np.asarray(self.published * some, dtype=np.float64)


Contents = tuple[Array, Array]
"""Values of notifications: the probability that a subscription matches, and the weight of the value."""


def _uniform() -> Contents:
    """Returns half of the uniform values, by symmetry, and denser towards the end, where many subscriptions match
    rarely.
    """
    nodes, weights = np.polynomial.legendre.leggauss(_VALUES)
    nodes = (nodes + 1.0) / 2.0
    value = nodes**2 / 2.0
    return 2.0 * value * (1.0 - value), weights * nodes


def contents_of(workload: ClassWorkload) -> dict[FilterStatistics, Contents]:
    """Returns the contents of notifications by the statistics of their class; measured contents are reduced to a few
    values.
    """
    contents: dict[FilterStatistics, Contents] = {}
    for attributes in dict.fromkeys(each.filters for each in workload.classes):
        match, weight = np.ones(1), np.ones(1)
        for attribute in attributes or ():
            values = value_points(NumberDistribution(attribute.value), interval_law(attribute))
            held = 1.0 - attribute.constrained + attribute.constrained * values.held
            match, weight = np.multiply.outer(match, held).ravel(), np.multiply.outer(weight, values.weight).ravel()
            match, weight = _condensed(match, weight)
        contents[statistics_of(attributes)] = (match, weight) if attributes else _uniform()
    return contents


def _condensed(match: Array, weight: Array) -> Contents:
    """Returns as few values as the uniform contents have: equally likely parts, each with its mean.

    The rarest matches decide about the notifications that only few brokers get, so the first parts are smaller.
    """
    order = np.argsort(match)
    match, weight = match[order], weight[order] / weight.sum()
    ends = np.linspace(0.0, 1.0, _VALUES + 1)[1:-1] ** 2
    part = np.searchsorted(ends, np.cumsum(weight) - weight / 2.0)
    total = np.bincount(part, weight, minlength=_VALUES)
    mean = np.bincount(part, weight * match, minlength=_VALUES) / np.where(total > 0, total, 1.0)
    return mean, np.asarray(total, dtype=np.float64)


def latest_delivery(
    model: CapacityModel,
    algorithm: str,
    loads: Loads,
    sojourns: Sojourns,
    contents: Mapping[FilterStatistics, Contents],
) -> LatestDelivery | None:
    """Returns the expected latest delivery in a stable system; None where no notification ever reaches anyone."""
    parts = _distinct_classes(model, longest_paths(model, algorithm, loads), sojourns.factors, contents)
    total = sum(float(part.reaching.sum()) for part in parts)
    if total == 0.0:
        return None
    paths = paths_of(model.tree, sojourns)
    worst = sum(float((part.reaching * part.longest_s).sum()) for part in parts)
    mean = sum(float((part.published * _mean_paths(part, paths.total_s)).sum()) for part in parts)
    cells = sum(part.beyond.size for part in parts) * _VALUES
    if cells > _CELLS_MAX:
        return LatestDelivery(worst / total, mean / total, None)
    steps = _STEPS if cells <= _CELLS_FINE else _STEPS_COARSE
    branches = 0.0
    for part in parts:
        branches += float((part.published * _Lattice(model, sojourns, paths, part.factor, steps).latest(part)).sum())
    return LatestDelivery(worst / total, mean / total, branches / total)


def _distinct_classes(
    model: CapacityModel, longest_s: Array, factors: Array, contents: Mapping[FilterStatistics, Contents]
) -> list[_Classes]:
    """Returns the classes by service factor and statistics; classes that coincide are merged, with the sum of their
    publications.
    """
    distinct = []
    for k, factor in enumerate(factors):
        for statistics in dict.fromkeys(model.statistics):
            alike = np.array([each is statistics for each in model.statistics], dtype=np.bool_)
            columns = np.flatnonzero(alike & (model.factor == factor))
            if not len(columns):
                continue
            first, kind = coinciding(np.concatenate([model.publications, model.subscriptions])[:, columns].T)
            classes = columns[first]
            distinct.append(
                _Classes(
                    k,
                    model.publications[:, classes] * np.bincount(kind, model.count[columns]),
                    longest_s[:, classes],
                    model.lifetime_s * model.subscriptions[:, classes],
                    model.active[:, classes],
                    *contents[statistics],
                )
            )
    return distinct


def _mean_paths(part: _Classes, path_s: Array) -> Array:
    """Returns, by broker and class, the mean of the largest path mean over the used paths; 0 for a notification nobody
    gets.
    """
    means = np.zeros_like(part.published)
    for broker, ways in enumerate(path_s[..., part.factor]):
        order = np.argsort(-ways, kind="stable")
        expected = part.at_home[order][:, :, None] * part.match
        farther = np.cumsum(expected, axis=0) - expected
        means[broker] = ways[order] @ ((np.exp(-farther) * -np.expm1(-expected)) @ part.weight)
    return means


class _Lattice:
    """Times on multiples of a step, for the classes of one service factor."""

    def __init__(self, model: CapacityModel, sojourns: Sojourns, paths: Gammas, factor: int, steps: int):
        farthest = (paths.total_s + _DEVIATIONS * np.sqrt(paths.variance_s2))[..., factor].max()
        self.tree, self.steps, self.step_s = model.tree, steps, float(farthest) / (steps - 1)
        self.hop = self._spectrum(sojourns.hop, factor)
        self.broker = self._spectrum(sojourns.broker, factor)

    def _spectrum(self, parts: Gammas, factor: int) -> NDArray[np.complex128]:
        if self.step_s == 0.0:  # nothing takes any time
            return np.ones((len(parts.mean_s), self.steps + 1), dtype=np.complex128)
        return np.fft.rfft(_masses(parts, factor, self.step_s, self.steps), 2 * self.steps)

    def latest(self, part: _Classes) -> Array:
        """Returns means by publisher's broker and class; 0 for a notification nobody gets."""
        tree = self.tree
        leaving: list[list[int]] = [[] for _ in range(tree.brokers)]
        for link, tail in enumerate(tree.tail.tolist()):
            leaving[tail].append(link)
        nobody = np.exp(-part.beyond[:, :, None] * part.match)
        # For each directed link: P[all that is delivered beyond it is delivered within t of being sent over it].
        delivered: dict[int, Array] = {}
        down = [tree.back(tree.up[broker]) for broker in reversed(tree.order[1:])]
        for link in [*down, *(tree.up[broker] for broker in tree.order[1:])]:
            onward = [delivered[way] for way in leaving[int(tree.head[link])] if way != tree.back(link)]
            delivered[link] = self._after(self.hop[link], onward, nobody[link])
        means = np.zeros_like(part.published)
        none = np.exp(-part.at_home.sum(axis=0)[:, None] * part.match)
        for broker in np.flatnonzero((part.published > 0).any(axis=1)):
            whole = self._after(self.broker[broker], [delivered[way] for way in leaving[broker]], none)
            means[broker] = self.step_s * (1.0 - whole).sum(axis=-1) @ part.weight
        return means

    def _after(self, first: NDArray[np.complex128], onward: list[Array], nobody: Array) -> Array:
        """Returns the distribution function of a time plus the latest of several; no delivery at all counts as one at
        0.

        The branches are independent given the value of the notification; a delivery at the broker in front of them
        is never the latest unless it is the only one.
        """
        latest = np.ones((*nobody.shape, self.steps))
        for branch in onward:
            latest *= branch
        latest -= nobody[..., None]
        summed = np.fft.irfft(np.fft.rfft(latest, 2 * self.steps) * first, 2 * self.steps)[..., : self.steps]
        return np.asarray(nobody[..., None] + summed, dtype=np.float64)


def _masses(parts: Gammas, factor: int, step_s: float, steps: int) -> Array:
    """Returns probabilities of the multiples of the step that keep the mean of each distribution.

    Each time is divided between the two multiples next to it. With g(a) = E[max(T - a, 0)] the mass of a multiple is
    the second difference of g.
    """
    multiples = step_s * np.arange(-1.0, steps + 1)[None]
    shift, mean, variance = (values[:, factor, None] for values in (parts.shift_s, parts.mean_s, parts.variance_s2))
    over = np.maximum(multiples - shift, 0.0)
    varies = variance > 0
    shape = np.where(varies, mean**2 / np.where(varies, variance, 1.0), 1.0)
    scaled = over * np.where(varies, mean / np.where(varies, variance, 1.0), 1.0)
    gamma = mean * gammaincc(shape + 1.0, scaled) - over * gammaincc(shape, scaled)
    later = np.where(varies, gamma, np.maximum(mean - over, 0.0))
    excess = np.where(multiples < shift, shift + mean - multiples, later)
    return np.asarray((excess[:, :-2] - 2.0 * excess[:, 1:-1] + excess[:, 2:]) / step_s, dtype=np.float64)
