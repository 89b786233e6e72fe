"""A link that breaks loses nothing and repeats nothing; what a session loses when it ends is named."""

from __future__ import annotations

from random import Random

import pytest
from tests.protocol.link.link_pair import WINDOW, LinkPair
from tests.seeds import seeds

from surecast.errors import PeerError
from surecast.protocol.link import CONTROL, LinkAck, LinkHello, LinkSession, NumberedFrame, SessionName


def connected(window: int = WINDOW) -> tuple[LinkSession[bytes], LinkSession[bytes]]:
    a: LinkSession[bytes] = LinkSession(1, window)
    b: LinkSession[bytes] = LinkSession(1, window)
    hello_a, hello_b = a.hello(), b.hello()
    a.connect(hello_b)
    b.connect(hello_a)
    return a, b


@pytest.mark.parametrize("seed", seeds(20, range(80)))
def test_frames_come_in_order_each_once_and_what_does_not_come_is_named_as_lost(seed: int) -> None:
    pair = LinkPair(Random(seed))
    for _ in range(400):
        pair.step()
        assert pair.problems() == []
    pair.settle()
    assert pair.problems() == []
    for name, other in ("ab", "ba"):
        sender, receiver = pair.ends[name], pair.ends[other]
        sent = [content for contents in sender.sent.values() for content in contents]
        received = {content for contents in receiver.received.values() for content in contents}
        assert set(sent) == received | set(sender.lost)


@pytest.mark.parametrize("seed", seeds(20, range(40)))
def test_where_no_session_ends_nothing_is_lost_however_often_the_connection_breaks(seed: int) -> None:
    pair = LinkPair(Random(seed))
    pair.connect()
    for _ in range(300):
        draw = pair.random.random()
        if pair.wire is not None and draw < 0.1:
            pair.cut()
        elif pair.wire is None and draw < 0.3:
            pair.connect()
        else:
            getattr(pair, pair.random.choice(("put", "write", "arrive", "release") if pair.wire else ("put",)))(
                pair.random.choice("ab")
            )
    pair.settle()
    for name, other in ("ab", "ba"):
        assert pair.ends[other].received == pair.ends[name].sent
        assert pair.ends[name].lost == []


@pytest.mark.parametrize("seed", seeds(20, range(40)))
def test_accounts_of_a_direction_balance_after_it_has_come_to_rest(seed: int) -> None:
    """Sent = received + lost, where the sender gives up at times and is told later what had come after all."""
    pair = LinkPair(Random(seed))
    for _ in range(300):
        if pair.wire is None and pair.random.random() < 0.3:
            pair.expire(pair.random.choice("ab"))
        elif pair.wire is None or pair.random.random() < 0.04:
            pair.cut() if pair.wire else pair.connect()
        else:
            getattr(pair, pair.random.choice(("put", "write", "arrive", "release")))(pair.random.choice("ab"))
    pair.settle()
    for name, other in ("ab", "ba"):
        sender, receiver = pair.ends[name], pair.ends[other]
        assert sender.put == sum(map(len, receiver.received.values())) + len(sender.lost) - sender.came_after_all


class _ForgetsWhereToGoOn(LinkSession[bytes]):
    """Repeats everything that is not acknowledged, whatever the neighbour says it has."""

    def connect(self, hello: LinkHello):  # type: ignore[no-untyped-def]
        number = self.number_acked if hello.received == self.sending else hello.number
        return super().connect(LinkHello(hello.sending, hello.received, number, hello.window, hello.credit))


class _KeepsItsGeneration(LinkSession[bytes]):
    """Begins a new session under the name of the one before."""

    def _begin(self) -> None:
        name = self.sending
        super()._begin()
        self.sending = name

    def _expect(self, name: SessionName) -> None:
        super()._expect(SessionName(name.incarnation, max(name.generation - 1, 0)))


