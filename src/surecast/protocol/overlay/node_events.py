"""The ways of events through a node: into custody or past it, to the broker's own clients, and onto links.

Events at best effort are delivered and put on links at once. Those in custody are on disk first, with the neighbours
that want them, and go on links as far as these take them. What a link gives back when its session ends is sent again
from custody, or lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from surecast.protocol.demand import LOCAL
from surecast.protocol.link import NumberedFrame
from surecast.protocol.overlay.custody import Custody, HeldBatch
from surecast.protocol.overlay.event_id import EventId, SeenEvents
from surecast.protocol.overlay.frame_sizes import frame_bytes
from surecast.protocol.overlay.link_overflow import LinkOverflow
from surecast.protocol.overlay.node_accounts import NodeAccounts
from surecast.protocol.overlay.node_demand import NodeDemand
from surecast.protocol.overlay.node_detours import NodeDetours
from surecast.protocol.overlay.node_links import NodeLinks, NodeSettings
from surecast.protocol.overlay.node_shares import HANDED_MAX, NodeShares
from surecast.protocol.overlay.overlay_frames import EventBatch, Events, Frame, events_of
from surecast.protocol.overlay.overlay_plan import HOME_TOPICS, OverlayPlan, SchemeParts
from surecast.protocol.overlay.retained_map import RetainedMap
from surecast.protocol.overlay.retransmission import Retransmission
from surecast.protocol.overlay.unseen import runs_of, take_unseen

__all__ = ["CORE", "NodeEvents"]

CORE: Final = "\0"
"""The source of events that the core has given to the broker's own clients already."""


