"""Delays and reliabilities against the joint Markov chain of all components and the position of the event."""

from __future__ import annotations

from collections.abc import Sequence

import networkx as nx
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.linalg import expm

from surecast.prediction import PhaseTypeDelay, predict_reliability, route_delay
from surecast.prediction.reliability.component_chains import component_of
from surecast.prediction.reliability.hops import hop_chain, spectral_hop
from surecast.prediction.reliability.inversion import HopTable, Mixtures, RouteTable
from surecast.scenario import Failures, System, build, parse_distribution, parse_text

Rates = tuple[float, float]
"""Failure and repair rate of a component."""


class JointChain:
    """All components of a small overlay, up or down, and the broker of its route at which an event is.

    The event moves on as soon as that broker, the link and the next one are up. With `bypass` it is delivered on
    arrival at a broker from which the end is reachable at that moment.
    """

    def __init__(
        self,
        brokers: Sequence[Rates],
        links: Sequence[tuple[int, int, Rates]],
        route: Sequence[int],
        *,
        bypass: bool,
    ):
        self.brokers = len(brokers)
        self.rates = [*brokers, *(link[2] for link in links)]
        self.via = {frozenset(link[:2]): len(brokers) + i for i, link in enumerate(links)}
        self.route, self.last, self.bypass = route, len(route) - 1, bypass

    def reachable(self, state: int, start: int) -> bool:
        graph = nx.Graph()
        graph.add_nodes_from(v for v in range(self.brokers) if state >> v & 1)
        usable = (e for e, bit in self.via.items() if state >> bit & 1 and all(state >> v & 1 for v in e))
        graph.add_edges_from(tuple(e) for e in usable)
        return start in graph and self.route[-1] in graph and nx.has_path(graph, start, self.route[-1])

    def is_open(self, state: int, position: int) -> bool:
        a, b = self.route[position : position + 2]
        return all(state >> bit & 1 for bit in (a, self.via[frozenset((a, b))], b))

    def settled(self, state: int, position: int) -> int:
        """Where an event that has just arrived at a position ends up at once."""
        while position < self.last:
            if self.bypass and self.reachable(state, self.route[position]):
                return self.last
            if not self.is_open(state, position):
                break
            position += 1
        return position

    def generator(self) -> NDArray[np.float64]:
        size = 2 ** len(self.rates) * self.last
        matrix = np.zeros((size, size))
        for row in range(size):
            state, position = divmod(row, self.last)
            for bit, (failure, repair) in enumerate(self.rates):
                other = state ^ (1 << bit)
                rate = failure if state >> bit & 1 else repair
                matrix[row, row] -= rate
                then = self.settled(other, position + 1) if self.is_open(other, position) else position
                if then < self.last:
                    matrix[row, other * self.last + then] += rate
        return matrix

    def arrived(self, time_s: float, last_up: bool | None = None) -> float:
        """P[an event published in the stationary state arrives within a time], and, where `last_up` is given, that
        finds its last broker so."""
        start = np.zeros(2 ** len(self.rates) * self.last)
        at_once = 0.0
        for state in range(2 ** len(self.rates)):
            shares = [(s if state >> bit & 1 else f) / (f + s) for bit, (f, s) in enumerate(self.rates)]
            if last_up is not None and bool(state >> self.route[-1] & 1) != last_up:
                continue
            if state >> self.route[0] & 1:
                position = self.settled(state, 0)
                if position == self.last:
                    at_once += float(np.prod(shares))
                else:
                    start[state * self.last + position] += np.prod(shares)
        return at_once + float(start.sum() - (start @ expm(self.generator() * time_s)).sum())


def arrival_probability(
    brokers: Sequence[Rates],
    links: Sequence[tuple[int, int, Rates]],
    route: Sequence[int],
    time_s: float,
    *,
    bypass: bool,
) -> float:
    return JointChain(brokers, links, route, bypass=bypass).arrived(time_s)


def failures(rates: Rates) -> Failures:
    up, down = (parse_distribution(f"{1 / rate!r}s") for rate in rates)
    return Failures(up, down)


def random_rates(rng: np.random.Generator, count: int) -> list[Rates]:
    return [(float(rng.uniform(0.01, 0.1)), float(rng.uniform(0.05, 0.5))) for _ in range(count)]


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("time_s", [0.0, 0.7, 9.0, 60.0])
def test_the_hops_of_a_route_are_independent(seed: int, time_s: float) -> None:
    """reliability Eqs. 4-11: with exponential times the sum of independent hops is exact."""
    rng = np.random.default_rng(seed)
    brokers, links = random_rates(rng, 3), random_rates(rng, 2)
    joint = arrival_probability(brokers, [(0, 1, links[0]), (1, 2, links[1])], [0, 1, 2], time_s, bypass=False)
    failure, repair = brokers[0]
    delay = route_delay([failures(b) for b in brokers], [failures(link) for link in links])
    assert repair / (failure + repair) * delay.cdf(time_s) == pytest.approx(joint, abs=1e-10)


