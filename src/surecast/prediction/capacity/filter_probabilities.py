"""Probabilities that a notification or a subscription passes a link, and the number of routing entries per link.

Everything here is a function of x, the mean number of active subscriptions of one filter class in the part of the
overlay behind a link. The number itself is Poisson distributed; each subscription is an interval whose ends are two
uniform points of [0, 1], each notification one such point. The sums over the Poisson distribution (capacity Eqs. 5, 12
and 20) have closed forms with the Dawson function D(t) = exp(-t²) times the integral of exp(u²) from 0 to t, which
stay accurate where the printed alternating sums (Eqs. 7 and 14) have lost all digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import dawsn
from scipy.stats import poisson

from surecast.errors import ConfigurationError, refuse_unknown

__all__ = [
    "AS_PRINTED",
    "LAWS",
    "ROUTINGS",
    "RoutingLaw",
    "checked_count",
    "notification_probability",
    "register_routing",
    "remote_entries",
    "subscription_probability",
    "unregister_routing",
]

Array = NDArray[np.float64]

ROUTINGS: Final[tuple[str, ...]] = ("flooding", "simple", "identity", "covering", "merging")
"""The routing algorithms, by what they pass on: no subscription, all, or those not superfluous by earlier ones."""


@dataclass(frozen=True)
class RoutingLaw:
    """An algorithm of one's own, by what depends on x, the mean number of subscriptions of a class behind a link."""

    notify: Callable[[Array], Array]
    """P_n: probability that a notification passes the link."""
    subscribe: Callable[[Array], Array]
    """P_s: probability that one more subscription behind the link passes it, and so does its revocation."""
    entries: Callable[[Array], Array]
    """Mean number of routing entries for the neighbour beyond the link."""


LAWS: Final[dict[str, RoutingLaw]] = {}
"""The algorithms that `register_routing` added, and merging as the paper prints it."""
AS_PRINTED: Final = "merging-as-printed"
"""Merging whose new interval has two independent uniform ends: p_s(k) = (4k+1) / (2k+1)², as capacity prints it."""


def register_routing(name: str, law: RoutingLaw) -> None:
    """Adds a routing algorithm to the formulas, for uniform filters, in both schemes.

    >>> register_routing("always", RoutingLaw(np.ones_like, np.zeros_like, np.zeros_like))
    >>> notification_probability("always", [0.0, 2.0]).tolist()
    [1.0, 1.0]
    >>> unregister_routing("always")
    """
    if name in (*ROUTINGS, AS_PRINTED) or " " in name or not name:
        raise ConfigurationError(f"a routing algorithm of one's own cannot be called {name!r}; take another word")
    LAWS[name] = law


def unregister_routing(name: str) -> None:
    """Takes a registered algorithm away again; for tests and for extensions that are unloaded."""
    if name != AS_PRINTED:
        LAWS.pop(name, None)


# Near x = 0 the closed forms are differences of nearly equal numbers; their power series are not.
_SERIES_BELOW = 1.0
_ORDER = np.arange(20)
_ODD_FACTORIAL = np.cumprod(2.0 * _ORDER + 1.0)  # 1!!, 3!!, 5!!, ...
_FACTORIAL = np.cumprod(np.maximum(_ORDER, 1.0))
_MATCHING_SERIES = np.where(_ORDER > 0, -((-1.0) ** _ORDER) / _ODD_FACTORIAL, 0.0)
_MERGING_SERIES = np.where(_ORDER > 0, (-1.0) ** _ORDER / _FACTORIAL - 2.0 * (-2.0) ** _ORDER / _ODD_FACTORIAL, 0.0)

_STEP = 0.125
_TAYLOR_ORDER = 13
_ASYMPTOTIC_FROM = 10.0
_LOG_CONSTANT = (np.euler_gamma + 2.0 * math.log(2.0)) / 4.0


