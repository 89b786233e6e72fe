"""Periods in their own steady state: the paper's example, means over time and messages, overload by name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from surecast.errors import AssumptionError, ConfigurationError
from surecast.prediction.capacity import predict_capacity
from surecast.prediction.capacity.day_periods import predict_periods
from surecast.scenario import System, build, parse_text
from surecast.scenario.build.classes import RatePeriod, build_periods
from surecast.scenario.build.collect import Collector
from surecast.scenario.spec.workload import Periods

TEXT = """
surecast: 1
name: hourly
overlay:
  brokers: [{name: a, capacity: 4/s}, {name: b, capacity: 1.6/s}]
  links: [{between: [a, b], latency: 10ms}]
workload:
  classes: [{name: A, weight: 1}, {name: B, weight: 600}]
  clients: [{name: x, home: a}, {name: y, home: b}]
  subscriptions: {active: 30, lifetime: 10000s}
  publications: 601/h
"""


def hourly() -> System:
    """A once an hour at broker a; 600 B's an hour, at broker a too; subscriptions at b alone."""
    system = build(parse_text(TEXT))
    rates = np.array([[1 / 3600, 0.0], [600 / 3600, 0.0]])
    subscriptions = np.array([[0.0, 1e-3], [0.0, 2e-3]])
    workload = replace(system.class_workload, publication_rate_per_s=rates, subscription_rate_per_s=subscriptions)
    return replace(system, class_workload=workload)


def ones(count: int = 2) -> np.ndarray:
    return np.ones(count)


AFTER = RatePeriod("after A", 1 / 6, np.array([6.0, 6.0]), ones())
QUIET = RatePeriod("quiet", 5 / 6, np.array([0.0, 0.0]), ones())


def test_the_example_of_the_paper() -> None:
    # capacity section 5: B is published once a second in the ten minutes after A, not once in six seconds
    report = predict_periods(hourly(), [AFTER, QUIET], ["flooding"])
    assert report.variants == ("flooding", "flooding, after A", "flooding, quiet")
    control = 2 * 3e-3
    busy = 1 + 1 / 600 + control
    assert report.value("rate_in_per_s", name="b", variant="flooding, after A") == pytest.approx(busy)
    assert report.value("rate_in_per_s", name="b", variant="flooding, quiet") == pytest.approx(control)
    mean = 601 / 3600 + control
    assert report.value("rate_in_per_s", name="b", variant="flooding") == pytest.approx(mean)
    # Over all, a message waits as in the period in which it comes; the mean rate would hide it.
    waits = busy / 1.6 / (1.6 - busy), control / 1.6 / (1.6 - control)
    weights = np.array([busy / 6, control * 5 / 6])
    assert report.value("waiting_mean_s", name="b", variant="flooding") == pytest.approx(
        float(weights @ waits) / weights.sum()
    )
    hidden = predict_capacity(hourly(), ["flooding"]).value("waiting_mean_s", name="b")
    assert report.value("waiting_mean_s", name="b", variant="flooding") > 5 * hidden


def test_delays_are_means_over_messages() -> None:
    # Nothing is published in the quiet period, so what is delivered is delivered as in the other.
    report = predict_periods(hourly(), [AFTER, QUIET], ["peer-to-peer covering"])
    name = "peer-to-peer covering"
    for scope, who in (("subscriber", "y"), ("class", "B"), ("system", "")):
        whole, busy = (
            report.value("delay_mean_s", scope=scope, name=who, variant=variant)
            for variant in (name, f"{name}, after A")
        )
        assert whole == pytest.approx(busy)
    throughput = [report.value("throughput_per_s", name="y", variant=variant) for variant in (name, f"{name}, after A")]
    assert throughput[0] == pytest.approx(throughput[1] / 6)
    assert not report.figures(metric="delay_quantile_s", variant=name)
    assert report.figures(metric="delay_quantile_s", variant=f"{name}, after A")
    assert any("longest mean delay is after A" in note for note in report.info.notes)


