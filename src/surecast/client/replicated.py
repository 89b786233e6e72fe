"""A client of a replicated state machine: each request is applied once, whichever replicas fail meanwhile.

A connection talks to one replica at a time. When that one is lost, or does not answer for a while, all requests that
are in flight go to another under the same numbers; the group knows by them what it has applied already.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType
from typing import Any, Final

from surecast.broker.replica.addresses import Address, parse_address
from surecast.broker.replica.client_link import ReplicaLink
from surecast.broker.replica.client_wire import ANSWERS, OVERLOAD, REQUESTS, read_answers
from surecast.broker.replica.frames import frame
from surecast.broker.replica.handshake import Hello, RefusalError, Role
from surecast.client.client_errors import ClientError
from surecast.client.sync import Background
from surecast.errors import ConfigurationError, PeerError
from surecast.protocol.paxos import pack_requests

__all__ = ["GroupConnection", "RequestTimeoutError", "SyncConnection", "dial", "dial_sync"]

_BATCH_BYTES: Final = 1 << 20
_PAUSE_S: Final = 0.05
_SWEEP_S: Final = 0.05
_PATIENCE_MAX_S: Final = 8.0
_CHECKS: Final = 4  # looks at the clock, in each wait for an answer


class RequestTimeoutError(ClientError):
    """No answer in time. The request may have been applied, or may still be, at most once."""


class _Request:
    """A request until it is answered or its time is over."""

    __slots__ = ("answer", "command", "deadline_s", "sent_s", "timeout_s")

    def __init__(self, command: bytes, answer: asyncio.Future[bytes], timeout_s: float, now: float):
        self.command = command
        self.answer = answer
        self.timeout_s = timeout_s
        self.deadline_s = now + timeout_s
        self.sent_s = now


class GroupConnection:
    """A connection to a group, made by `dial`."""

    def __init__(
        self, addresses: list[Address], group: str, secret: bytes, role: Role, timeout_s: float, patience_s: float
    ):
        self.client = secrets.randbits(63) | 1
        self.timeout_s = timeout_s
        self.replica = 0
        self.reconnects = 0
        self._addresses = addresses
        self._group, self._secret, self._role = group, secret, role
        self._patience_s = patience_s
        self._wait_s = patience_s
        self._window = 0
        self._next = 1
        self._requests: dict[int, _Request] = {}
        self._unsent: list[int] = []
        self._flush_planned = False
        self._queue: deque[_Request] = deque()
        self._sweep: asyncio.TimerHandle | None = None
        self._link: ReplicaLink | None = None
        self._at = 0
        self._trouble = "no replica was asked yet"
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    async def __aenter__(self) -> GroupConnection:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def window(self) -> int:
        """Requests that may be in flight; further ones wait."""
        return self._window

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The replicas that may be asked: those passed in, and those that the group named."""
        return tuple(self._addresses)

    async def send_request(self, command: bytes, timeout_s: float | None = None) -> bytes:
        """Has a command applied, once, and returns the reply.

        Requests that are in flight together may be applied in any order; who needs an order waits for each reply.
        RequestTimeoutError where there was no answer in time: a majority of the replicas is not there.
        """
        return await self.submit(command, timeout_s)

    def submit(self, command: bytes, timeout_s: float | None = None) -> asyncio.Future[bytes]:
        """Sends a request like `send_request`, for many requests at once: the reply is the result of a future."""
        if self._is_closed:
            raise ClientError("the connection to the group is closed; dial again")
        wait_s = self.timeout_s if timeout_s is None else timeout_s
        request = _Request(command, self._loop.create_future(), wait_s, self._loop.time())
        self._queue.append(request)
        self._admit()
        if self._sweep is None:
            self._sweep = self._loop.call_later(_SWEEP_S, self._expire)
        return request.answer

    def _admit(self) -> None:
        """Sends what waits while the window has room. It reaches from the oldest request that is not answered."""
        queue, requests = self._queue, self._requests
        if not queue:
            return
        limit = next(iter(requests), self._next) + self._window
        while queue and self._next < limit:
            request = queue.popleft()
            if not request.answer.done():
                requests[self._next] = request
                self._send(self._next)
                self._next += 1

    def _expire(self) -> None:
        """Checks all deadlines together, which is cheaper than a timer for each request."""
        now = self._loop.time()
        for request in (*self._requests.values(), *self._queue):
            if request.deadline_s <= now and not request.answer.done():
                request.answer.set_exception(
                    RequestTimeoutError(
                        f"no answer within {request.timeout_s:g} s: a majority of the replicas may be down "
                        f"({self._trouble}); the request may or may not have been applied"
                    )
                )
        for sequence in [sequence for sequence, request in self._requests.items() if request.answer.done()]:
            del self._requests[sequence]
        self._admit()
        waits = self._requests or self._queue
        self._sweep = self._loop.call_later(_SWEEP_S, self._expire) if waits else None

    def _send(self, sequence: int) -> None:
        self._unsent.append(sequence)
        if not self._flush_planned:
            self._flush_planned = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Sends the requests of one turn of the event loop together, in one frame or a few."""
        self._flush_planned = False
        if self._link is None:
            return  # all that is in flight is sent when there is a link again
        now, size = self._loop.time(), 0
        batch: list[tuple[int, int, bytes]] = []
        unsent, self._unsent = self._unsent, []
        for sequence in unsent:
            request = self._requests.get(sequence)
            if request is None:
                continue
            request.sent_s = now
            batch.append((self.client, sequence, request.command))
            size += len(request.command)
            if size > _BATCH_BYTES:
                self._link.write(frame(REQUESTS + pack_requests(batch)))
                batch, size = [], 0
        if batch:
            self._link.write(frame(REQUESTS + pack_requests(batch)))

    def _answered(self, frames: list[bytes]) -> None:
        for content in frames:
            if content[:1] == ANSWERS:
                self._wait_s = self._patience_s
                for sequence, reply in read_answers(content):
                    self._settle(sequence, reply)
                self._admit()
            elif content[:1] == OVERLOAD:
                body = content[1:]
                again = [int.from_bytes(body[offset : offset + 8], "big") for offset in range(0, len(body), 8)]
                self._trouble = "the group has no room for more requests"
                self._loop.call_later(_PAUSE_S, self._again, again)

    def _settle(self, sequence: int, reply: bytes | None) -> None:
        request = self._requests.pop(sequence, None)
        if request is None or request.answer.done():
            return
        if reply is None:
            request.answer.set_exception(ClientError(f"request {sequence}: it is too old to be told new from old"))
        else:
            request.answer.set_result(reply)

    def _again(self, sequences: list[int]) -> None:
        for sequence in sequences:
            if sequence in self._requests:
                self._send(sequence)

    async def start(self) -> None:
        """Connects to the first replica that answers; ClientError where none does."""
        refusals: dict[Address, str] = {}
        try:
            async with asyncio.timeout(self.timeout_s):
                while not await self._connect():
                    if isinstance(self._error, RefusalError):
                        refusals[self._addresses[self._at]] = str(self._error)
                    if len(refusals) == len(self._addresses):
                        raise ClientError(f"every replica refuses: {self._trouble}")
                    self._at = (self._at + 1) % len(self._addresses)
                    await asyncio.sleep(_PAUSE_S)
        except TimeoutError:
            raise ClientError(f"no replica answers within {self.timeout_s:g} s: {self._trouble}") from None
        self._task = self._loop.create_task(self._run())

    _error: Exception | None = None

    async def _connect(self) -> bool:
        address = self._addresses[self._at]
        hello = Hello(self._role, self._group, self.client, 0, secrets.token_hex(16))
        try:
            link, welcome = await ReplicaLink.open(address, hello, self._secret)
        except (OSError, PeerError) as error:
            self._error = error
            self._trouble = f"{address}: {error or 'no answer'}"
            return False
        self._link, self.replica, self._window = link, welcome.replica, welcome.window or 1
        link.on_frames = self._answered
        for text in welcome.book.values():
            with suppress(ConfigurationError, AttributeError):
                if (other := parse_address(text)) not in self._addresses:
                    self._addresses.append(other)
        self._unsent = list(self._requests)
        self._flush()
        self._admit()
        return True

    async def _run(self) -> None:
        while True:
            await self._watch()
            if self._link is not None:
                self._link.close()
            self._link, self.replica = None, 0
            self.reconnects += 1
            while True:
                self._at = (self._at + 1) % len(self._addresses)
                if await self._connect():
                    break
                await asyncio.sleep(_PAUSE_S)

    async def _watch(self) -> None:
        """Returns when the link is lost, or an answer is overdue."""
        link = self._link
        while link is not None and not link.is_lost:
            link.changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._wait_s / _CHECKS):
                    await link.changed.wait()
            now = self._loop.time()
            if any(now - request.sent_s > self._wait_s for request in self._requests.values()):
                self._trouble = f"replica {self.replica} did not answer within {self._wait_s:g} s"
                # A group that is slow is not helped by asking all its replicas for the same.
                self._wait_s = min(2 * self._wait_s, _PATIENCE_MAX_S)
                return
        if link is not None:
            self._trouble = f"replica {self.replica}: {link.reason}"

    async def close(self) -> None:
        """Closes; requests that are in flight fail."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if self._link is not None:
            self._link.close()
            self._link = None
        if self._sweep is not None:
            self._sweep.cancel()
        for request in (*self._requests.values(), *self._queue):
            if not request.answer.done():
                request.answer.set_exception(ClientError("the connection to the group was closed"))


