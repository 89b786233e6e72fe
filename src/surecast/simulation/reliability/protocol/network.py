"""The simulated network: links with latency that fail, lose, duplicate and reorder messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from surecast.protocol.overlay import (
    Ack,
    Detour,
    EventId,
    EventMessage,
    LinkState,
    Message,
    Subscribe,
    Unsubscribe,
)
from surecast.scenario.system import OverlayLink
from surecast.simulation.experiment.clock import NETWORK, Clock
from surecast.simulation.reliability.protocol.journal import Journal
from surecast.simulation.reliability.protocol.options import Options

__all__ = ["KINDS", "Link", "Network", "event_in"]

KINDS: Final = (
    "notification",
    "acknowledgement",
    "subscription",
    "unsubscription",
    "link-state",
    "detour",
    "retransmission",
)
"""The kinds of messages, as they are counted."""
_KIND: Final = {EventMessage: 0, Ack: 1, Subscribe: 2, Unsubscribe: 3, LinkState: 4, Detour: 5}
_RETRANSMISSION: Final = 6
_SENT, _LOST = 16, 32
_BLOCK = 4096


def event_in(message: Message) -> EventId | None:
    """The event that a message carries."""
    if isinstance(message, EventMessage):
        return message.event.id
    if isinstance(message, Detour) and isinstance(message.message, EventMessage):
        return message.message.event.id
    return None


class Link:
    """A link of the overlay, up or down."""

    __slots__ = ("a", "b", "index", "latency_s", "loss", "up")

    def __init__(self, index: int, link: OverlayLink, names: list[str]):
        self.index = index
        self.a, self.b = names[link.a], names[link.b]
        self.latency_s = link.latency_s
        self.loss = link.loss
        self.up = True


class Network:
    """Takes messages from broker to broker. What is sent over a link that is down then, or on arrival, is lost.

    Losses at random (`loss` of a link) spare link-state messages, which a real broker would send over a reliable
    connection, and begin when `loses` is set.
    """

    def __init__(
        self,
        links: list[Link],
        clock: Clock,
        journal: Journal,
        options: Options,
        rng: np.random.Generator,
        arrive: Callable[[Link, str, str, Message, EventId | None], None],
        copied: Callable[[EventId], None],
        lost: Callable[[EventId, str, str], None],
    ):
        self.links = links
        self.sent = [0] * len(KINDS)
        self.loses = False
        self.between: dict[tuple[str, str], Link] = {}
        for link in links:
            self.between[link.a, link.b] = self.between[link.b, link.a] = link
        self._clock = clock
        self._journal = journal
        self._duplication = options.duplication
        self._jitter_s = options.jitter_s
        self._arrive = arrive
        self._copied = copied
        self._lost = lost
        self._rng = rng
        self._draws: list[float] = []

    def send(self, sender: str, to: str, message: Message, again: bool = False) -> None:
        """Puts a message on the link between two neighbours; `again` where it is a retransmission."""
        link = self.between[sender, to]
        carried = message.message if isinstance(message, Detour) else message
        # A subscription that takes a detour is still a subscription; only events count as detours.
        kind = _KIND[type(message if isinstance(carried, EventMessage) else carried)]
        if again:
            kind = _RETRANSMISSION
        self.sent[kind] += 1
        event_id = event_in(message)
        self._journal.note(self._clock.now, _SENT + kind, link.index, sender == link.a, _number(message))
        copies = 1
        if self._duplication and self._draw() < self._duplication:
            copies = 2
        for _ in range(copies):
            if not link.up or (link.loss and self.loses and kind != 4 and self._draw() < link.loss):
                self.lose(link, sender, to, message, event_id)
                continue
            if event_id is not None:
                self._copied(event_id)
            delay_s = link.latency_s
            if self._jitter_s:
                delay_s += self._draw() * self._jitter_s
            self._clock.at(self._clock.now + delay_s, NETWORK, self._arrive, link, sender, to, message, event_id)

    def lose(self, link: Link, sender: str, to: str, message: Message, event_id: EventId | None) -> None:
        """Takes down the loss of a message."""
        self._journal.note(self._clock.now, _LOST + _KIND[type(message)], link.index, sender == link.a, 0)
        if event_id is not None:
            self._lost(event_id, sender, to)

    def _draw(self) -> float:
        if not self._draws:
            self._draws = self._rng.random(_BLOCK).tolist()
        return self._draws.pop()


def _number(message: Message) -> int:
    """Something that tells a message from others of its kind."""
    if isinstance(message, EventMessage):
        return message.event.id.number
    if isinstance(message, LinkState):
        return message.sequence
    if isinstance(message, Ack):
        return message.event_id.number
    if isinstance(message, Detour):
        return _number(message.message) * 64 + len(message.path)
    return int(message.issued_s * 1000.0)
