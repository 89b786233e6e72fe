"""Readers of the body of each packet: everything behind the fixed header, strictly by the standard's text.

Every function takes a reader that stands at the body's first byte and the packet's first byte, whose lower four bits
have been checked already. Where the standard leaves open whether something is malformed or a protocol error, the
choice is that of widespread test suites.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeVar

from surecast.protocol.mqtt.packet_errors import PacketError
from surecast.protocol.mqtt.packets import (
    V5,
    V31,
    V311,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Unsuback,
    Unsubscribe,
    Will,
    publish_from_wire,
)
from surecast.protocol.mqtt.properties import NO_PROPERTIES, WILL, Properties
from surecast.protocol.mqtt.reasons import ALLOWED_REASONS, ReasonCode, connack_reason
from surecast.protocol.mqtt.topics import (
    SharedError,
    TopicError,
    parse_shared,
    validate_filter,
    validate_topic_name,
)
from surecast.protocol.mqtt.wire import MAX_CONNECT_PROPERTIES, PacketReader, read_properties

__all__ = ["RAW_LIMIT", "read_body", "read_topic"]

RAW_LIMIT: Final = 65_536
"""A longer PUBLISH does not keep its own bytes: they would double the memory, and encoding costs little beside them."""

_PINGREQ: Final = Pingreq()
_PINGRESP: Final = Pingresp()

A = TypeVar("A", Puback, Pubrec, Pubrel, Pubcomp)


def read_body(reader: PacketReader, first: int) -> Packet:
    """The packet whose body the reader stands at.

    >>> from surecast.protocol.mqtt.wire import ReaderSettings
    >>> read_body(PacketReader(bytes.fromhex("40020007"), 0, 2, 4, "PUBACK", ReaderSettings(V5)), 0x40)
    Puback(packet_id=7, reason=<ReasonCode.SUCCESS: 0>, properties=Properties())
    """
    packet = _BODIES[first >> 4](reader, first)
    reader.finish()
    return packet


def _connect(reader: PacketReader, first: int) -> Connect:
    name = reader.binary("the protocol name")
    if name not in (b"MQTT", b"MQIsdp"):
        problem = f"the protocol name is {name[:20]!r}, not b'MQTT'"
        raise reader.forbidden(problem, reader.start, ReasonCode.UNSUPPORTED_PROTOCOL_VERSION)
    at = reader.position
    level = reader.byte("the protocol level")
    try:
        if level not in ((V31,) if name == b"MQIsdp" else (V311, V5)):
            problem = (
                f"the protocol is {name.decode()} level {level}; MQTT levels 4 (3.1.1) and 5 (5.0) and MQIsdp level 3 "
                "(3.1) are spoken here"
            )
            raise reader.forbidden(problem, at, ReasonCode.UNSUPPORTED_PROTOCOL_VERSION)
        most = min(MAX_CONNECT_PROPERTIES, reader.settings.max_user_properties)
        reader.settings = replace(reader.settings, version=level, max_user_properties=most)
        packet = _connect_content(reader, level)
        reader.finish()
    except PacketError as error:
        error.version = level
        raise
    return packet


def _connect_content(reader: PacketReader, version: int) -> Connect:
    at = reader.position
    flags = reader.byte("the connect flags")
    _check_connect_flags(reader, flags, version, at)
    keep_alive_s = reader.two("the keep alive")
    properties = NO_PROPERTIES
    if version == V5:
        properties = read_properties(reader, PacketType.CONNECT)
        _check_authentication(reader, properties)
    client_id = reader.text("the client identifier", ReasonCode.CLIENT_IDENTIFIER_NOT_VALID)
    will = _will(reader, flags, version) if flags & 0x04 else None
    # In MQTT 3.1 the length of the packet takes precedence over these flags (section 3.1 there).
    given = flags if version != V31 or reader.left else 0
    username = reader.text("the user name") if given & 0x80 else None
    given = given if version != V31 or reader.left else 0
    password = reader.binary("the password") if given & 0x40 else None
    return Connect(client_id, bool(flags & 0x02), keep_alive_s, username, password, will, properties, version)


def _check_connect_flags(reader: PacketReader, flags: int, version: int, at: int) -> None:
    problem = ""
    if flags & 0x01:
        problem = "the reserved connect flag is set"
    elif flags & 0x18 == 0x18:
        problem = "the QoS of the will is 3"
    elif not flags & 0x04 and flags & 0x38:
        problem = "there is a QoS or retain flag of a will, but no will"
    elif version != V5 and flags & 0xC0 == 0x40:
        problem = "there is a password without a user name"
    if problem:
        raise reader.malformed(problem, at)


def _will(reader: PacketReader, flags: int, version: int) -> Will:
    properties = read_properties(reader, WILL) if version == V5 else NO_PROPERTIES
    topic = read_topic(reader, "the will topic")
    return Will(topic, reader.binary("the will payload"), flags >> 3 & 3, bool(flags & 0x20), properties)


def _connack(reader: PacketReader, first: int) -> Connack:
    at = reader.position
    flags = reader.byte("the acknowledge flags")
    if flags > 1:
        raise reader.malformed(f"the acknowledge flags are 0x{flags:02X}; all but the lowest bit are reserved", at)
    properties = NO_PROPERTIES
    if reader.settings.version == V5:
        reason = _reason(reader)
        properties = read_properties(reader, PacketType.CONNACK)
        _check_authentication(reader, properties)
    else:
        code = reader.byte("the return code")
        known = connack_reason(code)
        if known is None:
            raise reader.forbidden(f"the return code {code} is reserved", at + 1)
        reason = known
    if flags and reason:
        raise reader.forbidden("a session is said to be present in a refusal", at)
    return Connack(bool(flags), reason, properties)


def _publish(reader: PacketReader, first: int) -> Publish:
    qos = first >> 1 & 3
    at = reader.position
    topic = reader.text("the topic name")
    if topic:
        _check_topic(reader, topic, at)
    packet_id = reader.packet_id() if qos else 0
    properties, raw_properties = NO_PROPERTIES, b""
    if reader.settings.version == V5:
        begin = reader.position
        properties = read_properties(reader, PacketType.PUBLISH)
        if properties is not NO_PROPERTIES:
            raw_properties = _raw_properties(reader, begin)
        if properties.subscription_ids and reader.settings.from_client:
            raise reader.forbidden("a client sends no subscription identifier with a message", begin)
        if not topic and properties.topic_alias is None:
            raise reader.forbidden("the topic name is empty and there is no topic alias", at)
    elif not topic:
        raise reader.malformed("the topic name is empty", at)
    payload = reader.rest()
    raw = reader.data[reader.start : reader.end] if reader.end - reader.start <= RAW_LIMIT else b""
    flags = (qos, bool(first & 1), bool(first & 8))
    return publish_from_wire(topic, payload, flags, packet_id, raw, properties, raw_properties)


def _raw_properties(reader: PacketReader, begin: int) -> bytes:
    """The bytes between the property length, which begins at `begin`, and the reader's position."""
    while reader.data[begin] & 128:
        begin += 1
    return reader.data[begin + 1 : reader.position]


