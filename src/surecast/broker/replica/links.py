"""The links to other replicas: each replica dials every other, and says what it has to send on its own connection.

The socket is written to directly, not through a transport: what may go before a commit is then with the kernel before
the commit begins, and there is one bounded queue instead of two. A link that is full drops messages, since Paxos says
again what matters. A link that came up again starts empty.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections import deque
from contextlib import ExitStack, suppress
from itertools import islice
from typing import Final, Protocol

from surecast.broker.replica.accepted_connection import HANDSHAKE_S
from surecast.broker.replica.addresses import Address
from surecast.broker.replica.frames import FrameReader, frame
from surecast.broker.replica.handshake import HELLO_BYTES_MAX, Hello, Welcome, shake_hands
from surecast.broker.replica.unix_socket import dial_unix
from surecast.errors import PeerError

__all__ = ["Dialler", "PeerLink"]

BACKOFF_MIN_S: Final = 0.02
BACKOFF_MAX_S: Final = 1.0
STALL_S: Final = 3.0
_PARTS_MAX: Final = 512  # pieces in one write; systems allow 1024


class Dialler(Protocol):
    """The part of a replica that a link asks for things."""

    secret: bytes

    def hello(self) -> Hello:
        """Returns the frame to send first."""

    def address_of(self, peer: int) -> Address | None:
        """Where a replica is, as far as known."""

    def link_up(self, peer: int, welcome: Welcome) -> None:
        """A link is up."""

    def link_down(self, peer: int, reason: str) -> None:
        """A link is down, or could not be made."""


class PeerLink:
    """One link, which dials again whenever it is down."""

    def __init__(self, peer: int, dialler: Dialler, queue_bytes_max: int, delay_s: float = 0.0):
        self.peer = peer
        self.is_up = False
        self.dropped = 0
        self.delay_s = delay_s
        self._dialler = dialler
        self._queue_bytes_max = queue_bytes_max
        self._loop = asyncio.get_running_loop()
        self._sock: socket.socket | None = None
        self._address: Address | None = None
        self.posted: list[bytes] = []
        self._parts: deque[bytes | memoryview] = deque()
        self._late: deque[tuple[float, list[bytes]]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._bytes = 0
        self._blocked = False
        self._progress_s = 0.0
        self._down = asyncio.Event()
        self._poked = asyncio.Event()
        self._task = self._loop.create_task(self._run())

    @property
    def queued_bytes(self) -> int:
        """Returns how many bytes were not handed to the kernel yet."""
        return self._bytes

    def post(self, data: bytes, rest: bytes = b"") -> None:
        """Takes a frame, in one or two parts, for the next write; it is dropped where the link is down or full."""
        size = len(data) + len(rest)
        if not self.is_up or (self._bytes and self._bytes + size > self._queue_bytes_max):
            self.dropped += 1
            return
        self._bytes += size
        self.posted.append(data)
        if rest:
            self.posted.append(rest)

    def flush(self) -> None:
        """Writes what was posted since the last time, in one go, as far as the kernel takes it."""
        if not self.posted:
            return
        turn, self.posted = self.posted, []
        if self.delay_s:
            self._late.append((self._loop.time() + self.delay_s, turn))
            if self._timer is None:
                self._timer = self._loop.call_later(self.delay_s, self._flush_late)
            return
        self._parts += turn
        if not self._blocked:
            self._send()

    def _flush_late(self) -> None:
        self._timer = None
        # Timers are as coarse as a millisecond: what is due within half of one goes too.
        until_s = self._loop.time() + 0.0005
        while self._late and self._late[0][0] <= until_s:
            self._parts += self._late.popleft()[1]
        if self._late:
            self._timer = self._loop.call_later(self._late[0][0] - until_s, self._flush_late)
        if self._parts and not self._blocked:
            self._send()

    def _send(self) -> None:
        sock, parts = self._sock, self._parts
        if sock is None:
            return
        try:
            while parts:
                sent = sock.send(parts[0]) if len(parts) == 1 else sock.sendmsg(islice(parts, _PARTS_MAX))
                self._bytes -= sent
                self._progress_s = self._loop.time()
                while sent:
                    size = len(parts[0])
                    if sent < size:
                        parts[0] = memoryview(parts[0])[sent:]
                        break
                    sent -= size
                    parts.popleft()
        except BlockingIOError:
            if not self._blocked:
                self._blocked = True
                self._loop.add_writer(sock, self._send)
            return
        except OSError as error:
            self._hang_up(_reason(error))
            return
        if self._blocked:
            self._blocked = False
            self._loop.remove_writer(sock)

    def check(self) -> None:
        """Gives up a link on which nothing moved for long: its queue holds only what is out of date."""
        if self._blocked and self._loop.time() - self._progress_s > STALL_S:
            self._hang_up(f"it took nothing for {STALL_S:g} s")

    def poke(self) -> None:
        """Dials at once: the other replica was heard of, or is elsewhere."""
        self._poked.set()

    def redial(self) -> None:
        """Dials anew where the other replica is elsewhere now."""
        if self.is_up and self._dialler.address_of(self.peer) != self._address:
            self._hang_up("its address changed")
        self.poke()

    async def close(self) -> None:
        """Ends the link for good."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        self._hang_up("")

    def _hang_up(self, reason: str) -> None:
        sock, self._sock = self._sock, None
        if sock is None:
            return
        self._loop.remove_reader(sock)
        if self._blocked:
            self._loop.remove_writer(sock)
        sock.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.posted.clear()
        self._parts.clear()
        self._late.clear()
        self._bytes = 0
        self.is_up = self._blocked = False
        self._down.set()
        if reason:
            self._dialler.link_down(self.peer, reason)

    async def _run(self) -> None:
        wait_s = BACKOFF_MIN_S
        while True:
            self._poked.clear()
            try:
                async with asyncio.timeout(HANDSHAKE_S):
                    await self._dial()
                wait_s = BACKOFF_MIN_S
                await self._down.wait()
            except (OSError, PeerError, UnicodeError) as error:  # the last for names that cannot be looked up
                self._dialler.link_down(self.peer, _reason(error))
            # A random part keeps replicas that were cut off together from dialling in step.
            pause_s = wait_s * random.uniform(0.5, 1.0)
            wait_s = min(2 * wait_s, BACKOFF_MAX_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._poked.wait()

    async def _dial(self) -> None:
        address = self._dialler.address_of(self.peer)
        if address is None:
            raise PeerError("its address is not known")
        loop = self._loop
        sock = await dial_unix(address) or await self._dial_tcp(address)
        try:
            reader, heard = FrameReader(HELLO_BYTES_MAX), deque[bytes]()

            async def send(content: bytes) -> None:
                await loop.sock_sendall(sock, frame(content))

            async def receive() -> bytes:
                while not heard:
                    data = await loop.sock_recv(sock, 1 << 14)
                    if not data:
                        raise PeerError("it hung up during the hello")
                    heard.extend(reader.feed(data))
                return heard.popleft()

            welcome = await shake_hands(send, receive, self._dialler.hello(), self._dialler.secret)
            if welcome.replica != self.peer:
                raise PeerError(f"replica {welcome.replica} answers at {address}, not {self.peer}")
        except BaseException:
            sock.close()
            raise
        self._sock, self._address = sock, address
        self._progress_s = loop.time()
        self._down.clear()
        self.is_up = True
        loop.add_reader(sock, self._readable)
        self._dialler.link_up(self.peer, welcome)

    async def _dial_tcp(self, address: Address) -> socket.socket:
        """A TCP connection; a Unix-domain one where the replica has begun to listen meanwhile, there before on TCP."""
        found = await self._loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        family, kind, number, _, target = found[0]
        with ExitStack() as stack:
            sock = stack.enter_context(socket.socket(family, kind, number))
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.sock_connect(sock, target)
            if (by_unix := await dial_unix(address)) is not None:
                return by_unix
            stack.pop_all()
            return sock

    def _readable(self) -> None:
        """Nothing is said on this connection after the welcome; it can only end."""
        if self._sock is None:
            return
        try:
            if self._sock.recv(1 << 12):
                return
            reason = "it hung up"
        except BlockingIOError:
            return
        except OSError as error:
            reason = _reason(error)
        self._hang_up(reason)


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return f"no answer within {HANDSHAKE_S:g} s"
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
