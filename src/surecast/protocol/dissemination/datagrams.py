"""Messages as datagrams.

| bytes | field |
|---|---|
| 2 | magic `SD` |
| 1 | version, 1 |
| 1 | kind; plus 128 where the checksum is keyed |
| 4 | sender |
| as the kind says | body |
| 4 or 16 | CRC-32C, or keyed BLAKE2b, of all before |

Numbers are big-endian, times whole microseconds. Any bytes either decode or raise `DatagramError`, whose reason is
what rejections are counted by; and whatever decodes, encodes to the same bytes again.
"""

from __future__ import annotations

import struct
from enum import StrEnum
from typing import Final

from surecast.errors import ConfigurationError, PeerError
from surecast.protocol.coding import CodedPacketError, CodingSettings, Packet, VectorKind
from surecast.protocol.coding.checksum import CRC_BYTES, KEYED_BYTES, checksum, checksum_fits
from surecast.protocol.dissemination import dissemination_messages as m
from surecast.protocol.dissemination.datagram_bodies import (
    ACK,
    DATA,
    EVENT,
    PACKET,
    PUSH,
    REQUEST,
    VIEW,
    WANTED,
    bitmap_bytes,
    read_body,
    write_body,
)
from surecast.protocol.gossip import Announcement, PacketRequest, Push, Reply

__all__ = [
    "DATA_BYTES",
    "DatagramError",
    "DatagramRejection",
    "ack_bytes",
    "decode",
    "digest_bytes",
    "encode",
    "message_bytes",
    "request_bytes",
    "view_bytes",
]

MAGIC: Final = b"SD"
VERSION: Final = 1
_KEYED: Final = 128
_HEADER: Final = struct.Struct(">2sBBI")

DATA_BYTES: Final = _HEADER.size + DATA.size + PACKET
"""What a datagram of data takes besides the encoding vector, the payload and its own checksum."""


class DatagramRejection(StrEnum):
    """Why a datagram is rejected."""

    LONG = "too long"
    SHORT = "too short"
    MAGIC = "not ours"
    VERSION = "unknown version"
    KIND = "unknown kind"
    CHECKSUM = "wrong checksum"
    FORM = "malformed"
    PACKET = "bad packet"


class DatagramError(PeerError):
    """Bytes that are no datagram of ours."""

    def __init__(self, reason: DatagramRejection, message: str):
        self.reason = reason
        super().__init__(f"datagram rejected ({reason}): {message}")


_KINDS: Final[tuple[type[m.Message], ...]] = (
    m.Data,
    Push,
    Reply,
    Announcement,
    PacketRequest,
    m.HopAck,
    m.Install,
    m.View,
    m.Known,
    m.Register,
    m.Unregister,
    m.Registered,
    m.PublishRequest,
    m.Granted,
)
_NUMBER_OF: Final = {kind: number for number, kind in enumerate(_KINDS)}


def encode(
    message: m.Message, sender: int, coding: CodingSettings, key: bytes | None = None, mtu_bytes: int = 1400
) -> bytes:
    """A message as a datagram.

    >>> datagram = encode(m.HopAck(7, 0, 3, 1, 0b1000), 1, CodingSettings())
    >>> len(datagram), decode(datagram, CodingSettings())
    (28, (1, HopAck(event_id=7, generation=0, number=3, turn=1, received=8)))
    """
    kind = _NUMBER_OF[type(message)] | (_KEYED if key is not None else 0)
    try:
        datagram = _HEADER.pack(MAGIC, VERSION, kind, sender) + write_body(message, coding)
    except struct.error as error:
        raise ConfigurationError(f"{message!r} cannot be sent: {error}") from None
    datagram += checksum(datagram, key)
    if len(datagram) > mtu_bytes:
        raise ConfigurationError(
            f"a {type(message).__name__} takes {len(datagram)} bytes, and a datagram holds {mtu_bytes}"
        )
    return datagram


