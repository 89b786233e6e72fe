"""Publishes a file as a stream of events to many subscribers on loopback, over a network that loses datagrams."""

from __future__ import annotations

import asyncio
import hashlib
import math
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from surecast.broker.cast.endpoint import Endpoint
from surecast.broker.cast.loopback_relay import Address, LossyRelay
from surecast.errors import ConfigurationError, PeerError
from surecast.protocol.coding import CodingSettings, EventDecoder, EventEncoder, Recoder
from surecast.protocol.dissemination import (
    Body,
    DisseminationNode,
    DisseminationSettings,
    EventComplete,
    EventPrefix,
    Expire,
    NotificationService,
    PublisherNode,
    Relay,
    SubscriberNode,
    scheme_settings,
)
from surecast.protocol.gossip import GossipSettings
from surecast.protocol.paths import PathPlanner
from surecast.scenario.paths import CapacityGraph, PathKind

__all__ = ["CastOptions", "CastResult", "Received", "run_cast"]

TOPIC = "cast"
_HEAD_BYTES = 128
"""Room in the first packets for topic and attributes of an event."""
_BUFFER_BYTES = 1 << 22
_REGISTER_S = 30.0
DATAGRAMS_PER_S = 1500.0
"""The rate of all nodes together where none is given."""
UNDER_WAY_MAX = 2
"""Events that are published before all subscribers have an earlier one."""
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class CastOptions:
    """A network on loopback and what it does with a file.

    >>> CastOptions(packets=32, packet_bytes=1000).event_bytes
    31872
    """

    subscribers: int = 20
    brokers: int = 6
    loss: float = 0.1
    """Share of all datagrams that are lost, between any two nodes."""
    delay_s: float = 0.002
    """Time that a datagram takes."""
    scheme: str = "coding-gossip"
    paths: PathKind | None = None
    packets: int = 32
    packet_bytes: int = 1000
    redundancy: float = 0.25
    gossip: GossipSettings = field(default_factory=lambda: GossipSettings(fan_out=3, rounds=8, patience_s=0.1))
    deadline_s: float = 10.0
    """Time that an event has to reach all subscribers."""
    rate_per_s: float | None = None
    """Packets that a link carries a second; events follow each other at that pace. Left out, what one process that runs
    all nodes can keep up with."""
    seed: int = 1
    key: bytes | None = field(default=None, repr=False)
    """Authenticates all datagrams, where given."""

    def __post_init__(self) -> None:
        for name in ("subscribers", "brokers"):
            if not 1 <= getattr(self, name) <= 500:
                raise ConfigurationError(f"{name}: {getattr(self, name)} must be from 1 to 500, a socket each")
        for name, value in (("rate", self.pace_per_s), ("deadline", self.deadline_s)):
            if not 0.0 < value < math.inf:
                raise ConfigurationError(f"{name}: {value} must be above 0 and finite")
        if self.event_bytes < 1:
            raise ConfigurationError(
                f"{self.packets} packets of {self.packet_bytes} bytes leave no room for a file; give {_HEAD_BYTES + 1}"
            )

    @property
    def event_bytes(self) -> int:
        """Bytes of the file in one event, which is one generation."""
        return self.packets * self.packet_bytes - _HEAD_BYTES

    @property
    def pace_per_s(self) -> float:
        """Packets that a link carries a second."""
        if self.rate_per_s is not None:
            return self.rate_per_s
        return DATAGRAMS_PER_S / (self.subscribers + 2 * self.brokers)

    @property
    def settings(self) -> DisseminationSettings:
        coding = CodingSettings(self.packets, self.redundancy, packet_bytes=self.packet_bytes)
        # The first subscriber to complete an event must not make others ask for packets still on their way to them.
        patience_s = max(self.gossip.patience_s, 0.5 * self.packets / self.pace_per_s)
        gossip = replace(self.gossip, patience_s=0.0 if self.scheme == "gossip" else patience_s)
        settings = scheme_settings(self.scheme, coding, gossip, self.paths)
        # Packets follow each other slowly where links are: a relay must not take the gaps for the end.
        flush_s = max(settings.flush_s, 4.0 / self.pace_per_s)
        retransmit_s = max(settings.retransmit_s, 8.0 * self.delay_s)
        pace = settings.paths != "none"
        return replace(settings, key=self.key, pace=pace, flush_s=flush_s, retransmit_s=retransmit_s)


