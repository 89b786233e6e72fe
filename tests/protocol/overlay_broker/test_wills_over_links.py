"""Wills of clients whose broker is one of an overlay: they are published there, and reach subscribers anywhere."""

from __future__ import annotations

import pytest
from tests.protocol.overlay_broker.broker_line import BrokerLine, LineClient

from surecast.protocol.mqtt import Connect, Disconnect, Properties, Publish, Will

SCHEMES = ("none", "periodic-subscription", "buffering", "bypass", "bypass-buffering")


def mortal(line: BrokerLine, home: str, *, delay_s: int = 0, lasts_s: int = 0, retain: bool = False) -> LineClient:
    will = Will("gone/ann", b"gone", 1, retain, properties=Properties(will_delay_s=delay_s))
    properties = Properties(session_expiry_s=lasts_s)
    return LineClient(line, home, "ann", Connect("ann", clean_start=False, will=will, properties=properties))


def watcher(line: BrokerLine, home: str) -> LineClient:
    client = LineClient(line, home, f"watch {home}")
    client.subscribe("gone/#", 1)
    return client


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_will_of_a_client_that_is_lost_reaches_subscribers_at_all_brokers_once(scheme: str) -> None:
    line = BrokerLine(3, scheme)
    watchers = [watcher(line, home) for home in line.plan.brokers]
    mortal(line, "b1").close()
    assert [each.payloads() for each in watchers] == [[b"gone"]] * 3


def test_a_client_that_says_goodbye_has_no_will() -> None:
    line = BrokerLine(2)
    watch, ann = watcher(line, "b2"), mortal(line, "b1")
    ann.send(Disconnect(0))
    ann.close()
    assert watch.payloads() == []


def test_a_will_with_a_delay_is_published_after_it_unless_the_client_is_back_at_the_same_broker() -> None:
    line = BrokerLine(2)
    watch = watcher(line, "b2")
    mortal(line, "b1", delay_s=30, lasts_s=100).close()
    line.wait(20.0)
    mortal(line, "b1", delay_s=30, lasts_s=100).close()
    line.wait(20.0)
    assert watch.payloads() == []
    line.wait(11.0)
    assert watch.payloads() == [b"gone"]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_will_of_a_client_whose_broker_dies_is_published_when_the_broker_is_back(scheme: str) -> None:
    line = BrokerLine(3, scheme)
    watch = watcher(line, "b3")
    mortal(line, "b1")
    line.crash("b1")
    line.wait(40.0)
    assert watch.payloads() == [], "its neighbours do not speak for it"
    line.start("b1")
    line.run()
    line.wait(0.5)
    line.join("b1", "b2")
    line.wait(6.0)
    assert watch.payloads() == [b"gone"]
    line.crash("b1")
    line.start("b1")
    line.join("b1", "b2")
    line.wait(6.0)
    assert watch.payloads() == [], "once"


def test_a_will_that_is_retained_is_the_last_message_everywhere() -> None:
    line = BrokerLine(3, "none")
    mortal(line, "b1", retain=True)
    line.crash("b1")
    line.start("b1")
    line.join("b1", "b2")
    line.wait(6.0)
    late = LineClient(line, "b3", "late")
    late.subscribe_and_keep("gone/#", 1)
    (message,) = [packet for packet in late.read() if isinstance(packet, Publish)]
    assert (message.payload, message.retain) == (b"gone", True)


def test_a_will_goes_to_one_member_of_a_shared_subscription_at_another_broker() -> None:
    line = BrokerLine(2)
    members = [LineClient(line, "b2", f"m{number}") for number in range(2)]
    for member in members:
        member.subscribe("$share/w/gone/#", 1)
    mortal(line, "b1").close()
    assert sorted(member.payloads() for member in members) == [[], [b"gone"]]
