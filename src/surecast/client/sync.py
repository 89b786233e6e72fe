"""Clients for programs without an event loop: one runs in a thread for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Sequence
from types import TracebackType
from typing import Any, TypeVar

from surecast.client.client import ReceivedMessage
from surecast.client.client_errors import LostError
from surecast.client.group_client import GroupClient
from surecast.protocol.mqtt import NO_PROPERTIES, Properties, ReasonCode, SubscriptionRequest

__all__ = ["Background", "SyncGroupClient"]

T = TypeVar("T")


class Background:
    """Runs coroutines and waits for them; any thread may ask.

    >>> background = Background()
    >>> background.run(asyncio.sleep(0, "done"))
    'done'
    >>> background.close()
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="surecast-client", daemon=True)
        self._thread.start()

    def run(self, call: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Returns the result of a coroutine; TimeoutError if it takes longer, and then it is cancelled."""
        future = asyncio.run_coroutine_threadsafe(call, self._loop)
        try:
            return future.result(timeout_s)
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Ends the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class SyncGroupClient:
    """A `GroupClient` whose calls wait. Any thread may use it; the options are the same.

    >>> def hello() -> None:
    ...     with SyncGroupClient(["10.0.0.1:1883", "10.0.0.2:1883", "10.0.0.3:1883"]) as client:
    ...         client.publish("greetings", b"hello")
    """

    def __init__(self, addresses: Sequence[str], **options: Any):
        self._background = Background()
        self._is_closed = False
        try:
            self._client = self._background.run(_connected(addresses, options))
        except BaseException:
            self._background.close()
            raise

    def __enter__(self) -> SyncGroupClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection, as `GroupClient.close`."""
        if not self._is_closed:
            self._is_closed = True
            self._background.run(self._client.close())
            self._background.close()

    def publish(
        self,
        topic: str,
        payload: bytes = b"",
        qos: int = 1,
        retain: bool = False,
        properties: Properties = NO_PROPERTIES,
    ) -> ReasonCode:
        """Publishes, as `GroupClient.publish`."""
        return self._background.run(self._client.publish(topic, payload, qos, retain, properties))

    def subscribe(self, *filters: str | SubscriptionRequest, qos: int = 1) -> tuple[ReasonCode, ...]:
        """Subscribes, as `GroupClient.subscribe`."""
        return self._background.run(self._client.subscribe(*filters, qos=qos))

    def unsubscribe(self, *filters: str) -> tuple[ReasonCode, ...]:
        """Takes subscriptions back."""
        return self._background.run(self._client.unsubscribe(*filters))

    def move(self, address: str) -> None:
        """Moves to another replica, such as the leader; unacknowledged publications are sent again there."""
        self._background.run(self._client.move(address))

    def message(self, timeout_s: float | None = None) -> ReceivedMessage:
        """Returns the next message; TimeoutError if none comes in time."""
        return self._background.run(self._client.message(), timeout_s)

    def messages(self, timeout_s: float | None = None) -> Iterator[ReceivedMessage]:
        """Yields all messages, until the client is closed or none comes in time."""
        while True:
            try:
                message = self.message(timeout_s)
            except (TimeoutError, LostError):
                return
            yield message


async def _connected(addresses: Sequence[str], options: dict[str, Any]) -> GroupClient:
    client = GroupClient(addresses, **options)
    try:
        await client.connect()
    except BaseException:
        await client.close()
        raise
    return client