class _ForgetsUnacknowledged(LinkSession[bytes]):
    """Does not keep what it has sent."""

    def ready(self) -> list[NumberedFrame[bytes]]:
        frames = super().ready()
        self._unacked.clear()
        return frames


@pytest.mark.parametrize("mutant", [_ForgetsWhereToGoOn, _KeepsItsGeneration, _ForgetsUnacknowledged])
def test_a_session_with_a_part_taken_out_is_noticed(mutant: type[LinkSession[bytes]]) -> None:
    def is_sound(seed: int) -> bool:
        pair = LinkPair(Random(seed), mutant)
        try:
            for _ in range(400):
                pair.step()
            pair.settle()
        except (PeerError, AssertionError):
            return False  # refused by the other end, or never at rest
        sent = {name: {one for lane in end.sent.values() for one in lane} for name, end in pair.ends.items()}
        came = {name: {one for lane in end.received.values() for one in lane} for name, end in pair.ends.items()}
        complete = all(sent[a] == came[b] | set(pair.ends[a].lost) for a, b in ("ab", "ba"))
        return complete and not pair.problems()

    assert not all(is_sound(seed) for seed in range(20))


def test_a_lane_without_credit_waits_and_holds_up_no_other() -> None:
    a, b = connected(window=10)
    for content in (b"12345678", b"abcdefgh", b"ABCDEFGH"):
        a.put(0, len(content), content)
    a.put(1, 6, b"tree 1")
    a.put(CONTROL, 7, b"control")
    frames = a.ready()
    assert [(frame.lane, frame.content) for frame in frames] == [
        (0, b"12345678"),
        (0, b"abcdefgh"),
        (1, b"tree 1"),
        (CONTROL, b"control"),
    ]
    assert a.waiting(0) == 8
    for frame in frames:
        b.receive(frame)
    assert a.take_ack(b.ack() or LinkAck(0)) == frames
    assert a.ready() == []
    b.release(0, 8)
    a.take_ack(b.ack() or LinkAck(0))
    assert [frame.content for frame in a.ready()] == [b"ABCDEFGH"]


def test_nothing_is_acknowledged_twice() -> None:
    a, b = connected()
    a.put(CONTROL, 1, b"x")
    for frame in a.ready():
        b.receive(frame)
    assert b.ack() == LinkAck(1)
    assert b.ack() is None


def test_a_neighbour_that_breaks_the_rules_is_refused_by_what_it_did() -> None:
    a, b = connected(window=10)
    a.put(0, 3, b"one")
    (frame,) = a.ready()
    with pytest.raises(PeerError, match="frame 3 came behind frame 0"):
        b.receive(frame._replace(number=3))
    b.receive(frame)
    with pytest.raises(PeerError, match="frame 1 came behind frame 1"):
        b.receive(frame)
    b.receive(NumberedFrame(2, 0, 10, b"x" * 10))
    with pytest.raises(PeerError, match="lane 0, which has no credit left"):
        b.receive(NumberedFrame(3, 0, 1, b"x"))
    with pytest.raises(PeerError, match="frame 2 is acknowledged, of 1 sent and 0 acknowledged before"):
        a.take_ack(LinkAck(2))
    a.take_ack(LinkAck(1, ((0, 50),)))
    with pytest.raises(PeerError, match="credit of lane 0 falls from 50 to 20"):
        a.take_ack(LinkAck(1, ((0, 20),)))
    a.disconnect()
    with pytest.raises(PeerError, match="the neighbour has frame 9, of 1 that were sent"):
        a.connect(LinkHello(SessionName(1, 1), a.sending, 9, 10))


def test_a_neighbour_that_was_restarted_gets_a_new_session() -> None:
    a, _ = connected()
    a.put(0, 4, b"lost")
    assert len(a.ready()) == 1
    a.put(0, 4, b"kept")
    a.disconnect()
    restarted: LinkSession[bytes] = LinkSession(2, WINDOW)
    hello_a, hello_b = a.hello(), restarted.hello()
    resumption = a.connect(hello_b)
    assert (resumption.is_resumed, [frame.content for frame in resumption.lost]) == (False, [b"lost"])
    assert not restarted.connect(hello_a).is_resumed
    assert [frame.content for frame in resumption.unsent] == [b"kept"]
    assert a.ready() == []