def test_the_three_ways_to_compute_a_delay_agree() -> None:
    rng = np.random.default_rng(4)
    brokers, links = random_rates(rng, 5), random_rates(rng, 4)
    chains = [component_of("b", failures(b)) for b in brokers]
    chains[2] = None
    edges = [component_of("l", failures(link)) for link in links]
    delay = route_delay([None if c is None else failures(b) for b, c in zip(brokers, chains, strict=True)],
                        [failures(link) for link in links])  # fmt: skip
    hops = [spectral_hop(hop_chain(chains[i], edges[i], chains[i + 1])) for i in range(4)]
    table = RouteTable(HopTable.of(hops), np.array([0, 4]), np.arange(4))
    assert table.means[0] == pytest.approx(delay.mean, rel=1e-12)
    assert table.atoms[0] == pytest.approx(delay.atom, rel=1e-12)
    for time in (0.01, 1.0, 20.0, 300.0, 5000.0):
        exact = delay.tail(time, "expm")
        tail, mean = table.tails(np.array([0]), np.array([time]))
        assert delay.tail(time, "uniformisation") == pytest.approx(exact, abs=1e-12)
        assert tail[0] == pytest.approx(exact, abs=1e-10)
        integral = quad(delay.tail, 0.0, time, limit=200)[0] if time < 1000 else delay.mean
        assert mean[0] == pytest.approx(integral, rel=1e-7)
    for q in (0.7, 0.99, 0.9999):
        one = Mixtures(np.array([0, 1]), np.array([0]), np.ones(1), np.array([np.inf]), np.zeros(1))
        assert table.quantiles(one, np.array([1 - q]))[0] == pytest.approx(delay.quantile(q), rel=1e-7)


def test_time_spent_waiting_at_an_up_broker() -> None:
    """What retransmissions are counted by: the holder of the event is up while it waits."""
    rng = np.random.default_rng(9)
    parts = [component_of("c", failures(r)) for r in random_rates(rng, 5)]
    first, second = (hop_chain(*parts[i : i + 3]) for i in (0, 2))
    table = RouteTable(HopTable.of([spectral_hop(first), spectral_hop(second)]), np.array([0, 2]), np.arange(2))
    both = PhaseTypeDelay(first.atom, first.alpha, first.matrix).then(
        PhaseTypeDelay(second.atom, second.alpha, second.matrix)
    )
    counted = np.concatenate([np.zeros(len(first.alpha)), second.up])
    for time in (3.0, 40.0):
        integral = quad(lambda t: both.alpha @ expm(both.matrix * t) @ counted, 0.0, time)[0]
        assert table.up_times(np.array([0]), np.array([time]))[0] == pytest.approx(integral, rel=1e-7)
    assert table.up_times(np.array([0]), np.array([np.inf]))[0] == pytest.approx(
        second.alpha @ np.linalg.solve(-second.matrix, second.up.astype(float)), rel=1e-9
    )


def test_density_mean_and_quantile_fit_the_distribution() -> None:
    delay = route_delay([None, failures((0.1, 0.5)), failures((0.2, 0.3))], [failures((0.1, 1.0))] * 2)
    assert delay.cdf(0.0) == pytest.approx(delay.atom)
    assert delay.cdf(np.inf) == 1.0
    assert quad(delay.density, 0.0, 7.0)[0] == pytest.approx(delay.cdf(7.0) - delay.atom, abs=1e-9)
    assert quad(delay.tail, 0.0, 400.0, limit=200)[0] == pytest.approx(delay.mean, rel=1e-8)
    assert delay.cdf(delay.quantile(0.95)) == pytest.approx(0.95, abs=1e-10)
    assert delay.quantile(delay.atom / 2) == 0.0


