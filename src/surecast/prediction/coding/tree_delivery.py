"""The alternatives to coding: a tree that forwards packets once, and one that retransmits lost packets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from surecast.prediction.coding.bursty_links import GilbertElliott
from surecast.prediction.coding.hop_kernel import HopLaw, cross_hop
from surecast.prediction.coding.lossy_network import Audience, ChannelAssumptions, PathSet
from surecast.prediction.coding.packet_delivery import CodedEvent, SchemeOutcome
from surecast.scenario.spec.delivery import Retransmission
from surecast.scenario.system import Overlay

__all__ = ["retransmission_outcome", "tree_outcome"]

Array = NDArray[np.float64]

GRACE_S: Final = 0.01
"""The wait for an acknowledgement beyond the round trip."""


def tree_outcome(audience: Audience, paths: PathSet, event: CodedEvent, channel: ChannelAssumptions) -> SchemeOutcome:
    """Returns the outcome of forwarding packets once: all of them have to pass all links."""
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
    return SchemeOutcome(on_time, all_on_time, np.zeros_like(on_time), delays, {"data": sent}, "exact", paths=paths)


def retransmission_outcome(
    audience: Audience,
    paths: PathSet,
    event: CodedEvent,
    channel: ChannelAssumptions,
    overlay: Overlay,
    again: Retransmission,
    samples: int,
    seed: int,
) -> SchemeOutcome:
    """Returns the outcome of retransmitting lost packets, hop by hop, until the deadline.

    Each link is followed on the clock, with its acknowledgements and its timer, in draws that are the same for all
    subscribers behind it: what they have in common stays so. Round trips are taken to be known.
    """
    words = np.random.SeedSequence(seed, spawn_key=(2,)).generate_state(1, np.uint64).astype(np.uint64)
    facts = {}
    for overlay_link in overlay.links:
        facts[overlay_link.a, overlay_link.b] = facts[overlay_link.b, overlay_link.a] = overlay_link
    before = {link.b: link for link in paths.links}
    reached: dict[int, Array] = {audience.source: np.zeros((samples, event.packets))}
    sent: dict[int, Array] = {}

    def arrive(broker: int) -> Array:
        if broker not in reached:
            link = before[broker]
            fact = facts[link.a, link.b]
            busy_s = 1.0 / fact.capacity_per_s if channel.serialise else 0.0
            hop = _Hop(link.loss, link.burst_mean, fact.latency_s, busy_s, again.tries)
            reached[broker], sent[broker] = hop.cross(arrive(link.a), words, audience.deadline_s)
        return reached[broker]

    complete = np.ones(samples, dtype=np.bool_)
    on_time, delays = [], []
    last_hop = _Hop(channel.access_loss, None, 0.0, 0.0, again.tries)
    for home, members in zip(audience.homes, audience.members, strict=True):
        completed_s = []
        for _ in members if channel.access_loss else members[:1]:
            packets_s = arrive(home)
            if channel.access_loss:
                packets_s, _ = last_hop.cross(packets_s, words, audience.deadline_s)
            completed_s.append(packets_s.max(axis=1))
        times_s = np.stack(completed_s)
        within = times_s < audience.deadline_s
        complete &= within.all(axis=0)
        on_time.append(float(within.mean()))
        delays.append((times_s[within], np.full(int(within.sum()), 1.0 / within.size)))
    data, answers = np.sum(list(sent.values()), axis=0) if sent else (0.0, 0.0)
    messages = {"data": float(data), "acknowledgement": float(answers)}
    chances = np.array(on_time)
    nothing = np.zeros_like(chances)
    share = float(complete.mean())
    return SchemeOutcome(chances, share, nothing, tuple(delays), messages, "approximation", samples, paths=paths)


@dataclass(frozen=True, slots=True)
class _Hop:
    """A link whose packets are acknowledged: loss and bursts, latency, time for a packet, and how often it tries."""

    loss: float
    burst_mean: float | None
    latency_s: float
    busy_s: float
    tries_max: int

    def cross(self, came_s: Array, words: NDArray[np.uint64], deadline_s: float) -> tuple[Array, Array]:
        """Returns the times at which packets (columns) cross the link in draws (rows), given the times at which they
        reach it; and the mean numbers of packets and acknowledgements sent for that.
        """
        link = GilbertElliott.of_loss(self.loss, self.burst_mean)
        silence_s = 2.0 * self.latency_s + self.busy_s + GRACE_S
        states = self.loss, link.good_to_bad, link.bad_to_good
        law = HopLaw(*states, self.latency_s, self.busy_s, silence_s, self.tries_max, deadline_s)
        over_s = np.empty_like(came_s)
        sent = np.zeros(2, dtype=np.int64)
        cross_hop(words, law, came_s, over_s, sent)
        return over_s, sent / len(came_s)


def _all_pass(packets: int, loss: float, burst_mean: float | None) -> float:
    """Returns P[a link loses none of `packets` packets]: it stays good from each to the next."""
    return (1.0 - loss) * (1.0 - GilbertElliott.of_loss(loss, burst_mean).good_to_bad) ** (packets - 1)


def _forwarded(audience: Audience, paths: PathSet) -> float:
    """Returns the packets on all links of a tree that forwards what has arrived."""
    before = {link.b: link for link in paths.links}

    def reach(broker: int) -> float:
        link = before.get(broker)
        return 1.0 if broker == audience.source or link is None else reach(link.a) * (1.0 - link.loss)

    return math.fsum(link.sent * reach(link.a) for link in paths.links)
