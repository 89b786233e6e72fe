"""The catalogue of metrics, and extensions of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from surecast.report import SCOPES, Metric, ReportBuilder, ReportError, find_metric, metrics, register_metric
from surecast.report.metric_catalogue import CATALOGUE
from surecast.report.metric_registry import unregister_metric

ENERGY = Metric("battery_s", "s", ("subscriber",), "Battery", "Time until the battery is empty.", "more", signed=True)


@pytest.fixture
def energy() -> Iterator[Metric]:
    yield register_metric(ENERGY)
    unregister_metric(ENERGY.name)


def test_the_catalogue_is_registered_and_comes_first() -> None:
    assert metrics()[: len(CATALOGUE)] == CATALOGUE
    assert len({metric.name for metric in CATALOGUE}) == len(CATALOGUE)


def test_every_scope_has_metrics() -> None:
    assert {scope for metric in CATALOGUE for scope in metric.scopes} == set(SCOPES)


@pytest.mark.parametrize("metric", CATALOGUE, ids=lambda metric: metric.name)
def test_every_metric_explains_itself_in_a_sentence(metric: Metric) -> None:
    assert metric.meaning.endswith(".")
    assert metric.meaning[0].isupper()
    assert metric.label[0].isupper()
    assert not metric.label.endswith(".")


@pytest.mark.parametrize("metric", CATALOGUE, ids=lambda metric: metric.name)
def test_names_end_with_the_unit_of_time_only_where_it_is_one(metric: Metric) -> None:
    assert metric.name.endswith("_per_s") == (metric.unit == "1/s")
    assert (metric.name.endswith("_s") and not metric.name.endswith("_per_s")) == (metric.unit == "s")


def test_an_extension_can_be_used_like_any_other(energy: Metric) -> None:
    b = ReportBuilder("star", "measured")
    b.add("subscriber", "s1", "battery_s", -5.0, how="measured")
    assert b.build().value("battery_s", name="s1") == -5.0
    assert register_metric(energy) is energy
    with pytest.raises(ReportError, match="already registered with another meaning"):
        register_metric(dataclasses.replace(energy, label="Charge"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "Battery S"}, "small letters"),
        ({"name": "battery"}, "end its name with '_s'"),
        ({"unit": "hours"}, "unknown unit 'hours'"),
        ({"split": "colour"}, "unknown split 'colour'"),
        ({"scopes": ("broker", "planet")}, "scopes must be some of"),
        ({"scopes": ()}, "scopes must be some of"),
    ],
)
def test_a_metric_that_makes_no_sense_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ReportError, match=message):
        dataclasses.replace(ENERGY, **change)


@pytest.mark.parametrize("detail", ["p50", "p99.9", "p0", "p5"])
def test_quantiles(detail: str) -> None:
    find_metric("delay_quantile_s").check_use("subscriber", detail)


@pytest.mark.parametrize("detail", ["", "p", "99", "p100", "p05", "p99.", "median"])
def test_what_is_no_quantile(detail: str) -> None:
    with pytest.raises(ReportError, match="needs its quantile"):
        find_metric("delay_quantile_s").check_use("subscriber", detail)
