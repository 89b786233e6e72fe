"""What coding is compared with: a tree that forwards packets once, and one that sends lost packets again."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from surecast.predict.coding.delivery import Event, Outcome
from surecast.predict.coding.links import GilbertElliott
from surecast.predict.coding.network import Audience, Channel, PathSet
from surecast.scenario.spec.delivery import Retransmission
from surecast.scenario.system import Overlay

__all__ = ["draw_tries", "retransmission_outcome", "tree_outcome"]

Array = NDArray[np.float64]

GRACE_S: Final = 0.01
"""What is waited for an acknowledgement beyond the round trip."""


def tree_outcome(audience: Audience, paths: PathSet, event: Event, channel: Channel) -> Outcome:
    """Packets are forwarded once: all of them have to pass all links."""
    chances = []
    for home in range(len(audience.homes)):
        hops = paths.hops[home][0] if paths.hops[home] else ()
        passes = math.prod(_all_pass(event.packets, loss, burst) for loss, burst in hops)
        late = paths.arrival_s[home] >= audience.deadline_s
        chances.append(0.0 if late else passes * (1.0 - channel.access_loss) ** event.packets)
    on_time = np.array(chances)
    delays = tuple((np.array([t]), np.array([p])) for t, p in zip(paths.arrival_s, on_time, strict=True))
    sent = _forwarded(audience, paths)
    # All subscribers have all packets if no link of the tree loses any.
    whole = math.prod(_all_pass(event.packets, link.loss, link.burst_mean) for link in paths.links)
    all_on_time = whole * (1.0 - channel.access_loss) ** (event.packets * audience.size)
    if not all(on_time > 0.0):
        all_on_time = 0.0
    return Outcome(on_time, all_on_time, np.zeros_like(on_time), delays, {"data": sent}, "exact", paths=paths)


def retransmission_outcome(
    audience: Audience,
    paths: PathSet,
    event: Event,
    channel: Channel,
    overlay: Overlay,
    again: Retransmission,
    samples: int,
    seed: int,
) -> Outcome:
    """Packets that are lost are sent again, hop by hop, until the deadline.

    Tries are drawn, the same for all subscribers behind a link: what they have in common stays so. That packets which
    are sent again take their time on a link from others is left out.
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(2,)))
    facts = {}
    for one in overlay.links:
        facts[one.a, one.b] = facts[one.b, one.a] = one
    before = {link.b: link for link in paths.links}
    reached: dict[int, Array] = {audience.source: np.zeros((samples, event.packets))}
    tries: dict[int, float] = {}

    def arrive(broker: int) -> Array:
        if broker not in reached:
            link = before[broker]
            fact = facts[link.a, link.b]
            busy_s = 1.0 / fact.capacity_per_s if channel.serialise else 0.0
            hop = _Hop(link.loss, link.burst_mean, fact.latency_s, busy_s, again.tries)
            reached[broker], tries[broker] = hop.cross(arrive(link.a), rng, audience.deadline_s)
        return reached[broker]

    complete = np.ones(samples, dtype=np.bool_)
    on_time, delays = [], []
    last_hop = _Hop(channel.access_loss, None, 0.0, 0.0, again.tries)
    for home, members in zip(audience.homes, audience.members, strict=True):
        done = []
        for _ in members if channel.access_loss else members[:1]:
            packets_s = arrive(home)
            if channel.access_loss:
                packets_s, _ = last_hop.cross(packets_s, rng, audience.deadline_s)
            done.append(packets_s.max(axis=1))
        times_s = np.stack(done)
        within = times_s < audience.deadline_s
        complete &= within.all(axis=0)
        on_time.append(float(within.mean()))
        delays.append((times_s[within], np.full(int(within.sum()), 1.0 / within.size)))
    data = math.fsum(tries.values())
    messages = {"data": data, "acknowledgement": math.fsum(n * (1.0 - before[b].loss) for b, n in tries.items())}
    chances = np.array(on_time)
    nothing = np.zeros_like(chances)
    share = float(complete.mean())
    return Outcome(chances, share, nothing, tuple(delays), messages, "approximation", samples, paths=paths)


