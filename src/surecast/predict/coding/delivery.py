"""What an audience gets of an event: over paths with coding, and by gossip for what is left."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from surecast.predict.coding.chains import LossyPath, decodes, end_ranks, hop_matrix, on_paths_probability
from surecast.predict.coding.early import early_exchange
from surecast.predict.coding.gossip import GossipLaw, Success, completed, recover, rounds_in_time
from surecast.predict.coding.multicast import sample_ranks
from surecast.predict.coding.network import Audience, Channel, Hop, PathSet, Peers
from surecast.scenario.spec.delivery import Gossip

__all__ = ["Arrivals", "Event", "Outcome", "coded_outcome", "gossip_outcome", "path_arrivals"]

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_BINS_MAX: Final = 24
"""So many numbers of subscribers that are complete at first are told apart."""


@dataclass(frozen=True, slots=True)
class Event:
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
    """What paths bring to the home brokers of an audience.

    `on_time` is the probability that an event is complete at a subscriber of each home broker by its paths alone.
    `ranks` are drawn (rows: draws, columns: home brokers), and `missing[rank]` is the distribution of what a subscriber
    misses whose home broker has so many independent packets. `at_once` is the part of the complete events that needed
    no making up by relays, `times_s` when these and the others are complete, and `lacking` what is missed between.
    """

    event: Event
    paths: PathSet
    on_time: Array
    is_exact: bool
    ranks: Ints
    missing: Array
    at_once: Array
    times_s: Array
    lacking: Array


@dataclass(frozen=True)
class Outcome:
    """What a scheme does for an audience.

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
    notes: tuple[str, ...] = ()
    paths: PathSet | None = field(default=None, repr=False)


