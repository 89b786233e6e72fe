"""The clients of `broker_soak.py`, which come and go and look at all they get."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter, deque
from dataclasses import dataclass, field

from surecast.protocol.mqtt import (
    V5,
    V311,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketDecoder,
    PacketError,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscriptionRequest,
    encode,
)

__all__ = ["Inbox", "Link", "Peer", "Plan", "Publisher", "Reader", "Soak", "Subscriber"]

WINDOW = 16
ANSWER_S = 60.0
HISTORY = 30  # the last deliveries, which are shown with a message that is out of order


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of one run."""

    seconds: float
    clients: int
    seed: int
    rate_per_s: float
    kill_interval_s: float
    kills_least: int
    online_s: float
    durability: str


@dataclass(slots=True)
class Stream:
    """The messages of one publisher, topic and QoS, by number."""

    topic: str
    qos: int
    retain: bool = False
    sent: int = 0
    acknowledged: set[int] = field(default_factory=set)
    sent_again: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Inbox:
    """The messages of each stream that one subscription, or all members of a shared one, have received."""

    needed_from: dict[str, int] = field(default_factory=dict)
    got: dict[str, set[int]] = field(default_factory=dict)


class Soak:
    """The whole run: its clients, what they found wrong, and the switch that ends the storm."""

    def __init__(self, plan: Plan, port: int):
        self.plan = plan
        self.port = port
        self.streams: dict[str, Stream] = {}
        self.by_group: dict[int, list[Stream]] = {}
        self.wrong: list[str] = []
        self.counts: Counter[str] = Counter()
        self.calm = asyncio.Event()
        self.over = asyncio.Event()
        self.publishers: list[Publisher] = []
        self.subscribers: list[Subscriber] = []

    def violation(self, text: str) -> None:
        """Notes what must not happen."""
        self.wrong.append(text)
        if len(self.wrong) <= 10:
            print(f"WRONG {text}", flush=True)


class Link(asyncio.Protocol):
    """One connection of a client. Once the client has left it or made another, what happens on it counts for nothing:

    the end of an old connection, or bytes that were still on their way, may be seen after a newer one has begun.
    """

    def __init__(self, peer: Peer):
        self._peer = peer
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is up."""
        self.transport = transport  # type: ignore[assignment] # uvloop has transports of its own kind
        if self._peer.link is not self:
            transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is over."""
        if self._peer.link is self:
            self._peer.lost()

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        if self._peer.link is self:
            self._peer.received(data)


class Peer:
    """A client that comes and goes. Its state outlives its connections, as the standard asks of lasting sessions."""

    def __init__(self, soak: Soak, name: str, rng: random.Random):
        self.soak, self.name, self.rng = soak, name, rng
        self.version = rng.choice((V311, V5))
        self.lasting = rng.random() < 0.7
        self.asked = self.was_there = False
        self.link: Link | None = None
        self.online = False
        self._decoder = PacketDecoder(version=self.version, side="client")
        self._lost = asyncio.Event()
        self._welcome: asyncio.Future[Connack] | None = None

    async def live(self) -> None:
        """Connects, stays a while, goes, comes back; once it is calm it stays."""
        soak, rng = self.soak, self.rng
        while not soak.over.is_set():
            if not await self._connect():
                await asyncio.sleep(rng.uniform(0.1, 1.5))
                continue
            if not soak.calm.is_set():
                stay_s = rng.expovariate(1 / soak.plan.online_s)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._first(self._lost, soak.calm), stay_s)
            if soak.calm.is_set() and not self._lost.is_set():
                await self._first(self._lost, soak.over)
            self._leave()
            if not soak.calm.is_set():
                await asyncio.sleep(rng.expovariate(1 / 2.0))

    @staticmethod
    async def _first(*events: asyncio.Event) -> None:
        tasks = [asyncio.ensure_future(event.wait()) for event in events]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    async def _connect(self) -> bool:
        loop = asyncio.get_running_loop()
        self._decoder = PacketDecoder(version=self.version, side="client")
        self._lost = asyncio.Event()
        self._welcome = loop.create_future()
        self.link = link = Link(self)
        try:
            await loop.create_connection(lambda: link, "127.0.0.1", self.soak.port)
            properties = Properties(session_expiry_s=3600) if self.version == V5 and self.lasting else Properties()
            self._send(Connect(self.name, not self.lasting, 0, properties=properties, version=self.version))
            answer = await asyncio.wait_for(self._welcome, ANSWER_S)
        except (OSError, TimeoutError):
            self.asked = True
            self._leave(at_once=True)
            return False
        if answer.reason >= 0x80:
            self.soak.violation(f"{self.name} was refused: {answer.reason!r}")
        if answer.reason >= 0x80 or self._lost.is_set():
            self._leave(at_once=True)
            return False
        return True

    def _start(self, answer: Connack) -> None:
        """Goes on where the session stands, before anything that comes behind the CONNACK."""
        # Where an earlier CONNECT was never answered, the session may be there or not.
        known = self.was_there or not (self.asked and self.lasting)
        if known and answer.session_present != self.was_there:
            self.soak.violation(f"{self.name}: session present is {answer.session_present}, lasting {self.lasting}")
        self.asked, self.was_there = False, self.lasting
        self.online = True
        self.soak.counts["connections"] += 1
        self.begin(answer.session_present)

    def _leave(self, at_once: bool = False) -> None:
        transport = self.link.transport if self.link is not None else None
        self.online = False
        if transport is not None and not transport.is_closing():
            if at_once or self.rng.random() < 0.6:
                transport.abort()
            else:
                self._send(Disconnect())
                transport.close()
        self.link = None

    def lost(self) -> None:
        """The connection is over."""
        self.online = False
        self._lost.set()
        if self._welcome is not None and not self._welcome.done():
            self._welcome.set_exception(ConnectionResetError("lost"))

    def received(self, data: bytes) -> None:
        """Bytes have come."""
        try:
            packets = self._decoder.feed(data)
        except PacketError as error:
            self.soak.violation(f"{self.name} got what is no MQTT: {error}")
            return
        for packet in packets:
            if isinstance(packet, Connack):
                if packet.reason < 0x80:
                    self._start(packet)
                if self._welcome is not None and not self._welcome.done():
                    self._welcome.set_result(packet)
            elif isinstance(packet, Disconnect):
                self.soak.counts[f"disconnected by the broker: {packet.reason.name.lower()}"] += 1
            else:
                self.take(packet)

    def _send(self, *packets: Packet) -> None:
        transport = self.link.transport if self.link is not None else None
        if transport is not None and not transport.is_closing():
            transport.write(b"".join(encode(packet, self.version) for packet in packets))

    def begin(self, present: bool) -> None:
        """The client is connected."""
        raise NotImplementedError

    def take(self, packet: Packet) -> None:
        """A packet has come."""
        raise NotImplementedError


