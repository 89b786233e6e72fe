"""The comparison of two reports, against a deliberately dumb second implementation."""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surecast.report import Comparison, Figure, QoSReport, ReportBuilder, ReportError, compare, find_metric, load
from surecast.report.agreement import ROUNDING

Key = tuple[str, str, str, str, str]

KEYS: list[Key] = [
    (variant, scope, name, metric, detail)
    for variant in ("", "bypass")
    for scope, metric, detail in [
        ("subscriber", "reliability", ""),
        ("subscriber", "delay_mean_s", ""),
        ("broker", "utilisation", ""),
        ("broker", "rate_in_per_s", "control"),
        ("broker", "delay_mean_s", ""),
    ]
    for name in ("x", "y", "z")
]


@st.composite
def reports(draw: st.DrawFn) -> QoSReport:
    """A report with some of the few figures there are, so that two of them have figures in common."""
    builder = ReportBuilder("any", "simulated")
    for variant, scope, name, metric, detail in draw(st.lists(st.sampled_from(KEYS), unique=True, max_size=20)):
        value = draw(st.sampled_from([0.0, 0.25, 0.5, 1.0]) | st.floats(0, 1))
        how = draw(st.sampled_from(["exact", "lower_bound", "upper_bound", "simulated"]))
        low = draw(st.none() | st.floats(0, value))
        high = draw(st.none() | st.floats(value, 2))
        builder.add(scope, name, metric, value, how=how, detail=detail, variant=variant, low=low, high=high)
    return builder.build()


def keyed(report: QoSReport) -> dict[Key, Figure]:
    return {(f.variant, f.scope, f.name, f.metric, f.detail): f for f in report}


def dumb_inside(a: Figure, b: Figure) -> bool | None:
    """Whether what one figure stands for meets what the other one does."""

    def has_interval(f: Figure) -> bool:
        return f.low is not None or f.high is not None

    def interval(f: Figure) -> tuple[float, float]:
        return (-math.inf if f.low is None else f.low, math.inf if f.high is None else f.high)

    def stands_for(f: Figure) -> tuple[float, float]:
        return {"lower_bound": (f.value, math.inf), "upper_bound": (-math.inf, f.value)}.get(f.how, (f.value, f.value))

    if has_interval(b):
        first, second = stands_for(a), interval(b)
    elif has_interval(a):
        first, second = interval(a), stands_for(b)
    elif "bound" in a.how or "bound" in b.how:
        first, second = stands_for(a), stands_for(b)
    else:
        return None
    # What differs by rounding alone is equal.
    slack = ROUNDING * max(abs(a.value), abs(b.value))
    return max(first[0], second[0]) <= min(first[1], second[1]) + slack


def dumb_scales(a: dict[Key, Figure], b: dict[Key, Figure]) -> dict[tuple[str, str, str], float]:
    families: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for key in a.keys() & b.keys():
        families[key[1], key[3], key[4]] += [a[key].value, b[key].value]
    scales = {}
    for family, values in families.items():
        root_mean_square = math.hypot(*values) / math.sqrt(len(values))
        unit = find_metric(family[1]).unit
        scales[family] = {"share": 1.0, "ratio": max(1.0, root_mean_square)}.get(unit, root_mean_square) or 1.0
    return scales


@settings(max_examples=100, deadline=None)
@given(first=reports(), second=reports())
def test_rows_are_those_of_the_dumb_comparison(first: QoSReport, second: QoSReport) -> None:
    a, b = keyed(first), keyed(second)
    shared = [key for key in a if key in b]
    if not shared:
        with pytest.raises(ReportError, match="no figure in common"):
            compare(first, second)
        return
    comparison = compare(first, second)
    scales = dumb_scales(a, b)
    rows = comparison.rows()
    assert len(rows) == len(comparison) == len(shared)
    assert {(r.variant, r.scope, r.name, r.metric, r.detail) for r in rows} == set(shared)
    for row in rows:
        key = (row.variant, row.scope, row.name, row.metric, row.detail)
        assert (row.a, row.b, row.a_how, row.b_how) == (a[key].value, b[key].value, a[key].how, b[key].how)
        assert (row.a_low, row.a_high, row.b_low, row.b_high) == (a[key].low, a[key].high, b[key].low, b[key].high)
        assert row.difference == row.b - row.a
        if row.a == 0:
            assert row.relative is None
        elif row.relative is not None:
            assert row.relative == row.difference / row.a
        assert row.inside == dumb_inside(a[key], b[key])
        scale = scales[row.scope, row.metric, row.detail]
        assert row.disagreement == pytest.approx(abs(row.difference) / scale, rel=1e-9, abs=1e-300)
    order = [row.disagreement for row in rows]
    assert order == sorted(order, reverse=True)
    assert sum(row.count for row in comparison.only_a) == len(a.keys() - b.keys())
    assert sum(row.count for row in comparison.only_b) == len(b.keys() - a.keys())


