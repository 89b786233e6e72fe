"""The accounts: what became of every event for every subscriber it was published to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from surecast.protocol.overlay import Event, EventId

__all__ = ["REASONS", "Accounts", "Fate", "Target", "TargetAccount"]

REASONS: Final = ("home broker down", "path down", "no routing entry", "expired", "partitioned", "store full")
"""Why an event can be lost."""


class Target(NamedTuple):
    """A subscription as the accounts see it: who subscribed, to which topic, at which broker."""

    subscriber: str
    topic: str
    home: str


class Snapshot(NamedTuple):
    """The state of the overlay at a moment: the connected part each broker is in, and what is down.

    A broker that is down is in part -1. `down` has brokers by name and links by the names of both ends, either way.
    """

    islands: dict[str, int]
    down: frozenset[str | tuple[str, str]]


class Fate(NamedTuple):
    """The fate of one event for one target: `on time`, `late`, `queued` or the reason of its loss."""

    event_id: EventId
    target: int
    published_s: float
    outcome: str
    delay_s: float


@dataclass(slots=True)
class TargetAccount:
    """The accounts of one target."""

    published: int = 0
    on_time: int = 0
    late: int = 0
    queued: int = 0
    delay_s: float = 0.0
    lost: dict[str, int] | None = None

    def lose(self, reason: str) -> None:
        self.lost = self.lost or {}
        self.lost[reason] = self.lost.get(reason, 0) + 1

    def balance(self) -> int:
        """Published minus accounted for: 0 when the accounts balance."""
        return self.published - self.on_time - self.late - self.queued - sum((self.lost or {}).values())


class _EventAccount:
    """One event under way: for whom it is still owed, how many copies exist, and where it met trouble."""

    __slots__ = ("copies", "event", "expired", "lost", "owed", "reached", "refused", "route_from", "state")

    def __init__(self, event: Event, owed: set[int], route_from: str, state: Snapshot):
        self.event = event
        self.owed = owed
        self.route_from = route_from
        self.state = state
        self.copies = 1
        self.reached: set[str] = set()
        self.lost: set[tuple[str, str]] = set()
        self.expired: set[str] = set()
        self.refused = ""


class Accounts:
    """Counts copies of each event, in flight and on disk. With the last copy goes the last hope: whoever is still owed
    the event has lost it, for a reason that is found by going along the route."""

    def __init__(
        self,
        targets: Sequence[Target],
        route: Callable[[str, str, str], tuple[str, ...]],
        violate: Callable[[str], None],
        *,
        scheme_bypasses: bool,
        scheme_buffers: bool,
        counts_from_s: float,
        keeps_fates: bool,
    ):
        self.targets = targets
        self.by_target = [TargetAccount() for _ in targets]
        self.fates: list[Fate] = []
        self.events_published = 0
        self._route = route
        self._violate = violate
        self._by_islands = scheme_bypasses and not scheme_buffers
        self._buffers = scheme_buffers
        self._counts_from_s = counts_from_s
        self._keeps_fates = keeps_fates
        self._by_event: dict[EventId, _EventAccount] = {}
        self._index = {(target.subscriber, target.topic): i for i, target in enumerate(targets)}
        self._by_topic: dict[str, list[int]] = {}
        for i, target in enumerate(targets):
            self._by_topic.setdefault(target.topic, []).append(i)

    def publish(self, event: Event, home: str, state: Snapshot) -> None:
        """Opens the account of an event, with one copy: the one its home broker takes now."""
        owed = self._by_topic.get(event.topic, [])
        if self._counts(event):
            self.events_published += 1
            for i in owed:
                self.by_target[i].published += 1
        self._by_event[event.id] = _EventAccount(event, set(owed), home, state)

    def refuse(self, event: Event) -> None:
        """The home broker is down: the event is lost for everybody."""
        account = self._by_event.pop(event.id)
        for i in sorted(account.owed):
            self._lose(account, i, "home broker down")

    def copied(self, event_id: EventId) -> None:
        """There is another copy, on its way or on disk."""
        self._by_event[event_id].copies += 1

    def reached(self, event_id: EventId, broker: str) -> None:
        """A copy has come to a broker that deals with it."""
        self._by_event[event_id].reached.add(broker)

    def failed(self, event_id: EventId, broker: str, hop: str) -> None:
        """A copy is lost between two brokers."""
        self._by_event[event_id].lost.add((broker, hop))

    def expired(self, event_id: EventId, broker: str) -> None:
        """A broker discards a copy that has expired."""
        self._by_event[event_id].expired.add(broker)

    def turned_away(self, event_id: EventId, reason: str) -> None:
        """The home broker does not accept an event."""
        self._by_event[event_id].refused = reason

    def released(self, event_id: EventId) -> None:
        """A copy is gone, having had all its consequences."""
        account = self._by_event[event_id]
        account.copies -= 1
        if not account.copies:
            del self._by_event[event_id]
            for i in sorted(account.owed):
                self._lose(account, i, self._reason(account, i))

    def deliver(self, subscriber: str, event: Event, now: float) -> None:
        """A subscriber gets an event: for the first time, and never one that was given up."""
        i = self._index.get((subscriber, event.topic))
        account = self._by_event.get(event.id)
        if i is None or account is None or i not in account.owed:
            self._violate(f"event {event.id} reached {subscriber}, who was not owed it (any more)")
            return
        account.owed.discard(i)
        delay_s = now - event.published_s
        outcome = "on time" if now <= event.expires_s else "late"
        if not self._counts(event):
            return
        of_target = self.by_target[i]
        of_target.delay_s += delay_s
        if outcome == "on time":
            of_target.on_time += 1
        else:
            of_target.late += 1
        self._note(event, i, outcome, delay_s)

    def close(self, now: float) -> None:
        """At the end: what has expired on the disk of a broker that is down is lost, the rest is still queued."""
        for account in self._by_event.values():
            for i in sorted(account.owed):
                if account.event.expires_s <= now:
                    self._lose(account, i, "expired")
                elif self._counts(account.event):
                    self.by_target[i].queued += 1
                    self._note(account.event, i, "queued", 0.0)
        for target, of_target in zip(self.targets, self.by_target, strict=True):
            if of_target.balance():
                self._violate(f"the accounts of {target.subscriber} on {target.topic} are out by {of_target.balance()}")

    def _counts(self, event: Event) -> bool:
        return event.published_s >= self._counts_from_s

    def _lose(self, account: _EventAccount, i: int, reason: str) -> None:
        if self._counts(account.event):
            self.by_target[i].lose(reason)
            self._note(account.event, i, reason, 0.0)

    def _note(self, event: Event, i: int, outcome: str, delay_s: float) -> None:
        if self._keeps_fates:
            self.fates.append(Fate(event.id, i, event.published_s, outcome, delay_s))

    def _reason(self, account: _EventAccount, i: int) -> str:
        """Why nobody has brought the event to a target.

        Without detours and buffers a route with anything down when the event was published is `path down`. Otherwise
        it is what stopped the event behind the last broker of its route that it came to.
        """
        if account.refused:
            return account.refused
        target = self.targets[i]
        start, state = account.route_from, account.state
        if self._by_islands and state.islands[start] != state.islands[target.home]:
            return "partitioned"
        route = self._route(target.topic, start, target.home)
        if account.expired.intersection(route):
            return "expired"
        hops = list(pairwise(route))
        if not self._by_islands and not self._buffers and not state.down.isdisjoint([*route, *hops]):
            return "path down"
        last = max(k for k, broker in enumerate(route) if broker in account.reached)
        stopped = last < len(hops) and hops[last] in account.lost
        return "path down" if stopped or (self._by_islands and account.lost) else "no routing entry"
