"""The properties of MQTT 5.0 packets (section 2.2.2): their names, their types, and where each may stand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

__all__ = [
    "NO_PROPERTIES",
    "PROPERTIES",
    "WILL",
    "Properties",
    "PropertyType",
    "ValueType",
    "properties_from",
]

WILL: Final = 0
"""The place of the will's properties, beside those of the packet types, which count from 1."""


@dataclass(frozen=True)
class Properties:
    """The properties of a packet; None stands for a property that is absent.

    `user` keeps its pairs in order, and a name may come more than once. A SUBSCRIBE has at most one subscription
    identifier, a PUBLISH one of every subscription it is sent for.

    >>> Properties(message_expiry_s=30, user=(("unit", "mm"),))
    Properties(message_expiry_s=30, user=(('unit', 'mm'),))
    """

    payload_format: int | None = None
    message_expiry_s: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_ids: tuple[int, ...] = ()
    session_expiry_s: int | None = None
    assigned_client_id: str | None = None
    server_keep_alive_s: int | None = None
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    request_problem_information: bool | None = None
    will_delay_s: int | None = None
    request_response_information: bool | None = None
    response_information: str | None = None
    server_reference: str | None = None
    reason_string: str | None = None
    receive_maximum: int | None = None
    topic_alias_maximum: int | None = None
    topic_alias: int | None = None
    maximum_qos: int | None = None
    retain_available: bool | None = None
    user: tuple[tuple[str, str], ...] = ()
    maximum_packet_size: int | None = None
    wildcard_subscription_available: bool | None = None
    subscription_id_available: bool | None = None
    shared_subscription_available: bool | None = None

    def __bool__(self) -> bool:
        return self != NO_PROPERTIES

    def __repr__(self) -> str:
        given = (f"{name}={getattr(self, name)!r}" for name in _DEFAULTS if getattr(self, name) != _DEFAULTS[name])
        return f"Properties({', '.join(given)})"


_DEFAULTS: Final = {name: field.default for name, field in Properties.__dataclass_fields__.items()}

NO_PROPERTIES: Final = Properties()
"""The properties of a packet that has none, as every packet of MQTT 3.1.1."""


def properties_from(values: Mapping[str, Any]) -> Properties:
    """Properties with just these values, which are not checked. It costs what is there, not what there could be.

    >>> properties_from({"topic_alias": 3}) == Properties(topic_alias=3)
    True
    """
    made = object.__new__(Properties)
    made.__dict__.update(values)  # absent names are found in the class, as the fields' defaults
    return made


class ValueType(Enum):
    """The ways in which values are written."""

    FLAG = "byte, 0 or 1"
    BYTE = "byte"
    TWO = "two byte integer"
    FOUR = "four byte integer"
    VARIABLE = "variable byte integer"
    TEXT = "UTF-8 encoded string"
    BINARY = "binary data"
    PAIR = "UTF-8 string pair"


@dataclass(frozen=True, slots=True)
class PropertyType:
    """One line of table 2-4 of the standard. `carriers` are packet types, or `WILL`.

    The values of one that `repeats` are collected in a tuple; several subscription identifiers are for PUBLISH only.
    """

    identifier: int
    name: str
    kind: ValueType
    carriers: frozenset[int]
    lowest: int = 0
    highest: int | None = None
    repeats: bool = False


_CONNECT, _CONNACK, _PUBLISH, _SUBSCRIBE, _DISCONNECT, _AUTH = 1, 2, 3, 8, 14, 15
_ACKS: Final = (4, 5, 6, 7, 9, 11)
_MESSAGE: Final = (_PUBLISH, WILL)
_AUTHENTICATING: Final = (_CONNECT, _CONNACK, _AUTH)
_BOTH: Final = (_CONNECT, _CONNACK)


def _line(
    identifier: int, name: str, kind: ValueType, *carriers: int, lowest: int = 0, highest: int | None = None
) -> PropertyType:
    highest = 1 if kind is ValueType.FLAG else highest
    return PropertyType(
        identifier, name, kind, frozenset(carriers), lowest, highest, kind in (ValueType.PAIR, ValueType.VARIABLE)
    )


PROPERTIES: Final[Mapping[int, PropertyType]] = {
    line.identifier: line
    for line in (
        _line(0x01, "payload_format", ValueType.BYTE, *_MESSAGE, highest=1),
        _line(0x02, "message_expiry_s", ValueType.FOUR, *_MESSAGE),
        _line(0x03, "content_type", ValueType.TEXT, *_MESSAGE),
        _line(0x08, "response_topic", ValueType.TEXT, *_MESSAGE),
        _line(0x09, "correlation_data", ValueType.BINARY, *_MESSAGE),
        _line(0x0B, "subscription_ids", ValueType.VARIABLE, _PUBLISH, _SUBSCRIBE, lowest=1),
        _line(0x11, "session_expiry_s", ValueType.FOUR, *_BOTH, _DISCONNECT),
        _line(0x12, "assigned_client_id", ValueType.TEXT, _CONNACK),
        _line(0x13, "server_keep_alive_s", ValueType.TWO, _CONNACK),
        _line(0x15, "authentication_method", ValueType.TEXT, *_AUTHENTICATING),
        _line(0x16, "authentication_data", ValueType.BINARY, *_AUTHENTICATING),
        _line(0x17, "request_problem_information", ValueType.FLAG, _CONNECT),
        _line(0x18, "will_delay_s", ValueType.FOUR, WILL),
        _line(0x19, "request_response_information", ValueType.FLAG, _CONNECT),
        _line(0x1A, "response_information", ValueType.TEXT, _CONNACK),
        _line(0x1C, "server_reference", ValueType.TEXT, _CONNACK, _DISCONNECT),
        _line(0x1F, "reason_string", ValueType.TEXT, _CONNACK, *_ACKS, _DISCONNECT, _AUTH),
        _line(0x21, "receive_maximum", ValueType.TWO, *_BOTH, lowest=1),
        _line(0x22, "topic_alias_maximum", ValueType.TWO, *_BOTH),
        _line(0x23, "topic_alias", ValueType.TWO, _PUBLISH, lowest=1),
        _line(0x24, "maximum_qos", ValueType.BYTE, _CONNACK, highest=1),
        _line(0x25, "retain_available", ValueType.FLAG, _CONNACK),
        _line(0x26, "user", ValueType.PAIR, *_BOTH, *_MESSAGE, *_ACKS, _SUBSCRIBE, 10, _DISCONNECT, _AUTH),
        _line(0x27, "maximum_packet_size", ValueType.FOUR, *_BOTH, lowest=1),
        _line(0x28, "wildcard_subscription_available", ValueType.FLAG, _CONNACK),
        _line(0x29, "subscription_id_available", ValueType.FLAG, _CONNACK),
        _line(0x2A, "shared_subscription_available", ValueType.FLAG, _CONNACK),
    )
}
"""Table 2-4 of the standard, by identifier."""
