"""What public suites of other projects ask of a broker, on the wire of a live one.

Most of it is also shown step by step, without sockets, in tests/protocol/broker; here the shell, its timers and its
sockets take part. What libraries and programs of others can show is in test_real_clients.py and test_real_tools.py.
"""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, TypeVar

import pytest
from tests.patience import PATIENCE_S

from surecast.protocol.mqtt import (
    V5,
    V311,
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
    Suback,
    Subscribe,
    SubscriptionRequest,
    Unsuback,
    Unsubscribe,
    Will,
    encode,
)

P = TypeVar("P", bound=Packet)
NUMBERS = itertools.count()
both_versions = pytest.mark.parametrize("version", [V311, V5], ids=["3.1.1", "5.0"])
LASTING = Properties(session_expiry_s=300)


class Wire:
    """A client that says what it is told to, and nothing by itself."""

    def __init__(self, port: int, version: int):
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self.version = version
        self.decoder = PacketDecoder(version=version, side="client")
        self.inbox: list[Packet] = []

    def send(self, *packets: Packet | bytes) -> Wire:
        self.socket.sendall(b"".join(p if isinstance(p, bytes) else encode(p, self.version) for p in packets))
        return self

    def get(self, kind: type[P]) -> P:
        """The next packet, which must be of a kind."""
        packet = self.any()
        assert isinstance(packet, kind), packet
        return packet

    def any(self) -> Packet:
        """The next packet."""
        while not self.inbox:
            data = self.socket.recv(65_536)
            assert data, "the broker closed the connection"
            self.inbox += self.decoder.feed(data)
        return self.inbox.pop(0)

    def nothing(self) -> None:
        """Nothing has come: the answer to a ping is the next packet."""
        self.send(Pingreq()).get(Pingresp)

    def closed(self) -> list[Packet]:
        """What comes before the broker closes the connection."""
        while data := self.socket.recv(65_536):
            self.inbox += self.decoder.feed(data)
        return self.inbox

    def connect(self, client: str, clean: bool = True, keep_alive_s: int = 0, **others: Any) -> Connack:
        properties = others.pop("properties", Properties())
        if self.version == V5 and not clean and not properties:
            properties = LASTING
        self.send(Connect(client, clean, keep_alive_s, properties=properties, version=self.version, **others))
        return self.get(Connack)

    def subscribe(self, filter: str, qos: int = 0, **options: Any) -> tuple[ReasonCode, ...]:
        return self.send(Subscribe(1, (SubscriptionRequest(filter, qos, **options),))).get(Suback).reasons


@pytest.fixture
def wire(live_broker: Any) -> Iterator[Callable[..., Wire]]:
    with ExitStack() as stack:

        def make(version: int = V5) -> Wire:
            made = Wire(live_broker.port, version)
            stack.callback(made.socket.close)
            return made

        yield make


@pytest.fixture
def name() -> str:
    return f"conformance-{next(NUMBERS)}"


@both_versions
def test_a_connection_begins_with_one_connect(wire: Callable[..., Wire], version: int, name: str) -> None:
    twice = wire(version)
    twice.connect(name)
    twice.send(Connect(name, version=version))
    assert [type(packet) for packet in twice.closed()] == ([Disconnect] if version == V5 else [])
    assert wire(version).send(Pingreq()).closed() == []
    foreign = encode(Connect(name, version=version), version).replace(b"MQTT", b"hjkl")
    assert wire(version).send(foreign).closed() == []


def test_identifiers_of_no_length(wire: Callable[..., Wire]) -> None:
    assert wire(V311).connect("").reason is ReasonCode.SUCCESS
    assert wire(V311).connect("", clean=False).reason is ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
    given = wire(V5).connect("", clean=False).properties.assigned_client_id
    assert given
    assert wire(V5).connect(given, clean=False).session_present


@both_versions
def test_a_connection_is_taken_over(wire: Callable[..., Wire], version: int, name: str) -> None:
    older, newer = wire(version), wire(version)
    older.connect(name, clean=False)
    assert newer.connect(name, clean=False).session_present
    expected = [Disconnect(ReasonCode.SESSION_TAKEN_OVER)] if version == V5 else []
    assert older.closed() == expected
    newer.nothing()


@both_versions
def test_silence_ends_a_connection_and_sends_its_will(wire: Callable[..., Wire], version: int, name: str) -> None:
    watch, silent = wire(version), wire(version)
    watch.connect(f"{name}-watch")
    watch.subscribe(f"{name}/will", 1)
    silent.connect(name, keep_alive_s=1, will=Will(f"{name}/will", b"silent", 1))
    begun = time.monotonic()
    assert watch.get(Publish).payload == b"silent"
    assert time.monotonic() - begun >= 1.4
    assert silent.closed() == ([Disconnect(ReasonCode.KEEP_ALIVE_TIMEOUT)] if version == V5 else [])


