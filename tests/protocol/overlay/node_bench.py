"""Overlay nodes joined by links without latency; what they say to each other is written down in the papers' terms."""

from __future__ import annotations

from collections import deque
from typing import Any

from surecast.protocol.demand import DemandUpdate, JointFilter, Subscription
from surecast.protocol.filters import Value
from surecast.protocol.link import LinkAck, NumberedFrame
from surecast.protocol.overlay.node_links import NodeSettings
from surecast.protocol.overlay.overlay_frames import Detoured, EventBatch, Events, Frame, Written
from surecast.protocol.overlay.overlay_node import OverlayNode
from surecast.protocol.overlay.overlay_plan import OverlayPlan

Said = tuple[str, str, Any]
"""Sender, receiver, and what was said: a frame, or the number of events that an acknowledgement is for."""


class NodeBench:
    """`said` has every frame with events or demand, and every acknowledgement of events; not what only keeps links and
    views up to date: hellos, hashes, credit, states of links."""

    def __init__(self, plan: OverlayPlan, settings: NodeSettings | None = None):
        self.plan = plan
        self.settings = settings or NodeSettings(resume_s=0.0)
        self.nodes: dict[str, OverlayNode | None] = {}
        self.disks: dict[str, dict[tuple[Any, ...], Any]] = {name: {} for name in plan.brokers}
        self.incarnations = dict.fromkeys(plan.brokers, 0)
        self.said: list[Said] = []
        self.delivered: list[tuple[str, EventBatch]] = []
        self.log: list[tuple[Any, ...]] = []
        """Writes and messages of all brokers, in the order in which they leave the nodes."""
        self.joined: set[frozenset[str]] = set()
        self.now = 0.0
        self._queue: deque[tuple[str, str, Written]] = deque()
        for name in plan.brokers:
            self.start(name)
        self.join(*plan.links)
        self.forget()

    def forget(self) -> None:
        self.said.clear()
        self.delivered.clear()
        self.log.clear()

    def node(self, name: str) -> OverlayNode:
        node = self.nodes[name]
        assert node is not None
        return node

    def start(self, name: str) -> None:
        self.incarnations[name] += 1
        node = self.nodes[name] = OverlayNode(name, self.plan, self.incarnations[name], self.settings, self.now)
        node.restore(self.disks[name])

    def join(self, *pairs: tuple[str, str]) -> list[Said]:
        """Makes connections, all at the same moment."""
        start = len(self.said)
        for a, b in pairs:
            hello_a, hello_b = self.node(a).hello(b), self.node(b).hello(a)
            self.joined.add(frozenset((a, b)))
            self.node(a).link_up(b, hello_b, self.now)
            self.node(b).link_up(a, hello_a, self.now)
        self._settle(*dict.fromkeys(name for pair in pairs for name in pair))
        return self.said[start:]

    def cut(self, a: str, b: str) -> None:
        """Breaks a connection, and both ends that live notice it."""
        self.joined.discard(frozenset((a, b)))
        for name, other in ((a, b), (b, a)):
            if self.nodes[name] is not None:
                self.node(name).link_down(other, self.now)
        self._settle(*(name for name in (a, b) if self.nodes[name] is not None))

    def crash(self, name: str) -> None:
        """Kills a broker, and its neighbours notice it."""
        self.nodes[name] = None
        for hop in self.plan.neighbours(name):
            self.cut(name, hop)

    def recover(self, name: str) -> list[Said]:
        self.start(name)
        return self.join(*[(name, hop) for hop in self.plan.neighbours(name) if self.nodes[hop] is not None])

    def demand(self, name: str, *added: JointFilter, removed: tuple[JointFilter, ...] = ()) -> list[Said]:
        start = len(self.said)
        self.node(name).demand(added, removed)
        self._settle(name)
        return self.said[start:]

    def refresh(self, name: str, joint: JointFilter) -> list[Said]:
        start = len(self.said)
        self.node(name).refresh(joint)
        self._settle(name)
        return self.said[start:]

    def tick(self, name: str) -> list[Said]:
        start = len(self.said)
        self.node(name).tick(self.now)
        self._settle(name)
        return self.said[start:]

    def advertise(self, name: str, *added: JointFilter, removed: tuple[JointFilter, ...] = ()) -> list[Said]:
        start = len(self.said)
        self.node(name).advertise(added, removed)
        self._settle(name)
        return self.said[start:]

    def publish(self, name: str, topic: str, attributes: dict[str, Value] | None = None, **named: Any) -> list[Said]:
        start = len(self.said)
        self.node(name).publish(topic, 1, self.now, attributes=(attributes or {},), **named)
        self._settle(name)
        return self.said[start:]

    def _settle(self, *names: str) -> None:
        for name in names:
            self._flush(name)
        while self._queue:
            sender, to, written = self._queue.popleft()
            if frozenset((sender, to)) in self.joined and self.nodes[to] is not None:
                self.node(to).receive(sender, written, self.now)
                self._flush(to)

    def _flush(self, name: str) -> None:
        node = self.node(name)
        for key, record in node.journal:
            self.log.append((name, "disk", key[0], record is not None))
            if record is None:
                self.disks[name].pop(key, None)
            else:
                self.disks[name][key] = record
        node.journal.clear()
        for batch in node.take_deliveries():
            self.delivered.append((name, batch))
            self.log.append((name, "deliver"))
        for hop in self.plan.neighbours(name):
            if frozenset((name, hop)) not in self.joined:
                continue
            unacknowledged = dict(self._unacknowledged(hop, name))
            for written in node.output(hop):
                self._queue.append((name, hop, written))
                self._write_down(name, hop, written, unacknowledged)

    def _write_down(self, name: str, hop: str, written: Written, unacknowledged: dict[int, Frame]) -> None:
        if isinstance(written, NumberedFrame):
            frame = written.content
            carried = frame.frame if isinstance(frame, Detoured) else frame
            if isinstance(carried, Events | Subscription) or isinstance(frame, DemandUpdate):
                self.said.append((name, hop, frame))
                self.log.append((name, "send", hop))
        else:
            assured = [
                frame
                for number, frame in unacknowledged.items()
                if number <= written.number and isinstance(frame, Events) and not frame.attempt
            ]
            if assured:
                self.said.append((name, hop, sum(frame.batch.count for frame in assured)))
                self.log.append((name, "acknowledge", hop))

    def _unacknowledged(self, name: str, neighbour: str) -> list[tuple[int, Frame]]:
        """The frames of a node for which its neighbour has not sent an acknowledgement."""
        node = self.nodes[name]
        if node is None:
            return []
        acked = max(
            [w.number for s, to, w in self._queue if (s, to) == (neighbour, name) and isinstance(w, LinkAck)], default=0
        )
        return [(frame.number, frame.content) for frame in node.kept_for(neighbour) if frame.number > acked]
