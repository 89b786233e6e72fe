"""The publisher of events: it encodes an event and spreads its packets over the branches of its group."""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import replace

from surecast.errors import ConfigurationError, OverloadError
from surecast.protocol.coding import EventEncoder, Packet
from surecast.protocol.dissemination.body import Body
from surecast.protocol.dissemination.dissemination_messages import (
    NO_NUMBER,
    Data,
    Effect,
    Granted,
    Install,
    Known,
    Message,
    PublishRequest,
    SendTo,
    View,
)
from surecast.protocol.dissemination.dissemination_settings import DisseminationSettings
from surecast.protocol.dissemination.relay import Relay
from surecast.protocol.dissemination.timer_queue import TimerQueue
from surecast.protocol.gossip import Announced, Gossiper, Holding, PacketRequest
from surecast.scenario.paths import Branch, Forwarding

__all__ = ["PublisherNode"]

_ANSWER_S = 0.5
"""Time given to the notification service to answer, before it is asked again."""


class PublisherNode(Relay):
    """The home broker of publishers: a relay that also starts events.

    Without paths it gossips its own events instead: it announces or pushes them to a few subscribers.
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
        alone = settings.gossip if settings.paths == "none" else None
        self.gossiper = None if alone is None else Gossiper(node, alone, seed)
        self._views: dict[int, int] = {}
        self._asked: dict[int, tuple[PublishRequest, bytes]] = {}
        self._asks: TimerQueue[int] = TimerQueue()
        self._waiting: list[tuple[Granted, PublishRequest, bytes]] = []
        self._next_number = 0

    def request(self, body: Body, deadline_s: float, now: float) -> list[Effect]:
        """Publishes an event by way of the notification service: asks it where the event goes, then sends it there.

        It asks again until it is answered or the deadline has passed.
        """
        reason = self._too_far(deadline_s, now)
        if reason is not None:
            raise ConfigurationError(f"event on {body.topic!r}: its deadline at {deadline_s} s is refused: {reason}")
        self._waiting = [entry for entry in self._waiting if now < entry[1].deadline_s]
        if len(self._asked) + len(self._waiting) >= self.settings.events_max:
            raise OverloadError(f"{self.settings.events_max} events wait for the notification service already")
        data = body.encode()
        number, self._next_number = self._next_number, self._next_number + 1
        message = PublishRequest(number, len(data), deadline_s, replace(body, payload=b""))
        self._asked[number] = (message, data)
        self._asks.set(number, now + _ANSWER_S)
        return self._counted([SendTo(self.service, message)])

    def publish(
        self, event_id: int, group: int, data: bytes, deadline_s: float, now: float, rate_per_s: float = math.inf
    ) -> list[Effect]:
        """Sends an event to its group. `rate_per_s` is the rate of the group's paths, for a publisher that paces."""
        return self._counted(self._publish(event_id, group, data, deadline_s, now, rate_per_s))

    def _publish(
        self, event_id: int, group: int, data: bytes, deadline_s: float, now: float, rate_per_s: float
    ) -> list[Effect]:
        reason = self._too_far(deadline_s, now)
        if reason is not None:
            raise ConfigurationError(
                f"event {event_id}: its deadline at {deadline_s} s is refused at {now} s: {reason}"
            )
        encoder = EventEncoder(event_id, data, self.settings.coding, self._draws.word())
        if self.gossiper is not None:
            return self._gossip(encoder, group, deadline_s, now)
        if group not in self._groups:
            raise ConfigurationError(f"event {event_id}: group {group} is not installed at node {self.node}")
        _, forwarding = self._groups[group]
        out: list[Effect] = []
        sent_before = dict.fromkeys((branch.neighbour for branch in forwarding.branches), 0)
        for generation in range(encoder.layout.generations):
            plan = self._generation(encoder, generation, forwarding)
            for branch, number, packet in plan:
                message = Data(group, number, deadline_s, packet, int(self.settings.retransmit))
                after_s = 0.0
                if self.settings.pace and rate_per_s < math.inf:
                    flow_per_s = rate_per_s * branch.count / forwarding.packets
                    after_s = sent_before[branch.neighbour] / flow_per_s
                sent_before[branch.neighbour] += 1
                out.append(self._send(branch.neighbour, message, now, after_s))
        return out

    def next_timer(self) -> float:
        gossip_s = math.inf if self.gossiper is None else self.gossiper.next_timer()
        return min(super().next_timer(), self._asks.next(), gossip_s)

    def _timer(self, now: float) -> list[Effect]:
        out = super()._timer(now)
        for number in self._asks.due(now):
            message, _ = self._asked[number]
            if now >= message.deadline_s:
                del self._asked[number]
                self.counters.refused["not granted"] += 1
                continue
            self._asks.set(number, now + _ANSWER_S)
            out.append(SendTo(self.service, message))
        if self.gossiper is not None:
            out += [SendTo(to, message) for to, message in self.gossiper.handle_timer(now)]
        return out

    def _take(self, message: Message, sender: int, now: float) -> list[Effect]:
        if self.gossiper is not None and isinstance(message, PacketRequest):
            return [SendTo(to, reply) for to, reply in self.gossiper.asked(message, sender, now)]
        if self.gossiper is not None and isinstance(message, View) and sender == self.service:
            self._meet(message)
            return [SendTo(sender, Known(message.group, message.version)), *self._ready(now)]
        if isinstance(message, Granted) and sender == self.service:
            return self._grant(message, now)
        return super()._take(message, sender, now)

    def _install(self, part: Install, now: float) -> list[Effect]:
        return super()._install(part, now) + self._ready(now)

    def _grant(self, granted: Granted, now: float) -> list[Effect]:
        entry = self._asked.pop(granted.number, None)
        self._asks.clear(granted.number)
        if entry is None:
            return []
        if not granted.accepted:
            return self._refuse("event refused")
        self._waiting.append((granted, *entry))
        return self._ready(now)

    def _ready(self, now: float) -> list[Effect]:
        """Sends the granted events whose groups are known here by now."""
        groups: Container[int] = self._groups if self.gossiper is None else self._views
        out: list[Effect] = []
        waiting, self._waiting = self._waiting, []
        for granted, asked, data in waiting:
            if now >= asked.deadline_s:
                self.counters.refused["expired"] += 1
            elif granted.group in groups:
                out += self._publish(granted.event_id, granted.group, data, asked.deadline_s, now, granted.rate_per_s)
            else:
                self._waiting.append((granted, asked, data))
        return out

    def _meet(self, view: View) -> None:
        assert self.gossiper is not None
        if view.version <= self._views.get(view.group, -1):
            return
        self._views[view.group] = view.version
        self.gossiper.meet(view.group, view.peers)
        if len(self._views) > self.settings.groups_max:
            oldest = next(iter(self._views))
            del self._views[oldest]
            self.gossiper.leave(oldest)

    def _generation(
        self, encoder: EventEncoder, generation: int, forwarding: Forwarding
    ) -> list[tuple[Branch, int, Packet]]:
        """The packets of a generation, each with its branch and number, in the order in which they are sent."""
        packets = [*encoder.plain(generation), *encoder.coded(generation=generation)]
        plan: list[tuple[int, int, Branch, int, Packet]] = []
        for place, branch in enumerate(forwarding.branches):
            if self.settings.recode and branch.is_contended:
                count = self._share(branch, forwarding, len(packets))
                mine = [(NO_NUMBER, packet) for packet in encoder.coded(count, generation)]
            else:
                wanted = [n for n in range(len(packets)) if branch.wants(n * forwarding.packets // len(packets))]
                mine = [(number, packets[number]) for number in wanted]
            plan += [(step, place, branch, number, packet) for step, (number, packet) in enumerate(mine)]
        plan.sort(key=lambda entry: entry[:2])  # every branch has its first packet before any has its second
        return [(branch, number, packet) for _, _, branch, number, packet in plan]

    def _gossip(self, encoder: EventEncoder, group: int, deadline_s: float, now: float) -> list[Effect]:
        assert self.gossiper is not None
        event = Announced(encoder.event_id, group, encoder.layout.size, deadline_s)
        holding = Holding(event, self.settings.coding)
        for packet in encoder.plain():
            holding.add(packet)
        return [SendTo(to, message) for to, message in self.gossiper.offer(holding, now)]
