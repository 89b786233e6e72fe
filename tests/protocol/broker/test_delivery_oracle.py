"""What clients get equals what a deliberately simple broker gives them, which knows one message at a time and no batch.

Random reads mix messages of every QoS, topics, lengths, retain flags, topic aliases and user properties with
acknowledgements; subscribers of both protocol versions have narrow windows, short queues, small packets, content
filters, several subscriptions to one topic, shared ones, or none of their own messages. They fall behind, leave, come
back and are congested. After every step each client must have got the same messages in the same order with the same
identifiers, and the accounts must agree. That the comparison would notice is shown by breaking the broker.
"""

from __future__ import annotations

import random
import struct
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.seeds import seeds

from surecast.protocol.broker.acknowledging import Acknowledging
from surecast.protocol.broker.fan_out import FanOut
from surecast.protocol.broker.message import Delivery
from surecast.protocol.broker.message_batch import MessageBatch
from surecast.protocol.broker.outgoing import Outgoing
from surecast.protocol.broker.plain_flight import PlainFlight
from surecast.protocol.broker.session import Session
from surecast.protocol.broker.waiting_queue import WaitingQueue, WaitingRun
from surecast.protocol.mqtt import (
    NO_PROPERTIES,
    V5,
    V311,
    Connack,
    Packet,
    PacketError,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    PublishBatch,
    Pubrec,
    Pubrel,
    ReasonCode,
    Suback,
    Subscribe,
    SubscriptionRequest,
    encode,
)

TOPICS = ("a", "a/b", "a/c", "b/c", "deep/" + "t" * 150)
FILTERS = ("a", "a/b", "a/+", "+/c", "#", "a/#", "deep/#")
NO_MATCH = ReasonCode.NO_MATCHING_SUBSCRIBERS


@dataclass(eq=False)
class Wanted:
    """A subscription of the simple broker."""

    filter: str
    qos: int
    no_local: bool = False
    as_published: bool = False
    identifier: int = 0
    threshold: int | None = None

    def takes(self, publisher: str, packet: Publish) -> bool:
        """MQTT 5.0, sections 4.7 and 3.8.3.1; a content filter asks for `x` above a threshold."""
        if not matches(self.filter, packet.topic) or (self.no_local and publisher):
            return False
        values = [int(value) for name, value in packet.properties.user if name == "x"]
        return self.threshold is None or any(value > self.threshold for value in values)


def matches(wanted: str, topic: str) -> bool:
    """Section 4.7, level by level."""
    parts, levels = wanted.split("/"), topic.split("/")
    for at, part in enumerate(parts):
        if part == "#":
            return True
        if at >= len(levels) or part not in ("+", levels[at]):
            return False
    return len(parts) == len(levels)


@dataclass(eq=False)
class Copy:
    """A message on its way to one session of the simple broker."""

    packet: Publish
    size: int
    released: bool = False


@dataclass(eq=False)
class Simple:
    """A session of the simple broker."""

    name: str
    version: int
    lasting: bool
    window: int
    packet_max: int
    is_connected: bool = True
    is_congested: bool = False
    wanted: list[Wanted] = field(default_factory=list)
    inflight: dict[int, Copy] = field(default_factory=dict)
    waiting: list[Copy] = field(default_factory=list)
    received: set[int] = field(default_factory=set)
    last_id: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    out: list[Packet] = field(default_factory=list)

    def send(self, copy: Copy, dup: bool = False) -> bool:
        """Writes a message; False if the client takes no packet as large."""
        p = copy.packet
        packet = Publish(p.topic, p.payload, p.qos, p.retain, dup, p.packet_id, p.properties)
        if len(encode(packet, self.version)) > self.packet_max:
            return False
        self.out.append(packet)
        return True

    def fill(self) -> None:
        """Sends one message after the other, while the window has room."""
        while self.is_connected and self.waiting and len(self.inflight) < self.window:
            copy, before = self.waiting.pop(0), self.last_id
            self.last_id = self.last_id % 65_535 + 1
            while self.last_id in self.inflight:
                self.last_id = self.last_id % 65_535 + 1
            p = copy.packet
            copy.packet = Publish(p.topic, p.payload, p.qos, p.retain, False, self.last_id, p.properties)
            if self.send(copy):
                self.inflight[self.last_id] = copy
            else:
                self.last_id = before
                self.counts["too-large"] += 1


