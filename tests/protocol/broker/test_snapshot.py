"""The bytes of a snapshot: equal for equal states, each message once, and refused where they are not right."""

from __future__ import annotations

import random
from dataclasses import fields
from typing import Any

import pytest

from surecast.errors import PeerError
from surecast.protocol.broker import (
    BrokerCore,
    BrokerSettings,
    Connection,
    Limits,
    Message,
    Origin,
    Session,
    Subscription,
)
from surecast.protocol.broker.accounts import Accounts
from surecast.protocol.broker.limits import Pace
from surecast.protocol.broker.message import Delivery
from surecast.protocol.broker.observer import Counters
from surecast.protocol.broker.requests import TokenOutcomes
from surecast.protocol.broker.session import SessionWill
from surecast.protocol.broker.snapshot import decode_state, encode_state, pieces_of, records_of
from surecast.protocol.mqtt import V5, V311, Connect, PacketDecoder, Publish, PublishBatch, encode

HEAD = 18


def copy_of(broker: BrokerCore) -> BrokerCore:
    """A broker with the same state."""
    copy = BrokerCore(broker.settings)
    decode_state(copy, encode_state(broker))
    return copy


def busy(world: Any) -> BrokerCore:
    """A broker with something of everything."""
    ann = world.client("ann").lasting(keep_alive_s=60, topic_alias_maximum=5)
    ann.subscribe("a/#", 2, subscription_ids=(3,), user=(("filter", "price > 3"),))
    ann.subscribe("$share/g/b", 1)
    ann.drop()
    bob = world.client("bob", V311).online()
    bob.subscribe("a/b", 1)
    bob.subscribe("$share/g/b", 1)
    eve = world.client("eve").online(topic_alias_maximum=9)
    for topic in ("a/b", "a/c", "b"):
        eve.publish(topic, b"one", 1, user=(("price", "5"),))
        eve.publish(topic, b"two", 2, retain=True, message_expiry_s=100, user=(("price", "5"),))
        eve.publish(topic, b"three", 1)
        eve.publish(topic, b"four", 1)
    return world.broker  # type: ignore[no-any-return]


def test_nothing_of_the_state_is_forgotten() -> None:
    """Whoever gives one of these classes a field must say in the snapshot what becomes of it, and then here."""
    assert set(Connection.__slots__) == {
        *("number", "origin", "phase", "connect", "user", "version_5", "explains", "packet_bytes_max", "aliases_max"),
        *("aliases", "known_aliases", "known_aliases_max", "allowed", "congested", "held", "held_bytes", "limits"),
        *("pace", "burst_at", "burst_bytes", "opened_at", "connected_at", "heard_at", "silence_max_s", "left"),
        *("session", "decoder", "out", "is_elsewhere"),  # by the session; made anew; no state; of the replica
        "clearance",  # found anew
    }
    assert set(Session.__slots__) == {
        *(
            "client",
            "user",
            "listener",
            "address",
            "serial",
            "lifetime_s",
            "ends_at",
            "expiry_check_at",
            "bytes_queued",
        ),
        *("window", "next_identifier", "next_sequence", "limits", "connection", "warned", "will", "accounts"),
        *("monitor", "target"),
        *("seen", "renewed"),  # of sessions that move between brokers, which groups do not have
        *(
            "subscriptions",
            "received",
            "tracked",
            "plain",
            "waiting",
            "resend",
        ),  # both: in flight
        *(
            "quota",
            "key",
            "key_field",
            "bytes_max",
            "short_max",
            "shapes",
            "routes",
            "groups",
            "filter_constraints",
        ),  # follow from others, or are caches
    }
    assert set(Message.__slots__) == {
        *("number", "topic", "topic_field", "payload", "qos", "retain", "properties", "expires_at", "published_at"),
        *("publisher", "interval_end", "references"),
        *("event",),  # of sessions that move between brokers, which groups do not have
        *("size", "_kind", "_first", "_others"),  # follow from others, or are caches
    }
    assert set(Delivery.__slots__) == {
        *("message", "qos", "retain", "identifiers", "sequence", "identifier", "released", "share"),
    }
    assert set(TokenOutcomes.__slots__) == {"highest", "outcomes", "used_at", "is_durable"}
    assert set(Pace.__slots__) == {"rate_per_s", "hold_until", "tokens", "at"}
    named = {
        kind: [each.name for each in fields(kind)]
        for kind in (Accounts, Limits, Origin, Subscription, Counters, SessionWill)
    }
    assert named == {
        Accounts: ["matched", "delivered", "expired", "dropped"],
        Limits: [
            *("queue_messages_max", "queue_bytes_max", "overflow", "inflight_max", "receive_maximum"),
            *("packet_bytes_max", "subscriptions_max", "publish_rate_per_s", "join_probability"),
            *("join_threshold", "queue_lifetime_s", "response_target", "connected_prior_s", "disconnected_prior_s"),
            *("warn_at", "drops_when_away"),  # follow from others
        ],
        Origin: ["listener", "peer", "identity"],
        Subscription: [
            *("filter", "qos", "no_local", "retain_as_published", "identifier", "share", "content", "content_text"),
        ],
        Counters: [
            *("packets_in", "bytes_in", "bytes_out", "published", "unauthorised", "protocol_errors", "connections"),
            *("refused", "limited", "notices"),  # the last two are counts and lines of one replica alone
        ],
        SessionWill: ["message", "delay_s", "lifetime_s", "due_at", "interval_s"],
    }
    assert set(vars(BrokerCore())) == {
        *("connections", "checking", "counters", "timers", "started_at", "next_connection", "identifiers_given"),
        *("routes", "retained", "incoming", "sessions", "requests"),
        *(
            "settings",
            "authenticates",
            "observer",
            "traffic",  # of an overlay, which is no group
            "_authorise",
            "_hooks",
            "_handlers",
        ),  # given to a new one
        *("wills", "_connecting", "_keep_alive"),
        *("targets", "deciding"),  # in the sessions: which decisions are due follows
        *(
            "journal",
            "dirty",
            "outgoing",
            "_acknowledging",
            "_subscribing",
            "_common",
            "_disconnecting",
        ),  # no state, or none of their own
    }


