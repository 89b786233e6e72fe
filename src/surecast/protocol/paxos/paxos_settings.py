"""The settings of a replica. All replicas of a group must have the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from surecast.errors import ConfigurationError

__all__ = ["VARIANTS", "PaxosSettings", "Variant"]

Variant: TypeAlias = Literal["multi", "batch", "fast"]
VARIANTS: tuple[Variant, ...] = ("multi", "batch", "fast")


@dataclass(frozen=True, slots=True)
class PaxosSettings:
    """The protocol and its limits.

    `variant`: *multi* has up to `alpha` instances in flight; *batch* has one, and whatever arrives meanwhile goes into
    the next; *fast* lets every replica propose to the acceptors directly.
    `allow_direct`: in the fast variant, a replica that does not lead proposes itself (P2S Algorithm 1, line 22);
    otherwise it forwards to the leader.
    `alpha`: instances that may be in flight; a new membership takes effect so many instances later (P2S 3.4).
    `heartbeat_s`: time between two heartbeats. `suspect_s`: silence after which a replica is taken for down.
    `election_step_s`: how much longer each next rank waits before it campaigns.
    `backoff_s`: the largest random addition to that wait.
    `resend_s`: time after which an unanswered message is sent again. `retry_s`: likewise for a client's request.
    `proposal_interval_s`: while an instance is in flight, the next one follows no sooner than this after it, and no
    sooner than three times what storing one takes, and applying what is chosen before it, unless it is full; what
    arrives meanwhile goes into it, and where an instance takes less than this there is one at a time. 0: at once. A
    shell may let a leader flush that has nothing else to do, and keep large instances apart: see `pacing`.
    `commit_notification_s`: while proposals follow each other within this time, a leader says what is chosen with the
    next one, and in a message of its own only after it. 0: at once. For both the shell has to give the leader a turn
    then: see `Replica.wake_s`.
    `lazy_delay_s`: how long a proposal waits for the next ones to go together to a replica whose vote the leader does
    not need, and where no client waits; such a replica has less to do, and is behind by so much. 0: it does not wait.
    `recover_s`: how long a fast instance may stay open before the leader settles it.
    `cooldown_s`: how long the fast variant stays classic after too many collisions.
    `value_bytes_max`: about how large one instance grows. `queue_bytes_max`: requests held, here and at the leader.
    `vote_window`: an acceptor votes at most so many instances ahead of what it has applied; a leader sends a slow
    replica no more than that, and leaves the rest to catching up.
    `snapshot_every`: instances between snapshots, as long as the log is worth one; `snapshot_bytes`: bytes of log after
    which one is due in any case; `snapshot_at_once_bytes`: a larger state is written beside the replica where the shell
    can do that, as copying the process takes some milliseconds too. `log_keep` and `log_keep_bytes`: what is kept below
    a snapshot for slow replicas.
    `fetch_bytes_max`: one answer to a replica that catches up, log or snapshot.
    `reply_window`: replies kept of each client; it may have so many requests in flight. `clients_max`: clients whose
    replies are kept. `client_expiry_s`: a client silent for so long is forgotten.

    >>> PaxosSettings(variant="batch").window
    1
    """

    variant: Variant = "multi"
    allow_direct: bool = True
    alpha: int = 10
    heartbeat_s: float = 0.05
    suspect_s: float = 0.25
    election_step_s: float = 0.05
    backoff_s: float = 0.15
    resend_s: float = 0.1
    retry_s: float = 0.5
    proposal_interval_s: float = 0.0
    commit_notification_s: float = 0.0
    lazy_delay_s: float = 0.0
    recover_s: float = 0.05
    cooldown_s: float = 1.0
    value_bytes_max: int = 1 << 20
    queue_bytes_max: int = 64 << 20
    vote_window: int = 64
    snapshot_every: int = 1_000
    snapshot_bytes: int = 64 << 20
    snapshot_at_once_bytes: int = 256 << 10
    log_keep: int = 200
    log_keep_bytes: int = 32 << 20
    fetch_bytes_max: int = 1 << 20
    reply_window: int = 64
    clients_max: int = 100_000
    client_expiry_s: float = 3_600.0

    def __post_init__(self) -> None:
        if self.variant not in VARIANTS:
            raise ConfigurationError(f"paxos.variant: {self.variant!r} is unknown; write one of {', '.join(VARIANTS)}")
        positive = (
            "alpha",
            "value_bytes_max",
            "queue_bytes_max",
            "snapshot_every",
            "snapshot_bytes",
            "fetch_bytes_max",
        )
        for name in positive:
            if getattr(self, name) < 1:
                raise ConfigurationError(f"paxos.{name}: {getattr(self, name)} is too small; it must be at least 1")
        if self.reply_window < 1 or self.clients_max < 1:
            raise ConfigurationError("paxos.reply_window and paxos.clients_max: each must be at least 1")
        if self.vote_window < self.alpha:
            raise ConfigurationError(
                f"paxos.vote_window: {self.vote_window} is less than alpha ({self.alpha}); acceptors could not follow"
            )
        if not 0 < self.heartbeat_s < self.suspect_s:
            raise ConfigurationError(
                f"paxos.heartbeat_s: {self.heartbeat_s} must be positive and less than suspect_s ({self.suspect_s})"
            )

    @property
    def window(self) -> int:
        """Classic instances that may be in flight at a time."""
        return 1 if self.variant == "batch" else self.alpha
