"""A group without sockets: replicas with a front end each, one log that mixes their commands, and clients that move."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

from surecast.protocol.broker import BrokerCore, BrokerSettings, Connection, Origin
from surecast.protocol.broker.state_journal import NoJournal
from surecast.protocol.group import Application, FrontEnd, GroupMachine, Port
from surecast.protocol.group.commands import HEAD, ITEM, Happening, Item, items_of, pack, read_batch
from surecast.protocol.mqtt import (
    NO_PROPERTIES,
    V5,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketDecoder,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscriptionRequest,
    encode,
)
from surecast.protocol.paxos import Context

__all__ = ["Client", "Site", "World", "with_packets"]


def with_packets(command: bytes) -> bytes:
    """The same command with the packets of its batches, as they came."""
    items: list[Happening] = []
    at = HEAD.size
    for kind, number, data in items_of(command):
        if kind == Item.BATCH:
            sent, _ = read_batch(command, at)
            begin = 0
            for sender, count in zip(sent.numbers, sent.counts, strict=True):
                items.append((Item.PACKETS, sender, sent.batch.bytes_of(begin, begin + count), None))
                begin += count
        else:
            items.append((kind, number, data, None))
        at += ITEM.size + len(data)
    return b"".join(pack(*HEAD.unpack_from(command), items)[0])


class Site:
    """One replica: its machine, its front end, and the connections of its clients."""

    def __init__(self, world: World, number: int):
        self.world = world
        self.number = number
        self.machine = GroupMachine(number, world.make_broker, applications=world.applications())
        self.incarnation = 0
        self.position = 0
        self.effects: dict[int, bytes] = {}
        self.clients: dict[Connection, Client] = {}
        self.start()

    def start(self) -> None:
        """A new incarnation; the state is that of the machine."""
        self.incarnation += 1
        self.front_end = FrontEnd(self.machine, self.incarnation << 20, self.world.settings, window=4)
        self.clients = {}

    def connect(self, client: Client) -> Connection:
        connection = self.front_end.open(Origin(peer=client.name), self.world.now)
        self.clients[connection] = client
        return connection

    def send(self, connection: Connection, data: bytes) -> None:
        self.front_end.receive(connection, data, self.world.now)

    def apply(self, context: Context, command: bytes) -> None:
        self.machine.execute(command, context)
        self.position += 1
        self.effects[self.position] = self.machine.effects(self.position)

    def deliver(self) -> None:
        """Sends what is to be sent."""
        for dirty in (self.machine.broker.dirty, self.front_end.gate.dirty, set(self.front_end.closing)):
            for connection in list(dirty):
                data = b"".join(connection.out)
                connection.out.clear()
                client = self.clients.get(connection)
                if client is not None and client.connection is connection:
                    if data:
                        client.hear(data)
                    if connection.is_closed() or connection in self.front_end.closing:
                        client.cut()
        self.machine.broker.dirty.clear()
        self.front_end.gate.dirty.clear()
        self.front_end.closing.clear()


class World:
    """Sites and a log. The log takes commands of all edges in an order of its own, some of them twice."""

    def __init__(self, seed: int, sites: int = 3, applications: Callable[[], Iterable[Application]] = tuple):
        self.random = random.Random(seed)
        self.settings = BrokerSettings()
        self.now = 1_000.0
        self.applications = applications
        self.make_broker = lambda authorise: BrokerCore(
            self.settings, authorise=authorise, journal=NoJournal(), watches=False
        )
        self.sites = [Site(self, number) for number in range(1, sites + 1)]
        self.up = list(self.sites)
        self.log: list[tuple[int, bytes]] = []
        self.waiting: list[bytes] = []
        self.clients: list[Client] = []

    def step(self) -> None:
        """A bit of time: commands come into the log, sites carry some out, and clients act."""
        self.now += self.random.random() * 0.02
        for site in self.up:
            self.waiting += [b"".join(pieces) for _, pieces in site.front_end.take(self.now)]
        # Commands of one site may overtake one another when leaders change; some come twice.
        self.random.shuffle(self.waiting)
        while self.waiting and self.random.random() < 0.7:
            command = self.waiting.pop()
            self.log.append((int(self.now * 1e6), command))
            if self.random.random() < 0.05:
                self.waiting.append(command)
        for site in self.up:
            self.advance(site, self.random.randrange(4))
        for client in self.clients:
            client.act()

    def advance(self, site: Site, count: int) -> None:
        for time_us, command in self.log[site.position : site.position + count]:
            site.apply(Context(site.position + 1, time_us), command)
            if self.random.random() < 0.5:
                site.deliver()
        site.deliver()

    def catch_up(self) -> None:
        """Everything that waits is applied everywhere."""
        for _ in range(200):
            self.now += 0.01
            for site in self.up:
                self.waiting += [b"".join(pieces) for _, pieces in site.front_end.take(self.now)]
            self.log += [(int(self.now * 1e6), command) for command in self.waiting]
            self.waiting.clear()
            for site in self.up:
                self.advance(site, len(self.log))
            for client in self.clients:
                client.act(publish=False)

    def kill(self, site: Site) -> None:
        """A site dies; what it had sent may still be in the network, or not."""
        self.up.remove(site)
        for client in list(site.clients.values()):
            client.cut()
        self.waiting = [
            command
            for command in self.waiting
            if HEAD.unpack_from(command)[0] != site.number or self.random.random() < 0.5
        ]

    def revive(self, site: Site) -> None:
        """It comes back: from its own state, or from a snapshot of another."""
        if self.random.random() < 0.5 and self.up:
            other = self.random.choice(self.up)
            site.machine.port = Port()  # nobody listens while it is down
            site.machine.restore(other.machine.snapshot())
            site.position = other.position
        site.start()
        self.up.append(site)


class Client:
    """A client with a lasting session, which goes to another replica when it loses its connection.

    It publishes numbered messages at one QoS, or one of some `contents`, and remembers what it got, each message once
    at QoS 2. `filter` is the content filter of its subscriptions, and `target` are their user properties of a target.
    """

    def __init__(self, world: World, name: str, *, topics: Sequence[str] = (), publish_qos: int | None = None,
                 subscribe_qos: int | None = None, count: int = 0, filter: str = "",
                 contents: Sequence[tuple[bytes, Properties]] = (),
                 target: Sequence[tuple[str, str]] = ()):  # fmt: skip
        self.world = world
        self.name = name
        self.topics = topics
        self.publish_qos = publish_qos
        self.subscribe_qos = subscribe_qos
        self.left = count
        self.filter = filter
        self.contents = contents
        self.target = tuple(target)
        self.sent = 0
        self.site: Site | None = None
        self.connection: Connection | None = None
        self.ready = False
        self.subscribed = subscribe_qos is None
        self.open: dict[int, Publish | Pubrel] = {}
        self.next_id = 0
        self.acknowledged: list[bytes] = []
        self.got: list[bytes] = []
        self.held: set[int] = set()
        world.clients.append(self)

    def cut(self) -> None:
        """The connection is gone."""
        if self.connection is not None and self.site in self.world.up and self.connection in self.site.clients:
            del self.site.clients[self.connection]
            self.site.front_end.lost(self.connection, self.world.now)
        self.connection, self.ready = None, False

    def say(self, *packets: Packet) -> None:
        assert self.site is not None
        assert self.connection is not None
        self.site.send(self.connection, b"".join(encode(p, V5) for p in packets))

    def act(self, publish: bool = True) -> None:
        """Connects, or publishes another message."""
        if self.connection is None:
            if self.world.up:
                self.site = self.world.random.choice(self.world.up)
                self.connection = self.site.connect(self)
                self.decoder = PacketDecoder(version=V5, side="client")
                self.say(Connect(self.name, False, 0, properties=Properties(session_expiry_s=0xFFFF_FFFF)))
        elif self.ready and publish and self.left and len(self.open) < 5 and self.world.random.random() < 0.5:
            self.left -= 1
            payload = f"{self.name}:{self.sent}".encode()
            self.sent += 1
            self.next_id = self.next_id % 65_535 + 1
            topic = self.world.random.choice(self.topics)
            packet_id, properties = self.next_id if self.publish_qos else 0, NO_PROPERTIES
            if self.contents:
                payload, properties = self.world.random.choice(self.contents)
            packet = Publish(topic, payload, self.publish_qos or 0, packet_id=packet_id, properties=properties)
            if self.publish_qos:
                self.open[self.next_id] = packet
            self.say(packet)

    def hear(self, data: bytes) -> None:
        for packet in self.decoder.feed(data):
            if self.connection is None:
                return
            self.answer(packet)

    def answer(self, packet: object) -> None:
        match packet:
            case Connack():
                assert packet.reason == 0, packet
                self.ready = True
                if not self.subscribed:
                    wanted = tuple(SubscriptionRequest(t, self.subscribe_qos or 0) for t in self.topics)
                    content = (("filter", self.filter),) if self.filter else ()
                    self.say(Subscribe(1, wanted, Properties(user=(*content, *self.target))))
                for each in list(self.open.values()):
                    again = each if isinstance(each, Pubrel) else Publish(
                        each.topic, each.payload, each.qos, packet_id=each.packet_id, dup=True,
                        properties=each.properties)  # fmt: skip
                    self.say(again)
            case Suback():
                self.subscribed = True
            case Puback() | Pubcomp():
                before = self.open.pop(packet.packet_id, None)
                if isinstance(packet, Puback) and isinstance(before, Publish):
                    self.acknowledged.append(before.payload)
            case Pubrec():
                before = self.open.get(packet.packet_id)
                if isinstance(before, Publish):
                    self.acknowledged.append(before.payload)
                self.open[packet.packet_id] = Pubrel(packet.packet_id)
                self.say(Pubrel(packet.packet_id))
            case Publish():
                self.receive(packet)
            case Pubrel():
                self.held.discard(packet.packet_id)
                self.say(Pubcomp(packet.packet_id))
            case Disconnect():
                self.cut()
            case _:
                raise AssertionError(packet)

    def receive(self, packet: Publish) -> None:
        if packet.qos == 2:
            if packet.packet_id not in self.held:
                self.held.add(packet.packet_id)
                self.got.append(packet.payload)
            self.say(Pubrec(packet.packet_id))
        else:
            self.got.append(packet.payload)
            if packet.qos:
                self.say(Puback(packet.packet_id))
