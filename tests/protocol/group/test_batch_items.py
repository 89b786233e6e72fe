"""A batch of messages that is told as a batch changes the state as its packets do."""

from __future__ import annotations

import pytest
from tests.protocol.group.world import with_packets

from surecast.protocol.broker import BrokerCore, BrokerSettings, Origin
from surecast.protocol.broker.state_journal import NoJournal
from surecast.protocol.group import FrontEnd, GroupMachine
from surecast.protocol.group.commands import HEAD, Happening, Item, items_of, pack, read_batch
from surecast.protocol.group.member import Member
from surecast.protocol.mqtt import (
    V5,
    V311,
    Connect,
    PacketDecoder,
    Properties,
    Publish,
    PublishBatch,
    Pubrel,
    Subscribe,
    SubscriptionRequest,
    encode,
)
from surecast.protocol.paxos import Context

SETTINGS = BrokerSettings(packet_bytes_max=4_000)


def machine(replica: int) -> GroupMachine:
    return GroupMachine(
        replica, lambda authorise: BrokerCore(SETTINGS, authorise=authorise, journal=NoJournal(), watches=False)
    )


def messages(version: int, qos: int, count: int, *, retain: bool = False, dup: bool = False, size: int = 10) -> bytes:
    return b"".join(
        encode(
            Publish("a/b", b"%04d" % i + b"x" * size, qos, retain, dup=dup, packet_id=i + 1 if qos else 0), version
        )
        for i in range(count)
    )  # fmt: skip


