"""Clients: of any MQTT 3.1.1 or 5.0 broker, of a replicated broker, and of a replicated service of one's own.

>>> import inspect
>>> async def hello() -> None:
...     async with Client("127.0.0.1", 1883) as client:
...         await client.publish("greetings", b"hello", qos=1)
>>> inspect.iscoroutinefunction(hello)
True
"""

from surecast.client.client import Client, ReceivedMessage, SessionMemory
from surecast.client.client_errors import ClientError, LostError, RefusedError
from surecast.client.group_client import GroupClient
from surecast.client.replicated import GroupConnection, RequestTimeoutError, SyncConnection, dial, dial_sync
from surecast.client.sync import SyncGroupClient
from surecast.client.transport import tls_context

__all__ = [
    "Client",
    "ClientError",
    "GroupClient",
    "GroupConnection",
    "LostError",
    "ReceivedMessage",
    "RefusedError",
    "RequestTimeoutError",
    "SessionMemory",
    "SyncConnection",
    "SyncGroupClient",
    "dial",
    "dial_sync",
    "tls_context",
]
