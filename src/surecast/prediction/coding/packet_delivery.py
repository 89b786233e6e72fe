"""Delivery of an event to an audience: over paths with coding, and by gossip for missing packets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from surecast.prediction.coding.groups import GossipGroup, PathStory, PeerConnections, draws_of, gossip_draws
from surecast.prediction.coding.lossy_network import Audience, ChannelAssumptions, Hop, PathSet
from surecast.prediction.coding.multicast import sample_ranks
from surecast.prediction.coding.ranks import LossyPath, decodes, end_ranks, hop_matrix, on_paths_probability
from surecast.scenario.spec.delivery import Gossip

__all__ = ["Arrivals", "CodedEvent", "SchemeOutcome", "coded_outcome", "gossip_outcome", "path_arrivals"]

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CodedEvent:
    """An event: its plain packets, the coded ones sent in addition, the field of the symbols, bytes of a packet."""

    packets: int
    coded: int
    field_bits: int
    packet_bytes: float = 1000.0

    @property
    def sent(self) -> int:
        return self.packets + self.coded


@dataclass(frozen=True)
class Arrivals:
    """The packets that paths bring to the home brokers of an audience.

    `on_time` is the probability that an event is complete at a subscriber of each home broker by its paths alone.
    `ranks` are drawn (rows: draws, columns: home brokers), and `missing[rank]` is the distribution of what a subscriber
    misses whose home broker has so many independent packets. `at_once` is the part of the complete events that needed
    no making up by relays, `times_s` when these and the others are complete, and `lacking` what is missed between.
    """

    event: CodedEvent
    paths: PathSet
    on_time: Array
    is_exact: bool
    ranks: Ints
    missing: Array
    at_once: Array
    times_s: Array
    lacking: Array


@dataclass(frozen=True)
class SchemeOutcome:
    """The result of a scheme for an audience.

    `on_time` is by home broker, `recovered` the part of it that gossip brought. `delays` has, for each home broker,
    delays and their probabilities. `draws` is how many draws it rests on, None where nothing was drawn.
    """

    on_time: Array
    all_on_time: float
    recovered: Array
    delays: tuple[tuple[Array, Array], ...]
    messages: dict[str, float]
    how: str
    draws: int | None = None
    paths: PathSet | None = field(default=None, repr=False)


def path_arrivals(
    audience: Audience,
    paths: PathSet,
    event: CodedEvent,
    channel: ChannelAssumptions,
    samples: int,
    seed: int,
    flush_s: float = 0.05,
) -> Arrivals:
    """Follows the packets of an event along its paths; relays recode, and make up for losses after `flush_s`."""
    ways = [way for way in paths.ways if way is not None]
    drawn = sample_ranks(audience.source, event.sent, paths.links, ways, samples, seed)
    ranks = np.full((samples, len(paths.ways)), event.sent, dtype=np.int64)
    ranks[:, [i for i, way in enumerate(paths.ways) if way is not None]] = drawn
    decoded = decodes(event.packets, event.coded, event.field_bits)
    missing = _missing(event, channel)
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
    # Whether enough packets decode is drawn too, for all subscribers of a home broker together: they get the same.
    unlucky = (ranks >= event.packets) & (rng.random(ranks.shape) >= decoded[ranks])
    ranks = np.where(unlucky, event.packets - 1, ranks)
    on_time = missing[ranks, 0].mean(axis=0)
    exact = np.array([_exact(paths, i, event, channel) for i in range(len(paths.ways))])
    computed = ~np.isnan(exact)
    on_time = np.where(computed, exact, on_time)
    lacking = np.stack([_without_recoding(paths, i, event, channel) for i in range(len(paths.ways))])
    at_once = lacking[:, 0]
    # One relay after the other makes up for losses when it has heard nothing for a while.
    waits = flush_s * (paths.relays + bool(channel.access_loss))
    share = np.divide(at_once, on_time, out=np.ones_like(on_time), where=on_time > 0)
    # An event is complete after as many packets as it has plain ones, besides those lost before.
    enough = np.array([_part_needed(paths, i, event, channel) for i in range(len(paths.ways))])
    first_s = paths.latency_s + enough * (paths.arrival_s - paths.latency_s)
    times_s = np.stack([first_s, paths.arrival_s + waits])
    late = times_s >= audience.deadline_s
    if late.any():
        share = np.minimum(share, 1.0)
        in_time = np.where(late[0], 0.0, np.where(late[1], share, 1.0))
        on_time = on_time * in_time
        ranks = np.where(late[0][None, :], 0, ranks)
        share = np.where(late[1], 1.0, share)
    share = np.minimum(share, 1.0)
    is_exact = bool(computed.all()) and not paths.is_bursty
    return Arrivals(event, paths, on_time, is_exact, ranks, missing, share, times_s, lacking)


def coded_outcome(
    audience: Audience,
    arrivals: Arrivals,
    peers: PeerConnections,
    gossip: Gossip | None,
    channel: ChannelAssumptions,
    seed: int,
) -> SchemeOutcome:
    """Returns the outcome of coding, with gossip for missing packets if the scenario has it."""
    event, paths = arrivals.event, arrivals.paths
    messages = {"data": float(paths.messages)}
    draws = len(arrivals.ranks)
    if gossip is None or not _gossips(event, gossip):
        all_on_time = float(np.prod(arrivals.missing[arrivals.ranks, 0] ** audience.weights, axis=1).mean())
        delays = tuple(_path_delays(arrivals, i) for i in range(len(audience.homes)))
        how, drawn = ("exact", None) if arrivals.is_exact and not paths.relays.any() else ("approximation", draws)
        nothing = np.zeros(len(audience.homes))
        return SchemeOutcome(arrivals.on_time, all_on_time, nothing, delays, messages, how, drawn, paths=paths)
    group = _group(audience, event, gossip, has_publisher=False)
    story = _story(audience, arrivals, channel, seed)
    gossiped = gossip_draws(group, gossip, peers, draws, seed, story)
    messages |= gossiped.messages
    before = arrivals.missing[arrivals.ranks, 0].mean(axis=0)
    # What the paths alone bring is known better than the draws say; gossip is for the rest.
    rest = np.divide(gossiped.complete - before, 1.0 - before, out=np.zeros_like(before), where=before < 1.0)
    on_time = np.minimum(arrivals.on_time + np.maximum(rest, 0.0) * (1.0 - arrivals.on_time), 1.0)
    helped = np.minimum(gossiped.helped, on_time)
    used = draws_of(group, gossip, draws)
    return SchemeOutcome(
        on_time, gossiped.everyone, helped, gossiped.delays, messages, "approximation", used, paths=paths
    )


def gossip_outcome(
    audience: Audience, event: CodedEvent, peers: PeerConnections, gossip: Gossip, draws: int, seed: int
) -> SchemeOutcome:
    """Returns the outcome of gossip alone: only the publisher has the event at first; plain packets are requested by
    number.
    """
    if not _gossips(event, gossip):
        nothing = np.zeros(len(audience.homes))
        empty = tuple((np.zeros(0), np.zeros(0)) for _ in audience.homes)
        return SchemeOutcome(nothing, 0.0, nothing, empty, {}, "approximation")
    group = _group(audience, event, gossip, has_publisher=True)
    gossiped = gossip_draws(group, gossip, peers, draws, seed)
    used = draws_of(group, gossip, draws)
    return SchemeOutcome(
        gossiped.complete, gossiped.everyone, gossiped.helped, gossiped.delays, gossiped.messages, "approximation", used
    )


def _gossips(event: CodedEvent, gossip: Gossip) -> bool:
    """Returns whether there is a round to gossip in, and buffer space to keep an event."""
    return gossip.rounds > 0 and gossip.buffer_size >= event.packets


def _group(audience: Audience, event: CodedEvent, gossip: Gossip, has_publisher: bool) -> GossipGroup:
    """Returns the group of an audience. Gossip alone sends plain packets by their numbers."""
    # An event is kept for others until so many packets of later events have taken its place.
    kept_s = gossip.buffer_size // event.packets / audience.rate_per_s if audience.rate_per_s else math.inf
    sizes = tuple(len(members) for members in audience.members)
    return GossipGroup(
        sizes, has_publisher, event.packets, not has_publisher, event.field_bits, audience.deadline_s, kept_s
    )


def _story(audience: Audience, arrivals: Arrivals, channel: ChannelAssumptions, seed: int) -> PathStory:
    """Draws of what subscribers miss when the last packet has come, and after relays have made up for losses."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(4,)))
    ranks, columns = arrivals.ranks, np.arange(len(audience.homes))
    if channel.access_loss:  # each subscriber loses packets of its own
        columns = np.repeat(columns, [len(members) for members in audience.members])
        ranks = ranks[:, columns]
    final = np.empty_like(ranks)
    first = np.empty_like(ranks)
    below = np.cumsum(arrivals.missing, axis=1)
    for column, home in enumerate(columns):
        mine = below[ranks[:, column]]
        final[:, column] = (rng.random((len(mine), 1)) >= mine[:, :-1]).sum(axis=1)
        # Before relays have made up for losses no fewer are missed.
        lacking = np.cumsum(arrivals.lacking[home])
        least = np.where(final[:, column] > 0, lacking[final[:, column] - 1], lacking[0])
        chance = least + rng.random(len(mine)) * np.maximum(lacking[-1] - least, 0.0)
        drawn = np.searchsorted(lacking[:-1], chance, side="right")
        at_once = (final[:, column] == 0) & (rng.random(len(mine)) < arrivals.at_once[home])
        first[:, column] = np.where(at_once, 0, np.maximum(drawn, final[:, column]))
    return PathStory(arrivals.paths.latency_s, arrivals.times_s[0], arrivals.times_s[1], first, final)


