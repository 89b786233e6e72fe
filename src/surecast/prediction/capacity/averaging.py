"""Waiting times averaged over the sets of active subscriptions.

The capacity paper puts mean rates into Eq. 29, which is convex: given the set of active subscriptions the rate of
notifications into a broker is random, and the mean of the waiting time is larger than the waiting time at the mean
rate. Subscriptions live long compared with messages in queues, so the queue is taken as stationary given the set
(quasi-static). What a class adds to the load of a broker is nothing while nobody wants it, and otherwise is given a
beta distribution between nothing and all with the exact mean and variance. Classes are independent: their sum is
computed on a lattice. Under identity routing with one link into the broker this is exact: all passes or nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc

from surecast.prediction.capacity.capacity_model import CapacityModel, LinkFlows, Loads
from surecast.prediction.capacity.delays import mean_waiting_s
from surecast.prediction.capacity.filter_probabilities import LAWS, notification_probability
from surecast.prediction.capacity.service_times import Services, services_of

__all__ = ["OVERLOADED_MAX", "Averaged", "averaged_waiting", "coinciding", "passing_variance", "unmatched_twice"]

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]

_BITS = 24


def coinciding(keys: Array) -> tuple[Index, Index]:
    """Returns the first of each set of rows that agree to about seven digits, and for every row the number of its set.

    >>> first, of = coinciding(np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0 + 1e-13]]))
    >>> first.tolist(), of.tolist()
    ([0, 1], [0, 1, 0])
    """
    mantissa, exponent = np.frexp(np.ascontiguousarray(keys, dtype=np.float64))
    # Adding 0 makes one of the two zeros.
    rounded = np.ldexp(np.round(np.ldexp(mantissa, _BITS)), exponent) + 0.0
    numbers: dict[bytes, int] = {}
    first: list[int] = []
    of: list[int] = []
    for i, key in enumerate(rounded):
        number = numbers.setdefault(key.tobytes(), len(first))
        if number == len(first):
            first.append(i)
        of.append(number)
    return np.array(first, dtype=np.intp), np.array(of, dtype=np.intp)


OVERLOADED_MAX = 1e-6
"""A broker that the set of subscriptions overloads for more than this share of the time has no averaged waiting."""

_CELLS_MAX = 5_000
_CLASSES_MAX = 64
_STEPS = 512
_SMALL = 1e-3


@dataclass(frozen=True)
class Averaged:
    """By broker: the mean waiting time of a message, and how the load varies with the set of subscriptions.

    `waiting_s` is NaN where the set overloads the broker for more than a negligible share of the time,
    `overloaded_share`. `deviation` is the standard deviation of the utilisation.
    """

    waiting_s: Array
    deviation: Array
    overloaded_share: Array


@dataclass(frozen=True)
class _Varying:
    """The load that each distinct class adds to one broker by notifications that pass only if a subscription matches.

    There are `count` classes of each kind. The load is 0 with probability `none`, and never more than `most`.
    """

    count: Array
    mean: Array
    variance: Array
    most: Array
    none: Array

    def together(self) -> _Varying:
        """Returns the sum over all classes, as a single class."""
        mean, variance, most = (self.count @ each for each in (self.mean, self.variance, self.most))
        return _Varying(np.ones(1), np.array([mean]), np.array([variance]), np.array([most]), np.zeros(1))


def averaged_waiting(model: CapacityModel, algorithm: str, flows: LinkFlows, loads: Loads) -> Averaged:
    """Returns waiting times at brokers over the stationary sets of subscriptions; the loads must be stable.

    Of the queue's traffic only notifications from other brokers vary; control messages count with their mean rate.
    A message waits the mean over messages: sets that let much pass count more.
    """
    brokers = model.tree.brokers
    waiting, deviation, over = mean_waiting_s(loads)[:brokers].copy(), np.zeros(brokers), np.zeros(brokers)
    if algorithm == "flooding" and not model.own_routings:
        return Averaged(waiting, deviation, over)
    rate, services = loads.broker_rates[:, :, 0].sum(axis=0), services_of(model, flows)
    passing = _Passing.of(model, algorithm, flows, services)
    for broker in range(brokers):
        varying = passing.varying(broker)
        whole = varying.together()
        if whole.variance[0] <= 0.0:
            continue
        deviation[broker] = np.sqrt(whole.variance[0])
        spare = 1.0 - loads.utilisation[broker]
        gain, over[broker] = _mean_inverse(spare, varying if len(varying.count) <= _CLASSES_MAX else whole)
        # Rate and squares grow with the varying part of the load, in proportion to their means.
        more, steeper = passing.slopes(broker) / whole.mean[0]
        full = (rate[broker] + more * spare) * (loads.squares[broker] + steeper * spare)
        less = rate[broker] * steeper + more * loads.squares[broker] + more * steeper * spare
        waiting[broker] = max(waiting[broker], (full * gain - less) / (2.0 * rate[broker]))
    return Averaged(np.where(over > OVERLOADED_MAX, np.nan, waiting), deviation, over)


@dataclass(frozen=True)
class _Passing:
    """Notifications on directed links (rows) by distinct class (columns), and what they ask of the brokers.

    `entering` lists the links into each broker that they pass only if wanted; `beyond` and `behind` are the mean
    numbers of subscriptions on either side, `notify` is P_n. `first` and `second` are moments of service times by
    broker. Links into one broker have subscriptions in common, which makes them dependent. Where there are too many
    pairs of links (not `exact`) they are taken as fully dependent; for `measured` filters the variance is also taken
    as the largest that a share with this mean can have. Both are upper bounds.
    """

    routing: str
    entering: list[Index]
    exact: bool
    count: Array
    everywhere: Array
    beyond: Array
    behind: Array
    notify: Array
    published: Array
    first: Array
    second: Array
    measured: Mask

    @staticmethod
    def of(model: CapacityModel, algorithm: str, flows: LinkFlows, services: Services) -> _Passing:
        """Returns the notifications under an algorithm; in a hierarchy they always go up."""
        routing, tree = algorithm.rpartition(" ")[2], model.tree
        varies = ~tree.rising if algorithm.startswith("hierarchical") else np.ones(2 * tree.links, dtype=np.bool_)
        measured = np.array([not each.is_uniform for each in model.statistics]) & (routing != "identity")
        if routing in LAWS or model.own_routings:  # of these only the mean is known
            measured[:], routing = True, "identity"
        first, second = services.first[0], services.second[0]
        keys = [model.publications, model.subscriptions, first, second, measured[None], flows.notify]
        classes, kind = coinciding(np.concatenate(keys).T)
        entering = [np.flatnonzero(varies & (tree.head == broker)) for broker in range(tree.brokers)]
        pairs = sum(len(links) * (len(links) - 1) // 2 for links in entering)
        return _Passing(
            routing,
            entering,
            pairs * len(classes) <= _CELLS_MAX,
            np.bincount(kind, model.count, minlength=len(classes)).astype(np.float64),
            model.lifetime_s * model.subscriptions[:, classes].sum(axis=0),
            model.active[:, classes],
            tree.reverse(model.active)[:, classes],
            flows.notify[:, classes],
            model.publications_behind[:, classes],
            first[:, classes],
            second[:, classes],
            measured[classes],
        )

    def varying(self, broker: int) -> _Varying:
        """Returns the varying load of a broker by class."""
        links = self.entering[broker]
        weight = self.published[links] * self.first[broker]
        # Two links or more see all subscriptions between them.
        subscriptions = self.beyond[links[0]] if len(links) == 1 else self.everywhere
        return _Varying(
            self.count,
            (weight * self.notify[links]).sum(axis=0),
            self._variance(links, weight),
            weight.sum(axis=0),
            np.exp(-subscriptions),
        )

    def slopes(self, broker: int) -> Array:
        """Returns the varying rate of a broker, and that rate times the second moment of the service time."""
        links = self.entering[broker]
        rates = (self.published[links] * self.notify[links]).sum(axis=0) * self.count
        return np.array([rates.sum(), rates @ self.second[broker]])

    def _variance(self, links: Index, weight: Array) -> Array:
        """Returns the variance of the weighted sum of the shares that pass these links, by class."""
        most = self.notify[links] * (1.0 - self.notify[links])
        single = np.where(self.measured, most, passing_variance(self.routing, self.beyond[links])) * weight**2
        # Rounding may leave a variance of 0 slightly below it.
        fully = np.sqrt(np.maximum(single, 0.0)).sum(axis=0) ** 2
        if not self.exact or self.measured.all():
            return np.asarray(fully, dtype=np.float64)
        variance = single.sum(axis=0)
        for i in range(len(links) - 1):
            pairs = weight[i] * weight[i + 1 :]
            variance += 2.0 * (self._covariances(links[i], links[i + 1 :]) * pairs).sum(axis=0)
        return np.asarray(np.where(self.measured, fully, variance), dtype=np.float64)

    def _covariances(self, a: np.intp, others: Index) -> Array:
        """Covariances of the share that passes one link with those that pass others."""
        # Beyond link a, but not beyond link b, is what lies behind b.
        only_a = self.behind[others]
        common = np.maximum(self.beyond[a] - only_a, 0.0)
        both = unmatched_twice(self.routing, only_a, np.broadcast_to(self.behind[a], common.shape), common)
        apart = (1.0 - self.notify[a]) * (1.0 - self.notify[others])
        return np.asarray(np.maximum(both - apart, 0.0), dtype=np.float64)


def passing_variance(routing: str, x: Array) -> Array:
    """Returns the variance, over the sets of x subscriptions in the mean, of the share of notifications that pass a
    link.

    >>> passing_variance("identity", np.array([0.5])).round(4).tolist()  # exp(-0.5) (1 - exp(-0.5))
    [0.2387]
    >>> passing_variance("covering", np.array([0.5, 50.0])).round(4).tolist()
    [0.0599, 0.0002]
    """
    mean = notification_probability(routing, x)
    most = mean * (1.0 - mean)
    if routing == "identity" or routing in LAWS:
        return most
    logs, part = _part_of_most(routing)
    return np.asarray(most * np.interp(np.log(np.maximum(x, 1e-300)), logs, part), dtype=np.float64)


@lru_cache(maxsize=8)
def _part_of_most(routing: str) -> tuple[Array, Array]:
    """Returns the variance as a share of its maximum P (1 - P), by the logarithm of the number of subscriptions."""
    logs = np.linspace(np.log(1e-4), np.log(1e5), 256)
    x = np.exp(logs)
    mean = notification_probability(routing, x)
    none = np.zeros_like(x)
    variance = unmatched_twice(routing, none, none, x) - (1.0 - mean) ** 2
    return logs, np.clip(variance / (mean * (1.0 - mean)), 0.0, 1.0)


def unmatched_twice(routing: str, only_a: Array, only_b: Array, common: Array) -> Array:
    """Returns P[a notification is stopped at one link and another one at a second link], given the same subscriptions.

    Behind the links there are in the mean `common` subscriptions that both see, and `only_a` and `only_b` that one of
    them sees. A double integral over the two notifications' values, for each of the numbers given.

    >>> one, none = np.array([1.0]), np.array([0.0])
    >>> unmatched_twice("identity", none, one, one).round(4).tolist()  # exp(-2)
    [0.1353]
    >>> unmatched_twice("covering", none, none, one).round(4).tolist()
    [0.6119]
    """
    if routing == "identity":
        return np.asarray(np.exp(-(only_a + only_b + common)), dtype=np.float64)
    v, w, weight = _PAIRS
    a, b, c = only_a[..., None], only_b[..., None], common[..., None]
    if routing != "merging":
        # Of two values, a subscription matches one with probability 2v(1-v), both with 2 min (1 - max).
        either = _matches(v) + _matches(w) - 2.0 * np.minimum(v, w) * (1.0 - np.maximum(v, w))
        return np.asarray(np.exp(-(a * _matches(v) + b * _matches(w) + c * either)) @ weight, dtype=np.float64)
    # A value is outside the hull if all subscriptions are left of it, or all right of it (both if there is none).
    left_v, right_v, left_w, right_w = v**2, (1.0 - v) ** 2, w**2, (1.0 - w) ** 2
    between = np.maximum(v - w, 0.0) ** 2, np.maximum(w - v, 0.0) ** 2
    never = np.zeros_like(v)
    total = np.zeros(np.broadcast_shapes(a.shape, v.shape))
    for sign, on_a, on_b, on_both in (
        (1.0, left_v, left_w, np.minimum(v, w) ** 2),
        (1.0, right_v, right_w, (1.0 - np.maximum(v, w)) ** 2),
        (1.0, left_v, right_w, between[0]),
        (1.0, right_v, left_w, between[1]),
        (-1.0, never, left_w, never),
        (-1.0, never, right_w, never),
        (-1.0, left_v, never, never),
        (-1.0, right_v, never, never),
        (1.0, never, never, never),
    ):
        total += sign * np.exp(-(a * (1.0 - on_a) + b * (1.0 - on_b) + c * (1.0 - on_both)))
    return np.asarray(total @ weight, dtype=np.float64)


def _matches(value: Array) -> Array:
    return 2.0 * value * (1.0 - value)


def _pairs() -> tuple[Array, Array, Array]:
    """Returns two values and a weight: Gauss-Legendre on both triangles of the square, denser towards the ends."""
    nodes, weights = np.polynomial.legendre.leggauss(24)
    nodes, weights = (nodes + 1.0) / 2.0, weights / 2.0
    larger, ratio = (each.ravel() for each in np.meshgrid(nodes, nodes))
    weight = np.outer(weights, weights).ravel() * larger
    smaller = larger * ratio

    def spread(u: Array) -> tuple[Array, Array]:
        return u**3 * (10.0 - 15.0 * u + 6.0 * u**2), 30.0 * u**2 * (1.0 - u) ** 2

    (v, dv), (w, dw) = spread(smaller), spread(larger)
    weight = weight * dv * dw
    return np.concatenate([v, w]), np.concatenate([w, v]), np.concatenate([weight, weight])


_PAIRS = _pairs()


def _mean_inverse(spare: float, varying: _Varying) -> tuple[float, float]:
    """Returns E[1 / (spare - d)] of the deviation d of the varying load from its mean, and P[d is spare or more].

    Where that is next to impossible the mean is that of the other cases.
    """
    mean, most = float(varying.count @ varying.mean), float(varying.count @ varying.most)
    relative = float(varying.count @ varying.variance) / spare**2
    if relative <= _SMALL:
        # Many small parts: the moments of a normal distribution.
        return (1.0 + relative + 3.0 * relative**2) / spare, 0.0
    step = most / _STEPS
    # Dividing times between multiples of the step may go beyond the end by a step for each class.
    length = _STEPS + 1 + int(varying.count.sum())
    spectrum = np.fft.rfft(_masses(varying, step), length)
    whole = np.fft.irfft(np.prod(spectrum ** varying.count[:, None], axis=0), length)
    left = spare + mean - np.minimum(step * np.arange(length), most)
    stable = left > 1e-12 * spare
    mass = float(whole[stable].sum())
    return float(whole[stable] @ (1.0 / left[stable])) / mass, max(0.0, float(whole[~stable].sum()))


def _masses(varying: _Varying, step: float) -> Array:
    """Returns probabilities of multiples of the step for the load of each class; they keep its mean.

    With g(a) = E[max(T - a, 0)] the mass of a multiple is the second difference of g.
    """
    wanted = 1.0 - varying.none
    some = np.where(wanted > 0, wanted, 1.0)
    most = np.where(varying.most > 0, varying.most, 1.0)
    mean = np.minimum(varying.mean / some / most, 1.0)
    variance = (varying.variance + varying.mean**2) / some / most**2 - mean**2
    largest = mean * (1.0 - mean)
    fixed = (variance <= 1e-9 * largest) | (largest <= 1e-12)
    variance = np.where(fixed, 1.0, np.minimum(variance, (1.0 - 1e-9) * largest))
    total = np.where(fixed, 1.0, largest / variance - 1.0)
    alpha, beta = np.where(fixed, 1.0, mean * total)[:, None], np.where(fixed, 1.0, (1.0 - mean) * total)[:, None]
    multiples = step * np.arange(-1.0, _STEPS + 2)[None] / most[:, None]
    inside = np.clip(multiples, 0.0, 1.0)
    middle = mean[:, None]
    spread = middle * (1.0 - betainc(alpha + 1.0, beta, inside)) - inside * (1.0 - betainc(alpha, beta, inside))
    excess = np.where(
        multiples < 0, middle - multiples, np.where(fixed[:, None], np.maximum(middle - multiples, 0.0), spread)
    )
    masses = (excess[:, :-2] - 2.0 * excess[:, 1:-1] + excess[:, 2:]) * (most / step)[:, None]
    masses *= wanted[:, None]
    masses[:, 0] += varying.none
    return np.asarray(masses, dtype=np.float64)
