"""Messages between publishers, relays, subscribers and the notification service, and the effects they ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from surecast.protocol.coding import Packet
from surecast.protocol.dissemination.body import Body
from surecast.protocol.gossip import Announced, Announcement, PacketRequest, Push, Reply
from surecast.scenario.paths import Branch

__all__ = [
    "NO_NUMBER",
    "Data",
    "Effect",
    "EventComplete",
    "EventPrefix",
    "Expire",
    "Granted",
    "HopAck",
    "Install",
    "Known",
    "Message",
    "PublishRequest",
    "Register",
    "Registered",
    "SendTo",
    "Unregister",
    "View",
]

NO_NUMBER: Final = 0xFFFF
"""The number of a packet that was recoded on its way: it is none of those that the publisher sent."""


@dataclass(frozen=True, slots=True)
class Data:
    """A packet on its way along the paths of a group.

    `number` says which of its generation's packets the publisher sent it as, plain ones first. `attempt` counts its
    transmissions over this hop, from 1 on, where the receiver is to acknowledge them; else it is 0.
    """

    group: int
    number: int
    deadline_s: float
    packet: Packet
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class HopAck:
    """A packet has come over one hop, in this transmission of it.

    `received` has a bit for each number of its generation that has come.
    """

    event_id: int
    generation: int
    number: int
    attempt: int = 1
    received: int = 0


@dataclass(frozen=True, slots=True)
class Install:
    """The forwarding of a group's packets at one relay, from the notification service; a long one comes in parts.

    One with a higher `version` replaces the one before. `packets` and `expected` are for a generation as a whole, sent
    and received by this relay; `counts` and `blocks` of the branches refer to `packets`.
    """

    group: int
    version: int
    packets: int
    expected: int
    branches: tuple[Branch, ...]
    part: int = 0
    parts: int = 1


@dataclass(frozen=True, slots=True)
class View:
    """Some of the active subscribers of a group, for one of them; and events it has missed and may ask them for.

    Without `member` the receiver no longer belongs to the group.
    """

    group: int
    version: int
    peers: tuple[int, ...]
    events: tuple[Announced, ...] = ()
    member: bool = True


@dataclass(frozen=True, slots=True)
class Known:
    """An `Install` or a `View` has come."""

    group: int
    version: int
    part: int = 0


@dataclass(frozen=True, slots=True)
class Register:
    """A subscriber wants what matches a topic filter and, if there is one, a content filter. `number` is its own."""

    number: int
    home: int
    topic: str
    content: str = ""


@dataclass(frozen=True, slots=True)
class Unregister:
    """A subscriber no longer wants what it asked for under this number."""

    number: int


@dataclass(frozen=True, slots=True)
class Registered:
    """The notification service has taken in a subscription, its end, or refused it (`accepted`)."""

    number: int
    accepted: bool


@dataclass(frozen=True, slots=True)
class PublishRequest:
    """A publisher asks the notification service who gets an event of so many bytes; `number` is its own.

    `body` has the topic and the attributes; the payload stays with the publisher.
    """

    number: int
    size: int
    deadline_s: float
    body: Body


@dataclass(frozen=True, slots=True)
class Granted:
    """The notification service's answer: the event's number and group, and the rate of the group's paths."""

    number: int
    accepted: bool
    event_id: int = 0
    group: int = 0
    rate_per_s: float = 0.0


Message: TypeAlias = (
    Data
    | HopAck
    | Install
    | View
    | Known
    | Register
    | Unregister
    | Registered
    | PublishRequest
    | Granted
    | Announcement
    | PacketRequest
    | Push
    | Reply
)


@dataclass(frozen=True, slots=True)
class SendTo:
    """Send a message to a node; `after_s` from now, where a publisher paces its packets."""

    to: int
    message: Message
    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class EventComplete:
    """An event is complete at a subscriber. `recovered` says that gossip brought the packet that completed it."""

    event_id: int
    group: int
    data: bytes
    recovered: bool


@dataclass(frozen=True, slots=True)
class EventPrefix:
    """The bytes of an event from `start` on that can be used before the event is complete."""

    event_id: int
    start: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Expire:
    """A subscriber gives an event up with so many packets missing.

    The reason is `deadline`, `evicted` (there was no room for it) or `group left`.
    """

    event_id: int
    missing: int
    reason: str


Effect: TypeAlias = SendTo | EventComplete | EventPrefix | Expire
