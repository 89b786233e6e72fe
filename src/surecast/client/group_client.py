"""A client of a replicated broker: it knows all replicas, and goes to another when one dies."""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Final, TypeVar

from surecast.client.client import Client, ReceivedMessage, SessionMemory
from surecast.client.client_errors import ClientError, LostError, RefusedError
from surecast.errors import ConfigurationError
from surecast.protocol.mqtt import NO_PROPERTIES, V5, Properties, ReasonCode, SubscriptionRequest, Will, match

__all__ = ["REQUEST_PROPERTY", "GroupClient", "split_address"]

REQUEST_PROPERTY: Final = "surecast-request"
"""The user property that tells a broker which publications are the same."""

_TRANSIENT: Final = {
    ReasonCode.SERVER_UNAVAILABLE,
    ReasonCode.SERVER_BUSY,
    ReasonCode.SERVER_SHUTTING_DOWN,
    ReasonCode.USE_ANOTHER_SERVER,
    ReasonCode.SERVER_MOVED,
    ReasonCode.KEEP_ALIVE_TIMEOUT,
    ReasonCode.CONNECTION_RATE_EXCEEDED,
}
_PAUSE_S: Final = 0.05
_PAUSE_MAX_S: Final = 1.0
_TAKEN_S: Final = 30.0
_OPEN_MAX: Final = 60
"""Publications that wait for an acknowledgement; a broker remembers the outcomes of the last 64."""
T = TypeVar("T")


def split_address(text: str, default_port: int = 1883) -> tuple[str, int]:
    """Returns a host and a port.

    >>> split_address("10.0.0.1:1884"), split_address("[::1]:1884"), split_address("example.org")
    (('10.0.0.1', 1884), ('::1', 1884), ('example.org', 1883))
    """
    host, colon, port = text.rpartition(":")
    if not colon or "]" in port or (":" in host and not host.startswith("[")):
        return text.strip("[]"), default_port
    if not port.isdigit() or not 0 < int(port) < 65_536:
        raise ConfigurationError(f"address {text!r}: the port must be a number from 1 to 65535")
    return host.strip("[]"), int(port)


