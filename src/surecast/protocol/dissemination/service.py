"""The event notification service: publish, subscribe, unsubscribe, and who gets an event over which paths."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from surecast.errors import ConfigurationError, OverloadError
from surecast.protocol.coding import GenerationLayout
from surecast.protocol.dissemination.dissemination_messages import (
    Effect,
    Granted,
    Install,
    Known,
    Message,
    PublishRequest,
    Register,
    Registered,
    SendTo,
    Unregister,
    View,
)
from surecast.protocol.dissemination.dissemination_node import DisseminationNode
from surecast.protocol.dissemination.dissemination_settings import DisseminationSettings
from surecast.protocol.dissemination.registry import Registry
from surecast.protocol.dissemination.timer_queue import TimerQueue
from surecast.protocol.filters import Event
from surecast.protocol.gossip import Announced
from surecast.protocol.paths import PathPlanner
from surecast.scenario.paths import Branch, Schedule

__all__ = ["GrantedPublication", "NotificationService"]

_CONFIRM_S = 0.5
"""Time given to a node to confirm what the service told it, before it is told again."""
_INSTALL_ROOM = 64
"""Bytes of an `Install` that are not branches, and some to spare."""


@dataclass(frozen=True, slots=True)
class GrantedPublication:
    """A publication that the service admitted: number, group, active subscribers, and the rate of their paths.

    `unreachable` are active subscribers whose home broker cannot be reached now.
    """

    event_id: int
    group: int
    subscribers: tuple[int, ...]
    rate_per_s: float
    unreachable: tuple[int, ...] = ()


@dataclass(slots=True)
class _Live:
    """An event before its deadline."""

    announced: Announced
    event: Event
    subscribers: set[int]


@dataclass(slots=True)
class _Group:
    """Subscribers that get the same events from one home broker."""

    number: int
    home: int
    members: dict[int, int]
    version: int = -1
    revision: int = -1
    rate_per_s: float = math.inf
    unreachable: tuple[int, ...] = ()
    relays: set[int] = field(default_factory=set)


class NotificationService(DisseminationNode):
    """The service, one for all nodes; what it tells them, it repeats until they confirm.

    Publishers and subscribers reach it by messages; where it is at hand, its methods do the same. Events and groups
    are numbered from `epoch` on: started anew, it must be given a higher one than it ever reached.

    >>> from surecast.protocol.coding import CodingSettings
    >>> from surecast.scenario.paths import CapacityGraph
    >>> planner = PathPlanner(CapacityGraph.both_ways([(0, 1, 100.0)]))
    >>> settings = DisseminationSettings(CodingSettings(packets=4, packet_bytes=10))
    >>> service = NotificationService(9, settings, planner, known=range(20))
    >>> _ = service.subscribe(10, 1, home=1, topic="news/#", content="", now=0.0)
    >>> publication, effects = service.publish(0, "news/today", size=40, deadline_s=2.0, now=0.0)
    >>> publication.subscribers, publication.rate_per_s, sorted({effect.to for effect in effects})
    ((10,), 100.0, [0, 1, 10])
    """

    def __init__(
        self,
        node: int,
        settings: DisseminationSettings,
        planner: PathPlanner,
        known: Container[int],
        seed: int = 0,
        subscriptions_max: int = 1_000_000,
        epoch: int = 0,
    ):
        super().__init__(node, settings, known, node, seed)
        if not 0 <= epoch < 1 << 31:
            raise ConfigurationError(f"epoch: {epoch} must be from 0 to 2^31 - 1, as groups are numbered from it on")
        self.epoch = epoch
        self.planner = planner
        self.registry = Registry(subscriptions_max)
        self._groups: dict[int, _Group] = {}
        self._by_members: dict[tuple[int, frozenset[tuple[int, int]]], int] = {}
        self._next_group = epoch
        self._granted: dict[tuple[int, int], tuple[PublishRequest, Granted]] = {}
        self._counts: dict[int, int] = {}
        self._live: dict[int, _Live] = {}
        self._ends: TimerQueue[int] = TimerQueue()
        self._unconfirmed: dict[tuple[int, int, int, int], tuple[Install | View, int]] = {}
        self._confirms: TimerQueue[tuple[int, int, int, int]] = TimerQueue()

    def subscribe(self, subscriber: int, number: int, home: int, topic: str, content: str, now: float) -> list[Effect]:
        """Registers a subscription. Events of the moment that it matches may still be had from their subscribers."""
        return self._counted(self._subscribe(subscriber, Register(number, home, topic, content), now))

    def unsubscribe(self, subscriber: int, number: int, now: float) -> list[Effect]:
        """Ends a subscription. Events under way that nothing else makes it want go on without the subscriber."""
        return self._counted(self._unsubscribe(subscriber, number, now))

    def publish(
        self,
        home: int,
        topic: str,
        size: int,
        deadline_s: float,
        now: float,
        attributes: Mapping[str, float | str] | None = None,
        event_id: int | None = None,
    ) -> tuple[GrantedPublication, list[Effect]]:
        """Finds the active subscribers of an event of `size` bytes, and the paths to them.

        The effects tell relays and subscribers of the group where they do not know it yet; `Publisher.publish` then
        sends the event itself.
        """
        out: list[Effect] = []
        publication = self._admit(home, topic, size, deadline_s, now, attributes, event_id, out)
        return publication, self._counted(out)

    def _admit(
        self,
        home: int,
        topic: str,
        size: int,
        deadline_s: float,
        now: float,
        attributes: Mapping[str, float | str] | None,
        event_id: int | None,
        out: list[Effect],
    ) -> GrantedPublication:
        """Admits an event as `publish` does, and appends the effects to `out`."""
        GenerationLayout.of(size, self.settings.coding)
        reason = self._too_far(deadline_s, now)
        if reason is not None:
            raise ConfigurationError(f"event on {topic!r}: its deadline at {deadline_s} s is refused: {reason}")
        event = Event(topic, attributes)
        members = self.registry.interested(event)
        group = self._group(home, members)
        if group.revision != self.planner.revision:
            out += self._set_up(group, now)
        if event_id is None:
            count = self._counts[home] = self._counts.get(home, self.epoch - 1) + 1
            event_id = home << 32 | count
        announced = Announced(event_id, group.number, size, deadline_s)
        self._live[event_id] = _Live(announced, event, set(members))
        self._ends.set(event_id, deadline_s)
        if len(self._live) > self.settings.done_max:
            self._ends.clear(next(iter(self._live)))
            del self._live[next(iter(self._live))]
            self.counters.refused["event evicted"] += 1
        return GrantedPublication(event_id, group.number, tuple(sorted(members)), group.rate_per_s, group.unreachable)

    def active(self, event_id: int) -> tuple[int, ...]:
        """The active subscribers of an event before its deadline; none for one that is over."""
        live = self._live.get(event_id)
        return () if live is None else tuple(sorted(live.subscribers))

    def replan(self, now: float) -> list[Effect]:
        """After a change of the network: new paths for the groups of events that are still under way."""
        numbers = sorted({live.announced.group for live in self._live.values()})
        stale = [self._groups[n] for n in numbers if n in self._groups]
        return self._counted([e for g in stale if g.revision != self.planner.revision for e in self._set_up(g, now)])

    def reintroduce(self, node: int, now: float) -> list[Effect]:
        """A relay or subscriber has started anew and knows nothing: tells its groups everything again."""
        concerned = [g for g in self._groups.values() if node in g.relays or node in g.members or node == g.home]
        return self._counted([effect for group in concerned for effect in self._set_up(group, now)])

    def next_timer(self) -> float:
        return min(self._ends.next(), self._confirms.next())

    def _timer(self, now: float) -> list[Effect]:
        for event_id in self._ends.due(now):
            self._live.pop(event_id, None)
        out: list[Effect] = []
        for key in self._confirms.due(now):
            message, tries = self._unconfirmed[key]
            if tries >= self.settings.tries_max:
                del self._unconfirmed[key]
                self.counters.refused["not confirmed"] += 1
                continue
            self._unconfirmed[key] = (message, tries + 1)
            self._confirms.set(key, now + _CONFIRM_S * 2.0**tries)
            out.append(SendTo(key[0], message))
        return out

    def _take(self, message: Message, sender: int, now: float) -> list[Effect]:
        if isinstance(message, Known):
            key = (sender, message.group, message.version, message.part)
            self._confirms.clear(key)
            self._unconfirmed.pop(key, None)
            return []
        if isinstance(message, Register):
            try:
                out = self._subscribe(sender, message, now)
            except (ConfigurationError, OverloadError):
                self.counters.refused["bad subscription"] += 1
                return [SendTo(sender, Registered(message.number, accepted=False))]
            return [SendTo(sender, Registered(message.number, accepted=True)), *out]
        if isinstance(message, Unregister):
            out = self._unsubscribe(sender, message.number, now)
            return [SendTo(sender, Registered(message.number, accepted=True)), *out]
        if isinstance(message, PublishRequest):
            return self._publish(message, sender, now)
        return self._refuse("not for the service")

    def _publish(self, wanted: PublishRequest, home: int, now: float) -> list[Effect]:
        """Answers a publisher; the same again where it asks again, as its question or the answer was lost."""
        key = (home, wanted.number)
        asked, answer = self._granted.get(key, (None, None))
        if asked == wanted and answer is not None:
            return [SendTo(home, answer)]
        out: list[Effect] = []
        try:
            attributes = dict(wanted.body.attributes)
            publication = self._admit(
                home, wanted.body.topic, wanted.size, wanted.deadline_s, now, attributes, None, out
            )
        except ConfigurationError:
            self.counters.refused["bad event"] += 1
            return [SendTo(home, Granted(wanted.number, accepted=False))]
        answer = Granted(wanted.number, True, publication.event_id, publication.group, publication.rate_per_s)
        self._granted[key] = (wanted, answer)
        if len(self._granted) > self.settings.done_max:
            del self._granted[next(iter(self._granted))]
        return [*out, SendTo(home, answer)]

    def _subscribe(self, subscriber: int, wanted: Register, now: float) -> list[Effect]:
        self.registry.add(subscriber, wanted.number, wanted.home, wanted.topic, wanted.content)
        missed: dict[int, list[Announced]] = {}
        for live in self._live.values() if self.settings.gossip is not None else ():
            is_new = subscriber not in live.subscribers and now < live.announced.deadline_s
            if is_new and self.registry.wants(subscriber, live.event):
                live.subscribers.add(subscriber)
                missed.setdefault(live.announced.group, []).append(live.announced)
        return [effect for group, events in missed.items() for effect in self._late(group, subscriber, events, now)]

    def _unsubscribe(self, subscriber: int, number: int, now: float) -> list[Effect]:
        if not self.registry.remove(subscriber, number):
            return []
        concerned = {g.number for g in self._groups.values() if subscriber in g.members}
        concerned |= {live.announced.group for live in self._live.values() if subscriber in live.subscribers}
        groups = [self._groups[group] for group in sorted(concerned) if group in self._groups]
        return [effect for group in groups for effect in self._take_out(group, subscriber, now)]

    def _take_out(self, group: _Group, subscriber: int, now: float) -> list[Effect]:
        """Takes a subscriber out of a group, unless it still wants an event that is under way there."""
        live = [entry for entry in self._live.values() if entry.announced.group == group.number]
        if any(self.registry.wants(subscriber, entry.event) for entry in live):
            return []
        for entry in live:
            entry.subscribers.discard(subscriber)
        out: list[Effect] = []
        if subscriber not in group.members:
            group.version += 1  # it came late, and only it needs to know
        else:
            self._by_members.pop(_key(group), None)
            if not live:
                del self._groups[group.number]
                return []
            del group.members[subscriber]
            self._by_members.setdefault(_key(group), group.number)
            out += self._set_up(group, now)
        return out + self._tell(subscriber, View(group.number, group.version, (), member=False), now)

    def _group(self, home: int, members: dict[int, int]) -> _Group:
        """The group of these subscribers, made if there is none."""
        key = (home, frozenset(members.items()))
        number = self._by_members.get(key)
        if number is not None:
            return self._groups[number]
        group = _Group(self._next_group, home, dict(members))
        self._next_group += 1
        self._groups[group.number] = group
        self._by_members[key] = group.number
        if len(self._groups) > self.settings.groups_max:
            oldest = self._groups.pop(next(iter(self._groups)))
            self._by_members.pop(_key(oldest), None)
            self.counters.refused["group evicted"] += 1
        return group

    def _set_up(self, group: _Group, now: float) -> list[Effect]:
        """Plans the paths of a group and tells everyone in it."""
        group.version += 1
        group.revision = self.planner.revision
        out: list[Effect] = []
        if self.settings.paths != "none":
            out += self._install(group, now)
        else:
            out += self._tell(group.home, self._view(group, group.home), now)
        for subscriber in group.members:
            out += self._tell(subscriber, self._view(group, subscriber), now)
        return out

    def _install(self, group: _Group, now: float) -> list[Effect]:
        assert self.settings.paths != "none"
        plan = self.planner.plan(self.settings.paths, group.home, group.members.values())
        lost = set(plan.unreachable)
        group.rate_per_s = plan.rate_per_s if plan.paths else math.inf
        group.unreachable = tuple(sorted(s for s, home in group.members.items() if home in lost))
        packets = self.settings.packets
        schedule = Schedule.of(plan, packets)
        local: dict[int, list[Branch]] = {}
        for subscriber, home in sorted(group.members.items()):
            if home not in lost:
                local.setdefault(home, []).append(Branch(subscriber, packets, ((0, packets),)))
        involved = {*schedule.nodes(), *local}
        out: list[Effect] = []
        for node in sorted(involved | group.relays):
            forwarding = schedule.forwarding(node)
            branches = (*forwarding.branches, *local.get(node, ()))
            for part in self._parts(group, forwarding.expected, branches):
                out += self._tell(node, part, now)
        group.relays = involved
        return out

    def _parts(self, group: _Group, expected: int, branches: tuple[Branch, ...]) -> list[Install]:
        """One `Install`, or several where it does not fit into a datagram."""
        room = self.settings.mtu_bytes - _INSTALL_ROOM
        pieces: list[list[Branch]] = [[]]
        used = 0
        for branch in branches:
            size = 10 + 8 * len(branch.blocks)
            if used + size > room:
                pieces.append([])
                used = 0
            used += size
            pieces[-1].append(branch)
        packets, total = self.settings.packets, len(pieces)
        return [
            Install(group.number, group.version, packets, expected, tuple(piece), number, total)
            for number, piece in enumerate(pieces)
        ]

    def _view(self, group: _Group, subscriber: int, events: tuple[Announced, ...] = ()) -> View:
        """Returns a random part of a group for one of its subscribers; an empty one without gossip."""
        others = [member for member in group.members if member != subscriber]
        size = self.settings.view_size if self.settings.gossip is not None else 0
        return View(group.number, group.version, tuple(self._draws.sample(others, size)), events)

    def _late(self, number: int, subscriber: int, events: list[Announced], now: float) -> list[Effect]:
        """Tells one who came late of a group, and of its events as far as they fit beside the view."""
        group = self._groups.get(number)
        if group is None:
            return []
        room = self.settings.mtu_bytes - _INSTALL_ROOM - 4 * self.settings.view_size
        view = self._view(group, subscriber, tuple(events[-(room // 24) :]))
        return self._tell(subscriber, view, now)

    def _tell(self, to: int, message: Install | View, now: float) -> list[Effect]:
        """Sends something that must arrive."""
        part = message.part if isinstance(message, Install) else 0
        superseded = (to, message.group, message.version - 1, part)
        self._unconfirmed.pop(superseded, None)
        self._confirms.clear(superseded)
        key = (to, message.group, message.version, part)
        self._unconfirmed[key] = (message, 1)
        self._confirms.set(key, now + _CONFIRM_S)
        return [SendTo(to, message)]


def _key(group: _Group) -> tuple[int, frozenset[tuple[int, int]]]:
    return group.home, frozenset(group.members.items())