def test_attempts_at_intervals_against_their_exact_convolution() -> None:
    """With attempts every T the delay of each hop is a discrete phase-type one; a single hop is exact."""
    rng = np.random.default_rng(5)
    parts = [component_of("c", failures(r)) for r in random_rates(rng, 5)]
    interval, periods = 1.5, 40
    masses = []
    hops = []
    for i in (0, 2):
        hop = hop_chain(parts[i], parts[i + 1], parts[i + 2], interval)
        assert hop.step is not None
        tails = [float(hop.alpha @ np.linalg.matrix_power(hop.step, n) @ np.ones(7)) for n in range(periods + 1)]
        masses.append(np.concatenate([[hop.atom], -np.diff(tails)]))
        hops.append(spectral_hop(hop, interval))
        assert hops[-1].mean == pytest.approx(
            interval * float(hop.alpha @ np.linalg.inv(np.eye(7) - hop.step) @ np.ones(7))
        )
    table = RouteTable(HopTable.of(hops), np.array([0, 1, 3]), np.array([0, 0, 1]))
    both = np.convolve(*masses)
    for n in (1, 5, 20):
        tails = table.tails(np.arange(2), np.full(2, n * interval))[0]
        assert tails[0] == pytest.approx(1 - masses[0][: n + 1].sum(), abs=1e-10)
        assert tails[1] == pytest.approx(1 - both[: n + 1].sum(), abs=0.02)


@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("time_s", [0.0, 0.7, 9.0, 60.0])
def test_the_joint_law_of_the_delay_and_the_last_broker(hops: int, time_s: float) -> None:
    """What reliability Eq. 13 needs: P[delay <= t] of events that find their last broker down, or up, is exact."""
    rng = np.random.default_rng(8)
    brokers, links = random_rates(rng, hops + 1), random_rates(rng, hops)
    chain = JointChain(brokers, [(i, i + 1, links[i]) for i in range(hops)], range(hops + 1), bypass=False)
    nodes, edges = ([component_of("c", failures(r)) for r in rates] for rates in (brokers, links))
    each = [spectral_hop(hop_chain(nodes[i], edges[i], nodes[i + 1])) for i in range(hops)]
    plain = RouteTable(HopTable.of(each), np.array([0, hops]), np.arange(hops))
    table = plain.with_excess(np.array([0]), np.array([sum(brokers[-1])]))
    late, excess = table.tails(np.arange(2), np.full(2, time_s))[0]
    first, last = (repair / (failure + repair) for failure, repair in (brokers[0], brokers[-1]))
    assert late == plain.tails(np.array([0]), np.array([time_s]))[0][0]
    found_down = first * (1 - last) * (1 - late - excess)
    assert found_down == pytest.approx(chain.arrived(time_s, last_up=False), abs=1e-10)
    # both laws together are that of all events
    assert first * (1 - late) - found_down == pytest.approx(chain.arrived(time_s, last_up=True), abs=1e-10)


def test_the_mean_of_an_excess_is_the_integral_of_its_tail() -> None:
    rng = np.random.default_rng(10)
    parts = [component_of("c", failures(r)) for r in random_rates(rng, 7)]
    each = [spectral_hop(hop_chain(*parts[i : i + 3])) for i in (0, 2, 4)]
    table = RouteTable(HopTable.of(each), np.array([0, 1, 3, 6]), np.array([0, 0, 1, 0, 1, 2])).with_excess(
        np.array([0, 2]), np.array([0.2, 0.3])
    )
    for route in (3, 4):
        one = np.array([route])
        for time in (5.0, 900.0):
            integral = quad(lambda t, r=one: table.tails(r, np.array([t]))[0][0], 0.0, time, limit=200)[0]
            assert table.tails(one, np.array([time]))[1][0] == pytest.approx(integral, rel=1e-7)
        assert table.means[route] == pytest.approx(integral, rel=1e-7)


def test_attempts_at_intervals_when_the_last_broker_is_down() -> None:
    """One hop is exact with attempts at intervals too."""
    rng = np.random.default_rng(5)
    rates = random_rates(rng, 3)
    hop = hop_chain(*(component_of("c", failures(r)) for r in rates), 1.5)
    assert hop.step is not None
    table = RouteTable(HopTable.of([spectral_hop(hop, 1.5)]), np.array([0, 1]), np.array([0]))
    table = table.with_excess(np.array([0]), np.array([sum(rates[2])]))
    assert hop.alpha_down.sum() == pytest.approx(1.0)
    for n in (1, 5, 20):
        exact = float(hop.alpha_down @ np.linalg.matrix_power(hop.step, n) @ np.ones(7))
        assert table.tails(np.arange(2), np.full(2, 1.5 * n))[0].sum() == pytest.approx(exact, abs=1e-10)


def test_times_that_are_not_exponential() -> None:
    """Erlang phases make complex rates; the inversion then still agrees with the matrix exponential."""
    erlang = Failures(
        parse_distribution("40s"), parse_distribution({"distribution": "erlang", "mean": "6s", "stages": 3})
    )
    steady = Failures(
        parse_distribution("30s"), parse_distribution({"distribution": "lognormal", "mean": "4s", "cv": 2})
    )
    delay = route_delay([erlang, steady, erlang], [steady, steady])
    chains = [component_of("c", f) for f in (erlang, steady, steady)]
    hops = [spectral_hop(hop_chain(*chains)), spectral_hop(hop_chain(chains[1], chains[1], chains[0]))]
    assert not hops[0].is_real
    table = RouteTable(HopTable.of(hops), np.array([0, 2]), np.arange(2))
    for time in (0.5, 5.0, 25.0):
        assert table.tails(np.array([0]), np.array([time]))[0][0] == pytest.approx(delay.tail(time), abs=1e-7)