def notification_probability(routing: str, x: ArrayLike) -> Array:
    """Returns the probability that a notification passes a link with x subscriptions of its class behind it (capacity
    Eq. 12).

    >>> notification_probability("identity", [0.0, 1.0]).round(4).tolist()
    [0.0, 0.6321]
    >>> notification_probability("covering", [0.0, 1.0, 1e6]).round(4).tolist()
    [0.0, 0.2752, 1.0]
    """
    count = checked_count(routing, x)
    if routing in LAWS:
        return LAWS[routing].notify(count)
    if routing == "flooding":
        return np.ones_like(count)
    if routing == "identity":
        return -np.expm1(-count)
    few = count < _SERIES_BELOW
    many = count[~few]
    probability = np.empty_like(count)
    if routing == "merging":
        # capacity Eqs. 12, 16: 1 + exp(-x) - 2 D(sqrt x) / sqrt x
        series, root = _MERGING_SERIES, np.sqrt(many)
        probability[~few] = 1.0 + np.exp(-many) - 2.0 * dawsn(root) / root
    else:
        # capacity Eqs. 12-14: 1 - D(t) / t with t = sqrt(x / 2)
        series, root = _MATCHING_SERIES, np.sqrt(many / 2.0)
        probability[~few] = 1.0 - dawsn(root) / root
    probability[few] = np.polynomial.polynomial.polyval(count[few], series)
    return probability


def subscription_probability(routing: str, x: ArrayLike) -> Array:
    """Returns the probability that a subscription passes a link when x others of its class come the same way (capacity
    Eq. 20).

    >>> subscription_probability("simple", [0.0, 5.0]).tolist()
    [1.0, 1.0]
    >>> subscription_probability("covering", [0.0, 1.0, 100.0]).round(4).tolist()
    [1.0, 0.8534, 0.0587]
    """
    count = checked_count(routing, x)
    if routing in LAWS:
        return LAWS[routing].subscribe(count)
    if routing == "flooding":
        return np.zeros_like(count)
    if routing == "simple":
        return np.ones_like(count)
    if routing == "identity":
        return np.exp(-count)
    positive = np.where(count > 0, count, 1.0)
    if routing == "covering":
        # capacity Eqs. 6, 20: (4 / x) times the integral of D from 0 to sqrt(x / 2)
        probability = 4.0 / positive * _dawson_integral(np.sqrt(positive / 2.0))
    else:
        # capacity Eq. 20 with the right p_s(k) = (4k+1) / ((k+1)(2k+1)); the paper prints (4k+1) / (2k+1)²
        root = np.sqrt(positive)
        probability = -3.0 * np.expm1(-positive) / positive - 2.0 * dawsn(root) / root
    return np.where(count > 0, np.minimum(probability, 1.0), 1.0)


def remote_entries(routing: str, x: ArrayLike) -> Array:
    """Returns the mean number of routing entries for a neighbour with x subscriptions of a class behind it (capacity
    Eq. 5).

    >>> remote_entries("covering", [1.0, 100.0]).round(2).tolist()
    [0.85, 5.87]
    """
    count = checked_count(routing, x)
    if routing in LAWS:
        return LAWS[routing].entries(count)
    if routing == "flooding":
        return np.zeros_like(count)
    if routing == "simple":
        return count
    if routing == "covering":
        return count * subscription_probability(routing, count)
    return -np.expm1(-count)


def checked_count(routing: str, x: ArrayLike) -> Array:
    """Numbers of subscriptions as an array; refuses an unknown routing and numbers that cannot be."""
    refuse_unknown("routing", [routing], (*ROUTINGS, *LAWS))
    count = np.asarray(x, dtype=np.float64)
    if not (np.isfinite(count) & (count >= 0)).all():
        raise ConfigurationError("a mean number of subscriptions is negative or not finite; give numbers of 0 or more")
    return count