class NodeEvents:
    """Takes events of one broker from clients, neighbours and detours. `deliveries` are those for its own clients."""

    def __init__(
        self,
        name: str,
        plan: OverlayPlan,
        parts: Sequence[SchemeParts],
        settings: NodeSettings,
        links: NodeLinks,
        demand: NodeDemand,
        detours: NodeDetours,
        custody: Custody,
        retained: RetainedMap,
        homes: RetainedMap | None,
        accounts: NodeAccounts,
        shares: NodeShares,
        take_ids: Callable[[int], EventId],
    ):
        self._name = name
        self._plan = plan
        self._parts = parts
        self._settings = settings
        self._links = links
        self._demand = demand
        self._detours = detours
        self._custody = custody
        self._retained = retained
        self._homes = homes
        self._accounts = accounts
        self._shares = shares
        self._take_ids = take_ids
        self.overflow = LinkOverflow(settings, custody, links, accounts)
        self.again = Retransmission(settings.retransmission_interval_s)
        self.deliveries: list[EventBatch] = []
        self._attempts: dict[str, SeenEvents] = {}
        self._coming: dict[str, dict[EventId, None]] = {hop: {} for hop in links.sessions}
        """The retained events at best effort that are on the link to each neighbour, by their last one."""

    # Into the node

    def accept(self, events: Events, source: str, now: float, size: int) -> None:
        """Takes events from a client, a neighbour or a detour: assured where `attempt` is empty."""
        if not events.attempt:
            self._take_custody(events.tree, events.batch, source, now)
        elif not self._parts[events.tree].detours:
            self._pass_on(events, source, now, size)
        else:
            seen = self._attempts.setdefault(events.attempt, SeenEvents())
            fresh, repeated, too_old = take_unseen(events.batch, seen, takes_too_old=False)
            self._accounts.duplicates += repeated
            self._accounts.too_old += too_old
            for batch in fresh:
                part = events if batch is events.batch else Events(events.tree, batch, events.attempt)
                self._pass_on(part, source, now, size if part is events else frame_bytes(part))

    def _pass_on(self, events: Events, source: str, now: float, size: int) -> None:
        """Delivers events and sends them on at best effort. A frame of which all goes on is used again."""
        tree, batch = events.tree, events.batch
        if now >= batch.expires_s:
            self._accounts.expired += batch.count
            return
        if batch.stamp:
            self._keep(tree, batch)
        for part, hops in self._route(tree, batch, now):
            for hop, qos in hops.items():
                if hop == LOCAL:
                    if source != CORE:
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
        unseen = take_unseen(batch, self._custody.accepted, takes_too_old=True)
        self._accounts.duplicates += unseen.repeated
        for part in unseen.parts:
            fresh = self._custody.not_held(part)
            self._accounts.duplicates += part.count - (fresh.count if fresh is not None else 0)
            if fresh is None:
                continue
            if now >= fresh.expires_s:
                self._accounts.expired += fresh.count
                self._custody.take(tree, fresh, {})
                continue
            if fresh.stamp:
                self._keep(tree, fresh)
            for part, wanted in self._route(tree, fresh, now):
                if LOCAL in wanted and source != CORE:
                    self._deliver(take_unseen(part, self._custody.delivered, takes_too_old=True).parts)
                hops = {hop: qos for hop, qos in wanted.items() if hop not in (LOCAL, source)}
                if self.overflow.since and source in (LOCAL, CORE):
                    hops = {hop: qos for hop, qos in hops.items() if self.overflow.makes_room(hop, tree, part)}
                held = self._custody.take(tree, part, hops)
                if held is not None:
                    self._begin(held, now)

    def _keep(self, tree: int, batch: EventBatch) -> None:
        """Takes retained events into the map that they belong to."""
        if not batch.topic.startswith(HOME_TOPICS):
            self._retained.take(tree, batch)
        elif self._homes is not None:
            self._homes.take(tree, batch)

    def share(self, tree: int, batch: EventBatch, now: float) -> None:
        """Gives events that a client of this broker has published to one member of each shared subscription."""
        for part in _by_topic(batch) if self._demand.has_members(tree) else ():
            for group in self._demand.shared(tree, part.topic):
                self.give(tree, group.key, part, now)

    def give(
        self, tree: int, share: str, batch: EventBatch, now: float, besides: str = "", *, is_again: bool = False
    ) -> None:
        """Gives events to one member of a shared subscription, other than at the broker `besides`; again where they
        were given to a member that is no more."""
        group = self._demand.shared_by(tree, share)
        if group is None:
            self._accounts.unclaimed += batch.count
            return
        own = replace(batch, first=self._take_ids(batch.count), stamp=0, deletes=False, share=share)
        for start, stop, (home, qos) in self._shares.choose(tree, group, own, besides):
            if not home:  # to begin with, that is an event that no member wants
                self._accounts.unclaimed += stop - start if is_again else 0
                continue
            part = replace(own.part(start, stop), at=home).at_most(qos)
            self._accounts.shared += part.count
            if home == self._name:
                self._deliver([part])
                continue
            is_assured = self._parts[tree].custody and part.qos > 0
            events = Events(tree, part, "" if is_assured else self._name)
            self.accept(events, LOCAL, now, frame_bytes(events))

    def hand_on(self, tree: int, batch: EventBatch, now: float) -> None:
        """Gives events to a member of a shared subscription at another broker than the one that was chosen."""
        if batch.handed >= HANDED_MAX:
            self._accounts.unclaimed += batch.count
            return
        self._accounts.handed_on += batch.count
        self.give(tree, batch.share, replace(batch, handed=batch.handed + 1), now, batch.at, is_again=True)

    def _begin(self, held: HeldBatch, now: float) -> None:
        """Sends events that were just taken over to their neighbours, or around those that are down."""
        count = held.batch.count
        for hop in held.hops:
            accounts = self._accounts.hops[hop]
            accounts.offered += count
            if self._links.is_up(hop):
                held.untried += (hop,)
                self.pump(hop)
                self.transmit(held, hop)
                self._detours.took(held, hop, now)
            elif self._parts[held.tree].detours:
                self._detours.send_held(held, hop)
            else:
                accounts.transmitted += count
        self.again.began(held, now)

    def _route(self, tree: int, batch: EventBatch, now: float) -> list[tuple[EventBatch, Mapping[str, int]]]:
        """Runs of events with the neighbours that want them, each with its QoS; the one they came from among them."""
        if batch.share:
            return [(batch, self._way_to_member(tree, batch, now))]
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
            return [(batch, local | dict.fromkeys(self._plan.tree_neighbours(tree, self._name), batch.qos))]
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

    def _way_to_member(self, tree: int, batch: EventBatch, now: float) -> Mapping[str, int]:
        """Returns whom events for a member of a shared subscription go to; nobody where others get them instead."""
        if batch.at == self._name:
            return {LOCAL: batch.qos}
        if self._shares.is_better_elsewhere(tree, batch):
            self.hand_on(tree, batch, now)
            return {}
        return {self._shares.hop(tree, batch.at): batch.qos}

    # To the own clients

    def _deliver(self, batches: list[EventBatch]) -> None:
        self.deliveries += batches
        self._accounts.delivered += sum(batch.count for batch in batches)

    def _deliver_best_effort(self, tree: int, batch: EventBatch) -> None:
        """Hands events to the broker's own clients. With custody and detours they may have had them by the other way,
        maybe at another QoS; what the memory had to forget is left to the way that is assured."""
        parts = self._parts[tree]
        if not (parts.custody and parts.detours):
            self.deliveries.append(batch)
            self._accounts.delivered += batch.count
            return
        unseen = take_unseen(batch, self._custody.delivered, takes_too_old=False)
        self._accounts.too_old += unseen.too_old
        for part in unseen.parts if batch.qos > 0 else ():
            self._custody.note_delivered(part)
        self._deliver(unseen.parts)

    def deliver_repaired(self, tree: int, entry: EventBatch) -> None:
        """Hands a retained message that came by a comparison to the broker's own clients; its event may come yet."""
        parts = self._parts[tree]
        if parts.custody:
            seen = self._custody.delivered
        elif parts.detours:
            seen = self._attempts.setdefault(entry.first.origin, SeenEvents())
        else:
            self._deliver([entry])
            return
        for part in take_unseen(entry, seen, takes_too_old=False).parts:
            if parts.custody:
                self._custody.note_delivered(part)
            self._deliver([part])

    # On links

    def _send(self, hop: str, events: Events, size: int) -> None:
        """Sends events at best effort: over the link, or around it where it is down and the scheme has detours."""
        count, accounts = events.batch.count, self._accounts.hops[hop]
        accounts.offered += count
        if not self._links.sessions[hop].is_connected:
            has_detours = self._parts[events.tree].detours
            if has_detours and self._detours.send(hop, events, set()):
                accounts.detoured += count
                return
            if hop not in self._links.down_since or not self._settings.resume_s:
                accounts.dropped["link-down"] += count
                accounts.transmitted += 0 if has_detours else count
                return
        elif hop in self._detours.behind and self._parts[events.tree].detours:
            self._detours.send(hop, events, set())
        if self._links.put_events(hop, events.tree, size, events) or (
            self.overflow.drops_old(hop, events.tree) and self._links.put_events(hop, events.tree, size, events)
        ):
            accounts.transmitted += count
            accounts.on_link += count
            if events.batch.stamp:
                self._coming[hop][events.batch.first.plus(count - 1)] = None
        else:
            accounts.dropped["queue-full"] += count

    def pump(self, hop: str) -> None:
        """Puts events in custody on the link to a neighbour, as far as the lane of each tree takes them. Where they are
        sent again at an interval they wait for it."""
        session = self._links.sessions[hop]
        if not session.is_connected or self.again.interval_s:
            return
        for tree in self._links.trees_of(hop):
            for held in self._custody.unsent(hop, tree) if session.waiting(tree) <= self._settings.window_bytes else ():
                self._put_held(held, hop)
                if session.waiting(tree) > self._settings.window_bytes:
                    break

    def transmit(self, held: HeldBatch, hop: str) -> None:
        """Puts events in custody on the link to a neighbour, unless they are there or its lane is full."""
        session = self._links.sessions[hop]
        if not session.is_connected:
            self._accounts.hops[hop].retransmitted += 0 if self._parts[held.tree].detours else held.batch.count
        elif session.waiting(held.tree) <= self._settings.window_bytes and self._custody.take_unsent(hop, held):
            self._put_held(held, hop)

    def _put_held(self, held: HeldBatch, hop: str) -> None:
        accounts, count = self._accounts.hops[hop], held.batch.count
        if hop in held.untried:
            held.untried = tuple(other for other in held.untried if other != hop)
            accounts.transmitted += count
        else:
            accounts.retransmitted += count
        accounts.on_link += count
        self._links.put(hop, held.tree, Events(held.tree, held.batch.at_most(held.hops[hop])))

    def acknowledged(self, neighbour: str, frames: Iterable[NumberedFrame[Frame]]) -> None:
        """A neighbour has acknowledged what was sent to it."""
        accounts = self._accounts.hops[neighbour]
        for _, _, _, frame in frames:
            if isinstance(frame, Events):
                accounts.on_link -= frame.batch.count
                accounts.acknowledged += frame.batch.count
                if not frame.attempt:
                    self._custody.acknowledge(neighbour, frame.batch.first)
                elif frame.batch.stamp:
                    self._coming[neighbour].pop(frame.batch.first.plus(frame.batch.count - 1), None)
            elif count := events_of(frame):
                accounts.on_link -= count
                accounts.acknowledged += count

    def lose(
        self, neighbour: str, lost: Iterable[NumberedFrame[Frame]], unsent: Iterable[NumberedFrame[Frame]] = ()
    ) -> None:
        """Takes back what was on a link when its session ended: what is in custody is sent again, in order; what else
        was sent is lost, and what was not sent goes on waiting."""
        accounts = self._accounts.hops[neighbour]
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
        again = [batch for batch in in_custody if self._custody.holds(neighbour, batch.first)]
        accounts.dropped["expired"] += sum(batch.count for batch in in_custody) - sum(batch.count for batch in again)
        self._custody.unsend(neighbour, [batch.first for batch in again])

    def is_coming(self, hop: str, entry: EventBatch) -> bool:
        """Returns whether a retained message is on its way to a neighbour as an event."""
        return entry.first in self._coming[hop] or self._custody.holds(hop, entry.first)

    # Room

    def is_full(self, hop: str, tree: int) -> bool:
        """Returns whether custody for a neighbour has reached its bound."""
        return self._parts[tree].custody and self._custody.is_full(hop, tree)

    def is_congested(self, tree: int, source: str) -> bool:
        """Returns whether events from a source may have to wait."""
        return self._links.is_congested(tree, source, lambda hop: self.is_full(hop, tree))


def _by_topic(batch: EventBatch) -> Iterator[EventBatch]:
    """Yields the events to each topic of a batch."""
    body = batch.body
    if body is None or len(body.topics) <= 1:
        yield batch
        return
    for start, stop in pairwise((*body.firsts, batch.count)):
        yield batch.part(start, stop)
