"""Topics without total order: QoS 0 goes past the log, each publisher's messages in order (P2S, section 6)."""

from __future__ import annotations

from tests.protocol.group.world import Client, World

from surecast.protocol.broker import Origin
from surecast.protocol.group import FrontEnd
from surecast.protocol.mqtt import Connect, PacketDecoder, Publish, Subscribe, SubscriptionRequest, encode


class Reader:
    """A client that only remembers the payloads it gets."""

    def __init__(self, world: World, site: int, name: str, topic_filter: str):
        self.world = world
        self.site = world.sites[site]
        self.client = Client(world, name, topics=[topic_filter], subscribe_qos=0)

    def wait(self) -> None:
        while not self.client.subscribed:
            self.world.step()


def straight_world() -> World:
    world = World(1)
    for site in world.sites:
        site.front_end = FrontEnd(
            site.machine, 99 << 20, world.settings, order=(("log/secret", False), ("log/#", True))
        )
    return world


def carry(world: World) -> None:
    """Hands what is forwarded unordered to the other replicas."""
    for site in world.sites:
        for data in site.front_end.outbox:
            for other in world.sites:
                if other is not site:
                    other.front_end.unordered.receive(data, world.now)
        site.front_end.outbox.clear()
    for site in world.sites:
        site.deliver()


def test_messages_go_straight_and_in_order() -> None:
    world = straight_world()
    readers = [Reader(world, 0, f"r{n}", "log/#") for n in range(4)]
    for reader in readers:
        reader.wait()
    writer = Client(world, "writer", publish_qos=0)
    while not writer.ready:
        world.step()
    world.catch_up()
    commands = len(world.log)
    payloads = [f"{n}".encode() for n in range(100)]
    writer.say(*[Publish("log/a", payload) for payload in payloads])
    carry(world)
    assert all(reader.client.got == payloads for reader in readers)
    world.catch_up()
    assert len(world.log) == commands, "nothing went through the log"
    assert {reader.client.site.number for reader in readers if reader.client.site} > {1}, "at several replicas"


def test_what_replicas_must_agree_on_goes_through_the_log() -> None:
    world = straight_world()
    reader = Reader(world, 0, "r", "log/#")
    reader.wait()
    writer = Client(world, "writer", publish_qos=0)
    while not writer.ready:
        world.step()
    world.catch_up()
    commands = len(world.log)
    writer.say(
        Publish("log/secret", b"1"),  # by an earlier rule
        Publish("log/a", b"2", retain=True),
        Publish("log/a", b"3"),
        Publish("log/a", b"4", 1, packet_id=7),
    )
    carry(world)
    assert reader.client.got == [b"3"]
    world.catch_up()
    assert len(world.log) > commands
    assert sorted(reader.client.got) == [b"1", b"2", b"3", b"4"]
    assert all(site.machine.broker.retained.get("log/a") is not None for site in world.sites)


def test_shared_subscriptions_get_each_message_once() -> None:
    world = straight_world()
    readers = [Reader(world, 0, f"r{n}", "$share/g/log/#") for n in range(3)]
    for reader in readers:
        reader.wait()
    writer = Client(world, "writer", publish_qos=0)
    while not writer.ready:
        world.step()
    world.catch_up()
    writer.say(*[Publish("log/a", f"{n}".encode()) for n in range(60)])
    carry(world)
    got = [payload for reader in readers for payload in reader.client.got]
    assert sorted(map(int, got)) == list(range(60))
    assert all(reader.client.got for reader in readers)


def test_nobody_gets_what_they_may_not_publish() -> None:
    world = straight_world()
    for site in world.sites:
        site.machine.rules.authorise = lambda user, client, action, topic: action == "subscribe"
    reader = Reader(world, 0, "r", "log/#")
    reader.wait()
    writer = Client(world, "writer", publish_qos=0)
    while not writer.ready:
        world.step()
    writer.say(Publish("log/a", b"forbidden"))
    carry(world)
    world.catch_up()
    assert reader.client.got == []
    assert world.sites[0].machine.broker.counters.unauthorised == 1


def test_packets_of_another_version_are_made_anew() -> None:
    world = straight_world()
    site = world.sites[0]
    old = site.front_end.open(Origin(), world.now)
    heard = PacketDecoder(version=4, side="client")
    got: list[bytes] = []

    class Old:
        connection = old

        def hear(self, data: bytes) -> None:
            got.extend(p.payload for p in heard.feed(data) if isinstance(p, Publish))

        def cut(self) -> None:
            raise AssertionError("closed")

    client = Old()
    site.clients[old] = client  # type: ignore[assignment]
    site.send(old, encode(Connect("old", True, 0, version=4), 4))
    site.send(client.connection, encode(Subscribe(1, (SubscriptionRequest("log/#", 0),)), 4))
    world.catch_up()
    writer = Client(world, "writer", publish_qos=0)
    while not writer.ready:
        world.step()
    world.catch_up()
    writer.say(Publish("log/a", b"x"), Publish("log/a", b"y"))
    carry(world)
    assert got == [b"x", b"y"]
