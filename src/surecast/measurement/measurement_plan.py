"""The plan of a run: the scenario's times and rates, scaled, and its mechanisms as limits of a broker.

Everything random is drawn before the run begins, from the streams that the simulation of dropping draws its first run
from: the same publications and the same connected periods, whatever becomes of them. What draws is imported by who
makes a plan: client processes, which are given theirs, start without the compiled simulations.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from surecast.documents.units import format_duration
from surecast.errors import AssumptionError, ConfigurationError
from surecast.measurement.asked_targets import AskedTarget, asked_targets, prior_limits
from surecast.measurement.replayed_traces import TraceReplay, changes_of, replayed
from surecast.protocol.mqtt import NO_PROPERTIES, Properties
from surecast.protocol.overlay.overlay_plan import OverlayPlan, scheme_parts
from surecast.protocol.overlay.plan_of_system import plan_of_system
from surecast.scenario.group import Group, group_of, groups_of, is_replicated
from surecast.scenario.mechanism import Mechanism
from surecast.scenario.streams import Streams
from surecast.scenario.system import Publisher, Subscriber, System
from surecast.scenario.traces import AvailabilityTrace

if TYPE_CHECKING:
    from surecast.simulation.dropping.draws import Switches

__all__ = ["EVENT_RATE_MAX", "PlannedEvents", "RunPlan", "make_plan", "topic_of"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

EVENT_RATE_MAX: Final = 10_000.0
"""Deliveries and publications per second of real time that the clients of one process keep up with: a third of a
processor, at some 35 us for each."""
CLIENT_PROCESSES_MAX: Final = 16
EVENTS_MAX: Final = 2_000_000
CLIENTS_MAX: Final = 2_000
LINKS_MAX: Final = 200
QUEUE_MAX: Final = 1_000_000
GROUP_PATIENCE_S: Final = 5.0
REFRESH_LEAST_S: Final = 0.1
"""Brokers of a run send their subscriptions no more often than this."""
SUSPECT_LEAST_S: Final = 0.05
"""Brokers of a run suspect a silent neighbour no sooner: a process that waits for a processor is silent, too."""
KEPT_SCHEMES: Final = ("buffering", "bypass", "bypass-buffering")


@dataclass(frozen=True)
class PlannedEvents:
    """All publications of a run, in order: when (scenario time), by whom, on which topic, and how long each lives."""

    time_s: Floats
    publisher: Ints
    topic: Ints
    lifetime_s: Floats

    def __len__(self) -> int:
        return len(self.time_s)


@dataclass(frozen=True)
class RunPlan:
    """A run, decided: times are the scenario's, `scale` of them pass in a second of real time.

    `patience_s` is real time. `mechanisms` are those of the subscribers that come and go, by name. `traces` are the
    times at which each process fails and is repaired, in turn, beginning up; processes are those of the first broker,
    then of the second, and so on. `leader_kills_s` are further times at which whoever leads is killed, and started
    again at once. Of an overlay there are its plan, and the times at which each link is cut and opened again, in turn;
    with `freezes` its brokers are frozen when they fail, not killed. The clients are spread over `client_processes`
    processes; a single one is that of the run itself. `components` are those of an availability trace as which brokers
    fail. `asked` are the targets that subscribers ask their broker for, by name: it chooses their mechanism itself.
    """

    system: System
    group: Group
    scale: float
    duration_s: float
    warm_up_s: float
    seed: int
    patience_s: float
    events: PlannedEvents
    switches: tuple[Switches, ...]
    mechanisms: Mapping[str, Mechanism]
    traces: tuple[Floats, ...]
    leader_kills_s: tuple[float, ...] = ()
    overlay: OverlayPlan | None = None
    link_traces: tuple[Floats, ...] = ()
    freezes: bool = False
    client_processes: int = 1
    components: Mapping[str, str] = field(default_factory=dict)
    asked: Mapping[str, AskedTarget] = field(default_factory=dict)

    @property
    def processes_of(self) -> list[range]:
        """The numbers of the processes of each broker, from 1."""
        size = self.group.replicas
        return [range(1 + home * size, 1 + (home + 1) * size) for home in range(len(self.system.overlay.brokers))]

    @property
    def end_s(self) -> float:
        """The end of the run, in the scenario's time."""
        return self.warm_up_s + self.duration_s

    @property
    def real_s(self) -> float:
        """The duration of the run in real time."""
        return self.end_s / self.scale

    @property
    def scheme(self) -> str:
        """The scheme of fault tolerance that a broker with durable sessions is comparable with."""
        stated = self.system.delivery.fault_tolerance.scheme
        if self.overlay is not None:
            learns = all(tree.refresh == "link" for tree in self.overlay.trees)
            return "periodic-subscription" if stated == "none" and learns else stated
        return stated if stated in KEPT_SCHEMES else "buffering"

    def variant(self, subscriber: Subscriber) -> str:
        """Returns the variant under which the figures of a subscriber are reported, as predictions name it."""
        if subscriber.name not in self.mechanisms:
            return self.scheme
        policy = self.system.delivery.dropping.policy
        alone = all(s.name in self.mechanisms for s in self.system.subscribers)
        return "no dropping" if policy == "none" and not alone else policy

    @property
    def expiring_too(self) -> tuple[int, ...]:
        """Places of the subscribers whose events expire only because others' do: an MQTT message has one expiry."""
        if not any(mechanism.expires for mechanism in self.mechanisms.values()):
            return ()
        return tuple(i for i, s in enumerate(self.system.subscribers) if s.name not in self.mechanisms)

    @property
    def keeps_all(self) -> bool:
        """Returns whether every event that was acknowledged arrives in the end, unless the home broker of a
        subscriber says otherwise: nothing expires or is lost on its way."""
        return scheme_parts(self.scheme).custody and not np.isfinite(self.events.lifetime_s).any()

    @property
    def broker_variant(self) -> str:
        """The variant under which the figures of the broker as a group are reported."""
        if self.overlay is None and is_replicated(self.system):
            return self.group.label
        variants = [self.variant(subscriber) for subscriber in self.system.subscribers]
        return self.scheme if self.scheme in variants else variants[0]

    def limits(self) -> dict[str, Any]:
        """Returns the limits and the rules for clients of a broker's or a group's file."""
        rules = []
        for subscriber in self.system.subscribers:
            mechanism = self.mechanisms.get(subscriber.name, Mechanism())
            client_limits: dict[str, Any] = {}
            if mechanism.buffer_size is not None:
                client_limits |= {"queue_messages": mechanism.buffer_size, "overflow": "drop-new"}
            if mechanism.join_probability < 1.0:
                client_limits["join_probability"] = mechanism.join_probability
            if mechanism.join_table is not None:
                client_limits["join_threshold"] = sum(mechanism.join_table[0])
            if client_limits:
                rules.append({"client": client_of("subscriber", subscriber.name), "limits": client_limits})
        limits = {"queue_messages": QUEUE_MAX, "queue_size": "1GB", "overflow": "drop-new"}
        return {"limits": limits | prior_limits(self.asked.values(), self.scale), "clients": rules}

    def asks_of(self, subscriber: Subscriber) -> Properties:
        """Returns the properties with which a subscriber asks for its response target, if it does."""
        asked = self.asked.get(subscriber.name)
        return NO_PROPERTIES if asked is None else asked.properties(self.scale)

    def group_options(self) -> dict[str, Any]:
        """Returns the options of a group's file beside its replicas."""
        return {
            "name": self.system.overlay.brokers[0].name,
            **self.common_options(),
            "sync": "majority" if self.system.delivery.replication.durable else "none",
            **self.group.file_fields,
        }

    def overlay_options(self) -> dict[str, Any]:
        """Returns the options of an overlay's file beside its plan.

        Without custody, events for a neighbour that is down are lost, as the models have it: nothing is resumed. They
        go around a neighbour when it is suspected and not before, so that messages are as many as the models say.
        Subscriptions are refreshed as often as the scenario says, scaled, but not more often than a broker can, and
        neighbours suspected after its `detection`, scaled, if it has one.
        """
        from surecast.broker.overlay.overlay_writing import detector_times

        tolerance = self.system.delivery.fault_tolerance
        refresh_s = max(REFRESH_LEAST_S, tolerance.refresh_interval / self.scale)
        timeout_s = max(3 * refresh_s, (tolerance.subscription_timeout or 0.0) / self.scale)
        times = {"refresh": format_duration(refresh_s), "timeout": format_duration(timeout_s)}
        is_synced = self.group.replicas > 1 and self.system.delivery.replication.durable
        own = {
            "durability": "full" if is_synced else "os",
            "gates": True,
            "resume": "0s",
            "ack_wait": "0s",
            "log": {"level": "info", "format": "json"},
        }
        if tolerance.detection > 0:
            times |= detector_times(max(SUSPECT_LEAST_S, tolerance.detection / self.scale))
        return {**self.common_options(), **times, **own}

    def common_options(self) -> dict[str, Any]:
        """Returns the options that the files of a broker and of a group share."""
        return {
            **self.limits(),
            "event_log": {"folder": "events", "alive_interval": "1s"},
            "log": {"level": "warning"},
            "system_interval": "0s",
            "drain": "500ms",
        }


