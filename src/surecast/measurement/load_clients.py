"""The clients of a run: links that publish, and subscribers that come and go and take their time."""

from __future__ import annotations

import asyncio
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from surecast.client import Client, ClientError, GroupClient
from surecast.client.client import SessionMemory
from surecast.client.client_errors import LostError
from surecast.client.group_client import split_address
from surecast.protocol.mqtt import NO_PROPERTIES, Properties, Puback, Publish, encode
from surecast.scenario.distributions import Distribution

__all__ = ["BrokerLink", "DirectLink", "KeenLink", "Received", "Receiver", "number_of", "pack_event"]

_PAUSE_S: Final = 0.02
_ANSWER_S: Final = 5.0
_DECISION_S: Final = 60.0
"""The first answer to a response target waits for a process that computes to start."""
_SESSION_S: Final = 7 * 86400
_KEEP_ALIVE_S: Final = 10
_BATCH: Final = 256
_OPEN_MAX: Final = 30
_EVENT: Final = struct.Struct(">I")


def pack_event(number: int, size: int = 16) -> bytes:
    """Returns the payload of an event: its number in the run, padded.

    >>> len(pack_event(7))
    16
    """
    return _EVENT.pack(number).ljust(size, b"\0")


def number_of(payload: bytes) -> int:
    """Returns the number of the event with a payload.

    >>> number_of(pack_event(7))
    7
    """
    number: int = _EVENT.unpack_from(payload)[0]
    return number


class BrokerLink(ABC):
    """A way to a broker for publications. `ups` are the real times at which it was connected, where it keeps them."""

    def __init__(self) -> None:
        self.ups: list[float] = []

    @abstractmethod
    async def publish(self, topic: str, payload: bytes, properties: Properties) -> bool:
        """Publishes; True once the broker has taken the event over, False where it is given up."""

    @abstractmethod
    async def connect(self) -> None:
        """Connects, and stays connected as well as it can."""

    @abstractmethod
    async def close(self) -> None:
        """Ends it."""

    @abstractmethod
    async def move(self, address: str) -> None:
        """Goes over to another replica, where it sends again what is not acknowledged."""


class KeenLink(BrokerLink):
    """Sends each event again, by whichever replica, until it is acknowledged or `patience_s` is over.

    Events wait in order, which a client with too many in flight would not keep.
    """

    def __init__(self, addresses: Sequence[str], client_id: str, patience_s: float):
        super().__init__()
        self._patience_s = patience_s
        self._turn = asyncio.Semaphore(_OPEN_MAX)
        self._client = GroupClient(
            addresses, client_id=client_id, patience_s=patience_s, request_s=max(1.0, min(_ANSWER_S, patience_s))
        )

    async def connect(self) -> None:
        """Connects."""
        await self._client.connect()

    async def publish(self, topic: str, payload: bytes, properties: Properties) -> bool:
        """Publishes, patiently."""
        try:
            async with asyncio.timeout(self._patience_s), self._turn:
                await self._client.publish(topic, payload, 1, properties=properties)
        except (ClientError, TimeoutError):
            return False
        return True

    async def close(self) -> None:
        """Ends the connection."""
        await self._client.close()

    async def move(self, address: str) -> None:
        """Goes over to another replica."""
        await self._client.move(address)


