"""The composed prediction: each part switched off leaves the model of the rest, and the accounts balance."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from surecast.errors import AssumptionError, ConfigurationError, ScenarioError
from surecast.prediction import predict_dropping, predict_reliability
from surecast.prediction.composed import COMPOSED_SCHEMES, composed_mechanisms, composes, parts_of, predict_composed
from surecast.prediction.composed.event_delay import EventDelay, Passage, Waits, interrupted
from surecast.prediction.dropping import evaluate, find_mechanisms
from surecast.prediction.dropping.queue import OnOffQueue
from surecast.prediction.dropping.response_distributions import ExponentialSum, TransformLaw
from surecast.prediction.replication import predict_open
from surecast.report import QoSReport, check_accounts
from surecast.scenario import System, build, parse_text
from surecast.scenario.group import group_of
from surecast.scenario.mechanism import Mechanism
from surecast.scenario.saturation import broker_rates_per_s

FAILS = "availability: {brokers: {availability: 0.93, period: 900s}, links: {availability: 0.98, period: 500s}}"
ON_OFF = "connectivity: {on: 20s, off: 10s}, service: 10/s"


def system_of(
    *,
    fails: str = "",
    capacity: str = "",
    on_off: str = "",
    delivery: str = "",
    deadline: str = "45s",
    brokers: int = 3,
) -> System:
    """A line of brokers with two publishers at its ends and two subscribers."""
    names = "abcdef"[:brokers]
    capacities = f", capacity: {capacity}, service: exponential" if capacity else ""
    links = f"links: [{', '.join(f'[{x}, {y}]' for x, y in pairwise(names))}]" if brokers > 1 else ""
    extra = f", {on_off}" if on_off else ""
    return build(
        parse_text(f"""
