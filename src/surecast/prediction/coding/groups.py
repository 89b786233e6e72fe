"""Gossip among the subscribers of an event, in random draws.

`coded delivery` section IV: a member that has the event announces it to some peers, round by round, or pushes packets
to them. A member that misses packets requests as many from one that announced the event. Each draw follows all members
in time, with the losses and latencies between their home brokers, partial views, retries, patience and the limit of
answers. Of an answer only the number of packets that get through is drawn, not the packets themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from surecast.prediction.coding.bursty_links import GilbertElliott
from surecast.prediction.coding.group_kernel import (
    DIGEST,
    PULL,
    PUSH,
    PUSH_PULL,
    REPLY,
    REQUEST,
    Laws,
    PathArrivals,
    Ways,
    follow_groups,
    new_state,
)
from surecast.scenario.spec.delivery import Gossip

__all__ = ["VIEW_SIZE", "GossipGroup", "GroupAnswer", "PathStory", "PeerConnections", "gossip_draws"]

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

VIEW_SIZE: Final = 30
"""Peers in a subscriber's partial view of its group."""
MESSAGES_MAX: Final = 2_500_000
"""Announcements followed in all draws together: large groups have fewer draws, as each tells more."""
DRAWS_MIN: Final = 200
_MODES: Final = {"push": PUSH, "push-pull": PUSH_PULL, "pull": PULL}
_BINS: Final = 1000
_AT_A_TIME: Final = 250


@dataclass(frozen=True)
class PeerConnections:
    """The connections between sites: success probability and latency of a message between each two.

    Where links lose in bursts `links` has (loss, burst) of each, a link having a number for each direction, and `ways`
    the numbers of those from site to site, row by row; `beside` is the chance to get through what else may lose.
    """

    success: Array
    latency_s: Array
    links: tuple[tuple[float, float | None], ...] = ()
    ways: tuple[tuple[int, ...], ...] = ()
    beside: float = 1.0

    def arrays(self, site: Ints) -> Ways:
        """Returns the arrays of the kernel for members at these sites."""
        first = np.concatenate([[0], np.cumsum([len(way) for way in self.ways])]).astype(np.int64)
        way = np.array([link for way in self.ways for link in way], dtype=np.int64)
        loss = np.array([loss for loss, _ in self.links])
        states = [GilbertElliott.of_loss(loss, burst) for loss, burst in self.links]
        bad, good = (
            np.array([getattr(channel, name) for channel in states]) for name in ("good_to_bad", "bad_to_good")
        )
        return Ways(site, self.success, self.latency_s, first, way, loss, bad, good, self.beside)


@dataclass(frozen=True)
class GossipGroup:
    """Members by site, `sizes` of them at each of the first sites; a publisher that gossips has the last site."""

    sizes: tuple[int, ...]
    has_publisher: bool
    packets: int
    coded: bool
    field_bits: int
    deadline_s: float
    kept_s: float = math.inf
    view_size: int = VIEW_SIZE

    @property
    def members(self) -> int:
        return sum(self.sizes)

    def sites(self) -> Ints:
        sites = np.repeat(np.arange(len(self.sizes)), self.sizes)
        return np.append(sites, len(self.sizes)) if self.has_publisher else sites

    def laws(self, gossip: Gossip) -> Laws:
        pushed = self.packets if gossip.push_packets is None else min(gossip.push_packets, self.packets)
        return Laws(
            _MODES[gossip.mode],
            self.members,
            self.has_publisher,
            self.packets,
            self.coded,
            2.0**-self.field_bits,
            gossip.fan_out,
            self.view_size,
            gossip.rounds,
            gossip.interval,
            gossip.patience,
            pushed,
            self.kept_s,
            self.deadline_s,
        )


@dataclass(frozen=True)
class PathStory:
    """The packets that paths bring, by site: packets come from `first_s` to `last_s`, and relays make up for losses at
    `again_s`.

    `missed` and `missed_again` are what is missed after each, in draws (rows), by site or by member (columns).
    """

    first_s: Array
    last_s: Array
    again_s: Array
    missed: Ints
    missed_again: Ints


@dataclass(frozen=True)
class GroupAnswer:
    """The result for an event: the probability that a member of each site completes it in time, that a peer has
    completed it, and that all complete it; delays with their probabilities by site, and messages.
    """

    complete: Array
    helped: Array
    everyone: float
    delays: tuple[tuple[Array, Array], ...]
    messages: dict[str, float]


