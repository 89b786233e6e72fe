"""The parameters of the generator for a real log, by maximum likelihood.

The log must have every channel change, also those that a retention rule would leave out: what was never written
cannot be fitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logit, ndtr

from surecast.errors import AssumptionError
from surecast.zap.event_table import POWER, EventTable
from surecast.zap.events import DAY_S
from surecast.zap.log_comparison import boxes_in_order, channel_counts
from surecast.zap.traffic import HOURS, Traffic, zipf_shares

__all__ = ["FitNotes", "Stops", "find_stops", "fit_traffic"]

GAPS_MIN = 100
SWITCHES_MIN = 1000
"""Times that boxes went on below which the hours of a day are left as they are."""
EXACT_GAP_S = 200.0
RANK_ROUNDS, RANK_DRAWS, RANK_SEED = 3, 50, 1
_WATCHING = (
    "channels", "zipf_exponent", "zipf_offset", "surf_again", "surf_start", "surf_median_s", "surf_sigma",
    "stay_median_s", "stay_sigma", "next_share",
)  # fmt: skip
_RANGES = {
    "zipf_exponent": (0.0, 10.0),
    "zipf_offset": (0.0, 1e4),
    "surf_again": (0.0, 0.999),
    "surf_median_s": (0.05, 3600.0),
    "surf_sigma": (0.05, 4.0),
    "stay_median_s": (1.0, DAY_S),
    "stay_sigma": (0.05, 4.0),
    "on_mean_s": (60.0, 1e9),
    "on_per_day": (1e-6, 1000.0),
}
"""The range in which each parameter is looked for."""
_MEANINGFUL_ENDS = {"zipf_exponent": 0.0, "zipf_offset": 0.0, "surf_again": 0.0}
"""Ends that are values like others: all channels alike, Zipf's law without an offset, no surfing twice."""
_RANK_STARTS = [(s, o, e) for s, o in ((0.8, -4.0), (1.2, 0.0), (2.0, 3.0)) for e in (-3.0, 0.0)]
_Numbers = NDArray[np.float64]
_Lognormal = tuple[float, float]
"""The logarithm of the median, and sigma."""


@dataclass(frozen=True)
class FitNotes:
    """The data that a fit rests on: gaps, stops whose end was not observed, channel changes, times that boxes went off
    and on; the parameters that were not fitted, and those at an end of the range in which they were looked for: the log
    does not say what they are."""

    gaps: int
    cut_off: int
    changes: int
    offs: int
    ons: int
    kept: tuple[str, ...]
    at_ends: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Stops:
    """Times on a channel: gaps that another channel ended, whether the next gap follows each, and times that were cut
    off by power or by the end of the log."""

    gaps_s: _Numbers
    followed: NDArray[np.bool_]
    cut_off_s: _Numbers


def fit_traffic(table: EventTable, start: Traffic | None = None) -> tuple[Traffic, FitNotes]:
    """Returns the parameters under which a log is most likely; parameters that the log says nothing about are as in
    `start`.

    Times on a channel are a mixture of two lognormal times, of which the shorter is surfing. A surfer's next stop is
    surfing again as often as a gap that is more likely a surfer's is followed by another. Channels are a mixture of
    Zipf's law (with an offset) and of steps through the line-up, which visit all channels alike.
    """
    start = start or Traffic()
    stops = find_stops(table)
    counts = np.sort(channel_counts(table))[::-1].astype(np.float64)
    counts = counts[counts > 0]
    fitted, offs, ons, unfitted = _fit_power(table, start)
    if len(stops.gaps_s) >= GAPS_MIN:
        fitted = _fit_watching(stops, counts, fitted)
    elif ons >= SWITCHES_MIN:
        unfitted = (*_WATCHING, *unfitted)
    else:
        raise AssumptionError(
            f"{len(stops.gaps_s)} gaps between channel changes, {ons} times that boxes went on: a fit needs at least "
            f"{GAPS_MIN} of the first or {SWITCHES_MIN} of the second"
        )
    ends = tuple(name for name in _RANGES if name not in unfitted and _is_at_end(name, getattr(fitted, name)))
    return fitted, FitNotes(len(stops.gaps_s), len(stops.cut_off_s), int(counts.sum()), offs, ons, unfitted, ends)


