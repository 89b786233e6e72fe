"""A broker that is replaced by a copy from its snapshot goes on as if nothing had happened.

Random traffic is made against one broker and written down, input by input. Another broker gets the same inputs and is
replaced now and then by a new one with the decoded state. All it says must be the same: what it sends to whom, what it
wants on disk, its accounts, when it wants to be woken, and its state at the end.
"""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from surecast.protocol.broker import (
    BrokerCore,
    BrokerSettings,
    ClientRule,
    Limits,
    LimitTable,
    Origin,
    Overrides,
    Phase,
    publish_system_topics,
)
from surecast.protocol.broker.snapshot import decode_state, encode_state
from surecast.protocol.mqtt import (
    NO_PROPERTIES,
    V5,
    V311,
    Connect,
    Disconnect,
    Packet,
    PacketDecoder,
    PacketError,
    Pingreq,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    ReasonCode,
    Subscribe,
    SubscriptionRequest,
    Unsubscribe,
    Will,
    encode,
)

TOPICS = ("a", "a/b", "a/c", "b/c", "b/c/d", "secret/x", "long/" + "x" * 300, "z", "b", "a/b/e/f")
FILTERS = ("a", "a/#", "+/b", "#", "b/+", "b/c", "a/+", "secret/x", "$SYS/#", "+", "long/#", "z", "b/#")
SHARED = ("$share/g/a/#", "$share/g/b/c", "$share/h/a/b", "$share/g/#")
CONTENT = ("price > 3", "price in [1, 5] and stock exists", 'stock startswith "F"')
START = 1_700_000_000.0

Input = tuple[Any, ...]


def may(user: str, client: str, action: str, topic: str) -> bool:
    """The access rules."""
    return not topic.startswith("secret") or client in ("c0", "c1")


class Log:
    """An observer that writes down all it is told."""

    def __init__(self) -> None:
        self.lines: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        def told(*arguments: Any) -> None:
            plain = [getattr(a, "client", None) or getattr(a, "topic", None) or str(a) for a in arguments]
            self.lines.append((name, *plain))

        return told


class Host:
    """The shell of a broker: gives it inputs, and after each of them looks at everything that comes out."""

    def __init__(self, seed: int):
        rng = random.Random(1_000 + seed)
        self.settings = BrokerSettings(
            queue_messages_max=rng.choice((4, 12, 10_000)),
            queue_bytes_max=rng.choice((80, 64 * 1024 * 1024)),
            overflow=("drop-new", "drop-old", "reject", "expire-first")[seed % 4],
            inflight_max=rng.choice((2, 5, 1_000)),
            receive_maximum=rng.choice((3, 1_000)),
            topic_alias_max=rng.choice((0, 2, 100)),
            retained_max=rng.choice((4, 1_000)),
            unsent_bytes_max=rng.choice((60, 16_000_000)),
            session_expiry_max_s=rng.choice((0, 40)),
            keep_alive_max_s=rng.choice((0, 30)),
            subscriptions_max=rng.choice((3, 10_000)),
            request_tokens_max=rng.choice((2, 100)),
        )
        self.limits = LimitTable(
            Limits.of(self.settings),
            {"web": Overrides(queue_messages_max=7, inflight_max=3, overflow="drop-old")},
            [
                ClientRule(Overrides(queue_messages_max=3, publish_rate_per_s=5.0), client="c3"),
                ClientRule(Overrides(packet_bytes_max=2_000), user="u*"),
            ],
        )
        self.authenticates = seed % 3 == 1
        self.observed = seed % 8 == 5
        self.log = Log()
        self.broker = self.new()

    def new(self) -> BrokerCore:
        return BrokerCore(
            self.settings,
            authorise=may,
            authenticates=self.authenticates,
            observer=self.log if self.observed else None,
            limits=self.limits,
        )

    def replace(self) -> None:
        """Puts a copy in the place of the broker."""
        data = encode_state(self.broker)
        self.broker = self.new()
        decode_state(self.broker, data)
        assert encode_state(self.broker) == data

    def apply(self, given: Input, now: float) -> Any:
        """One input, and all that comes of it."""
        kind, *arguments = given
        getattr(self, f"do_{kind}")(*arguments, now)
        broker = self.broker
        sent = {}
        for connection in sorted(broker.dirty, key=lambda c: c.number):
            sent[connection.number] = (b"".join(connection.out), connection.phase.name)
            connection.out.clear()
        broker.dirty.clear()
        lines, self.log.lines = self.log.lines, []
        notices = list(broker.counters.notices)
        broker.counters.notices.clear()
        return sent, broker.take_journal(), broker.next_timer(), broker.accounts().as_dict(), lines, notices

    def do_open(self, origin: Origin, now: float) -> None:
        self.broker.open(origin, now)

    def do_receive(self, number: int, data: bytes, now: float) -> None:
        self.broker.receive(self.broker.connections[number], data, now)

    def do_lost(self, number: int, now: float) -> None:
        self.broker.lost(self.broker.connections[number], now)

    def do_congested(self, number: int, congested: bool, now: float) -> None:
        self.broker.set_congested(self.broker.connections[number], congested)

    def do_check(self, right: bool, now: float) -> None:
        waiting, self.broker.checking = self.broker.checking, []
        for connection in waiting:
            if right:
                self.broker.admit(connection, f"u{connection.number % 2}", now)
            else:
                self.broker.refuse(connection, now)

    def do_tick(self, now: float) -> None:
        self.broker.tick(now)

    def do_sweep(self, now: float) -> None:
        self.broker.sweep(now)

    def do_system(self, now: float) -> None:
        self.broker.started_at = self.broker.started_at or now
        publish_system_topics(self.broker, "1", now)

    def do_end_session(self, client: str, now: float) -> None:
        self.broker.end_session(client, now)

    def do_remove(self, client: str, key: str, now: float) -> None:
        session = self.broker.sessions.by_key.get(client)
        if session is not None:
            self.broker.remove_subscription(session, key, now)

    def do_permissions(self, now: float) -> None:
        self.broker.permissions_changed()


