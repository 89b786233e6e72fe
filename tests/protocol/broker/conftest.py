"""A small world for brokers: clients that speak bytes, a disk that is a dictionary, and a clock that is set by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from surecast.protocol.broker import BrokerCore, BrokerSettings, Connection, Origin
from surecast.protocol.broker.message import Delivery
from surecast.protocol.broker.plain_flight import hollow_delivery
from surecast.protocol.broker.quotas import Quotas, shape_of
from surecast.protocol.broker.session import Session
from surecast.protocol.mqtt import (
    NO_PROPERTIES,
    V5,
    V311,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketDecoder,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    ReasonCode,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Unsuback,
    Unsubscribe,
    Will,
    encode,
)

P = TypeVar("P", bound=Packet)


class Client:
    """A client on a wire: what it sends are bytes, and what it gets is read by a client's decoder."""

    def __init__(self, world: World, name: str, version: int):
        self.world = world
        self.name = name
        self.version = version
        self.listener = "default"
        self.peer = f"peer-{name}"
        self.connection: Connection | None = None
        self.inbox: list[Packet] = []
        self.raw = b""
        self.closed = True
        self._packet_id = 0

    # The wire.

    def open(self, identity: str = "") -> Client:
        """A new transport, and no CONNECT yet."""
        if not self.closed:
            self.drop()
        origin = Origin(self.listener, self.peer, identity)
        self.connection = self.world.broker.open(origin, self.world.now)
        self.decoder = PacketDecoder(version=self.version, side="client")
        self.closed = False
        self.inbox = []
        self.world.online[self.connection] = self
        return self

    def send(self, *packets: Packet | bytes) -> Client:
        """Sends packets in one piece, and ends the turn."""
        data = b"".join(p if isinstance(p, bytes) else encode(p, self.version) for p in packets)
        assert self.connection is not None
        if not self.closed:
            self.world.broker.receive(self.connection, data, self.world.now)
        self.world.turn()
        return self

    def drop(self) -> None:
        """The transport breaks without a word."""
        assert self.connection is not None
        self.world.online.pop(self.connection, None)
        self.closed = True
        self.world.broker.lost(self.connection, self.world.now)
        self.world.turn()

    def hear(self, data: bytes) -> None:
        """What the broker sent."""
        self.raw += data
        self.inbox += self.decoder.feed(data)

    # What it says.

    def connect(
        self,
        clean: bool = True,
        *,
        identity: str = "",
        keep_alive_s: int = 0,
        will: Will | None = None,
        username: str | None = None,
        password: bytes | None = None,
        client_id: str | None = None,
        **properties: Any,
    ) -> Client:
        """Opens a transport and sends a CONNECT; keyword arguments are properties of MQTT 5.0."""
        self.open(identity)
        given = Properties(**properties) if properties else NO_PROPERTIES
        name = self.name if client_id is None else client_id
        return self.send(Connect(name, clean, keep_alive_s, username, password, will, given, self.version))

    def online(self, clean: bool = True, **others: Any) -> Client:
        """Connects, and is sure that it was accepted."""
        self.connect(clean, **others)
        assert self.one(Connack).reason == ReasonCode.SUCCESS
        return self

    def lasting(self, clean: bool = False, **others: Any) -> Client:
        """Connects with a session that outlives the connection."""
        if self.version == V5:
            others.setdefault("session_expiry_s", 0xFFFF_FFFF)
        return self.online(clean, **others)

    def subscribe(self, filter: str, qos: int = 0, *, check: bool = True, **options: Any) -> Suback:
        """Subscribes to one filter; keyword arguments are its options, or properties."""
        names = ("no_local", "retain_as_published", "retain_handling")
        wanted = SubscriptionRequest(filter, qos, **{k: v for k, v in options.items() if k in names})
        given = Properties(**{k: v for k, v in options.items() if k not in names})
        answer = self.ask(Subscribe(self.next_id(), (wanted,), given), Suback)
        if check:
            assert answer.reasons == (qos,)
        return answer

    def unsubscribe(self, *filters: str) -> Unsuback:
        """Takes subscriptions back."""
        return self.ask(Unsubscribe(self.next_id(), filters), Unsuback)

    def publish(self, topic: str, payload: bytes = b"x", qos: int = 0, **others: Any) -> Client:
        """Sends a PUBLISH; keyword arguments are fields of it, or properties."""
        fields = {k: others.pop(k) for k in ("retain", "dup", "packet_id") if k in others}
        if qos:
            fields.setdefault("packet_id", self.next_id())
        properties = Properties(**others) if others else NO_PROPERTIES
        return self.send(Publish(topic, payload, qos, properties=properties, **fields))

    def ping(self) -> bool:
        """Whether the broker answers."""
        return not self.closed and self.ask(Pingreq(), Pingresp) == Pingresp()

    def disconnect(self, reason: ReasonCode = ReasonCode.SUCCESS, **properties: Any) -> None:
        """Says goodbye."""
        self.send(Disconnect(reason, Properties(**properties) if properties else NO_PROPERTIES))

    def next_id(self) -> int:
        """A packet identifier that was not used lately."""
        self._packet_id = self._packet_id % 65_535 + 1
        return self._packet_id

    # What it got.

    def ask(self, packet: Packet, kind: type[P]) -> P:
        """Sends a packet and takes the one answer of a kind out of what came."""
        before = len(self.inbox)
        self.send(packet)
        answers = [p for p in self.inbox[before:] if isinstance(p, kind)]
        assert len(answers) == 1, f"{self.name} asked {packet} and got {self.inbox[before:]}"
        self.inbox.remove(answers[0])
        return answers[0]

    def take(self) -> list[Packet]:
        """All that came since the last time."""
        got, self.inbox = self.inbox, []
        return got

    def one(self, kind: type[P]) -> P:
        """The only packet that came, which must be of a kind."""
        got = self.take()
        assert len(got) == 1, f"{self.name} got {got}, not one {kind.__name__}"
        assert isinstance(got[0], kind), f"{self.name} got {got[0]}, not a {kind.__name__}"
        return got[0]

    def messages(self, acknowledge: bool = True) -> list[Publish]:
        """The messages that came, acknowledged until nothing more comes."""
        got: list[Publish] = []
        while packets := self.take():
            answers: list[Packet] = []
            for packet in packets:
                if isinstance(packet, Publish):
                    got.append(packet)
                    if packet.qos:
                        answers.append(Puback(packet.packet_id) if packet.qos == 1 else Pubrec(packet.packet_id))
                elif isinstance(packet, Pubrel):
                    answers.append(Pubcomp(packet.packet_id))
                else:
                    raise AssertionError(f"{self.name} got {packet}")
            if not acknowledge:
                break
            if answers:
                self.send(*answers)
        return got

    def payloads(self) -> list[bytes]:
        """The payloads that came; all is acknowledged."""
        return [message.payload for message in self.messages()]

    def payloads_after_connack(self) -> list[bytes]:
        """The payloads that came behind the CONNACK of a session that was there before."""
        connack = self.inbox.pop(0)
        assert isinstance(connack, Connack)
        assert connack.session_present
        return self.payloads()

    @property
    def session(self) -> Any:
        """The broker's session of this client."""
        return self.world.broker.sessions.by_key[self.name]


