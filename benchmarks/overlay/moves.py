"""Sessions that move between the brokers of an overlay: the gap that a client sees, and moves per second.

    python -m benchmarks.overlay.moves [--queues 0 1000 100000] [--rounds 5] [--clients 200] [--json]

Three brokers in a chain, as processes of this machine. A client with a queue of messages of 64 bytes connects to the
broker at the other end, which is two hops away: the gap is the time from CONNECT to CONNACK, session present. Beside it
stands the time that the same client needs at the broker that has its session. Then many clients without a queue
move at once.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from surecast.broker.overlay.local_overlay import LocalOverlay
from surecast.broker.overlay.overlay_writing import write_overlay
from surecast.protocol.mqtt import (
    V311,
    Connack,
    Connect,
    Packet,
    PacketDecoder,
    Puback,
    Publish,
    Suback,
    Subscribe,
    SubscriptionRequest,
    encode,
)
from surecast.protocol.overlay.overlay_plan import OverlayPlan, Tree

_LINKS = (("b1", "b2"), ("b2", "b3"))
_WAIT_S = 120.0
_AT_ONCE = 500


class _Client:
    """A client whose session lasts."""

    def __init__(self, place: str, name: str):
        host, _, port = place.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=_WAIT_S)
        self._decoder = PacketDecoder(version=V311, side="client")
        self._early: list[Packet] = []
        self.socket.sendall(encode(Connect(name, clean_start=False, keep_alive_s=0, version=V311), V311))

    def wait(self, kind: type[Packet], count: int = 1) -> list[Packet]:
        """Returns so many packets of a kind; what else comes is kept."""
        found: list[Packet] = []
        while True:
            early, self._early = self._early, []
            for packet in early:
                (found if isinstance(packet, kind) and len(found) < count else self._early).append(packet)
            if len(found) == count:
                return found
            data = self.socket.recv(1 << 18)
            if not data:
                raise ConnectionError("the broker has closed the connection")
            self._early += self._decoder.feed(data)

    def close(self) -> None:
        self.socket.close()


def _fill(place: str, topic: str, count: int) -> None:
    publisher = _Client(place, "source")
    publisher.wait(Connack)
    payload = b"x" * 64
    for begin in range(0, count, _AT_ONCE):
        some = min(_AT_ONCE, count - begin)
        publisher.socket.sendall(
            b"".join(encode(Publish(topic, payload, 1, packet_id=n + 1), V311) for n in range(some))
        )
        publisher.wait(Puback, some)
    publisher.close()


def _timed_connect(overlay: LocalOverlay, broker: str, name: str) -> tuple[_Client, float]:
    started = time.perf_counter()
    client = _Client(overlay.file.mqtt_address(broker), name)
    (answer,) = client.wait(Connack)
    assert isinstance(answer, Connack)
    if not answer.session_present:
        raise ValueError(f"{name} has found no session at {broker}")
    return client, time.perf_counter() - started


def _gaps(overlay: LocalOverlay, queue: int, rounds: int) -> dict[str, Any]:
    name = f"c{queue}"
    first = _Client(overlay.file.mqtt_address("b1"), name)
    first.wait(Connack)
    first.socket.sendall(encode(Subscribe(1, (SubscriptionRequest(f"q/{queue}", 1),)), V311))
    first.wait(Suback)
    first.close()
    _fill(overlay.file.mqtt_address("b1"), f"q/{queue}", queue)
    stays, moves, place = [], [], "b1"
    for _ in range(rounds):
        client, seconds = _timed_connect(overlay, place, name)
        stays.append(seconds)
        client.close()
        place = "b3" if place == "b1" else "b1"
        client, seconds = _timed_connect(overlay, place, name)
        moves.append(seconds)
        client.close()
        time.sleep(1.0)  # the old broker ends its part
    return {
        "queue": queue, "rounds": rounds, "moves_ms": 1e3 * statistics.median(moves), "longest_ms": 1e3 * max(moves),
        "stays_ms": 1e3 * statistics.median(stays),
    }  # fmt: skip


def _rate(overlay: LocalOverlay, clients: int) -> dict[str, Any]:
    names = [f"many{number}" for number in range(clients)]
    for name in names:
        client = _Client(overlay.file.mqtt_address("b1"), name)
        client.wait(Connack)
        client.socket.sendall(encode(Subscribe(1, (SubscriptionRequest(f"m/{name}", 1),)), V311))
        client.wait(Suback)
        client.close()
    time.sleep(1.0)
    started = time.perf_counter()
    there = [_Client(overlay.file.mqtt_address("b3"), name) for name in names]
    found = 0
    for client in there:
        (answer,) = client.wait(Connack)
        found += isinstance(answer, Connack) and answer.session_present
    seconds = time.perf_counter() - started
    for client in there:
        client.close()
    return {"clients": clients, "found": found, "moves_per_s": clients / seconds}


def main() -> int:
    """Measures, and prints a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queues", type=int, nargs="*", default=[0, 1_000, 100_000], help="messages in the queue")
    parser.add_argument("--rounds", type=int, default=5, help="moves of each client")
    parser.add_argument("--clients", type=int, default=200, help="clients that move at once")
    parser.add_argument("--scheme", default="buffering", help="the scheme of the tree")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="surecast-moves-") as folder:
        path = Path(folder) / "overlay.yaml"
        plan = OverlayPlan(("b1", "b2", "b3"), _LINKS, (Tree(_LINKS, options.scheme),))
        settings = {
            "durability": "os", "sessions": "move", "move_wait": "60 s", "move_linger": "200 ms",
            "limits": {"queue_messages": 2 * max(options.queues, default=0) + 1_000},
        }  # fmt: skip
        write_overlay(path, "moves", plan, options=settings)
        overlay = LocalOverlay(path)
        try:
            overlay.start()
            overlay.wait_ready()
            rows = [_gaps(overlay, queue, options.rounds) for queue in options.queues]
            rate = _rate(overlay, options.clients)
        finally:
            overlay.close()
    if options.json:
        print(json.dumps({"gaps": rows, "rate": rate}))
        return 0
    for row in rows:
        gap = f"CONNACK after {row['moves_ms']:.1f} ms (longest {row['longest_ms']:.1f}) where the session moves"
        print(f"queue {row['queue']:,}: {gap}, {row['stays_ms']:.1f} ms where it is; {row['rounds']} moves")
    print(f"{rate['moves_per_s']:.0f} moves per second; {rate['found']} of {rate['clients']} sessions found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
