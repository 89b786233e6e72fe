"""A group as a broker of an overlay, under seeded faults of replicas, brokers and links."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from tests.protocol.overlay_broker.broker_world import Subscriber
from tests.protocol.overlay_broker.group_in_overlay import (
    SCHEMES,
    EndToEndGroupWorld,
    GroupWorld,
    MiddleGroupWorld,
    SimulatedGroup,
    seed_problems,
)

from surecast.errors import PeerError
from surecast.protocol.group import GroupMachine, front_end
from surecast.protocol.group.group_link import GroupLink
from surecast.protocol.link import LinkAck, NumberedFrame
from surecast.protocol.mqtt import V5
from surecast.protocol.overlay.link_codec import FrameReader
from surecast.protocol.overlay_broker import OverlayBroker


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("seed", range(3))
def test_whatever_fails_what_is_acknowledged_in_custody_arrives_and_all_replicas_are_equal(
    scheme: str, seed: int
) -> None:
    assert seed_problems(f"group {scheme} {seed}", scheme) == []


@pytest.mark.parametrize("kind", [MiddleGroupWorld, EndToEndGroupWorld])
def test_so_it_is_with_the_group_in_the_middle_and_with_demand_from_end_to_end(kind: type[GroupWorld]) -> None:
    assert seed_problems(f"{kind.__name__} 1", "buffering", kind) == []


class LosesCustodyWithASnapshot(GroupMachine):
    """Begins without what was in custody at the replica whose state it takes."""

    def restore(self, state: bytes) -> None:
        super().restore(state)
        if self.overlay is not None:
            custody = self.overlay.broker.node.custody
            for table in (custody._held, custody._by_hop, custody._unsent):
                table.clear()


class HasAnIncarnationOfItsOwn(GroupMachine):
    """Names events by the replica that carries commands out."""

    def _begin_overlay(self, make: Any, now: float) -> None:
        super()._begin_overlay(make, now + self.replica)


class AcknowledgesBeforeTheLog(GroupLink):
    """Acknowledges frames as soon as this replica has them."""

    number = 0

    def receive(self, data: bytes, now: float) -> None:
        reader = self.__dict__.setdefault("reader", FrameReader())
        for received in reader.feed(data):
            if isinstance(received, NumberedFrame):
                self.number = received.number
        super().receive(data, now)
        if self.number and self.is_up:
            super().say([LinkAck(self.number)])

    def say(self, written: Any) -> None:
        super().say([each for each in written if not isinstance(each, LinkAck)])


def outcome(machine: type[GroupMachine] = GroupMachine) -> bool:
    """Whether all is well under some seeds."""
    try:
        return all(is_sound(seed, machine) for seed in range(10))
    except PeerError:
        return False


def is_sound(seed: int, machine: type[GroupMachine]) -> bool:
    return not seed_problems(f"group buffering {seed}", "buffering", machine=machine)


def test_custody_that_a_group_in_the_middle_loses_is_noticed() -> None:
    assert any(
        seed_problems(f"middle {seed}", "buffering", MiddleGroupWorld, machine=LosesCustodyWithASnapshot)
        for seed in range(10)
    )


@pytest.mark.parametrize("machine", [LosesCustodyWithASnapshot, HasAnIncarnationOfItsOwn])
def test_a_replica_with_another_state_is_noticed(machine: type[GroupMachine]) -> None:
    assert not outcome(machine=machine)


def test_a_group_that_loses_publications_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    settle = OverlayBroker.settle

    def loses_some(broker: OverlayBroker, now: float) -> None:
        if broker.name == GroupWorld.GROUP and len(broker._traffic.publications) > 1:
            broker._traffic.publications.pop()
        settle(broker, now)

    monkeypatch.setattr(OverlayBroker, "settle", loses_some)
    assert not outcome()


def test_a_group_that_acknowledges_before_the_log_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_end, "GroupLink", AcknowledgesBeforeTheLog)
    assert not outcome()


def settled(seed: int = 1) -> GroupWorld:
    world = GroupWorld(Random(seed), "buffering", size=2)
    for _ in range(30):
        world.step(crashes=False, cuts=False)
    world.heal()
    return world


def test_a_change_of_leader_keeps_incarnation_and_session() -> None:
    world = settled()
    group, broker = world.group, world.machines["b1"].broker
    assert broker is not None
    node = group.latest.machine.overlay.broker.node  # type: ignore[union-attr]
    incarnation, lost = node.incarnation, broker.node.accounts.hops["b0"].lost
    world.kill(group.leader)
    world.elect()
    world.join(*world.plan.links[0])
    world.heal()
    node = group.latest.machine.overlay.broker.node  # type: ignore[union-attr]
    assert (node.incarnation, broker.node.accounts.hops["b0"].lost) == (incarnation, lost)
    assert node.is_resumed("b1")
    assert broker.node.is_resumed("b0")
    assert world.unequal() == []


def test_an_idle_link_costs_no_log_entries() -> None:
    world = settled()
    group = world.group
    length = len(group.log)
    (pair,) = world.wires
    for _ in range(20):
        world.now += 0.1  # far below the time of a refresh
        for name in pair:
            world.wires[pair].ends[name].ping(world.now)
            world.turn(name)
        for name in pair:
            while world.wires[pair].to[name]:
                world.arrive(pair, name)
    assert len(group.log) == length
    assert all(world.wires[pair].ends[name].clock._samples for name in pair), "pings were answered"


def test_what_breaks_the_rules_ends_the_link_at_all_replicas_alike() -> None:
    world = settled()
    (pair,) = world.wires
    link = world.wires[pair].ends["b0"]
    link.receive((13).to_bytes(4, "big") + b"\x41" + bytes(12), world.now)  # events that are none
    world.group.run(world.now, is_whole=True)
    with pytest.raises(PeerError, match="b1"):
        link.output()
    assert world.unequal() == []
    world.heal()
    assert world.missing() + world.unequal() == []


def test_a_state_by_another_plan_is_refused_and_so_is_that_of_a_group_alone() -> None:
    world, other = settled(), GroupWorld(Random(5), "bypass", size=3)
    state = world.group.latest.machine.snapshot()
    with pytest.raises(PeerError, match="give all replicas the same file"):
        other.make_machine(7).restore(state)
    alone = GroupMachine(7, world.make_machine(8)._make_broker)
    with pytest.raises(PeerError, match="has no file of one"):
        alone.restore(state)


def test_the_links_of_a_dead_leader_are_down_as_soon_as_another_one_leads() -> None:
    world = settled()
    group: SimulatedGroup = world.group
    world.kill(group.leader)
    world.elect()
    group.run(world.now, is_whole=True)
    assert not group.latest.machine.overlay.broker.node.is_connected("b1")  # type: ignore[union-attr]


def test_members_of_shared_subscriptions_are_part_of_the_state() -> None:
    world = settled()
    for number, home in enumerate(("b0", "b1", "b0")):
        world.clients.append(Subscriber(f"w{number}", home, V5, "$share/w/#", 1))
    world.heal()
    node = world.group.latest.machine.overlay.broker.node  # type: ignore[union-attr]
    assert len(node.members()) == 2
    for _ in range(60):
        world.step(cuts=False)
    world.heal()
    assert world.diverged() + world.unequal() == []
    site = world.group.sites[0]
    site.begin_anew()
    site.machine.restore(world.group.sites[1].machine.snapshot())
    site.position = world.group.sites[1].position
    site.start()
    world.heal()
    for _ in range(30):
        world.step(crashes=False, cuts=False)
    world.heal()
    assert world.diverged() + world.unequal() == []
