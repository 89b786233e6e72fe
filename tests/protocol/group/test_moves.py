"""The end of a connection comes before the beginning of the next, whatever the order of the log."""

from __future__ import annotations

import pytest
from tests.broker.group.test_front_end import LASTING, Hands, heard
from tests.protocol.group.world import Client, Site, World
from tests.seeds import seeds

from surecast.protocol.broker import Connection
from surecast.protocol.group import GroupMachine, Item
from surecast.protocol.group.backup import parts_of
from surecast.protocol.group.commands import items_of
from surecast.protocol.group.moves import WAIT_S
from surecast.protocol.mqtt import (
    V5,
    Connack,
    Connect,
    Disconnect,
    PacketDecoder,
    Properties,
    Publish,
    ReasonCode,
    Subscribe,
    SubscriptionRequest,
    Will,
    encode,
)

WILL = Will("wills/mover", b"gone")


class Mover:
    """Says goodbye at one site, sometimes with another session expiry, and is at another at once."""

    def __init__(self, world: World, name: str):
        self.world, self.name = world, name
        self.site: Site | None = None
        self.connection: Connection | None = None
        self.expected = False
        self.moves = 0
        self.wrong: list[str] = []
        world.clients.append(self)  # type: ignore[arg-type]

    def cut(self) -> None:
        self.wrong.append(f"{self.name} was cut off by {self.site}")

    def act(self, publish: bool = True) -> None:
        if self.connection is None:
            self.connect(self.world.random.choice(self.world.up))

    def connect(self, site: Site) -> None:
        self.site = site
        self.connection = site.connect(self)  # type: ignore[arg-type]
        self.decoder = PacketDecoder(version=V5, side="client")
        connect = Connect(self.name, False, 0, will=WILL, properties=Properties(session_expiry_s=1_000))
        site.send(self.connection, encode(connect, V5))

    def hear(self, data: bytes) -> None:
        for packet in self.decoder.feed(data):
            assert isinstance(packet, Connack), packet
            assert packet.reason == 0
            if packet.session_present != self.expected:
                self.wrong.append(f"{self.name}, move {self.moves}: present {packet.session_present}")
            self.leave()

    def leave(self) -> None:
        assert self.site is not None
        assert self.connection is not None
        random, old, connection = self.world.random, self.site, self.connection
        self.expected = random.random() < 0.5
        goodbye = Disconnect(properties=Properties(session_expiry_s=2_000 if self.expected else 0))
        old.send(connection, encode(goodbye, V5))
        del old.clients[connection]
        old.front_end.lost(connection, self.world.now)
        self.moves += 1
        self.connect(random.choice(self.world.up))


@pytest.mark.parametrize("seed", seeds(12, range(30)))
def test_a_goodbye_counts_wherever_the_client_goes_next(seed: int) -> None:
    world = World(seed)
    watcher = Client(world, "watcher", topics=["wills/#"], subscribe_qos=1)
    while not watcher.subscribed:
        world.step()
    movers = [Mover(world, f"mover{n}") for n in range(3)]
    for step in range(300):
        world.step()
        if step % 10 == 9:
            for site in world.sites:
                site.front_end.tick(world.now)
        if step % 100 == 50:
            check_snapshot(world)
    assert sum(mover.moves for mover in movers) > 30
    assert not [text for mover in movers for text in mover.wrong]
    assert not watcher.got


def check_snapshot(world: World) -> None:
    """A state with clients that wait is taken over as it is."""
    state = world.sites[0].machine.snapshot()
    copy = GroupMachine(9, world.make_broker)
    copy.restore(state)
    assert copy.snapshot() == state


def kinds(commands: list[bytes]) -> list[Item]:
    return [Item(kind) for command in commands for kind, _, _ in items_of(command)]


def published(hands: Hands) -> list[str]:
    return [message.topic for message in hands.sites[0].machine.broker.retained.matching("#", hands.world.now)]


class Two:
    """A client at the first site whose goodbye is late, and which is at the second already."""

    def __init__(self) -> None:
        self.hands = Hands()
        self.old, self.new, self.third = self.hands.sites
        will = Will("wills/a", b"gone", retain=True)
        self.connect = Connect("a", clean_start=False, properties=LASTING, will=will)
        self.first = self.hands.open(self.old, self.connect)
        self.hands.settle(self.old)
        assert isinstance(heard(self.first)[0], Connack)

    def move(self, site: Site | None = None) -> Connection:
        """The client's new entry is applied; whoever must say something has not yet."""
        site = site or self.new
        second = self.hands.open(site, self.connect)
        self.hands.apply(self.hands.taken(site))
        return second

    def say_goodbye(self) -> None:
        self.hands.send(self.old, self.first, Disconnect())
        self.old.front_end.lost(self.first, self.hands.world.now)


