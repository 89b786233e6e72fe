"""The frames of overlay nodes. None of it is ever changed: a frame can be on several links at once.

Batches of events and their frames are not frozen, because to make a frozen one takes five times as long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Literal, NamedTuple, Protocol, TypeAlias

from surecast.protocol.demand import DemandFrame, Subscription, Sum
from surecast.protocol.filters import Value
from surecast.protocol.link import LinkAck, NumberedFrame
from surecast.protocol.overlay.event_id import EventId

__all__ = [
    "Body",
    "Detoured",
    "EventBatch",
    "Events",
    "Frame",
    "LinkStates",
    "MapBucket",
    "MapEntries",
    "MapForget",
    "MapFrame",
    "MapKey",
    "MapSums",
    "Marker",
    "NodeState",
    "UnknownFrame",
    "Written",
    "events_of",
]


class Body(Protocol):
    """The messages of a batch as the core knows them; a node only cuts them."""

    @property
    def size(self) -> int:
        """Their bytes."""

    @property
    def topics(self) -> Sequence[str]:
        """Their topics in order, where a batch may have several; empty where it has none of its own."""

    @property
    def firsts(self) -> Sequence[int]:
        """Which message is the first to each of the topics."""

    def part(self, start: int, stop: int) -> Body:
        """Returns some of them."""


@dataclass(slots=True)
class EventBatch:
    """Events of one publisher, with consecutive numbers. `topic` is that of the first; the messages of a body may go on
    to others, which are on the same tree. `attributes` has those of each event, as far as some announced filter names
    them; it is empty where no event has any. `names` are those that the home broker looked
    for, None if all: a filter that it had not heard of may ask for more. `publisher` names the publisher's session.

    Events that are retained have a `stamp`, that of the first; each has one more than the one before. With `deletes`
    they have no payload and clear their topic.

    Events for one member of a shared subscription name it in `share`, as clients write it, and in `at` the broker that
    has the member. They were `handed` on so often from a broker that had none any more.

    >>> batch = EventBatch(EventId("b1", 1, 10), 3, "stock", published_s=0.0, qos=1)
    >>> batch.part(1, 3).first.number, batch.part(1, 3).count
    (11, 2)
    """

    first: EventId
    count: int
    topic: str
    published_s: float
    expires_s: float = inf
    qos: int = 0
    attributes: tuple[Mapping[str, Value], ...] = ()
    body: Body | None = None
    publisher: str = ""
    names: tuple[str, ...] | None = None
    stamp: int = 0
    deletes: bool = False
    share: str = ""
    at: str = ""
    handed: int = 0

    def part(self, start: int, stop: int) -> EventBatch:
        """Returns the events from one place up to another."""
        if (start, stop) == (0, self.count):
            return self
        body = None if self.body is None else self.body.part(start, stop)
        return replace(
            self,
            first=self.first.plus(start),
            count=stop - start,
            topic=body.topics[0] if body is not None and body.topics else self.topic,
            attributes=self.attributes[start:stop],
            body=body,
            stamp=self.stamp + start if self.stamp else 0,
        )

    def at_most(self, qos: int) -> EventBatch:
        """Returns the batch at a QoS that is no higher than this one."""
        return self if self.qos <= qos else replace(self, qos=qos)


@dataclass(slots=True)
class Events:
    """Events on their way along a tree. Where `attempt` is empty they are *assured*: the receiver has them on disk
    before it acknowledges their frame. Otherwise they are sent at best effort, and `attempt` is the broker that began
    to: each broker passes the events of an attempt on once."""

    tree: int
    batch: EventBatch
    attempt: str = ""


@dataclass(frozen=True, slots=True)
class Detoured:
    """A frame on its way around a failure, routed by `sender`. `path` are the brokers still to pass after the receiver;
    the last one takes the frame as if its neighbour `via` on the tree had sent it."""

    sender: str
    path: tuple[str, ...]
    via: str
    frame: Events | DemandFrame | Subscription


@dataclass(frozen=True, slots=True)
class NodeState:
    """The neighbours that a broker cannot reach directly; a later state of it replaces an earlier one."""

    broker: str
    incarnation: int
    sequence: int
    down: tuple[str, ...]

    @property
    def age(self) -> tuple[int, int]:
        """Orders the states of one broker."""
        return (self.incarnation, self.sequence)


@dataclass(frozen=True, slots=True)
class LinkStates:
    """News about the state of links, flooded."""

    states: tuple[NodeState, ...]


@dataclass(frozen=True, slots=True)
class Marker:
    """All that came before it on a link was sent before a cut through the accounts of the overlay, which is named by
    the broker that began it, the incarnation of this broker, and a number."""

    initiator: str
    incarnation: int
    number: int

    @property
    def age(self) -> tuple[int, int]:
        """Orders the cuts of one broker."""
        return (self.incarnation, self.number)


class MapKey(NamedTuple):
    """A version of a retained message: of those of a topic the one with the highest stamp is the latest, and of equal
    stamps the one whose origin comes last in the alphabet."""

    topic: str
    stamp: int
    origin: str

    @property
    def version(self) -> tuple[int, str]:
        """Orders the versions of a topic."""
        return (self.stamp, self.origin)


@dataclass(frozen=True, slots=True)
class MapSums:
    """Sums of hashes over the versions of retained messages. Whoever gets those of the root goes on with what differs
    if its name comes first, or `asks` says so: both ends may have begun."""

    tree: int
    sums: tuple[Sum, ...]
    asks: bool = True


@dataclass(frozen=True, slots=True)
class MapBucket:
    """The versions of one bucket of the sender; after what `is_last` it begins again."""

    tree: int
    bucket: int
    keys: tuple[MapKey, ...]
    is_last: bool = False


@dataclass(frozen=True, slots=True)
class MapEntries:
    """Retained messages that the receiver lacks, each as a batch of one, and the topics of which the sender wants the
    message. After what `begins_again` the receiver compares anew."""

    tree: int
    entries: tuple[EventBatch, ...]
    wanted: tuple[str, ...] = ()
    begins_again: bool = False


@dataclass(frozen=True, slots=True)
class MapForget:
    """A wave about deletions: asks which the receiver and all behind it have, says which they have, or drops them."""

    tree: int
    number: int
    step: Literal["ask", "have", "drop"]
    keys: tuple[MapKey, ...]


MapFrame: TypeAlias = MapSums | MapBucket | MapEntries | MapForget


@dataclass(frozen=True, slots=True)
class UnknownFrame:
    """A frame of an optional kind that this broker does not know, from a neighbour with a later version."""

    kind: int


Frame: TypeAlias = Events | Detoured | LinkStates | Marker | UnknownFrame | DemandFrame | Subscription | MapFrame

Written: TypeAlias = NumberedFrame[Frame] | LinkAck
"""A frame or an acknowledgement, as it goes over a connection."""


def events_of(frame: Frame) -> int:
    """Returns how many events a frame has, on its tree or on a detour.

    >>> events_of(Events(0, EventBatch(EventId("b1", 1, 0), 3, "stock", 0.0), "b1"))
    3
    """
    carried = frame.frame if isinstance(frame, Detoured) else frame
    return carried.batch.count if isinstance(carried, Events) else 0
