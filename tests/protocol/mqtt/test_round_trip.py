"""What is written is read again in both versions, however it is cut; the short cut reads what the plain way reads."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, replace
from itertools import pairwise, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surecast.errors import ConfigurationError
from surecast.protocol.mqtt import (
    ALLOWED_REASONS,
    V5,
    V31,
    V311,
    Auth,
    Connack,
    Connect,
    Disconnect,
    MalformedPacket,
    Packet,
    PacketDecoder,
    PacketError,
    PacketType,
    Pingreq,
    Pingresp,
    Properties,
    ProtocolError,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    ReasonCode,
    Side,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Unsuback,
    Unsubscribe,
    Will,
    encode,
    encode_properties,
    encode_publish,
    passed_on_properties,
)
from surecast.protocol.mqtt.properties import NO_PROPERTIES, PROPERTIES, WILL, PropertyType, ValueType
from surecast.protocol.mqtt.reasons import CONNACK_RETURN_CODES

TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn"]), max_size=12)
LEVEL = st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn"], exclude_characters="/+#$"), max_size=5)
TOPIC = st.lists(LEVEL, min_size=1, max_size=5).map("/".join).filter(bool)
FILTER = (
    st.tuples(st.lists(LEVEL | st.just("+"), min_size=1, max_size=4).map("/".join), st.sampled_from(["", "/#"]))
    .map("".join)
    .filter(bool)
)
PACKET_ID = st.integers(1, 65_535)
QOS = st.integers(0, 2)
VALUES: dict[ValueType, st.SearchStrategy[Any]] = {
    ValueType.FLAG: st.booleans(),
    ValueType.BYTE: st.integers(0, 1),
    ValueType.TWO: st.integers(1, 65_535),
    ValueType.FOUR: st.integers(1, 2**32 - 1),
    ValueType.TEXT: TEXT,
    ValueType.BINARY: st.binary(max_size=12),
    ValueType.VARIABLE: st.lists(st.integers(1, 268_435_455), min_size=1, max_size=3).map(tuple),
    ValueType.PAIR: st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=3).map(tuple),
}


def values(line: PropertyType, place: int) -> st.SearchStrategy[Any]:
    if line.name == "response_topic":
        return TOPIC
    if line.name == "subscription_ids" and place == PacketType.SUBSCRIBE:
        return st.integers(1, 268_435_455).map(lambda one: (one,))
    return VALUES[line.kind]


def properties(place: int, version: int, *leave_out: str) -> st.SearchStrategy[Properties]:
    """Any properties that may stand at this place; authentication data only beside a method."""
    if version != V5:
        return st.just(NO_PROPERTIES)
    lines = [line for line in PROPERTIES.values() if place in line.carriers and line.name not in leave_out]
    needed = ["authentication_method"] if place == PacketType.AUTH else []
    return st.fixed_dictionaries(
        {line.name: values(line, place) for line in lines if line.name in needed},
        optional={line.name: values(line, place) for line in lines if line.name not in needed},
    ).map(consistent)


def consistent(given: dict[str, Any]) -> Properties:
    if "authentication_method" not in given:
        given.pop("authentication_data", None)
    return Properties(**given)


def reasons(name: str, version: int) -> st.SearchStrategy[ReasonCode]:
    if version == V5:
        return st.sampled_from(list(ALLOWED_REASONS[name].values()))
    if name == "CONNACK":
        return st.sampled_from(list(CONNACK_RETURN_CODES.values()))
    return st.sampled_from([ReasonCode(code) for code in (0, 1, 2, 0x80)] if name == "SUBACK" else [ReasonCode.SUCCESS])


def connects(version: int) -> st.SearchStrategy[Connect]:
    will = st.builds(Will, TOPIC, st.binary(max_size=9), QOS, st.booleans(), properties(WILL, version))
    user = st.none() | TEXT
    made = st.builds(
        Connect,
        TEXT,
        st.booleans(),
        st.integers(0, 65_535),
        user,
        st.none() | st.binary(max_size=9),
        st.none() | will,
        properties(PacketType.CONNECT, version),
        st.just(version),
    )
    return made.filter(lambda packet: version == V5 or packet.username is not None or packet.password is None)


def publishes(version: int, side: Side) -> st.SearchStrategy[Publish]:
    leave_out = ("subscription_ids",) if side == "server" else ()
    quality = st.tuples(st.just(0), st.just(False), st.just(0)) | st.tuples(st.integers(1, 2), st.booleans(), PACKET_ID)
    made = st.tuples(TOPIC, st.binary(max_size=200), quality, st.booleans(), properties(3, version, *leave_out))
    return made.map(lambda m: Publish(m[0], m[1], m[2][0], m[3], m[2][1], m[2][2], m[4]))


def acknowledgements(version: int) -> list[st.SearchStrategy[Packet]]:
    return [
        st.builds(
            kind, PACKET_ID, reasons(name := kind.__name__.upper(), version), properties(PacketType[name], version)
        )
        for kind in (Puback, Pubrec, Pubrel, Pubcomp)
    ]


def subscriptions(version: int) -> st.SearchStrategy[SubscriptionRequest]:
    if version != V5:
        return st.builds(SubscriptionRequest, FILTER, QOS)
    shared = st.builds(
        SubscriptionRequest, FILTER.map(lambda f: f"$share/us/{f}"), QOS, st.just(False), st.booleans(), QOS
    )
    return st.builds(SubscriptionRequest, FILTER, QOS, st.booleans(), st.booleans(), QOS) | shared


def packets(version: int, side: Side) -> st.SearchStrategy[Packet]:
    """Any packet but CONNECT that may arrive at a side."""

    def given(kind: int) -> st.SearchStrategy[Properties]:
        return properties(kind, version)

    some: list[st.SearchStrategy[Packet]] = [publishes(version, side), *acknowledgements(version)]
    if side == "server":
        some += [
            st.builds(
                Subscribe, PACKET_ID, st.lists(subscriptions(version), min_size=1, max_size=3).map(tuple), given(8)
            ),
            st.builds(Unsubscribe, PACKET_ID, st.lists(FILTER, min_size=1, max_size=3).map(tuple), given(10)),
            st.just(Pingreq()),
        ]
    else:
        codes = st.lists(reasons("SUBACK", version), min_size=1, max_size=4).map(tuple)
        done = st.lists(reasons("UNSUBACK", version), min_size=1, max_size=4).map(tuple)
        some += [
            st.builds(Connack, st.just(False), reasons("CONNACK", version), given(2)),
            st.builds(Connack, st.just(True), st.just(ReasonCode.SUCCESS), given(2)),
            st.builds(Suback, PACKET_ID, codes, given(9)),
            st.builds(Unsuback, PACKET_ID, done if version == V5 else st.just(()), given(11)),
            st.just(Pingresp()),
        ]
    if version == V5:
        leave_out = () if side == "server" else ("session_expiry_s",)
        some.append(st.builds(Disconnect, reasons("DISCONNECT", version), properties(14, version, *leave_out)))
        some.append(st.builds(Auth, reasons("AUTH", version), given(15)))
    elif side == "server":
        some.append(st.just(Disconnect()))
    return st.one_of(some)


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(at % (len(data) + 1) for at in cuts)})
    return [data[a:b] for a, b in pairwise(places)]


def outcome(decoder: PacketDecoder, chunks: list[bytes]) -> tuple[list[Packet], str, int | None]:
    """All packets, the error in words, and the version known at the end."""
    found: list[Packet] = []
    for chunk in chunks:
        try:
            found += decoder.feed(chunk)
        except PacketError as error:
            assert isinstance(error, MalformedPacket | ProtocolError)
            return found + list(error.packets), f"{error} {error.reason_code}", error.version
    return found, f"{decoder.held_bytes} bytes held", decoder.version


CUTS = st.lists(st.integers(0, 10_000), max_size=8)


@pytest.mark.parametrize("version", [V31, V311, V5])
@pytest.mark.parametrize("side", ["server", "client"])
def test_every_packet_comes_back_however_it_is_cut(version: int, side: Side) -> None:
    @given(st.lists(packets(version, side), min_size=1, max_size=5), CUTS)
    def check(sent: list[Packet], cuts: list[int]) -> None:
        data = b"".join(encode(packet, version) for packet in sent)
        decoder = PacketDecoder(version=version, side=side)
        assert outcome(decoder, cut(data, cuts)) == (sent, "0 bytes held", version)
        for packet in sent:
            assert encode(packet, version) in data

    check()


@pytest.mark.parametrize("version", [V31, V311, V5])
def test_connect_comes_back_and_sets_the_version(version: int) -> None:
    @given(connects(version), packets(version, "server"), CUTS)
    def check(connect: Connect, second: Packet, cuts: list[int]) -> None:
        data = encode(connect, version) + encode(second, version)
        assert outcome(PacketDecoder(), cut(data, cuts)) == ([connect, second], "0 bytes held", version)

    check()


@given(st.binary(max_size=60), st.sampled_from([None, V31, V311, V5]), st.sampled_from(["server", "client"]), CUTS)
def test_any_bytes_in_any_chunking_parse_or_raise_the_protocol_error(
    data: bytes, version: int | None, side: Side, cuts: list[int]
) -> None:
    if version is None:
        side = "server"
    whole = outcome(PacketDecoder(80, version, side=side, max_connect_size=60), [data])
    assert outcome(PacketDecoder(80, version, side=side, max_connect_size=60), cut(data, cuts)) == whole
    single = [data[at : at + 1] for at in range(len(data))]
    assert outcome(PacketDecoder(80, version, side=side, max_connect_size=60), single) == whole


@pytest.mark.parametrize("version", [V31, V311, V5])
def test_damaged_packets_parse_or_raise_the_protocol_error(version: int) -> None:
    damage = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=3)

    @given(st.lists(packets(version, "server"), min_size=1, max_size=3), damage, CUTS)
    def check(sent: list[Packet], changes: list[tuple[int, int]], cuts: list[int]) -> None:
        data = bytearray(b"".join(encode(packet, version) for packet in sent))
        for at, value in changes:
            data[at % len(data)] = value
        whole = outcome(PacketDecoder(version=version), [bytes(data)])
        assert outcome(PacketDecoder(version=version), cut(bytes(data), cuts)) == whole
        for packet in whole[0]:
            again = encode(packet, version)
            assert PacketDecoder(version=version).feed(again) == [packet]

    check()


@pytest.mark.parametrize("version", [V31, V311, V5])
def test_the_short_cut_reads_what_the_plain_way_reads(version: int) -> None:
    """With every topic forgotten at once, all packets take the plain way."""
    few = st.sampled_from(["a", "a/b", "house/hall/light"])
    simple = st.builds(
        lambda topic, payload, quality, retain: Publish(topic, payload, quality[0], retain, quality[1], quality[2]),
        few,
        st.binary(max_size=300),
        st.tuples(st.just(0), st.just(False), st.just(0)) | st.tuples(st.integers(1, 2), st.booleans(), PACKET_ID),
        st.booleans(),
    )
    damage = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=2)

    @given(st.lists(simple | packets(version, "server"), min_size=2, max_size=12), damage, st.integers(0, 9))
    def check(sent: list[Packet], changes: list[tuple[int, int]], cut_off: int) -> None:
        data = bytearray(b"".join(encode(packet, version) for packet in sent))
        for at, value in changes:
            data[at % len(data)] = value
        written = bytes(data[: len(data) - cut_off])
        fast, plain = PacketDecoder(250, version), PacketDecoder(250, version)
        plain._learn = lambda *_: None  # type: ignore[method-assign]
        assert exact(fast, written) == exact(plain, written)

    def exact(decoder: PacketDecoder, written: bytes) -> tuple[object, ...]:
        found, end, known = outcome(decoder, [written])
        raw = [(p.raw, p.raw_properties, type(p.retain)) for p in found if isinstance(p, Publish)]
        return [repr(packet) for packet in found], found, raw, end, known

    check()


def neighbours(packet: bytes) -> Iterator[bytes]:
    """A packet with every single byte changed, with every small pair of lengths, and with its length in two bytes."""
    for at, value in product(range(len(packet)), range(256)):
        yield packet[:at] + bytes((value,)) + packet[at + 1 :]
    for remaining, topic in product(range(14), repeat=2):
        yield packet[:1] + bytes((remaining, 0, topic)) + packet[4:]
    for more in range(3):
        yield packet[:1] + bytes((packet[1] | 128, more)) + packet[2:]


@pytest.mark.parametrize("version", [V31, V311, V5])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("limit", [14, 1000])
def test_the_short_cut_is_right_around_a_packet_whose_topic_it_knows(version: int, qos: int, limit: int) -> None:
    """Behind the packet stand bytes that would complete a known topic, an identifier and an empty property list."""
    known = b"".join(encode_publish(topic, b"", version=version) for topic in (b"a", b"a/b"))
    packet = encode_publish(b"a", b"/b", qos, packet_id=1, version=version)
    for data in neighbours(packet):
        outcomes = []
        for plain in (False, True):
            decoder = PacketDecoder(limit, version)
            if plain:
                decoder._learn = lambda *_: None  # type: ignore[method-assign]
            decoder.feed(known)
            found, *end = outcome(decoder, [data + b"/b\0\1\0" + packet])
            outcomes.append((found, [p.raw for p in found if isinstance(p, Publish)], end))
        assert outcomes[0] == outcomes[1], data.hex(" ")


def test_the_short_cut_keeps_the_limit() -> None:
    decoder = PacketDecoder(20, V311)
    assert len(decoder.feed(encode_publish(b"a", b"x" * 15, version=V311) * 2)) == 2
    with pytest.raises(ProtocolError, match="21 bytes; at most 20"):
        decoder.feed(encode_publish(b"a", b"x" * 16, version=V311))


@given(publishes(V5, "client"))
def test_properties_to_pass_on_are_those_the_server_leaves_alone(sent: Publish) -> None:
    packet = PacketDecoder(version=V5, side="client").feed(encode(sent, V5))[0]
    assert isinstance(packet, Publish)
    assert packet.raw == encode(sent, V5)
    assert packet.raw_properties == encode_properties(sent.properties, PacketType.PUBLISH)
    kept = {
        name: value
        for name, value in vars(sent.properties).items()
        if name not in ("message_expiry_s", "topic_alias", "subscription_ids")
    }
    assert passed_on_properties(packet) == encode_properties(Properties(**kept), PacketType.PUBLISH)


def test_properties_are_passed_on_in_the_order_of_their_sender() -> None:
    kept = bytes.fromhex("26 0001 62 0001 32  03 0001 63  26 0001 61 0001 31")
    changed = bytes.fromhex("02 0000000a"), bytes.fromhex("23 0001")
    written = changed[0] + kept[:7] + changed[1] + kept[7:]
    packet = PacketDecoder(version=V5).feed(encode_publish(b"t", b"", properties=written))[0]
    assert isinstance(packet, Publish)
    assert packet.properties.user == (("b", "2"), ("a", "1"))
    assert passed_on_properties(packet) == kept


def test_a_long_publish_does_not_keep_its_own_bytes() -> None:
    for size, kept in ((65_536, True), (65_537, False)):
        data = encode_publish(b"t", b"x" * (size - 7), version=V311)
        assert len(data) == size
        for _ in range(2):
            packet = PacketDecoder(version=V311).feed(data * 2)[1]
            assert isinstance(packet, Publish)
            assert (packet.raw == data, len(packet.payload)) == (kept, size - 7)


@pytest.mark.parametrize(
    ("packet", "problem"),
    [
        (Publish("a", qos=1), "packet identifier is 0"),
        (Publish("a", qos=3, packet_id=1), "QoS is 3"),
        (Publish("a", dup=True), "duplicate"),
        (Publish("\ud800"), "surrogate"),
        (Publish("a\0"), "U\\+0000"),
        (Publish("a" * 65_536), "65536 bytes"),
        (Publish("a", properties=Properties(will_delay_s=1)), "will_delay_s cannot be sent with PUBLISH"),
        (Publish("a", properties=Properties(topic_alias=0)), "topic_alias cannot be 0"),
        (Publish("a", properties=Properties(message_expiry_s=2**32)), "message_expiry_s is 4294967296"),
        (Puback(1, ReasonCode.SERVER_BUSY), "SERVER_BUSY is no reason code of PUBACK"),
        (Subscribe(1, ()), "at least one"),
        (Subscribe(1, (SubscriptionRequest("a"),), Properties(subscription_ids=(1, 2))), "at most one"),
        (Subscribe(1, (SubscriptionRequest("a", retain_handling=3),)), "retain handling is 3"),
        (Unsubscribe(1, ()), "at least one"),
        (Suback(1, ()), "at least one"),
        (Unsuback(1), "at least one"),
        (Connect(keep_alive_s=70_000), "keep alive is 70000"),
        (Connect(version=V311), "version 4 is to be sent as version 5"),
    ],
)
def test_what_cannot_be_sent_is_refused(packet: Packet, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        encode(packet, V5)


def test_versions_that_are_not_known_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="version 2"):
        encode(Pingreq(), 2)
    with pytest.raises(ConfigurationError, match="no AUTH"):
        encode(Auth(), V311)
    with pytest.raises(ConfigurationError, match="password without a user name"):
        encode(Connect(password=b"", version=V311), V311)
    with pytest.raises(ConfigurationError, match="client's decoder"):
        PacketDecoder(side="client")


def test_a_publish_that_was_read_is_like_any_other() -> None:
    """It is made by a detour, for speed: as a draft that then becomes a Publish."""
    packet = PacketDecoder(version=V311).feed(bytes.fromhex("3003000161") * 2)[1]
    assert type(packet) is Publish
    assert hash(packet) == hash(Publish("a"))
    assert pickle.loads(pickle.dumps(packet)) == packet
    assert replace(packet, qos=1, packet_id=3) == Publish("a", qos=1, packet_id=3)
    with pytest.raises(FrozenInstanceError):
        packet.topic = "b"  # type: ignore[misc]


def test_memory_is_bounded_by_the_packet_that_waits() -> None:
    decoder = PacketDecoder(1000, V311)
    data = encode_publish(b"t", b"x" * 900, version=V311)
    for at in range(len(data) - 1):
        assert decoder.feed(data[at : at + 1]) == []
        assert decoder.held_bytes == at + 1
    assert len(decoder.feed(data[-1:] + data[:10])) == 1
    assert decoder.held_bytes == 10
