"""A neighbour that is let in and lies: it is refused by name, or costs bounded memory."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from random import Random
from typing import Any

import pytest
from tests.protocol.overlay_broker.broker_line import BrokerLine, LineClient
from tests.protocol.overlay_broker.broker_world import BrokerWorld
from tests.seeds import seeds

from surecast.errors import PeerError
from surecast.protocol.demand import DemandBucket, DemandChange, DemandHashes, DemandUpdate, JointFilter, Members
from surecast.protocol.demand.demand_table import DemandTable
from surecast.protocol.demand.filter_hashes import DEPTH, FANOUT
from surecast.protocol.filters import Filter, equals
from surecast.protocol.link import CONTROL, LinkAck, LinkHello, NumberedFrame, SessionName
from surecast.protocol.mqtt import Connect, Publish
from surecast.protocol.overlay.event_bodies import BatchedMessage, MessageRun
from surecast.protocol.overlay.event_id import EventId
from surecast.protocol.overlay.frame_rules import lane_of
from surecast.protocol.overlay.link_codec import FrameReader, write
from surecast.protocol.overlay.link_frames import OverlayHello, Ping, Pong
from surecast.protocol.overlay.node_links import NodeSettings
from surecast.protocol.overlay.overlay_frames import (
    Detoured,
    EventBatch,
    Events,
    LinkStates,
    MapEntries,
    MapSums,
    NodeState,
)
from surecast.protocol.overlay.overlay_plan import HOME_TOPICS, HOMES, MEMBERS
from surecast.protocol.overlay_broker import LinkConnection

SMALL = NodeSettings(window_bytes=10_000, queue_bytes_max=20_000, custody_bytes_max=50_000)


class Liar:
    """Speaks for b2 over a connection to the broker b1 of a line."""

    def __init__(self, size: int = 3, node: NodeSettings = SMALL, **changes: Any):
        self.line = BrokerLine(size, node=node, is_joined=False)
        self.broker = self.line.brokers["b1"]
        self.connection = LinkConnection(self.broker)
        self.reader = FrameReader()
        self.number = 0
        plan = self.line.plan
        link = LinkHello(SessionName(5, 0), SessionName(), 0, 1 << 40)
        self.tell(replace(OverlayHello("b2", "b1", plan.epoch, plan.hash, link), **changes))

    def tell(self, *written: Any) -> None:
        self.connection.receive(write(written), self.line.now)
        self.line.run()

    def send(self, *frames: Any) -> None:
        for frame in frames:
            self.number += 1
            self.tell(NumberedFrame(self.number, lane_of(frame), 1, frame))

    def hear(self) -> list[Any]:
        return [*self.reader.feed(self.connection.output())]


def event(**changes: Any) -> Events:
    run = MessageRun.of([BatchedMessage(False, inf, b"", b"payload")])
    batch = EventBatch(EventId("b2", 5, 0), 1, "t", 100.0, inf, 1, body=run)
    return Events(0, replace(batch, **changes), "")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"plan_epoch": 9}, "epoch 9 of the plan"),
        ({"plan_hash": "00ff"}, "another plan"),
        ({"broker": "b3"}, "no neighbour of b1"),
        ({"broker": "b9"}, "no neighbour of b1"),
        ({"to": "b3"}, "b2 calls b3"),
        ({"version_min": 7, "version_max": 9}, "versions 7 to 9"),
    ],
)
def test_a_hello_that_does_not_fit_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(PeerError, match=words):
        Liar(**changes)


@pytest.mark.parametrize(
    "frame",
    [
        event(first=EventId("nobody", 1, 0)),
        replace(event(), attempt="nobody"),
        replace(event(), tree=7),
        DemandUpdate(7, DemandChange()),
        DemandUpdate(0, DemandChange(added=(JointFilter("t", qos=3),))),
        DemandHashes(0, "held", ((3, 65_000, 1),)),
        LinkStates((NodeState("b9", 1, 1, ()),)),
        LinkStates((NodeState("b2", 1, 1, ("b9",)),)),
        event(share="$share/w/t", at="nobody"),
        event(share="w/t", at="b1"),
        event(share="$share/w/t/#/u", at="b1"),
        DemandUpdate(MEMBERS + 1, DemandChange()),
        DemandUpdate(MEMBERS, DemandChange(added=(JointFilter("t"),))),
        DemandUpdate(0, DemandChange(added=(JointFilter("t", members=Members("w", "b3", 1, 0)),))),
        DemandUpdate(MEMBERS, DemandChange(added=(JointFilter("t", members=Members("w", "nobody", 1, 0)),))),
        DemandUpdate(MEMBERS, DemandChange(added=(JointFilter("t", members=Members("w", "b3", 0, 0)),))),
        DemandBucket(MEMBERS, 1, (JointFilter("t"),)),
        DemandUpdate(HOMES, DemandChange()),
        MapSums(HOMES + 1, ((0, 0, 1),)),
        MapSums(MEMBERS, ((0, 0, 1),)),
        MapEntries(0, (event(stamp=7, topic=f"{HOME_TOPICS}1").batch,)),
        MapEntries(HOMES, (event(stamp=7).batch,)),
        Detoured("b2", ("b3", "b1"), "b2", event()),
        Detoured("b2", (), "b9", DemandUpdate(0, DemandChange())),
    ],
)
def test_frames_about_what_there_is_not_are_refused(frame: Any) -> None:
    liar = Liar()
    with pytest.raises(PeerError):
        liar.send(frame)


def test_numbers_and_acknowledgements_that_cannot_be_are_refused() -> None:
    for lie in (NumberedFrame(7, 0, 1, event()), LinkAck(1 << 60), LinkAck(0, ((70, 1),))):
        liar = Liar()
        with pytest.raises(PeerError):
            liar.tell(lie)


def test_more_than_the_credit_is_refused() -> None:
    liar = Liar(2)
    LineClient(liar.line, "b1", "s").subscribe("t", 1)
    big = MessageRun.of([BatchedMessage(False, inf, b"", bytes(9_000))])
    frames = [NumberedFrame(n + 1, 0, 1, event(first=EventId("b2", 5, n), body=big)) for n in range(3)]
    with pytest.raises(PeerError, match="no credit left"):
        liar.connection.receive(write(frames), 100.0)  # all in one turn: nothing is released in between


def test_an_endless_credit_and_no_acknowledgement_keep_one_window_in_memory() -> None:
    liar = Liar(2)
    liar.send(DemandUpdate(0, DemandChange(added=(JointFilter("#", qos=0),))))
    publisher = LineClient(liar.line, "b1", "p")
    for _ in range(200):
        publisher.publish("t", bytes(1_000))
    node = liar.broker.node
    kept = sum(frame.size for frame in node.kept_for("b2") if frame.lane != CONTROL)
    waiting = node._links.sessions["b2"].waiting(0)
    assert kept <= SMALL.window_bytes + 2_000
    assert waiting <= SMALL.queue_bytes_max + 2_000
    assert node.accounts.hops["b2"].dropped["queue-full"] > 100


def test_who_takes_no_events_fills_custody_only_up_to_its_bound_in_bytes() -> None:
    """A publisher is held from then on; one read of it may have come already."""
    liar = Liar(2, node=replace(SMALL, window_bytes=1_000_000))
    liar.send(DemandUpdate(0, DemandChange(added=(JointFilter("#", qos=1),))))
    publisher = LineClient(liar.line, "b1", "p")
    sent = 0
    while not liar.broker.held:
        publisher.publish("t", bytes(1_000), 1)
        sent += 1
        assert sent < 100
    assert 45 <= sent <= 52


def test_pings_without_end_are_answered_once_for_each_write() -> None:
    liar = Liar()
    liar.hear()
    liar.tell(*(Ping(number, 1.0) for number in range(10_000)))
    assert [each for each in liar.hear() if isinstance(each, Pong)] == [Pong(9_999, 1.0, liar.line.now)]


def test_who_asks_for_all_demand_again_and_again_and_reads_nothing_is_cut_off() -> None:
    liar = Liar()
    client = LineClient(liar.line, "b1", "s")
    for number in range(300):
        client.subscribe(f"a/long/topic/filter/number/{number}")
    asked = tuple((DEPTH, place, 12_345) for place in range(FANOUT**DEPTH))

    def ask(times: int) -> None:
        for _ in range(times):
            liar.send(DemandHashes(0, "held", asked))
            liar.hear()

    with pytest.raises(PeerError, match="acknowledges nothing"):
        ask(200)
    assert liar.broker.node._links.sessions["b2"].waiting(CONTROL) < 20 * SMALL.queue_bytes_max


def test_announced_filters_are_bounded_in_number_and_in_bytes() -> None:
    long = DemandTable(["b2"], text_bytes_max=100_000)
    for _ in range(2):
        long.apply("b2", DemandChange(added=(JointFilter("x" * 65_000),)))
        long.apply("b2", DemandChange(removed=(JointFilter("x" * 65_000),)))
    long.apply("b2", DemandChange(added=(JointFilter("x" * 65_000),)))
    with pytest.raises(PeerError, match="filters of 105000 bytes; at most 100000"):
        long.apply("b2", DemandChange(added=(JointFilter("y", Filter(None, {"stock": equals("x" * 39_994)})),)))
    few = DemandTable(["b2"], filters_max=3)
    with pytest.raises(PeerError, match="at most 3"):
        few.apply("b2", DemandChange(added=tuple(JointFilter(str(number)) for number in range(4))))


def test_a_bucket_for_a_place_that_is_not_there_is_refused_or_empty() -> None:
    liar = Liar()
    liar.send(DemandBucket(0, 4_095, ()))
    with pytest.raises(PeerError):
        liar.send(DemandBucket(0, 60_000, (JointFilter("t"),)))


def test_properties_that_subscribers_could_not_read_are_dropped_and_counted() -> None:
    liar = Liar(2)
    subscriber = LineClient(liar.line, "b1", "s", Connect("s"))
    subscriber.subscribe("t", 1)
    for number, properties in enumerate(
        (b"\xff\xff", b"\x23\x00\x01", b"\x0b\x01", b"\x02\x00\x00\x00\x05", b"\x01\x01")
    ):
        run = MessageRun.of([BatchedMessage(False, inf, properties, b"payload")])
        liar.send(event(first=EventId("b2", 5, number), body=run))
    assert [type(packet) for packet in subscriber.read()] == [Publish]
    assert liar.broker.deliveries.malformed == 4


@pytest.mark.parametrize("scheme", ["none", "bypass-buffering"])
@pytest.mark.parametrize("seed", seeds(8, range(16)))
def test_bytes_of_a_neighbour_that_are_changed_on_their_way_raise_peer_error_and_nothing_else(
    scheme: str, seed: int
) -> None:
    """Real traffic, a few bytes of which are others: it is taken, or the connection ends, and all goes on."""
    random = Random(f"{scheme} {seed}")
    world = BrokerWorld(random, scheme)
    world.is_lied_to = True
    refused = 0
    for _ in range(150):
        world.step(crashes=False, cuts=False)
        busy = [(pair, name) for pair, wire in world.wires.items() for name, data in wire.to.items() if data]
        if busy and random.random() < 0.2:
            pair, name = random.choice(busy)
            waiting = world.wires[pair].to[name]
            waiting[random.randrange(len(waiting))] = random.choice((0, 1, 255, random.randrange(256)))
            try:
                world.wires[pair].ends[name].receive(bytes(waiting), world.now)
            except PeerError:
                refused += 1
            waiting.clear()
            world.turn(name)
            world.cut(*pair)
    assert refused > 0
    for name, machine in world.machines.items():
        assert machine.broker is not None
        for hop, accounts in machine.broker.node.accounts.hops.items():
            assert accounts.problem(machine.broker.node.custody.events_unsent(hop)) == "", (name, hop)
