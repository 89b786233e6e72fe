"""A broker's part in an overlay: what it announces, which way events go, and what it does when links and brokers fail.

A plain object: frames, changes of links and of local demand come in with the time; frames for each neighbour, events
for the broker's own clients and records for the disk come out. The shell commits `journal`, then writes `output` of
each link, so that no acknowledgement leaves before what it promises is on disk.

A scheme is a choice of parts: custody (events are on disk until they are acknowledged), detours (a view of all links,
and ways around what has failed), both or none. A scheme belongs to a tree, and topics belong to trees.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import Any, Final

from surecast.protocol.demand import LOCAL, JointFilter
from surecast.protocol.filters import Value
from surecast.protocol.link import CONTROL, LinkAck, LinkHello, NumberedFrame
from surecast.protocol.overlay.accounts_cut import AccountsCuts
from surecast.protocol.overlay.custody import Custody, HeldBatch
from surecast.protocol.overlay.event_id import EventId, SeenEvents
from surecast.protocol.overlay.frame_rules import check_frame
from surecast.protocol.overlay.frame_sizes import frame_bytes
from surecast.protocol.overlay.link_overflow import LinkOverflow
from surecast.protocol.overlay.node_accounts import HopAccounts, NodeAccounts
from surecast.protocol.overlay.node_demand import DISK_KINDS, NodeDemand
from surecast.protocol.overlay.node_detours import NodeDetours
from surecast.protocol.overlay.node_links import NodeLinks, NodeSettings
from surecast.protocol.overlay.overlay_frames import (
    Body,
    Detoured,
    EventBatch,
    Events,
    Frame,
    LinkStates,
    MapBucket,
    MapEntries,
    MapForget,
    MapFrame,
    MapSums,
    Marker,
    NodeState,
    UnknownFrame,
    Written,
    events_of,
)
from surecast.protocol.overlay.overlay_plan import OverlayPlan, scheme_parts
from surecast.protocol.overlay.overlay_view import OverlayView
from surecast.protocol.overlay.retained_map import RetainedMap
from surecast.protocol.overlay.retransmission import Retransmission
from surecast.protocol.overlay.unseen import runs_of, take_unseen

__all__ = ["OverlayNode"]

_CORE: Final = "\0"
"""The source of events that the core has given to the broker's own clients already."""