class World:
    """A broker, its disk, its clients and the time. A turn ends as in the real one: first the disk, then the wires."""

    def __init__(self, settings: BrokerSettings | None = None, **options: Any):
        self.settings = settings
        self.options = options
        self.now = 1_700_000_000.0
        self.disk: dict[bytes, bytes] = {}
        self.online: dict[Connection, Client] = {}
        self.broker = BrokerCore(settings, **options)
        self._nested = 0

    def client(self, name: str, version: int = V5) -> Client:
        """A client that is not connected yet."""
        return Client(self, name, version)

    def turn(self) -> None:
        """The end of a turn: commit, send, close."""
        if self._nested:
            return
        self.check()
        for key, value in self.broker.take_journal():
            if value is None:
                self.disk.pop(key, None)
            else:
                self.disk[key] = value
        dirty = list(self.broker.dirty)
        self.broker.dirty.clear()
        for connection in dirty:
            data = b"".join(connection.out)
            connection.out.clear()
            client = self.online.get(connection)
            if client is None:
                continue
            client.hear(data)
            if connection.is_closed():
                client.closed = True
                del self.online[connection]
                self.broker.lost(connection, self.now)

    @contextmanager
    def one_turn(self) -> Iterator[None]:
        """All that happens inside belongs to one turn."""
        self._nested += 1
        yield
        self._nested -= 1
        self.turn()

    def wait(self, seconds: float) -> None:
        """Time passes; what is due happens when it is due."""
        until = self.now + seconds
        while (at := self.broker.next_timer()) <= until:
            self.now = max(self.now, at)
            self.broker.tick(self.now)
            self.turn()
        self.now = until
        self.broker.sweep(self.now)
        self.turn()

    def restart(self, after_s: float = 0.0) -> None:
        """The broker dies between two turns, and a new one reads the disk."""
        for client in self.online.values():
            client.closed = True
        self.online.clear()
        self.now += after_s
        self.broker = BrokerCore(self.settings, **self.options)
        self.broker.restore(list(self.disk.items()), self.now)
        self.check_quotas()
        self.turn()
        self.broker.tick(self.now)
        self.turn()

    def check(self) -> None:
        """Checks the end of a turn: accounts balance, bytes add up, references are right."""
        references: dict[int, int] = {}
        broker = self.broker
        for name, session in broker.sessions.by_key.items():
            assert name == session.key
            deliveries = [*in_flight(session).values(), *session.waiting]
            assert session.accounts.queued == session.queued == len(deliveries), f"{name}: {session.accounts}"
            assert session.bytes_queued == sum(d.message.size for d in deliveries), name
            assert session.persistent or session.connection is not None, name
            if session.connection is not None:
                assert session.connection.session is session
            if session.persistent:
                for delivery in deliveries:
                    references[id(delivery.message)] = references.get(id(delivery.message), 0) + 1
            if session.will is not None:
                assert session.will.message.references == 1, name
        retained = [broker.retained._messages.get(topic) for topic in broker.retained._messages if topic[0] != "$"]
        for message in retained:
            references[id(message)] = references.get(id(message), 0) + 1
        for message in retained:
            assert message is not None
            assert message.references == references[id(message)], message.topic
        for session in broker.sessions.by_key.values():
            for delivery in (*session.tracked.values(), *session.waiting):
                assert delivery.message.references == references.get(id(delivery.message), 0)

        self.check_quotas()

    def check_quotas(self) -> None:
        """Checks that what is counted for users, addresses and clients is what they have."""
        broker, counted = self.broker, Quotas(self.broker.settings)
        for session in broker.sessions.by_key.values():
            quota = session.quota
            counted.open(session)
            session.quota = quota
            shapes = Counter(shape_of(each.filter, each.share) for each in session.subscriptions.values())
            assert session.shapes == {shape: count for shape, count in shapes.items() if shape}
        assert vars(broker.routes.quotas) == vars(counted)
        messages = broker.retained.state()[0]
        assert broker.retained.bytes == sum(message.size for message in messages)
        assert broker.retained._counts == Counter(message.publisher for message in messages if message.publisher)

    def disk_counts(self) -> dict[str, int]:
        """How many records of each kind the disk has."""
        counts: dict[str, int] = {}
        for key in self.disk:
            counts[chr(key[0])] = counts.get(chr(key[0]), 0) + 1
        return counts


def in_flight(session: Session) -> dict[int, Delivery]:
    """What is in flight, without a change of how the session keeps it; that would make all later tests see one way."""
    plain = session.plain
    sizes = plain._sizes[plain._done :]
    assert len(sizes) == len(plain)
    return session.tracked | {n: hollow_delivery(size) for n, size in enumerate(sizes, plain.first)}


MakeWorld = Callable[..., World]


@pytest.fixture
def make_world() -> MakeWorld:
    """Makes a world; keyword arguments are settings of the broker, `options` are its other arguments."""

    def make(options: dict[str, Any] | None = None, **settings: Any) -> World:
        return World(BrokerSettings(**settings) if settings else None, **(options or {}))

    return make


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    """A world with the usual settings."""
    return make_world()


@pytest.fixture(params=[V311, V5], ids=["v311", "v5"])
def version(request: pytest.FixtureRequest) -> int:
    """Both protocol versions."""
    return int(request.param)