class DirectLink(BrokerLink):
    """Sends each event once: what finds no broker is lost, as the formulas have it. It connects again at once."""

    def __init__(self, addresses: Sequence[str], client_id: str):
        super().__init__()
        self._addresses = [split_address(each) for each in addresses]
        self._client_id = client_id
        self._client: Client | None = None
        self._task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()

    async def connect(self) -> None:
        """Connects, and connects again whenever the broker ends the connection."""
        if self._task is None:
            self._task = asyncio.create_task(self._stay())
        await self._ready.wait()

    async def _stay(self) -> None:
        index = 0
        while True:
            client = Client(
                *self._addresses[index], client_id=self._client_id, keep_alive_s=_KEEP_ALIVE_S, timeout_s=_ANSWER_S
            )
            try:
                await client.connect()
                self._client = client
                self.ups.append(time.time())
                self._ready.set()
                await client.wait_ended()
            except ClientError:
                await asyncio.sleep(_PAUSE_S)
            finally:
                self._client = None
                await client.disconnect()
            index = (index + 1) % len(self._addresses)

    async def move(self, address: str) -> None:
        """Stays where it is: it takes what the one broker it has been given says."""

    async def publish(self, topic: str, payload: bytes, properties: Properties) -> bool:
        """Publishes once."""
        client = self._client
        if client is None:
            return False
        try:
            await client.publish(topic, payload, 1, properties=properties)
        except ClientError:
            return False
        return True

    async def close(self) -> None:
        """Ends the connection."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task


class _Taker(Client):
    """A client that looks at a message before it takes, and so acknowledges, it."""

    async def arrived(self) -> Publish:
        """Returns the next message, which stays unacknowledged; raises the reason if the connection ended."""
        while not self._waiting:
            if self._ended is not None:
                raise self._ended
            self._arrived.clear()
            await self._arrived.wait()
        return self._waiting[0]

    async def all_messages(self) -> list[Publish]:
        """Returns all messages that are there, at least one, and acknowledges them with one write."""
        await self.arrived()
        packets = list(self._waiting)
        answers = b"".join(encode(Puback(packet.packet_id), self._version) for packet in packets if packet.qos)
        if answers and self._ended is None:
            with suppress(LostError):  # the broker sends them again to the next connection
                await self._send_bytes(answers)
        for _ in packets:
            self._waiting.popleft()
        self._room.set()
        return packets


@dataclass(slots=True)
class Received:
    """The events that a subscriber has got: the real time at which each event was there for the first time, in the
    order of arrival; what had expired when its turn came; how often it was given an event again, and lost its
    connection."""

    client_id: str
    first: dict[int, float] = field(default_factory=dict)
    expired: set[int] = field(default_factory=set)
    duplicates: int = 0
    fail_overs: int = 0


@dataclass(slots=True)
class Receiver:
    """A subscriber: a session that outlives its connections, which it opens and closes as `switch` says.

    With a `service`, it takes one event after the other and acknowledges each when the time of its transmission is
    over; what is left of that when it disconnects is made up for afterwards. `due` are the real times at which events
    are published: the transmission of one that waited begins when the one before ends, however long the broker takes to
    send it. `window` is how many the broker may send ahead; one of these whose `lifetime_s` is over when its turn comes
    has expired, as it would have at the broker. Its subscriptions have the properties `asks`.
    """

    received: Received
    topics: tuple[str, ...]
    addresses: Sequence[str]
    service: Distribution | None
    rng: np.random.Generator
    scale: float
    due: NDArray[np.float64]
    lifetime_s: NDArray[np.float64]
    window: int = 16
    asks: Properties = NO_PROPERTIES
    last_at: float = 0.0
    is_subscribed: asyncio.Event = field(default_factory=asyncio.Event)
    _on: asyncio.Event = field(default_factory=asyncio.Event)
    _client: _Taker | None = None
    _hurries: bool = False
    _left: tuple[int, float] = (-1, 0.0)
    _on_at: float = 0.0
    _free_at: float = 0.0
    _drawn: list[float] = field(default_factory=list)

    async def switch(self, is_on: bool) -> None:
        """Connects it, or disconnects it now."""
        if is_on:
            self._on_at = time.time()
            self._on.set()
        else:
            self._on.clear()
            if self._client is not None:
                await self._client.disconnect()

    async def hurry(self) -> None:
        """Stays connected from now on, and receives messages as fast as possible."""
        self._hurries = True
        # Only a client that took little at a time reconnects, to announce more: the log must not show others leaving.
        if self._client is not None and self.service is not None:
            await self._client.disconnect()
        self._on.set()

    async def run(self) -> None:
        """Does so until it is cancelled."""
        index, memory = 0, SessionMemory()
        hosts = [split_address(each) for each in self.addresses]
        while True:
            await self._on.wait()
            slow = self.service is not None and not self._hurries
            client = _Taker(
                *hosts[index],
                client_id=self.received.client_id,
                keep_alive_s=_KEEP_ALIVE_S,
                clean_start=False,
                properties=Properties(session_expiry_s=_SESSION_S, receive_maximum=self.window if slow else None),
                timeout_s=_DECISION_S if self.asks.user else _ANSWER_S,
                memory=memory,
            )
            try:
                await self._connect(client)
                while True:
                    await (self._take_served if slow else self._take_all)(client)
            except ClientError:
                if self._on.is_set():
                    self.received.fail_overs += 1
                    index = (index + 1) % len(hosts)
                    await asyncio.sleep(_PAUSE_S)
            finally:
                self._client = None
                await client.disconnect()
                memory = client.memory()

    async def _connect(self, client: _Taker) -> None:
        self._client = client
        await client.connect()
        if not client.connack.session_present:
            for topic in self.topics:
                await client.subscribe(topic, qos=1, properties=self.asks)
        self.is_subscribed.set()

    async def _take_served(self, client: _Taker) -> None:
        """Takes the next message when its transmission is over."""
        number = number_of((await client.arrived()).payload)
        is_over = not await self._serve(client, number)
        await client.message()
        if is_over:
            self.last_at = time.time()
            self.received.expired.add(number)
        else:
            self._note(number)

    async def _take_all(self, client: _Taker) -> None:
        """Takes all messages that are there."""
        for message in await client.all_messages():
            self._note(number_of(message.payload))

    def _note(self, number: int) -> None:
        received, self.last_at = self.received, time.time()
        if number in received.first:
            received.duplicates += 1
        else:
            received.first[number] = self.last_at

    async def _serve(self, client: _Taker, number: int) -> bool:
        """Waits for the time of transmission; where the connection ends meanwhile, the rest is kept for later.

        False if the event has expired before that begins.
        """
        begin = max(self._on_at, self._free_at, float(self.due[number]))
        if self._left[0] != number:
            if self.due[number] + self.lifetime_s[number] <= begin:
                return False
            self._left = (number, self._next_service_s())
        end = begin + self._left[1]
        with suppress(TimeoutError):
            async with asyncio.timeout(end - time.time()):
                reason = await client.wait_ended()
                self._left = (number, max(0.0, end - max(begin, time.time())))
                raise reason
        self._left, self._free_at = (-1, 0.0), end
        return True

    def _next_service_s(self) -> float:
        """Returns the next time of transmission, in real time."""
        assert self.service is not None
        if not self._drawn:
            self._drawn = (self.service.sample(self.rng, _BATCH) / self.scale).tolist()
        return self._drawn.pop()