@settings(max_examples=100, deadline=None)
@given(first=reports(), second=reports())
def test_the_summary_is_that_of_the_dumb_comparison(first: QoSReport, second: QoSReport) -> None:
    try:
        comparison = compare(first, second)
    except ReportError:
        return
    families = defaultdict(list)
    for row in comparison.rows():
        families[row.variant, row.scope, row.metric, row.detail].append(row)
    assert [(s.variant, s.scope, s.metric, s.detail) for s in comparison.summary] == list(families)
    for summary, rows in zip(comparison.summary, families.values(), strict=True):
        sizes = [abs(row.difference) for row in rows]
        assert summary.count == len(rows)
        assert summary.mean_difference == pytest.approx(statistics.fmean(row.difference for row in rows), abs=1e-12)
        assert summary.mean_absolute == pytest.approx(statistics.fmean(sizes))
        assert summary.root_mean_square == pytest.approx(math.sqrt(statistics.fmean(s * s for s in sizes)))
        assert summary.largest == max(sizes)
        assert summary.largest_name in [row.name for row in rows if abs(row.difference) == max(sizes)]
        decided = [row.inside for row in rows if row.inside is not None]
        assert summary.inside_count == len(decided)
        assert summary.inside == (sum(decided) / len(decided) if decided else None)
        check_correlation(summary.correlation, [row.a for row in rows], [row.b for row in rows])


def check_correlation(found: float | None, a: list[float], b: list[float]) -> None:
    if min(a) == max(a) or min(b) == max(b):
        assert found is None
        return
    assert found is not None
    assert -1 <= found <= 1
    if min(statistics.pstdev(a), statistics.pstdev(b)) > 1e-6:
        assert found == pytest.approx(statistics.correlation(a, b), abs=1e-6)


@settings(max_examples=40, deadline=None)
@given(report=reports())
def test_a_report_agrees_with_itself(report: QoSReport) -> None:
    if len(report):
        comparison = compare(report, report)
        assert not comparison.difference.any()
        assert all(row.inside is not False for row in comparison.rows())
        assert comparison.only_a == comparison.only_b == []


def simple(values: dict[str, float], metric: str = "delay_mean_s", **given: Any) -> QoSReport:
    b = ReportBuilder("star", "predicted")
    b.add_many("subscriber", list(values), metric, list(values.values()), **{"how": "exact", **given})
    return b.build()


def test_bounds_are_no_disagreement_on_their_own_side() -> None:
    bound = simple({"s1": 0.9, "s2": 0.9}, "reliability", how="lower_bound")
    truth = simple({"s1": 0.95, "s2": 0.85}, "reliability")
    assert {row.name: row.inside for row in compare(bound, truth).rows()} == {"s1": True, "s2": False}


def test_metrics_of_different_size_can_be_ranked_together() -> None:
    def both(delay: float, rate: float, share: float) -> QoSReport:
        b = ReportBuilder("star", "predicted")
        b.add("broker", "b1", "rate_in_per_s", rate, how="exact")
        b.add("subscriber", "s1", "delay_mean_s", delay, how="exact")
        b.add("subscriber", "s1", "reliability", share, how="exact")
        return b.build()

    rows = compare(both(0.001, 10_000, 0.9), both(0.002, 10_100, 0.7)).rows()
    assert [row.metric for row in rows] == ["delay_mean_s", "reliability", "rate_in_per_s"]


def test_tiny_values_have_a_scale_too() -> None:
    (row,) = compare(simple({"s1": 1e-200}), simple({"s1": 3e-200})).rows()
    assert row.disagreement == pytest.approx(2 / math.sqrt(5))


