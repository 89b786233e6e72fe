"""The simulated world: overlay nodes on simulated disks, connections and a clock, with failures and clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from math import inf
from typing import Any

from surecast.errors import PeerError
from surecast.protocol.demand import JointFilter
from surecast.protocol.link import LinkHello, NumberedFrame
from surecast.protocol.overlay.event_id import EventId
from surecast.protocol.overlay.node_links import NodeSettings
from surecast.protocol.overlay.overlay_frames import Detoured, EventBatch, Events, events_of
from surecast.protocol.overlay.overlay_plan import OverlayPlan, scheme_parts
from surecast.scenario.flows import flows_of
from surecast.scenario.system import Failures, Publisher, System
from surecast.simulation.experiment.clock import CLIENTS, NETWORK, Clock, SafetyError
from surecast.simulation.experiment.host import FailureTrace, run_streams
from surecast.simulation.reliability.protocol.accounts import Accounts, Published, Snapshot, Target
from surecast.simulation.reliability.protocol.given_run import GivenPublication, GivenRun, GivenTrace
from surecast.simulation.reliability.protocol.journal import Journal
from surecast.simulation.reliability.protocol.network import ACKNOWLEDGEMENT, Connection, Network
from surecast.simulation.reliability.protocol.options import Options
from surecast.simulation.reliability.protocol.result import Transition
from surecast.simulation.reliability.protocol.simulated_broker import SimulatedBroker

__all__ = ["World"]

_PUBLISHED, _DELIVERED, _BROKER, _LINK = 1, 2, 3, 4
_QOS = 1


class World:
    """Everything in one run. `targets` says who subscribes to what where.

    `client_refresh_s` is the time between two refreshes by clients where subscriptions are refreshed from end to end;
    0 is ideal. `given` is a run that has happened: its failures and publications take the place of drawn ones.
    """

    def __init__(
        self,
        system: System,
        plan: OverlayPlan,
        settings: NodeSettings,
        targets: tuple[Target, ...],
        options: Options,
        *,
        client_refresh_s: float,
        detection_s: float,
        seed: int,
        run: int,
        warm_up_s: float,
        replay: str,
        given: GivenRun | None = None,
    ):
        self.system = system
        self.plan = plan
        self.options = options
        self.replay = replay
        self.client_refresh_s = client_refresh_s
        self.detection_s = detection_s
        self.given = given
        self.streams = run_streams(seed, run)
        names = [broker.name for broker in system.overlay.brokers]
        connections = [Connection(i, link, names) for i, link in enumerate(system.overlay.links)]
        self.rest_s = sum(each.latency_s + options.jitter_s for each in connections) + detection_s
        self.clock = Clock(-10.0 - 20 * self.rest_s)
        self.journal = Journal()
        self.transitions: list[Transition] = []
        self._parts = {topic.name: scheme_parts(plan.trees[plan.tree_of(topic.name)].scheme) for topic in system.topics}
        self._ends_s = _ends_of(settings, self.rest_s, connections, options)
        self.accounts = Accounts(
            targets,
            _Routes(system),
            self._parts.__getitem__,
            self._is_stored,
            self._violate,
            counts_from_s=warm_up_s,
            keeps_fates=options.keeps_fates,
        )
        rng = self.streams.generator("network")
        self.network = Network(connections, self.clock, self.journal, options, rng, self._arrive, self.accounts.failed)
        self.brokers = {
            name: SimulatedBroker(i, name, plan, settings, self.clock, self.network, self._deliver, self._wrote)
            for i, name in enumerate(names)
        }
        self.sent: list[int] = []
        self._state: Snapshot | None = None
        self._refresh_due_s = -inf

    def run(self, duration_s: float, drain_s: float, warm_up_s: float) -> None:
        """Lets the world live: subscriptions spread while all is up, then failures begin in their stationary state."""
        for connection in self.network.connections:
            self._join(connection)
        self.clock.run(until_s=self.clock.now + 2 * self.rest_s)
        for broker in self.brokers.values():
            self._subscribe(broker)
        self.clock.run(until_s=0.0)
        end_s = duration_s + drain_s
        self._start_failures(end_s)
        self._start_clients(duration_s, end_s)
        self.clock.run(until_s=max(0.0, warm_up_s))
        before = self._messages()
        self.clock.run(until_s=duration_s)
        self.sent = [now - then for now, then in zip(self._messages(), before, strict=True)]
        self.clock.run(until_s=end_s)
        self.accounts.close_all(self.clock.now)

    def _messages(self) -> list[int]:
        sent = list(self.network.sent)
        for broker in self.brokers.values():
            for kind, number in broker.messages().items():
                sent[kind] += number
        return sent

    # Failures and repairs

    def _start_failures(self, end_s: float) -> None:
        overlay = self.system.overlay
        for broker in overlay.brokers:
            trace = self._trace(broker.failures, "broker", broker.name)
            if trace is not None:
                set_broker = partial(self._set_broker, self.brokers[broker.name])
                if trace.starts_up and not self._refreshes and self.given is None:
                    # Without refreshes the stationary state is that whoever can crash has crashed before.
                    set_broker(False)
                    set_broker(True)
                self._follow(trace, set_broker, end_s)
        for connection, spec in zip(self.network.connections, overlay.links, strict=True):
            trace = self._trace(spec.failures, "link", spec.name)
            if trace is not None:
                self._follow(trace, partial(self._set_link, connection), end_s)
        if self.options.heal_at_s <= end_s:
            self.clock.at(self.options.heal_at_s, NETWORK, self._heal)

    @property
    def _refreshes(self) -> bool:
        """Says whether some broker that has crashed is told again who wants what."""
        return any(tree.refresh == "link" or scheme_parts(tree.scheme).refreshes for tree in self.plan.trees)

    def _trace(self, failures: Failures | None, kind: str, name: str) -> FailureTrace | GivenTrace | None:
        """Returns when a component fails and comes back; None where it is always up."""
        if self.given is not None:
            return self.given.trace(name)
        return (
            None if failures is None else FailureTrace(failures, self.streams.generator("failures", f"{kind}/{name}"))
        )

    def _follow(self, trace: FailureTrace | GivenTrace, change: Callable[[bool], None], end_s: float) -> None:
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
        for connection in self.network.connections:
            if not connection.up:
                self._set_link(connection, True)
        for broker in self.brokers.values():
            if not broker.is_up:
                self._set_broker(broker, True)

    def _set_broker(self, broker: SimulatedBroker, up: bool) -> None:
        self._changed(_BROKER, broker.index, "broker", broker.name, up)
        connections = [self.network.between[broker.name, other] for other in broker.neighbours]
        if up:
            broker.start()
            self._subscribe(broker, is_restarted=True)
            broker.end_turn()
            for connection in connections:
                self._join(connection)
        else:
            broker.crash()
            for connection in connections:
                connection.believers.discard(broker.name)
                self._break(connection)

    def _set_link(self, connection: Connection, up: bool) -> None:
        self._changed(_LINK, connection.index, "link", self.system.overlay.links[connection.index].name, up)
        connection.up = up
        if up:
            self._join(connection)
        else:
            self._break(connection)

    def _changed(self, code: int, index: int, kind: str, name: str, up: bool) -> None:
        self._state = None
        self.journal.note(self.clock.now, code, index, up, 0)
        if self.options.keeps_fates:
            self.transitions.append(Transition(self.clock.now, kind, name, up))
        if up and self.client_refresh_s == 0 and self._refreshes:
            # Once detectors, flooding and detours have come to rest, and once for changes at the same time.
            due_s = self.clock.now + 2 * self.rest_s
            if due_s > self._refresh_due_s:
                self._refresh_due_s = due_s
                self.clock.at(due_s, CLIENTS, self._refresh_all)

    # Connections

    def _join(self, connection: Connection) -> None:
        """Makes a connection if all that it needs is up: an end that took the last one for up notices now."""
        ends = (self.brokers[connection.a], self.brokers[connection.b])
        if connection.is_made or not connection.up or not all(end.is_up for end in ends):
            return
        for end in ends:
            self._notice(connection, end)
        connection.change(is_made=True)
        hellos = [end.up.hello(connection.other(end.name)) for end in ends]
        for end, hello in zip(ends, hellos, strict=True):
            self.network.carry(connection, end.name, connection.other(end.name), hello)

    def _break(self, connection: Connection) -> None:
        """Breaks a connection; its ends notice it after some time, unless there is another one by then."""
        if not connection.is_made:
            return
        connection.change(is_made=False)
        for name in (connection.a, connection.b):
            broker = self.brokers[name]
            if broker.is_up:
                time_s = self._notice_s(connection, name)
                broker.later(time_s, NETWORK, self._notice_in, connection, broker, connection.epoch)

    def _notice_s(self, connection: Connection, name: str) -> float:
        """Returns when an end notices that the connection breaks now."""
        if self.given is None:
            return self.clock.now + self.detection_s
        return self.given.notice_s(name, connection.other(name), self.clock.now)

    def _notice_in(self, connection: Connection, broker: SimulatedBroker, epoch: int) -> None:
        if connection.epoch == epoch:
            self._notice(connection, broker)

    def _notice(self, connection: Connection, broker: SimulatedBroker) -> None:
        if broker.name in connection.believers:
            connection.believers.discard(broker.name)
            broker.up.link_down(connection.other(broker.name), self.clock.now)
            broker.end_turn()

    def _arrive(self, connection: Connection, epoch: int, sender: str, to: str, what: Any) -> None:
        if connection.epoch != epoch:
            if not isinstance(what, LinkHello):
                self.network.lose(connection, sender, to, what)
            return
        broker = self.brokers[to]
        node = broker.up
        try:
            if isinstance(what, LinkHello):
                connection.believers.add(to)
                node.link_up(sender, what, self.clock.now)
            else:
                if isinstance(what, NumberedFrame):
                    self._reached(what.content, to)
                node.receive(sender, what, self.clock.now)
        except PeerError as error:
            self._violate(f"{to} refuses what {sender} sent: {error}")
        is_awaited = isinstance(what, NumberedFrame) and events_of(what.content)
        broker.end_turn(sender if is_awaited else "")

    def _reached(self, frame: Any, broker: str) -> None:
        if isinstance(frame, Events):
            if not frame.attempt:
                self.network.sent[ACKNOWLEDGEMENT] += frame.batch.count
            self.accounts.reached(frame.batch.first, broker, self.state())
        elif isinstance(frame, Detoured) and not frame.path and isinstance(frame.frame, Events):
            self.accounts.reached(frame.frame.batch.first, broker, self.state())

    def state(self) -> Snapshot:
        """Returns the connected part that each broker is in now, and the components that are down."""
        if self._state is None:
            down: set[str | tuple[str, str]] = {name for name, broker in self.brokers.items() if not broker.is_up}
            down |= {pair for pair, connection in self.network.between.items() if not connection.up}
            self._state = Snapshot(self._islands(), frozenset(down))
        return self._state

    def _islands(self) -> dict[str, int]:
        islands = dict.fromkeys(self.brokers, -1)
        for number, start in enumerate(self.brokers):
            reached = [start] if self.brokers[start].is_up and islands[start] < 0 else []
            for name in reached:
                islands[name] = number
                for other in self.brokers[name].neighbours:
                    if self.brokers[other].is_up and islands[other] < 0 and self.network.between[name, other].up:
                        islands[other] = number
                        reached.append(other)
        return islands

    # Clients

    def _start_clients(self, duration_s: float, end_s: float) -> None:
        if self.given is not None:
            for number, publication in enumerate(self.given.publications):
                self.clock.at(publication.time_s, CLIENTS, self._publish_given, number, publication)
        for publisher in self.system.publishers if self.given is None else ():
            if publisher.rate_per_s > 0 and publisher.topics:
                period_s = 1.0 / publisher.rate_per_s
                phase_s = float(self.streams.generator("phase", publisher.name).random()) * period_s
                topics = cycle(publisher.topics)
                self.clock.at(phase_s, CLIENTS, self._publish, publisher, topics, 0, phase_s, duration_s)
        interval_s = self.client_refresh_s
        if self._refreshes and 0 < interval_s < inf:
            for i, target in enumerate(self.accounts.targets):
                name = f"{target.subscriber}/{target.topic}"
                phase_s = float(self.streams.generator("refresh", name).random()) * interval_s
                self.clock.at(phase_s, CLIENTS, self._refresh_often, i, 0, phase_s, end_s)

    def _publish(
        self, publisher: Publisher, topics: Iterator[str], number: int, phase_s: float, duration_s: float
    ) -> None:
        now = self.clock.now
        if now >= duration_s:
            return
        next_s = phase_s + (number + 1) / publisher.rate_per_s
        self.clock.at(next_s, CLIENTS, self._publish, publisher, topics, number + 1, phase_s, duration_s)
        self._publish_event(publisher, next(topics), number)

    def _publish_given(self, number: int, publication: GivenPublication) -> None:
        topic = self.system.topics[publication.topic].name
        self._publish_event(self.system.publishers[publication.publisher], topic, number)

    def _publish_event(self, publisher: Publisher, topic: str, number: int) -> None:
        now = self.clock.now
        event = Published(publisher.name, number, topic, now, now + publisher.deadline_s)
        broker = self.brokers[self.system.overlay.brokers[publisher.home].name]
        self.journal.note(now, _PUBLISHED, broker.index, broker.is_up, number)
        if not broker.is_up:
            self.accounts.refuse(event, "home broker down")
            return
        # What is not stored does not wait: it comes, soon or never, and counts as late behind its deadline.
        is_stored = self._parts[topic].custody
        expires_s = event.expires_s if is_stored else inf
        batch = broker.up.publish(topic, 1, now, expires_s=expires_s, qos=_QOS)
        if batch is None:
            self.accounts.refuse(event, "store full")
            return
        self.accounts.publish(batch.first, event, self.state())
        self.clock.at((expires_s if is_stored else now) + self._ends_s, CLIENTS, self.accounts.close, batch.first)
        broker.end_turn()

    def _refresh_often(self, i: int, count: int, phase_s: float, end_s: float) -> None:
        self._refresh(self.accounts.targets[i])
        next_s = phase_s + (count + 1) * self.client_refresh_s
        if next_s <= end_s:
            self.clock.at(next_s, CLIENTS, self._refresh_often, i, count + 1, phase_s, end_s)

    def _refresh_all(self) -> None:
        for target in self.accounts.targets:
            self._refresh(target)

    def _refresh(self, target: Target) -> None:
        broker = self.brokers[target.home]
        if broker.is_up:
            broker.up.refresh(JointFilter(target.topic, qos=_QOS))
            broker.end_turn()

    def _subscribe(self, broker: SimulatedBroker, *, is_restarted: bool = False) -> None:
        """Subscribes the clients of a broker that was just started, with sessions on its disk where events are stored,
        or a given run says so. Where subscriptions are refreshed from end to end other clients only come with their
        next refresh."""
        topics = dict.fromkeys(target.topic for target in self.accounts.targets if target.home == broker.name)
        if is_restarted:
            topics = {topic: None for topic in topics if self._is_subscribed_at_start(topic)}
        broker.subscribe([JointFilter(topic, qos=_QOS) for topic in topics])

    def _is_subscribed_at_start(self, topic: str) -> bool:
        keeps_sessions = self._parts[topic].custody or (self.given is not None and self.given.keeps_sessions)
        return keeps_sessions or self.plan.trees[self.plan.tree_of(topic)].refresh == "link"

    # Brokers

    def _deliver(self, broker: SimulatedBroker, batch: EventBatch) -> None:
        now = self.clock.now
        for place in range(batch.count):
            event_id = batch.first.plus(place) if place else batch.first
            self.journal.note(now, _DELIVERED, broker.index, 0, event_id.number)
            self.accounts.deliver(event_id, batch.topic, broker.name, broker.incarnation, now)

    def _wrote(self, broker: SimulatedBroker, key: tuple[Any, ...]) -> None:
        if key[0] in ("held", "handled"):
            self.accounts.written(EventId(*key[1:]), broker.name, self.clock.now)

    def _is_stored(self, broker: str, event_id: EventId) -> bool:
        return ("held", *event_id) in self.brokers[broker].disk

    def _violate(self, what: str) -> None:
        raise SafetyError(what, self.clock.now, self.replay)


def _ends_of(settings: NodeSettings, rest_s: float, connections: list[Connection], options: Options) -> float:
    """Returns how long an event may be on its way, besides the time that it waits on disks."""
    repeats_s = 60.0 if any(connection.loss for connection in connections) else 0.0
    return 1.0 + 2 * rest_s + repeats_s + settings.resume_s * (len(connections) + 1)


class _Routes:
    """The static route of a topic between two brokers, by name."""

    def __init__(self, system: System):
        names = [broker.name for broker in system.overlay.brokers]
        flows = flows_of(system)
        self._routes: dict[tuple[str, str, str], tuple[str, ...]] = {}
        for interest, publisher, topic, index in zip(
            flows.interest, flows.publisher, flows.topic, flows.route, strict=True
        ):
            home = names[flows.interests[interest][0]]
            key = (system.topics[topic].name, names[system.publishers[publisher].home], home)
            self._routes[key] = tuple(names[i] for i in flows.routes[index].brokers)

    def __call__(self, topic: str, start: str, end: str) -> tuple[str, ...]:
        return self._routes[topic, start, end]
