"""The common part of all nodes: strict reading of datagrams, counting, and who may speak to them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Container, Iterable

from surecast.protocol.dissemination.datagrams import DatagramError, decode, encode, message_bytes
from surecast.protocol.dissemination.dissemination_messages import Effect, Message, SendTo
from surecast.protocol.dissemination.dissemination_settings import DisseminationSettings
from surecast.protocol.gossip import Draws

__all__ = ["DisseminationNode", "MessageCounters"]


class DisseminationNode(ABC):
    """A node: messages or datagrams and a time go in, effects come out; whoever runs it carries them out.

    `known` are the nodes that may speak to it. `payload_bytes` counts payloads as so long, for simulations that carry
    shorter ones. Subclasses say what they do with a message (`_take`) and with time (`_timer`, `next_timer`).
    """

    def __init__(
        self,
        node: int,
        settings: DisseminationSettings,
        known: Container[int],
        service: int,
        seed: int = 0,
        payload_bytes: int | None = None,
    ):
        self.node = node
        self.settings = settings
        self.known = known
        self.service = service
        self.counters = MessageCounters()
        self._draws = Draws(seed, node + 1)
        self._seed = seed
        self._payload_bytes = payload_bytes

    def receive(self, datagram: bytes, sender: int, now: float) -> list[Effect]:
        """Takes a datagram that came from the address of `sender`. Whatever is wrong with it is counted, no more."""
        settings = self.settings
        try:
            named, message = decode(datagram, settings.coding, settings.key, settings.mtu_bytes)
        except DatagramError as error:
            self.counters.refused[str(error.reason)] += 1
            return []
        if named != sender:
            self.counters.refused["another sender"] += 1
            return []
        return self.handle(message, sender, now)

    def datagram(self, message: Message) -> bytes:
        """A message of this node as a datagram."""
        return encode(message, self.node, self.settings.coding, self.settings.key, self.settings.mtu_bytes)

    def handle(self, message: Message, sender: int, now: float) -> list[Effect]:
        """Takes a message from another node."""
        if sender not in self.known:
            self.counters.refused["unknown sender"] += 1
            return []
        self.counters.received(type(message).__name__, self._bytes(message))
        return self._counted(self._take(message, sender, now))

    @abstractmethod
    def next_timer(self) -> float:
        """Returns the time at which to call `handle_timer` next; infinite if never."""

    def handle_timer(self, now: float) -> list[Effect]:
        """Does what is due."""
        return self._counted(self._timer(now))

    @abstractmethod
    def _take(self, message: Message, sender: int, now: float) -> Iterable[Effect]:
        """Handles a message from a known node and returns the effects."""

    @abstractmethod
    def _timer(self, now: float) -> Iterable[Effect]:
        """Does what is due and returns the effects."""

    def _refuse(self, reason: str) -> list[Effect]:
        self.counters.refused[reason] += 1
        return []

    def _too_far(self, deadline_s: float, now: float) -> str | None:
        """Returns why a deadline is refused; None if it is accepted."""
        if now >= deadline_s:
            return "expired"
        return "deadline too far" if deadline_s - now > self.settings.lifetime_max_s else None

    def _counted(self, effects: Iterable[Effect]) -> list[Effect]:
        effects = list(effects)
        for effect in effects:
            if isinstance(effect, SendTo):
                self.counters.sent(type(effect.message).__name__, self._bytes(effect.message))
        return effects

    def _bytes(self, message: Message) -> int:
        return message_bytes(message, self.settings.coding, self.settings.key, self._payload_bytes)


class MessageCounters:
    """Messages and bytes by the kind of message, and refusals by their reason.

    >>> counters = MessageCounters()
    >>> counters.sent("Announcement", 44), counters.sent("Data", 1000)
    (None, None)
    >>> counters.sent_bytes["Announcement"], counters.overhead()
    (44, (1, 44))
    """

    def __init__(self) -> None:
        self.sent_messages: Counter[str] = Counter()
        self.sent_bytes: Counter[str] = Counter()
        self.received_messages: Counter[str] = Counter()
        self.received_bytes: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()

    def sent(self, kind: str, size: int) -> None:
        self.sent_messages[kind] += 1
        self.sent_bytes[kind] += size

    def received(self, kind: str, size: int) -> None:
        self.received_messages[kind] += 1
        self.received_bytes[kind] += size

    def overhead(self) -> tuple[int, int]:
        """Messages and bytes sent that are not packets on their paths."""
        messages = self.sent_messages.total() - self.sent_messages["Data"]
        return messages, self.sent_bytes.total() - self.sent_bytes["Data"]
