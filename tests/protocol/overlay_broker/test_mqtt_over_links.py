"""What MQTT clients see over the links of an overlay, packet by packet."""

from __future__ import annotations

import pytest
from tests.protocol.overlay_broker.broker_line import BrokerLine, LineClient

from surecast.protocol.broker import Origin
from surecast.protocol.link import NumberedFrame
from surecast.protocol.mqtt import (
    V5,
    Connect,
    Properties,
    Puback,
    Publish,
    ReasonCode,
    Subscribe,
    SubscriptionRequest,
    Unsubscribe,
    Will,
    encode,
    encode_publish,
)
from surecast.protocol.overlay.node_links import NodeSettings
from surecast.protocol.overlay.node_records import is_node_record
from surecast.protocol.overlay_broker.link_clock import LinkClock


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_goes_over_three_hops_at_its_qos_with_its_properties(qos: int) -> None:
    line = BrokerLine(4)
    publisher, subscriber = LineClient(line, "b1", "p"), LineClient(line, "b4", "s")
    subscriber.subscribe("stock/#", 2)
    publisher.publish("stock/acme", b"1", qos, content_type="text/plain", user=(("a", "b"), ("a", "c")))
    (message,) = subscriber.read()
    assert isinstance(message, Publish)
    assert (message.topic, message.payload, message.qos, message.retain) == ("stock/acme", b"1", qos, False)
    assert (message.properties.content_type, message.properties.user) == ("text/plain", (("a", "b"), ("a", "c")))


def test_the_acknowledgement_leaves_when_the_record_of_custody_is_on_disk() -> None:
    line = BrokerLine(2, is_joined=False)
    subscriber = LineClient(line, "b2", "s", Connect("s", False, properties=Properties(session_expiry_s=1000)))
    subscriber.subscribe("t", 1)
    line.join("b1", "b2")
    line.cut("b1", "b2")
    publisher = LineClient(line, "b1", "p")
    broker = line.brokers["b1"]
    publisher.core.receive(publisher.connection, encode(Publish("t", b"1", 1, packet_id=5), V5), line.now)
    broker.settle(line.now)
    assert any(is_node_record(key) and key[:2] == b"oh" for key, _ in broker.core.journal.records)
    line.run()
    assert [packet for packet in publisher.read() if isinstance(packet, Puback)] == [Puback(5)]
    line.start("b1")  # b1 is killed and starts again: what it acknowledged is in custody
    line.join("b1", "b2")
    line.wait(20.0)
    assert subscriber.payloads() == [b"1"]


def test_the_expiry_interval_counts_down_over_the_hops_and_what_has_expired_does_not_arrive() -> None:
    line = BrokerLine(3)
    subscriber, publisher = LineClient(line, "b3", "s"), LineClient(line, "b1", "p")
    subscriber.subscribe("t", 1)
    line.cut("b2", "b3")
    publisher.publish("t", b"short", 1, message_expiry_s=5)
    publisher.publish("t", b"long", 1, message_expiry_s=60)
    line.wait(10.5)
    line.join("b2", "b3")
    (message,) = [packet for packet in subscriber.read() if isinstance(packet, Publish)]
    assert (message.payload, message.properties.message_expiry_s) == (b"long", 50)
    assert line.brokers["b2"].node.accounts.hops["b3"].dropped["expired"] == 1


def test_content_filters_are_decided_where_the_event_is_and_only_what_they_name_travels_as_attributes() -> None:
    line = BrokerLine(3)
    subscriber, publisher = LineClient(line, "b3", "s"), LineClient(line, "b1", "p")
    subscriber.subscribe("stock", content="price > 35")
    publisher.publish("stock", b"dear", user=(("price", "36"), ("by", "ann")))
    publisher.publish("stock", b"cheap", user=(("price", "3"),))
    publisher.publish("stock", b"json", content_type="application/json")
    publisher.publish("stock", b'{"price": 99}', content_type="application/json")
    assert subscriber.payloads() == [b"dear", b'{"price": 99}']
    assert line.brokers["b1"].node.accounts.hops["b2"].offered == 2
    assert [*line.brokers["b1"].node.attributes("stock")] == ["price"]


@pytest.mark.parametrize("scheme", ["none", "buffering"])
def test_an_event_that_meets_a_filter_its_home_has_not_heard_of_is_decided_at_the_subscriber(scheme: str) -> None:
    """Its attributes are those that its home knew to be asked for: the price is not among them."""
    line = BrokerLine(3, scheme)
    foo, new = LineClient(line, "b2", "foo"), LineClient(line, "b3", "new")
    foo.subscribe("stock", 1, 'stock = "Foo"')
    publisher = LineClient(line, "b1", "p")
    line.cut("b1", "b2")
    for price in ("30", "40"):
        publisher.publish("stock", price.encode(), 1, user=(("stock", "Foo"), ("price", price)))
    new.subscribe("stock", 1, "price > 35")
    line.join("b1", "b2")
    assert foo.payloads() == [b"30", b"40"]
    assert new.payloads() == [b"40"]
    line.wait(5.0)
    publisher.publish("stock", b"31", 1, user=(("stock", "Foo"), ("price", "31")))
    b2 = line.brokers["b2"].node
    assert b2.accounts.hops["b3"].offered == 2, "what has all attributes is decided on the way"


