"""The data types of the wire (MQTT 5.0, section 1.5), read and written.

Errors in what is read name the field and the byte.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from surecast.errors import ConfigurationError
from surecast.protocol.mqtt.packet_errors import MalformedPacket, ProtocolError
from surecast.protocol.mqtt.properties import NO_PROPERTIES, PROPERTIES, WILL, Properties, ValueType, properties_from
from surecast.protocol.mqtt.reasons import ReasonCode
from surecast.protocol.mqtt.topics import MAX_LEVELS, TopicError, validate_topic_name

__all__ = [
    "MAX_CONNECT_PROPERTIES",
    "MAX_FILTERS",
    "MAX_USER_PROPERTIES",
    "MAX_VARIABLE",
    "PacketReader",
    "ReaderSettings",
    "binary_bytes",
    "read_properties",
    "text_bytes",
    "text_problem",
    "variable_bytes",
]

MAX_VARIABLE: Final = 268_435_455
"""The largest variable byte integer, and so the largest remaining length."""

MAX_USER_PROPERTIES: Final = 1_000
"""The number of user properties that a packet of a client may have unless another limit is given."""

MAX_CONNECT_PROPERTIES: Final = 100
"""The number of them that a CONNECT or its will may have: whoever sends one is not known yet."""

MAX_FILTERS: Final = 1_000
"""The number of topic filters that one SUBSCRIBE or UNSUBSCRIBE may have unless another limit is given."""

_SUBSCRIBE: Final = 8
_ONE_BYTE: Final = [bytes((n,)) for n in range(128)]
# Control characters, and code points that Unicode promises never to give a meaning.
_UNWANTED: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\ufdd0-\ufdef"
    + "".join(chr(plane << 16 | n) for plane in range(17) for n in (0xFFFE, 0xFFFF))
    + "]"
)


@dataclass(frozen=True, slots=True)
class ReaderSettings:
    """The settings by which a packet's body is read. `from_client` says which side the packets come from.

    `max_user_properties` and `max_filters` bound what a single packet can cost. A client trusts its server with both.
    """

    version: int
    from_client: bool = True
    strict_text: bool = True
    max_levels: int = MAX_LEVELS
    max_user_properties: int = MAX_USER_PROPERTIES
    max_filters: int = MAX_FILTERS


def text_problem(text: str, strict: bool) -> str:
    """Returns what keeps a text off the wire: U+0000 always, and where `strict`, control characters and non-characters.

    >>> text_problem("a" + chr(0), False), text_problem("tab" + chr(9), True), text_problem("tab" + chr(9), False)
    ('has the character U+0000', 'has the character U+0009', '')
    """
    if text.isprintable():
        return ""
    found = _UNWANTED.search(text) if strict else re.search("\0", text)
    return f"has the character U+{ord(found.group()):04X}" if found else ""


class PacketReader:
    """Reads one packet's body from left to right. `start` is where the packet's first byte is in `data`."""

    __slots__ = ("data", "end", "packet", "position", "settings", "start")

    def __init__(self, data: bytes, start: int, position: int, end: int, packet: str, settings: ReaderSettings):
        self.data = data
        self.start = start
        self.position = position
        self.end = end
        self.packet = packet
        self.settings = settings

    @property
    def left(self) -> int:
        """Returns the number of bytes that are still to be read."""
        return self.end - self.position

    def malformed(self, problem: str, at: int | None = None, reason: ReasonCode | None = None) -> MalformedPacket:
        """An error at a byte of `data`, by default the next to be read."""
        return MalformedPacket(self.packet, (self.position if at is None else at) - self.start, problem, reason)

    def too_many(self, count_max: int, what: str, limit: str) -> ProtocolError:
        """Likewise, for more than `count_max` of something in one packet; `limit` is the name in the configuration."""
        error = self.forbidden(f"there are more than {count_max} {what}", None, ReasonCode.QUOTA_EXCEEDED)
        error.limit = limit
        return error

    def forbidden(self, problem: str, at: int | None = None, reason: ReasonCode | None = None) -> ProtocolError:
        """Likewise, for what can be read but is not allowed."""
        return ProtocolError(self.packet, (self.position if at is None else at) - self.start, problem, reason)

    def byte(self, what: str) -> int:
        at = self._take(1, what)
        return self.data[at]

    def two(self, what: str) -> int:
        at = self._take(2, what)
        return self.data[at] << 8 | self.data[at + 1]

    def four(self, what: str) -> int:
        at = self._take(4, what)
        return int.from_bytes(self.data[at : at + 4], "big")

    def variable(self, what: str) -> int:
        at, value = self.position, 0
        if at < self.end and (byte := self.data[at]) < 128:  # nearly always
            self.position = at + 1
            return byte
        for shift in (0, 7, 14, 21):
            byte = self.byte(what)
            value |= (byte & 127) << shift
            if byte < 128:
                if not byte and shift:
                    raise self.malformed(f"{what} is written with more bytes than needed", at)
                return value
        raise self.malformed(f"{what} has more than four bytes", at)

    def binary(self, what: str) -> bytes:
        length = self.two(f"the length of {what}")
        at = self._take(length, what)
        return self.data[at : at + length]

    def text(self, what: str, reason: ReasonCode | None = None) -> str:
        at, data = self.position, self.data
        begin = at + 2
        if begin > self.end:
            raise self.malformed(f"the packet ends before the end of the length of {what}")
        self.position = begin + (data[at] << 8 | data[at + 1])
        if self.position > self.end:
            raise self.malformed(f"the packet ends before the end of {what}", begin)
        try:
            text = data[begin : self.position].decode()
        except UnicodeDecodeError as error:
            raise self.malformed(f"{what} is not UTF-8: {error.reason}", begin + error.start, reason) from None
        if not text.isprintable() and (problem := text_problem(text, self.settings.strict_text)):
            raise self.malformed(f"{what} {problem}", at, reason)
        return text

    def packet_id(self) -> int:
        at = self.position
        packet_id = self.two("the packet identifier")
        if not packet_id:
            raise self.forbidden("the packet identifier is 0", at)
        return packet_id

    def rest(self) -> bytes:
        at, self.position = self.position, self.end
        return self.data[at : self.end]

    def finish(self) -> None:
        """Nothing may be left."""
        if self.position < self.end:
            raise self.malformed(f"{self.left} bytes are left after the end of the packet")

    def _take(self, count: int, what: str) -> int:
        at = self.position
        if at + count > self.end:
            raise self.malformed(f"the packet ends before the end of {what}")
        self.position = at + count
        return at


def read_properties(reader: PacketReader, carrier: int) -> Properties:
    """The properties at the reader's position; `carrier` is the packet's type, or `WILL`."""
    length = reader.variable("the property length")
    if not length:
        return NO_PROPERTIES
    end = reader.position + length
    if end > reader.end:
        raise reader.malformed(f"the properties have {length} bytes, but the packet has only {reader.left}")
    inner = PacketReader(reader.data, reader.start, reader.position, end, reader.packet, reader.settings)
    values: dict[str, Any] = {}
    repeated: dict[str, list[Any]] = {}
    while inner.position < end:
        _read_property(inner, carrier, values, repeated)
    for name, several in repeated.items():
        values[name] = tuple(several)
    reader.position = end
    return properties_from(values)


def _read_property(reader: PacketReader, carrier: int, values: dict[str, Any], repeated: dict[str, list[Any]]) -> None:
    at = reader.position
    identifier = reader.variable("a property identifier")
    known = _READS.get(identifier)
    if known is None:
        raise reader.malformed(f"there is no property 0x{identifier:02X}", at)
    line, read = known
    name = line.name
    if carrier not in line.carriers:
        where = f"the will of {reader.packet}" if carrier == WILL else reader.packet
        raise reader.malformed(f"the property {name} is not one of {where}", at)  # section 2.2.2.2
    value = read(reader, name)
    if type(value) is int:
        if value < line.lowest or (line.highest is not None and value > line.highest):
            raise reader.forbidden(f"the property {name} is {value}", at)
        if line.kind is ValueType.FLAG:
            value = value == 1
    elif name == "response_topic":
        _check_response_topic(reader, value, at)
    if line.repeats and (several := repeated.get(name)) is not None and (carrier != _SUBSCRIBE or name == "user"):
        several.append(value)
        if len(several) > reader.settings.max_user_properties:
            raise reader.too_many(reader.settings.max_user_properties, "user properties", "user_properties")
    elif name in values:
        raise reader.forbidden(f"the property {name} stands there twice", at)
    elif line.repeats:
        repeated[name] = [value]
        values[name] = ()  # its place among the others
    else:
        values[name] = value


def _check_response_topic(reader: PacketReader, topic: str, at: int) -> None:
    try:
        validate_topic_name(topic, reader.settings.max_levels)
    except TopicError as error:
        raise reader.forbidden(f"response_topic: {error}", at) from None


def _read_pair(reader: PacketReader, name: str) -> tuple[str, str]:
    return reader.text("the name of a user property"), reader.text("the value of a user property")


_READ_KIND: Final[dict[ValueType, Callable[[PacketReader, str], Any]]] = {
    ValueType.FLAG: PacketReader.byte,
    ValueType.BYTE: PacketReader.byte,
    ValueType.TWO: PacketReader.two,
    ValueType.FOUR: PacketReader.four,
    ValueType.VARIABLE: PacketReader.variable,
    ValueType.TEXT: PacketReader.text,
    ValueType.BINARY: PacketReader.binary,
    ValueType.PAIR: _read_pair,
}
_READS: Final = {identifier: (line, _READ_KIND[line.kind]) for identifier, line in PROPERTIES.items()}


def variable_bytes(value: int) -> bytes:
    """A variable byte integer, in as few bytes as it needs.

    >>> variable_bytes(127).hex(), variable_bytes(128).hex(), variable_bytes(268_435_455).hex()
    ('7f', '8001', 'ffffff7f')
    """
    if value < 128:
        return _ONE_BYTE[value]
    if value > MAX_VARIABLE:
        raise ConfigurationError(f"a length or number of {value} cannot be sent; the largest is {MAX_VARIABLE}")
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    made.append(value)
    return bytes(made)


def binary_bytes(value: bytes, what: str) -> bytes:
    """Binary data behind its length in two bytes.

    >>> binary_bytes(b"ab", "the password")
    b'\\x00\\x02ab'
    """
    if len(value) > 65_535:
        raise ConfigurationError(f"{what} has {len(value)} bytes; at most 65535 can be sent")
    return len(value).to_bytes(2, "big") + value


def text_bytes(text: str, what: str) -> bytes:
    """A text as UTF-8 behind its length in two bytes.

    >>> text_bytes("é", "the topic")
    b'\\x00\\x02\\xc3\\xa9'
    """
    if problem := text_problem(text, strict=False):
        raise ConfigurationError(f"{what} {text[:60]!r} {problem}, which cannot be sent")
    try:
        return binary_bytes(text.encode(), what)
    except UnicodeEncodeError:
        raise ConfigurationError(f"{what} {text[:60]!r} has a surrogate, which cannot be sent as UTF-8") from None