def _acknowledgement(kind: type[A]) -> Callable[[PacketReader, int], A]:
    def read(reader: PacketReader, first: int) -> A:
        packet_id = reader.packet_id()
        if reader.settings.version != V5 or not reader.left:
            return kind(packet_id)
        reason = _reason(reader)
        return kind(packet_id, reason, read_properties(reader, first >> 4) if reader.left else NO_PROPERTIES)

    return read


def _subscribe(reader: PacketReader, first: int) -> Subscribe:
    packet_id = _nonzero_id(reader)
    properties = _some_properties(reader, first)
    if not reader.left:
        raise reader.forbidden("there is no topic filter to subscribe to")
    subscriptions: list[SubscriptionRequest] = []
    while reader.left:
        subscriptions.append(_subscription(reader, _filter(reader)))
        if len(subscriptions) > reader.settings.max_filters:
            raise reader.too_many(reader.settings.max_filters, "topic filters", "packet_filters")
    return Subscribe(packet_id, tuple(subscriptions), properties)


def _subscription(reader: PacketReader, filter: str) -> SubscriptionRequest:
    at = reader.position
    options = reader.byte("the subscription options")
    version = reader.settings.version
    reserved = 0xC0 if version == V5 else 0xFC
    if options & reserved:
        raise reader.malformed(f"the subscription options 0x{options:02X} have reserved bits set", at)
    if options & 3 == 3:
        problem = "the QoS of a subscription is 3"
        raise reader.forbidden(problem, at) if version == V5 else reader.malformed(problem, at)
    if version != V5:
        return SubscriptionRequest(filter, options)
    if options & 0x30 == 0x30:
        raise reader.forbidden("the retain handling is 3", at)
    if options & 0x04 and filter.startswith("$share/"):
        raise reader.forbidden("a shared subscription has the option no local", at)
    return SubscriptionRequest(filter, options & 3, bool(options & 4), bool(options & 8), options >> 4)


def _suback(reader: PacketReader, first: int) -> Suback:
    packet_id = _nonzero_id(reader)
    properties = _some_properties(reader, first)
    if not reader.left:
        raise reader.forbidden("there is no reason code")
    reasons = tuple(_reason(reader) for _ in range(reader.left))
    if reader.settings.version != V5 and any(reason > 2 and reason != 0x80 for reason in reasons):
        raise reader.forbidden("a return code is none of 0, 1, 2 and 0x80", reader.end - len(reasons))
    return Suback(packet_id, reasons, properties)


