"""Overlay nodes on a network that cuts connections and kills brokers, with a record of what became of every event."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

from surecast.protocol.demand import SUMMARIES, JointFilter
from surecast.protocol.filters import Event, Filter, above, between
from surecast.protocol.mqtt.topics import match
from surecast.protocol.overlay.event_id import EventId
from surecast.protocol.overlay.node_links import NodeSettings
from surecast.protocol.overlay.overlay_frames import EventBatch, Written
from surecast.protocol.overlay.overlay_node import OverlayNode
from surecast.protocol.overlay.overlay_plan import OverlayPlan, Tree
from surecast.protocol.overlay.retained_map import key_of

TOPICS = ("a/1", "a/2", "b/1", "b/2")
FILTERS = ("a/1", "a/+", "b/#", "#", "b/1", "+/2")
SMALL = NodeSettings(resume_s=20.0, refresh_s=30.0, grace_s=3.0, window_bytes=600, queue_bytes_max=100_000)


@dataclass
class Machine:
    """A broker's machine: the disk survives a crash, the node does not."""

    node: OverlayNode | None
    wanted: list[JointFilter]
    incarnation: int = 1
    disk: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    delivered: dict[EventId, list[int]] = field(default_factory=dict)
    """The incarnations in which each event was delivered."""
    order: list[EventId] = field(default_factory=list)
    at_qos_0: dict[EventId, None] = field(default_factory=dict)
    """The events that came at QoS 0, which are not remembered over a restart."""


