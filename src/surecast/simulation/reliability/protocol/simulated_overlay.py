"""The simulated world: brokers that run the protocol code on a simulated disk, network and clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import cycle
from math import inf

from surecast.protocol.overlay import (
    Broker,
    ClientMessage,
    Deliver,
    Detour,
    Discard,
    Drop,
    Effect,
    Event,
    EventId,
    Key,
    Message,
    OverlayMap,
    Publish,
    Record,
    Send,
    Settings,
    Store,
    StoredEvent,
    Subscribe,
)
from surecast.scenario.flows import flows_of
from surecast.scenario.system import Failures, Publisher, System
from surecast.simulation.experiment.clock import CLIENTS, NETWORK, Clock
from surecast.simulation.experiment.errors import SafetyError
from surecast.simulation.experiment.failures import FailureTrace, run_streams
from surecast.simulation.experiment.host import Host
from surecast.simulation.reliability.protocol.accounts import Accounts, Snapshot, Target
from surecast.simulation.reliability.protocol.journal import Journal
from surecast.simulation.reliability.protocol.network import Link, Network
from surecast.simulation.reliability.protocol.options import Options
from surecast.simulation.reliability.protocol.result import Transition

__all__ = ["Node", "World"]

_PUBLISHED, _DELIVERED, _BROKER, _LINK = 1, 2, 3, 4


class Node(Host[Effect]):
    """A broker's machine: the disk survives, the broker's memory does not."""

    def __init__(self, index: int, broker: Broker, clock: Clock, handler: Callable[[Node, Iterable[Effect]], None]):
        super().__init__(broker, clock, handler)
        self.index = index
        self.name = broker.name
        self.broker = broker
        self.disk: dict[Key, Record] = {}
        self.up = True


class World:
    """Everything in one run. `targets` says who subscribes to what where."""

    def __init__(
        self,
        system: System,
        settings: Settings,
        targets: tuple[Target, ...],
        options: Options,
        *,
        seed: int,
        run: int,
        warm_up_s: float,
        replay: str,
    ):
        self.system = system
        self.settings = settings
        self.options = options
        self.replay = replay
        self.streams = run_streams(seed, run)
        names = [broker.name for broker in system.overlay.brokers]
        links = [Link(i, link, names) for i, link in enumerate(system.overlay.links)]
        self.rest_s = sum(link.latency_s + options.jitter_s for link in links) + options.detection_s
        self.clock = Clock(-1.0 - 2 * self.rest_s)
        self.journal = Journal()
        self.transitions: list[Transition] = []
        overlay = OverlayMap.of(system.overlay)
        self.nodes = {
            name: Node(i, Broker(name, overlay, settings), self.clock, self._perform) for i, name in enumerate(names)
        }
        self.neighbours = overlay.neighbours
        self.accounts = Accounts(
            targets,
            _Routes(system),
            self._violate,
            scheme_bypasses=settings.bypasses,
            scheme_buffers=settings.buffers,
            counts_from_s=warm_up_s,
            keeps_fates=options.keeps_fates,
        )
        rng = self.streams.generator("network")
        self.network = Network(
            links, self.clock, self.journal, options, rng, self._arrive, self.accounts.copied, self.accounts.failed
        )
        self.sent: list[int] = []
        self._state: Snapshot | None = None
        self._refresh_due_s = -inf
        self._detects = settings.bypasses or (settings.buffers and not settings.retransmission_interval_s)

    def run(self, duration_s: float, drain_s: float, warm_up_s: float) -> None:
        """Lets the world live: subscriptions spread while all is up, then failures begin in their stationary state."""
        for i in range(len(self.accounts.targets)):
            self._refresh(i)
        self.clock.run(until_s=0.0)
        self.network.loses = True
        end_s = duration_s + drain_s
        self._start_failures(end_s)
        self._start_clients(duration_s, end_s)
        self.clock.run(until_s=max(0.0, warm_up_s))
        self.network.sent = [0] * len(self.network.sent)
        self.clock.run(until_s=duration_s)
        self.sent = list(self.network.sent)
        self.clock.run(until_s=end_s)
        self.accounts.close(self.clock.now)

    # Failures and repairs

    def _start_failures(self, end_s: float) -> None:
        overlay = self.system.overlay
        for broker in overlay.brokers:
            if broker.failures is not None:
                set_broker = partial(self._set_broker, self.nodes[broker.name])
                trace = self._trace(broker.failures, f"broker/{broker.name}")
                if not self.settings.refreshes and trace.starts_up:
                    # Without refreshes the stationary state is that whoever can crash has crashed before.
                    set_broker(False)
                    set_broker(True)
                self._follow(trace, set_broker, end_s)
        for link, spec in zip(self.network.links, overlay.links, strict=True):
            if spec.failures is not None:
                self._follow(self._trace(spec.failures, f"link/{spec.name}"), partial(self._set_link, link), end_s)
        if self.options.heal_at_s <= end_s:
            self.clock.at(self.options.heal_at_s, NETWORK, self._heal)

    def _trace(self, failures: Failures, name: str) -> FailureTrace:
        return FailureTrace(failures, self.streams.generator("failures", name))

    def _follow(self, trace: FailureTrace, change: Callable[[bool], None], end_s: float) -> None:
        """Lets a component fail and come back as its trace says."""
        if not trace.starts_up:
            change(False)
        self._next_change(iter(trace), change, not trace.starts_up, end_s)

    def _next_change(self, times: Iterator[float], change: Callable[[bool], None], up: bool, end_s: float) -> None:
        time_s = next(times)
        if time_s <= end_s and time_s < self.options.heal_at_s:
            self.clock.at(time_s, NETWORK, self._change, times, change, up, end_s)

    def _change(self, times: Iterator[float], change: Callable[[bool], None], up: bool, end_s: float) -> None:
        change(up)
        self._next_change(times, change, not up, end_s)

    def _heal(self) -> None:
        for link in self.network.links:
            if not link.up:
                self._set_link(link, True)
        for node in self.nodes.values():
            if not node.up:
                self._set_broker(node, True)

    def _set_broker(self, node: Node, up: bool) -> None:
        self._changed(_BROKER, node.index, "broker", node.name, up)
        node.up = up
        node.end_incarnation()
        linked = [name for name in self.neighbours[node.name] if self.network.between[node.name, name].up]
        if up:
            node.perform(node.broker.recover(self.clock.now, node.disk))
            for name in linked:
                if self.nodes[name].up:
                    self._detect(node, name, True)
        else:
            node.broker.crash()
        for name in linked:
            if self.nodes[name].up:
                self._detect(self.nodes[name], node.name, up)

    def _set_link(self, link: Link, up: bool) -> None:
        self._changed(_LINK, link.index, "link", self.system.overlay.links[link.index].name, up)
        link.up = up
        a, b = self.nodes[link.a], self.nodes[link.b]
        if a.up and b.up:
            self._detect(a, b.name, up)
            self._detect(b, a.name, up)

    def _changed(self, code: int, index: int, kind: str, name: str, up: bool) -> None:
        self._state = None
        self.journal.note(self.clock.now, code, index, up, 0)
        if self.options.keeps_fates:
            self.transitions.append(Transition(self.clock.now, kind, name, up))
        if up and self.options.refresh_s == 0 and self.settings.refreshes:
            # Once detectors, flooding and detours have come to rest, and once for changes at the same time.
            due_s = self.clock.now + 2 * self.rest_s
            if due_s > self._refresh_due_s:
                self._refresh_due_s = due_s
                self.clock.at(due_s, CLIENTS, self._refresh_all)

    def _detect(self, node: Node, neighbour: str, up: bool) -> None:
        if self._detects:
            time_s = self.clock.now + self.options.detection_s
            node.later(time_s, NETWORK, self._report, node, neighbour, up)

    def _report(self, node: Node, neighbour: str, up: bool) -> None:
        node.perform(node.broker.neighbour_changed(neighbour, up, self.clock.now))

    def state(self) -> Snapshot:
        """Returns the connected part that each broker is in now, and the components that are down."""
        if self._state is None:
            down: set[str | tuple[str, str]] = {name for name, node in self.nodes.items() if not node.up}
            down |= {pair for pair, link in self.network.between.items() if not link.up}
            self._state = Snapshot(self._islands(), frozenset(down))
        return self._state

    def _islands(self) -> dict[str, int]:
        found = dict.fromkeys(self.nodes, -1)
        for number, start in enumerate(self.nodes):
            reached = [start] if self.nodes[start].up and found[start] < 0 else []
            for name in reached:
                found[name] = number
                for other in self.neighbours[name]:
                    if self.nodes[other].up and found[other] < 0 and self.network.between[name, other].up:
                        found[other] = number
                        reached.append(other)
        return found

    # Clients

    def _start_clients(self, duration_s: float, end_s: float) -> None:
        for publisher in self.system.publishers:
            if publisher.rate_per_s > 0 and publisher.topics:
                period_s = 1.0 / publisher.rate_per_s
                phase_s = float(self.streams.generator("phase", publisher.name).random()) * period_s
                topics = cycle(publisher.topics)
                self.clock.at(phase_s, CLIENTS, self._publish, publisher, topics, 0, phase_s, duration_s)
        interval_s = self.refresh_s
        if self.settings.refreshes and 0 < interval_s < inf:
            for i, target in enumerate(self.accounts.targets):
                name = f"{target.subscriber}/{target.topic}"
                phase_s = float(self.streams.generator("refresh", name).random()) * interval_s
                self.clock.at(phase_s, CLIENTS, self._refresh_often, i, 0, phase_s, end_s)

    @property
    def refresh_s(self) -> float:
        given = self.options.refresh_s
        return self.system.delivery.fault_tolerance.refresh_interval if given is None else given

    def _publish(
        self, publisher: Publisher, topics: Iterator[str], number: int, phase_s: float, duration_s: float
    ) -> None:
        now = self.clock.now
        if now >= duration_s:
            return
        event = Event(EventId(publisher.name, number), next(topics), now, publisher.deadline_s)
        next_s = phase_s + (number + 1) / publisher.rate_per_s
        self.clock.at(next_s, CLIENTS, self._publish, publisher, topics, number + 1, phase_s, duration_s)
        node = self.nodes[self.system.overlay.brokers[publisher.home].name]
        self.journal.note(now, _PUBLISHED, node.index, node.up, number)
        self.accounts.publish(event, node.name, self.state())
        if not node.up:
            self.accounts.refuse(event)
            return
        self.accounts.reached(event.id, node.name)
        self._from_client(node, Publish(event))
        self.accounts.released(event.id)

    def _refresh_often(self, i: int, count: int, phase_s: float, end_s: float) -> None:
        self._refresh(i)
        next_s = phase_s + (count + 1) * self.refresh_s
        if next_s <= end_s:
            self.clock.at(next_s, CLIENTS, self._refresh_often, i, count + 1, phase_s, end_s)

    def _refresh_all(self) -> None:
        for i in range(len(self.accounts.targets)):
            self._refresh(i)

    def _refresh(self, i: int) -> None:
        target = self.accounts.targets[i]
        node = self.nodes[target.home]
        if node.up:
            self._from_client(node, Subscribe(target.subscriber, target.topic, self.clock.now))

    # Brokers

    def _from_client(self, node: Node, message: ClientMessage) -> None:
        node.perform(node.broker.from_client(message, self.clock.now))

    def _arrive(self, link: Link, sender: str, to: str, message: Message, event_id: EventId | None) -> None:
        node = self.nodes[to]
        if not (link.up and node.up):
            self.network.lose(link, sender, to, message, event_id)
        else:
            if event_id is not None and not (isinstance(message, Detour) and message.path):
                self.accounts.reached(event_id, to)
            node.perform(node.broker.handle(message, sender, self.clock.now))
        if event_id is not None:
            self.accounts.released(event_id)

    def _perform(self, node: Node, effects: Iterable[Effect]) -> None:
        """Does what a broker wants done. Writing to the disk takes no time, so the order of the effects is kept."""
        for effect in effects:
            if isinstance(effect, Send):
                self.network.send(node.name, effect.to, effect.message, effect.again)
            elif isinstance(effect, Deliver):
                self.journal.note(self.clock.now, _DELIVERED, node.index, 0, effect.event.id.number)
                self.accounts.deliver(effect.subscriber, effect.event, self.clock.now)
            elif isinstance(effect, Store):
                self._write(node, effect.key, effect.record)
            elif isinstance(effect, Discard):
                self._write(node, effect.key, None)
            else:
                self._give_up(node, effect)

    def _write(self, node: Node, key: Key, record: Record | None) -> None:
        old = node.disk.get(key)
        if isinstance(record, StoredEvent):
            self.accounts.copied(record.event.id)
        if record is None:
            node.disk.pop(key, None)
        else:
            node.disk[key] = record
        if isinstance(old, StoredEvent):
            if record is None:
                self.accounts.expired(old.event.id, node.name)
            self.accounts.released(old.event.id)

    def _give_up(self, node: Node, drop: Drop) -> None:
        """Notes why a broker gave up on a copy that is still under way; what it discards from disk is noted there."""
        if drop.reason == "expired" and not drop.to:
            self.accounts.expired(drop.event.id, node.name)
        elif drop.reason == "path down":
            self.accounts.failed(drop.event.id, node.name, drop.to)
        elif drop.reason == "store full":
            self.accounts.turned_away(drop.event.id, drop.reason)

    def _violate(self, what: str) -> None:
        raise SafetyError(what, self.clock.now, self.replay)


class _Routes:
    """The static route of a topic between two brokers, by name."""

    def __init__(self, system: System):
        names = [broker.name for broker in system.overlay.brokers]
        flows = flows_of(system)
        self._found: dict[tuple[str, str, str], tuple[str, ...]] = {}
        for interest, publisher, topic, index in zip(
            flows.interest, flows.publisher, flows.topic, flows.route, strict=True
        ):
            home = names[flows.interests[interest][0]]
            key = (system.topics[topic].name, names[system.publishers[publisher].home], home)
            self._found[key] = tuple(names[i] for i in flows.routes[index].brokers)

    def __call__(self, topic: str, start: str, end: str) -> tuple[str, ...]:
        return self._found[topic, start, end]
