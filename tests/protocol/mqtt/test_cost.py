"""The cost of input grows as its length, whatever it is: in lines executed, and in processor time.

Each family is sent once, and once four times as long. A linear reader does four times the work, a quadratic one sixteen
times. The fuzzer of `tools/` measures; it also makes up families of its own.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from surecast.protocol.broker import BrokerCore, BrokerSettings, Limits, LimitTable, Origin
from surecast.protocol.mqtt import (
    V5,
    Connect,
    PacketDecoder,
    PacketError,
    Properties,
    Puback,
    Publish,
    Pubrec,
    ReasonCode,
    Subscribe,
    SubscriptionRequest,
    Unsubscribe,
    encode,
)
from surecast.protocol.mqtt.wire import variable_bytes

PLAIN = encode(Publish("t", b"xxxx"), V5)
SPECIAL = encode(Publish("t", b"xx", properties=Properties(payload_format=0)), V5)  # as long, but with a property
PAIR = bytes.fromhex("26 0001 61 0001 62")


def with_properties(first: int, head: bytes, count: int) -> bytes:
    """A packet with many user properties; encoding it would take longer than reading it."""
    pairs = PAIR * count
    body = head + variable_bytes(len(pairs)) + pairs
    return bytes((first,)) + variable_bytes(len(body)) + body


def cut(data: bytes, piece: int) -> list[bytes]:
    return [data[at : at + piece] for at in range(0, len(data), piece)]


FAMILIES: dict[str, Callable[[int], list[bytes]]] = {
    "user properties of a message": lambda n: [with_properties(0x30, b"\0\1t", 10 * n)],
    "user properties of an acknowledgement": lambda n: [with_properties(0x40, b"\0\1\0", 10 * n)],
    "user properties of a DISCONNECT": lambda n: [with_properties(0xE0, b"\0", 10 * n)],
    "a plain message and one with a property in turn": lambda n: [(PLAIN + SPECIAL) * n],
    "two plain messages and one with a property in turn": lambda n: [(PLAIN * 2 + SPECIAL) * n],
    "hundred plain messages and one with a property in turn": lambda n: [(PLAIN * 100 + SPECIAL) * (n // 5)],
    "messages without an identifier among others": lambda n: [
        (encode(Publish("t", b"x", 1, packet_id=256), V5) + encode(Publish("t", b"x", 1, packet_id=1), V5)) * n
    ],
    "acknowledgements of two kinds in turn": lambda n: [(encode(Puback(5), V5) + encode(Pubrec(5), V5)) * n],
    "two acknowledgements, then another": lambda n: [(encode(Puback(5), V5) * 2 + encode(Pubrec(5), V5)) * n],
    "acknowledgements in one run": lambda n: [encode(Puback(5), V5) * 10 * n],
    "a large message byte by byte": lambda n: cut(encode(Publish("t", b"x" * 10 * n), V5), 1),
    "small messages byte by byte": lambda n: cut(PLAIN * n, 1),
    "new topics": lambda n: [b"".join(encode(Publish(f"t/{i}", b"x"), V5) for i in range(n))],
    "deep topics": lambda n: [b"".join(encode(Publish("/".join("a" * 200) + str(i), b"x"), V5) for i in range(n))],
    "filters in one packet": lambda n: [
        encode(Subscribe(1, tuple(SubscriptionRequest(f"a/{i}/+") for i in range(n))), V5)
    ],
    "filters to leave in one packet": lambda n: [encode(Unsubscribe(1, tuple(f"a/{i}/+" for i in range(n))), V5)],
}


@pytest.fixture(scope="module")
def fuzzer(repository: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("fuzz_mqtt", repository / "tools" / "fuzz_mqtt.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fuzz_mqtt"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("family", FAMILIES)
def test_four_times_the_input_costs_four_times_as_much(family: str, fuzzer: ModuleType) -> None:
    lines, seconds = fuzzer.growth(V5, FAMILIES[family], 100)
    assert lines < fuzzer.LINES_MAX
    assert seconds < fuzzer.SECONDS_MAX


def test_random_patterns_cost_as_their_length(fuzzer: ModuleType) -> None:
    assert fuzzer.run_cost([f"1:{n}" for n in range(10)])


def attack(parts: list[bytes]) -> None:
    """Gives a whole broker what one client sends, without limits of packets."""
    unlimited = 1 << 30
    broker = BrokerCore(BrokerSettings(user_properties_max=unlimited, packet_filters_max=unlimited))
    connection = broker.open(Origin(), 0.0)
    broker.receive(connection, encode(Connect("c"), V5), 0.0)
    for part in parts:
        broker.receive(connection, part, 1.0)
    broker.lost(connection, 2.0)


AT_BROKER: dict[str, Callable[[int], list[bytes]]] = {
    "filters with wildcards, one by one": lambda n: [
        encode(Subscribe(1, (SubscriptionRequest(f"a/{i}/+"),)), V5) for i in range(n)
    ],
    "filters with wildcards, taken and left": lambda n: [
        encode(Subscribe(1, (SubscriptionRequest("a/+"),)), V5) + encode(Unsubscribe(1, ("a/+",)), V5) for _ in range(n)
    ],
    "retained messages": lambda n: [encode(Publish(f"r/{i}", b"x", retain=True), V5) for i in range(n)],
    "QoS 2 messages that are never released": lambda n: [
        encode(Publish("t", b"x", 2, packet_id=1 + i), V5) for i in range(n)
    ],
    "messages of its own that it does not acknowledge": lambda n: [
        encode(Subscribe(1, (SubscriptionRequest("t", 1),)), V5),
        *(encode(Publish("t", b"x", 1, packet_id=1 + i), V5) for i in range(n)),
    ],
    "user properties": lambda n: [with_properties(0x30, b"\0\1t", n)],
}


@pytest.mark.parametrize("family", AT_BROKER)
def test_a_broker_does_four_times_the_work_for_four_times_the_input(family: str, fuzzer: ModuleType) -> None:
    make = AT_BROKER[family]
    few, many = make(200), make(800)
    assert fuzzer.lines_of(lambda: attack(many)) < fuzzer.LINES_MAX * fuzzer.lines_of(lambda: attack(few))


def test_a_packet_has_a_limited_number_of_user_properties() -> None:
    decoder = PacketDecoder(version=V5, max_user_properties=10)
    assert len(decoder.feed(with_properties(0x30, b"\0\1t", 10))) == 1
    with pytest.raises(PacketError, match="more than 10 user properties") as caught:
        decoder.feed(with_properties(0x30, b"\0\1t", 11))
    assert caught.value.reason_code == ReasonCode.QUOTA_EXCEEDED
    assert caught.value.limit == "user_properties"


@pytest.mark.parametrize("kind", ["subscribe", "unsubscribe"])
def test_a_packet_has_a_limited_number_of_filters(kind: str) -> None:
    def packet(count: int) -> bytes:
        names = [f"a/{i}" for i in range(count)]
        subscribe = Subscribe(1, tuple(SubscriptionRequest(name) for name in names))
        return encode(subscribe if kind == "subscribe" else Unsubscribe(1, tuple(names)), V5)

    decoder = PacketDecoder(version=V5, max_filters=10)
    assert len(decoder.feed(packet(10))) == 1
    with pytest.raises(PacketError, match="more than 10 topic filters") as caught:
        decoder.feed(packet(11))
    assert caught.value.reason_code == ReasonCode.QUOTA_EXCEEDED


def test_a_client_reads_whatever_its_server_sends() -> None:
    packet = with_properties(0x30, b"\0\1t", 5_000)
    assert len(PacketDecoder(version=V5, side="client").feed(packet)) == 1


def test_a_broker_says_which_limit_was_reached_and_counts_it() -> None:
    broker = BrokerCore()
    connection = broker.open(Origin(), 0.0)
    broker.receive(connection, encode(Connect("c"), V5), 0.0)
    connection.out.clear()
    broker.receive(connection, with_properties(0x30, b"\0\1t", 1_001), 0.0)
    assert connection.is_closed()
    goodbye = PacketDecoder(version=V5, side="client").feed(b"".join(connection.out))[0]
    assert goodbye.reason == ReasonCode.QUOTA_EXCEEDED  # type: ignore[union-attr]
    assert broker.counters.limited == {"user_properties": 1}
    assert broker.counters.protocol_errors == 0


def test_a_connect_with_too_many_properties_is_refused_with_a_reason() -> None:
    broker = BrokerCore()
    connection = broker.open(Origin(), 0.0)
    head = b"\0\4MQTT\5\2\0\0"
    pairs = PAIR * 101
    body = head + variable_bytes(len(pairs)) + pairs + b"\0\1c"
    broker.receive(connection, b"\x10" + variable_bytes(len(body)) + body, 0.0)
    assert connection.is_closed()
    answer = PacketDecoder(version=V5, side="client").feed(b"".join(connection.out))[0]
    assert answer.reason == ReasonCode.QUOTA_EXCEEDED  # type: ignore[union-attr]


@pytest.mark.parametrize("limit", ["topic_levels_max", "user_properties_max", "packet_filters_max"])
def test_the_form_of_packets_stays_while_a_broker_runs(limit: str) -> None:
    """All decoders of a group must read alike, and they are made at different times."""
    broker = BrokerCore()
    before = getattr(broker.settings, limit)
    settings = BrokerSettings(**{limit: 7})
    broker.configure(settings, LimitTable(Limits.of(settings)), 0.0)
    assert getattr(broker.settings, limit) == before
