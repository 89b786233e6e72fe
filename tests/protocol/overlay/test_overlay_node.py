"""An overlay of nodes under seeded faults: what must never happen, and what must have happened in the end."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from tests.protocol.overlay.overlay_world import ALGORITHMS, World
from tests.seeds import seeds

from surecast.errors import PeerError
from surecast.protocol.demand import DemandChange, DemandUpdate, JointFilter
from surecast.protocol.link import CONTROL, LinkAck, NumberedFrame
from surecast.protocol.overlay.custody import Custody
from surecast.protocol.overlay.event_id import EventId, SeenEvents
from surecast.protocol.overlay.frame_rules import lane_of
from surecast.protocol.overlay.node_links import NodeSettings
from surecast.protocol.overlay.overlay_frames import Detoured, EventBatch, Events, Frame, LinkStates, NodeState
from surecast.protocol.overlay.overlay_node import OverlayNode
from surecast.protocol.overlay.overlay_plan import OverlayPlan, Tree

SCHEMES = ("none", "buffering", "bypass", "bypass-buffering")


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("seed", seeds(6, range(12)))
def test_whatever_fails_nothing_is_doubled_or_unaccounted_and_custody_loses_nothing(scheme: str, seed: int) -> None:
    random = Random(f"{scheme} {seed}")
    world = World(random, scheme, random.choice(ALGORITHMS))
    for _ in range(400):
        world.step()
        assert world.problems() == []
    world.heal()
    assert world.problems() == []
    if "buffering" in scheme:
        assert world.missing() == []
        assert all(len(machine.node.custody) == 0 for machine in world.machines.values() if machine.node)
    for machine in world.machines.values():
        assert machine.node is not None
        assert all(hop.on_link == 0 for hop in machine.node.accounts.hops.values())


@pytest.mark.parametrize("scheme", ["none", "buffering", "bypass-buffering"])
@pytest.mark.parametrize("seed", seeds(6, range(10)))
def test_links_that_come_back_in_time_lose_nothing(scheme: str, seed: int) -> None:
    """Bypass without buffering is left out: what it sent around a failure it does not keep."""
    random = Random(f"resume {scheme} {seed}")
    world = World(random, scheme, random.choice(ALGORITHMS), settings=NodeSettings(resume_s=1e6, window_bytes=4_000))
    for _ in range(300):
        world.step(crashes=False)
    world.heal()
    assert world.missing() == []
    assert world.problems() == []


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("seed", seeds(6, range(8)))
def test_once_an_overlay_has_come_to_rest_every_broker_knows_who_wants_what(scheme: str, seed: int) -> None:
    """Clients change what they want while connections break and brokers die."""
    random = Random(f"demand {scheme} {seed}")
    world = World(random, scheme, random.choice(ALGORITHMS))
    for n in range(300):
        world.step()
        if n % 3 == 0:
            world.change_demand(random.choice(world.plan.brokers))
    world.heal()
    world.published.clear()
    for _ in range(30):
        world.publish(random.choice(world.plan.brokers))
        world.heal()
    assert world.missing() == []
    assert world.problems() == []


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_without_failures_every_algorithm_delivers_to_exactly_those_who_want_it(algorithm: str) -> None:
    for seed in range(6):
        world = World(Random(f"{algorithm} {seed}"), "none", algorithm)
        for _ in range(200):
            world.step(crashes=False, cuts=False)
        world.heal()
        assert world.published
        assert world.missing() == []
        assert world.problems() == []
        nodes = [machine.node for machine in world.machines.values() if machine.node]
        assert all(hop.lost == 0 for node in nodes for hop in node.accounts.hops.values())


@pytest.mark.parametrize("scheme", ["none", "buffering"])
@pytest.mark.parametrize("seed", seeds(6, range(10)))
def test_events_of_a_publisher_stay_in_order_on_their_tree(scheme: str, seed: int) -> None:
    world = World(Random(f"order {scheme} {seed}"), scheme)
    for _ in range(400):
        world.step()
    world.heal()
    for machine in world.machines.values():
        for tree in (0, 1):
            sent = [
                event_id
                for event_id in machine.order
                if event_id in world.published and world.plan.tree_of(world.published[event_id][0].class_name) == tree
            ]
            for origin in world.plan.brokers:
                numbers = [(one.incarnation, one.number) for one in sent if one.origin == origin]
                assert numbers == sorted(numbers)


@pytest.mark.parametrize("seed", seeds(6, range(8)))
def test_what_expires_in_custody_is_counted_and_not_delivered_late(seed: int) -> None:
    world = World(Random(f"expiry {seed}"), "buffering")
    for _ in range(400):
        world.step(lifetime_s=8.0)
        assert world.problems() == []
    world.heal()
    world.now += 10.0
    world.tick()
    assert world.problems() == []
    assert all(len(machine.node.custody) == 0 for machine in world.machines.values() if machine.node)


def line(size: int, scheme: str = "none", settings: NodeSettings | None = None, **tree: object) -> World:
    """Brokers b0 to bn in a line, the last of which wants everything."""
    world = World(Random(1), scheme, size=size, settings=settings or NodeSettings())
    names = tuple(f"b{n}" for n in range(size))
    links = tuple(pairwise(names))
    world.plan = OverlayPlan(names, links, (Tree(links, scheme, **tree),))  # type: ignore[arg-type]
    world.wires = {pair: None for a, b in links for pair in ((a, b), (b, a))}
    world.unaware.clear()
    for name, machine in world.machines.items():
        machine.wanted = [JointFilter("#", qos=1)] if name == names[-1] else []
        machine.incarnation += 1
        machine.disk.clear()
        world._start(name)
    world.heal()
    world.published.clear()
    return world


def test_a_slow_neighbour_stops_publishers_and_not_the_broker() -> None:
    """Nothing is read behind b1: queues stay bounded by credit, and the home says that publishers should wait."""
    world = line(3, settings=NodeSettings(window_bytes=500, queue_bytes_max=5_000))
    b0, b1 = world.machines["b0"].node, world.machines["b1"].node
    assert b0 is not None
    assert b1 is not None
    for _ in range(200):
        world.publish("b0")
        while world.wires["b0", "b1"]:
            world.arrive("b0", "b1")
        while world.wires["b1", "b0"]:
            world.arrive("b1", "b0")
    assert b0.holding(["a/1"], world.now) == ["a/1"]
    assert b1.accounts.hops["b2"].dropped.total() == 0
    assert b1.accounts.hops["b2"].on_link < 60
    assert b0.accounts.hops["b1"].dropped["queue-full"] > 0
    assert world.problems() == []
    world.heal()
    assert not b0.holding(["a/1"], world.now)
    assert b0.accounts.hops["b1"].on_link == 0


def test_two_brokers_that_flood_each_other_do_not_wait_for_each_other() -> None:
    world = line(4, "buffering", NodeSettings(window_bytes=300, custody_events_max=5))
    for machine in world.machines.values():
        machine.wanted = [JointFilter("#", qos=1)]
        assert machine.node is not None
        machine.node.demand(added=machine.wanted)
    world.heal()
    for _ in range(100):
        for name in ("b0", "b3", "b1", "b2"):
            world.publish(name)
        for link in list(world.wires):
            world.arrive(*link)
    world.heal()
    assert world.missing() == []
    assert all(len(machine.node.custody) == 0 for machine in world.machines.values() if machine.node)


def test_full_custody_refuses_publishers_by_name() -> None:
    world = line(2, "buffering", NodeSettings(custody_events_max=3))
    world.cut("b0", "b1")
    node = world.machines["b0"].node
    assert node is not None
    taken = [node.publish("a/1", 1, 0.0, qos=1) is not None for _ in range(5)]
    assert taken == [True, True, True, False, False]
    assert node.accounts.refused == 2


def test_a_neighbour_that_breaks_the_rules_is_refused() -> None:
    world = line(3)
    b1 = world.machines["b1"].node
    assert b1 is not None
    batch = EventBatch(EventId("b0", 1, 0), 1, "a", 0.0)

    def sent(frame: Frame) -> None:
        session = b1._links.sessions["b0"]
        b1.receive("b0", NumberedFrame(session._number_received + 1, lane_of(frame), 10, frame), 0.0)

    def events(**named: object) -> Events:
        return Events(0, replace(batch, **named), "b0")  # type: ignore[arg-type]

    for frame, words in (
        (Events(7, batch, "b0"), "events on tree 7, on which it is no neighbour"),
        (Events(0, batch), "whose scheme has no custody"),
        (Events(0, batch, "x"), "events of x, which is no broker"),
        (events(first=EventId("x", 1, 0)), "events of x, which is no broker"),
        (events(count=0), "sent 0 events"),
        (events(count=10**12), "sent 1000000000000 events"),
        (events(qos=3), "at QoS 3"),
        (events(attributes=({}, {})), "1 events with the attributes of 2"),
        (Detoured("b0", ("b7",), "b2", Events(0, batch, "b0")), "a detour over b7, which is no neighbour"),
        (Detoured("b0", ("b2", "b7"), "b2", Events(0, batch, "b0")), "over b7, which is no neighbour of b2"),
        (Detoured("b0", ("b2", "b1") * 9, "b2", Events(0, batch, "b0")), "over 19 brokers; there are 3"),
        (Detoured("b0", ("b2",), "b0", Events(0, batch, "b0")), "a detour on tree 0, on which b0 is no neighbour"),
        (Detoured("x", (), "b2", Events(0, batch, "b0")), "a detour of x, which is no broker"),
        (Detoured("b0", (), "b2", Events(0, batch)), "a detour of assured events"),
        (LinkStates((NodeState("x", 1, 1, ()),)), "a state of x that does not fit the plan"),
        (LinkStates((NodeState("b2", 1, 1, ("b0",)),)), "a state of b2 that does not fit the plan"),
        (DemandUpdate(5, DemandChange()), "demand on tree 5, on which it is no neighbour"),
        (DemandUpdate(0, DemandChange(added=(JointFilter("a", qos=7),))), "a filter at QoS 7"),
    ):
        with pytest.raises(PeerError, match=words):
            sent(frame)
    with pytest.raises(PeerError, match="a frame of lane 0 on lane 3"):
        b1.receive("b0", NumberedFrame(b1._links.sessions["b0"]._number_received + 1, 3, 10, events()), 0.0)


class _AcknowledgesBeforeTheDisk(Custody):
    """Takes events over without writing them to disk."""

    def _hold(self, *arguments, **named):  # type: ignore[no-untyped-def]
        self._journal.pop()
        return super()._hold(*arguments, **named)


class _ForgetsWhatItHandled(Custody):
    """Knows no repetition after a crash."""

    def restore(self, records):  # type: ignore[no-untyped-def]
        super().restore({key: record for key, record in records.items() if key[0] == "held"})


class _NeverSendsAgain(Custody):
    """Leaves events that a session lost where they are."""

    def unsend(self, hop, firsts):  # type: ignore[no-untyped-def]
        pass


@pytest.mark.parametrize("mutant", [_AcknowledgesBeforeTheDisk, _ForgetsWhatItHandled, _NeverSendsAgain])
def test_a_node_with_a_part_of_custody_taken_out_is_noticed(
    mutant: type[Custody], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surecast.protocol.overlay.overlay_node.Custody", mutant)

    def is_sound(seed: int) -> bool:
        world = World(Random(f"mutant {seed}"), "buffering")
        for _ in range(300):
            world.step()
            if world.problems():
                return False
        world.heal()
        return not world.problems() and not world.missing()

    assert not all(is_sound(seed) for seed in range(15))


def test_updates_that_a_neighbour_gave_up_are_not_taken_for_complete() -> None:
    """The neighbour alone gave up its session: what it revokes now may never have come here, and is no offence."""
    world = line(2)
    b0, b1 = world.machines["b0"].node, world.machines["b1"].node
    assert b0 is not None
    assert b1 is not None
    world.cut("b0", "b1")
    world.notice("b1", "b0")
    b1.demand(added=[JointFilter("news/#", qos=2)])
    world.now += world.settings.resume_s
    b1.tick(world.now)
    world.join("b0", "b1")
    b1.demand(removed=[JointFilter("news/#", qos=2)])
    world._flush("b1")
    world.heal()
    assert [str(joint) for joint in b0.wanted_by("b1", 0)] == ["# at QoS 1"]


def test_a_detour_older_than_the_memory_is_left_to_the_copy_in_custody() -> None:
    world = line(2, "bypass-buffering")
    b1 = world.machines["b1"].node
    assert b1 is not None
    b1.custody.delivered = SeenEvents(intervals_max=2)
    batches = [EventBatch(EventId("b0", 9, number), 1, "a/1", 0.0, qos=1) for number in (0, 2, 4, 6)]
    number = b1._links.sessions["b0"]._number_received
    for place, batch in enumerate(batches, 1):
        b1.receive("b0", NumberedFrame(number + place, 0, 10, Events(0, batch)), 0.0)
    assert len(b1.take_deliveries()) == 4
    detour = Detoured("b0", (), "b0", Events(0, batches[0], "b0"))
    b1.receive("b0", NumberedFrame(number + 5, 16, 10, detour), 0.0)
    assert b1.take_deliveries() == []
    assert b1.accounts.too_old == 1


def test_a_neighbour_that_acknowledges_nothing_is_cut_off_and_is_told_all_again() -> None:
    world = line(2, settings=NodeSettings(window_bytes=300, queue_bytes_max=2_000))
    b0, b1 = world.machines["b0"].node, world.machines["b1"].node
    assert b0 is not None
    assert b1 is not None
    wanted = [JointFilter(f"a/{number}", qos=2) for number in range(100)]
    for joint in wanted:
        b1.demand(added=[joint])
        b1.output("b0")
    b1.tick(world.now + 60.0)
    b1.output("b0")
    b1.tick(world.now + 120.0)
    with pytest.raises(PeerError, match="b0 acknowledges nothing"):
        b1.output("b0")
    world.cut("b0", "b1")
    world.notice("b1", "b0")
    session = b1._links.sessions["b0"]
    assert session.waiting(CONTROL) == len(session.kept) == 0
    world.heal()
    assert len(b0.wanted_by("b1", 0)) == 1 + len(wanted)


def test_brokers_do_not_wait_for_each_other_in_a_circle_over_several_trees() -> None:
    """Each of three trees leads around the triangle: what waits in one broker's custody waits for the next one's."""
    names = ("b0", "b1", "b2")
    links = (("b0", "b1"), ("b1", "b2"), ("b0", "b2"))
    trees = tuple(Tree((links[n], links[(n + 1) % 3]), "buffering") for n in range(3))
    plan = OverlayPlan(names, links, trees, (("", (0,)), ("t0", (0,)), ("t1", (1,)), ("t2", (2,))))
    world = line(3, "buffering", NodeSettings(window_bytes=200, custody_events_max=3))
    world.plan = plan
    world.wires = {pair: None for a, b in links for pair in ((a, b), (b, a))}
    for machine in world.machines.values():
        machine.incarnation += 1
        machine.disk.clear()
    for name, topic in (("b2", "t0"), ("b0", "t1"), ("b1", "t2")):
        world.machines[name].wanted = [JointFilter(topic, qos=1)]
    for name in names:
        world._start(name)
    world.heal()
    topics = {"b0": "t0", "b1": "t1", "b2": "t2"}

    def turn(name: str, sender: str) -> None:
        """Reads from a neighbour and from publishers that never stop, then writes."""
        node, wire = world.machines[name].node, world.wires[sender, name]
        assert node is not None
        if wire:
            node.receive(sender, wire.popleft(), world.now)
        while node.publish(topics[name], 1, world.now, qos=1) is not None:
            pass
        world._flush(name)

    for _ in range(60):
        for sender, name in world.wires:
            turn(name, sender)
    world.heal()
    assert all(len(machine.node.custody) == 0 for machine in world.machines.values() if machine.node)


def test_a_repetition_of_events_that_still_wait_is_not_counted_twice() -> None:
    world = line(3, "buffering")
    b1 = world.machines["b1"].node
    assert b1 is not None
    world.cut("b1", "b2")
    world.notice("b1", "b2")
    b1.custody.accepted = SeenEvents(intervals_max=1)
    number = b1._links.sessions["b0"]._number_received
    for place, event in enumerate((0, 2, 0), 1):
        batch = EventBatch(EventId("b0", 9, event), 1, "a/1", 0.0, qos=1)
        b1.receive("b0", NumberedFrame(number + place, 0, 10, Events(0, batch)), 0.0)
    assert len(b1.custody) == 2
    assert b1.accounts.duplicates == 1
    assert b1.accounts.hops["b2"].problem(b1.custody.events_unsent("b2")) == ""


def test_a_new_session_begins_with_one_window_whatever_an_earlier_one_left() -> None:
    """Else a neighbour that is restarted often would be given the credit of all its sessions at once."""
    world = line(3, settings=NodeSettings(window_bytes=500))
    b1 = world.machines["b1"].node
    assert b1 is not None
    for _ in range(3):
        for _ in range(30):
            world.publish("b0")
            world.arrive("b0", "b1")
            world.arrive("b1", "b0")
        world.crash("b0")
        world.restart("b0")
        world.join("b0", "b1")
    world.wires["b1", "b0"] = world.wires["b0", "b1"] = None
    while world.wires["b1", "b2"] or world.wires["b2", "b1"]:
        world.arrive("b1", "b2")
        world.arrive("b2", "b1")
    lane = b1._links.sessions["b0"]._lanes[0]
    assert lane.released + 500 - lane.taken <= 500


def test_what_is_in_custody_goes_around_a_failure_as_soon_as_there_is_a_way() -> None:
    """Of a triangle b0 alone is there at first, with an event for b2 behind b1, and is restarted before b2 is there."""
    world = line(3, "bypass-buffering")
    links = (("b0", "b1"), ("b1", "b2"))
    world.plan = OverlayPlan(world.plan.brokers, (*links, ("b0", "b2")), (Tree(links, "bypass-buffering"),))
    world.wires = {pair: None for a, b in world.plan.links for pair in ((a, b), (b, a))}
    for name in world.machines:
        world.machines[name].node = None
        world.restart(name)
    world.heal()
    for name in ("b1", "b2"):
        world.crash(name)
        world.notice("b0", name)
    world.publish("b0")
    world.crash("b0")
    world.restart("b0")
    world.restart("b2")
    world.join("b0", "b2")
    while world.wires["b0", "b2"] or world.wires["b2", "b0"]:
        world.arrive("b0", "b2")
        world.arrive("b2", "b0")
    assert list(world.machines["b2"].delivered) == list(world.published)
    world.heal()
    assert world.missing() == world.problems() == []


def test_a_thousand_events_with_gaps_between_them_are_not_doubled_when_acknowledgements_are_lost() -> None:
    """Every other event is for a neighbour, which has all of them; its acknowledgements are lost with a crash."""
    world = line(2, "buffering")
    b0, b1 = world.machines["b0"].node, world.machines["b1"].node
    assert b0 is not None
    assert b1 is not None
    world.machines["b1"].wanted = [JointFilter("a/1", qos=2)]
    b1.demand(added=[JointFilter("a/1", qos=2)], removed=[JointFilter("#", qos=1)])
    world._flush("b1")
    world.heal()
    for _ in range(1_100):
        for topic in ("a/1", "b/1"):
            b0.publish(topic, 1, world.now, qos=2)
    world._flush("b0")
    while world.wires["b0", "b1"]:
        world.arrive("b0", "b1")
    world.crash("b0")
    world.notice("b1", "b0")
    world.restart("b0")
    world.heal()
    assert len(world.machines["b1"].delivered) == 1_100
    assert all(len(times) == 1 for times in world.machines["b1"].delivered.values())


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_the_core_has_given_to_its_own_clients_the_node_does_not_give_again(scheme: str, qos: int) -> None:
    node = OverlayNode("b1", OverlayPlan(("b1", "b2"), (("b1", "b2"),), (Tree((("b1", "b2"),), scheme),)), 1)
    node.demand(added=[JointFilter("a/#", qos=qos)])
    node.publish("a/b", 3, 0.0, qos=qos, is_delivered=True)
    assert node.take_deliveries() == []
    node.publish("a/b", 3, 0.0, qos=qos)
    assert [batch.count for batch in node.take_deliveries()] == [3]


def test_an_acknowledgement_that_was_put_off_goes_with_the_next_frame_or_by_itself() -> None:
    plan = OverlayPlan(("b1", "b2"), (("b1", "b2"),), (Tree((("b1", "b2"),), algorithm="flooding"),))
    b1, b2 = OverlayNode("b1", plan, 1), OverlayNode("b2", plan, 1)
    hello_1, hello_2 = b1.hello("b2"), b2.hello("b1")
    b1.link_up("b2", hello_2, now=0.0)
    b2.link_up("b1", hello_1, now=0.0)
    for _ in range(4):
        for sender, receiver in ((b1, b2), (b2, b1)):
            for written in sender.output(receiver.name):
                receiver.receive(sender.name, written, now=0.0)
    assert not b2.owes_ack("b1")
    for number in range(3):
        b1.publish(f"a/{number}", 1, 1.0)
        for written in b1.output("b2"):
            b2.receive("b1", written, now=1.0)
        assert b2.output("b1", acknowledges=False) == []
        assert b2.owes_ack("b1")
    assert len(b1.kept_for("b2")) == 3
    b2.publish("b", 1, 2.0)
    event, acknowledgement = b2.output("b1", acknowledges=False)
    assert isinstance(acknowledgement, LinkAck)
    b1.receive("b2", event, now=2.0)
    b1.receive("b2", acknowledgement, now=2.0)
    assert b1.kept_for("b2") == ()
    assert not b2.owes_ack("b1")
    assert [type(written) for written in b1.output("b2", acknowledges=False)] == []
    assert [type(written) for written in b1.output("b2")] == [LinkAck]
