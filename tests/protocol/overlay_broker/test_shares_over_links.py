"""Shared subscriptions whose members are at several brokers, with real MQTT clients."""

from __future__ import annotations

from random import Random

import pytest
from tests.protocol.overlay_broker.broker_line import BrokerLine, LineClient
from tests.protocol.overlay_broker.broker_world import BrokerWorld, Subscriber

from surecast.protocol.mqtt import (
    V5,
    Connect,
    Disconnect,
    Properties,
    Puback,
    Publish,
    encode,
)
from surecast.protocol.overlay_broker import OverlayBroker

SCHEMES = ("none", "buffering", "bypass", "bypass-buffering")
LASTS = Properties(session_expiry_s=1_000)


def lasting(line: BrokerLine, home: str, name: str) -> LineClient:
    return LineClient(line, home, name, Connect(name, clean_start=False, properties=LASTS))


def publish(line: BrokerLine, home: str, count: int, qos: int = 1, topic: str = "jobs/1") -> list[bytes]:
    client = LineClient(line, home, f"p {home}")
    payloads = [b"%d" % number for number in range(count)]
    for payload in payloads:
        client.publish(topic, payload, qos)
    client.close()
    return payloads


@pytest.mark.parametrize("scheme", SCHEMES)
def test_each_message_goes_to_one_member_by_the_number_of_members_at_each_broker(scheme: str) -> None:
    line = BrokerLine(3, scheme)
    homes = ("b1", "b3", "b3", "b3")
    members = [LineClient(line, home, f"m{number}") for number, home in enumerate(homes)]
    for member in members:
        member.subscribe("$share/workers/jobs/#", 1)
    other = LineClient(line, "b3", "all")
    other.subscribe("jobs/#", 1)
    sent = [payload for qos in (0, 1) for payload in publish(line, "b2", 200, qos)]
    got = [member.payloads() for member in members]
    assert sorted(payload for each in got for payload in each) == sorted(sent)
    assert 70 <= len(got[0]) <= 130, "a quarter of 400, as one of four members is there"
    assert max(len(each) for each in got[1:]) - min(len(each) for each in got[1:]) <= 1, "in turn at one broker"
    assert other.payloads() == sent


def test_two_shared_subscriptions_get_each_message_once_each_and_batches_of_several_topics_are_divided() -> None:
    line = BrokerLine(2)
    members = {
        shared: [LineClient(line, home, f"{shared} {home}") for home in ("b1", "b2")]
        for shared in ("$share/w/jobs/#", "$share/v/jobs/+", "$share/w/other")
    }
    for shared, both in members.items():
        for member in both:
            member.subscribe(shared, 1)
    publisher = LineClient(line, "b1", "p")
    data = b"".join(
        encode(Publish(("jobs/1", "jobs/2", "other")[number % 3], b"%d" % number, 1, packet_id=number + 1), V5)
        for number in range(90)
    )
    publisher.core.receive(publisher.connection, data, line.now)
    line.run()
    for shared, both in members.items():
        got = [member.payloads() for member in both]
        wanted = [b"%d" % number for number in range(90) if (number % 3 == 2) is (shared == "$share/w/other")]
        assert sorted(payload for each in got for payload in each) == sorted(wanted)
        assert all(got)


def test_members_that_are_connected_come_before_those_that_are_away_wherever_they_are() -> None:
    line = BrokerLine(3)
    away, here = lasting(line, "b1", "away"), LineClient(line, "b3", "here")
    away.subscribe("$share/w/jobs/#", 1)
    here.subscribe("$share/w/jobs/#", 1)
    away.close()
    sent = publish(line, "b1", 20)
    assert here.payloads() == sent
    session = line.brokers["b1"].core.sessions.by_key["away"]
    assert session.queued == 0
    here.close()
    assert session.queued == 20, "what was not acknowledged"
    publish(line, "b2", 5)
    assert session.queued == 25


def test_messages_for_members_that_are_all_away_wait_for_one() -> None:
    line = BrokerLine(2)
    member = lasting(line, "b2", "m")
    member.subscribe("$share/w/jobs/#", 1)
    member.close()
    sent = publish(line, "b1", 20)
    assert line.brokers["b2"].core.sessions.by_key["m"].queued == len(sent)
    lasting(line, "b2", "m")
    assert line.brokers["b2"].core.sessions.by_key["m"].inflight_count == len(sent)


