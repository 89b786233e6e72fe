"""Whole scenarios: accounts, intervals, seeds, policies, and what is refused."""

from __future__ import annotations

import math

import pytest

from surecast.errors import AssumptionError, ConfigurationError
from surecast.report import QoSReport, check_accounts
from surecast.scenario import System, build, parse_text
from surecast.scenario.mechanism import Mechanism
from surecast.simulation.dropping import simulate_dropping, simulate_dropping_until

HYBRID = Mechanism(
    join_probability=0.6, buffer_size=15, lifetime_s=25.0, lifetime_distribution="exponential", input_buffer_size=3
)
MECHANISMS = {
    "none": Mechanism(),
    "probabilistic": Mechanism(join_probability=0.4),
    "expiry": Mechanism(lifetime_s=20.0),
    "finite-buffer": Mechanism(buffer_size=12),
    "optimal": Mechanism(join_table=((1.0, 0.5, 0.0), (1.0, 1.0, 0.9))),
    "hybrid": HYBRID,
}
TIMES = {"runs": 4, "duration_s": 2000.0, "warm_up_s": 100.0}


def scenario(extra: str = "", dropping: str = "{policy: none}", capacity: str = "16/s") -> System:
    text = f"""
surecast: 1
name: queues
overlay: {{brokers: [{{name: b, capacity: {capacity}}}, {{name: c}}], links: [[b, c]]}}
workload:
  topics: [t, u, v, w]
  deadline: 30s
  publishers:
    - {{name: p, home: b, topics: [t], rate: 2/s}}
    - {{name: q, home: b, topics: [t, u, v], rate: 3/s}}
  subscribers:
    - {{name: s, home: b, topics: [t], connectivity: {{on: 20s, off: 15s}}, service: 8/s}}
    - {{name: always, home: b, topics: [u]}}
    - {{name: nobody, home: c, topics: [w], connectivity: {{on: 20s, off: 15s}}}}
    {extra}
delivery: {{dropping: {dropping}}}
targets: {{response_time: 7s}}
"""
    return build(parse_text(text))


@pytest.fixture(scope="module")
def report() -> QoSReport:
    return simulate_dropping(scenario(), mechanisms=MECHANISMS, seed=1, **TIMES)


def test_the_accounts_balance_exactly(report: QoSReport) -> None:
    assert check_accounts(report, tolerance=1e-12) == []
    assert report.variants == tuple(MECHANISMS)
    for variant in MECHANISMS:
        counts = {
            (figure.metric, figure.detail): figure.value
            for figure in report.figures(name="s", variant=variant)
            if figure.metric.startswith("count_") and (figure.metric != "count_dropped" or figure.detail)
        }
        published = counts.pop(("count_published", ""))
        assert published == sum(counts.values())
        assert published == report.figure("count_published", name="s", variant="none").value


def test_reasons_are_those_of_the_mechanism(report: QoSReport) -> None:
    reasons = {
        variant: {f.detail for f in report.figures(name="s", variant=variant, metric="count_dropped")}
        for variant in MECHANISMS
    }
    both = [
        f"{why} while {state}"
        for why in ("rejected", "buffer full", "expired")
        for state in ("disconnected", "connected")
    ]
    rejected, full, expired = both[:2], both[2:4], [*both[4:], "expired in input queue"]
    assert reasons == {
        "none": {""},
        "probabilistic": {"", rejected[0]},
        "expiry": {"", *expired},
        "finite-buffer": {"", *full},
        "optimal": {"", *rejected},
        "hybrid": {"", rejected[0], *full, *expired, "input queue full"},
    }


def test_failures_while_connected_are_what_is_dropped_of_what_meets_the_subscriber(report: QoSReport) -> None:
    """dropping Fig. 7."""
    for variant, possible in (("none", False), ("probabilistic", False), ("finite-buffer", True), ("expiry", True)):
        failed = report.figure("failed_connected_share", name="s", variant=variant).value
        assert (failed > 0.0) == possible
    # a buffer loses events on arrival only, so that the share times those that arrive while connected is the reason's
    figure = report.figure("failed_connected_share", name="s", variant="finite-buffer")
    lost = report.figure("count_dropped", name="s", variant="finite-buffer", detail="buffer full while connected")
    assert figure.samples is not None
    assert figure.value * figure.samples == pytest.approx(lost.value)
    assert figure.samples / lost.value > 1.0


def test_targets_and_parameters(report: QoSReport) -> None:
    for variant, mechanism in MECHANISMS.items():
        delay = report.figure("delay_mean_s", name="s", variant=variant)
        met = report.figure("targets_met_share", name="s", variant=variant)
        assert (met.value, met.low, met.high) == tuple(float(v <= 7.0) for v in (delay.value, delay.high, delay.low))
        both = report.figure("targets_met_share", scope="system", variant=variant)
        assert both.value == met.value  # who is always connected has no part in it
        for metric, value in (("buffer_size", mechanism.buffer_size), ("event_lifetime_s", mechanism.lifetime_s)):
            shown = [f.value for f in report.figures(metric=metric, name="s", variant=variant)]
            assert shown == ([] if value is None or math.isinf(value) else [value])


