"""Events as bytes: topic, attributes, time of publication and payload, which is what is cut into packets."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Final

from surecast.errors import ConfigurationError, PeerError
from surecast.protocol.filters import Event, Value
from surecast.protocol.mqtt.topics import validate_topic_name

__all__ = ["Body"]

_HEAD: Final = struct.Struct(">dHB")
_NUMBER: Final = struct.Struct(">d")
_TEXT: Final = 1


@dataclass(frozen=True, slots=True)
class Body:
    """What a publisher publishes and a subscriber is notified of.

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
        topic = self.topic.encode()
        if len(topic) > 0xFFFF or len(self.attributes) > 255:
            raise ConfigurationError(f"event on {self.topic[:40]!r}: at most 65535 bytes of topic and 255 attributes")
        parts = [_HEAD.pack(self.published_s, len(topic), len(self.attributes)), topic]
        for name, value in self.attributes:
            is_text = isinstance(value, str)
            written = value.encode() if isinstance(value, str) else _NUMBER.pack(value)
            for piece in (name.encode(), written):
                if len(piece) > 0xFFFF:
                    raise ConfigurationError(f"attribute {name[:40]!r}: names and values have at most 65535 bytes")
            parts += [bytes([is_text]), _sized(name.encode()), _sized(written)]
        return b"".join([*parts, self.payload])

    @classmethod
    def decode(cls, data: bytes) -> Body:
        """The event of some bytes; anything else raises PeerError."""
        try:
            published_s, size, count = _HEAD.unpack_from(data)
            topic, at = _take(data, _HEAD.size, size)
            attributes: list[tuple[str, Value]] = []
            for _ in range(count):
                kind = data[at]
                if kind > _TEXT:
                    raise ValueError(f"an attribute is of kind {kind}, neither number nor text")
                (length,) = struct.unpack_from(">H", data, at + 1)
                name, at = _take(data, at + 3, length)
                (length,) = struct.unpack_from(">H", data, at)
                written, at = _take(data, at + 2, length)
                attributes.append((name.decode(), written.decode() if kind == _TEXT else _NUMBER.unpack(written)[0]))
            validate_topic_name(topic.decode())
            if not math.isfinite(published_s) or any(
                isinstance(v, float) and not math.isfinite(v) for _, v in attributes
            ):
                raise ValueError("a number is not finite")
        except (struct.error, ValueError, IndexError, ConfigurationError) as error:
            raise PeerError(f"event body: {error}") from None
        return cls(topic.decode(), data[at:], tuple(attributes), published_s)


def _sized(data: bytes) -> bytes:
    return struct.pack(">H", len(data)) + data


def _take(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    piece = data[at : at + size]
    if len(piece) != size:
        raise ValueError("it is cut off")
    return piece, at + size
