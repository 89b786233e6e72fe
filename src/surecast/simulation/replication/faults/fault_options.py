"""The options that one seed expands into: the group, its load, and its faults."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, replace

from surecast.protocol.paxos import PaxosSettings, Variant

__all__ = ["GroupOptions", "divided", "expand", "forgetful", "harsher", "overtaking", "stalled"]


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """One run. Probabilities are for each message or each chance; times are of the world's clock.

    Group: `replicas` of `variant` with the given settings. Load: `clients` with `requests` each, `in_flight` of them at
    a time, on `keys` keys. Network: `loss`, `duplication`, delays of `delay_s` on average, ten times that for the share
    `straggling`, a partition about every `partition_every_s`, of one direction only for the share `one_way`. Replicas:
    a crash at a durability point with probability `crash`, down for `down_s` on average, the unsynced commits lost or
    (for the share `torn`) kept up to a random one; clocks off by up to `drift`. Disks: `disk_s` for a commit on
    average, five times that for the share `slow_disk` of the replicas. `replacements` replicas are replaced by blank
    ones. `wire`: messages go through the codec. `batching_delay_s`: how long leaders collect, and keep to themselves
    what is chosen, where proposals follow each other. `lazy_delay`: how many mean delays they hold proposals back from
    those whose
    votes they need not; about every `urgent_every_s` somebody begins or ceases to wait at a replica. `apply_early`:
    share of turns in which what is chosen is applied between sending and storing. `selective`: share of the times
    between partitions in which some replicas hear only some kinds of messages of each other; `split`: likewise, for one
    that leads and is cut off from a majority. `to_leader`: share of requests that go to a replica that leads; at one
    that forwards, somebody waits. `wrong_clocks_s`: the wall clocks of as many replicas as may fail are off by up to
    this, ahead or behind, and are set to another wrong time about every `clock_every_s`. `set_back`: share of the
    replaced replicas that come back with an older copy of their disk, or with none. `checked`: replicas that start are
    checked by the others; without it a replica that breaks the protocol is not refused before that shows. `stall_s`:
    about every `stall_every_s` some replicas do not run for so long on average, and then have everything at once;
    `steady`: all of them, or a follower, so that nobody has a reason to lead in the place of the leader.
    Faults end after `faults_s`; all must be well `heal_s` later.
    """

    seed: int
    replicas: int
    variant: Variant
    allow_direct: bool
    alpha: int
    snapshot_every: int
    log_keep: int
    fetch_bytes_max: int
    vote_window: int
    suspect_s: float
    clients: int
    requests: int
    in_flight: int
    keys: int
    loss: float
    duplication: float
    delay_s: float
    straggling: float
    partition_every_s: float
    one_way: float
    crash: float
    down_s: float
    torn: float
    drift: float
    disk_s: float
    slow_disk: float
    replacements: int
    wire: bool
    batching_delay_s: float
    lazy_delay: float
    urgent_every_s: float
    apply_early: float
    selective: float
    to_leader: float
    split: float
    wrong_clocks_s: float = 0.0
    clock_every_s: float = 1e9
    set_back: float = 0.0
    checked: bool = True
    stall_s: float = 0.0
    stall_every_s: float = 1e9
    steady: bool = False
    faults_s: float = 8.0
    heal_s: float = 40.0

    @property
    def settings(self) -> PaxosSettings:
        """The settings of the replicas: slower than in production, so that a run has fewer events."""
        return PaxosSettings(
            variant=self.variant,
            allow_direct=self.allow_direct,
            alpha=self.alpha,
            heartbeat_s=self.suspect_s / 4,
            suspect_s=self.suspect_s,
            election_step_s=self.suspect_s / 4,
            backoff_s=self.suspect_s * 0.75,
            resend_s=0.15,
            retry_s=0.6,
            recover_s=0.08,
            proposal_interval_s=self.batching_delay_s,
            commit_notification_s=self.batching_delay_s,
            lazy_delay_s=self.lazy_delay * self.delay_s,
            cooldown_s=0.5,
            snapshot_every=self.snapshot_every,
            log_keep=self.log_keep,
            fetch_bytes_max=self.fetch_bytes_max,
            vote_window=self.vote_window,
            value_bytes_max=400,
            queue_bytes_max=100_000,
            reply_window=8,
        )

    def __str__(self) -> str:
        return " ".join(
            f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}"
            for name, value in asdict(self).items()
        )


def expand(seed: int, replicas: int = 3, variant: Variant = "multi") -> GroupOptions:
    """The options of a seed: some runs are calm, some lose half of all messages.

    >>> expand(1, 5, "fast") == expand(1, 5, "fast")
    True
    """
    rng = random.Random(f"{seed} {replicas} {variant}")
    later = random.Random(f"{seed} {replicas} {variant} what was added later")  # the other draws stay as they were
    alpha = rng.choice((1, 2, 3, 10))
    return GroupOptions(
        seed=seed,
        replicas=replicas,
        variant=variant,
        allow_direct=rng.random() < 0.8,
        alpha=alpha,
        snapshot_every=rng.choice((3, 10, 1000)),
        log_keep=rng.choice((0, 3, 20)),
        fetch_bytes_max=rng.choice((100, 2_000, 1 << 20)),
        vote_window=alpha + rng.choice((0, 5, 50)),
        suspect_s=rng.choice((0.12, 0.4)),
        clients=rng.randint(2, 6),
        requests=rng.randint(5, 25),
        in_flight=rng.choice((1, 1, 4)),
        keys=rng.randint(1, 4),
        loss=rng.choice((0.0, 0.02, 0.1, 0.3)),
        duplication=rng.choice((0.0, 0.05, 0.3)),
        delay_s=rng.choice((0.002, 0.01, 0.04)),
        straggling=rng.choice((0.0, 0.02, 0.1)),
        partition_every_s=rng.choice((0.5, 2.0, 1e9)),
        one_way=rng.random(),
        crash=rng.choice((0.0, 0.002, 0.01)),
        down_s=rng.choice((0.03, 0.3, 1.5)),
        torn=rng.choice((0.0, 0.3, 1.0)),
        drift=rng.choice((0.0, 0.01, 0.2)),
        disk_s=rng.choice((0.0, 0.005, 0.03)),
        slow_disk=rng.choice((0.0, 0.0, 0.3)),
        replacements=rng.choice((0, 0, 1, 2)),
        wire=rng.random() < 0.15,
        batching_delay_s=rng.choice((0.0, 0.02, 0.1)),
        lazy_delay=rng.choice((0.0, 1.0, 3.0, 8.0)),
        urgent_every_s=rng.choice((0.3, 2.0, 1e9)),
        apply_early=rng.choice((0.0, 0.5, 1.0)),
        selective=rng.choice((0.0, 0.0, 0.7)),
        to_leader=rng.choice((0.0, 0.8, 1.0)),
        split=rng.choice((0.0, 0.0, 0.7)),
        wrong_clocks_s=later.choice((0.0, 30.0, 7_200.0)),
        clock_every_s=later.choice((0.5, 3.0, 1e9)),
        set_back=later.choice((0.0, 0.5, 1.0)),
        stall_s=later.choice((0.0, 0.1, 0.6)),
        stall_every_s=later.choice((0.5, 3.0)),
    )


def harsher(options: GroupOptions) -> GroupOptions:
    """The same group and load with everything going wrong at once: elections, crashes and lost commits all the time.

    >>> harsher(expand(1)).crash
    0.01
    """
    return replace(
        options,
        suspect_s=0.12,
        loss=0.1,
        delay_s=0.04,
        straggling=0.1,
        partition_every_s=0.5,
        crash=0.01,
        down_s=0.03,
        torn=0.0,
        drift=0.01,
        disk_s=0.03,
        slow_disk=0.3,
        wire=False,
        batching_delay_s=0.0,
        selective=0.7,
        split=0.0,
        set_back=0.0,
        checked=False,
        stall_s=0.0,
    )


def divided(options: GroupOptions) -> GroupOptions:
    """The same group with nothing wrong but the network: leaders are cut off, and do not notice for a while.

    >>> divided(expand(1)).split
    1.0
    """
    return replace(
        options,
        vote_window=options.alpha + 50,  # else leaders wait for heartbeats, and 40 s are too short for so many requests
        suspect_s=0.4,
        requests=60,
        loss=0.0,
        delay_s=0.01,
        straggling=0.0,
        partition_every_s=2.0,
        one_way=0.0,
        crash=0.0,
        drift=0.0,
        disk_s=0.005,
        slow_disk=0.0,
        replacements=0,
        wire=False,
        batching_delay_s=0.0,
        selective=0.0,
        to_leader=1.0,
        split=1.0,
        set_back=0.0,
        checked=False,
        stall_s=0.0,
        faults_s=16.0,
    )


def forgetful(options: GroupOptions) -> GroupOptions:
    """The same group with disks that are set back, one after the other, while the network is cut here and there.

    >>> forgetful(expand(1)).set_back
    1.0
    """
    return replace(
        options,
        vote_window=options.alpha + 50,
        suspect_s=0.12,
        requests=40,
        in_flight=4,
        loss=0.02,
        delay_s=0.01,
        straggling=0.0,
        partition_every_s=0.5,
        one_way=0.2,
        crash=0.002,
        drift=0.01,
        disk_s=0.005,
        slow_disk=0.0,
        down_s=0.3,
        replacements=4,
        wire=False,
        batching_delay_s=0.0,
        selective=0.0,
        to_leader=0.8,
        split=0.0,
        set_back=1.0,
        stall_s=0.0,
        faults_s=16.0,
    )


def stalled(options: GroupOptions) -> GroupOptions:
    """The same group on machines that are busy, and on which nothing fails: the leader that was elected first stays.

    >>> stalled(expand(1)).steady
    True
    """
    return replace(
        divided(options),
        split=0.0,
        partition_every_s=1e9,
        stall_s=1.0,
        stall_every_s=1.0,
        steady=True,
    )


def overtaking(options: GroupOptions) -> GroupOptions:
    """The same group with nothing wrong but that messages overtake each other, while every replica proposes itself.

    >>> overtaking(expand(1)).straggling
    0.3
    """
    return replace(
        divided(options),
        allow_direct=True,
        alpha=10,
        vote_window=60,
        clients=6,
        requests=25,
        in_flight=4,
        delay_s=0.02,
        straggling=0.3,
        partition_every_s=1e9,
        lazy_delay=0.0,
        to_leader=0.0,
        split=0.0,
        faults_s=8.0,
    )
