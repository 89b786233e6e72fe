"""The routing table: from which neighbour each subscription came, and when it was last heard of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from surecast.protocol.overlay.effects import StoredSubscription

__all__ = ["LOCAL", "RoutingTable"]

LOCAL = ""
"""The source of a subscription that came from a client of this broker."""


@dataclass(slots=True)
class _Entry:
    source: str
    issued_s: float
    refreshed_s: float
    active: bool


class RoutingTable:
    """Subscriptions by topic and subscriber. An entry not refreshed within the time-out does not count any more.

    >>> table = RoutingTable(timeout_s=180.0)
    >>> table.refresh("s1", "Stock", "b3", issued_s=0.0, now=0.0)
    True
    >>> table.refresh("s1", "Stock", "b3", issued_s=0.0, now=1.0)  # the same issue again, by another way
    False
    >>> table.next_hops("Stock", now=180.0), table.next_hops("Stock", now=200.0)
    (['b3'], [])
    """

    def __init__(self, timeout_s: float = inf):
        self.timeout_s = timeout_s
        self._topics: dict[str, dict[str, _Entry]] = {}
        self._latest: dict[str, dict[str, float]] = {}
        self._purge_s = inf

    def __len__(self) -> int:
        return sum(entry.active for entries in self._topics.values() for entry in entries.values())

    def __iter__(self) -> Iterator[tuple[str, str, str]]:
        """Topic, subscriber and source of each entry."""
        for topic, entries in self._topics.items():
            yield from ((topic, name, entry.source) for name, entry in entries.items() if entry.active)

    def refresh(self, subscriber: str, topic: str, source: str, issued_s: float, now: float) -> bool:
        """Stores a subscription or refreshes its timestamp; False if this issue, or a later one, was here before."""
        entries = self._topics.get(topic)
        if entries is None:
            entries = self._topics[topic] = {}
        entry = entries.get(subscriber)
        if entry is None:
            entries[subscriber] = _Entry(source, issued_s, now, True)
        elif issued_s <= entry.issued_s:
            return False
        else:
            moved = entry.active and entry.source != source
            entry.source, entry.issued_s, entry.refreshed_s, entry.active = source, issued_s, now, True
            if moved:
                self._recount(topic)
        self._latest.setdefault(topic, {})[source] = now
        if self._purge_s == inf:
            self._purge_s = now + self.timeout_s
        return True

    def remove(self, subscriber: str, topic: str, source: str, issued_s: float, now: float) -> bool:
        """Takes a subscription out; False if this, or something later, was here before.

        What remains of it keeps an older issue that is still on its way from bringing it back.
        """
        entries = self._topics.setdefault(topic, {})
        entry = entries.get(subscriber)
        if entry is not None and issued_s <= entry.issued_s:
            return False
        entries[subscriber] = _Entry(source, issued_s, now, False)
        self._recount(topic)
        return True

    def restore(self, record: StoredSubscription, now: float) -> None:
        """Takes an entry over from disk."""
        self.refresh(record.subscriber, record.topic, record.source, record.issued_s, now)

    def source_of(self, subscriber: str, topic: str) -> str | None:
        """Where a subscription came from; None if it is not in the table."""
        entry = self._topics.get(topic, {}).get(subscriber)
        return entry.source if entry is not None and entry.active else None

    def next_hops(self, topic: str, now: float, besides: str = LOCAL) -> list[str]:
        """The neighbours with at least one fresh subscription to a topic, each once, all but one of them."""
        oldest_s = now - self.timeout_s
        latest = self._latest.get(topic)
        if not latest:
            return []
        return [hop for hop, at_s in latest.items() if hop not in (LOCAL, besides) and at_s >= oldest_s]

    def subscribers(self, topic: str, now: float) -> list[str]:
        """The broker's own subscribers with a fresh subscription to a topic."""
        oldest_s = now - self.timeout_s
        latest = self._latest.get(topic)
        if not latest or latest.get(LOCAL, -inf) < oldest_s:
            return []
        return [
            name
            for name, entry in self._topics[topic].items()
            if entry.source == LOCAL and entry.active and entry.refreshed_s >= oldest_s
        ]

    def next_timer(self) -> float:
        """When old entries should next be taken out."""
        return self._purge_s

    def purge(self, now: float) -> list[tuple[str, str]]:
        """Takes out what was not refreshed in time; subscriber and topic of each."""
        if now < self._purge_s:
            return []
        oldest_s = now - self.timeout_s
        gone: list[tuple[str, str]] = []
        for topic in list(self._topics):
            entries = self._topics[topic]
            old = [name for name, entry in entries.items() if entry.refreshed_s < oldest_s]
            gone += [(name, topic) for name in old if entries[name].active]
            for name in old:
                del entries[name]
            if not entries:
                del self._topics[topic]
            if old:
                self._recount(topic)
        self._purge_s = now + self.timeout_s if self._topics else inf
        return gone

    def _recount(self, topic: str) -> None:
        """When each source was last heard of for a topic, anew."""
        latest: dict[str, float] = {}
        for entry in self._topics.get(topic, {}).values():
            if entry.active:
                latest[entry.source] = max(entry.refreshed_s, latest.get(entry.source, -inf))
        if latest:
            self._latest[topic] = latest
        else:
            self._latest.pop(topic, None)