def decode(
    datagram: bytes, coding: CodingSettings, key: bytes | None = None, mtu_bytes: int = 1400
) -> tuple[int, m.Message]:
    """The sender that a datagram names, and the message in it.

    >>> decode(b"hello", CodingSettings())
    Traceback (most recent call last):
    ...
    surecast.protocol.dissemination.datagrams.DatagramError: datagram rejected (too short): it has 5 bytes
    """
    tail = CRC_BYTES if key is None else KEYED_BYTES
    if len(datagram) > mtu_bytes:
        raise DatagramError(DatagramRejection.LONG, f"it has {len(datagram)} bytes; {mtu_bytes} are allowed")
    if len(datagram) < _HEADER.size + tail:
        raise DatagramError(DatagramRejection.SHORT, f"it has {len(datagram)} bytes")
    magic, version, kind, sender = _HEADER.unpack_from(datagram)
    if magic != MAGIC:
        raise DatagramError(DatagramRejection.MAGIC, f"it begins with {magic!r}, not {MAGIC!r}")
    if version != VERSION:
        raise DatagramError(DatagramRejection.VERSION, f"version {version}; this is version {VERSION}")
    number = kind & ~_KEYED
    if number >= len(_KINDS) or bool(kind & _KEYED) != (key is not None):
        raise DatagramError(DatagramRejection.KIND, f"kind {kind}")
    if not checksum_fits(datagram[:-tail], datagram[-tail:], key):
        raise DatagramError(DatagramRejection.CHECKSUM, "it was damaged, or made with another key")
    try:
        return sender, read_body(_KINDS[number], datagram[_HEADER.size : -tail], coding)
    except CodedPacketError as error:
        raise DatagramError(DatagramRejection.PACKET, str(error)) from None
    except (struct.error, ValueError, PeerError) as error:
        raise DatagramError(DatagramRejection.FORM, f"a {_KINDS[number].__name__}: {error}") from None


def ack_bytes(numbers: int) -> int:
    """An acknowledgement of so many packets, without checksum."""
    return _HEADER.size + ACK.size + bitmap_bytes(numbers)


def digest_bytes(events: int) -> int:
    """A digest of so many events, without checksum."""
    return _HEADER.size + events * EVENT.size


def request_bytes(generations: int, numbers: int) -> int:
    """A request for so many generations and numbers of packets, without checksum."""
    return _HEADER.size + REQUEST.size + generations * WANTED.size + 2 * numbers


def view_bytes(peers: int) -> int:
    """A view of so many peers, without events and checksum."""
    return _HEADER.size + VIEW.size + 4 * peers


def message_bytes(
    message: m.Message, coding: CodingSettings, key: bytes | None = None, payload_bytes: int | None = None
) -> int:
    """How long the datagram of a message is, without making it. `payload_bytes` counts each payload as so long, for
    simulations that carry shorter ones.

    >>> message_bytes(m.HopAck(7, 0, 3), CodingSettings())
    27
    """
    tail = CRC_BYTES if key is None else KEYED_BYTES
    if isinstance(message, m.Data):
        body = DATA.size + _packet_bytes(message.packet, coding, payload_bytes)
    elif isinstance(message, Push | Reply):
        body = PUSH.size + _packet_bytes(message.packet, coding, payload_bytes)
    elif isinstance(message, Announcement):
        body = EVENT.size * len(message.events)
    elif isinstance(message, m.HopAck):
        body = ACK.size + bitmap_bytes(message.received.bit_length())
    else:
        body = len(write_body(message, coding))
    return _HEADER.size + body + tail


def _packet_bytes(packet: Packet, coding: CodingSettings, payload_bytes: int | None) -> int:
    if packet.kind is VectorKind.PLAIN:
        vector = 2
    elif packet.kind is VectorKind.SEEDED:
        vector = 8
    else:
        vector = (packet.packets * coding.field_bits + 7) // 8
    tail = CRC_BYTES if coding.key is None else KEYED_BYTES
    return PACKET - CRC_BYTES + tail + vector + (len(packet.payload) if payload_bytes is None else payload_bytes)
