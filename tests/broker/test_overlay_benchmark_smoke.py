"""The load generator of benchmarks/overlay sees what is lost, doubled, late or out of order, in each protocol."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.broker.dialects import Mqtt, Nats
from benchmarks.overlay.clients import clients
from benchmarks.overlay.relay import Relay
from benchmarks.overlay.rows import Book
from benchmarks.overlay.steady import Steady, quantile
from benchmarks.overlay.zenoh_wire import Zenoh, number

TOPIC = "bench/00"


class Pipe:
    """A broker in a thread that hands publications from one client to another, as `fate` says how often."""

    def __init__(self, fate: Callable[[int], int]):
        self._near, far = socket.socketpair()
        self._taker, self.sink = socket.socketpair()
        self.feed = far
        self._fate = fate
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        with self._near, self._taker, contextlib.suppress(OSError):
            at, data = 0, b""
            while more := self._near.recv(1 << 16):
                data += more
                while len(data) > 2:
                    head = 2 + (data[1] > 127)
                    end = head + (data[1] & 127 | data[2] << 7 if data[1] > 127 else data[1])
                    if end > len(data):
                        break
                    identifier = data[head + 2 + len(TOPIC) :][:2]
                    self._near.sendall(b"\x40\x02" + identifier)
                    self._taker.sendall(data[:end] * self._fate(at))
                    at, data = at + 1, data[end:]


class Dialect(Mqtt):
    """MQTT without a handshake, on sockets that are there."""

    def __init__(self, pipe: Pipe):
        super().__init__(1, len(TOPIC), 0)
        self.pipe = pipe

    def connect(self, address: tuple[str, int], name: str) -> socket.socket:
        return self.pipe.sink if "sub" in name else self.pipe.feed

    def subscribe(self, client: socket.socket, topic: str) -> None:
        pass


@pytest.fixture
def steady() -> Iterator[Callable[[Callable[[int], int]], Steady]]:
    made: list[Steady] = []

    def make(fate: Callable[[int], int]) -> Steady:
        feed, sink = clients(Dialect(Pipe(fate)), 1, ("", 0), ("", 0), TOPIC)
        made.append(Steady(feed, sink, 200.0))
        made[0].run(0.25)
        made[0].drain(0.1)
        return made[0]

    yield make
    for one in made:
        one.close()


def test_a_sound_run_has_no_loss_and_a_time_for_each_event(steady: Any) -> None:
    run = steady(lambda at: 1)
    assert run.count == 50
    assert (run.lost(), run.doubled(), run.disordered(), run.unacknowledged()) == ((0, 0), 0, 0, 0)
    assert len(run.delays_s()) == 50
    assert 0 < quantile(run.delays_s(), 0.5) <= quantile(run.delays_s(), 1.0)


def test_what_is_lost_or_doubled_is_counted(steady: Any) -> None:
    run = steady(lambda at: {7: 0, 8: 0, 20: 2}.get(at, 1))
    assert run.lost() == (2, 2)
    assert run.doubled() == 1


def test_a_pause_is_a_gap() -> None:
    steady = Steady(None, None, 1_000.0)  # type: ignore[arg-type]
    steady.arrivals = [(when, 0) for when in (1.0, 1.1, 1.5, 1.6, 3.0)]
    assert steady.longest_gap(1.05, 2.0) == (1.6, 3.0), "a pause that goes on behind the end counts whole"
    assert steady.longest_gap(1.05, 1.55) == (1.1, 1.5)
    assert steady.longest_gap(1.2, 1.3) == (1.1, 1.5), "a pause counts from the last event before it"
    assert steady.longest_gap(2.5, 4.0) == (1.6, 3.0)
    assert steady.longest_gap(3.5, 4.0) == (3.0, 4.0), "nothing came any more"


def zenoh_push(payload: bytes, *, named: bool, timed: bool, encoded: bool) -> bytes:
    """A publication as a router may write it."""
    push = bytes((0x1D | named << 5 | 0x80,)) + number(300) + (number(3) + b"a/b" if named else b"") + b"\x21\x0d"
    put = bytes((0x01 | timed << 5 | encoded << 6,))
    put += (number(1 << 60) + number(16) + bytes(range(200, 216)) if timed else b"") + (b"\x0b\x02xy" * encoded)
    return push + put + number(len(payload)) + payload


@pytest.mark.parametrize("cut", range(0, 400, 13))
def test_zenoh_deliveries_are_found_however_they_are_cut(cut: int) -> None:
    sizes = (64, 127, 128, 263)
    frame = (
        b"\x25"
        + number(5_000)
        + b"".join(
            zenoh_push(bytes((size % 256,)) * size, named=bool(size % 2), timed=size > 100, encoded=size > 200)
            for size in sizes
        )
    )
    declaration = b"\x25\x01\x1e\x20\x01\x00\x03a/b"
    stream = b"".join(len(part).to_bytes(2, "little") + part for part in (declaration, frame, b"\x04", frame))
    dialect, payloads, rest = Zenoh(TOPIC), [], b""
    for part in (stream[:cut], stream[cut:]):
        data = rest + part
        begins, ends, whole = dialect.deliveries(data, len(data))
        payloads += [data[begin:end] for begin, end in zip(begins, ends, strict=True)]
        rest = data[whole:]
    assert rest == b""
    assert payloads == [bytes((size % 256,)) * size for size in sizes] * 2


def test_nats_and_mqtt_events_have_their_numbers() -> None:
    for dialect in (Nats(len(TOPIC), 0), Mqtt(0, len(TOPIC), 0)):
        pipe = Pipe(lambda at: 1)
        dialect.connect = lambda address, name, pipe=pipe: pipe.sink if "sub" in name else pipe.feed  # type: ignore
        dialect.subscribe = lambda client, topic: None  # type: ignore
        feed, sink = clients(dialect, 0, ("", 0), ("", 0), TOPIC)
        if isinstance(dialect, Nats):
            pipe._taker.sendall(b"MSG bench.00 1 6\r\n\0\0\1\7xx\r\nPING\r\n")
            assert sink.hear() == [263]
            assert pipe._taker.recv(16) == b"PONG\r\n"
        else:
            feed.publish(263, (263).to_bytes(4, "big") + b"x" * 200)
            assert sink.hear() == [263]
        feed.client.close()
        sink.client.close()


def test_a_relay_counts_bytes_and_cuts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        relay = Relay(server.getsockname()[1])
        try:
            with socket.create_connection(("127.0.0.1", relay.port)) as client:
                far, _ = server.accept()
                with far:
                    client.sendall(b"x" * 1_000)
                    assert far.recv(1_000, socket.MSG_WAITALL) == b"x" * 1_000
                    relay.cut()
                    far.settimeout(5.0)
                    while far.recv(2_000):
                        pass
            assert relay.bytes == 1_000
        finally:
            relay.close()


def test_rows_that_are_there_are_not_measured_again(tmp_path: Path) -> None:
    tasks = [
        {"experiment": "delay", "kind": "q0", "topology": "chain-1", "system": "nats", "round": number}
        for number in range(3)
    ]
    book = Book(tmp_path / "rows.json", 10.0)
    book.keep(tasks[0], {"p50_us": 1.0})
    book.keep(tasks[1], {"failed": "nothing came"})
    assert Book(tmp_path / "rows.json", 10.0).open_tasks(tasks) == tasks[2:]
    assert Book(tmp_path / "rows.json", 10.0, again=True).open_tasks(tasks) == tasks[1:]
    assert Book(tmp_path / "rows.json", 0.0).is_late()
