"""A broker on the way: it forwards packets as the schedule of their group says, or sends fresh combinations."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

from surecast.protocol.coding import Packet, Recoder
from surecast.protocol.dissemination.dissemination_messages import (
    NO_NUMBER,
    Data,
    Effect,
    HopAck,
    Install,
    Known,
    Message,
    SendTo,
)
from surecast.protocol.dissemination.dissemination_node import DisseminationNode
from surecast.protocol.dissemination.dissemination_settings import DisseminationSettings
from surecast.protocol.dissemination.retransmission import PendingAcks
from surecast.protocol.dissemination.timer_queue import TimerQueue
from surecast.scenario.paths import Branch, Forwarding

__all__ = ["Relay"]

_EARLY_MAX = 1000
"""Packets kept for groups that were not installed yet."""
_PATIENCE = 3
"""The factor by which a relay waits longer if it lacks packets itself."""


@dataclass(slots=True)
class _Owed:
    """The packets of a generation sent to a branch, and its credit: the part of a packet earned by arrivals."""

    sent: int = 0
    credit: float = 0.0


@dataclass(slots=True)
class _Generation:
    """A generation at a relay: its plain packets, a bitmap of the numbers received, and what each branch got."""

    plain: int
    seen: int = 0
    branches: dict[int, _Owed] = field(default_factory=dict)

    def owed(self, neighbour: int) -> _Owed:
        return self.branches.setdefault(neighbour, _Owed())


@dataclass(slots=True)
class _Passing:
    """An event that passes: what was received of it, and what was sent."""

    group: int
    deadline_s: float
    recoder: Recoder
    generations: dict[int, _Generation] = field(default_factory=dict)


class Relay(DisseminationNode):
    """A relay of packets.

    A branch over which all subscribers behind it want the same packets gets these as they are. Where they want
    different ones (`Branch.is_contended`) and relays recode, it gets as many fresh combinations as its share of the
    flow: with each arrival a part of a packet is earned. What losses before this relay left unsent is made up for by
    combinations once no packet has come for `flush_s`, or three times as long if the relay lacks packets itself.
    """

    def __init__(
        self,
        node: int,
        settings: DisseminationSettings,
        known: Container[int],
        service: int,
        seed: int = 0,
        payload_bytes: int | None = None,
    ):
        super().__init__(node, settings, known, service, seed, payload_bytes)
        self.retransmission = PendingAcks(settings.retransmit_s, settings.tries_max, settings.unacknowledged_max)
        self._groups: dict[int, tuple[int, Forwarding]] = {}
        self._parts: dict[tuple[int, int], dict[int, Install]] = {}
        self._passing: dict[int, _Passing] = {}
        self._early: list[tuple[Data, int]] = []
        self._flushes: TimerQueue[tuple[int, int]] = TimerQueue()
        self._ends: TimerQueue[int] = TimerQueue()

    def install(self, group: int, version: int, forwarding: Forwarding) -> None:
        """Says how the packets of a group are treated; an older version than the one there is ignored."""
        if group in self._groups and self._groups[group][0] >= version:
            return
        self._groups.pop(group, None)
        self._groups[group] = (version, forwarding)
        if len(self._groups) > self.settings.groups_max:
            del self._groups[next(iter(self._groups))]
            self.counters.refused["group evicted"] += 1

    def next_timer(self) -> float:
        return min(self._flushes.next(), self._ends.next(), self.retransmission.next_timer())

    def _timer(self, now: float) -> list[Effect]:
        for event_id in self._ends.due(now):
            self._end(event_id)
        out: list[Effect] = [*self.retransmission.handle_timer(now)]
        for event_id, generation in self._flushes.due(now):
            out += self._flush(self._passing[event_id], generation, now)
        return out

    def _take(self, message: Message, sender: int, now: float) -> list[Effect]:
        if isinstance(message, Data):
            return self._data(message, sender, now)
        if isinstance(message, HopAck):
            again = self.retransmission.acknowledged(sender, message, now)
            return [*again] if again is not None else self._refuse("not waited for")
        if isinstance(message, Install) and sender == self.service:
            return self._install(message, now)
        return self._refuse("not for a relay")

    def _install(self, part: Install, now: float) -> list[Effect]:
        out: list[Effect] = [SendTo(self.service, Known(part.group, part.version, part.part))]
        if part.group in self._groups and self._groups[part.group][0] >= part.version:
            return out
        key = (part.group, part.version)
        parts = self._parts.setdefault(key, {})
        parts[part.part] = part
        if len(self._parts) > self.settings.groups_max:
            del self._parts[next(iter(self._parts))]
        if len(parts) < part.parts:
            return out
        del self._parts[key]
        branches = tuple(branch for _, piece in sorted(parts.items()) for branch in piece.branches)
        self.install(part.group, part.version, Forwarding(self.node, part.packets, part.expected, branches))
        waiting = [entry for entry in self._early if entry[0].group == part.group]
        self._early = [entry for entry in self._early if entry[0].group != part.group]
        for data, sender in waiting:
            out += self._data(data, sender, now)
        return out

    def _data(self, data: Data, sender: int, now: float) -> list[Effect]:
        reason = self._too_far(data.deadline_s, now)
        if reason is not None:
            return self._refuse(reason)
        if data.group not in self._groups:
            self._early.append((data, sender))
            if len(self._early) > _EARLY_MAX:
                del self._early[0]
                self.counters.refused["unknown group"] += 1
            return []
        packet = data.packet
        if data.number != NO_NUMBER and data.number >= self.settings.sent_of(packet.packets):
            return self._refuse("no such packet")
        passing = self._passing.get(packet.event_id)
        if passing is None:
            passing = self._begin(packet.event_id, data)
        elif passing.group != data.group:
            return self._refuse("contradicts")
        generation = passing.generations.setdefault(packet.generation, _Generation(packet.packets))
        out: list[Effect] = []
        if data.attempt:
            come = generation.seen if data.number == NO_NUMBER else generation.seen | 1 << data.number
            out.append(SendTo(sender, HopAck(packet.event_id, packet.generation, data.number, data.attempt, come)))
        if data.number != NO_NUMBER:
            if generation.seen >> data.number & 1:
                self.counters.refused["duplicate"] += 1
                return out
            generation.seen |= 1 << data.number
        innovative = passing.recoder.add(packet) if self.settings.recode else True
        if passing.recoder.rejected:
            passing.recoder.rejected.clear()
            return self._refuse("bad packet")
        return out + self._pass_on(passing, generation, data, innovative, now)

    def _begin(self, event_id: int, data: Data) -> _Passing:
        """Makes room for an event; the oldest one goes if there are too many."""
        if len(self._passing) >= self.settings.events_max:
            self._end(next(iter(self._passing)))
            self.counters.refused["event evicted"] += 1
        recoder = Recoder(self.settings.coding, event_id)
        passing = self._passing[event_id] = _Passing(data.group, data.deadline_s, recoder)
        self._ends.set(event_id, data.deadline_s)
        return passing

    def _end(self, event_id: int) -> None:
        passing = self._passing.pop(event_id)
        self._ends.clear(event_id)
        for generation in passing.generations:
            self._flushes.clear((event_id, generation))

    def _pass_on(
        self, passing: _Passing, generation: _Generation, data: Data, innovative: bool, now: float
    ) -> list[Effect]:
        packet = data.packet
        _, forwarding = self._groups[passing.group]
        sent = self.settings.sent_of(packet.packets)
        out: list[Effect] = []
        unsent = False
        for branch in forwarding.branches:
            owed = generation.owed(branch.neighbour)
            share = self._share(branch, forwarding, sent)
            # After an early flush innovative packets still go on; the limit is twice the share, whatever is received.
            most = 2 * share if innovative else share
            if not self.settings.recode or (data.number != NO_NUMBER and not branch.is_contended):
                if data.number == NO_NUMBER:
                    self.counters.refused["recoded, and this relay does not"] += 1
                elif owed.sent < most and branch.wants(data.number * forwarding.packets // sent):
                    owed.sent += 1
                    out.append(self._send(branch.neighbour, data, now))
            else:
                owed.credit += branch.count / max(1, forwarding.expected)
                while owed.credit >= 1.0 - 1e-9 and owed.sent < most:
                    owed.credit -= 1.0
                    owed.sent += 1
                    out.append(self._fresh(branch.neighbour, passing, packet.generation, now))
            unsent = unsent or owed.sent < share
        if self.settings.recode and unsent:
            # Before this relay, others may be about to make up for losses: one that lacks packets waits for them.
            expected = min(packet.packets, forwarding.expected * sent // forwarding.packets)
            lacks = passing.recoder.rank_of(packet.generation) < expected
            flush_s = self.settings.flush_s * (_PATIENCE if lacks else 1)
            self._flushes.set((packet.event_id, packet.generation), now + flush_s)
        return out

    def _flush(self, passing: _Passing, number: int, now: float) -> list[Effect]:
        """Sends every branch what it is still owed of a generation."""
        if passing.group not in self._groups or not passing.recoder.rank_of(number):
            return []
        _, forwarding = self._groups[passing.group]
        generation = passing.generations[number]
        sent = self.settings.sent_of(generation.plain)
        out: list[Effect] = []
        for branch in forwarding.branches:
            owed = generation.owed(branch.neighbour)
            owed.credit = 0.0
            for _ in range(self._share(branch, forwarding, sent) - owed.sent):
                owed.sent += 1
                out.append(self._fresh(branch.neighbour, passing, number, now))
        return out

    @staticmethod
    def _share(branch: Branch, forwarding: Forwarding, sent: int) -> int:
        """A branch's packets of a generation of which the publisher sends so many."""
        return -(-branch.count * sent // forwarding.packets)

    def _fresh(self, to: int, passing: _Passing, generation: int, now: float) -> SendTo:
        packet: Packet = passing.recoder.packet(self._draws.word(), generation)
        return self._send(to, Data(passing.group, NO_NUMBER, passing.deadline_s, packet), now)

    def _send(self, to: int, data: Data, now: float, after_s: float = 0.0) -> SendTo:
        if data.attempt:
            data = self.retransmission.sent(to, data, now + after_s)
        return SendTo(to, data, after_s)
