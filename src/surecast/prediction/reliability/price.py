"""The price of a scheme: messages over overlay links per published event, by kind.

Everything is counted as sent, whether it arrives or not. The formulas are in docs/background/reliability.md.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from surecast.kernels import njit
from surecast.prediction.reliability.link_state_floods import link_state_rate
from surecast.prediction.reliability.reliability_model import DeliveryModel
from surecast.prediction.reliability.static_routes import route_up
from surecast.scenario.system import Overlay

__all__ = ["DUPLICATE", "Price", "detour_hops", "flow_values", "later_share", "price_of"]

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Price = dict[str, tuple[float, str]]
"""Messages per event and how they were obtained, by kind."""
DUPLICATE = "duplicate"
"""Events that get to a home broker a second time, by messages that are already counted: not part of the total."""
_ROUNDING = 1e-12
"""Differences of probabilities below this are none."""


def price_of(model: DeliveryModel, scheme: str, connected: Array | None, tails: Array) -> Price:
    """Returns the price of a scheme.

    `connected` has P[homes connected] of each flow, for the bypass schemes; `tails` has P[delay > deadline] of each
    entry of the model's spread, for the buffering schemes.
    """
    if scheme == "none" and not model.refreshes_by_link:
        return {"notification": (_unrefreshed(model), "exact")}
    price: Price = {}
    if scheme in ("none", "periodic-subscription"):
        price["notification"] = _notifications(model)
    elif scheme == "bypass":
        price["notification"] = (_per_event(model, _used_at_once(model)), "exact")
    else:
        price.update(_buffering(model, tails, knows=scheme == "bypass-buffering"))
    if connected is not None and scheme.startswith("bypass"):
        detoured = connected - model.path_up[model.flow_path]
        rates = model.client_up * model.flows.rate_per_s * np.where(detoured > _ROUNDING, detoured, 0.0)
        once = _first_of_each_home(model)
        detours = (rates * detour_hops(model))[once].sum() / _published(model)
        price["detour"] = (float(detours), "approximation")
        if scheme == "bypass-buffering":
            again = (rates * later_share(model, tails))[once].sum() / _published(model)
            price[DUPLICATE] = (float(again), "approximation")
        price["link-state"] = (link_state_rate(model.system, model.components) / _published(model), "approximation")
    if not model.refreshes_at_once:
        price["subscription"] = (_refreshes(model), "exact")
    return price


def later_share(model: DeliveryModel, tails: Array) -> Array:
    """Returns P[0 < delay <= deadline] / P[delay > 0] of each flow; 0 where there is never a delay."""
    waits = 1.0 - model.table.atoms[model.flow_path]
    at_end = flow_values(model, tails)
    return np.divide(np.maximum(waits - at_end, 0.0), waits, out=np.zeros_like(waits), where=waits > 0)


def flow_values(model: DeliveryModel, by_entry: Array) -> Array:
    """Returns a value per entry of the spread for each flow; 0 for those that end where they start."""
    return np.append(by_entry, 0.0)[model.spread.of_flow]


def _published(model: DeliveryModel) -> float:
    return sum(p.rate_per_s for p in model.system.publishers)


def _per_event(model: DeliveryModel, messages: Array) -> float:
    """Returns messages over the overlay links of the spread per published event, given that the publisher's link is
    up."""
    spread = model.spread
    rates = spread.rate_per_s[spread.stream] * model.client_up
    return float((rates * messages).sum() / _published(model))


def _unrefreshed(model: DeliveryModel) -> float:
    """In the long run only brokers that never fail still have an entry to send by."""
    paths = model.paths
    fails = np.array([broker is not None for broker in model.components.brokers])
    lost = np.zeros(len(paths.parent), dtype=np.bool_)
    for i, parent in enumerate(paths.parent.tolist()):
        lost[i] = bool(fails[paths.last[i]]) or (parent >= 0 and bool(lost[parent]))
    before = paths.parent[model.spread.path]
    return _per_event(model, np.where(lost[before], 0.0, model.path_up[before]))


def _notifications(model: DeliveryModel) -> tuple[float, str]:
    """Returns the notifications sent by every broker that the event reaches and that has an entry.

    With refreshes at intervals it has one if what is beyond was up lately: at a refresh within the time-out. Each
    component is taken to have been so on its own, which is somewhat too often.
    """
    spread, parts = model.spread, model.components
    before = model.path_up[model.paths.parent[spread.path]]
    if model.refreshes_at_once:
        return _per_event(model, before), "exact"
    interval, timeout = model.refresh_s
    lately_broker, lately_link = (
        up + (1.0 - up) * -np.expm1(-repair * (timeout - interval))
        for up, repair in ((parts.broker_up, parts.broker_repair), (parts.link_up, parts.link_repair))
    )
    last_link = model.paths.parts.link[model.paths.parts.start[spread.path + 1] - 1]
    across = lately_broker[model.paths.last[spread.path]] * lately_link[last_link]
    stays_up = np.exp(-parts.broker_failure * interval / 2.0)
    refreshed = route_up(model.paths.parts, stays_up, np.ones(len(stays_up) + len(lately_link)))
    held = across * _some_end(spread.parent, across, _is_end(model))
    return _per_event(model, before * held * refreshed[model.paths.parent[spread.path]]), "approximation"


def _is_end(model: DeliveryModel) -> NDArray[np.bool_]:
    """Returns whether a subscriber is at home at the end of each entry of the spread."""
    ends = np.zeros(len(model.spread.path), dtype=np.bool_)
    ends[model.spread.of_flow[model.spread.of_flow >= 0]] = True
    return ends


def _used_at_once(model: DeliveryModel) -> Array:
    """Returns P[the static route of some subscriber over this link is all up], of each entry of the spread."""
    spread = model.spread
    before = model.path_up[model.paths.parent[spread.path]]
    here = model.path_up[spread.path]
    across = np.divide(here, before, out=np.zeros_like(here), where=before > 0)
    return np.asarray(here * _some_end(spread.parent, across, _is_end(model)), dtype=np.float64)


def _buffering(model: DeliveryModel, tails: Array, *, knows: bool) -> Price:
    """Returns the first transmissions, one for each broker reached in time; acknowledgements, one for each hop made in
    time; retransmissions, one per interval in which the event waits and its holder is up, or, with ideal ones, one for
    each hop made late. A broker that `knows` which neighbours it can reach sends nothing to the others, and once when
    one comes back.
    """
    spread = model.spread
    home_up = model.components.broker_up[spread.home[spread.stream]]
    reached = home_up * (1.0 - tails)
    before = home_up * (1.0 - np.append(tails, 0.0)[spread.parent])
    last_hop = model.table.hop[model.table.start[spread.path + 1] - 1]
    late = np.maximum(reached - before * model.table.hops.atoms[last_hop], 0.0)
    attempts = late
    at_once = before * model.table.hops.atoms[last_hop]
    if model.interval_s > 0 and not knows:
        deadlines = model.full_periods(spread.deadline_s[spread.stream])
        waiting = home_up * model.table.up_times(spread.path, deadlines) / model.interval_s
        # a sum over attempts is the integral less half its first value and more half its last, by the trapezoidal rule
        begun = before * (1.0 - model.table.hops.atoms[last_hop])
        attempts = late + np.maximum(waiting - (begun - (before - reached)) / 2.0, 0.0)
    how = "exact" if model.interval_s <= 0 and not model.components.not_exponential else "approximation"
    sent = {
        "notification": at_once if knows else before,
        "acknowledgement": reached,
        "retransmission": attempts,
    }
    return {kind: (_per_event(model, messages), how) for kind, messages in sent.items()}


def _first_of_each_home(model: DeliveryModel) -> Index:
    """Returns one flow for each publisher, topic and home broker: others there share what it is sent."""
    keys = np.stack([model.flows.publisher, model.flows.topic, model.flow_path], axis=1)
    return np.unique(keys, axis=0, return_index=True)[1].astype(np.intp)


def _refreshes(model: DeliveryModel) -> float:
    """Returns the refresh messages: each home broker refreshes each topic of its subscribers over the part of the
    topic's tree that is up.
    """
    overlay = model.system.overlay
    homes: dict[tuple[int, ...], list[int]] = {}
    for home, topic in {(home, topic) for home, topics in model.flows.interests for topic in topics}:
        homes.setdefault(overlay.trees[topic], []).append(home)
    total = 0.0
    for tree, starts in homes.items():
        first, neighbour, link = _neighbours(overlay, tree)
        up = model.components.broker_up, model.components.link_up
        total += _flooded(first, neighbour, link, *up, np.array(sorted(starts), dtype=np.intp))
    return float(total / model.refresh_s[0] / _published(model))


def detour_hops(model: DeliveryModel) -> Array:
    """Hops of a detour for each flow: a shortest way that has no link or inner broker of the route."""
    overlay = model.system.overlay
    chosen, back = np.unique(model.flow_path, return_inverse=True)
    parts = model.paths.parts
    around = _neighbours(overlay, tuple(range(len(overlay.links))))
    hops = _around(chosen.astype(np.intp), parts.start, parts.broker, parts.link, *around, len(overlay.links))
    return np.asarray(hops[back], dtype=np.float64)


def _neighbours(overlay: Overlay, links: tuple[int, ...]) -> tuple[Index, Index, Index]:
    """Neighbours of each broker over some links: where its list starts, the neighbours, the links to them."""
    a = np.array([overlay.links[i].a for i in links], dtype=np.intp)
    b = np.array([overlay.links[i].b for i in links], dtype=np.intp)
    tail, head, link = np.concatenate([a, b]), np.concatenate([b, a]), np.tile(np.array(links, dtype=np.intp), 2)
    order = np.argsort(tail, kind="stable")
    first = np.zeros(len(overlay.brokers) + 1, dtype=np.intp)
    np.cumsum(np.bincount(tail, minlength=len(overlay.brokers)), out=first[1:])
    return first, head[order], link[order]


@njit(cache=True)
def _some_end(parent: Index, across: Array, ends: NDArray[np.bool_]) -> Array:
    """Returns P[some end at or beyond an entry is connected with it]; parents stand before their children."""
    none = np.ones(len(parent))
    result = np.empty(len(parent))
    for i in range(len(parent) - 1, -1, -1):
        result[i] = 1.0 if ends[i] else 1.0 - none[i]
        if parent[i] >= 0:
            none[parent[i]] *= 1.0 - across[i] * result[i]
    return result


@njit(cache=True)
def _flooded(first: Index, neighbour: Index, link: Index, broker_up: Array, link_up: Array, starts: Index) -> float:
    """Returns messages of a flood along a tree from each start together: each broker that is reached sends to all
    others.
    """
    n = len(first) - 1
    total = 0.0
    queue, before, reached = np.empty(n, dtype=np.intp), np.empty(n, dtype=np.intp), np.empty(n)
    for start in starts:
        queue[0], before[0], reached[0] = start, -1, broker_up[start]
        tail = 1
        head = 0
        while head < tail:
            v = queue[head]
            for j in range(first[v], first[v + 1]):
                if neighbour[j] != before[head]:
                    total += reached[head]
                    queue[tail], before[tail] = neighbour[j], v
                    reached[tail] = reached[head] * link_up[link[j]] * broker_up[neighbour[j]]
                    tail += 1
            head += 1
    return total


@njit(cache=True)
def _around(
    chosen: Index,
    start: Index,
    broker: Index,
    link: Index,
    first: Index,
    neighbour: Index,
    via: Index,
    links: int,
) -> Array:
    """Hops of a shortest way around each chosen path; one more than the path's own where there is none."""
    n = len(first) - 1
    result = np.zeros(len(chosen))
    distance, queue = np.empty(n, dtype=np.intp), np.empty(n, dtype=np.intp)
    barred = np.zeros(links, dtype=np.bool_)
    for c in range(len(chosen)):
        r = chosen[c]
        hops = start[r + 1] - start[r]
        if hops == 0:
            continue
        distance[:] = -1
        own = broker[start[r] + r : start[r + 1] + r + 1]
        for v in own[1:-1]:
            distance[v] = n
        for j in range(start[r], start[r + 1]):
            barred[link[j]] = True
        queue[0] = own[0]
        distance[own[0]] = 0
        head, tail = 0, 1
        while head < tail and distance[own[-1]] < 0:
            v = queue[head]
            head += 1
            for j in range(first[v], first[v + 1]):
                if not barred[via[j]] and distance[neighbour[j]] < 0:
                    distance[neighbour[j]] = distance[v] + 1
                    queue[tail] = neighbour[j]
                    tail += 1
        result[c] = distance[own[-1]] if distance[own[-1]] > 0 else hops + 1
        for j in range(start[r], start[r + 1]):
            barred[link[j]] = False
    return result
