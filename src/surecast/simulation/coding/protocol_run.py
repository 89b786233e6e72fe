"""The protocol's own objects in virtual time, on links that lose and delay."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from surecast.protocol.dissemination import Data, Effect, EventComplete, Expire, HopAck, Message, SendTo
from surecast.protocol.gossip import Announcement, PacketRequest
from surecast.simulation.coding.compiled_parts import crosses, travels
from surecast.simulation.coding.compiled_state import COUNTS, REQUEST_NUMBERS, Net
from surecast.simulation.coding.outcomes import Outcomes, place_of
from surecast.simulation.coding.scheme import TOPIC, Casting
from surecast.simulation.experiment.clock import FIRST, NETWORK, TIMERS, Clock
from surecast.simulation.experiment.host import Host

__all__ = ["ObjectWorld"]


class _Event:
    """An event under way: what its packets met so far, and what became of it."""

    def __init__(self, number: int, published_s: float, links: int, subscribers: int):
        self.number = number
        self.published_s = published_s
        self.passed: NDArray[np.int64] = np.zeros(links, dtype=np.int64)
        self.is_bad: NDArray[np.bool_] = np.zeros(links, dtype=np.bool_)
        self.done_s: NDArray[np.float64] = np.full(subscribers, math.inf)
        self.recovered: NDArray[np.bool_] = np.zeros(subscribers, dtype=np.bool_)
        self.counts: NDArray[np.int64] = np.zeros(COUNTS, dtype=np.int64)


class ObjectWorld:
    """Runs the nodes of a casting. Events may overlap: they then wait for each other on the links.

    Losses are a function of the seed, the event, the link and the number of the event's packet on it. At one moment
    messages come before timers, messages in the order in which they were sent, and timers by the number of their node.
    """

    def __init__(self, casting: Casting, net: Net, links: dict[tuple[int, int], int], deadline_s: float):
        self.casting = casting
        self.net = net
        self.deadline_s = deadline_s
        self.clock = Clock()
        self.expired: list[Expire] = []
        self._links = links
        self._brokers = len(casting.nodes) - len(casting.homes)
        self._busy_s = np.zeros(len(net.loss))
        self._events: dict[int, _Event] = {}
        self._published: dict[int, _Event] = {}
        self._hosts = {
            number: Host(node, self.clock, partial(self._perform, number), TIMERS + number)
            for number, node in casting.nodes.items()
        }

    def run(self, times_s: Sequence[float], first: int = 0) -> Outcomes:
        """Publishes events at these times, numbered from `first` on, and lets each come to its end."""
        numbers = range(first, first + len(times_s))
        for number, time_s in zip(numbers, times_s, strict=True):
            self.clock.at(time_s, FIRST, self._publish, number)
        self.clock.run(math.inf)
        events = [self._published.pop(number) for number in numbers]
        return Outcomes(
            np.array([event.done_s for event in events]),
            np.array([event.recovered for event in events]),
            np.array([event.counts for event in events]),
        )

    def _publish(self, number: int) -> None:
        casting, now = self.casting, self.clock.now
        deadline_s = now + self.deadline_s
        size = casting.settings.coding.packets * casting.settings.coding.packet_bytes
        publication, _ = casting.service.publish(casting.source, TOPIC, size, deadline_s, now)
        event = _Event(number, now, len(self.net.loss), len(casting.homes))
        self._published[number] = self._events[publication.event_id] = event
        data = bytes(size)
        effects = casting.publisher.publish(publication.event_id, publication.group, data, deadline_s, now)
        self._hosts[casting.source].perform(effects)

    def _arrive(self, sender: int, to: int, message: Message) -> None:
        self._hosts[to].perform(self.casting.nodes[to].handle(message, sender, self.clock.now))

    def _perform(self, node: int, _: Host[Effect], effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, SendTo):
                self._send(node, effect)
            elif isinstance(effect, EventComplete):
                event = self._events[effect.event_id]
                event.done_s[node - self._brokers] = self.clock.now - event.published_s
                event.recovered[node - self._brokers] = effect.recovered
            elif isinstance(effect, Expire):
                self.expired.append(effect)

    def _send(self, sender: int, effect: SendTo) -> None:
        message, to, net = effect.message, effect.to, self.net
        event = self._events[_event_of(message)]
        is_hop = isinstance(message, Data | HopAck)
        link = self._links.get((sender, to), -1) if is_hop else -1
        place = place_of(message, is_hop and link >= net.overlay_links)
        assert place is not None
        event.counts[place] += 1
        if isinstance(message, PacketRequest):
            event.counts[REQUEST_NUMBERS] += sum(len(wanted.numbers) for wanted in message.wanted)
        start_s = self.clock.now + effect.after_s
        if is_hop:
            if isinstance(message, Data) and net.packet_s[link] > 0.0:
                start_s = max(start_s, self._busy_s[link]) + net.packet_s[link]
                self._busy_s[link] = start_s
            arrives = crosses(net, event.passed, event.is_bad, event.number, link)
            due_s = start_s + net.latency_s[link]
        else:
            arrives = travels(net, event.passed, event.is_bad, event.number, sender, to)
            due_s = start_s + net.delays_s[net.home[sender], net.home[to]]
        if arrives:
            self.clock.at(float(due_s), NETWORK, self._arrive, sender, to, message)


def _event_of(message: Message) -> int:
    if isinstance(message, Announcement):
        return message.events[0].event_id
    if isinstance(message, HopAck | PacketRequest):
        return message.event_id
    return message.packet.event_id  # type: ignore[union-attr]