def test_what_a_member_leaves_behind_goes_to_a_member_at_another_broker() -> None:
    line = BrokerLine(3)
    leaving = LineClient(line, "b1", "leaving")
    leaving.subscribe("$share/w/jobs/#", 2)
    sent = publish(line, "b1", 6)
    at_qos_2 = publish(line, "b1", 1, qos=2, topic="jobs/2")
    packets = [packet for packet in leaving.read() if isinstance(packet, Publish)]
    assert [packet.payload for packet in packets] == sent + at_qos_2
    staying = lasting(line, "b3", "staying")
    staying.subscribe("$share/w/jobs/#", 2)
    leaving.send(*[Puback(packet.packet_id) for packet in packets[:2]])
    leaving.close()
    assert staying.payloads() == sent[2:], "not those that were acknowledged, and not what was sent at QoS 2"
    accounts = line.brokers["b1"].node.accounts
    assert (accounts.shared, accounts.unclaimed) == (7 + 4, 0)


def test_what_the_last_member_leaves_behind_is_counted() -> None:
    line = BrokerLine(2)
    member = LineClient(line, "b1", "m")
    member.subscribe("$share/w/jobs/#", 1)
    publish(line, "b2", 3)
    assert len(member.payloads()) == 3
    member.close()
    assert line.brokers["b1"].node.accounts.unclaimed == 3


def test_events_on_their_way_to_a_member_that_leaves_are_handed_on() -> None:
    line = BrokerLine(3)
    leaving, staying = LineClient(line, "b3", "leaving"), LineClient(line, "b1", "staying")
    leaving.subscribe("$share/w/jobs/#", 1)
    publisher = LineClient(line, "b2", "p")
    line.cut("b2", "b3")
    for number in range(4):
        publisher.publish("jobs/1", b"%d" % number, 1)  # nobody else is known: they wait for b3
    staying.subscribe("$share/w/jobs/#", 1)
    leaving.close()
    line.join("b2", "b3")
    assert staying.payloads() == [b"0", b"1", b"2", b"3"]
    assert line.brokers["b3"].node.accounts.handed_on == 4


def test_members_behind_a_link_that_is_down_are_passed_over_while_others_are_in_reach() -> None:
    line = BrokerLine(3)
    far, near = LineClient(line, "b3", "far"), LineClient(line, "b1", "near")
    for member in (far, near):
        member.subscribe("$share/w/jobs/#", 1)
    line.cut("b2", "b3")
    sent = publish(line, "b1", 20)  # b1 does not know of the broken link, b2 does
    assert sorted(near.payloads()) == sorted(sent)
    assert line.brokers["b2"].node.accounts.handed_on > 0


@pytest.mark.parametrize("home", ["b1", "b2"])
def test_contents_are_met_by_the_members_that_want_them(home: str) -> None:
    line = BrokerLine(2)
    cheap, dear = LineClient(line, "b1", "cheap"), LineClient(line, "b2", "dear")
    cheap.subscribe("$share/w/jobs", 1, content="price < 10")
    dear.subscribe("$share/w/jobs", 1, content="price >= 10")
    publisher = LineClient(line, home, "p")
    for price in (1, 20, 3, 40):
        publisher.publish("jobs", b"%d" % price, 1, user=(("price", str(price)),))
    publisher.publish("jobs", b"none", 1)
    assert cheap.payloads() == [b"1", b"3"]
    assert dear.payloads() == [b"20", b"40"]


def test_a_member_who_may_not_have_a_message_leaves_it_to_one_at_another_broker() -> None:
    line = BrokerLine(2)
    barred, allowed = LineClient(line, "b1", "barred"), LineClient(line, "b2", "allowed")
    for member in (barred, allowed):
        member.subscribe("$share/w/jobs/#", 1)
    line.brokers["b1"].core.routes.check_deliveries(lambda session, topic: topic != "jobs/1")
    sent = publish(line, "b1", 20)
    assert sorted(allowed.payloads()) == sorted(sent)
    line.brokers["b2"].core.routes.check_deliveries(lambda session, topic: False)
    publish(line, "b1", 4)
    assert sum(broker.node.accounts.unclaimed for broker in line.brokers.values()) == 4, "not for ever back and forth"


