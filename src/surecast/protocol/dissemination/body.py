"""Events as bytes: topic, attributes, time of publication and payload, which is what is cut into packets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from surecast.errors import ConfigurationError
from surecast.protocol.codec import BOOL, F64, REST, TEXT, U8, Form, Layout, many, pair
from surecast.protocol.filters import Event, Value
from surecast.protocol.mqtt.topics import validate_topic_name

__all__ = ["BODY", "Body"]


@dataclass(frozen=True, slots=True)
class Body:
    """The content of an event: a publisher publishes it, and subscribers are notified of it.

    >>> body = Body("stock/foo", b"sold", (("price", 36.5),), published_s=1.5)
    >>> Body.decode(body.encode()) == body
    True
    """

    topic: str
    payload: bytes = b""
    attributes: tuple[tuple[str, Value], ...] = ()
    published_s: float = 0.0

    @property
    def event(self) -> Event:
        """The event as content filters see it: its topic as its class."""
        return Event(self.topic, dict(self.attributes))

    def encode(self) -> bytes:
        """The bytes of an event."""
        try:
            return BODY.encode(self)
        except ValueError as error:
            raise ConfigurationError(f"an event on {self.topic[:40]!r} cannot be written: {error}") from None

    @classmethod
    def decode(cls, data: bytes) -> Body:
        """The event of some bytes; anything else raises PeerError."""
        return BODY.decode(data)


class _AttributeValue(Form):
    """A number or a text, with a byte in front that says which."""

    size_min = 3

    def write(self, value: Value, parts: list[bytes]) -> None:
        is_text = isinstance(value, str)
        parts.append(bytes((is_text,)))
        (TEXT if is_text else F64).write(value, parts)

    def read(self, data: bytes, at: int) -> tuple[Value, int]:
        is_text, at = BOOL.read(data, at)
        value, at = (TEXT if is_text else F64).read(data, at)
        return _finite(value), at


def _finite(value: Value) -> Value:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number is not finite")
    return value


def _body(**fields: Any) -> Body:
    validate_topic_name(fields["topic"])
    _finite(fields["published_s"])
    return Body(**fields)


BODY: Final = Layout(
    "event body",
    _body,
    published_s=F64,
    topic=TEXT,
    attributes=many(pair(TEXT, _AttributeValue()), U8),
    payload=REST,
)
