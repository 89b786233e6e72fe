"""The capacity report: special cases by hand, overload, headroom, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from surecast.errors import AssumptionError, ConfigurationError
from surecast.prediction.capacity import ALGORITHMS, predict_capacity
from surecast.report import QoSReport
from surecast.scenario import System, build, load_system, parse_text

COMPANY = load_system(Path(__file__).parents[2] / "examples" / "company.yaml")[1]

CHAIN = """
surecast: 1
name: chain
overlay:
  brokers: [{name: a, capacity: 100/s}, {name: b, capacity: 50/s}, {name: c, capacity: 80/s}]
  links: [{between: [a, b], latency: 10ms}, {between: [b, c], latency: 20ms}]
  root: a
workload:
  classes: [{name: k}]
  clients: [{name: x, home: a}, {name: y, home: b}, {name: z, home: c}]
  subscriptions: {active: 3, lifetime: 100s}
  publications: 5/s
"""


def with_rates(system: System, publications: list[list[float]], subscriptions: list[list[float]]) -> System:
    """The same system with these rates, one row per class and one column per client."""
    workload = replace(
        system.class_workload,
        publication_rate_per_s=np.array(publications),
        subscription_rate_per_s=np.array(subscriptions),
    )
    return replace(system, class_workload=workload)


def scaled(system: System, factor: float) -> System:
    workload = system.class_workload
    return with_rates(system, factor * workload.publication_rate_per_s, factor * workload.subscription_rate_per_s)


def chain() -> System:
    """Publications at a (1/s) and c (4/s); on average 2 subscriptions at b and 1 at c."""
    return with_rates(build(parse_text(CHAIN)), [[1.0, 0.0, 4.0]], [[0.0, 0.02, 0.01]])


def worst_utilisation(report: QoSReport, variant: str) -> float:
    return max(f.value for f in report.figures(metric="utilisation", variant=variant))


def test_one_broker_is_an_mm1_queue() -> None:
    # capacity Eqs. 28-31, 41, 44: with rate 60/s and 80/s served, W = rho / (mu - lambda)
    text = """
    surecast: 1
    name: alone
    overlay: {brokers: [{name: a, capacity: 80/s}]}
    workload:
      classes: [{name: k, count: 7}]
      clients: [{name: x, home: a}]
      subscriptions: {rate: 10/s, lifetime: 10s}
      publications: 40/s
    """
    report = predict_capacity(build(parse_text(text)))
    for algorithm in ALGORITHMS:
        assert report.value("rate_in_per_s", name="a", variant=algorithm) == pytest.approx(60.0)
        assert report.value("utilisation", name="a", variant=algorithm) == pytest.approx(0.75)
        assert report.value("waiting_mean_s", name="a", variant=algorithm) == pytest.approx(0.75 / 20.0)
        assert report.value("notification_delay_worst_s", variant=algorithm) == pytest.approx(1 / 20.0)
        assert report.value("subscription_delay_worst_s", variant=algorithm) == pytest.approx(1 / 20.0)
        assert report.value("headroom_factor", variant=algorithm) == pytest.approx(80 / 60)
        assert report.value("message_rate_per_s", variant=algorithm) == 0.0
        assert report.value("table_entries", name="a", detail="local", variant=algorithm) == pytest.approx(100.0)


def test_service_times_enter_by_two_moments() -> None:
    # capacity Eq. 29: deterministic service halves the waiting time
    fixed = build(parse_text(CHAIN.replace("capacity: 50/s", "capacity: 50/s, service: deterministic")))
    fixed = with_rates(fixed, [[1.0, 0.0, 4.0]], [[0.0, 0.02, 0.01]])
    waiting = [predict_capacity(s, ["flooding"]).value("waiting_mean_s", name="b") for s in (chain(), fixed)]
    assert waiting[1] == pytest.approx(waiting[0] / 2)


def test_flooding_by_hand() -> None:
    # Every notification passes both links once; subscriptions stay at home (capacity Eqs. 9-12, 17-20).
    report = predict_capacity(chain(), ["flooding"])
    assert report.value("message_rate_per_s", detail="notification") == pytest.approx(10.0)
    assert report.value("message_rate_per_s", detail="control") == 0.0
    assert report.values("table_entries", scope="broker", detail="remote") == {"a": 0.0, "b": 0.0, "c": 0.0}
    delay_s = {}
    for name, rate, capacity in (("a", 5.0, 100.0), ("b", 5.0 + 0.04, 50.0), ("c", 5.0 + 0.02, 80.0)):
        assert report.value("rate_in_per_s", name=name) == pytest.approx(rate)
        delay_s[name] = 1 / (capacity - rate)
    assert report.value("notification_delay_worst_s") == pytest.approx(0.03 + sum(delay_s.values()))
    assert report.value("subscription_delay_worst_s") == pytest.approx(max(delay_s["b"], delay_s["c"]))


def test_simple_routing_by_hand() -> None:
    # Each subscription and each revocation passes both links; every broker knows all subscriptions elsewhere.
    report = predict_capacity(chain(), ["peer-to-peer simple"])
    assert report.value("message_rate_per_s", detail="control") == pytest.approx(2 * 0.03 * 2)
    assert report.values("table_entries", scope="broker", detail="remote") == pytest.approx({"a": 3, "b": 1, "c": 2})


def test_a_hierarchical_chain_by_hand() -> None:
    # capacity section 3.8 with identity routing, root a: 3 subscriptions behind a-b, 1 behind b-c
    report = predict_capacity(chain(), ["hierarchical identity"])
    some_b, some_c = 1 - math.exp(-3), 1 - math.exp(-1)
    down_b, down_c = 1.0 * some_b, 1.0 * some_c  # what a publishes, where wanted
    up_b, up_c = 2 * 0.03 * math.exp(-3), 2 * 0.01 * math.exp(-1)  # control
    traffic = {
        ("a--b", "forward"): down_b,
        ("a--b", "backward"): 4.0 + up_b,
        ("b--c", "forward"): down_c,
        ("b--c", "backward"): 4.0 + up_c,
    }
    for (link, way), rate in traffic.items():
        assert report.value("traffic_per_s", name=link, detail=way) == pytest.approx(rate)
    remote = {"a": some_b, "b": some_c, "c": 0.0}
    assert report.values("table_entries", scope="broker", detail="remote") == pytest.approx(remote)
    rates = {"a": 1 + 4 + up_b, "b": 0.04 + down_b + 4 + up_c, "c": 4 + 0.02 + down_c}
    assert report.values("rate_in_per_s", scope="broker") == pytest.approx(rates)
    delays = [1 / (100 - rates["a"]), 1 / (50 - rates["b"]), 1 / (80 - rates["c"])]
    assert report.value("notification_delay_worst_s") == pytest.approx(0.03 + sum(delays))
    assert report.value("subscription_delay_worst_s") == pytest.approx(0.03 + sum(delays))


def test_a_first_hop_nobody_wants_is_no_path() -> None:
    # capacity Eqs. 41, 44 with the filter on the first hop too: c publishes and only c subscribes
    system = with_rates(build(parse_text(CHAIN)), [[0.0, 0.0, 4.0]], [[0.0, 0.0, 0.01]])
    report = predict_capacity(system, ["peer-to-peer covering"])
    assert report.value("notification_delay_worst_s") == pytest.approx(1 / (80 - 4.02))
    assert report.value("subscription_delay_worst_s") > 0.03


def test_a_rare_path_is_a_path() -> None:
    # capacity Eq. 43: exp(-2000) is above 0, though not as a double
    system = with_rates(build(parse_text(CHAIN)), [[0.0, 0.0, 0.0]], [[0.0, 0.0, 20.0]])
    report = predict_capacity(system, ["peer-to-peer identity"])
    assert report.value("traffic_per_s", name="b--c") == 0.0
    assert report.value("subscription_delay_worst_s") == pytest.approx(0.03 + 1 / 100 + 1 / 50 + 1 / 40)


def test_targets_are_met_or_not() -> None:
    # Flooding takes 30 ms on the links and 10.5, 22.2 and 13.3 ms at the brokers; b is busy a tenth of the time.
    system = chain()
    targets = system.targets.model_copy(update={"notification_delay": 0.08, "utilisation": 0.1})
    report = predict_capacity(replace(system, targets=targets), ["flooding"])
    assert report.value("targets_met_share") == 0.5
    overloaded = predict_capacity(replace(scaled(system, 12.0), targets=targets), ["flooding"])
    assert overloaded.value("targets_met_share") == 0.0


@pytest.mark.parametrize("routing", ["covering", "merging"])
def test_random_subscriptions_pass_as_many_links(routing: str) -> None:
    # capacity Eq. 17 without a product over hops: who is not passed on once is not passed on later either. New
    # subscriptions at c on the chain c - b - a, where c has 1 other subscription on average and b has 2.
    rng = np.random.default_rng(17)
    passed = 0
    runs = 40_000
    for at_c, at_b in zip(rng.poisson(1.0, runs), rng.poisson(2.0, runs), strict=True):
        new, known = np.sort(rng.random(2)), np.sort(rng.random((at_c + at_b, 2)), axis=1)
        for others in (known[:at_c], known):
            if routing == "covering":
                stopped = ((others[:, 0] <= new[0]) & (new[1] <= others[:, 1])).any()
            else:
                stopped = len(others) > 0 and others[:, 0].min() <= new[0] and new[1] <= others[:, 1].max()
            if stopped:
                break
            passed += 1
    system = with_rates(build(parse_text(CHAIN)), [[0.0, 0.0, 0.0]], [[0.0, 0.02, 0.01]])
    report = predict_capacity(system, [f"hierarchical {routing}"])
    # Of the messages on a--b, those of c's subscriptions are a third.
    rate = report.value("traffic_per_s", name="b--c") + report.value("traffic_per_s", name="a--b") / 3
    assert passed / runs == pytest.approx(rate / (2 * 0.01), abs=5 * 0.9 / math.sqrt(runs))


def test_no_publications_have_no_delay_figure() -> None:
    system = with_rates(build(parse_text(CHAIN)), [[0.0, 0.0, 0.0]], [[0.0, 0.0, 0.01]])
    report = predict_capacity(system, ["flooding"])
    assert not report.figures(metric="notification_delay_worst_s")
    assert not report.figures(metric="delay_mean_s")


def test_overload_is_an_answer() -> None:
    report = predict_capacity(scaled(chain(), 12.0), ["flooding"])
    (warning,) = report.info.warnings
    assert warning == "flooding: overloaded, so there are no delays: broker b (utilisation 1.21)"
    delays = [f for f in report if f.metric.endswith("_s") and not f.metric.endswith("_per_s")]
    assert not delays
    assert report.value("headroom_factor") == pytest.approx(50 / 5.04 / 12)


def test_utilisation_of_exactly_one_is_overload() -> None:
    system = with_rates(build(parse_text(CHAIN)), [[50.0, 0.0, 0.0]], [[0.0, 0.0, 0.0]])
    report = predict_capacity(system, ["flooding"])
    assert report.value("utilisation", name="b") == 1.0
    assert "broker b (utilisation 1)" in report.info.warnings[0]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("system", [COMPANY, chain(), scaled(chain(), 12.0)], ids=["company", "chain", "overloaded"])
def test_at_the_headroom_factor_the_first_component_saturates(system: System, algorithm: str) -> None:
    report = predict_capacity(system, [algorithm])
    factor = report.value("headroom_factor")
    assert (factor <= 1) == any("overloaded" in text for text in report.info.warnings)
    at = predict_capacity(scaled(system, factor), [algorithm])
    assert worst_utilisation(at, algorithm) == pytest.approx(1.0, abs=1e-9)
    below = predict_capacity(scaled(system, 0.99 * factor), [algorithm])
    assert worst_utilisation(below, algorithm) < 1.0


def test_headroom_is_the_saturation_nearest_to_the_load() -> None:
    # Identity routing: b gets 2 s e^(-4s) control messages per second, most at s = 1/4, where a slow b saturates.
    text = """
    surecast: 1
    name: two
    overlay: {brokers: [{name: a, capacity: 100/s}, {name: b, capacity: 0.15/s}], links: [[a, b]]}
    workload:
      classes: [{name: k}]
      clients: [{name: x, home: a}]
      subscriptions: {active: 4, lifetime: 4s}
      publications: 0.000001/s
    """
    system = build(parse_text(text))
    now = predict_capacity(system, ["peer-to-peer identity"])
    assert now.value("utilisation", name="b") == pytest.approx(2 * math.exp(-4) / 0.15, rel=1e-4)
    assert now.value("headroom_factor") == pytest.approx(50.0, rel=1e-4)
    less = predict_capacity(scaled(system, 0.25), ["peer-to-peer identity"])
    assert less.value("utilisation", name="b") > 1.0
    assert 0.0 < less.value("headroom_factor") < 1.0


def test_without_service_times_nothing_saturates() -> None:
    text = CHAIN.replace(", capacity: 100/s", "").replace(", capacity: 50/s", "").replace(", capacity: 80/s", "")
    report = predict_capacity(with_rates(build(parse_text(text)), [[1.0, 0.0, 4.0]], [[0.0, 0.02, 0.01]]))
    assert not report.figures(metric="headroom_factor")
    assert not report.figures(metric="utilisation")
    assert any("no component ever saturates" in note for note in report.info.notes)
    assert report.value("notification_delay_worst_s", variant="flooding") == pytest.approx(0.03)


def test_few_classes_near_saturation_are_warned_about() -> None:
    # One class, wanted by somebody about half of the time: the mean rate hides that all or nothing passes.
    system = with_rates(build(parse_text(CHAIN)), [[60.0, 0.0, 0.0]], [[0.0, 0.0, 0.007]])
    report = predict_capacity(system, ["peer-to-peer identity"])
    assert any("underestimated" in text and "broker b" in text for text in report.info.warnings)
    assert not any("underestimated" in text for text in predict_capacity(COMPANY).info.warnings)


def test_grouping_equal_classes_changes_nothing() -> None:
    workload = COMPANY.class_workload
    nudge = 1.0 + 1e-12 * np.arange(len(workload.classes))[:, None]
    apart = with_rates(COMPANY, workload.publication_rate_per_s * nudge, workload.subscription_rate_per_s * nudge)
    grouped, each = predict_capacity(COMPANY), predict_capacity(apart)
    assert len(grouped) == len(each)
    for one, other in zip(grouped, each, strict=True):
        assert one.where() == other.where()
        assert one.value == pytest.approx(other.value, rel=1e-6, abs=1e-30)


def test_the_company_is_predicted_for_every_algorithm() -> None:
    assert predict_capacity(COMPANY).variants == ALGORITHMS


def test_what_is_sent_is_what_is_passed() -> None:
    # capacity Eqs. 11, 19, 22, 25: message rates are the traffic of the links; what brokers get is that and their own
    report = predict_capacity(COMPANY)
    for algorithm in ALGORITHMS:
        total = report.value("message_rate_per_s", variant=algorithm)
        traffic = report.values("traffic_per_s", scope="overlay_link", variant=algorithm)
        assert sum(traffic.values()) == pytest.approx(total)
        arrived = report.values("rate_in_per_s", scope="broker", variant=algorithm)
        assert sum(arrived.values()) == pytest.approx(total + 500 + 2 * 50_000 / 60)


def test_cycles_are_refused_by_name() -> None:
    ring = build(parse_text(CHAIN.replace("latency: 20ms}]", "latency: 20ms}, {between: [a, c]}]")))
    with pytest.raises(AssumptionError, match=r"cycle a - b - c - a; .* needs an acyclic overlay"):
        predict_capacity(ring)
    overlay = chain().overlay
    double = replace(overlay, links=(*overlay.links, replace(overlay.links[0], name="second")))
    with pytest.raises(AssumptionError, match="several links between a and b"):
        predict_capacity(replace(chain(), overlay=double))
    parts = replace(overlay, links=overlay.links[:1])
    with pytest.raises(AssumptionError, match="several parts"):
        predict_capacity(replace(chain(), overlay=parts))


def test_what_has_no_classes_is_refused() -> None:
    with pytest.raises(AssumptionError, match=r"chain has no filter classes.*workload\.classes"):
        predict_capacity(replace(chain(), class_workload=None))


def test_unknown_algorithms_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"'covering'; there are: flooding, peer-to-peer simple"):
        predict_capacity(chain(), ["covering"])


def test_the_report_says_what_is_exact() -> None:
    for figure in predict_capacity(COMPANY):
        delay = figure.metric.endswith("_s") and not figure.metric.endswith("_per_s")
        assert figure.how == ("approximation" if delay else "exact")