def test_other_variants_are_compared_by_a_mapping() -> None:
    a = simple({"s1": 1.0, "s2": 1.0})
    b = ReportBuilder("star", "simulated")
    for variant, value in (("bypass", 2.0), ("buffering", 3.0)):
        b.add("subscriber", "s1", "delay_mean_s", value, how="simulated", variant=variant)
    both = b.build()
    with pytest.raises(ReportError, match=r"no figure in common.*subscriber delay_mean_s.*map them: \{'': 'bypass'\}"):
        compare(a, both)
    comparison = compare(a, both, variants={"": "buffering"})
    assert [(row.variant, row.b) for row in comparison.rows()] == [("", 3.0)]
    assert [(row.count, row.examples) for row in comparison.only_a] == [(1, ("s2",))]
    assert comparison.only_b == []
    back = compare(both, a, variants={"bypass": "", "buffering": ""})
    assert {(row.variant, row.a, row.b) for row in back.rows()} == {("bypass", 2.0, 1.0), ("buffering", 3.0, 1.0)}
    with pytest.raises(ReportError, match=r"the second report has no variant 'bypas'.*did you mean 'bypass'"):
        compare(a, both, variants={"": "bypas"})
    with pytest.raises(ReportError, match="the first report has no variant 'x'"):
        compare(a, both, variants={"x": "bypass"})


def test_what_only_one_has_is_told_with_examples() -> None:
    comparison = compare(simple({f"s{i}": 1.0 for i in range(9)}), simple({"s0": 1.0, "t": 1.0}))
    (only_a,), (only_b,) = comparison.only_a, comparison.only_b
    assert (only_a.count, only_a.examples) == (8, ("s1", "s2", "s3"))
    assert (only_b.scope, only_b.metric, only_b.count) == ("subscriber", "delay_mean_s", 1)


def test_points_of_a_scatter() -> None:
    a = simple({"s1": 0.2, "s2": 0.4}, "reliability", low=0.1)
    b = simple({"s2": 0.5, "s1": 0.8}, "reliability", high=[0.9, 0.9])
    points = compare(a, b).points("reliability")
    assert dict(zip(points.labels, zip(points.a, points.b, strict=True), strict=True)) == {
        "s1": (0.2, 0.8),
        "s2": (0.4, 0.5),
    }
    assert points.unit == "share"
    assert points.a_low.tolist() == [0.1, 0.1]
    assert all(math.isnan(end) for end in points.b_low)
    with pytest.raises(ReportError, match="no figure of 'delay_mean_s' fits; both reports have reliability"):
        compare(a, b).points("delay_mean_s")
    with pytest.raises(ReportError, match="unknown metric"):
        compare(a, b).points("reliabilty")


def test_points_of_several_families_say_which() -> None:
    b = ReportBuilder("star", "predicted")
    for detail in ("notification", "control"):
        b.add("broker", "b1", "rate_in_per_s", 5.0, how="exact", detail=detail)
    points = compare(b.build(), b.build()).points("rate_in_per_s")
    assert points.labels == ["b1 notification", "b1 control"]
    assert compare(b.build(), b.build()).points("rate_in_per_s", detail="control").labels == ["b1"]


@pytest.fixture
def comparison() -> Comparison:
    a = simple({"s1": 0.0, "s2": 0.4, "s3": 0.5, "only": 1.0})
    b = simple({"s1": 0.1, "s2": 0.4, "s3": 0.7}, low=[0.05, 0.35, math.nan])
    return compare(a, b)


def test_a_comparison_as_plain_values_and_in_files(comparison: Comparison, tmp_path: Path) -> None:
    content = comparison.as_dict()
    assert json.loads(comparison.save(tmp_path / "c.json").read_text()) == json.loads(
        json.dumps(content, allow_nan=False)
    )
    table = pq.read_table(comparison.save(tmp_path / "c.parquet"))
    assert [{name: row[name] for name in content["rows"][0]} for row in table.to_pylist()] == content["rows"]
    head = json.loads(table.schema.metadata[b"surecast"])
    assert head["only_a"][0]["examples"] == ["only"]
    assert len(comparison.as_dict(limit=1)["rows"]) == 1
    for suffix in (".json", ".parquet"):
        with pytest.raises(ReportError, match="'surecast-comparison' file, not a QoS report"):
            load(tmp_path / f"c{suffix}")
    with pytest.raises(ReportError, match=r"a \.json or a \.parquet file"):
        comparison.save(tmp_path / "c.txt")


def test_rows_can_be_limited_and_selected(comparison: Comparison) -> None:
    assert [row.name for row in comparison.rows(2)] == ["s3", "s1"]
    assert comparison.rows(scope="broker") == []
    with pytest.raises(ReportError, match="unknown scope"):
        comparison.rows(scope="planet")
    assert repr(comparison) == "<Comparison of star, predicted with star, predicted: 3 figures in both>"
