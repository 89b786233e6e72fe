"""Events that a broker answers for, until every neighbour in their forwarding set has acknowledged them
(*reliability* section 2.4.2).

A broker that takes an event over writes it to disk with its forwarding set before it acknowledges it. What is written
are records by key; `journal` has them in order, None where a record goes. After a crash `restore` takes them back.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import inf
from typing import Final, TypeAlias

from surecast.protocol.broker.broker_settings import Overflow
from surecast.protocol.overlay.event_id import EventId, SeenEvents
from surecast.protocol.overlay.overlay_frames import EventBatch

__all__ = ["Custody", "CustodyKey", "CustodyRecord", "HandledBatch", "HeldBatch"]

CustodyKey: TypeAlias = tuple[str, str, int, int]
"""The kind of the record, and the first event of its batch."""

_HANDLED_MAX: Final = 100_000
_EXPIRY_SLACK: Final = 1_000


@dataclass(slots=True)
class HeldBatch:
    """Events that wait for the acknowledgements of neighbours. `hops` are those that have not acknowledged them, each
    with the highest QoS that it wants; `went` has the brokers behind those that are down to which they were
    sent around them, each once. `untried` are those whose links were up, and had no room yet."""

    tree: int
    batch: EventBatch
    hops: dict[str, int]
    went: set[str] = field(default_factory=set)
    untried: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HandledBatch:
    """Events that need no custody any more; they are remembered, so that a repetition of them is known as one.
    `is_accepted` says that this broker has answered for them; else it has only delivered them to its own clients."""

    first: EventId
    count: int
    is_accepted: bool


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """Events on disk, with their forwarding set."""

    tree: int
    batch: EventBatch
    hops: tuple[tuple[str, int], ...]


CustodyRecord: TypeAlias = StoredBatch | HandledBatch


class Custody:
    """The events that one broker holds for its neighbours.

    >>> custody = Custody(journal := [])
    >>> batch = EventBatch(EventId("b1", 1, 0), 2, "stock", published_s=0.0, qos=1)
    >>> held = custody.take(0, batch, {"b2": 1})
    >>> [held.batch.count for held in custody.unsent("b2", tree=0)]
    [2]
    >>> custody.acknowledge("b2", batch.first)
    >>> len(custody), [key[0] for key, _ in journal]
    (0, ['held', 'held', 'handled'])
    """

    def __init__(
        self,
        journal: list[tuple[CustodyKey, CustodyRecord | None]],
        hop_events_max: int = 100_000,
        hop_bytes_max: int = 256 << 20,
    ):
        self.accepted = SeenEvents()
        """The events that this broker has answered for."""
        self.delivered = SeenEvents()
        """The events that its own clients have had."""
        self._hop_events_max = hop_events_max
        self._hop_bytes_max = hop_bytes_max
        self._journal = journal
        self._held: dict[EventId, HeldBatch] = {}
        self._by_hop: dict[str, dict[EventId, HeldBatch]] = {}
        self._unsent: dict[tuple[str, int], dict[EventId, HeldBatch]] = {}
        self._expiry: list[tuple[float, EventId]] = []
        self._handled: deque[CustodyKey] = deque()
        self._events: Counter[tuple[str, int]] = Counter()
        self._bytes: Counter[tuple[str, int]] = Counter()

    def __len__(self) -> int:
        """The number of events that wait for an acknowledgement."""
        return sum(held.batch.count for held in self._held.values())

    def is_full(self, hop: str, tree: int) -> bool:
        """Returns whether no more events of a tree should be taken that a neighbour is to have. Trees are apart, as
        they are on links: else brokers could wait for each other in a circle that leads over several trees."""
        return self._events[hop, tree] >= self._hop_events_max or self._bytes[hop, tree] >= self._hop_bytes_max

    def not_held(self, batch: EventBatch) -> EventBatch | None:
        """Returns the events of a batch behind those that are in custody under its first one; None where all are.
        What is older than the memory of accepted events may be one that still waits here."""
        while (held := self._held.get(batch.first)) is not None:
            if batch.count <= held.batch.count:
                return None
            batch = batch.part(held.batch.count, batch.count)
        return batch

    def take(self, tree: int, batch: EventBatch, hops: Mapping[str, int]) -> HeldBatch | None:
        """Takes events over; returns what waits, None where they have to go nowhere."""
        self.accepted.add(batch.first, batch.count)
        self.delivered.add(batch.first, batch.count)
        if not hops:
            self._remember(batch, is_accepted=True)
            return None
        self._journal.append((_key("held", batch.first), StoredBatch(tree, batch, tuple(hops.items()))))
        return self._hold(tree, batch, hops)

    def note_delivered(self, batch: EventBatch) -> None:
        """Remembers events that came at best effort and were delivered to the broker's own clients."""
        self.delivered.add(batch.first, batch.count)
        self._remember(batch, is_accepted=False)

    def holds(self, hop: str, first: EventId) -> bool:
        """Returns whether some events wait for the acknowledgement of a neighbour."""
        return first in self._by_hop.get(hop, {})

    def waiting_for(self, hop: str) -> list[HeldBatch]:
        """Returns what waits for the acknowledgement of a neighbour, oldest first."""
        return list(self._by_hop.get(hop, {}).values())

    def newest_for(self, hop: str) -> EventId | None:
        """Returns the last events that wait for the acknowledgement of a neighbour, by their first one; None where
        none do."""
        return next(reversed(self._by_hop.get(hop, {})), None)

    def unsent(self, hop: str, tree: int) -> Iterator[HeldBatch]:
        """Yields what is not on the link to a neighbour, oldest first; from then on it counts as sent."""
        unsent = self._unsent.get((hop, tree), {})
        while unsent:
            yield unsent.pop(next(iter(unsent)))

    def get(self, first: EventId) -> HeldBatch | None:
        """Returns the events that are in custody under their first one; None where there are none."""
        return self._held.get(first)

    def victim(self, hop: str, tree: int, expires_s: float, rule: Overflow) -> HeldBatch | None:
        """Returns the events to drop for others that expire then: of those for a neighbour that are not on the link to
        it; None where the others are to go."""
        unsent = self._unsent.get((hop, tree))
        if not unsent or rule in ("drop-new", "reject"):
            return None
        if rule == "drop-old":
            return next(iter(unsent.values()))
        if self.next_timer() >= expires_s:
            return None
        first = unsent.get(self._expiry[0][1])  # nearly always it is for this neighbour, and nothing is looked for
        if first is None:
            first = min(unsent.values(), key=lambda held: held.batch.expires_s)
        return first if first.batch.expires_s < expires_s else None

    def take_unsent(self, hop: str, held: HeldBatch) -> bool:
        """Counts events as sent to a neighbour; returns whether they were not on the link to it."""
        return self._unsent.get((hop, held.tree), {}).pop(held.batch.first, None) is not None

    def unsend(self, hop: str, firsts: Iterable[EventId]) -> None:
        """Takes back what was on the link to a neighbour and is lost: it is to be sent again, before all else."""
        waiting = self._by_hop.get(hop, {})
        again: dict[int, dict[EventId, HeldBatch]] = {}
        for first in firsts:
            if (held := waiting.get(first)) is not None:
                again.setdefault(held.tree, {})[first] = held
        for tree, batches in again.items():
            self._unsent[hop, tree] = batches | self._unsent[hop, tree]

    def events_unsent(self, hop: str) -> int:
        """Returns the number of events that wait and are not on the link to a neighbour."""
        return sum(
            held.batch.count for (to, _), unsent in self._unsent.items() if to == hop for held in unsent.values()
        )

    def acknowledge(self, hop: str, first: EventId) -> None:
        """A neighbour has some events; once all have them they are discarded."""
        held = self._by_hop.get(hop, {}).pop(first, None)
        if held is None:
            return
        self._unsent[hop, held.tree].pop(first, None)
        self._count(hop, held, -1)
        del held.hops[hop]
        if not held.hops:
            self._let_go(held)
            self._remember(held.batch, is_accepted=True)

    def expire(self, now: float) -> list[tuple[HeldBatch, list[str]]]:
        """Discards the events whose lifetime is over; returns them, with the neighbours to which they were not sent."""
        expired: list[tuple[HeldBatch, list[str]]] = []
        while self._expiry and self._expiry[0][0] <= now:
            _, first = heappop(self._expiry)
            held = self._held.get(first)
            if held is None:
                continue
            self._let_go(held)
            self._remember(held.batch, is_accepted=True)
            unsent: list[str] = []
            for hop in held.hops:
                del self._by_hop[hop][first]
                self._count(hop, held, -1)
                if self._unsent[hop, held.tree].pop(first, None) is not None:
                    unsent.append(hop)
            expired.append((held, unsent))
        return expired

    def next_timer(self) -> float:
        """Returns when `expire` has something to do."""
        while self._expiry and self._expiry[0][1] not in self._held:
            heappop(self._expiry)
        return self._expiry[0][0] if self._expiry else inf

    def restore(self, records: Mapping[CustodyKey, CustodyRecord]) -> None:
        """Takes back what was on disk."""
        for key, record in records.items():
            if isinstance(record, StoredBatch):
                self.accepted.add(record.batch.first, record.batch.count)
                self.delivered.add(record.batch.first, record.batch.count)
                self._hold(record.tree, record.batch, dict(record.hops))
            else:
                self._handled.append(key)
                self.delivered.add(record.first, record.count)
                if record.is_accepted:
                    self.accepted.add(record.first, record.count)

    def _hold(self, tree: int, batch: EventBatch, hops: Mapping[str, int]) -> HeldBatch:
        held = self._held[batch.first] = HeldBatch(tree, batch, dict(hops))
        for hop in hops:
            self._count(hop, held, 1)
            self._by_hop.setdefault(hop, {})[batch.first] = held
            self._unsent.setdefault((hop, tree), {})[batch.first] = held
        if batch.expires_s < inf:
            if len(self._expiry) > 2 * len(self._held) + _EXPIRY_SLACK:  # most have gone before their lifetime was over
                self._expiry = [entry for entry in self._expiry if entry[1] in self._held and entry[1] != batch.first]
                heapify(self._expiry)
            heappush(self._expiry, (batch.expires_s, batch.first))
        return held

    def _count(self, hop: str, held: HeldBatch, by: int) -> None:
        batch, place = held.batch, (hop, held.tree)
        self._events[place] += by * batch.count
        if batch.body is not None:
            self._bytes[place] += by * batch.body.size

    def _let_go(self, held: HeldBatch) -> None:
        del self._held[held.batch.first]
        self._journal.append((_key("held", held.batch.first), None))

    def _remember(self, batch: EventBatch, *, is_accepted: bool) -> None:
        kind = "handled" if is_accepted else "delivered"
        key = _key(kind, batch.first)
        self._journal.append((key, HandledBatch(batch.first, batch.count, is_accepted)))
        self._handled.append(key)
        if len(self._handled) > _HANDLED_MAX:
            self._journal.append((self._handled.popleft(), None))


def _key(kind: str, first: EventId) -> CustodyKey:
    return (kind, *first)
