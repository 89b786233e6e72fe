"""Mean and quantile delays of what each client receives, of what is received in each class, and in all.

A notification gets to a client over the path of the tree from its publisher's broker, whatever the algorithm: routing
changes the load, not the way. The delay runs from the publication to the end of processing at the client's home
broker. A client receives a notification if one of its own subscriptions matches.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surecast.prediction.capacity.averaging import coinciding
from surecast.prediction.capacity.delays import Gammas, mixture_quantiles
from surecast.prediction.capacity.filter_statistics import statistics_of
from surecast.scenario.system import ClassWorkload

__all__ = ["QUANTILES", "ReceivedDelays", "ReceivedRates", "audience_of", "received_delays"]

Array = NDArray[np.float64]
Index = NDArray[np.intp]

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
"""The quantiles of delays that are reported, by the detail of their figures."""

_LEVELS = np.array(list(QUANTILES.values()))


@dataclass(frozen=True)
class ReceivedRates:
    """Rates of received notifications by client, class, publisher's broker and service factor; of any algorithm.

    Clients that coincide are one row of `rows`: `row` says which row a client is, `home` where the row is. Rows have
    one column per publisher's broker and service factor. Classes that coincide are one entry of `by_class`: rates by
    publisher's broker and home, with the index of their service factor; `kind` says which entry a class is.
    """

    factors: Array
    home: Index
    rows: Array
    row: Index
    by_class: Array
    factor_of: Index
    count: Array
    kind: Index

    @property
    def client_rate_per_s(self) -> Array:
        """Notifications received per second by each client."""
        return np.asarray(self.rows.sum(axis=1)[self.row], dtype=np.float64)

    @property
    def class_rate_per_s(self) -> Array:
        """Notifications of each class received per second; one that goes to two clients counts twice."""
        return np.asarray(self.by_class.sum(axis=(1, 2))[self.kind], dtype=np.float64)


@dataclass(frozen=True)
class ReceivedDelays:
    """Delays by client, by class and over all; quantiles in the order of `QUANTILES`; NaN where nothing is received."""

    client_mean_s: Array
    client_quantile_s: Array
    class_mean_s: Array
    class_quantile_s: Array
    mean_s: float
    quantile_s: Array


def audience_of(workload: ClassWorkload, brokers: int) -> ReceivedRates:
    """Returns the rates per second at which each broker's subscribers receive notifications."""
    lifetime_s = workload.lifetime.mean_s
    factors, factor_of = np.unique([each.service_factor for each in workload.classes], return_inverse=True)
    # capacity Eqs. 12-14 with the client's own subscriptions: the probability that one of them matches
    active = lifetime_s * workload.subscription_rate_per_s
    match = np.empty_like(active)
    statistics = [statistics_of(each.filters) for each in workload.classes]
    for kind in dict.fromkeys(statistics):
        like = [i for i, each in enumerate(statistics) if each is kind]
        match[like] = kind.notification_probability("simple", active[like])
    published = workload.by_broker(workload.publication_rate_per_s, brokers)
    homes = np.array(workload.client_home, dtype=np.intp)
    keys = np.concatenate([homes[:, None].astype(np.float64), match.T], axis=1)
    first, row = coinciding(keys)
    rows = np.stack([match[:, first][factor_of == k].T @ published[factor_of == k] for k in range(len(factors))], -1)
    received = workload.by_broker(match, brokers)
    keys = np.concatenate([factor_of[:, None].astype(np.float64), published, received], axis=1)
    some, of = coinciding(keys)
    return ReceivedRates(
        factors,
        homes[first],
        rows.reshape(len(first), -1),
        row,
        published[some][:, :, None] * received[some][:, None, :],
        factor_of[some],
        np.bincount(of, minlength=len(some)).astype(np.float64),
        of,
    )


def received_delays(audience: ReceivedRates, paths: Gammas) -> ReceivedDelays:
    """Returns delays of received notifications, given the times from every broker to every other by service factor."""
    mean, quantile = _by_client(audience, paths)
    class_mean, class_quantile, whole = _by_class(audience, paths)
    every = whole.ravel()
    total = every.sum()
    return ReceivedDelays(
        mean[audience.row],
        quantile[audience.row],
        class_mean[audience.kind],
        class_quantile[audience.kind],
        float(every @ paths.total_s.ravel() / total) if total > 0 else float("nan"),
        mixture_quantiles(every[None], paths.flat(), _LEVELS)[0],
    )


def _mean(rates: Array, times: Array) -> Array:
    """Returns means of times weighted by rates, row by row."""
    total = np.asarray(rates.sum(axis=-1), dtype=np.float64)
    mean = np.divide(rates @ times, total, out=np.full(total.shape, np.nan), where=total > 0)
    return np.asarray(mean, dtype=np.float64)


def _by_client(audience: ReceivedRates, paths: Gammas) -> tuple[Array, Array]:
    mean = np.empty(len(audience.rows))
    quantile = np.empty((len(audience.rows), len(_LEVELS)))
    for home in np.unique(audience.home):
        here = audience.home == home
        # From every publisher's broker to this one; the columns are in the order of the audience's.
        ways = Gammas(paths.shift_s[:, home], paths.mean_s[:, home], paths.variance_s2[:, home]).flat()
        mean[here] = _mean(audience.rows[here], ways.total_s)
        quantile[here] = mixture_quantiles(audience.rows[here], ways, _LEVELS)
    return mean, quantile


def _by_class(audience: ReceivedRates, paths: Gammas) -> tuple[Array, Array, Array]:
    """Returns means and quantiles by distinct class, and the rates over all by broker, home and service factor."""
    kinds = len(audience.by_class)
    mean, quantile = np.empty(kinds), np.empty((kinds, len(_LEVELS)))
    whole = np.zeros(paths.mean_s.shape)
    for k in range(len(audience.factors)):
        here = audience.factor_of == k
        ways = Gammas(paths.shift_s[..., k], paths.mean_s[..., k], paths.variance_s2[..., k]).flat()
        rates = audience.by_class[here].reshape(int(here.sum()), -1)
        mean[here] = _mean(rates, ways.total_s)
        quantile[here] = mixture_quantiles(rates, ways, _LEVELS)
        whole[..., k] = np.tensordot(audience.count[here], audience.by_class[here], axes=1)
    return mean, quantile, whole
