"""Batches that a command brings together change the state, and are answered and sent on, as if each came in its own."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.protocol.group.world import with_packets
from tests.seeds import seeds

from surecast.protocol.broker import BrokerCore, BrokerSettings, LimitTable, Origin
from surecast.protocol.broker.common_batches import CommonBatches
from surecast.protocol.broker.limits import Limits
from surecast.protocol.broker.snapshot import encode_state
from surecast.protocol.broker.state_journal import NoJournal
from surecast.protocol.group import FrontEnd, GroupMachine
from surecast.protocol.group.commands import Item
from surecast.protocol.group.member import Member
from surecast.protocol.mqtt import (
    V5,
    V311,
    Connect,
    Packet,
    PacketDecoder,
    Puback,
    Publish,
    ReasonCode,
    Subscribe,
    SubscriptionRequest,
    Unsubscribe,
    encode,
)
from surecast.protocol.paxos import Context

SETTINGS = BrokerSettings(packet_bytes_max=4_000)
TOPICS = ("a/b", "a/c", "long/topic/of/others")


def rules_of(written: bytes) -> tuple[Callable[[str, str, str, str], bool], bool]:
    """The rules name a client, and what it may not publish to."""
    name, _, topic = written.decode().partition(" ")
    return lambda user, client, action, asked: (client, action, asked) != (name, "publish", topic), False


def limits_of(written: bytes) -> tuple[BrokerSettings, LimitTable]:
    """The limits name an overflow rule, or a rate."""
    settings = replace(SETTINGS, publish_rate_per_s=1e6) if written == b"rate" else SETTINGS
    settings = replace(settings, overflow="reject") if written == b"reject" else settings
    return settings, LimitTable(Limits.of(settings))


class Side:
    """A home replica with its clients, and two replicas that are told: of batches, and of packets."""

    def __init__(self, bytes_max: int):
        self.machines = [
            GroupMachine(
                number,
                lambda authorise: BrokerCore(SETTINGS, authorise=authorise, journal=NoJournal(), watches=False),
                make_rules=rules_of,
                make_limits=limits_of,
            )
            for number in (1, 2, 3)
        ]
        self.front_end = FrontEnd(self.machines[0], 1 << 20, SETTINGS, window=10_000, bytes_max=bytes_max)
        self.members: dict[str, Member] = {}
        self.commands = 0

    def step(self) -> None:
        for _, pieces in self.front_end.take(5.0):
            command = b"".join(pieces)
            self.commands += 1
            context = Context(self.commands, 5_000_000)
            home, told, plain = self.machines
            home.execute(command, context)
            told.execute_in(b"before" + command + b"after", 6, 6 + len(command), context)
            plain.execute(with_packets(command), context)

    def enter(self, name: str, version: int) -> None:
        self.members[name] = member = self.front_end.open(Origin(peer=name), 5.0)
        self.front_end.receive(member, encode(Connect(name, version=version), version), 5.0)
        self.step()

    def heard(self, name: str) -> list[Packet]:
        """All that a client was sent so far."""
        member = self.members[name]
        version = V5 if member.version_5 else V311
        return PacketDecoder(version=version, side="client").feed(b"".join(member.out))


class Both:
    """Two groups with the same clients: in one, what comes in a step is one command; in the other, many."""

    def __init__(self) -> None:
        self.sides = (Side(1 << 20), Side(1))
        self.versions: dict[str, int] = {}

    def enter(self, name: str, version: int, *filters: str, qos: int = 0) -> None:
        self.versions[name] = version
        for side in self.sides:
            side.enter(name, version)
        for at, wanted in enumerate(filters):
            self.send(name, Subscribe(at + 1, (SubscriptionRequest(wanted, qos),)))
        self.step()

    def send(self, name: str, *packets: Packet, cut: int | None = None) -> None:
        data = b"".join(encode(packet, self.versions[name]) for packet in packets)
        for side in self.sides:
            member = side.members[name]
            for part in (data,) if cut is None else (data[:cut], data[cut:]):
                if part:
                    side.front_end.receive(member, part, 5.0)

    def control(self, kind: Item, data: bytes) -> None:
        for side in self.sides:
            side.front_end.control(kind, 0, data)

    def step(self) -> None:
        for side in self.sides:
            side.step()

    def compare(self) -> None:
        together, apart = self.sides
        assert together.commands < apart.commands
        # A single message takes a number where it is not told as a run, so that state is not quite the same.
        first, *others = (encode_state(machine.broker) for side in self.sides for machine in side.machines[:2])
        assert others == [first] * 3
        for name in self.versions:
            assert together.heard(name) == apart.heard(name), name
        one, *rest = (machine.broker for side in self.sides for machine in side.machines)
        for broker in rest:
            assert broker.accounts() == one.accounts()
            for each in ("published", "packets_in", "bytes_in", "unauthorised", "protocol_errors"):
                assert getattr(broker.counters, each) == getattr(one.counters, each), each


def burst(topic: str, count: int, qos: int = 1, *, mark: str = "", size: int = 20, first: int = 1) -> list[Publish]:
    return [
        Publish(topic, f"{mark}{n} ".encode().ljust(size, b"."), qos, packet_id=n % 65_535 + 1 if qos else 0)
        for n in range(first, first + count)
    ]


@pytest.mark.parametrize("seed", seeds(6, range(12)))
def test_random_traffic_is_the_same_together_and_apart(seed: int) -> None:
    drawn = random.Random(seed)
    both = Both()
    for number in range(8):
        name = f"c{number}"
        wanted = drawn.sample(["a/+", "a/b", "#", "long/#"], drawn.choice((0, 0, 0, 1, 2)))
        both.enter(name, drawn.choice((V311, V311, V5)), *wanted, qos=drawn.choice((0, 0, 0, 0, 1)))
    topic, qos, size = "a/b", 1, 20
    for _ in range(25):
        for _ in range(drawn.randrange(12)):
            name, what = drawn.choice(list(both.versions)), drawn.random()
            if drawn.random() < 0.25:
                topic, qos, size = drawn.choice(TOPICS), drawn.choice((0, 1, 1, 1, 2)), drawn.choice((0, 20, 120, 130))
            if what < 0.02:
                both.send(name, Subscribe(60_000, (SubscriptionRequest(drawn.choice(("a/+", "#", "a/c")), 0),)))
            elif what < 0.04:
                both.send(name, Unsubscribe(60_001, (drawn.choice(("a/+", "#", "a/b")),)))
            elif what < 0.06:
                both.control(Item.RULES, f"{name} {topic}".encode())
            elif what < 0.08:
                both.control(Item.LIMITS, drawn.choice((b"rate", b"reject", b"usual")))
            elif what < 0.1:
                slow = drawn.random() < 0.5
                for side in both.sides:
                    side.front_end.set_congested(side.members[name], slow)
            else:
                count = drawn.choice((1, 2, 3, 16, 16, 90))
                packets = burst(topic, count, qos, mark=name, size=size, first=drawn.randrange(1, 70_000))
                both.send(name, *packets, cut=drawn.randrange(99) if drawn.random() < 0.2 else None)
        both.step()
    both.compare()
    assert both.sides[0].machines[0].broker.counters.published > 500


def test_what_is_alike_goes_out_in_one_piece() -> None:
    side = Side(1 << 20)
    for name in ("reader", "c1", "c2", "c3"):
        side.enter(name, V311)
    side.front_end.receive(side.members["reader"], encode(Subscribe(1, (SubscriptionRequest("a/#", 0),)), V311), 5.0)
    side.step()
    for step in range(2):
        for member in side.members.values():
            member.out.clear()
        for name in ("c1", "c2", "c3"):
            data = b"".join(encode(packet, V311) for packet in burst("a/b", 4, mark=name, first=10 * step + 1))
            side.front_end.receive(side.members[name], data, 5.0)
        side.step()
    # The first time it was not known yet who may publish what.
    assert len(side.members["reader"].out) == 1
    payloads = [packet.payload for packet in side.heard("reader") if isinstance(packet, Publish)]
    assert payloads == [p.payload for name in ("c1", "c2", "c3") for p in burst("a/b", 4, mark=name, first=11)]
    for name in ("c1", "c2", "c3"):
        assert side.heard(name) == [Puback(identifier) for identifier in range(12, 16)]


@pytest.mark.parametrize("version", [V311, V5])
def test_a_change_between_two_batches_of_a_command_is_seen(version: int) -> None:
    both = Both()
    both.enter("early", version, "a/#")
    both.enter("late", version)
    for name in ("c1", "c2"):
        both.enter(name, version)
        both.send(name, *burst("a/b", 3, mark=name))
    both.step()
    both.send("c1", *burst("a/b", 3, mark="1st"))
    both.send("late", Subscribe(1, (SubscriptionRequest("a/b", 0),)))
    both.send("c2", *burst("a/b", 3, mark="2nd"))
    both.send("early", Unsubscribe(2, ("a/#",)))
    both.send("c1", *burst("a/b", 3, mark="3rd"))
    both.control(Item.RULES, b"c2 a/b")
    both.send("c2", *burst("a/b", 3, mark="4th"))
    both.send("c1", *burst("a/b", 3, mark="5th"))
    both.send("late", Unsubscribe(2, ("a/b",)))
    both.send("c1", *burst("a/b", 3, mark="6th"))
    both.step()
    both.compare()
    side = both.sides[0]
    marks = {
        name: [p.payload[:3] for p in side.heard(name) if isinstance(p, Publish)][::3] for name in ("early", "late")
    }
    assert marks == {"early": [b"c11", b"c21", b"1st", b"2nd"], "late": [b"2nd", b"3rd", b"5th"]}
    reasons = {name: [p.reason for p in side.heard(name) if isinstance(p, Puback)][::3] for name in ("c1", "c2")}
    ok = ReasonCode.SUCCESS
    refused, nobody = ReasonCode.NOT_AUTHORIZED, ReasonCode.NO_MATCHING_SUBSCRIBERS
    assert reasons["c1"] == [ok] * 4 + [nobody if version == V5 else ok]
    assert reasons["c2"] == [ok, ok, refused if version == V5 else ok]


def test_other_limits_between_two_batches_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """While some session may refuse messages, and for a client with a rate, batches are not taken together."""
    taken: list[int] = []
    take = CommonBatches.take

    def watched(common: CommonBatches, *asked: Any) -> tuple[int, int]:
        found = take(common, *asked)
        taken.append(found[0])
        return found

    monkeypatch.setattr(CommonBatches, "take", watched)
    side = Side(1 << 20)
    side.enter("c1", V311)
    data = b"".join(encode(packet, V311) for packet in burst("a/b", 3))
    for limits in (b"usual", b"usual", b"reject", b"rate", b"usual"):
        side.front_end.control(Item.LIMITS, 0, limits)
        side.step()
        taken.clear()
        side.front_end.receive(side.members["c1"], data, 5.0)
        side.step()
        assert taken[0] == (1 if limits == b"usual" and side.commands > 4 else 0), limits
    assert side.heard("c1")[1:] == [Puback(n) for n in (2, 3, 4)] * 5


@pytest.mark.parametrize("version", [V311, V5])
def test_a_client_that_hears_itself(version: int) -> None:
    """Its acknowledgements and the messages to it come in the order in which they come one by one."""
    both = Both()
    both.enter("c1", version, "a/b")
    both.enter("c2", version)
    for step in range(3):
        for name in ("c2", "c1", "c2"):
            both.send(name, *burst("a/b", 3, mark=name, first=10 * step + 1))
        both.step()
    both.compare()
    kinds = [type(packet) for packet in both.sides[0].heard("c1")[-12:]]
    assert kinds == [Publish] * 6 + [Puback] * 3 + [Publish] * 3
