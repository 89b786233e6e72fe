"""A client of this replica: its connection, its packets, and what it sent before it entered the group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from surecast.protocol.broker import Connection, Origin
from surecast.protocol.group.commands import Packets
from surecast.protocol.mqtt import AckBatch, Disconnect, Packet, PacketDecoder, Pingreq, Publish, PublishBatch, encode

__all__ = ["Early", "Member", "promises", "raw_packet"]


class Member(Connection):
    """A connection of this replica, from its first byte on.

    While `local` is 0 it is at the gate. Then it has entered the group, or is about to, and `local` is its number here.
    Beside the state that all replicas have of it: `reader` cuts the bytes of the client into packets, and `tail` is the
    beginning of one. `listened_at` is when the client was last heard, by this replica's clock. `may` remembers what
    the client may publish to by the rules `may_by`.

    Transports know one object for as long as they last: nothing that arrives can meet one that was exchanged meanwhile.
    """

    __slots__ = ("listened_at", "local", "may", "may_by", "reader", "tail")

    def __init__(self, origin: Origin, decoder: PacketDecoder, now: float):
        super().__init__(0, origin, decoder, now)
        self.local = 0
        self.reader = decoder
        self.tail: list[bytes] = []
        self.listened_at = now
        self.may: dict[str, bool] = {}
        self.may_by = b""

    def leave_gate(self, local: int, origin: Origin, decoder: PacketDecoder, reader: PacketDecoder, now: float) -> None:
        """Begins anew for the group: what the gate knew of the connection is forgotten."""
        super().__init__(0, origin, decoder, now)
        self.local = local
        self.reader = reader
        self.listened_at = now


@dataclass(slots=True)
class Early:
    """The packets that a client sent before it entered, and whether any of them must happen once, or at least once."""

    items: list[tuple[int, bytes, Packets | None]] = field(default_factory=list)
    bytes: int = 0
    is_promised: bool = False


def raw_packet(packet: Packet | PublishBatch | AckBatch, version: int) -> bytes:
    """A packet as it is sent."""
    if isinstance(packet, (PublishBatch, AckBatch)):
        return packet.data
    return encode(packet, version)


def promises(packets: Sequence[Packet | PublishBatch | AckBatch] | None) -> bool:
    """Says whether packets hold more than messages of QoS 0 and a goodbye."""
    if packets is None:
        return True
    for packet in packets:
        qos = packet.flags[0] if isinstance(packet, PublishBatch) else packet.qos if isinstance(packet, Publish) else 0
        if qos or not isinstance(packet, (Publish, PublishBatch, Disconnect, Pingreq)):
            return True
    return False
