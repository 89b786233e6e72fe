"""The simulated network: connections between brokers, with latency, over links that fail and lose."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, Final

import numpy as np

from surecast.protocol.demand import DemandBucket, DemandHashes, DemandUpdate, Subscription
from surecast.protocol.link import LinkAck, NumberedFrame
from surecast.protocol.overlay.event_id import EventId
from surecast.protocol.overlay.overlay_frames import Detoured, Events, Frame, LinkStates, Written
from surecast.scenario.system import OverlayLink
from surecast.simulation.experiment.clock import NETWORK, Clock
from surecast.simulation.reliability.protocol.journal import Journal
from surecast.simulation.reliability.protocol.options import Options

__all__ = ["KINDS", "Connection", "Network", "event_in"]

KINDS: Final = (
    "notification",
    "acknowledgement",
    "subscription",
    "unsubscription",
    "comparison",
    "link-state",
    "detour",
    "retransmission",
)
"""The kinds of messages, in the papers' terms: one event, the acknowledgement of one event, one filter that is
subscribed or unsubscribed over a link, the state of the links of one broker. `comparison`: a frame with sums of hashes.
"""
NOTIFICATION, ACKNOWLEDGEMENT, SUBSCRIPTION, UNSUBSCRIPTION, COMPARISON, LINK_STATE, DETOUR, RETRANSMISSION = range(8)
_SENT, _LOST = 16, 32
_BLOCK = 4096
_RESEND_S: Final = 0.2
"""The least time after which a transport sends again what was lost."""


def event_in(written: Written) -> EventId | None:
    """Returns the event that a frame carries."""
    if isinstance(written, LinkAck):
        return None
    frame = written.content
    carried = frame.frame if isinstance(frame, Detoured) else frame
    return carried.batch.first if isinstance(carried, Events) else None


class Connection:
    """A link of the overlay and the connection over it. `epoch` rises whenever a connection is made or broken: what was
    on the way then is lost. `believers` are the ends that take it for up."""

    __slots__ = ("a", "arrives_s", "b", "believers", "epoch", "index", "is_made", "latency_s", "loss", "up")

    def __init__(self, index: int, link: OverlayLink, names: list[str]):
        self.index = index
        self.a, self.b = names[link.a], names[link.b]
        self.latency_s = link.latency_s
        self.loss = link.loss
        self.up = True
        self.is_made = False
        self.epoch = 0
        self.believers: set[str] = set()
        self.arrives_s = {self.a: -inf, self.b: -inf}

    def other(self, name: str) -> str:
        """Returns the other end."""
        return self.b if name == self.a else self.a

    def change(self, is_made: bool) -> None:
        """Makes or breaks the connection."""
        self.is_made = is_made
        self.epoch += 1
        self.arrives_s = {self.a: -inf, self.b: -inf}


class Network:
    """Takes frames from broker to broker, in order. What is on a connection when it breaks is lost.

    A connection sends again what a link loses at random: that only comes later.
    """

    def __init__(
        self,
        connections: list[Connection],
        clock: Clock,
        journal: Journal,
        options: Options,
        rng: np.random.Generator,
        arrive: Callable[[Connection, int, str, str, Any], None],
        lost: Callable[[EventId, str, str], None],
    ):
        self.connections = connections
        self.sent = [0] * len(KINDS)
        self.between: dict[tuple[str, str], Connection] = {}
        for link in connections:
            self.between[link.a, link.b] = self.between[link.b, link.a] = link
        self._clock = clock
        self._journal = journal
        self._jitter_s = options.jitter_s
        self._arrive = arrive
        self._lost = lost
        self._rng = rng
        self._draws: list[float] = []

    def send(self, sender: str, to: str, written: list[Written]) -> None:
        """Puts what a broker has written to a neighbour on its connection."""
        connection = self.between[sender, to]
        for each in written:
            if isinstance(each, NumberedFrame):
                kind, count = _kind(each.content)
                self.sent[kind] += count
                self._journal.note(
                    self._clock.now, _SENT + kind, connection.index, sender == connection.a, _number(each)
                )
            if connection.is_made:
                self.carry(connection, sender, to, each)
            else:
                self.lose(connection, sender, to, each)

    def carry(self, connection: Connection, sender: str, to: str, what: Any) -> None:
        """Has something arrive at the other end, if the connection lasts until then."""
        time_s = self._clock.now + connection.latency_s
        if self._jitter_s or connection.loss:
            time_s += self._draw() * self._jitter_s
            while self._draw() < connection.loss:
                time_s += max(_RESEND_S, 2.0 * connection.latency_s)
            time_s = connection.arrives_s[to] = max(time_s, connection.arrives_s[to])
        self._clock.at(time_s, NETWORK, self._arrive, connection, connection.epoch, sender, to, what)

    def lose(self, connection: Connection, sender: str, to: str, written: Written) -> None:
        """Takes down the loss of a frame."""
        event_id = event_in(written)
        if event_id is not None:
            self._journal.note(self._clock.now, _LOST, connection.index, sender == connection.a, event_id.number)
            self._lost(event_id, sender, to)

    def _draw(self) -> float:
        if not self._draws:
            self._draws = self._rng.random(_BLOCK).tolist()
        return self._draws.pop()


def _kind(frame: Frame) -> tuple[int, int]:
    """Returns the kind of a frame, and how many messages it is. Events on their tree are counted by their node, which
    also knows what it would have sent over a link that is down."""
    if isinstance(frame, Events):
        return NOTIFICATION, 0
    if isinstance(frame, Detoured):
        # A subscription that takes a detour is still a subscription; only events count as detours.
        return (DETOUR, frame.frame.batch.count) if isinstance(frame.frame, Events) else _kind(frame.frame)
    if isinstance(frame, LinkStates):
        return LINK_STATE, len(frame.states)
    if isinstance(frame, Subscription):
        return (SUBSCRIPTION if frame.is_wanted else UNSUBSCRIPTION), 1
    if isinstance(frame, DemandUpdate):
        kind = SUBSCRIPTION if frame.change.added else UNSUBSCRIPTION
        return kind, len(frame.change.added) + len(frame.change.removed)
    if isinstance(frame, DemandBucket):
        return SUBSCRIPTION, len(frame.filters)
    assert isinstance(frame, DemandHashes)
    return COMPARISON, 1


def _number(written: NumberedFrame[Frame]) -> int:
    """Returns something that tells a frame from others of its kind."""
    event_id = event_in(written)
    return written.number if event_id is None else event_id.number
