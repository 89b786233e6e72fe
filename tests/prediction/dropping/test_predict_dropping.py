"""The report on a whole scenario: the broker before the queue, the parameters found, the refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from surecast.errors import AssumptionError, ConfigurationError
from surecast.prediction import POLICIES, find_mechanisms, predict_dropping
from surecast.prediction.dropping import join_probability_for, response_mean_s
from surecast.report.conservation import check_accounts
from surecast.scenario import System, build, load_system, parse_text
from surecast.scenario.mechanism import Mechanism

SCENARIO = """
surecast: 1
name: commuters
overlay: {{brokers: {brokers}}}
workload:
  topics: [a, b, unwanted]
  publishers:
    - {{name: p, home: x, topics: [a, b], rate: 2/s}}
    - {{name: q, home: x, topics: [unwanted], rate: 3/s}}
  subscribers:
    - {{name: s, home: x, topics: [a], connectivity: {{on: 20s, off: 10s}}, service: 4/s, response_target: {target}}}
    - {{name: both, home: x, topics: [a, b], connectivity: {{on: 20s, off: 10s}}, service: 4/s, response_target: 3s}}
    - {{name: fixed, home: x, topics: [a]}}
delivery: {{dropping: {dropping}}}
"""


def system_of(
    target: str = "2s",
    dropping: str = "{policy: probabilistic, join_probability: auto}",
    brokers: str = "[{name: x, capacity: 10/s}]",
) -> System:
    return build(parse_text(SCENARIO.format(target=target, dropping=dropping, brokers=brokers)))


def test_the_target_is_met_from_publication_to_delivery() -> None:
    """dropping Eq. 1: the input queue serves every event, also those that nobody wants."""
    report = predict_dropping(system_of())
    before = 1.0 / (10.0 - 5.0)
    assert report.value("delay_mean_s", name="x") == pytest.approx(before)
    assert report.value("utilisation", name="x") == pytest.approx(0.5)
    for name, rate, target in (("s", 1.0, 2.0), ("both", 2.0, 3.0)):
        join = float(join_probability_for(target - before, rate, 4.0, 20.0, 10.0).join_probability)
        assert report.value("join_probability", name=name) == pytest.approx(join)
        assert report.value("delay_mean_s", name=name) == pytest.approx(target)
        response = float(response_mean_s(rate, 4.0, 20.0, 10.0, join))
        assert report.value("response_mean_s", name=name) == pytest.approx(response)
        assert report.value("success_share", name=name) == pytest.approx((20 + 10 * join) / 30)
        assert report.value("targets_met_share", name=name) == 1.0
    assert not check_accounts(report)
    assert any("never disconnect" in note for note in report.info.notes)
    assert all(figure.how == "exact" for figure in report)


def test_every_policy_is_a_variant_and_its_losses_add_up(repository: Path) -> None:
    _, system = load_system(repository / "examples" / "dropping.yaml")
    report = predict_dropping(system, POLICIES)
    assert set(report.variants) == set(POLICIES)
    for policy in POLICIES:
        success = report.value("success_share", name="subscriber", variant=policy)
        lost = report.value("share_dropped", name="subscriber", variant=policy)
        assert success + lost == pytest.approx(1.0, abs=1e-9)
        met = report.value("targets_met_share", name="subscriber", variant=policy)
        assert met == (0.0 if policy == "none" else 1.0)
    assert not check_accounts(report)
    shares = {p: report.value("success_share", name="subscriber", variant=p) for p in POLICIES}
    # dropping Fig. 6: expiry delivers most, the buffer a little more than the join probability
    assert shares["expiry"] > shares["optimal"] > shares["finite-buffer"] > shares["probabilistic"]
    assert shares["finite-buffer"] - shares["probabilistic"] == pytest.approx(0.015, abs=0.01)


def test_parameters_that_are_given_are_kept() -> None:
    for dropping, policy, metric, value in (
        ("{policy: probabilistic, join_probability: 0.3}", "probabilistic", "join_probability", 0.3),
        ("{policy: finite-buffer, buffer_size: 5}", "finite-buffer", "buffer_size", 5.0),
        ("{policy: expiry, lifetime: 4s}", "expiry", "event_lifetime_s", 4.0),
        ("{policy: expiry, lifetime: 4s, lifetime_distribution: exponential}", "expiry", "event_lifetime_s", 4.0),
    ):
        report = predict_dropping(system_of(dropping=dropping))
        assert report.variants == (policy,)
        assert report.value(metric, name="s") == pytest.approx(value)
        assert not check_accounts(report)


def test_mechanisms_of_ones_own_and_mixtures() -> None:
    mixed = Mechanism(join_probability=0.5, buffer_size=6)
    report = predict_dropping(system_of(), {"mixed": mixed})
    assert report.variants == ("mixed",)
    assert report.value("share_dropped", name="s", detail="buffer full while connected") > 0
    found = find_mechanisms(system_of(), "finite-buffer")
    assert set(found) == {"s", "both"}
    assert found["s"].buffer_size is not None
    again = predict_dropping(system_of(), {"same": found["s"]})
    assert again.value("delay_mean_s", name="s") <= 2.0


def test_what_cannot_be_met_is_a_warning_that_names_it_and_a_refusal_if_nothing_is_left() -> None:
    report = predict_dropping(system_of(target="250ms"))
    assert any("subscriber s" in w and "0.25 s" in w and "join_probability 0" in w for w in report.info.warnings)
    assert report.value("delay_mean_s", name="both") == pytest.approx(3.0)
    assert report.value("targets_met_share") == 0.5
    both = SCENARIO.format(target="100ms", dropping="{policy: finite-buffer, buffer_size: auto}", brokers="[{name: x}]")
    with pytest.raises(AssumptionError, match=r"subscriber s: the target of 0\.1 s"):
        predict_dropping(build(parse_text(both.replace("3s}", "100ms}"))))


def test_overload_is_refused_by_the_name_of_the_component() -> None:
    with pytest.raises(AssumptionError, match="broker x is overloaded"):
        predict_dropping(system_of(brokers="[{name: x, capacity: 5/s}]"))
    slow = SCENARIO.replace("service: 4/s", "service: 1/s")
    system = build(parse_text(slow.format(target="2s", dropping="{policy: none}", brokers="[{name: x}]")))
    with pytest.raises(AssumptionError, match="none: subscriber s: its queue is unstable without dropping"):
        predict_dropping(system)
    with pytest.raises(AssumptionError, match="even if everything is dropped"):
        predict_dropping(system, ["probabilistic"])
    with pytest.raises(ConfigurationError, match="there is no policy"):
        predict_dropping(system_of(), ["sometimes"])
    plain = SCENARIO.replace("connectivity: {{on: 20s, off: 10s}}, ", "")
    steady = build(parse_text(plain.format(target="2s", dropping="{policy: none}", brokers="[{name: x}]")))
    with pytest.raises(AssumptionError, match="no subscriber both disconnects"):
        predict_dropping(steady)


def test_what_is_approximated_says_so() -> None:
    text = SCENARIO.format(target="2s", dropping="{policy: none}", brokers="[{name: x, capacity: 10/s}]")
    other = text.replace("service: 4/s", "service: {distribution: deterministic, mean: 250ms}")
    report = predict_dropping(build(parse_text(other)))
    assert any("deterministic" in warning for warning in report.info.warnings)
    assert {f.how for f in report if f.metric == "response_mean_s"} == {"approximation"}
    prompt = predict_dropping(build(parse_text(text.replace("service: 4/s, ", ""))))
    # what arrives while disconnected waits for the rest of the period, and nothing else takes time
    assert prompt.value("response_mean_s", name="s") == pytest.approx(10.0 / 3.0, rel=0.01)
    odd = text.replace("{on: 20s, off: 10s}", "{on: 20s, off_shape: {distribution: uniform, low: 5s, high: 15s}}")
    report = predict_dropping(build(parse_text(odd)))
    assert any("moments" in note for note in report.info.notes)


@pytest.mark.parametrize(
    "shape",
    [
        "{distribution: erlang, mean: 10s, stages: 4}",
        "{distribution: uniform, low: 5s, high: 15s}",
        "{distribution: lognormal, mean: 10s, cv: 2}",
    ],
)
@pytest.mark.parametrize("target", ["2s", "4s"])
def test_the_optimal_policy_is_never_worse_than_a_join_probability(shape: str, target: str) -> None:
    """With periods that are not exponential there is no program, and a threshold alone may be worse."""
    text = SCENARIO.format(target=target, dropping="{policy: none}", brokers="[{name: x, capacity: 10/s}]")
    system = build(parse_text(text.replace("off: 10s", f"off_shape: {shape}").replace("target: 3s", "target: 5s")))
    report = predict_dropping(system, ["probabilistic", "optimal"])
    for figure in report.figures(metric="success_share", scope="subscriber", variant="probabilistic"):
        best = report.value("success_share", name=figure.name, variant="optimal")
        assert best >= figure.value - 1e-9, figure.name
        delay = report.value("delay_mean_s", name=figure.name, variant="optimal")
        target_s = {"s": float(target[:-1]), "both": 5.0}[figure.name]
        assert delay <= target_s * (1 + 1e-9)


def test_several_brokers_add_their_delays() -> None:
    text = SCENARIO.format(
        target="2s", dropping="{policy: none}", brokers="[{name: x, capacity: 10/s}, {name: y, capacity: 5/s}]"
    ).replace("workload:", "  links: [{between: [x, y], latency: 30ms}]\nworkload:", 1)
    text = text.replace("overlay: {brokers:", "overlay:\n  brokers:").replace("5/s}]}", "5/s}]")
    text = text.replace("name: s, home: x", "name: s, home: y")
    report = predict_dropping(build(parse_text(text)))
    response = float(response_mean_s(1.0, 4.0, 20.0, 10.0, 1.0))
    assert report.value("delay_mean_s", name="s") == pytest.approx(0.2 + 0.25 + 0.03 + response)
    assert any("several brokers" in note for note in report.info.notes)
