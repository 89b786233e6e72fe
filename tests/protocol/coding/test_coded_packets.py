"""The wire: what is written is read, and nothing else is."""

from __future__ import annotations

import struct
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surecast.errors import ConfigurationError
from surecast.protocol.coding import (
    CodedPacketError,
    CodingSettings,
    EventDecoder,
    EventEncoder,
    Packet,
    PacketRejection,
    Recoder,
    VectorKind,
    encode,
    parse,
)
from surecast.protocol.coding.checksum import checksum
from surecast.protocol.coding.coded_packets import pack_vector, unpack_vector

KEY = b"a key of 16 byte"


def of_each_kind(settings: CodingSettings) -> list[Packet]:
    encoder = EventEncoder(77, b"an event of some length", settings, seed=3)
    recoder = Recoder(settings)
    recoder.add(encoder.plain()[1])
    recoder.add(encoder.coded(1)[0])
    return [encoder.plain()[2], encoder.coded(1)[0], recoder.packet(seed=5)]


@pytest.mark.parametrize("bits", [1, 4, 8])
@pytest.mark.parametrize("key", [None, KEY])
def test_what_is_written_is_read(bits: int, key: bytes | None) -> None:
    settings = CodingSettings(packets=5, packet_bytes=5, field_bits=bits, key=key)
    for packet, kind in zip(of_each_kind(settings), VectorKind, strict=True):
        again = parse(encode(packet, settings), settings)
        assert again.kind is packet.kind is kind
        assert again.payload == packet.payload
        assert again.vector(bits).tolist() == packet.vector(bits).tolist()
        assert again[:4] == packet[:4]


@pytest.mark.parametrize("bits", [1, 4, 8])
@pytest.mark.parametrize("key", [None, KEY])
def test_a_flipped_bit_anywhere_is_rejected_and_counted(bits: int, key: bytes | None) -> None:
    settings = CodingSettings(packets=5, packet_bytes=5, field_bits=bits, key=key)
    decoder = EventDecoder(settings, 77)
    count = 0
    for packet in of_each_kind(settings):
        good = encode(packet, settings)
        for bit in range(8 * len(good)):
            bad = bytearray(good)
            bad[bit // 8] ^= 1 << bit % 8
            assert not decoder.receive(bytes(bad))
            count += 1
    assert sum(decoder.rejected.values()) == count
    assert set(decoder.rejected) == {PacketRejection.MAGIC, PacketRejection.VERSION, PacketRejection.CHECKSUM}
    assert decoder.rank == decoder.redundant == 0


@given(data=st.data())
def test_damage_cuts_and_additions_are_rejected(data: st.DataObject) -> None:
    settings = CodingSettings(packets=5, packet_bytes=5, key=data.draw(st.sampled_from([None, KEY])))
    good = encode(data.draw(st.sampled_from(of_each_kind(settings))), settings)
    start = data.draw(st.integers(0, len(good)))
    end = data.draw(st.integers(start, min(len(good), start + 4)))
    bad = good[:start] + data.draw(st.binary(max_size=4)) + good[end:]
    if bad != good:
        with pytest.raises(CodedPacketError):
            parse(bad, settings)


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_rejected(data: bytes) -> None:
    settings = CodingSettings(packets=3, packet_bytes=4)
    signed = data + checksum(data, None)
    for candidate in (data, signed, b"SC\x01" + data):
        try:
            packet = parse(candidate, settings)
        except CodedPacketError:
            continue
        assert encode(packet, settings) == candidate


def forged(settings: CodingSettings, **changes: int | bytes) -> bytes:
    """A packet of our own making with a good checksum."""
    values: dict[str, int | bytes] = {
        "magic": b"SC",
        "version": 1,
        "kind": 0,
        "bits": settings.field_bits,
        "packets": settings.packets,
        "packet_bytes": settings.packet_bytes,
        "event": 77,
        "size": 20,
        "generation": 0,
        "rest": b"\0\1" + bytes(5),
    }
    values |= changes
    rest = values.pop("rest")
    assert isinstance(rest, bytes)
    body = struct.pack(">2sBBBHIQQI", *values.values()) + rest
    return body + checksum(body, settings.key)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"magic": b"XX"}, PacketRejection.MAGIC),
        ({"version": 2}, PacketRejection.VERSION),
        ({"kind": 3}, PacketRejection.KIND),
        ({"kind": 16}, PacketRejection.KIND),
        ({"kind": 32}, PacketRejection.KIND),
        ({"bits": 8}, PacketRejection.SETTINGS),
        ({"packets": 5}, PacketRejection.SETTINGS),
        ({"packet_bytes": 6}, PacketRejection.SETTINGS),
        ({"event": 78}, PacketRejection.EVENT),
        ({"size": 19}, PacketRejection.EVENT),
        ({"size": 1 << 32}, PacketRejection.SIZE),
        ({"size": 1 << 63}, PacketRejection.SIZE),
        ({"generation": 1}, PacketRejection.GENERATION),
        ({"rest": b"\0\4" + bytes(5)}, PacketRejection.INDEX),
        ({"rest": b"\0\1" + bytes(4)}, PacketRejection.LENGTH),
        ({"rest": b"\0\1" + bytes(6)}, PacketRejection.LENGTH),
        ({"rest": b""}, PacketRejection.LENGTH),
        ({"kind": 2, "rest": b"\0\0" + bytes(5)}, PacketRejection.VECTOR),
    ],
)
def test_alien_packets_are_counted_by_reason(changes: dict[str, int | bytes], reason: PacketRejection) -> None:
    settings = CodingSettings(packets=4, packet_bytes=5, field_bits=4)
    decoder = EventDecoder(settings)
    assert decoder.receive(forged(settings))
    assert not decoder.receive(forged(settings, **changes))
    assert not decoder.receive(b"SC")
    assert decoder.rejected == Counter([reason, PacketRejection.SHORT])
    assert (decoder.innovative, decoder.redundant) == (1, 0)


