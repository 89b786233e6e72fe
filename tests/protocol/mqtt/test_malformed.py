"""What must be refused, with the normative statement that says so and the reason code a peer is told.

Statements are those of MQTT 5.0 (appendix B) unless marked 3.1.1; sections stand where a rule has no number.

Brokers differ in whether 0x81 or 0x82 is the answer to some of these. The standard names the error in each case:
a property that is not valid for its packet is malformed (2.2.2.2), as are wrong flags, those of AUTH included (2.1.3,
3.15.1); a protocol error are QoS 3 and retain handling 3 in subscription options (3.8.3.1), the subscription identifier
0 (3.8.2.1.2), SUBSCRIBE and UNSUBSCRIBE without a filter (3.8.3, 3.10.3), and neither a topic nor an alias (3.3.2.1).
"""

from __future__ import annotations

import pickle

import pytest

from surecast.protocol.mqtt import V5, V31, V311, MalformedPacket, PacketDecoder, PacketError, ProtocolError, Side

M = "0004 4d515454"
MALFORMED, PROTOCOL, VERSION, CLIENT_ID, NAME, FILTER, LARGE = 0x81, 0x82, 0x84, 0x85, 0x90, 0x8F, 0x95
DEEP = "2f" * 200
FIRST = None

# (statement, version, bytes, reason code); version None: the first packet of a connection
TO_SERVER: list[tuple[str, int | None, str, int]] = [
    # fixed header
    ("table 2-1, type 0", V5, "00 00", PROTOCOL),
    ("table 2-1, type 0 before its length", V5, "0a c0", PROTOCOL),
    ("3.1.1 table 2.1, type 15", V311, "f0 00", PROTOCOL),
    ("MQTT-2.1.3-1 PUBACK", V5, "41 02 0001", MALFORMED),
    ("MQTT-2.1.3-1 PINGREQ", V5, "c8 00", MALFORMED),
    ("MQTT-3.6.1-1", V5, "60 02 0001", MALFORMED),
    ("MQTT-3.8.1-1", V5, "80 07 0001 00 0001 61 00", MALFORMED),
    ("MQTT-3.10.1-1", V5, "a0 06 0001 00 0001 61", MALFORMED),
    ("MQTT-3.14.1-1", V5, "e1 00", MALFORMED),
    ("MQTT-3.15.1-1", V5, "f1 00", MALFORMED),
    ("MQTT-2.1.3-1 CONNECT", FIRST, f"11 0c {M} 04 02 0000 0000", MALFORMED),
    ("1.5.5, five bytes", V5, "30 ff ff ff ff 01", MALFORMED),
    ("1.5.5, a fourth byte with a continuation bit", V311, "30 80 80 80 80", MALFORMED),
    ("MQTT-1.5.5-1", V5, "30 85 00 0001 61 00 78", MALFORMED),
    ("MQTT-1.5.5-1 of 0", V5, "c0 80 00", MALFORMED),
    # who sends what, and when
    ("MQTT-3.1.0-1", FIRST, "30 03 0001 61", PROTOCOL),
    ("MQTT-3.1.0-1 PINGREQ", FIRST, "c0 00", PROTOCOL),
    ("MQTT-3.1.0-2", V5, f"10 0d {M} 05 02 0000 00 0000", PROTOCOL),
    ("table 2-1, direction of CONNACK", V5, "20 03 00 00 00", PROTOCOL),
    ("table 2-1, direction of SUBACK", V5, "90 04 0001 00 00", PROTOCOL),
    ("table 2-1, direction of UNSUBACK", V311, "b0 02 0001", PROTOCOL),
    ("table 2-1, direction of PINGRESP with wrong flags", V5, "d1 00", PROTOCOL),
    # CONNECT
    ("MQTT-3.1.2-1", FIRST, "10 0c 0004 4d515455 04 02 0000 0000", VERSION),
    ("MQTT-3.1.2-1, empty", FIRST, "10 08 0000 04 02 0000 0000", VERSION),
    ("MQTT-3.1.2-2, level 6", FIRST, f"10 0c {M} 06 02 0000 0000", VERSION),
    ("MQTT-3.1.2-2, MQTT 3.1.1 by the name of 3.1", FIRST, "10 0e 0006 4d5149736470 04 02 0000 0000", VERSION),
    ("MQTT-3.1.2-2, MQTT 3.1 by the name of 3.1.1", FIRST, f"10 0c {M} 03 02 0000 0000", VERSION),
    (
        "3.1 section 3.1, a password and no user name",
        FIRST,
        "10 11 0006 4d5149736470 03 42 0000 0001 61 0000",
        MALFORMED,
    ),
    ("3.1 section 2.1, QoS 3", V31, "36 05 0001 61 0001", MALFORMED),
    ("3.1, the packets of 5.0", V31, "f0 00", PROTOCOL),
    ("MQTT-3.1.2-3", FIRST, f"10 0c {M} 04 03 0000 0000", MALFORMED),
    ("MQTT-3.1.2-3 in 5.0", FIRST, f"10 0d {M} 05 03 0000 00 0000", MALFORMED),
    ("MQTT-3.1.2-11", FIRST, f"10 0d {M} 05 0a 0000 00 0000", MALFORMED),
    ("MQTT-3.1.2-12", FIRST, f"10 10 {M} 04 1e 0000 0000 0001 61 0000", MALFORMED),
    ("MQTT-3.1.2-13", FIRST, f"10 0d {M} 05 22 0000 00 0000", MALFORMED),
    ("MQTT-3.1.2-9, no will topic", FIRST, f"10 0c {M} 04 06 0000 0000", MALFORMED),
    ("MQTT-3.1.2-9, no will payload", FIRST, f"10 0f {M} 04 06 0000 0000 0001 61", MALFORMED),
    ("MQTT-3.1.2-16", FIRST, f"10 10 {M} 05 02 0000 00 0000 0001 61", MALFORMED),
    ("MQTT-3.1.2-17", FIRST, f"10 0d {M} 05 82 0000 00 0000", MALFORMED),
    ("MQTT-3.1.2-19", FIRST, f"10 10 {M} 05 c2 0000 00 0000 0001 61", MALFORMED),
    ("3.1.1 MQTT-3.1.2-22", FIRST, f"10 0f {M} 04 42 0000 0000 0001 61", MALFORMED),
    ("MQTT-3.1.3-3, no client identifier", FIRST, f"10 0a {M} 04 02 0000", MALFORMED),
    ("MQTT-3.1.3-4, U+0000", FIRST, f"10 0e {M} 05 02 0000 00 0001 00", CLIENT_ID),
    ("MQTT-3.1.3-4, a surrogate", FIRST, f"10 10 {M} 05 02 0000 00 0003 eda080", CLIENT_ID),
    ("MQTT-3.1.3-12", FIRST, f"10 10 {M} 05 82 0000 00 0000 0001 ff", MALFORMED),
    ("MQTT-4.7.3-1, will topic", FIRST, f"10 10 {M} 04 06 0000 0000 0000 0000 ", MALFORMED),
    ("MQTT-3.3.2-2, will topic", FIRST, f"10 11 {M} 04 06 0000 0000 0001 23 0000", MALFORMED),
    ("3.1.2.11.2, twice", FIRST, f"10 17 {M} 05 02 0000 0a 11 00000001 11 00000001 0000", PROTOCOL),
    ("3.1.2.11.3, 0", FIRST, f"10 10 {M} 05 02 0000 03 21 0000 0000", PROTOCOL),
    ("3.1.2.11.4, 0", FIRST, f"10 12 {M} 05 02 0000 05 27 00000000 0000", PROTOCOL),
    ("3.1.2.11.6, 2", FIRST, f"10 0f {M} 05 02 0000 02 19 02 0000", PROTOCOL),
    ("3.1.2.11.7, 2", FIRST, f"10 0f {M} 05 02 0000 02 17 02 0000", PROTOCOL),
    ("3.1.2.11.10, data without a method", FIRST, f"10 10 {M} 05 02 0000 03 16 0000 0000", PROTOCOL),
    ("2.2.2.2, topic alias", FIRST, f"10 10 {M} 05 02 0000 03 23 0001 0000", MALFORMED),
    ("2.2.2.2, will delay outside the will", FIRST, f"10 12 {M} 05 02 0000 05 18 00000000 0000", MALFORMED),
    (
        "2.2.2.2, session expiry in the will",
        FIRST,
        f"10 17 {M} 05 06 0000 00 0000 05 11 00000000 0001 61 0000",
        MALFORMED,
    ),
    ("2.2.2.1, longer than the packet", FIRST, f"10 0d {M} 05 02 0000 7f 0000", MALFORMED),
    # PUBLISH
    ("MQTT-3.3.1-2", V5, "38 04 0001 61 00", MALFORMED),
    ("MQTT-3.3.1-4", V5, "36 06 0001 61 0001 00", MALFORMED),
    ("MQTT-3.3.1-4 and DUP", V311, "3e 05 0001 61 0001", MALFORMED),
    ("MQTT-3.3.2-1, nothing", V5, "30 00", MALFORMED),
    ("MQTT-3.3.2-1, cut", V5, "30 04 0003 6162", MALFORMED),
    ("MQTT-3.3.2-2, #", V5, "30 04 0001 23 00", MALFORMED),
    ("MQTT-3.3.2-2, +", V311, "30 05 0003 612f2b", MALFORMED),
    ("MQTT-2.2.1-3", V5, "32 06 0001 61 0000 00", PROTOCOL),
    ("MQTT-2.2.1-3, no identifier", V5, "32 03 0001 61", MALFORMED),
    ("3.3.2.3, no properties", V5, "30 03 0001 61", MALFORMED),
    ("3.3.2.1, neither topic nor alias", V5, "30 03 0000 00", PROTOCOL),
    ("3.1.1 MQTT-4.7.3-1", V311, "30 02 0000", MALFORMED),
    ("MQTT-4.7.3-2", V5, "30 04 0001 00 00", MALFORMED),
    ("MQTT-1.5.4-1", V5, "30 06 0003 eda080 00", MALFORMED),
    ("MQTT-1.5.4-1, overlong", V5, "30 05 0002 c0af 00", MALFORMED),
    ("MQTT-1.5.4-2", V5, "30 06 0003 610062 00", MALFORMED),
    ("1.5.4, control character", V5, "30 04 0001 1f 00", MALFORMED),
    ("1.5.4, U+009F", V5, "30 05 0002 c29f 00", MALFORMED),
    ("1.5.4, U+FFFF", V5, "30 06 0003 efbfbf 00", MALFORMED),
    ("limit of levels", V5, f"30 cb01 00c8 {DEEP} 00", NAME),
    ("3.3.2.3.2, 2", V5, "30 06 0001 61 02 01 02", PROTOCOL),
    ("3.3.2.3.2, twice", V5, "30 08 0001 61 04 01 01 01 01", PROTOCOL),
    ("3.3.2.3.2, cut", V5, "30 05 0001 61 01 01", MALFORMED),
    ("MQTT-3.3.2-8", V5, "30 07 0001 61 03 23 0000", PROTOCOL),
    ("3.3.2.3.4, twice", V5, "30 0a 0001 61 06 23 0001 23 0001", PROTOCOL),
    ("MQTT-3.3.2-14", V5, "30 08 0001 61 04 08 0001 2b", PROTOCOL),
    ("3.3.2.3.5, twice", V5, "30 0c 0001 61 08 08 0001 70 08 0001 70", PROTOCOL),
    ("3.3.2.3.7, no value", V5, "30 08 0001 61 04 26 0001 70", MALFORMED),
    ("MQTT-3.3.4-6", V5, "30 06 0001 61 02 0b 01", PROTOCOL),
    ("3.3.2.3.8, 0", V5, "30 06 0001 61 02 0b 00", PROTOCOL),
    ("MQTT-1.5.5-1, subscription identifier", V5, "30 07 0001 61 03 0b 8000", MALFORMED),
    ("2.2.2.2, no such property", V5, "30 06 0001 61 02 04 01", MALFORMED),
    ("2.2.2.2, property identifier of two bytes", V5, "30 07 0001 61 03 8001 01", MALFORMED),
    ("2.2.2.2, reason string", V5, "30 08 0001 61 04 1f 0001 70", MALFORMED),
    ("2.2.2.2, session expiry in PUBLISH", V5, "30 09 0001 61 05 11 00000001", MALFORMED),
    # PUBACK and its like
    ("MQTT-2.2.1-5, PUBACK", V5, "40 02 0000", PROTOCOL),
    ("3.4.2, one byte", V5, "40 01 00", MALFORMED),
    ("MQTT-3.4.2-1", V5, "40 03 0001 ff", PROTOCOL),
    ("MQTT-3.5.2-1", V5, "50 03 0001 92", PROTOCOL),
    ("MQTT-3.6.2-1", V5, "62 03 0001 10", PROTOCOL),
    ("MQTT-3.7.2-1", V5, "70 03 0001 80", PROTOCOL),
    ("3.4.2.2.1, longer than the packet", V5, "40 04 0001 00 01", MALFORMED),
    ("3.4.2, bytes left", V5, "40 05 0001 00 00 00", MALFORMED),
    ("3.4.2.2.2, twice", V5, "40 0a 0001 00 06 1f 0000 1f 0000", PROTOCOL),
    ("2.2.2.2, PUBACK", V5, "40 06 0001 00 02 01 00", MALFORMED),
    ("2.2.2.2, PUBREC", V5, "50 06 0001 00 02 01 00", MALFORMED),
    ("2.2.2.2, PUBREL", V5, "62 06 0001 00 02 01 00", MALFORMED),
    ("2.2.2.2, PUBCOMP", V5, "70 06 0001 00 02 01 00", MALFORMED),
    ("3.1.1 section 3.4, three bytes", V311, "40 03 0001 00", MALFORMED),
    # SUBSCRIBE and UNSUBSCRIBE
    ("MQTT-2.2.1-3, SUBSCRIBE", V5, "82 07 0000 00 0001 61 00", MALFORMED),
    ("MQTT-3.8.3-2", V5, "82 03 0001 00", PROTOCOL),
    ("3.1.1 MQTT-3.8.3-3", V311, "82 02 0001", PROTOCOL),
    ("MQTT-3.8.3-1", V5, "82 07 0001 00 0001 ff 00", MALFORMED),
    ("3.8.3, no options", V5, "82 06 0001 00 0001 61", MALFORMED),
    ("3.8.3.1, QoS 3", V5, "82 07 0001 00 0001 61 03", PROTOCOL),
    ("3.1.1 MQTT-3-8.3-4, QoS 3", V311, "82 06 0001 0001 61 03", MALFORMED),
    ("3.1.1 MQTT-3-8.3-4, reserved bits", V311, "82 06 0001 0001 61 04", MALFORMED),
    ("3.8.3.1, retain handling 3", V5, "82 07 0001 00 0001 61 30", PROTOCOL),
    ("MQTT-3.8.3-5", V5, "82 07 0001 00 0001 61 40", MALFORMED),
    ("MQTT-3.8.3-4", V5, "82 10 0001 00 000a 24736861 72652f70 2f70 04", PROTOCOL),
    ("MQTT-4.7.3-1", V5, "82 06 0001 00 0000 00", MALFORMED),
    ("MQTT-4.7.1-1, a#", V5, "82 08 0001 00 0002 6123 00", MALFORMED),
    ("MQTT-4.7.1-1, #/a", V5, "82 09 0001 00 0003 232f61 00", MALFORMED),
    ("MQTT-4.7.1-2, a+", V5, "82 08 0001 00 0002 612b 00", MALFORMED),
    ("MQTT-4.8.2-1, no share name", V5, "82 0f 0001 00 0009 24736861 72652f2f70 00", PROTOCOL),
    ("MQTT-4.8.2-2, + in the share name", V5, "82 10 0001 00 000a 24736861 72652f2b 2f70 00", PROTOCOL),
    ("MQTT-4.8.2-2, no filter", V5, "82 0e 0001 00 0008 24736861 72652f70 00", PROTOCOL),
    ("MQTT-4.8.2-2, empty filter", V5, "82 0f 0001 00 0009 24736861 72652f702f 00", PROTOCOL),
    ("limit of levels, filter", V5, f"82 ce01 0001 00 00c8 {DEEP} 00", FILTER),
    ("3.8.2.1.2, 0", V5, "82 09 0001 02 0b 00 0001 61 00", PROTOCOL),
    ("3.8.2.1.2, twice", V5, "82 0b 0001 04 0b 01 0b 01 0001 61 00", PROTOCOL),
    ("1.5.5, subscription identifier of five bytes", V5, "82 0d 0001 06 0b 8080808001 0001 61 00", MALFORMED),
    ("2.2.2.2, SUBSCRIBE", V5, "82 0c 0001 05 11 00000000 0001 61 00", MALFORMED),
    ("MQTT-2.2.1-3, UNSUBSCRIBE", V5, "a2 06 0000 00 0001 61", MALFORMED),
    ("MQTT-3.10.3-2", V5, "a2 03 0001 00", PROTOCOL),
    ("3.1.1 MQTT-3.10.3-2", V311, "a2 02 0001", PROTOCOL),
    ("MQTT-3.10.3-1", V5, "a2 06 0001 00 0001 ff", MALFORMED),
    ("MQTT-4.7.3-1, UNSUBSCRIBE", V5, "a2 05 0001 00 0000", MALFORMED),
    ("MQTT-4.7.1-1, UNSUBSCRIBE", V5, "a2 08 0001 00 0003 232f61", MALFORMED),
    # PINGREQ, DISCONNECT, AUTH
    ("3.12, a body", V5, "c0 01 00", MALFORMED),
    ("3.1.1 section 3.14, a body", V311, "e0 01 00", MALFORMED),
    ("MQTT-3.14.2-1", V5, "e0 01 01", PROTOCOL),
    ("3.14.2.2.2, cut", V5, "e0 05 00 03 11 0000", MALFORMED),
    ("3.14.2.2.2, twice", V5, "e0 0c 00 0a 11 00000000 11 00000000", PROTOCOL),
    ("2.2.2.2, DISCONNECT", V5, "e0 07 00 05 18 00000001", MALFORMED),
    ("MQTT-3.15.2-1", V5, "f0 07 01 05 15 0002 6161", PROTOCOL),
    ("3.15.2.2.2, no method", V5, "f0 02 18 00", PROTOCOL),
]