@dataclass
class Received:
    """The parts of the file that one subscriber has, their delays since publication, and the number recovered."""

    parts: dict[int, bytes] = field(default_factory=dict)
    delays_s: dict[int, float] = field(default_factory=dict)
    recovered: int = 0
    given_up: int = 0
    is_whole: bool = False
    """True if all parts came and have the hash of the file."""


@dataclass(frozen=True)
class CastResult:
    """The result of a run. `sent` and `sent_bytes` are by kind of message, all nodes together."""

    options: CastOptions
    size: int
    events: int
    sha256: str
    seconds: float
    received: dict[int, Received]
    sent: Counter[str]
    sent_bytes: Counter[str]
    refused: Counter[str]
    relay: Counter[str]

    @property
    def in_time(self) -> int:
        """Pairs of event and subscriber in time, of `events * subscribers`."""
        return sum(len(one.parts) for one in self.received.values())

    @property
    def packets_minimum(self) -> float:
        """Packets below which nobody can go: each subscriber takes in every packet over a hop of that loss."""
        return self.events * self.options.packets * self.options.subscribers / (1.0 - self.options.loss)


class _Cast:
    """The nodes of one run. Number 0 is the publisher's broker; brokers, subscribers and the service follow."""

    def __init__(self, options: CastOptions, data: bytes, progress: Progress | None):
        self.options = options
        self.data = data
        self.progress = progress
        size = options.event_bytes
        self.pieces = [data[at : at + size] for at in range(0, len(data), size)] or [b""]
        self.received = {options.brokers + i: Received() for i in range(options.subscribers)}
        self.endpoints: dict[int, Endpoint] = {}
        self.relay = LossyRelay(options.loss, options.seed, options.delay_s)
        self.finished = 0
        self.arrived: Counter[int] = Counter()
        self.ends_s: dict[int, float] = {}
        self.over = asyncio.Event()

    def nodes(self) -> dict[int, DisseminationNode]:
        """Brokers in a ring with chords, so that there are several paths, and subscribers at each in turn."""
        options, settings = self.options, self.options.settings
        count = options.brokers
        service = count + options.subscribers
        known = range(service + 1)
        links = {tuple(sorted((b, (b + step) % count))) for b in range(count) for step in (1, 2) if step < count}
        graph = CapacityGraph.both_ways([(a, b, options.pace_per_s) for a, b in sorted(links) if a != b])
        nodes: dict[int, DisseminationNode] = {0: PublisherNode(0, settings, known, service, options.seed)}
        nodes |= {b: Relay(b, settings, known, service, options.seed) for b in range(1, count)}
        for number in self.received:
            home = (number - count) % count
            nodes[number] = SubscriberNode(number, home, settings, known, service, options.seed)
        nodes[service] = NotificationService(service, settings, PathPlanner(graph), known, options.seed)
        return nodes

    async def run(self) -> CastResult:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(lambda: self.relay, sock=_socket())
        try:
            address = transport.get_extra_info("sockname")[:2]
            for number, node in self.nodes().items():
                await self._open(number, node, address)
            await self._register()
            began_s = loop.time()
            await self._publish()
            seconds = loop.time() - began_s
        finally:
            for endpoint in self.endpoints.values():
                endpoint.close()
            transport.close()
        return self._result(seconds)

    async def _open(self, number: int, node: DisseminationNode, relay: Address) -> None:
        loop = asyncio.get_running_loop()
        transport, endpoint = await loop.create_datagram_endpoint(
            lambda: Endpoint(node, relay, self._happened), sock=_socket()
        )
        self.relay.introduce(number, transport.get_extra_info("sockname")[:2])
        self.endpoints[number] = endpoint

    async def _register(self) -> None:
        """Everybody subscribes, again and again until the service has confirmed."""
        loop = asyncio.get_running_loop()
        waiting: list[SubscriberNode] = []
        for number in self.received:
            endpoint = self.endpoints[number]
            assert isinstance(endpoint.node, SubscriberNode)
            endpoint.perform(endpoint.node.subscribe(1, TOPIC, "", loop.time()))
            waiting.append(endpoint.node)
        until_s = loop.time() + _REGISTER_S
        while not all(subscriber.is_registered(1) for subscriber in waiting):
            if loop.time() > until_s or any(subscriber.counters.refused["not registered"] for subscriber in waiting):
                raise PeerError(f"not all subscribers could register within {_REGISTER_S:g} s; lower the loss")
            await asyncio.sleep(0.01)

    async def _publish(self) -> None:
        """Publishes one event after the other at the pace of the links, and waits until each is everywhere or late."""
        loop, options = asyncio.get_running_loop(), self.options
        endpoint = self.endpoints[0]
        publisher = endpoint.node
        assert isinstance(publisher, PublisherNode)
        gap_s = options.settings.packets / options.pace_per_s
        next_s = loop.time()
        for index, piece in enumerate(self.pieces):
            await asyncio.sleep(max(0.0, next_s - loop.time()))
            # Where this machine cannot keep up, events wait here, not as datagrams in all sockets.
            while self._under_way(loop.time()) >= UNDER_WAY_MAX:
                await asyncio.sleep(0.01)
            now_s = loop.time()
            next_s = now_s + gap_s
            self.ends_s[index] = now_s + options.deadline_s
            body = Body(TOPIC, piece, (("part", float(index)),), published_s=now_s)
            endpoint.perform(publisher.request(body, now_s + options.deadline_s, now_s))
        try:
            async with asyncio.timeout(options.deadline_s + 0.1):
                await self.over.wait()
        except TimeoutError:
            pass

    def _under_way(self, now_s: float) -> int:
        """Events that not all subscribers have yet, and could still get."""
        everybody = len(self.received)
        return sum(self.arrived[part] < everybody and now_s < end_s for part, end_s in self.ends_s.items())

    def _happened(self, number: int, effect: EventComplete | EventPrefix | Expire, now_s: float) -> None:
        mine = self.received[number]
        if isinstance(effect, Expire):
            mine.given_up += 1
        elif isinstance(effect, EventComplete):
            body = Body.decode(effect.data)
            part = int(float(dict(body.attributes)["part"]))
            if part not in mine.parts:
                mine.parts[part] = body.payload
                mine.delays_s[part] = now_s - body.published_s
                mine.recovered += effect.recovered
                self.finished += 1
                self.arrived[part] += 1
                total = len(self.pieces) * len(self.received)
                if self.progress is not None:
                    self.progress(self.finished, total)
                if self.finished == total:
                    self.over.set()

    def _result(self, seconds: float) -> CastResult:
        digest = hashlib.sha256(self.data).hexdigest()
        for mine in self.received.values():
            whole = b"".join(mine.parts.get(i, b"") for i in range(len(self.pieces)))
            mine.is_whole = len(mine.parts) == len(self.pieces) and hashlib.sha256(whole).hexdigest() == digest
        sent: Counter[str] = Counter()
        sent_bytes: Counter[str] = Counter()
        refused: Counter[str] = Counter()
        for endpoint in self.endpoints.values():
            sent += endpoint.node.counters.sent_messages
            sent_bytes += endpoint.node.counters.sent_bytes
            refused += endpoint.node.counters.refused + endpoint.counts
        pieces = len(self.pieces)
        return CastResult(
            self.options,
            len(self.data),
            pieces,
            digest,
            seconds,
            self.received,
            sent,
            sent_bytes,
            refused,
            self.relay.counts,
        )


def run_cast(options: CastOptions, data: bytes, progress: Progress | None = None) -> CastResult:
    """Publishes data to the subscribers of a network on loopback; returns when all have it, or its time is over.

    >>> result = run_cast(CastOptions(subscribers=3, brokers=2, loss=0.0, packets=4), b"in time" * 100)
    >>> [one.is_whole for one in result.received.values()]
    [True, True, True]
    """
    import uvloop

    _warm_up(options)

    async def cast() -> CastResult:
        return await _Cast(options, data, progress).run()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(cast())


def _warm_up(options: CastOptions) -> None:
    """Loads the compiled kernels before anything is timed."""
    settings = CodingSettings(packets=2, redundancy=1.0, packet_bytes=8)
    recoder, decoder = Recoder(settings), EventDecoder(settings)
    for packet in EventEncoder(1, b"ready to go", settings, options.seed).packets():
        recoder.add(packet)
    while not decoder.complete:
        decoder.add(recoder.packet(decoder.redundant + decoder.rank + 1))


def _socket() -> socket.socket:
    """A socket on loopback with room for a burst."""
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        made.setblocking(False)
        made.bind(("127.0.0.1", 0))
    except OSError:
        made.close()
        raise
    return made