def test_padding_of_a_vector_must_be_zero() -> None:
    settings = CodingSettings(packets=3, packet_bytes=5, field_bits=4)
    good, bad = (forged(settings, kind=2, size=15, rest=vector + bytes(5)) for vector in (b"\x21\x03", b"\x21\x13"))
    assert parse(good, settings).vector(4).tolist() == [1, 2, 3]
    with pytest.raises(CodedPacketError, match="malformed vector"):
        parse(bad, settings)


def test_packets_with_and_without_a_key_do_not_mix() -> None:
    open_settings, keyed, other = (CodingSettings(packet_bytes=40, key=key) for key in (None, KEY, KEY[::-1]))
    packet = EventEncoder(1, b"an event of some length", open_settings, seed=1).plain()[0]
    for sender, receiver in ((open_settings, keyed), (keyed, open_settings), (keyed, other)):
        with pytest.raises(CodedPacketError) as caught:
            parse(encode(packet, sender), receiver)
        assert caught.value.reason is PacketRejection.CHECKSUM
    assert "16 byte" not in repr(keyed)


def test_packets_that_never_were_on_the_wire_are_checked_too() -> None:
    settings = CodingSettings(packets=4, packet_bytes=5, field_bits=4)
    good = EventEncoder(1, bytes(20), settings, seed=1).plain()[0]
    decoder = EventDecoder(settings)
    bad = [
        good._replace(size=1 << 40),
        good._replace(generation=1),
        good._replace(packets=3),
        good._replace(payload=b"1234"),
        good._replace(position=4),
        good._replace(kind=VectorKind.RECODED, full_vector=np.array([1, 2, 3], dtype=np.uint8)),
        good._replace(kind=VectorKind.RECODED, full_vector=np.array([1, 2, 3, 16], dtype=np.uint8)),
    ]
    assert not any(decoder.add(packet) for packet in bad)
    assert decoder.event_id is None
    reasons = [
        PacketRejection.SIZE,
        PacketRejection.GENERATION,
        PacketRejection.SETTINGS,
        PacketRejection.LENGTH,
        PacketRejection.INDEX,
        PacketRejection.VECTOR,
    ]
    assert decoder.rejected == Counter([*reasons, PacketRejection.VECTOR])
    assert decoder.add(good)


@pytest.mark.parametrize("bits", [1, 4, 8])
@given(data=st.data())
def test_vectors_are_packed_and_unpacked(bits: int, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.integers(0, (1 << bits) - 1), min_size=1, max_size=20).filter(any))
    packed = pack_vector(np.array(values, dtype=np.uint8), bits)
    assert len(packed) == -(-len(values) * bits // 8)
    assert unpack_vector(packed, len(values), bits).tolist() == values


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"packets": 0}, "packets is 0; it must be from 1 to 4096"),
        ({"packets": 4097}, "packets is 4097"),
        ({"packet_bytes": 0}, "packet_bytes is 0"),
        ({"field_bits": 2}, "field_bits is 2"),
        ({"redundancy": -0.1}, "redundancy is -0.1"),
        ({"redundancy": float("nan")}, "redundancy is nan"),
        ({"key": b"short"}, "key has 5 bytes"),
        ({"event_bytes_max": (1 << 32) + 1}, "event_bytes_max is 4294967297"),
        ({"generations_max": 0}, "generations_max is 0"),
    ],
)
def test_wrong_settings_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        CodingSettings(**changes)  # type: ignore[arg-type]


def test_events_beyond_the_limits_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="event_bytes_max allows 10"):
        EventEncoder(1, bytes(11), CodingSettings(event_bytes_max=10), seed=1)
    with pytest.raises(ConfigurationError, match="has 3 generations; generations_max allows 2"):
        EventEncoder(1, bytes(9), CodingSettings(packets=2, packet_bytes=2, generations_max=2), seed=1)
    with pytest.raises(ConfigurationError, match="event number is -1"):
        EventEncoder(-1, b"", CodingSettings(), seed=1)
    assert CodingSettings(event_bytes_max=1 << 32).event_bytes_max == 1 << 32
