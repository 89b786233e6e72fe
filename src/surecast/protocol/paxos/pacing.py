"""When a leader says something: the one place in which anything waits.

Proposals.
1. A request that finds nothing in flight is proposed at once, in the turn in which it arrived.
2. While an instance is in flight, requests are collected, and proposed together in the turn in which it is decided. An
   instance that takes longer than `proposal_interval_s` (or three times what storing takes) does not hold them up: the
   next one follows then, up to `alpha` at a time. So does one that is full.
3. After an instance of many bytes (`_FLUSH_BYTES`), which takes all replicas some time, the next requests are collected
   for 0.6 of that interval although nothing is in flight: where much is sent, fewer and larger instances cost less.
   A shell that finds nothing else to do meanwhile lets the leader `flush`. Where little is sent this never happens.

Commit notifications go with the next proposal where proposals follow each other within `commit_notification_s`, and
else at once. Proposals go to all at once who decide or have a client that waits; to a *lazy* replica, which does
neither, up to `lazy_delay_s` later, several together. Acknowledgements wait for nothing: the vote that completes a
majority is counted, the instance applied and its replies given out in one turn.

Requests may wait here, in `queue`, or at the shell (`batching_delay_until`), where they cost less together.
"""

from __future__ import annotations

from collections import deque

from surecast.protocol.paxos.log_values import Segment
from surecast.protocol.paxos.node import Node
from surecast.protocol.paxos.paxos_messages import Accept, Chosen

__all__ = ["Instance", "Pacing"]

_INTERVAL_STORES = 3.0
"""The proposal interval is at least so many times what it takes to store a value and to apply what is chosen before."""
_FLUSH_BYTES = 8 << 10
"""So much is worth an instance of its own while another one is in flight."""
_LARGE_BYTES = 36 << 10
_LARGE_INTERVAL = 0.6
"""After an instance that was worth haste and is chosen, fewer bytes than these wait for this share of the space."""
_SMOOTHING = 0.1
"""Weight of the newest in the mean of the times that storing took."""
_URGENT_S = 1.0
"""How long a replica stays urgent after it said that a client waits there."""


class Instance:
    """A proposal in flight."""

    __slots__ = ("acks", "sent_s", "value")

    def __init__(self, value: bytes, sent_s: float):
        self.value = value
        self.acks: set[int] = set()
        self.sent_s = sent_s


