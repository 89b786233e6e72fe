"""One connection to a broker: connect, publish, subscribe, receive.

Messages of QoS 1 and 2 are acknowledged when the application takes them, so that none is lost between. What waits is
bounded: when too much does, the client reads no more until the application has caught up.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from surecast.client.client_errors import ClientError, LostError, RefusedError
from surecast.client.transport import Transport, open_transport
from surecast.errors import ConfigurationError
from surecast.protocol.mqtt import (
    NO_PROPERTIES,
    V5,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketDecoder,
    PacketError,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    ReasonCode,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Unsuback,
    Unsubscribe,
    Will,
    encode,
    validate_filter,
    validate_topic_name,
)

__all__ = ["Client", "ReceivedMessage", "SessionMemory"]

_WAITING_MAX = 10_000
_IDENTIFIERS = 65_535
_FAILURE = 0x80


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A message that has arrived."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    dup: bool = False
    properties: Properties = NO_PROPERTIES
    packet_id: int = 0
    """Of QoS 1 and 2: what `acknowledge` tells the broker."""


@dataclass(slots=True)
class SessionMemory:
    """The state of a session that a client must keep from one connection to the next.

    `received` are the identifiers of QoS 2 messages that the application has taken and the broker has not released,
    `unfinished` those of QoS 2 messages that were sent and whose exchange was not completed.
    """

    received: set[int] = field(default_factory=set)
    unfinished: set[int] = field(default_factory=set)


class Client:
    """A connection to a broker, as a context manager or with `connect` and `disconnect`.

    `tls` are the settings of TLS, None for none; `websocket_path` travels in WebSocket frames. `timeout_s` is how long
    the broker may take for any answer. `memory` is that of the last connection of the same session: what was unfinished
    then is finished first, so that its packet identifiers are free. Everything that goes wrong is a ClientError.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 1883,
        *,
        client_id: str = "",
        username: str | None = None,
        password: bytes | None = None,
        keep_alive_s: int = 60,
        clean_start: bool = True,
        will: Will | None = None,
        properties: Properties = NO_PROPERTIES,
        version: int = V5,
        tls: ssl.SSLContext | None = None,
        websocket_path: str | None = None,
        timeout_s: float = 10.0,
        memory: SessionMemory | None = None,
    ):
        self.host, self.port = host, port
        self.connack = Connack()
        self._connect = Connect(client_id, clean_start, keep_alive_s, username, password, will, properties, version)
        self._version = version
        self._tls = tls
        self._websocket_path = websocket_path
        self._timeout_s = timeout_s
        self._transport: Transport | None = None
        self._decoder = PacketDecoder(version=version, side="client")
        self._tasks: list[asyncio.Task[None]] = []
        self._answers: dict[tuple[type, int], asyncio.Future[Any]] = {}
        self._waiting: deque[Publish] = deque()
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._memory = memory or SessionMemory()
        self._aliases: dict[int, str] = {}
        self._next_identifier = 0
        self._window = asyncio.Semaphore(_IDENTIFIERS)
        self._ended: ClientError | None = None
        self._over = asyncio.Event()
        self._sent_at = 0.0
        self._pong: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Client:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.disconnect()

    # What the application calls.

    async def connect(self) -> Connack:
        """Connects and waits for the broker's answer; RefusedError if it does not want this client."""
        if self._transport is not None:
            raise ClientError("a client connects once; make another for another connection")
        packet = encode(self._connect, self._version)
        self._transport = await open_transport(self.host, self.port, self._tls, self._websocket_path, self._timeout_s)
        answer = self._expect(Connack, 0)
        self._tasks.append(asyncio.create_task(self._read()))
        try:
            await self._send_bytes(packet)
            connack: Connack = await self._answer(answer, (Connack, 0), "the answer to CONNECT")
            if connack.reason >= _FAILURE:
                raise RefusedError(f"{self.host}:{self.port}", connack.reason, connack.properties.reason_string)
        except BaseException:
            await self._close(LostError("the connection was not made"))
            raise
        self.connack = connack
        if not connack.session_present:
            self._memory.received.clear()
            self._memory.unfinished.clear()
        self._window = asyncio.Semaphore(connack.properties.receive_maximum or _IDENTIFIERS)
        keep_alive_s = connack.properties.server_keep_alive_s
        keep_alive_s = self._connect.keep_alive_s if keep_alive_s is None else keep_alive_s
        if keep_alive_s:
            self._tasks.append(asyncio.create_task(self._keep_alive(keep_alive_s)))
        try:
            for identifier in list(self._memory.unfinished):
                await self._release(identifier, "finish the session's last exchanges")
        except BaseException:
            await self._close(LostError("the session was not taken up"))
            raise
        return connack

    async def disconnect(self, reason: ReasonCode = ReasonCode.SUCCESS, properties: Properties = NO_PROPERTIES) -> None:
        """Says goodbye and closes. Doing so twice, or after the connection is lost, is harmless."""
        if self._transport is not None and self._ended is None:
            with suppress(ClientError):
                await self._send(Disconnect(reason, properties))
        await self._close(LostError("the client has disconnected"))

    async def publish(
        self,
        topic: str,
        payload: bytes = b"",
        qos: int = 0,
        retain: bool = False,
        properties: Properties = NO_PROPERTIES,
    ) -> ReasonCode:
        """Publishes; at QoS 1 and 2 it returns when the broker has taken the message over, with its reason code."""
        validate_topic_name(topic)
        if qos == 0:
            await self._send(Publish(topic, payload, 0, retain, properties=properties))
            return ReasonCode.SUCCESS
        request = f"publish to {topic!r}"
        async with self._window:
            identifier = self._identifier()
            kind: type = Puback if qos == 1 else Pubrec
            answer = self._expect(kind, identifier)
            if qos == 2:
                self._memory.unfinished.add(identifier)
            await self._send(Publish(topic, payload, qos, retain, False, identifier, properties))
            acknowledgement = await self._answer(answer, (kind, identifier), request)
            if acknowledgement.reason >= _FAILURE:
                self._memory.unfinished.discard(identifier)
                raise RefusedError(request, acknowledgement.reason, acknowledgement.properties.reason_string)
            if qos == 2:
                await self._release(identifier, request)
        reason: ReasonCode = acknowledgement.reason
        return reason

    async def _release(self, identifier: int, request: str) -> None:
        """Completes the second half of an exchange of QoS 2."""
        complete = self._expect(Pubcomp, identifier)
        await self._send(Pubrel(identifier))
        await self._answer(complete, (Pubcomp, identifier), request)
        self._memory.unfinished.discard(identifier)

    async def subscribe(
        self, *filters: str | SubscriptionRequest, qos: int = 0, properties: Properties = NO_PROPERTIES
    ) -> tuple[ReasonCode, ...]:
        """Subscribes; RefusedError if the broker refuses any of the filters. The reasons are the granted QoS."""
        wanted = tuple(f if isinstance(f, SubscriptionRequest) else SubscriptionRequest(f, qos) for f in filters)
        if not wanted:
            raise ConfigurationError("name a filter to subscribe to")
        for subscription in wanted:
            validate_filter(subscription.filter)
        identifier = self._identifier()
        answer = self._expect(Suback, identifier)
        await self._send(Subscribe(identifier, wanted, properties))
        suback: Suback = await self._answer(answer, (Suback, identifier), "subscribe")
        for subscription, reason in zip(wanted, suback.reasons, strict=False):
            if reason >= _FAILURE:
                text = suback.properties.reason_string
                raise RefusedError(f"subscribe to {subscription.filter!r}", reason, text)
        return suback.reasons

    async def unsubscribe(self, *filters: str) -> tuple[ReasonCode, ...]:
        """Takes subscriptions back."""
        identifier = self._identifier()
        answer = self._expect(Unsuback, identifier)
        await self._send(Unsubscribe(identifier, filters))
        unsuback: Unsuback = await self._answer(answer, (Unsuback, identifier), "unsubscribe")
        return unsuback.reasons

    async def message(self, *, is_acknowledged: bool = True) -> ReceivedMessage:
        """Returns the next message and acknowledges it, or leaves that to `acknowledge`. LostError when no more can
        come."""
        while not self._waiting:
            if self._ended is not None:
                raise self._ended
            self._arrived.clear()
            await self._arrived.wait()
        packet = self._waiting.popleft()
        self._room.set()
        message = ReceivedMessage(
            packet.topic, packet.payload, packet.qos, packet.retain, packet.dup, packet.properties, packet.packet_id
        )
        if is_acknowledged:
            try:
                await self.acknowledge(message)
            except asyncio.CancelledError:
                self._waiting.appendleft(packet)  # no caller has got it yet
                self._arrived.set()
                raise
        return message

    async def acknowledge(self, message: ReceivedMessage) -> None:
        """Tells the broker that a message of this connection has been taken; one that it is not told of, it sends again
        to the next connection of the session."""
        if message.qos and self._ended is None:
            answer = Puback(message.packet_id) if message.qos == 1 else Pubrec(message.packet_id)
            with suppress(LostError):  # the broker sends it again to the next connection
                await self._send(answer)

    async def messages(self) -> AsyncIterator[ReceivedMessage]:
        """Yields all messages until the connection ends; a lost connection raises its error."""
        while True:
            yield await self.message()

    @property
    def ended(self) -> ClientError | None:
        """The reason why the connection ended, None while it is open."""
        return self._ended

    async def wait_ended(self) -> ClientError:
        """Waits until the connection is over; the reason."""
        await self._over.wait()
        assert self._ended is not None
        return self._ended

    def memory(self) -> SessionMemory:
        """Returns the state that the next connection of the same session needs, once this one is over.

        What the application has not taken the broker sends again.
        """
        waiting = {packet.packet_id for packet in self._waiting if packet.qos == 2}
        return SessionMemory(self._memory.received - waiting, set(self._memory.unfinished))

    # How packets come and go.

    def _identifier(self) -> int:
        used = {identifier for _, identifier in self._answers} | self._memory.unfinished
        if len(used) >= _IDENTIFIERS - 1:
            raise ClientError(f"more than {_IDENTIFIERS - 1} requests wait for an answer")
        while True:
            self._next_identifier = self._next_identifier % _IDENTIFIERS + 1
            if self._next_identifier not in used:
                return self._next_identifier

    def _expect(self, kind: type, identifier: int) -> asyncio.Future[Any]:
        if self._ended is not None:
            raise self._ended
        answer = self._answers[kind, identifier] = asyncio.get_running_loop().create_future()
        self._room.set()  # an answer must be read, however much waits
        return answer

    async def _answer(self, answer: asyncio.Future[Any], key: tuple[type, int], request: str) -> Any:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await answer
        except TimeoutError:
            raise ClientError(f"{request}: no answer within {self._timeout_s:g} s") from None
        finally:
            self._answers.pop(key, None)

    async def _send(self, packet: Packet) -> None:
        await self._send_bytes(encode(packet, self._version))

    async def _send_bytes(self, data: bytes) -> None:
        if self._ended is not None:
            raise self._ended
        if self._transport is None:
            raise ClientError("the client is not connected; connect first")
        self._sent_at = asyncio.get_running_loop().time()
        try:
            await self._transport.write(data)
        except OSError as error:
            raise self._end(LostError(f"{self.host}:{self.port}: connection lost: {error.strerror or error}")) from None

    async def _read(self) -> None:
        assert self._transport is not None
        ended: ClientError = LostError(f"{self.host}:{self.port}: the broker closed the connection")
        try:
            while data := await self._transport.read():
                for packet in self._decoder.feed(data):
                    await self._take(packet)
                while len(self._waiting) >= _WAITING_MAX and not self._expects_answer():
                    self._room.clear()
                    await self._room.wait()
        except PacketError as error:
            ended = LostError(f"{self.host}:{self.port}: the broker broke the protocol: {error}")
        except OSError as error:
            ended = LostError(f"{self.host}:{self.port}: connection lost: {error.strerror or error}")
        except ClientError as error:
            ended = error
        self._end(ended)

    def _expects_answer(self) -> bool:
        return bool(self._answers) or (self._pong is not None and not self._pong.done())

    async def _take(self, packet: Packet) -> None:
        if isinstance(packet, Publish):
            await self._take_message(packet)
        elif isinstance(packet, Pubrel):
            self._memory.received.discard(packet.packet_id)
            await self._send(Pubcomp(packet.packet_id))
        elif isinstance(packet, Pingresp):
            if self._pong is not None and not self._pong.done():
                self._pong.set_result(None)
        elif isinstance(packet, Disconnect):
            raise RefusedError(f"{self.host}:{self.port}", packet.reason, packet.properties.reason_string)
        elif isinstance(packet, Connack):
            self._resolve((Connack, 0), packet)
        elif isinstance(packet, (Puback, Pubrec, Pubcomp, Suback, Unsuback)):
            self._resolve((type(packet), packet.packet_id), packet)

    async def _take_message(self, packet: Publish) -> None:
        alias = packet.properties.topic_alias
        if alias is not None:
            if packet.topic:
                self._aliases[alias] = packet.topic
            elif alias not in self._aliases:
                raise LostError(f"the broker used the topic alias {alias} without a topic")
            else:
                packet = Publish(
                    self._aliases[alias],
                    packet.payload,
                    packet.qos,
                    packet.retain,
                    packet.dup,
                    packet.packet_id,
                    packet.properties,
                )
        if packet.qos == 2:
            if packet.packet_id in self._memory.received:
                await self._send(Pubrec(packet.packet_id))
                return
            self._memory.received.add(packet.packet_id)
        self._waiting.append(packet)
        self._arrived.set()

    def _resolve(self, key: tuple[type, int], packet: Packet) -> None:
        answer = self._answers.get(key)
        if answer is not None and not answer.done():
            answer.set_result(packet)

    async def _keep_alive(self, interval_s: float) -> None:
        loop = asyncio.get_running_loop()
        with suppress(ClientError):
            while True:
                silent_s = loop.time() - self._sent_at
                if silent_s < interval_s:
                    await asyncio.sleep(interval_s - silent_s)
                    continue
                self._pong = loop.create_future()
                self._room.set()
                await self._send(Pingreq())
                try:
                    async with asyncio.timeout(self._timeout_s):
                        await self._pong
                except TimeoutError:
                    self._end(LostError(f"{self.host}:{self.port}: the broker does not answer any more"))
                    return

    def _end(self, error: ClientError) -> ClientError:
        """Ends the connection: every waiting call gets the reason."""
        if self._ended is None:
            self._ended = error
            self._over.set()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(self._ended)
                answer.exception()  # there may be no waiting caller to take it
        self._arrived.set()
        self._room.set()
        return self._ended

    async def _close(self, error: ClientError) -> None:
        self._end(error)
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        if self._transport is not None:
            with suppress(OSError):
                await self._transport.close()