def test_worst_paths_and_headroom_are_of_the_worst_period() -> None:
    report = predict_periods(hourly(), [AFTER, QUIET], ["flooding"])
    for metric, worst in (("notification_delay_worst_s", max), ("headroom_factor", min)):
        found = {f.variant: f.value for f in report.figures(metric=metric)}
        whole = found.pop("flooding")
        assert whole == worst(found.values())


def test_one_period_is_the_whole_time() -> None:
    system = hourly()
    report = predict_periods(system, [RatePeriod("always", 1.0, ones(), ones())], ["hierarchical merging"])
    plain = predict_capacity(system, ["hierarchical merging"])
    for figure in plain:
        if figure.metric != "delay_quantile_s":
            found = report.value(
                figure.metric,
                scope=figure.scope,
                name=figure.name,
                detail=figure.detail,
                variant="hierarchical merging",
            )
            assert found == pytest.approx(figure.value, rel=1e-12)


def test_overload_names_the_period() -> None:
    rush = RatePeriod("rush", 0.1, np.array([10.0, 10.0]), ones())
    rest = RatePeriod("rest", 0.9, np.array([0.0, 0.0]), ones())
    report = predict_periods(hourly(), [rush, rest], ["flooding"])
    assert "flooding: overloaded in period rush, so there are no delays over all" in report.info.warnings
    assert any(text.startswith("period rush: flooding: overloaded") for text in report.info.warnings)
    assert report.value("utilisation", name="b", variant="flooding") < 1
    whole = {f.metric for f in report.figures(variant="flooding")}
    assert not {metric for metric in whole if metric.endswith("_s") and not metric.endswith("_per_s")}
    assert report.figures(metric="waiting_mean_s", variant="flooding, rest")


@pytest.mark.parametrize(
    ("periods", "message"),
    [
        ([], "one period or more"),
        ([AFTER, AFTER], "different names"),
        ([AFTER], "sum to 0.166667"),
        ([RatePeriod("p", 1.0, np.ones(3), ones())], "each of the 2 classes"),
        ([RatePeriod("p", 1.0, -ones(), ones())], "0 or more"),
    ],
)
def test_wrong_periods_are_refused(periods: list[RatePeriod], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        predict_periods(hourly(), periods, ["flooding"])


def test_periods_need_classes() -> None:
    with pytest.raises(AssumptionError, match="no filter classes"):
        predict_periods(replace(hourly(), class_workload=None), [AFTER, QUIET])


def test_periods_of_a_scenario() -> None:
    specs = TypeAdapter(Periods).validate_python(
        [
            {"name": "busy", "share": "25%", "publications": 2, "classes": [{"name": "b", "publications": 6}]},
            {"name": "night", "share": 0.7501, "subscriptions": 0.5, "classes": [{"name": "b-2", "subscriptions": 0}]},
        ]
    )
    classes = [("a", "a"), ("b-1", "b"), ("b-2", "b")]
    busy, night = build_periods(specs, classes, Collector(None, "example"))
    assert (busy.share + night.share, busy.name) == (pytest.approx(1.0), "busy")
    assert busy.publications.tolist() == [2.0, 6.0, 6.0]
    assert night.subscriptions.tolist() == [0.5, 0.5, 0.0]
    collect = Collector(None, "example")
    build_periods(specs, [("a", "a")], collect)
    assert "there is no class named 'b'" in str(collect.problems[0])


@pytest.mark.parametrize(
    ("periods", "message"),
    [
        ([{"name": "p", "share": 0.5}], "sum to 0.5; they must sum to 1"),
        ([{"name": "p", "share": 0.5}, {"name": "p", "share": 0.5}], "the period p is given twice"),
        ([{"name": "p", "share": 1, "publications": -1}], "greater than or equal to 0"),
    ],
)
def test_wrong_periods_of_a_scenario(periods: list[dict[str, object]], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TypeAdapter(Periods).validate_python(periods)
