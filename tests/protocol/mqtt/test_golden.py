"""Packets written out by hand, with the values of the standards' examples where these have them."""

from __future__ import annotations

import pytest

from surecast.protocol.mqtt import (
    V5,
    V31,
    V311,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketDecoder,
    Pingreq,
    Pingresp,
    Properties,
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
)
from surecast.protocol.mqtt.wire import variable_bytes

MQTT = "0004 4d515454"
SERVER_SENDS = (Connack, Suback, Unsuback, Pingresp)

# (where it is in the standard, version, bytes, packet)
GOLDEN: list[tuple[str, int, str, Packet]] = [
    (
        "3.1.1 section 3.1.2, example: flags CE, keep alive 10",
        V311,
        f"10 24 {MQTT} 04 ce 000a 0001 63  0003 612f62 0002 6869  0004 75736572 0006 736563726574",
        Connect("c", True, 10, "user", b"secret", Will("a/b", b"hi", 1), version=V311),
    ),
    (
        "3.1 section 3.1: the name MQIsdp",
        V31,
        "10 26 0006 4d5149736470 03 ce 000a 0001 63  0003 612f62 0002 6869  0004 75736572 0006 736563726574",
        Connect("c", True, 10, "user", b"secret", Will("a/b", b"hi", 1), version=V31),
    ),
    ("3.1 section 3.2", V31, "20 02 00 02", Connack(False, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID)),
    ("3.1 section 3.9", V31, "90 03 000a 01", Suback(10, (ReasonCode.GRANTED_QOS_1,))),
    ("3.1.1 section 3.1: the least", V311, f"10 0c {MQTT} 04 02 0000 0000", Connect(version=V311)),
    (
        "5.0 section 3.1.2, example: flags CE, keep alive 10, session expiry 10",
        V5,
        f"10 2a {MQTT} 05 ce 000a 05 11 0000000a 0001 63  00 0003 612f62 0001 68  0004 75736572 0006 736563726574",
        Connect("c", True, 10, "user", b"secret", Will("a/b", b"h", 1), Properties(session_expiry_s=10)),
    ),
    (
        "5.0 section 3.1.3.2: will properties; a password alone is allowed",
        V5,
        f"10 1b {MQTT} 05 74 0000 00 0000  05 18 00000005 0001 74 0000  0001 70",
        Connect("", False, 0, None, b"p", Will("t", b"", 2, True, Properties(will_delay_s=5))),
    ),
    ("3.1.1 section 3.2.2", V311, "20 02 01 00", Connack(True)),
    ("3.1.1 table 3.1", V311, "20 02 00 05", Connack(False, ReasonCode.NOT_AUTHORIZED)),
    (
        "5.0 section 3.2.2.3",
        V5,
        "20 12 00 00 0f 12 0004 6e616d65 13 0014 21 0005 24 01",
        Connack(
            properties=Properties(assigned_client_id="name", server_keep_alive_s=20, receive_maximum=5, maximum_qos=1)
        ),
    ),
    (
        "3.1.1 section 3.3.2, example: topic a/b, identifier 10",
        V311,
        "32 07 0003 612f62 000a",
        Publish("a/b", b"", 1, packet_id=10),
    ),
    (
        "5.0 section 3.3.2, example: the same without properties",
        V5,
        "32 08 0003 612f62 000a 00",
        Publish("a/b", b"", 1, packet_id=10),
    ),
    (
        "3.1.1 section 1.5.3, example: A and U+2A6D4",
        V311,
        "31 08 0005 41f0aa9b94 21",
        Publish("A\U0002a6d4", b"!", retain=True),
    ),
    ("3.1.1 section 3.3.1.1: QoS 2 again", V311, "3c 06 0001 61 0001 78", Publish("a", b"x", 2, dup=True, packet_id=1)),
    (
        "5.0 section 3.3.2.3: every property of a message",
        V5,
        "30 2d 0000 29 01 01 02 00000001 03 0001 63 08 0001 72 09 0001 ff 23 0007"
        "26 0001 6b 0001 76 26 0001 6b 0001 77 26 0000 0000 2a",
        Publish(
            "",
            b"*",
            properties=Properties(
                payload_format=1,
                message_expiry_s=1,
                content_type="c",
                response_topic="r",
                correlation_data=b"\xff",
                topic_alias=7,
                user=(("k", "v"), ("k", "w"), ("", "")),
            ),
        ),
    ),
    ("3.1.1 section 3.4", V311, "40 02 1234", Puback(0x1234)),
    ("5.0 section 3.4.2.1: remaining length 2 is success", V5, "40 02 1234", Puback(0x1234)),
    ("5.0 section 3.4.2.2.1: remaining length 3", V5, "40 03 0001 10", Puback(1, ReasonCode.NO_MATCHING_SUBSCRIBERS)),
    (
        "5.0 section 3.5.2",
        V5,
        "50 08 0001 87 04 1f 0001 6e",
        Pubrec(1, ReasonCode.NOT_AUTHORIZED, Properties(reason_string="n")),
    ),
    ("3.1.1 section 3.6", V311, "62 02 0001", Pubrel(1)),
    ("5.0 section 3.6.2", V5, "62 03 0001 92", Pubrel(1, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)),
    ("3.1.1 section 3.7", V311, "70 02 ffff", Pubcomp(65535)),
    (
        "3.1.1 section 3.8.3, example: a/b at QoS 1, c/d at QoS 2, identifier 10",
        V311,
        "82 0e 000a 0003 612f62 01 0003 632f64 02",
        Subscribe(10, (SubscriptionRequest("a/b", 1), SubscriptionRequest("c/d", 2))),
    ),
    (
        "5.0 section 3.8.3.1: options, subscription identifier 268435455",
        V5,
        "82 12 000a 05 0b ffffff7f 0001 61 2d 0003 622f23 10",
        Subscribe(
            10,
            (SubscriptionRequest("a", 1, True, True, 2), SubscriptionRequest("b/#", 0, retain_handling=1)),
            Properties(subscription_ids=(268_435_455,)),
        ),
    ),
    (
        "3.1.1 section 3.9.3, example: QoS 0, QoS 2, failure",
        V311,
        "90 05 000a 00 02 80",
        Suback(10, (ReasonCode.GRANTED_QOS_0, ReasonCode.GRANTED_QOS_2, ReasonCode.UNSPECIFIED_ERROR)),
    ),
    (
        "5.0 section 3.9.3, example: QoS 0, QoS 2, failure",
        V5,
        "90 06 000a 00 00 02 80",
        Suback(10, (ReasonCode.GRANTED_QOS_0, ReasonCode.GRANTED_QOS_2, ReasonCode.UNSPECIFIED_ERROR)),
    ),
    (
        "3.1.1 section 3.10.3, example: a/b, c/d",
        V311,
        "a2 0c 000a 0003 612f62 0003 632f64",
        Unsubscribe(10, ("a/b", "c/d")),
    ),
    (
        "5.0 section 3.10.3, example: a/b, c/d",
        V5,
        "a2 0d 000a 00 0003 612f62 0003 632f64",
        Unsubscribe(10, ("a/b", "c/d")),
    ),
    ("3.1.1 section 3.11", V311, "b0 02 000a", Unsuback(10)),
    (
        "5.0 section 3.11.3",
        V5,
        "b0 05 000a 00 00 11",
        Unsuback(10, (ReasonCode.SUCCESS, ReasonCode.NO_SUBSCRIPTION_EXISTED)),
    ),
    ("3.1.1 section 3.12", V311, "c0 00", Pingreq()),
    ("5.0 section 3.13", V5, "d0 00", Pingresp()),
    ("3.1.1 section 3.14", V311, "e0 00", Disconnect()),
    ("5.0 section 3.14.2.1: remaining length 0 is a normal one", V5, "e0 00", Disconnect()),
    ("5.0 section 3.14.2.2.1: remaining length 1", V5, "e0 01 04", Disconnect(ReasonCode.DISCONNECT_WITH_WILL_MESSAGE)),
    (
        "5.0 section 3.14.2.2.2",
        V5,
        "e0 07 00 05 11 00000000",
        Disconnect(properties=Properties(session_expiry_s=0)),
    ),
    (
        "5.0 section 3.15.2",
        V5,
        "f0 0d 18 0b 15 0004 47533220 16 0001 01",
        Auth(
            ReasonCode.CONTINUE_AUTHENTICATION,
            Properties(authentication_method="GS2 ", authentication_data=b"\1"),
        ),
    ),
    ("5.0 section 3.15.2.1: remaining length 0 is success", V5, "f0 00", Auth()),
]


