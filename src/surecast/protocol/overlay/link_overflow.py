"""Links that are full for too long: publishers wait for them no longer, and the rules for sessions say what is dropped.

A link is full for a tree where custody for the neighbour has reached its bound, or more than a window waits to be sent.
Publishers are held back at first. After `hold_max_s` they are read again, and until the link has room:

| rule | what is dropped for this neighbour, and counted as `queue-full` |
|---|---|
| drop-new | the new events |
| drop-old | the oldest that wait and are not on the link |
| expire-first | the waiting ones that expire first, if that is before the new ones; else these |
| reject | the new events; their publishers are told 0x97 before anything is done with them |
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from surecast.protocol.overlay.custody import Custody
from surecast.protocol.overlay.node_accounts import NodeAccounts
from surecast.protocol.overlay.node_links import NodeLinks, NodeSettings
from surecast.protocol.overlay.overlay_frames import EventBatch, events_of

__all__ = ["LinkOverflow"]


class LinkOverflow:
    """The links of one broker that are full. `since` has those that were for too long, by neighbour and tree."""

    def __init__(self, settings: NodeSettings, custody: Custody, links: NodeLinks, accounts: NodeAccounts):
        self.since: dict[tuple[str, int], float] = {}
        self._full_since: dict[tuple[str, int], float] = {}
        self._settings = settings
        self._custody = custody
        self._links = links
        self._accounts = accounts

    def look(self, is_full: Callable[[str, int], bool], now: float) -> dict[int, list[str]]:
        """Returns the neighbours whose links are full, by tree, and for which publishers are to wait."""
        waiting: dict[int, list[str]] = {}
        full: dict[tuple[str, int], float] = {}
        for tree in range(self._links.trees):
            for hop in self._links.congested(tree, is_full):
                since_s = full[hop, tree] = self._full_since.get((hop, tree), now)
                if now < since_s + self._settings.hold_max_s:
                    waiting.setdefault(tree, []).append(hop)
        self._full_since = full
        self.since = {place: since_s for place, since_s in full.items() if now >= since_s + self._settings.hold_max_s}
        return waiting

    def next_timer(self) -> float:
        """Returns when publishers have waited long enough."""
        if not self._full_since:
            return inf
        ends = (since_s for place, since_s in self._full_since.items() if place not in self.since)
        return min(ends, default=inf) + self._settings.hold_max_s

    def makes_room(self, hop: str, tree: int, batch: EventBatch) -> bool:
        """Returns whether events can be in custody for a neighbour; drops others for them by the rule."""
        if (hop, tree) not in self.since:
            return True
        accounts, rule = self._accounts.hops[hop], self._settings.overflow
        while self._custody.is_full(hop, tree):
            victim = self._custody.victim(hop, tree, batch.expires_s, rule)
            if victim is None:
                accounts.offered += batch.count
                accounts.dropped["queue-full"] += batch.count
                return False
            accounts.dropped["queue-full"] += victim.batch.count
            self._custody.acknowledge(hop, victim.batch.first)
        return True

    def drops_old(self, hop: str, tree: int) -> bool:
        """Drops the oldest events at best effort that wait for a neighbour, if that is the rule; returns whether it
        did."""
        if (hop, tree) not in self.since or self._settings.overflow != "drop-old":
            return False
        dropped = self._links.sessions[hop].drop_oldest(tree)
        accounts = self._accounts.hops[hop]
        count = 0 if dropped is None else events_of(dropped)
        accounts.on_link -= count
        accounts.dropped["queue-full"] += count
        return dropped is not None
