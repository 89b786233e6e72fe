"""One client's connection, as the broker sees it: bytes come in, bytes to send are collected, nothing is sent here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from surecast.protocol.broker.limits import Limits, Pace
from surecast.protocol.broker.message import Message
from surecast.protocol.mqtt import AckBatch, Connect, Packet, PacketDecoder, PublishBatch

if TYPE_CHECKING:
    from surecast.protocol.broker.session import Session

__all__ = ["Connection", "Origin", "Phase"]

_DEFAULTS = Limits()


class Phase(Enum):
    """The phases of a connection, in order."""

    NEW = "waiting for CONNECT"
    CHECKING = "waiting for the credentials to be checked"
    OPEN = "open"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Origin:
    """The listener and the address that a connection came from; `identity` if a certificate has named the client."""

    listener: str = "default"
    peer: str = ""
    identity: str = ""


class Connection:
    """The state that ends with a connection. `out` holds what is to be sent, in order.

    `packet_bytes_max` is the largest packet the client takes; `aliases_max` the number of topic aliases it allows.
    `held` are packets that came before the client's credentials were checked; `left` says why the transport was lost
    since then, if it was. `congested` is set while too much is
    unsent; `burst_bytes` of retained messages were written to it at the time `burst_at`. `allowed` remembers what the
    client may publish to, and `clearance` that its messages to a topic may be taken with those of others. `limits` and
    `known_aliases_max` are what the client was told when it connected; `pace` slows down one whose messages are limited
    by rate.

    Of a connection that `is_elsewhere`, at another replica of the same broker, `out` is thrown away, so it need not
    be complete.
    """

    __slots__ = (
        "aliases",
        "aliases_max",
        "allowed",
        "burst_at",
        "burst_bytes",
        "clearance",
        "congested",
        "connect",
        "connected_at",
        "decoder",
        "explains",
        "heard_at",
        "held",
        "held_bytes",
        "is_elsewhere",
        "known_aliases",
        "known_aliases_max",
        "left",
        "limits",
        "number",
        "opened_at",
        "origin",
        "out",
        "pace",
        "packet_bytes_max",
        "phase",
        "session",
        "silence_max_s",
        "user",
        "version_5",
    )

    def __init__(self, number: int, origin: Origin, decoder: PacketDecoder, now: float):
        self.number = number
        self.origin = origin
        self.decoder = decoder
        self.out: list[bytes] = []
        self.phase = Phase.NEW
        self.session: Session | None = None
        self.connect: Connect | None = None
        self.user = ""
        self.version_5 = False
        self.explains = True
        self.packet_bytes_max = 1 << 62
        self.aliases_max = 0
        self.aliases: dict[str, int] = {}
        self.known_aliases: dict[int, str] = {}
        self.known_aliases_max = 0
        self.limits = _DEFAULTS
        self.pace: Pace | None = None
        self.allowed: dict[str, bool] = {}
        self.clearance: object = None
        self.congested = False
        self.is_elsewhere = False
        self.burst_at = 0.0
        self.burst_bytes = 0
        self.held: list[Packet | PublishBatch | AckBatch] = []
        self.held_bytes = 0
        self.left = ""
        self.opened_at = now
        self.connected_at = now
        self.heard_at = now
        self.silence_max_s = 0.0

    def is_closed(self) -> bool:
        """Says that the connection is over; what is in `out` is still to be sent."""
        return self.phase is Phase.CLOSED

    def parts(
        self, message: Message, qos: int, retain: bool, identifiers: tuple[int, ...], now: float
    ) -> tuple[bytes, bytes]:
        """Returns what comes before and after the packet identifier of a message to this client, with topic aliases."""
        if not self.aliases_max:
            return message.parts(self.version_5, qos, retain, identifiers, now)
        aliases = self.aliases
        alias = aliases.get(message.topic, 0)
        if alias:
            return message.aliased_parts(qos, retain, identifiers, now, alias, True)
        if len(aliases) >= self.aliases_max:
            return message.parts(True, qos, retain, identifiers, now)
        parts = message.aliased_parts(qos, retain, identifiers, now, len(aliases) + 1, False)
        if len(parts[0]) + len(parts[1]) + 2 > self.packet_bytes_max:
            # Without the alias it may just fit; and a packet that is not sent gives nothing a name.
            return message.parts(True, qos, retain, identifiers, now)
        aliases[message.topic] = len(aliases) + 1
        return parts

    @property
    def name(self) -> str:
        """For log lines: the client, or the address of one that has not said who it is."""
        return self.session.client if self.session is not None else self.origin.peer
