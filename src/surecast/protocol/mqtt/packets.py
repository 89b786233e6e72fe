"""The control packets of MQTT 3.1, 3.1.1 and 5.0 as immutable values, the same for all versions.

Version 3.1.1 has no properties and few reason codes: its packets have `NO_PROPERTIES`, and its return codes are read
as the reason codes of 5.0 and written back as the nearest return code.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, TypeAlias

from surecast.protocol.mqtt.properties import NO_PROPERTIES, Properties
from surecast.protocol.mqtt.reasons import ReasonCode

__all__ = [
    "V5",
    "V31",
    "V311",
    "Auth",
    "Connack",
    "Connect",
    "Disconnect",
    "Packet",
    "PacketType",
    "Pingreq",
    "Pingresp",
    "Puback",
    "Pubcomp",
    "Publish",
    "Pubrec",
    "Pubrel",
    "Suback",
    "Subscribe",
    "SubscriptionRequest",
    "Unsuback",
    "Unsubscribe",
    "Will",
    "publish_from_wire",
]

V31: Final = 3
"""The protocol level of MQTT 3.1, whose protocol name is `MQIsdp`; on the wire it is nearly 3.1.1."""

V311: Final = 4
"""The protocol level of MQTT 3.1.1."""

V5: Final = 5
"""The protocol level of MQTT 5.0."""


class PacketType(IntEnum):
    """The high four bits of a packet's first byte."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


@dataclass(frozen=True, slots=True)
class Will:
    """The message that the server publishes for a client whose connection breaks."""

    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Connect:
    """A client opens a session. `version` is the protocol level; what it is decides how all that follows is read."""

    client_id: str = ""
    clean_start: bool = True
    keep_alive_s: int = 0
    username: str | None = None
    password: bytes | None = field(default=None, repr=False)
    will: Will | None = None
    properties: Properties = NO_PROPERTIES
    version: int = V5


@dataclass(frozen=True, slots=True)
class Connack:
    """The server accepts or refuses a connection."""

    session_present: bool = False
    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Publish:
    """An application message. `packet_id` is 0 at QoS 0, and `topic` is empty where an alias stands for it.

    A decoded packet remembers how it came: `raw` is all of it, if it is not long, so that it can be passed on as it
    is; `raw_properties` are the bytes of its properties without their length, in the order of the sender.
    """

    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    properties: Properties = NO_PROPERTIES
    raw_properties: bytes = field(default=b"", compare=False, repr=False)
    raw: bytes = field(default=b"", compare=False, repr=False)


class _Draft:
    """A Publish while it is made: of equal layout, but without the frozen one's slow way to set each field."""

    __slots__ = Publish.__slots__

    def __init__(
        self,
        topic: str,
        payload: bytes,
        qos: int,
        retain: bool,
        dup: bool,
        packet_id: int,
        properties: Properties,
        raw_properties: bytes,
        raw: bytes,
    ):
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.dup = dup
        self.packet_id = packet_id
        self.properties = properties
        self.raw_properties = raw_properties
        self.raw = raw


def publish_from_wire(
    topic: str,
    payload: bytes,
    flags: tuple[int, bool, bool],
    packet_id: int,
    raw: bytes,
    properties: Properties = NO_PROPERTIES,
    raw_properties: bytes = b"",
    new: type = _Draft,
) -> Publish:
    """A Publish, made in a third of the time. `flags` are QoS, retain and dup.

    >>> publish_from_wire("a/b", b"1", (1, False, True), 7, b"") == Publish("a/b", b"1", qos=1, dup=True, packet_id=7)
    True
    """
    qos, retain, dup = flags
    draft: Publish = new(topic, payload, qos, retain, dup, packet_id, properties, raw_properties, raw)
    draft.__class__ = Publish
    return draft


@dataclass(frozen=True, slots=True)
class Puback:
    """The receiver of a QoS 1 message has taken it over."""

    packet_id: int
    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Pubrec:
    """First answer to a QoS 2 message: received."""

    packet_id: int
    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Pubrel:
    """The sender of a QoS 2 message releases its identifier."""

    packet_id: int
    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Pubcomp:
    """Last answer to a QoS 2 message: complete."""

    packet_id: int
    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class SubscriptionRequest:
    """A topic filter and how its messages are wanted. All but `filter` and `qos` exist in version 5.0 only.

    `retain_handling` says when retained messages are sent: 0 at every SUBSCRIBE, 1 if it is new, 2 never.
    """

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


@dataclass(frozen=True, slots=True)
class Subscribe:
    """A client asks for topics."""

    packet_id: int
    subscriptions: tuple[SubscriptionRequest, ...]
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Suback:
    """The server's answer to a SUBSCRIBE, with one reason code for each subscription, in their order."""

    packet_id: int
    reasons: tuple[ReasonCode, ...]
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """A client no longer wants topics."""

    packet_id: int
    filters: tuple[str, ...]
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Unsuback:
    """The server's answer to an UNSUBSCRIBE; version 3.1.1 has no reason codes here."""

    packet_id: int
    reasons: tuple[ReasonCode, ...] = ()
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Pingreq:
    """A client asks whether the server is there."""


@dataclass(frozen=True, slots=True)
class Pingresp:
    """The server is there."""


@dataclass(frozen=True, slots=True)
class Disconnect:
    """The end of a connection, said beforehand; in version 3.1.1 only by the client."""

    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Auth:
    """A step of an extended authentication; version 5.0 only."""

    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = NO_PROPERTIES


Packet: TypeAlias = (
    Connect
    | Connack
    | Publish
    | Puback
    | Pubrec
    | Pubrel
    | Pubcomp
    | Subscribe
    | Suback
    | Unsubscribe
    | Unsuback
    | Pingreq
    | Pingresp
    | Disconnect
    | Auth
)
