"""The process of a generator that subscribes, and checks and times every delivery."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import Final

from surecast.load.board import Board, Phase, Progress, Stage
from surecast.load.broker_access import BrokerConnection, LoadError
from surecast.load.histogram import SAMPLES_MAX, Histogram
from surecast.load.keep_alive import KeepAlive
from surecast.load.load_plan import HEADER_BYTES, LoadPlan
from surecast.load.order_check import OrderCheck
from surecast.load.packet_walk import next_packet
from surecast.load.publication_encoder import HEADER
from surecast.load.socket_loop import LoopConnection, SocketLoop
from surecast.protocol.mqtt import V5

__all__ = ["LATE_NS", "LATE_SHARE", "ReceivedShare", "receive"]

LATE_NS: Final = 50_000
LATE_SHARE: Final = 0.05
"""A time does not count where its message was sent later than this, and by more than this share of the time."""

_LOOK_S: Final = 0.02
_IN_READ: Final = 4_096
_ACKED: Final = {n: (b"\x40" * n, b"\x02" * n) for n in range(_IN_READ + 1)}
_PAYLOAD: Final = Struct(f">{HEADER}")


@dataclass(slots=True)
class ReceivedShare:
    """The deliveries to the subscribers of a process. `in_window` are those that came while the load was measured."""

    delivered: int = 0
    in_window: int = 0
    wire_bytes: int = 0
    distinct: dict[int, int] = field(default_factory=dict)
    disordered: int = 0
    duplicates: int = 0
    unclear: int = 0
    reads: int = 0
    delay: Histogram = field(default_factory=Histogram)
    thrown_away: int = 0
    processor_s: float = 0.0


class _Layout:
    """The places of the parts of deliveries that are as long as the first one, and the readers for a row of them."""

    __slots__ = ("alike", "first", "identifier_at", "rows", "size", "to_payload", "topic_bytes")

    def __init__(self, alike: dict[int, bytes], size: int, identifier_at: int, payload_at: int, body_at: int):
        self.alike, self.size, self.identifier_at = alike, size, identifier_at
        self.first, self.topic_bytes = alike[0][0], alike[body_at + 1][0]
        self.to_payload = payload_at - body_at
        self.rows = Struct(f">{payload_at}x{HEADER}{size - payload_at - HEADER_BYTES}x").iter_unpack


class _Subscriber(LoopConnection):
    """A connection that takes deliveries, checks them and acknowledges them."""

    def __init__(self, loop: SocketLoop, connection: BrokerConnection, run: _Receiving, number: int):
        super().__init__(loop, connection)
        self.number = number
        self.check = OrderCheck()
        self._run = run
        self._qos = run.plan.qos
        self._is_v5 = connection.access.version == V5
        self._layout: _Layout | None = None

    def handle(self, buffer: bytearray, view: memoryview) -> None:
        """Takes what has come: a row of deliveries that are equally long at once, else packet by packet."""
        have = self.read(buffer, view)
        if not have:
            return
        self._run.share.reads += 1
        layout = self._layout
        if layout is not None and self._qos < 2:
            count = have // layout.size
            if count and self._is_row(buffer, layout, count):
                end = count * layout.size
                streams, numbers, dues_ns, late_us = zip(*layout.rows(view[:end]), strict=True)
                self._take(streams, numbers, dues_ns, late_us, end)
                if self._qos:
                    self._acknowledge_row(buffer, layout, count)
                self.rest = bytes(view[end:have])
                return
        self._handle_any(buffer, view, have)

    @staticmethod
    def _is_row(buffer: bytearray, layout: _Layout, count: int) -> bool:
        """Returns whether so many packets behind each other have the same flags, length and layout."""
        size, end = layout.size, count * layout.size
        return all(buffer[at:end:size] == byte * count for at, byte in layout.alike.items())

    def _acknowledge_row(self, buffer: bytearray, layout: _Layout, count: int) -> None:
        answers = bytearray(4 * count)
        answers[0::4], answers[1::4] = _ACKED.get(count) or (b"\x40" * count, b"\x02" * count)
        at, end = layout.identifier_at, count * layout.size
        answers[2::4] = buffer[at : end : layout.size]
        answers[3::4] = buffer[at + 1 : end : layout.size]
        self.send(answers)

    def _handle_publishes(self, buffer: bytearray, have: int) -> tuple[int, list[int]]:
        """Returns where the payloads of deliveries of any length begin, as far as they are laid out like the first.

        All topics are equally long. The number in front is that of the bytes looked at.
        """
        layout, at = self._layout, 0
        places: list[int] = []
        if layout is None or self._qos > 1:
            return 0, places
        first, topic_bytes, to_payload = layout.first, layout.topic_bytes, layout.to_payload
        properties = to_payload - 1 if self._is_v5 else 0
        while at + 4 <= have and buffer[at] == first:
            length, body = buffer[at + 1], at + 2
            if length > 127:
                if buffer[body] > 127:
                    break
                length, body = length & 127 | buffer[body] << 7, at + 3
            end = body + length
            if end > have or buffer[body + 1] != topic_bytes or (properties and buffer[body + properties]):
                break
            places.append(body + to_payload)
            at = end
        return at, places

    def _handle_any(self, buffer: bytearray, view: memoryview, have: int) -> None:
        at, places = self._handle_publishes(buffer, have)
        rows = [_PAYLOAD.unpack_from(buffer, place) for place in places]
        answers = bytearray()
        if self._qos and places:
            back = 3 if self._is_v5 else 2
            answers += b"".join([b"\x40\x02" + view[place - back : place - back + 2] for place in places])
        while (found := next_packet(buffer, at, have)) is not None:
            body, end = found
            kind = buffer[at] >> 4
            if kind == 3:
                payload_at, identifier_at = self._payload(buffer, at, body)
                if end - payload_at < HEADER_BYTES:
                    raise LoadError(
                        f"{self.connection.access}: {self.connection.name} got a message that this load did not send"
                    )
                rows.append(_PAYLOAD.unpack_from(buffer, payload_at))
                if identifier_at:
                    first = b"\x40\x02" if buffer[at] & 6 == 2 else b"\x50\x02"
                    answers += first + view[identifier_at : identifier_at + 2]
                # Flags, length, length of the topic, and the last byte in front of the payload: 0 properties in MQTT 5.
                places = [*range(at, body + 2), *([payload_at - 1] if self._is_v5 else [])]
                alike = {place - at: bytes(view[place : place + 1]) for place in places}
                self._layout = _Layout(alike, end - at, identifier_at - at, payload_at - at, body - at)
            elif kind == 6:
                answers += b"\x70\x02" + view[body : body + 2]
            elif kind == 14:
                raise self.connection.ended(bytes(view[at:end]))
            at = end
        self.rest = bytes(view[at:have])
        if rows:
            streams, numbers, dues_ns, late_us = zip(*rows, strict=True)
            self._take(streams, numbers, dues_ns, late_us, at)
        if answers:
            self.send(answers)

    def _payload(self, buffer: bytearray, at: int, body: int) -> tuple[int, int]:
        """Returns where the payload of a PUBLISH begins, and its packet identifier, 0 where it has none."""
        place = body + 2 + (buffer[body] << 8 | buffer[body + 1])
        identifier_at = 0
        if buffer[at] & 6:
            identifier_at, place = place, place + 2
        if self._is_v5:
            length, shift = 0, 0
            while True:
                byte = buffer[place]
                length |= (byte & 127) << shift
                place, shift = place + 1, shift + 7
                if byte < 128:
                    break
            place += length
        return place, identifier_at

    def _take(
        self,
        streams: tuple[int, ...],
        numbers: tuple[int, ...],
        dues_ns: tuple[int, ...],
        late_us: tuple[int, ...],
        size: int,
    ) -> None:
        self.check.take(streams, numbers)
        self._run.note(dues_ns, late_us, size)


class _Receiving:
    """The subscribers of a process, with connections that only stay."""

    def __init__(self, plan: LoadPlan, board: Board, process: int, slot: int):
        self.plan, self._board, self._slot = plan, board, slot
        self.share = ReceivedShare()
        board.put(slot, Progress.STAGE, Stage.CONNECTING)
        self._from_ns = self._until_ns = 0
        self._loop = SocketLoop(plan.buffer_bytes)
        self._subscribers: list[_Subscriber] = []
        access, opened = plan.access, 0
        try:
            for number in plan.share(plan.subscribers, process):
                if board.is_stopped:
                    break
                name = plan.subscriber_name(number)
                connection = BrokerConnection(access, name, not plan.persistent, plan.session_s)
                try:
                    connection.subscribe(plan.filters(number), plan.qos)
                finally:
                    self._subscribers.append(_Subscriber(self._loop, connection, self, number))
                opened += 1
                board.put(slot, Progress.CONNECTED, opened)
            for number in plan.share(plan.idle, process):
                if board.is_stopped:
                    break
                _Subscriber(self._loop, BrokerConnection(access, f"load-{plan.name}-i{number}"), self, -1)
                opened += 1
                board.put(slot, Progress.CONNECTED, opened)
        except BaseException:
            self._loop.close()
            raise
        self._keep_alive = KeepAlive(self._loop, access.keep_alive_s)

    def note(self, dues_ns: tuple[int, ...], late_us: tuple[int, ...], size: int) -> None:
        """Counts deliveries that came together, and times some of them."""
        share, count = self.share, len(dues_ns)
        share.delivered += count
        share.wire_bytes += size
        self._board.put(self._slot, Progress.DELIVERED, share.delivered)
        now_ns = time.monotonic_ns()
        if not self._from_ns <= now_ns:
            return
        if now_ns < self._until_ns:
            share.in_window += count
        samples = min(count, SAMPLES_MAX)
        for sample in range(samples):
            first, end = sample * count // samples, (sample + 1) * count // samples
            at = (first + end) // 2
            if not self._from_ns <= dues_ns[at] < self._until_ns:
                continue
            delay_ns = now_ns - dues_ns[at]
            if late_us[at] * 1000 > max(LATE_NS, LATE_SHARE * delay_ns):
                share.thrown_away += end - first
            else:
                share.delay.add(delay_ns, end - first)

    def run(self) -> ReceivedShare:
        """Takes deliveries until the board says that it is over; returns what came."""
        board, loop = self._board, self._loop
        try:
            board.put(self._slot, Progress.STAGE, Stage.CONNECTED)
            while board.phase == Phase.CONNECTING and not board.is_stopped:
                loop.wait(0.005)
                self._keep_alive.look()
            _, self._from_ns, self._until_ns = board.times_ns
            before_s = time.process_time()
            while not board.is_stopped:
                loop.wait(_LOOK_S)
                self._keep_alive.look()
            self.share.processor_s = time.process_time() - before_s
        finally:
            loop.close()
        share = self.share
        for each in self._subscribers:
            share.distinct[each.number] = each.check.distinct
            share.disordered += each.check.disordered
            share.duplicates += each.check.duplicates
            share.unclear += each.check.unclear
        return share


def receive(plan: LoadPlan, board: Path, processes: int, process: int, slot: int) -> ReceivedShare:
    """Subscribes with the share of a process, and takes what comes until the board says that it is over."""
    with Board(board, processes) as shared:
        return _Receiving(plan, shared, process, slot).run()
