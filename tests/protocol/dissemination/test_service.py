"""The event notification service: who gets which event, over which paths, and what happens when that changes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from packet_world import SERVICE, World, lossy

from surecast.errors import ConfigurationError, OverloadError
from surecast.protocol.coding import CodingSettings
from surecast.protocol.dissemination import (
    Body,
    Data,
    Expire,
    Granted,
    Install,
    Known,
    NotificationService,
    PublishRequest,
    Register,
    Registered,
    Relay,
    SendTo,
    Unregister,
    View,
    scheme_settings,
)
from surecast.protocol.dissemination.registry import Registry
from surecast.protocol.filters import Event
from surecast.protocol.gossip import GossipSettings, Reply
from surecast.protocol.paths import PathPlanner
from surecast.scenario.paths import CapacityGraph

CODING = CodingSettings(packets=8, redundancy=0.25, packet_bytes=16)
GOSSIP = GossipSettings(fan_out=2, rounds=4, interval_s=0.1)
SQUARE = [(0, 1, 30.0), (1, 3, 30.0), (0, 2, 10.0), (2, 3, 10.0)]
DATA = bytes(range(128))


def square(scheme: str = "coding-gossip", **more: object) -> World:
    settings = scheme_settings(scheme, CODING, GOSSIP)
    graph = CapacityGraph.both_ways(SQUARE)
    return World(graph, 4, {100: 3, 101: 3, 102: 1, 103: 0}, settings, **more)  # type: ignore[arg-type]


def test_subscriptions_come_over_the_wire_and_are_repeated_until_confirmed() -> None:
    refused = iter([True, False, True])
    world = square(lose=lambda a, b, m: isinstance(m, Register | Registered) and next(refused, False), wire=True)
    world.carry_out(100, world.subscribers[100].subscribe(1, "stock/+", "price > 35", 0.0))
    assert not world.subscribers[100].is_registered(1)
    world.run()
    assert world.subscribers[100].is_registered(1)
    assert world.count(Register) == 3  # the first is lost, and so is the answer to the second
    assert world.service.registry.interested(Event("stock/foo", {"price": 36})) == {100: 3}
    assert world.service.registry.interested(Event("stock/foo", {"price": 3})) == {}


def test_a_subscription_that_is_no_filter_is_refused() -> None:
    world = square()
    for number, (topic, content) in enumerate([("a/#/b", ""), ("a", "price >")]):
        world.carry_out(100, world.subscribers[100].subscribe(number, topic, content, 0.0))
    world.run()
    assert world.subscribers[100].counters.refused["subscription refused"] == 2
    assert len(world.service.registry) == 0


def test_only_those_who_want_an_event_get_it() -> None:
    world = square(wire=True)
    for n, topic, content in [
        (100, "stock/#", ""),
        (101, "stock/+", "price > 35"),
        (102, "weather", ""),
        (103, "#", ""),
    ]:
        world.service.subscribe(n, 1, world.subscribers[n].home, topic, content, 0.0)
    body = Body("stock/foo", b"sold", (("price", 20.0),))
    publication, effects = world.service.publish(
        0, body.topic, len(body.encode()), 2.0, 0.0, attributes=dict(body.attributes)
    )
    assert publication.subscribers == (100, 103)
    assert world.service.active(publication.event_id) == (100, 103)
    world.carry_out(SERVICE, effects)
    world.run(0.1)
    world.carry_out(0, world.publisher.publish(publication.event_id, publication.group, body.encode(), 2.0, 0.1))
    world.run()
    assert {n for n in world.notified if world.notified[n]} == {100, 103}
    assert Body.decode(world.notified[100][publication.event_id][1].data) == body
    assert world.service.active(publication.event_id) == ()


def test_paths_are_told_once_and_confirmed() -> None:
    world = square()
    world.subscribe_all()
    world.publish(DATA, 2.0)
    told = world.count(Install) + world.count(View)
    assert told == 4 + 4
    assert world.count(Known) == told
    world.publish(DATA, 2.0)
    assert world.count(Install) + world.count(View) == told
    world.run()
    assert all(len(got) == 2 for got in world.notified.values())


def test_what_the_service_tells_is_repeated_until_confirmed_and_early_packets_wait_for_it() -> None:
    lost = iter([True] * 6)
    world = square("coding", lose=lambda a, b, m: isinstance(m, Install | View) and b != 0 and next(lost, False))
    world.subscribe_all()
    publication, effects = world.service.publish(0, "t", 128, 3.0, 0.0)
    world.carry_out(SERVICE, effects)
    world.run(0.05)
    world.carry_out(0, world.publisher.publish(publication.event_id, publication.group, DATA, 3.0, world.now))
    world.run()
    assert all(world.notified[n] for n in world.notified)


def test_a_node_that_never_confirms_is_given_up() -> None:
    world = square("coding", lose=lambda a, b, m: b == 2)
    world.subscribe_all()
    world.publish(DATA, 2.0)
    world.lose = lambda a, b, m: b == 2
    world.service._tell(2, Install(0, 5, 10, 0, ()), world.now)
    world.run()
    assert world.service.counters.refused["not confirmed"] == 1


def test_when_a_link_fails_events_take_other_paths() -> None:
    world = square("coding")
    world.subscribe_all()
    assert world.publish(DATA, 1.0).rate_per_s == 40.0
    world.run()
    world.planner.fail_link(1, 3)
    world.planner.fail_link(3, 1)
    world.lose = lambda a, b, m: (a, b) == (1, 3)
    publication = world.publish(DATA, world.now + 1.0)
    assert publication.rate_per_s == 10.0
    world.run()
    assert all(publication.event_id in got for got in world.notified.values())


def test_an_event_under_way_is_told_its_new_paths() -> None:
    world = square("coding")
    world.subscribe_all()
    world.publish(DATA, 5.0)
    world.planner.fail_link(1, 3)
    effects = world.service.replan(world.now)
    assert {effect.message.version for effect in effects if isinstance(effect, SendTo)} == {1}  # type: ignore[union-attr]
    assert world.service.replan(world.now) == []


def test_subscribers_that_cannot_be_reached_are_named() -> None:
    world = square("coding")
    world.subscribe_all()
    for a, b in ((1, 3), (2, 3)):
        world.planner.fail_link(a, b)
    publication = world.publish(DATA, 1.0)
    assert publication.unreachable == (100, 101)
    world.run()
    assert {n for n in world.notified if world.notified[n]} == {102, 103}


def test_who_subscribes_late_gets_the_event_from_the_others() -> None:
    world = square()
    for n in (100, 101, 102):
        world.service.subscribe(n, 1, world.subscribers[n].home, "t", "", 0.0)
    publication = world.publish(DATA, 3.0)
    world.run(1.0)
    assert not world.notified[103]
    world.carry_out(103, world.subscribers[103].subscribe(1, "t", "", world.now))
    world.run()
    at_s, note = world.notified[103][publication.event_id]
    assert note.data == DATA
    assert note.recovered
    assert 1.0 < at_s < 3.0


def test_after_its_deadline_an_event_is_not_for_those_who_come_late() -> None:
    world = square()
    world.subscribe_all()
    world.publish(DATA, 1.0)
    world.run(1.5)
    assert world.service.subscribe(555, 1, 0, "t", "", world.now) == []


def test_who_unsubscribes_gets_no_more() -> None:
    world = square(lose=lossy(0.0, 1))
    world.subscribe_all()
    world.lose = lambda a, b, m: isinstance(m, Data) and b == 100
    world.publish(DATA, 3.0)
    world.carry_out(100, world.subscribers[100].unsubscribe(1, world.now))
    world.run(world.now + 0.025)
    assert world.subscribers[100].is_registered(1)
    world.lose = lambda a, b, m: False
    second = world.publish(DATA, world.now + 3.0)
    assert 100 not in second.subscribers
    world.run()
    assert not world.notified[100]
    assert all(second.event_id in world.notified[n] for n in (101, 102, 103))


def test_who_came_late_may_leave_again() -> None:
    world = square(lose=lambda a, b, m: isinstance(m, Reply))
    world.service.subscribe(100, 1, 3, "t", "", 0.0)
    publication = world.publish(DATA, 3.0)
    world.lose = lambda a, b, m: isinstance(m, Reply)
    world.run(0.5)
    world.carry_out(103, world.subscribers[103].subscribe(1, "t", "", world.now))
    world.run(0.6)
    assert world.service.active(publication.event_id) == (100, 103)
    assert world.subscribers[103].incomplete
    world.carry_out(103, world.subscribers[103].unsubscribe(1, world.now))
    world.run()
    assert (103, Expire(publication.event_id, 8, "group left")) in world.expired
    assert not world.subscribers[103].incomplete


def test_a_relay_that_started_anew_is_told_its_groups_again() -> None:
    world = square("coding")
    world.subscribe_all()
    world.publish(DATA, 1.0)
    world.run()
    for n in (1, 2, 3):
        world.nodes[n] = Relay(n, world.service.settings, world.service.known, SERVICE)
        world.carry_out(SERVICE, world.service.reintroduce(n, world.now))
    world.run()
    second = world.publish(DATA, world.now + 1.0)
    world.run()
    assert all(second.event_id in got for got in world.notified.values())
    assert world.service.reintroduce(77, world.now) == []


def test_with_another_subscription_that_matches_the_event_goes_on() -> None:
    world = square()
    world.subscribe_all()
    world.service.subscribe(100, 2, 3, "#", "", 0.0)
    world.publish(DATA, 3.0)
    assert world.service.unsubscribe(100, 1, world.now) == []
    world.run()
    assert world.notified[100]


@pytest.mark.parametrize("scheme", ["coding-gossip", "gossip"])
def test_publishers_ask_by_message_and_are_answered_though_messages_are_lost(scheme: str) -> None:
    lost = iter([True, False, True])
    world = square(
        scheme, lose=lambda a, b, m: isinstance(m, PublishRequest | Granted) and next(lost, False), wire=True
    )
    world.subscribe_all("stock/#")
    body = Body("stock/foo", b"sold", (("price", 20.0),), published_s=0.5)
    world.carry_out(0, world.publisher.request(body, 5.0, 0.0))
    world.run()
    assert world.count(PublishRequest) == 3
    for got in world.notified.values():
        ((_, note),) = got.values()  # once, though it was asked for twice
        assert Body.decode(note.data) == body


def test_a_publisher_gives_up_asking_at_the_deadline_and_hears_of_refusals() -> None:
    world = square("coding", lose=lambda a, b, m: isinstance(m, Granted))
    world.subscribe_all()
    world.carry_out(0, world.publisher.request(Body("t"), 2.0, 0.0))
    world.run()
    assert world.publisher.counters.refused["not granted"] == 1
    assert world.publisher.handle(Granted(7, accepted=True), SERVICE, 3.0) == []
    world.carry_out(0, world.publisher.request(Body("t"), 9.0, 3.0))
    world.publisher.handle(Granted(1, accepted=False), SERVICE, 3.0)
    assert world.publisher.counters.refused["event refused"] == 1


def test_the_application_is_called_with_what_it_is_notified_of() -> None:
    world = square("coding")
    told: list[object] = []
    world.subscribers[100].notify = told.append
    world.subscribe_all()
    publication = world.publish(DATA, 2.0)
    world.run()
    assert told == [world.notified[100][publication.event_id][1]]


def test_a_service_started_anew_numbers_its_groups_and_events_from_its_epoch_on() -> None:
    planner = PathPlanner(CapacityGraph.both_ways([(0, 1, 5.0)]))
    service = NotificationService(SERVICE, scheme_settings("tree", CODING), planner, range(9), epoch=1000)
    publication, _ = service.publish(3, "t", 10, 2.0, 0.0)
    assert (publication.group, publication.event_id) == (1000, 3 << 32 | 1000)


def test_a_large_group_is_told_in_parts() -> None:
    settings = scheme_settings("tree", CODING)
    homes = {1000 + i: 1 for i in range(300)}
    world = World(CapacityGraph.both_ways([(0, 1, 5.0)]), 2, homes, settings, wire=True)
    world.subscribe_all()
    world.publish(DATA, 3.0)
    world.run()
    assert sum(isinstance(m, Install) and b == 1 for _, _, b, m in world.sent) == 5
    assert all(world.notified[n] for n in homes)


def test_groups_and_subscriptions_are_bounded() -> None:
    settings = replace(scheme_settings("tree", CODING), groups_max=3)
    planner = PathPlanner(CapacityGraph.both_ways([(0, 1, 5.0)]))
    service = NotificationService(SERVICE, settings, planner, range(100), subscriptions_max=10)
    for n in range(10):
        service.subscribe(n, 1, 1, f"t{n}", "", 0.0)
        service.publish(0, f"t{n}", 10, 2.0, 0.0)
    assert service.counters.refused["group evicted"] == 7
    with pytest.raises(OverloadError, match="10 subscriptions"):
        service.subscribe(11, 1, 1, "t", "", 0.0)
    service.subscribe(9, 1, 1, "other", "", 0.0)  # in place of what it had
    assert service.registry.interested(Event("t9")) == {}


def test_a_deadline_that_is_past_or_too_far_is_refused() -> None:
    world = square()
    for deadline_s in (0.0, 1e6):
        with pytest.raises(ConfigurationError, match="deadline"):
            world.service.publish(0, "t", 10, deadline_s, 0.0)


def test_an_unsubscription_for_nothing_is_confirmed_and_does_nothing() -> None:
    world = square()
    effects = world.service.handle(Unregister(9), 100, 0.0)
    assert effects == [SendTo(100, Registered(9, accepted=True))]


def test_the_registry_against_trying_every_subscription() -> None:
    registry = Registry(1000)
    kept: dict[tuple[int, int], tuple[int, int]] = {}
    for i in range(200):
        subscriber, number = i % 20, i % 3
        low = i * 7 % 50
        registry.add(subscriber, number, home=subscriber % 5, topic=f"a/{i % 4}", content=f"x > {low}")
        kept[subscriber, number] = (i % 4, low)
        if i % 5 == 0:
            assert registry.remove(subscriber, number)
            del kept[subscriber, number]
    assert len(registry) == len(kept)
    for topic in range(4):
        for x in range(0, 60, 7):
            expected = {s: s % 5 for (s, _), (t, low) in kept.items() if t == topic and x > low}
            assert registry.interested(Event(f"a/{topic}", {"x": x})) == expected
