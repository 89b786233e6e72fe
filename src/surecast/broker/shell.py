"""The parts that put a broker on a network, whatever stands behind it: channels, turns, hooks."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from surecast.broker.authenticator import IsWanted, Verdict
from surecast.broker.store import Store
from surecast.protocol.broker import BrokerCore, BrokerSettings, Connection, ConnectionHooks, Origin, Phase
from surecast.protocol.mqtt import Connect, PacketDecoder, ReasonCode
from surecast.protocol.mqtt.unfinished import COUNTED_BYTES_MIN, PartialPacketHolder, Unfinished

__all__ = ["PIECE_BYTES", "Authenticate", "Channel", "Hooks", "Shell"]

PIECE_BYTES: Final = 4 << 10
"""The bytes of a new connection that one turn handles, until it is known what its packets cost."""

_PIECE_BYTES_MIN: Final = 512
_PIECE_BYTES_MAX: Final = 1 << 20
_PIECE_S: Final = 0.01
_SMALL_BYTES: Final = 4 << 10

Authenticate = Callable[[Connect, Origin, IsWanted], Awaitable[Verdict]]
"""Finds out which user a CONNECT proves to be, or why its client must not stay. It may take its time."""

_CLOSED: Final = Phase.CLOSED  # local alias: avoids an attribute lookup for each connection

_Claim = tuple[str, str | None, bytes | None, str]


def _nothing(*arguments: object) -> None:
    """Does nothing: the default of a callback."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """Callbacks of the shell, for what an observer of the core does not see. None may raise."""

    connections: ConnectionHooks | None = None
    """Callbacks of the core about connections."""
    failed: Callable[[Exception], None] = _nothing
    """The store failed; nothing is sent any more."""
    turn: Callable[[], None] = _nothing
    """A turn is over: everything was committed and handed to the transports."""


@dataclass(eq=False, slots=True)
class _Rest:
    """Bytes that were read from a client and wait for a later turn."""

    data: bytearray

    def drop_held(self) -> None:
        """Forgets the bytes."""
        self.data.clear()


class Channel(Protocol):
    """A connection's way to its client: TCP, TLS or WebSocket.

    `piece_bytes` is how much of what its client sent is handled in one turn.
    """

    connection: Connection
    piece_bytes: int

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
    """The network side of a broker: channels, turns, authentication, back-pressure.

    `broker` is the core, for reading only: it is changed by the methods of this class.
    """

    broker: BrokerCore
    store: Store
    authenticates: bool

    def __init__(self, authenticate: Authenticate | None, hooks: Hooks | None):
        self._hooks = hooks or Hooks()
        self._authenticate = authenticate
        self._channels: dict[Connection, Channel] = {}
        self._held: dict[Connection, asyncio.TimerHandle] = {}
        self._rest: dict[Channel, _Rest] = {}
        self._leaving: dict[Channel, str] = {}
        self._stalled: set[Channel] = set()
        self._began_s = time.monotonic()
        self._small_bytes = _SMALL_BYTES
        self._piece_s = _PIECE_S
        self.alarms: dict[str, str] = {}
        """The alarms that are on, with their texts: publishers are not read meanwhile."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turn_planned = False
        self._failed = False
        self._stopped = False
        self.bytes_sent = 0
        self.limited: Counter[str] = Counter()
        """Counts of how often a limit of the shell itself was reached, by its name in the configuration."""
        self.unfinished: Unfinished[PartialPacketHolder] = Unfinished(
            BrokerSettings().unfinished_bytes_max, self._give_up
        )
        self._checks: set[asyncio.Task[None]] = set()
        self._last_checks: dict[_Claim, asyncio.Task[None]] = {}

    def gauges(self) -> Iterable[tuple[str, str, float]]:
        """Further figures for metrics: name, meaning, value."""
        return ()

    @property
    def uptime_s(self) -> float:
        """The time since this process began to serve."""
        return time.monotonic() - self._began_s

    def time_s(self) -> float:
        """The time that the core goes by, seconds since 1970."""
        return time.time()

    @abstractmethod
    def connected(self, channel: Channel, origin: Origin) -> None:
        """A transport is up."""

    def received(self, connection: Connection, data: bytes) -> None:
        """Bytes have arrived. Few are handled at once, many in pieces: others have their turn in between."""
        if len(data) > self._small_bytes or self._rest:
            self._spread(connection, data)
        else:
            self._receive(connection, data)

    @abstractmethod
    def _receive(self, connection: Connection, data: bytes) -> None:
        """Handles bytes in this turn."""

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
    def end_turn(self) -> None:
        """Does what a turn of the loop ends with."""

    @abstractmethod
    def _checked(self, connection: Connection, verdict: Verdict) -> None:
        """The credentials of a connection prove who the user is, or nothing."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop it runs on."""
        assert self._loop is not None, "start it first"
        return self._loop

    @property
    def stopped(self) -> bool:
        """True once the shutdown has begun."""
        return self._stopped

    @property
    def transports(self) -> int:
        """Connections that are not closed yet."""
        return len(self._channels)

    def turn(self) -> None:
        """Makes sure that this turn of the loop ends with sending what it made."""
        if not self._turn_planned:
            assert self._loop is not None, "start it first"
            self._turn_planned = True
            self._loop.call_soon(self.end_turn)

    async def drain(self, timeout_s: float) -> int:
        """Waits until all transports are closed; returns how many had to be cut off after the time."""
        ends = self.loop.time() + timeout_s
        while self._channels and self.loop.time() < ends:
            await asyncio.sleep(min(0.02, timeout_s))
        late = list(self._channels.values())
        for channel in late:
            channel.abort()
        while self._channels and self.loop.time() < ends + 1.0:
            await asyncio.sleep(0.001)
        return len(late)

    def _send(self, dirty: set[Connection]) -> None:
        """Sends the output of connections. That of connections without a channel is dropped."""
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
            if connection.phase is _CLOSED:
                channel.close()
        dirty.clear()
        self.bytes_sent += sent

    def limit(self, settings: BrokerSettings) -> None:
        """Takes the limits that hold for all connections together."""
        self.unfinished.bytes_max = max(settings.unfinished_bytes_max, 2 * settings.packet_bytes_max)

    def _decoder_of(self, connection: Connection) -> PacketDecoder:
        """Returns what reads the bytes of a connection."""
        return connection.decoder

    @abstractmethod
    def _forget_unread(self, connection: Connection) -> None:
        """Forgets what is held of an unfinished packet beside its decoder."""

    def _give_up(self, owner: PartialPacketHolder) -> None:
        """Drops an unfinished packet. Its connection is ended later in the loop, as a channel may be reading now."""
        self.limited["unfinished_size"] += 1
        owner.drop_held()
        self.loop.call_soon(self._end_unfinished, owner)

    def _end_unfinished(self, owner: object) -> None:
        """Ends the connection whose unfinished packet, or WebSocket frame, takes too much memory."""
        for connection, channel in list(self._channels.items()):
            if self._decoder_of(connection) is owner:
                self._forget_unread(connection)
                self.disconnect(connection, ReasonCode.QUOTA_EXCEEDED)
            elif channel is owner or self._rest.get(channel) is owner:
                self.disconnect(connection, ReasonCode.QUOTA_EXCEEDED)
                channel.abort()

    def _spread(self, connection: Connection, data: bytes) -> None:
        """Handles bytes in as many turns as they need. Nothing more is read of the client meanwhile."""
        channel = self._channels.get(connection)
        if channel is None:
            self._receive(connection, data)
        elif (rest := self._rest.get(channel)) is not None:
            rest.data += data  # a transport may have read more before it was paused
            self._count(rest)
        elif len(data) <= channel.piece_bytes:
            self._receive_timed(channel, data)
        else:
            rest = self._rest[channel] = _Rest(bytearray(data))
            self._count(rest)
            channel.pause_reading()
            self._next_piece(channel)

    def _count(self, rest: _Rest) -> None:
        """Counts what was read and is not handled yet: a WebSocket frame may be as large as a packet."""
        if len(rest.data) >= COUNTED_BYTES_MIN:
            self.unfinished.hold(rest, len(rest.data))
        else:
            self.unfinished.release(rest)

    def _next_piece(self, channel: Channel) -> None:
        rest = self._rest.get(channel)
        if rest is None or self._waits(channel):
            return
        piece = bytes(rest.data[: channel.piece_bytes])
        del rest.data[: channel.piece_bytes]
        self._count(rest)
        if rest.data and not channel.connection.is_closed() and not self._stopped:
            self.loop.call_soon(self._next_piece, channel)
            self._receive_timed(channel, piece)
            return
        del self._rest[channel]
        self.unfinished.release(rest)
        self._read_on(channel)
        self._receive_timed(channel, piece)
        if channel in self._leaving:
            self._channels[channel.connection] = channel
            self.lost(channel.connection, self._leaving.pop(channel))

    def _waits(self, channel: Channel) -> bool:
        """Returns whether nothing more of a client is to be handled for now, even if it was read."""
        return False

    def _receive_timed(self, channel: Channel, piece: bytes) -> None:
        """Handles a piece, and makes the next one as long as fits into a turn."""
        begun_s = time.perf_counter()
        if self.alarms:
            self._receive_in_alarm(channel, piece)
        else:
            self._receive(channel.connection, piece)
        took_s = time.perf_counter() - begun_s
        if took_s > self._piece_s:
            channel.piece_bytes = max(_PIECE_BYTES_MIN, int(len(piece) * self._piece_s / took_s))
        elif channel.piece_bytes < _PIECE_BYTES_MAX:
            channel.piece_bytes *= 2

    @property
    def publishers_waiting(self) -> int:
        """Connections that are not read because of an alarm."""
        return len(self._stalled)

    def set_alarms(self, alarms: dict[str, str]) -> None:
        """Says what runs short. A client that publishes then is not read until all is well again."""
        self.alarms = dict(alarms)
        self._small_bytes = -1 if alarms else _SMALL_BYTES  # so that every read is looked at
        for channel in self._stalled:
            self._excuse(channel.connection)
        if not alarms:
            stalled, self._stalled = self._stalled, set()
            for channel in stalled:
                self._read_on(channel)

    def _receive_in_alarm(self, channel: Channel, piece: bytes) -> None:
        """Handles a piece; if the client published, it is the last one for a while."""
        before = self._published()
        self._receive(channel.connection, piece)
        if self._published() != before and not channel.connection.is_closed():
            self._stalled.add(channel)
            channel.pause_reading()

    @abstractmethod
    def _published(self) -> int:
        """Returns how many messages, or pieces with messages, clients have sent."""

    @abstractmethod
    def _excuse(self, connection: Connection) -> None:
        """Nothing can be heard of a client that is not read."""

    def _is_leaving(self, connection: Connection, reason: str) -> bool:
        """Returns whether a client that is gone has left something to handle: it is lost when that is done."""
        channel = self._channels.get(connection) if self._rest else None
        if channel is None or channel not in self._rest:
            return False
        self._leaving[channel] = reason
        del self._channels[connection]  # nothing can be sent to it
        return True

    def _read_on(self, channel: Channel) -> None:
        """Reads a client again, unless there is another reason not to."""
        if channel not in self._rest and channel not in self._stalled and channel.connection not in self._held:
            channel.resume_reading()

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
            self._read_on(channel)

    def give_up(self, error: Exception) -> None:
        """Closes all connections and reports that the store failed.

        Nothing is sent any more: what is not durable must not be acknowledged.
        """
        self._failed = True
        for channel in list(self._channels.values()):
            channel.connection.out.clear()
            channel.close()
        self._hooks.failed(error)

    def _check_credentials(self, waiting: list[Connection]) -> None:
        for connection in waiting:
            connect = connection.connect
            assert connect is not None
            # A CONNECT with another password is not from the same client: its check does not wait for the earlier one.
            claim = (connection.origin.identity, connect.username, connect.password, connect.client_id)
            before = self._last_checks.get(claim) if connect.client_id else None
            task = self.loop.create_task(self._check(connection, connect, before))
            self._checks.add(task)
            task.add_done_callback(self._checks.discard)
            if connect.client_id:
                self._last_checks[claim] = task
                task.add_done_callback(partial(self._end_checks, claim))

    def _end_checks(self, claim: _Claim, task: asyncio.Task[None]) -> None:
        if self._last_checks.get(claim) is task:
            del self._last_checks[claim]

    async def _check(self, connection: Connection, connect: Connect, before: asyncio.Task[None] | None) -> None:
        """Checks credentials; connections of one client are let in in the order they came."""
        assert self._authenticate is not None

        def is_wanted(strictly: bool) -> bool:
            # One that has left may have sent messages before.
            return not connection.is_closed() and not (strictly and connection.left)

        verdict = await self._authenticate(connect, connection.origin, is_wanted)
        if before is not None:
            await asyncio.wait({before})
        self._checked(connection, verdict)
        self.turn()
