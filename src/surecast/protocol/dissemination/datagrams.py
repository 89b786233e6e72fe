"""Messages as datagrams.

| bytes | field |
|---|---|
| 2 | magic `SD` |
| 1 | version, 2 |
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
from surecast.protocol.codec import CodecError
from surecast.protocol.coding import CodedPacketError, CodingSettings, Packet, VectorKind
from surecast.protocol.coding.checksum import CRC_BYTES, KEYED_BYTES, checksum, checksum_fits
from surecast.protocol.dissemination import dissemination_messages as m
from surecast.protocol.dissemination.datagram_bodies import (
    DATA_BYTES,
    EVENT,
    HOP_ACK,
    KINDS,
    PACKET_BYTES,
    PUSH_BYTES,
    REQUEST,
    VIEW,
    WANTED,
    bitmap_bytes,
    layouts,
)
from surecast.protocol.gossip import Announcement, Push, Reply

__all__ = [
    "DATA_DATAGRAM_BYTES",
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
VERSION: Final = 2
_KEYED: Final = 128
_HEADER: Final = struct.Struct(">2sBBI")

DATA_DATAGRAM_BYTES: Final = _HEADER.size + DATA_BYTES + PACKET_BYTES
"""Bytes of a datagram of data besides the encoding vector, the payload and its own checksum."""


class DatagramRejection(StrEnum):
    """The reasons for which a datagram is rejected."""

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


_NUMBER_OF: Final = {kind: number for number, kind in enumerate(KINDS)}


def encode(
    message: m.Message, sender: int, coding: CodingSettings, key: bytes | None = None, mtu_bytes: int = 1400
) -> bytes:
    """A message as a datagram.

    >>> datagram = encode(m.HopAck(7, 0, 3, 1, 0b1000), 1, CodingSettings())
    >>> len(datagram), decode(datagram, CodingSettings())
    (28, (1, HopAck(event_id=7, generation=0, number=3, attempt=1, received=8)))
    """
    kind = _NUMBER_OF[type(message)] | (_KEYED if key is not None else 0)
    try:
        datagram = _HEADER.pack(MAGIC, VERSION, kind, sender) + layouts(coding)[type(message)].encode(message)
    except (struct.error, ValueError) as error:
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
    if number >= len(KINDS) or bool(kind & _KEYED) != (key is not None):
        raise DatagramError(DatagramRejection.KIND, f"kind {kind}")
    if not checksum_fits(datagram[:-tail], datagram[-tail:], key):
        raise DatagramError(DatagramRejection.CHECKSUM, "it was damaged, or made with another key")
    try:
        message: m.Message = layouts(coding)[KINDS[number]].decode(datagram[_HEADER.size : -tail])
    except CodecError as error:
        is_packet = isinstance(error.__cause__, CodedPacketError)
        raise DatagramError(DatagramRejection.PACKET if is_packet else DatagramRejection.FORM, str(error)) from None
    return sender, message


def ack_bytes(numbers: int) -> int:
    """An acknowledgement of so many packets, without checksum."""
    return _HEADER.size + HOP_ACK.size_min + bitmap_bytes(numbers)


def digest_bytes(events: int) -> int:
    """A digest of so many events, without checksum."""
    return _HEADER.size + events * EVENT.size_min


def request_bytes(generations: int, numbers: int) -> int:
    """A request for so many generations and numbers of packets, without checksum."""
    return _HEADER.size + REQUEST.size_min + generations * WANTED.size_min + 2 * numbers


def view_bytes(peers: int) -> int:
    """A view of so many peers, without events and checksum."""
    return _HEADER.size + VIEW.size_min + 4 * peers


def message_bytes(
    message: m.Message, coding: CodingSettings, key: bytes | None = None, payload_bytes: int | None = None
) -> int:
    """Returns the size of the datagram of a message without encoding it.

    Where `payload_bytes` is given, each payload counts as that long: simulations carry shorter ones.

    >>> message_bytes(m.HopAck(7, 0, 3), CodingSettings())
    27
    """
    tail = CRC_BYTES if key is None else KEYED_BYTES
    if isinstance(message, m.Data):
        body = DATA_BYTES + _packet_bytes(message.packet, coding, payload_bytes)
    elif isinstance(message, Push | Reply):
        body = PUSH_BYTES + _packet_bytes(message.packet, coding, payload_bytes)
    elif isinstance(message, Announcement):
        body = EVENT.size_min * len(message.events)
    elif isinstance(message, m.HopAck):
        body = HOP_ACK.size_min + bitmap_bytes(message.received.bit_length())
    else:
        body = len(layouts(coding)[type(message)].encode(message))
    return _HEADER.size + body + tail


def _packet_bytes(packet: Packet, coding: CodingSettings, payload_bytes: int | None) -> int:
    if packet.kind is VectorKind.PLAIN:
        vector = 2
    elif packet.kind is VectorKind.SEEDED:
        vector = 8
    else:
        vector = (packet.packets * coding.field_bits + 7) // 8
    tail = CRC_BYTES if coding.key is None else KEYED_BYTES
    return PACKET_BYTES - CRC_BYTES + tail + vector + (len(packet.payload) if payload_bytes is None else payload_bytes)