@both_versions
def test_what_is_not_acknowledged_is_sent_again(wire: Callable[..., Wire], version: int, name: str) -> None:
    """With the same identifier and DUP, in the first order; a released message goes on with its PUBREL."""
    sub, pub = wire(version), wire(version)
    sub.connect(name, clean=False)
    sub.subscribe(f"{name}/#", 2)
    pub.connect(f"{name}-pub")
    for number, qos in enumerate((1, 2, 2), 1):
        pub.send(Publish(f"{name}/{number}", b"x", qos, packet_id=number)).get(Puback if qos == 1 else Pubrec)
    first = [sub.get(Publish) for _ in range(3)]
    sub.send(Pubrec(first[2].packet_id)).get(Pubrel)
    sub.socket.close()
    again = wire(version)
    assert again.connect(name, clean=False).session_present
    for packet in first[:2]:
        found = again.get(Publish)
        assert (found.topic, found.packet_id, found.dup, packet.dup) == (packet.topic, packet.packet_id, True, False)
    assert again.get(Pubrel).packet_id == first[2].packet_id
    again.send(Pubcomp(first[2].packet_id), Puback(first[0].packet_id), Pubrec(first[1].packet_id))
    again.get(Pubrel)
    again.send(Pubcomp(first[1].packet_id)).nothing()


@both_versions
def test_a_message_of_qos_2_that_comes_twice_is_taken_once(wire: Callable[..., Wire], version: int, name: str) -> None:
    """Its identifier is kept over connections until it is released."""
    sub, pub = wire(version), wire(version)
    sub.connect(f"{name}-sub")
    sub.subscribe(name, 0)
    pub.connect(name, clean=False)
    pub.send(Publish(name, b"once", 2, packet_id=9)).get(Pubrec)
    pub.socket.close()
    again = wire(version)
    again.connect(name, clean=False)
    again.send(Publish(name, b"once", 2, dup=True, packet_id=9)).get(Pubrec)
    again.send(Pubrel(9)).get(Pubcomp)
    again.send(Publish(name, b"twice", 2, packet_id=9)).get(Pubrec)
    assert [sub.get(Publish).payload for _ in range(2)] == [b"once", b"twice"]


def test_the_receive_maximum_of_the_client(wire: Callable[..., Wire], name: str) -> None:
    sub, pub = wire(), wire()
    sub.connect(name, properties=Properties(receive_maximum=2))
    sub.subscribe(name, 1)
    pub.connect(f"{name}-pub")
    for number in range(1, 5):
        pub.send(Publish(name, str(number).encode(), 1, packet_id=number)).get(Puback)
    first, _ = sub.get(Publish), sub.get(Publish)
    sub.nothing()
    sub.send(Puback(first.packet_id))
    assert sub.get(Publish).payload == b"3"
    sub.nothing()


def test_the_receive_maximum_of_the_broker(wire: Callable[..., Wire], name: str) -> None:
    pub = wire()
    most = pub.connect(name).properties.receive_maximum
    assert most is not None
    pub.send(*(Publish(name, b"", 2, packet_id=number) for number in range(1, most + 2)))
    *answers, last = pub.closed()
    assert len(answers) == most
    assert isinstance(last, Disconnect)
    assert last.reason is ReasonCode.RECEIVE_MAXIMUM_EXCEEDED


def test_sessions_expire_and_disconnect_may_change_when(wire: Callable[..., Wire], name: str) -> None:
    def visit(expiry_s: int, last_word_s: int | None = None) -> bool:
        client = wire()
        present = client.connect(name, False, properties=Properties(session_expiry_s=expiry_s)).session_present
        client.send(Disconnect(properties=Properties(session_expiry_s=last_word_s))).closed()
        return present

    assert visit(0) is False
    assert visit(300) is False  # the one before had ended with its connection
    assert visit(1) is True
    time.sleep(1.3)
    assert visit(1, last_word_s=300) is False
    time.sleep(1.3)
    assert visit(1, last_word_s=0) is True
    assert visit(0) is False
    client = wire()
    client.connect(name, properties=Properties(session_expiry_s=0))
    client.send(Disconnect(properties=Properties(session_expiry_s=5)))
    (answer,) = client.closed()
    assert isinstance(answer, Disconnect)
    assert answer.reason is ReasonCode.PROTOCOL_ERROR  # 3.14.2.2.2