def client_of(kind: str, name: str) -> str:
    """Returns the client identifier of a publisher or subscriber; a star would be a pattern in the broker's rules."""
    return f"{kind} {name.replace('*', '_')}"


def topic_of(name: str) -> str:
    """Returns the MQTT topic of a topic; characters with a special meaning in MQTT are escaped.

    >>> topic_of("plant/7"), topic_of("a+b"), topic_of("$x")
    ('plant/7', 'a%2Bb', '%24x')
    """
    escaped = name.replace("%", "%25").replace("+", "%2B").replace("#", "%23")
    return "%24" + escaped[1:] if escaped.startswith("$") else escaped


def make_plan(
    system: System,
    *,
    scale: float = 1.0,
    duration_s: float | None = None,
    warm_up_s: float | None = None,
    seed: int | None = None,
    patience_s: float | None = None,
    leader_kills_s: Sequence[float] = (),
    freezes: bool = False,
    client_processes: int | None = None,
    replay: TraceReplay | None = None,
    asks_targets: bool = False,
) -> RunPlan:
    """Decides a run, or refuses it with the reason: a field that a real broker has nothing for, or too much of it.

    >>> from surecast.scenario import build, parse_text
    >>> system = build(parse_text('''
    ... {surecast: 1, name: two, overlay: {brokers: [{name: a}, {name: b}], links: [[a, b]]}, delivery: {coding: {}}}
    ... '''))
    >>> make_plan(system)
    Traceback (most recent call last):
    ...
    surecast.errors.AssumptionError: delivery.coding: packets travel coded between brokers, and no run does that yet
    """
    from surecast.simulation.dropping.draws import draw_switches
    from surecast.simulation.reliability.compiled.traces import draw_trace

    experiment = system.experiment
    whole = experiment.duration if duration_s is None else duration_s
    early = (
        (experiment.warm_up if duration_s is None else min(experiment.warm_up, whole))
        if warm_up_s is None
        else warm_up_s
    )
    for name, value, least in (("time scale", scale, 0.0), ("duration", whole, 0.0)):
        if not least < value < math.inf:
            raise ConfigurationError(f"the {name} is {value:g}; it must be above 0 and finite")
    if not 0 <= early < math.inf:
        raise ConfigurationError(f"the warm-up is {early:g} s; it must be 0 or more, and finite")
    if patience_s is not None and not 0 <= patience_s < math.inf:
        raise ConfigurationError(f"the patience is {patience_s:g} s; it must be 0 or more, and finite")
    for kill_s in leader_kills_s:
        if not 0 <= kill_s < early + whole:
            raise ConfigurationError(f"the leader is to be killed at {kill_s:g} s; the run has {early + whole:g} s")
    _check(system)
    group = group_of(system, 0)
    own = system.seed if seed is None else seed
    streams, end_s = Streams(own), early + whole
    mechanisms = _mechanisms(system)
    asked = asked_targets(system, mechanisms) if asks_targets else {}
    mechanisms = dict.fromkeys(mechanisms, Mechanism()) if asked else mechanisms
    processes = _client_processes(system, scale, end_s, client_processes)
    windows: Mapping[str, AvailabilityTrace] = {}
    if replay is not None:
        _check_replay(system, group)
        system, windows = replayed(system, replay, end_s)
    overlay = _overlay_plan(system) if len(system.overlay.brokers) > 1 else None
    if freezes and overlay is None:
        raise ConfigurationError("`freeze`: only brokers of an overlay are frozen; this run has one broker")
    if leader_kills_s and overlay is not None:
        raise ConfigurationError(
            "`kill_leader`: an overlay has no leader, or one for each group; give availability.brokers, or leave it out"
        )
    return RunPlan(
        system,
        group,
        float(scale),
        float(whole),
        float(early),
        own,
        (GROUP_PATIENCE_S if group.replicas > 1 else 0.0) if patience_s is None else patience_s,
        _events(system, mechanisms, streams, end_s),
        tuple(draw_switches(s.connectivity, streams, 0, s.name, end_s) for s in system.subscribers),
        mechanisms,
        tuple(changes_of(windows[broker.name]) for broker in system.overlay.brokers)
        if windows
        else _traces(group, streams, system.overlay.brokers[0].name, end_s)
        if overlay is None
        else _of(system, group, streams, end_s),
        tuple(leader_kills_s),
        overlay,
        ()
        if overlay is None
        else tuple(
            _changes(draw_trace(link.failures, streams, "run 0/link", link.name, end_s))
            for link in system.overlay.links
        ),
        freezes,
        processes,
        {broker: trace.name for broker, trace in windows.items()},
        asked,
    )


