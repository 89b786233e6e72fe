"""A client of any MQTT 3.1.1 or 5.0 broker, for asyncio.

>>> import inspect
>>> async def hello() -> None:
...     async with Client("127.0.0.1", 1883) as client:
...         await client.publish("greetings", b"hello", qos=1)
>>> inspect.iscoroutinefunction(hello)
True
"""

from surecast.client.client import Client, Message
from surecast.client.errors import ClientError, LostError, RefusedError
from surecast.client.transport import tls_context

__all__ = ["Client", "ClientError", "LostError", "Message", "RefusedError", "tls_context"]