def _is_at_end(name: str, value: float) -> bool:
    low, high = _RANGES[name]
    if name in _MEANINGFUL_ENDS and value <= _MEANINGFUL_ENDS[name]:
        return False
    return value <= low * (1.0 + 1e-6) or value >= high * (1.0 - 1e-6)


def _clipped(name: str, value: float) -> float:
    return float(np.clip(value, *_RANGES[name]))


def _fit_watching(stops: Stops, counts: _Numbers, start: Traffic) -> Traffic:
    """Returns the parameters of stops and of channels."""
    share, surf, stay = _fit_stops(stops)
    again = _surf_again(stops, share, surf, stay)
    begin = min(1.0, share * (1.0 - again) / (1.0 - share))
    exponent, offset, even = _fit_ranks(counts)
    surf_share = begin / (1.0 - again + begin)
    return replace(
        start,
        channels=max(2, len(counts)),
        zipf_exponent=exponent,
        zipf_offset=offset,
        surf_again=again,
        surf_start=begin,
        surf_median_s=_clipped("surf_median_s", float(np.exp(surf[0]))),
        surf_sigma=surf[1],
        stay_median_s=_clipped("stay_median_s", float(np.exp(stay[0]))),
        stay_sigma=stay[1],
        next_share=min(1.0, even / surf_share) if surf_share > 0.0 else 0.0,
    )


def find_stops(table: EventTable) -> Stops:
    """Returns how long boxes stayed on channels.

    >>> from surecast.zap.events import parse_line
    >>> fields = ["20:00:00,10.0.0.1,B,A", "20:00:09,10.0.0.1,C,B", "20:00:30,10.0.0.1,Power: 0"]
    >>> lines = [f"2024-01-01,{rest}" for rest in fields]
    >>> stops = find_stops(EventTable.of(map(parse_line, lines)))
    >>> stops.gaps_s.tolist(), stops.cut_off_s.tolist()
    ([9.0], [21.0])
    """
    events, zap = boxes_in_order(table)
    if not len(events):
        return Stops(np.empty(0), np.empty(0, dtype=np.bool_), np.empty(0))
    same = np.append(events.address[1:] == events.address[:-1], False)
    later = np.where(same, np.append(events.time_s[1:], 0), events.time_s.max())
    length = (later - events.time_s).astype(np.float64)
    ended = zap & same & np.append(zap[1:], False)
    off = np.append((events.kind[1:] == POWER) & (events.value[1:] == 0), False)
    cut = zap & (~same | off) & ~ended
    ends = np.nonzero(ended)[0]
    return Stops(length[ended], np.append(np.diff(ends) == 1, False), length[cut])


def gap_chances(gaps_s: _Numbers, time: _Lognormal) -> _Numbers:
    """Returns the probabilities that a lognormal time appears as so many whole seconds, with both ends cut to seconds.

    A time x that begins anywhere within a second is seen as k with the probability 1 - |x - k|. That is a second
    difference of (a - x)+, whose mean has a closed form; where k is large, k - 1/2 to k + 1/2 is as good.

    >>> float(gap_chances(np.arange(200.0), (0.0, 1.0)).sum().round(6))
    1.0
    """
    mu, sigma = time
    spread = np.array([gaps_s - 1.0, gaps_s, gaps_s + 1.0])
    mean = np.exp(mu + sigma**2 / 2.0)
    with np.errstate(divide="ignore"):
        z = (np.log(np.maximum(spread, 0.0)) - mu) / sigma
        edges = (np.log(np.maximum(np.array([gaps_s - 0.5, gaps_s + 0.5]), 0.0)) - mu) / sigma
    call = np.maximum(spread, 0.0) * ndtr(z) - mean * ndtr(z - sigma)
    exact = call[2] - 2.0 * call[1] + call[0]
    return np.asarray(np.where(gaps_s < EXACT_GAP_S, np.maximum(exact, 0.0), ndtr(edges[1]) - ndtr(edges[0])))


