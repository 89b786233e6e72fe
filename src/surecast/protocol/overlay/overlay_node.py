"""A broker's part in an overlay: what it announces, which way events go, and what it does when links and brokers fail.

A plain object: frames, changes of links and of local demand come in with the time; frames for each neighbour, events
for the broker's own clients and records for the disk come out. The shell commits `journal`, then writes `output` of
each link, so that no acknowledgement leaves before what it promises is on disk.

A scheme is a choice of parts: custody (events are on disk until they are acknowledged), detours (a view of all links,
and ways around what has failed), both or none. A scheme belongs to a tree, and topics belong to trees.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf
from typing import Any, Final

from surecast.protocol.demand import LOCAL, JointFilter
from surecast.protocol.filters import Value
from surecast.protocol.link import CONTROL, LinkAck, LinkHello, NumberedFrame
from surecast.protocol.overlay.accounts_cut import AccountsCuts
from surecast.protocol.overlay.custody import Custody
from surecast.protocol.overlay.event_id import EventId
from surecast.protocol.overlay.frame_rules import check_frame
from surecast.protocol.overlay.frame_sizes import frame_bytes
from surecast.protocol.overlay.node_accounts import HopAccounts, NodeAccounts
from surecast.protocol.overlay.node_demand import DISK_KINDS, NodeDemand
from surecast.protocol.overlay.node_detours import NodeDetours
from surecast.protocol.overlay.node_events import CORE, NodeEvents
from surecast.protocol.overlay.node_links import NodeLinks, NodeSettings
from surecast.protocol.overlay.node_retained import NodeRetained
from surecast.protocol.overlay.node_shares import NodeShares
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
    MapSums,
    Marker,
    NodeState,
    UnknownFrame,
    Written,
    events_of,
)
from surecast.protocol.overlay.overlay_plan import (
    HOME_TOPICS,
    HOMES,
    SESSION_SHARE,
    SESSION_TOPIC,
    OverlayPlan,
    scheme_parts,
)
from surecast.protocol.overlay.overlay_view import OverlayView
from surecast.protocol.overlay.retained_map import RetainedMap

__all__ = ["OverlayNode"]


_HOME_BYTES_MAX: Final = 1 << 17
"""A home has no more bytes: names of a user and of a client."""


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
        self._shares = NodeShares(name, plan, self._parts, self._demand, self._links, self._view)
        self._detours = NodeDetours(
            name, self._parts, settings, self._links, self._view, self.custody, self.accounts.hops, self._shares
        )  # fmt: skip
        self.waits_with_detours = False
        """True if events that come by a detour wait until `take_detoured` is called: what came over the tree in the
        same turn is older, and goes first."""
        self._detoured: list[tuple[Events, str]] = []
        self.cuts = AccountsCuts(name, incarnation, self._links.sessions, self.accounts, self.custody)
        self._number = 0
        self.retained = RetainedMap(
            name, plan, self.journal, self.take_ids, self._links.is_up, settings.retained_max,
            settings.retained_bytes_max,
        )  # fmt: skip
        self.homes = self._make_homes()
        """Which broker has the session of each client; None where nobody asks."""
        self._events = NodeEvents(
            name, plan, self._parts, settings, self._links, self._demand, self._detours, self.custody, self.retained,
            self.homes, self.accounts, self._shares, self.take_ids,
        )  # fmt: skip
        self._maps = {0: NodeRetained(self.retained, self._links, self._demand, self._events)}
        if self.homes is not None:
            self._maps[HOMES] = NodeRetained(self.homes, self._links, self._demand, self._events, HOMES)
        self._started_s = now
        self._settles_s = now + settings.grace_s
        self._refreshes_s = now + settings.refresh_s

    def _make_homes(self) -> RetainedMap | None:
        homes_max = self.settings.homes_max
        if not homes_max:
            return None
        return RetainedMap(
            self.name, self.plan, self.journal, self.take_ids, self._links.is_up, homes_max,
            homes_max * _HOME_BYTES_MAX, ("home", "home-horizon"),
        )  # fmt: skip

    # Clients of this broker

    def demand(self, added: Iterable[JointFilter] = (), removed: Iterable[JointFilter] = ()) -> None:
        """Takes in a change of what the broker's own clients want: the first of them to want something, the last."""
        self._demand.change(added, removed)
        self._end_overfull()

    def demand_members(self, added: Sequence[JointFilter] = (), removed: Sequence[JointFilter] = ()) -> None:
        """Takes in a change of the members that shared subscriptions have among the broker's own clients: joint filters
        with `members`, of which there is one for each subscription, content and QoS."""
        self._demand.change_members(added, removed)
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
        share: str = "",
        first: EventId | None = None,
    ) -> EventBatch | None:
        """Takes events of a client of this broker; returns them with their identity, None where it is full. Where the
        core has delivered them to the broker's own clients, they are for neighbours alone, and taken in any case.
        Events to several topics are on one tree, and `topic` is that of the first.
        `names` are the attributes that were looked for, None if all. Events that are retained, to one topic, go to all
        brokers; with `deletes` they clear their topic. With a `share` they go to one member of that shared
        subscription only, because another one has left and had them. `first` is the identity of the first, where it
        has one from `take_ids`."""
        tree = self.plan.tree_of(topic)
        parts = self._parts[tree]
        is_assured = parts.custody and qos > 0
        if is_assured and not is_delivered and self._events.is_congested(tree, LOCAL):
            self.accounts.refused += count
            return None
        first = first or self.take_ids(count)
        stamp = 0
        if is_retained:
            kept = self.homes if self.homes is not None and topic.startswith(HOME_TOPICS) else self.retained
            stamp = kept.stamp(now, count)
        batch = EventBatch(
            first, count, topic, now, expires_s, qos, attributes, body, publisher, names, stamp, deletes
        )  # fmt: skip
        if share:
            self._events.give(tree, share, batch, now, is_again=True)
            return batch
        self.accounts.published += count
        if not self._demand.is_advertised(tree, topic):
            self.accounts.unadvertised += count
        events = Events(tree, batch, "" if is_assured else self.name)
        self._events.accept(events, CORE if is_delivered else LOCAL, now, frame_bytes(events))
        self._events.share(tree, batch, now)
        return batch

    def send_to(self, broker: str, tree: int, body: Body, now: float) -> None:
        """Sends something about sessions to one broker, along a tree: assured where the tree has custody."""
        batch = EventBatch(
            self.take_ids(1), 1, SESSION_TOPIC, now, qos=1, body=body, share=SESSION_SHARE, at=broker
        )  # fmt: skip
        events = Events(tree, batch, "" if self._parts[tree].custody else self.name)
        self._events.accept(events, LOCAL, now, frame_bytes(events))

    def hand_on(self, batch: EventBatch, now: float) -> None:
        """Takes back events for a member of a shared subscription that none of the broker's own clients takes: another
        broker's members get them, if there are any."""
        self._events.hand_on(self.plan.tree_of(batch.topic), batch, now)

    def take_deliveries(self) -> list[EventBatch]:
        """Returns the events for the broker's own clients since the last call."""
        deliveries, self._events.deliveries = self._events.deliveries, []
        return deliveries

    def take_detoured(self, now: float) -> None:
        """Takes in the events that came by a detour since the last call, where the node waits with them."""
        detoured, self._detoured = self._detoured, []
        for events, via in detoured:
            self._events.accept(events, via, now, frame_bytes(events))

    def holding(self, topics: Iterable[str], now: float) -> list[str]:
        """Returns the topics whose publishers should wait: a link that their events may need is full, and has not been
        for too long."""
        waiting = self._events.overflow.look(self._events.is_full, now)
        if not waiting:
            return []
        held: list[str] = []
        for topic in topics:
            tree = self.plan.tree_of(topic)
            hops = waiting.get(tree)
            if hops and any(hop in hops for hop in self._takers(tree, topic)):
                held.append(topic)
        return held

    def refuses(self, topic: str) -> bool:
        """Returns whether messages to a topic are refused, because a link that they may need has been full for too
        long."""
        tree = self.plan.tree_of(topic)
        takers = self._takers(tree, topic)
        return self.settings.overflow == "reject" and any(
            of == tree and hop in takers and self._events.is_full(hop, tree) for hop, of in self._events.overflow.since
        )

    def _takers(self, tree: int, topic: str) -> Collection[str]:
        """Returns the neighbours to which events of a topic may go."""
        takers = self._demand.takers(tree, topic)
        if takers is None:
            return self.plan.tree_neighbours(tree, self.name)
        return {**takers, **self._shares.hops(tree, topic)} if self._demand.has_members(tree) else takers

    def attributes(self, topic: str) -> tuple[str, ...] | None:
        """Returns the names of attributes that some filter on the tree of a topic asks for; None for all."""
        return self._demand.attributes(self.plan.tree_of(topic))

    def wanted_by(self, neighbour: str, tree: int) -> list[JointFilter]:
        """Returns what a neighbour has announced on a tree, sorted."""
        return self._demand.wanted_by(neighbour, tree)

    def is_heard(self, topic: str, qos: int, *, is_retained: bool) -> bool:
        """Returns whether a message reaches all who want it elsewhere if it is published now: after a start nothing may
        be known yet of what neighbours want, other than on disk, and what nobody wants goes nowhere."""
        is_assured = self._parts[self.plan.tree_of(topic)].custody and qos > 0
        return is_assured or is_retained or self._demand.is_known

    def is_in_reach(self, broker: str, topic: str) -> bool:
        """Returns whether a broker can be reached on the tree of a topic, as far as this one knows."""
        return self._shares.is_in_reach(self.plan.tree_of(topic), broker)

    def members(self) -> list[JointFilter]:
        """Returns the members of shared subscriptions that are known, at this broker and others, sorted."""
        return self._demand.members()

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
        self._events.acknowledged(neighbour, resumption.acknowledged)
        self._events.lose(neighbour, resumption.lost, resumption.unsent)
        if self._has_detours:
            state = self._view.link_changed(neighbour, is_up=True)
            self._links.put(neighbour, CONTROL, LinkStates(self._view.states))
            self._flood((state,), besides=neighbour)
            self._demand.view_changed()
        self._demand.compare(neighbour, is_resumed=resumption.is_received_resumed)
        if not (resumption.is_resumed and resumption.is_received_resumed):
            for each in self._maps.values():
                each.compare(neighbour)
        self._end_overfull()
        self._events.pump(neighbour)
        for held in self._events.again.due_at_link_up(self.custody, neighbour):
            self._events.transmit(held, neighbour)
        if self._has_detours and self._has_custody:
            self._detours.returned(neighbour, now, knows_demand=self._demand.is_compared(neighbour))

    def is_connected(self, neighbour: str) -> bool:
        """Returns whether there is a connection to a neighbour over which both ends have said hello."""
        return self._links.is_up(neighbour)

    def is_resumed(self, neighbour: str) -> bool:
        """Returns whether what is sent over the last connection to a neighbour went on where it stopped before."""
        return self._links.sessions[neighbour].is_resumed

    def link_down(self, neighbour: str, now: float) -> None:
        """The connection to a neighbour broke, or the detector has given it up."""
        self._links.sessions[neighbour].disconnect()
        self._detours.disconnected(neighbour, now)
        for each in self._maps.values():
            each.disconnected(neighbour)
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
            self._events.acknowledged(neighbour, session.take_ack(written))
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
            self._events.pump(neighbour)
        written = self._links.output(neighbour, self._events.is_congested, acknowledges)
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
        again_s = self._events.again.next_timer(self.custody)
        links_s = min(self._events.overflow.next_timer(), self._links.next_timer(), self._detours.next_timer())
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
            for each in self._maps.values():
                each.refresh(now)
        self._end_overfull()
        self._detours.tick(now)
        for neighbour, since_s in list(self._links.down_since.items()):
            if now >= since_s + self.settings.resume_s:
                self._give_up(neighbour)
        for held, unsent in self.custody.expire(now):
            for hop in unsent:
                self.accounts.hops[hop].dropped["expired"] += held.batch.count
        for held in self._events.again.due(self.custody, now):
            for hop in held.hops:
                self._events.transmit(held, hop)

    def restore(self, records: Mapping[tuple[Any, ...], Any]) -> None:
        """Takes back what was on disk, before anything else happens to a node that was started again."""
        self.custody.restore({key: record for key, record in records.items() if key[0] not in DISK_KINDS})
        self._demand.restore(records, self._started_s)
        self.retained.restore(records)
        if self.homes is not None:
            self.homes.restore(records)
        self._events.again.restored(self.custody, list(self._links.sessions), self._started_s)
        for hop in self._links.sessions:
            self.accounts.hops[hop].offered += self.custody.events_unsent(hop)

    # Inside

    def _take(self, neighbour: str, written: NumberedFrame[Frame], now: float) -> None:
        _, lane, size, frame = written
        check_frame(self.plan, self.name, neighbour, frame, lane)
        self.cuts.came(neighbour, frame)
        if isinstance(frame, Events):
            self.accounts.received += frame.batch.count
            self._events.accept(frame, neighbour, now, size)
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
            plane = HOMES if frame.tree >= HOMES else 0
            if plane in self._maps:
                self._maps[plane].take(neighbour, frame, now)
        elif not isinstance(frame, UnknownFrame):
            self._demand.receive(neighbour, frame, now)
            self._end_overfull()

    def take_ids(self, count: int = 1) -> EventId:
        """Returns the identity of the first of some new events."""
        self._number += count
        return EventId(self.name, self.incarnation, self._number - count)

    def _end_overfull(self) -> None:
        """Ends the sessions of links that are down on which too much demand waits; they compare it when they are up."""
        while self._demand.overfull:
            self._give_up(self._demand.overfull.popitem()[0])

    def _flood(self, states: tuple[NodeState, ...], besides: str) -> None:
        for hop in self._links.up():
            if hop != besides:
                self._links.put(hop, CONTROL, LinkStates(states))

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
            self._events.accept(detour.frame, hop, now, frame_bytes(detour.frame))
        else:
            self._detours.put(hop, onward, detour.frame, "path-down")

    def _is_behind(self, hop: str, detour: Detoured) -> bool:
        """Returns whether a detour leads to a neighbour that is down here, behind which this broker is on the tree.

        All neighbours of a broker that froze notice it one after the other, and the first one still sees a way to it
        over the others. They take at once what would be sent to them later."""
        is_last = len(detour.path) == 1 and hop in self._links.down_since and detour.via != self.name
        return is_last and hop in self.plan.tree_neighbours(detour.frame.tree, self.name)

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
        self._events.lose(neighbour, given_up)
