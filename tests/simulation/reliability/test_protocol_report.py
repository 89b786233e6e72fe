from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest

from surecast.errors import AssumptionError, ConfigurationError
from surecast.report import check_accounts
from surecast.scenario import Streams, System, build, parse_distribution, parse_text
from surecast.scenario.system import Failures, Overlay
from surecast.simulation.experiment.host import FailureTrace
from surecast.simulation.reliability.protocol import KINDS, Options, simulate_protocol, simulate_world

IDEAL = Options(refresh_s=0.0, retransmission_s=0.0)


def line(deadline: str = "60s", more: str = "", loss: str = "0") -> System:
    """Three brokers in a line, one subscriber far, one near, one without a publisher."""
    return build(
        parse_text(f"""
surecast: 1
name: line
overlay:
  brokers: [{{name: a}}, {{name: b}}, {{name: c}}]
  links:
    - {{between: [a, b], loss: {loss}}}
    - {{between: [b, c], loss: {loss}}}
availability:
  brokers: {{mtbf: 900s, mttr: 100s}}
  links: {{mtbf: 450s, mttr: 50s}}
  {more}
workload:
  topics: [t, u]
  deadline: {deadline}
  publishers: [{{name: p, home: a, topics: [t], rate: 1/s}}]
  subscribers:
    - {{name: far, home: c, topics: [t]}}
    - {{name: near, home: a, topics: [t, u]}}
    - {{name: idle, home: b, topics: [u]}}
delivery: {{fault_tolerance: {{refresh: end-to-end}}}}
""")
    )


def test_reliability_of_a_static_path_is_the_product_of_availabilities() -> None:
    """reliability Eq. 3."""
    report = simulate_protocol(line(), ["periodic-subscription"], runs=8, duration_s=8_000, seed=11, options=IDEAL)
    far, near = (report.figure("reliability", name=name) for name in ("far", "near"))
    assert far.low is not None
    assert far.high is not None
    assert far.low < prod([0.9] * 5) < far.high
    assert near.low is not None
    assert near.high is not None
    assert near.low < 0.9 < near.high
    assert far.high - far.low < 0.1


def test_a_report_of_all_schemes_balances_and_leaves_out_who_has_no_publisher() -> None:
    calls: list[tuple[int, int]] = []
    report = simulate_protocol(
        line(), runs=2, duration_s=2000, seed=1, progress=lambda done, total: calls.append((done, total))
    )
    assert report.variants == ("none", "periodic-subscription", "buffering", "bypass", "bypass-buffering")
    assert calls == [(i + 1, 10) for i in range(10)]
    assert check_accounts(report) == []
    assert set(report.values("reliability", scope="subscriber", variant="bypass")) == {"far", "near"}
    for figure in report.figures(metric="messages_per_event"):
        assert figure.detail in ("", *KINDS)
    values = {variant: report.value("reliability", name="far", variant=variant) for variant in report.variants}
    assert values["none"] == 0
    assert values["buffering"] > values["periodic-subscription"] > 0
    # Without a cycle there is nothing to bypass: the schemes differ only in what a refresh takes.
    assert values["bypass"] == pytest.approx(values["periodic-subscription"], abs=0.02)


def test_reasons_of_losses() -> None:
    report = simulate_protocol(line(), runs=1, duration_s=3000, seed=2)
    reasons = {
        variant: {f.detail for f in report.figures(name="far", metric="share_dropped", variant=variant) if f.value}
        for variant in report.variants
    }
    assert reasons["periodic-subscription"] == {"home broker down", "path down", "no routing entry"}
    assert reasons["buffering"] == {"home broker down", "expired"}
    assert reasons["bypass"] <= {"home broker down", "partitioned", "no routing entry"}
    assert "partitioned" in reasons["bypass"]
    assert reasons["bypass-buffering"] == {"home broker down", "expired"}
    assert report.figure("reliability", name="far", variant="bypass").low is None, "one run has no interval"


def test_a_home_broker_that_is_down_takes_nothing() -> None:
    result = simulate_world(line(), "buffering", duration_s=3000, seed=3, options=Options(keeps_fates=True))
    changes = [(t.time_s, t.up) for t in result.transitions if (t.kind, t.name) == ("broker", "a")]
    for fate in result.fates:
        before = [up for time_s, up in changes if time_s <= fate.published_s]
        assert (fate.outcome == "home broker down") == (not before[-1] if before else False)


