"""The compiled simulation against a deliberately dumb one: event by event, scanning the traces, no sharing at all."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import networkx as nx
import numpy as np
import pytest

from surecast.protocol.link import LinkHello, NumberedFrame
from surecast.protocol.overlay.node_links import NodeSettings
from surecast.protocol.overlay.overlay_frames import LinkStates
from surecast.protocol.overlay.overlay_node import OverlayNode
from surecast.protocol.overlay.plan_of_system import plan_of_system
from surecast.report import QoSReport, check_accounts
from surecast.scenario import Streams, System, build, parse_text
from surecast.simulation.reliability.compiled import KINDS, SCHEMES, simulate_reliability
from surecast.simulation.reliability.compiled.traces import draw_trace

Trace = list[tuple[float, float]]
REFRESH, TIMEOUT = 7.0, 16.0


@dataclass
class Reference:
    """One run of a system through given traces. `outcomes` counts (scheme, subscriber, outcome)."""

    system: System
    traces: dict[str, Trace]
    duration: float
    warm_up: float
    refresh: float
    retransmission: float
    seed: int
    outcomes: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    delays: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    messages: Counter[tuple[str, str]] = field(default_factory=Counter)
    published: int = 0

    def __post_init__(self) -> None:
        self.by_name = self.system.client_failures is not None
        self.names = [broker.name for broker in self.system.overlay.brokers]
        self.end = self.warm_up + self.duration
        finite = [p.deadline_s for p in self.system.publishers if p.deadline_s < math.inf]
        self.horizon = self.end + max(finite, default=0.0)
        clients = [("publisher", p.name) for p in self.system.publishers]
        clients += [("subscriber", s.name) for s in self.system.subscribers]
        for kind, name in clients:
            starts, ends = draw_trace(
                self.system.client_failures, Streams(self.seed), f"run 0/{kind}", name, self.horizon
            )
            self.traces[f"{kind} {name}"] = list(zip(starts.tolist(), ends.tolist(), strict=True))

    def up(self, name: str, time: float) -> bool:
        return any(start <= time < end for start, end in self.traces[name])

    def all_up(self, names: list[str], time: float) -> bool:
        return all(self.up(name, time) for name in names)

    def graph(self, time: float) -> nx.Graph[str]:
        graph: nx.Graph[str] = nx.Graph()
        graph.add_nodes_from(name for name in self.names if self.up(name, time))
        for link in self.system.overlay.links:
            ends = [self.names[link.a], self.names[link.b]]
            if self.all_up([link.name, *ends], time):
                graph.add_edge(*ends)
        return graph

    def route(self, topic: str, start: int, end: int) -> list[str]:
        """Broker, link, broker, ... along the tree of a topic."""
        tree = self.system.overlay.subgraph(self.system.overlay.trees[topic])
        brokers = nx.shortest_path(tree, start, end)
        parts = [self.names[start]]
        for a, b in itertools.pairwise(brokers):
            parts += [self.system.overlay.links[tree.edges[a, b]["link"]].name, self.names[b]]
        return parts

    def next_time(self, needed: list[str], time: float, limit: float) -> float:
        """The first attempt at which everything needed is up; inf where there is none by the limit."""
        if self.retransmission == 0:
            starts = [start for name in needed for start, _ in self.traces[name]]
            attempts = sorted({time, *(start for start in starts if start > time)})
        else:
            steps = int((limit - time) / self.retransmission) + 2
            attempts = [time + k * self.retransmission for k in range(steps)]
        return next((t for t in attempts if t <= limit and self.all_up(needed, t)), math.inf)

    def refreshes(self, topic: str, home: str) -> Iterator[float]:
        phase = self.refresh * float(Streams(self.seed).generator("run 0/refresh", f"{topic}\0{home}").random())
        k = 0
        while phase + k * self.refresh <= self.horizon:
            yield phase + k * self.refresh
            k += 1

    def has_entry(self, topic: str, route: list[str], position: int, time: float) -> bool:
        broker, way = route[position], route[position:]
        ticks = list(self.refreshes(topic, route[-1]))
        through = [t for t in ticks if t <= time and self.all_up(way, t)]
        stays_up = [(start, end) for start, end in self.traces[broker] if start <= time < end]
        if not stays_up:
            return False
        since = stays_up[0][0]
        kept = any(tick >= since and time < tick + TIMEOUT for tick in through)
        return kept or (since <= 0 and time < ticks[0] - self.refresh + TIMEOUT)

    def simulate(self) -> None:
        for publisher in self.system.publishers:
            period = 1.0 / publisher.rate_per_s
            phase = period * float(Streams(self.seed).generator("run 0/phase", publisher.name).random())
            for k in itertools.count():
                time = phase + k * period
                if time >= self.end:
                    break
                if time >= self.warm_up:
                    self.published += 1
                    topic = publisher.topics[k % len(publisher.topics)]
                    self.event(publisher.name, topic, publisher.home, time, publisher.deadline_s)
        self.count_refreshes()
        self.count_floods()

    def event(self, publisher: str, topic: str, home: int, time: float, lifetime: float) -> None:
        interested = [s for s in self.system.subscribers if topic in s.topics]
        used: dict[str, set[tuple[str, ...]]] = {scheme: set() for scheme in SCHEMES}
        detours: dict[str, set[tuple[str, str, int]]] = {scheme: set() for scheme in SCHEMES}
        twice: set[tuple[str, tuple[str, ...], str, bool]] = set()
        for subscriber in interested:
            route = self.route(topic, home, subscriber.home)
            for scheme in SCHEMES:
                if not self.up(f"publisher {publisher}", time):
                    outcome, when = "client link down", math.inf
                elif not self.up(route[0], time):
                    outcome, when = "home broker down", math.inf
                else:
                    walk = getattr(self, "_" + scheme.replace("-", "_"))
                    outcome, when, prefix, detour = walk(topic, route, time, lifetime)
                    used[scheme] |= {tuple(route[: i + 1]) for i in range(2, len(prefix), 2)}
                    if detour:  # one for all who are at the same home, from the same broker
                        detours[scheme].add((route[-1], *detour))
                    if outcome == "on time" and not self.up(f"subscriber {subscriber.name}", when):
                        outcome = "client link down"
                    if detour and scheme == "bypass-buffering":
                        again = self.arrivals(route, time, lifetime)[-1] < math.inf
                        twice.add((route[-1], subscriber.topics, subscriber.name if self.by_name else "", again))
                self.outcomes[scheme, subscriber.name, outcome] += 1
                if outcome == "on time":
                    self.delays[scheme, subscriber.name] += when - time
        self.messages["bypass-buffering", "duplicate"] += sum(again for *_, again in twice)
        for scheme in SCHEMES:
            self.messages[scheme, "detour"] += sum(hops for _, _, hops in detours[scheme])
            self.messages[scheme, "notification"] += len(used[scheme]) if scheme != "bypass-buffering" else 0
            if "buffering" in scheme:
                for prefix in used[scheme]:
                    self.count_hop(scheme, list(prefix), time, lifetime)

    def arrivals(self, route: list[str], time: float, lifetime: float) -> list[float]:
        """When a buffered event gets to each broker of a route."""
        limit = min(time + lifetime, self.horizon)
        times = [time]
        for i in range(0, len(route) - 2, 2):
            times.append(self.next_time(route[i : i + 3], times[-1], limit) if times[-1] <= limit else math.inf)
        return times

    def count_hop(self, scheme: str, prefix: list[str], time: float, lifetime: float) -> None:
        limit = min(time + lifetime, self.horizon)
        held, got = self.arrivals(prefix, time, lifetime)[-2:]
        if got <= limit:
            self.messages[scheme, "acknowledgement"] += 1
        if scheme == "bypass-buffering":  # who knows that the next broker is down sends it nothing until it is back
            self.messages[scheme, "notification"] += got == held
            self.messages[scheme, "retransmission"] += held < got <= limit
        elif got > held and self.retransmission == 0:
            self.messages[scheme, "retransmission"] += got <= limit
        elif got > held:
            k = 1
            while held + k * self.retransmission <= min(got, limit):
                self.messages[scheme, "retransmission"] += self.up(prefix[-3], held + k * self.retransmission)
                k += 1

    Walked = tuple[str, float, list[str], tuple[str, int] | None]
    """Outcome, when, the route as far as it is sent, and the detour: where it starts, and its hops."""

    def _none(self, topic: str, route: list[str], time: float, lifetime: float) -> Walked:
        return "no routing entry", math.inf, [], None

    def _periodic_subscription(self, topic: str, route: list[str], time: float, lifetime: float) -> Walked:
        sent = [route[0]]
        missing = False
        for i in range(0, len(route), 2):
            if not self.all_up(route[: i + 1], time):
                break
            if self.refresh > 0 and not self.has_entry(topic, route, i, time):
                missing = True
                break
            sent = route[: i + 3]
        if not self.all_up(route, time):
            return "path down", math.inf, sent, None
        return ("no routing entry", math.inf, sent, None) if missing else ("on time", time, sent, None)

    def _buffering(self, topic: str, route: list[str], time: float, lifetime: float) -> Walked:
        times = self.arrivals(route, time, lifetime)
        sent = route[: 2 * sum(t < math.inf for t in times) + 1]
        if times[-1] < math.inf:
            return "on time", times[-1], sent, None
        return ("queued" if time + lifetime > self.horizon else "expired"), math.inf, sent, None

    def reached(self, broker: str, home: str, time: float) -> int | None:
        """Hops of a shortest way from a broker to a home, None where there is none."""
        graph = self.graph(time)
        if home in graph and nx.has_path(graph, broker, home):
            return int(nx.shortest_path_length(graph, broker, home))
        return None

    def _bypass(self, topic: str, route: list[str], time: float, lifetime: float) -> Walked:
        if self.all_up(route, time):
            return "on time", time, route, None
        hops = self.reached(route[0], route[-1], time)
        return ("partitioned", math.inf, [], None) if hops is None else ("on time", time, [], (route[0], hops))

    def _bypass_buffering(self, topic: str, route: list[str], time: float, lifetime: float) -> Walked:
        outcome, final, sent, _ = self._buffering(topic, route, time, lifetime)
        for i, when in enumerate(self.arrivals(route, time, lifetime)):
            hops = None if when == math.inf else self.reached(route[2 * i], route[-1], when)
            if hops is not None:
                return "on time", when, sent, None if when == final else (route[2 * i], hops)
        return outcome, final, sent, None

    def count_refreshes(self) -> None:
        pairs = {(topic, s.home) for s in self.system.subscribers for topic in s.topics}
        for topic, home in pairs if self.refresh > 0 else ():
            tree = self.system.overlay.subgraph(self.system.overlay.trees[topic])
            for tick in self.refreshes(topic, self.names[home]):
                for broker in range(len(self.names)):
                    if self.warm_up <= tick < self.end and self.all_up(self.route(topic, broker, home), tick):
                        for scheme in SCHEMES[1:]:
                            self.messages[scheme, "subscription"] += tree.degree(broker) - (broker != home)

    def count_floods(self) -> None:
        links = {link.name: (self.names[link.a], self.names[link.b]) for link in self.system.overlay.links}
        changes: list[tuple[float, int, bool, str]] = []
        for i, name in enumerate([*self.names, *links]):
            if self.traces[name][0][0] > 0:
                changes.append((0.0, i, False, name))
            for start, end in self.traces[name]:
                changes += [(start, i, True, name)] if start > 0 else []
                changes.append((end, i, False, name))
        views = Views(self.system, links)
        for time, together in itertools.groupby(sorted(changes), key=lambda change: change[0]):
            sent = views.change([(name, up) for _, _, up, name in together])
            if time > 0 and self.warm_up <= time < self.end:
                for scheme in ("bypass", "bypass-buffering"):
                    self.messages[scheme, "link-state"] += sent


class Views:
    """The protocol's own nodes, with a network without latency that brings one thing after another."""

    def __init__(self, system: System, links: dict[str, tuple[str, str]]):
        self.plan = plan_of_system(system, scheme="bypass")
        self.ends = links
        self.between = {frozenset(ends): name for name, ends in links.items()}
        self.starts = dict.fromkeys(self.plan.brokers, 0)
        self.nodes = {name: self.start(name) for name in self.plan.brokers}
        self.down: set[str] = set()
        self.epochs = dict.fromkeys(links, 0)
        self.made = dict.fromkeys(links, False)
        self.up: set[tuple[str, str]] = set()
        """Brokers with the neighbours that they take for up."""
        self.queue: deque[tuple[str, int, str, str, Any]] = deque()
        for link in links:
            self.join(link)
        self.settle()

    def start(self, name: str) -> OverlayNode:
        self.starts[name] += 1
        return OverlayNode(name, self.plan, self.starts[name], NodeSettings(resume_s=0.0))

    def change(self, together: list[tuple[str, bool]]) -> int:
        """What goes down or comes up at the same time is noticed together; returns the states sent."""
        for name, up in together:
            self.down ^= {name}
            around = [name]
            if name not in self.ends:
                around = [self.between[frozenset({name, other})] for other in self.plan.neighbours(name)]
                self.up -= {(name, other) for other in self.plan.neighbours(name)}
                if up:
                    self.nodes[name] = self.start(name)
            for link in around:
                (self.join if up else self.cut)(link)
        return self.settle()

    def join(self, link: str) -> None:
        a, b = self.ends[link]
        if self.made[link] or not self.down.isdisjoint({link, a, b}):
            return
        for one, other in ((a, b), (b, a)):
            self.notice(one, other)
        self.made[link] = True
        self.epochs[link] += 1
        hellos = {a: self.nodes[a].hello(b), b: self.nodes[b].hello(a)}
        for one, other in ((a, b), (b, a)):
            self.queue.append((link, self.epochs[link], one, other, hellos[one]))

    def cut(self, link: str) -> None:
        if not self.made[link]:
            return
        self.made[link] = False
        self.epochs[link] += 1
        a, b = self.ends[link]
        self.queue.extend((link, self.epochs[link], other, one, None) for one, other in ((a, b), (b, a)))

    def notice(self, name: str, other: str) -> None:
        if (name, other) in self.up:
            self.up.discard((name, other))
            self.nodes[name].link_down(other, 0.0)
            self.sent += self.write(name)

    def settle(self) -> int:
        while self.queue:
            link, epoch, sender, to, what = self.queue.popleft()
            if epoch != self.epochs[link] or to in self.down:
                continue
            if what is None:
                self.notice(to, sender)
                continue
            if isinstance(what, LinkHello):
                self.up.add((to, sender))
                self.nodes[to].link_up(sender, what, 0.0)
            else:
                self.nodes[to].receive(sender, what, 0.0)
            self.sent += self.write(to)
        sent, self.sent = self.sent, 0
        return sent

    sent = 0

    def write(self, name: str) -> int:
        """Sends what a node has to say; returns the number of states of brokers in it."""
        sent = 0
        for hop in self.plan.neighbours(name):
            link = self.between[frozenset({name, hop})]
            for written in self.nodes[name].output(hop):
                self.queue.append((link, self.epochs[link] if self.made[link] else -1, name, hop, written))
                if isinstance(written, NumberedFrame) and isinstance(written.content, LinkStates):
                    sent += len(written.content.states)
        return sent


