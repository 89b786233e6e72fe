"""The broker on real sockets: one event loop, one core, one commit and one write per connection and turn.

A turn of the loop: whatever has arrived goes into the core, which collects what is to be sent. At the end of the turn
the journal is committed, and only then is everything sent. So no acknowledgement leaves before what it promises is
durable, and a thousand messages that arrive together cost one commit.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Protocol, cast

from surecast.broker.store import MemoryStore, Store
from surecast.errors import SurecastError
from surecast.protocol.broker import (
    Authorise,
    Broker,
    BrokerSettings,
    Connection,
    ConnectionHooks,
    LimitTable,
    Observer,
    Origin,
    everyone,
    publish_system_topics,
)
from surecast.protocol.mqtt import Connect, ReasonCode

__all__ = ["Authenticate", "Channel", "Hooks", "Server", "Shell", "TcpChannel", "peer_name"]

Authenticate = Callable[[Connect, Origin], str | None]
"""The user that a CONNECT proves to be, None if it proves nothing. It may take its time: it runs in a thread."""

_SWEEP_S = 5.0
_LINGER_S = 5.0


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
    def kick(self, client: str, end_session: bool) -> None:
        """Ends the connection of a client, or its session too."""

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
            task = self.loop.create_task(self._check(connection))
            self._checks.add(task)
            task.add_done_callback(self._checks.discard)

    async def _check(self, connection: Connection) -> None:
        assert self._authenticate is not None
        assert connection.connect is not None
        user = await self.loop.run_in_executor(
            self._executor, self._authenticate, connection.connect, connection.origin
        )
        self._checked(connection, user)
        self.turn()


class Server(Shell):
    """Runs a core: gives it bytes and time, commits its journal and sends its answers."""

    def __init__(
        self,
        settings: BrokerSettings | None = None,
        store: Store | None = None,
        *,
        authorise: Authorise = everyone,
        authenticate: Authenticate | None = None,
        observer: Observer | None = None,
        hooks: Hooks | None = None,
        executor: Executor | None = None,
        limits: LimitTable | None = None,
    ):
        super().__init__(authenticate, hooks, executor)
        self.store = store or MemoryStore()
        self.broker = Broker(
            settings,
            authorise=authorise,
            authenticates=authenticate is not None,
            observer=observer,
            hooks=self._hooks.connections,
            new_identifier=lambda: f"auto-{secrets.token_hex(10)}",
            limits=limits,
        )
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._timers_seen = 0
        self._next_sweep = 0.0

    def start(self) -> None:
        """Takes the durable state back; call it on the running loop, before any listener."""
        self._loop = asyncio.get_running_loop()
        now = time.time()
        self.broker.started_at = now
        self.broker.restore(self.store.items(), now)
        self.turn()

    def stop(self) -> None:
        """Says goodbye to all clients and commits what is left; their transports close when all is sent."""
        self._stopped = True
        now = time.time()
        for connection, channel in list(self._channels.items()):
            if connection.is_closed():
                channel.close()  # one that waited for its client to close
            self.broker.disconnect(connection, ReasonCode.SERVER_SHUTTING_DOWN, now)
        self._end_turn()
        if self._timer is not None:
            self._timer.cancel()

    def revoke(self, authorise: Authorise) -> int:
        """Forgets what clients were allowed, and ends subscriptions that they may not have any more."""
        now = time.time()
        ended = 0
        self.broker.permissions_changed()
        for session in self.broker.sessions.by_client.values():
            for key, subscription in list(session.subscriptions.items()):
                if not authorise(session.user, session.client, "subscribe", subscription.filter):
                    ended += self.broker.remove_subscription(session, key, now)
        self.turn()
        return ended

    # What channels call.

    def connected(self, channel: Channel, origin: Origin) -> None:
        """A transport is up."""
        channel.connection = self.broker.open(origin, time.time())
        self._channels[channel.connection] = channel
        self.turn()

    def received(self, connection: Connection, data: bytes) -> None:
        """Bytes have arrived."""
        now = time.time()
        self.broker.receive(connection, data, now)
        if connection.pace is not None and connection.pace.hold_until > now:
            self._hold(connection, connection.pace.hold_until - now)
        if not self._turn_planned:
            self.turn()

    def lost(self, connection: Connection, reason: str = "connection lost") -> None:
        """A transport is gone."""
        held = self._held.pop(connection, None)
        if held is not None:
            held.cancel()
        if self._channels.pop(connection, None) is not None:
            self.broker.lost(connection, time.time(), reason)
            self.turn()

    def set_congested(self, connection: Connection, congested: bool) -> None:
        """A transport has too much unsent, or no longer."""
        self.broker.set_congested(connection, congested)

    # What the service calls.

    def kick(self, client: str, end_session: bool) -> None:
        """Ends the connection of a client, or its session too."""
        now = time.time()
        session = self.broker.sessions.by_client.get(client)
        if end_session:
            self.broker.end_session(client, now)
        elif session is not None and session.connection is not None:
            self.broker.disconnect(session.connection, ReasonCode.ADMINISTRATIVE_ACTION, now)
        self.turn()

    def disconnect(self, connection: Connection, reason: ReasonCode) -> None:
        """Ends a connection."""
        self.broker.disconnect(connection, reason, time.time())
        self.turn()

    def configure(self, settings: BrokerSettings, limits: LimitTable) -> None:
        """Takes other limits."""
        self.broker.configure(settings, limits, time.time())

    @property
    def authenticates(self) -> bool:
        """Whether the credentials of clients are checked."""
        return self.broker.authenticates

    @authenticates.setter
    def authenticates(self, checks: bool) -> None:
        self.broker.authenticates = checks

    def publish_system_topics(self, version: str) -> None:
        """Publishes what the broker says of itself."""
        publish_system_topics(self.broker, version, time.time())
        self.turn()

    # The turn.

    def _end_turn(self) -> None:
        self._turn_planned = False
        if self._failed:
            return
        broker = self.broker
        if broker.journal.records:
            try:
                self.store.commit(broker.take_journal())
            except SurecastError as error:
                self._fail(error)
                return
        if broker.dirty:
            self._send(broker.dirty)
            broker.tally.bytes_out = self.bytes_sent
        if broker.checking:
            waiting, broker.checking = broker.checking, []
            self._check_credentials(waiting)
        self._hooks.turn()
        if (self._timer is None or broker.timers.count != self._timers_seen) and not self._stopped:
            self._plan_timer()

    def _checked(self, connection: Connection, user: str | None) -> None:
        if user is None:
            self.broker.refuse(connection, time.time())
        else:
            self.broker.admit(connection, user, time.time())

    def _plan_timer(self) -> None:
        """Sets the clock for what is due first; only a new appointment can come before it."""
        self._timers_seen = self.broker.timers.count
        at = min(self.broker.next_timer(), self._next_sweep)
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = self.loop.call_later(max(0.0, at - time.time()), self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = time.time()
        self.broker.tick(now)
        if now >= self._next_sweep:
            self._next_sweep = now + _SWEEP_S
            self.broker.sweep(now)
        self.turn()


class TcpChannel(asyncio.Protocol):
    """MQTT straight on a TCP or TLS connection."""

    connection: Connection

    def __init__(
        self,
        server: Shell,
        listener: str,
        identify: Callable[[asyncio.BaseTransport], str] | None = None,
        on_lost: Callable[[], None] = _nothing,
    ):
        self._server = server
        self._listener = listener
        self._identify = identify
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._linger: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is up."""
        # uvloop has transports of its own kind, so this is not checked.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._server.broker.settings.unsent_bytes_max)
        identity = self._identify(transport) if self._identify is not None else ""
        self._server.connected(self, Origin(self._listener, peer_name(transport.get_extra_info("peername")), identity))
        self._receive = self._server.received

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived."""
        self._receive(self.connection, data)

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is over."""
        if self._linger is not None:
            self._linger.cancel()
        self._on_lost()
        self._server.lost(self.connection, str(error) if error is not None else "connection lost")

    def pause_writing(self) -> None:
        """The client is too slow."""
        self._server.set_congested(self.connection, True)

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._server.set_congested(self.connection, False)

    def send(self, data: bytes) -> None:
        """Hands bytes to the transport."""
        if self._transport is not None and self._linger is None:
            self._transport.write(data)

    def close(self) -> None:
        """Closes after what was handed over is sent.

        What the client still sends is read and forgotten until it closes too, or has had time for it: a connection that
        is closed with unread bytes is reset, and the client would never see why (RFC 1122, section 4.2.2.13).
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self.resume_reading()  # one that was held back must be heard to its end
        if self._server.stopped or not transport.can_write_eof():
            transport.close()
        elif self._linger is None:
            transport.write_eof()
            self._linger = self._server.loop.call_later(_LINGER_S, transport.abort)

    def abort(self) -> None:
        """Closes at once."""
        if self._transport is not None:
            self._transport.abort()

    def pause_reading(self) -> None:
        """Leaves what the client sends in the network for a while."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Reads again."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()


def peer_name(address: Any) -> str:
    """An address and a port as people write them."""
    if isinstance(address, tuple) and len(address) >= 2:
        host = f"[{address[0]}]" if ":" in str(address[0]) else address[0]
        return f"{host}:{address[1]}"
    return str(address or "")