def _unsubscribe(reader: PacketReader, first: int) -> Unsubscribe:
    packet_id = _nonzero_id(reader)
    properties = _some_properties(reader, first)
    if not reader.left:
        raise reader.forbidden("there is no topic filter to unsubscribe from")
    filters: list[str] = []
    while reader.left:
        filters.append(_filter(reader))
        if len(filters) > reader.settings.max_filters:
            raise reader.too_many(reader.settings.max_filters, "topic filters", "packet_filters")
    return Unsubscribe(packet_id, tuple(filters), properties)


def _unsuback(reader: PacketReader, first: int) -> Unsuback:
    packet_id = _nonzero_id(reader)
    if reader.settings.version != V5:
        return Unsuback(packet_id)
    properties = read_properties(reader, first >> 4)
    if not reader.left:
        raise reader.forbidden("there is no reason code")
    return Unsuback(packet_id, tuple(_reason(reader) for _ in range(reader.left)), properties)


def _disconnect(reader: PacketReader, first: int) -> Disconnect:
    if reader.settings.version != V5 or not reader.left:
        return Disconnect()
    reason = _reason(reader)
    at = reader.position
    properties = read_properties(reader, PacketType.DISCONNECT) if reader.left else NO_PROPERTIES
    if properties.session_expiry_s is not None and not reader.settings.from_client:
        raise reader.forbidden("a server sends no session expiry interval here", at)
    return Disconnect(reason, properties)


def _auth(reader: PacketReader, first: int) -> Auth:
    if not reader.left:
        return Auth()
    reason = _reason(reader)
    properties = read_properties(reader, PacketType.AUTH) if reader.left else NO_PROPERTIES
    if properties.authentication_method is None:
        raise reader.forbidden("the authentication method is missing")
    return Auth(reason, properties)


def _reason(reader: PacketReader) -> ReasonCode:
    at = reader.position
    code = reader.byte("the reason code")
    reason = ALLOWED_REASONS[reader.packet].get(code)
    if reason is None:
        raise reader.forbidden(f"0x{code:02X} is no reason code of {reader.packet}", at)
    return reason


def _nonzero_id(reader: PacketReader) -> int:
    at = reader.position
    packet_id = reader.two("the packet identifier")
    if not packet_id:
        raise reader.malformed("the packet identifier is 0", at)
    return packet_id


def _some_properties(reader: PacketReader, first: int) -> Properties:
    return read_properties(reader, first >> 4) if reader.settings.version == V5 else NO_PROPERTIES


def _check_authentication(reader: PacketReader, properties: Properties) -> None:
    if properties.authentication_data is not None and properties.authentication_method is None:
        raise reader.forbidden("there is authentication data without an authentication method")


def read_topic(reader: PacketReader, what: str = "the topic name") -> str:
    """Reads a topic name, with its length in front."""
    at = reader.position
    topic = reader.text(what)
    _check_topic(reader, topic, at)
    return topic


def _check_topic(reader: PacketReader, topic: str, at: int) -> None:
    try:
        validate_topic_name(topic, reader.settings.max_levels)
    except TopicError as error:
        if error.too_deep:
            raise reader.forbidden(str(error), at, ReasonCode.TOPIC_NAME_INVALID) from None
        raise reader.malformed(str(error), at) from None


def _filter(reader: PacketReader) -> str:
    at = reader.position
    wanted = reader.text("the topic filter")
    try:
        validate_filter(wanted, reader.settings.max_levels)
        if reader.settings.version == V5:
            parse_shared(wanted)
    except SharedError as error:
        raise reader.forbidden(str(error), at) from None
    except TopicError as error:
        if error.too_deep:
            raise reader.forbidden(str(error), at, ReasonCode.TOPIC_FILTER_INVALID) from None
        raise reader.malformed(str(error), at) from None
    return wanted


_BODIES: Final[dict[int, Callable[[PacketReader, int], Packet]]] = {
    PacketType.CONNECT: _connect,
    PacketType.CONNACK: _connack,
    PacketType.PUBLISH: _publish,
    PacketType.PUBACK: _acknowledgement(Puback),
    PacketType.PUBREC: _acknowledgement(Pubrec),
    PacketType.PUBREL: _acknowledgement(Pubrel),
    PacketType.PUBCOMP: _acknowledgement(Pubcomp),
    PacketType.SUBSCRIBE: _subscribe,
    PacketType.SUBACK: _suback,
    PacketType.UNSUBSCRIBE: _unsubscribe,
    PacketType.UNSUBACK: _unsuback,
    PacketType.PINGREQ: lambda reader, first: _PINGREQ,
    PacketType.PINGRESP: lambda reader, first: _PINGRESP,
    PacketType.DISCONNECT: _disconnect,
    PacketType.AUTH: _auth,
}
