"""Messages as content filters see them: attributes from user properties, or from the fields of a JSON payload.

A user property whose whole value is a number is a number, any other is text. Where the publisher declares the content
type `application/json`, the fields of a JSON object are attributes too; those of nested objects have names with dots.
A user property goes before a field of the same name.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

from surecast.protocol.broker.message import Message
from surecast.protocol.broker.session import Subscription
from surecast.protocol.filters import Event
from surecast.protocol.mqtt import PacketType
from surecast.protocol.mqtt.wire import Reader, Settings, read_properties, variable_bytes

__all__ = ["event_of", "wants"]

_JSON_BYTES_MAX: Final = 1_000_000
_DEPTH_MAX: Final = 20
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")

Attributes = dict[str, float | str]


def wants(subscription: Subscription, message: Message) -> bool:
    """Whether a subscription's content filter, if it has one, takes a message."""
    if subscription.content is None:
        return True
    if message.event is None:
        message.event = event_of(message)
    return subscription.content.matches(message.event)


def event_of(message: Message) -> Event:
    """The attributes of a message, under its topic as the class.

    >>> from surecast.protocol.mqtt import Properties, encode_properties
    >>> properties = encode_properties(Properties(user=(("price", "36.5"), ("stock", "Foo"))), 3)
    >>> event_of(Message(1, "stocks", b"", b"", properties=properties)).attributes
    (('price', 36.5), ('stock', 'Foo'))
    """
    attributes: Attributes = {}
    if message.properties:
        data = variable_bytes(len(message.properties)) + message.properties
        found = read_properties(Reader(data, 0, 0, len(data), "PUBLISH", Settings(5)), PacketType.PUBLISH)
        if (found.content_type or "").partition(";")[0].strip().lower() == "application/json":
            _from_json(message.payload, attributes)
        for name, value in found.user:
            attributes[name] = _value(value)
    return Event(message.topic, attributes)


def _value(text: str) -> float | str:
    if len(text) <= 40 and _NUMBER.fullmatch(text):
        number = float(text)
        if math.isfinite(number):
            return number
    return text


def _from_json(payload: bytes, attributes: Attributes) -> None:
    """Fields of a JSON object; a payload that is none has no fields."""
    if len(payload) > _JSON_BYTES_MAX:
        return
    try:
        data = json.loads(payload)
    except (ValueError, RecursionError):
        return
    todo: list[tuple[str, Any, int]] = [("", data, 0)]
    while todo:
        name, value, depth = todo.pop()
        if isinstance(value, dict) and depth < _DEPTH_MAX:
            todo += [(f"{name}.{key}" if name else str(key), inner, depth + 1) for key, inner in value.items()]
        elif isinstance(value, bool):
            attributes[name] = "true" if value else "false"
        elif isinstance(value, str) or (isinstance(value, int | float) and abs(value) < 1e300):
            attributes[name] = value
