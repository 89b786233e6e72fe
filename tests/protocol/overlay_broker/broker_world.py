"""Brokers of an overlay on byte pipes that break anywhere, with disks that survive, and real MQTT clients."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from surecast.errors import PeerError
from surecast.protocol.broker import BrokerCore, BrokerSettings, Connection, Origin
from surecast.protocol.mqtt import (
    V5,
    V311,
    Connack,
    Connect,
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
from surecast.protocol.overlay.event_bodies import MessageRun
from surecast.protocol.overlay.node_links import NodeSettings
from surecast.protocol.overlay.overlay_plan import OverlayPlan, Tree
from surecast.protocol.overlay_broker import LinkConnection, LocalTraffic, OverlayBroker

TOPICS = ("a/1", "a/2", "b/1")
SMALL = NodeSettings(
    resume_s=20.0,
    refresh_s=30.0,
    grace_s=2.0,
    reconnect_s=1.0,
    ack_wait_s=0.3,
    window_bytes=2_000,
    queue_bytes_max=200_000,
)


class Client:
    """A client with a session that lasts; it comes back whenever its broker is there."""

    def __init__(self, name: str, home: str, version: int):
        self.name, self.home, self.version = name, home, version
        self.connection: Connection | None = None
        self.is_ready = False
        self._decoder = PacketDecoder(version=version, side="client")

    def connect(self, machine: Machine, now: float) -> None:
        core = machine.core
        assert core is not None
        self._decoder = PacketDecoder(version=self.version, side="client")
        self.is_ready = False
        self.connection = core.open(Origin(peer=self.name), now)
        properties = Properties()
        if self.version == V5:
            properties = Properties(session_expiry_s=1_000_000, receive_maximum=self.receive_maximum)
        hello = Connect(
            self.name, self.version != V311 and not self._lasts, 0, properties=properties, version=self.version
        )
        self.send(machine, encode(hello, self.version), now)

    _lasts = True
    receive_maximum: int | None = None

    def send(self, machine: Machine, data: bytes, now: float) -> None:
        assert machine.core is not None
        assert self.connection is not None
        machine.core.receive(self.connection, data, now)

    def read(self, data: bytes) -> list[bytes]:
        """Takes bytes of the broker; returns what to answer."""
        answers: list[bytes] = []
        for packet in self._decoder.feed(data):
            answers += [encode(answer, self.version) for answer in self.take(packet)]
        return answers

    def take(self, packet: object) -> list[object]:
        raise AssertionError(f"{type(self).__name__} takes no packets")


class Subscriber(Client):
    """Subscribes to one filter, and acknowledges what comes."""

    def __init__(self, name: str, home: str, version: int, filter: str, qos: int):
        super().__init__(name, home, version)
        self.filter, self.qos = filter, qos
        self.is_subscribed = False
        self.received: list[bytes] = []
        self._open: set[int] = set()

    def take(self, packet: object) -> list[object]:
        if isinstance(packet, Connack):
            self.is_ready = True
            if not packet.session_present:
                self._open.clear()
                return [Subscribe(1, (SubscriptionRequest(self.filter, self.qos),))]
        elif isinstance(packet, Suback):
            self.is_subscribed = True
        elif isinstance(packet, Publish):
            if packet.qos < 2 or packet.packet_id not in self._open:
                self.received.append(packet.payload)
            if packet.qos == 1:
                return [Puback(packet.packet_id)]
            if packet.qos == 2:
                self._open.add(packet.packet_id)
                return [Pubrec(packet.packet_id)]
        elif isinstance(packet, Pubrel):
            self._open.discard(packet.packet_id)
            return [Pubcomp(packet.packet_id)]
        return []


class Publisher(Client):
    """Publishes numbered messages, and repeats what was not acknowledged when its broker is back."""

    def __init__(self, name: str, home: str, version: int, qos: int):
        super().__init__(name, home, version)
        self.qos = qos
        self.count = 0
        self.topics: dict[bytes, str] = {}
        self.retained: set[bytes] = set()
        self.acknowledged: list[bytes] = []
        self.unacknowledged: dict[int, Publish] = {}
        self._released: dict[int, Publish] = {}
        self._identifier = 0

    def publish(self, random: Random) -> bytes:
        """Returns one to twenty messages in one write, to one topic or each to any."""
        topic, changes = random.choice(TOPICS), random.random() < 0.3
        data = b""
        for _ in range(random.choice((1, 1, 3, 20))):
            topic = random.choice(TOPICS) if changes else topic
            payload = b"%s %d %s" % (self.name.encode(), self.count, b"x" * random.choice((0, 0, 5, 300)))
            self.count += 1
            self.topics[payload] = topic
            self._identifier = self._identifier % 60_000 + 1
            retain = random.random() < 0.1
            if retain:
                self.retained.add(payload)
            user = (("p", str(random.randrange(10))),) if random.random() < 0.2 and self.version == V5 else ()
            packet = Publish(
                topic,
                payload,
                self.qos,
                retain,
                packet_id=self._identifier if self.qos else 0,
                properties=Properties(user=user),
            )
            if self.qos:
                self.unacknowledged[self._identifier] = packet
            data += encode(packet, self.version)
        return data

    def take(self, packet: object) -> list[object]:
        if isinstance(packet, Connack):
            self.is_ready = True
            again: list[object] = [Pubrel(number) for number in self._released]
            for number, waiting in self.unacknowledged.items():
                again.append(Publish(waiting.topic, waiting.payload, waiting.qos, dup=True, packet_id=number))
            return again
        if isinstance(packet, Puback):
            assert packet.reason < 0x80
            self.acknowledged.append(self.unacknowledged.pop(packet.packet_id).payload)
        elif isinstance(packet, Pubrec):
            assert packet.reason < 0x80
            waiting = self.unacknowledged.pop(packet.packet_id, None)
            if waiting is not None:
                self.acknowledged.append(waiting.payload)
                self._released[packet.packet_id] = waiting
            return [Pubrel(packet.packet_id)]
        elif isinstance(packet, Pubcomp):
            self._released.pop(packet.packet_id, None)
        return []


@dataclass
class Machine:
    """A broker's machine: the disk survives a crash."""

    disk: dict[bytes, bytes] = field(default_factory=dict)
    core: BrokerCore | None = None
    broker: OverlayBroker | None = None


