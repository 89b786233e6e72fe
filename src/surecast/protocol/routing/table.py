"""The routing table of content-based routing: local entries for clients, remote entries for neighbours."""

from __future__ import annotations

from surecast.errors import PeerError
from surecast.protocol.filters import Event, Filter, FilterIndex
from surecast.protocol.routing.messages import Update

__all__ = ["ContentTable"]


class ContentTable:
    """Who wants what: the filters of each client, and those that each neighbour announced.

    >>> from surecast.protocol.filters import parse
    >>> table = ContentTable(["b2", "b3"])
    >>> table.add_local("s1", parse("Stock: price > 35"))
    True
    >>> table.apply("b2", Update(added=(parse("Stock: true"),)))
    >>> event = Event("Stock", {"price": 37})
    >>> table.clients(event), table.neighbours(event), table.local_entries, table.remote_entries
    (['s1'], {'b2'}, 1, 1)
    """

    def __init__(self, neighbours: list[str]):
        self._local: FilterIndex[str] = FilterIndex()
        self._remote: FilterIndex[str] = FilterIndex()
        self._counts: dict[str, dict[Filter, int]] = {name: {} for name in neighbours}
        self._remote_entries = 0

    @property
    def local_entries(self) -> int:
        """The number of entries for clients: one per client and filter."""
        return len(self._local)

    @property
    def remote_entries(self) -> int:
        """The number of entries for neighbours, all together."""
        return self._remote_entries

    def entries_for(self, neighbour: str) -> list[Filter]:
        """The entries for one neighbour; under simple routing an equal filter may be there more than once."""
        return [one for one, number in self._counts[neighbour].items() for _ in range(number)]

    def add_local(self, client: str, filter: Filter) -> bool:
        """Takes in an entry for a client; False if it was there."""
        return self._local.add(filter, client)

    def remove_local(self, client: str, filter: Filter) -> bool:
        """Takes out an entry for a client; False if it was not there."""
        return self._local.remove(filter, client)

    def apply(self, neighbour: str, update: Update) -> None:
        """Takes in what a neighbour announced and revoked, all of it or, if it is wrong, nothing."""
        counts = self._counts[neighbour]
        net: dict[Filter, int] = {}
        for change, filters in ((1, update.added), (-1, update.removed)):
            for one in filters:
                net[one] = net.get(one, 0) + change
        for one, number in net.items():
            if not one.satisfiable:
                raise PeerError(f"{neighbour} announced a filter that no event can match; such filters stay local")
            if counts.get(one, 0) + number < 0:
                raise PeerError(f"{neighbour} revoked the filter {one}, which it has not announced")
        for one, number in net.items():
            before = counts.get(one, 0)
            self._remote_entries += number
            if before + number:
                counts[one] = before + number
                if not before:
                    self._remote.add(one, neighbour)
            elif before:
                del counts[one]
                self._remote.remove(one, neighbour)

    def clients(self, event: Event) -> list[str]:
        """The clients that want an event, each once, in the order of their names."""
        return sorted(self._local.match(event))

    def neighbours(self, event: Event) -> set[str]:
        """The neighbours with an entry that matches an event."""
        return self._remote.match(event)
