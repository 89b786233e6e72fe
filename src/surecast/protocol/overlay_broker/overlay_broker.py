"""An MQTT broker that is one of an overlay: the core for its clients, and the node for its neighbours.

A turn: all that has arrived goes into the core (`core.receive`) and into connections of neighbours
(`LinkConnection.receive`). `settle` carries between the two what clients published, what they want, and what came for
them. Then the shell commits `core.take_journal()`, which has the records of both, and only then sends: `core.dirty` to
clients, and the `output` of each connection to neighbours. So no acknowledgement leaves, to a client or a neighbour,
before what it promises is on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Final

from surecast.protocol.broker import BrokerCore
from surecast.protocol.broker.local_traffic import LocalTraffic, Publication
from surecast.protocol.broker.message import Message
from surecast.protocol.overlay.node_links import NodeSettings
from surecast.protocol.overlay.node_records import (
    INCARNATION_KEY,
    NodeKey,
    is_node_record,
    node_records,
    read_node_record,
)
from surecast.protocol.overlay.overlay_node import OverlayNode
from surecast.protocol.overlay.overlay_plan import SESSION_SHARE, OverlayPlan
from surecast.protocol.overlay_broker.deliveries import Deliveries
from surecast.protocol.overlay_broker.link_connection import LinkConnection
from surecast.protocol.overlay_broker.local_demand import LocalDemand, LocalMembers
from surecast.protocol.overlay_broker.publications import hand_on, publish
from surecast.protocol.overlay_broker.session_homes import SessionHomes
from surecast.protocol.overlay_broker.session_moves import SessionMoves
from surecast.protocol.overlay_broker.session_parts import PART_KEY
from surecast.protocol.overlay_broker.session_seen import SessionSeen

__all__ = ["OverlayBroker"]

_STARTS_PER_S: Final = 1000


class OverlayBroker:
    """One broker of an overlay. `core` is new, and was made with a `traffic`; `records` are what is on disk. Where the
    settings have homes of sessions, `address` returns where clients find another broker.

    >>> from surecast.protocol.overlay.overlay_plan import Tree
    >>> plan = OverlayPlan(("b1", "b2"), (("b1", "b2"),), (Tree((("b1", "b2"),)),))
    >>> one, two = (OverlayBroker(name, plan, BrokerCore(traffic=LocalTraffic()), now=0.0) for name in plan.brokers)
    >>> call, answer = LinkConnection(one, "b2"), LinkConnection(two)
    >>> answer.receive(call.output(), now=0.0)
    >>> call.receive(answer.output(), now=0.0)
    >>> call.is_up, answer.is_up, answer.neighbour
    (True, True, 'b1')
    """

    def __init__(
        self,
        name: str,
        plan: OverlayPlan,
        core: BrokerCore,
        *,
        records: Iterable[tuple[bytes, bytes]] = (),
        now: float,
        settings: NodeSettings = NodeSettings(),  # noqa: B008 (immutable)
        address: Callable[[str], str] = lambda _: "",
    ):
        self.name = name
        self.core = core
        own, parts, others, before = _sorted(records)
        # Without a disk the time makes it rise: an incarnation that came again would be taken for repetitions.
        incarnation = max(before + 1, int(now * _STARTS_PER_S))
        core.journal.others([(INCARNATION_KEY, incarnation.to_bytes(8, "big"))])
        assert core.traffic is not None, "the core of an overlay broker is made with a traffic"
        self.node = OverlayNode(name, plan, incarnation, settings, now)
        self.node.waits_with_detours = True
        if settings.overflow == "reject":
            core.traffic.refuses = self.node.refuses
            core.incoming.rejects = True
        self.node.restore(own)
        self.homes: SessionHomes | None = None
        if self.node.homes is not None:
            self.homes = SessionHomes(self.node, self.node.homes, core, address)
            core.traffic.sessions = {}
            if not settings.moves:
                core.traffic.elsewhere = self.homes.elsewhere
        self.moves = self._make_moves()
        core.restore(others, now)
        self._start_sessions(parts, now)
        self._traffic: LocalTraffic = core.traffic
        self._early = [each for each in core.traffic.publications if not self._is_heard(each)]
        """The wills of clients that were connected when the broker died, until it is known who wants them."""
        core.traffic.publications = [each for each in core.traffic.publications if self._is_heard(each)]
        for message in core.retained.state()[0]:  # those of a broker that was alone before
            if self.node.retained.get(message.topic) is None:
                core.traffic.publish_message(message)
        self._demand = LocalDemand()
        self._members = LocalMembers(name)
        self.deliveries = Deliveries(name, core)
        self.connections: dict[str, LinkConnection] = {}
        """The connections to neighbours, up or about to be."""
        self.held: dict[str, str] = {}
        """The publishers, by the keys of their sessions, that are not to be read until the links that their events need
        have room; each with the topic that it was held for."""

    def _start_sessions(self, parts: Mapping[str, bytes], now: float) -> None:
        if self.homes is None:
            return
        known = self.homes.known()
        if self.moves is not None:
            self.moves.restore(parts)
        self.homes.start(now)
        if self.moves is not None:
            self.moves.start(known, now)

    def _make_moves(self) -> SessionMoves | None:
        traffic, homes = self.core.traffic, self.homes
        if homes is None or traffic is None or not self.node.settings.moves:
            return None
        moves = SessionMoves(self.node, homes, self.core)
        traffic.waits, traffic.take_events, traffic.make_seen = moves.waits, self.node.take_ids, SessionSeen
        homes.moved = moves.leave
        return moves

    def settle(self, now: float) -> None:
        """Ends a turn: carries between core and node what has come; to be called before the commit."""
        node = self.node
        self._take_traffic(now)
        node.take_detoured(now)
        self._deliver(now)
        if self.moves is not None:
            while self._traffic.is_pending:  # sessions that came or went have changed what is wanted
                self._take_traffic(now)
                self._deliver(now)
            self.moves.settle(now)
        if node.journal:
            self.core.journal.others(node_records(node.journal))
            node.journal.clear()
        if self.held:
            full = {*node.holding(dict.fromkeys(self.held.values()), now)}
            self.held = {publisher: topic for publisher, topic in self.held.items() if topic in full}

    def _take_traffic(self, now: float) -> None:
        """Gives the node what clients have published, and what they want."""
        traffic, node = self._traffic, self.node
        if traffic.members:  # first of all: who has left gets nothing more
            members, traffic.members = traffic.members, {}
            node.demand_members(*self._members.change(members))
        if self.homes is not None and traffic.sessions:
            keys, traffic.sessions = traffic.sessions, {}
            self.homes.settle(keys, now)
            if self.moves is not None:
                self.moves.note(keys, now)
        if traffic.left:
            left, traffic.left = traffic.left, []
            hand_on(node, left, now)
        if self._early and all(map(self._is_heard, self._early)):
            traffic.publications[:0] = self._early
            self._early = []
        if traffic.publications:
            publications, traffic.publications = traffic.publications, []
            publishers = publish(node, publications, now)
            for topic in node.holding(publishers, now):
                self.held |= dict.fromkeys(publishers[topic], topic)
        if traffic.subscriptions:
            changes, traffic.subscriptions = traffic.subscriptions, []
            added, removed = self._demand.change(changes)
            if added or removed:
                node.demand(added, removed)

    def _is_heard(self, publication: Publication) -> bool:
        message = publication.messages
        return not isinstance(message, Message) or self.node.is_heard(
            message.topic, message.qos, is_retained=message.retain
        )

    def _deliver(self, now: float) -> None:
        """Gives the clients what has come for them."""
        node = self.node
        for events in node.take_deliveries():
            if not events.share:
                self.deliveries.deliver(events, now)
                continue
            if events.share == SESSION_SHARE:
                if self.moves is not None:
                    self.moves.receive(events, now)
                continue
            for untaken in self.deliveries.deliver_to_member(events, now):
                node.hand_on(untaken, now)
        if self.homes is not None:
            self.homes.take_changes(now)
        for topic, entry in node.retained.take_changed():
            # The core has what its own clients retain, and has had it before the node.
            if entry is None or (entry.first.origin, entry.first.incarnation) != (self.name, node.incarnation):
                self.deliveries.retain(topic, entry, now)

    def restored(self) -> None:
        """Core and node have the state of another broker: what the core has collected of it is known to the node."""
        self._members.change(self._traffic.members)
        self._traffic.forget()

    def next_timer(self) -> float:
        """Returns when `tick` has to be called next; the core has times of its own."""
        moves_s = self.moves.next_timer() if self.moves is not None else inf
        return min(self.node.next_timer(), moves_s)

    def tick(self, now: float) -> None:
        """Does what is due in the overlay."""
        self.node.tick(now)
        if self.moves is not None:
            self.moves.tick(now)

    def connected(self, connection: LinkConnection, now: float) -> None:
        """A neighbour said hello; an older connection of it is replaced, of which this end has not seen the end."""
        former = self.connections.get(connection.neighbour)
        if former is not None and former is not connection:
            former.close(now)
        self.connections[connection.neighbour] = connection

    def disconnected(self, connection: LinkConnection, now: float) -> None:
        """A connection is over."""
        if self.connections.get(connection.neighbour) is connection:
            del self.connections[connection.neighbour]
            if connection.is_up:
                self.node.link_down(connection.neighbour, now)


def _sorted(
    records: Iterable[tuple[bytes, bytes]],
) -> tuple[dict[NodeKey, object], dict[str, bytes], list[tuple[bytes, bytes]], int]:
    """Returns the records of the node, those of parts of sessions, those of the core, and the last incarnation."""
    own: dict[NodeKey, object] = {}
    parts: dict[str, bytes] = {}
    others: list[tuple[bytes, bytes]] = []
    before = 0
    for key, value in records:
        if key == INCARNATION_KEY:
            before = int.from_bytes(value, "big")
        elif key.startswith(PART_KEY):
            parts[key[len(PART_KEY) :].decode()] = value
        elif is_node_record(key):
            node_key, record = read_node_record(key, value)
            own[node_key] = record
        else:
            others.append((key, value))
    return own, parts, others, before