def _check(system: System) -> None:
    """Refuses what a run cannot do, naming the field."""
    delivery, name = system.delivery, system.name
    if delivery.coding is not None:
        raise AssumptionError("delivery.coding: packets travel coded between brokers, and no run does that yet")
    if not all(groups_of(system)) and any(groups_of(system)):
        raise AssumptionError(
            "delivery.replication.brokers: a run has all brokers as groups, or none; leave the field out, or use "
            "surecast overlay up --replicas BROKER=COUNT"
        )
    if system.class_workload is not None:
        _check_classes(system)
        return
    if not system.publishers or not system.subscribers:
        missing = "publishers" if not system.publishers else "subscribers"
        raise AssumptionError(f"workload.{missing}: {name} has none; a run needs at least one")
    if system.client_failures is not None:
        raise AssumptionError(
            "availability.clients: links of clients that fail are not run; give workload.subscribers a connectivity"
        )
    if len(system.publishers) + len(system.subscribers) > CLIENTS_MAX:
        raise AssumptionError(
            f"workload: {len(system.publishers) + len(system.subscribers)} publishers and subscribers; a run has "
            f"{CLIENTS_MAX} at most: lower the counts"
        )


def _check_replay(system: System, group: Group) -> None:
    """Refuses a trace where no single process fails."""
    if group.replicas > 1:
        raise ConfigurationError(
            f"trace: delivery.replication.replicas: {group.replicas}: a trace says when machines failed, and is "
            "replayed by brokers of one process; write 1"
        )
    if system.class_workload is not None:
        raise ConfigurationError("trace: brokers do not fail in a run with filter classes; leave the trace out")