def draws_of(group: GossipGroup, gossip: Gossip, draws: int) -> int:
    """Returns `draws`, or fewer where each draw has many announcements."""
    announcements = (group.members + 1) * gossip.rounds * min(gossip.fan_out, group.members)
    return min(draws, max(DRAWS_MIN, MESSAGES_MAX // max(announcements, 1)))


def gossip_draws(
    group: GossipGroup, gossip: Gossip, peers: PeerConnections, draws: int, seed: int, story: PathStory | None = None
) -> GroupAnswer:
    """Follows an event in a group. Without a story of paths only the publisher has it at first.

    Of a story, draws in which somebody misses packets in the end come first: they tell more.

    >>> near = PeerConnections(np.full((2, 2), 0.9), np.full((2, 2), 0.01))
    >>> group = GossipGroup((3,), True, packets=8, coded=False, field_bits=8, deadline_s=2.0)
    >>> answer = gossip_draws(group, Gossip(fan_out=2, rounds=4), near, draws=2000, seed=1)
    >>> bool(answer.everyone > 0.99), bool(answer.messages["digest"] > 30.0)
    (True, True)
    """
    wanted = draws_of(group, gossip, draws)
    if story is None:
        parts: Sequence[tuple[float, Ints]] = [(1.0, np.arange(wanted))]
    else:
        parts = _strata(story.missed_again.max(axis=1) > 0, wanted)
    sites = len(peers.success)
    words = np.random.SeedSequence(seed, spawn_key=(3,)).generate_state(1, np.uint64)
    ways, laws = peers.arrays(group.sites()), group.laws(gossip)
    state = new_state(laws, ways, 16 * group.members + 1024)
    accounts = _Accounts(group)
    for weight, rows in parts:
        for some in np.array_split(rows, -(-len(rows) // _AT_A_TIME)):
            if story is None:
                never = np.full(sites, math.inf)
                nothing = np.full((len(some), sites), group.packets)
                arrival = PathArrivals(never, never, never, nothing, nothing)
            else:
                missed = np.ascontiguousarray(story.missed[some]), np.ascontiguousarray(story.missed_again[some])
                arrival = PathArrivals(story.first_s, story.last_s, story.again_s, *missed)
            by_site = arrival.missed.shape[1] == sites
            done_s = np.empty((len(some), group.members))
            helped = np.empty(done_s.shape, dtype=np.bool_)
            counts = np.zeros(3, dtype=np.int64)
            done = 0
            while done < len(some):
                done = follow_groups(words, laws, ways, arrival, state, by_site, done, done_s, helped, counts)
                if done < len(some):
                    state = new_state(laws, ways, 2 * len(state.queue.times_s))
            accounts.add(weight / len(rows), done_s, helped, counts)
    return accounts.answer(gossip)


def _strata(lacks: NDArray[np.bool_], wanted: int) -> list[tuple[float, Ints]]:
    """Draws that lack something and draws that do not, each with its part of all draws; at least half of the first."""
    needy, whole = np.flatnonzero(lacks), np.flatnonzero(~lacks)
    most = max(wanted // 2, wanted - len(whole))
    chosen = [(len(needy) / len(lacks), needy[:most]), (len(whole) / len(lacks), whole[: wanted - len(needy[:most])])]
    return [(weight, rows) for weight, rows in chosen if len(rows)]


class _Accounts:
    """Sums over draws, by site."""

    def __init__(self, group: GossipGroup):
        self.group = group
        self.firsts = np.concatenate([[0], np.cumsum(group.sizes)])
        sites = len(group.sizes)
        self.complete, self.helped = np.zeros(sites), np.zeros(sites)
        self.chance, self.time_s = np.zeros((sites, _BINS)), np.zeros((sites, _BINS))
        self.everyone = 0.0
        self.counts = np.zeros(3)

    def add(self, weight: float, done_s: Array, helped: NDArray[np.bool_], counts: Ints) -> None:
        """Takes in some draws, each of this weight."""
        self.everyone += weight * float(np.isfinite(done_s).all(axis=1).sum())
        self.counts += weight * counts
        for site, (first, end) in enumerate(zip(self.firsts, self.firsts[1:], strict=False)):
            times_s = done_s[:, first:end]
            times_s = times_s[np.isfinite(times_s)]
            part = weight / max(end - first, 1)
            self.complete[site] += part * len(times_s)
            self.helped[site] += part * float(helped[:, first:end].sum())
            bins = np.minimum((times_s * (_BINS / self.group.deadline_s)).astype(np.int64), _BINS - 1)
            self.chance[site] += part * np.bincount(bins, minlength=_BINS)
            self.time_s[site] += part * np.bincount(bins, weights=times_s, minlength=_BINS)

    def answer(self, gossip: Gossip) -> GroupAnswer:
        delays = []
        for chance, time_s in zip(self.chance, self.time_s, strict=True):
            some = chance > 0.0
            delays.append((time_s[some] / chance[some], chance[some]))
        if gossip.mode == "push":
            messages = {"push": float(self.counts[REPLY])}
        else:
            kinds = {"digest": DIGEST, "request": REQUEST, "reply": REPLY}
            messages = {kind: float(self.counts[site]) for kind, site in kinds.items()}
        complete, helped = np.minimum(self.complete, 1.0), np.minimum(self.helped, 1.0)
        return GroupAnswer(complete, helped, min(self.everyone, 1.0), tuple(delays), messages)
