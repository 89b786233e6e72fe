"""Reason codes: what a packet says about the outcome of another one (MQTT 5.0, section 2.4)."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

__all__ = [
    "ALLOWED_REASONS",
    "CONNACK_RETURN_CODES",
    "ReasonCode",
    "connack_reason",
    "connack_return_code",
    "suback_return_code",
]


class ReasonCode(IntEnum):
    """All reason codes of MQTT 5.0; codes from 0x80 on are failures. Where one code has several names, all are here.

    >>> ReasonCode(0x87).name, ReasonCode.GRANTED_QOS_0 is ReasonCode.SUCCESS, ReasonCode.NOT_AUTHORIZED.is_failure
    ('NOT_AUTHORIZED', True, True)
    """

    SUCCESS = 0x00
    NORMAL_DISCONNECTION = 0x00
    GRANTED_QOS_0 = 0x00
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL_MESSAGE = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    REAUTHENTICATE = 0x19
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_IDENTIFIER_IN_USE = 0x91
    PACKET_IDENTIFIER_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2

    @property
    def is_failure(self) -> bool:
        return self >= 0x80


def _codes(*codes: int) -> dict[int, ReasonCode]:
    return {code: ReasonCode(code) for code in codes}


_ACKNOWLEDGED: Final = _codes(0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99)
_RELEASED: Final = _codes(0x00, 0x92)

ALLOWED_REASONS: Final[dict[str, dict[int, ReasonCode]]] = {
    "CONNACK": _codes(0x00, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, 0x99, *range(0x9A, 0x9E), 0x9F),
    "PUBACK": _ACKNOWLEDGED,
    "PUBREC": _ACKNOWLEDGED,
    "PUBREL": _RELEASED,
    "PUBCOMP": _RELEASED,
    "SUBACK": _codes(0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2),
    "UNSUBACK": _codes(0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91),
    "DISCONNECT": _codes(0x00, 0x04, *range(0x80, 0x84), 0x87, 0x89, *range(0x8B, 0x91), *range(0x93, 0xA3)),
    "AUTH": _codes(0x00, 0x18, 0x19),
}
"""The codes that each packet may carry, by the packet's name. The keys of the inner tables are the bytes."""

CONNACK_RETURN_CODES: Final = {
    0: ReasonCode.SUCCESS,
    1: ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
    2: ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
    3: ReasonCode.SERVER_UNAVAILABLE,
    4: ReasonCode.BAD_USER_NAME_OR_PASSWORD,
    5: ReasonCode.NOT_AUTHORIZED,
}
"""The return codes of an MQTT 3.1.1 CONNACK (table 3.1 there) and what they are in MQTT 5.0."""

_RETURN_CODE: Final = {reason: code for code, reason in CONNACK_RETURN_CODES.items()} | {
    ReasonCode.BAD_AUTHENTICATION_METHOD: 4,
    ReasonCode.BANNED: 5,
}


def connack_reason(return_code: int) -> ReasonCode | None:
    """Returns the reason for the return code of an MQTT 3.1.1 CONNACK; None for a reserved one.

    >>> connack_reason(5).name, connack_reason(6)
    ('NOT_AUTHORIZED', None)
    """
    return CONNACK_RETURN_CODES.get(return_code)


def connack_return_code(reason: ReasonCode) -> int:
    """The return code for an MQTT 3.1.1 CONNACK; a failure that it has no code for is "server unavailable".

    >>> connack_return_code(ReasonCode.BAD_USER_NAME_OR_PASSWORD), connack_return_code(ReasonCode.QUOTA_EXCEEDED)
    (4, 3)
    """
    return _RETURN_CODE.get(reason, 3)


def suback_return_code(reason: ReasonCode) -> int:
    """The return code for an MQTT 3.1.1 SUBACK, which knows but one failure.

    >>> suback_return_code(ReasonCode.GRANTED_QOS_1), hex(suback_return_code(ReasonCode.NOT_AUTHORIZED))
    (1, '0x80')
    """
    return min(int(reason), 0x80)