def test_credit_that_is_released_between_hello_and_connection_is_told() -> None:
    """Without it the sender would wait for ever: it has no credit, and so nothing happens that would tell it."""
    a, b = connected(window=10)
    a.put(0, 10, b"0123456789")
    for frame in a.ready():
        b.receive(frame)
    a.disconnect()
    b.disconnect()
    hello_a, hello_b = a.hello(), b.hello()
    b.release(0, 10)
    a.connect(hello_b)
    b.connect(hello_a)
    a.put(0, 4, b"more")
    assert a.ready() == []
    a.take_ack(b.ack() or LinkAck(0))
    assert [frame.content for frame in a.ready()] == [b"more"]


def test_a_hello_is_void_once_what_it_names_was_given_up() -> None:
    a, b = connected()
    a.put(0, 4, b"lost")
    a.ready()
    a.disconnect()
    b.disconnect()
    a.hello()
    hello_b = b.hello()
    a.expire()
    with pytest.raises(PeerError, match="a new hello is needed"):
        a.connect(hello_b)
    hello_a = a.hello()
    assert not a.connect(hello_b).is_resumed
    assert not b.connect(hello_a).is_received_resumed
    a.put(0, 4, b"more")
    for frame in a.ready():
        b.receive(frame)


def test_a_refused_hello_changes_nothing() -> None:
    a, b = connected(window=10)
    a.put(0, 3, b"one")
    for frame in a.ready():
        b.receive(frame)
    b.release(0, 3)
    a.take_ack(b.ack() or LinkAck(0))
    a.disconnect()
    b.disconnect()
    hello_a, hello_b = a.hello(), b.hello()
    with pytest.raises(PeerError, match="credit of lane 0 falls from 13 to 5"):
        a.connect(LinkHello(SessionName(9, 9), hello_b.received, 1, 10, ((0, 5),)))
    assert not a.is_connected
    assert a.received == hello_a.received


def test_a_resumption_says_of_each_direction_whether_it_goes_on() -> None:
    """Only the neighbour gave up: what it had sent may be missing, and nothing of what was sent to it is."""
    a, b = connected()
    a.disconnect()
    b.disconnect()
    b.expire()
    hello_a, hello_b = a.hello(), b.hello()
    at_a, at_b = a.connect(hello_b), b.connect(hello_a)
    assert (at_a.is_resumed, at_a.is_received_resumed) == (True, False)
    assert (at_b.is_resumed, at_b.is_received_resumed) == (False, True)


@pytest.mark.parametrize("lane", [CONTROL, 0])
def test_what_a_neighbour_does_not_acknowledge_is_bounded_whatever_credit_it_gives(lane: int) -> None:
    a, _ = connected(window=10)
    a.take_ack(LinkAck(0, ((0, 1 << 60),)))
    for _ in range(20):
        a.put(lane, 4, b"data")
    assert len(a.ready()) == 3
    assert a.credit(lane) < 0
    assert [frame.number for frame in a.take_ack(LinkAck(2))] == [1, 2]
    assert len(a.ready()) == 2


def test_a_neighbour_invents_no_lanes_and_no_sizes() -> None:
    """Each lane has a window of its own, and a frame that weighs nothing uses none of it."""
    a, _ = connected(window=10)
    for lane, size in ((99, 5), (-2, 5), (0, 0), (0, -5)):
        with pytest.raises(PeerError, match="which there cannot be"):
            a.receive(NumberedFrame(1, lane, size, b"x"))
    with pytest.raises(PeerError, match="credit for lane 12345"):
        a.take_ack(LinkAck(0, ((12345, 100),)))