class Member(Subscriber):
    """Takes two messages at a time, and acknowledges none while it stalls: the others wait for it."""

    receive_maximum = 2
    is_stalled = False

    def take(self, packet: object) -> list[object]:
        answers = super().take(packet)
        return [] if self.is_stalled and isinstance(packet, Publish) else answers


class SharingWorld(BrokerWorld):
    """With members of a shared subscription at random brokers; all but one stall and end their sessions at times."""

    def __init__(self, random: Random, scheme: str, **named: object):
        super().__init__(random, scheme, **named)  # type: ignore[arg-type]
        self.members = [
            Member(f"m{number}", random.choice(self.plan.brokers), V5, "$share/w/#", 2) for number in range(4)
        ]
        self.clients += self.members
        self.heal()

    def step(self, *, crashes: bool = True, cuts: bool = True) -> None:
        super().step(crashes=crashes, cuts=cuts)
        draw = self.random.random()
        if draw < 0.05:
            self.leave(self.random.choice(self.members[1:]))
        elif draw < 0.1:
            self.random.choice(self.members[1:]).is_stalled = True

    def leave(self, member: Member) -> None:
        machine = self.machines[member.home]
        if not member.is_ready or machine.core is None:
            return
        member.send(machine, encode(Disconnect(0, Properties(session_expiry_s=0)), V5), self.now)
        assert member.connection is not None
        machine.core.lost(member.connection, self.now)
        member.connection, member.is_ready, member.is_stalled = None, False, False
        self.turn(member.home)

    def heal(self) -> None:
        super().heal()
        for member in self.clients:
            if isinstance(member, Member) and member.is_stalled:
                self.leave(member)
        super().heal()

    def share_problems(self) -> list[str]:
        """What went to several members, and what was acknowledged and went to none."""
        problems: list[str] = []
        for publisher in self.publishers:
            for payload in publisher.topics:
                of = [member.name for member in self.members for got in member.received if got == payload]
                if len(of) > 1 and publisher.qos == 2:
                    problems.append(f"{payload!r} went to {of}")
                if not of and payload in publisher.acknowledged:
                    problems.append(f"{payload!r} went to no member")
        return problems


def run_sharing(seed: int, scheme: str, kind: type[OverlayBroker] = OverlayBroker) -> list[str]:
    random = Random(f"sharing {scheme} {seed}")
    world = SharingWorld(random, scheme, broker=kind)
    for _ in range(150):
        world.step()
    world.heal()
    problems = [text for text in world.problems(scheme) if not text.startswith("m")] + world.missing()
    return problems + world.share_problems()


@pytest.mark.parametrize("scheme", ["buffering", "bypass-buffering"])
@pytest.mark.parametrize("seed", range(6))
def test_under_faults_what_was_acknowledged_reaches_one_member(scheme: str, seed: int) -> None:
    assert run_sharing(seed, scheme) == []


class _DropsWhatMembersLeave(OverlayBroker):
    """Does not hand on what a member leaves behind."""

    def settle(self, now: float) -> None:
        self._traffic.left.clear()
        super().settle(now)


class _ChoosesAloneAtEachBroker(OverlayBroker):
    """Lets each broker that an event passes serve members of its own."""

    def settle(self, now: float) -> None:
        events, shares = self.node._events, self.node._shares
        events._way_to_member = lambda tree, batch, now: {  # type: ignore[method-assign]
            "": batch.qos, **({} if batch.at == self.name else {shares.hop(tree, batch.at): batch.qos})
        }  # fmt: skip
        super().settle(now)


@pytest.mark.parametrize("kind", [_DropsWhatMembersLeave, _ChoosesAloneAtEachBroker])
def test_a_broken_broker_is_found_out(kind: type[OverlayBroker]) -> None:
    assert any(run_sharing(seed, "buffering", kind) for seed in range(8))
