"""Packets of coded events, and their form on the wire.

| bytes | field |
|---|---|
| 2 | magic `SC` |
| 1 | version, 1 |
| 1 | kind: 0 plain, 1 coded by the source, 2 recoded; plus 16 where the checksum is keyed |
| 1 | bits of a symbol: 1, 4 or 8 |
| 2 | plain packets of a full generation |
| 4 | longest payload |
| 8 | event |
| 8 | bytes of the event |
| 4 | generation |
| 2 / 8 / n symbols packed | index of a plain packet / seed of the vector / the encoding vector itself |
| as the layout says | payload |
| 4 or 16 | CRC-32C, or keyed BLAKE2b, of all before |

Numbers are big-endian. The first coefficient of a packed vector is in the lowest bits of the first byte.
A vector that only the source made is drawn from a seed, and the seed is sent; after recoding it is sent in full.
"""

from __future__ import annotations

import struct
from enum import IntEnum, StrEnum
from typing import NamedTuple

import numpy as np

from surecast.errors import ConfigurationError, PeerError
from surecast.protocol.coding.checksum import CRC_BYTES, KEYED_BYTES, checksum, checksum_fits
from surecast.protocol.coding.coding_settings import CodingSettings, GenerationLayout
from surecast.protocol.coding.field_kernels import draw
from surecast.protocol.coding.fields import Bytes

__all__ = [
    "CodedPacketError",
    "Packet",
    "PacketRejection",
    "VectorKind",
    "draw_vector",
    "encode",
    "pack_vector",
    "parse",
    "unpack_vector",
]

MAGIC = b"SC"
VERSION = 1
_KEYED = 16
_HEADER = struct.Struct(">2sBBBHIQQI")
_INDEX = struct.Struct(">H")
_SEED = struct.Struct(">Q")


class VectorKind(IntEnum):
    """The form of the encoding vector in a packet."""

    PLAIN = 0
    SEEDED = 1
    RECODED = 2


class PacketRejection(StrEnum):
    """The reasons for which a packet is rejected."""

    SHORT = "too short"
    MAGIC = "not a coded packet"
    VERSION = "unknown version"
    KIND = "unknown kind"
    CHECKSUM = "wrong checksum"
    SETTINGS = "coded otherwise"
    SIZE = "event beyond the limits"
    GENERATION = "no such generation"
    INDEX = "no such packet"
    VECTOR = "empty or malformed vector"
    LENGTH = "wrong length"
    EVENT = "another event"


class CodedPacketError(PeerError):
    """Bytes that are no packet of ours; `reason` is what rejections are counted by."""

    def __init__(self, reason: PacketRejection, message: str):
        self.reason = reason
        super().__init__(f"coded packet rejected ({reason}): {message}")


class Packet(NamedTuple):
    """A packet of a coded event. `packets` and `payload` have what the event's layout says."""

    event_id: int
    size: int
    """Bytes of the event."""
    generation: int
    packets: int
    """Plain packets of this generation, and coefficients of the vector."""
    kind: VectorKind
    payload: bytes
    position: int = 0
    """Which plain packet of the generation it is; of a plain packet only."""
    seed: int = 0
    """The seed from which the vector was drawn; only packets coded by the source have one."""
    full_vector: Bytes | None = None
    """The vector of a recoded packet."""

    def vector(self, field_bits: int) -> Bytes:
        """The encoding vector, one coefficient a byte: the payload is the combination of plain packets it says.

        >>> Packet(7, 10, 0, 3, VectorKind.PLAIN, b"0123", position=2).vector(8).tolist()
        [0, 0, 1]
        """
        if self.full_vector is not None:
            return self.full_vector
        if self.kind is VectorKind.SEEDED:
            return draw_vector(self.seed, self.packets, field_bits)
        vector = np.zeros(self.packets, dtype=np.uint8)
        vector[self.position] = 1
        return vector


def draw_vector(seed: int, packets: int, field_bits: int) -> Bytes:
    """The encoding vector of a seed: uniform, but for the useless zero vector, in whose place is the first unit vector.

    >>> draw_vector(1, 5, 4).tolist()
    [1, 12, 12, 5, 2]
    """
    vector = np.empty(packets, dtype=np.uint8)
    if not draw(np.uint64(seed), field_bits, vector):
        vector[0] = 1
    return vector


def pack_vector(vector: Bytes, field_bits: int) -> bytes:
    """A vector as it is sent: 8, 2 or 1 coefficients a byte.

    >>> pack_vector(np.array([1, 2, 3], dtype=np.uint8), 4).hex()
    '2103'
    """
    if field_bits == 8:
        return vector.tobytes()
    if field_bits == 1:
        return np.packbits(vector, bitorder="little").tobytes()
    padded = np.zeros(len(vector) + len(vector) % 2, dtype=np.uint8)
    padded[: len(vector)] = vector
    return (padded[::2] | (padded[1::2] << np.uint8(4))).tobytes()