def _missing(event: CodedEvent, channel: ChannelAssumptions) -> Array:
    """Returns P[a subscriber misses d | rank at its home broker], for d = 0 to all."""
    table = np.zeros((event.sent + 1, event.packets + 1))
    if not channel.access_loss:
        for rank in range(event.sent + 1):
            table[rank, max(0, event.packets - rank)] = 1.0
        return table
    hop = hop_matrix(event.sent, channel.access_loss, event.field_bits)
    decoded = decodes(event.packets, event.coded, event.field_bits)
    for rank in range(event.sent + 1):
        lower = hop[rank]
        for got in range(event.packets):
            table[rank, event.packets - got] += lower[got]
        enough = float(lower[event.packets :] @ decoded[event.packets :])
        table[rank, 0] = enough
        table[rank, 1] += float(lower[event.packets :].sum()) - enough
    return table


def _exact(paths: PathSet, home: int, event: CodedEvent, channel: ChannelAssumptions) -> float:
    """Returns the probability that paths alone suffice where a chain of ranks gives it; NaN where paths share links."""
    if paths.ways[home] is None and not channel.access_loss:
        return 1.0
    if not paths.is_single and paths.ways[home] is not None:
        return math.nan
    hops = paths.hops[home][0] if paths.hops[home] else ()
    return on_paths_probability(event.packets, event.coded, [_way(hops, channel)], event.field_bits)


