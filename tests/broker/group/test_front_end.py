"""What once went wrong at a group's front end, and backups, without processes: commands are applied by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.protocol.group.world import Site, World

from surecast.protocol.broker import Connection, Origin
from surecast.protocol.group import Item
from surecast.protocol.group.backup import PART_BYTES, parts_of
from surecast.protocol.mqtt import (
    V5,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketDecoder,
    Properties,
    Publish,
    Pubrel,
    ReasonCode,
    Subscribe,
    SubscriptionRequest,
    encode,
)
from surecast.protocol.paxos import Context

LASTING = Properties(session_expiry_s=300)


class Hands:
    """Three sites whose commands are applied when a test says so."""

    def __init__(self) -> None:
        self.world = World(1)
        self.sites = self.world.sites
        self.slot = 0
        for site in self.sites:
            self.apply(self.taken(site))

    def taken(self, site: Site) -> list[bytes]:
        return [b"".join(pieces) for _, pieces in site.front_end.take(self.world.now)]

    def apply(self, commands: list[bytes]) -> None:
        for command in commands:
            self.slot += 1
            self.world.now += 0.001
            for site in self.sites:
                site.machine.execute(command, Context(self.slot, int(self.world.now * 1e6)))

    def settle(self, site: Site) -> None:
        """Applies whatever a site has, and what comes of it."""
        while commands := self.taken(site):
            self.apply(commands)

    def open(self, site: Site, *packets: Packet) -> Connection:
        """A client connects to a site and says all this at once."""
        connection = site.front_end.open(Origin(peer="test"), self.world.now)
        site.front_end.receive(connection, b"".join(encode(packet, V5) for packet in packets), self.world.now)
        return connection

    def send(self, site: Site, connection: Connection, *packets: Packet) -> None:
        site.front_end.receive(connection, b"".join(encode(packet, V5) for packet in packets), self.world.now)

    def published(self) -> int:
        [count] = {site.machine.broker.counters.published for site in self.sites}
        return count


def heard(connection: Connection) -> list[Packet]:
    data = b"".join(connection.out)
    connection.out.clear()
    return PacketDecoder(version=V5, side="client").feed(data)


def test_packets_behind_an_entry_that_comes_late_are_not_applied_again() -> None:
    """A client sends a QoS 2 message before it is let in, gives up, and has it applied at another replica."""
    hands = Hands()
    late, soon, _ = hands.sites
    connect = Connect("moves", clean_start=False, properties=LASTING)
    message = Publish("t", b"once", 2, packet_id=1)
    first = hands.open(late, connect, message)
    stuck = hands.taken(late)
    late.front_end.lost(first, hands.world.now)
    second = hands.open(soon, connect)
    hands.settle(soon)
    hands.send(soon, second, replace(message, dup=True))
    hands.settle(soon)
    hands.send(soon, second, Pubrel(1))
    hands.settle(soon)
    assert hands.published() == 1
    hands.apply(stuck)
    hands.settle(late)
    assert hands.published() == 1


def test_what_was_sent_before_the_entry_follows_it_in_order() -> None:
    hands = Hands()
    site = hands.sites[0]
    messages = [Publish("t", b"%d" % n, 1, packet_id=n + 2) for n in range(3)]
    client = hands.open(site, Connect("eager"), Subscribe(1, (SubscriptionRequest("t", 0),)), *messages)
    hands.send(site, client, Publish("t", b"3"))
    hands.settle(site)
    hands.send(site, client, Publish("t", b"4"))
    hands.settle(site)
    assert [p.payload for p in heard(client) if isinstance(p, Publish)] == [b"%d" % n for n in range(5)]


@pytest.mark.parametrize("checks", [False, True])
def test_nothing_that_arrives_while_a_client_enters_is_lost(checks: bool) -> None:
    """Before its CONNECT is looked at, between that and the end of the turn, and before the group has let it in."""
    hands = Hands()
    site = hands.sites[0]
    site.front_end.authenticates = checks
    client = hands.open(site, Connect("eager"))
    hands.send(site, client, Subscribe(1, (SubscriptionRequest("t", 0),)), Publish("t", b"0"))
    for waiting in site.front_end.take_checking():
        site.front_end.admit(waiting, "ann", hands.world.now)
    hands.send(site, client, Publish("t", b"1"))
    [entry] = hands.taken(site)
    hands.send(site, client, Publish("t", b"2"))
    hands.apply([entry])
    hands.send(site, client, Publish("t", b"3"))
    hands.settle(site)
    assert [p.payload for p in heard(client) if isinstance(p, Publish)] == [b"0", b"1", b"2", b"3"]


def test_a_client_that_leaves_while_its_password_is_checked_is_heard() -> None:
    hands = Hands()
    site = hands.sites[0]
    site.front_end.authenticates = True
    client = hands.open(site, Connect("hasty"), Publish("t", b"hello"), Disconnect())
    site.front_end.lost(client, hands.world.now)
    for waiting in site.front_end.take_checking():
        site.front_end.admit(waiting, "ann", hands.world.now)
    hands.settle(site)
    assert hands.published() == 1
    assert not site.front_end.gate.connections
    assert not site.front_end.members
    assert not any(site.machine.broker.connections for site in hands.sites)


def test_a_client_that_does_not_wait_for_any_answer_is_heard() -> None:
    hands = Hands()
    site = hands.sites[0]
    client = hands.open(site, Connect("hasty"), Publish("t", b"hello"), Disconnect())
    site.front_end.lost(client, hands.world.now)
    hands.settle(site)
    assert hands.published() == 1
    assert not any(site.machine.broker.connections for site in hands.sites)


def test_without_a_majority_clients_are_turned_away_at_the_gate_and_nothing_piles_up() -> None:
    hands = Hands()
    site = hands.sites[0]
    hands.open(site, Connect("first"))
    assert hands.taken(site)  # and never applied
    hands.world.now += 4.0
    site.front_end.tick(hands.world.now)
    waiting = site.front_end.bytes_waiting
    for n in range(100):
        turned_away = hands.open(site, Connect(f"c{n}"))
        [answer] = heard(turned_away)
        assert isinstance(answer, Connack)
        assert answer.reason is ReasonCode.SERVER_UNAVAILABLE
    assert site.front_end.bytes_waiting == waiting


def filled() -> bytes:
    """The state of a group that has seen something."""
    hands = Hands()
    site = hands.sites[0]
    client = hands.open(site, Connect("lasting", properties=LASTING), Subscribe(1, (SubscriptionRequest("t", 1),)))
    hands.settle(site)
    site.front_end.lost(client, hands.world.now)
    payload = bytes(PART_BYTES)
    hands.open(site, Connect("other"), *(Publish("t", payload, 1, True, packet_id=n) for n in range(1, 4)))
    hands.settle(site)
    return site.machine.snapshot()


def restore(hands: Hands, state: bytes) -> bytes:
    site = hands.sites[1]
    for part in parts_of(state):
        site.front_end.control(Item.RESTORE, 0, part)
        hands.settle(site)
        # A replica that takes the state half-way goes on with it.
        other = hands.sites[2]
        other.machine.restore(hands.sites[0].machine.snapshot())
    hands.settle(hands.sites[2])
    [outcome] = {one.machine.backup.outcome for one in hands.sites}
    assert len({one.machine.snapshot() for one in hands.sites}) == 1
    return outcome


def test_a_new_group_takes_a_backup_once() -> None:
    state, hands = filled(), Hands()
    assert restore(hands, state) == b"+"
    for site in hands.sites:
        session = site.machine.broker.sessions.by_key["lasting"]
        assert (session.queued, session.connection) == (3, None)
        assert len(site.machine.broker.retained) == 1
        assert not site.machine.broker.connections  # of those that were there when the backup was made
    client = hands.open(hands.sites[0], Connect("lasting", clean_start=False, properties=LASTING))
    hands.settle(hands.sites[0])
    assert sum(isinstance(packet, Publish) for packet in heard(client)) == 3
    assert b"has had clients already" in restore(hands, state)


@pytest.mark.parametrize(
    "wrong", [b"", b"\0\0\0\1x", filled()[:-1], filled() + b"?", filled().replace(b"\0\7session", b"\0\7s?ssion")]
)
def test_what_is_no_backup_leaves_a_new_group_as_it_was(wrong: bytes) -> None:
    hands = Hands()
    assert restore(hands, wrong) == b"!its state cannot be read"  # alike on every version of Python
    client = hands.open(hands.sites[0], Connect("somebody"))
    hands.settle(hands.sites[0])
    assert isinstance(heard(client)[0], Connack)


def test_parts_out_of_order_are_not_put_together() -> None:
    hands = Hands()
    site = hands.sites[0]
    first, *rest = parts_of(filled())
    for part in [*rest, first, *rest[1:]]:
        site.front_end.control(Item.RESTORE, 0, part)
    hands.settle(site)
    assert hands.sites[1].machine.backup.outcome == b""