def _expansions() -> Array:
    """Returns Taylor coefficients of the integral of the Dawson function, one row per order, one column per grid point.

    D' = 1 - 2tD gives those of D at once; the integral up to each grid point is by Gauss-Legendre quadrature.
    """
    grid = np.arange(0.0, _ASYMPTOTIC_FROM + _STEP, _STEP)
    nodes, weights = np.polynomial.legendre.leggauss(10)
    pieces = dawsn(grid[:-1, None] + _STEP * (0.5 + 0.5 * nodes)) @ weights * (_STEP / 2.0)
    rows = [dawsn(grid), 1.0 - 2.0 * grid * dawsn(grid)]
    for order in range(1, _TAYLOR_ORDER - 1):
        rows.append(-2.0 * (grid * rows[order] + rows[order - 1]) / (order + 1))
    integral = np.concatenate([[0.0], np.cumsum(pieces)])
    return np.stack([integral, *(row / (order + 1) for order, row in enumerate(rows))])


_EXPANSIONS = _expansions()


def _dawson_integral(t: Array) -> Array:
    """Returns the integral of the Dawson function from 0 to t: expanded at the nearest grid point, far out
    asymptotically.
    """
    near = np.minimum(t, _ASYMPTOTIC_FROM)
    point = np.rint(near / _STEP).astype(np.intp)
    offset = near - _STEP * point
    inner = np.zeros_like(near)
    for row in _EXPANSIONS[::-1]:
        inner = inner * offset + row[point]
    far = np.maximum(t, _ASYMPTOTIC_FROM)
    # D(u) ~ sum of (2n-1)!! / (2^(n+1) u^(2n+1)), integrated term by term
    n = np.arange(1.0, 9.0)
    terms = _ODD_FACTORIAL[:8] / (2.0 ** (n + 1) * 2.0 * n)
    outer = 0.5 * np.log(far) + _LOG_CONSTANT - np.polynomial.polynomial.polyval(far**-2.0, [0.0, *terms])
    return np.where(t < _ASYMPTOTIC_FROM, inner, outer)


_SUMMED_UP_TO = 200.0
"""Mean numbers up to which the printed probability is summed over the Poisson distribution term by term."""


def _printed(k: Array) -> Array:
    """Returns p_s(k) of merging as capacity prints it."""
    return np.asarray((4.0 * k + 1.0) / (2.0 * k + 1.0) ** 2, dtype=np.float64)


def printed_subscription_probability(x: Array) -> Array:
    """Returns P_s of merging by capacity Eq. 20 with p_s(k) as printed.

    For a large mean the expansion around it is used, by the derivatives up to the fourth.

    >>> printed_subscription_probability(np.array([0.0, 1.0, 1e4])).round(6).tolist()
    [1.0, 0.658577, 0.0001]
    """
    flat = np.atleast_1d(np.asarray(x, dtype=np.float64)).ravel()
    found = np.empty_like(flat)
    few = flat <= _SUMMED_UP_TO
    numbers = np.arange(int(_SUMMED_UP_TO + 12.0 * math.sqrt(_SUMMED_UP_TO)))
    if few.any():
        different, places = np.unique(flat[few], return_inverse=True)
        found[few] = (poisson.pmf(numbers[None, :], different[:, None]) @ _printed(numbers.astype(np.float64)))[places]
    many = flat[~few]
    # with y = 2k + 1: 2 / y - 1 / y², whose derivatives by k follow
    y = 2.0 * many + 1.0
    second = 16.0 / y**3 - 24.0 / y**4
    third = -96.0 / y**4 + 192.0 / y**5
    fourth = 768.0 / y**5 - 1920.0 / y**6
    found[~few] = _printed(many) + many * second / 2.0 + many * third / 6.0 + many**2 * fourth / 8.0
    return found.reshape(np.shape(x))


LAWS[AS_PRINTED] = RoutingLaw(
    lambda x: notification_probability("merging", x),
    printed_subscription_probability,
    lambda x: remote_entries("merging", x),
)
