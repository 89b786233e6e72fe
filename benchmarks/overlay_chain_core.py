"""Processor time that each broker of a chain adds to a message, in one process: no sockets, disks in memory.

    python benchmarks/overlay_chain_core.py
    python benchmarks/overlay_chain_core.py --read-bytes 2000 --rounds 5

A client at one end publishes in bursts, as large as one read of a broker; a client at the other end gets the messages
at the same QoS and acknowledges them. Chains of 1, 3 and 5 brokers run in turns, on the same bursts. The time of a hop
is what a broker between them adds: the difference of two chains by the brokers that one has more. What a broker without
an overlay pays for the possibility of one is measured by `benchmarks.delivery_core --before`.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
from itertools import pairwise
from random import Random
from time import process_time

from surecast.protocol.broker import BrokerCore, Connection, Origin
from surecast.protocol.mqtt import V311, Connect, PacketDecoder, Subscribe, SubscriptionRequest, encode, encode_publish
from surecast.protocol.overlay.overlay_plan import OverlayPlan, Tree
from surecast.protocol.overlay_broker import LinkConnection, LocalTraffic, OverlayBroker

KINDS = ("qos-0", "qos-1", "qos-1-custody")
CHAINS = (1, 3, 5)
PAYLOADS = {"equal": (64,), "varying": (16, 40, 64, 90, 110), "large": (1_000,), "50 topics": (64,)}
TOPICS = {"50 topics": 50}
"""Messages alternate between so many topics; without an entry all have one."""


class Chain:
    """Brokers in a line: a publisher at the first, a subscriber at the last."""

    def __init__(self, size: int, kind: str):
        names = tuple(f"b{number}" for number in range(size))
        links = tuple(pairwise(names))
        scheme = "buffering" if kind == "qos-1-custody" else "none"
        self.qos = 0 if kind == "qos-0" else 1
        plan = OverlayPlan(names, links, (Tree(links, scheme),))
        cores = [BrokerCore(traffic=LocalTraffic()) for _ in names]
        self.brokers = [
            OverlayBroker(name, plan, core, now=1.0) for name, core in zip(names, cores, strict=True)
        ]  # fmt: skip
        self.publisher = self._client(cores[0], "publisher")
        self.subscriber = self._client(cores[-1], "subscriber")
        self.decoder = PacketDecoder(version=V311, side="client")
        cores[-1].receive(self.subscriber, encode(Subscribe(1, (SubscriptionRequest("#", self.qos),)), V311), 1.0)
        self.received = 0
        self.links = []
        for one, other in pairwise(self.brokers):
            call, answer = LinkConnection(one, other.name), LinkConnection(other)
            answer.receive(call.output(), 1.0)
            call.receive(answer.output(), 1.0)
            self.links.append((call, answer))
        for moment in range(20):
            for broker in self.brokers:
                broker.tick(float(moment))
            self.run(1.0 + moment)
        self.received = 0

    def _client(self, core: BrokerCore, name: str) -> Connection:
        connection = core.open(Origin(peer=name), 1.0)
        core.receive(connection, encode(Connect(name, version=V311), V311), 1.0)
        return connection

    def burst(self, data: bytes, now: float) -> None:
        """A read of the first broker, and all that follows from it."""
        self.brokers[0].core.receive(self.publisher, data, now)
        self.run(now)

    def run(self, now: float) -> None:
        """Turns of all brokers, until nobody has anything to say."""
        is_busy = True
        while is_busy:
            is_busy = False
            for place, broker in enumerate(self.brokers):
                broker.settle(now)
                broker.core.take_journal()
                for call, answer in self.links[max(place - 1, 0) : place + 1]:
                    own, other = (call, answer) if call in self.own(place) else (answer, call)
                    if data := own.output():
                        other.receive(data, now)
                        is_busy = True
            is_busy |= self._serve(now)

    def own(self, place: int) -> list[LinkConnection]:
        """Returns the ends of links that a broker called."""
        return [self.links[place][0]] if place < len(self.links) else []

    def _serve(self, now: float) -> bool:
        """The clients read what there is for them, and the subscriber acknowledges it."""
        self.publisher.out.clear()
        core, out = self.brokers[-1].core, self.subscriber.out
        for broker in self.brokers:
            broker.core.dirty.clear()
        if not out:
            return False
        data = b"".join(out)
        out.clear()
        is_more = False
        for packet in self.decoder.feed_batches(data):
            count = getattr(packet, "count", 0)
            self.received += count
            if count and self.qos:
                core.receive(self.subscriber, packet.answers(0, count), now)
                is_more = True
        return is_more


def bursts(
    sizes: tuple[int, ...], topics: int, qos: int, read_bytes: int, count: int, random: Random
) -> tuple[list[bytes], int]:
    """Returns reads of about so many bytes with messages of these sizes, and the number of their messages."""
    reads, total, identifier = [], 0, 0
    for _ in range(count):
        parts, size = [], 0
        while size < read_bytes:
            identifier = identifier % 60_000 + 1
            payload = bytes(random.choice(sizes))
            parts.append(
                encode_publish(
                    b"stock/acme%d" % (identifier % topics), payload, qos, False, False, identifier, version=V311
                )
            )
            size += len(parts[-1])
        total += len(parts)
        reads.append(b"".join(parts))
    return reads, total


def measure(kind: str, name: str, read_bytes: int, count: int, rounds: int) -> dict[str, object]:
    """Returns the processor time of a message in chains of each length, and of a hop, in microseconds."""
    qos = 0 if kind == "qos-0" else 1
    reads, total = bursts(PAYLOADS[name], TOPICS.get(name, 1), qos, read_bytes, count, Random(1))
    chains = {size: Chain(size, kind) for size in CHAINS}
    times: dict[int, list[float]] = {size: [] for size in CHAINS}
    for _ in range(rounds):
        for size, chain in chains.items():
            before = chain.received
            start = process_time()
            for data in reads:
                chain.burst(data, 30.0)
            times[size].append((process_time() - start) / total * 1e6)
            assert chain.received - before == total, f"{chain.received - before} of {total} messages arrived"
    hops = [(five - one) / 4 for one, five in zip(times[1], times[5], strict=True)]
    return {
        "messages_per_read": round(total / count, 1),
        **{f"chain_{size}_us": round(statistics.median(each), 3) for size, each in times.items()},
        "hop_us": round(statistics.median(hops), 3),
        "hop_us_range": [round(min(hops), 3), round(max(hops), 3)],
    }


def main() -> None:
    """Prints a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--read-bytes", type=int, default=16_000, help="bytes of one read of the first broker")
    parser.add_argument("--reads", type=int, default=60, help="reads of each round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    gc.collect()
    gc.freeze()
    rows = {
        f"{kind} {name}": measure(kind, name, options.read_bytes, options.reads, options.rounds)
        for kind in KINDS
        for name in PAYLOADS
    }
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{'messages':<24}{'per read':>9}{'chain 1':>9}{'chain 3':>9}{'chain 5':>9}{'one hop':>9}   us per message")
    for name, row in rows.items():
        figures = [row[key] for key in ("messages_per_read", *(f"chain_{size}_us" for size in CHAINS), "hop_us")]
        print(f"{name:<24}" + "".join(f"{figure:>9}" for figure in figures))


if __name__ == "__main__":
    main()