class Pair:
    """A home replica, and two others: one is told runs, the other the packets that they stand for."""

    def __init__(self) -> None:
        self.home, self.told, self.plain = machine(1), machine(2), machine(3)
        self.front_end = FrontEnd(self.home, 1 << 20, SETTINGS)
        self.kinds: list[int] = []

    def step(self) -> None:
        for _, pieces in self.front_end.take(5.0):
            command = b"".join(pieces)
            context = Context(1, 5_000_000)
            self.kinds += [kind for kind, _, _ in items_of(command)]
            self.home.execute(command, context)
            self.told.execute_in(b"before" + command + b"after", 6, 6 + len(command), context)
            self.plain.execute(with_packets(command), context)

    def enter(self, name: str, version: int, **more: int) -> Member:
        member = self.front_end.open(Origin(peer=name), 5.0)
        properties = Properties(session_expiry_s=100, **more) if version == V5 else Properties()
        hello = Connect(client_id=name, clean_start=False, version=version, properties=properties)
        self.front_end.receive(member, encode(hello, version), 5.0)
        self.step()
        return member


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize(("retain", "dup"), [(False, False), (True, False), (False, True)])
def test_the_state_is_that_of_the_packets(version: int, qos: int, retain: bool, dup: bool) -> None:
    pair = Pair()
    for number, wanted in enumerate((0, 1, 2)):
        reader = pair.enter(f"reader{number}", (V311, V5)[number % 2])
        subscription = SubscriptionRequest("a/#", wanted)
        pair.front_end.receive(reader, encode(Subscribe(1, (subscription,)), V5 if number % 2 else V311), 5.0)
        pair.step()
    writer = pair.enter("writer", version)
    for count in (2, 5, 40):
        pair.front_end.receive(writer, messages(version, qos, count, retain=retain, dup=dup and qos > 0), 5.0)
        pair.step()
    assert Item.BATCH in pair.kinds
    assert pair.told.snapshot() == pair.plain.snapshot() == pair.home.snapshot()
    assert pair.told.broker.counters.published == 47


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("qos", [0, 1])
def test_a_replica_without_readers_makes_no_bytes(version: int, qos: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is sent is sent by the home of the readers; the state is the same everywhere, with single messages too."""
    pair = Pair()
    reader = pair.enter("reader", version)
    pair.front_end.receive(reader, encode(Subscribe(1, (SubscriptionRequest("a/#", 0),)), version), 5.0)
    writer = pair.enter("writer", version)
    for connection in pair.told.broker.connections.values():
        connection.out.clear()
    for count in (1, 1, 2, 40, 1):
        pair.front_end.receive(writer, messages(version, qos, count), 5.0)
        pair.step()
    assert pair.kinds.count(Item.BATCH) == 5
    assert all(not connection.out for connection in pair.told.broker.connections.values())
    assert pair.told.snapshot() == pair.home.snapshot()
    for machine in (pair.home, pair.told, pair.plain):
        machine.broker.routes.settle()
        accounts = machine.broker.sessions.by_key["reader"].accounts
        assert (accounts.matched, accounts.delivered, machine.broker.counters.published) == (45, 45, 45)


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("limit", [{"maximum_packet_size": 60}, {"topic_alias_maximum": 3}, {"receive_maximum": 2}])
def test_what_a_client_takes_decides_at_every_replica(qos: int, limit: dict[str, int]) -> None:
    """Only its home writes packets to it; what it cannot take, and how topics are named to it, is state of all."""
    pair = Pair()
    reader = pair.enter("reader", V5, **limit)
    pair.front_end.receive(reader, encode(Subscribe(1, (SubscriptionRequest("a/#", qos),)), V5), 5.0)
    writer = pair.enter("writer", V5)
    for size in (10, 100, 10):
        pair.front_end.receive(writer, messages(V5, qos, 3, size=size), 5.0)
        pair.front_end.receive(writer, b"".join(encode(Pubrel(n), V5) for n in (1, 2, 3)), 5.0)
        pair.step()
    assert pair.told.snapshot() == pair.plain.snapshot() == pair.home.snapshot()
    accounts = pair.told.broker.sessions.by_key["reader"].accounts
    assert accounts.matched == 9
    assert accounts.dropped == ({"too-large": 3} if "maximum_packet_size" in limit else {})


def test_batches_longer_than_the_largest_packet_are_looked_at_again() -> None:
    pair = Pair()
    writer = pair.enter("writer", V311)
    pair.front_end.receive(writer, messages(V311, 1, 100, size=500), 5.0)
    pair.step()
    assert pair.told.snapshot() == pair.plain.snapshot() == pair.home.snapshot()
    assert pair.told.broker.counters.published == 100


def test_other_packets_among_them_are_told_as_packets() -> None:
    pair = Pair()
    writer = pair.enter("writer", V311)
    pair.front_end.receive(writer, messages(V311, 1, 3) + b"\xc0\x00" + messages(V311, 1, 3), 5.0)
    pair.step()
    assert Item.BATCH not in pair.kinds
    assert pair.told.snapshot() == pair.home.snapshot()


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("size", range(65_526, 65_536))
def test_the_longest_topics_go_through(size: int, qos: int, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic may have 65,535 bytes, and an identifier then stands beyond what two bytes say."""
    monkeypatch.setitem(globals(), "SETTINGS", BrokerSettings())
    pair = Pair()
    writer = pair.enter("writer", version)
    pair.front_end.receive(writer, encode(Publish("t" * size, b"", qos, packet_id=qos), version), 5.0)
    pair.step()
    assert pair.told.broker.counters.published == 1
    assert pair.told.snapshot() == pair.home.snapshot()


@pytest.mark.parametrize("sizes", [(10,), (120,), (130,), (16_000,), (10, 130, 11), (20, 20, 140, 20)])
@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("qos", [0, 1])
def test_a_batch_is_read_as_the_decoder_finds_it(sizes: tuple[int, ...], version: int, qos: int) -> None:
    data = b"".join(messages(version, qos, 3, size=size) for size in sizes)
    batches = PacketDecoder(version=version).feed_batches(data)
    (batch,) = batches
    assert isinstance(batch, PublishBatch)
    items: list[Happening] = [(Item.BATCH, number, batch.data, batch) for number in (7, 9, 7)]
    pieces, decoded = pack(1, 1, 1, [*items, (Item.TICK, 0, b"", None)])
    command = b"".join(pieces)
    assert [kind for kind, _, _ in items_of(command)] == [Item.BATCH, Item.TICK]
    sent, after = read_batch(command, HEAD.size)
    assert decoded == [sent, (Item.TICK, 0, b"", None)]
    assert (sent.numbers, sent.counts) == ((7, 9, 7), (batch.count,) * 3)
    assert sent.batch.data == data * 3
    (whole,) = PacketDecoder(version=version).feed_batches(data * 3)
    assert isinstance(whole, PublishBatch)
    assert sent.batch == whole
    assert [*sent.batch.ids_at] == [*whole.ids_at]
    assert sent.batch.packets() == whole.packets()
    assert sent.batch.part(batch.count, 2 * batch.count) == batch
    assert list(items_of(command[: HEAD.size] + command[after:])) == [(Item.TICK, 0, b"")]
