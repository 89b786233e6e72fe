"""Recovery of demand: a link comes back, and so many filters must be right on its other side.

Two brokers are linked through a relay that counts bytes. The far broker has a client with many filters. The link is
cut, a few filters are exchanged for others, and the link is mended. Then events for the new filters are published at
the near broker until each has come through.
"""

from __future__ import annotations

import select
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.broker.contestants import UnavailableError
from benchmarks.broker.dialects import Mqtt, Nats, read_exactly, read_until
from benchmarks.overlay.clients import Sink, clients
from benchmarks.overlay.contestants import RECOVERY, start
from benchmarks.overlay.relay import Relay
from benchmarks.overlay.rows import Book, Row, Task
from benchmarks.overlay.systems import Overlay
from benchmarks.overlay.topology import PAIR
from benchmarks.overlay.zenoh_wire import Zenoh

__all__ = ["CHANGED", "measure", "tasks"]

CHANGED = 10
_DOWN_S = 1.0
_WAY_S = 60.0
_IDLE_S = 1.0
_PACKET = 100
_AROUND_S = 20.0


def tasks(rounds: int, filters: Sequence[int], systems: Sequence[str]) -> list[Task]:
    """All measurements, contestants as the innermost loop."""
    return [
        {"experiment": "recovery", "kind": f"{count} filters", "topology": PAIR.name, "system": name, "round": number}
        for number in range(rounds)
        for count in filters
        for name in RECOVERY
        if not systems or name in systems
    ]


def measure(book: Book, wanted: Sequence[Task], folder: Path) -> None:
    """Measures what is missing. Each measurement has two brokers of its own: what they remember is what is measured."""
    absent: set[str] = set()
    for number, task in enumerate(book.open_tasks(wanted)):
        count = int(task["kind"].split()[0])
        if book.is_late(_AROUND_S + count / 5_000):
            return
        if task["system"] in absent:
            continue
        try:
            book.keep(task, _one(task["system"], count, folder / f"recovery-{number}"))
        except UnavailableError as error:
            print(f"{task['system']} is left out: {error}", flush=True)
            absent.add(task["system"])
        except (OSError, ValueError) as error:
            book.keep(task, {"failed": str(error) or type(error).__name__})


def _one(name: str, count: int, folder: Path) -> Row:
    relays: list[Relay] = []

    def through_relay(overlay: Overlay) -> None:
        dialling, dialled = PAIR.links[0]
        relays.append(Relay(overlay.link_ports[dialled]))
        overlay.relays[dialling, dialled] = relays[0].port

    try:
        overlay = start(name, PAIR, folder, None, through_relay)
        try:
            return _cut_and_mend(overlay, relays[0], count)
        finally:
            overlay.close()
    finally:
        for relay in relays:
            relay.close()


def _cut_and_mend(overlay: Overlay, relay: Relay, count: int) -> Row:
    shape, dialect = overlay.topology, overlay.dialect(0)
    entry, leave = overlay.place(shape.entry), overlay.place(shape.exit)
    feed, sink = clients(dialect, 0, entry, leave, "f/way")
    try:
        names = [f"f/{number:06}" for number in range(count + CHANGED)]
        begin = time.perf_counter()
        _change(dialect, sink.client, names[:count], [])
        _publish_until_all_come(dialect, feed.client, sink, range(count - CHANGED, count), begin)
        first_s = time.perf_counter() - begin
        time.sleep(_IDLE_S)
        before = relay.bytes
        time.sleep(_IDLE_S)
        idle_bytes = relay.bytes - before
        relay.cut()
        time.sleep(_DOWN_S / 2)
        # Filters were published to more than once: what is left of that is no answer to what follows.
        while select.select((sink.client,), (), (), 0.0)[0]:
            sink.hear()
        _change(dialect, sink.client, names[count:], names[:CHANGED])
        time.sleep(_DOWN_S / 2)
        before, processor_s = relay.bytes, overlay.processor_s()
        relay.mend()
        mended = time.perf_counter()
        probes = _publish_until_all_come(dialect, feed.client, sink, range(count, count + CHANGED), mended)
        arrived = time.perf_counter()
        # What is behind the filters that were awaited belongs to the recovery too.
        time.sleep(_IDLE_S)
        took = arrived + _IDLE_S - mended
        processor_s = overlay.processor_s() - processor_s
        size = relay.bytes - before - idle_bytes * took / _IDLE_S
        connected = relay.connected_at or mended
        return {
            "filters": count,
            "changed": CHANGED,
            "first_s": first_s,
            "recovered_s": arrived - connected,
            "connected_s": connected - mended,
            "bytes": max(0.0, size),
            "idle_bytes_per_s": idle_bytes / _IDLE_S,
            "probes": probes,
            "cpu_s": processor_s,
            "said": f"{1e3 * (arrived - connected):,.0f} ms after the connection, {size / 1e3:,.1f} kB",
        }
    finally:
        feed.client.close()
        sink.client.close()


