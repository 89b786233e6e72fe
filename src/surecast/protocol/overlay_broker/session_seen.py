"""The messages that one part of a session has had, by the identity of each message: whatever comes by two ways is
known."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Final, TypeAlias

from surecast.protocol.broker.message import Delivery, EventName, Message
from surecast.protocol.overlay.event_id import EventId, SeenEvents

__all__ = ["SessionSeen"]

_INTERVALS_MAX: Final = 1_000
_Runs: TypeAlias = Iterable[tuple[EventId, int]]


class SessionSeen:
    """The messages that a part of a session has or has delivered, those that other parts have, and which of these the
    client has.

    >>> seen, message = SessionSeen(), Message(1, "t", b"t", b"")
    >>> message.event = EventId("b1", 1, 7)
    >>> seen.takes(message), seen.takes(message)
    (True, False)
    >>> seen.gave(message)
    >>> seen.takes(message), seen.takes_moved(message)
    (False, True)
    """

    def __init__(self) -> None:
        self.since_s = -inf
        """What was published until then belongs to an older part, which is elsewhere."""
        self.is_changed = False
        self._had = SeenEvents(_INTERVALS_MAX)
        self._elsewhere = SeenEvents(_INTERVALS_MAX)
        self._done = SeenEvents(_INTERVALS_MAX)

    def takes(self, message: Message) -> bool:
        """Returns whether a message that came to this broker is for this part."""
        if message.event is None:
            return True
        event = _id(message.event)
        if message.published_at <= self.since_s or self._elsewhere.look(event) == "seen":
            return False
        return self._takes(event)

    def takes_moved(self, message: Message) -> bool:
        """Returns whether a message of another part is none that this one has had, or the client."""
        if message.event is None:
            return True
        event = _id(message.event)
        return self._done.look(event) != "seen" and self._takes(event)

    def takes_all(self, event: EventName | None, count: int, published_at: float) -> bool:
        """Returns whether all of some messages that came to this broker are for this part."""
        if event is None:
            return True
        first = _id(event)
        if (
            published_at <= self.since_s
            or not self._had.are_new(first, count)
            or not self._elsewhere.are_new(first, count)
        ):
            return False
        self._had.add(first, count)
        self.is_changed = True
        return True

    def gave(self, message: Message) -> None:
        """Another part has a message now."""
        if message.event is not None:
            event = _id(message.event)
            self._had.discard(event)
            self._elsewhere.add(event)
            self.is_changed = True

    def has(self, message: Message) -> None:
        """This part has a message in its queue."""
        if message.event is not None:
            self._had.add(_id(message.event))

    def _takes(self, event: EventId) -> bool:
        if self._had.look(event) == "seen":
            return False
        self._had.add(event)
        self.is_changed = True
        return True

    # On disk and on links

    @property
    def had(self) -> tuple[tuple[EventId, int], ...]:
        """Messages that this part has had, in runs."""
        return tuple(self._had.runs())

    @property
    def elsewhere(self) -> tuple[tuple[EventId, int], ...]:
        """Messages that other parts have had, in runs."""
        return tuple(self._elsewhere.runs())

    @property
    def done(self) -> tuple[tuple[EventId, int], ...]:
        """Messages that other parts have delivered, in runs."""
        return tuple(self._done.runs())

    def is_done(self, message: Message) -> bool:
        """Returns whether the client has had a message at another broker."""
        return message.event is not None and self._done.look(_id(message.event)) == "seen"

    def done_besides(self, queued: Iterable[Delivery]) -> tuple[tuple[EventId, int], ...]:
        """Returns what the client has, in runs: what came to this part and is not queued, and what it had elsewhere,
        also where that is queued here too."""
        done = SeenEvents(_INTERVALS_MAX)
        for first, count in self.had:
            done.add(first, count)
        for delivery in queued:
            if delivery.message.event is not None and not delivery.released:
                done.discard(_id(delivery.message.event))
        for first, count in self.done:
            done.add(first, count)
        return tuple(done.runs())

    def restore(self, had: _Runs, elsewhere: _Runs, done: _Runs, since_s: float) -> None:
        """Takes back what was on disk."""
        self.since_s = since_s
        for first, count in had:
            self._had.add(first, count)
        self.is_elsewhere(elsewhere, done)

    def is_elsewhere(self, runs: _Runs, done: _Runs) -> None:
        """Another part has had some messages, and the client has some of them."""
        for first, count in runs:
            self._elsewhere.add(first, count)
        for first, count in done:
            self._done.add(first, count)


def _id(event: EventName) -> EventId:
    return event if isinstance(event, EventId) else EventId(event.origin, event.incarnation, event.number)
