"""One client must not fill the commands of a group: they are carried out in one go, by all replicas."""

from __future__ import annotations

from typing import Any

from surecast.protocol.broker import BrokerCore, BrokerSettings, Origin
from surecast.protocol.broker.state_journal import NoJournal
from surecast.protocol.group import FrontEnd, GroupMachine
from surecast.protocol.mqtt import V5, Connect, Publish, Subscribe, SubscriptionRequest, encode
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