@dataclass(frozen=True, slots=True)
class _Hop:
    """A link whose packets are acknowledged: loss and bursts, latency, time for a packet, and how often it tries."""

    loss: float
    burst_mean: float | None
    latency_s: float
    busy_s: float
    tries_max: int

    def cross(self, arrival_s: Array, rng: np.random.Generator, deadline_s: float) -> tuple[Array, float]:
        """When packets (columns) that come at these times get over the link, and how often packets are sent, in the
        mean of the draws (rows)."""
        order = np.argsort(arrival_s, axis=1, kind="stable")
        turn = np.arange(arrival_s.shape[1])
        came_s = np.take_along_axis(arrival_s, order, axis=1)
        # One after the other: each leaves when the one before has, or when it comes.
        leave_s = np.maximum.accumulate(came_s - self.busy_s * turn, axis=1) + self.busy_s * (turn + 1)
        tries = draw_tries(rng, self.loss, self.burst_mean, leave_s.shape, self.tries_max)
        trip_s = 2.0 * self.latency_s + self.busy_s
        silence_s = trip_s + GRACE_S
        # A loss shows when a later packet is acknowledged, or else when nothing is heard any more.
        heard = (tries == 1) & (rng.random(leave_s.shape) >= self.loss)
        heard_s = np.where(heard, leave_s, np.inf)
        later_s = np.minimum.accumulate(heard_s[:, ::-1], axis=1)[:, ::-1]
        later_s = np.concatenate([later_s[:, 1:], np.full((len(later_s), 1), np.inf)], axis=1)
        gone_s = np.where(np.isfinite(leave_s), leave_s, -np.inf).max(axis=1)
        shows_s = np.where(np.isfinite(later_s), later_s, gone_s[:, None] + silence_s) + 2.0 * self.latency_s
        # The next try comes after a silence, and each further one after twice that.
        late_s = shows_s + self.busy_s + silence_s * np.maximum(2 * tries - 5, 0)
        over_s = np.where(tries == 1, leave_s, late_s) + self.latency_s
        over_s[(tries > self.tries_max) | ~np.isfinite(leave_s)] = np.inf
        found = np.empty_like(over_s)
        np.put_along_axis(found, order, over_s, axis=1)
        sent = np.where(leave_s < deadline_s, np.minimum(tries, self.tries_max), 0).sum(axis=1).mean()
        # The acknowledgement of the last packet may be lost: it is then sent again in vain until one comes back.
        return found, float(sent) + self.loss / (1.0 - self.loss) ** 2


def draw_tries(
    rng: np.random.Generator, loss: float, burst_mean: float | None, shape: tuple[int, ...], tries_max: int
) -> NDArray[np.int64]:
    """How often packets (columns) have to be sent over a link until they come, in draws (rows); one more than
    `tries_max` where they do not. With bursts, packets that are lost are sent again behind the others, in order.

    >>> rng = np.random.default_rng(1)
    >>> round(float(draw_tries(rng, 0.2, None, (4000, 8), 50).mean()), 2)
    1.25
    >>> round(float(draw_tries(rng, 0.2, 4.0, (4000, 8), 50).mean()), 1)
    1.3
    """
    if burst_mean is None or loss == 0.0:
        return np.minimum(rng.geometric(1.0 - loss, size=shape), tries_max + 1).astype(np.int64)
    link = GilbertElliott.of_loss(loss, burst_mean)
    tries = np.ones(shape, dtype=np.int64)
    lost = np.ones(shape, dtype=np.bool_)
    is_bad: NDArray[np.bool_] | None = None
    for _ in range(tries_max):
        for k in range(shape[1]):
            chance = rng.random(shape[0])
            if is_bad is None:
                is_bad = chance < loss
            else:
                moved = np.where(is_bad, chance >= link.bad_to_good, chance < link.good_to_bad)
                is_bad = np.where(lost[:, k], moved, is_bad)
            lost[:, k] &= is_bad
        tries += lost
        if not lost.any():
            break
    return tries


def _all_pass(packets: int, loss: float, burst_mean: float | None) -> float:
    """P[a link loses none of so many packets]: it stays good from each to the next."""
    if burst_mean is None or loss == 0.0:
        return (1.0 - loss) ** packets
    return (1.0 - loss) * (1.0 - GilbertElliott.of_loss(loss, burst_mean).good_to_bad) ** (packets - 1)


def _forwarded(audience: Audience, paths: PathSet) -> float:
    """Packets on all links of a tree that forwards what has arrived."""
    before = {link.b: link for link in paths.links}

    def reach(broker: int) -> float:
        link = before.get(broker)
        return 1.0 if broker == audience.source or link is None else reach(link.a) * (1.0 - link.loss)

    return math.fsum(link.sent * reach(link.a) for link in paths.links)
