"""A client that connects to another broker finds its session there: subscriptions, queue, and what is in flight."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.protocol.overlay_broker.broker_line import BrokerLine, LineClient
from tests.protocol.overlay_broker.move_world import run_moves

from surecast.errors import PeerError
from surecast.protocol.broker.accounts import Accounts
from surecast.protocol.broker.message import Delivery, Message
from surecast.protocol.broker.session_transfer import SessionTransfers
from surecast.protocol.mqtt import (
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
    ReasonCode,
)
from surecast.protocol.mqtt.packets import Will
from surecast.protocol.overlay.event_id import EventId
from surecast.protocol.overlay.node_links import NodeSettings
from surecast.protocol.overlay_broker.move_frames import read_frame
from surecast.protocol.overlay_broker.session_moves import SessionMoves
from surecast.protocol.overlay_broker.session_parts import SessionParts
from surecast.protocol.overlay_broker.session_seen import SessionSeen

MOVING = NodeSettings(homes_max=1_000, moves=True)


class Client(LineClient):
    """A client with a session that lasts; it acknowledges only what it is told to."""

    def __init__(self, line: BrokerLine, home: str, name: str = "ann", *, lasts_s: int = 1_000, clean: bool = False,
                 will_delay_s: int | None = None):  # fmt: skip
        self.packets: list[Packet] = []
        will = None
        if will_delay_s is not None:
            will = Will("wills", b"gone", 1, properties=Properties(will_delay_s=will_delay_s))
        hello = Connect(name, clean, will=will, properties=Properties(session_expiry_s=lasts_s))
        super().__init__(line, home, name, hello)

    def read(self) -> list[Packet]:
        packets = super().read()
        self.packets += packets
        return packets

    @property
    def found(self) -> bool | None:
        """Whether its session was there; None as long as it waits."""
        return next((packet.session_present for packet in self.packets if isinstance(packet, Connack)), None)

    @property
    def got(self) -> list[tuple[bytes, int, bool]]:
        """What it was sent: payload, identifier, and whether it was sent before."""
        self.read()
        return [(each.payload, each.packet_id, each.dup) for each in self.packets if isinstance(each, Publish)]


def publisher(line: BrokerLine, home: str) -> LineClient:
    return LineClient(line, home, f"p{home}")


def places(line: BrokerLine, name: str = "ann") -> list[str]:
    return [broker.name for broker in line.brokers.values() if name in broker.core.sessions.by_key]


def moves(line: BrokerLine, name: str) -> SessionMoves:
    found = line.brokers[name].moves
    assert found is not None
    return found


@pytest.mark.parametrize("scheme", ["none", "buffering", "bypass", "bypass-buffering"])
def test_a_session_moves_with_subscriptions_queue_and_flight_and_nothing_of_it_stays(scheme: str) -> None:
    line = BrokerLine(3, scheme, MOVING)
    ann, source = Client(line, "b1"), publisher(line, "b2")
    ann.subscribe("news", 2)
    for text in (b"0", b"1", b"2"):
        source.publish("news", text, 1)
    assert [payload for payload, _, _ in ann.got] == [b"0", b"1", b"2"]
    ann.send(Puback(1))
    ann.close()
    source.publish("news", b"3", 1)
    away = Client(line, "b3")
    assert away.found
    assert away.got == [(b"1", 2, True), (b"2", 3, True), (b"3", 4, False)], "order and identifiers are as they were"
    source.publish("news", b"4", 1)
    line.wait(6.0)
    source.publish("news", b"5", 1)
    assert [payload for payload, _, _ in away.got] == [b"1", b"2", b"3", b"4", b"5"], "each once"
    assert places(line) == ["b3"]
    assert line.brokers["b1"].core.accounts() == Accounts(matched=5, delivered=1, dropped={"moved": 4})
    assert line.brokers["b3"].core.accounts() == Accounts(matched=5)


def test_at_qos_2_the_exchange_goes_on_where_it_stood_in_both_directions() -> None:
    line = BrokerLine(2, "buffering", MOVING)
    ann, source = Client(line, "b1"), publisher(line, "b1")
    ann.subscribe("news", 2)
    source.send(Publish("news", b"0", 2, packet_id=1), Publish("news", b"1", 2, packet_id=2))
    ann.read()
    ann.send(Pubrec(1), Publish("out", b"mine", 2, packet_id=7))
    ann.close()
    reader = LineClient(line, "b2", "reader")
    reader.subscribe("out", 1)
    away = Client(line, "b2")
    assert [packet for packet in away.packets if isinstance(packet, Pubrel)] == [Pubrel(1)]
    assert away.got == [(b"1", 2, True)]
    away.send(Publish("out", b"mine", 2, dup=True, packet_id=7), Pubrel(7), Pubcomp(1))
    assert reader.payloads() == [], "it was published before"


def test_a_client_that_is_still_connected_elsewhere_is_told_and_its_will_does_not_speak() -> None:
    line = BrokerLine(2, "buffering", MOVING)
    wills = LineClient(line, "b1", "heir")
    wills.subscribe("wills", 1)
    ann = Client(line, "b1", will_delay_s=30)
    away = Client(line, "b2", will_delay_s=30)
    assert away.found
    told = [packet for packet in ann.read() if isinstance(packet, Disconnect)]
    assert [packet.reason for packet in told] == [ReasonCode.SESSION_TAKEN_OVER]
    line.wait(40.0)
    assert wills.payloads() == []


def test_whose_home_cannot_be_reached_begins_anew_at_once_and_the_rest_comes_later() -> None:
    line = BrokerLine(2, "buffering", MOVING)
    ann, source = Client(line, "b1"), publisher(line, "b1")
    ann.subscribe("news", 1)
    ann.subscribe("old", 1)
    ann.close()
    source.publish("news", b"0", 1)
    line.crash("b1")
    away = Client(line, "b2")
    assert away.found is False
    assert moves(line, "b2").begun_anew == 1
    away.subscribe("news", 1)
    line.now += 1.0
    publisher(line, "b2").publish("news", b"1", 1)
    line.start("b1")
    line.join("b1", "b2")
    line.wait(70.0)
    assert [payload for payload, _, _ in away.got] == [b"1", b"0"], "behind what is new"
    line.wait(70.0)
    line.wait(70.0)
    assert places(line) == ["b2"]
    assert list(line.brokers["b2"].core.sessions.by_key["ann"].subscriptions) == ["news"], "the newer part's"


def test_a_client_waits_for_a_silent_home_for_some_time_and_then_begins_anew() -> None:
    line = BrokerLine(3, "buffering", MOVING)
    Client(line, "b1").close()
    line.cut("b1", "b2")
    away = Client(line, "b3")  # which does not see that
    assert away.found is None
    line.wait(4.0)
    assert (away.read(), away.found) == ([], None)
    line.wait(2.0)
    away.read()
    assert away.found is False


@pytest.mark.parametrize("is_known", [False, True])
def test_a_connection_that_waits_takes_nothing_from_one_that_came_later(is_known: bool) -> None:
    line = BrokerLine(3, "buffering", MOVING)
    ann = Client(line, "b1")
    ann.subscribe("news", 2)
    ann.close()
    line.cut("b1", "b2")
    lost = Client(line, "b3")  # nobody notices its end
    line.now += 1.0
    back = Client(line, "b1")
    assert (lost.found, back.found) == (None, True)
    if is_known:
        line.join("b1", "b2")
        lost.read()
        assert [each.reason for each in lost.packets if isinstance(each, Connack)] == [ReasonCode.SERVER_BUSY]
    line.wait(6.0)
    lost.read()
    assert lost.found is False
    if not is_known:
        line.join("b1", "b2")
    line.wait(70.0)
    assert not back.connection.is_closed()
    assert places(line) == ["b1"]
    publisher(line, "b3").publish("news", b"0", 2)
    assert [payload for payload, _, _ in back.got] == [b"0"]


def test_who_comes_back_before_the_session_has_left_goes_on_with_it() -> None:
    line = BrokerLine(3, "buffering", MOVING)
    ann = Client(line, "b1")
    ann.subscribe("news", 1)
    publisher(line, "b1").publish("news", b"0", 1)
    assert [payload for payload, _, _ in ann.got] == [b"0"]
    ann.close()
    away = Client(line, "b3")
    line.cut("b1", "b2")
    away.close()
    back = Client(line, "b1")
    line.join("b1", "b2")
    line.wait(70.0)
    assert back.found is not None
    assert [payload for payload, _, _ in back.got].count(b"0") == 1


def test_a_clean_start_ends_the_session_elsewhere_also_one_that_could_not_be_reached() -> None:
    line = BrokerLine(2, "buffering", MOVING)
    for is_cut in (False, True):
        ann, source = Client(line, "b1"), publisher(line, "b1")
        ann.subscribe("news", 1)
        ann.close()
        source.publish("news", b"0", 1)
        if is_cut:
            line.cut("b1", "b2")
        away = Client(line, "b2", clean=True)
        assert away.found is False
        if is_cut:
            line.join("b1", "b2")
        line.wait(70.0)
        assert places(line) == ["b2"]
        assert away.got == []
        away.close()
        line.brokers["b2"].core.end_session("ann", line.now)
        line.run()


def test_a_session_hops_over_three_brokers_and_back_within_a_moment() -> None:
    line = BrokerLine(3, "buffering", MOVING)
    source = publisher(line, "b2")
    Client(line, "b1").subscribe("news", 1)
    texts = []
    for number, home in enumerate(["b2", "b3", "b1", "b3", "b2", "b1", "b2"]):
        client = Client(line, home)
        assert client.found, f"hop {number} to {home}"
        source.publish("news", b"%d" % number, 1)
        for payload, identifier, _ in client.got:
            texts.append(payload)
            client.send(Puback(identifier))
    assert texts == [b"%d" % number for number in range(7)]
    line.wait(6.0)
    line.wait(6.0)
    assert places(line) == ["b2"]


def test_moved_messages_expire_and_a_moved_session_does() -> None:
    line = BrokerLine(2, "buffering", MOVING)
    ann, source = Client(line, "b1", lasts_s=60), publisher(line, "b2")
    ann.subscribe("news", 1)
    ann.close()
    source.publish("news", b"0", 1, message_expiry_s=5)
    source.publish("news", b"1", 1)
    line.now += 10.0
    away = Client(line, "b2", lasts_s=60)
    assert [payload for payload, _, _ in away.got] == [b"1"]
    line.wait(6.0)
    away.close()
    line.wait(70.0)
    assert places(line) == []


def _stopping(receive: Callable[..., None]) -> Callable[..., None]:
    """Returns a method that takes six frames, and then stops the world."""
    count = 0

    def stops(*arguments: object) -> None:
        nonlocal count
        count += 1
        if count > 6:
            raise PeerError("the link is lost")
        receive(*arguments)

    return stops


def test_a_long_queue_moves_in_pieces_and_survives_a_crash_of_either_end_in_the_middle() -> None:
    for victim in ("b1", "b3"):
        line = BrokerLine(3, "buffering", MOVING)
        ann, source = Client(line, "b1"), publisher(line, "b1")
        ann.subscribe("news", 1)
        ann.close()
        line.cut("b2", "b3")
        texts = [b"%d " % number + b"x" * 5_000 for number in range(300)]
        for text in texts:
            source.publish("news", text, 1)
        line.join("b2", "b3")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SessionMoves, "receive", _stopping(SessionMoves.receive))
            with pytest.raises(PeerError):
                Client(line, "b3")
        line.crash(victim)
        line.start(victim)
        for pair in (("b1", "b2"), ("b2", "b3")):
            if victim in pair:
                line.join(*pair)
        line.wait(70.0)
        away = Client(line, "b3")
        line.wait(70.0)
        line.wait(70.0)
        got: list[bytes] = []
        while len(got) < len(texts):
            fresh = [packet for packet in away.packets if isinstance(packet, Publish)]
            away.packets = []
            assert fresh, f"{len(got)} of {len(texts)} with a crash of {victim}"
            got += [packet.payload for packet in fresh]
            away.send(*[Puback(packet.packet_id) for packet in fresh])
            away.read()
        assert sorted(got) == sorted(texts)


def test_what_a_client_had_elsewhere_is_told_although_it_is_in_flight_here() -> None:
    seen = SessionSeen()
    had_elsewhere, delivered, queued = (Message(number, "news", b"", b"") for number in range(3))
    for number, message in enumerate((had_elsewhere, delivered, queued)):
        message.event = EventId("b1", 1, 2 * number)
        assert seen.takes(message)
    first = EventId("b1", 1, 0)
    seen.is_elsewhere([(first, 1)], [(first, 1)])
    done = seen.done_besides([Delivery(had_elsewhere, 2, False, (), 7), Delivery(queued, 2, False, (), 8)])
    assert set(done) == {(first, 1), (EventId("b1", 1, 2), 1)}


def test_bytes_that_are_no_frame_of_a_session_are_refused() -> None:
    for data in (b"", b"x", b"o", b"s\0", b"o" + b"\xff" * 100):
        with pytest.raises(PeerError):
            read_frame(data)


# Worlds in which everything fails


@pytest.mark.parametrize(
    ("scheme", "seed"),
    [*(("buffering", seed) for seed in (0, 1, 2092)), ("none", 22), ("bypass", 1009), ("bypass-buffering", 1)],
)
def test_wherever_a_client_goes_it_has_each_message_and_at_qos_2_once(scheme: str, seed: int) -> None:
    problems, world = run_moves(seed, scheme)
    assert problems == []
    assert sum(hopper.hops for hopper in world.hoppers)


class _NoMemory(SessionSeen):
    """Does not know what it has had."""

    def takes(self, message: Message) -> bool:
        return True

    takes_moved = takes

    def takes_all(self, *_: object) -> bool:
        return True


class _LosesFlight(SessionTransfers):
    """Moves only what waits."""

    @staticmethod
    def queued(session, after, bytes_max):  # type: ignore[no-untyped-def]
        inflight = dict(session.tracked)
        session.tracked.clear()
        try:
            return SessionTransfers.queued(session, after, bytes_max)
        finally:
            session.tracked.update(inflight)


def _ends_at_once(self: SessionMoves, key: str, now: float) -> None:
    """Ends its part when the other broker has the head, without what comes meanwhile."""
    part = self._parts[key]
    if part.leaving is not None and part.leaving.trees and not part.leaving.sent:
        session = self._core.sessions.by_key.get(key)
        if session is not None:
            self._core.sessions.end(session, now)
            return
    _pump(self, key, now)


def _forgets_parts(self: SessionParts) -> None:
    """Has nothing on disk of its parts."""
    self.changed.clear()


_pump = SessionMoves._pump

_PACKAGE = "surecast.protocol.overlay_broker"
MUTATIONS = {
    "no memory of what was had": (f"{_PACKAGE}.overlay_broker.SessionSeen", _NoMemory),
    "what is in flight stays behind": (f"{_PACKAGE}.session_moves.SessionTransfers", _LosesFlight),
    "the old broker forwards nothing": (f"{_PACKAGE}.session_moves.SessionMoves._pump", _ends_at_once),
    "parts are not on disk": (f"{_PACKAGE}.session_parts.SessionParts.write", _forgets_parts),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_broken_broker_is_found_out(mutation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MUTATIONS[mutation])
    assert any(run_moves(seed, "buffering")[0] for seed in range(8))