def random_system(seed: int, *, client_failures: bool) -> tuple[System, dict[str, Trace]]:
    rng = np.random.default_rng(seed)
    brokers = int(rng.integers(3, 7))
    pairs = {(int(rng.integers(0, i)), i) for i in range(1, brokers)}
    pairs |= {(a, b) for a in range(brokers) for b in range(a + 1, brokers) if rng.random() < 0.3}
    links = ", ".join(f"[b{a}, b{b}]" for a, b in sorted(pairs))
    clients = "clients: {mtbf: 30s, mttr: 4s}" if client_failures else ""
    subscribers = ", ".join(
        f"{{name: s{i}, home: b{rng.integers(brokers)}, topics: [{'t, w' if i % 3 == 0 else 'tu'[i % 2]}]}}"
        for i in range(6)
    )
    homes = rng.integers(brokers, size=3).tolist()
    system = build(
        parse_text(f"""
        surecast: 1
        name: random
        seed: {seed}
        overlay: {{brokers: [{", ".join(f"{{name: b{i}}}" for i in range(brokers))}], links: [{links}],
          topic_trees: {{root: random}}}}
        availability: {{{clients}}}
        workload:
          topics: [t, u, v, w]
          publishers:
          - {{name: p, home: b{homes[0]}, topics: [t, u], rate: 0.5/s, deadline: 6s}}
          - {{name: q, home: b{homes[1]}, topics: [u], rate: 0.2/s, deadline: 25s}}
          - {{name: r, home: b{homes[2]}, topics: [t, v], rate: 0.3/s{", deadline: 15s" if seed % 3 else ""}}}
          subscribers: [{subscribers}]
        """)
    )
    names = [*(b.name for b in system.overlay.brokers), *(link.name for link in system.overlay.links)]
    traces = {}
    for name in names:
        times = np.cumsum(rng.integers(1, 25, size=40) * rng.choice([0.5, 1.0], size=40))
        traces[name] = [(float(a), float(b)) for a, b in times[rng.integers(2) :][:38].reshape(-1, 2)]
        if rng.random() < 0.5:
            traces[name][0] = (0.0, traces[name][0][1])
    return system, traces