def test_rates_follow_topics_and_publishers(report: QoSReport) -> None:
    # p sends all of its 2/s to t; q sends a third of its 3/s to each of its topics.
    duration = TIMES["runs"] * TIMES["duration_s"]
    for name, rate in (("s", 3.0), ("always", 1.0)):
        published = report.figure("count_published", name=name, variant="none").value
        assert abs(published - rate * duration) < 4 * math.sqrt(rate * duration)
    always = report.figure("response_mean_s", name="always", variant="none")
    assert always.value == 0.0
    assert not list(report.figures(name="nobody"))
    assert any("1 subscribers have no matching publisher" in note for note in report.info.notes)


def test_input_queue_is_that_of_all_published_events(report: QoSReport) -> None:
    """Events that nobody asked for use it too: 5/s into 16/s (dropping Eq. 1)."""
    delay = report.figure("delay_mean_s", scope="broker", name="b", variant="none")
    assert delay.low < 1 / 11 < delay.high
    rate = report.figure("rate_in_per_s", scope="broker", name="b", variant="none")
    assert rate.low < 5.0 < rate.high
    # with a bounded input queue, what is turned away is not counted
    assert not list(report.figures(metric="rate_in_per_s", scope="broker", variant="hybrid"))
    busy = report.figure("utilisation", scope="broker", name="b", variant="none")
    assert busy.low < 5 / 16 < busy.high
    length = report.figure("queue_length_mean", scope="broker", name="b", variant="none")
    assert length.value == pytest.approx(5 / 11, rel=0.05)
    end_to_end = report.figure("delay_mean_s", name="always", variant="none").value
    assert end_to_end == pytest.approx(delay.value, rel=0.05)


def test_late_is_what_takes_longer_than_the_deadline(report: QoSReport) -> None:
    late = report.figure("share_late", name="s", variant="none").value
    assert 0.01 < late < 0.9
    assert report.figure("share_late", name="s", variant="expiry").value == 0
    assert report.figure("delay_quantile_s", name="s", variant="expiry", detail="p99").value < 20


def test_same_seed_same_report_whatever_the_workers(report: QoSReport) -> None:
    again = simulate_dropping(scenario(), mechanisms=MECHANISMS, seed=1, workers=2, **TIMES)
    assert [str(figure) for figure in again] == [str(figure) for figure in report]
    other = simulate_dropping(scenario(), mechanisms=MECHANISMS, seed=2, **TIMES)
    assert [str(figure) for figure in other] != [str(figure) for figure in report]


def test_another_subscriber_or_policy_changes_nothing_for_those_there(report: QoSReport) -> None:
    more = "- {name: another, home: b, topics: [t], connectivity: {on: 2s, off: 5s}, service: 9/s}"
    chosen = {"finite-buffer": MECHANISMS["finite-buffer"]}
    larger = simulate_dropping(scenario(more), mechanisms=chosen, seed=1, **TIMES)
    before = [str(f) for f in report.figures(name="s", variant="finite-buffer")]
    assert [str(f) for f in larger.figures(name="s", variant="finite-buffer")] == before


def test_runs_are_added_until_the_figures_are_known_well_enough() -> None:
    report = simulate_dropping_until(
        scenario(), ["none"], relative_half_width=0.05, duration_s=5000, warm_up_s=100, seed=3, min_runs=3
    )
    response = report.figure("response_mean_s", name="s")
    assert (response.high - response.low) / 2 <= 0.05 * response.value
    assert all("not modelled" in warning for warning in report.info.warnings)
    short = simulate_dropping_until(
        scenario(), ["none"], relative_half_width=0.001, duration_s=100, seed=3, min_runs=2, max_runs=3
    )
    assert any("after 3 runs the figures are known to" in warning for warning in short.info.warnings)


def test_connected_periods_can_be_given() -> None:
    traces = {"s": [(0.0, 500.0), (600.0, 1100.0)]}
    report = simulate_dropping(
        scenario(), mechanisms={"all or nothing": Mechanism(join_probability=0.0)}, traces=traces, seed=1, runs=4,
        duration_s=1200.0,
    )  # fmt: skip
    # Of 1200 s it is away for 200 s, and what arrives then is dropped.
    assert report.figure("success_share", name="s").value == pytest.approx(1000 / 1200, abs=0.02)
    with pytest.raises(ConfigurationError, match="connected periods must be"):
        simulate_dropping(scenario(), ["none"], traces={"s": [(5.0, 1.0)]}, seed=1, **TIMES)
    with pytest.raises(ConfigurationError, match="no subscriber 'x'"):
        simulate_dropping(scenario(), ["none"], traces={"x": []}, seed=1, **TIMES)


