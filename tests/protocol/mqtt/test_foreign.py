"""Other codecs beside ours: we read what paho sends, paho and amqtt read what we write, and the bytes are equal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from surecast.protocol.mqtt import (
    V5,
    V311,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketDecoder,
    Pingreq,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    ReasonCode,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Unsuback,
    Unsubscribe,
    Will,
    encode,
)

paho = pytest.importorskip("paho.mqtt.client")


class FakeSocket:
    """Takes everything that is sent and has nothing to receive."""

    def __init__(self) -> None:
        self.sent = bytearray()

    def send(self, data: bytes) -> int:
        self.sent += data
        return len(data)

    def recv(self, size: int) -> bytes:
        raise BlockingIOError

    def close(self) -> None: ...

    def fileno(self) -> int:
        return -1


def paho_properties(kind: str, **values: Any) -> Any:
    packet_types = pytest.importorskip("paho.mqtt.packettypes").PacketTypes
    made = pytest.importorskip("paho.mqtt.properties").Properties(getattr(packet_types, kind))
    for name, value in values.items():
        setattr(made, name, value)
    return made


def paho_client(version: int, socket: FakeSocket) -> Any:
    client = paho.Client(
        paho.CallbackAPIVersion.VERSION2,
        "client",
        protocol=version,
        **({"clean_session": True} if version == V311 else {}),
    )
    client._sock = socket
    return client


def captured(version: int, act: Callable[[Any], object]) -> bytes:
    """What a paho client sends for an action on a connection that is up."""
    socket = FakeSocket()
    client = paho_client(version, socket)
    client._state = paho._ConnectionState.MQTT_CS_CONNECTED
    act(client)
    return bytes(socket.sent)


def acts(version: int) -> list[tuple[str, Callable[[Any], object], Packet]]:
    """Actions of a paho client and the packet that each must send."""
    with_v5 = version == V5
    properties = (
        {"properties": paho_properties("PUBLISH", ContentType="text/plain", UserProperty=[("a", "1"), ("b", "2")])}
        if with_v5
        else {}
    )
    ours = Properties(content_type="text/plain", user=(("a", "1"), ("b", "2"))) if with_v5 else Properties()
    options = {"options": paho.SubscribeOptions(qos=1, noLocal=True, retainHandling=2)} if with_v5 else {"qos": 1}
    wanted = SubscriptionRequest("a/+", 1, True, False, 2) if with_v5 else SubscriptionRequest("a/+", 1)
    return [
        ("publish", lambda c: c.publish("a/b", "payload", **properties), Publish("a/b", b"payload", properties=ours)),
        ("retain", lambda c: c.publish("a/b", b"", 1, True), Publish("a/b", b"", 1, True, packet_id=1)),
        ("QoS 2", lambda c: c.publish("é", b"x" * 500, 2), Publish("é", b"x" * 500, 2, packet_id=1)),
        ("subscribe", lambda c: c.subscribe("a/+", **options), Subscribe(1, (wanted,))),
        ("unsubscribe", lambda c: c.unsubscribe(["a", "b/#"]), Unsubscribe(1, ("a", "b/#"))),
        ("PUBACK", lambda c: c._send_puback(7), Puback(7)),
        ("PUBREC", lambda c: c._send_pubrec(7), Pubrec(7)),
        ("PUBREL", lambda c: c._send_pubrel(7), Pubrel(7)),
        ("PUBCOMP", lambda c: c._send_pubcomp(7), Pubcomp(7)),
        ("PINGREQ", lambda c: c._send_pingreq(), Pingreq()),
        ("disconnect", lambda c: c.disconnect(), Disconnect()),
    ]


@pytest.mark.parametrize(("version", "name", "act", "packet"), [(v, *case) for v in (V311, V5) for case in acts(v)])
def test_what_paho_sends_is_read_and_written_alike(
    version: int, name: str, act: Callable[[Any], object], packet: Packet
) -> None:
    data = captured(version, act)
    assert PacketDecoder(version=version).feed(data) == [packet]
    assert encode(packet, version) == data


@pytest.mark.parametrize("version", [V311, V5])
def test_the_connect_of_paho(version: int) -> None:
    socket = FakeSocket()
    client = paho_client(version, socket)
    client.username_pw_set("user", "secret")
    client.will_set("w", b"gone", 1, True)
    if version == V5:
        client._connect_properties = paho_properties("CONNECT", SessionExpiryInterval=30, ReceiveMaximum=5)
        client._clean_start = True
    client._send_connect(60)
    expected = Connect(
        "client",
        True,
        60,
        "user",
        b"secret",
        Will("w", b"gone", 1, True),
        Properties(session_expiry_s=30, receive_maximum=5) if version == V5 else Properties(),
        version,
    )
    assert PacketDecoder().feed(bytes(socket.sent)) == [expected]
    assert encode(expected, version) == bytes(socket.sent)


@pytest.mark.parametrize("version", [V311, V5])
def test_paho_understands_our_answers(version: int) -> None:
    """Our bytes through paho's own reader, and what its callbacks were told."""
    answers: list[Packet] = [
        Connack(True, properties=Properties(receive_maximum=7) if version == V5 else Properties()),
        Suback(3, (ReasonCode.GRANTED_QOS_1, ReasonCode.UNSPECIFIED_ERROR)),
        Unsuback(4, (ReasonCode.SUCCESS,) if version == V5 else ()),
        Publish(
            "a/b", b"payload", 0, True, properties=Properties(user=(("k", "v"),)) if version == V5 else Properties()
        ),
    ]
    written = bytearray(b"".join(encode(packet, version) for packet in answers))

    class Feeding(FakeSocket):
        def recv(self, size: int) -> bytes:
            if not written:
                raise BlockingIOError
            part = bytes(written[:size])
            del written[:size]
            return part

    told: list[object] = []
    client = paho_client(version, Feeding())
    client.on_connect = lambda c, u, flags, reason, p: told.append((flags.session_present, reason.value))
    client.on_subscribe = lambda c, u, mid, reasons, p: told.append((mid, [r.value for r in reasons]))
    client.on_unsubscribe = lambda c, u, mid, reasons, p: told.append(mid)
    client.on_message = lambda c, u, m: told.append(
        (m.topic, m.payload, m.retain, getattr(m.properties, "UserProperty", 0))
    )
    for _ in answers:
        client.loop_read()
    user: object = [("k", "v")] if version == V5 else 0
    assert told == [(True, 0), (3, [1, 128]), 4, ("a/b", b"payload", True, user)]