def booked(report: QoSReport, scheme: str, subscriber: str) -> dict[str, int]:
    outcomes = {}
    for figure in report.figures(scope="subscriber", name=subscriber, variant=scheme):
        if figure.metric.startswith("share_"):
            outcome = figure.detail or figure.metric.removeprefix("share_").replace("_", " ")
            assert figure.samples is not None
            outcomes[outcome] = round(figure.value * figure.samples)
    return {outcome: count for outcome, count in outcomes.items() if count}


@pytest.mark.parametrize("client_failures", [False, True])
@pytest.mark.parametrize(("refresh", "retransmission"), [(0.0, 0.0), (REFRESH, 0.0), (REFRESH, 3.0)])
@pytest.mark.parametrize("seed", range(5))
def test_equal_to_the_dumb_reference(seed: int, refresh: float, retransmission: float, client_failures: bool) -> None:
    system, traces = random_system(seed, client_failures=client_failures)
    reference = Reference(system, dict(traces), 130.0, 10.0, refresh, retransmission, seed)
    reference.simulate()
    report = simulate_reliability(
        system,
        SCHEMES,
        runs=1,
        duration_s=130.0,
        warm_up_s=10.0,
        seed=seed,
        refresh_interval_s=refresh,
        subscription_timeout_s=TIMEOUT,
        retransmission_interval_s=retransmission,
        traces=traces,
    )
    assert check_accounts(report) == []
    for scheme in SCHEMES:
        for subscriber in system.subscribers:
            name = subscriber.name
            wanted = {o: n for (a, s, o), n in reference.outcomes.items() if (a, s) == (scheme, name)}
            assert booked(report, scheme, name) == wanted, (scheme, name)
            if wanted.get("on time"):
                delay = reference.delays[scheme, name] / wanted["on time"]
                assert report.value("delay_mean_s", name=name, variant=scheme) == pytest.approx(delay, abs=1e-9)
        for kind in KINDS:
            figures = report.figures(scope="system", metric="messages_per_event", detail=kind, variant=scheme)
            counted = sum(round(figure.value * reference.published) for figure in figures)
            assert counted == reference.messages[scheme, kind], (scheme, kind)