class OverlayNode:
    """One broker of an overlay.

    >>> from surecast.protocol.overlay.overlay_plan import Tree
    >>> plan = OverlayPlan(("b1", "b2"), (("b1", "b2"),), (Tree((("b1", "b2"),)),))
    >>> b1, b2 = OverlayNode("b1", plan, 1), OverlayNode("b2", plan, 1)
    >>> b2.demand(added=[JointFilter("stock/#", qos=1)])
    >>> hello_1, hello_2 = b1.hello("b2"), b2.hello("b1")
    >>> b1.link_up("b2", hello_2, now=0.0); b2.link_up("b1", hello_1, now=0.0)
    >>> for _ in range(4):
    ...     for sender, receiver in ((b1, b2), (b2, b1)):
    ...         for written in sender.output(receiver.name):
    ...             receiver.receive(sender.name, written, now=0.0)
    >>> _ = b1.publish("stock/acme", 1, now=1.0, qos=1)
    >>> for written in b1.output("b2"):
    ...     b2.receive("b1", written, now=1.0)
    >>> [batch.topic for batch in b2.take_deliveries()]
    ['stock/acme']
    """

    def __init__(
        self,
        name: str,
        plan: OverlayPlan,
        incarnation: int,
        settings: NodeSettings = NodeSettings(),  # noqa: B008 (immutable)
        now: float = 0.0,
    ):
        self.name = name
        self.plan = plan
        self.incarnation = incarnation
        self.settings = settings
        self.accounts = NodeAccounts(hops={hop: HopAccounts() for hop in plan.neighbours(name)})
        self.journal: list[tuple[tuple[Any, ...], Any]] = []
        self.custody = Custody(self.journal, settings.custody_events_max, settings.custody_bytes_max)
        self._parts = tuple(scheme_parts(tree.scheme) for tree in plan.trees)
        self._has_custody = any(parts.custody for parts in self._parts)
        self._has_detours = any(parts.detours for parts in self._parts)
        self._view = OverlayView(name, plan, incarnation)
        self._links = NodeLinks(name, plan, incarnation, settings)
        self.unwritten: Mapping[str, None] = self._links.unwritten
        """The neighbours for which there are new frames since `output` was last called for them. There may be
        acknowledgements for others."""
        self._demand = NodeDemand(
            name, plan, incarnation, settings, self._links, self._view, self.accounts, self.journal
        )
        self._overflow = LinkOverflow(settings, self.custody, self._links, self.accounts)
        self._detours = NodeDetours(
            name, self._parts, settings, self._links, self._view, self.custody, self.accounts.hops
        )  # fmt: skip
        self.waits_with_detours = False
        """True if events that come by a detour wait until `take_detoured` is called: what came over the tree in the
        same turn is older, and goes first."""
        self._detoured: list[tuple[Events, str]] = []
        self._again = Retransmission(settings.retransmission_interval_s)
        self._attempts: dict[str, SeenEvents] = {}
        self._deliveries: list[EventBatch] = []
        self.cuts = AccountsCuts(name, incarnation, self._links.sessions, self.accounts, self.custody)
        self._number = 0
        self.retained = RetainedMap(
            name, plan, self.journal, self._take_id, self._links.is_up, settings.retained_max,
            settings.retained_bytes_max,
        )  # fmt: skip
        self._coming: dict[str, dict[EventId, None]] = {hop: {} for hop in self._links.sessions}
        """The retained events at best effort that are on the link to each neighbour, by their last one."""
        self._started_s = now
        self._settles_s = now + settings.grace_s
        self._refreshes_s = now + settings.refresh_s

    # Clients of this broker

    def demand(self, added: Iterable[JointFilter] = (), removed: Iterable[JointFilter] = ()) -> None:
        """Takes in a change of what the broker's own clients want: the first of them to want something, the last."""
        self._demand.change(added, removed)
        self._end_overfull()

    def advertise(self, added: Iterable[JointFilter] = (), removed: Iterable[JointFilter] = ()) -> None:
        """Takes in what the broker's own clients will publish, and no longer. On trees with advertisements events that
        were not advertised reach those only whose demand came here for another reason."""
        self._demand.advertise(added, removed)
        self._end_overfull()

    def refresh(self, joint: JointFilter) -> None:
        """Sends again what the broker's own clients want, on trees that are refreshed from end to end; so does a tick
        every R."""
        self._demand.refresh(joint)
        self._end_overfull()

    def publish(
        self,
        topic: str,
        count: int,
        now: float,
        *,
        expires_s: float = inf,
        qos: int = 0,
        attributes: tuple[Mapping[str, Value], ...] = (),
        body: Body | None = None,
        publisher: str = "",
        is_delivered: bool = False,
        names: tuple[str, ...] | None = None,
        is_retained: bool = False,
        deletes: bool = False,
    ) -> EventBatch | None:
        """Takes events of a client of this broker; returns them with their identity, None where it is full. Where the
        core has delivered them to the broker's own clients, they are for neighbours alone, and taken in any case.
        Events to several topics are on one tree, and `topic` is that of the first.
        `names` are the attributes that were looked for, None if all. Events that are retained, to one topic, go to all
        brokers; with `deletes` they clear their topic."""
        tree = self.plan.tree_of(topic)
        parts = self._parts[tree]
        is_assured = parts.custody and qos > 0
        if is_assured and not is_delivered and self._is_congested(tree, LOCAL):
            self.accounts.refused += count
            return None
        first = EventId(self.name, self.incarnation, self._number)
        self._number += count
        stamp = self.retained.stamp(now, count) if is_retained else 0
        batch = EventBatch(
            first, count, topic, now, expires_s, qos, attributes, body, publisher, names, stamp, deletes
        )  # fmt: skip
        self.accounts.published += count
        if not self._demand.is_advertised(tree, topic):
            self.accounts.unadvertised += count
        events = Events(tree, batch, "" if is_assured else self.name)
        self._accept(events, _CORE if is_delivered else LOCAL, now, frame_bytes(events))
        return batch

    def take_deliveries(self) -> list[EventBatch]:
        """Returns the events for the broker's own clients since the last call."""
        deliveries, self._deliveries = self._deliveries, []
        return deliveries

    def take_detoured(self, now: float) -> None:
        """Takes in the events that came by a detour since the last call, where the node waits with them."""
        detoured, self._detoured = self._detoured, []
        for events, via in detoured:
            self._accept(events, via, now, frame_bytes(events))

    def holding(self, topics: Iterable[str], now: float) -> list[str]:
        """Returns the topics whose publishers should wait: a link that their events may need is full, and has not been
        for too long."""
        waiting = self._overflow.look(self._is_full, now)
        if not waiting:
            return []
        held: list[str] = []
        for topic in topics:
            tree = self.plan.tree_of(topic)
            hops = waiting.get(tree)
            takers = self._demand.takers(tree, topic) if hops else None
            if hops and (takers is None or any(hop in takers for hop in hops)):
                held.append(topic)
        return held

    def refuses(self, topic: str) -> bool:
        """Returns whether messages to a topic are refused, because a link that they may need has been full for too
        long."""
        tree = self.plan.tree_of(topic)
        takers = self._demand.takers(tree, topic)
        return self.settings.overflow == "reject" and any(
            of == tree and (takers is None or hop in takers) and self._is_full(hop, tree)
            for hop, of in self._overflow.since
        )

    def attributes(self, topic: str) -> tuple[str, ...] | None:
        """Returns the names of attributes that some filter on the tree of a topic asks for; None for all."""
        return self._demand.attributes(self.plan.tree_of(topic))

    def wanted_by(self, neighbour: str, tree: int) -> list[JointFilter]:
        """Returns what a neighbour has announced on a tree, sorted."""
        return self._demand.wanted_by(neighbour, tree)

    def demand_sums(self, neighbour: str, tree: int) -> tuple[int, int | None]:
        """Returns sums of hashes over what a neighbour has announced on a tree, and over what was announced to it.

        Where the first one at each end of a link equals the second one at the other, all that was said has arrived.
        """
        return self._demand.sums(neighbour, tree)

    def table_sizes(self) -> dict[str, int]:
        """Returns how many filters each neighbour has announced, over all trees."""
        trees = range(len(self.plan.trees))
        return {hop: sum(self._demand.entries(hop, tree) for tree in trees) for hop in self._links.sessions}

    def messages(self) -> dict[str, dict[str, int]]:
        """Returns what was sent to each neighbour by kind since the start. Events count one by one, however many are in
        a frame, and again where they were sent again; all else counts by frames."""
        events = {hop: own.transmitted + own.retransmitted for hop, own in self.accounts.hops.items()}
        return {hop: {"events": events[hop], **dict(sorted(sent.items()))} for hop, sent in self._links.sent.items()}

    @property
    def remote_entries(self) -> int:
        """The filters that neighbours have announced, over all trees: the size of the routing table."""
        return self._demand.remote_entries

    # Links

    def hello(self, neighbour: str) -> LinkHello:
        """Returns what to say first on a new connection to a neighbour."""
        return self._links.sessions[neighbour].hello()

    def link_up(self, neighbour: str, hello: LinkHello, now: float) -> None:
        """A connection to a neighbour was made; `hello` is what it said first."""
        session = self._links.sessions[neighbour]
        resumption = session.connect(hello)
        self._detours.connected(neighbour)
        self._links.down_since.pop(neighbour, None)
        self.cuts.connected(neighbour, resumption)
        self.accounts.hops[neighbour].came_after_all(resumption.came_after_all)
        self._acknowledged(neighbour, resumption.acknowledged)
        self._lose(neighbour, resumption.lost, resumption.unsent)
        if self._has_detours:
            state = self._view.link_changed(neighbour, is_up=True)
            self._links.put(neighbour, CONTROL, LinkStates(self._view.states))
            self._flood((state,), besides=neighbour)
            self._demand.view_changed()
        self._demand.compare(neighbour, is_resumed=resumption.is_received_resumed)
        if not (resumption.is_resumed and resumption.is_received_resumed):
            self._put_map(self.retained.compare(neighbour))
        self._end_overfull()
        self._pump(neighbour)
        for held in self._again.due_at_link_up(self.custody, neighbour):
            self._transmit(held, neighbour)
        if self._has_detours and self._has_custody:
            self._detours.returned(neighbour, now, knows_demand=self._demand.is_compared(neighbour))

    def is_resumed(self, neighbour: str) -> bool:
        """Returns whether what is sent over the last connection to a neighbour went on where it stopped before."""
        return self._links.sessions[neighbour].is_resumed

    def link_down(self, neighbour: str, now: float) -> None:
        """The connection to a neighbour broke, or the detector has given it up."""
        self._links.sessions[neighbour].disconnect()
        self._detours.disconnected(neighbour, now)
        self.retained.disconnected(neighbour)
        self._links.down_since[neighbour] = now
        if self._has_detours:
            self._flood((self._view.link_changed(neighbour, is_up=False),), besides=neighbour)
            self._demand.view_changed()
        if not self.settings.resume_s or neighbour in self._links.stuck:
            self._give_up(neighbour)
        self._detours.look_for(neighbour, now)

    def receive(self, neighbour: str, written: Written, now: float) -> None:
        """Takes in what came over a connection; PeerError where it breaks the rules, and the connection must end."""
        session = self._links.sessions[neighbour]
        if isinstance(written, LinkAck):
            self._acknowledged(neighbour, session.take_ack(written))
            self._detours.awaited.acknowledged(neighbour, now)
        else:
            session.receive(written)
            self._take(neighbour, written, now)
        if neighbour in self._detours.behind:
            self._detours.go_on(neighbour, now, knows_demand=self._demand.is_compared(neighbour))

    def output(self, neighbour: str, acknowledges: bool = True) -> list[Written]:
        """Returns what to write to a neighbour now; to be called after `journal` was committed. PeerError where it
        acknowledged nothing from one refresh to the next though too much waits for it: the connection must end.

        Without `acknowledges` an acknowledgement alone is put off, so that several are one; see `owes_ack`."""
        if self._has_custody:
            self._pump(neighbour)
        written = self._links.output(neighbour, self._is_congested, acknowledges)
        self.cuts.sent(neighbour, written)
        return written

    def owes_ack(self, neighbour: str) -> bool:
        """Returns whether a neighbour is connected and has sent something that was not acknowledged."""
        session = self._links.sessions[neighbour]
        return session.is_connected and session.owes_ack

    def reaches(self, neighbour: str) -> bool:
        """Returns whether there is a way to a neighbour, over its link or around it, as far as links are known here."""
        return self._view.path_to(neighbour) is not None

    def kept_for(self, neighbour: str) -> tuple[NumberedFrame[Frame], ...]:
        """Returns what was sent to a neighbour and not acknowledged yet."""
        return self._links.sessions[neighbour].kept

    # Time

    def next_timer(self) -> float:
        """Returns when `tick` has to be called next."""
        again_s = self._again.next_timer(self.custody)
        links_s = min(self._overflow.next_timer(), self._links.next_timer(), self._detours.next_timer())
        return min(self._settles_s, self._refreshes_s, links_s, self.custody.next_timer(), again_s)

    def tick(self, now: float) -> None:
        """Does what is due."""
        if now >= self._settles_s:
            self._settles_s = inf
            self._demand.settle()
        if now >= self._refreshes_s:
            self._refreshes_s = now + self.settings.refresh_s
            self._links.find_stuck()
            self._demand.refresh_all(now)
            self._refresh_retained(now)
        self._end_overfull()
        self._detours.tick(now)
        for neighbour, since_s in list(self._links.down_since.items()):
            if now >= since_s + self.settings.resume_s:
                self._give_up(neighbour)
        for held, unsent in self.custody.expire(now):
            for hop in unsent:
                self.accounts.hops[hop].dropped["expired"] += held.batch.count
        for held in self._again.due(self.custody, now):
            for hop in held.hops:
                self._transmit(held, hop)

    def restore(self, records: Mapping[tuple[Any, ...], Any]) -> None:
        """Takes back what was on disk, before anything else happens to a node that was started again."""
        self.custody.restore({key: record for key, record in records.items() if key[0] not in DISK_KINDS})
        self._demand.restore(records, self._started_s)
        self.retained.restore(records)
        self._again.restored(self.custody, list(self._links.sessions), self._started_s)
        for hop in self._links.sessions:
            self.accounts.hops[hop].offered += self.custody.events_unsent(hop)

    # Inside

    def _take(self, neighbour: str, written: NumberedFrame[Frame], now: float) -> None:
        _, lane, size, frame = written
        check_frame(self.plan, self.name, neighbour, frame, lane)
        self.cuts.came(neighbour, frame)
        if isinstance(frame, Events):
            self.accounts.received += frame.batch.count
            self._accept(frame, neighbour, now, size)
        elif isinstance(frame, Detoured):
            self._take_detour(frame, now)
        elif isinstance(frame, LinkStates):
            news = tuple(state for state in frame.states if self._has_detours and self._view.take(state))
            if news:
                self._flood(news, besides=neighbour)
                self._demand.view_changed()
                self._detours.look_around(now)
        elif isinstance(frame, Marker):
            self.cuts.take(neighbour, frame)
        elif isinstance(frame, MapSums | MapBucket | MapEntries | MapForget):
            self._take_map(neighbour, frame, now)
        elif not isinstance(frame, UnknownFrame):
            self._demand.receive(neighbour, frame, now)
            self._end_overfull()

    def _take_map(self, neighbour: str, frame: MapFrame, now: float) -> None:
        frames, fresh = self.retained.receive(neighbour, frame, now, self._is_coming)
        self._put_map(frames)
        for tree, entry in fresh:
            if LOCAL in self._demand.find(tree, entry.topic, now).possible() and now < entry.expires_s:
                self._deliver_repaired(tree, entry)

    def _deliver_repaired(self, tree: int, entry: EventBatch) -> None:
        """Hands a retained message that came by a comparison to the broker's own clients; its event may come yet."""
        parts = self._parts[tree]
        if parts.custody:
            seen = self.custody.delivered
        elif parts.detours:
            seen = self._attempts.setdefault(entry.first.origin, SeenEvents())
        else:
            self._deliver([entry])
            return
        for part in take_unseen(entry, seen, takes_too_old=False).parts:
            if parts.custody:
                self.custody.note_delivered(part)
            self._deliver([part])

    def _put_map(self, frames: Iterable[tuple[str, MapFrame]]) -> None:
        """Sends frames about retained messages; what a neighbour misses is found by the next comparison."""
        for hop, frame in frames:
            if isinstance(frame, MapEntries) and (self._links.is_up(hop) or hop in self._links.down_since):
                self.retained.entries_sent += len(frame.entries)
            if self._links.put_control(hop, frame):
                self._demand.overfull[hop] = None

    def _is_coming(self, hop: str, entry: EventBatch) -> bool:
        """Returns whether a retained message is on its way to a neighbour as an event."""
        return entry.first in self._coming[hop] or self.custody.holds(hop, entry.first)

    def _refresh_retained(self, now: float) -> None:
        """Compares retained messages with all neighbours that are up, and forgets deletions that all know."""
        self.retained.expire(now)
        for hop in self._links.up():
            self._put_map(self.retained.compare(hop))
        self._put_map(self.retained.begin_waves(now))

    def _take_id(self) -> EventId:
        self._number += 1
        return EventId(self.name, self.incarnation, self._number - 1)

    def _end_overfull(self) -> None:
        """Ends the sessions of links that are down on which too much demand waits; they compare it when they are up."""
        while self._demand.overfull:
            self._give_up(self._demand.overfull.popitem()[0])

    def _flood(self, states: tuple[NodeState, ...], besides: str) -> None:
        for hop in self._links.up():
            if hop != besides:
                self._links.put(hop, CONTROL, LinkStates(states))

    def _is_congested(self, tree: int, source: str) -> bool:
        """Returns whether events from a source may have to wait."""
        return self._links.is_congested(tree, source, lambda hop: self._is_full(hop, tree))

    def _is_full(self, hop: str, tree: int) -> bool:
        return self._parts[tree].custody and self.custody.is_full(hop, tree)

    def _accept(self, events: Events, source: str, now: float, size: int) -> None:
        """Takes events from a client, a neighbour or a detour: assured where `attempt` is empty."""
        if not events.attempt:
            self._take_custody(events.tree, events.batch, source, now)
        elif not self._parts[events.tree].detours:
            self._pass_on(events, source, now, size)
        else:
            seen = self._attempts.setdefault(events.attempt, SeenEvents())
            fresh, repeated, too_old = take_unseen(events.batch, seen, takes_too_old=False)
            self.accounts.duplicates += repeated
            self.accounts.too_old += too_old
            for batch in fresh:
                part = events if batch is events.batch else Events(events.tree, batch, events.attempt)
                self._pass_on(part, source, now, size if part is events else frame_bytes(part))

    def _pass_on(self, events: Events, source: str, now: float, size: int) -> None:
        """Delivers events and sends them on at best effort. A frame of which all goes on is used again."""
        tree, batch = events.tree, events.batch
        if now >= batch.expires_s:
            self.accounts.expired += batch.count
            return
        if batch.stamp:
            self.retained.take(tree, batch)
        for part, hops in self._route(tree, batch, now):
            for hop, qos in hops.items():
                if hop == LOCAL:
                    if source != _CORE:
                        self._deliver_best_effort(tree, part)
                elif hop == source:
                    continue
                elif part is batch and batch.qos <= qos:
                    self._send(hop, events, size)
                else:
                    frame = Events(tree, part.at_most(qos), events.attempt)
                    self._send(hop, frame, frame_bytes(frame))

    def _take_custody(self, tree: int, batch: EventBatch, source: str, now: float) -> None:
        """Has events on disk, with the neighbours that want them, before they are acknowledged to their source."""
        unseen = take_unseen(batch, self.custody.accepted, takes_too_old=True)
        self.accounts.duplicates += unseen.repeated
        for part in unseen.parts:
            fresh = self.custody.not_held(part)
            self.accounts.duplicates += part.count - (fresh.count if fresh is not None else 0)
            if fresh is None:
                continue
            if now >= fresh.expires_s:
                self.accounts.expired += fresh.count
                self.custody.take(tree, fresh, {})
                continue
            if fresh.stamp:
                self.retained.take(tree, fresh)
            for part, wanted in self._route(tree, fresh, now):
                if LOCAL in wanted and source != _CORE:
                    self._deliver(take_unseen(part, self.custody.delivered, takes_too_old=True).parts)
                hops = {hop: qos for hop, qos in wanted.items() if hop not in (LOCAL, source)}
                if self._overflow.since and source in (LOCAL, _CORE):
                    hops = {hop: qos for hop, qos in hops.items() if self._overflow.makes_room(hop, tree, part)}
                held = self.custody.take(tree, part, hops)
                if held is not None:
                    self._begin(held, now)

    def _begin(self, held: HeldBatch, now: float) -> None:
        """Sends events that were just taken over to their neighbours, or around those that are down."""
        count = held.batch.count
        for hop in held.hops:
            accounts = self.accounts.hops[hop]
            accounts.offered += count
            if self._links.is_up(hop):
                held.untried += (hop,)
                self._pump(hop)
                self._transmit(held, hop)
                self._detours.took(held, hop, now)
            elif self._parts[held.tree].detours:
                self._detours.send_held(held, hop)
            else:
                accounts.transmitted += count
        self._again.began(held, now)

    def _route(self, tree: int, batch: EventBatch, now: float) -> list[tuple[EventBatch, Mapping[str, int]]]:
        """Runs of events with the neighbours that want them, each with its QoS; the one they came from among them."""
        body = batch.body
        if body is not None and len(body.topics) > 1:
            wanted = [self._demand.find(tree, topic, now).neighbours({}) for topic in body.topics]
            stops = (*body.firsts[1:], batch.count)
            return [
                (batch.part(body.firsts[first], stops[last - 1]), hops) for first, last, hops in runs_of(wanted)
            ]  # fmt: skip
        demand = self._demand.find(tree, batch.topic, now)
        if batch.stamp:  # every broker keeps it, and hands it to its own clients if any want it
            local = {LOCAL: batch.qos} if LOCAL in demand.possible() else {}
            return [(batch, local | dict.fromkeys(self.plan.tree_neighbours(tree, self.name), batch.qos))]
        if not demand.conditional:
            return [(batch, demand.always)]
        if batch.names is not None and not self._demand.has_all(tree, batch.names):
            return [(batch, demand.possible())]  # the home brokers of the subscribers decide
        if not batch.attributes:
            return [(batch, demand.neighbours({}))]
        if batch.count == 1:
            return [(batch, demand.neighbours(batch.attributes[0]))]
        each = [demand.neighbours(values) for values in batch.attributes]
        return [(batch.part(start, stop), hops) for start, stop, hops in runs_of(each)]

    def _deliver(self, batches: list[EventBatch]) -> None:
        self._deliveries += batches
        self.accounts.delivered += sum(batch.count for batch in batches)

    def _deliver_best_effort(self, tree: int, batch: EventBatch) -> None:
        """Hands events to the broker's own clients. With custody and detours they may have had them by the other way,
        maybe at another QoS; what the memory had to forget is left to the way that is assured."""
        parts = self._parts[tree]
        if not (parts.custody and parts.detours):
            self._deliveries.append(batch)
            self.accounts.delivered += batch.count
            return
        unseen = take_unseen(batch, self.custody.delivered, takes_too_old=False)
        self.accounts.too_old += unseen.too_old
        for part in unseen.parts if batch.qos > 0 else ():
            self.custody.note_delivered(part)
        self._deliver(unseen.parts)

    def _send(self, hop: str, events: Events, size: int) -> None:
        """Sends events at best effort: over the link, or around it where it is down and the scheme has detours."""
        count, accounts = events.batch.count, self.accounts.hops[hop]
        accounts.offered += count
        if not self._links.sessions[hop].is_connected:
            has_detours = self._parts[events.tree].detours
            if has_detours and self._detours.send(hop, events, set()):
                accounts.detoured += count
                return
            if hop not in self._links.down_since or not self.settings.resume_s:
                accounts.dropped["link-down"] += count
                accounts.transmitted += 0 if has_detours else count
                return
        elif hop in self._detours.behind and self._parts[events.tree].detours:
            self._detours.send(hop, events, set())
        if self._links.put_events(hop, events.tree, size, events) or (
            self._overflow.drops_old(hop, events.tree) and self._links.put_events(hop, events.tree, size, events)
        ):
            accounts.transmitted += count
            accounts.on_link += count
            if events.batch.stamp:
                self._coming[hop][events.batch.first.plus(count - 1)] = None
        else:
            accounts.dropped["queue-full"] += count

    def _take_detour(self, detour: Detoured, now: float) -> None:
        frame = detour.frame
        if detour.path:
            self._pass_detour(detour, now)
            return
        if isinstance(frame, Events):
            self.accounts.received += frame.batch.count
            self._detoured.append((frame, detour.via))
            if not self.waits_with_detours:
                self.take_detoured(now)
        else:
            self._demand.take_detour(detour, now)
            self._end_overfull()

    def _pass_detour(self, detour: Detoured, now: float) -> None:
        hop, *rest = detour.path
        onward = Detoured(detour.sender, tuple(rest), detour.via, detour.frame)
        if not isinstance(detour.frame, Events):
            if self._links.is_up(hop):
                self._links.put(hop, CONTROL, onward)
        elif self._is_behind(hop, detour):
            self._accept(detour.frame, hop, now, frame_bytes(detour.frame))
        else:
            self._detours.put(hop, onward, detour.frame, "path-down")

    def _is_behind(self, hop: str, detour: Detoured) -> bool:
        """Returns whether a detour leads to a neighbour that is down here, behind which this broker is on the tree.

        All neighbours of a broker that froze notice it one after the other, and the first one still sees a way to it
        over the others. They take at once what would be sent to them later."""
        is_last = len(detour.path) == 1 and hop in self._links.down_since and detour.via != self.name
        return is_last and hop in self.plan.tree_neighbours(detour.frame.tree, self.name)

    def _pump(self, hop: str) -> None:
        """Puts events in custody on the link to a neighbour, as far as the lane of each tree takes them. Where they are
        sent again at an interval they wait for it."""
        session = self._links.sessions[hop]
        if not session.is_connected or self._again.interval_s:
            return
        for tree in self._links.trees_of(hop):
            for held in self.custody.unsent(hop, tree) if session.waiting(tree) <= self.settings.window_bytes else ():
                self._put_held(held, hop)
                if session.waiting(tree) > self.settings.window_bytes:
                    break

    def _transmit(self, held: HeldBatch, hop: str) -> None:
        """Puts events in custody on the link to a neighbour, unless they are there or its lane is full."""
        session = self._links.sessions[hop]
        if not session.is_connected:
            self.accounts.hops[hop].retransmitted += 0 if self._parts[held.tree].detours else held.batch.count
        elif session.waiting(held.tree) <= self.settings.window_bytes and self.custody.take_unsent(hop, held):
            self._put_held(held, hop)

    def _put_held(self, held: HeldBatch, hop: str) -> None:
        accounts, count = self.accounts.hops[hop], held.batch.count
        if hop in held.untried:
            held.untried = tuple(other for other in held.untried if other != hop)
            accounts.transmitted += count
        else:
            accounts.retransmitted += count
        accounts.on_link += count
        self._links.put(hop, held.tree, Events(held.tree, held.batch.at_most(held.hops[hop])))

    def _acknowledged(self, neighbour: str, frames: Iterable[NumberedFrame[Frame]]) -> None:
        accounts = self.accounts.hops[neighbour]
        for _, _, _, frame in frames:
            if isinstance(frame, Events):
                accounts.on_link -= frame.batch.count
                accounts.acknowledged += frame.batch.count
                if not frame.attempt:
                    self.custody.acknowledge(neighbour, frame.batch.first)
                elif frame.batch.stamp:
                    self._coming[neighbour].pop(frame.batch.first.plus(frame.batch.count - 1), None)
            elif count := events_of(frame):
                accounts.on_link -= count
                accounts.acknowledged += count

    def _lose(
        self, neighbour: str, lost: Iterable[NumberedFrame[Frame]], unsent: Iterable[NumberedFrame[Frame]] = ()
    ) -> None:
        """Takes back what was on a link when its session ended: what is in custody is sent again, in order; what else
        was sent is lost, and what was not sent goes on waiting."""
        accounts = self.accounts.hops[neighbour]
        in_custody: list[EventBatch] = []
        for _, _, _, frame in lost:
            count = events_of(frame)
            accounts.on_link -= count
            if isinstance(frame, Events) and not frame.attempt:
                in_custody.append(frame.batch)
            else:
                accounts.lost += count
                if isinstance(frame, Events) and frame.batch.stamp:
                    self._coming[neighbour].pop(frame.batch.first.plus(count - 1), None)
        for _, lane, _, frame in unsent:
            if isinstance(frame, Events) and not frame.attempt:
                accounts.on_link -= frame.batch.count
                in_custody.append(frame.batch)
            else:
                self._links.put(neighbour, lane, frame)
        again = [batch for batch in in_custody if self.custody.holds(neighbour, batch.first)]
        accounts.dropped["expired"] += sum(batch.count for batch in in_custody) - sum(batch.count for batch in again)
        self.custody.unsend(neighbour, [batch.first for batch in again])

    def _give_up(self, neighbour: str) -> None:
        """Ends the session of a link that has been down for too long, or on which nothing is acknowledged."""
        self._links.stuck.pop(neighbour, None)
        self._links.down_since.pop(neighbour, None)
        given_up = self._links.sessions[neighbour].expire()
        sent = [frame.content for frame in given_up if frame.number]
        if sent:
            self.accounts.hops[neighbour].given_up = tuple(
                0 if isinstance(frame, Events) and not frame.attempt else events_of(frame) for frame in sent
            )
        self._lose(neighbour, given_up)