surecast: 1
name: line
overlay:
  brokers: [{", ".join(f"{{name: {n}{capacities}}}" for n in names)}]
  {links}
{fails}
workload:
  topics: [t, u]
  deadline: {deadline}
  publishers:
    - {{name: p, home: {names[0]}, topics: [t], rate: 2/s}}
    - {{name: q, home: {names[-1]}, topics: [u], rate: 1/s}}
  subscribers:
    - {{name: s, home: {names[-1]}, topics: [t]{extra}}}
    - {{name: r, home: {names[0]}, topics: [t, u]{extra}}}
{delivery}
""")
    )


def scheme_of(scheme: str, more: str = "") -> str:
    return f"delivery: {{fault_tolerance: {{scheme: {scheme}, retransmission_interval: 5s}}{more}}}"


@pytest.mark.parametrize("scheme", COMPOSED_SCHEMES)
def test_failures_alone_are_the_reliability_model(scheme: str) -> None:
    system = system_of(fails=FAILS, delivery=scheme_of(scheme))
    found, known = predict_composed(system, factors=False), predict_reliability(system, [scheme])
    for name in ("s", "r"):
        for metric in ("reliability", "share_on_time"):
            expected = known.value(metric, name=name, variant=scheme)
            assert found.value(metric, name=name, variant="composed") == pytest.approx(expected, rel=1e-9, abs=1e-12)
        if scheme != "none":
            expected = known.value("delay_mean_s", name=name, variant=scheme)
            assert found.value("delay_mean_s", name=name, variant="composed") == pytest.approx(expected, rel=1e-9)
        for figure in known.select(variant=scheme, name=name, metric="share_dropped"):
            if figure.value > 1e-12:
                same = found.value("share_dropped", name=name, variant="composed", detail=figure.detail)
                assert same == pytest.approx(figure.value, rel=1e-9)


def test_groups_in_place_of_brokers_are_those_of_the_reliability_model() -> None:
    delivery = scheme_of("buffering", ", replication: {replicas: 3}")
    system = system_of(fails=FAILS, delivery=delivery)
    found = predict_composed(system).value("reliability", name="s", variant="path failure alone")
    known = predict_reliability(system, ["buffering"]).value("reliability", name="s", variant="buffering")
    assert found == pytest.approx(known, rel=1e-9)


def test_a_group_stands_in_place_of_one_broker_only() -> None:
    def with_groups(brokers: str, replicas: int = 3) -> System:
        more = f", replication: {{replicas: {replicas}, {brokers}}}"
        delivery = f"delivery: {{fault_tolerance: {{scheme: periodic-subscription, refresh: link}}{more}}}"
        return system_of(fails=FAILS, capacity="20/s", delivery=delivery)

    one, every = predict_composed(with_groups("brokers: [b]")), predict_composed(with_groups("brokers: [a, b, c]"))
    assert [figure.value for figure in every] == [figure.value for figure in predict_composed(with_groups(""))]
    up, ordering = (
        {name: report.value(metric, name=name, variant="composed") for name in "abc"}
        for report, metric in ((one, "availability"), (every, "availability"))
    )
    assert up["a"] == up["c"] == pytest.approx(0.93)
    assert up["b"] == ordering["b"] > 0.98
    # two links and three brokers are up
    found = one.value("reliability", name="s", variant="path failure alone")
    assert found == pytest.approx(0.93**2 * up["b"] * 0.98**2, rel=1e-9)
    # M/M/1 at the ends, and the time to order an event between them
    rates = broker_rates_per_s(with_groups(""))
    takes_s = {name: one.value("delay_mean_s", name=name, variant="composed", scope="broker") for name in "abc"}
    assert [takes_s["a"], takes_s["c"]] == pytest.approx([1.0 / (20.0 - rates[0]), 1.0 / (20.0 - rates[2])])
    assert takes_s["b"] == every.value("delay_mean_s", name="b", variant="composed", scope="broker")
    total_s = one.value("delay_mean_s", name="s", scope="subscriber", variant="queueing alone")
    assert total_s == pytest.approx(sum(takes_s.values()))
    with pytest.raises(ScenarioError, match=r"delivery\.replication\.brokers\[0\]: there is no broker named 'z'"):
        with_groups("brokers: [z]")


def test_each_flow_has_the_scheme_of_its_topic() -> None:
    def by_topic(scheme: str, own: str = "", capacity: str = "") -> QoSReport:
        more = f", schemes: {{{own}}}" if own else ""
        tolerance = f"fault_tolerance: {{scheme: {scheme}, retransmission_interval: 5s{more}}}"
        system = system_of(fails=FAILS, capacity=capacity, delivery=f"delivery: {{{tolerance}}}")
        return predict_composed(system, factors=False)

    def reliability(report: QoSReport, name: str) -> float:
        return report.value("reliability", name=name, variant="composed")

    for scheme, other in (("buffering", "bypass"), ("bypass", "bypass-buffering")):
        alone = [by_topic(scheme), by_topic(other)]
        mixed = by_topic(scheme, f"u: {other}")
        assert check_accounts(mixed) == []
        assert reliability(mixed, "s") == pytest.approx(reliability(alone[0], "s"), rel=1e-9), "its topic is t"
        # what r gets of t is published at its own broker, so that its scheme does not matter
        assert reliability(mixed, "r") == pytest.approx(reliability(alone[1], "r"), rel=1e-9)
    # where all topics have the same scheme, it is the scheme of the system
    one, same = by_topic("buffering", capacity="9/s"), by_topic("none", "t: buffering, u: buffering", capacity="9/s")
    assert [figure.value for figure in same] == pytest.approx([figure.value for figure in one])


@pytest.mark.parametrize("policy", ["none", "probabilistic, join_probability: 0.4", "finite-buffer, buffer_size: 12"])
def test_dropping_alone_is_the_dropping_model(policy: str) -> None:
    delivery = f"delivery: {{dropping: {{policy: {policy}}}, fault_tolerance: {{refresh: link}}}}"
    system = system_of(capacity="15/s", on_off=ON_OFF, delivery=delivery)
    found, known = predict_composed(system, factors=False), predict_dropping(system)
    (variant,) = known.variants
    for name in ("s", "r"):
        for metric in ("success_share", "delay_mean_s", "response_mean_s", "throughput_per_s"):
            expected = known.value(metric, name=name, variant=variant)
            assert found.value(metric, name=name, variant="composed") == pytest.approx(expected, rel=1e-9)
        for figure in known.select(variant=variant, name=name, metric="share_dropped"):
            same = found.value("share_dropped", name=name, variant="composed", detail=figure.detail)
            assert same == pytest.approx(figure.value, rel=1e-9, abs=1e-12)


def test_a_single_broker_has_the_quantiles_of_the_dropping_model() -> None:
    system = system_of(capacity="15/s", on_off=ON_OFF, brokers=1)
    found = predict_composed(system, quantiles=(0.5, 0.99), factors=False)
    known = predict_dropping(system, quantiles=(0.5, 0.99))
    for detail in ("p50", "p99"):
        expected = known.value("delay_quantile_s", name="s", detail=detail)
        assert found.value("delay_quantile_s", name="s", variant="composed", detail=detail) == pytest.approx(expected)


def test_the_mechanisms_are_those_of_the_dropping_model() -> None:
    dropping = "dropping: {policy: probabilistic, join_probability: auto}, fault_tolerance: {refresh: link}"
    delivery = f"delivery: {{{dropping}}}\ntargets: {{response_time: 3s}}"
    system = system_of(capacity="15/s", on_off=ON_OFF, delivery=delivery)
    assert composed_mechanisms(system) == find_mechanisms(system)


def test_queueing_alone_is_a_sum_of_exponential_times() -> None:
    """Three M/M/1 queues with the same load: an Erlang time of three stages, which is a gamma time exactly."""
    system = system_of(capacity="15/s", deadline="0.4s", delivery="delivery: {fault_tolerance: {refresh: link}}")
    found = predict_composed(system, factors=False)
    free = 15.0 - 3.0
    # t passes all three brokers one way, u the other
    loads = {broker: found.value("utilisation", name=broker) for broker in "abc"}
    assert loads == pytest.approx({"a": 0.2, "b": 0.2, "c": 0.2})
    expected = quad(lambda x: free**3 * x**2 / 2 * math.exp(-free * x), 0, 0.4)[0]
    assert found.value("reliability", name="s", variant="composed") == pytest.approx(expected, rel=1e-6)
    assert found.value("delay_mean_s", name="s", variant="composed") == pytest.approx(3 / free)


def test_groups_alone_take_their_acknowledgement_time() -> None:
    system = system_of(delivery="delivery: {replication: {replicas: 3}}")
    found = predict_composed(system, factors=False)
    loads = broker_rates_per_s(system)
    times = [predict_open(group_of(system, i), loads[i]).acknowledged_mean_s for i in range(3)]
    assert found.value("delay_mean_s", name="s", variant="composed") == pytest.approx(sum(times))


@pytest.mark.parametrize("scheme", COMPOSED_SCHEMES)
@pytest.mark.parametrize("policy", ["none", "expiry, lifetime: 20s", "finite-buffer, buffer_size: 8"])
def test_the_accounts_balance_and_each_part_costs(scheme: str, policy: str) -> None:
    delivery = scheme_of(scheme, f", dropping: {{policy: {policy}}}, replication: {{replicas: 3}}")
    report = predict_composed(system_of(fails=FAILS, capacity="30/s", on_off=ON_OFF, delivery=delivery))
    assert check_accounts(report) == []
    whole = report.value("reliability", name="s", variant="composed")
    for part in ("path failure alone", "queueing alone", "dropping alone"):
        assert whole <= report.value("reliability", name="s", variant=part) + 1e-9


def test_every_independence_is_named() -> None:
    delivery = scheme_of("buffering", ", replication: {replicas: 3}")
    report = predict_composed(system_of(fails=FAILS, capacity="30/s", on_off=ON_OFF, delivery=delivery))
    text = " ".join(report.info.warnings)
    assert text.count("independent") >= 6
    assert parts_of(system_of()) == ()


def test_without_failures_the_rate_is_the_full_one_and_with_them_what_comes_while_up() -> None:
    """Two flows over different ends of a line, by enumeration of all states of brokers and links."""
    from surecast.prediction.composed.composed_model import ComposedModel

    system = system_of(fails=FAILS, on_off=ON_OFF, delivery=scheme_of("buffering"))
    model = ComposedModel(system, "periodic-subscription", "none")
    flows = np.flatnonzero(model.flows.interest == model.flows.interest_of[1])
    # r is at a: t starts there, u comes over c and b
    up = {"a": 0.93, "b": 0.93, "c": 0.93, "ab": 0.98, "bc": 0.98}
    seen = reached = 0.0
    for state in range(32):
        on = {part for i, part in enumerate(up) if state >> i & 1}
        chance = math.prod(share if part in on else 1 - share for part, share in up.items())
        rate = 2.0 * ("a" in on) + 1.0 * (len(on) == 5)
        seen += chance * rate**2
        reached += chance * rate
    ideal = model.delivery.path_up[model.delivery.flow_path]
    object.__setattr__(model.answer, "reliability", ideal)
    assert model.rate_seen(flows) == pytest.approx(seen / reached)


def test_an_interrupted_time_has_the_transform_of_the_breakdown_queue() -> None:
    queue = OnOffQueue.exponential(2.0, 8.0, 20.0, 20.0)
    law = evaluate(queue, Mechanism(join_probability=0.4)).law
    assert isinstance(law, ExponentialSum)

    def plain(s: np.ndarray) -> np.ndarray:
        return np.asarray((law.weights * law.rates / (law.rates + s[:, None])).sum(axis=1))

    mean = float(law.weights @ (1.0 / law.rates))
    by_sum = interrupted(law, 0.01, 0.05)
    by_transform = interrupted(TransformLaw(plain, mean), 0.01, 0.05)
    assert by_sum is not None
    assert by_transform is not None
    for time in (0.1, 3.0, 40.0, 200.0):
        assert by_sum.within(time) == pytest.approx(by_transform.within(time), abs=1e-7)


@settings(max_examples=25, deadline=None)
@given(st.floats(0.01, 2.0), st.floats(0.2, 3.0), st.floats(0.0, 0.5), st.floats(0.05, 5.0), st.floats(0.1, 40.0))
def test_a_delay_is_the_sum_of_its_parts(mean: float, cv: float, shift: float, response: float, time: float) -> None:
    """Against quadrature over the gamma time in the queues."""
    from scipy.stats import gamma

    passage = Passage(shift, mean, (cv * mean) ** 2)
    waits = Waits(np.array([0.0, 5.0, 10.0]), np.array([0.8, 0.15, 0.05]))
    delay = EventDelay(waits, passage, ExponentialSum(np.ones(1), np.array([1.0 / response])))
    shape, scale = 1.0 / cv**2, cv**2 * mean
    uniform = (np.arange(4000) + 0.5) / 4000
    points = shift + gamma.ppf(uniform, shape, scale=scale)
    expected = 0.0
    for wait, share in zip(waits.times_s, waits.shares, strict=True):
        left = np.maximum(time - wait - points, 0.0)
        expected += share * float(-np.expm1(-left / response).mean())
    assert delay.within(time) == pytest.approx(expected, abs=0.02)
    assert delay.roughly_within(time) == pytest.approx(delay.within(time), abs=2e-3)
    assert float(passage.points[0] @ passage.points[1]) == pytest.approx(shift + mean, rel=1e-6)


def test_what_cannot_be_composed_is_refused_or_left_out_by_name() -> None:
    system = system_of(fails=FAILS, capacity="30/s", delivery=scheme_of("buffering"))
    with pytest.raises(ConfigurationError, match="no scheme 'teleport'"):
        predict_composed(system, "teleport")
    with pytest.raises(ConfigurationError, match="policy 'lucky'"):
        predict_composed(system, policy="lucky")
    with pytest.raises(AssumptionError, match="broker a"):
        predict_composed(system_of(fails=FAILS, capacity="2.5/s"))
    slow = system_of(fails=FAILS, on_off="connectivity: {on: 20s, off: 10s}, service: 3.5/s")
    report = predict_composed(slow, factors=False)
    assert any("left out" in w and "subscriber r" in w for w in report.info.warnings)
    assert [f.name for f in report.select(metric="reliability", scope="subscriber")] == ["s"]


def test_only_systems_that_need_several_models_are_composed() -> None:
    assert composes(system_of(fails=FAILS, capacity="30/s", delivery="delivery: {replication: {replicas: 3}}"))
    assert composes(system_of(fails=FAILS, capacity="30/s"))
    assert composes(system_of(fails=FAILS, on_off=ON_OFF))
    assert composes(system_of(on_off=ON_OFF, delivery="delivery: {replication: {replicas: 3}}"))
    assert not composes(system_of(fails=FAILS))
    assert composes(system_of(capacity="30/s", on_off=ON_OFF))
    assert composes(system_of(fails=FAILS, capacity="30/s", brokers=1))
    assert composes(system_of(fails=FAILS, capacity="30/s", delivery=scheme_of("bypass")))
