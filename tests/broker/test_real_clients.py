"""Clients that others wrote, as libraries: paho and aiomqtt."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable
from typing import Any

import aiomqtt
import paho.mqtt.client as paho
import pytest
from paho.mqtt.subscribeoptions import SubscribeOptions
from tests.patience import PATIENCE_S

V31, V311, V5 = paho.MQTTv31, paho.MQTTv311, paho.MQTTv5
all_versions = pytest.mark.parametrize("version", [V31, V311, V5], ids=["3.1", "3.1.1", "5.0"])
both_versions = pytest.mark.parametrize("version", [V311, V5], ids=["3.1.1", "5.0"])


def seen(messages: list[Any]) -> list[tuple[str, bytes, int, bool]]:
    return [(message.topic, message.payload, message.qos, message.retain) for message in messages]


# paho


@all_versions
def test_paho_all_qos_and_retained_messages(make_paho: Callable[..., Any], version: int) -> None:
    root = f"qos/{version}"
    sub, pub = make_paho(f"sub-{version}", version), make_paho(f"pub-{version}", version)
    sub.connect()
    pub.connect()
    assert sub.subscribe((f"{root}/#", 2), (f"{root}/low", 1)) == [2, 1]
    for qos in (0, 1, 2):
        assert pub.publish(f"{root}/{qos}", b"now", qos) == 0
    assert seen(sub.get(3)) == [(f"{root}/{qos}", b"now", qos, False) for qos in (0, 1, 2)]
    for qos in (0, 1, 2):
        pub.publish(f"kept/{version}/{qos}", b"later", qos, retain=True)
    sub.subscribe((f"kept/{version}/+", 2))
    found = {message.topic: (message.payload, message.qos, message.retain) for message in sub.get(3)}
    assert found == {f"kept/{version}/{qos}": (b"later", qos, True) for qos in (0, 1, 2)}
    for qos in (0, 1, 2):
        pub.publish(f"kept/{version}/{qos}", b"", qos, retain=True)
    sub.get(3)
    late = make_paho(f"late-{version}", version)
    late.connect()
    late.subscribe((f"kept/{version}/+", 2))
    pub.publish(f"kept/{version}/end", b"", 1)
    assert seen(late.get()) == [(f"kept/{version}/end", b"", 1, False)]


@all_versions
def test_paho_comes_back_to_its_session_and_its_will_is_sent(make_paho: Callable[..., Any], version: int) -> None:
    sub, pub = make_paho(f"back-{version}", version, lasting=True), make_paho(f"away-{version}", version)
    pub.connect()
    assert sub.connect() is False
    sub.subscribe((f"back/{version}/#", 2))
    sub.end()
    for qos in (0, 1, 2):
        pub.publish(f"back/{version}/{qos}", b"while away", qos)
    sub = make_paho(f"back-{version}", version, lasting=True)
    is_told = version != V31  # which has no such flag
    assert sub.connect() is is_told
    assert [message.qos for message in sub.get(2)] == [1, 2]
    sub.break_off()
    assert sub.accepted() is is_told
    mortal = make_paho(f"mortal-{version}", version)
    mortal.client.will_set(f"back/{version}/will", b"gone", 1)
    mortal.connect()
    mortal.die()
    assert seen(sub.get()) == [(f"back/{version}/will", b"gone", 1, False)]


@all_versions
def test_paho_sends_again_what_a_broken_connection_left_open(make_paho: Callable[..., Any], version: int) -> None:
    """Two hundred QoS 2 messages through breaks on both sides: each comes once, in order."""
    sub, pub = make_paho(f"sure-{version}", version, True), make_paho(f"surer-{version}", version, True)
    sub.connect()
    pub.connect()
    sub.subscribe((f"sure/{version}", 2))
    infos = []
    for number in range(200):
        infos.append(pub.client.publish(f"sure/{version}", str(number), 2))
        if number in (60, 120):
            (pub if number == 60 else sub).break_off()
    for info in infos:
        info.wait_for_publish(PATIENCE_S)
    assert [int(message.payload) for message in sub.get(200)] == list(range(200))
    pub.publish(f"sure/{version}", b"end", 2)
    assert sub.get()[0].payload == b"end"


def test_paho_properties(make_paho: Callable[..., Any]) -> None:
    sub, pub = make_paho("props-sub"), make_paho("props-pub")
    sub.connect(TopicAliasMaximum=5, ReceiveMaximum=3)
    pub.connect()
    assert pub.welcome.ReceiveMaximum == 1_000
    assert pub.welcome.TopicAliasMaximum == 100
    sub.subscribe(("props/#", 2), SubscriptionIdentifier=77)
    given: dict[str, Any] = {
        "PayloadFormatIndicator": 1,
        "MessageExpiryInterval": 100,
        "ContentType": "text/plain",
        "ResponseTopic": "props/answer",
        "CorrelationData": b"\0\1\2",
        "UserProperty": [("a", "1"), ("b", "2"), ("a", "3")],
    }
    for qos in (0, 1, 2):
        assert pub.publish("props/x", "text", qos, TopicAlias=7, **given) == 0
    for qos, message in enumerate(sub.get(3)):
        assert message.qos == qos
        assert message.topic == (
            "props/x" if not qos else ""
        )  # the broker uses an alias, which paho leaves to its user
        found = message.properties
        assert found is not None
        assert found.SubscriptionIdentifier == [77]
        assert 99 <= found.MessageExpiryInterval <= 100
        for name in given.keys() - {"MessageExpiryInterval"}:
            assert getattr(found, name) == given[name]
    assert pub.publish("nobody/is/here", b"", 1) == 0x10
    nameless = make_paho("")
    nameless.connect()
    assert nameless.welcome.AssignedClientIdentifier.startswith("auto-")


def test_paho_subscription_options(make_paho: Callable[..., Any]) -> None:
    client, other = make_paho("options"), make_paho("options-other")
    client.connect()
    other.connect()
    other.publish("options/kept", b"old", 1, retain=True)
    client.subscribe(("options/#", SubscribeOptions(1, noLocal=True, retainAsPublished=True, retainHandling=2)))
    client.publish("options/own", b"", 1)
    other.publish("options/kept", b"new", 1, retain=True)
    assert seen(client.get()) == [("options/kept", b"new", 1, True)]
    client.subscribe(("options/#", SubscribeOptions(0, retainHandling=1)))
    other.publish("options/more", b"", 1)
    assert seen(client.get()) == [("options/more", b"", 0, False)]
    client.subscribe(("options/#", SubscribeOptions(2, retainHandling=0)))
    assert seen(client.get()) == [("options/kept", b"new", 1, True)]
    other.publish("options/kept", b"", 1, retain=True)


@both_versions
def test_paho_large_messages_and_many_topics(make_paho: Callable[..., Any], version: int) -> None:
    sub, pub = make_paho(f"large-{version}", version), make_paho(f"larger-{version}", version)
    sub.connect()
    pub.connect()
    sub.subscribe((f"large/{version}/#", 2))
    payload = os.urandom(1_000_000) * 8
    for qos in (0, 1, 2):
        pub.publish(f"large/{version}/x", payload, qos)
        assert sub.get()[0].payload == payload
    infos = [pub.client.publish(f"large/{version}/{n}/{n % 7}", str(n), n % 3) for n in range(1_500)]
    for info in infos:
        info.wait_for_publish(PATIENCE_S)
    assert {message.topic for message in sub.get(1_500)} == {f"large/{version}/{n}/{n % 7}" for n in range(1_500)}


def test_paho_packets_that_are_too_large(make_paho: Callable[..., Any]) -> None:
    small, pub = make_paho("small"), make_paho("small-pub")
    small.connect(MaximumPacketSize=300)
    pub.connect()
    assert pub.welcome.MaximumPacketSize == 12_000_000
    small.subscribe(("small/#", 1))
    pub.publish("small/x", b"." * 400, 1)
    pub.publish("small/x", b"fits", 1)
    assert small.get()[0].payload == b"fits"
    pub.client.publish("small/x", b"." * 12_000_000, 1)
    assert pub.disconnected.get(timeout=PATIENCE_S).value == 0x95
    pub.client.loop_stop()


@both_versions
def test_paho_shared_subscriptions(make_paho: Callable[..., Any], version: int) -> None:
    members = [make_paho(f"member-{version}-{n}", version) for n in range(3)]
    pub = make_paho(f"sharer-{version}", version)
    pub.connect()
    for member in members:
        member.connect()
        assert member.subscribe((f"$share/group/shared/{version}", 1)) == [1]
    for number in range(30):
        pub.publish(f"shared/{version}", str(number), 1)
    got = [[int(message.payload) for message in member.get(10)] for member in members]
    assert sorted(itertools.chain(*got)) == list(range(30))
    assert all(each == sorted(each) for each in got)


def test_paho_content_filters(make_paho: Callable[..., Any]) -> None:
    sub, pub = make_paho("filtering"), make_paho("filtered")
    sub.connect()
    pub.connect()
    sub.subscribe(("content/#", 1), UserProperty=("filter", "price > 30"))
    for price in (10, 35, 20, 40):
        pub.publish("content/a", str(price), 1, UserProperty=("price", str(price)))
    pub.publish("content/a", '{"price": 50}', 1, ContentType="application/json")
    assert [message.payload for message in sub.get(3)] == [b"35", b"40", b'{"price": 50}']
    assert sub.subscribe(("content/#", 1), UserProperty=("filter", "price >")) == [0x83]


def test_paho_request_and_response_between_versions(make_paho: Callable[..., Any]) -> None:
    old, new = make_paho("old", V311), make_paho("new", V5)
    old.connect()
    new.connect()
    old.subscribe(("ask/#", 2))
    new.subscribe(("answer/#", 2))
    new.publish("ask/x", b"?", 2, ResponseTopic="answer/x", CorrelationData=b"1")
    assert seen(old.get()) == [("ask/x", b"?", 2, False)]
    old.publish("answer/x", b"!", 2)
    assert seen(new.get()) == [("answer/x", b"!", 2, False)]


def test_paho_over_websocket(live_broker: Any, make_paho: Callable[..., Any]) -> None:
    web, plain = make_paho("web-paho", transport="websockets", port=live_broker.web_port), make_paho("plain-paho")
    web.client.ws_set_options("/mqtt")
    web.connect()
    plain.connect()
    web.subscribe(("web-paho/#", 2))
    plain.subscribe(("plain-paho/#", 2))
    for qos in (0, 1, 2):
        plain.publish("web-paho/x", b"." * 70_000, qos)
        web.publish("plain-paho/x", b"." * 70_000, qos)
    assert [(m.qos, len(m.payload)) for m in web.get(3)] == [(qos, 70_000) for qos in (0, 1, 2)]
    assert [(m.qos, len(m.payload)) for m in plain.get(3)] == [(qos, 70_000) for qos in (0, 1, 2)]


# aiomqtt


@both_versions
def test_aiomqtt(live_broker: Any, version: int) -> None:
    protocol = aiomqtt.ProtocolVersion.V5 if version == V5 else aiomqtt.ProtocolVersion.V311

    async def main() -> list[tuple[str, bytes, int]]:
        will = aiomqtt.Will(f"aio/{version}/will", b"gone", 1)
        watch = aiomqtt.Client("127.0.0.1", live_broker.port, protocol=protocol, identifier=f"aio-watch-{version}")
        async with watch:
            await watch.subscribe(f"aio/{version}/#", 2)
            mortal = aiomqtt.Client(
                "127.0.0.1", live_broker.port, protocol=protocol, identifier=f"aio-mortal-{version}", will=will
            )
            async with mortal:
                for qos in (0, 1, 2):
                    await mortal.publish(f"aio/{version}/{qos}", str(qos), qos)
                await mortal.unsubscribe("never")
                live_broker.kick(f"aio-mortal-{version}")
                with pytest.raises(aiomqtt.MqttError):
                    await anext(mortal.messages)
            got = []
            async for message in watch.messages:
                got.append((str(message.topic), message.payload, message.qos))
                if len(got) == 4:
                    return got
        raise AssertionError("the messages ended")

    got = asyncio.run(asyncio.wait_for(main(), PATIENCE_S))
    # Its will has QoS 1 and may overtake QoS 2, which paho shows when it is released.
    assert sorted(got) == [
        *((f"aio/{version}/{qos}", str(qos).encode(), qos) for qos in (0, 1, 2)),
        (f"aio/{version}/will", b"gone", 1),
    ]
