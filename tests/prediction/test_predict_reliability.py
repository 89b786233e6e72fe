"""The report over all schemes: what it says, what it refuses, and that its accounts balance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from surecast.errors import AssumptionError, ConfigurationError, OverloadError
from surecast.planning import improvements
from surecast.prediction import SCHEMES, predict_reliability, route_delay
from surecast.prediction.reliability.component_chains import components_of
from surecast.prediction.reliability.link_state_floods import link_state_rate
from surecast.report import QoSReport, check_accounts
from surecast.scenario import System, build, load_system, parse_text
from surecast.scenario.flows import flows_of

EXAMPLES = Path(__file__).parents[2] / "examples"

STAR = """
surecast: 1
name: star
overlay:
  brokers: [{name: hub}, {name: x}, {name: y}, {name: z}]
  links: [[hub, x], [hub, y], [hub, z]]
availability:
  brokers: {mtbf: 900s, mttr: 100s}
  links: {mtbf: 400s, mttr: 100s}
  CLIENTS
workload:
  topics: [t, u]
  deadline: 50s
  publishers:
    - {name: p, home: x, topics: [t], rate: 1/s}
    - {name: q, home: y, topics: [t], rate: 3/s, deadline: 20s}
  subscribers:
    - {name: far, home: z, topics: [t]}
    - {name: twin, home: z, topics: [t]}
    - {name: near, home: y, topics: [t]}
    - {name: idle, home: z, topics: [u]}
