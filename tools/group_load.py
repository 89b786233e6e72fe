"""Load for a replicated broker, from real MQTT clients, and the check of what they saw.

Publishers and subscribers of two kinds: `GroupClient`, and paho-mqtt, which goes to the next replica when its
connection ends. Every publication is unlike all others, so that each can be followed.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MessageState
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from surecast.client.client import ReceivedMessage
from surecast.client.client_errors import ClientError
from surecast.client.group_client import GroupClient, split_address

TOPICS = "load"
OPEN_MAX = 8
KEEP_ALIVE_S = 5


@dataclass
class Received:
    """The messages that one subscriber got, in its order, with the time. `delivers_late` is for one that delivers
    QoS 2 messages when they are released, and so behind later ones of QoS 1."""

    qos: int
    delivers_late: bool = False
    got: list[tuple[float, bytes]] = field(default_factory=list)

    def payloads(self) -> list[bytes]:
        return [payload for _, payload in self.got]

    def firsts(self, qos: int | None = None, of: History | None = None) -> list[bytes]:
        """First receptions in order; those of one QoS of the publisher only, if it is given."""
        found = list(dict.fromkeys(self.payloads()))
        return found if of is None else [payload for payload in found if of.qos_of(payload) == qos]


@dataclass
class History:
    """All that clients saw."""

    qos: dict[str, int] = field(default_factory=dict)
    sent: set[bytes] = field(default_factory=set)
    acknowledged: list[tuple[float, bytes]] = field(default_factory=list)
    received: dict[str, Received] = field(default_factory=dict)

    def qos_of(self, payload: bytes) -> int:
        return self.qos[payload.partition(b":")[0].decode()]

    def missing(self) -> int:
        """Acknowledged publications that a subscriber has not got yet, summed over subscribers."""
        wanted = {payload for _, payload in self.acknowledged}
        return sum(len(wanted - set(one.payloads())) for one in self.received.values())

    def problems(self) -> list[str]:
        """Every promise that was broken."""
        wanted = {payload for _, payload in self.acknowledged}
        found = []
        for name, one in self.received.items():
            seen = Counter(one.payloads())
            if lost := wanted - seen.keys():
                found.append(f"{name}: {len(lost)} acknowledged publications lost, such as {min(lost)!r}")
            if strange := seen.keys() - self.sent:
                found.append(f"{name}: {len(strange)} messages that nobody published, such as {min(strange)!r}")
            twice = [p for p, count in seen.items() if count > 1 and self.qos_of(p) == 2 and one.qos == 2]
            if twice:
                found.append(f"{name}: {len(twice)} messages twice at QoS 2, such as {twice[0]!r}")
        return found + self._disorder()

    def _disorder(self) -> list[str]:
        found = []
        orders = {name: one.firsts() for name, one in self.received.items()}
        name, order = next((n, o) for n, o in orders.items() if not self.received[n].delivers_late)
        for other, its in orders.items():
            if self.received[other].delivers_late:
                parts = [
                    ([p for p in order if self.qos_of(p) == q], [p for p in its if self.qos_of(p) == q]) for q in (1, 2)
                ]
            else:
                parts = [(order, its)]
            for expected, got in parts:
                # What was not acknowledged at the very end may be with one subscriber and not yet with another.
                both = set(expected) & set(got)
                if [p for p in expected if p in both] != [p for p in got if p in both]:
                    found.append(f"{name} and {other}: messages in different orders")
        for publisher in self.qos:
            if publisher.startswith("paho"):
                continue  # what it publishes while it connects again it sends before what it has to repeat
            numbers = [int(p.partition(b":")[2]) for p in order if p.startswith(publisher.encode() + b":")]
            if numbers != sorted(numbers):
                found.append(f"{publisher}: its messages are not in its order")
        return found

    def gap_s(self, at: float, until: float) -> float:
        """The longest silence of any subscriber that began between two moments, or lasted at the first of them."""
        longest = 0.0
        for one in self.received.values():
            times = [t for t, _ in one.got]
            gaps = [b - a for a, b in pairwise(times) if b >= at and a <= until]
            longest = max(longest, *gaps, 0.0)
        return longest


class Load:
    """Clients of both kinds at all replicas, from `start` to `finish`."""

    def __init__(self, addresses: Sequence[str], seed: int = 1, pause_s: float = 0.01):
        self.addresses = list(addresses)
        self.history = History()
        self.failures: list[BaseException] = []
        self.fail_overs = 0
        self._pause_s = pause_s
        self._seed = seed
        self._stopping = asyncio.Event()
        self._publishing: list[asyncio.Task[None]] = []
        self._listening: list[asyncio.Task[None]] = []
        self._clients: list[GroupClient] = []
        self._paho: list[PahoClient] = []

    async def start(self) -> None:
        """Subscribers first, then publishers."""
        for qos in (1, 2):
            await self._subscribe(f"sub{qos}", qos)
        versions = [(paho.MQTTv311, 1), (paho.MQTTv5, 2), (paho.MQTTv311, 2)]
        for at, (version, qos) in enumerate(versions):
            name = f"paho-sub{at}"
            self.history.received[name] = Received(qos, delivers_late=qos == 2)
            client = PahoClient(name, version, self._turned(at), self.history.received[name], qos)
            self._paho.append(client)
            await asyncio.to_thread(client.start)
        for qos in (1, 2):
            self._publish_by(f"pub{qos}", qos)
        for at, (version, qos) in enumerate([(paho.MQTTv5, 1), (paho.MQTTv311, 2)]):
            name = f"paho{at}"
            self.history.qos[name] = qos
            client = PahoClient(name, version, self._turned(at + 1))
            self._paho.append(client)
            await asyncio.to_thread(client.start)
            self._publishing.append(asyncio.create_task(self._publish_paho(client, name, qos)))

    def _turned(self, at: int) -> list[str]:
        at %= len(self.addresses)
        return self.addresses[at:] + self.addresses[:at]

    async def _subscribe(self, name: str, qos: int) -> None:
        client = GroupClient(self.addresses, client_id=name, request_s=3.0, keep_alive_s=KEEP_ALIVE_S)
        await client.connect()
        await client.subscribe(f"{TOPICS}/#", qos=qos)
        self._clients.append(client)
        received = self.history.received[name] = Received(qos)

        async def listen() -> None:
            async for message in client.messages():
                received.got.append((time.monotonic(), message.payload))

        self._listening.append(asyncio.create_task(listen()))

    def _publish_by(self, name: str, qos: int) -> None:
        self.history.qos[name] = qos
        self._publishing.append(asyncio.create_task(self._publish(name, qos)))

    async def _publish(self, name: str, qos: int) -> None:
        history, number, opened = self.history, 0, set[asyncio.Task[None]]()
        options: dict[str, Any] = {"request_s": 3.0, "keep_alive_s": KEEP_ALIVE_S}
        async with GroupClient(self.addresses, client_id=name, **options) as client:

            async def one(payload: bytes) -> None:
                await client.publish(f"{TOPICS}/{name}", payload, qos=qos)
                history.acknowledged.append((time.monotonic(), payload))

            while not self._stopping.is_set():
                payload = b"%s:%d" % (name.encode(), number)
                number += 1
                history.sent.add(payload)
                opened.add(task := asyncio.create_task(one(payload)))
                task.add_done_callback(opened.discard)
                while len(opened) >= OPEN_MAX:
                    await asyncio.wait(opened, return_when=asyncio.FIRST_COMPLETED)
                await asyncio.sleep(self._pause_s)
            if opened:
                await asyncio.gather(*opened)
            self.fail_overs += client.fail_overs

    async def _publish_paho(self, client: PahoClient, name: str, qos: int) -> None:
        history, number = self.history, 0
        while not self._stopping.is_set() or client.opened:
            if len(client.opened) < OPEN_MAX and not self._stopping.is_set():
                payload = b"%s:%d" % (name.encode(), number)
                number += 1
                history.sent.add(payload)
                client.publish(f"{TOPICS}/{name}", payload, qos)
            await asyncio.sleep(self._pause_s)
            history.acknowledged += client.take_acknowledged()

    async def finish(self, timeout_s: float = 120.0) -> None:
        """Ends publishing, waits until all is acknowledged and has arrived, and ends the clients."""
        self._stopping.set()
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.gather(*self._publishing)
                while self.history.missing():
                    await asyncio.sleep(0.1)
        except TimeoutError:
            waiting = sum(not task.done() for task in self._publishing)
            self.failures.append(TimeoutError(f"{waiting} publishers and {self.history.missing()} messages wait still"))
        await asyncio.sleep(0.5)  # whatever comes twice comes now
        await self.close()

    async def close(self) -> None:
        """Ends all clients."""
        for task in (*self._publishing, *self._listening):
            task.cancel()
        await asyncio.gather(*self._publishing, *self._listening, return_exceptions=True)
        for client in self._clients:
            self.fail_overs += client.fail_overs
            with suppress(ClientError):
                await client.close()
        for each in self._paho:
            await asyncio.to_thread(each.stop)


class PahoClient:
    """A paho client with a lasting session, in a thread of its own, that goes from replica to replica."""

    def __init__(
        self, name: str, version: int, addresses: Sequence[str], received: Received | None = None, qos: int = 0
    ):
        given = {} if version == paho.MQTTv5 else {"clean_session": False}
        made: Any = paho.Client  # its types are narrower than what it takes
        self.client = made(CallbackAPIVersion.VERSION2, name, protocol=version, **given)
        self.opened: dict[int, bytes] = {}
        self._done: list[tuple[float, int]] = []
        self._version, self._addresses = version, [split_address(one) for one in addresses]
        self._received, self._qos = received, qos
        self._stopping = False
        self._subscribed = threading.Event()
        self.client.on_connect = self._on_connect
        self.client.on_subscribe = lambda *_: self._subscribed.set()
        self.client.on_message = self._on_message
        self.client.on_publish = self._on_publish
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Connects, and waits for the subscription or the connection."""
        self._thread.start()
        assert self._subscribed.wait(20), "no replica took the client"

    def stop(self) -> None:
        """Goes away; its session lives on."""
        self._stopping = True
        self._thread.join(10)

    def publish(self, topic: str, payload: bytes, qos: int) -> None:
        info = self.client.publish(topic, payload, qos)
        self.opened[info.mid] = payload

    def take_acknowledged(self) -> list[tuple[float, bytes]]:
        """Returns what was acknowledged since the last call; called by the publishing thread, which knows them all."""
        count = len(self._done)
        done, self._done[:count] = self._done[:count], []
        return [(at, self.opened.pop(number)) for at, number in done]

    def _run(self) -> None:
        at = 0
        while not self._stopping:
            host, port = self._addresses[at % len(self._addresses)]
            at += 1
            with suppress(OSError):
                self._connect(host, port)
                while not self._stopping and self.client.loop(0.05) == paho.MQTT_ERR_SUCCESS:
                    pass
            time.sleep(0.05)
        self.client.disconnect()

    def _connect(self, host: str, port: int) -> None:
        with self.client._out_message_mutex:
            # When an attempt to connect follows one that failed, paho 2.2 forgets that it has released a message and
            # publishes it anew, as another message. It is reminded.
            for message in self.client._out_messages.values():
                if message.state == MessageState.MQTT_MS_RESEND_PUBREL:
                    message.state = MessageState.MQTT_MS_WAIT_FOR_PUBCOMP
        if self._version == paho.MQTTv5:
            expiry = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            expiry.SessionExpiryInterval = 600
            self.client.connect(host, port, KEEP_ALIVE_S, clean_start=False, properties=expiry)
        else:
            self.client.connect(host, port, KEEP_ALIVE_S)

    def _on_connect(self, client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        if self._received is None:
            self._subscribed.set()
        elif not reason.is_failure and not self._subscribed.is_set():
            client.subscribe(f"{TOPICS}/#", self._qos)

    def _on_message(self, client: Any, data: Any, message: Any) -> None:
        assert self._received is not None
        self._received.got.append((time.monotonic(), bytes(message.payload)))

    def _on_publish(self, client: Any, data: Any, number: int, reason: Any, properties: Any) -> None:
        self._done.append((time.monotonic(), number))


class Zappers:
    """Two publishers of events of the same set-top boxes, and what must come of them."""

    def __init__(self, addresses: Sequence[str], seed: int = 1, pause_s: float = 0.05):
        self.addresses = list(addresses)
        self.lines: list[bytes] = []
        self.figures: dict[str, bytes] = {}
        self._draw = random.Random(seed)
        self._pause_s = pause_s
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self._client = GroupClient(self.addresses, client_id="zap-sub", request_s=3.0, keep_alive_s=KEEP_ALIVE_S)

    async def start(self) -> None:
        await self._client.connect()
        # One session hears the events in the order of the log, and the figures.
        await self._client.subscribe("zap/events/+", "zap/viewers/+", "zap/top/10", qos=2)
        self._listener = asyncio.create_task(self._listen())
        self._tasks = [asyncio.create_task(self._publish(name)) for name in ("east", "west")]

    async def _listen(self) -> None:
        async for message in self._client.messages():
            self._take(message)

    def _take(self, message: ReceivedMessage) -> None:
        if message.topic.startswith("zap/events/"):
            self.lines += message.payload.splitlines()
        else:
            self.figures[message.topic] = message.payload

    async def _publish(self, name: str) -> None:
        draw = self._draw
        options: dict[str, Any] = {"request_s": 3.0, "keep_alive_s": KEEP_ALIVE_S}
        async with GroupClient(self.addresses, client_id=f"zap-{name}", **options) as client:
            while not self._stopping:
                lines = []
                for _ in range(20):
                    event = f"C{draw.randrange(15)},A" if draw.random() < 0.8 else f"Power: {draw.randrange(2)}"
                    lines.append(f"2024-01-01,20:00:00,10.0.0.{draw.randrange(1, 60)},{event}")
                await client.publish(f"zap/events/{name}", "\n".join(lines).encode(), qos=2)
                await asyncio.sleep(self._pause_s)

    async def finish(self, timeout_s: float = 60.0) -> list[str]:
        """Ends publishing; what is wrong with the figures, once those of the last events should be there."""
        self._stopping = True
        await asyncio.gather(*self._tasks)
        until = time.monotonic() + timeout_s
        while (problems := self.problems()) and time.monotonic() < until:
            await asyncio.sleep(0.1)
            await self._client.publish("tick", b"", qos=1)  # figures are due when the log's time moves on
        self._listener.cancel()
        await self._client.close()
        return problems

    def problems(self) -> list[str]:
        """Figures that differ from those computed anew from all events, in the order of the log."""
        viewers = count_viewers(self.lines)
        wanted = {f"zap/viewers/{channel}": b"%d" % count for channel, count in viewers.items()}
        top = sorted(((count, channel) for channel, count in viewers.items() if count), key=lambda p: (-p[0], p[1]))
        listed = json.dumps([{"channel": name, "viewers": n} for n, name in top[:10]], separators=(",", ":"))
        wanted["zap/top/10"] = listed.encode()
        return [
            f"{topic}: {self.figures.get(topic, b'0')!r}, and {payload!r} by the log"
            for topic, payload in sorted(wanted.items())
            if self.figures.get(topic, b"0") != payload
        ]


def count_viewers(lines: Iterable[bytes]) -> dict[str, int]:
    """Viewers by channel, in the plainest way.

    >>> count_viewers([b"d,t,box,B,A", b"d,t,other,B,A", b"d,t,box,Power: 0"])
    {'B': 1}
    """
    channel: dict[str, str] = {}
    is_on: dict[str, bool] = {}
    for line in lines:
        box, *rest = line.decode().split(",")[2:]
        if len(rest) == 2:
            channel[box], is_on[box] = rest[0], True
        else:
            is_on[box] = rest[0] == "Power: 1"
    names = {name for line in lines if len(fields := line.decode().split(",")) == 5 for name in [fields[3]]}
    return {name: sum(channel[box] == name and is_on[box] for box in channel) for name in sorted(names)}
