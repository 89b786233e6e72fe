"""The vectorised capacity model against the paper's recursions, written out one class and one broker at a time."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from surecast.prediction.capacity import ALGORITHMS, predict_capacity
from surecast.report import QoSReport
from surecast.scenario import System, build, parse_distribution, parse_text
from surecast.scenario.network import Network, PhysicalLink, Router
from surecast.scenario.system import Broker, ClassWorkload, FilterClass, Overlay, OverlayLink

MOST = 400
BASE = build(parse_text("{surecast: 1, name: random, overlay: {brokers: [{name: a}, {name: b}], links: [[a, b]]}}"))
SERVICES = ["exponential", "deterministic", {"distribution": "erlang", "stages": 3}]


def random_system(seed: int) -> System:
    """A random tree of brokers over a random connected network; two of the four classes coincide."""
    rng = np.random.default_rng(seed)
    brokers, routers = int(rng.integers(2, 7)), 8

    def service(mean_s: float) -> object:
        return parse_distribution(SERVICES[rng.integers(3)]).with_mean(mean_s * rng.uniform(0.5, 1.5))

    pairs = {(int(rng.integers(r)), r) for r in range(1, routers)} | {(0, routers - 1)}
    network = Network(
        tuple(Router(f"r{r}", 0.0, 0.0, service=service(1e-4)) for r in range(routers)),
        tuple(PhysicalLink(f"r{a}-r{b}", a, b, rng.uniform(1e-3, 5e-3), service(2e-3)) for a, b in sorted(pairs)),
    )
    at = rng.integers(routers, size=brokers).tolist()
    nodes = tuple(Broker(f"b{i}", at[i], service(8e-3), service(5e-3)) for i in range(brokers))
    links = []
    for b in range(1, brokers):
        ends = (int(rng.integers(b)), b) if rng.random() < 0.5 else (b, int(rng.integers(b)))
        path = network.path(at[ends[0]], at[ends[1]])
        latency = sum(network.links[i].latency_s for i in network.links_on(path))
        links.append(OverlayLink(f"b{ends[0]}--b{ends[1]}", *ends, path, latency))
    shape = (4, brokers)
    publications = rng.uniform(0.0, 1.0, shape) * (rng.random(shape) < 0.6)
    subscriptions = rng.uniform(0.0, 0.3, shape) * (rng.random(shape) < 0.5)
    publications[0, 0], subscriptions[0, -1] = 0.5, 0.1
    publications[3], subscriptions[3] = publications[2], subscriptions[2]
    classes = tuple(FilterClass(f"c{f}", service_factor=factor) for f, factor in enumerate((1.0, 2.5, 1.0, 1.0)))
    workload = ClassWorkload(
        classes,
        tuple(f"x{b}" for b in range(brokers)),
        tuple(range(brokers)),
        tuple(at),
        publications,
        subscriptions,
        parse_distribution("30s"),
    )
    overlay = Overlay(nodes, tuple(links), root=int(rng.integers(brokers)))
    return replace(BASE, network=network, overlay=overlay, class_workload=workload)


def number_tables() -> dict[str, tuple[list[float], list[float], list[float]]]:
    """p_n(k), p_s(k) and E_r(k) of each routing, with the corrections of models and misprints."""
    q = [1.0]
    for k in range(1, MOST + 1):
        q.append((1 + k * q[-1]) / (2 * k + 1))
    ks = range(MOST + 1)
    some = [float(k > 0) for k in ks]
    bare = [math.fsum(q[: k + 1]) / (k + 1) for k in ks]
    return {
        "flooding": ([1.0] * len(q), [0.0] * len(q), [0.0] * len(q)),
        "simple": ([1 - v for v in q], [1.0] * len(q), [float(k) for k in ks]),
        "identity": (some, [1 - v for v in some], some),
        "covering": ([1 - v for v in q], bare, [k * bare[k - 1] if k else 0.0 for k in ks]),
        "merging": (
            [(2 * k - 1) / (2 * k + 1) if k else 0.0 for k in ks],
            [(4 * k + 1) / ((k + 1) * (2 * k + 1)) for k in ks],
            some,
        ),
    }


TABLES = number_tables()


class Oracle:
    """capacity Eqs. 1-45 for one algorithm, straight from the paper."""

    def __init__(self, system: System, algorithm: str, shared_directions: bool = True):
        self.system, self.shared = system, shared_directions
        self.hierarchical = algorithm.startswith("hierarchical")
        self.tables = TABLES[algorithm.rpartition(" ")[2]]
        self.work = system.class_workload
        self.n = len(system.overlay.brokers)
        self.next: list[list[int]] = [[] for _ in range(self.n)]
        for link in system.overlay.links:
            self.next[link.a].append(link.b)
            self.next[link.b].append(link.a)
        self.parent: dict[int, int] = {}
        queue = [system.overlay.root]
        for b in queue:
            for c in self.next[b]:
                if c != self.parent.get(b):
                    self.parent[c] = b
                    queue.append(c)
        for name in ("x_a", "omega_a", "lambda_a", "p_n", "p_s", "x_r", "path_delay", "rate"):
            setattr(self, name, cache(getattr(self, name)))

    def lam(self, f: int, b: int) -> float:
        return float(self.work.subscription_rate_per_s[f, b])

    def omega(self, f: int, b: int) -> float:
        return float(self.work.publication_rate_per_s[f, b])

    def after(self, i: int, j: int) -> list[int]:
        return [k for k in self.next[j] if k != i]

    def x_a(self, f: int, i: int, j: int) -> float:
        if self.hierarchical and self.parent.get(i) == j:
            return 0.0
        own = self.lam(f, j) * self.work.lifetime.mean_s
        return own + sum(self.x_a(f, j, k) for k in self.after(i, j))

    def omega_a(self, f: int, i: int, j: int) -> float:
        return self.omega(f, j) + sum(self.omega_a(f, j, k) for k in self.after(i, j))

    def lambda_a(self, f: int, i: int, j: int) -> float:
        return self.lam(f, j) + sum(self.lambda_a(f, j, k) for k in self.after(i, j))

    @staticmethod
    def mixed(values: list[float], x: float) -> float:
        weight, total = math.exp(-x), 0.0
        for k, value in enumerate(values):
            total += weight * value
            weight *= x / (k + 1)
        return total

    def p_n(self, f: int, i: int, j: int) -> float:
        if self.hierarchical and self.parent.get(i) == j:
            return 1.0
        return self.mixed(self.tables[0], self.x_a(f, i, j))

    def p_s(self, f: int, i: int, j: int) -> float:
        if self.hierarchical and self.parent.get(i) != j:
            return 0.0
        return self.mixed(self.tables[1], self.x_a(f, j, i))

    def x_r(self, f: int, i: int, j: int) -> float:
        return self.mixed(self.tables[2], self.x_a(f, i, j))

    def caused(self, p: object, f: int, i: int, j: int) -> float:
        """capacity Eqs. 9, 17."""
        return p(f, i, j) + sum(self.caused(p, f, j, k) for k in self.after(i, j))  # type: ignore[operator]

    def total(self, control: bool) -> float:
        """capacity Eqs. 10, 11, 18, 19."""
        start, p = (lambda f, b: 2 * self.lam(f, b), self.p_s) if control else (self.omega, self.p_n)
        return sum(
            start(f, b) * sum(self.caused(p, f, b, k) for k in self.next[b])
            for f in range(len(self.work.classes))
            for b in range(self.n)
        )

    def rate(self, f: int, i: int, j: int, control: bool) -> float:
        if control:
            return 2 * self.p_s(f, i, j) * self.lambda_a(f, j, i)
        return self.p_n(f, i, j) * self.omega_a(f, j, i)

    def broker_rate(self, f: int, b: int, control: bool) -> float:
        own = 2 * self.lam(f, b) if control else self.omega(f, b)
        return own + sum(self.rate(f, k, b, control) for k in self.next[b])

    def broker_queue(self, b: int) -> tuple[float, float]:
        """Utilisation and mean waiting time (capacity Eqs. 27-29)."""
        broker, u, squares = self.system.overlay.brokers[b], 0.0, 0.0
        for f, each in enumerate(self.work.classes):
            for control, service in ((False, broker.notification_service), (True, broker.control_service)):
                first, second, _ = service.with_mean(service.mean_s * each.service_factor).moments()
                u += self.broker_rate(f, b, control) * first
                squares += self.broker_rate(f, b, control) * second
        return u, squares / (2 * (1 - u))

    def passed(self, i: int, j: int) -> list[tuple[str, int, int]]:
        """Routers and physical links from broker i to broker j; links with the direction where it matters."""
        network = self.system.network
        link = next(k for k in self.system.overlay.links if {k.a, k.b} == {i, j})
        path = link.routers if link.a == i else link.routers[::-1]
        found = [("router", r, 0) for r in path]
        for a, b in itertools.pairwise(path):
            k = next(k for k, other in enumerate(network.links) if {other.a, other.b} == {a, b})
            found.append(("link", k, 0 if self.shared or network.links[k].a == a else 1))
        return found

    def physical_queue(self, component: tuple[str, int, int]) -> tuple[float, float, float]:
        """Traffic, utilisation and mean waiting time (capacity Eqs. 33-35)."""
        network, rate, u, squares = self.system.network, 0.0, 0.0, 0.0
        service = (network.routers if component[0] == "router" else network.links)[component[1]].service
        for i in range(self.n):
            for j in self.next[i]:
                if component in self.passed(i, j):
                    for f, each in enumerate(self.work.classes):
                        first, second, _ = service.with_mean(service.mean_s * each.service_factor).moments()
                        here = self.rate(f, i, j, False) + self.rate(f, i, j, True)
                        rate, u, squares = rate + here, u + here * first, squares + here * second
        return rate, u, squares / (2 * (1 - u))

    def broker_delay(self, f: int, b: int, control: bool) -> float:
        broker, factor = self.system.overlay.brokers[b], self.work.classes[f].service_factor
        service = broker.control_service if control else broker.notification_service
        return self.broker_queue(b)[1] + factor * service.mean_s

    def link_delay(self, f: int, i: int, j: int) -> float:
        network, factor, total = self.system.network, self.work.classes[f].service_factor, 0.0
        for kind, k, way in self.passed(i, j):
            part = network.routers[k] if kind == "router" else network.links[k]
            total += self.physical_queue((kind, k, way))[2] + factor * part.service.mean_s
            total += part.latency_s if kind == "link" else 0.0
        return total

    def path_delay(self, f: int, i: int, j: int, control: bool) -> float:
        """capacity Eqs. 40, 43."""
        return self.link_delay(f, i, j) + self.broker_delay(f, j, control) + self.onward(f, i, j, control)

    def onward(self, f: int, i: int, j: int, control: bool) -> float:
        p = self.p_s if control else self.p_n
        return max((self.path_delay(f, j, k, control) for k in self.after(i, j) if p(f, j, k) > 0), default=0.0)

    def worst(self, control: bool) -> float:
        """capacity Eqs. 41, 42, 44, 45, the first hop filtered too."""
        start = self.lam if control else self.omega
        return max(
            self.broker_delay(f, b, control) + self.onward(f, -1, b, control)
            for f in range(len(self.work.classes))
            for b in range(self.n)
            if start(f, b) > 0
        )


def check_brokers(system: System, report: QoSReport, algorithm: str, oracle: Oracle) -> None:
    classes = range(len(system.class_workload.classes))
    for b, broker in enumerate(system.overlay.brokers):

        def value(metric: str, detail: str = "", name: str = broker.name) -> float:
            return report.value(metric, scope="broker", name=name, detail=detail, variant=algorithm)

        local = sum(oracle.lam(f, b) * 30.0 for f in classes)
        remote = sum(oracle.x_r(f, b, k) for f in classes for k in oracle.next[b])
        assert value("table_entries", "local") == pytest.approx(local)
        assert value("table_entries", "remote") == pytest.approx(remote)
        for control, kind in ((False, "notification"), (True, "control")):
            assert value("rate_in_per_s", kind) == pytest.approx(
                sum(oracle.broker_rate(f, b, control) for f in classes)
            )
        utilisation, waiting = oracle.broker_queue(b)
        assert value("utilisation") == pytest.approx(utilisation)
        assert value("waiting_mean_s") == pytest.approx(waiting)


def check_links(system: System, report: QoSReport, algorithm: str, oracle: Oracle) -> None:
    for link in system.overlay.links:
        by_way = []
        for i, j, way in ((link.a, link.b, "forward"), (link.b, link.a, "backward")):
            rates = [oracle.rate(f, i, j, False) + oracle.rate(f, i, j, True) for f in range(4)]
            found = report.value("traffic_per_s", scope="overlay_link", name=link.name, detail=way, variant=algorithm)
            assert found == pytest.approx(sum(rates))
            by_way += [(rate, oracle.link_delay(f, i, j)) for f, rate in enumerate(rates)]
        mean = sum(rate * delay for rate, delay in by_way) / sum(rate for rate, _ in by_way)
        found = report.value("delay_mean_s", scope="overlay_link", name=link.name, variant=algorithm)
        assert found == pytest.approx(mean)


def check_physical(system: System, report: QoSReport, algorithm: str, oracle: Oracle) -> None:
    components = {c for i in range(oracle.n) for j in oracle.next[i] for c in oracle.passed(i, j)}
    traffic: dict[tuple[str, str], float] = {}
    for kind, k, way in components:
        scope = "router" if kind == "router" else "physical_link"
        name = (system.network.routers if kind == "router" else system.network.links)[k].name
        detail = "" if oracle.shared or kind == "router" else ("forward", "backward")[way]
        rate, utilisation, waiting = oracle.physical_queue((kind, k, way))
        traffic[scope, name] = traffic.get((scope, name), 0.0) + rate
        if rate > 0:
            found = report.value("utilisation", scope=scope, name=name, detail=detail, variant=algorithm)
            assert found == pytest.approx(utilisation)
            found = report.value("waiting_mean_s", scope=scope, name=name, detail=detail, variant=algorithm)
            assert found == pytest.approx(waiting)
    for scope in ("router", "physical_link"):
        expected = {name: rate for (s, name), rate in traffic.items() if s == scope and rate > 0}
        assert report.values("traffic_per_s", scope=scope, variant=algorithm) == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_figure_is_that_of_the_recursions(algorithm: str, seed: int) -> None:
    system, shared = random_system(seed), seed % 2 == 0
    oracle = Oracle(system, algorithm, shared)
    report = predict_capacity(system, [algorithm], shared_directions=shared)
    assert not [text for text in report.info.warnings if "overloaded" in text]
    check_brokers(system, report, algorithm, oracle)
    check_links(system, report, algorithm, oracle)
    check_physical(system, report, algorithm, oracle)
    # capacity Eqs. 11, 19, which the report takes from the links: nothing is sent that is not passed
    for control, kind in ((False, "notification"), (True, "control")):
        found = report.value("message_rate_per_s", detail=kind, variant=algorithm)
        assert found == pytest.approx(oracle.total(control))
    # capacity Eqs. 42, 45
    assert report.value("notification_delay_worst_s", variant=algorithm) == pytest.approx(oracle.worst(False))
    assert report.value("subscription_delay_worst_s", variant=algorithm) == pytest.approx(oracle.worst(True))