def unpack_vector(data: bytes, packets: int, field_bits: int) -> Bytes:
    """The vector that was packed. Whatever pads its last byte must be 0.

    >>> unpack_vector(bytes.fromhex("2103"), 3, 4).tolist()
    [1, 2, 3]
    """
    raw: Bytes = np.frombuffer(data, dtype=np.uint8)
    if field_bits == 1:
        raw = np.unpackbits(raw, bitorder="little")
    elif field_bits == 4:
        raw = np.stack([raw & np.uint8(15), raw >> np.uint8(4)], axis=1).reshape(-1)
    if raw[packets:].any() or not raw[:packets].any():
        raise CodedPacketError(PacketRejection.VECTOR, "its encoding vector is 0, or its padding is not")
    return raw[:packets]


def vector_bytes(packets: int, field_bits: int) -> int:
    """Returns the length of a packed vector in bytes."""
    return (packets * field_bits + 7) // 8


def encode(packet: Packet, settings: CodingSettings) -> bytes:
    """A packet as bytes.

    >>> settings = CodingSettings()
    >>> parse(encode(Packet(7, 4, 0, 1, VectorKind.PLAIN, b"0123"), settings), settings).payload
    b'0123'
    """
    if not 0 <= packet.event_id < 1 << 64:
        raise ConfigurationError(f"the event number {packet.event_id} cannot be sent; it must be below 2^64")
    if packet.kind is VectorKind.PLAIN:
        vector = _INDEX.pack(packet.position)
    elif packet.kind is VectorKind.SEEDED:
        vector = _SEED.pack(packet.seed)
    else:
        vector = pack_vector(packet.vector(settings.field_bits), settings.field_bits)
    head = _HEADER.pack(
        MAGIC,
        VERSION,
        packet.kind | (_KEYED if settings.key is not None else 0),
        settings.field_bits,
        settings.packets,
        settings.packet_bytes,
        packet.event_id,
        packet.size,
        packet.generation,
    )
    body = head + vector + packet.payload
    return body + checksum(body, settings.key)


def parse(data: bytes, settings: CodingSettings) -> Packet:
    """The packet in some bytes; raises `CodedPacketError` unless every byte is as `encode` writes it with these
    settings.

    >>> parse(b"hello", CodingSettings())
    Traceback (most recent call last):
    ...
    surecast.protocol.coding.coded_packets.CodedPacketError: coded packet rejected (too short): it has 5 bytes
    """
    tail = CRC_BYTES if settings.key is None else KEYED_BYTES
    if len(data) < _HEADER.size + tail:
        raise CodedPacketError(PacketRejection.SHORT, f"it has {len(data)} bytes")
    magic, version, kind_byte, bits, packets, packet_bytes, event_id, size, generation = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise CodedPacketError(PacketRejection.MAGIC, f"it begins with {magic!r}, not {MAGIC!r}")
    if version != VERSION:
        raise CodedPacketError(PacketRejection.VERSION, f"version {version}; this is version {VERSION}")
    if not checksum_fits(data[:-tail], data[-tail:], settings.key):
        raise CodedPacketError(PacketRejection.CHECKSUM, "it was damaged, or made with another key")
    keyed = _KEYED if settings.key is not None else 0
    if kind_byte & ~_KEYED > VectorKind.RECODED or kind_byte & _KEYED != keyed:
        raise CodedPacketError(PacketRejection.KIND, f"kind {kind_byte}")
    if (bits, packets, packet_bytes) != (settings.field_bits, settings.packets, settings.packet_bytes):
        raise CodedPacketError(
            PacketRejection.SETTINGS,
            f"{packets} packets of {packet_bytes} bytes, {bits} bits a symbol; "
            f"here {settings.packets} of {settings.packet_bytes}, {settings.field_bits} bits",
        )
    try:
        layout = GenerationLayout.of(size, settings)
    except ConfigurationError as error:
        raise CodedPacketError(PacketRejection.SIZE, str(error)) from None
    if generation >= layout.generations:
        raise CodedPacketError(PacketRejection.GENERATION, f"generation {generation} of {layout.generations}")
    return _parse_body(data[_HEADER.size : -tail], VectorKind(kind_byte & ~_KEYED), event_id, generation, layout, bits)


def _parse_body(
    data: bytes, kind: VectorKind, event_id: int, generation: int, layout: GenerationLayout, bits: int
) -> Packet:
    packets = layout.packets_in(generation)
    long = (_INDEX.size, _SEED.size, vector_bytes(packets, bits))[kind]
    if len(data) != long + layout.payload_bytes:
        raise CodedPacketError(
            PacketRejection.LENGTH, f"{len(data)} bytes of vector and payload, not {long} + {layout.payload_bytes}"
        )
    payload = data[long:]
    if kind is VectorKind.PLAIN:
        (position,) = _INDEX.unpack_from(data)
        if position >= packets:
            raise CodedPacketError(PacketRejection.INDEX, f"plain packet {position} of {packets}")
        return Packet(event_id, layout.size, generation, packets, kind, payload, position=position)
    if kind is VectorKind.SEEDED:
        (seed,) = _SEED.unpack_from(data)
        return Packet(event_id, layout.size, generation, packets, kind, payload, seed=seed)
    vector = unpack_vector(data[:long], packets, bits)
    return Packet(event_id, layout.size, generation, packets, kind, payload, full_vector=vector)