class SimpleBroker:
    """A broker that takes one packet at a time, and each message to each session by itself."""

    def __init__(self, queue_max: int):
        self.queue_max = queue_max
        self.sessions: dict[str, Simple] = {}
        self.members: list[Simple] = []
        self.turn = 0

    def hear(self, session: Simple, packet: Packet) -> None:
        """Takes a packet of a client."""
        if isinstance(packet, Publish):
            self.publish(session, packet)
        elif isinstance(packet, Pubrel):
            known = packet.packet_id in session.received
            session.received.discard(packet.packet_id)
            reason = ReasonCode.SUCCESS if known or session.version != V5 else ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
            session.out.append(Pubcomp(packet.packet_id, reason))
        else:
            assert isinstance(packet, (Puback, Pubrec, Pubcomp))
            copy = session.inflight.get(packet.packet_id)
            if copy is None:
                return
            if isinstance(packet, Pubrec) and packet.reason < 0x80:
                copy.released = True
                session.out.append(Pubrel(packet.packet_id))
                return
            del session.inflight[packet.packet_id]
            session.counts["rejected" if packet.reason >= 0x80 else "delivered"] += 1
            session.fill()

    def publish(self, sender: Simple, packet: Publish) -> None:
        """Gives a message to each session that wants it."""
        if packet.qos == 2 and packet.packet_id in sender.received:
            sender.out.append(Pubrec(packet.packet_id))
            return
        receivers = 0
        for session in self.sessions.values():
            chosen = [w for w in session.wanted if w.takes(sender.name if sender is session else "", packet)]
            if chosen:
                receivers += 1
                self.deliver(session, packet, chosen)
        if self.members and packet.topic == "b/c":
            order = [(self.turn + step) % len(self.members) for step in range(len(self.members))]
            ready = [at for at in order if self.members[at].is_connected and not self.members[at].is_congested]
            at = (ready or order)[0]
            self.turn = (at + 1) % len(self.members)
            receivers += 1
            self.deliver(self.members[at], packet, [Wanted("b/c", 1)])
        reason = NO_MATCH if not receivers and sender.version == V5 else ReasonCode.SUCCESS
        if packet.qos == 1:
            sender.out.append(Puback(packet.packet_id, reason))
        elif packet.qos == 2:
            sender.received.add(packet.packet_id)
            sender.out.append(Pubrec(packet.packet_id, reason))

    def deliver(self, session: Simple, packet: Publish, chosen: list[Wanted]) -> None:
        """Gives a message to one session."""
        qos = min(packet.qos, max(wanted.qos for wanted in chosen))
        identifiers = tuple(wanted.identifier for wanted in chosen if wanted.identifier)
        properties = Properties(user=packet.properties.user, subscription_ids=identifiers)
        retain = packet.retain and any(wanted.as_published for wanted in chosen)
        properties = properties if session.version == V5 else NO_PROPERTIES
        size = len(packet.payload) + 2 + len(packet.topic) + sum(5 + len(n) + len(v) for n, v in packet.properties.user)
        copy = Copy(Publish(packet.topic, packet.payload, qos, retain, properties=properties), size)
        session.counts["matched"] += 1
        if qos == 0 and (session.is_congested or not session.is_connected):
            session.counts["slow-qos0" if session.is_connected else "offline-qos0"] += 1
        elif qos == 0:
            session.counts["delivered" if session.send(copy) else "too-large"] += 1
        elif len(session.inflight) + len(session.waiting) >= self.queue_max:
            session.counts["queue-full"] += 1
        else:
            session.waiting.append(copy)
            session.fill()

    def leave(self, session: Simple) -> None:
        """The connection of a client is gone."""
        session.is_connected = session.is_congested = False
        session.out.clear()
        if not session.lasting:
            del self.sessions[session.name]

    def come_back(self, session: Simple) -> None:
        """A client is there again: what is in flight is sent again, then what waits."""
        session.is_connected = True
        for identifier, copy in session.inflight.items():
            if copy.released:
                session.out.append(Pubrel(identifier))
            else:
                assert session.send(copy, dup=True)
        session.fill()


