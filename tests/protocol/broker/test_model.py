"""Random histories against a deliberately dumb model of what each session must get.

Many clients of both versions publish, subscribe, acknowledge now or later, vanish, take each other over and come back;
the broker dies between any two turns, before or after its last commit. The clients are well-behaved ones: they keep
their own half of the QoS 2 state and repeat what was not acknowledged. At the end of every turn the accounts balance
(`World.check`); at the end of a session it has got what the model says, in the model's order; and when all is
over, nothing is left on disk.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.seeds import seeds

from surecast.protocol.mqtt import (
    V5,
    V311,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Unsuback,
    Unsubscribe,
    Will,
    encode,
)

TOPICS = ("a", "a/b", "a/c", "b/c")
FILTERS = ("a", "a/b", "a/+", "+/c", "#", "a/#", "$share/g/b/c")


def matches(filter: str, topic: str) -> bool:
    """Section 4.7, level by level."""
    wanted, levels = filter.split("/"), topic.split("/")
    for at, want in enumerate(wanted):
        if want == "#":
            return True
        if at >= len(levels) or want not in ("+", levels[at]):
            return False
    return len(wanted) == len(levels)


@dataclass
class Expected:
    """What the model says of one session: copies of messages in order, and whether each may be missing."""

    lifetime_s: float
    filters: dict[str, int] = field(default_factory=dict)
    received: set[int] = field(default_factory=set)
    copies: list[tuple[bytes, int, bool]] = field(default_factory=list)
    got: list[tuple[bytes, int, bool]] = field(default_factory=list)
    unordered: set[bytes] = field(default_factory=set)
    shared: dict[bytes, int] = field(default_factory=dict)
    gone_at: float | None = None

    def check(self, complete: bool) -> None:
        """What came is what was expected: at QoS 2 once, at QoS 1 once or more and in order at its first coming."""
        first_come = list(dict.fromkeys(payload for payload, qos, _ in self.got if qos))
        wanted = list(dict.fromkeys(payload for payload, qos, _ in self.copies if qos))
        assert set(first_come) <= set(wanted), "never expected"
        in_order = [p for p in first_come if p not in self.unordered]
        assert [p for p in wanted if p in set(in_order)] == in_order, "out of order"
        for payload in {p for p, qos, _ in self.got if qos == 2}:
            times = sum(p == payload and qos == 2 for p, qos, _ in self.got)
            assert times <= sum(p == payload and qos == 2 for p, qos, _ in self.copies), (
                f"{payload!r} came {times} times"
            )
        if complete:
            must = {payload for payload, qos, may_miss in self.copies if qos and not may_miss}
            assert must <= set(first_come), f"lost: {must - set(first_come)}"
        allowed = {payload for payload, _, _ in self.copies}
        assert {payload for payload, qos, _ in self.got if not qos} <= allowed


class Actor:
    """A well-behaved client with a memory of its own."""

    def __init__(self, story: Story, name: str, version: int):
        self.story, self.name, self.version = story, name, version
        self.client = story.world.client(name, version)
        self.lifetime_s = 0.0
        self.unacked: dict[int, tuple[Publish, bool]] = {}
        self.half: set[int] = set()
        self.later: list[Packet] = []
        self.next_id = 0

    @property
    def up(self) -> bool:
        return not self.client.closed

    def connect(self, clean: bool, lifetime_s: float, window: int) -> None:
        story = self.story
        if self.version == V311:
            clean = lifetime_s == 0
            lifetime_s = 0.0 if clean else 1e12
        properties = Properties()
        if self.version == V5:
            expiry = 0xFFFF_FFFF if lifetime_s > 1e9 else int(lifetime_s)
            properties = Properties(session_expiry_s=expiry, receive_maximum=window)
        will = Will("w", b"will", story.rng.randrange(3)) if story.rng.random() < 0.3 else None
        story.connected(self.name, clean, lifetime_s)
        self.client.open()
        self.later.clear()
        self.client.send(Connect(self.name, clean, 0, will=will, properties=properties, version=self.version))
        connack = self.client.inbox.pop(0)
        assert isinstance(connack, Connack)
        assert connack.session_present == story.was_present, self.name
        if connack.session_present:
            again = [Pubrel(n) if done else _again(p) for n, (p, done) in self.unacked.items()]
            for packet in again:
                if isinstance(packet, Publish):
                    story.processed(self.name, packet)
                else:
                    story.sessions[self.name].received.discard(packet.packet_id)
            if again:
                self.client.send(*again)
        else:
            self.unacked.clear()
            self.half.clear()
        self.read()

    def publish(self, packets: list[Publish], crash: str) -> None:
        """Sends messages in one write; the broker may die before or after it has committed them."""
        for packet in packets:
            if packet.qos:
                self.unacked[packet.packet_id] = (packet, False)
        if crash:
            story = self.story
            story.world.broker.receive(
                self.client.connection, b"".join(encode(p, self.version) for p in packets), story.world.now
            )
            if crash == "after":
                for packet in packets:
                    story.processed(self.name, packet)
                story.commit()
            story.died()
            return
        for packet in packets:
            self.story.processed(self.name, packet)
        self.client.send(*packets)

    def make(self, topic: str, qos: int, retain: bool, expires: bool) -> Publish:
        number = 0
        if qos:
            self.next_id = next(
                n % 999 + 1 for n in range(self.next_id, self.next_id + 999) if n % 999 + 1 not in self.unacked
            )
            number = self.next_id
        properties = Properties(message_expiry_s=20) if self.version == V5 and expires else Properties()
        self.story.count += 1
        return Publish(topic, b"%d" % self.story.count, qos, retain, packet_id=number, properties=properties)

    def read(self) -> None:
        """Looks at what came and acknowledges some of it, now or later; what is late is lost with the connection."""
        session = self.story.sessions.get(self.name)
        for packet in self.client.take():
            if isinstance(packet, Publish):
                assert packet.payload != b"" or packet.qos == 0
                fresh = packet.qos < 2 or packet.packet_id not in self.half
                if packet.qos == 2:
                    self.half.add(packet.packet_id)
                if packet.qos:
                    self.later.append(Puback(packet.packet_id) if packet.qos == 1 else Pubrec(packet.packet_id))
                self.story.arrived += 1
                if fresh and packet.topic != "w" and session is not None:
                    session.got.append((packet.payload, packet.qos, packet.dup))
            elif isinstance(packet, Pubrel):
                self.half.discard(packet.packet_id)
                self.later.append(Pubcomp(packet.packet_id))
            elif isinstance(packet, Puback | Pubcomp):
                self.unacked.pop(packet.packet_id, None)
            elif isinstance(packet, Pubrec):
                if packet.reason >= 0x80:
                    self.unacked.pop(packet.packet_id, None)
                    self.story.sessions[self.name].received.discard(packet.packet_id)
                elif packet.packet_id in self.unacked:
                    self.unacked[packet.packet_id] = (self.unacked[packet.packet_id][0], True)
                    self.later.append(Pubrel(packet.packet_id))
            else:
                assert isinstance(packet, Suback | Unsuback | Disconnect), packet

    def answer(self, share: float) -> None:
        """Sends the first part of what it has to acknowledge."""
        count = round(share * len(self.later))
        now, self.later = self.later[:count], self.later[count:]
        if now and self.up:
            for packet in now:
                if isinstance(packet, Pubrel):
                    self.story.sessions[self.name].received.discard(packet.packet_id)
            self.client.send(*now)
            self.read()


def _again(packet: Publish) -> Publish:
    return Publish(packet.topic, packet.payload, packet.qos, packet.retain, True, packet.packet_id, packet.properties)


class Story:
    """One random history and the dumb model beside it."""

    def __init__(self, world: Any, seed: int, lossy: bool = False):
        self.world = world
        self.lossy = lossy
        self.rng = random.Random(seed)
        self.count = 0
        self.arrived = 0
        self.dropped = 0
        self.sessions: dict[str, Expected] = {}
        self.retained: dict[str, tuple[bytes, int, float]] = {}
        self.was_present = False
        self.actors = [Actor(self, f"c{i}", V5 if self.rng.random() < 0.5 else V311) for i in range(6)]

    # The model.

    def connected(self, name: str, clean: bool, lifetime_s: float) -> None:
        session = self.sessions.get(name)
        if session is not None and session.gone_at is None:
            self.gone(name)
            session = self.sessions.get(name)
        self.was_present = session is not None and not clean
        if session is None or clean:
            self.ended(name)
            session = self.sessions[name] = Expected(lifetime_s)
        session.lifetime_s, session.gone_at = lifetime_s, None

    def gone(self, name: str) -> None:
        session = self.sessions.get(name)
        if session is not None and session.gone_at is None:
            session.gone_at = self.world.now
            if not session.lifetime_s:
                self.ended(name)

    def ended(self, name: str) -> None:
        session = self.sessions.pop(name, None)
        if session is not None:
            session.check(complete=False)
            # What it had by a shared subscription goes to another member (section 4.8.2).
            for other in self.sessions.values():
                for payload, qos in session.shared.items():
                    self.share(other, payload, qos)

    def pass_time(self) -> None:
        for name, session in list(self.sessions.items()):
            if session.gone_at is not None and session.gone_at + session.lifetime_s <= self.world.now:
                self.ended(name)

    def processed(self, publisher: str, packet: Publish) -> None:
        """The broker takes a message: every session that wants it is to get a copy."""
        received = self.sessions[publisher].received
        if packet.qos == 2:
            if packet.packet_id in received and not self.world.broker.incoming.rejects:
                return  # where a full queue rejects, the model does not know which repetition was taken
            received.add(packet.packet_id)
        may_miss = self.lossy or packet.properties.message_expiry_s is not None
        if packet.retain:
            self.retained.pop(packet.topic, None)
            if packet.payload:
                ends_at = self.world.now + 20 if packet.properties.message_expiry_s is not None else 1e99
                self.retained[packet.topic] = (packet.payload, packet.qos, ends_at)
        for session in self.sessions.values():
            shared = any(f.startswith("$share") for f in session.filters) and packet.topic == "b/c"
            granted = [qos for wanted, qos in session.filters.items() if matches(wanted, packet.topic)]
            if self.lossy and packet.dup:
                session.unordered.add(packet.payload)  # the first copy may be the one that was dropped
            if granted:
                session.copies.append((packet.payload, min(packet.qos, max(granted)), may_miss))
            if shared:
                self.share(session, packet.payload, packet.qos)

    def share(self, session: Expected, payload: bytes, qos: int) -> None:
        """A member of the shared subscription may get a message."""
        granted = next((granted for f, granted in session.filters.items() if f.startswith("$share")), None)
        if granted is not None:
            session.copies.append((payload, min(qos, granted), True))
            session.unordered.add(payload)  # the first copy of one that is sent twice may go to another
            session.shared[payload] = qos

    def subscribed(self, name: str, filter: str, qos: int) -> None:
        session = self.sessions[name]
        session.filters[filter] = qos
        for topic, (payload, published, ends_at) in self.retained.items():
            if matches(filter, topic) and ends_at > self.world.now:
                session.copies.append((payload, min(published, qos), self.lossy or ends_at < 1e99))
                session.unordered.add(payload)

    # Steps.

    def commit(self) -> None:
        """The broker commits, and dies before it sends anything."""
        for key, value in self.world.broker.take_journal():
            if value is None:
                self.world.disk.pop(key, None)
            else:
                self.world.disk[key] = value

    def died(self, after_s: float = 0.0) -> None:
        self.dropped += self.world.broker.accounts().dropped_total
        self.world.restart(after_s)
        # Who was connected counts as gone since the broker is back.
        for actor in self.actors:
            self.gone(actor.name)
        self.pass_time()

    def step(self) -> None:
        rng, actor = self.rng, self.rng.choice(self.actors)
        what = rng.random()
        if not actor.up:
            if what < 0.5:
                actor.connect(rng.random() < 0.15, rng.choice((0.0, 50.0, 1e12, 1e12)), rng.choice((1, 2, 5, 100)))
        elif what < 0.45:
            self.publish(actor)
        elif what < 0.70:
            actor.answer(rng.choice((0.3, 1.0, 1.0)))
        elif what < 0.80:
            wanted, qos = rng.choice(FILTERS), rng.randrange(3)
            actor.client.send(Subscribe(1_000, (SubscriptionRequest(wanted, qos),)))
            self.subscribed(actor.name, wanted, qos)
        elif what < 0.85:
            unwanted = rng.choice(FILTERS)
            self.sessions[actor.name].filters.pop(unwanted, None)
            actor.client.send(Unsubscribe(1_001, (unwanted,)))
        elif what < 0.90:
            self.gone(actor.name)
            actor.client.drop() if rng.random() < 0.5 else actor.client.disconnect()
        elif what < 0.93:
            actor.connect(rng.random() < 0.2, rng.choice((0.0, 50.0, 1e12)), rng.choice((1, 3, 100)))
        elif what < 0.96:
            self.world.wait(rng.choice((1.0, 15.0, 60.0)))
            self.pass_time()
        elif what < 0.967:
            self.died(rng.choice((0.0, 10.0, 60.0)))
        for other in self.actors:
            other.read()

    def publish(self, actor: Actor) -> None:
        rng = self.rng
        topic, qos = rng.choice(TOPICS), rng.randrange(3)
        retain, expires = rng.random() < 0.1, rng.random() < 0.15
        if retain and topic == "b/c":
            retain = False
        packets = [actor.make(topic, qos, retain, expires) for _ in range(rng.choice((1, 1, 2, 5, 9)))]
        crash = rng.choice(("before", "after")) if rng.random() < 0.02 else ""
        actor.publish(packets, crash)

    def finish(self) -> None:
        """Everybody comes back, everything is acknowledged, all must be there; then all ends, and the disk is empty."""
        for actor in self.actors:
            if actor.name in self.sessions:
                if not actor.up:
                    actor.connect(False, 1e12, 100)
                else:
                    actor.read()
        while any(actor.later or actor.client.inbox for actor in self.actors):
            for actor in self.actors:
                actor.read()
                actor.answer(1.0)
        for name, session in self.sessions.items():
            assert self.world.broker.sessions.by_key[name].queued == 0
            session.check(complete=True)
        cleaner = self.world.client("cleaner").online()
        for topic in list(self.world.broker.retained._messages):
            cleaner.publish(topic, b"", retain=True)
        cleaner.disconnect()
        for actor in self.actors:
            actor.client.connect(True)
            actor.client.disconnect()
        assert self.world.disk == {}
        assert self.world.broker.sessions.by_key == {}
        accounts = self.world.broker.accounts()
        assert accounts.queued == 0
        assert self.world.broker.routes.count == 0


@pytest.mark.parametrize("seed", seeds(24, range(60)))
def test_random_histories(make_world: Any, seed: int) -> None:
    story = Story(make_world(), seed)
    for _ in range(400):
        story.step()
    story.finish()
    assert story.arrived > 300


@pytest.mark.parametrize("overflow", ["drop-new", "drop-old", "reject", "expire-first"])
@pytest.mark.parametrize("seed", range(3))
def test_random_histories_with_short_queues(make_world: Any, overflow: str, seed: int) -> None:
    """Queues that overflow lose messages, and count them: the accounts balance in every turn, and order is kept."""
    world = make_world(queue_messages_max=5, queue_bytes_max=60, inflight_max=3, overflow=overflow)
    story = Story(world, 100 + seed, lossy=True)
    for _ in range(300):
        story.step()
    story.finish()
    assert story.dropped + world.broker.accounts().dropped_total > 0
