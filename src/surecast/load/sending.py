"""The process of a generator that publishes the bulk of a load."""

from __future__ import annotations

import random
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import Final

from surecast.load.board import Board, Phase, Progress, Stage
from surecast.load.broker_access import BrokerConnection
from surecast.load.histogram import Histogram
from surecast.load.keep_alive import KeepAlive
from surecast.load.load_plan import LoadPlan
from surecast.load.packet_walk import next_packet
from surecast.load.publication_encoder import PublicationEncoder
from surecast.load.socket_loop import LoopConnection, SocketLoop

__all__ = ["SentShare", "send"]

_UNSENT_BYTES: Final = 4 << 20
_IDENTIFIERS: Final = 65_535
_IN_FLIGHT_MAX: Final = 60_000
_LOOK_S: Final = 0.05
_QUIET_S: Final = 5.0
_STALL_S: Final = 1.0
_IDENTIFIER: Final = Struct(">xxH")
_PUBACKS: Final = b"\x40"


@dataclass(slots=True)
class SentShare:
    """The work of a publishing process. `withheld` were due and never sent: the broker took no more."""

    sent: int = 0
    sent_in_window: int = 0
    payload_bytes: int = 0
    writes: int = 0
    withheld: int = 0
    refused: int = 0
    unacknowledged: int = 0
    written_off: int = 0
    streams: dict[int, int] = field(default_factory=dict)
    late: Histogram = field(default_factory=Histogram)
    acknowledgement: Histogram = field(default_factory=Histogram)
    processor_s: float = 0.0