def _way(hops: tuple[Hop, ...], channel: ChannelAssumptions) -> LossyPath:
    """Returns the links of a path, and the last hop to a subscriber."""
    hops = (*hops, (channel.access_loss, None)) if channel.access_loss else hops
    return LossyPath(tuple(loss for loss, _ in hops), bursts=tuple(burst for _, burst in hops))


def _part_needed(paths: PathSet, home: int, event: CodedEvent, channel: ChannelAssumptions) -> float:
    """Returns the share of the packets sent to a home broker after which an event is complete, where enough of them
    arrive.
    """
    hops = paths.hops[home] or ((),)
    shares = paths.shares[home] or (event.sent,)
    passed = math.fsum(share * _way(path, channel).success for share, path in zip(shares, hops, strict=True))
    return min(1.0, event.packets / passed)


def _without_recoding(paths: PathSet, home: int, event: CodedEvent, channel: ChannelAssumptions) -> Array:
    """Returns P[a subscriber misses d packets] before any relay has made up for losses, for d = 0 to all."""
    missing = np.zeros(event.packets + 1)
    hops = paths.hops[home] or ((),)
    shares = paths.shares[home] or (event.sent,)
    total = np.ones(1)
    for share, path in zip(shares, hops, strict=True):
        total = np.convolve(total, end_ranks(share, _way(path, channel), event.field_bits, recode=False))
    decoded = decodes(event.packets, event.coded, event.field_bits)
    missing[0] = total @ decoded
    missing[1:] = total[: event.packets][::-1]
    missing[1] += max(0.0, float(total[event.packets :].sum()) - missing[0])
    return missing


def _path_delays(arrivals: Arrivals, home: int) -> tuple[Array, Array]:
    """Returns delays of the events that paths complete: at once, and after making up."""
    whole, share = arrivals.on_time[home], arrivals.at_once[home]
    return arrivals.times_s[:, home], np.array([whole * share, whole * (1.0 - share)])


def quantile(delays: Sequence[tuple[Array, Array]], weights: Array, q: float) -> float:
    """Returns a quantile of the delays of the events that arrive; NaN where none does."""
    times_s = np.concatenate([times for times, _ in delays])
    masses = np.concatenate([mass * weight for (_, mass), weight in zip(delays, weights, strict=True)])
    if masses.sum() <= 0.0:
        return math.nan
    order = np.argsort(times_s, kind="stable")
    below = np.cumsum(masses[order]) / masses.sum()
    return float(times_s[order][min(int(np.searchsorted(below, q - 1e-12)), len(order) - 1)])


def mean_delay(delays: Sequence[tuple[Array, Array]], weights: Array) -> float:
    """Returns the mean delay of the events that arrive; NaN where none does."""
    mass = math.fsum(float(m.sum()) * w for (_, m), w in zip(delays, weights, strict=True))
    if mass <= 0.0:
        return math.nan
    return math.fsum(float(t @ m) * w for (t, m), w in zip(delays, weights, strict=True)) / mass