class Peer:
    """The other end of one connection: reads what comes, and remembers what it should answer."""

    def __init__(self, version: int):
        self.version = version
        self.decoder = PacketDecoder(version=version, side="client")
        self.answers: list[Packet] = []
        self.next_id = 0
        self.congested = False


class Traffic:
    """Makes random inputs, and tries them on a broker at once since clients answer what they get."""

    def __init__(self, seed: int):
        self.rng = random.Random(seed)
        self.host = Host(seed)
        self.now = START
        self.peers: dict[int, Peer] = {}
        self.inputs: list[tuple[Input, float]] = []
        self.outcomes: list[Any] = []
        self.seen: Counter[str] = Counter()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    def give(self, *given: Any) -> None:
        outcome = self.host.apply(given, self.now)
        self.inputs.append((given, self.now))
        self.outcomes.append(outcome)
        for number, (data, phase) in outcome[0].items():
            if number in self.peers:
                self.hear(self.peers[number], data)
                if phase == "CLOSED":
                    del self.peers[number]
                    self.give("lost", number)

    def hear(self, peer: Peer, data: bytes) -> None:
        for packet in peer.decoder.feed(data):
            self.seen[type(packet).__name__] += 1
            if isinstance(packet, Publish):
                self.seen[f"QoS {packet.qos}"] += 1
                self.seen["aliased"] += packet.topic == ""
                self.seen["again"] += packet.dup
                bad = peer.version == V5 and self.rng.random() < 0.1
                reason = ReasonCode.QUOTA_EXCEEDED if bad else ReasonCode.SUCCESS
                if packet.qos == 1:
                    peer.answers.append(Puback(packet.packet_id, reason))
                elif packet.qos == 2:
                    peer.answers.append(Pubrec(packet.packet_id, reason))
            elif isinstance(packet, Pubrel):
                peer.answers.append(Pubcomp(packet.packet_id))
            elif isinstance(packet, Pubrec) and packet.reason < 0x80:
                peer.answers.append(Pubrel(packet.packet_id))

    def step(self) -> None:
        rng = self.rng
        what = rng.random()
        if rng.random() < 0.5:
            self.now += rng.choice((0.0, 0.001, 0.3, 1.5))
        if len(self.peers) < 3 or what < 0.09:
            self.connect()
        elif what < 0.13:
            self.elsewhere()
        elif what < 0.19:
            self.pass_time()
        else:
            number = rng.choice(list(self.peers))
            self.act(number, self.peers[number], rng.random())

    def elsewhere(self) -> None:
        """What no client does."""
        rng = self.rng
        kind = rng.randrange(4)
        if kind == 0:
            self.give("system")
        elif kind == 1:
            self.give("permissions")
        elif kind == 2 and rng.random() < 0.3:
            self.give("end_session", f"c{rng.randrange(6)}")
        else:
            self.give("remove", f"c{rng.randrange(6)}", rng.choice(FILTERS))

    def pass_time(self) -> None:
        self.now += self.rng.choice((1.0, 5.0, 12.0, 60.0))
        self.give("tick")
        if self.rng.random() < 0.6:
            self.give("sweep")

    def connect(self) -> None:
        rng = self.rng
        version = rng.choice((V311, V5))
        client = rng.choice(("c0", "c1", "c2", "c3", "c4", "c5", ""))
        lasting = rng.random() < 0.6 and bool(client)
        properties = NO_PROPERTIES
        will_properties = NO_PROPERTIES
        if version == V5:
            properties = Properties(
                session_expiry_s=rng.choice((5, 30, 0xFFFF_FFFF)) if lasting else None,
                receive_maximum=rng.choice((None, 1, 3)),
                topic_alias_maximum=rng.choice((None, None, 3)),
                maximum_packet_size=rng.choice((None, 60)),
                request_problem_information=rng.choice((None, False)),
                user=rng.choice(((), (("k", "v"),))),
            )
            will_properties = Properties(
                will_delay_s=rng.choice((None, 3, 20)), message_expiry_s=rng.choice((None, 9)), user=(("price", "4"),)
            )
        will = Will(rng.choice(TOPICS), b"will", rng.randrange(3), rng.random() < 0.3, will_properties)
        name = rng.choice((None, "name"))
        connect = Connect(
            client,
            rng.random() < 0.2 if version == V5 else not lasting,
            rng.choice((0, 0, 8)),
            name,
            b"password" if name else None,
            will if rng.random() < 0.4 else None,
            properties,
            version,
        )
        self.give("open", Origin(rng.choice(("default", "web")), f"peer-{len(self.inputs)}", ""))
        number = self.host.broker.next_connection
        peer = self.peers[number] = Peer(version)
        if rng.random() < 0.03:
            return
        data = encode(connect, version)
        if rng.random() < 0.4:
            data += b"".join(encode(p, version) for p in self.messages(peer)) + encode(Pingreq(), version)
        if rng.random() < 0.1:
            data += encode(Puback(5), version) * 3
        self.give("receive", number, data)
        if self.host.authenticates and rng.random() < 0.7:
            self.give("check", rng.random() < 0.9)

    def messages(self, peer: Peer) -> list[Publish]:
        """Some messages, often a run of like ones."""
        rng = self.rng
        topic, qos, retain = rng.choice(TOPICS), rng.randrange(3), rng.random() < 0.2
        properties = NO_PROPERTIES
        if peer.version == V5 and rng.random() < 0.4:
            properties = Properties(
                message_expiry_s=rng.choice((None, 2, 30)),
                topic_alias=rng.choice((None, None, 1, 2)),
                content_type=rng.choice((None, "application/json")),
                user=rng.choice(
                    (
                        (),
                        (("price", "4"), ("stock", "Foo")),
                        (("deadline-ms", "1500"),),
                        (("surecast-request", f"t{rng.randrange(4)}:{rng.randrange(9)}"),),
                        (("surecast-request", f"t{rng.randrange(4)}:{rng.choice((0, 3, 70, 100))}"),),
                    )
                ),
            )
            if properties.topic_alias and rng.random() < 0.5:
                topic = ""
        made = []
        for _ in range(rng.choice((1, 1, 2, 6))):
            peer.next_id = peer.next_id % 50 + 1
            payload = rng.choice((b"", b"x", b'{"price": 2}', b"twenty bytes and more", b"y"))
            dup = qos > 0 and rng.random() < 0.05
            made.append(Publish(topic, payload, qos, retain, dup, peer.next_id if qos else 0, properties))
        if rng.random() < 0.02:
            made = [Publish("z", b"large" * 500, packet_id=0)]
        elif rng.random() < 0.5:
            made = [Publish(m.topic, b"same", qos, retain, False, m.packet_id, properties) for m in made]
        return made

    def subscribe(self, peer: Peer) -> Subscribe:
        rng = self.rng
        wanted = rng.choice(SHARED if rng.random() < 0.3 else FILTERS)
        if peer.version == V311:
            return Subscribe(
                7, (SubscriptionRequest(wanted, rng.randrange(3)), SubscriptionRequest(rng.choice(FILTERS), 1))
            )
        content = rng.random() < 0.3
        properties = Properties(
            subscription_ids=(rng.randrange(1, 9),) if rng.random() < 0.4 else (),
            user=(("filter", rng.choice(CONTENT)),) if content else (),
        )
        no_local = rng.random() < 0.3 and not wanted.startswith("$share")
        return Subscribe(
            7,
            (SubscriptionRequest(wanted, rng.randrange(3), no_local, rng.random() < 0.3, rng.randrange(3)),),
            properties,
        )

    def act(self, number: int, peer: Peer, what: float) -> None:
        rng, packets = self.rng, []
        if what < 0.40:
            packets = [*self.messages(peer), *(self.messages(peer) if rng.random() < 0.3 else ())]
        elif what < 0.62:
            count = round(rng.choice((0.3, 1.0)) * len(peer.answers))
            packets, peer.answers = peer.answers[:count], peer.answers[count:]
        elif what < 0.82:
            packets = [self.subscribe(peer)]
        elif what < 0.86:
            packets = [Unsubscribe(8, (rng.choice(FILTERS + SHARED), rng.choice(FILTERS)))]
        elif what < 0.90:
            expiry = rng.choice((None, 0, 15)) if peer.version == V5 else None
            reason = rng.choice((ReasonCode.SUCCESS, ReasonCode.DISCONNECT_WITH_WILL_MESSAGE))
            packets = [Disconnect(reason, Properties(session_expiry_s=expiry) if expiry is not None else NO_PROPERTIES)]
        elif what < 0.95:
            peer.congested = not peer.congested
            self.give("congested", number, peer.congested)
        elif what < 0.97:
            del self.peers[number]
            self.give("lost", number)
        elif what < 0.98:
            self.give("receive", number, b"\xd0\x00")
        elif self.host.authenticates:
            self.give("check", rng.random() < 0.9)
        if packets:
            self.give("receive", number, b"".join(encode(packet, peer.version) for packet in packets))