class World:
    """`scheme` and `algorithm` are those of every tree."""

    retains = 0.0
    """The share of publications that are retained."""

    def __init__(
        self,
        random: Random,
        scheme: str,
        algorithm: str = "covering",
        *,
        size: int = 0,
        settings: NodeSettings = SMALL,
        node: type[OverlayNode] = OverlayNode,
        refresh: Literal["link", "end-to-end"] = "link",
        roots: tuple[int | None, ...] = (None, None),
    ):
        self.random, self.scheme, self.settings, self.kind = random, scheme, settings, node
        self.refresh, self.roots = refresh, roots
        self.now = 0.0
        self.plan = self._plan(size or random.randrange(2, 7), scheme, algorithm)
        self.machines = {
            name: Machine(None, [self._wanted() for _ in range(random.randrange(3))]) for name in self.plan.brokers
        }
        self.wires: dict[tuple[str, str], deque[Written] | None] = {}
        for a, b in self.plan.links:
            self.wires[a, b] = self.wires[b, a] = None
        self.unaware: set[tuple[str, str]] = set()
        """Ends of connections that broke and have not noticed it."""
        self.published: dict[EventId, tuple[Event, float]] = {}
        self.retained: dict[str, EventBatch] = {}
        """The latest version of each topic that was retained."""
        self.at_best_effort: set[EventId] = set()
        """Events that were published at QoS 0."""
        self.crashes = 0
        for name in self.machines:
            self._start(name)
        self.heal()

    def _plan(self, size: int, scheme: str, algorithm: str) -> OverlayPlan:
        names = tuple(f"b{n}" for n in range(size))
        pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
        trees = [self._spanning(names) for _ in range(2)]
        extra = [pair for pair in pairs if self.random.random() < 0.3]
        links = tuple(dict.fromkeys([*(link for tree in trees for link in tree), *extra]))
        roots = [None if root is None else names[root % size] for root in self.roots]
        planned = tuple(
            Tree(tuple(tree), scheme, algorithm, refresh=self.refresh, root=root)
            for tree, root in zip(trees, roots, strict=True)
        )
        return OverlayPlan(names, links, planned, (("", (0,)), ("b", (1,))))

    def _spanning(self, names: tuple[str, ...]) -> list[tuple[str, str]]:
        order = list(names)
        self.random.shuffle(order)
        pairs = [(self.random.choice(order[:n]), order[n]) for n in range(1, len(order))]
        return [(min(pair), max(pair)) for pair in pairs]

    def _wanted(self) -> JointFilter:
        contents = (Filter(), Filter(), Filter(None, {"p": above(5)}), Filter(None, {"p": between(2, 7)}))
        return JointFilter(self.random.choice(FILTERS), self.random.choice(contents), self.random.choice((0, 1, 2)))

    # Brokers

    def _start(self, name: str) -> None:
        machine = self.machines[name]
        machine.node = self.kind(name, self.plan, machine.incarnation, self.settings, self.now)
        if machine.disk:
            machine.node.restore(machine.disk)
        machine.node.demand(added=machine.wanted)
        self._flush(name)

    def _flush(self, name: str) -> None:
        """The end of a turn: commit, deliver, write."""
        machine = self.machines[name]
        node = machine.node
        assert node is not None
        deliveries = self._deliveries(name)
        for key, record in node.journal:
            if record is None:
                machine.disk.pop(key, None)
            else:
                machine.disk[key] = record
        node.journal.clear()
        for batch in deliveries:
            for n in range(batch.count):
                machine.delivered.setdefault(batch.first.plus(n), []).append(machine.incarnation)
                machine.order.append(batch.first.plus(n))
                if not batch.qos:
                    machine.at_qos_0[batch.first.plus(n)] = None
        for hop in self.plan.neighbours(name):
            written = node.output(hop)
            wire = self.wires[name, hop]
            if wire is not None:
                wire.extend(written)

    def _deliveries(self, name: str) -> list[EventBatch]:
        """Returns what has come for the broker's own clients."""
        node = self.machines[name].node
        assert node is not None
        return node.take_deliveries()

    def crash(self, name: str) -> None:
        self.machines[name].node = None
        self.crashes += 1
        for hop in self.plan.neighbours(name):
            self.cut(name, hop)
            self.unaware.discard((name, hop))

    def restart(self, name: str) -> None:
        self.machines[name].incarnation += 1
        self._start(name)

    # Links

    def cut(self, a: str, b: str) -> None:
        """Breaks a connection; what is on it is gone, and the ends notice it at some time."""
        if self.wires[a, b] is not None:
            self.wires[a, b] = self.wires[b, a] = None
            self.unaware |= {(a, b), (b, a)}

    def notice(self, name: str, other: str) -> None:
        self.unaware.discard((name, other))
        node = self.machines[name].node
        if node is not None:
            node.link_down(other, self.now)
            self._flush(name)

    def join(self, a: str, b: str) -> None:
        node_a, node_b = self.machines[a].node, self.machines[b].node
        if node_a is None or node_b is None or self.wires[a, b] is not None:
            return
        for pair in ((a, b), (b, a)):
            if pair in self.unaware:
                self.notice(*pair)
        hello_a, hello_b = node_a.hello(b), node_b.hello(a)
        self.wires[a, b], self.wires[b, a] = deque(), deque()
        node_a.link_up(b, hello_b, self.now)
        node_b.link_up(a, hello_a, self.now)
        self._flush(a)
        self._flush(b)

    def arrive(self, a: str, b: str) -> None:
        wire, node = self.wires[a, b], self.machines[b].node
        if wire and node is not None:
            node.receive(a, wire.popleft(), self.now)
            self._flush(b)

    # Clients

    def publish(self, name: str, *, lifetime_s: float = float("inf")) -> None:
        node = self.machines[name].node
        if node is None:
            return
        topic = self.random.choice(TOPICS)
        if self.retains and self.random.random() < self.retains:
            self.retain(name, topic, lifetime_s)
            return
        attributes = tuple({"p": self.random.randrange(10)} for _ in range(self.random.choice((1, 1, 2, 5))))
        batch = node.publish(
            topic, len(attributes), self.now, qos=1, attributes=attributes, expires_s=self.now + lifetime_s
        )
        if batch is not None:
            for n, values in enumerate(attributes):
                self.published[batch.first.plus(n)] = (Event(topic, values), batch.expires_s)
        self._flush(name)

    def retain(self, name: str, topic: str, lifetime_s: float = float("inf")) -> None:
        """A client retains a message, or two in a row, or deletes that of a topic."""
        node = self.machines[name].node
        assert node is not None
        deletes = self.random.random() < 0.3
        batch = node.publish(
            topic, self.random.choice((1, 1, 2)), self.now, qos=self.random.choice((0, 1)),
            expires_s=self.now + (float("inf") if deletes else lifetime_s), is_retained=True, deletes=deletes,
        )  # fmt: skip
        if batch is not None:
            for n in range(batch.count):
                self.published[batch.first.plus(n)] = (Event(topic, {}), batch.expires_s)
                if not batch.qos:
                    self.at_best_effort.add(batch.first.plus(n))
            last, before = batch.part(batch.count - 1, batch.count), self.retained.get(topic)
            if before is None or key_of(before).version < key_of(last).version:
                self.retained[topic] = last
        self._flush(name)

    def change_demand(self, name: str) -> None:
        """One of the broker's clients wants something else."""
        machine = self.machines[name]
        if machine.node is None:
            return
        removed = [machine.wanted.pop(0)] if machine.wanted and self.random.random() < 0.5 else []
        added = [self._wanted()] if self.random.random() < 0.6 else []
        machine.wanted += added
        machine.node.demand(added, removed)
        self._flush(name)

    # Running

    def step(self, *, crashes: bool = True, cuts: bool = True, lifetime_s: float = float("inf")) -> None:
        random = self.random
        self.now += random.random() * 0.2
        name = random.choice(self.plan.brokers)
        a, b = random.choice(self.plan.links)
        draw = random.random()
        busy = [link for link, wire in self.wires.items() if wire]
        if draw < 0.6 and busy:
            self.arrive(*random.choice(busy))
        elif draw < 0.75:
            self.publish(name, lifetime_s=lifetime_s)
        elif draw < 0.80 and cuts:
            self.cut(a, b)
        elif draw < 0.88 and self.unaware:
            self.notice(*random.choice(sorted(self.unaware)))
        elif draw < 0.95:
            self.join(a, b)
        elif draw < 0.97 and crashes:
            (self.restart if self.machines[name].node is None else self.crash)(name)
        self.tick()

    def tick(self) -> None:
        for name, machine in self.machines.items():
            if machine.node is not None and machine.node.next_timer() <= self.now:
                machine.node.tick(self.now)
                self._flush(name)

    def heal(self) -> None:
        """Repairs everything and lets it come to rest."""
        for name, machine in self.machines.items():
            if machine.node is None:
                self.restart(name)
        for a, b in self.plan.links:
            self.join(a, b)
        for _ in range(60):
            while busy := [link for link, wire in self.wires.items() if wire]:
                self.arrive(*self.random.choice(busy))
            self.now += 1.0
            self.tick()

    # What must hold

    def wants(self, name: str, event: Event) -> bool:
        return any(joint.matches(event) for joint in self.machines[name].wanted)

    def wants_topic(self, name: str, event: Event) -> bool:
        """Whether the node has to deliver an event: contents are matched behind it."""
        return any(match(joint.topic, event.class_name) for joint in self.machines[name].wanted)

    def problems(self) -> list[str]:
        """What must never happen, whatever fails."""
        problems = []
        for name, machine in self.machines.items():
            for event_id, incarnations in machine.delivered.items():
                event, _ = self.published.get(event_id, (None, 0.0))
                if event is not None and not self.wants_topic(name, event):
                    problems.append(f"{name} delivered {event_id}, on a topic that nobody there wants")
                is_kept = "buffering" in self.scheme and event_id not in machine.at_qos_0  # over a restart too
                repeated = len(incarnations) > (1 if is_kept else len(set(incarnations)))
                if repeated:
                    problems.append(f"{name} delivered {event_id} {len(incarnations)} times")
            node = machine.node
            for hop, accounts in node.accounts.hops.items() if node is not None else ():
                if problem := accounts.problem(node.custody.events_unsent(hop) if node is not None else 0):
                    problems.append(f"{name} for {hop}: {problem}")
        return problems

    def differing(self) -> list[str]:
        """Topics whose retained message is not the latest one at some broker. To be asked when all is repaired."""
        problems = []
        for topic in TOPICS:
            latest = self.retained.get(topic)
            wanted = None if latest is None or latest.deletes or latest.expires_s <= self.now else key_of(latest)
            for name, machine in self.machines.items():
                assert machine.node is not None
                machine.node.retained.expire(self.now)
                entry = machine.node.retained.get(topic)
                got = None if entry is None else key_of(entry)
                if got != wanted:
                    problems.append(f"{name} retains {got} for {topic}, not {wanted}")
        return problems

    def missing(self) -> list[str]:
        """Events that somebody wants and did not get."""
        return [
            f"{event_id} did not reach {name}"
            for event_id, (event, _) in self.published.items()
            for name, machine in self.machines.items()
            if self.wants(name, event) and event_id not in machine.delivered and event_id not in self.at_best_effort
        ]


ALGORITHMS = (*SUMMARIES, "flooding")
