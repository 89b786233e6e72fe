"""The protocol's own objects in virtual time on lossy, delaying links: what the formulas are held against."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable

import numpy as np

from surecast.protocol.dissemination import (
    DisseminationNode,
    DisseminationSettings,
    Effect,
    EventComplete,
    Message,
    NotificationService,
    PublisherNode,
    Relay,
    SendTo,
    SubscriberNode,
)
from surecast.protocol.paths import PathPlanner
from surecast.scenario.paths import CapacityGraph
from surecast.scenario.system import System

SERVICE = 9999
FIRST = 1000


class LossyWorld:
    """The brokers of a system, of which number 0 publishes, and its subscribers; subscribers reach each other with a
    given loss and latency, and their home brokers at once and without loss."""

    def __init__(self, system: System, settings: DisseminationSettings, peer_loss: float, peer_s: float, seed: int):
        overlay = system.overlay
        self.brokers = len(overlay.brokers)
        self.homes = {FIRST + i: s.home for i, s in enumerate(system.subscribers)}
        known = frozenset([*range(self.brokers), *self.homes, SERVICE])
        planner = PathPlanner(CapacityGraph.of_overlay(overlay))
        self.service = NotificationService(SERVICE, settings, planner, known, seed)
        self.publisher = PublisherNode(0, settings, known, SERVICE, seed)
        self.nodes: dict[int, DisseminationNode] = {SERVICE: self.service, 0: self.publisher}
        self.nodes |= {n: Relay(n, settings, known, SERVICE, seed) for n in range(1, self.brokers)}
        self.nodes |= {n: SubscriberNode(n, home, settings, known, SERVICE, seed) for n, home in self.homes.items()}
        self.links = {ends: link for link in overlay.links for ends in ((link.a, link.b), (link.b, link.a))}
        self.peer = (peer_loss, peer_s)
        self.rng = np.random.default_rng(seed)
        self.size = settings.coding.packets * settings.coding.packet_bytes
        self.now = 0.0
        self.sent: Counter[str] = Counter()
        self.complete: dict[int, set[int]] = {}
        self._queue: list[tuple[float, int, int, int, Message | None]] = []
        self._serial = 0

    def publish(self, events: int, deadline_s: float) -> np.ndarray:
        """Which subscriber (columns) has which event (rows) in time."""
        for n, home in self.homes.items():
            self.service.subscribe(n, 1, home, "t", "", self.now)
        for event in range(events):
            publication, effects = self.service.publish(0, "t", self.size, self.now + deadline_s + 1.0, self.now)
            self._carry(SERVICE, effects)
            if event == 0:
                self._run(self.now + 1.0)
                self.sent.clear()
            number = publication.event_id
            self.complete[number] = set()
            ends_s = self.now + deadline_s
            self._carry(0, self.publisher.publish(number, publication.group, bytes(self.size), ends_s, self.now))
            self._run(ends_s + 0.01)
        return np.array([[n in done for n in self.homes] for done in self.complete.values()])

    def _carry(self, node: int, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, SendTo):
                loss, delay_s = self._between(node, effect.to)
                if not (self.homes.get(effect.to) == node or self.homes.get(node) == effect.to):
                    self.sent[type(effect.message).__name__] += 1
                if self.rng.random() >= loss:
                    self._push(self.now + effect.after_s + delay_s, node, effect.to, effect.message)
            elif isinstance(effect, EventComplete):
                self.complete[effect.event_id].add(node)
        due_s = self.nodes[node].next_timer()
        if due_s < math.inf:
            self._push(due_s, node, node, None)

    def _between(self, a: int, b: int) -> tuple[float, float]:
        if SERVICE in (a, b) or self.homes.get(a) == b or self.homes.get(b) == a:
            return 0.0, 0.0
        if (a, b) in self.links:
            return self.links[a, b].loss, self.links[a, b].latency_s
        return self.peer

    def _push(self, time_s: float, a: int, b: int, message: Message | None) -> None:
        self._serial += 1
        heapq.heappush(self._queue, (time_s, self._serial, a, b, message))

    def _run(self, until_s: float) -> None:
        while self._queue and self._queue[0][0] <= until_s:
            time_s, _, sender, to, message = heapq.heappop(self._queue)
            self.now = max(self.now, time_s)
            if message is not None:
                self._carry(to, self.nodes[to].handle(message, sender, self.now))
            elif self.nodes[to].next_timer() <= self.now:
                self._carry(to, self.nodes[to].handle_timer(self.now))
        self.now = until_s