def replay(seed: int, traffic: Traffic, share: float) -> Host:
    """Gives the inputs of some traffic to another broker that is replaced at random; all outcomes must be the same."""
    host, rng = Host(seed), random.Random(seed)
    for place, ((given, now), outcome) in enumerate(zip(traffic.inputs, traffic.outcomes, strict=True)):
        if rng.random() < share:
            host.replace()
        assert host.apply(given, now) == outcome, f"seed {seed}, input {place}: {given}"
    return host


class Home(Host):
    """Decodes what open connections send by itself, and hands in packets."""

    readers: dict[int, PacketDecoder]

    def do_receive(self, number: int, data: bytes, now: float) -> None:
        connection = self.broker.connections[number]
        if connection.phase is Phase.OPEN:
            limit, version = connection.limits.packet_bytes_max, V5 if connection.version_5 else V311
            reader = self.readers.setdefault(number, PacketDecoder(limit, version))
            try:
                packets = reader.feed_batches(data)
            except PacketError:
                pass
            else:
                self.broker.handle(connection, packets, len(data), now)
                return
        self.broker.receive(connection, data, now)


@pytest.mark.parametrize("seed", range(100, 112))
def test_packets_may_be_decoded_elsewhere(seed: int) -> None:
    """The replica that a client is connected to decodes once, the others decode what they are sent: all is the same."""
    traffic = Traffic(seed)
    traffic.run(350)
    home = Home(seed)
    home.readers = {}
    for place, ((given, now), outcome) in enumerate(zip(traffic.inputs, traffic.outcomes, strict=True)):
        assert home.apply(given, now) == outcome, f"seed {seed}, input {place}: {given}"
    assert encode_state(home.broker) == encode_state(traffic.host.broker)