class Pacing:
    """Keeps what waits at a leader, what is in flight, and when the next proposals and notifications go.

    `leads` is whether it may propose: no property, as it is asked several times for every message.
    """

    def __init__(self, node: Node):
        self.node = node
        self.leads = False
        self.next_slot = 1
        self.instances: dict[int, Instance] = {}
        self.queue: deque[Segment] = deque()
        self.queue_bytes = 0
        self.notified = 0
        self._window = node.settings.window
        self._proposed_s = 0.0
        self._proposed_bytes = 0
        self._flushes = False
        self._gap_s = 0.0
        self._store_s = 0.0
        self._urgent_until_s: dict[int, float] = {}
        self._deciding: set[int] = set()
        self.lazy: list[tuple[int, Accept | Chosen]] = []
        self._lazy_since_s = 0.0
        self._lazy_bytes = 0

    # Proposals and commit notifications

    def proposes_at(self) -> float | None:
        """When what waits may go into an instance; None where nothing waits, or as many are in flight as may be."""
        node, settings = self.node, self.node.settings
        if not self.queue or not self.leads or self.next_slot > node.applied + self._window:
            return None
        if not node.clocks.are_known:
            return None
        if not self.instances or self._flushes or self.queue_bytes >= settings.value_bytes_max:
            return node.now
        return self._proposed_s + self._proposal_interval_s()

    def batching_delay_until(self, size: int, now: float) -> float | None:
        """Returns the time until which to delay a batch of `size` bytes, or None to submit it now.

        Before that they would wait here, or cost less together with more. They should where they may be proposed at
        once, where others wait already, and where this replica does not lead.
        """
        self.node.now = now
        settings = self.node.settings
        if (
            self.queue
            or self._flushes
            or not self.leads
            or size >= settings.value_bytes_max
            or settings.variant == "fast"
        ):
            return None
        if self.instances:
            proposal_interval_s = self._proposal_interval_s()
        elif self._proposed_bytes >= _FLUSH_BYTES and size < _LARGE_BYTES:
            # Where much is in flight, fewer and larger instances cost less.
            proposal_interval_s = _LARGE_INTERVAL * settings.proposal_interval_s
        else:
            return None
        until_s = self._proposed_s + proposal_interval_s
        return until_s if until_s > now else None

    def may_flush(self, size: int) -> bool:
        """Returns whether so many bytes are worth an instance beside the one in flight, where nothing else is to do."""
        within = self.next_slot <= self.node.applied + self._window
        return size >= _FLUSH_BYTES and len(self.instances) < 2 and within and self.leads

    def flush(self, now: float) -> None:
        """Proposes what waits, and what is submitted in this turn, without a batching delay."""
        self.node.now = now
        self._flushes = True

    def _proposal_interval_s(self) -> float:
        """Time between proposals while one is in flight.

        Storing holds up the votes that are due meanwhile: where it takes long, the next proposal leaves them time.
        """
        proposal_interval_s = self.node.settings.proposal_interval_s
        return max(proposal_interval_s, _INTERVAL_STORES * self._store_s) if proposal_interval_s else 0.0

    def stored_in(self, time_s: float) -> None:
        """The records of a turn took so long to be stored."""
        self._store_s += _SMOOTHING * (max(0.0, time_s) - self._store_s)

    def commit_notification_at(self) -> float | None:
        """Returns when a commit notification of its own is due; None where proposals have said it."""
        if not self.leads or self.notified >= self.node.applied:
            return None
        commit_notification_s = self.node.settings.commit_notification_s
        return (
            self._proposed_s + commit_notification_s
            if self._gap_s < commit_notification_s and self.notified >= 0
            else self.node.now
        )

    def wake_s(self) -> float | None:
        """Returns when the first of its timers is due; None where none runs."""
        first_s = self.commit_notification_at() if self.notified < self.node.applied else None
        if self.queue and (at_s := self.proposes_at()) is not None and (first_s is None or at_s < first_s):
            first_s = at_s
        if self.lazy and (at_s := self.lazy_due_at()) is not None and (first_s is None or at_s < first_s):
            first_s = at_s
        return first_s

    # Lazy replicas

    def mark_urgent(self, replica: int) -> None:
        """A client waits at another replica for what is chosen: for a while it is sent everything at once."""
        if self._is_lazy(replica):
            self.send_lazy()  # it has to apply first what it was not told yet
        self._urgent_until_s[replica] = self.node.now + _URGENT_S

    def _is_lazy(self, replica: int) -> bool:
        """Returns whether a proposal to a replica may wait: others decided the last one, and no client waits there.

        Whoever decides the next instance is never among them; in the fast variant all do. Where one that decided is
        down, the others hear of the proposal `lazy_delay_s` later, and decide from then on.
        """
        settings = self.node.settings
        if not settings.lazy_delay_s or not self._deciding or replica in self._deciding or settings.variant == "fast":
            return False
        return self._urgent_until_s.get(replica, 0.0) <= self.node.now

    def _send_or_delay(self, replica: int, message: Accept | Chosen, size: int) -> None:
        if replica in self._deciding or not self._is_lazy(replica):
            self.node.send(replica, message)
            return
        if not self.lazy:
            self._lazy_since_s, self._lazy_bytes = self.node.now, 0
        self.lazy.append((replica, message))
        self._lazy_bytes += size

    def lazy_due_at(self) -> float | None:
        """Returns when the delayed messages are due; None where there are none."""
        if not self.lazy:
            return None
        settings = self.node.settings
        return (
            self._lazy_since_s + settings.lazy_delay_s if self._lazy_bytes < settings.value_bytes_max else self.node.now
        )

    def send_lazy(self) -> None:
        """Sends the delayed messages."""
        lazy, self.lazy = self.lazy, []
        for replica, message in lazy:
            self.node.send(replica, message)