def test_a_filter_that_a_wider_one_hides_from_the_home_still_gets_its_events() -> None:
    """b1 is told that b2 wants all of the stock, so it does not look for the price."""
    line = BrokerLine(3)
    plain, narrow = LineClient(line, "b2", "plain"), LineClient(line, "b3", "narrow")
    plain.subscribe("stock", 1)
    narrow.subscribe("stock", 1, "price > 35")
    for price in ("30", "40"):
        LineClient(line, "b1", price).publish("stock", price.encode(), 1, user=(("price", price),))
    assert plain.payloads() == [b"30", b"40"]
    assert narrow.payloads() == [b"40"]


def test_retained_messages_travel_as_messages_and_are_kept_at_every_broker() -> None:
    line = BrokerLine(2)
    early, plain = LineClient(line, "b2", "s"), LineClient(line, "b2", "plain")
    early.subscribe("t", retain_as_published=True)
    plain.subscribe("t")
    LineClient(line, "b1", "p").publish("t", b"1", retain=True)
    (kept,), (passed,) = early.read(), plain.read()
    assert isinstance(kept, Publish)
    assert isinstance(passed, Publish)
    assert (kept.retain, passed.retain) == (True, False)
    late_here, late_there = LineClient(line, "b1", "h"), LineClient(line, "b2", "e")
    for late, found in ((late_here, [b"1"]), (late_there, [b"1"])):
        late.send(Subscribe(3, (SubscriptionRequest("t"),)))
        assert late.payloads() == found


def test_dollar_topics_belong_to_one_broker_and_shared_subscriptions_need_no_demand() -> None:
    line = BrokerLine(2)
    shared, system, plain = LineClient(line, "b2", "a"), LineClient(line, "b2", "b"), LineClient(line, "b2", "c")
    shared.subscribe("$share/g/t")
    system.subscribe("$SYS/#")
    assert line.brokers["b1"].node.wanted_by("b2", 0) == []
    publisher = LineClient(line, "b1", "p")
    publisher.publish("t", b"1")
    plain.subscribe("t", 1)
    publisher.publish("t", b"2", 1)
    publisher.publish("t", b"3", 2)
    publisher.publish("t", b"4")
    assert (shared.payloads(), plain.payloads()) == ([b"1", b"2", b"3", b"4"], [b"2", b"3", b"4"])
    LineClient(line, "b2", "q").publish("t", b"5")
    assert (shared.payloads(), plain.payloads()) == ([b"5"], [b"5"])


def test_a_will_travels_as_any_publication() -> None:
    line = BrokerLine(2)
    subscriber = LineClient(line, "b2", "s")
    subscriber.subscribe("gone", 1)
    leaver = LineClient(line, "b1", "p", Connect("p", will=Will("gone", b"p is gone", 1)))
    leaver.core.lost(leaver.connection, line.now)
    line.run()
    assert subscriber.payloads() == [b"p is gone"]


def test_no_local_holds_for_a_client_that_has_moved() -> None:
    line = BrokerLine(2)
    here, there = LineClient(line, "b1", "mover"), LineClient(line, "b2", "mover")
    there.subscribe("t", no_local=True)
    here.publish("t", b"own")
    LineClient(line, "b1", "other").publish("t", b"another's")
    assert there.payloads() == [b"another's"]


def test_demand_follows_the_first_and_the_last_subscriber_and_survives_a_restart() -> None:
    line = BrokerLine(2)
    b1 = line.brokers["b1"].node
    lasting = Connect("s", False, properties=Properties(session_expiry_s=1000))
    one, two = LineClient(line, "b2", "s", lasting), LineClient(line, "b2", "t")
    one.subscribe("t", 1)
    two.subscribe("t", 2)
    assert [str(joint) for joint in b1.wanted_by("b2", 0)] == ["t at QoS 2"]
    two.send(Unsubscribe(3, ("t",)))
    assert [str(joint) for joint in b1.wanted_by("b2", 0)] == ["t at QoS 1"]
    line.cut("b1", "b2")
    line.start("b2")
    line.join("b1", "b2")
    line.wait(20.0)
    assert [str(joint) for joint in b1.wanted_by("b2", 0)] == ["t at QoS 1"]
    again = LineClient(line, "b2", "s", lasting)
    again.send(Unsubscribe(3, ("t",)))
    assert b1.wanted_by("b2", 0) == []


