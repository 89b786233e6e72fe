"""Convergence of retained messages: a partition ends, and both sides must retain the same again.

Two brokers are linked through a relay that counts bytes. Each has a client that watches all retained topics. The link
is cut for longer than it can be resumed; some topics are overwritten meanwhile, half of them at each broker. The time
counts from the new connection until each watcher has seen all that was overwritten at the other broker.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.overlay.relay import Relay
from benchmarks.overlay.rows import Book, Row, Task
from benchmarks.overlay.surecast_overlay import SurecastOverlay
from benchmarks.overlay.topology import PAIR

from surecast.protocol.mqtt import (
    V311,
    Connect,
    PacketDecoder,
    Publish,
    Subscribe,
    SubscriptionRequest,
    encode,
    encode_publish,
)

__all__ = ["CHANGED", "measure", "tasks"]

SYSTEM = "surecast"
CHANGED = (0.0, 0.01, 0.1, 1.0)
"""The shares of the topics that are overwritten during a partition."""
_RESUME_S = 1.0
_DOWN_S = 2.5
_IDLE_S = 1.0
_WAIT_S = 120.0
_AT_ONCE = 500
_PAYLOAD_BYTES = 64
_AROUND_S = 20.0


def tasks(rounds: int, topics: Sequence[int], systems: Sequence[str]) -> list[Task]:
    """All measurements; those of one number of topics and one round share their brokers."""
    return [
        {
            "experiment": "retained", "kind": f"{count} topics, {round(count * share)} changed", "topology": PAIR.name,
            "system": SYSTEM, "round": number,
        }
        for number in range(rounds)
        for count in topics
        for share in CHANGED
        if not systems or SYSTEM in systems
    ]  # fmt: skip


def measure(book: Book, wanted: Sequence[Task], folder: Path) -> None:
    """Measures what is missing."""
    by_pair: dict[tuple[int, int], list[Task]] = {}
    for task in book.open_tasks(wanted):
        by_pair.setdefault((int(task["kind"].split()[0]), task["round"]), []).append(task)
    for (count, number), todo in by_pair.items():
        if book.is_late(_AROUND_S + count / 2_000):
            return
        with _Pair(folder / f"retained-{count}-{number}") as pair:
            pair.fill(count)
            for task in todo:
                if book.is_late(_AROUND_S):
                    return
                try:
                    book.keep(task, pair.partition(count, int(task["kind"].split()[2])))
                except (OSError, ValueError) as error:
                    book.keep(task, {"failed": str(error) or type(error).__name__})
                    break


class _Watcher:
    """A client that watches all topics, and remembers which version of each it has seen."""

    def __init__(self, place: tuple[str, int]):
        self.client = socket.create_connection(place)
        self.seen: dict[str, bytes] = {}
        self.messages = 0
        self._decoder = PacketDecoder(version=V311, side="client")
        hello = Connect(f"watch-{place[1]}", clean_start=True, keep_alive_s=0, version=V311)
        self.client.sendall(encode(hello, V311) + encode(Subscribe(1, (SubscriptionRequest("r/#", 0),)), V311))

    def hear(self, wait_s: float) -> None:
        """Takes what has come."""
        while select.select((self.client,), (), (), wait_s)[0]:
            data = self.client.recv(1 << 18)
            if not data:
                raise ConnectionError("a broker has closed the connection of a watcher")
            for packet in self._decoder.feed(data):
                if isinstance(packet, Publish):
                    self.seen[packet.topic] = packet.payload[:8]
                    self.messages += 1
            wait_s = 0.0


class _Pair:
    """Two brokers with a relay between them, and a watcher and a publisher at each."""

    def __init__(self, folder: Path):
        self._overlay = SurecastOverlay(SYSTEM, PAIR, folder, None, resume=f"{_RESUME_S:g}s")
        dialling, dialled = PAIR.links[0]
        self._relay = Relay(self._overlay.link_ports[dialled])
        self._overlay.relays[dialling, dialled] = self._relay.port
        self._version = 0

    def __enter__(self) -> _Pair:
        """Starts the brokers, and connects the clients."""
        self._overlay.up()
        places = [self._overlay.place(broker) for broker in PAIR.brokers]
        self._watchers = [_Watcher(place) for place in places]
        self._publishers = [socket.create_connection(place) for place in places]
        for number, client in enumerate(self._publishers):
            client.sendall(encode(Connect(f"p{number}", True, 0, version=V311), V311))
        return self

    def __exit__(self, *exception: object) -> None:
        """Ends all."""
        for client in (*(watcher.client for watcher in self._watchers), *self._publishers):
            client.close()
        self._overlay.close()
        self._relay.close()

    def fill(self, count: int) -> None:
        """Retains messages at one broker until both have all."""
        self._publish(0, range(count), also_far=True)

    def partition(self, count: int, changed: int) -> Row:
        """Cuts the link, overwrites topics at both ends, mends it, and waits until both have all."""
        self._settle()
        before = self._relay.bytes
        time.sleep(_IDLE_S)
        idle_bytes = self._relay.bytes - before
        self._relay.cut()
        down = time.perf_counter()
        half = changed // 2
        parts = (range(half), range(half, changed))
        self._version += 1
        for end, numbers in enumerate(parts):
            self._publish(end, numbers)
        time.sleep(max(0.0, down + _DOWN_S - time.perf_counter()))
        messages = [watcher.messages for watcher in self._watchers]
        before, processor_s = self._relay.bytes, self._overlay.processor_s()
        self._relay.mend()
        mended = time.perf_counter()
        self._await(0, parts[1])
        self._await(1, parts[0])
        arrived = time.perf_counter()
        self._settle()
        took = time.perf_counter() - mended
        size = max(0.0, self._relay.bytes - before - idle_bytes * took / _IDLE_S)
        connected = self._relay.connected_at or mended
        repeated = sum(map(_messages, self._watchers)) - sum(messages) - changed
        return {
            "topics": count,
            "changed": changed,
            "converged_s": arrived - connected if changed else 0.0,
            "bytes": size,
            "repeated": repeated,
            "cpu_s": self._overlay.processor_s() - processor_s,
            "said": f"{max(arrived - connected, 0.0):.2f} s after the connection, {size / 1e3:,.1f} kB, "
            f"{repeated} repeated",
        }

    def _publish(self, end: int, numbers: range, *, also_far: bool = False) -> None:
        """Retains a message to each of some topics; waits for the watcher, so that nobody is hurried."""
        for begin in range(0, len(numbers), _AT_ONCE):
            some = numbers[begin : begin + _AT_ONCE]
            payload = self._payload()
            self._publishers[end].sendall(
                b"".join(encode_publish(b"r/%06d" % number, payload, 0, True, False, 0, version=4) for number in some)
            )
            self._await(end, some)
            if also_far:
                self._await(1 - end, some)

    def _payload(self) -> bytes:
        return b"%08d" % self._version + bytes(_PAYLOAD_BYTES - 8)

    def _await(self, end: int, numbers: range) -> None:
        """Waits until a watcher has seen the present version of some topics."""
        until, wanted = time.perf_counter() + _WAIT_S, self._payload()[:8]
        watcher, missing = self._watchers[end], len(numbers)
        while missing:
            if time.perf_counter() > until:
                raise ConnectionError(f"{missing} of {len(numbers)} retained messages had not come in {_WAIT_S:g} s")
            for each in self._watchers:
                each.hear(0.0)
            missing = sum(watcher.seen.get(f"r/{number:06}") != wanted for number in numbers)
            if missing:
                watcher.hear(0.002 + missing / 1e6)

    def _settle(self) -> None:
        """Waits until nothing comes any more: what is behind the messages awaited belongs to the comparison too."""
        size, since = -1, time.perf_counter()
        until = since + _WAIT_S
        while time.perf_counter() - since < _IDLE_S and time.perf_counter() < until:
            for watcher in self._watchers:
                watcher.hear(0.0)
            if abs(self._relay.bytes - size) > 1_000:
                size, since = self._relay.bytes, time.perf_counter()
            time.sleep(0.02)


def _messages(watcher: _Watcher) -> int:
    return watcher.messages
