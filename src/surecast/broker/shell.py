"""What a broker needs to be on a network, whatever stands behind it: channels, turns, hooks."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from surecast.broker.store import Store
from surecast.protocol.broker import Broker, Connection, ConnectionHooks, Origin
from surecast.protocol.mqtt import Connect, ReasonCode

__all__ = ["Authenticate", "Channel", "Hooks", "Shell"]

Authenticate = Callable[[Connect, Origin], str | None]
"""The user that a CONNECT proves to be, None if it proves nothing. It may take its time: it runs in a thread."""


def _nothing(*arguments: object) -> None:
    """What is done where nobody wants to know."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """What the shell is told, beside what an observer of the core would be. None of it may raise."""

    connections: ConnectionHooks | None = None
    """What the core tells of connections."""
    failed: Callable[[Exception], None] = _nothing
    """The store failed; nothing is sent any more."""
    turn: Callable[[], None] = _nothing
    """A turn is over: everything was committed and handed to the transports."""


class Channel(Protocol):
    """A connection's way to its client: TCP, TLS or WebSocket."""

    connection: Connection

    def send(self, data: bytes) -> None:
        """Hands bytes to the transport."""

    def close(self) -> None:
        """Closes after what was handed over is sent."""

    def abort(self) -> None:
        """Closes at once."""

    def pause_reading(self) -> None:
        """Leaves what the client sends in the network for a while."""

    def resume_reading(self) -> None:
        """Reads again."""


class Shell(ABC):
    """What a broker needs to be on a network: channels, turns, and somebody who checks credentials.

    `broker` is the core, to look at; what changes it goes through the methods here.
    """

    broker: Broker
    store: Store
    authenticates: bool

    def __init__(self, authenticate: Authenticate | None, hooks: Hooks | None, executor: Executor | None):
        self._hooks = hooks or Hooks()
        self._authenticate = authenticate
        self._executor = executor
        self._channels: dict[Connection, Channel] = {}
        self._held: dict[Connection, asyncio.TimerHandle] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turn_planned = False
        self._failed = False
        self._stopped = False
        self.bytes_sent = 0
        self._checks: set[asyncio.Task[None]] = set()
        self._last_checks: dict[str, asyncio.Task[None]] = {}

    @abstractmethod
    def connected(self, channel: Channel, origin: Origin) -> None:
        """A transport is up."""

    @abstractmethod
    def received(self, connection: Connection, data: bytes) -> None:
        """Bytes have arrived."""

    @abstractmethod
    def lost(self, connection: Connection, reason: str = "connection lost") -> None:
        """A transport is gone."""

    @abstractmethod
    def set_congested(self, connection: Connection, congested: bool) -> None:
        """A transport has too much unsent, or no longer."""

    @abstractmethod
    def kick(self, key: str, end_session: bool) -> None:
        """Ends the connection of a session, which is named by its key, or the session too."""

    @abstractmethod
    def disconnect(self, connection: Connection, reason: ReasonCode) -> None:
        """Ends a connection."""

    @abstractmethod
    def publish_system_topics(self, version: str) -> None:
        """Publishes what the broker says of itself."""

    @abstractmethod
    def stop(self) -> None:
        """Says goodbye to all clients; their transports close when all is sent."""

    @abstractmethod
    def _end_turn(self) -> None:
        """Does what a turn of the loop ends with."""

    @abstractmethod
    def _checked(self, connection: Connection, user: str | None) -> None:
        """The credentials of a connection prove who the user is, or nothing."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop it runs on."""
        assert self._loop is not None, "start it first"
        return self._loop

    @property
    def stopped(self) -> bool:
        """Whether it has begun to say goodbye."""
        return self._stopped

    @property
    def transports(self) -> int:
        """Connections that are not closed yet."""
        return len(self._channels)

    def turn(self) -> None:
        """Makes sure that this turn of the loop ends with sending what it made."""
        if not self._turn_planned:
            self._turn_planned = True
            self.loop.call_soon(self._end_turn)

    async def drain(self, timeout_s: float) -> int:
        """Waits until all transports are closed; returns how many had to be cut off after the time."""
        ends = self.loop.time() + timeout_s
        while self._channels and self.loop.time() < ends:
            await asyncio.sleep(min(0.02, timeout_s))
        late = list(self._channels.values())
        for channel in late:
            channel.abort()
        while self._channels and self.loop.time() < ends + 1.0:
            await asyncio.sleep(0)
        return len(late)

    def _send(self, dirty: set[Connection]) -> None:
        """Sends what is to be sent; what belongs to no channel here is forgotten."""
        channels = self._channels
        sent = 0
        for connection in dirty:
            out = connection.out
            channel = channels.get(connection)
            if channel is None:
                out.clear()
                continue
            if out:
                data = out[0] if len(out) == 1 else b"".join(out)
                out.clear()
                sent += len(data)
                channel.send(data)
            if connection.is_closed():
                channel.close()
        dirty.clear()
        self.bytes_sent += sent

    def _hold(self, connection: Connection, wait_s: float) -> None:
        """Reads nothing of a client that is too fast for a while: its own sending blocks when the network is full."""
        channel = self._channels.get(connection)
        if channel is None or connection.is_closed():
            return
        held = self._held.get(connection)
        if held is not None:
            held.cancel()
        channel.pause_reading()
        self._held[connection] = self.loop.call_later(wait_s, self._go_on, connection)

    def _go_on(self, connection: Connection) -> None:
        self._held.pop(connection, None)
        channel = self._channels.get(connection)
        if channel is not None:
            channel.resume_reading()

    def _fail(self, error: Exception) -> None:
        """What cannot be made durable must not be acknowledged: nothing is sent any more, and the broker ends."""
        self._failed = True
        for channel in list(self._channels.values()):
            channel.connection.out.clear()
            channel.close()
        self._hooks.failed(error)

    def _check_credentials(self, waiting: list[Connection]) -> None:
        for connection in waiting:
            assert connection.connect is not None
            client = connection.connect.client_id
            before = self._last_checks.get(client) if client else None
            task = self.loop.create_task(self._check(connection, connection.connect, before))
            self._checks.add(task)
            task.add_done_callback(self._checks.discard)
            if client:
                self._last_checks[client] = task
                task.add_done_callback(partial(self._end_checks, client))

    def _end_checks(self, client: str, task: asyncio.Task[None]) -> None:
        if self._last_checks.get(client) is task:
            del self._last_checks[client]

    async def _check(self, connection: Connection, connect: Connect, before: asyncio.Task[None] | None) -> None:
        """Checks credentials in a thread; connections of one client identifier are let in in the order they came."""
        assert self._authenticate is not None
        user = await self.loop.run_in_executor(self._executor, self._authenticate, connect, connection.origin)
        if before is not None:
            await asyncio.wait({before})
        self._checked(connection, user)
        self.turn()