def test_publishers_are_held_while_a_link_that_they_need_is_full_and_others_are_not() -> None:
    line = BrokerLine(2, node=NodeSettings(custody_events_max=10, resume_s=1000.0))
    LineClient(line, "b2", "s").subscribe("far", 1)
    LineClient(line, "b1", "l").subscribe("near", 1)
    line.cut("b1", "b2")
    publisher, other = LineClient(line, "b1", "p"), LineClient(line, "b1", "q")
    for number in range(12):
        publisher.publish("far", b"%d" % number, 1)
    assert [packet.reason for packet in publisher.read() if isinstance(packet, Puback)] == [ReasonCode.SUCCESS] * 12
    assert [*line.brokers["b1"].held] == ["p"]
    assert other.connection.phase.value == "open"
    line.join("b1", "b2")
    line.wait(1.0)
    assert line.brokers["b1"].held == {}


def full_line(overflow: str, hold_max_s: float = 30.0) -> tuple[BrokerLine, LineClient, LineClient]:
    """b1 has ten events in custody for b2, to which its link is down; its publisher is held."""
    line = BrokerLine(
        2,
        node=NodeSettings(
            custody_events_max=10,
            resume_s=1000.0,
            hold_max_s=hold_max_s,
            overflow=overflow,  # type: ignore[arg-type]
        ),
    )
    subscriber = LineClient(line, "b2", "s")
    subscriber.subscribe("far", 1)
    line.cut("b1", "b2")
    publisher = LineClient(line, "b1", "p")
    for number in range(10):
        publisher.publish("far", b"%d" % number, 1, message_expiry_s=500 if number == 4 else 1000)
    assert [*line.brokers["b1"].held] == ["p"]
    publisher.read()
    return line, publisher, subscriber


@pytest.mark.parametrize(
    ("overflow", "arrive", "reason"),
    [
        ("drop-new", [*range(10)], ReasonCode.SUCCESS),
        ("drop-old", [*range(1, 10), 10], ReasonCode.SUCCESS),
        ("expire-first", [0, 1, 2, 3, *range(5, 10), 10], ReasonCode.SUCCESS),
        ("reject", [*range(10)], ReasonCode.QUOTA_EXCEEDED),
    ],
)
def test_publishers_wait_for_a_full_link_up_to_hold_max_and_then_its_rule_drops_and_counts(
    overflow: str, arrive: list[int], reason: ReasonCode
) -> None:
    line, publisher, subscriber = full_line(overflow)
    broker = line.brokers["b1"]
    line.wait(29.0)
    assert [*broker.held] == ["p"]
    assert broker.next_timer() == pytest.approx(line.now + 1.0)
    line.wait(1.0)
    assert broker.held == {}
    publisher.publish("far", b"10", 1, message_expiry_s=1000)
    assert [packet.reason for packet in publisher.read() if isinstance(packet, Puback)] == [reason]
    assert broker.held == {}
    accounts = broker.node.accounts.hops["b2"]
    assert accounts.dropped["queue-full"] == (overflow != "reject")
    assert accounts.problem(broker.node.custody.events_unsent("b2")) == ""
    line.join("b1", "b2")
    line.wait(1.0)
    assert subscriber.payloads() == [b"%d" % number for number in arrive]
    publisher.publish("far", b"11", 1)
    assert [packet.reason for packet in publisher.read() if isinstance(packet, Puback)] == [ReasonCode.SUCCESS]
    assert subscriber.payloads() == [b"11"], "a link that has room again is full no more"
    assert broker.node.accounts.refused == 0


def test_only_who_needs_the_full_link_is_refused_and_nobody_before_it_was_full_for_long() -> None:
    line, publisher, _ = full_line("reject")
    line.wait(30.0)
    publisher.publish("near", b"1", 1)
    assert [packet.reason for packet in publisher.read() if isinstance(packet, Puback)] == [ReasonCode.SUCCESS]
    publisher.publish("far", b"1", 0)
    assert line.brokers["b1"].node.accounts.hops["b2"].dropped["queue-full"] == 0, "QoS 0 is not in custody"