def path_arrivals(
    audience: Audience,
    paths: PathSet,
    event: Event,
    channel: Channel,
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
    known = ~np.isnan(exact)
    on_time = np.where(known, exact, on_time)
    lacking = np.stack([_without_recoding(paths, i, event, channel) for i in range(len(paths.ways))])
    at_once = lacking[:, 0]
    # One relay after the other makes up for losses when it has heard nothing for a while.
    waits = flush_s * (paths.relays + bool(channel.access_loss))
    share = np.divide(at_once, on_time, out=np.ones_like(on_time), where=on_time > 0)
    # An event is complete with as many packets as it has plain ones, and those that are lost before them.
    enough = np.array([_part_needed(paths, i, event, channel) for i in range(len(paths.ways))])
    first_s = paths.latency_s + enough * (paths.arrival_s - paths.latency_s)
    times_s = np.stack([first_s, paths.arrival_s + waits])
    late = times_s >= audience.deadline_s
    if late.any():
        share = np.minimum(share, 1.0)
        kept = np.where(late[0], 0.0, np.where(late[1], share, 1.0))
        on_time = on_time * kept
        ranks = np.where(late[0][None, :], 0, ranks)
        share = np.where(late[1], 1.0, share)
    share = np.minimum(share, 1.0)
    is_exact = bool(known.all()) and not paths.is_bursty
    return Arrivals(event, paths, on_time, is_exact, ranks, missing, share, times_s, lacking)


def coded_outcome(audience: Audience, arrivals: Arrivals, peers: Peers, gossip: Gossip | None) -> Outcome:
    """Coding, with gossip for what is missing where there is any."""
    event, paths = arrivals.event, arrivals.paths
    messages = {"data": float(paths.messages)}
    draws = len(arrivals.ranks)
    law, steps, start_s, exchange_s = _gossip_frame(audience, event, peers, gossip, arrivals)
    if law is None or gossip is None or not steps:
        all_on_time = float(np.prod(arrivals.missing[arrivals.ranks, 0] ** audience.weights, axis=1).mean())
        delays = tuple(_path_delays(arrivals, i) for i in range(len(audience.homes)))
        how, drawn = ("exact", None) if arrivals.is_exact and not paths.relays.any() else ("approximation", draws)
        nothing = np.zeros(len(audience.homes))
        return Outcome(arrivals.on_time, all_on_time, nothing, delays, messages, how, drawn, paths=paths)
    counts = np.zeros((draws, event.packets + 1))
    for column, weight in enumerate(audience.weights):
        counts += weight * arrivals.missing[arrivals.ranks[:, column]]
    by_draw = np.zeros((draws, len(audience.homes)))
    spread = np.zeros(steps)
    for rows in _bins(counts[:, 0]):
        mean = counts[rows].mean(axis=0)
        found = recover(law, mean, peers.success, steps)
        for kind, amount in found.spread.messages.items():
            messages[kind] = messages.get(kind, 0.0) + amount * len(rows) / draws
        spread += np.diff(found.spread.complete) * len(rows) / draws
        for own, columns in _alike(peers.own_success):
            chance = arrivals.missing @ completed(law, found.spread, own)
            by_draw[np.ix_(rows, columns)] = chance[arrivals.ranks[np.ix_(rows, columns)]]
    before = arrivals.missing[arrivals.ranks, 0].mean(axis=0)
    # What the paths alone bring is known better than the draws say; gossip is for the rest.
    rest = np.divide(by_draw.mean(axis=0) - before, 1.0 - before, out=np.zeros_like(before), where=before < 1.0)
    recovered = np.maximum(rest, 0.0) * (1.0 - arrivals.on_time)
    all_on_time = float(np.prod(by_draw**audience.weights, axis=1).mean())
    step_s = gossip.interval * law.overlap
    when = start_s + exchange_s + step_s * np.arange(steps, dtype=np.float64)
    if spread.sum() > 0.0:
        spread = spread / spread.sum()
    early = early_exchange(
        law,
        audience.weights,
        arrivals.on_time * arrivals.at_once,
        arrivals.lacking,
        arrivals.times_s,
        peers.latency_s,
        peers.success,
        gossip.interval,
        gossip.patience,
    )
    for kind, amount in (("request", early.requests), ("reply", early.replies)):
        if kind in messages:
            messages[kind] += amount
    sooner = np.minimum(early.completed, arrivals.on_time * (1.0 - arrivals.at_once))
    delays = tuple(
        _joined(_path_delays(arrivals, i, sooner[i], exchange_s), (when, spread * recovered[i]))
        for i in range(len(audience.homes))
    )
    on_time = np.minimum(arrivals.on_time + recovered, 1.0)
    recovered = recovered + sooner
    return Outcome(on_time, all_on_time, recovered, delays, messages, "approximation", draws, _notes(law), paths)


def gossip_outcome(audience: Audience, event: Event, peers: Peers, gossip: Gossip) -> Outcome:
    """Gossip alone: the publisher has the event, and all others have nothing; plain packets are asked for by number."""
    frame = _gossip_frame(audience, event, peers, gossip, None)
    law, steps, start_s, exchange_s = frame
    homes = len(audience.homes)
    if law is None or not steps:
        nothing = np.zeros(homes)
        empty = tuple((np.zeros(0), np.zeros(0)) for _ in range(homes))
        return Outcome(nothing, 0.0, nothing, empty, {}, "approximation")
    law = replace(law, members=audience.size + 1, coded=False)
    missing = np.zeros(event.packets + 1)
    missing[0], missing[-1] = 1.0, audience.size
    found = recover(law, missing, peers.success, steps)
    on_time = np.array([completed(law, found.spread, own)[-1] for own in peers.own_success])
    when: Array = start_s + exchange_s + gossip.interval * law.overlap * np.arange(steps, dtype=np.float64)
    spread = np.diff(found.spread.complete)
    spread = spread / spread.sum() if spread.sum() > 0.0 else spread
    delays = tuple((when, spread * p) for p in on_time)
    all_on_time = float(np.prod(on_time**audience.weights))
    return Outcome(
        on_time, all_on_time, on_time, delays, dict(found.spread.messages), "approximation", notes=_notes(law)
    )


def _gossip_frame(
    audience: Audience, event: Event, peers: Peers, gossip: Gossip | None, arrivals: Arrivals | None
) -> tuple[GossipLaw | None, int, float, float]:
    """The law of gossip, the steps of it that fit, when it starts and how long an exchange takes."""
    if gossip is None or gossip.rounds == 0 or gossip.buffer_size < event.packets:
        return None, 0, 0.0, 0.0
    parts = 1 if gossip.mode == "push" else 3
    answer_s = (parts - 1) * peers.mean_latency_s
    exchange_s = parts * peers.mean_latency_s + (gossip.patience if parts > 1 else 0.0)
    start_s = 0.0
    if arrivals is not None:
        times_s = arrivals.at_once * arrivals.times_s[0] + (1.0 - arrivals.at_once) * arrivals.times_s[1]
        start_s = float(times_s @ audience.weights / audience.weights.sum())
    if gossip.mode == "pull":
        start_s += 0.5 * gossip.interval
    overlap = max(1, math.ceil(answer_s / gossip.interval - 1e-9))
    # An event is kept for others until so many packets of later events have taken its place.
    kept_s = gossip.buffer_size // event.packets / audience.rate_per_s if audience.rate_per_s else math.inf
    end_s = min(audience.deadline_s, start_s + kept_s)
    rounds = rounds_in_time(end_s, start_s, gossip.interval, exchange_s, "push-pull")
    law = GossipLaw(
        gossip.mode,
        audience.size,
        event.packets,
        gossip.fan_out,
        gossip.rounds,
        event.field_bits,
        overlap=overlap,
        pushed=gossip.push_packets,
    )
    # Beyond this nobody offers, asks or answers any more, or everybody has the event long since.
    most = 2 * law.tries + 2 * math.ceil(math.log2(audience.size + 2))
    return law, min(-(-rounds // overlap), most), start_s, exchange_s


def _missing(event: Event, channel: Channel) -> Array:
    """P[a subscriber misses d | its home broker has so many independent packets], for d = 0 to all."""
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


def _exact(paths: PathSet, home: int, event: Event, channel: Channel) -> float:
    """The probability that paths alone suffice where a chain of ranks gives it; NaN where paths share links."""
    if paths.ways[home] is None and not channel.access_loss:
        return 1.0
    if not paths.is_single and paths.ways[home] is not None:
        return math.nan
    hops = paths.hops[home][0] if paths.hops[home] else ()
    return on_paths_probability(event.packets, event.coded, [_way(hops, channel)], event.field_bits)


def _way(hops: tuple[Hop, ...], channel: Channel) -> LossyPath:
    """The links of a path, and the last hop to a subscriber."""
    hops = (*hops, (channel.access_loss, None)) if channel.access_loss else hops
    return LossyPath(tuple(loss for loss, _ in hops), bursts=tuple(burst for _, burst in hops))


def _part_needed(paths: PathSet, home: int, event: Event, channel: Channel) -> float:
    """The part of the packets sent to a home broker after which an event is complete, where enough of them come."""
    hops = paths.hops[home] or ((),)
    shares = paths.shares[home] or (event.sent,)
    passed = math.fsum(share * _way(path, channel).success for share, path in zip(shares, hops, strict=True))
    return min(1.0, event.packets / passed)


def _without_recoding(paths: PathSet, home: int, event: Event, channel: Channel) -> Array:
    """P[a subscriber misses d packets] as long as no relay has made up for losses, for d = 0 to all."""
    found = np.zeros(event.packets + 1)
    hops = paths.hops[home] or ((),)
    shares = paths.shares[home] or (event.sent,)
    total = np.ones(1)
    for share, path in zip(shares, hops, strict=True):
        total = np.convolve(total, end_ranks(share, _way(path, channel), event.field_bits, recode=False))
    decoded = decodes(event.packets, event.coded, event.field_bits)
    found[0] = total @ decoded
    found[1:] = total[: event.packets][::-1]
    found[1] += max(0.0, float(total[event.packets :].sum()) - found[0])
    return found


def _path_delays(arrivals: Arrivals, home: int, sooner: float = 0.0, exchange_s: float = 0.0) -> tuple[Array, Array]:
    """Delays of the events that paths complete: at once, with early help of others, and after making up."""
    whole, share = arrivals.on_time[home], arrivals.at_once[home]
    first_s, last_s = arrivals.times_s[:, home]
    times_s = np.array([first_s, min(first_s + exchange_s, last_s), last_s])
    return times_s, np.array([whole * share, sooner, max(0.0, whole * (1.0 - share) - sooner)])


def _joined(one: tuple[Array, Array], other: tuple[Array, Array]) -> tuple[Array, Array]:
    return np.concatenate([one[0], other[0]]), np.concatenate([one[1], other[1]])


def _bins(complete: Array) -> list[NDArray[np.intp]]:
    """Draws with about equally many complete subscribers; those with none on their own."""
    none = np.flatnonzero(complete < 0.5)
    some = np.flatnonzero(complete >= 0.5)
    ordered = some[np.argsort(complete[some], kind="stable")]
    parts = np.array_split(ordered, min(_BINS_MAX, max(1, len(ordered))))
    return [part for part in (none, *parts) if len(part)]


def _alike(values: Sequence[Success]) -> list[tuple[Success, NDArray[np.intp]]]:
    """Equal values, and where they stand."""
    places: dict[Success, list[int]] = {}
    for i, value in enumerate(values):
        places.setdefault(value, []).append(i)
    return [(value, np.array(where, dtype=np.intp)) for value, where in places.items()]


def _notes(law: GossipLaw) -> tuple[str, ...]:
    if law.overlap > 1:
        return (f"gossip: an answer takes longer than a round, so that {law.overlap} requests are under way at a time",)
    return ()


def quantile(delays: Sequence[tuple[Array, Array]], weights: Array, q: float) -> float:
    """A quantile of the delays of the events that arrive; NaN where none does."""
    times_s = np.concatenate([times for times, _ in delays])
    masses = np.concatenate([mass * weight for (_, mass), weight in zip(delays, weights, strict=True)])
    if masses.sum() <= 0.0:
        return math.nan
    order = np.argsort(times_s, kind="stable")
    below = np.cumsum(masses[order]) / masses.sum()
    return float(times_s[order][min(int(np.searchsorted(below, q - 1e-12)), len(order) - 1)])


def mean_delay(delays: Sequence[tuple[Array, Array]], weights: Array) -> float:
    """The mean delay of the events that arrive; NaN where none does."""
    mass = math.fsum(float(m.sum()) * w for (_, m), w in zip(delays, weights, strict=True))
    if mass <= 0.0:
        return math.nan
    return math.fsum(float(t @ m) * w for (t, m), w in zip(delays, weights, strict=True)) / mass