def test_wills_wait_for_their_delay_or_the_end_of_the_session(wire: Callable[..., Wire], name: str) -> None:
    watch = wire()
    watch.connect(f"{name}-watch")
    watch.subscribe(f"{name}/#", 1)
    for delay_s, expiry_s, least_s in ((1, 300, 1.0), (300, 1, 1.0), (300, 0, 0.0)):
        mortal = wire()
        will = Will(f"{name}/will", b"gone", 1, False, Properties(will_delay_s=delay_s))
        mortal.connect(name, will=will, properties=Properties(session_expiry_s=expiry_s))
        begun = time.monotonic()
        mortal.socket.close()
        found = watch.get(Publish)
        assert found.properties.will_delay_s is None
        assert least_s <= time.monotonic() - begun
        watch.send(Puback(found.packet_id))


def test_messages_expire_while_nobody_is_there(wire: Callable[..., Wire], name: str) -> None:
    sub, pub = wire(), wire()
    sub.connect(name, clean=False)
    sub.subscribe(f"{name}/#", 2)
    sub.socket.close()
    pub.connect(f"{name}-pub")
    for number, expiry_s in ((1, 1), (2, 60)):
        packet = Publish(
            f"{name}/{expiry_s}", b"", 1, packet_id=number, properties=Properties(message_expiry_s=expiry_s)
        )
        assert pub.send(packet).get(Puback).reason is ReasonCode.SUCCESS
    time.sleep(1.2)
    again = wire()
    again.connect(name, clean=False)
    found = again.get(Publish)
    assert found.topic == f"{name}/60"
    assert 0 < (found.properties.message_expiry_s or 0) <= 59
    again.nothing()


def test_aliases_end_with_their_connection(wire: Callable[..., Wire], name: str) -> None:
    def aliased(topic: str, alias: int) -> Publish:
        return Publish(topic, b"", 1, packet_id=1, properties=Properties(topic_alias=alias))

    client = wire()
    client.connect(name, clean=False)
    client.subscribe(name, 0)
    for topic in (name, ""):
        client.send(aliased(topic, 1))
        assert {type(client.any()), type(client.any())} == {Puback, Publish}
    client.socket.close()
    for alias, topic, reason in ((1, "", 0x82), (101, name, 0x94)):
        again = wire()
        again.connect(name, clean=False)
        (answer,) = again.send(aliased(topic, alias)).closed()
        assert isinstance(answer, Disconnect)
        assert answer.reason == reason
    zero = wire()
    zero.connect(name)
    zero.send(encode(aliased(name, 1), V5).replace(b"\x23\x00\x01", b"\x23\x00\x00"))
    assert isinstance(zero.closed()[-1], Disconnect)


@both_versions
def test_dollar_topics_are_not_for_wildcards(wire: Callable[..., Wire], version: int, name: str) -> None:
    client = wire(version)
    client.connect(name)
    client.subscribe("+/broker/version")
    client.nothing()
    answer = client.send(Publish(f"$own/{name}", b"", 1, packet_id=3)).get(Puback)
    assert answer.reason is (ReasonCode.NOT_AUTHORIZED if version == V5 else ReasonCode.SUCCESS)


@both_versions
def test_subscriptions_overlap_and_end(wire: Callable[..., Wire], version: int, name: str) -> None:
    client = wire(version)
    client.connect(name)
    client.subscribe(f"{name}/#", 2)
    client.subscribe(f"{name}/+", 1)
    client.send(Publish(f"{name}/a", b"", 2, packet_id=1))
    found = [client.any(), client.any()]
    (message,) = (packet for packet in found if isinstance(packet, Publish))
    assert message.qos == 2  # the highest of both, in one copy
    client.send(Pubrec(message.packet_id)).get(Pubrel)
    client.send(Pubcomp(message.packet_id), Pubrel(1)).get(Pubcomp)
    reasons = client.send(Unsubscribe(2, (f"{name}/#", f"{name}/+", "never"))).get(Unsuback).reasons
    assert list(reasons) == ([0, 0, 0x11] if version == V5 else [])
    client.send(Publish(f"{name}/a", b"", 1, packet_id=2)).get(Puback)
    client.nothing()


def test_the_client_learns_why_although_it_still_sends(wire: Callable[..., Wire], name: str) -> None:
    """A connection that is closed with unread bytes would be reset, and the DISCONNECT lost on its way."""
    client = wire()
    most = client.connect(name).properties.maximum_packet_size
    assert most is not None
    client.send(bytes.fromhex("30 ff ff ff 7f"), *(b"." * 100_000 for _ in range(30)))
    (answer,) = client.closed()
    assert isinstance(answer, Disconnect)
    assert answer.reason is ReasonCode.PACKET_TOO_LARGE