@pytest.mark.parametrize("seed", range(200, 206))
def test_when_bytes_are_sent_makes_no_difference(seed: int) -> None:
    """Each replica sends at its own times, and only to its own clients: what is unsent must not count."""
    traffic = Traffic(seed)
    traffic.run(350)
    lazy = Host(seed)
    for given, now in traffic.inputs:
        kind, *arguments = given
        getattr(lazy, f"do_{kind}")(*arguments, now)
    assert encode_state(lazy.broker) == encode_state(traffic.host.broker)


@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(12, 40))])
def test_a_copy_goes_on_as_the_original(seed: int) -> None:
    traffic = Traffic(seed)
    traffic.run(350)
    copy = replay(seed, traffic, 0.15)
    assert encode_state(copy.broker) == encode_state(traffic.host.broker)
    copy.broker.counters.limited = traffic.host.broker.counters.limited  # each replica counts its own
    assert copy.broker.counters == traffic.host.broker.counters


def test_the_traffic_is_worth_it() -> None:
    """All that a broker can say is said, and the states that are copied have something of everything."""
    seen: Counter[str] = Counter()
    for seed in range(16):
        traffic = Traffic(seed)
        for _ in range(350):
            traffic.step()
            broker = traffic.host.broker
            sessions = broker.sessions.by_key.values()
            entries = [d for s in sessions for d in s.inflight.values()]
            seen["waiting"] += any(s.waiting for s in sessions)
            seen["hollow"] += any(not d.identifier for d in entries)
            seen["identifiers"] += any(d.identifiers for d in entries)
            seen["released"] += any(d.released for d in entries)
            seen["resend"] += any(s.resend for s in sessions)
            seen["received"] += any(s.received for s in sessions)
            seen["warned"] += any(s.warned for s in sessions)
            seen["will delayed"] += any(s.will is not None and s.connection is None for s in sessions)
            seen["held"] += any(c.held for c in broker.connections.values())
            seen["pace"] += any(c.pace for c in broker.connections.values())
            seen["new"] += any(c.phase is Phase.NEW for c in broker.connections.values())
            seen["aliases"] += any(c.aliases for c in broker.connections.values())
            seen["known aliases"] += any(c.known_aliases for c in broker.connections.values())
            seen["requests"] += len(broker.requests) > 0
            seen["automatic"] += broker.identifiers_given > 0
            seen["turn"] += any(getattr(value, "turn", 0) for _, value, _ in broker.routes.filed())
        seen.update(traffic.seen)
        seen.update(traffic.host.broker.accounts().dropped)
        seen["expired"] += traffic.host.broker.accounts().expired
    few = {name: seen[name] for name in (*EXPECTED, *EXPECTED_DROPS) if seen[name] < 5}
    assert few == {}