async def dial(
    addresses: Iterable[str | Address],
    *,
    group: str = "",
    secret: bytes = b"",
    timeout_s: float = 30.0,
    patience_s: float = 1.0,
) -> GroupConnection:
    """Connects to a group by the client addresses of some of its replicas.

    `group` is checked where it is given. `secret` is that for clients, where the group wants one. A request fails after
    `timeout_s`; a replica that does not answer for `patience_s` is left for another.

    >>> import inspect
    >>> async def count_up() -> bytes:
    ...     async with await dial(["127.0.0.1:7101", "127.0.0.1:7102"]) as connection:
    ...         return await connection.send_request(b"...")
    >>> inspect.iscoroutinefunction(count_up)
    True
    """
    parsed = [parse_address(address) if isinstance(address, str) else address for address in addresses]
    if not parsed:
        raise ConfigurationError("dial: no addresses; name at least one replica as host:port")
    connection = GroupConnection(parsed, group, secret, "client", timeout_s, patience_s)
    await connection.start()
    return connection


class SyncConnection:
    """A connection for programs without an event loop; its own runs in a thread. Any thread may use it."""

    def __init__(self, addresses: Iterable[str | Address], **options: Any):
        self._background = Background()
        self._is_closed = False
        try:
            self._connection = self._background.run(dial(addresses, **options))
        except BaseException:
            self._background.close()
            raise

    def send_request(self, command: bytes, timeout_s: float | None = None) -> bytes:
        """Has a command applied, once, and returns the reply; as `GroupConnection.send_request`."""
        if self._is_closed:
            raise ClientError("the connection to the group is closed; dial again")
        return self._background.run(self._connection.send_request(command, timeout_s))

    def close(self) -> None:
        """Closes; requests that are in flight fail."""
        if not self._is_closed:
            self._is_closed = True
            self._background.run(self._connection.close())
            self._background.close()

    def __enter__(self) -> SyncConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def dial_sync(addresses: Iterable[str | Address], **options: Any) -> SyncConnection:
    """Connects to a group from a program without an event loop; the options are those of `dial`."""
    return SyncConnection(addresses, **options)
