"""The process of a generator that measures delay: a few messages, sent and awaited by a process that does not sleep.

An event loop wakes up as late as a broker's whole delay is long. So this process spins before it sends and until the
message is back, and knows from its own turns when it was not running: such samples are thrown away and counted.
"""

from __future__ import annotations

import random
import select
import time
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import Final

from surecast.load.board import Board, Phase, Progress, Stage
from surecast.load.broker_access import BrokerConnection, would_block
from surecast.load.histogram import Histogram
from surecast.load.load_plan import HEADER_BYTES, LoadPlan
from surecast.load.packet_walk import next_packet
from surecast.protocol.mqtt import Puback, encode, encode_publish

__all__ = ["ProbeShare", "probe"]

SPIN_S: Final = 0.0005
_SPIN_AFTER_NS: Final = 2_000_000
_GAP_NS: Final = 10_000
_LATE_NS: Final = 20_000
_LATE_SHARE: Final = 0.05
_LOOK_S: Final = 0.05
_DRAIN_S: Final = 10.0
_NUMBER: Final = Struct(">Q")


@dataclass(slots=True)
class ProbeShare:
    """Results of the probes. `late` is how late each was sent; `thrown_away` were disturbed, `lost` did not come."""

    sent: int = 0
    lost: int = 0
    thrown_away: int = 0
    delay: Histogram = field(default_factory=Histogram)
    late: Histogram = field(default_factory=Histogram)


@dataclass(slots=True)
class _Probe:
    due_ns: int
    worst_ns: int


class _Probing:
    """A publisher and a subscriber of one topic that has no other messages."""

    def __init__(self, plan: LoadPlan, board: Board, slot: int):
        self._plan, self._board, self._slot = plan, board, slot
        self._qos = min(plan.qos, 1)
        self._share = ProbeShare()
        board.put(slot, Progress.STAGE, Stage.CONNECTING)
        self._on_way: dict[int, _Probe] = {}
        self._rest = b""
        self._from_ns = 0
        self._topic = f"{plan.base}/p/00000"
        self._subscriber = BrokerConnection(plan.access, f"load-{plan.name}-a")
        try:
            self._subscriber.subscribe([self._topic], self._qos)
            self._publisher = BrokerConnection(plan.access, f"load-{plan.name}-b")
        except BaseException:
            self._subscriber.close()
            raise
        self._subscriber.run_free()
        self._publisher.run_free()

    def run(self) -> ProbeShare:
        """Sends probes from the moment that the board names."""
        board = self._board
        try:
            board.put(self._slot, Progress.CONNECTED, 2)
            board.put(self._slot, Progress.STAGE, Stage.CONNECTED)
            while board.phase == Phase.CONNECTING and not board.is_stopped:
                time.sleep(0.005)
            start_ns, self._from_ns, until_ns = board.times_ns
            self._probe(start_ns, until_ns)
        finally:
            self._publisher.close()
            self._subscriber.close()
        self._share.lost = len(self._on_way)
        board.put(self._slot, Progress.STAGE, Stage.SENT)
        return self._share

    def _probe(self, start_ns: int, until_ns: int) -> None:
        now, on_way = time.monotonic_ns, self._on_way
        draw = random.Random(f"{self._plan.seed} probe")
        rate_per_ns = self._plan.probes_per_s / 1e9
        due_ns = start_ns + int(draw.expovariate(rate_per_ns))
        last_ns = now()
        while not self._board.is_stopped:
            moment = now()
            gap_ns = moment - last_ns
            if gap_ns > _GAP_NS:
                for each in on_way.values():
                    each.worst_ns = max(each.worst_ns, gap_ns)
            last_ns = moment
            if moment >= due_ns and due_ns < until_ns:
                self._send(due_ns)
                due_ns += int(draw.expovariate(rate_per_ns))
            elif moment >= until_ns and (not on_way or moment > until_ns + _DRAIN_S * 1e9):
                return
            self._take()
            if not on_way or moment - next(iter(on_way.values())).due_ns > _SPIN_AFTER_NS:
                left_s = (due_ns - now()) / 1e9 - SPIN_S if due_ns < until_ns else _LOOK_S
                if left_s > 0:
                    self._drain_publisher()
                    select.select((self._subscriber.socket,), (), (), min(left_s, _LOOK_S))
                    last_ns = now()

    def _send(self, due_ns: int) -> None:
        share, number = self._share, self._share.sent
        payload = _NUMBER.pack(number).ljust(max(HEADER_BYTES, self._plan.size_bytes), b"\0")
        topic, version = self._topic.encode(), self._plan.access.version
        identifier = number % 65_535 + 1 if self._qos else 0
        data = encode_publish(topic, payload, self._qos, packet_id=identifier, version=version)
        late_ns = time.monotonic_ns() - due_ns
        try:
            sent = self._publisher.socket.send(data)
        except OSError as error:
            if not would_block(error):
                raise self._publisher.ended() from None
            sent = 0
        if sent < len(data):  # rare: a few small messages always find room, but for a broker that reads no more
            self._publisher.socket.settimeout(self._plan.access.timeout_s)
            self._publisher.socket.sendall(data[sent:])
            self._publisher.run_free()
        share.sent += 1
        if due_ns >= self._from_ns:
            share.late.add(late_ns)
        self._on_way[number] = _Probe(due_ns, late_ns)

    def _take(self) -> None:
        try:
            data = self._subscriber.socket.recv(1 << 16)
        except OSError as error:
            if would_block(error):
                return
            raise self._subscriber.ended() from None
        if not data:
            raise self._subscriber.ended(self._rest)
        now_ns = time.monotonic_ns()
        data, at = self._rest + data, 0
        while (found := next_packet(data, at, len(data))) is not None:
            body, end = found
            if data[at] >> 4 == 3:
                self._arrived(data, at, body, end, now_ns)
            elif data[at] >> 4 == 14:
                raise self._subscriber.ended(data[at:end])
            at = end
        self._rest = data[at:]

    def _arrived(self, data: bytes, at: int, body: int, end: int, now_ns: int) -> None:
        place = body + 2 + (data[body] << 8 | data[body + 1])
        if data[at] & 6:
            answer = encode(Puback(data[place] << 8 | data[place + 1]), self._plan.access.version)
            self._subscriber.socket.send(answer)
        # The payload is as long as all probes' payloads are; what lies between are properties.
        payload_at = end - max(HEADER_BYTES, self._plan.size_bytes)
        probe = self._on_way.pop(_NUMBER.unpack_from(data, payload_at)[0], None)
        if probe is None or probe.due_ns < self._from_ns:
            return
        delay_ns = now_ns - probe.due_ns
        if probe.worst_ns > max(_LATE_NS, _LATE_SHARE * delay_ns):
            self._share.thrown_away += 1
        else:
            self._share.delay.add(delay_ns)

    def _drain_publisher(self) -> None:
        """Takes acknowledgements, which nobody looks at."""
        try:
            if not self._publisher.socket.recv(1 << 16):
                raise self._publisher.ended()
        except OSError as error:
            if not would_block(error):
                raise self._publisher.ended() from None


def probe(plan: LoadPlan, board: Path, processes: int, process: int, slot: int) -> ProbeShare:
    """Sends probes while the load runs, and times them."""
    with Board(board, processes) as shared:
        return _Probing(plan, shared, slot).run()