def test_latency_adds_up_and_makes_events_late() -> None:
    system = build(
        parse_text("""
surecast: 1
name: slow
overlay:
  brokers: [{name: a}, {name: b}, {name: c}]
  links: [{between: [a, b], latency: 2s}, {between: [b, c], latency: 3s}]
workload:
  topics: [t]
  deadline: 4s
  publishers: [{name: p, home: a, topics: [t], rate: 1/s}]
  subscribers: [{name: far, home: c, topics: [t]}, {name: middle, home: b, topics: [t]}]
""")
    )
    plain = simulate_world(system, "periodic-subscription", duration_s=100, seed=1)
    assert plain.late.tolist() == [100, 0]
    assert plain.on_time.tolist() == [0, 100]
    assert (plain.delay_sum_s / 100).tolist() == pytest.approx([5.0, 2.0])
    buffered = simulate_world(system, "buffering", duration_s=100, seed=1)
    assert buffered.lost["expired"].tolist() == [100, 0], "what has expired is not passed on"


def test_a_connection_sends_again_what_a_link_loses_so_that_it_only_comes_later() -> None:
    never = replace(line(loss="0.3"), overlay=_without_failures(line(loss="0.3").overlay))
    for scheme in ("periodic-subscription", "buffering"):
        result = simulate_world(never, scheme, duration_s=500, seed=1, options=IDEAL)
        assert result.on_time[0] == result.published[0]
        assert 0.1 < result.delay_sum_s[0] / result.on_time[0] < 1.0, "0.2 s for each of 0.43 losses, on two links"
    system = line(deadline="inf", loss="0.3")
    options = Options(heal_at_s=500.0, drain_s=1000.0)
    result = simulate_world(system, "buffering", duration_s=500, seed=1, options=options)
    assert result.on_time[0] + result.lost["home broker down"][0] == result.published[0]


def _without_failures(overlay: Overlay) -> Overlay:
    return replace(
        overlay,
        brokers=tuple(replace(broker, failures=None) for broker in overlay.brokers),
        links=tuple(replace(link, failures=None) for link in overlay.links),
    )


def test_subscribers_may_be_simulated_one_by_one() -> None:
    merged = simulate_world(line(), "bypass", duration_s=2000, seed=1, options=IDEAL)
    single = simulate_world(
        line(), "bypass", duration_s=2000, seed=1, options=Options(0.0, 0.0, merges_subscribers=False)
    )
    assert merged.on_time.tolist() == single.on_time.tolist()
    assert [target.subscriber for target in single.targets] == ["far", "near", "near", "idle"]


def test_slow_detection_costs_events() -> None:
    system = build(
        parse_text("""
surecast: 1
name: triangle
overlay: {brokers: [{name: a}, {name: b}, {name: c}], links: [[a, b], [b, c], [a, c]], topic_trees: {root: a}}
availability: {links: {mtbf: 90s, mttr: 10s}}
workload:
  topics: [t]
  publishers: [{name: p, home: a, topics: [t], rate: 1/s}]
  subscribers: [{name: s, home: c, topics: [t]}]
""")
    )
    quick, slow = (
        simulate_world(system, "bypass", duration_s=3000, seed=1, options=Options(refresh_s=0.0, detection_s=delay_s))
        for delay_s in (0.0, 4.0)
    )
    assert quick.lost["path down"].sum() == 0
    assert slow.lost["path down"].sum() > 0
    assert slow.on_time.sum() < quick.on_time.sum()


def test_what_cannot_be_simulated_is_refused() -> None:
    with pytest.raises(AssumptionError, match="clients"):
        simulate_world(line(more="clients: {mtbf: 1h, mttr: 1min}"), "bypass", duration_s=10, seed=1)
    with pytest.raises(ConfigurationError, match="there is no scheme 'magic'"):
        simulate_world(line(), "magic", duration_s=10, seed=1)
    with pytest.raises(ConfigurationError, match="observes nothing"):
        simulate_world(line(), "bypass", duration_s=10, seed=1, warm_up_s=10)
    with pytest.raises(ConfigurationError, match="runs: 0 must be 1 or more"):
        simulate_protocol(line(), ["bypass"], runs=0, duration_s=10, seed=1)


@pytest.mark.parametrize("law", ["exponential", "deterministic", "lognormal"])
def test_failures_start_in_their_stationary_state(law: str) -> None:
    """The probability of being up is the availability, at the start and at any time after it."""
    shape = parse_distribution({"distribution": law, **({"cv": 1.5} if law == "lognormal" else {})})
    failures = Failures(shape.with_mean(70.0), shape.with_mean(30.0))
    traces = [FailureTrace(failures, Streams(1).generator("failures", str(i))) for i in range(3000)]
    up = np.zeros((len(traces), 3), dtype=bool)
    for row, trace in enumerate(traces):
        state, changes = trace.starts_up, iter(trace)
        change_s = next(changes)
        for column, time_s in enumerate((0.0, 10.0, 55.0)):
            while change_s <= time_s:
                state, change_s = not state, next(changes)
            up[row, column] = state
    assert up.mean(axis=0) == pytest.approx([0.7, 0.7, 0.7], abs=0.03)