def _overlay_plan(system: System) -> OverlayPlan:
    """Returns the plan of an overlay; what is routed by an algorithm is compared at link-ups, and summarised."""
    plan = plan_of_system(system)
    if system.delivery.routing is None:
        return plan
    return replace(plan, trees=tuple(replace(tree, refresh="link") for tree in plan.trees))


def _check_classes(system: System) -> None:
    """Refuses what a run with filter classes cannot do, naming the field."""
    workload = system.class_workload
    assert workload is not None
    if system.publishers or system.subscribers:
        raise AssumptionError(
            "workload.classes: a run has either filter classes, or publishers and subscribers; leave out one of them"
        )
    replicas = system.delivery.replication.replicas
    if replicas > 1 and len(system.overlay.brokers) > 1:
        raise AssumptionError(
            f"delivery.replication.replicas: {replicas}: with filter classes, a broker of an overlay is one process, "
            "not a group; write 1"
        )
    if workload.periods:
        raise AssumptionError("workload.periods: a run has the same rates all the time; leave the periods out")
    if any(broker.failures is not None for broker in system.overlay.brokers):
        raise AssumptionError(
            "availability.brokers: brokers do not fail in a run with filter classes; leave the entry out"
        )
    if len(workload.clients) > CLIENTS_MAX:
        raise AssumptionError(f"workload.clients: {len(workload.clients)}; a run has {CLIENTS_MAX} at most")


