"""Messages as content filters see them: attributes from user properties, or from the fields of a JSON payload.

A user property whose whole value is a number is a number, any other is text. Where the publisher declares the content
type `application/json`, the fields of a JSON object are attributes too; those of nested objects have names with dots.
A user property goes before a field of the same name.

All replicas must decide alike, on every version of Python and however deep their stacks are. So a payload is held
against limits of its own before it is parsed, and the parser is never given anything that could exceed the
interpreter's. Reading costs time linear in the size of a message: only attributes that some filter names are kept.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Container
from typing import Any, Final

from zlib_ng.zlib_ng import crc32

from surecast.protocol.broker.message import Message
from surecast.protocol.broker.session import Subscription
from surecast.protocol.filters import Event, Filter
from surecast.protocol.mqtt import PacketType
from surecast.protocol.mqtt.wire import PacketReader, ReaderSettings, read_properties, variable_bytes

__all__ = [
    "ATTRIBUTE_NAME_MAX",
    "JSON_BYTES_MAX",
    "JSON_COMMAS_MAX",
    "JSON_DEPTH_MAX",
    "NUMBER_CHARACTERS_MAX",
    "Contents",
    "attributes_of",
]

JSON_BYTES_MAX: Final = 1_000_000
"""A JSON payload of more bytes has no fields."""

JSON_DEPTH_MAX: Final = 32
"""A JSON payload whose objects and arrays are nested deeper has no fields."""

JSON_COMMAS_MAX: Final = 50_000
"""A JSON payload with more commas, in text or between values, has no fields: it bounds the values there are."""

NUMBER_CHARACTERS_MAX: Final = 400
"""A longer number is no attribute. No version of Python limits numbers of so few digits."""

ATTRIBUTE_NAME_MAX: Final = 256
"""A field whose name, with those of the objects around it, has more characters is no attribute."""

_PROPERTY_NUMBER_MAX: Final = 40
_NUMBER_LIMIT: Final = 1e300
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_BRACKETS: Final = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS: Final = bytes(n for n in range(256) if n not in b"[]{}")

Attributes = dict[str, float | str]


class Contents:
    """Decides whether content filters take messages; `add` and `remove` tell it which filters there are.

    `decisions` is a check sum over all that was decided, `constraints` the number of constraints in all filters.
    """

    def __init__(self) -> None:
        self._names: Counter[str] = Counter()
        self._message: Message | None = None
        self._event = Event("")
        self.decisions = 0
        self.constraints = 0

    def add(self, filter: Filter) -> None:
        """From now on the attributes that a filter names are read."""
        self._names.update(name for name, _ in filter.constraints)
        self.constraints += len(filter.constraints)
        self._message = None

    def remove(self, filter: Filter) -> None:
        """A filter is there once less."""
        self.constraints -= len(filter.constraints)
        for name, _ in filter.constraints:
            self._names[name] -= 1
            if not self._names[name]:
                del self._names[name]

    def wants(self, subscription: Subscription, message: Message) -> bool:
        """Returns whether a subscription's content filter, if it has one, takes a message. All replicas decide it."""
        if subscription.content is None:
            return True
        wanted = self.matches(subscription, message)
        self.decisions = crc32(b"\1" if wanted else b"\0", self.decisions)
        return wanted

    def matches(self, subscription: Subscription, message: Message) -> bool:
        """As `wants`, for a message that this replica alone decides about."""
        if subscription.content is None:
            return True
        if self._message is not message:
            self._event = Event(message.topic, attributes_of(message, self._names))
            self._message = message
        return subscription.content.matches(self._event)


def attributes_of(message: Message, names: Container[str]) -> Attributes:
    """The attributes of a message that have one of these names.

    >>> from surecast.protocol.mqtt import Properties, encode_properties
    >>> properties = encode_properties(Properties(user=(("price", "36.5"), ("stock", "Foo"), ("by", "Ann"))), 3)
    >>> attributes_of(Message(1, "stocks", b"", b"", properties=properties), {"price", "stock"})
    {'price': 36.5, 'stock': 'Foo'}
    """
    attributes: Attributes = {}
    if message.properties:
        data = variable_bytes(len(message.properties)) + message.properties
        found = read_properties(PacketReader(data, 0, 0, len(data), "PUBLISH", ReaderSettings(5)), PacketType.PUBLISH)
        if _is_json(found.content_type or ""):
            _add_fields(message.payload, names, attributes)
        for name, value in found.user:
            if name in names:
                attributes[name] = _value(value)
    return attributes


def _is_json(content_type: str) -> bool:
    """Returns whether a media type, without its parameters, is that of JSON; only ASCII has two cases here."""
    media_type = content_type.partition(";")[0].strip(" \t")
    return media_type.isascii() and media_type.lower() == "application/json"


def _value(text: str) -> float | str:
    if len(text) <= _PROPERTY_NUMBER_MAX and _NUMBER.fullmatch(text):
        number = float(text)
        if math.isfinite(number):
            return number
    return text


def _add_fields(payload: bytes, names: Container[str], attributes: Attributes) -> None:
    """Adds the fields of a JSON object; a payload that is none, or is beyond a limit, has no fields.

    Of two fields with the same name the deeper one counts, and of two that are equally deep the later one.
    """
    objects = [("", _parsed(payload))]
    for prefix, fields in objects:
        room = ATTRIBUTE_NAME_MAX - len(prefix)
        for key, value in fields.items():
            if len(key) > room:
                continue
            name = prefix + key
            if isinstance(value, dict):
                objects.append((name + ".", value))
            elif name in names:
                if isinstance(value, bool):
                    attributes[name] = "true" if value else "false"
                elif isinstance(value, str) or (isinstance(value, int | float) and abs(value) < _NUMBER_LIMIT):
                    attributes[name] = value


def _parsed(payload: bytes) -> dict[str, Any]:
    """The object that a payload is by RFC 8259, in UTF-8 without a byte order mark; an empty one if it is none."""
    if len(payload) > JSON_BYTES_MAX or payload.count(b",") > JSON_COMMAS_MAX or not _is_shallow(payload):
        return {}
    try:
        data = _DECODER.decode(payload.decode("utf-8"))
    except ValueError:  # not UTF-8, or not JSON
        return {}
    return data if isinstance(data, dict) else {}


def _is_shallow(payload: bytes) -> bool:
    """Returns whether no bracket outside of text is nested too deep; brackets that do not pair are no JSON."""
    if payload.count(b"[") + payload.count(b"{") <= JSON_DEPTH_MAX:
        return True
    outside = payload.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2]
    brackets = b"".join(outside).translate(_BRACKETS, _NO_BRACKETS)
    for _ in range(JSON_DEPTH_MAX):
        brackets = brackets.replace(b"[]", b"")  # each time the innermost ones go
    return not brackets


def _whole(digits: str) -> int | None:
    return int(digits) if _is_number(digits) else None


def _real(digits: str) -> float | None:
    return float(digits) if _is_number(digits) else None


def _is_number(digits: str) -> bool:
    """Returns whether a number may be converted; some parsers take digits of other scripts for digits."""
    if not digits.isascii():
        raise ValueError("a digit that is not one of 0 to 9")
    return len(digits) <= NUMBER_CHARACTERS_MAX


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


_DECODER: Final = json.JSONDecoder(parse_int=_whole, parse_float=_real, parse_constant=_refuse)