def _fit_stops(stops: Stops) -> tuple[float, _Lognormal, _Lognormal]:
    """Returns the share of the shorter times, and the two distributions."""
    values, counts = np.unique(stops.gaps_s, return_counts=True)
    ends, end_counts = np.unique(stops.cut_off_s, return_counts=True)

    def cost(p: _Numbers) -> float:
        share, short, long = _parameters(p)
        likelihood = share * gap_chances(values, short) + (1.0 - share) * gap_chances(values, long)
        longer = share * _beyond(ends, short) + (1.0 - share) * _beyond(ends, long)
        return float(
            -(counts * np.log(np.maximum(likelihood, 1e-300))).sum()
            - (end_counts * np.log(np.maximum(longer, 1e-300))).sum()
        )

    spread = np.log(np.quantile(stops.gaps_s, [0.25, 0.75, 0.9]) + 0.5)
    starts = [
        np.array([logit(w), spread[0], np.log(0.7), np.log(max(spread[k] - spread[0], 0.5)), np.log(1.3)])
        for w in (0.4, 0.75)
        for k in (1, 2)
    ]
    fits = [minimize(cost, start, method="Nelder-Mead", options={"maxiter": 4000, "maxfev": 6000}) for start in starts]
    return _parameters(min(fits, key=lambda fit: float(fit.fun)).x)


def _beyond(time_s: _Numbers, time: _Lognormal) -> _Numbers:
    with np.errstate(divide="ignore"):
        return np.asarray(ndtr((time[0] - np.log(time_s)) / time[1]), dtype=np.float64)


def _parameters(p: _Numbers) -> tuple[float, _Lognormal, _Lognormal]:
    share = float(np.clip(expit(p[0]), 1e-6, 1.0 - 1e-6))
    sigmas = np.clip(np.exp(p[[2, 4]]), *_RANGES["surf_sigma"])
    # the second median is above the first
    return share, (float(p[1]), float(sigmas[0])), (float(p[1] + np.exp(min(p[3], 2.7))), float(sigmas[1]))


def _surf_again(stops: Stops, share: float, surf: _Lognormal, stay: _Lognormal) -> float:
    """Returns the share of surfing stops that are followed by another surfing stop.

    Each gap is a surfer's with some chance x. The covariance of x from a gap to the next is that of the true classes,
    made smaller twice by the doubt: x follows its class with the slope variance(x) / (share (1 - share)).
    """
    short, long = share * gap_chances(stops.gaps_s, surf), (1.0 - share) * gap_chances(stops.gaps_s, stay)
    x = short / np.maximum(short + long, 1e-300)
    first, second = x[:-1][stops.followed[:-1]], x[1:][stops.followed[:-1]]
    spread = float(np.var(x))
    if len(first) < 2 or spread <= 0.0:
        return min(share, 0.999)
    covariance = float((first * second).mean() - first.mean() * second.mean())
    memory = covariance * share * (1.0 - share) / spread**2
    lowest = max(0.0, 2.0 - 1.0 / share)  # below, more would have to begin surfing than there are
    return float(np.clip(share + (1.0 - share) * memory, lowest, _RANGES["surf_again"][1]))


