"""One client must not fill the commands of a group: they are carried out in one go, by all replicas."""

from __future__ import annotations

from typing import Any

from surecast.protocol.broker import BrokerCore, BrokerSettings, Origin
from surecast.protocol.broker.state_journal import NoJournal
from surecast.protocol.group import FrontEnd, GroupMachine
from surecast.protocol.group.work import WORK_MIN, work_of
from surecast.protocol.mqtt import (
    V5,
    Connect,
    Properties,
    Publish,
    ReasonCode,
    Subscribe,
    SubscriptionRequest,
    encode,
)
from surecast.protocol.mqtt.wire import MAX_FILTERS
from surecast.protocol.paxos import Context

SUBSCRIBE = encode(Subscribe(1, (SubscriptionRequest("a/+"),)), V5)


def make_front_end(**options: Any) -> FrontEnd:
    settings = BrokerSettings()
    machine = GroupMachine(
        1, lambda authorise: BrokerCore(settings, authorise=authorise, journal=NoJournal(), watches=False)
    )
    return FrontEnd(machine, 1 << 20, settings, **options)


def carry_out(front_end: FrontEnd) -> list[int]:
    """Takes the next commands and carries them out; returns their sizes."""
    commands = [b"".join(pieces) for _, pieces in front_end.take(0.0)]
    for command in commands:
        front_end.machine.execute(command, Context(time_us=1_000_000))
    return [len(command) for command in commands]


def enter(front_end: FrontEnd, name: str) -> Any:
    member = front_end.open(Origin(peer=name), 0.0)
    front_end.receive(member, encode(Connect(name), V5), 0.0)
    carry_out(front_end)
    assert member.session is not None
    return member


def test_a_command_has_few_packets_however_short_they_are() -> None:
    """A megabyte of SUBSCRIBE stopped all clients of all replicas for more than a second."""
    front_end = make_front_end()
    member = enter(front_end, "hostile")
    for _ in range(80):
        front_end.receive(member, SUBSCRIBE * 100, 0.0)
    assert front_end.is_flooded()
    sizes = []
    while front_end.is_ready:
        sizes += carry_out(front_end)
    assert len(sizes) == 16
    assert max(sizes) <= 500 * len(SUBSCRIBE) + 200
    assert not front_end.is_flooded(0.5)


def test_commands_become_shorter_when_they_take_long_and_longer_when_they_do_not() -> None:
    front_end = make_front_end()
    member = enter(front_end, "hostile")

    def send() -> int:
        for _ in range(100):
            front_end.receive(member, encode(Publish("t", b"x" * 900), V5) * 2, 0.0)
        return sum(1 for _ in front_end.take(0.0))

    assert send() == 1
    [sequence] = front_end._under_way
    front_end.decoded(front_end.incarnation, sequence)
    front_end.took(0.1)
    assert front_end.work_max < front_end.bytes_max // 10
    assert send() == 2  # and no more, until one of them is carried out
    assert not front_end.is_ready
    for _ in range(100):
        for sequence in list(front_end._under_way):
            front_end.decoded(front_end.incarnation, sequence)
            front_end.took(0.001)
        send()
    assert front_end.work_max == front_end.bytes_max


def test_large_messages_and_runs_of_small_ones_fill_commands_as_before() -> None:
    front_end = make_front_end()
    member = enter(front_end, "ordinary")
    front_end.receive(member, encode(Publish("t", b"x" * 200_000), V5) * 5, 0.0)
    assert len(carry_out(front_end)) == 1
    front_end.receive(member, encode(Publish("t", b"x" * 100), V5) * 4_000, 0.0)
    assert len(carry_out(front_end)) == 1


def test_commands_are_short_until_it_is_known_what_a_new_content_filter_costs() -> None:
    """Megabytes of messages that were cheap before held every replica for as long as they took under it."""
    front_end = make_front_end()
    publisher, subscriber = enter(front_end, "publisher"), enter(front_end, "subscriber")

    def largest_command() -> int:
        for _ in range(100):
            front_end.receive(publisher, encode(Publish("t", b"x" * 900), V5) * 2, 0.0)
        sizes = []
        while front_end.is_ready:
            sizes += carry_out(front_end)
        return max(sizes)

    def subscribe(price: int) -> None:
        asked = Properties(user=(("filter", f"price > {price}"),))
        front_end.receive(subscriber, encode(Subscribe(1, (SubscriptionRequest(f"t/{price}"),), asked), V5), 0.0)
        carry_out(front_end)

    assert largest_command() > 180_000
    subscribe(30)
    assert largest_command() < WORK_MIN
    for _ in range(10):
        front_end._work_last = front_end.work_max
        front_end.took(0.001)
    assert largest_command() > 180_000
    subscribe(31)
    assert largest_command() < WORK_MIN


def test_one_subscribe_is_worth_one_command_at_most() -> None:
    """10,000 filters in one packet held each replica for 167 ms; more than a thousand are refused with 0x97."""
    front_end = make_front_end()
    member = enter(front_end, "hostile")
    filters = tuple(SubscriptionRequest(f"a/{n}") for n in range(MAX_FILTERS + 1))
    most = Subscribe(1, filters[:-1])
    assert work_of(encode(most, V5), [most]) <= 1.1 * front_end.bytes_max
    front_end.receive(member, encode(most, V5), 0.0)
    carry_out(front_end)
    assert len(member.session.subscriptions) == MAX_FILTERS
    member.out.clear()
    front_end.receive(member, encode(Subscribe(2, filters), V5), 0.0)
    carry_out(front_end)
    goodbye = b"".join(member.out)
    assert (goodbye[0], goodbye[2]) == (0xE0, ReasonCode.QUOTA_EXCEEDED)