class Story:
    """The broker and the simple one, driven together."""

    def __init__(self, make_world: Any, seed: int):
        self.rng = rng = random.Random(seed)
        self.simple = SimpleBroker(rng.choice((6, 40, 10_000)))
        self.world = make_world(queue_messages_max=self.simple.queue_max, receive_maximum=65_535)
        self.clients: dict[str, Any] = {}
        self.options: dict[str, dict[str, Any]] = {}
        self.aliases: dict[str, dict[int, str]] = {}
        self.heard_aliases: dict[str, dict[int, str]] = {}
        self.todo: dict[str, list[Packet]] = {}
        self.next_id = 1
        for number in range(7):
            self.connect(f"c{number}", rng.choice((V311, V5)), lasting=rng.random() < 0.4)
            for _ in range(rng.choice((0, 1, 1, 2))):
                self.subscribe(f"c{number}")
        for number in range(rng.choice((0, 0, 2, 3))):
            name = f"member-{number}"
            self.connect(name, V5, lasting=True)
            self.clients[name].send(Subscribe(1, (SubscriptionRequest("$share/g/b/c", 1),)))
            self.simple.members.append(self.simple.sessions[name])
        self.compare()

    def connect(self, name: str, version: int, lasting: bool) -> None:
        rng = self.rng
        self.clients[name] = client = self.world.client(name, version)
        window = rng.choice((1, 3, 20, 1_000)) if version == V5 else 1_000
        packet_max = rng.choice((60, 180, 1 << 30)) if version == V5 and rng.random() < 0.4 else 1 << 30
        properties: dict[str, Any] = {}
        if version == V5:
            properties = {"receive_maximum": window, "session_expiry_s": 0xFFFF_FFFF if lasting else 0}
            if packet_max < 1 << 30:
                properties["maximum_packet_size"] = packet_max
            elif rng.random() < 0.3:
                properties["topic_alias_maximum"] = rng.choice((1, 3))
        self.options[name] = properties
        client.connect(not lasting, **properties)
        self.simple.sessions[name] = Simple(name, version, lasting, window, packet_max)
        self.aliases[name], self.heard_aliases[name], self.todo[name] = {}, {}, []

    def subscribe(self, name: str) -> None:
        rng, client, session = self.rng, self.clients[name], self.simple.sessions[name]
        known = {wanted.filter for wanted in session.wanted}
        wanted = Wanted(rng.choice([each for each in FILTERS if each not in known]), rng.randrange(3))
        properties = NO_PROPERTIES
        if client.version == V5:
            wanted.no_local, wanted.as_published = rng.random() < 0.2, rng.random() < 0.3
            wanted.identifier = rng.choice((0, 0, 0, rng.randrange(1, 300)))
            wanted.threshold = rng.choice((None, None, None, 3))
            content = () if wanted.threshold is None else (("filter", f"x > {wanted.threshold}"),)
            ids = (wanted.identifier,) if wanted.identifier else ()
            properties = Properties(subscription_ids=ids, user=content)
        handling = 2 if client.version == V5 else 0
        request = SubscriptionRequest(wanted.filter, wanted.qos, wanted.no_local, wanted.as_published, handling)
        client.send(Subscribe(60_000, (request,), properties))
        session.wanted.append(wanted)

    def step(self) -> None:
        """Something happens."""
        rng = self.rng
        name = rng.choice(list(self.clients))
        session, client, what = self.simple.sessions[name], self.clients[name], rng.random()
        if not session.is_connected:
            client.connect(False, **self.options[name])
            self.heard_aliases[name], self.aliases[name], self.todo[name] = {}, {}, []
            self.simple.come_back(session)
        elif what < 0.05 and session.lasting:
            client.drop()
            self.simple.leave(session)
            self.todo[name] = []
        elif what < 0.08:
            session.is_congested = not session.is_congested
            self.world.broker.set_congested(client.connection, session.is_congested)
        elif what < 0.12 and not session.inflight:
            session.last_id = self.world.broker.sessions.by_key[name].next_identifier = 65_525
        elif what < 0.16 and client.version == V5 and len(session.wanted) < 4 and session not in self.simple.members:
            self.subscribe(name)
        else:
            self.read(name, [*self.answers(name), *(self.burst(name) if rng.random() < 0.7 else ())])
        self.compare()

    def answers(self, name: str) -> list[Packet]:
        """Some of what a client still has to say to what it got."""
        count = self.rng.choice((0, 1, 5, 1_000, 1_000))
        said, self.todo[name] = self.todo[name][:count], self.todo[name][count:]
        return said

    def burst(self, name: str) -> list[Packet]:
        """Messages as a busy client sends them; with an alias, the topic is left out of what is sent."""
        rng, version = self.rng, self.clients[name].version
        packets: list[Packet] = []
        qos, topic, size = rng.choice((0, 1, 1, 2)), rng.choice(TOPICS), rng.choice((0, 3, 50, 130))
        keeps = rng.choice((0.5, 0.9, 1.0, 1.0))
        mixes, varies = rng.random() < 0.5, rng.random() < 0.5
        for _ in range(rng.choice((1, 2, 9, 40))):
            qos = qos if rng.random() < keeps else rng.choice((0, 1, 2))
            topic = rng.choice(TOPICS) if mixes else topic
            size = rng.choice((0, 3, 50, 130, 3_000 * (rng.random() < 0.05))) if varies else size
            self.next_id = self.next_id % 60_000 + 1
            user = (("x", str(rng.randrange(8))),) if version == V5 and rng.random() > keeps else ()
            alias = rng.randrange(1, 4) if version == V5 and rng.random() > keeps else None
            properties = Properties(user=user, topic_alias=alias) if user or alias else NO_PROPERTIES
            retain = rng.random() > max(0.9, keeps) and self.is_late
            payload = (b"%d " % self.next_id).ljust(size, b".")[:size]
            packets.append(Publish(topic, payload, qos, retain, False, self.next_id if qos else 0, properties))
        return packets

    is_late = False
    """Whether nobody of 3.1.1 will subscribe any more, who would get retained messages."""

    def read(self, name: str, packets: list[Packet]) -> None:
        """A client sends packets, which are read in one or two pieces."""
        client, session, aliases = self.clients[name], self.simple.sessions[name], self.aliases[name]
        data = b""
        for packet in packets:
            sent = packet
            if isinstance(packet, Publish) and (alias := packet.properties.topic_alias):
                topic = "" if aliases.get(alias) == packet.topic else packet.topic
                aliases[alias] = packet.topic
                p = packet
                sent = Publish(topic, p.payload, p.qos, p.retain, p.dup, p.packet_id, p.properties)
            data += encode(sent, client.version)
        cut = self.rng.randrange(len(data) + 1) if self.rng.random() < 0.4 else 0
        with self.world.one_turn():
            client.send(data[:cut])
            client.send(data[cut:])
        for packet in packets:
            self.simple.hear(session, packet)

    def compare(self) -> None:
        """Both brokers have said the same to everybody, and their accounts agree."""
        self.world.broker.accounts()
        for name, client in self.clients.items():
            session = self.simple.sessions[name]
            said = [self.plain(name, packet) for packet in client.take() if not isinstance(packet, (Connack, Suback))]
            expected, session.out = session.out, []
            assert in_two(said) == in_two(expected), name
            for packet in said:
                self.todo[name] += self.answer(packet, client.version)
            found = self.world.broker.sessions.by_key[name]
            counts = {key: count for key, count in session.counts.items() if count}
            accounts = found.accounts
            assert {"matched": accounts.matched, "delivered": accounts.delivered} | accounts.dropped == {
                "matched": 0, "delivered": 0} | counts, name  # fmt: skip
            copies = [*session.inflight.values(), *session.waiting]
            assert found.bytes_queued == sum(copy.size for copy in copies), name
            assert accounts.queued == len(copies), name
            plain = found.plain  # not `inflight`, which would change how the session keeps what is in flight
            assert [*found.tracked, *range(plain.first, plain.after)] == [*session.inflight], name

    def plain(self, name: str, packet: Packet) -> Packet:
        """What a client got, with the topic that an alias stands for and without the alias."""
        if not isinstance(packet, Publish):
            return packet
        p, alias = packet, packet.properties.topic_alias
        topic = self.heard_aliases[name].get(alias or 0, "") if alias and not p.topic else p.topic
        if alias:
            self.heard_aliases[name][alias] = topic
        properties = Properties(user=p.properties.user, subscription_ids=p.properties.subscription_ids)
        return Publish(topic, p.payload, p.qos, p.retain, p.dup, p.packet_id, properties)

    def answer(self, packet: Packet, version: int) -> list[Packet]:
        """What a client says to a packet; one of MQTT 5 may refuse a message."""
        if isinstance(packet, Publish) and packet.qos:
            is_bad = version == V5 and self.rng.random() < 0.02
            reason = ReasonCode.UNSPECIFIED_ERROR if is_bad else ReasonCode.SUCCESS
            return [(Puback if packet.qos == 1 else Pubrec)(packet.packet_id, reason)]
        if isinstance(packet, Pubrec):
            return [Pubrel(packet.packet_id)]
        return [Pubcomp(packet.packet_id)] if isinstance(packet, Pubrel) else []