def _client_processes(system: System, scale: float, end_s: float, wanted: int | None) -> int:
    """Returns how many processes the clients need, or the wanted number; refuses more events than they send and
    take."""
    rate = sum(p.rate_per_s for p in system.publishers)
    deliveries = sum(_rate_for(system, s) for s in system.subscribers)
    most = max(1, os.cpu_count() or 1)
    if system.class_workload is not None:
        # An event goes to each client once at most; how many want it depends on the filters.
        rate = float(system.class_workload.publication_rate_per_s.sum())
        deliveries = 2.0 * float(system.class_workload.subscription_rate_per_s.sum())
        most = 1
    if wanted is not None and not 1 <= wanted <= (CLIENT_PROCESSES_MAX if system.class_workload is None else 1):
        reason = (
            f"it must be 1 to {CLIENT_PROCESSES_MAX}"
            if system.class_workload is None
            else "clients of filter classes are in one process"
        )
        raise ConfigurationError(f"`client_processes`: {wanted}: {reason}")
    needed = max(1, math.ceil((rate + deliveries) * scale / EVENT_RATE_MAX))
    most = most if wanted is None else wanted
    if needed > most:
        fits = most * EVENT_RATE_MAX / (rate + deliveries)
        raise AssumptionError(
            f"workload: {rate:.6g} events/s, {deliveries:.6g} deliveries/s and a time scale of {scale:g} make "
            f"{(rate + deliveries) * scale:.6g} messages per second; the clients of a run keep up with "
            f"{EVENT_RATE_MAX:g} in each process, and there are {most}: "
            + (f"use a time scale of {math.floor(100 * fits) / 100:.12g} or less" if fits >= 1 else "lower the rates")
        )
    if rate * end_s > EVENTS_MAX:
        raise AssumptionError(
            f"experiment.duration: {rate * end_s:.3g} events; a run has {EVENTS_MAX:,} at most: make it shorter"
        )
    return needed if wanted is None else wanted


def _rate_for(system: System, subscriber: Subscriber) -> float:
    wanted = set(subscriber.topics)
    return sum(
        p.rate_per_s * len(wanted.intersection(p.topics)) / len(p.topics) for p in system.publishers_of(subscriber)
    )


def _mechanisms(system: System) -> dict[str, Mechanism]:
    """Returns the mechanism of each subscriber that disconnects at times; refuses one that a broker does not have."""
    coming = tuple(s for s in system.subscribers if s.connectivity is not None and system.publishers_of(s))
    if not coming:
        return {}
    dropping = system.delivery.dropping
    # The formulas know how a queue that is stable behaves; a run takes any, so that `none` needs no answer of theirs.
    if dropping.policy == "none":
        return {s.name: Mechanism() for s in coming}
    from surecast.prediction import find_mechanisms

    mechanisms = dict(find_mechanisms(replace(system, subscribers=coming)))
    for name, mechanism in mechanisms.items():
        _check_table(name, mechanism)
    lifetimes = {m.lifetime_s for m in mechanisms.values()}
    if len(lifetimes) > 1:
        raise AssumptionError(
            "delivery.dropping.lifetime: auto gives the subscribers different lifetimes, and the expiry of an MQTT "
            f"message is the same for all: write one, such as {min(lifetimes):.4g}s"
        )
    return mechanisms


def _check_table(name: str, mechanism: Mechanism) -> None:
    """Refuses a table of join probabilities that is no threshold, which is what a broker has."""
    if mechanism.join_table is None:
        return
    away, connected = mechanism.join_table
    length = sum(away)
    rows = [min(1.0, max(0.0, length - level)) for level in range(len(away))]
    if away[-1] > 0.0 or any(abs(x - y) > 1e-9 for x, y in zip(rows, away, strict=True)) or min(connected) < 1.0:
        raise AssumptionError(
            f"delivery.dropping.policy: the join table of {name} is no threshold with all events joining while "
            "connected, and a broker has nothing else; write probabilistic, expiry, finite-buffer or none"
        )