class _Publisher(LoopConnection):
    """A connection that publishes. Beyond what the broker lets be in flight, the times of due messages wait."""

    def __init__(self, loop: SocketLoop, connection: BrokerConnection, run: _Sending, streams: list[int]):
        super().__init__(loop, connection)
        self.in_flight = 0
        allowed = connection.connack.properties.receive_maximum or _IN_FLIGHT_MAX
        self.room = min(allowed, _IN_FLIGHT_MAX) if run.plan.qos else _IN_FLIGHT_MAX
        self.waiting: deque[int] = deque()
        self._run = run
        self._streams = streams
        self._turn = 0
        self._identifier = 0
        self._due_ns = [0] * (_IDENTIFIERS + 1) if run.plan.qos else []

    def publish(self, dues_ns: list[int], now_ns: int) -> None:
        """Sends messages that were due at these moments, all in one write, or as many as may be in flight."""
        run = self._run
        if run.plan.qos:
            if self.waiting:
                self.waiting.extend(dues_ns)
                return
            room = self.room - self.in_flight
            if room < len(dues_ns):
                self.waiting.extend(dues_ns[max(0, room) :])
                dues_ns = dues_ns[: max(0, room)]
        if len(self.unsent) > _UNSENT_BYTES:
            run.share.withheld += len(dues_ns)
            return
        if dues_ns:
            self._write(dues_ns, now_ns)

    def _write(self, dues_ns: list[int], now_ns: int) -> None:
        run, streams, turn, count = self._run, self._streams, self._turn, len(dues_ns)
        numbers, encoders = run.numbers, run.encoders
        identifiers = [self._next_identifier(due_ns) for due_ns in dues_ns] if run.plan.qos else []
        self.in_flight += len(identifiers)
        if len(streams) == 1:
            stream = streams[0]
            data = encoders[stream].encode_row(identifiers, numbers[stream], dues_ns, now_ns)
            numbers[stream] += count
            run.expected += run.copies[stream] * count
        else:
            parts = []
            for at, due_ns in enumerate(dues_ns):
                stream = streams[(turn + at) % len(streams)]
                identifier = identifiers[at] if identifiers else 0
                parts.append(encoders[stream].encode(identifier, numbers[stream], due_ns, (now_ns - due_ns) // 1000))
                numbers[stream] += 1
                run.expected += run.copies[stream]
            self._turn = (turn + count) % len(streams)
            data = b"".join(parts)
        run.note_sent(dues_ns, now_ns)
        self.send(data)

    def _next_identifier(self, due_ns: int) -> int:
        identifier = self._identifier % _IDENTIFIERS + 1
        while self._due_ns[identifier]:
            identifier = identifier % _IDENTIFIERS + 1
        self._identifier = identifier
        self._due_ns[identifier] = due_ns
        return identifier

    def handle(self, buffer: bytearray, view: memoryview) -> None:
        """Takes acknowledgements, and sends what waited for them."""
        have = self.read(buffer, view)
        if not have:
            return
        count = have // 4
        if buffer[0:have:4] == _PUBACKS * -(-have // 4) and buffer[1:have:4] == b"\x02" * ((have + 2) // 4):
            self._acknowledged([each[0] for each in _IDENTIFIER.iter_unpack(view[: 4 * count])])
            self.rest = bytes(view[4 * count : have])
        else:
            self._handle_any(buffer, view, have)
        if self.waiting and self.in_flight < self.room:
            dues_ns = [self.waiting.popleft() for _ in range(min(len(self.waiting), self.room - self.in_flight))]
            self._write(dues_ns, time.monotonic_ns())

    def _handle_any(self, buffer: bytearray, view: memoryview, have: int) -> None:
        at, done, released = 0, [], bytearray()
        while (found := next_packet(buffer, at, have)) is not None:
            body, end = found
            kind = buffer[at] >> 4
            if kind in (4, 7):
                done.append(buffer[body] << 8 | buffer[body + 1])
                self._run.share.refused += end - body > 2 and buffer[body + 2] >= 0x80
            elif kind == 5:
                if end - body > 2 and buffer[body + 2] >= 0x80:
                    done.append(buffer[body] << 8 | buffer[body + 1])
                    self._run.share.refused += 1
                else:
                    released += b"\x62\x02" + view[body : body + 2]
            elif kind == 14:
                raise self.connection.ended(bytes(view[at:end]))
            at = end
        self.rest = bytes(view[at:have])
        if released:
            self.send(released)
        if done:
            self._acknowledged(done)

    def _acknowledged(self, identifiers: list[int]) -> None:
        dues_ns = self._due_ns
        times = [dues_ns[each] for each in identifiers if dues_ns[each]]
        for each in identifiers:
            dues_ns[each] = 0
        self.in_flight -= len(times)
        self._run.note_acknowledged(times)


class _Sending:
    """The publishers of a process, and the loop that gives them their messages."""

    def __init__(self, plan: LoadPlan, board: Board, process: int, slot: int):
        self.plan, self._board, self._slot = plan, board, slot
        self.share = SentShare()
        board.put(slot, Progress.STAGE, Stage.CONNECTING)
        self.expected = 0
        self.acknowledged = 0
        self._from_ns = self._until_ns = 0
        self._stalled_since_ns = time.monotonic_ns()
        self._moved = 0
        self._loop = SocketLoop(plan.buffer_bytes)
        streams = plan.streams
        own = set(plan.share(plan.publishers, process))
        mine = {number: stream for number, stream in enumerate(streams) if stream[0] in own}
        self.numbers = dict.fromkeys(mine, 0)
        self.copies = {number: plan.copies(topic) for number, (_, topic) in mine.items()}
        self.encoders = {number: PublicationEncoder(plan, number, topic) for number, (_, topic) in mine.items()}
        self.publishers: list[_Publisher] = []
        by_publisher: dict[int, list[int]] = {}
        for number, (publisher, _) in mine.items():
            by_publisher.setdefault(publisher, []).append(number)
        try:
            for publisher in sorted(own):
                if board.is_stopped:
                    break
                connection = BrokerConnection(plan.access, f"load-{plan.name}-p{publisher}")
                self.publishers.append(_Publisher(self._loop, connection, self, by_publisher[publisher]))
                board.put(slot, Progress.CONNECTED, len(self.publishers))
        except BaseException:
            self._loop.close()
            raise
        self._keep_alive = KeepAlive(self._loop, plan.access.keep_alive_s)

    def note_sent(self, dues_ns: list[int], now_ns: int) -> None:
        """Counts messages that go out in one write."""
        share = self.share
        share.sent += len(dues_ns)
        share.writes += 1
        begin, end = self._from_ns, self._until_ns
        if not (begin <= dues_ns[0] and dues_ns[-1] < end):  # a late process sends those before and after together
            dues_ns = [due_ns for due_ns in dues_ns if begin <= due_ns < end]
        if dues_ns:
            share.sent_in_window += len(dues_ns)
            share.late.add_since(now_ns, dues_ns)

    def note_acknowledged(self, dues_ns: list[int]) -> None:
        """Counts acknowledgements."""
        self.acknowledged += len(dues_ns)
        if dues_ns and self._from_ns <= dues_ns[0] < self._until_ns:
            self.share.acknowledgement.add_since(time.monotonic_ns(), dues_ns)

    def run(self) -> SentShare:
        """Publishes from the moment that the board names; returns what was done."""
        try:
            self._board.put(self._slot, Progress.STAGE, Stage.CONNECTED)
            while self._board.phase == Phase.CONNECTING:
                self._loop.wait(0.005)
                self._keep_alive.look()
            start_ns, self._from_ns, self._until_ns = self._board.times_ns
            before_s = time.process_time()
            if self.plan.rate_per_s is None:
                self._at_window(start_ns)
            else:
                self._at_rate(start_ns)
            self.share.processor_s = time.process_time() - before_s
            self._drain()
        finally:
            self._loop.close()
        share = self.share
        share.streams = self.numbers
        share.payload_bytes = round(sum(self.encoders[each].payload_bytes * n for each, n in self.numbers.items()))
        if self.plan.qos:
            share.unacknowledged = share.sent - self.acknowledged
        return share

    def _report(self) -> None:
        board, slot = self._board, self._slot
        board.put(slot, Progress.SENT, self.share.sent)
        board.put(slot, Progress.EXPECTED, self.expected)
        board.put(slot, Progress.ACKNOWLEDGED, self.acknowledged)

    def _at_rate(self, start_ns: int) -> None:
        """Sends every message when it is due, or as soon after that as this process is awake."""
        plan, publishers, now = self.plan, self.publishers, time.monotonic_ns
        if not publishers or plan.rate_per_s is None:
            return
        draw = random.Random(f"{plan.seed} rate {self._slot}")
        rate_per_ns = plan.rate_per_s * len(publishers) / plan.publishers / 1e9
        gap, pick, paced = draw.expovariate, draw.random, plan.arrivals == "paced"
        due, turn, count, period_ns = float(start_ns), 0, len(publishers), 1 / rate_per_ns
        due += period_ns * draw.random() if paced else gap(rate_per_ns)
        until_ns, look_ns = self._until_ns, start_ns
        while not self._board.is_stopped:
            moment = now()
            if due <= moment:
                batches: dict[int, list[int]] = {}
                while due <= moment and due < until_ns:
                    if paced:
                        chosen, turn = turn, (turn + 1) % count
                        batches.setdefault(chosen, []).append(int(due))
                        due += period_ns
                    else:
                        batches.setdefault(int(pick() * count), []).append(int(due))
                        due += gap(rate_per_ns)
                for chosen, dues_ns in batches.items():
                    publishers[chosen].publish(dues_ns, now())
            if due >= until_ns:
                break
            if moment >= look_ns:
                self._report()
                self._keep_alive.look()
                look_ns = moment + int(_LOOK_S * 1e9)
            self._loop.wait(min(_LOOK_S, (due - now()) / 1e9))
        self._report()

    def _at_window(self, start_ns: int) -> None:
        """Keeps each publisher's window full; what is on its way is known from acknowledgements and from deliveries."""
        plan, publishers, board = self.plan, self.publishers, self._board
        copies = sum(self.copies.values()) / max(1, len(self.copies))
        allowed = plan.window * plan.publishers * copies
        turn, report_ns = 0, 0
        while (moment := time.monotonic_ns()) < self._until_ns and not board.is_stopped:
            if moment < start_ns:
                self._loop.wait(min(_LOOK_S, (start_ns - moment) / 1e9))
                continue
            sent, on_way = False, self._on_way() if copies else 0
            for _ in range(len(publishers)):
                publisher = publishers[turn]
                turn = (turn + 1) % len(publishers)
                if publisher.unsent or publisher.in_flight + plan.burst > min(plan.window, publisher.room):
                    continue
                if on_way + plan.burst * copies > allowed:
                    break
                before, moment = self.expected, time.monotonic_ns()
                publisher.publish([moment] * plan.burst, moment)
                on_way += self.expected - before
                sent = True
            if sent:
                board.put(self._slot, Progress.EXPECTED, self.expected)
            if moment >= report_ns:
                self._report()
                self._keep_alive.look()
                report_ns = moment + int(_LOOK_S * 1e9)
            self._write_off(moment)
            self._loop.wait(0.0 if sent else 0.0002)
        self._report()

    def _on_way(self) -> int:
        """Returns how many deliveries are on their way, over all processes; without those written off."""
        board = self._board
        return board.sum(Progress.EXPECTED) - board.sum(Progress.DELIVERED) - self.share.written_off

    def _write_off(self, moment: int) -> None:
        """Goes on where nothing has moved for a while: what is lost must not hold up the rest."""
        moved = self._board.sum(Progress.DELIVERED) + self.share.sent + self.acknowledged
        if moved != self._moved:
            self._moved, self._stalled_since_ns = moved, moment
        elif moment - self._stalled_since_ns > _STALL_S * 1e9:
            self.share.written_off += max(0, self._on_way())
            self._stalled_since_ns = moment

    def _drain(self) -> None:
        """Sends what is left, and waits for acknowledgements as long as some come."""
        quiet_since, before = time.monotonic(), -1
        while not self._board.is_stopped:
            left = sum(len(each.waiting) + len(each.unsent) + each.in_flight for each in self.publishers)
            if not left:
                break
            if left != before:
                before, quiet_since = left, time.monotonic()
            elif time.monotonic() - quiet_since > _QUIET_S:
                break
            self._loop.wait(_LOOK_S)
            self._keep_alive.look()
        self.share.withheld += sum(len(each.waiting) for each in self.publishers)
        self._report()
        self._board.put(self._slot, Progress.STAGE, Stage.SENT)
        while self._board.phase != Phase.STOPPED and not self._board.is_stopped:
            self._loop.wait(_LOOK_S)  # connections stay until all is delivered
            self._keep_alive.look()


def send(plan: LoadPlan, board: Path, processes: int, process: int, slot: int) -> SentShare:
    """Publishes the share of a process; the board says when."""
    with Board(board, processes) as shared:
        return _Sending(plan, shared, process, slot).run()