def in_two(packets: list[Packet]) -> tuple[list[Any], list[Any]]:
    """Answers to what a client sent, and what it is sent: how the two interleave is left open."""
    answers = [p for p in packets if isinstance(p, (Puback, Pubrec, Pubcomp))]
    others = [p for p in packets if not isinstance(p, (Puback, Pubrec, Pubcomp))]
    return answers, [content(p) for p in others]


def content(packet: Packet) -> Any:
    """A packet in which the order of subscription identifiers is left open, as in section 3.3.4."""
    if not isinstance(packet, Publish):
        return packet
    p = packet
    ids = sorted(p.properties.subscription_ids)
    return p.topic, p.payload, p.qos, p.retain, p.dup, p.packet_id, p.properties.user, ids


def run(make_world: Any, seed: int, steps: int = 70) -> Story:
    story = Story(make_world, seed)
    for number in range(steps):
        story.is_late = number > steps // 2
        story.step()
    return story


@pytest.mark.parametrize("seed", seeds(24, range(60)))
def test_everybody_gets_what_a_simple_broker_gives(make_world: Any, seed: int) -> None:
    story = run(make_world, seed)
    assert sum(session.counts["matched"] for session in story.simple.sessions.values()) > 100


def broken(name: str) -> tuple[type, str, Any]:
    """A way to break the broker: a class, the name of a method, and another one in its place."""
    numbered, sent_run, part = PublishBatch.renumbered, Outgoing._send_run, MessageBatch.part
    first = PlainFlight.take_first
    settled, taken, free = PlainFlight.acknowledge, Acknowledging._take_together, Session.free_identifiers
    return {
        "other messages are numbered": (PublishBatch, "renumbered", lambda b, n, x, y: numbered(b, n, 0, y - x)),
        "a window is one too large": (
            Outgoing, "_send_run", lambda o, s, c, run, room: sent_run(o, s, c, run, room + 1)),
        "what came last leaves first": (
            WaitingQueue, "popleft", lambda queue: WaitingQueue.unpacked(queue) and _pop(queue)),
        "versions are mixed up": (MessageBatch, "of_version", lambda source, version_5: source.batch),
        "a size is wrong": (PlainFlight, "acknowledge", lambda f, ids: (size := settled(f, ids)) and size + 1),
        "the size of the first is wrong": (PlainFlight, "take_first", lambda flight: first(flight) + 1),
        "identifiers are used twice": (Session, "free_identifiers", lambda s, n: (free(s, n)[0], n)),
        "a part begins too late": (MessageBatch, "part", lambda source, x, y: part(source, min(x + 1, y - 1), y)),
        "an acknowledgement is forgotten": (Acknowledging, "_take_together", lambda a, s, i, c: taken(a, s, i[1:], c)),
        "the quick way forgets others": (
            FanOut, "finish", lambda fan, qos: setattr(fan, "quick", (fan.groups or [None])[0])),
        "a run forgets where it is": (WaitingRun, "deliveries", lambda run: _as_if_first(run)),
    }[name]  # fmt: skip


def _pop(queue: WaitingQueue) -> Any:
    queue._count -= 1
    return queue.entries.pop()


def _as_if_first(run: WaitingRun) -> Any:
    for at in range(run.stop - run.begin):
        yield Delivery(run.source.messages[at], 1, False, (), run.sequence + at)


@pytest.mark.parametrize(
    "name",
    [
        "other messages are numbered", "a window is one too large", "what came last leaves first",
        "versions are mixed up", "a size is wrong", "the size of the first is wrong",
        "identifiers are used twice", "a part begins too late",
        "an acknowledgement is forgotten", "the quick way forgets others", "a run forgets where it is",
    ],
)  # fmt: skip
def test_a_broken_broker_is_found_out(make_world: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(*broken(name))
    with pytest.raises((AssertionError, PacketError, IndexError, struct.error)):
        deque((run(make_world, seed) for seed in range(60)), maxlen=0)
