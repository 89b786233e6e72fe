"""The report of groups, and groups in the place of brokers in the reliability model."""

from __future__ import annotations

from pathlib import Path

import pytest

from surecast.errors import AssumptionError
from surecast.prediction import predict_reliability
from surecast.prediction.reliability.component_chains import components_of
from surecast.prediction.replication import predict_replication
from surecast.report import QoSReport
from surecast.scenario import System, build, load_system, parse_text
from surecast.scenario.saturation import broker_rates_per_s
from surecast.simulation.replication import simulate_group_reliability, simulate_replication

EXAMPLE = Path(__file__).parents[3] / "examples" / "p2s.yaml"
LINE = """
surecast: 1
name: line
overlay: {brokers: [{name: a}, {name: b}, {name: c}], links: [[a, b], [b, c]]}
availability: {brokers: {mtbf: 4h, mttr: 1h}, links: {mtbf: 5h, mttr: 10min}}
workload:
  topics: [t, u]
  deadline: 600s
  publishers: [{name: p, home: a, topics: [t], rate: 1/min}, {name: q, home: b, topics: [u], rate: 1/10s}]
  subscribers: [{name: s, home: c, topics: [t]}]
delivery: {replication: {replicas: 3}}
"""


def line(text: str = "") -> System:
    return build(parse_text(LINE.replace("replicas: 3", "replicas: 3" + text)))


def key(report: QoSReport) -> set[tuple[str, str]]:
    return {(figure.metric, figure.detail) for figure in report}


def test_p2s_near_the_paper() -> None:
    """P2S Figure 6 and Table 1: what the fit did not see is what 24 publishers add; P2S 4.2 has 3.25 ms at 80/s."""
    for replicas, light_ms in ((1, 1.98), (3, 2.56), (5, 2.65), (7, 2.77)):
        fields = {"delivery.replication.replicas": str(replicas), "workload.publishers[0].count": "1"}
        found = predict_replication(load_system(EXAMPLE, fields)[1])
        assert found.value("acknowledgement_quantile_s", name="broker", detail="p50") == pytest.approx(
            light_ms * 1e-3, rel=0.03
        )
    busy = predict_replication(load_system(EXAMPLE, {"workload.publishers[0].rate": "3.335/s"})[1])
    assert busy.value("acknowledgement_mean_s", name="broker") == pytest.approx(3.25e-3, rel=0.1)


def test_prediction_and_simulation_have_the_same_figures() -> None:
    system = load_system(EXAMPLE)[1]
    predicted, simulated = predict_replication(system), simulate_replication(system, runs=3, duration_s=3, seed=1)
    only = {("capacity_per_s", ""), ("headroom_factor", "")}
    assert key(predicted) - key(simulated) == only
    assert key(simulated) <= key(predicted)
    assert predicted.variants == simulated.variants == ("multi, 3 replicas",)
    for metric in ("acknowledgement_mean_s", "failover_mean_s", "cpu_per_event_s"):
        figure = simulated.figure(metric, name="broker")
        assert figure.low is not None
        assert figure.high is not None
        assert figure.low <= figure.value <= figure.high
        assert predicted.value(metric, name="broker") == pytest.approx(figure.value, rel=0.15)
    assert predicted.value("availability", name="broker") == pytest.approx(
        simulated.value("availability", name="broker"), abs=4e-5
    )


def test_one_replica_has_neither_followers_nor_elections() -> None:
    found = predict_replication(load_system(EXAMPLE, {"delivery.replication.replicas": "1"})[1])
    assert ("failover_mean_s", "") not in key(found)
    assert ("cpu_per_event_s", "follower") not in key(found)
    assert found.value("availability", name="broker") == pytest.approx(30 * 24 / (30 * 24 + 4))


def test_each_group_orders_what_comes_to_it_and_passes_it() -> None:
    assert broker_rates_per_s(line()) == pytest.approx([1 / 60, 1 / 60 + 1 / 10, 1 / 60])


def test_a_rate_beyond_the_group_is_refused_with_its_broker() -> None:
    system = load_system(EXAMPLE, {"workload.publishers[0].rate": "50/s"})[1]
    with pytest.raises(AssumptionError, match="broker broker is overloaded: 1200 events/s come"):
        predict_replication(system)


def test_frequent_collisions_and_varying_service_are_warned_of() -> None:
    text = "replicas: 3, variant: fast, entry: any"
    system = build(parse_text(LINE.replace("replicas: 3", text).replace("1/10s", "1000/s")))
    assert any("entry: leader" in warning for warning in predict_replication(system).info.warnings)
    varying = load_system(EXAMPLE, {"overlay.brokers[0].service": "2ms"})[1]
    assert any("constant service times" in warning for warning in predict_replication(varying).info.warnings)


@pytest.mark.parametrize("text", ["", ", repair: single"])
def test_a_group_in_place_of_a_broker_is_as_reliable_as_its_replicas_simulated(text: str) -> None:
    system = line(text)
    predicted = predict_reliability(system)
    assert all("not modelled" in warning or "a detour" in warning for warning in predicted.info.warnings)
    simulated = simulate_group_reliability(system, runs=12, duration_s=60 * 86400, seed=3)
    for scheme in ("periodic-subscription", "buffering", "bypass", "bypass-buffering"):
        figure = simulated.figure("reliability", name="s", variant=scheme)
        assert figure.high is not None
        value = predicted.value("reliability", name="s", variant=scheme)
        assert value == pytest.approx(figure.value, abs=2 * (figure.high - figure.value))
    delay = [r.value("delay_mean_s", name="s", variant="buffering") for r in (predicted, simulated)]
    assert delay[0] == pytest.approx(delay[1], rel=0.05)


@pytest.mark.parametrize("replicas", [3, 5, 7])
def test_more_replicas_are_more_reliable(replicas: int) -> None:
    fewer, more = (
        predict_reliability(build(parse_text(LINE.replace("replicas: 3", f"replicas: {n}"))), ["bypass"])
        for n in (replicas - 2, replicas)
    )
    assert fewer.value("reliability", name="s") < more.value("reliability", name="s")


def test_large_groups_are_simplified_with_a_warning() -> None:
    text = LINE.replace("mttr: 1h}", "mttr: 1h, up: {distribution: erlang, stages: 2}}")
    system = build(parse_text(text))
    assert components_of(system).simplified == ("a", "b", "c")
    report = predict_reliability(system, ["buffering"])
    assert any("many states" in warning for warning in report.info.warnings)
    simulated = simulate_group_reliability(system, ["buffering"], runs=12, duration_s=60 * 86400, seed=3)
    assert report.value("reliability", name="s") == pytest.approx(simulated.value("reliability", name="s"), abs=0.03)


def test_groups_that_never_fail_are_never_down() -> None:
    system = build(parse_text(LINE.replace("brokers: {mtbf: 4h, mttr: 1h}, ", "")))
    assert components_of(system).brokers == (None, None, None)
    assert ("availability", "") not in key(predict_replication(system))
