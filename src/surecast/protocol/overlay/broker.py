"""A broker of the overlay: the routing table, the event store and the link-state view, put together by scheme.

Nothing here reads a clock, sends or writes. Messages and the time go in, effects come out, and whoever runs the
broker carries them out in their order (see `effects`).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from surecast.errors import PeerError
from surecast.protocol.overlay.effects import (
    Deliver,
    Discard,
    Drop,
    Effect,
    Key,
    Record,
    Send,
    Store,
    StoredSubscription,
    subscription_key,
)
from surecast.protocol.overlay.event_store import EventStore
from surecast.protocol.overlay.link_state import LinkStateView
from surecast.protocol.overlay.links import DetouringLinks, DirectLinks
from surecast.protocol.overlay.memory import Memory
from surecast.protocol.overlay.messages import (
    Ack,
    ClientMessage,
    Detour,
    Event,
    EventMessage,
    LinkState,
    Message,
    Publish,
    Subscribe,
    Unsubscribe,
)
from surecast.protocol.overlay.overlay_map import OverlayMap
from surecast.protocol.overlay.routing_table import LOCAL, RoutingTable
from surecast.protocol.overlay.settings import Settings

__all__ = ["Broker"]


class Broker:
    """One broker of the overlay.

    >>> overlay = OverlayMap([("b1", "b2")], {"Stock": [("b1", "b2")]})
    >>> broker = Broker("b1", overlay, Settings())
    >>> broker.handle(Subscribe("s1", "Stock", issued_s=0.0), sender="b2", now=0.0)
    []
    >>> [effect.to for effect in broker.from_client(Publish(Event(("p1", 0), "Stock", published_s=1.0)), now=1.0)]
    ['b2']
    """

    def __init__(self, name: str, overlay: OverlayMap, settings: Settings):
        self.name = name
        self.overlay = overlay
        self.settings = settings
        self.is_up = True
        self._forget(all_up=True)
        self._up_since_s = -inf

    def from_client(self, message: ClientMessage, now: float) -> list[Effect]:
        """Takes a message from one of the broker's own clients."""
        self._must_be_up()
        if isinstance(message, Publish):
            return self._accept(message.event, LOCAL, "" if self.settings.buffers else self.name, now)
        if isinstance(message, Subscribe):
            return self._subscribe(message, LOCAL, now)
        return self._unsubscribe(message, LOCAL, now)

    def handle(self, message: Message, sender: str, now: float) -> list[Effect]:
        """Takes a message from a neighbour."""
        self._must_be_up()
        if sender not in self.overlay.neighbours[self.name]:
            raise PeerError(f"broker {self.name} got a message from {sender}, which is not its neighbour")
        if isinstance(message, Ack):
            return self._store.acknowledge(message.event_id, sender)
        if isinstance(message, LinkState):
            return list(self._view.receive(message, sender)) if self.settings.bypasses else []
        if isinstance(message, Detour):
            return self._detour(message, now)
        return self._take(message, sender, now)

    def neighbour_changed(self, neighbour: str, up: bool, now: float) -> list[Effect]:
        """Takes in that the neighbour detector found a neighbour up or down, the link to it included."""
        self._must_be_up()
        effects: list[Effect] = []
        if self.settings.bypasses:
            effects += self._view.neighbour_changed(neighbour, up)
            if not up and self.settings.buffers:
                for event in self._store.take_for_detour(neighbour):
                    effects += self._links.send(event.topic, neighbour, EventMessage(event, self.name))
        if up and self.settings.buffers and not self.settings.retransmission_interval_s:
            self._store.wake(neighbour, now)
        return effects

    def next_timer(self) -> float:
        """When `handle_timer` has to be called next; infinite if never."""
        return min(self._store.next_timer(), self._table.next_timer())

    def handle_timer(self, now: float) -> list[Effect]:
        """Does what is due: retransmissions, and what has expired or timed out."""
        self._must_be_up()
        effects = self._store.expire(now)
        for event, waiting in self._store.take_due(now):
            effects += [Send(hop, EventMessage(event), again=True) for hop in waiting if self._links.is_up(hop)]
        for subscriber, topic in self._table.purge(now):
            if self.settings.buffers:
                effects.append(Discard(subscription_key(subscriber, topic)))
        return effects

    def crash(self) -> None:
        """Stops. All that is not on disk is lost: the routing table, the view, what was seen."""
        self.is_up = False
        self._forget(all_up=False)

    def recover(self, now: float, records: Mapping[Key, Record]) -> list[Effect]:
        """Starts again with what is on disk. No neighbour counts as up until the detector says so."""
        self.is_up = True
        self._up_since_s = now
        for record in records.values():
            if isinstance(record, StoredSubscription):
                self._table.restore(record, now)
            else:
                self._store.restore(record, now)
        return self._store.expire(now)

    @property
    def routing_table(self) -> RoutingTable:
        """The routing table, to look at."""
        return self._table

    @property
    def stored_events(self) -> int:
        """Number of events that wait in the store for an acknowledgement."""
        return len(self._store)

    def _forget(self, *, all_up: bool) -> None:
        settings = self.settings
        self._table = RoutingTable(settings.subscription_timeout_s)
        self._store = EventStore(settings.retransmission_interval_s)
        self._memory = Memory(settings.memory_max)
        self._view = LinkStateView(self.name, self.overlay, all_up=all_up)
        self._links = DetouringLinks(self.name, self.overlay, self._view) if settings.bypasses else DirectLinks()

    def _must_be_up(self) -> None:
        if not self.is_up:
            raise RuntimeError(f"broker {self.name} is down and was asked to act: call recover() first")

    def _detour(self, message: Detour, now: float) -> list[Effect]:
        """Passes a detour on, or takes what it carries as if the neighbour `via` had sent it."""
        if not message.path:
            return self._take(message.message, message.via, now)
        hop = message.path[0]
        if self._links.is_up(hop):
            return [Send(hop, Detour(message.path[1:], message.via, message.message))]
        carried = message.message
        return [Drop(carried.event, hop, "path down")] if isinstance(carried, EventMessage) else []

    def _take(self, message: EventMessage | Subscribe | Unsubscribe, source: str, now: float) -> list[Effect]:
        if isinstance(message, EventMessage):
            return self._accept(message.event, source, message.origin, now)
        if isinstance(message, Subscribe):
            return self._subscribe(message, source, now)
        return self._unsubscribe(message, source, now)

    def _subscribe(self, message: Subscribe, source: str, now: float) -> list[Effect]:
        """Stores the subscription and its source before passing it on along the tree of its topic."""
        subscriber, topic, issued_s = message.subscriber, message.topic, message.issued_s
        effects: list[Effect] = []
        if self.settings.buffers and self._table.source_of(subscriber, topic) != source:
            record = StoredSubscription(subscriber, topic, source, issued_s)
            effects.append(Store(subscription_key(subscriber, topic), record))
        if not self._table.refresh(subscriber, topic, source, issued_s, now):
            return []
        return effects + self._spread(message, source)

    def _unsubscribe(self, message: Unsubscribe, source: str, now: float) -> list[Effect]:
        effects: list[Effect] = []
        if self._table.source_of(message.subscriber, message.topic) is not None and self.settings.buffers:
            effects.append(Discard(subscription_key(message.subscriber, message.topic)))
        if not self._table.remove(message.subscriber, message.topic, source, message.issued_s, now):
            return []
        return effects + self._spread(message, source)

    def _spread(self, message: Subscribe | Unsubscribe, source: str) -> list[Effect]:
        effects: list[Effect] = []
        for hop in self.overlay.tree_neighbours(message.topic, self.name):
            if hop != source:
                effects += self._links.send(message.topic, hop, message)
        return effects

    def _accept(self, event: Event, source: str, origin: str, now: float) -> list[Effect]:
        """Takes an event from a client, a neighbour or a detour: assured where `origin` is empty."""
        if origin or not self.settings.buffers:
            return self._pass_on(event, source, origin, now)
        acknowledgement: list[Effect] = [] if source == LOCAL else [Send(source, Ack(event.id))]
        if self._store.accepted(event.id):
            return acknowledgement
        if now > event.expires_s:
            return [Drop(event, "", "expired"), *acknowledgement]
        hops = self._table.next_hops(event.topic, now, besides=source)
        if hops and len(self._store) >= self.settings.store_max:
            return [Drop(event, "", "store full")] if source == LOCAL else []
        had_it = self._store.delivered(event.id)
        effects = self._store.expire(now)
        effects.append(self._store.add(event, hops, now))
        effects += acknowledgement
        if not had_it:
            effects += [Deliver(name, event) for name in self._table.subscribers(event.topic, now)]
        for hop in hops:
            if self._links.is_up(hop):
                effects.append(Send(hop, EventMessage(event)))
            else:
                # Around the failure without acknowledgement; the stored copy waits for the failed broker itself.
                self._store.note_detour(event.id, hop)
                effects += self._links.send(event.topic, hop, EventMessage(event, self.name))
        return effects

    def _pass_on(self, event: Event, source: str, origin: str, now: float) -> list[Effect]:
        """Delivers an event and passes it on at best effort, each attempt once.

        Where there is a disk what has expired is dropped, as what is on disk about it is discarded then.
        """
        if self.settings.buffers and now > event.expires_s:
            return [Drop(event, "", "expired")]
        if not self._memory.is_new((event.id, origin)):
            return []
        effects: list[Effect] = []
        subscribers = self._table.subscribers(event.topic, now)
        if subscribers and self._may_deliver(event):
            if self.settings.buffers:
                effects.append(self._store.add_delivered(event))
            effects += [Deliver(name, event) for name in subscribers]
        elif subscribers and not self.settings.buffers:
            effects.append(Drop(event, LOCAL, "unknown state"))
        message = EventMessage(event, origin)
        for hop in self._table.next_hops(event.topic, now, besides=source):
            effects += self._links.send(event.topic, hop, message)
        return effects

    def _may_deliver(self, event: Event) -> bool:
        """Whether the broker's subscribers cannot have had an event before.

        A broker without disk does not know what it delivered before it crashed, so it leaves older events alone.
        """
        if self.settings.buffers:
            return not self._store.delivered(event.id)
        return event.published_s >= self._up_since_s