def test_what_never_gets_through_is_queued() -> None:
    traces = {"s": [(0.0, 50.0)]}
    report = simulate_dropping(scenario(), ["none"], traces=traces, seed=1, runs=2, duration_s=100.0)
    assert report.figure("share_queued", name="s").value == pytest.approx(0.5, abs=0.1)
    assert check_accounts(report, tolerance=1e-12) == []


def test_parameters_come_from_the_scenario_where_it_has_them() -> None:
    given = scenario(dropping="{policy: probabilistic, join_probability: 0.4}")
    report = simulate_dropping(given, seed=1, **TIMES)
    assert report.variants == ("probabilistic",)
    same = simulate_dropping(given, ["probabilistic"], mechanisms=MECHANISMS, seed=1, **TIMES)
    assert [str(f) for f in same] == [str(f) for f in report]
    each = {"probabilistic": {"s": MECHANISMS["probabilistic"]}}
    other = simulate_dropping(given, mechanisms=each, seed=1, **TIMES)
    assert [str(f) for f in other.figures(name="s")] == [str(f) for f in report.figures(name="s")]


@pytest.mark.parametrize(
    ("system", "options", "error", "message"),
    [
        (
            scenario(),
            {"policies": ["expiry"]},
            ConfigurationError,
            "parameters of policy 'expiry' are not in the scenario",
        ),
        (
            scenario(dropping="{policy: expiry, lifetime: auto}"),
            {},
            ConfigurationError,
            "give them as mechanisms={'expiry': Mechanism",
        ),
        (scenario(), {"policies": "none"}, ConfigurationError, r"write a list, such as \['none'\]"),
        (scenario(), {"policies": ["none", "none"]}, ConfigurationError, "each only once"),
        (scenario(), {"runs": 0}, ConfigurationError, "runs: 0 must be 1 or more"),
        (scenario(), {"duration_s": 0.0}, ConfigurationError, "duration_s: 0.0 must be above 0"),
        (scenario(), {"quantiles": [1.5]}, ConfigurationError, "quantiles: 1.5 is not between"),
        (
            scenario(),
            {"mechanisms": {"x": {"always": Mechanism()}}},
            ConfigurationError,
            "x: there is none for subscriber s",
        ),
        (
            scenario(),
            {"mechanisms": {"x": {"s": Mechanism(), "always": Mechanism(input_buffer_size=3)}}},
            ConfigurationError,
            "subscriber always has another input_buffer_size",
        ),
        (scenario(capacity="4/s"), {}, AssumptionError, "broker b is overloaded: 5 events/s arrive"),
        (
            scenario("- {name: slow, home: b, topics: [t], connectivity: {on: 1s, off: 1s}, service: 4/s}"),
            {},
            AssumptionError,
            "subscriber slow under policy none: the queue would grow for ever",
        ),
        (
            scenario("- {name: far, home: c, topics: [t]}"),
            {},
            AssumptionError,
            "subscriber far at broker c is interested in what p publishes at broker b",
        ),
    ],
)
def test_refuses_what_it_cannot_simulate(system, options, error, message) -> None:
    with pytest.raises(error, match=message):
        simulate_dropping(system, **{"seed": 1, **TIMES, **options})


def test_refuses_a_scenario_where_nothing_flows() -> None:
    text = (
        "{surecast: 1, name: idle, overlay: {brokers: [{name: b}]}, workload: {topics: [t], subscribers: [{name: s}]}}"
    )
    with pytest.raises(AssumptionError, match="idle: no subscriber has a matching publisher"):
        simulate_dropping(build(parse_text(text)), seed=1, **TIMES)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"join_probability": 1.5}, "join_probability: 1.5"),
        ({"lifetime_s": 0.0}, "lifetime_s: 0.0 must be above 0"),
        ({"lifetime_distribution": "weibull"}, "lifetime_distribution: 'weibull'"),
        ({"buffer_size": 0}, "buffer_size: 0 must be 1 or more"),
        ({"input_buffer_size": -1}, "input_buffer_size: -1"),
        ({"join_table": ((1.0,),)}, "give two rows"),
        ({"join_table": ((1.0,), (1.5,))}, "every entry is a probability"),
        ({"join_table": ((1.0,), (1.0,)), "join_probability": 0.5}, "give one of them"),
    ],
)
def test_mechanisms_refuse_wrong_parameters(parameters, message) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Mechanism(**parameters)


def test_mechanisms_are_named_after_their_parts() -> None:
    assert HYBRID.name == "probabilistic+expiry+finite-buffer"
    assert [MECHANISMS[name].name for name in ("expiry", "optimal")] == ["expiry", "optimal"]
