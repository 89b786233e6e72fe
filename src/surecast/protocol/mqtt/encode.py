"""From packets to bytes.

What cannot be written is refused with a `ConfigurationError`; whether a packet makes sense is the sender's business.
Properties are left out of MQTT 3.1.1 packets, and reason codes become its return codes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from surecast.errors import ConfigurationError
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
)
from surecast.protocol.mqtt.properties import NO_PROPERTIES, PROPERTIES, WILL, Properties, PropertyType, ValueType
from surecast.protocol.mqtt.reasons import ALLOWED_REASONS, ReasonCode, connack_return_code, suback_return_code
from surecast.protocol.mqtt.wire import PacketReader, ReaderSettings, binary_bytes, text_bytes, variable_bytes

__all__ = ["encode", "encode_properties", "encode_publish", "passed_on_properties"]

_VERSIONS: Final = (V31, V311, V5)
_FIRST: Final = [bytes((n,)) for n in range(256)]
_SIZES: Final = {ValueType.FLAG: 1, ValueType.BYTE: 1, ValueType.TWO: 2, ValueType.FOUR: 4}
_CHANGED_BY_SERVER: Final = {"message_expiry_s", "topic_alias", "subscription_ids"}


def encode(packet: Packet, version: int) -> bytes:
    """A packet's bytes in the given protocol version, `V31`, `V311` or `V5`.

    >>> encode(Puback(7), V311).hex(), encode(Puback(7, ReasonCode.NOT_AUTHORIZED), V5).hex()
    ('40020007', '4003000787')
    """
    if version not in _VERSIONS:
        raise ConfigurationError(
            f"version {version} of MQTT is not known; the levels are 3 (3.1), 4 (3.1.1) and 5 (5.0)"
        )
    return _ENCODERS[type(packet)](packet, version)


def encode_publish(
    topic: bytes,
    payload: bytes,
    qos: int = 0,
    retain: bool = False,
    dup: bool = False,
    packet_id: int = 0,
    properties: bytes = b"",
    version: int = V5,
) -> bytes:
    """A PUBLISH from parts that are encoded and checked already. `properties` come without their length.

    >>> encode_publish(b"a/b", b"hi", version=V311)
    b'0\\x07\\x00\\x03a/bhi'
    """
    first = _FIRST[0x30 | dup << 3 | qos << 1 | retain]
    head = len(topic).to_bytes(2, "big") + topic
    if qos:
        head += packet_id.to_bytes(2, "big")
    if version == V5:
        head += variable_bytes(len(properties)) + properties if properties else b"\0"
    return b"".join((first, variable_bytes(len(head) + len(payload)), head, payload))


def encode_properties(properties: Properties, carrier: int) -> bytes:
    """The bytes of properties, without their length; `carrier` is a packet type, or `WILL`.

    >>> encode_properties(Properties(topic_alias=7), PacketType.PUBLISH).hex()
    '230007'
    """
    if properties is NO_PROPERTIES:
        return b""
    made = bytearray()
    for line in PROPERTIES.values():
        value = getattr(properties, line.name)
        if value is None or value == ():
            continue
        if carrier not in line.carriers:
            where = "a will" if carrier == WILL else PacketType(carrier).name
            raise ConfigurationError(f"the property {line.name} cannot be sent with {where}")
        if line.name == "subscription_ids" and carrier == PacketType.SUBSCRIBE and len(value) > 1:
            raise ConfigurationError("a SUBSCRIBE has at most one subscription identifier")
        for one in value if line.repeats else (value,):
            made.append(line.identifier)
            made += _value_bytes(line, one)
    return bytes(made)


def passed_on_properties(packet: Publish, meant_for_server: str | None = None) -> bytes:
    """The properties of a decoded PUBLISH that a server must pass on unaltered, as they came and in their order.

    Left out are message expiry, topic alias and subscription identifiers, which the server writes itself, and user
    properties with a name that is meant for the server alone.
    """
    raw, given = packet.raw_properties, packet.properties
    private = any(name == meant_for_server for name, _ in given.user)
    if not raw or not (private or any(name in vars(given) for name in _CHANGED_BY_SERVER)):
        return raw
    hidden = b"" if meant_for_server is None else text_bytes(meant_for_server, "the name of a property")
    kept: list[bytes] = []
    reader = PacketReader(raw, 0, 0, len(raw), "PUBLISH", ReaderSettings(V5, strict_text=False))
    while reader.left:
        begin = reader.position
        line = PROPERTIES[reader.variable("a property identifier")]
        _skip(reader, line.kind)
        is_hidden = private and line.kind is ValueType.PAIR and raw.startswith(hidden, begin + 1)
        if line.name not in _CHANGED_BY_SERVER and not is_hidden:
            kept.append(raw[begin : reader.position])
    return b"".join(kept)


def _skip(reader: PacketReader, kind: ValueType) -> None:
    if kind in _SIZES:
        reader.position += _SIZES[kind]
    elif kind is ValueType.VARIABLE:
        reader.variable("a property")
    else:
        for _ in range(2 if kind is ValueType.PAIR else 1):
            reader.position += 2 + int.from_bytes(reader.data[reader.position : reader.position + 2], "big")


def _value_bytes(line: PropertyType, value: Any) -> bytes:
    what = f"the property {line.name}"
    if line.kind is ValueType.PAIR:
        name, text = value
        return text_bytes(name, what) + text_bytes(text, what)
    if line.kind is ValueType.TEXT:
        return text_bytes(value, what)
    if line.kind is ValueType.BINARY:
        return binary_bytes(value, what)
    if not line.lowest <= value <= (line.highest if line.highest is not None else value):
        raise ConfigurationError(f"{what} cannot be {value}")
    return variable_bytes(value) if line.kind is ValueType.VARIABLE else _number(value, _SIZES[line.kind], what)


def _number(value: int, size: int, what: str, lowest: int = 0) -> bytes:
    if not lowest <= value < 1 << 8 * size:
        raise ConfigurationError(f"{what} is {value}; it must be from {lowest} to {(1 << 8 * size) - 1}")
    return value.to_bytes(size, "big")


def _packet_id(packet_id: int) -> bytes:
    return _number(packet_id, 2, "the packet identifier", lowest=1)


def _packet(first: int, *parts: bytes) -> bytes:
    return b"".join((_FIRST[first], variable_bytes(sum(map(len, parts))), *parts))


def _with_length(properties: Properties, carrier: int, version: int) -> bytes:
    if version != V5:
        return b""
    encoded = encode_properties(properties, carrier)
    return variable_bytes(len(encoded)) + encoded


def _reason(name: str, reason: int) -> bytes:
    if reason not in ALLOWED_REASONS[name]:
        raise ConfigurationError(f"{ReasonCode(reason).name} is no reason code of {name}")
    return _FIRST[reason]


def _checked_qos(qos: int) -> int:
    if qos not in (0, 1, 2):
        raise ConfigurationError(f"the QoS is {qos}; it must be 0, 1 or 2")
    return qos


def _connect(packet: Connect, version: int) -> bytes:
    if packet.version != version:
        raise ConfigurationError(f"a CONNECT for version {packet.version} is to be sent as version {version}")
    if version != V5 and packet.password is not None and packet.username is None:
        raise ConfigurationError("before MQTT 5.0 there is no password without a user name")
    flags = packet.clean_start << 1 | (packet.username is not None) << 7 | (packet.password is not None) << 6
    parts = [text_bytes(packet.client_id, "the client identifier")]
    if packet.will is not None:
        flags |= 0x04 | _checked_qos(packet.will.qos) << 3 | packet.will.retain << 5
        parts += _will(packet.will, version)
    if packet.username is not None:
        parts.append(text_bytes(packet.username, "the user name"))
    if packet.password is not None:
        parts.append(binary_bytes(packet.password, "the password"))
    name = b"\0\6MQIsdp" if version == V31 else b"\0\4MQTT"
    head = name + bytes((version, flags)) + _number(packet.keep_alive_s, 2, "the keep alive")
    return _packet(0x10, head, _with_length(packet.properties, PacketType.CONNECT, version), *parts)


def _will(will: Will, version: int) -> Iterable[bytes]:
    yield _with_length(will.properties, WILL, version)
    yield text_bytes(will.topic, "the will topic")
    yield binary_bytes(will.payload, "the will payload")


def _connack(packet: Connack, version: int) -> bytes:
    if version != V5:
        return _packet(0x20, bytes((packet.session_present, connack_return_code(packet.reason))))
    head = _FIRST[packet.session_present] + _reason("CONNACK", packet.reason)
    return _packet(0x20, head, _with_length(packet.properties, PacketType.CONNACK, version))


def _publish(packet: Publish, version: int) -> bytes:
    qos = _checked_qos(packet.qos)
    if qos:
        _packet_id(packet.packet_id)
    elif packet.dup:
        raise ConfigurationError("a message of QoS 0 cannot be marked as a duplicate")
    properties = encode_properties(packet.properties, PacketType.PUBLISH) if version == V5 else b""
    topic = text_bytes(packet.topic, "the topic name")[2:]
    return encode_publish(topic, packet.payload, qos, packet.retain, packet.dup, packet.packet_id, properties, version)


def _acknowledgement(packet: Puback | Pubrec | Pubrel | Pubcomp, version: int) -> bytes:
    name = type(packet).__name__.upper()
    kind = PacketType[name]
    first = kind << 4 | (2 if kind is PacketType.PUBREL else 0)
    packet_id = _packet_id(packet.packet_id)
    return _packet(first, packet_id, _outcome(packet.reason, packet.properties, kind, version))


def _outcome(reason: ReasonCode, properties: Properties, kind: PacketType, version: int) -> bytes:
    """Reason code and properties, in the shortest form that says them."""
    if version != V5:
        return b""
    encoded = encode_properties(properties, kind)
    code = _reason(kind.name, reason)
    if encoded:
        return code + variable_bytes(len(encoded)) + encoded
    return code if reason else b""


def _subscribe(packet: Subscribe, version: int) -> bytes:
    if not packet.subscriptions:
        raise ConfigurationError("a SUBSCRIBE must have at least one subscription")
    parts = [_packet_id(packet.packet_id), _with_length(packet.properties, PacketType.SUBSCRIBE, version)]
    for wanted in packet.subscriptions:
        parts += (text_bytes(wanted.filter, "the topic filter"), _options(wanted, version))
    return _packet(0x82, *parts)


def _options(wanted: SubscriptionRequest, version: int) -> bytes:
    qos = _checked_qos(wanted.qos)
    if version != V5:
        return _FIRST[qos]
    if wanted.retain_handling not in (0, 1, 2):
        raise ConfigurationError(f"the retain handling is {wanted.retain_handling}; it must be 0, 1 or 2")
    return _FIRST[qos | wanted.no_local << 2 | wanted.retain_as_published << 3 | wanted.retain_handling << 4]


def _suback(packet: Suback, version: int) -> bytes:
    if not packet.reasons:
        raise ConfigurationError("a SUBACK must have at least one reason code")
    if version != V5:
        codes = bytes(suback_return_code(reason) for reason in packet.reasons)
    else:
        codes = b"".join(_reason("SUBACK", reason) for reason in packet.reasons)
    properties = _with_length(packet.properties, PacketType.SUBACK, version)
    return _packet(0x90, _packet_id(packet.packet_id), properties, codes)


def _unsubscribe(packet: Unsubscribe, version: int) -> bytes:
    if not packet.filters:
        raise ConfigurationError("an UNSUBSCRIBE must have at least one topic filter")
    filters = (text_bytes(unwanted, "the topic filter") for unwanted in packet.filters)
    properties = _with_length(packet.properties, PacketType.UNSUBSCRIBE, version)
    return _packet(0xA2, _packet_id(packet.packet_id), properties, *filters)


def _unsuback(packet: Unsuback, version: int) -> bytes:
    if version != V5:
        return _packet(0xB0, _packet_id(packet.packet_id))
    if not packet.reasons:
        raise ConfigurationError("an UNSUBACK must have at least one reason code")
    codes = b"".join(_reason("UNSUBACK", reason) for reason in packet.reasons)
    properties = _with_length(packet.properties, PacketType.UNSUBACK, version)
    return _packet(0xB0, _packet_id(packet.packet_id), properties, codes)


def _disconnect(packet: Disconnect, version: int) -> bytes:
    return _packet(0xE0, _outcome(packet.reason, packet.properties, PacketType.DISCONNECT, version))


def _auth(packet: Auth, version: int) -> bytes:
    if version != V5:
        raise ConfigurationError("before MQTT 5.0 there is no AUTH")
    return _packet(0xF0, _outcome(packet.reason, packet.properties, PacketType.AUTH, version))


_ENCODERS: Final[dict[type, Callable[[Any, int], bytes]]] = {
    Connect: _connect,
    Connack: _connack,
    Publish: _publish,
    Puback: _acknowledgement,
    Pubrec: _acknowledgement,
    Pubrel: _acknowledgement,
    Pubcomp: _acknowledgement,
    Subscribe: _subscribe,
    Suback: _suback,
    Unsubscribe: _unsubscribe,
    Unsuback: _unsuback,
    Pingreq: lambda packet, version: b"\xc0\0",
    Pingresp: lambda packet, version: b"\xd0\0",
    Disconnect: _disconnect,
    Auth: _auth,
}
