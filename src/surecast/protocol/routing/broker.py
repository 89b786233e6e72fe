"""A broker that routes by content in an acyclic overlay (*capacity* sections 2 and 3.1), without any I/O.

Peer-to-peer: what the clients and all other neighbours subscribed to is announced to each neighbour, and an event goes
to the neighbours with a matching entry. Hierarchical: it is announced to the parent alone; an event goes to the parent
in any case, and to the children with a matching entry. Flooding: nothing is announced and an event goes everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from surecast.errors import ConfigurationError, PeerError
from surecast.protocol.filters import Event, Filter
from surecast.protocol.routing.digests import DIGESTS, Digest
from surecast.protocol.routing.messages import Deliver, Effect, Message, Notify, Send, Update
from surecast.protocol.routing.table import ContentTable

__all__ = ["ALGORITHMS", "ROUTING_SCHEMES", "RoutingBroker"]

ROUTING_SCHEMES: Final[tuple[str, ...]] = ("peer-to-peer", "hierarchical")
"""How neighbours stand to each other."""

ALGORITHMS: Final[tuple[str, ...]] = ("flooding", *DIGESTS)
"""When the propagation of a subscription is suspended; flooding is for the peer-to-peer scheme only."""

_LOCAL: Final = ""


class RoutingBroker:
    """One broker. The overlay must be acyclic and its links must keep the order of messages.

    >>> from surecast.protocol.filters import parse
    >>> broker = RoutingBroker("b1", ["b2", "b3"], "peer-to-peer", "covering")
    >>> [effect.to for effect in broker.subscribe("s1", parse("Stock: price > 35"))]
    ['b2', 'b3']
    >>> [effect.to for effect in broker.handle(Update(added=(parse("Stock: price > 40"),)), sender="b3")]
    []
    >>> broker.publish(Event("Stock", {"price": 37}))
    [Deliver(client='s1', event=Event(class_name='Stock', attributes=(('price', 37),)))]
    >>> effects = broker.unsubscribe("s1", parse("Stock: price > 35"))  # b2 needs what this uncovers, b3 sent it itself
    >>> [(effect.to, len(effect.message.removed), len(effect.message.added)) for effect in effects]
    [('b2', 1, 1), ('b3', 1, 0)]
    """

    def __init__(self, name: str, neighbours: Iterable[str], scheme: str, algorithm: str, parent: str | None = None):
        self.name = name
        self.neighbours = tuple(neighbours)
        self.scheme = scheme
        self.algorithm = algorithm
        self.parent = parent
        self._check()
        self._table = ContentTable(list(self.neighbours))
        told = self.neighbours if scheme == "peer-to-peer" else (parent,)
        self._digests: dict[str, Digest] = {}
        if algorithm != "flooding":
            self._digests = {hop: DIGESTS[algorithm]() for hop in told if hop is not None}

    def subscribe(self, client: str, filter: Filter) -> list[Effect]:
        """Takes a subscription from a client; nothing happens if it has the same one already."""
        if not self._table.add_local(client, filter) or not filter.satisfiable:
            return []
        return self._spread(Update(added=(filter,)), _LOCAL)

    def unsubscribe(self, client: str, filter: Filter) -> list[Effect]:
        """Takes a subscription back; nothing happens if the client has none with this filter."""
        if not self._table.remove_local(client, filter) or not filter.satisfiable:
            return []
        return self._spread(Update(removed=(filter,)), _LOCAL)

    def publish(self, event: Event) -> list[Effect]:
        """Takes an event from a client."""
        return self._forward(event, _LOCAL)

    def handle(self, message: Message, sender: str) -> list[Effect]:
        """Takes a message from a neighbour."""
        if sender not in self.neighbours:
            raise PeerError(f"broker {self.name} got a message from {sender}, which is not its neighbour")
        if isinstance(message, Notify):
            return self._forward(message.event, sender)
        if self.algorithm == "flooding":
            raise PeerError(f"{sender} sent subscriptions to broker {self.name}, but under flooding they stay local")
        if sender == self.parent:
            raise PeerError(f"{sender} sent subscriptions down to broker {self.name}; in a hierarchy they go up only")
        self._table.apply(sender, message)
        return self._spread(message, sender)

    @property
    def local_entries(self) -> int:
        """The number of local routing entries: one per client and filter."""
        return self._table.local_entries

    @property
    def remote_entries(self) -> int:
        """The number of remote routing entries, over all neighbours."""
        return self._table.remote_entries

    def entries_for(self, neighbour: str) -> list[Filter]:
        """The remote routing entries for one neighbour."""
        return self._table.entries_for(neighbour)

    def announced_to(self, neighbour: str) -> list[Filter]:
        """What this broker announced to a neighbour and did not revoke."""
        digest = self._digests.get(neighbour)
        return digest.announced if digest is not None else []

    def _check(self) -> None:
        where = f"broker {self.name}"
        if self.scheme not in ROUTING_SCHEMES:
            raise ConfigurationError(f"{where}: no scheme {self.scheme!r}; use one of {', '.join(ROUTING_SCHEMES)}")
        known = ("flooding", *DIGESTS)
        if self.algorithm not in known:
            raise ConfigurationError(f"{where}: no algorithm {self.algorithm!r}; use one of {', '.join(known)}")
        if self.algorithm == "flooding" and self.scheme == "hierarchical":
            raise ConfigurationError(f"{where}: flooding has no hierarchical form; use the scheme peer-to-peer")
        if len({self.name, _LOCAL, *self.neighbours}) < len(self.neighbours) + 2:
            raise ConfigurationError(f"{where}: its neighbours must be other brokers, each named once, none empty")
        if self.parent is not None and self.scheme == "peer-to-peer":
            raise ConfigurationError(f"{where}: a parent belongs to the hierarchical scheme; leave it out")
        if self.parent is not None and self.parent not in self.neighbours:
            raise ConfigurationError(f"{where}: its parent {self.parent} is not among its neighbours")

    def _spread(self, update: Update, source: str) -> list[Effect]:
        """Passes a change of what is behind this broker on, at most one message to each neighbour."""
        effects: list[Effect] = []
        for hop, digest in self._digests.items():
            if hop == source:
                continue
            message = digest.change(update.removed, update.added)
            if message is not None:
                effects.append(Send(hop, message))
        return effects

    def _forward(self, event: Event, source: str) -> list[Effect]:
        """Delivers an event and passes it on, once to each client and each neighbour that is to have it."""
        effects: list[Effect] = [Deliver(client, event) for client in self._table.clients(event)]
        hops = set(self.neighbours) if self.algorithm == "flooding" else self._table.neighbours(event)
        effects += [
            Send(hop, Notify(event)) for hop in self.neighbours if hop != source and (hop in hops or hop == self.parent)
        ]
        return effects