def test_messages_at_best_effort_make_room_for_new_ones_where_the_oldest_go_first() -> None:
    node = NodeSettings(window_bytes=300, queue_bytes_max=600, resume_s=1000.0, hold_max_s=5.0, overflow="drop-old")
    line = BrokerLine(2, "none", node)
    subscriber = LineClient(line, "b2", "s")
    subscriber.subscribe("far", 1)
    wires = line.wires.pop(("b1", "b2"))  # b2 takes nothing for a while
    publisher, broker = LineClient(line, "b1", "p"), line.brokers["b1"]
    for number in range(30):
        publisher.publish("far", b"%d" % number, 1)
        line.wait(5.0 if broker.held else 0.0)
    dropped = broker.node.accounts.hops["b2"].dropped["queue-full"]
    assert dropped > 0
    assert broker.node.accounts.hops["b2"].problem(0) == ""
    line.wires["b1", "b2"] = wires
    line.run()
    numbers = [int(payload) for payload in subscriber.payloads()]
    assert numbers == sorted(numbers)
    assert numbers[-1] == 29
    assert len(numbers) == 30 - dropped


def test_who_publishes_is_not_told_that_nobody_wants_it() -> None:
    line = BrokerLine(2)
    LineClient(line, "b2", "s").subscribe("t", 1)
    publisher = LineClient(line, "b1", "p")
    publisher.publish("t", b"1", 1)
    assert [packet.reason for packet in publisher.read() if isinstance(packet, Puback)] == [ReasonCode.SUCCESS]


def test_a_newer_connection_of_a_neighbour_takes_the_place_of_one_whose_end_was_not_seen() -> None:
    line = BrokerLine(2)
    call, answer = line.wires.pop(("b1", "b2"))
    call.close(line.now)  # b2 has not noticed
    line.join("b1", "b2")
    assert answer.is_closed
    subscriber = LineClient(line, "b2", "s")
    subscriber.subscribe("t")
    LineClient(line, "b1", "p").publish("t", b"1")
    assert subscriber.payloads() == [b"1"]


def test_the_clock_of_a_neighbour_is_measured_and_a_small_difference_is_none() -> None:
    line = BrokerLine(2)
    call, answer = line.wires["b1", "b2"]
    for ahead_s, found_s in ((0.0, 0.0), (0.001, 0.0), (30.0, 30.0)):
        call.clock = LinkClock()
        call.ping(line.now)
        answer.receive(call.output(), line.now + 0.002 + ahead_s)
        call.receive(answer.output(), line.now + 0.004)
        assert call.clock.ahead_s == pytest.approx(found_s)
        assert call.clock.round_trip_s == pytest.approx(0.004)


def test_messages_of_a_broker_that_stands_alone_in_its_plan_are_as_ever() -> None:
    line = BrokerLine(1)
    core = line.brokers["b1"].core
    assert core.open(Origin(peer="x"), 1.0).phase.value == "waiting for CONNECT"
    subscriber, publisher = LineClient(line, "b1", "s"), LineClient(line, "b1", "p")
    subscriber.subscribe("t", 1)
    publisher.publish("t", b"1", 1)
    assert subscriber.payloads() == [b"1"]


@pytest.mark.parametrize("scheme", ["none", "buffering"])
@pytest.mark.parametrize("qos", [0, 1])
def test_topics_that_change_with_every_message_travel_in_one_frame_and_part_where_their_ways_do(
    scheme: str, qos: int
) -> None:
    line = BrokerLine(3, scheme)
    near, far = LineClient(line, "b2", "near"), LineClient(line, "b3", "far")
    near.subscribe("stock/acme", qos)
    far.subscribe("stock/#", qos)
    far.subscribe("other", qos, content="price > 35")
    publisher = LineClient(line, "b1", "p")
    topics = ("stock/acme", "stock/emca", "unwanted", "other", "stock/acme", "stock/acme", "stock/emca")
    data = b"".join(
        encode_publish(topic.encode(), b"%d" % number, qos, packet_id=number + 1 if qos else 0)
        for number, topic in enumerate(topics)
    )
    sent_before = line.brokers["b1"].node.accounts.hops["b2"].offered
    publisher.core.receive(publisher.connection, data, line.now)
    broker = line.brokers["b1"]
    broker.settle(line.now)
    frames = [frame.content for frame in broker.node.output("b2") if isinstance(frame, NumberedFrame)]
    assert [(frame.batch.topic, frame.batch.count) for frame in frames] == [("stock/acme", 2), ("stock/acme", 3)]
    assert broker.node.accounts.hops["b2"].offered - sent_before == 5
    line.cut("b1", "b2")  # what was taken out above is repeated
    line.join("b1", "b2")
    line.wait(20.0)
    got = {client: [(p.topic, p.payload) for p in client.read() if isinstance(p, Publish)] for client in (near, far)}
    every = [(topic, b"%d" % number) for number, topic in enumerate(topics)]
    assert got[near] == [each for each in every if each[0] == "stock/acme"]
    assert got[far] == [each for each in every if each[0].startswith("stock")]
    answers = [packet.packet_id for packet in publisher.read() if isinstance(packet, Puback)]
    assert answers == ([*range(1, 8)] if qos else [])
