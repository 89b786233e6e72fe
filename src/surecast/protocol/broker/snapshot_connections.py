"""Connections in a broker's snapshot: what is known of each client while it is connected.

What is to be sent is not written: it is what the broker has done, not what it is. Nor is the decoder, which holds
nothing between two whole packets; it learns the version again from the CONNECT.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from surecast.errors import PeerError
from surecast.protocol.broker.connection import Connection, Origin, Phase
from surecast.protocol.broker.limits import Limits, Pace
from surecast.protocol.broker.snapshot_sessions import Numbers
from surecast.protocol.broker.snapshot_wire import Reader, Writer
from surecast.protocol.mqtt import V5, V311, AckRun, Connect, Packet, Publish, PublishRun, encode, encode_publish

if TYPE_CHECKING:
    from surecast.protocol.broker.core import BrokerCore

__all__ = ["read_connection", "write_connection"]

_CONNECTION: Final = struct.Struct(">QBBQHHQQIddddd")
_PACE: Final = struct.Struct(">dddd")
_ALIAS: Final = struct.Struct(">H")
_PHASES: Final = tuple(Phase)
_VERSION_5, _EXPLAINS, _CONGESTED, _HAS_CONNECT, _HAS_PACE, _HAS_LEFT = 1, 2, 4, 8, 16, 32


def write_connection(to: Writer, connection: Connection, limits: Numbers[Limits]) -> None:
    """A connection, without its session."""
    if connection.decoder.held_bytes and not connection.is_closed():
        raise ValueError(
            f"connection {connection.number} ({connection.name}) holds {connection.decoder.held_bytes} bytes of a "
            "packet; a snapshot needs a broker that was given whole packets only"
        )
    origin, connect, pace = connection.origin, connection.connect, connection.pace
    to.pack(
        _CONNECTION,
        connection.number,
        _PHASES.index(connection.phase),
        _VERSION_5 * connection.version_5
        | _EXPLAINS * connection.explains
        | _CONGESTED * connection.congested
        | _HAS_CONNECT * (connect is not None)
        | _HAS_PACE * (pace is not None)
        | _HAS_LEFT * bool(connection.left),
        connection.packet_bytes_max,
        connection.aliases_max,
        connection.known_aliases_max,
        connection.held_bytes,
        connection.burst_bytes,
        limits[connection.limits],
        connection.opened_at,
        connection.connected_at,
        connection.heard_at,
        connection.silence_max_s,
        connection.burst_at,
    )
    to.texts(origin.listener, origin.peer, origin.identity, connection.user)
    if connect is not None:
        to.data(encode(connect, connect.version))
    if connection.left:
        to.texts(connection.left)
    if pace is not None:
        to.pack(_PACE, pace.rate_per_s, pace.hold_until, pace.tokens, pace.at)
    _write_topics(to, connection)
    to.count(len(connection.held))
    for packet in connection.held:
        to.data(_raw(packet, V5 if connection.version_5 else V311))


def _write_topics(to: Writer, connection: Connection) -> None:
    """Topic aliases in both directions, and what the client may publish to."""
    to.count(len(connection.aliases))
    for topic, alias in connection.aliases.items():
        to.pack(_ALIAS, alias)
        to.texts(topic)
    to.count(len(connection.known_aliases))
    for alias, topic in connection.known_aliases.items():
        to.pack(_ALIAS, alias)
        to.texts(topic)
    to.count(len(connection.allowed))
    to.texts(*connection.allowed)
    to.add(bytes(connection.allowed.values()))


def _raw(packet: Packet | PublishRun | AckRun, version: int) -> bytes:
    """A packet as it came."""
    if isinstance(packet, PublishRun):
        return packet.data
    if isinstance(packet, AckRun):
        return b"".join(encode(single, version) for single in packet.packets())
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


def read_connection(of: Reader, broker: BrokerCore, limits: list[Limits]) -> Connection:
    """What `write_connection` wrote, for a broker."""
    number, phase, flags, *sizes, limit, opened_at, connected_at, heard_at, silence_max_s, burst_at = of.unpack(
        _CONNECTION
    )
    origin = Origin(of.text(), of.text(), of.text())
    connection = Connection(number, origin, broker.decoder(origin.listener), opened_at)
    connection.phase = _PHASES[phase]
    connection.user = of.text()
    connection.version_5 = bool(flags & _VERSION_5)
    connection.explains = bool(flags & _EXPLAINS)
    connection.congested = bool(flags & _CONGESTED)
    connection.packet_bytes_max, connection.aliases_max, connection.known_aliases_max, *sizes = sizes
    connection.held_bytes, connection.burst_bytes = sizes
    connection.limits = limits[limit - 1]
    connection.connected_at, connection.heard_at, connection.silence_max_s = connected_at, heard_at, silence_max_s
    connection.burst_at = burst_at
    if flags & _HAS_CONNECT:
        connection.connect = _read_connect(of, connection)
    if connection.phase is Phase.OPEN:
        connection.decoder.limit(connection.limits.packet_bytes_max)
    if flags & _HAS_LEFT:
        connection.left = of.text()
    if flags & _HAS_PACE:
        rate_per_s, connection_hold, tokens, at = of.unpack(_PACE)
        connection.pace = Pace(rate_per_s, at)
        connection.pace.hold_until, connection.pace.tokens = connection_hold, tokens
    _read_topics(of, connection)
    for _ in range(of.count()):
        connection.held += connection.decoder.feed_runs(of.data())
    return connection


def _read_connect(of: Reader, connection: Connection) -> Connect:
    """The CONNECT, by the connection's own decoder, which learns the version by it."""
    packets = connection.decoder.feed(of.data())
    if len(packets) != 1 or not isinstance(packets[0], Connect):
        raise PeerError(f"the CONNECT of connection {connection.number} is not one")
    return packets[0]


def _read_topics(of: Reader, connection: Connection) -> None:
    for _ in range(of.count()):
        (alias,) = of.unpack(_ALIAS)
        connection.aliases[of.text()] = alias
    for _ in range(of.count()):
        (alias,) = of.unpack(_ALIAS)
        connection.known_aliases[alias] = of.text()
    topics = [of.text() for _ in range(of.count())]
    connection.allowed = dict(zip(topics, map(bool, of.take(len(topics))), strict=True))