TRIANGLE = """
surecast: 1
name: triangle
overlay:
  brokers: [{{name: a}}, {{name: b}}, {{name: c}}]
  links: [[a, b], [b, c]{extra}]
availability:
  brokers: {{mtbf: 50s, mttr: 10s}}
  links: {{mtbf: 20s, mttr: 4s}}
workload:
  topics: [t]
  deadline: {deadline}
  publishers: [{{name: p, home: a, topics: [t], rate: 1/s}}]
  subscribers: [{{name: s, home: c, topics: [t]}}]
"""


def line_or_triangle(extra: str, deadline: str) -> System:
    return build(parse_text(TRIANGLE.format(extra=extra, deadline=deadline)))


@pytest.mark.parametrize("deadline", [0.5, 3.0, 15.0, 80.0])
def test_with_a_single_path_bypass_with_buffering_is_buffering(deadline: float) -> None:
    """reliability Eq. 13, corrected, equals Eq. 4 where there is nothing to bypass by."""
    report = predict_reliability(line_or_triangle("", f"{deadline}s"), ideal=True)
    broker, link = (1 / 50, 1 / 10), (1 / 20, 1 / 4)
    exact = arrival_probability([broker] * 3, [(0, 1, link), (1, 2, link)], [0, 1, 2], deadline, bypass=False)
    for scheme in ("buffering", "bypass-buffering"):
        assert report.value("reliability", name="s", variant=scheme) == pytest.approx(exact, abs=1e-10)


def test_events_that_live_for_ever_are_lost_only_at_a_dead_home() -> None:
    """reliability Eq. 13, corrected, tends to the availability of the publisher's home."""
    report = predict_reliability(line_or_triangle(", [a, c]", "inf"), ideal=True)
    for scheme in ("buffering", "bypass-buffering"):
        assert report.value("reliability", name="s", variant=scheme) == pytest.approx(50 / 60)


@pytest.mark.parametrize("deadline", [0.5, 2.0, 10.0, 40.0])
def test_how_far_bypass_with_buffering_is_off(deadline: float) -> None:
    """reliability Eq. 13 takes events that wait to follow their static route, and a partition with the last broker up
    to be like an outage of that route."""
    system = line_or_triangle(", [a, c]", f"{deadline}s")
    route = [0, 1, 2]
    tree = [(system.overlay.links[i].a, system.overlay.links[i].b) for i in system.overlay.trees["t"]]
    if (0, 2) in tree:
        route = [0, 2]
    broker, link = (1 / 50, 1 / 10), (1 / 20, 1 / 4)
    links = [(0, 1, link), (1, 2, link), (0, 2, link)]
    exact = arrival_probability([broker] * 3, links, route, deadline, bypass=True)
    report = predict_reliability(system, ["bypass", "bypass-buffering"], ideal=True)
    value = report.value("reliability", name="s", variant="bypass-buffering")
    at_once = arrival_probability([broker] * 3, links, route, 0.0, bypass=True)
    assert report.value("reliability", name="s", variant="bypass") == pytest.approx(at_once, abs=1e-12)
    assert value == pytest.approx(exact, abs=0.004)


def test_delays_of_bypass_with_buffering_fit_its_reliability() -> None:
    """The share that arrives by a time, whatever the time, is the distribution of the delay of all events."""
    everything = predict_reliability(
        line_or_triangle(", [a, c]", "inf"), ["bypass-buffering"], ideal=True, delays="all", quantiles=(0.8, 0.95)
    )

    def share(time_s: float) -> float:
        report = predict_reliability(line_or_triangle(", [a, c]", f"{time_s!r}s"), ["bypass-buffering"], ideal=True)
        return report.value("reliability", name="s") * 60 / 50

    for detail, q in (("p80", 0.8), ("p95", 0.95)):
        time = everything.value("delay_quantile_s", name="s", detail=detail)
        assert share(time) == pytest.approx(q, abs=1e-8)
    nodes, weights = np.polynomial.legendre.leggauss(40)
    times = 75.0 * (nodes + 1.0)
    mean = 75.0 * sum(w * (1.0 - share(float(t))) for t, w in zip(times, weights, strict=True))
    assert everything.value("delay_mean_s", name="s") == pytest.approx(mean, rel=1e-4)