@dataclass(slots=True)
class _Publication:
    """A publication that is not acknowledged yet."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: Properties
    answer: asyncio.Future[ReasonCode]


class GroupClient:
    """A session with a group of replicas, which outlives any connection to one of them.

    `addresses` are those of all replicas; of any one broker it is a client that connects again by itself. A
    publication is sent again with the same identity until it is acknowledged, so that it counts once, however many
    replicas die meanwhile; `patience_s` limits how long that may take. `request_s` is how long one replica may take for
    an answer before another is asked.

    >>> import inspect
    >>> async def hello() -> None:
    ...     async with GroupClient(["10.0.0.1:1883", "10.0.0.2:1883", "10.0.0.3:1883"]) as client:
    ...         await client.publish("greetings", b"hello")
    >>> inspect.iscoroutinefunction(hello)
    True
    """

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        client_id: str = "",
        username: str | None = None,
        password: bytes | None = None,
        keep_alive_s: int = 10,
        session_expiry_s: int = 3600,
        will: Will | None = None,
        tls: ssl.SSLContext | None = None,
        websocket_path: str | None = None,
        request_s: float = 5.0,
        patience_s: float | None = None,
    ):
        if not addresses:
            raise ConfigurationError("a group has at least one address")
        self.addresses = [split_address(address) for address in addresses]
        self.client_id = client_id or f"surecast-{secrets.token_hex(8)}"
        self._is_named = bool(client_id)
        self.fail_overs = 0
        self._make: Callable[[str, int, SessionMemory], Client] = lambda host, port, memory: Client(
            host,
            port,
            client_id=self.client_id,
            username=username,
            password=password,
            keep_alive_s=keep_alive_s,
            clean_start=False,
            will=will,
            properties=Properties(session_expiry_s=session_expiry_s),
            version=V5,
            tls=tls,
            websocket_path=websocket_path,
            timeout_s=request_s,
            memory=memory,
        )
        self._patience_s = patience_s
        self._token = secrets.token_hex(8)
        self._sequence = 0
        self._at = secrets.randbelow(len(self.addresses))
        self._wanted: int | None = None
        self._client: Client | None = None
        self._connected = asyncio.Event()
        self._subscriptions: dict[str, tuple[SubscriptionRequest, Properties]] = {}
        self._failure: ClientError | None = None
        self._task: asyncio.Task[None] | None = None
        self._open: dict[int, _Publication] = {}
        self._attempts: set[asyncio.Task[None]] = set()
        self._taken: list[float] = []

    async def __aenter__(self) -> GroupClient:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # What the application calls.

    async def connect(self) -> None:
        """Connects to any replica; ClientError if none takes this client within the patience, or one refuses it."""
        if self._task is None:
            self._task = asyncio.create_task(self._stay_connected())
        await self._within(self._current(), "connect")

    async def close(self) -> None:
        """Ends the connection. A session of a client that was given a name lives on, and can be taken up again."""
        self._fail(LostError("the client is closed"))
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if self._client is not None:
            ending = NO_PROPERTIES if self._is_named else Properties(session_expiry_s=0)
            await self._client.disconnect(properties=ending)
        for attempt in list(self._attempts):
            attempt.cancel()
        await asyncio.gather(*self._attempts, return_exceptions=True)

    @property
    def address(self) -> tuple[str, int] | None:
        """The replica it is connected to; None while there is none."""
        client = self._client
        return None if client is None or client.ended is not None else (client.host, client.port)

    async def move(self, address: str) -> None:
        """Moves to another replica, such as the leader; unacknowledged publications are sent again there.

        If that replica does not answer, the next is tried, as always.
        """
        target = split_address(address)
        if target not in self.addresses:
            raise ConfigurationError(f"{address} is none of the addresses of this client's group")
        if self.address != target:
            self._wanted = self.addresses.index(target)
            if self._client is not None:
                await self._client.disconnect()

    async def publish(
        self,
        topic: str,
        payload: bytes = b"",
        qos: int = 1,
        retain: bool = False,
        properties: Properties = NO_PROPERTIES,
    ) -> ReasonCode:
        """Publishes; at QoS 1 and 2 it returns when the group has taken the message over, once and for all."""
        request = f"publish to {topic!r}"
        if not qos:
            return await self._asking(lambda c: c.publish(topic, payload, 0, retain, properties), request)
        while self._open and self._sequence - next(iter(self._open)) >= _OPEN_MAX:
            await self._within(_any(next(iter(self._open.values())).answer), request)
        self._sequence += 1
        identity = (REQUEST_PROPERTY, f"{self._token}:{self._sequence}")
        properties = replace(properties, user=(*properties.user, identity))
        answer: asyncio.Future[ReasonCode] = asyncio.get_running_loop().create_future()
        number, publication = self._sequence, _Publication(topic, payload, qos, retain, properties, answer)
        self._open[number] = publication
        try:
            if self._failure is not None:
                raise self._failure
            if self._client is not None and self._connected.is_set():
                self._attempt(self._client, publication)
            return await self._within(_result(answer), request)
        finally:
            self._open.pop(number, None)

    async def subscribe(
        self, *filters: str | SubscriptionRequest, qos: int = 1, properties: Properties = NO_PROPERTIES
    ) -> tuple[ReasonCode, ...]:
        """Subscribes, for as long as the session lives."""
        wanted = tuple(f if isinstance(f, SubscriptionRequest) else SubscriptionRequest(f, qos) for f in filters)
        reasons: tuple[ReasonCode, ...] = await self._asking(
            lambda c: c.subscribe(*wanted, properties=properties), "subscribe"
        )
        self._subscriptions |= {s.filter: (s, properties) for s in wanted}
        return reasons

    async def unsubscribe(self, *filters: str) -> tuple[ReasonCode, ...]:
        """Takes subscriptions back."""
        for topic_filter in filters:
            self._subscriptions.pop(topic_filter, None)
        return await self._asking(lambda c: c.unsubscribe(*filters), "unsubscribe")

    async def message(self) -> ReceivedMessage:
        """Returns the next message, over whichever connection it comes."""
        while True:
            client = await self._current()
            try:
                return await client.message()
            except ClientError:
                if self._failure is not None:
                    raise self._failure from None
                # The connection is over; the next one has the rest.

    async def messages(self) -> AsyncIterator[ReceivedMessage]:
        """Yields all messages, in order, until the client is closed."""
        while True:
            try:
                message = await self.message()
            except LostError:
                if self._failure is not None:
                    return
                raise
            yield message

    @asynccontextmanager
    async def subscription(self, topic_filter: str, qos: int = 1) -> AsyncIterator[AsyncIterator[ReceivedMessage]]:
        """Yields a subscription as an iterator over its messages; unsubscribes at the end.

        >>> async def watch(client: GroupClient) -> None:
        ...     async with client.subscription("plant/#") as messages:
        ...         async for message in messages:
        ...             print(message.topic)
        """
        await self.subscribe(topic_filter, qos=qos)

        async def matching() -> AsyncIterator[ReceivedMessage]:
            async for message in self.messages():
                if match(topic_filter, message.topic):
                    yield message

        try:
            yield matching()
        finally:
            if self._failure is None:
                await self.unsubscribe(topic_filter)

    # Connections.

    async def _stay_connected(self) -> None:
        memory = SessionMemory()
        pause_s = _PAUSE_S
        while True:
            client = self._make(*self.addresses[self._at], memory)
            reason: ClientError
            try:
                await client.connect()
                await self._subscribe_again(client)
            except ClientError as error:
                reason = error
                await asyncio.sleep(pause_s * (0.5 + secrets.randbelow(1000) / 1000))
                pause_s = min(pause_s * 1.5, _PAUSE_MAX_S)
            else:
                pause_s = _PAUSE_S
                self._client = client
                self._connected.set()
                # All that is not acknowledged goes again, in its order, before anything new.
                for publication in self._open.values():
                    self._attempt(client, publication)
                reason = await client.wait_ended()
                self._connected.clear()
                self.fail_overs += self._wanted is None
            await client.disconnect()
            memory = client.memory()
            if isinstance(reason, RefusedError) and reason.reason not in _TRANSIENT and not self._is_own(reason):
                self._fail(reason)
                return
            self._at = (self._at + 1) % len(self.addresses) if self._wanted is None else self._wanted
            self._wanted = None

    def _is_own(self, reason: RefusedError) -> bool:
        """Returns whether this client itself took its session over.

        A CONNECT that a group without a majority left unanswered may be applied after the one that another replica
        answered. A session that is taken over again and again is in use by another client.
        """
        now = asyncio.get_running_loop().time()
        if reason.reason is not ReasonCode.SESSION_TAKEN_OVER:
            return False
        self._taken = [takeover_s for takeover_s in self._taken if now - takeover_s < _TAKEN_S] + [now]
        return len(self._taken) <= len(self.addresses)

    async def _subscribe_again(self, client: Client) -> None:
        """Subscribes again at a group that does not know the session any more, because it expired."""
        if not client.connack.session_present:
            for subscription, properties in self._subscriptions.values():
                await client.subscribe(subscription, properties=properties)

    def _fail(self, error: ClientError) -> None:
        if self._failure is None:
            self._failure = error
        self._connected.set()
        for publication in self._open.values():
            if not publication.answer.done():
                publication.answer.set_exception(self._failure)

    async def _current(self) -> Client:
        while True:
            await self._connected.wait()
            if self._failure is not None:
                raise self._failure
            if self._client is not None and self._client.ended is None:
                return self._client
            await asyncio.sleep(0)  # it is over, and about to be known to be so

    def _attempt(self, client: Client, publication: _Publication) -> None:
        """Sends a publication over a connection. Attempts begin in order, and so their packets are sent in order."""
        attempt = asyncio.create_task(self._try(client, publication))
        self._attempts.add(attempt)
        attempt.add_done_callback(self._attempts.discard)

    async def _try(self, client: Client, publication: _Publication) -> None:
        try:
            reason = await client.publish(
                publication.topic, publication.payload, publication.qos, publication.retain, publication.properties
            )
        except ClientError as error:
            if isinstance(error, RefusedError) and client.ended is None:
                if not publication.answer.done():
                    publication.answer.set_exception(error)
            else:
                # Lost, or no answer in time: this replica may have lost the majority. The next gets it.
                await client.disconnect()
        except Exception as error:  # of the caller: a topic that is none, a message that cannot be encoded
            if not publication.answer.done():
                publication.answer.set_exception(error)
        else:
            if not publication.answer.done():
                publication.answer.set_result(reason)

    async def _asking(self, ask: Callable[[Client], Coroutine[Any, Any, T]], request: str) -> T:
        async def until_answered() -> T:
            while True:
                client = await self._current()
                try:
                    return await ask(client)
                except ClientError as error:
                    if isinstance(error, RefusedError) and client.ended is None:
                        raise
                    await client.disconnect()

        return await self._within(until_answered(), request)

    async def _within(self, call: Coroutine[Any, Any, T], request: str) -> T:
        try:
            async with asyncio.timeout(self._patience_s):
                return await call
        except TimeoutError:
            raise ClientError(f"{request}: no replica answered within {self._patience_s:g} s") from None


async def _result(answer: asyncio.Future[T]) -> T:
    return await answer


async def _any(answer: asyncio.Future[Any]) -> None:
    """Waits until a future is done, however it ends."""
    await asyncio.wait([answer])