TO_CLIENT: list[tuple[str, int | None, str, int]] = [
    ("table 2-1, direction of SUBSCRIBE", V5, "82 07 0001 00 0001 61 00", PROTOCOL),
    ("table 2-1, direction of CONNECT", V5, f"10 0d {M} 05 02 0000 00 0000", PROTOCOL),
    ("table 2-1, direction of PINGREQ", V311, "c0 00", PROTOCOL),
    ("3.1.1 table 2.1, direction of DISCONNECT", V311, "e0 00", PROTOCOL),
    ("MQTT-3.2.2-1", V5, "20 03 02 00 00", MALFORMED),
    ("MQTT-3.2.2-6", V5, "20 03 01 80 00", PROTOCOL),
    ("3.1.1 MQTT-3.2.2-4", V311, "20 02 01 05", PROTOCOL),
    ("3.1.1 table 3.1, code 6", V311, "20 02 00 06", PROTOCOL),
    ("MQTT-3.2.2-8", V5, "20 03 00 01 00", PROTOCOL),
    ("3.2.2, cut", V5, "20 02 00 00", MALFORMED),
    ("3.2.2.3.4, maximum QoS 2", V5, "20 05 00 00 02 24 02", PROTOCOL),
    ("3.2.2.3.3, receive maximum 0", V5, "20 06 00 00 03 21 0000", PROTOCOL),
    ("2.2.2.2, CONNACK", V5, "20 05 00 00 02 01 00", MALFORMED),
    ("3.9.3, nothing", V5, "90 03 0001 00", PROTOCOL),
    ("MQTT-3.9.3-2", V5, "90 04 0001 00 03", PROTOCOL),
    ("3.1.1 MQTT-3.9.3-2", V311, "90 03 0001 87", PROTOCOL),
    ("3.11.3, nothing", V5, "b0 03 0001 00", PROTOCOL),
    ("MQTT-3.11.3-2", V5, "b0 04 0001 00 01", PROTOCOL),
    ("3.1.1 section 3.11, bytes left", V311, "b0 03 0001 00", MALFORMED),
    ("MQTT-3.14.2-2", V5, "e0 07 00 05 11 00000000", PROTOCOL),
    ("3.13, a body", V5, "d0 01 00", MALFORMED),
]


