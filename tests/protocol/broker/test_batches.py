"""Taking messages in batches equals taking them one by one: the same traffic through brokers that do either.

A broker with an observer takes every message alone; a decoder may give out packets one by one. All clients must get the
same packets in the same order, with the same packet identifiers, and the accounts must agree.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from surecast.protocol.mqtt import (
    V5,
    V311,
    AckBatch,
    Packet,
    PacketDecoder,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    PublishBatch,
    Pubrec,
    Pubrel,
    ReasonCode,
    Subscribe,
    SubscriptionRequest,
    Unsubscribe,
    encode,
)

TOPICS = ("a", "a/b", "x/y", "long/" + "t" * 300)
FILTERS = ("a", "a/b", "a/#", "+/y", "#", "$share/g/#")


class Nothing:
    """An observer that looks away."""

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: None


class OneByOne(PacketDecoder):
    """A decoder that makes no batches."""

    def feed_batches(self, data: bytes) -> Any:
        batches = super().feed_batches(data)
        return [
            p for each in batches for p in (each.packets() if isinstance(each, (PublishBatch, AckBatch)) else [each])
        ]


class Twins:
    """Equal worlds, driven together: with batches, without, and with an observer."""

    def __init__(self, make_world: Any, **settings: Any):
        self.worlds = [make_world(**settings), make_world(**settings), make_world({"observer": Nothing()}, **settings)]
        self.clients: dict[str, list[Any]] = {}

    def connect(self, name: str, version: int, clean: bool, **options: Any) -> None:
        known = self.clients.get(name)
        clients = known if known and known[0].version == version else [w.client(name, version) for w in self.worlds]
        self.clients[name] = clients
        for at, client in enumerate(clients):
            if at == 1:
                # Its connection must be one without batches from the first byte on.
                opened = client.open

                def without_batches(identity: str = "", client: Any = client, opened: Any = opened) -> Any:
                    opened(identity)
                    client.connection.decoder.__class__ = OneByOne
                    return client

                client.open = without_batches
                client.connect(clean, **options)
                client.open = opened
            else:
                client.connect(clean, **options)

    def send(self, name: str, *packets: Packet | bytes, cut: int | None = None) -> None:
        for client in self.clients[name]:
            if client.closed:
                continue
            data = b"".join(p if isinstance(p, bytes) else encode(p, client.version) for p in packets)
            if cut is None:
                client.send(data)
            else:
                with client.world.one_turn():
                    client.send(data[:cut])
                    client.send(data[cut:])

    def compare(self) -> dict[str, list[Packet]]:
        """What all clients got, after a look that it is the same everywhere."""
        got: dict[str, list[Packet]] = {}
        for name, (first, *others) in self.clients.items():
            got[name] = first.take()
            for other in others:
                assert in_two(other.take()) == in_two(got[name]), name
                assert other.closed == first.closed
        for world in self.worlds:
            world.accounts = world.broker.accounts()
        one = self.worlds[0]
        for world in self.worlds[1:]:
            assert world.accounts == one.accounts
            assert world.disk_counts() == one.disk_counts()
            assert world.broker.counters.published == one.broker.counters.published
            assert world.broker.counters.packets_in == one.broker.counters.packets_in or world is self.worlds[2]
            assert world.broker.counters.unauthorised == one.broker.counters.unauthorised
            for name, session in one.broker.sessions.by_key.items():
                other = world.broker.sessions.by_key[name]
                assert other.accounts == session.accounts, name
                assert other.bytes_queued == session.bytes_queued, name
                assert _identifiers(other) == _identifiers(session), name
                assert len(other.waiting) == len(session.waiting), name
                assert other.warned == session.warned, name
                assert other.next_identifier == session.next_identifier, name
        return got


def _identifiers(session: Any) -> list[int]:
    """The identifiers in flight, without a change of how the session keeps them."""
    return [*session.tracked, *range(session.plain.first, session.plain.after)]


def in_two(packets: list[Packet]) -> tuple[list[Packet], list[Packet]]:
    """Acknowledgements and all else: how the two interleave, for a client that gets its own messages, is left open."""
    acknowledgements: list[Packet] = [p for p in packets if isinstance(p, Puback)]
    return acknowledgements, [p for p in packets if not isinstance(p, Puback)]


def options_of(rng: random.Random, version: int) -> tuple[bool, dict[str, Any]]:
    """A clean start or not, and properties of a CONNECT."""
    if version == V311:
        return rng.random() < 0.7, {}
    options: dict[str, Any] = {}
    if rng.random() < 0.3:
        options["session_expiry_s"] = 1_000
    if rng.random() < 0.4:
        options["receive_maximum"] = rng.choice((1, 5, 30))
    if rng.random() < 0.3:
        options["maximum_packet_size"] = rng.choice((40, 60, 400))
    if rng.random() < 0.3:
        options["topic_alias_maximum"] = rng.choice((1, 3))
    return rng.random() < 0.5, options


def subscription_of(rng: random.Random, version: int) -> tuple[SubscriptionRequest, Properties]:
    topic_filter = rng.choice(FILTERS)
    if version == V311:
        return SubscriptionRequest(topic_filter, rng.randrange(3)), Properties()
    no_local = rng.random() < 0.2 and not topic_filter.startswith("$")
    properties = Properties(
        subscription_ids=(rng.randrange(1, 300),) if rng.random() < 0.3 else (),
        user=(("filter", "x > 3"),) if rng.random() < 0.15 else (),
    )
    return SubscriptionRequest(topic_filter, rng.randrange(3), no_local, rng.random() < 0.2), properties


def burst(rng: random.Random, version: int, first_id: int) -> list[Publish]:
    """Messages as a busy client sends them: often many of one shape, or of varying lengths, or to several topics."""
    packets: list[Publish] = []
    topic, qos, size = rng.choice(TOPICS), rng.choice((0, 0, 1, 1, 1, 2)), rng.choice((0, 3, 20, 50, 130))
    varies, alternates = rng.random() < 0.5, rng.random() < 0.3
    for count in range(rng.choice((1, 2, 3, 10, 40))):
        if varies:
            size = rng.choice((0, 3, 20, 50, 130))
        if alternates:
            topic = rng.choice(TOPICS)
        if rng.random() < 0.1:
            topic, qos, size = rng.choice(TOPICS), rng.choice((0, 1, 1, 2)), rng.choice((0, 3, 20, 50, 130))
        special = rng.random()
        user = (("x", str(rng.randrange(8))),) if version == V5 and special < 0.05 else ()
        payload = (b"%d " % (first_id + count)).ljust(size, b".")[:size]
        packets.append(
            Publish(
                topic,
                payload,
                qos,
                0.05 < special < 0.07,
                qos > 0 and 0.07 < special < 0.1,
                first_id + count if qos else 0,
                Properties(user=user) if user else Properties(),
            )
        )
    return packets


def answers_to(rng: random.Random, packets: list[Packet], version: int) -> list[Packet]:
    answers: list[Packet] = []
    for packet in packets:
        if isinstance(packet, Publish) and packet.qos:
            bad = version == V5 and rng.random() < 0.03
            reason = ReasonCode.UNSPECIFIED_ERROR if bad else ReasonCode.SUCCESS
            answers.append((Puback if packet.qos == 1 else Pubrec)(packet.packet_id, reason))
        elif isinstance(packet, Pubrel):
            answers.append(Pubcomp(packet.packet_id))
        elif isinstance(packet, Pubrec):
            answers.append(Pubrel(packet.packet_id))
    return answers


SETTINGS: list[dict[str, Any]] = [
    {},
    {"queue_messages_max": 12, "inflight_max": 30},
    {"queue_messages_max": 30, "inflight_max": 10, "queue_bytes_max": 900, "overflow": "drop-old"},
    {"queue_messages_max": 15, "overflow": "reject"},
    {"queue_bytes_max": 500, "overflow": "expire-first", "topic_alias_max": 2},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=["usual", "short", "drop-old", "reject", "expire-first"])
@pytest.mark.parametrize("seed", range(8))
def test_random_traffic_in_batches_and_one_by_one(  # noqa: C901 - one line for each kind of step
    make_world: Any, seed: int, settings: dict[str, Any]
) -> None:
    rng = random.Random(seed)
    twins = Twins(make_world, **settings)
    versions = {f"c{i}": rng.choice((V311, V5)) for i in range(6)}
    todo: dict[str, list[Packet]] = {name: [] for name in versions}
    for step in range(120):
        name = rng.choice(list(versions))
        version, what = versions[name], rng.random()
        clients = twins.clients.get(name)
        if clients is None or clients[0].closed or what < 0.03:
            clean, options = options_of(rng, version)
            twins.connect(name, version, clean, **options)
            todo[name] = []
        elif what < 0.15 or step < 12:
            wanted, properties = subscription_of(rng, version)
            twins.send(name, Subscribe(60_000, (wanted,), properties))
        elif what < 0.18:
            twins.send(name, Unsubscribe(60_001, (rng.choice(FILTERS),)))
        elif what < 0.65:
            packets = burst(rng, version, rng.randrange(1, 900))
            twins.send(name, *packets, cut=rng.randrange(1, 200) if rng.random() < 0.3 else None)
        elif what < 0.92:
            count = rng.randrange(len(todo[name]) + 1)
            now, todo[name] = todo[name][:count], todo[name][count:]
            twins.send(name, *now)
        elif what < 0.95:
            for client in clients:
                client.drop()
        elif what < 0.98:
            slow = rng.random() < 0.5
            for client in clients:
                client.world.broker.set_congested(client.connection, slow)
        else:
            for client in clients:
                client.session.next_identifier = 65_530
        for other, packets_got in twins.compare().items():
            todo[other] += answers_to(rng, packets_got, versions[other])
    assert twins.worlds[0].accounts.matched > 100


def session_of_everything(make_world: Any, version: int) -> Twins:
    """A publisher, and subscribers that get its messages in every way."""
    twins = Twins(make_world, inflight_max=9, queue_messages_max=40)
    twins.connect("pub", version, True)
    for name, subscriber_version, clean, wanted, qos in (
        ("low", V311, True, "a/+", 0), ("other", V5, True, "a/+", 0), ("direct", version, True, "a/b", 1),
        ("late", V311, True, "#", 1), ("kept", V5, False, "a/#", 2), ("shared", V311, True, "$share/g/a/c", 1),
    ):  # fmt: skip
        options = {} if clean else {"session_expiry_s": 100}
        twins.connect(name, subscriber_version, clean, **options)
        twins.send(name, Subscribe(1, (SubscriptionRequest(wanted, qos),)))
    twins.compare()
    return twins


@pytest.mark.parametrize("qos", [0, 1])
def test_a_stream_may_be_cut_at_every_byte(make_world: Any, version: int, qos: int) -> None:
    packets = [
        Publish(topic, b"x" * size, qos, packet_id=number * qos)
        for number, (topic, size) in enumerate(
            [("a/b", 3), ("a/b", 5), ("a/c", 5), ("a/b", 1), ("d", 1), ("a/b", 9), ("a/b", 9)], 1
        )
    ]
    data = b"".join(encode(packet, version) for packet in packets)
    for cut in range(0, len(data), 1 + 2 * qos):
        twins = session_of_everything(make_world, version)
        twins.send("pub", data, cut=cut)
        twins.compare()


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("place", range(7))
def test_a_malformed_packet_ends_the_connection_after_what_came_before(
    make_world: Any, version: int, qos: int, place: int
) -> None:
    packets = [
        encode(Publish("a/b", b"x" * (3 + number % 2), qos, packet_id=(number + 1) * qos), version)
        for number in range(6)
    ]
    packets.insert(place, encode(Publish("a/b", b"x", 1, packet_id=256), version).replace(b"a/b\1\0", b"a/b\0\0"))
    twins = session_of_everything(make_world, version)
    twins.send("pub", *packets)
    got = twins.compare()
    assert all(client.closed for client in twins.clients["pub"])
    assert len([p for p in got["low"] if isinstance(p, Publish)]) == place
    assert len([p for p in got["pub"] if isinstance(p, Puback)]) == place * qos


def test_subscribers_in_step_get_the_same_bytes(make_world: Any, version: int) -> None:
    """Once made, what one subscriber is sent at QoS 1 is sent to all that have got as many messages."""
    world = make_world()
    publisher = world.client("pub", version).connect(True)
    readers = [world.client(name, version) for name in ("a", "b", "c")]
    for reader in readers:
        reader.connect(True)
        reader.send(Subscribe(1, (SubscriptionRequest("t", 1),)))
    with world.one_turn():
        publisher.send(b"".join(encode(Publish("t", b"x" * n, 1, packet_id=n), version) for n in range(1, 9)))
        sent = [reader.connection.out[-1] for reader in readers]
    assert sent[0] is sent[1] is sent[2]
    assert [p.packet_id for p in readers[2].take() if isinstance(p, Publish)] == [*range(1, 9)]


@pytest.mark.parametrize("qos", [0, 1])
def test_a_long_batch(make_world: Any, version: int, qos: int) -> None:
    """A thousand messages in one write, to clients of both versions, one of which is away for the second half."""
    twins = Twins(make_world)
    twins.connect("pub", version, True)
    twins.connect("old", V311, True)
    twins.connect("new", V5, False, session_expiry_s=100)
    for name in ("old", "new"):
        twins.send(name, Subscribe(1, (SubscriptionRequest("a/+", 2),)))
    packets = [Publish("a/b", b"%04d" % n, qos, packet_id=n if qos else 0) for n in range(1, 1_001)]
    twins.send("pub", packets[0])
    twins.send("pub", *packets[1:500], cut=77)
    got = twins.compare()
    assert [p.payload for p in got["old"] if isinstance(p, Publish)] == [p.payload for p in packets[:500]]
    twins.send("old", *answers_to(random.Random(0), got["old"], V311))
    for client in twins.clients["new"]:
        client.drop()
    twins.send("pub", *packets[500:])
    got = twins.compare()
    assert len(got["old"]) == 500
    twins.connect("new", V5, False, session_expiry_s=100)
    got = twins.compare()
    assert len(got["new"]) == 1 + (1_000 if qos else 0)