def _change(dialect: Any, client: Any, added: Sequence[str], removed: Sequence[str]) -> None:
    """Subscribes and unsubscribes; what cannot be confirmed is awaited by events."""
    if isinstance(dialect, Zenoh):
        # Subscriber N + 2 has filter N: number 1 is the way.
        if added:
            dialect.subscribe_many(client, added, int(added[0][2:]) + 2)
        dialect.unsubscribe_many(client, [int(name[2:]) + 2 for name in removed])
    elif isinstance(dialect, Nats):
        lines = [f"SUB {name.replace('/', '.')} {int(name[2:]) + 2}\r\n" for name in added]
        lines += [f"UNSUB {int(name[2:]) + 2}\r\n" for name in removed]
        client.sendall("".join(lines).encode() + b"PING\r\n")
        read_until(client, b"PONG\r\n")
    else:
        for chunk in _chunks(added):
            _ask(client, 0x82, b"".join(_text(name) + b"\0" for name in chunk))
        for chunk in _chunks(removed):
            _ask(client, 0xA2, b"".join(_text(name) for name in chunk))


def _chunks(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for at in range(0, len(names), _PACKET):
        yield names[at : at + _PACKET]


def _ask(client: Any, head: int, body: bytes) -> None:
    """Sends SUBSCRIBE or UNSUBSCRIBE and reads the answer."""
    size = len(body) + 2
    length = bytes((size & 127 | 128, size >> 7)) if size > 127 else bytes((size,))
    client.sendall(bytes((head,)) + length + b"\0\1" + body)
    answer = read_exactly(client, 2)
    left = answer[1]
    if left > 127:
        left = left & 127 | read_exactly(client, 1)[0] << 7
    codes = read_exactly(client, left)[2:]
    if answer[0] >> 4 not in (9, 11) or 0x80 in codes:
        raise ConnectionError("a filter was refused")


def _text(name: str) -> bytes:
    return len(name).to_bytes(2, "big") + name.encode()


def _publish_until_all_come(dialect: Any, client: Any, sink: Sink, wanted: range, begin: float) -> int:
    """Publishes to each filter until its event has come; returns how many events that took."""
    waiting, sent = dict.fromkeys(wanted), 0
    while waiting:
        if time.perf_counter() - begin > _WAY_S:
            raise ConnectionError(f"{len(waiting)} of {len(wanted)} filters are not known after {_WAY_S:g} s")
        for number in waiting:
            client.sendall(_publication(dialect, f"f/{number:06}", number.to_bytes(4, "big")))
            sent += 1
        until = time.perf_counter() + 0.005
        while (left := until - time.perf_counter()) > 0 and waiting:
            if select.select((sink.client,), (), (), left)[0]:
                for number in sink.hear():
                    waiting.pop(number, None)
    return sent


def _publication(dialect: Any, topic: str, payload: bytes) -> bytes:
    if isinstance(dialect, Zenoh):
        return dialect.publication_of(topic, payload)
    if isinstance(dialect, Nats):
        return Nats(len(topic), len(payload)).publication(topic, payload, 0)
    return Mqtt(0, len(topic), len(payload)).publication(topic, payload, 0)
