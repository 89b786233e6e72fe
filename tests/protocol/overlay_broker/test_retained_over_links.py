"""Retained messages over the links of an overlay, packet by packet."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.protocol.overlay_broker.broker_line import BrokerLine, LineClient

from surecast.protocol.broker import BrokerCore
from surecast.protocol.mqtt import V5, Puback, Publish, ReasonCode, encode
from surecast.protocol.overlay.node_links import NodeSettings
from surecast.protocol.overlay_broker import LocalTraffic

SHORT = NodeSettings(resume_s=0.0)
"""What is on a link is lost when it breaks."""


def retained_at(line: BrokerLine, broker: str, topic: str = "#") -> list[tuple[str, bytes]]:
    """What a new subscriber gets at once."""
    client = LineClient(line, broker, f"new at {broker}")
    client.subscribe_and_keep(topic)
    found = [(p.topic, p.payload, p.retain) for p in client.read() if isinstance(p, Publish)]
    assert all(retain for *_, retain in found)
    client.close()
    return sorted((at, payload) for at, payload, _ in found)


def said(line: BrokerLine) -> int:
    """The frames about retained messages on all links so far."""
    return sum(
        kinds.get("retained", 0)
        for broker in line.brokers.values()
        for kinds in broker.node.messages().values()
    )  # fmt: skip


@pytest.mark.parametrize("scheme", ["none", "buffering", "bypass-buffering"])
@pytest.mark.parametrize("qos", [0, 1])
def test_a_subscriber_anywhere_sees_the_latest_and_nothing_after_its_deletion(scheme: str, qos: int) -> None:
    line = BrokerLine(4, scheme)
    publisher = LineClient(line, "b2", "p")
    publisher.publish("lamp/1", b"on", qos, retain=True, content_type="text/plain")
    publisher.publish("lamp/1", b"off", qos, retain=True)
    publisher.publish("lamp/2", b"on", qos, retain=True)
    publisher.publish("lamp/3", b"on", qos)
    for broker in line.brokers:
        assert retained_at(line, broker, "lamp/+") == [("lamp/1", b"off"), ("lamp/2", b"on")]
    LineClient(line, "b4", "q").publish("lamp/1", b"", qos, retain=True)
    for broker in line.brokers:
        assert retained_at(line, broker) == [("lamp/2", b"on")]
    assert said(line) == 0, "the messages themselves have told all"


def test_properties_and_qos_of_a_retained_message_are_those_of_its_publication() -> None:
    line = BrokerLine(3)
    LineClient(line, "b1", "p").publish(
        "t", b"1", 1, retain=True, content_type="text/plain", user=(("a", "b"),), message_expiry_s=60
    )
    line.wait(10.0)
    client = LineClient(line, "b3", "s")
    client.subscribe_and_keep("t", 1)
    (message,) = [packet for packet in client.read() if isinstance(packet, Publish)]
    assert (message.qos, message.retain, message.properties.content_type) == (1, True, "text/plain")
    assert (message.properties.user, message.properties.message_expiry_s) == ((("a", "b"),), 50)
    line.wait(60.0)
    assert retained_at(line, "b3") == []


@pytest.mark.parametrize("scheme", ["none", "buffering"])
def test_who_subscribes_while_a_retained_message_is_on_its_way_gets_it_once(scheme: str) -> None:
    """Its home has not heard of the subscription."""
    line = BrokerLine(3, scheme)
    publisher, late = LineClient(line, "b1", "p"), LineClient(line, "b3", "late")
    wires, line.wires = line.wires, {}
    late.subscribe("t", 1)
    publisher.publish("t", b"1", 1, retain=True)
    line.wires = wires
    line.run()
    assert late.payloads() == [b"1"]


@pytest.mark.parametrize("scheme", ["none", "buffering"])
@pytest.mark.parametrize("node", [SHORT, NodeSettings()])
def test_what_happened_while_a_link_was_down_arrives_once_and_only_that_is_sent(
    scheme: str, node: NodeSettings
) -> None:
    line = BrokerLine(3, scheme, node)
    publisher, subscriber = LineClient(line, "b1", "p"), LineClient(line, "b3", "s")
    subscriber.subscribe("#", 1)
    for number in range(50):
        publisher.publish(f"lamp/{number}", b"on", 1, retain=True)
    assert len(subscriber.payloads()) == 50
    line.cut("b2", "b3")
    publisher.publish("lamp/7", b"off", 1, retain=True)
    publisher.publish("lamp/8", b"", 1, retain=True)
    LineClient(line, "b3", "q").publish("lamp/9", b"off", 1, retain=True)
    assert subscriber.payloads() == [b"off"]
    before = line.brokers["b2"].node.accounts.hops["b3"].acknowledged
    line.join("b2", "b3")
    assert sorted(subscriber.payloads()) == [b"", b"off"]
    for broker in line.brokers:
        found = dict(retained_at(line, broker))
        assert (found["lamp/7"], found.get("lamp/8"), found["lamp/9"], len(found)) == (b"off", None, b"off", 49)
    sent = line.brokers["b2"].node.accounts.hops["b3"].acknowledged - before
    if scheme == "buffering" or node is not SHORT:
        assert sent == 2, "they were on the link, or in custody for it"
        assert entries_sent(line) == 0
    else:
        assert (sent, entries_sent(line)) == (0, 4), "two to b3, and one from there to b2 and to b1"


def entries_sent(line: BrokerLine) -> int:
    """The retained messages that were sent by comparisons."""
    return sum(broker.node.retained.entries_sent for broker in line.brokers.values())


@pytest.mark.parametrize("node", [SHORT, NodeSettings()])
def test_nothing_is_sent_for_a_reconnection_after_which_both_know_the_same(node: NodeSettings) -> None:
    line = BrokerLine(2, "none", node)
    publisher = LineClient(line, "b1", "p")
    for number in range(200):
        publisher.publish(f"lamp/{number}", b"on", 1, retain=True)
    line.run()
    before = said(line)
    line.cut("b1", "b2")
    line.join("b1", "b2")
    assert entries_sent(line) == 0
    assert said(line) - before == (2 if node is SHORT else 0), "one sum from each end, if anything may be lost"


def test_the_later_of_two_versions_on_both_sides_of_a_partition_wins_everywhere() -> None:
    line = BrokerLine(3, "none", SHORT)
    clients = {broker: LineClient(line, broker, broker) for broker in line.brokers}
    line.cut("b2", "b3")
    clients["b1"].publish("t", b"earlier", 1, retain=True)
    line.wait(1.0)
    clients["b3"].publish("t", b"later", 1, retain=True)
    clients["b3"].publish("u", b"earlier", 1, retain=True)
    line.wait(1.0)
    clients["b2"].publish("u", b"", 1, retain=True)
    line.join("b2", "b3")
    for broker in line.brokers:
        assert retained_at(line, broker) == [("t", b"later")]


def test_a_broker_whose_clock_is_behind_still_overwrites_what_it_has_seen() -> None:
    line = BrokerLine(2)
    LineClient(line, "b1", "p").publish("t", b"1", 1, retain=True)
    line.now -= 1_000.0
    LineClient(line, "b2", "q").publish("t", b"2", 1, retain=True)
    assert [retained_at(line, broker) for broker in line.brokers] == [[("t", b"2")]] * 2


@pytest.mark.parametrize("scheme", ["none", "buffering"])
def test_a_broker_that_was_restarted_has_its_map_from_its_disk_or_from_its_neighbours(scheme: str) -> None:
    line = BrokerLine(3, scheme, SHORT)
    publisher = LineClient(line, "b1", "p")
    for number in range(30):
        publisher.publish(f"t/{number}", b"1", 1, retain=True)
    publisher.publish("t/3", b"", 1, retain=True)
    for is_wiped in (False, True):
        line.cut("b2", "b3")
        if is_wiped:
            line.disks["b3"].clear()
        before = entries_sent(line)
        line.start("b3")
        assert len(retained_at(line, "b3")) == (0 if is_wiped else 29)
        line.join("b2", "b3")
        line.wait(10.0)
        assert len(retained_at(line, "b3")) == 29
        assert entries_sent(line) - before == (30 if is_wiped else 0)


def tombstones(line: BrokerLine) -> list[int]:
    return [broker.node.retained.tombstones for broker in line.brokers.values()]


def refresh(line: BrokerLine) -> None:
    line.wait(61.0)


def test_a_deletion_is_forgotten_when_every_broker_has_it_and_not_before() -> None:
    line = BrokerLine(4, "none", SHORT)
    publisher = LineClient(line, "b2", "p")
    publisher.publish("t", b"1", 1, retain=True)
    publisher.publish("expires", b"1", 1, retain=True, message_expiry_s=5)
    line.cut("b3", "b4")
    publisher.publish("t", b"", 1, retain=True)
    line.wait(10.0)
    for _ in range(3):
        refresh(line)
    assert tombstones(line) == [2, 2, 2, 1], "b4 has not heard of the one, and all but it know of both"
    line.join("b3", "b4")
    for _ in range(3):
        refresh(line)
    assert tombstones(line) == [0, 0, 0, 0]
    assert all(not any(key[:2] == b"om" for key in disk) for disk in line.disks.values())
    before = said(line)
    refresh(line)
    assert said(line) == before, "maps without entries are not compared"
    assert [retained_at(line, broker) for broker in line.brokers] == [[]] * 4


def test_a_message_older_than_a_forgotten_deletion_does_not_bring_it_back() -> None:
    line = BrokerLine(2, "none", NodeSettings(resume_s=10_000.0))
    publisher, subscriber = LineClient(line, "b1", "p"), LineClient(line, "b2", "s")
    subscriber.subscribe("t", 1)
    node = line.brokers["b1"].node
    old = node.publish("t", 1, line.now, is_retained=True, qos=1)
    publisher.publish("t", b"", 1, retain=True)
    for _ in range(3):
        refresh(line)
    assert tombstones(line) == [0, 0]
    assert old is not None
    for name in line.brokers:
        assert not line.brokers[name].node.retained.take(0, old)
        line.start(name)  # this survives a restart
        assert not line.brokers[name].node.retained.take(0, old)


def test_who_was_away_for_longer_than_deletions_are_kept_takes_the_map_anew() -> None:
    line = BrokerLine(2, "none", replace(SHORT, retained_max=3))
    publisher = LineClient(line, "b1", "p")
    publisher.publish("kept", b"1", 1, retain=True)
    publisher.publish("gone", b"1", 1, retain=True)
    line.cut("b1", "b2")
    line.wait(1.0)
    publisher.publish("gone", b"", 1, retain=True)
    for number in range(5):
        publisher.publish(f"t/{number}", b"1", 1, retain=True)
        publisher.publish(f"t/{number}", b"", 1, retain=True)
    assert line.brokers["b1"].node.retained.tombstones == 3
    assert retained_at(line, "b2") == [("gone", b"1"), ("kept", b"1")]
    line.wait(1.0)
    LineClient(line, "b2", "q").publish("new", b"1", 1, retain=True)
    line.join("b1", "b2")
    for broker in line.brokers:
        assert retained_at(line, broker) == [("kept", b"1"), ("new", b"1")]


def test_a_full_map_refuses_its_own_clients_and_counts_what_it_does_not_take_of_others() -> None:
    line = BrokerLine(2, "none", replace(SHORT, retained_max=2))
    for broker in line.brokers.values():
        broker.core.retained.settings = replace(broker.core.settings, retained_max=2)
    publisher = LineClient(line, "b1", "p")
    for number in range(3):
        publisher.publish(f"t/{number}", b"1", 1, retain=True)
    reasons = [packet.reason for packet in publisher.read() if isinstance(packet, Puback)]
    assert [reason >= 0x80 for reason in reasons] == [False, False, True]
    assert reasons[2] == ReasonCode.QUOTA_EXCEEDED
    node = line.brokers["b1"].node
    for number in range(5):
        node.publish(f"u/{number}", 1, line.now, is_retained=True, qos=1)
    line.run()
    assert len(line.brokers["b2"].node.retained) == 4
    assert line.brokers["b2"].node.retained.refused == 3


def test_what_a_broker_retained_before_it_joined_an_overlay_is_known_to_all() -> None:
    line = BrokerLine(2, is_joined=False)
    core = BrokerCore(traffic=LocalTraffic())
    alone = line.brokers["b1"]
    alone.core.retained.settings = core.settings
    client = LineClient(line, "b1", "p")
    client.publish("t", b"1", 1, retain=True)
    line.disks["b1"] = {key: value for key, value in line.disks["b1"].items() if key[:1] != b"o"}
    line.start("b1")
    line.join("b1", "b2")
    assert retained_at(line, "b2") == [("t", b"1")]


def test_a_large_difference_is_repaired_bucket_by_bucket() -> None:
    line = BrokerLine(3, "none", SHORT, is_joined=False)
    for broker in ("b1", "b3"):
        client = LineClient(line, broker, f"p at {broker}")
        for number in range(2_000):
            client.core.receive(client.connection, retained_packet(f"{broker}/{number}"), line.now)
    line.run()
    line.join("b1", "b2")
    line.join("b2", "b3")
    assert [len(broker.node.retained) for broker in line.brokers.values()] == [4_000] * 3
    assert [len(broker.core.retained) for broker in line.brokers.values()] == [4_000] * 3
    assert entries_sent(line) == 2_000 * 4, "each once over each link"


def retained_packet(topic: str) -> bytes:
    return encode(Publish(topic, b"x", 0, True), V5)
