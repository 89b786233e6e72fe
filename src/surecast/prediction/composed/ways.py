"""The ways of events to their subscribers' home brokers: what gets there, after which waits and which times in queues.

A way is a route and a deadline: flows that share both are computed once. Events of a way wait for repairs, and for
copies of what links lost, in whole retransmission intervals; brokers and links take the time of their queues.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from surecast.prediction.composed.event_delay import Waits
from surecast.prediction.passages import Passage, within
from surecast.prediction.reliability.price import detour_hops

if TYPE_CHECKING:
    from surecast.prediction.composed.composed_model import ComposedModel

__all__ = ["RouteTimes", "Ways", "ways_of"]

Array = NDArray[np.float64]
Index = NDArray[np.intp]

_POINTS_MAX, _POINTS_MIN, _POINTS_IN_ALL = 600, 24, 2_000_000
"""Attempts to pass on a stored event that are told apart, for each way; of more, several are taken together."""
_LEFT_OUT = 1e-9
_COPIES_MAX = 64


@dataclass(frozen=True)
class RouteTimes:
    """The time on routes, by element as in `Passage`; `stays_s` is the mean with the outages of brokers in it."""

    shift_s: Array
    mean_s: Array
    variance_s2: Array
    behind_share: Array
    behind_s: Array
    stays_s: Array

    @property
    def total_s(self) -> Array:
        return np.asarray(self.shift_s + self.mean_s + self.behind_share * self.behind_s, dtype=np.float64)

    def of(self, index: Index) -> RouteTimes:
        columns = (self.shift_s, self.mean_s, self.variance_s2, self.behind_share, self.behind_s, self.stays_s)
        return RouteTimes(*(column[index] for column in columns))

    def within(self, times_s: Array) -> Array:
        """Returns P[it takes at most the times of its row]."""
        shift, mean, variance, share, behind = (
            column[:, None]
            for column in (self.shift_s, self.mean_s, self.variance_s2, self.behind_share, self.behind_s)
        )
        found = within(shift, mean, variance, times_s)
        if not self.behind_share.any():
            return found
        return (1.0 - share) * found + share * within(shift, mean + behind, variance + behind**2, times_s)


@dataclass(frozen=True)
class Ways:
    """All ways. By flow: its way, and P[its events get to the home broker] with working client links.

    By way: the time in queues with detours (`direct`: without them, `detours`: the share that takes one), P[not
    expired], of that P[delivered] and P[in time], and the mean wait of what is delivered. `waits` are the times and
    shares of each way.
    """

    of_flow: Index
    reach: Array
    passes: Array
    direct: RouteTimes
    around: RouteTimes
    detours: Array
    delivered: Array
    in_time: Array
    waited_s: Array
    waits: list[Waits]

    @cached_property
    def total_s(self) -> Array:
        """Mean time in queues and on links, with detours and outages of brokers."""
        return (1.0 - self.detours) * self.direct.stays_s + self.detours * self.around.stays_s

    def within(self, ways: Index, times_s: Array) -> Array:
        """Returns P[queues and links take at most the times of its row]."""
        found, detours = self.direct.of(ways).within(times_s), self.detours[ways, None]
        if not detours.any():
            return found
        return (1.0 - detours) * found + detours * self.around.of(ways).within(times_s)

    def passage(self, way: int) -> Passage:
        """Returns the time in the queues of a way, detours by their mean and variance."""
        one, other, share = self.direct, self.around, float(self.detours[way])
        totals = [times.shift_s[way] + times.mean_s[way] for times in (one, other)]
        shift = float(min(one.shift_s[way], other.shift_s[way])) if share > 0.0 else float(one.shift_s[way])
        total = (1.0 - share) * totals[0] + share * totals[1]
        spread = share * (1.0 - share) * (totals[1] - totals[0]) ** 2
        variance = (1.0 - share) * one.variance_s2[way] + share * other.variance_s2[way] + spread
        behind = float(one.behind_share[way]), float(one.behind_s[way])
        return Passage(shift, float(total) - shift, float(variance), *behind)


def ways_of(model: ComposedModel) -> Ways:
    """Returns the ways of a model."""
    delivery, flows = model.delivery, model.flows
    deadlines, number = np.unique(delivery.flow_deadline_s, return_inverse=True)
    keys, first, of_flow = np.unique(flows.route * len(deadlines) + number, return_index=True, return_inverse=True)
    route, deadline = keys // len(deadlines), deadlines[keys % len(deadlines)]
    direct = model.route_times.of(route)
    around, detours = _detours(model, first, direct)
    count = len(keys)
    delivered, in_time, waited = np.ones(count), np.ones(count), np.zeros(count)
    not_expired, before = np.ones(count), np.ones(count)
    waits = [Waits.none()] * count
    lost = _losses(model, route)
    ways = Ways(of_flow, np.zeros(0), np.zeros(0), direct, around, detours, delivered, in_time, waited, waits)
    for chosen, times, shares, unlost in _waits(model, first, deadline, lost):
        left = np.maximum(deadline[chosen, None] - times[None, :], 0.0)
        due = np.where(times[None, :] <= deadline[chosen, None], ways.within(chosen, left), 0.0)
        total = shares.sum(axis=1)
        not_expired[chosen], before[chosen] = total, unlost
        total = np.where(total > 0.0, total, 1.0)
        # what waits for a repair and is late by the queues is dropped on the way; what is late by queues alone is not
        moving = shares * np.where(times[None, :] > 0.0, due, 1.0)
        sums = moving.sum(axis=1)
        delivered[chosen], in_time[chosen] = sums / total, (shares * due).sum(axis=1) / total
        waited[chosen] = np.divide(moving @ times, sums, out=np.zeros(len(chosen)), where=sums > 0.0)
        if count <= _POINTS_IN_ALL // _POINTS_MAX:
            for way, row in zip(chosen.tolist(), shares, strict=True):
                waits[way] = Waits(times, row)
    if model.stores and not lost.any():
        # exact where neither a queue nor a loss cuts the distribution
        whole = delivered >= 1.0 - 1e-12
        waited[whole] = _waited_s(model)[first][whole]
    passes = np.where(before > 0.0, not_expired / np.where(before > 0.0, before, 1.0), 1.0)
    if not model.stores:
        passes = np.exp(lost[:, 0])
    passes = np.minimum(passes, 1.0)
    reach = np.asarray(model.answer.reliability * passes[of_flow], dtype=np.float64)
    return Ways(of_flow, reach, passes, direct, around, detours, delivered, in_time, waited, waits)


def _losses(model: ComposedModel, routes: Index) -> Array:
    """Returns the logarithm of P[a link loses nothing] summed over the links of each route, and their number."""
    links = model.system.overlay.links
    logs = np.array([math.log1p(-min(link.loss, 1.0 - 1e-12)) for link in links] + [0.0])
    parts, paths = model.delivery.paths.parts, model.delivery.paths.of_route[routes]
    over = np.repeat(np.arange(len(model.delivery.paths.parent)), np.diff(parts.start))
    sums = np.bincount(over, weights=logs[parts.link], minlength=len(model.delivery.paths.parent))[paths]
    hops = np.diff(parts.start)[paths]
    return np.stack([sums, hops.astype(np.float64)], axis=1) if logs.any() else np.zeros((len(routes), 2))


def _waits(
    model: ComposedModel, flow: Index, deadline_s: Array, lost: Array
) -> Iterator[tuple[Index, Array, Array, Array]]:
    """Yields ways with the same deadline, the times that their events may have waited, P[each of these] by way, and
    P[not expired] without losses. `flow` is one flow of each way."""
    if not model.stores:
        ones = np.ones((len(flow), 1))
        yield np.arange(len(flow)), np.zeros(1), ones, ones[:, 0]
        return
    late, delivery = model.answer.late, model.delivery
    assert late is not None, "what is stored is late at times"
    table = delivery.table if len(late) == 1 else delivery.bypass_routes[0]

    def tails(chosen: Index, time_s: float) -> Array:
        total = np.zeros(len(chosen))
        for term in late:
            routes = term.route[flow[chosen]]
            there = np.flatnonzero(routes >= 0)
            if len(there):
                found = table.tails(routes[there], np.full(len(there), time_s))[0]
                total[there] += term.factor[flow[chosen[there]]] * found
        return np.asarray(np.clip(total, 0.0, 1.0), dtype=np.float64)

    points = int(np.clip(_POINTS_IN_ALL // max(len(flow), 1), _POINTS_MIN, _POINTS_MAX))
    for deadline in np.unique(deadline_s).tolist():
        chosen = np.flatnonzero(deadline_s == deadline)
        fails = lost[chosen].any() or tails(chosen, 0.0).any()
        if not fails:
            yield chosen, np.zeros(1), np.ones((len(chosen), 1)), np.ones(len(chosen))
            continue
        ends, middles = _attempts(delivery.interval_s, deadline, points, lambda t, c=chosen: tails(c, t))
        left = np.stack([tails(chosen, float(time)) for time in ends], axis=1)
        reached = np.maximum.accumulate(1.0 - left, axis=1)
        unlost = reached[:, -1].copy()
        if lost[chosen].any() and delivery.interval_s > 0.0:
            reached = _with_copies(reached, ends, lost[chosen], delivery.interval_s)
        yield chosen, middles, np.maximum(np.diff(reached, axis=1, prepend=0.0), 0.0), unlost


def _attempts(interval_s: float, deadline_s: float, points: int, tails: object) -> tuple[Array, Array]:
    """Returns times up to which waits are told apart, and the mean of each part: attempts, or any times where what is
    up again is passed on at once."""
    assert callable(tails)
    unit = interval_s if interval_s > 0.0 else 1.0
    last = deadline_s / unit
    if deadline_s == math.inf:
        last = 64.0
        while tails(last * unit).max() > _LEFT_OUT and last < 2.0**40:
            last *= 2.0
    if interval_s <= 0.0:
        ends = last * np.linspace(0.0, 1.0, points + 1) ** 2
        return ends, np.concatenate([[0.0], (ends[1:] + ends[:-1]) / 2.0])
    whole = math.floor(last * (1.0 + 1e-12))
    steps = np.unique(np.round(np.linspace(0, whole, min(whole, points) + 1)).astype(np.int64))
    # attempts that are taken together end, on average, in the middle of them
    middles = np.concatenate([[0.0], (steps[1:] + steps[:-1] + 1) / 2.0]) * interval_s
    return np.asarray(steps * interval_s, dtype=np.float64), np.asarray(middles, dtype=np.float64)


def _with_copies(reached: Array, ends_s: Array, lost: Array, interval_s: float) -> Array:
    """Returns P[got there by each time], where links lose what passes: each copy costs an interval more.

    The number of copies has a negative binomial distribution, with the mean loss of the links of a route.
    """
    hops = np.maximum(lost[:, 1], 1.0)
    loss = -np.expm1(lost[:, 0] / hops)
    share, total = (1.0 - loss) ** hops, np.zeros_like(reached)
    for copies in range(_COPIES_MAX):
        shifted = ends_s - copies * interval_s
        for row in range(len(reached)):
            moved = np.interp(shifted, ends_s, reached[row], left=0.0)
            total[row] += share[row] * moved
        share = share * loss * (hops + copies) / (copies + 1.0)
        if shifted[-1] < 0.0 or share.max() < _LEFT_OUT:
            break
    return total


def _waited_s(model: ComposedModel) -> Array:
    """Mean time that the events of each flow wait for repairs, of those that get to their home broker."""
    late = model.answer.late
    assert late is not None
    limit = model.delivery.full_periods(model.delivery.flow_deadline_s)
    end = np.where(np.isfinite(limit), limit, 0.0)
    sums = sum((term.factor * (term.mean - end * term.tail) for term in late), np.zeros(len(limit)))
    arrives = 1.0 - sum((term.factor * term.tail for term in late), np.zeros(len(limit)))
    sums = np.maximum(sums, 0.0)
    return np.asarray(np.divide(sums, arrives, out=np.zeros_like(sums), where=arrives > 0), dtype=np.float64)


def _detours(model: ComposedModel, flow: Index, direct: RouteTimes) -> tuple[RouteTimes, Array]:
    """Returns the time on a shortest way around each route, and the share of what arrives that takes one: each hop
    more takes the mean time of a link and a broker."""
    connections = model.connections[0]
    delivery, path = model.delivery, model.delivery.flow_path[flow]
    if connections is None:
        return direct, np.zeros(len(flow))
    connected, straight = connections.value[flow], delivery.path_up[path]
    share = np.divide(connected - straight, connected, out=np.zeros(len(flow)), where=connected > 0.0)
    share = np.where(share > 1e-12, share, 0.0)
    hops = np.diff(delivery.paths.parts.start)[path]
    more = np.maximum(detour_hops(delivery)[flow] - hops, 0.0)
    links, passages = model.system.overlay.links, model.passages
    latency = float(np.mean([link.latency_s for link in links])) if links and model.waits else 0.0
    on_hops = list(model.hop_passages.values())
    queued = [Passage(0.0, p.mean_s, p.variance_s2) for p in on_hops]
    mean = float(np.mean([p.mean_s for p in passages])) + (float(np.mean([p.mean_s for p in queued])) if queued else 0)
    constant = float(np.mean([p.shift_s for p in passages]))
    variance = float(np.mean([p.variance_s2 for p in passages]))
    variance += float(np.mean([p.variance_s2 for p in queued])) if queued else 0.0
    return RouteTimes(
        direct.shift_s + more * (latency + constant),
        direct.mean_s + more * mean,
        direct.variance_s2 + more * variance,
        direct.behind_share,
        direct.behind_s,
        direct.stays_s + more * (latency + constant + mean),
    ), share
