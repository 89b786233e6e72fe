"""The accounts: what became of every event for every subscriber it was published to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from surecast.protocol.overlay.event_id import EventId
from surecast.protocol.overlay.overlay_plan import SchemeParts

__all__ = ["REASONS", "Accounts", "Fate", "Published", "Snapshot", "Target", "TargetAccount"]

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


class Published(NamedTuple):
    """An event as its publisher knows it: who published it, its place among that publisher's events, and when."""

    publisher: str
    number: int
    topic: str
    published_s: float
    expires_s: float


class Fate(NamedTuple):
    """The fate of one event for one target: `on time`, `late`, `queued` or the reason of its loss."""

    event: Published
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
    """One event under way: for whom it is still owed, whom it reached, and where it met trouble.

    `reached` has the brokers that dealt with it, with the state of the overlay then. `lost` has pairs of brokers
    between which it was lost, `expired` those where it was discarded, `homes` those that have delivered it, each with
    its incarnation.
    """

    __slots__ = ("event", "expired", "homes", "lost", "owed", "reached", "refused", "state")

    def __init__(self, event: Published, owed: set[int], state: Snapshot):
        self.event = event
        self.owed = owed
        self.state = state
        self.reached: dict[str, Snapshot] = {}
        self.lost: set[tuple[str, str]] = set()
        self.expired: set[str] = set()
        self.homes: set[tuple[str, int]] = set()
        self.refused = ""


class Accounts:
    """Follows each event until nothing more can become of it. Then whoever is still owed it has lost it, for a reason
    that is found by going along the route.

    `is_stored` tells whether a broker has an event on disk.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        route: Callable[[str, str, str], tuple[str, ...]],
        parts: Callable[[str], SchemeParts],
        is_stored: Callable[[str, EventId], bool],
        violate: Callable[[str], None],
        *,
        counts_from_s: float,
        keeps_fates: bool,
    ):
        self.targets = targets
        self.by_target = [TargetAccount() for _ in targets]
        self.fates: list[Fate] = []
        self.events_published = 0
        self.duplicates = 0
        """Events that a broker without memory of what it had delivered before a crash delivered again."""
        self._route = route
        self._parts = parts
        self._is_stored = is_stored
        self._violate = violate
        self._counts_from_s = counts_from_s
        self._keeps_fates = keeps_fates
        self._by_event: dict[EventId, _EventAccount] = {}
        self._by_topic: dict[str, list[int]] = {}
        self._at_home: dict[tuple[str, str], list[int]] = {}
        for i, target in enumerate(targets):
            self._by_topic.setdefault(target.topic, []).append(i)
            self._at_home.setdefault((target.home, target.topic), []).append(i)

    def refuse(self, event: Published, reason: str) -> None:
        """The home broker does not take an event: it is lost for everybody."""
        owed = self._publish(event)
        account = _EventAccount(event, set(owed), Snapshot({}, frozenset()))
        for i in owed:
            self._lose(account, i, reason)

    def publish(self, event_id: EventId, event: Published, state: Snapshot) -> None:
        """Opens the account of an event that its home broker takes now."""
        account = _EventAccount(event, set(self._publish(event)), state)
        account.reached[event_id.origin] = state
        self._by_event[event_id] = account

    def reached(self, event_id: EventId, broker: str, state: Snapshot) -> None:
        """An event has come to a broker that deals with it."""
        account = self._by_event.get(event_id)
        if account is not None:
            account.reached[broker] = state

    def failed(self, event_id: EventId, broker: str, hop: str) -> None:
        """An event is lost between two brokers, on one of its ways."""
        account = self._by_event.get(event_id)
        if account is not None:
            account.lost.add((broker, hop))

    def written(self, event_id: EventId, broker: str, now: float) -> None:
        """A broker has changed what it has on disk about an event: after its lifetime, because it has expired."""
        account = self._by_event.get(event_id)
        if account is not None and now >= account.event.expires_s:
            account.expired.add(broker)

    def deliver(self, event_id: EventId, topic: str, home: str, incarnation: int, now: float) -> None:
        """A broker delivers an event to its clients: for the first time, and never one that was given up."""
        account = self._by_event.get(event_id)
        targets = self._at_home.get((home, topic), ())
        owed = [i for i in targets if account is not None and i in account.owed]
        if account is None or not owed:
            is_known_there = account is None or (home, incarnation) in account.homes
            if self._parts(topic).custody or is_known_there or not targets:
                self._violate(f"event {event_id} reached {home}, who was not owed it (any more)")
            self.duplicates += 1
            return
        account.homes.add((home, incarnation))
        delay_s = now - account.event.published_s
        is_late = now > account.event.expires_s
        for i in owed:
            account.owed.discard(i)
            if not self._counts(account.event):
                continue
            of_target = self.by_target[i]
            of_target.delay_s += delay_s
            of_target.late += is_late
            of_target.on_time += not is_late
            self._note(account.event, i, "late" if is_late else "on time", delay_s)

    def close(self, event_id: EventId) -> None:
        """Nothing more can become of an event."""
        account = self._by_event.pop(event_id)
        for i in sorted(account.owed):
            self._lose(account, i, self._reason(event_id, account, i))

    def close_all(self, now: float) -> None:
        """At the end: what waits for a broker and has not expired is still queued, the rest is lost."""
        for event_id, account in list(self._by_event.items()):
            event = account.event
            if event.expires_s <= now or not self._parts(event.topic).custody:
                self.close(event_id)
                continue
            for i in sorted(account.owed) if self._counts(event) else ():
                self.by_target[i].queued += 1
                self._note(event, i, "queued", 0.0)
        for target, of_target in zip(self.targets, self.by_target, strict=True):
            if of_target.balance():
                self._violate(f"the accounts of {target.subscriber} on {target.topic} are out by {of_target.balance()}")

    def _publish(self, event: Published) -> list[int]:
        owed = self._by_topic.get(event.topic, [])
        if self._counts(event):
            self.events_published += 1
            for i in owed:
                self.by_target[i].published += 1
        return owed

    def _counts(self, event: Published) -> bool:
        return event.published_s >= self._counts_from_s

    def _lose(self, account: _EventAccount, i: int, reason: str) -> None:
        if self._counts(account.event):
            self.by_target[i].lose(reason)
            self._note(account.event, i, reason, 0.0)

    def _note(self, event: Published, i: int, outcome: str, delay_s: float) -> None:
        if self._keeps_fates:
            self.fates.append(Fate(event, i, event.published_s, outcome, delay_s))

    def _reason(self, event_id: EventId, account: _EventAccount, i: int) -> str:
        """Returns why nobody has brought the event to a target.

        Without detours and custody a route with anything down when the event was published is `path down`. Otherwise
        it is what stopped the event behind the last broker of its route that it came to.
        """
        target, parts, state = self.targets[i], self._parts(account.event.topic), account.state
        start = event_id.origin
        by_islands = parts.detours and not parts.custody
        if by_islands and state.islands[start] != state.islands[target.home]:
            return "partitioned"
        route = self._route(target.topic, start, target.home)
        if parts.custody and any(name in account.expired or self._is_stored(name, event_id) for name in route):
            return "expired"
        hops = list(pairwise(route))
        if not by_islands and not parts.custody and not state.down.isdisjoint([*route, *hops]):
            return "path down"
        last = max(k for k, broker in enumerate(route) if broker in account.reached)
        stopped = last < len(hops) and (
            hops[last] in account.lost
            or not account.reached[route[last]].down.isdisjoint([route[last + 1], hops[last]])
        )
        return "path down" if stopped or (by_islands and account.lost) else "no routing entry"
