"""Connections as records of a snapshot: what is known of each client while it is connected.

What is to be sent is not written: it is what the broker has done, not what it is. Nor is the decoder, which holds
nothing between two whole packets; it learns the version again from the CONNECT.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from surecast.errors import PeerError
from surecast.protocol.broker.connection import Connection, Origin, Phase
from surecast.protocol.broker.limits import Limits, Pace
from surecast.protocol.codec import BOOL, F64, TEXT, U16, U32, U64, Layout, choice, many, optional, pairs, sized
from surecast.protocol.mqtt import V5, V311, AckBatch, Connect, Packet, Publish, PublishBatch, encode, encode_publish

if TYPE_CHECKING:
    from surecast.protocol.broker.core import BrokerCore

__all__ = ["read_connection", "write_connection"]


class _Row(NamedTuple):
    """`own` are attributes of the connection; `connect` is empty before the CONNECT; `held` are packets as received."""

    origin: Origin
    own: Any
    limits: int
    connect: bytes
    held: Sequence[bytes]


def _pace(**fields: float) -> Pace:
    pace = Pace(fields["rate_per_s"], fields["at"])
    pace.hold_until, pace.tokens = fields["hold_until"], fields["tokens"]
    return pace


_CONNECTION: Final = Layout(
    "connection",
    _Row,
    origin=Layout("origin", Origin, listener=TEXT, peer=TEXT, identity=TEXT),
    own=Layout(
        "connection",
        dict,
        number=U64,
        phase=choice(tuple(Phase)),
        version_5=BOOL,
        explains=BOOL,
        congested=BOOL,
        packet_bytes_max=U64,
        aliases_max=U16,
        known_aliases_max=U16,
        held_bytes=U64,
        burst_bytes=U64,
        opened_at=F64,
        connected_at=F64,
        heard_at=F64,
        silence_max_s=F64,
        burst_at=F64,
        user=TEXT,
        left=TEXT,
        aliases=pairs(TEXT, U16),
        known_aliases=pairs(U16, TEXT),
        allowed=pairs(TEXT, BOOL),
        pace=optional(Layout("pace", _pace, rate_per_s=F64, hold_until=F64, tokens=F64, at=F64)),
    ),
    limits=U32,
    connect=sized(),
    held=many(sized()),
)


def write_connection(connection: Connection, limits: int) -> bytes:
    """Returns the value of a connection's record; `limits` is the number of its limits."""
    if connection.decoder.held_bytes and not connection.is_closed():
        raise ValueError(
            f"connection {connection.number} ({connection.name}) holds {connection.decoder.held_bytes} bytes of a "
            "packet; a snapshot needs a broker that was given whole packets only"
        )
    connect, version = connection.connect, V5 if connection.version_5 else V311
    held = [_raw(packet, version) for packet in connection.held]
    said = b"" if connect is None else encode(connect, connect.version)
    return _CONNECTION.encode(_Row(connection.origin, connection, limits, said, held))


def _raw(packet: Packet | PublishBatch | AckBatch, version: int) -> bytes:
    """Returns a packet as it came."""
    if isinstance(packet, (PublishBatch, AckBatch)):
        return packet.data
    if isinstance(packet, Publish):
        return encode_publish(
            packet.topic.encode(),
            packet.payload,
            packet.qos,
            packet.retain,
            packet.dup,
            packet.packet_id,
            packet.raw_properties,
            version,
        )
    return encode(packet, version)


def read_connection(value: bytes, broker: BrokerCore, limits: dict[int, Limits]) -> Connection:
    """Returns the connection of a record, for a broker; it has no session yet."""
    row = _CONNECTION.decode(value)
    own = row.own
    connection = Connection(own["number"], row.origin, broker.decoder(row.origin.listener), own["opened_at"])
    for name, attribute in own.items():
        setattr(connection, name, attribute)
    connection.limits = limits[row.limits]
    if row.connect:
        packets = connection.decoder.feed(row.connect)  # which learns the version by it
        if len(packets) != 1 or not isinstance(packets[0], Connect):
            raise PeerError(f"the CONNECT of connection {connection.number} is not one")
        connection.connect = packets[0]
    if connection.phase is Phase.OPEN:
        connection.decoder.limit(connection.limits.packet_bytes_max)
    for packet in row.held:
        connection.held += connection.decoder.feed_batches(packet)
    return connection