delivery: {fault_tolerance: {refresh: end-to-end, refresh_interval: 20s, retransmission_interval: 5s}}
"""


def star(clients: str = "") -> System:
    return build(parse_text(STAR.replace("CLIENTS", clients)))


def graph_example() -> System:
    return load_system(EXAMPLES / "reliability-graph.yaml")[1]


def reliability(report: QoSReport, name: str, scheme: str) -> float:
    return report.value("reliability", name=name, variant=scheme)


@pytest.mark.parametrize("ideal", [True, False])
@pytest.mark.parametrize("clients", ["", "clients: {availability: 0.95, period: 100s}"])
def test_the_accounts_balance(ideal: bool, clients: str) -> None:
    for system in (star(clients), graph_example()):
        report = predict_reliability(system, ideal=ideal)
        assert report.variants == SCHEMES
        assert check_accounts(report, 1e-9) == []


def test_publishers_are_weighted_by_their_rates() -> None:
    """reliability Eqs. 1-4, with a deadline of its own for each publisher."""
    system = star()
    report = predict_reliability(system, ideal=True)
    a, link = 0.9, 0.8
    assert reliability(report, "far", "periodic-subscription") == pytest.approx(a**3 * link**2)
    near = (1 * a**3 * link**2 + 3 * a) / 4
    assert reliability(report, "near", "periodic-subscription") == pytest.approx(near)
    broker, edge = system.overlay.brokers[0].failures, system.overlay.links[0].failures
    delay = route_delay([broker] * 3, [edge] * 2)
    far = a * (1 * delay.cdf(50.0) + 3 * delay.cdf(20.0)) / 4
    assert reliability(report, "far", "buffering") == pytest.approx(far, abs=1e-10)
    assert report.value("reliability", scope="system", variant="buffering") == pytest.approx(
        (2 * far + reliability(report, "near", "buffering")) / 3
    )


def test_equal_interests_have_equal_figures_and_the_idle_have_none() -> None:
    report = predict_reliability(star())
    for figure in report.figures(name="far"):
        twin = report.figures(name="twin", metric=figure.metric, variant=figure.variant, detail=figure.detail)
        assert [t.value for t in twin] == [figure.value]
    assert list(report.figures(name="idle")) == []


def test_without_refreshes_nothing_arrives_unless_brokers_never_fail() -> None:
    report = predict_reliability(star(), ["none"])
    assert reliability(report, "far", "none") == 0.0
    text = STAR.replace("CLIENTS", "").replace("  brokers: {mtbf: 900s, mttr: 100s}\n", "")
    safe = predict_reliability(build(parse_text(text)), ["none"])
    assert reliability(safe, "far", "none") == pytest.approx(0.8**2)
    assert check_accounts(safe, 1e-9) == []


def test_delays_of_events_that_arrive_and_of_all() -> None:
    system = star()
    broker, edge = system.overlay.brokers[0].failures, system.overlay.links[0].failures
    delay = route_delay([broker] * 3, [edge] * 2)
    everything = predict_reliability(system, ["buffering"], ideal=True, delays="all", quantiles=(0.5, 0.99))
    assert everything.value("delay_mean_s", name="far") == pytest.approx(delay.mean, rel=1e-9)
    assert everything.value("delay_quantile_s", name="far", detail="p99") == pytest.approx(
        delay.quantile(0.99), rel=1e-6
    )
    arrived = predict_reliability(system, ["buffering"], ideal=True)
    times = np.linspace(0.0, 50.0, 20_001)
    tails = np.array([delay.tail(float(t)) for t in times[::40]])
    tails = np.interp(times, times[::40], tails)
    total = weight = 0.0
    for rate, deadline in ((1, 50.0), (3, 20.0)):
        inside = times <= deadline
        end = delay.tail(deadline)
        total += rate * float(np.trapezoid(tails[inside] - end, times[inside]))
        weight += rate * (1.0 - end)
    assert arrived.value("delay_mean_s", name="far") == pytest.approx(total / weight, rel=1e-4)
    late = arrived.value("delay_quantile_s", name="far", detail="p99")
    on_time = 1 * delay.cdf(50.0) + 3 * delay.cdf(20.0)
    assert delay.cdf(late) + 3 * delay.cdf(min(late, 20.0)) == pytest.approx(0.99 * on_time, abs=1e-7)


def test_retransmission_intervals_delay_events() -> None:
    ideal, real = (predict_reliability(star(), ["buffering"], ideal=ideal) for ideal in (True, False))
    assert reliability(real, "far", "buffering") < reliability(ideal, "far", "buffering")
    assert reliability(real, "far", "buffering") == pytest.approx(reliability(ideal, "far", "buffering"), abs=0.02)
    assert {f.how for f in ideal.figures(metric="reliability")} == {"exact"}
    assert {f.how for f in real.figures(metric="reliability")} == {"approximation"}
    assert any("attempts every 5 s" in note for note in real.info.notes)
    assert real.value("delay_quantile_s", name="far", detail="p99") % 5 == pytest.approx(0.0, abs=1e-9)


def test_links_to_clients_must_be_up_at_both_ends() -> None:
    plain, failing = (
        predict_reliability(star(clients), ideal=True)
        for clients in ("", "clients: {availability: 0.95, period: 100s}")
    )
    for scheme in SCHEMES:
        expected = 0.95**2 * reliability(plain, "far", scheme)
        assert reliability(failing, "far", scheme) == pytest.approx(expected)


def test_times_that_are_not_exponential_are_named() -> None:
    text = STAR.replace("CLIENTS", "").replace(
        "links: {mtbf: 400s, mttr: 100s}",
        "links: {mtbf: 400s, mttr: 100s, up: {distribution: weibull, shape: 0.7}, "
        "down: {distribution: erlang, stages: 2}}",
    )
    report = predict_reliability(build(parse_text(text)), ideal=True)
    assert {f.how for f in report.figures(metric="reliability", variant="buffering")} == {"approximation"}
    assert {f.how for f in report.figures(metric="reliability", variant="bypass")} == {"exact"}
    assert any("link " in note and "phases" in note for note in report.info.notes)
    plain = predict_reliability(star(), ideal=True)
    assert reliability(report, "far", "bypass") == pytest.approx(reliability(plain, "far", "bypass"))
    assert reliability(report, "far", "buffering") != reliability(plain, "far", "buffering")


def test_exact_bounded_and_sampled_connections() -> None:
    system = graph_example()
    exact, bound, sampled = (
        predict_reliability(system, ["bypass", "bypass-buffering"], ideal=True, connection=mode)
        for mode in ("exact", "bound", "monte-carlo")
    )
    names = [s.name for s in system.subscribers]
    inside = 0
    for name in names:
        value = reliability(exact, name, "bypass")
        # reliability Eq. 12
        assert reliability(bound, name, "bypass") <= value + 1e-12
        figure = next(iter(sampled.figures(name=name, metric="reliability", variant="bypass")))
        assert figure.value == pytest.approx(value, abs=0.01)
        assert figure.low is not None
        assert figure.high is not None
        inside += figure.low - 1e-12 <= value <= figure.high + 1e-12
    assert inside >= 0.9 * len(names)
    assert {f.how for f in exact.figures(metric="reliability", variant="bypass")} == {"exact"}
    assert {f.how for f in bound.figures(metric="reliability", variant="bypass")} == {"lower_bound"}
    assert "bypass (bound)" in sampled.variants
    assert check_accounts(bound, 1e-9) == check_accounts(sampled, 1e-9) == []


@pytest.mark.parametrize("ideal", [True, False])
def test_in_a_tree_bypass_adds_nothing_to_buffering(ideal: bool) -> None:
    """reliability Eq. 13, corrected, equals Eq. 4 with a single path; delays do too."""
    report = predict_reliability(star(), ["buffering", "bypass-buffering"], ideal=ideal)
    for metric in ("reliability", "delay_mean_s", "delay_quantile_s"):
        for name in ("far", "near"):
            one, both = (f.value for f in report.figures(name=name, metric=metric))
            assert both == pytest.approx(one, rel=1e-7, abs=1e-9)


def test_better_links_do_no_harm() -> None:
    """A link that fails less leaves more of the outages of a route to its brokers, and no more partitions."""
    links = [i for i in improvements(graph_example()) if i.kind == "link"]
    assert len(links) == 15
    assert min(link.derivative for link in links) > -1e-6


def test_last_brokers_with_other_times_are_named() -> None:
    """Then reliability Eq. 13 does not tell by the state in which events find them."""
    text = (EXAMPLES / "reliability-graph.yaml").read_text()
    text = text.replace("period: 5d ", "period: 5d\n    down: {distribution: erlang, stages: 2} ")
    system = build(parse_text(text))
    report = predict_reliability(system, SCHEMES[2:], ideal=True, connection="exact")
    assert any("home broker are not exponential" in note for note in report.info.notes)
    assert not any("home broker are not" in n for n in predict_reliability(graph_example(), SCHEMES[2:]).info.notes)
    assert check_accounts(report, 1e-9) == []
    for name in (s.name for s in system.subscribers[:50]):
        buffering, bypass, both = (reliability(report, name, scheme) for scheme in SCHEMES[2:])
        assert max(buffering, bypass) <= both + 1e-9


def test_each_scheme_does_at_least_as_well_as_the_one_it_adds_to() -> None:
    report = predict_reliability(graph_example(), ideal=True)
    for name in (s.name for s in graph_example().subscribers):
        static, buffering, bypass, both = (reliability(report, name, scheme) for scheme in SCHEMES[1:])
        assert static <= buffering + 1e-12
        assert static <= bypass + 1e-12
        assert max(buffering, bypass) <= both + 1e-12


def test_the_price_of_static_routes_and_of_buffering() -> None:
    """Two publishers of 1/s and 3/s: p's events cross three links (x, y, z), q's the two to the hub and to z."""
    report = predict_reliability(star(), ideal=True)
    a, link = 0.9, 0.8
    # a hub reached sends on to each broker with subscribers but the one it came from
    per_p = a + 2 * a * link * a
    per_q = a + a * link * a
    price = {(f.variant, f.detail): f.value for f in report.figures(scope="system", metric="messages_per_event")}
    assert price["periodic-subscription", "notification"] == pytest.approx((per_p + 3 * per_q) / 4)
    used_p = a * link * a * (1 - (1 - link * a) ** 2) + 2 * a * (link * a) ** 2
    assert price["bypass", "notification"] == pytest.approx((used_p + 3 * 2 * a * (link * a) ** 2) / 4)
    floods = link_state_rate(star(), components_of(star())) / 4
    assert price["bypass", "link-state"] == price["bypass-buffering", "link-state"] == pytest.approx(floods)
    broker, edge = star().overlay.brokers[0].failures, star().overlay.links[0].failures
    one, two = (route_delay([broker] * (n + 1), [edge] * n) for n in (1, 2))
    sent = (a + 2 * a * one.cdf(50.0) + 3 * (a + a * one.cdf(20.0))) / 4
    acknowledged = (a * one.cdf(50.0) + 2 * a * two.cdf(50.0) + 3 * a * (one.cdf(20.0) + two.cdf(20.0))) / 4
    assert price["buffering", "notification"] == pytest.approx(sent)
    assert price["buffering", "acknowledgement"] == pytest.approx(acknowledged)
    assert price["buffering", "retransmission"] == pytest.approx(acknowledged - link * a * sent)
    assert price["bypass", "detour"] == 0.0


def test_the_price_of_intervals() -> None:
    report = predict_reliability(star())
    a, link = 0.9, 0.8
    hub = a * link * a
    # both topics of z and topic t of y are refreshed, each over the three links of the star
    refreshes = 3 * (a + 2 * hub) / 20
    assert report.value(
        "messages_per_event", scope="system", variant="buffering", detail="subscription"
    ) == pytest.approx(refreshes / 4)
    for scheme in SCHEMES:
        figures = list(report.figures(scope="system", metric="messages_per_event", variant=scheme))
        total = sum(f.value for f in figures if f.detail not in ("", "duplicate"))
        assert next(f.value for f in figures if not f.detail) == pytest.approx(total)


def test_attempts_are_counted_while_the_sender_is_up() -> None:
    """One hop, events that live for ever: the attempts of a discrete chain, summed without end."""
    text = """{surecast: 1, name: hop, overlay: {brokers: [{name: a}, {name: b}], links: [[a, b]]},
      availability: {brokers: {mtbf: 90s, mttr: 30s}}, workload: {topics: [t],
      publishers: [{name: p, home: a, topics: [t], rate: 1/s}], subscribers: [{name: s, home: b, topics: [t]}]},
      delivery: {fault_tolerance: {retransmission_interval: 2s}}}"""
    rng = np.random.default_rng(1)
    leave = 1 - np.exp(-2 * (1 / 90 + 1 / 30))
    attempts = []
    for _ in range(20_000):
        a, b, count = True, bool(rng.random() < 0.75), 0
        while not b or not a:
            a, b = ((rng.random() < 0.75) if rng.random() < leave else x for x in (a, b))
            count += a
        attempts.append(count)
    report = predict_reliability(build(parse_text(text)), ["buffering"])
    found = report.value("messages_per_event", scope="system", detail="retransmission")
    assert found == pytest.approx(0.75 * np.mean(attempts), rel=0.04)


def test_a_large_system_has_its_routes_computed_once() -> None:
    text = """{surecast: 1, name: large, seed: 3, overlay: {brokers: [{name: b, count: 40}],
      links: {build: random-graph, mean_degree: 4}}, availability: {brokers: {availability: [0.9, 0.99], period: 1d},
      links: {availability: 0.99, period: 1h}}, workload: {topics: [{name: t, count: 10}], deadline: 1h,
      publishers: [{name: p, count: 10, home: random, topics: one-each, rate: 1/min}],
      subscribers: [{name: s, count: 1000, home: random, topics: by-popularity}]}}"""
    system = build(parse_text(text))
    assert len(flows_of(system).interests) < 400
    report = predict_reliability(system)
    assert len(report.values("reliability", scope="subscriber", variant="buffering")) == 1000
    bypass = list(report.figures(scope="subscriber", metric="reliability", variant="bypass"))
    assert {f.how for f in bypass} == {"approximation"}
    assert all(f.low is not None and f.low <= f.value for f in bypass)
    with pytest.raises(OverloadError, match="brokers b-"):
        predict_reliability(system, ["bypass"], connection="exact")


def test_refusals_name_what_is_wrong() -> None:
    empty = "{surecast: 1, name: bare, overlay: {brokers: [{name: a}, {name: b}], links: [[a, b]]}}"
    with pytest.raises(AssumptionError, match="bare: it has no publishers"):
        predict_reliability(build(parse_text(empty)))
    apart = STAR.replace("CLIENTS", "").replace("home: z, topics: [t]", "home: z, topics: [u]")
    apart = apart.replace("home: y, topics: [t]}\n", "home: y, topics: [u]}\n")
    with pytest.raises(AssumptionError, match="no publisher publishes"):
        predict_reliability(build(parse_text(apart)))
    with pytest.raises(ConfigurationError, match="there is no scheme 'bypas'"):
        predict_reliability(star(), ["bypas"])
    with pytest.raises(ConfigurationError, match="quantile"):
        predict_reliability(star(), quantiles=[1.0])
    with pytest.raises(ConfigurationError, match="unknown connection"):
        predict_reliability(star(), connection="guess")  # type: ignore[arg-type]