@dataclass
class Wire:
    """A connection between two brokers: the end that called, the other, and the bytes on their way to each."""

    ends: dict[str, LinkConnection]
    to: dict[str, bytearray]


class BrokerWorld:
    """`scheme` is that of every tree. Brokers form a random tree with a few more links."""

    REFRESH: Literal["link", "end-to-end"] = "link"
    """How demand is refreshed on all trees."""

    def __init__(
        self,
        random: Random,
        scheme: str,
        *,
        size: int = 0,
        settings: NodeSettings = SMALL,
        broker: type[OverlayBroker] = OverlayBroker,
    ):
        self.random, self.settings, self.kind = random, settings, broker
        self.now = 1_000.0
        self.plan = self._plan(size or random.randrange(2, 6), scheme)
        self.machines = {name: Machine() for name in self.plan.brokers}
        self.wires: dict[tuple[str, str], Wire] = {}
        self.clients: list[Client] = []
        self.crashes = 0
        self.is_lied_to = False
        """True where bytes between brokers are changed, so that any of them may end a connection at any time."""
        self.populate()
        for name in self.machines:
            self.start(name)
        self.heal()

    def populate(self) -> None:
        """Makes the clients."""
        random = self.random
        for number in range(4):
            home, version = random.choice(self.plan.brokers), random.choice((V311, V5))
            wanted = ("#", "a/+", random.choice(TOPICS), "a/1")[number]
            self.clients.append(Subscriber(f"s{number}", home, version, wanted, random.choice((0, 1, 2))))
        for number in range(3):
            home, version = random.choice(self.plan.brokers), random.choice((V311, V5))
            self.clients.append(Publisher(f"p{number}", home, version, number))

    @property
    def subscribers(self) -> list[Subscriber]:
        return [client for client in self.clients if isinstance(client, Subscriber)]

    @property
    def publishers(self) -> list[Publisher]:
        return [client for client in self.clients if isinstance(client, Publisher)]

    def _plan(self, size: int, scheme: str) -> OverlayPlan:
        names = tuple(f"b{n}" for n in range(size))
        trees = []
        for _ in range(2):
            order = [*names]
            self.random.shuffle(order)
            trees.append(tuple(tuple(sorted((self.random.choice(order[:n]), order[n]))) for n in range(1, size)))
        pairs = [(a, b) for a in names for b in names if a < b and self.random.random() < 0.3]
        links = tuple(dict.fromkeys([*trees[0], *trees[1], *pairs]))
        return OverlayPlan(
            names,
            links,
            tuple(Tree(tree, scheme, refresh=self.REFRESH) for tree in trees),
            (("", (0,)), ("b", (1,))),  # type: ignore[arg-type]
        )

    # Brokers

    def start(self, name: str) -> None:
        machine = self.machines[name]
        machine.core = BrokerCore(BrokerSettings(), traffic=LocalTraffic())
        machine.broker = self.kind(
            name, self.plan, machine.core, records=[*machine.disk.items()], now=self.now, settings=self.settings,
            address="at {}".format,
        )  # fmt: skip
        self.turn(name)

    def turn(self, name: str, *, is_cut_short: bool = False) -> None:
        """Ends a turn of a broker, until it has nothing more to say to its clients; or it dies behind the commit."""
        machine = self.machines[name]
        core, broker = machine.core, machine.broker
        assert core is not None
        assert broker is not None
        while True:
            broker.settle(self.now)
            for key, value in core.take_journal():
                if value is None:
                    machine.disk.pop(key, None)
                else:
                    machine.disk[key] = value
            if is_cut_short:
                return
            for (a, b), wire in self.wires.items():
                if name in (a, b):
                    wire.to[b if name == a else a] += wire.ends[name].output(self.random.random() < 0.5)
            answers: list[tuple[Client, bytes]] = []
            for client in self.clients:
                if client.home == name and client.connection is not None and client.connection.out:
                    data = b"".join(client.connection.out)
                    client.connection.out.clear()
                    answers += [(client, answer) for answer in client.read(data)]
            core.dirty.clear()
            if not answers:
                return
            for client, answer in answers:
                client.send(machine, answer, self.now)

    def crash(self, name: str) -> None:
        self.crashes += 1
        for a, b in [pair for pair in self.wires if name in pair]:
            other = b if a == name else a
            self.cut(a, b, only=other)
        self.machines[name].core = self.machines[name].broker = None
        for client in self.clients:
            if client.home == name:
                client.connection, client.is_ready = None, False

    # Links

    def join(self, a: str, b: str) -> None:
        """The one end calls the other."""
        caller, called = self.machines[a].broker, self.machines[b].broker
        if caller is None or called is None or (a, b) in self.wires:
            return
        self.wires[a, b] = Wire(
            {a: LinkConnection(caller, b), b: LinkConnection(called)}, {a: bytearray(), b: bytearray()}
        )
        self.turn(a)

    def cut(self, a: str, b: str, only: str = "") -> None:
        """Breaks a connection: of the bytes on their way some still come, cut anywhere."""
        wire = self.wires.pop((a, b), None)
        if wire is None:
            return
        for name, connection in wire.ends.items():
            if only and name != only:
                continue
            on_the_way = bytes(wire.to[name])
            if on_the_way and connection.is_up and self.random.random() < 0.7:
                with suppress(PeerError if self.may_end(name) else ()):
                    connection.receive(on_the_way[: self.random.randrange(len(on_the_way))], self.now)
            connection.close(self.now)
            self.turn(name)

    def may_end(self, name: str) -> bool:
        """Whether an end of a connection may end it at any time."""
        return self.is_lied_to

    def arrive(self, pair: tuple[str, str], name: str) -> None:
        """Some bytes on their way to an end come, cut anywhere."""
        wire = self.wires[pair]
        waiting = wire.to[name]
        size = self.random.choice((1, 7, 100, 1_000, 100_000))
        data = bytes(waiting[:size])
        del waiting[:size]
        if not data:
            return
        try:
            wire.ends[name].receive(data, self.now)
        except PeerError as error:
            if "a new hello is needed" not in str(error) and not self.may_end(name):
                raise
            self.cut(*pair)
        self.turn(name)

    # Running

    def step(self, *, crashes: bool = True, cuts: bool = True) -> None:
        random = self.random
        self.now += random.random() * 0.2
        draw = random.random()
        busy = [(pair, name) for pair, wire in self.wires.items() for name, data in wire.to.items() if data]
        name, (a, b) = random.choice(self.plan.brokers), random.choice(self.plan.links)
        if draw < 0.55 and busy:
            self.arrive(*random.choice(busy))
        elif draw < 0.75:
            self.publish(random.choice(self.publishers))
        elif draw < 0.80 and cuts:
            self.cut(a, b)
        elif draw < 0.90:
            self.join(a, b)
        elif draw < 0.93 and crashes:
            self.strike(name)
        else:
            self.reconnect()
        self.tick()

    def strike(self, name: str) -> None:
        """A broker that runs dies, maybe with a turn that was committed and not sent; one that is dead starts."""
        machine = self.machines[name]
        if machine.broker is None:
            self.start(name)
            return
        publishers = [each for each in self.publishers if each.home == name and each.is_ready]
        if publishers and self.random.random() < 0.5:
            publisher = publishers[0]
            publisher.send(machine, publisher.publish(self.random), self.now)
            self.turn(name, is_cut_short=True)
        self.crash(name)

    def publish(self, publisher: Publisher) -> None:
        machine = self.machines[publisher.home]
        if publisher.is_ready and machine.core is not None:
            publisher.send(machine, publisher.publish(self.random), self.now)
            self.turn(publisher.home)

    def reconnect(self) -> None:
        for client in self.clients:
            machine = self.machines[client.home]
            if client.connection is None and machine.core is not None:
                client.connect(machine, self.now)
                self.turn(client.home)

    def tick(self) -> None:
        for name, machine in self.machines.items():
            if machine.broker is not None and machine.broker.next_timer() <= self.now:
                machine.broker.tick(self.now)
                self.turn(name)

    def heal(self) -> None:
        """Repairs everything and lets it come to rest."""
        for name, machine in self.machines.items():
            if machine.broker is None:
                self.start(name)
        for a, b in self.plan.links:
            self.join(a, b)
        self.reconnect()
        for _ in range(70):
            while busy := [(pair, name) for pair, wire in self.wires.items() for name, data in wire.to.items() if data]:
                self.arrive(*self.random.choice(busy))
            self.now += 1.0
            self.tick()
            for a, b in self.plan.links:
                self.join(a, b)  # one that was given up while it said hello

    # What must hold

    def problems(self, scheme: str) -> list[str]:
        """What must never happen, whatever fails."""
        problems = []
        topics = {payload: topic for publisher in self.publishers for payload, topic in publisher.topics.items()}
        qos = {publisher.name: publisher.qos for publisher in self.publishers}
        retained = {payload for publisher in self.publishers for payload in publisher.retained}
        for subscriber in self.subscribers:
            seen: set[bytes] = set()
            last: dict[tuple[bytes, str], int] = {}
            for payload in subscriber.received:
                source, number, _ = payload.split(b" ")
                topic = topics.get(payload)
                if topic is None:
                    problems.append(f"{subscriber.name} got {payload!r}, which nobody published")
                    continue
                if payload in seen:
                    # A client repeats at QoS 1. What came by a detour at QoS 0 is not remembered over a restart.
                    is_forgotten = scheme == "bypass-buffering" and not subscriber.qos and self.crashes
                    if qos[source.decode()] != 1 and subscriber.qos != 1 and not is_forgotten:
                        problems.append(f"{subscriber.name} got {payload!r} twice")
                    continue
                seen.add(payload)
                if payload in retained:  # a comparison may have brought it, behind what came later
                    continue
                if "bypass" not in scheme and int(number) < last.get((source, topic), -1):
                    problems.append(f"{subscriber.name} got {payload!r} after {last[source, topic]}")
                last[source, topic] = int(number)
        for name, machine in self.machines.items():
            node = machine.broker.node if machine.broker is not None else None
            for hop, accounts in node.accounts.hops.items() if node is not None else ():
                if problem := accounts.problem(node.custody.events_unsent(hop) if node is not None else 0):
                    problems.append(f"{name} for {hop}: {problem}")
        return problems

    def differing(self) -> list[str]:
        """Topics whose retained message is another one at some brokers. To be asked when all is repaired."""
        problems = []
        for topic in TOPICS:
            payloads = {}
            for name, machine in self.machines.items():
                assert machine.core is not None
                assert machine.broker is not None
                message, entry = machine.core.retained.get(topic), machine.broker.node.retained.get(topic)
                payloads[name] = message.payload if message is not None else None
                body = entry.body if entry is not None else None
                if payloads[name] != (body.messages()[0].payload if isinstance(body, MessageRun) else None):
                    problems.append(f"{name} has {payloads[name]!r} for {topic}, and its node has not")
            if len(set(payloads.values())) > 1:
                problems.append(f"{topic}: {payloads}")
        return problems

    def missing(self) -> list[str]:
        """Acknowledged messages that a subscriber wants at QoS 1 or more and did not get."""
        return [
            f"{payload!r} did not reach {subscriber.name} at {subscriber.home}"
            for publisher in self.publishers
            for payload in publisher.acknowledged
            for subscriber in self.subscribers
            if subscriber.qos
            and self.wants(subscriber.filter, publisher.topics[payload])
            and payload not in set(subscriber.received)
        ]

    @staticmethod
    def wants(filter: str, topic: str) -> bool:
        """Whether a subscriber with a filter wants a topic."""
        return filter in ("#", topic) or (filter == "a/+" and topic.startswith("a/"))