def _fit_ranks(counts: _Numbers) -> tuple[float, float, float]:
    """Returns exponent and offset of Zipf's law, and the share that is spread evenly, for counts by rank.

    A sample ranks its channels by its own counts, so that luck alone makes its first ranks larger and its last ones
    smaller than they should be. Samples drawn from the law that was found show by how much; the counts are corrected by
    that, and the law is found again.
    """
    random = np.random.default_rng(np.random.SeedSequence(RANK_SEED))
    size = int(counts.sum())
    law = _rank_law(counts, _RANK_STARTS)
    for _ in range(RANK_ROUNDS):
        shares = _mixed(len(counts), *law)
        drawn = np.sort(random.multinomial(size, shares, RANK_DRAWS), axis=1)[:, ::-1].mean(axis=0)
        corrected = counts * shares * size / np.maximum(drawn, 0.5)
        law = _rank_law(corrected, [(law[0], np.log(law[1] + 0.01), float(np.clip(logit(law[2]), -6.0, 6.0)))])
    return law


def _rank_law(counts: _Numbers, starts: Sequence[tuple[float, float, float]]) -> tuple[float, float, float]:
    """Returns the law under which counts are most likely, from starts (exponent, log of the offset, logit of the
    share)."""

    def parts(p: _Numbers) -> tuple[float, float, float]:
        offset = float(np.exp(min(p[1], 50.0))) - 0.01
        return _clipped("zipf_exponent", float(p[0])), _clipped("zipf_offset", offset), float(expit(p[2]))

    def cost(p: _Numbers) -> float:
        return float(-(counts * np.log(_mixed(len(counts), *parts(p)))).sum())

    fits = [minimize(cost, np.array(start), method="Nelder-Mead", options={"maxiter": 2000}) for start in starts]
    return parts(min(fits, key=lambda fit: float(fit.fun)).x)


def _mixed(count: int, exponent: float, offset: float, even: float) -> _Numbers:
    return even / count + (1.0 - even) * zipf_shares(count, exponent, offset)


def _fit_power(table: EventTable, traffic: Traffic) -> tuple[Traffic, int, int, tuple[str, ...]]:
    """Returns times on and off, from power events that are in turns; the last time of a box ends with the log."""
    switches = table[table.kind == POWER]
    switches = switches[np.lexsort((np.arange(len(switches)), switches.time_s, switches.address))]
    if not len(switches):
        return traffic, 0, 0, ("on_mean_s", "on_per_day", "hour_weights")
    same = np.append(switches.address[1:] == switches.address[:-1], False)
    begin, end = switches.time_s, np.where(same, np.append(switches.time_s[1:], 0), table.time_s.max())
    turned = same & (np.append(switches.value[1:], -1) != switches.value)
    on, off = (((switches.value == value) & (turned | ~same)) for value in (1, 0))
    offs, ons = int((on & turned).sum()), int((off & turned).sum())
    unknown = []
    if offs:
        traffic = replace(traffic, on_mean_s=_clipped("on_mean_s", float((end - begin)[on].sum() / offs)))
    else:
        unknown.append("on_mean_s")
    exposure = np.array([_hour_s(end[off], h).sum() - _hour_s(begin[off], h).sum() for h in range(HOURS)])
    counts = np.bincount(end[off & turned] % DAY_S // 3600, minlength=HOURS)
    if ons >= SWITCHES_MIN and (exposure > 0).all():
        rates = counts / exposure
        traffic = replace(traffic, hour_weights=tuple((rates / rates.mean()).round(4).tolist()))
    else:
        unknown.append("hour_weights")
    weights = np.array(traffic.hour_weights)
    if ons and (weighted := float((exposure * weights / weights.mean()).sum())) > 0.0:
        traffic = replace(traffic, on_per_day=_clipped("on_per_day", ons / weighted * DAY_S))
    else:
        unknown.append("on_per_day")
    return traffic, offs, ons, tuple(unknown)


def _hour_s(time_s: NDArray[np.int64], hour: int) -> NDArray[np.int64]:
    """Returns how much of the time since 1970 fell into an hour of the day."""
    days, second = np.divmod(time_s, DAY_S)
    return np.asarray(days * 3600 + np.clip(second - 3600 * hour, 0, 3600), dtype=np.int64)
