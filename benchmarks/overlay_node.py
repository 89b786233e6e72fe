"""What an overlay node costs in processor time, without sockets: an event and a hop, and demand after a link was down.

Run without arguments, for about a minute. The first table has a chain of three nodes: batches of growing size, and
tables of growing size, with filters on topics alone and with contents. The second table has two nodes with many
filters: some change while the link is down for so long that its session ends. It prints how long it takes until both
know the same again, and the bytes that this takes on the link, beside those of all filters. The third table says the
same of retained messages.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Iterator
from itertools import pairwise
from math import inf

from surecast.protocol.demand import DemandBucket, JointFilter
from surecast.protocol.filters import Filter, between
from surecast.protocol.link import NumberedFrame
from surecast.protocol.overlay.event_bodies import BatchedMessage, MessageRun
from surecast.protocol.overlay.frame_sizes import frame_bytes
from surecast.protocol.overlay.node_links import NodeSettings
from surecast.protocol.overlay.overlay_node import OverlayNode
from surecast.protocol.overlay.overlay_plan import OverlayPlan, Tree

EVENTS = 20_000
REPEATS = 3
FILTERS = 100_000


class Chain:
    """Nodes in a row, all links up. `bytes` counts what was sent."""

    def __init__(self, size: int):
        names = tuple(f"b{number}" for number in range(size))
        links = tuple(pairwise(names))
        self.plan = OverlayPlan(names, links, (Tree(links, algorithm="identity-exact"),))
        self.nodes = {name: OverlayNode(name, self.plan, 1, NodeSettings(resume_s=0.0)) for name in names}
        self.bytes = 0
        for link in links:
            self.join(*link)
        self.settle()

    def join(self, a: str, b: str) -> None:
        hellos = self.nodes[a].hello(b), self.nodes[b].hello(a)
        self.nodes[a].link_up(b, hellos[1], 0.0)
        self.nodes[b].link_up(a, hellos[0], 0.0)

    def cut(self, a: str, b: str) -> None:
        self.nodes[a].link_down(b, 0.0)
        self.nodes[b].link_down(a, 0.0)

    def settle(self) -> None:
        """Hands over what the nodes say until they are quiet."""
        is_busy = True
        while is_busy:
            is_busy = False
            for name, node in self.nodes.items():
                for hop in self.plan.neighbours(name):
                    for written in node.output(hop):
                        is_busy = True
                        if isinstance(written, NumberedFrame):
                            self.bytes += written.size
                        self.nodes[hop].receive(name, written, 0.0)


def filters(number: int, *, has_content: bool) -> Iterator[JointFilter]:
    rng = random.Random(number)
    for place in range(number):
        low, high = sorted((rng.random(), rng.random()))
        content = Filter(None, {"x": between(low, high)}) if has_content else Filter()
        yield JointFilter(f"site/{place % max(number // 100, 1) if has_content else place}/state", content, place % 2)


def hop_us(batch: int, number: int, *, has_content: bool) -> float:
    """The processor time of one event at one node of three, in microseconds; every event goes to the last of them."""
    chain = Chain(3)
    chain.nodes["b2"].demand(added=[*filters(number, has_content=has_content), JointFilter("site/0/state")])
    chain.settle()
    attributes = ({"x": 0.5},) * batch if has_content else ()
    shortest = float("inf")
    for _ in range(REPEATS):
        gc.collect()
        start = time.process_time()
        for _ in range(0, EVENTS, batch):
            chain.nodes["b0"].publish("site/0/state", batch, 0.0, attributes=attributes)
            chain.settle()
        shortest = min(shortest, time.process_time() - start)
        assert sum(one.count for one in chain.nodes["b2"].take_deliveries()) >= EVENTS // batch * batch
    return 1e6 * shortest / EVENTS / 3


def resynchronised(changed: int) -> tuple[float, int]:
    """The processor time and the bytes until two nodes know the same, after so many of the filters have changed."""
    chain = Chain(2)
    chain.nodes["b1"].demand(added=filters(FILTERS, has_content=False))
    chain.settle()
    for node in chain.nodes.values():
        node.tick(1e6)
    chain.settle()
    chain.cut("b0", "b1")
    chain.nodes["b1"].demand(added=[JointFilter(f"more/{place}") for place in range(changed)])
    chain.bytes = 0
    gc.collect()
    start = time.process_time()
    chain.join("b0", "b1")
    chain.settle()
    taken = time.process_time() - start
    assert chain.nodes["b0"].table_sizes()["b1"] == FILTERS + changed
    return taken, chain.bytes


def retained_converged(changed: int) -> tuple[float, int]:
    """The processor time and the bytes until two nodes retain the same after a partition, where so many of the topics
    have got another message at one of them."""
    chain = Chain(2)
    body = MessageRun.of([BatchedMessage(True, inf, b"", bytes(64))])

    def retain(number: int, now: float) -> None:
        for place in range(number):
            topic = f"site/{place}/state"
            chain.nodes["b0"].publish(topic, 1, now, qos=1, body=body, is_retained=True)
            if place % 1_000 == 0:
                chain.settle()

    if changed < FILTERS:
        retain(FILTERS, 0.0)
        chain.settle()
    chain.cut("b0", "b1")
    retain(changed, 1.0)
    chain.bytes = 0
    gc.collect()
    start = time.process_time()
    chain.join("b0", "b1")
    chain.settle()
    taken = time.process_time() - start
    assert len(chain.nodes["b1"].retained) == FILTERS
    return taken, chain.bytes


def main() -> None:
    print(f"{'batch':>6} {'filters':>8} {'contents':>9} {'an event at a node':>19}")
    for has_content in (False, True):
        for number in (10, 1_000, 20_000):
            for batch in (1, 10, 100):
                taken = hop_us(batch, number, has_content=has_content)
                print(f"{batch:6} {number:8} {'yes' if has_content else 'no':>9} {taken:16.2f} us", flush=True)
    whole = frame_bytes(DemandBucket(0, 0, tuple(filters(FILTERS, has_content=False))))
    print(
        f"\nall {FILTERS:,} filters have {whole / 1e6:.2f} MB\n{'changed':>8} {'time':>10} {'bytes':>12} {'of all':>8}"
    )
    for changed in (0, 10, 1_000, 10_000):
        seconds, size = resynchronised(changed)
        print(f"{changed:8} {1e3 * seconds:7.1f} ms {size:12,} {size / whole:8.2%}", flush=True)
    print(f"\nretained messages of 64 bytes on {FILTERS:,} topics\n{'changed':>8} {'time':>10} {'bytes':>12}")
    for changed in (0, 10, 1_000, 10_000, FILTERS):
        seconds, size = retained_converged(changed)
        print(f"{changed:8} {1e3 * seconds:7.1f} ms {size:12,}", flush=True)


if __name__ == "__main__":
    main()
