"""The subscriber to events: it decodes, notifies, and helps others to what they miss."""

from __future__ import annotations

import math
from collections.abc import Callable, Container

from surecast.errors import ConfigurationError
from surecast.protocol.coding import Packet
from surecast.protocol.dissemination.dissemination_messages import (
    Data,
    Effect,
    EventComplete,
    EventPrefix,
    Expire,
    HopAck,
    Known,
    Message,
    Register,
    Registered,
    SendTo,
    Unregister,
    View,
)
from surecast.protocol.dissemination.dissemination_node import DisseminationNode
from surecast.protocol.dissemination.dissemination_settings import DisseminationSettings
from surecast.protocol.dissemination.timer_queue import TimerQueue
from surecast.protocol.gossip import Announced, Announcement, Gossiper, Holding, Outgoing, PacketRequest, Push, Reply

__all__ = ["SubscriberNode"]

_REGISTER_S = 0.5
"""Time given to the notification service to confirm, before it is asked again."""


class SubscriberNode(DisseminationNode):
    """A subscriber. It takes packets from its home broker, and gossip from peers in the groups it belongs to.

    `notify`, where given, is called with every `EventComplete` and `EventPrefix` besides their being returned as
    effects.
    """

    def __init__(
        self,
        node: int,
        home: int,
        settings: DisseminationSettings,
        known: Container[int],
        service: int,
        seed: int = 0,
        payload_bytes: int | None = None,
        notify: Callable[[EventComplete | EventPrefix], None] | None = None,
    ):
        super().__init__(node, settings, known, service, seed, payload_bytes)
        self.home = home
        self.notify = notify
        self.gossiper = None if settings.gossip is None else Gossiper(node, settings.gossip, seed)
        self._holdings: dict[int, Holding] = {}
        self._early: dict[int, int] = {}
        self._come: dict[int, dict[int, int]] = {}
        self._done: dict[int, None] = {}
        self._views: dict[int, int] = {}
        self._left: dict[int, int] = {}
        self._asked: dict[int, tuple[Register | Unregister, int]] = {}
        self._ends: TimerQueue[int] = TimerQueue()
        self._asks: TimerQueue[int] = TimerQueue()

    @property
    def incomplete(self) -> dict[int, int]:
        """Events that were heard of and are not complete, with the packets that they miss."""
        return {event_id: h.layout.packets - h.rank for event_id, h in self._holdings.items()}

    def subscribe(self, number: int, topic: str, content: str, now: float) -> list[Effect]:
        """Asks the notification service for events, again and again until it confirms."""
        return self._ask(Register(number, self.home, topic, content), now)

    def unsubscribe(self, number: int, now: float) -> list[Effect]:
        """Tells the notification service that it no longer wants these events."""
        return self._ask(Unregister(number), now)

    def is_registered(self, number: int) -> bool:
        """Returns whether the notification service has confirmed the latest request under this number."""
        return number not in self._asked

    def join(self, group: int, version: int, peers: tuple[int, ...]) -> list[Effect]:
        """Takes in its view of a group; an older one than it has is ignored."""
        if version <= max(self._views.get(group, -1), self._left.get(group, -1)):
            return []
        self._left.pop(group, None)
        self._views[group] = version
        if self.gossiper is not None:
            self.gossiper.meet(group, peers)
        if len(self._views) <= self.settings.groups_max:
            return []
        self.counters.refused["group evicted"] += 1
        return self._forget_group(next(iter(self._views)))

    def next_timer(self) -> float:
        gossip_s = math.inf if self.gossiper is None else self.gossiper.next_timer()
        return min(gossip_s, self._ends.next(), self._asks.next())

    def _timer(self, now: float) -> list[Effect]:
        out: list[Effect] = []
        for event_id in self._ends.due(now):
            holding = self._holdings.pop(event_id)
            self._drop(holding)
            out.append(Expire(event_id, holding.layout.packets - holding.rank, "deadline"))
        for number in self._asks.due(now):
            message, tries = self._asked[number]
            if tries >= self.settings.tries_max:
                del self._asked[number]
                self.counters.refused["not registered"] += 1
                continue
            self._asked[number] = (message, tries + 1)
            self._asks.set(number, now + _REGISTER_S)
            out.append(SendTo(self.service, message))
        if self.gossiper is not None:
            out += _sends(self.gossiper.handle_timer(now))
        return out

    def _take(self, message: Message, sender: int, now: float) -> list[Effect]:
        if isinstance(message, Data) and sender == self.home:
            if message.group in self._left:
                return self._refuse("group left")
            out = self._packet(message.group, message.deadline_s, message.packet, False, now)
            return [SendTo(sender, self._ack(message)), *out] if message.attempt else out
        if isinstance(message, View) and sender == self.service:
            return self._view(message, now)
        if isinstance(message, Registered) and sender == self.service:
            return self._registered(message)
        if self.gossiper is None or isinstance(message, Data):
            return self._refuse("not for this subscriber")
        if isinstance(message, Push | Reply):
            if message.group not in self._views:
                return self._refuse("unknown group")
            return self._packet(message.group, message.deadline_s, message.packet, True, now)
        if isinstance(message, Announcement):
            return [effect for event in message.events for effect in self._announced(event, sender, now)]
        if isinstance(message, PacketRequest):
            return [*_sends(self.gossiper.asked(message, sender, now))]
        return self._refuse("not for this subscriber")

    def _ack(self, message: Data) -> HopAck:
        """Says what has come of a packet's generation; all, if the event is complete or given up."""
        packet = message.packet
        sent = self.settings.sent_of(packet.packets)
        come = 1 << message.number if message.number < sent else 0
        if packet.event_id in self._done:
            come = (1 << sent) - 1
        elif packet.event_id in self._holdings:
            generations = self._come.setdefault(packet.event_id, {})
            come |= generations.get(packet.generation, 0)
            generations[packet.generation] = come
        return HopAck(packet.event_id, packet.generation, message.number, message.attempt, come)

    def _packet(self, group: int, deadline_s: float, packet: Packet, recovered: bool, now: float) -> list[Effect]:
        out: list[Effect] = []
        event = Announced(packet.event_id, group, packet.size, deadline_s)
        holding = self._holding(event, now, out)
        if holding is None:
            return out
        if not holding.add(packet):
            self.counters.refused["not innovative"] += 1
            return out
        if holding.complete:
            return out + self._complete(holding, recovered, now)
        if self.settings.early:
            start = self._early.get(packet.event_id, 0)
            data = holding.decoder.prefix(start)
            if data:
                self._early[packet.event_id] = start + len(data)
                out.append(self._told(EventPrefix(packet.event_id, start, data)))
        if self.gossiper is not None and self.gossiper.settings.partial:
            out += _sends(self.gossiper.offer(holding, now))
        return out

    def _complete(self, holding: Holding, recovered: bool, now: float) -> list[Effect]:
        event = holding.announced
        del self._holdings[event.event_id]
        self._ends.clear(event.event_id)
        self._early.pop(event.event_id, None)
        self._remember(event.event_id)
        out: list[Effect] = [self._told(EventComplete(event.event_id, event.group, holding.decoder.data(), recovered))]
        if self.gossiper is not None:
            out += _sends(self.gossiper.offer(holding, now))
        return out

    def _holding(self, event: Announced, now: float, out: list[Effect]) -> Holding | None:
        """Returns the holding of an event, begun if there is none. A refused event is counted, and gets None."""
        present = self._holdings.get(event.event_id)
        reason = self._too_far(event.deadline_s, now)
        if event.event_id in self._done:
            reason = "done with"
        if reason is None and present is not None and present.announced[1:3] != event[1:3]:
            reason = "contradicts"
        if reason is not None:
            self.counters.refused[reason] += 1
            return None
        if present is not None:
            return present
        try:
            holding = Holding(event, self.settings.coding)
        except ConfigurationError:
            self.counters.refused["event too large"] += 1
            return None
        if len(self._holdings) >= self.settings.events_max:
            # Events of which only the name is known go first, so that announcing nonsense displaces little.
            oldest = next((h for h in self._holdings.values() if not h.rank), next(iter(self._holdings.values())))
            del self._holdings[oldest.announced.event_id]
            self._drop(oldest)
            out.append(Expire(oldest.announced.event_id, oldest.layout.packets - oldest.rank, "evicted"))
        self._holdings[event.event_id] = holding
        self._ends.set(event.event_id, event.deadline_s)
        return holding

    def _announced(self, event: Announced, sender: int, now: float) -> list[Effect]:
        assert self.gossiper is not None
        if event.group not in self._views:
            return self._refuse("unknown group")
        if event.event_id in self._done:
            return []  # that is how most digests end: nothing is missing
        out: list[Effect] = []
        holding = self._holding(event, now, out)
        return out + _sends(self.gossiper.announced(event, holding, sender, now))

    def _view(self, view: View, now: float) -> list[Effect]:
        out: list[Effect] = [SendTo(self.service, Known(view.group, view.version))]
        if not view.member:
            if view.version > self._views.get(view.group, -1):
                out += self._forget_group(view.group)
                self._left[view.group] = view.version
                if len(self._left) > self.settings.groups_max:
                    del self._left[next(iter(self._left))]
            return out
        out += self.join(view.group, view.version, view.peers)
        for event in view.events if self.gossiper is not None and view.peers else ():
            if event.event_id not in self._done:
                holding = self._holding(event, now, out)
                if holding is not None and self.gossiper is not None:
                    out += _sends(self.gossiper.chase(holding, list(view.peers), now))
        return out

    def _registered(self, message: Registered) -> list[Effect]:
        self._asks.clear(message.number)
        if self._asked.pop(message.number, None) is not None and not message.accepted:
            return self._refuse("subscription refused")
        return []

    def _ask(self, message: Register | Unregister, now: float) -> list[Effect]:
        self._asked[message.number] = (message, 1)
        self._asks.set(message.number, now + _REGISTER_S)
        return self._counted([SendTo(self.service, message)])

    def _forget_group(self, group: int) -> list[Effect]:
        self._views.pop(group, None)
        if self.gossiper is not None:
            self.gossiper.leave(group)
        out: list[Effect] = []
        for holding in [h for h in self._holdings.values() if h.announced.group == group]:
            del self._holdings[holding.announced.event_id]
            self._drop(holding)
            out.append(Expire(holding.announced.event_id, holding.layout.packets - holding.rank, "group left"))
        return out

    def _drop(self, holding: Holding) -> None:
        """Ends an event that is not complete."""
        event_id = holding.announced.event_id
        self._ends.clear(event_id)
        self._early.pop(event_id, None)
        self._remember(event_id)
        if self.gossiper is not None:
            self.gossiper.forget(event_id)

    def _remember(self, event_id: int) -> None:
        self._come.pop(event_id, None)
        self._done[event_id] = None
        if len(self._done) > self.settings.done_max:
            del self._done[next(iter(self._done))]

    def _told(self, effect: EventComplete | EventPrefix) -> EventComplete | EventPrefix:
        if self.notify is not None:
            self.notify(effect)
        return effect


def _sends(outgoing: list[Outgoing]) -> list[Effect]:
    return [SendTo(to, message) for to, message in outgoing]