def _events(system: System, mechanisms: Mapping[str, Mechanism], streams: Streams, end_s: float) -> PlannedEvents:
    """Returns Poisson events of all publishers; each goes to one of its publisher's topics at random."""
    from surecast.simulation.dropping.draws import draw_events

    index = {topic.name: i for i, topic in enumerate(system.topics)}
    expiring = next((m for m in mechanisms.values() if m.expires), None)
    times, publishers, topics, lifetimes = [], [], [], []
    for i, who in enumerate(system.publishers):
        points = draw_events(streams.generator("run 0/publications", who.name), who.rate_per_s * end_s)
        size = len(points)
        own = np.array([index[topic] for topic in who.topics], dtype=np.int64)
        drawn = streams.generator("run 0/topic", who.name).random(size) if len(own) > 1 else np.zeros(size)
        times.append(points / who.rate_per_s)
        publishers.append(np.full(size, i, dtype=np.int64))
        topics.append(own[(drawn * len(own)).astype(np.intp)])
        lifetimes.append(_lifetimes(who, expiring, bool(mechanisms), streams, size))
    if not times:
        none = np.zeros(0, dtype=np.int64)
        return PlannedEvents(np.zeros(0), none, none, np.zeros(0))
    joined = np.concatenate(times)
    order = np.argsort(joined, kind="stable")
    return PlannedEvents(
        joined[order],
        np.concatenate(publishers)[order],
        np.concatenate(topics)[order],
        np.concatenate(lifetimes)[order],
    )


def _lifetimes(who: Publisher, expiring: Mechanism | None, dropping: bool, streams: Streams, size: int) -> Floats:
    """Returns the time after which the broker drops an event as expired: by its policy; else at its deadline, unless a
    subscriber that disconnects at times would miss it, since late events count as delivered for those."""
    if expiring is None:
        return np.full(size, math.inf if dropping else who.deadline_s)
    if expiring.lifetime_distribution == "deterministic":
        return np.full(size, expiring.lifetime_s)
    return expiring.lifetime_s * streams.generator("run 0/lifetime", who.name).standard_exponential(size)


def _traces(group: Group, streams: Streams, name: str, end_s: float) -> tuple[Floats, ...]:
    """Returns the times at which each process fails and is up again, in turn. A process down at the start fails at time
    0."""
    from surecast.simulation.reliability.compiled.traces import draw_trace

    traces = []
    for replica in range(1, group.replicas + 1):
        starts, ends = draw_trace(group.failures, streams, "run 0/process", f"{name}/{replica}", end_s)
        traces.append(_changes((starts, ends)))
    return _one_at_a_time(traces) if group.repair == "single" else tuple(traces)


def _of(system: System, group: Group, streams: Streams, end_s: float) -> tuple[Floats, ...]:
    """Returns the times at which each broker of an overlay fails and is up again, or each replica of the groups that
    they are: those of a simulation's first run."""
    from surecast.simulation.reliability.compiled.traces import draw_trace
    from surecast.simulation.replication.outages import draw_replica_traces

    brokers = system.overlay.brokers
    if group.replicas > 1:
        return tuple(
            _changes(trace)
            for home, broker in enumerate(brokers)
            for trace in draw_replica_traces(
                group_of(system, home), horizon_s=end_s, seed=streams.seed, name=f"run 0/{broker.name}"
            )
        )
    return tuple(_changes(draw_trace(each.failures, streams, "run 0/broker", each.name, end_s)) for each in brokers)


def _changes(up: tuple[Floats, Floats]) -> Floats:
    """Returns the ends and the starts of up intervals, in turn. What is down at the start fails at time 0."""
    edges = np.stack(up, axis=1).ravel()
    edges = edges[1:] if len(edges) and edges[0] == 0.0 else np.concatenate([[0.0], edges])
    return np.asarray(edges[np.isfinite(edges)], dtype=np.float64)


def _one_at_a_time(traces: Sequence[Floats]) -> tuple[Floats, ...]:
    """Returns the same up and down times, with repairs one after the other.

    >>> [t.tolist() for t in _one_at_a_time([np.array([1.0, 5.0, 20.0]), np.array([2.0, 4.0, 6.0])])]
    [[1.0, 5.0, 20.0], [2.0, 7.0, 9.0]]
    """
    lengths = [np.diff(trace, prepend=0.0).tolist() for trace in traces]
    failing = [(each[0], i, 0) for i, each in enumerate(lengths) if each]
    moved: list[list[float]] = [[] for _ in traces]
    free_at = 0.0
    heapify(failing)
    while failing:
        failed_at, i, step = heappop(failing)
        moved[i].append(failed_at)
        if step + 1 < len(lengths[i]):
            free_at = max(free_at, failed_at) + lengths[i][step + 1]
            moved[i].append(free_at)
            if step + 2 < len(lengths[i]):
                heappush(failing, (free_at + lengths[i][step + 2], i, step + 2))
    return tuple(np.array(each) for each in moved)
