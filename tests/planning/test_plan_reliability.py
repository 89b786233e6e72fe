"""The applications of the reliability model, on systems small enough to check by hand or by brute force."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from surecast.errors import AssumptionError
from surecast.planning import admit, choose_homes, compare_schemes, improvements, plan_deployment
from surecast.planning.reliability_advice import alternatives_of
from surecast.prediction.reliability import predict_reliability, subscriber_reliabilities
from surecast.scenario import System, build, parse_text

CHAIN = """
surecast: 1
name: chain
overlay:
  brokers: [{name: b, count: 4}]
  links: {build: %(links)s}
availability:
  brokers: {availability: 0.95, period: 2d}
  links: {availability: 0.99, period: 5h}
  each: {b-2: {availability: 0.8, period: 2d}}
workload:
  topics: [t, u]
  deadline: 1h
  publishers: [{name: p, home: b-1, topics: [t], rate: 1/min}, {name: q, home: b-4, topics: [u], rate: 1/min}]
  subscribers:
    - {name: near, home: b-1, topics: [t]}
    - {name: far, home: b-4, topics: [t]}
    - {name: both, home: b-3, topics: [t, u]}
    - {name: easy, home: b-4, topics: [t], reliability_target: 0.5}
delivery: {fault_tolerance: {scheme: %(scheme)s, refresh_interval: 1s}}
targets: {reliability: %(target)s}
"""


def system(links: str = "chain", scheme: str = "periodic-subscription", target: float = 0.75) -> System:
    return build(parse_text(CHAIN % {"links": links, "scheme": scheme, "target": target}))


def reliabilities(system: System, scheme: str) -> dict[str, float]:
    """The predicted reliability of each subscriber, from a whole report."""
    return predict_reliability(system, [scheme]).values("reliability", scope="subscriber", variant=scheme)


def moved(original: System, subscriber: str, home: int) -> System:
    subscribers = tuple(replace(s, home=home) if s.name == subscriber else s for s in original.subscribers)
    return replace(original, subscribers=subscribers)


def test_alternatives_equal_the_prediction_of_the_moved_subscriber() -> None:
    original = system()
    found = alternatives_of(original)
    for i, subscriber in enumerate(original.subscribers):
        for home, scheme in itertools.product(range(4), found.reliability):
            there = reliabilities(moved(original, subscriber.name, home), scheme)[subscriber.name]
            assert found.reliability[scheme][found.wants[i], home] == pytest.approx(there, abs=1e-12)


def test_admission_says_who_fits_and_what_would_help() -> None:
    original = system()
    promises = {p.subscriber: p for p in admit(original)}
    assert promises["near"].met
    assert promises["easy"].met
    far = promises["far"]
    assert not far.met
    assert far.reliability == pytest.approx(reliabilities(original, "periodic-subscription")["far"])
    assert far.other_home is not None
    home = original.overlay.index[far.other_home]
    assert reliabilities(moved(original, "far", home), "periodic-subscription")["far"] >= 0.75
    others = [s for s in ("buffering", "bypass", "bypass-buffering") if reliabilities(original, s)["far"] >= 0.75]
    assert far.other_scheme in (others or [None])
    assert not next(iter(promises.values())).met, "those that do not fit come first"


def test_admission_needs_targets() -> None:
    without = build(
        parse_text(
            (CHAIN % {"links": "chain", "scheme": "bypass", "target": 1})
            .replace("targets: {reliability: 1}", "")
            .replace(", reliability_target: 0.5", "")
        )
    )
    with pytest.raises(AssumptionError, match="no subscriber has a reliability target"):
        admit(without)


def test_homes_are_optimal_without_and_with_a_limit() -> None:
    original = system()
    choice = choose_homes(original)
    table = alternatives_of(original, ["periodic-subscription"])
    best = table.reliability["periodic-subscription"][list(table.wants)].max(axis=1)
    assert choice.reliability_after == pytest.approx(best)
    limited = choose_homes(original, limit=1)
    assert len(set(limited.after)) == 4
    gain = table.reliability["periodic-subscription"][list(table.wants)]
    brute = max(sum(gain[i, home] for i, home in enumerate(order)) for order in itertools.permutations(range(4)))
    assert limited.reliability_after.sum() == pytest.approx(brute, abs=1e-7)
    with pytest.raises(AssumptionError, match="at least 1"):
        choose_homes(original, limit=0)


def test_nobody_moves_for_nothing() -> None:
    original = system()
    choice = choose_homes(original)
    again = choose_homes(
        replace(
            original,
            subscribers=tuple(
                replace(s, home=original.overlay.index[h])
                for s, h in zip(original.subscribers, choice.after, strict=True)
            ),
        )
    )
    assert again.moved == 0


def test_the_worst_broker_on_the_path_is_improved_first() -> None:
    original = system(scheme="periodic-subscription")
    found = improvements(original)
    assert found[0].component == "b-2"
    # The reliability of a static path is a product (reliability Eq. 3), so it is linear in each availability.
    for row in found:
        assert row.gain_perfect == pytest.approx(row.derivative * (1 - row.availability), rel=0.02, abs=1e-6)
    assert all(row.gain_half_repair >= -1e-12 for row in found)


def test_nothing_fails_nothing_to_improve() -> None:
    text = (
        (CHAIN % {"links": "chain", "scheme": "bypass", "target": 0.5})
        .replace("availability: 0.95, period: 2d", "availability: 1")
        .replace("availability: 0.99, period: 5h", "availability: 1")
        .replace("availability: 0.8, period: 2d", "availability: 1")
    )
    with pytest.raises(AssumptionError, match="nothing to improve"):
        improvements(build(parse_text(text)))


def test_schemes_by_price() -> None:
    choices = compare_schemes(system(links="ring", target=0.8))
    prices = [choice.messages_per_event for choice in choices]
    assert prices == sorted(prices)
    assert sum(choice.cheapest for choice in choices) <= 1
    for choice in choices:
        assert choice.meets_all == (choice.met == choice.targets == 4)
    marked = [choice for choice in choices if choice.cheapest]
    meeting = [choice for choice in choices if choice.meets_all]
    assert marked == meeting[:1]


def test_deployment_adds_the_fewest_links_that_help() -> None:
    original = system(links="chain", scheme="bypass", target=0.86)
    plan = plan_deployment(original, most=3)
    assert plan.below_target[0] > 0
    assert plan.met
    assert plan.optimal
    assert plan.below_target[-1] == 0
    smaller = plan_deployment(original, most=max(1, len(plan.additions) - 1))
    assert len(plan.additions) == 1 or not smaller.met


def test_deployment_may_add_brokers() -> None:
    original = system(links="chain", scheme="bypass", target=0.86)
    plan = plan_deployment(original, link_cost=100, broker_cost=1, most=2)
    assert plan.met
    assert {addition.kind for addition in plan.additions} == {"broker"}


def test_deployment_refuses_static_schemes_and_admits_defeat() -> None:
    with pytest.raises(AssumptionError, match="keep to their tree"):
        plan_deployment(system(scheme="buffering"))
    hopeless = plan_deployment(system(scheme="bypass", target=0.999), most=1)
    assert not hopeless.met
    assert np.isfinite(hopeless.mean[-1])


@pytest.mark.parametrize("scheme", ["none", "periodic-subscription", "buffering", "bypass", "bypass-buffering"])
@pytest.mark.parametrize("links", ["chain", "ring"])
def test_reliabilities_alone_are_those_of_the_report(links: str, scheme: str) -> None:
    described = system(links, scheme)
    assert subscriber_reliabilities(described, scheme) == reliabilities(described, scheme)