def refusal(side: Side, version: int | None, data: bytes, cut: int) -> PacketError:
    decoder = PacketDecoder(1000, version, side=side)
    for at in range(0, len(data), cut):
        try:
            assert decoder.feed(data[at : at + cut]) == []
        except PacketError as error:
            return error
    raise AssertionError(f"{data.hex(' ')} was not refused")


@pytest.mark.parametrize(
    ("side", "statement", "version", "written", "reason"),
    [("server", *case) for case in TO_SERVER] + [("client", *case) for case in TO_CLIENT],
)
def test_is_refused(side: Side, statement: str, version: int | None, written: str, reason: int) -> None:
    data = bytes.fromhex(written)
    error = refusal(side, version, data, len(data))
    assert error.reason_code == reason, str(error)
    assert isinstance(error, MalformedPacket if reason in (MALFORMED, CLIENT_ID) else ProtocolError)
    assert 0 <= error.offset <= len(data)
    assert f"byte {error.offset}: " in str(error)
    one_by_one = refusal(side, version, data, 1)
    assert (str(one_by_one), one_by_one.version) == (str(error), error.version)


@pytest.mark.parametrize(
    ("written", "version"),
    [
        ("10 0c 0004 4d515455 04 02 0000 0000", None),
        ("10 0e 0006 4d5149736470 03 03 0000 0000", 3),
        ("10 0e 0006 4d5149736470 04 02 0000 0000", 4),
        (f"10 0c {M} 06 02 0000 0000", 6),
        (f"10 0d {M} 05 03 0000 00 0000", 5),
        (f"10 0f {M} 04 42 0000 0000 0001 61", 4),
    ],
)
def test_the_error_says_which_version_a_refused_connect_spoke(written: str, version: int | None) -> None:
    """The answer is a CONNACK in that version's form; without a version there is no answer."""
    assert refusal("server", None, bytes.fromhex(written), 100).version == version