class Publisher(Peer):
    """Publishes at all QoS; with a lasting session it sends again what was not acknowledged."""

    def __init__(self, soak: Soak, name: str, group: int, rng: random.Random):
        super().__init__(soak, name, rng)
        self.streams = [Stream(f"g/{group}/{name}/{qos}", qos) for qos in range(3)]
        self.streams.append(Stream(f"kept/{name}", 1, retain=True))
        self.open: dict[int, tuple[Stream, int, Publish, bool]] = {}
        self._identifier = 0
        soak.streams.update({stream.topic: stream for stream in self.streams})
        soak.by_group.setdefault(group, []).extend(self.streams[:3])

    def begin(self, present: bool) -> None:
        """Sends again what is open, in its order, or forgets it with the session."""
        if not present:
            self.open.clear()
        again: list[Packet] = []
        for identifier, (stream, number, packet, released) in self.open.items():
            stream.sent_again.add(number)
            again.append(
                Pubrel(identifier)
                if released
                else Publish(packet.topic, packet.payload, packet.qos, packet.retain, True, identifier)
            )
        self._send(*again)

    def publish(self, count: int) -> None:
        """Publishes some messages, as far as the window allows."""
        packets = []
        for _ in range(count):
            if not self.online or len(self.open) >= WINDOW:
                break
            stream = self.rng.choice(self.streams)
            number = stream.sent
            stream.sent += 1
            payload = str(number).encode() + b" " * self.rng.choice((0, 10, 200))
            identifier = self._next() if stream.qos else 0
            packet = Publish(stream.topic, payload, stream.qos, stream.retain, False, identifier)
            if stream.qos:
                self.open[identifier] = (stream, number, packet, False)
            packets.append(packet)
        self.soak.counts["published"] += len(packets)
        self._send(*packets)

    def _next(self) -> int:
        while True:
            self._identifier = self._identifier % 65_535 + 1
            if self._identifier not in self.open:
                return self._identifier

    def take(self, packet: Packet) -> None:
        """An acknowledgement."""
        if isinstance(packet, (Puback, Pubrec)):
            entry = self.open.get(packet.packet_id)
            if entry is None:
                self.soak.violation(f"{self.name} got an acknowledgement of the unknown {packet.packet_id}")
                return
            stream, number, sent, _ = entry
            if packet.reason >= 0x80:
                self.soak.violation(f"{self.name}: {sent.topic} {number} was refused: {packet.reason!r}")
            stream.acknowledged.add(number)
            self.soak.counts["acknowledged"] += 1
            if isinstance(packet, Puback):
                del self.open[packet.packet_id]
            else:
                self.open[packet.packet_id] = (stream, number, sent, True)
                self._send(Pubrel(packet.packet_id))
        elif isinstance(packet, Pubcomp):
            self.open.pop(packet.packet_id, None)


