"""Waiting times over the sets of subscriptions: second moments by Monte Carlo, queues in a slow environment exactly."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse, stats
from scipy.sparse.linalg import spsolve

from surecast.prediction.capacity import notification_probability, predict_capacity
from surecast.prediction.capacity.averaging import _mean_inverse, _Varying, passing_variance, unmatched_twice
from surecast.scenario import System, build, parse_text

PAIR = """
surecast: 1
name: pair
overlay: {brokers: [{name: a, capacity: 1000/s}, {name: b, capacity: 100/s}], links: [[a, b]], root: a}
workload:
  classes: [{name: k, count: CLASSES}]
  clients: [{name: x, home: a}, {name: y, home: b}]
  subscriptions: {active: 1, lifetime: LIFETIMEs}
  publications: 1/s
"""


def pair(classes: int, from_a: float, from_b: float, active: float, lifetime_s: float = 1e5) -> System:
    """Each class: publications at a and at b, and in the mean so many subscriptions at b."""
    system = build(parse_text(PAIR.replace("CLASSES", str(classes)).replace("LIFETIME", str(lifetime_s))))
    rates = np.tile([[from_a, from_b]], (classes, 1)), np.tile([[0.0, active / lifetime_s]], (classes, 1))
    workload = replace(system.class_workload, publication_rate_per_s=rates[0], subscription_rate_per_s=rates[1])
    return replace(system, class_workload=workload)


def modulated_wait(rate: float, more: float, served: float, active: float, lifetime_s: float) -> float:
    """Mean wait in an M/M/1 queue fed faster while a Poisson number of subscriptions is above 0; an exact chain."""
    numbers, length = 10, 160
    states = sparse.lil_matrix((numbers * length, numbers * length))

    def go(start: tuple[int, int], end: tuple[int, int], speed: float) -> None:
        a, b = start[0] * length + start[1], end[0] * length + end[1]
        states[a, b] += speed
        states[a, a] -= speed

    for k, n in itertools.product(range(numbers), range(length)):
        if n + 1 < length:
            go((k, n), (k, n + 1), rate + (more if k > 0 else 0.0))
        if n > 0:
            go((k, n), (k, n - 1), served)
        if k + 1 < numbers:
            go((k, n), (k + 1, n), active / lifetime_s)
        if k > 0:
            go((k, n), (k - 1, n), k / lifetime_s)
    balance = states.T.tolil()
    balance[0] = 1.0
    right = np.zeros(numbers * length)
    right[0] = 1.0
    p = spsolve(balance.tocsr(), right).reshape(numbers, length)
    arrived = rate + more * p[1:].sum()
    return float((p @ np.arange(length)).sum() / arrived - 1 / served)


def test_one_class_is_a_queue_in_a_slow_environment() -> None:
    # models: capacity Eqs. 28-31 put the mean rate into a convex function
    active, lifetime_s = 0.7, 1e5
    system = pair(1, 60.0, 20.0, active, lifetime_s)
    report = predict_capacity(system, ["peer-to-peer identity"])
    found = report.value("waiting_averaged_s", name="b")
    exact = modulated_wait(20.0 + 2 * active / lifetime_s, 60.0, 100.0, active, lifetime_s)
    assert found == pytest.approx(exact, rel=2e-3)
    plain = report.value("waiting_mean_s", name="b")
    assert plain < 0.6 * exact
    assert any("underestimated" in text and "broker b" in text for text in report.info.warnings)


def test_a_faster_environment_waits_less() -> None:
    # Where subscriptions come and go as fast as messages the mean rate is nearer to the truth.
    slow, fast = (modulated_wait(20.0, 60.0, 100.0, 0.7, lifetime_s) for lifetime_s in (1e4, 0.01))
    assert fast < 0.75 * slow


@pytest.mark.parametrize("classes", [2, 4, 8])
def test_few_classes_by_enumeration(classes: int) -> None:
    # Every set of wanted classes, each in its own steady state; a message sees sets by what they let pass.
    active, each = 0.7, 60.0 / classes
    report = predict_capacity(pair(classes, each, 20.0 / classes, active), ["peer-to-peer identity"])
    some = 1 - np.exp(-active)
    number = np.arange(classes + 1)
    rate = 20.0 + each * number
    weight = stats.binom.pmf(number, classes, some) * rate
    expected = weight @ (rate / 100 / (100 - rate)) / weight.sum()
    assert report.value("waiting_averaged_s", name="b") == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("routing", ["simple", "covering", "merging"])
@pytest.mark.parametrize(("only_a", "only_b", "common"), [(0.0, 0.0, 1.0), (1.0, 0.5, 2.0), (0.3, 4.0, 0.5)])
def test_two_notifications_stopped(routing: str, only_a: float, only_b: float, common: float) -> None:
    rng = np.random.default_rng(31)
    runs = 40_000
    value = rng.random((2, runs))
    stopped = np.ones((2, runs), dtype=bool)
    low, high = np.full((2, runs), np.inf), np.full((2, runs), -np.inf)
    for mean, sees in ((only_a, (0,)), (only_b, (1,)), (common, (0, 1))):
        of = np.repeat(np.arange(runs), rng.poisson(mean, runs))
        ends = np.sort(rng.random((len(of), 2)), axis=1)
        for side in sees:
            match = (ends[:, 0] <= value[side, of]) & (value[side, of] <= ends[:, 1])
            stopped[side, of[match]] = False
            np.minimum.at(low[side], of, ends[:, 0])
            np.maximum.at(high[side], of, ends[:, 1])
    if routing == "merging":
        stopped = ~((low <= value) & (value <= high))
    expected = (stopped[0] & stopped[1]).mean()
    numbers = (np.array([x]) for x in (only_a, only_b, common))
    assert unmatched_twice(routing, *numbers)[0] == pytest.approx(expected, abs=4 * 0.5 / np.sqrt(runs))


def test_the_variance_of_merging_has_a_sum() -> None:
    # The hull of k subscriptions is the range of 2k uniform points: its square has mean (2k-1) 2k / ((2k+1)(2k+2)).
    for x in (0.2, 1.0, 5.0, 30.0):
        k = np.arange(1, 200)
        square = stats.poisson.pmf(k, x) @ ((2 * k - 1) * 2 * k / ((2 * k + 1) * (2 * k + 2)))
        mean = float(notification_probability("merging", x))
        found = passing_variance("merging", np.array([x]))[0]
        assert found == pytest.approx(square - mean**2, rel=2e-3)


@pytest.mark.parametrize("algorithm", ["peer-to-peer covering", "peer-to-peer merging", "hierarchical covering"])
def test_sampled_sets_of_subscriptions(algorithm: str) -> None:
    # A hub with three leaves: sets of subscriptions are drawn, and the share that passes into the hub is measured.
    text = """
    surecast: 1
    name: star
    overlay:
      brokers: [{name: hub, capacity: 100/s}, {name: leaf, count: 3, capacity: 1000/s}]
      links: [[hub, leaf-1], [hub, leaf-2], [hub, leaf-3]]
      root: ROOT
    workload:
      classes: [k]
      clients: [{name: h, home: hub}, {name: x, home: leaf-1}, {name: y, home: leaf-2}, {name: z, home: leaf-3}]
      subscriptions: {active: 1, lifetime: 100000s}
      publications: 1/s
    """
    root = "leaf-1" if algorithm.startswith("hierarchical") else "hub"
    system = build(parse_text(text.replace("ROOT", root)))
    at_home = np.array([0.2, 0.5, 0.8, 0.4])
    published = np.array([5.0, 60.0, 10.0, 8.0] if root == "leaf-1" else [5.0, 25.0, 35.0, 20.0])
    workload = replace(
        system.class_workload,
        publication_rate_per_s=published[None],
        subscription_rate_per_s=at_home[None] / 1e5,
    )
    report = predict_capacity(replace(system, class_workload=workload), [algorithm])
    rng = np.random.default_rng(5)
    grid = (np.arange(400) + 0.5) / 400
    rates = []
    for _ in range(6000):
        held = [np.sort(rng.random((n, 2)), axis=1) for n in rng.poisson(at_home)]
        rate = published[0]
        for leaf in (1, 2, 3):
            if root == "leaf-1" and leaf > 1:
                rate += published[leaf]
                continue
            seen = np.concatenate([held[b] for b in range(4) if b != leaf])
            if "merging" in algorithm:
                share = seen[:, 1].max() - seen[:, 0].min() if len(seen) else 0.0
            else:
                share = ((seen[:, :1] <= grid) & (grid <= seen[:, 1:])).any(axis=0).mean()
            rate += published[leaf] * share
        rates.append(rate)
    rate = np.array(rates)
    expected = (rate @ (rate / 100 / (100 - rate))) / rate.sum()
    # One class is the hardest case: all depends on the fit of its share.
    assert report.value("waiting_averaged_s", name="hub") == pytest.approx(expected, rel=0.06)


def test_a_set_that_overloads_is_said() -> None:
    report = predict_capacity(pair(1, 90.0, 20.0, 0.7), ["peer-to-peer identity"])
    assert report.value("utilisation", name="b") < 1
    assert not report.figures(metric="waiting_averaged_s", name="b")
    some = 1 - np.exp(-0.7)
    assert any(f"overloads broker b for {some:.2g} of the time" in text for text in report.info.warnings)


def test_flooding_does_not_depend_on_subscriptions() -> None:
    report = predict_capacity(pair(1, 60.0, 20.0, 0.7), ["flooding"])
    for name in ("a", "b"):
        plain = report.value("waiting_mean_s", name=name)
        assert report.value("waiting_averaged_s", name=name) == pytest.approx(plain)


def test_many_classes_agree_with_mean_rates() -> None:
    report = predict_capacity(pair(400, 60.0 / 400, 20.0 / 400, 0.7), ["peer-to-peer covering"])
    plain, averaged = (report.value(metric, name="b") for metric in ("waiting_mean_s", "waiting_averaged_s"))
    assert plain <= averaged <= 1.02 * plain
    assert not any("underestimated" in text for text in report.info.warnings)


@pytest.mark.parametrize("count", [1, 3, 40])
def test_the_mean_of_the_inverse(count: int) -> None:
    # Loads that are nothing or beta distributed, drawn and added up
    rng = np.random.default_rng(8)
    none, alpha, beta, most = 0.3, 2.0, 1.5, 0.6 / count
    share = alpha / (alpha + beta)
    square = share * (alpha + 1) / (alpha + beta + 1)
    mean, variance = 0.7 * share * most, 0.7 * square * most**2 - (0.7 * share * most) ** 2
    each = _Varying(*(np.array([x]) for x in (float(count), mean, variance, most, none)))
    drawn = (rng.beta(alpha, beta, (200_000, count)) * most * (rng.random((200_000, count)) >= none)).sum(axis=1)
    expected = (1 / (0.4 + count * mean - drawn)).mean()
    gain, over = _mean_inverse(0.4, each)
    assert gain == pytest.approx(expected, rel=3e-3)
    assert over == pytest.approx((drawn >= 0.4 + count * mean).mean(), abs=1e-6)


def test_measured_filters_get_an_upper_bound() -> None:
    # The same uniform filters, once by their closed forms and once as if they had been measured
    system = pair(4, 15.0, 5.0, 2.0)
    text = (
        PAIR.replace("CLASSES", "4")
        .replace("LIFETIME", "100000")
        .replace("workload:", "workload:\n  filters: [{name: v, value: {edges: [0, 1], weights: [1]}}]")
    )
    measured = build(parse_text(text)).class_workload.classes
    assert measured[0].filters is not None
    workload = replace(system.class_workload, classes=measured)
    both = [
        predict_capacity(each, ["peer-to-peer covering"]).value("waiting_averaged_s", name="b")
        for each in (system, replace(system, class_workload=workload))
    ]
    assert both[0] < both[1] < 1.5 * both[0]
