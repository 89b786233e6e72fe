"""The events a broker answers for until all next hops have acknowledged them (reliability section 2.4.2)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf

from surecast.protocol.overlay.effects import Discard, Drop, Effect, HandledEvent, Store, StoredEvent, event_key
from surecast.protocol.overlay.messages import Event, EventId

__all__ = ["EventStore"]


@dataclass(slots=True)
class _Pending:
    event: Event
    waiting: dict[str, None]
    due_s: float
    detoured: set[str] = field(default_factory=set)


class EventStore:
    """The index, in memory, of the events in the broker's non-volatile store.

    An event whose forwarding set has acknowledged it is discarded; its identifier stays until the event expires, so
    that a retransmission of it is acknowledged again and goes no further. The forwarding set on disk is the one
    computed on arrival: after a crash the event is sent to all of it again, and those who have it already say so.
    """

    def __init__(self, interval_s: float):
        self.interval_s = interval_s
        self._pending: dict[EventId, _Pending] = {}
        self._handled: dict[EventId, HandledEvent] = {}
        self._due: list[tuple[float, EventId]] = []
        self._expiry: list[tuple[float, EventId]] = []
        self._forget: list[tuple[float, EventId]] = []
        self._just_expired: set[EventId] = set()
        self._expired_s = -inf

    def __len__(self) -> int:
        """Number of events that wait for an acknowledgement."""
        return len(self._pending)

    def accepted(self, event_id: EventId) -> bool:
        """Whether the broker has answered for an event."""
        if event_id in self._pending or event_id in self._just_expired:
            return True
        handled = self._handled.get(event_id)
        return handled is not None and handled.accepted

    def delivered(self, event_id: EventId) -> bool:
        """Whether the broker's own subscribers have had an event."""
        return event_id in self._pending or event_id in self._handled or event_id in self._just_expired

    def add(self, event: Event, waiting: Iterable[str], now: float) -> Effect:
        """Stores an event with its forwarding set."""
        hops = tuple(waiting)
        if not hops:
            return self._handle(event, accepted=True)
        self._handled.pop(event.id, None)
        self._keep(StoredEvent(event, hops), now + self.interval_s if self.interval_s else inf)
        return Store(event_key(event.id), StoredEvent(event, hops))

    def add_delivered(self, event: Event) -> Effect:
        """Remembers an event that came at best effort and was handed to the broker's own subscribers."""
        return self._handle(event, accepted=False)

    def acknowledge(self, event_id: EventId, neighbour: str) -> list[Effect]:
        """A neighbour has the event; once all have it, it is discarded."""
        pending = self._pending.get(event_id)
        if pending is None or neighbour not in pending.waiting:
            return []
        del pending.waiting[neighbour]
        if pending.waiting:
            return []
        del self._pending[event_id]
        return [self._handle(pending.event, accepted=True)]

    def wake(self, neighbour: str, now: float) -> None:
        """Makes all events that wait for a neighbour due for transmission now."""
        for event_id, pending in self._pending.items():
            if neighbour in pending.waiting and pending.due_s > now:
                pending.due_s = now
                heappush(self._due, (now, event_id))

    def take_due(self, now: float) -> list[tuple[Event, list[str]]]:
        """The events due for another transmission, with the neighbours that have not acknowledged them."""
        taken: list[tuple[Event, list[str]]] = []
        while self._next_due() <= now:
            _, event_id = heappop(self._due)
            pending = self._pending[event_id]
            pending.due_s = inf
            if self.interval_s:
                pending.due_s = now + self.interval_s
                heappush(self._due, (pending.due_s, event_id))
            taken.append((pending.event, list(pending.waiting)))
        return taken

    def take_for_detour(self, neighbour: str) -> list[Event]:
        """The events that wait for a neighbour and have not been sent around it before."""
        found = [p for p in self._pending.values() if neighbour in p.waiting and neighbour not in p.detoured]
        for pending in found:
            pending.detoured.add(neighbour)
        return [pending.event for pending in found]

    def note_detour(self, event_id: EventId, neighbour: str) -> None:
        """Remembers that an event was sent around a neighbour."""
        self._pending[event_id].detoured.add(neighbour)

    def expire(self, now: float) -> list[Effect]:
        """Discards what has expired: events that still wait, and identifiers no longer needed."""
        effects: list[Effect] = []
        while self._next_expiry() <= now:
            _, event_id = heappop(self._expiry)
            pending = self._pending.pop(event_id)
            if now > self._expired_s:
                self._just_expired.clear()
                self._expired_s = now
            self._just_expired.add(event_id)  # a copy that arrives at this very moment is still known
            effects.append(Discard(event_key(event_id)))
            effects += [Drop(pending.event, hop, "expired") for hop in pending.waiting]
        while self._forget and self._forget[0][0] < now:
            expires_s, event_id = heappop(self._forget)
            handled = self._handled.get(event_id)
            if handled is not None and handled.expires_s == expires_s:
                del self._handled[event_id]
                effects.append(Discard(event_key(event_id)))
        return effects

    def next_timer(self) -> float:
        """When the next transmission or expiry is due."""
        return min(self._next_due(), self._next_expiry())

    def restore(self, record: StoredEvent | HandledEvent, now: float) -> None:
        """Takes a record over from disk; events that wait are due for transmission at once."""
        if isinstance(record, StoredEvent):
            self._keep(record, now)
        else:
            self._remember(record)

    def _keep(self, record: StoredEvent, due_s: float) -> None:
        event = record.event
        self._pending[event.id] = _Pending(event, dict.fromkeys(record.waiting), due_s)
        if due_s < inf:
            heappush(self._due, (due_s, event.id))
        if event.expires_s < inf:
            heappush(self._expiry, (event.expires_s, event.id))

    def _handle(self, event: Event, *, accepted: bool) -> Effect:
        record = HandledEvent(event.id, event.expires_s, accepted)
        self._remember(record)
        return Store(event_key(event.id), record)

    def _remember(self, record: HandledEvent) -> None:
        if record.expires_s < inf and record.event_id not in self._handled:
            heappush(self._forget, (record.expires_s, record.event_id))
        self._handled[record.event_id] = record

    def _next_due(self) -> float:
        """Time of the next transmission; what has been acknowledged or rescheduled is passed over."""
        due = self._due
        while due:
            due_s, event_id = due[0]
            pending = self._pending.get(event_id)
            if pending is not None and pending.due_s == due_s:
                return due_s
            heappop(due)
        return inf

    def _next_expiry(self) -> float:
        expiry = self._expiry
        while expiry and expiry[0][1] not in self._pending:
            heappop(expiry)
        return expiry[0][0] if expiry else inf