class Subscriber(Peer):
    """Takes what it subscribed to, and looks at once whether it may come like that."""

    def __init__(self, soak: Soak, name: str, group: int, rng: random.Random, share: Inbox | None):
        super().__init__(soak, name, rng)
        self.lasting = self.lasting or share is not None
        self.group = group
        self.shared = share is not None
        self.inbox = share or Inbox()
        self.qos = rng.randrange(3) if share is None else 2
        self.filter = f"$share/s/g/{group}/#" if share is not None else f"g/{group}/#"
        self.subscribed = False
        self.highest: dict[str, int] = {}
        self.gaps: list[tuple[str, int, int]] = []
        self._received: set[int] = set()
        self._of_connection: set[str] = set()
        self._history: deque[str] = deque(maxlen=HISTORY)

    def begin(self, present: bool) -> None:
        """Subscribes, unless the session has the subscription; forgets half of QoS 2 with the session."""
        self._of_connection.clear()
        self._history.append(f"connected, session present {present}")
        if not present:
            self._received.clear()
            self.subscribed = False
        if not self.subscribed:
            self._send(Subscribe(1, (SubscriptionRequest(self.filter, self.qos),)))

    def take(self, packet: Packet) -> None:
        """A message, or a step of one."""
        if isinstance(packet, Publish):
            if packet.qos == 2:
                if packet.packet_id not in self._received:
                    self._received.add(packet.packet_id)
                    self._message(packet)
                self._send(Pubrec(packet.packet_id))
                return
            self._message(packet)
            if packet.qos:
                self._send(Puback(packet.packet_id))
        elif isinstance(packet, Pubrel):
            self._received.discard(packet.packet_id)
            self._send(Pubcomp(packet.packet_id))
        elif isinstance(packet, Suback):
            self.subscribed = True
            for stream in self.soak.by_group[self.group]:
                self.inbox.needed_from.setdefault(stream.topic, stream.sent)

    def _message(self, packet: Publish) -> None:
        soak, topic, number = self.soak, packet.topic, int(packet.payload)
        stream = soak.streams[topic]
        soak.counts["delivered"] += 1
        got = self.inbox.got.setdefault(topic, set())
        highest = self.highest.get(topic, -1)
        qos = min(stream.qos, self.qos)
        if packet.qos != qos or number >= stream.sent:
            soak.violation(f"{self.name}: {topic} {number} came at QoS {packet.qos}, not {qos}; sent {stream.sent}")
        if number in got:
            soak.counts["repeated"] += 1
            # A QoS 2 message for a QoS 1 subscription may come again after a break, and QoS 1 at any time.
            if stream.qos != 1 and not (qos == 1 and packet.dup):
                soak.violation(f"{self.name}: {topic} {number} came twice at QoS {qos}, dup {packet.dup}")
        elif number <= highest and not (number in stream.sent_again and not self._is_owed(stream, number)):
            soak.violation(
                f"{self.name}: {topic} {number} came after {highest}; QoS {packet.qos}, dup {packet.dup}, lasting "
                f"{self.lasting}, shared {self.shared}, sent again {number in stream.sent_again}, needed from "
                f"{self.inbox.needed_from.get(topic)}; before: {', '.join(self._history)}"
            )
        self._history.append(f"{topic} {number} as {packet.packet_id}{' dup' * packet.dup}")
        got.add(number)
        if qos and topic in self._of_connection and number > highest + 1 and not self.shared:
            self.gaps.append((topic, highest + 1, number))
        self._of_connection.add(topic)
        self.highest[topic] = max(highest, number)

    def _is_owed(self, stream: Stream, number: int) -> bool:
        """Returns whether the first copy of a message must have come here, so that a repeated one comes in order.

        The first copy may go to another member of a shared subscription, or come at a time when this client was not
        subscribed, or was away and takes QoS 0.
        """
        there = self.lasting and not self.shared and min(stream.qos, self.qos) > 0
        return stream.qos == 2 or (there and number >= self.inbox.needed_from.get(stream.topic, stream.sent))

    def missing(self) -> list[str]:
        """Returns what was acknowledged and has not arrived."""
        found = []
        for stream in self.soak.by_group[self.group]:
            if not min(stream.qos, self.qos):
                continue
            got = self.inbox.got.get(stream.topic, set())
            if self.lasting:
                first = self.inbox.needed_from.get(stream.topic, stream.sent)
                lost = {number for number in stream.acknowledged if number >= first} - got
                found += [f"{stream.topic} {number}" for number in sorted(lost)]
        for topic, first, end in self.gaps:
            stream = self.soak.streams[topic]
            found += [
                f"{topic} {n}" for n in range(first, end) if n in stream.acknowledged and n not in self.inbox.got[topic]
            ]
        return found


class Reader(Peer):
    """Reads the retained messages at the end."""

    def __init__(self, soak: Soak):
        super().__init__(soak, "reader", random.Random(0))
        self.lasting = False
        self.kept: dict[str, int] = {}

    def begin(self, present: bool) -> None:
        """Subscribes to what is retained."""
        self._send(Subscribe(1, (SubscriptionRequest("kept/#", 0),)))

    def take(self, packet: Packet) -> None:
        """A retained message."""
        if isinstance(packet, Publish):
            self.kept[packet.topic] = int(packet.payload)
