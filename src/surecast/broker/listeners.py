"""Take new connections of clients. Every limit is checked before anything is made for a new connection, TLS included;
the rate of new connections of each address is one of them."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from surecast.broker.config_models import ListenerSpec
from surecast.broker.shell import Shell
from surecast.broker.tcp import TcpChannel, peer_name
from surecast.broker.tls import tls_context
from surecast.errors import ConfigurationError
from surecast.protocol.broker.quotas import network_of

if TYPE_CHECKING:
    from surecast.broker.websocket import WebSocketChannel

__all__ = ["AddressRates", "ConnectionLimit", "Listener", "bind", "certificate_name"]

_BURST_S: Final = 60.0
_ADDRESSES_MAX: Final = 10_000


_BACKLOG = 1_024
_ACCEPT_MAX = 64  # in one turn, so that a flood of connections does not keep the others waiting
_PAUSE_S = 0.5
_NO_ROOM = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


@dataclass(slots=True)
class ConnectionLimit:
    """Counts connections against a limit, and those that were turned away by reason.

    >>> connection_limit = ConnectionLimit(connections_max=1)
    >>> connection_limit.connections += 1
    >>> connection_limit.is_full()
    True
    """

    connections_max: int
    connections: int = 0
    turned_away: Counter[str] = field(default_factory=Counter)

    def is_full(self) -> bool:
        """Returns whether the limit is reached."""
        return self.connections >= self.connections_max


class Listener:
    """One way in: its sockets, its limits and its TLS settings."""

    def __init__(
        self, spec: ListenerSpec, server: Shell, connection_limit: ConnectionLimit, warn: Callable[[str], None]
    ):
        self.spec = spec
        self.connection_limit = ConnectionLimit(spec.connections_max)
        self.addresses: list[str] = []
        self._server = server
        self._all = connection_limit
        self._warn = warn
        self._sockets: list[socket.socket] = []
        self._by_address: Counter[str] = Counter()
        self._context: ssl.SSLContext | None = tls_context(spec) if spec.secure else None
        self._websocket: type[WebSocketChannel] | None = None
        if spec.websocket:
            from surecast.broker.websocket import WebSocketChannel  # a listener for TCP starts without it

            self._websocket = WebSocketChannel
        self._tasks: set[asyncio.Task[None]] = set()
        self._started = False
        self._tokens = self._burst = max(1.0, spec.connection_rate_max or 0.0)
        self._tokens_at = time.monotonic()
        self._rates = AddressRates(spec.address_connection_rate_max or 0.0)

    @property
    def port(self) -> int:
        """The port it has got."""
        return int(self._sockets[0].getsockname()[1]) if self._sockets else self.spec.wanted_port

    @property
    def name(self) -> str:
        """Its name, with the port it has got."""
        return self.spec.name or f"{self.spec.kind}-{self.port}"

    def open(self) -> None:
        """Takes its addresses; ConfigurationError says what is in the way."""
        self._sockets = bind(self.spec.host, self.spec.wanted_port)
        self.addresses = [peer_name(sock.getsockname()) for sock in self._sockets]

    def start(self) -> None:
        """Begins to accept."""
        self._started = True
        for sock in self._sockets:
            self._server.loop.add_reader(sock, self._accept, sock)

    def stop(self) -> None:
        """Takes no more connections; those that are there stay."""
        for sock in self._sockets:
            if self._started:
                self._server.loop.remove_reader(sock)
            sock.close()
        self._sockets = []
        for task in self._tasks:
            task.cancel()

    def configure(self, spec: ListenerSpec, context: ssl.SSLContext | None) -> None:
        """Takes other limits and certificates, for connections from now on."""
        self.spec = spec
        self.connection_limit.connections_max = spec.connections_max
        self._context = context
        self._burst = max(1.0, spec.connection_rate_max or 0.0)
        self._rates.rate_per_s = spec.address_connection_rate_max or 0.0

    def _accept(self, sock: socket.socket) -> None:
        for _ in range(_ACCEPT_MAX):
            try:
                accepted, address = sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    raise
                # The connection stays in the queue of the system, which would call again at once.
                self._warn(f"listener {self.name}: no connection can be accepted: {error.strerror}")
                self._server.loop.remove_reader(sock)
                self._server.loop.call_later(_PAUSE_S, self._resume, sock)
                return
            network = network_of(peer_name(address))
            reason = self._refusal(network)
            if reason:
                self._turn_away(reason, network)
                accepted.close()
                continue
            self._admit(accepted, network)

    def _resume(self, sock: socket.socket) -> None:
        if sock in self._sockets:
            self._server.loop.add_reader(sock, self._accept, sock)

    def _turn_away(self, reason: str, network: str) -> None:
        """Counts a connection that is not taken. The log is told of the first, the tenth, the hundredth."""
        count = self.connection_limit.turned_away[reason] = self.connection_limit.turned_away[reason] + 1
        if str(count).strip("0") == "1":
            self._warn(f"listener {self.name}: {count} turned away, {reason}; the last one from {network}")

    def _refusal(self, network: str) -> str:
        """Why a connection from an address cannot be taken; empty if it can."""
        spec = self.spec
        if self._all.is_full() or self.connection_limit.is_full():
            return "too-many"
        if spec.address_connections_max is not None and self._by_address[network] >= spec.address_connections_max:
            return "too-many-from-address"
        if spec.address_connection_rate_max is not None and not self._rates.takes(network, time.monotonic()):
            return "address-too-fast"
        if spec.connection_rate_max is not None:
            now = time.monotonic()
            self._tokens = min(self._burst, self._tokens + (now - self._tokens_at) * spec.connection_rate_max)
            self._tokens_at = now
            if self._tokens < 1.0:
                return "too-fast"
            self._tokens -= 1.0
        return ""

    def _admit(self, accepted: socket.socket, network: str) -> None:
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._all.connections += 1
        self.connection_limit.connections += 1
        self._by_address[network] += 1
        is_over = False

        def over() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                self._all.connections -= 1
                self.connection_limit.connections -= 1
                self._by_address[network] -= 1
                if not self._by_address[network]:
                    del self._by_address[network]

        task = self._server.loop.create_task(self._connect(accepted, over))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, accepted: socket.socket, over: Callable[[], None]) -> None:
        channel = self._channel(over)
        try:
            if self._context is None:
                await self._server.loop.connect_accepted_socket(lambda: channel, accepted)
            else:
                timeout_s = self._server.broker.settings.connect_timeout_s
                await self._server.loop.connect_accepted_socket(
                    lambda: channel, accepted, ssl=self._context, ssl_handshake_timeout=timeout_s
                )
        except (OSError, asyncio.CancelledError) as error:  # SSLError is an OSError
            # asyncio reports no end of a connection whose start was cancelled, even where it has reported the start.
            channel.connection_lost(None)
            accepted.close()
            if isinstance(error, asyncio.CancelledError):
                raise
            self.connection_limit.turned_away["handshake"] += 1

    def _channel(self, over: Callable[[], None]) -> TcpChannel | WebSocketChannel:
        spec = self.spec
        identify = certificate_name if spec.use_certificate_name else None
        if self._websocket is not None:
            return self._websocket(self._server, self.name, spec.path, spec.origins, identify, over)
        return TcpChannel(self._server, self.name, identify, over)


def bind(host: str, port: int) -> list[socket.socket]:
    """Listening sockets at every address of a host, all with the same port.

    >>> sockets = bind("127.0.0.1", 0)
    >>> [sock.getsockname()[0] for sock in sockets]
    ['127.0.0.1']
    >>> for sock in sockets:
    ...     sock.close()
    """
    try:
        found = socket.getaddrinfo(
            None if host == "*" else host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise ConfigurationError(f"{host} is no address to listen at: {error.strerror or error}") from None
    sockets: list[socket.socket] = []
    for family, kind, protocol, _, address in dict.fromkeys(found):
        sock = None
        try:
            sock = socket.socket(family, kind, protocol)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            if not port and sockets:
                address = (address[0], sockets[0].getsockname()[1], *address[2:])
            sock.bind(address)
            sock.listen(_BACKLOG)
            sock.setblocking(False)
            sockets.append(sock)
        except OSError as error:
            if sock is not None:
                sock.close()
            # A machine without IPv6 still resolves names to it.
            if error.errno in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL) and len(found) > 1:
                continue
            for other in sockets:
                other.close()
            raise ConfigurationError(
                f"cannot listen at {host}, port {port}: {error.strerror or error}; choose another port or host"
            ) from None
    if not sockets:
        raise ConfigurationError(f"cannot listen at {host}, port {port}: this machine has no such address")
    return sockets


def certificate_name(transport: asyncio.BaseTransport) -> str:
    """The common name in the client's certificate; empty if it showed none, or none that a user can have."""
    certificate = transport.get_extra_info("peercert") or {}
    for part in certificate.get("subject", ()):
        for name, value in part:
            if name == "commonName":
                return "" if "\0" in value else str(value)
    return ""


class AddressRates:
    """Keeps new connections of each address to a rate on average, with bursts of up to a minute's worth.

    Of the addresses it knows, the one that connected longest ago is forgotten when there are too many.

    >>> rates = AddressRates(rate_per_s=0.05)
    >>> [rates.takes("10.0.0.7", now) for now in (0.0, 0.0, 0.0, 0.0, 20.0)], rates.takes("10.0.0.8", 0.0)
    ([True, True, True, False, True], True)
    """

    def __init__(self, rate_per_s: float):
        self.rate_per_s = rate_per_s
        self._buckets: dict[str, tuple[float, float]] = {}  # tokens and when; in the order of their last connections

    def takes(self, address: str, now: float) -> bool:
        """Returns whether an address may connect now, and counts the connection if it may."""
        burst = max(1.0, self.rate_per_s * _BURST_S)
        tokens, at = self._buckets.pop(address, (burst, now))
        tokens = min(burst, tokens + (now - at) * self.rate_per_s)
        is_taken = tokens >= 1.0
        self._buckets[address] = (tokens - is_taken, now)
        if len(self._buckets) > _ADDRESSES_MAX:
            del self._buckets[next(iter(self._buckets))]
        return is_taken