def test_a_message_in_many_queues_is_written_once(world: Any) -> None:
    names = [f"s{i}" for i in range(20)]
    for name in names:
        client = world.client(name).lasting()
        client.subscribe("t", 1)
        client.drop()
    world.client("p").online().publish("t", b"P" * 5_000, 1, retain=True)
    data = encode_state(world.broker)
    assert data.count(b"P" * 5_000) == 1
    copy = copy_of(world.broker)
    kept = {id(next(iter(copy.sessions.by_key[name].waiting)).message) for name in names}
    assert kept == {id(copy.retained.get("t"))}
    message = copy.retained.get("t")
    assert message is not None
    assert message.references == 21


def test_equal_states_give_equal_bytes(make_world: Any) -> None:
    one, other = busy(make_world()), busy(make_world())
    assert encode_state(one) == encode_state(other) == encode_state(copy_of(one))


def test_what_was_in_the_wrong_order_before_a_copy_stays_so(world: Any) -> None:
    """The tree of retained topics has an order of its own, which is not that of the topics."""
    client = world.client("ann").online()
    for topic in ("a/1", "b/1", "a/2"):
        client.publish(topic, b"x", retain=True)
    client.publish("a/1", b"", retain=True)
    copy = copy_of(world.broker)
    for retained in (world.broker.retained, copy.retained):
        assert [m.topic for m in retained.matching("#", 0.0)] == ["b/1", "a/2"]
        assert [m.topic for m in retained.matching("+/+", 0.0)] == ["a/2", "b/1"]
        assert retained.state()[1] == ["b/1", "a/2"]


def test_half_a_packet_cannot_be_kept() -> None:
    broker = BrokerCore()
    connection = broker.open(Origin(peer="host"), 0.0)
    broker.receive(connection, encode(Connect("ann"), V5)[:-1], 0.0)
    with pytest.raises(ValueError, match=r"connection 1 \(host\) holds 17 bytes of a packet"):
        encode_state(broker)


def test_a_snapshot_is_for_a_new_broker(world: Any) -> None:
    data = encode_state(busy(world))
    with pytest.raises(ValueError, match="new broker only"):
        decode_state(world.broker, data)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda data: b"", "does not begin like one"),
        (lambda data: data[:17], "does not begin like one"),
        (lambda data: b"x" + data[1:], "does not begin like one"),
        (lambda data: data[:17] + b"\x09" + data[18:], "its format is version 9, and this version of surecast reads 5"),
        (lambda data: data[:17] + b"\x03" + data[18:], "version 3, .*: run the version that wrote it until its queues"),
        (lambda data: data[:-1], "damaged"),
        (lambda data: data[:-8], "damaged: it ends at byte"),
        (lambda data: data + b"x", "damaged"),
        (lambda data: data[:100] + bytes((data[100] ^ 1,)) + data[101:], "damaged"),
        (lambda data: data[:-1] + bytes((data[-1] ^ 1,)), "some of its rows are missing"),
        (lambda data: data[:HEAD] + data[-8:], "some of its rows are missing"),
        (lambda data: data + b"xy", "goes on for 2 bytes after its end"),
        (lambda data: written([(b"?", b"")]), "unknown kind b'[?]'"),
        (lambda data: written([]), "no record of the broker"),
        (lambda data: written([(b"B", b"short")]), "broker: next_connection: it is cut off at byte 5"),
    ],
)
def test_a_snapshot_that_is_not_right_is_refused(world: Any, change: Any, problem: str) -> None:
    with pytest.raises(PeerError, match=f"broker snapshot: .*{problem}"):
        decode_state(BrokerCore(), change(encode_state(busy(world))))


