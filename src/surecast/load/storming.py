"""The process of a generator that connects: a storm of clients, each of which says hello and goodbye."""

from __future__ import annotations

import os
import random
import select
import socket
import ssl
import time
from collections import Counter
from dataclasses import dataclass, field
from errno import EINPROGRESS
from pathlib import Path
from typing import Final

from surecast.load.board import Board, Phase, Progress, Stage
from surecast.load.broker_access import LoadError, would_block
from surecast.load.histogram import Histogram
from surecast.load.load_plan import LoadPlan
from surecast.protocol.mqtt import Connack, Disconnect, PacketDecoder, PacketError, encode

__all__ = ["StormShare", "storm"]

_OPEN_MAX: Final = 1_000
_LOOK_S: Final = 0.05
_READ_WRITE: Final = select.EPOLLIN | select.EPOLLOUT


@dataclass(slots=True)
class StormShare:
    """Counts of the connections of a storm. `withheld` were due while as many were open as may be."""

    tried: int = 0
    accepted: int = 0
    withheld: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    delay: Histogram = field(default_factory=Histogram)


class _Newcomer:
    """A connection in the making: TCP, then TLS where that is used, then CONNECT and CONNACK."""

    def __init__(self, storm: _Storm, number: int, due_ns: int):
        self.due_ns = due_ns
        self._storm = storm
        self._packet = storm.plan.access.connect_packet(f"load-{storm.plan.name}-c{number}")
        self._decoder = PacketDecoder(version=storm.plan.access.version, side="client")
        self._is_sent = False
        self._is_secure = storm.context is None
        self.socket: socket.socket = socket.socket(storm.family, socket.SOCK_STREAM)
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = self.socket.connect_ex(storm.address)
        if code not in (0, EINPROGRESS):
            self.socket.close()
            raise OSError(code, "")

    def go_on(self) -> bool:
        """Takes the next step; True once the broker has accepted the connection. An error ends it."""
        if code := self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(code, "")
        try:
            if not self._is_secure:
                self._handshake()
            if not self._is_sent:
                self.socket.send(self._packet)
                self._is_sent = True
                self._storm.wait_for(self, select.EPOLLIN)
            data = self.socket.recv(4_096)
        except OSError as error:
            if would_block(error):
                return False
            raise
        if not data:
            raise ConnectionResetError
        for packet in self._decoder.feed(data):
            if isinstance(packet, Connack):
                if packet.reason.is_failure:
                    raise LoadError(packet.reason.name.lower().replace("_", " "))
                return True
        return False

    def _handshake(self) -> None:
        context = self._storm.context
        assert context is not None
        if not isinstance(self.socket, ssl.SSLSocket):
            host = self._storm.plan.access.host
            self.socket = context.wrap_socket(self.socket, server_hostname=host, do_handshake_on_connect=False)
        self.socket.do_handshake()
        self._is_secure = True


class _Storm:
    """Opens connections at their times, whatever the broker does."""

    def __init__(self, plan: LoadPlan, board: Board, slot: int):
        self.plan, self._board, self._slot = plan, board, slot
        access = plan.access
        found = socket.getaddrinfo(access.host, access.port, type=socket.SOCK_STREAM)[0]
        self.family, self.address = found[0], found[4]
        self.context = access.tls_context() if access.is_encrypted else None
        self._share = StormShare()
        board.put(slot, Progress.STAGE, Stage.CONNECTING)
        self._epoll = select.epoll()
        self._by_file: dict[int, _Newcomer] = {}
        self._from_ns = self._until_ns = 0

    def wait_for(self, newcomer: _Newcomer, events: int) -> None:
        """Says what a newcomer waits for."""
        self._epoll.modify(newcomer.socket.fileno(), events)

    def run(self) -> StormShare:
        """Connects while the load runs."""
        board = self._board
        try:
            board.put(self._slot, Progress.STAGE, Stage.CONNECTED)
            while board.phase == Phase.CONNECTING and not board.is_stopped:
                time.sleep(0.005)
            start_ns, self._from_ns, self._until_ns = board.times_ns
            self._storm(start_ns)
        finally:
            for each in self._by_file.values():
                each.socket.close()
            self._epoll.close()
        if left := len(self._by_file):
            self._share.failures[f"no answer within {self.plan.access.timeout_s:g} s"] += left
        board.put(self._slot, Progress.STAGE, Stage.SENT)
        return self._share

    def _storm(self, start_ns: int) -> None:
        share, draw = self._share, random.Random(f"{self.plan.seed} storm")
        rate_per_ns = self.plan.storm_per_s / 1e9
        due_ns, last_ns = start_ns, self._until_ns + int(self.plan.access.timeout_s * 1e9)
        while not self._board.is_stopped:
            moment = time.monotonic_ns()
            while due_ns <= moment and due_ns < self._until_ns:
                if len(self._by_file) < _OPEN_MAX:
                    self._open(due_ns)
                else:
                    share.withheld += 1
                due_ns += int(draw.expovariate(rate_per_ns))
            if due_ns >= self._until_ns and (not self._by_file or moment > last_ns):
                return
            wait_s = (due_ns - moment) / 1e9 if due_ns < self._until_ns else _LOOK_S
            for file, _ in self._epoll.poll(min(_LOOK_S, max(0.0, wait_s))):
                self._go_on(file)

    def _open(self, due_ns: int) -> None:
        number = self._share.tried
        self._share.tried += 1
        try:
            newcomer = _Newcomer(self, number, due_ns)
        except OSError as error:
            self._fail(error)
            return
        self._by_file[newcomer.socket.fileno()] = newcomer
        self._epoll.register(newcomer.socket.fileno(), _READ_WRITE)

    def _go_on(self, file: int) -> None:
        newcomer = self._by_file[file]
        try:
            if not newcomer.go_on():
                return
            self._share.accepted += 1
            if newcomer.due_ns >= self._from_ns:
                self._share.delay.add(time.monotonic_ns() - newcomer.due_ns)
            newcomer.socket.send(encode(Disconnect(), self.plan.access.version))
        except (OSError, PacketError, LoadError) as error:
            self._fail(error)
        del self._by_file[file]
        newcomer.socket.close()

    def _fail(self, error: Exception) -> None:
        words = str(error)
        if isinstance(error, OSError):
            words = os.strerror(error.errno) if error.errno else "the broker closed the connection"
        self._share.failures[words] += 1


def storm(plan: LoadPlan, board: Path, processes: int, process: int, slot: int) -> StormShare:
    """Connects at the rate of the plan while the load runs."""
    with Board(board, processes) as shared:
        return _Storm(plan, shared, slot).run()