EXPECTED = (
    *("Connack", "Publish", "Puback", "Pubrec", "Pubrel", "Pubcomp", "Suback", "Unsuback", "Pingresp", "Disconnect"),
    *("QoS 0", "QoS 1", "QoS 2", "aliased", "again", "waiting", "hollow", "identifiers", "released", "resend"),
    *("received", "warned", "will delayed", "held", "pace", "new", "aliases", "known aliases", "automatic", "turn"),
    "requests",
)
EXPECTED_DROPS = (*("queue-full", "offline-qos0", "slow-qos0", "too-large", "rejected", "session-ended", "expired"),)


def digest(seed: int) -> str:
    """A hash of all that came out of some traffic, and of the state at its end."""
    traffic = Traffic(seed)
    traffic.run(250)
    found = hashlib.sha256(repr(traffic.outcomes).encode())
    found.update(encode_state(traffic.host.broker))
    return found.hexdigest()


def test_nothing_depends_on_the_order_of_sets() -> None:
    """Two processes with different hash seeds come to the same outcomes and the same bytes."""
    answers = []
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, __file__, "2", "4", "5", "7"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        answers.append(done.stdout)
    assert answers[0] == answers[1]
    assert len(set(answers[0].split())) == 4


if __name__ == "__main__":
    for name in sys.argv[1:]:
        sys.stdout.write(digest(int(name)) + "\n")