def test_the_error_names_the_byte() -> None:
    data = bytes.fromhex("c000 82 09 0001 00 0003 61ff61 00")
    with pytest.raises(
        MalformedPacket, match=r"^SUBSCRIBE, byte 8: the topic filter is not UTF-8: invalid start byte$"
    ):
        PacketDecoder(version=V5).feed(data)


def test_a_packet_too_large_is_refused_before_its_body_comes() -> None:
    decoder = PacketDecoder(max_packet_size=100, version=V311)
    assert decoder.feed(b"\x30\x62") == []
    for version, limit, head in ((V311, 100, "3063"), (None, 50, "1031")):
        with pytest.raises(ProtocolError, match=f"at most {limit} are taken") as raised:
            PacketDecoder(100, version, max_connect_size=50).feed(bytes.fromhex(head))
        assert raised.value.reason_code == LARGE


def test_control_characters_can_be_let_through() -> None:
    data = bytes.fromhex("30 04 0001 09 00")
    assert len(PacketDecoder(version=V5, strict_text=False).feed(data)) == 1
    with pytest.raises(MalformedPacket, match=r"U\+0009"):
        PacketDecoder(version=V5).feed(data)
    with pytest.raises(MalformedPacket, match=r"U\+0000"):
        PacketDecoder(version=V5, strict_text=False).feed(bytes.fromhex("30 04 0001 00 00"))


def test_packets_before_the_wrong_one_are_kept_and_the_decoder_stays_broken() -> None:
    decoder = PacketDecoder(version=V311)
    with pytest.raises(MalformedPacket) as raised:
        decoder.feed(bytes.fromhex("c000 3003 000161 c1 00"))
    assert [type(packet).__name__ for packet in raised.value.packets] == ["Pingreq", "Publish"]
    with pytest.raises(MalformedPacket) as again:
        decoder.feed(b"\xc0\x00")
    assert (str(again.value), again.value.packets, again.value.version) == (str(raised.value), (), V311)


def test_errors_survive_being_pickled() -> None:
    error = refusal("server", V5, b"\xc1\x00", 9)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))