def side_of(packet: Packet) -> Side:
    return "client" if isinstance(packet, SERVER_SENDS) else "server"


@pytest.mark.parametrize(("where", "version", "written", "packet"), GOLDEN)
def test_a_golden_packet_is_read_and_written(where: str, version: int, written: str, packet: Packet) -> None:
    data = bytes.fromhex(written)
    decoder = PacketDecoder(version=None if isinstance(packet, Connect) else version, side=side_of(packet))
    assert decoder.feed(data) == [packet]
    assert decoder.held_bytes == 0
    assert encode(packet, version).hex(" ") == data.hex(" ")


@pytest.mark.parametrize(
    ("written", "packet"),
    [
        ("40 04 0001 00 00", Puback(1)),
        ("40 03 0001 00", Puback(1)),
        ("e0 02 00 00", Disconnect()),
        ("e0 01 00", Disconnect()),
    ],
)
def test_longer_forms_say_the_same(written: str, packet: Packet) -> None:
    assert PacketDecoder(version=V5).feed(bytes.fromhex(written)) == [packet]


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (16_383, "ff7f"),
        (16_384, "808001"),
        (2_097_151, "ffff7f"),
        (2_097_152, "80808001"),
        (268_435_455, "ffffff7f"),
    ],
)
def test_variable_byte_integers_of_table_1_1(value: int, written: str) -> None:
    assert variable_bytes(value).hex() == written


def test_a_byte_order_mark_is_text_like_any_other() -> None:
    """[MQTT-1.5.4-3]: 0xEF 0xBB 0xBF is U+FEFF wherever it stands and must not be stripped."""
    packet = PacketDecoder(version=V311).feed(bytes.fromhex("30 06 0004 efbbbf61"))[0]
    assert isinstance(packet, Publish)
    assert packet.topic == "\ufeffa"


def test_reasons_become_return_codes() -> None:
    assert encode(Connack(reason=ReasonCode.BANNED), V311).hex() == "20020005"
    assert encode(Connack(reason=ReasonCode.QUOTA_EXCEEDED), V311).hex() == "20020003"
    assert encode(Suback(1, (ReasonCode.TOPIC_FILTER_INVALID,)), V311).hex() == "9003000180"
    assert encode(Disconnect(ReasonCode.SERVER_BUSY, Properties(reason_string="x")), V311).hex() == "e000"