def test_amqtt_reads_what_we_write() -> None:
    adapters = pytest.importorskip("amqtt.adapters")
    connect_packet = pytest.importorskip("amqtt.mqtt.connect").ConnectPacket
    publish_packet = pytest.importorskip("amqtt.mqtt.publish").PublishPacket
    subscribe_packet = pytest.importorskip("amqtt.mqtt.subscribe").SubscribePacket

    async def read(kind: Any, packet: Packet) -> Any:
        reader = adapters.BufferReader(encode(packet, V311))
        made = await kind.from_stream(reader)
        assert await reader.read() == b""
        assert made.to_bytes() == encode(packet, V311)
        return made

    async def check() -> None:
        publish = await read(publish_packet, Publish("a/b", b"payload" * 30, 2, True, True, 300))
        assert (publish.topic_name, publish.data, publish.packet_id) == ("a/b", b"payload" * 30, 300)
        assert (publish.qos, publish.retain_flag, publish.dup_flag) == (2, True, True)
        connect = await read(connect_packet, Connect("c", True, 9, "u", b"p", Will("w", b"m", 1), version=V311))
        assert (connect.client_id, connect.keep_alive, connect.username, connect.will_topic) == ("c", 9, "u", "w")
        subscribe = await read(
            subscribe_packet, Subscribe(5, (SubscriptionRequest("a/#", 1), SubscriptionRequest("+", 2)))
        )
        assert subscribe.payload.topics == [("a/#", 1), ("+", 2)]

    asyncio.run(check())
