"""What coding is compared with: a tree that forwards packets once, and one that sends lost packets again."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from surecast.predict.coding.delivery import Event, Outcome
from surecast.predict.coding.network import Audience, Channel, PathSet
from surecast.scenario.system import Overlay

__all__ = ["hop_delays", "retransmission_outcome", "transmissions", "tree_outcome"]

Array = NDArray[np.float64]

RETRANSMIT_S: Final = 0.1
"""The least time given to an acknowledgement; it doubles with each further try."""
TRIES_MAX: Final = 8
_GRID_S: Final = 0.001


def tree_outcome(audience: Audience, paths: PathSet, event: Event, channel: Channel) -> Outcome:
    """Packets are forwarded once: all of them have to pass all links."""
    chances = []
    for home in range(len(audience.homes)):
        passes = [math.prod(1.0 - loss for loss in losses) for losses in paths.losses[home]] or [1.0]
        late = paths.arrival_s[home] >= audience.deadline_s
        chances.append(0.0 if late else (passes[0] * (1.0 - channel.access_loss)) ** event.packets)
    on_time = np.array(chances)
    delays = tuple((np.array([t]), np.array([p])) for t, p in zip(paths.arrival_s, on_time, strict=True))
    sent = _forwarded(audience, paths)
    # All subscribers have all packets if no link of the tree loses any.
    whole = math.prod((1.0 - link.loss) ** event.packets for link in paths.links)
    all_on_time = whole * (1.0 - channel.access_loss) ** (event.packets * audience.size)
    if not all(on_time > 0.0):
        all_on_time = 0.0
    return Outcome(on_time, all_on_time, np.zeros_like(on_time), delays, {"data": sent}, "exact", paths=paths)


def retransmission_outcome(
    audience: Audience, paths: PathSet, event: Event, channel: Channel, overlay: Overlay
) -> Outcome:
    """Packets are acknowledged and sent again hop by hop, each time after twice the time, until the deadline."""
    latency = {}
    for link in overlay.links:
        latency[link.a, link.b] = latency[link.b, link.a] = link.latency_s
    by_link = {(link.a, link.b): link for link in paths.links}
    before = {link.b: (link.a, link.b) for link in paths.links}
    reached = {audience.source: (np.zeros(1), np.ones(1))}

    def arrive(broker: int) -> tuple[Array, Array]:
        if broker not in reached:
            key = before[broker]
            reached[broker] = _convolve(arrive(key[0]), hop_delays(by_link[key].loss, latency[key]))
        return reached[broker]

    on_time, delays = [], []
    for i, home in enumerate(audience.homes):
        times_s, mass = arrive(home)
        if channel.access_loss:
            times_s, mass = _convolve((times_s, mass), hop_delays(channel.access_loss, 0.0))
        # A link that passes packets one after the other delays the last one by what the path needs beyond its latency.
        first_s = times_s[0]
        times_s = times_s + max(0.0, float(paths.arrival_s[i]) - float(first_s))
        whole = np.cumsum(mass) ** event.packets  # the last of so many packets
        within = times_s < audience.deadline_s
        on_time.append(float(whole[within][-1]) if within.any() else 0.0)
        delays.append((times_s[within], np.diff(whole[within], prepend=0.0)))
    tries = {(k.a, k.b): transmissions(k.loss, latency[k.a, k.b], audience.deadline_s) for k in paths.links}
    carried = {k: event.packets * float(arrive(k[0])[1].sum()) for k in tries}
    data = math.fsum(carried[k] * tries[k] for k in tries)
    acknowledged = math.fsum(carried[k] * tries[k] * (1.0 - by_link[k].loss) for k in tries)
    chances = np.array(on_time)
    # Links are independent, and what a link adds is needed by all behind it: counting homes on their own is too low.
    all_on_time = float(np.prod(chances**audience.weights))
    messages = {"data": data, "acknowledgement": acknowledged}
    how = "approximation" if len(audience.homes) > 1 else "exact"
    return Outcome(chances, all_on_time, np.zeros_like(chances), tuple(delays), messages, how, paths=paths)


def hop_delays(loss: float, latency_s: float) -> tuple[Array, Array]:
    """When a packet that is sent again until it is acknowledged comes over a link first, and with which probability.

    >>> times_s, mass = hop_delays(0.1, 0.02)
    >>> [round(float(t), 3) for t in times_s[:3]], [round(float(p), 3) for p in mass[:3]]
    ([0.02, 0.12, 0.32], [0.9, 0.09, 0.009])
    """
    tries: Array = np.arange(TRIES_MAX, dtype=np.float64)
    times_s = latency_s + wait_s(latency_s) * (2.0**tries - 1.0)
    return np.asarray(times_s, dtype=np.float64), np.asarray((1.0 - loss) * loss**tries, dtype=np.float64)


def transmissions(loss: float, latency_s: float, left_s: float) -> float:
    """Mean number of times that a packet is sent over a link: until its acknowledgement comes, which may be lost too.

    >>> round(transmissions(0.1, 0.02, 10.0), 4)
    1.2346
    """
    fails = 1.0 - (1.0 - loss) ** 2
    starts = [wait_s(latency_s) * (2.0**i - 1.0) for i in range(TRIES_MAX)]
    return math.fsum(fails**i for i, start in enumerate(starts) if start < left_s)


def wait_s(latency_s: float) -> float:
    """How long an acknowledgement is waited for: the round trip, and never less than the time set."""
    return max(RETRANSMIT_S, 2.0 * latency_s)


def _convolve(one: tuple[Array, Array], other: tuple[Array, Array]) -> tuple[Array, Array]:
    """The sum of two delays, on a grid of milliseconds, rounded up: so that the atoms stay few."""
    times_s = np.ceil(np.add.outer(one[0], other[0]).ravel() / _GRID_S - 1e-6) * _GRID_S
    mass = np.multiply.outer(one[1], other[1]).ravel()
    places, index = np.unique(np.round(times_s / _GRID_S).astype(np.int64), return_inverse=True)
    return (places * _GRID_S).astype(np.float64), np.bincount(index, weights=mass).astype(np.float64)


def _forwarded(audience: Audience, paths: PathSet) -> float:
    """Packets on all links of a tree that forwards what has arrived."""
    before = {link.b: link for link in paths.links}

    def reach(broker: int) -> float:
        link = before.get(broker)
        return 1.0 if broker == audience.source or link is None else reach(link.a) * (1.0 - link.loss)

    return math.fsum(link.sent * reach(link.a) for link in paths.links)