def written(records: list[tuple[bytes, bytes]]) -> bytes:
    """A snapshot of some records."""
    return b"".join(pieces_of(records))


def test_any_records_are_read_or_refused(world: Any) -> None:
    records = list(records_of(busy(world)))
    rng = random.Random(5)
    read = 0
    for _ in range(1_500):
        changed = list(records)
        for _ in range(rng.choice((1, 1, 4))):
            at = rng.randrange(len(changed))
            parts = [bytearray(part) for part in changed[at]]
            part = parts[rng.random() < 0.8]
            if part:
                part[rng.randrange(len(part))] = rng.choice((0, 1, 255, rng.randrange(256)))
                if rng.random() < 0.2:
                    del part[rng.randrange(len(part)) :]
            changed[at] = (bytes(parts[0]), bytes(parts[1]))
        if rng.random() < 0.2:
            del changed[rng.randrange(len(changed))]
        try:
            decode_state(BrokerCore(), written(changed))
            read += 1
        except PeerError as error:
            assert str(error).startswith("broker snapshot: ")
    assert 50 < read < 1_000


def test_any_bytes_are_read_or_refused(world: Any) -> None:
    data = encode_state(busy(world))
    rng = random.Random(6)
    for _ in range(500):
        changed = bytearray(data)
        changed[rng.randrange(len(data))] ^= rng.randrange(1, 256)
        with pytest.raises(PeerError, match="broker snapshot: "):
            decode_state(BrokerCore(), bytes(changed[: rng.choice((len(data), rng.randrange(len(data))))]))


def test_a_snapshot_can_be_taken_in_pieces(world: Any) -> None:
    """Records of a durable session are those that the journal wrote of it, and rows bound the pieces."""
    for number in range(30):
        client = world.client(f"s{number}").lasting()
        client.subscribe("t", 1)
        client.drop()
    world.client("p").online().publish("t", b"P" * 50_000, 1, retain=True)
    pieces = list(pieces_of(records_of(world.broker)))
    assert len(pieces) > 2
    assert max(map(len, pieces)) < 600_000
    assert b"".join(pieces) == encode_state(world.broker)
    records = dict(records_of(world.broker))
    assert {key: value for key, value in records.items() if key[:1] in b"smfqrpwi"}.items() >= world.disk.items()


def test_settings_that_allow_less_refuse_what_they_do_not_allow(world: Any) -> None:
    client = world.client("ann").lasting()
    client.subscribe("a/b/c/d")
    with pytest.raises(PeerError, match="levels"):
        decode_state(BrokerCore(BrokerSettings(topic_levels_max=3)), encode_state(world.broker))


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_same_bytes_make_the_same_batches_whatever_came_before(qos: int, version: int) -> None:
    """A broker treats a batch as one, so a decoder that is new must find the batches that an old one finds."""
    packets = [Publish(t, b"x", qos, packet_id=i + 1 if qos else 0) for i, t in enumerate("aaabbcaac")]
    data = b"".join(encode(packet, version) for packet in packets)
    new = PacketDecoder(version=version)
    found = [new.feed_batches(data) for _ in range(2)]
    assert found[0] == found[1]
    (batch,) = found[0]
    assert isinstance(batch, PublishBatch)
    assert list(batch.stretches()) == [("a", 0, 3), ("b", 3, 5), ("c", 5, 6), ("a", 6, 8), ("c", 8, 9)]
    assert batch.packets() == packets


def test_a_copy_takes_a_batch_as_the_original_does(world: Any, version: int) -> None:
    """Messages that a client sends to itself in one write: they come before the acknowledgements, or between them."""
    client = world.client("ann", version).online()
    client.subscribe("t", 1)
    client.publish("t", b"first", 1)
    copy = copy_of(world.broker)
    data = b"".join(encode(Publish("t", b"x", 1, packet_id=i), version) for i in (7, 8, 9))
    sent = []
    for broker in (world.broker, copy):
        connection = broker.connections[1]
        broker.receive(connection, data, world.now)
        sent.append(b"".join(connection.out))
    assert sent[0] == sent[1]
    assert encode_state(world.broker) == encode_state(copy)