def test_the_entry_waits_for_the_goodbye() -> None:
    two = Two()
    second = two.move()
    assert not heard(second)
    two.say_goodbye()
    late = two.hands.taken(two.old)
    assert kinds(late) == [Item.PACKETS, Item.LOST, Item.RELEASE]
    two.hands.apply(late)
    [welcome] = heard(second)
    assert isinstance(welcome, Connack)
    assert welcome.session_present
    assert not published(two.hands)
    assert [packet for packet in heard(two.first) if isinstance(packet, Disconnect)] == []


def test_a_client_that_is_really_connected_twice_is_taken_over() -> None:
    two = Two()
    second = two.move()
    two.old.front_end.tick(two.hands.world.now)
    assert not two.hands.taken(two.old), "what has arrived meanwhile has not been read yet"
    two.old.front_end.tick(two.hands.world.now)
    two.hands.settle(two.old)
    assert isinstance(heard(second)[0], Connack)
    [goodbye] = heard(two.first)
    assert isinstance(goodbye, Disconnect)
    assert goodbye.reason is ReasonCode.SESSION_TAKEN_OVER
    assert published(two.hands) == ["wills/a"]


def test_a_replica_that_says_nothing_is_not_waited_for_for_long() -> None:
    two = Two()
    second = two.move()
    assert len(two.third.machine.moves) == 1
    assert two.new.machine.next_timer() <= two.hands.world.now + WAIT_S
    two.hands.world.now += WAIT_S
    two.new.front_end.control(Item.TICK)
    two.hands.settle(two.new)
    assert isinstance(heard(second)[0], Connack)
    assert two.new.machine.next_timer() > two.hands.world.now + WAIT_S
    assert [(len(site.machine.moves), site.machine.moves.overdue) for site in two.hands.sites] == [(0, 1)] * 3


@pytest.mark.parametrize("later", [False, True])
def test_a_replica_that_cannot_be_reached_is_not_waited_for(later: bool) -> None:
    two = Two()
    up = {1, 2, 3}
    two.new.front_end._reaches = up.__contains__
    if not later:
        up.discard(1)
    second = two.move()
    up.discard(1)
    if later:
        two.new.front_end.tick(two.hands.world.now)
    two.hands.settle(two.new)
    assert isinstance(heard(second)[0], Connack)


def test_the_end_of_a_replica_lets_its_clients_go() -> None:
    two = Two()
    second = two.move()
    two.old.start()  # a new incarnation, whose first command tells of it
    two.hands.settle(two.old)
    assert isinstance(heard(second)[0], Connack)
    assert published(two.hands) == ["wills/a"]


def test_who_gives_up_waiting_is_forgotten_and_the_next_waits_in_turn() -> None:
    two = Two()
    second = two.move()
    third = two.move(two.third)
    two.new.front_end.lost(second, two.hands.world.now)
    two.hands.settle(two.new)
    two.say_goodbye()
    two.hands.settle(two.old)
    assert not heard(second)
    assert isinstance(heard(third)[0], Connack)
    assert not published(two.hands)


def test_clients_that_wait_for_one_session_enter_one_after_the_other() -> None:
    two = Two()
    second = two.move()
    third = two.move(two.third)
    two.hands.send(two.new, second, Publish("kept", b"1", retain=True), Disconnect())
    two.new.front_end.lost(second, two.hands.world.now)
    two.say_goodbye()
    two.hands.settle(two.old)
    assert not heard(third)
    two.hands.settle(two.new)
    assert isinstance(heard(third)[0], Connack)
    assert published(two.hands) == ["kept"]


def test_who_waited_when_a_backup_was_made_is_not_let_in_by_the_group_that_takes_it() -> None:
    two = Two()
    two.move(two.third)
    state, hands = two.old.machine.snapshot(), Hands()
    site = hands.sites[0]
    for part in parts_of(state):
        site.front_end.control(Item.RESTORE, 0, part)
    hands.settle(site)
    hands.world.now += 2 * WAIT_S
    site.front_end.control(Item.TICK)
    hands.settle(site)
    assert [(len(each.machine.moves), each.machine.backup.outcome) for each in hands.sites] == [(0, b"+")] * 3
    client = hands.open(site, two.connect)
    hands.settle(site)
    [welcome] = [packet for packet in heard(client) if isinstance(packet, Connack)]
    assert welcome.session_present
    assert not any(each.machine.moves.overdue for each in hands.sites)


def test_at_one_replica_too_the_packets_of_one_connection_come_before_the_next() -> None:
    """The first did not wait for its CONNACK, so that its packets follow when it has been let in."""
    hands = Hands()
    site = hands.sites[0]
    listener = hands.open(site, Connect("listener"), Subscribe(1, (SubscriptionRequest("t", 0),)))
    hands.settle(site)
    heard(listener)
    for n in range(3):
        client = hands.open(site, Connect("hasty"), Publish("t", b"%d" % n), Disconnect())
        site.front_end.lost(client, hands.world.now)
    hands.settle(site)
    assert [p.payload for p in heard(listener) if isinstance(p, Publish)] == [b"0", b"1", b"2"]
    assert len(site.machine.broker.connections) == 1
