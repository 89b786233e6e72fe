"""Datagrams: whatever is encoded decodes to the same, and any bytes either decode or are rejected with a reason."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surecast.errors import ConfigurationError, PeerError
from surecast.protocol.coding import CodingSettings, Packet, VectorKind
from surecast.protocol.coding.checksum import checksum
from surecast.protocol.dissemination import (
    Body,
    Data,
    DatagramError,
    DatagramRejection,
    Granted,
    HopAck,
    Install,
    Known,
    Message,
    PublishRequest,
    Register,
    Registered,
    Unregister,
    View,
    decode,
    encode,
    message_bytes,
)
from surecast.protocol.gossip import Announced, Announcement, PacketRequest, Push, Reply, Wanted
from surecast.scenario.paths import Branch

GOLDEN = Path(__file__).parent / "golden" / "datagrams.txt"
CODING = CodingSettings(packets=6, packet_bytes=10)
KEY = b"a key of 16 bytes or more"

u8 = st.integers(0, 255)
u16 = st.integers(0, 2**16 - 1)
u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
times = st.integers(0, 2**52).map(lambda n: n / 1e6)
names = st.text(st.characters(codec="utf-8"), max_size=20)


@st.composite
def packets(draw: st.DrawFn) -> Packet:
    size = draw(st.integers(1, 60))
    count = -(-size // 10)
    payload = draw(st.binary(min_size=-(-size // count), max_size=-(-size // count)))
    kind = draw(st.sampled_from(VectorKind))
    vector = None
    if kind is VectorKind.RECODED:
        vector = np.array(draw(st.lists(st.integers(1, 255), min_size=count, max_size=count)), dtype=np.uint8)
    position = draw(st.integers(0, count - 1)) if kind is VectorKind.PLAIN else 0
    seed = draw(u64) if kind is VectorKind.SEEDED else 0
    return Packet(draw(u64), size, 0, count, kind, payload, position, seed, vector)


@st.composite
def branches(draw: st.DrawFn) -> Branch:
    ends = sorted(draw(st.lists(st.integers(0, 1000), min_size=2, max_size=8, unique=True)))
    blocks = tuple(zip(ends[::2], ends[1::2], strict=False))
    return Branch(draw(u32), draw(st.integers(1, 1000)), blocks)


values = st.one_of(st.floats(allow_nan=False, allow_infinity=False), names)
bodies = st.builds(
    Body,
    st.sampled_from(["a", "stock/foo", "ü/ä"]),
    st.binary(max_size=50),
    st.lists(st.tuples(names, values), max_size=5).map(tuple),
    st.floats(allow_nan=False, allow_infinity=False),
)
events = st.builds(Announced, u64, u32, u32, times)
wanted = st.builds(Wanted, u32, u16, st.lists(u16, max_size=9).map(tuple))
messages = st.one_of(
    st.builds(Data, u32, u16, times, packets(), u8),
    st.builds(Push, u32, times, packets()),
    st.builds(Reply, u32, times, packets()),
    st.builds(Announcement, st.lists(events, max_size=9).map(tuple)),
    st.builds(
        PacketRequest,
        u64,
        st.lists(wanted, max_size=9, unique_by=lambda w: w.generation).map(
            lambda found: tuple(sorted(found, key=lambda w: w.generation))
        ),
    ),
    st.builds(HopAck, u64, u32, u16, u8, st.integers(0, 1 << 64)),
    st.builds(
        Install, u32, u32, st.just(1000), u32, st.lists(branches(), max_size=4).map(tuple), st.just(1), st.just(3)
    ),
    st.builds(
        View, u32, u32, st.lists(u32, max_size=9).map(tuple), st.lists(events, max_size=5).map(tuple), st.booleans()
    ),
    st.builds(Known, u32, u32, u16),
    st.builds(Register, u32, u32, names, names),
    st.builds(Unregister, u32),
    st.builds(Registered, u32, st.booleans()),
    st.builds(PublishRequest, u32, u32, times, bodies),
    st.builds(Granted, u32, st.booleans(), u64, u32, st.floats(0.0, allow_nan=False)),
)


@given(messages, u32, st.sampled_from([None, KEY]))
def test_what_is_encoded_decodes_to_the_same(message: Message, sender: int, key: bytes | None) -> None:
    datagram = encode(message, sender, CODING, key)
    assert len(datagram) == message_bytes(message, CODING, key)
    named, found = decode(datagram, CODING, key)
    assert named == sender
    assert type(found) is type(message)
    assert encode(found, sender, CODING, key) == datagram
    if not isinstance(message, Data | Push | Reply):  # vectors have no truth value, so packets are compared as bytes
        assert found == message


@given(messages, st.data())
def test_a_datagram_with_any_byte_changed_is_rejected(message: Message, data: st.DataObject) -> None:
    datagram = bytearray(encode(message, 7, CODING))
    place = data.draw(st.integers(0, len(datagram) - 1))
    datagram[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(DatagramError):
        decode(bytes(datagram), CODING)


@given(messages, st.data())
def test_bytes_of_any_kind_either_decode_to_what_encodes_the_same_or_are_rejected(
    message: Message, data: st.DataObject
) -> None:
    """With a good checksum, so that the body is read: the forger knows it, or has the key."""
    datagram = encode(message, 7, CODING)[:-4]
    end = data.draw(st.integers(8, len(datagram)))
    forged = datagram[:end] + data.draw(st.binary(max_size=30))
    if data.draw(st.booleans()):
        forged = forged[:3] + bytes([data.draw(st.integers(0, 14))]) + forged[4:]
    forged += checksum(forged, None)
    try:
        sender, found = decode(forged, CODING)
    except DatagramError as error:
        assert error.reason in (DatagramRejection.FORM, DatagramRejection.PACKET, DatagramRejection.KIND)
    else:
        assert encode(found, sender, CODING) == forged


def one_of_each() -> list[Message]:
    """A message of each kind, with something in each field."""
    packet = Packet(9, 25, 0, 3, VectorKind.PLAIN, b"123456789", 2, 0, None)
    event = Announced(1 << 40, 2, 3, 1.5)
    return [
        Data(1, 2, 3.5, packet, 4),
        Push(1, 3.5, packet),
        Reply(1, 3.5, packet),
        Announcement((event, event)),
        PacketRequest(7, (Wanted(1, 2, (3, 4)), Wanted(2, 0, ()))),
        HopAck(1, 2, 3, 4, 0b1_0000_0001),
        Install(1, 2, 30, 4, (Branch(5, 6, ((0, 3), (4, 30))),), 1, 3),
        View(1, 2, (3, 4), (event,), False),
        Known(1, 2, 3),
        Register(1, 2, "a/ü", "price > 3"),
        Unregister(1),
        Registered(1, True),
        PublishRequest(1, 2, 3.5, Body("t", b"payload", (("price", 2.5), ("name", "ü")), 1.25)),
        Granted(1, True, 2, 3, 4.5),
    ]


def test_the_bytes_of_each_kind_of_message() -> None:
    written = [encode(message, 258, CODING).hex() for message in one_of_each()]
    assert written == GOLDEN.read_text(encoding="ascii").split()


@given(st.binary(max_size=100))
def test_noise_is_rejected(noise: bytes) -> None:
    with pytest.raises(DatagramError):
        decode(noise, CODING)


def forged(body: bytes, kind: int) -> bytes:
    datagram = b"SD\x02" + bytes([kind]) + bytes(4) + body
    return datagram + checksum(datagram, None)


@pytest.mark.parametrize(
    ("datagram", "reason"),
    [
        (bytes(1401), DatagramRejection.LONG),
        (b"SD\x02", DatagramRejection.SHORT),
        (b"XX" + forged(bytes(14), 5)[2:], DatagramRejection.MAGIC),
        (b"SD\x01" + forged(bytes(14), 5)[3:], DatagramRejection.VERSION),
        (forged(b"", 14), DatagramRejection.KIND),
        (forged(bytes(14), 5 + 128), DatagramRejection.KIND),
        (forged(bytes(14), 5)[:-1] + b"!", DatagramRejection.CHECKSUM),
        (forged(bytes(14), 5), DatagramRejection.FORM),
        (forged(bytes(15), 5), None),
        (forged(bytes(16), 5), DatagramRejection.FORM),
        (forged(bytes(23) + b"\x20" * 1, 3), None),
        (forged(bytes(16) + b"\xff" * 8, 3), DatagramRejection.FORM),
        (forged(bytes(8) + bytes(8) + bytes(8), 4), DatagramRejection.FORM),
        (forged(bytes(4) + b"\x02", 11), DatagramRejection.FORM),
        (forged(bytes(10) + b"\xff\xff", 9), DatagramRejection.FORM),
        (forged(bytes(8) + b"\0\x02\xff\xfe\0\0", 9), DatagramRejection.FORM),
        (forged(bytes(15) + bytes(50), 0), DatagramRejection.PACKET),
    ],
)
def test_each_fault_has_its_reason(datagram: bytes, reason: DatagramRejection | None) -> None:
    if reason is None:
        decode(datagram, CODING)
        return
    with pytest.raises(DatagramError) as caught:
        decode(datagram, CODING)
    assert caught.value.reason is reason


def test_another_key_or_none_is_rejected() -> None:
    datagram = encode(HopAck(1, 2, 3), 7, CODING, KEY)
    for key in (None, KEY + b"!"):
        with pytest.raises(DatagramError):
            decode(datagram, CODING, key)


def test_what_does_not_fit_is_not_sent() -> None:
    with pytest.raises(ConfigurationError, match="1400"):
        encode(Announcement((Announced(1, 2, 3, 4.0),) * 100), 7, CODING)
    with pytest.raises(ConfigurationError, match="cannot be sent"):
        encode(HopAck(1, 2, 70000), 7, CODING)
    with pytest.raises(ConfigurationError, match="cannot be sent"):
        encode(Announcement((Announced(1, 2, 3, float("inf")),)), 7, CODING)


@given(bodies)
def test_event_bodies_decode_to_the_same(body: Body) -> None:
    assert Body.decode(body.encode()) == body


@given(bodies, st.data())
def test_bytes_that_are_no_event_body_are_rejected(body: Body, data: st.DataObject) -> None:
    encoded = bytearray(body.encode())
    encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    try:
        Body.decode(bytes(encoded[: data.draw(st.integers(0, len(encoded)))]))
    except PeerError:
        pass
