"""Questions to a report."""

from __future__ import annotations

import statistics

import numpy as np
import pytest

from surecast.report import QoSReport, ReportBuilder, ReportError
from surecast.report.columns import Groups, fold


@pytest.fixture
def report() -> QoSReport:
    b = ReportBuilder("star", "predicted", version="1")
    for variant, factor in (("bypass", 1.0), ("buffering", 0.9)):
        values = np.array([0.9, 0.8, 1.0]) * factor
        b.add_many("subscriber", ["s1", "s2", "s3"], "reliability", values, how="exact", variant=variant)
        b.add("system", "", "message_rate_per_s", 10 * factor, how="exact", detail="control", variant=variant)
    b.add("subscriber", "s1", "share_dropped", 0.1, how="exact", detail="expired", variant="bypass")
    b.add("broker", "s1", "utilisation", 0.5, how="exact", variant="bypass")
    return b.build()


def test_selection_by_every_column(report: QoSReport) -> None:
    assert len(report.figures()) == len(report) == 10
    assert len(report.figures(scope="subscriber")) == 7
    assert len(report.figures(scope="subscriber", variant="bypass")) == 4
    assert [f.value for f in report.figures(name="s2", variant="buffering")] == [0.8 * 0.9]
    assert [f.metric for f in report.figures(detail="expired")] == ["share_dropped"]
    assert report.figures(name="nobody") == []
    assert report.figures(metric="delay_mean_s") == []
    assert report.scopes == ("system", "subscriber", "broker")


def test_slips_are_refused(report: QoSReport) -> None:
    with pytest.raises(ReportError, match="unknown metric 'reliabilities'; did you mean 'reliability'"):
        report.figures(metric="reliabilities")
    with pytest.raises(ReportError, match="unknown scope 'brokers'"):
        report.select(scope="brokers")


def test_a_selection_keeps_only_the_words_it_needs(report: QoSReport) -> None:
    part = report.select(scope="broker")
    assert part.columns.name.words == ("s1",)
    assert part == report.select(scope="broker", variant="bypass")
    assert part != report


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({"metric": "reliability", "name": "s2"}, "2 figures fit; say which variant: bypass, buffering"),
        ({"metric": "reliability", "name": "s4", "variant": "bypass"}, "it is there for s1, s2, s3"),
        ({"metric": "delay_mean_s"}, "scope 'system' has message_rate_per_s"),
        ({"metric": "message_rate_per_s"}, "its details are control"),
        ({"metric": "utilisation", "name": "s1", "variant": "buffering"}, "its variants are bypass"),
    ],
)
def test_a_question_without_one_answer_says_what_there_is(
    report: QoSReport, question: dict[str, str], message: str
) -> None:
    with pytest.raises(ReportError, match=message):
        report.value(**question)


def test_a_name_in_two_scopes_needs_the_scope() -> None:
    b = ReportBuilder("star", "predicted")
    for scope in ("broker", "overlay_link"):
        b.add(scope, "x", "utilisation", 0.5, how="exact")
    with pytest.raises(ReportError, match="say which scope: broker, overlay_link"):
        b.build().value("utilisation", name="x")
    assert b.build().value("utilisation", scope="broker", name="x") == 0.5


def test_values_by_name_are_of_one_variant(report: QoSReport) -> None:
    assert report.values("reliability", scope="subscriber", variant="bypass") == {"s1": 0.9, "s2": 0.8, "s3": 1.0}
    with pytest.raises(ReportError, match="several variants, say which: bypass, buffering"):
        report.values("reliability", scope="subscriber")


def test_the_wide_form_has_one_row_per_component_and_variant(report: QoSReport) -> None:
    rows = report.wide("subscriber")
    assert [(row["variant"], row["name"]) for row in rows] == [
        (variant, name) for variant in ("bypass", "buffering") for name in ("s1", "s2", "s3")
    ]
    assert rows[0] == {"variant": "bypass", "name": "s1", "reliability": 0.9, "share_dropped:expired": 0.1}
    assert rows[1]["share_dropped:expired"] is None
    assert len(report.wide("subscriber", variant="buffering")) == 3


def test_the_summary_is_that_of_plain_python(report: QoSReport) -> None:
    for row in report.summary():
        figures = report.figures(variant=row.variant, scope=row.scope, metric=row.metric, detail=row.detail)
        values = [figure.value for figure in figures]
        assert row.count == len(values)
        assert row.mean == pytest.approx(statistics.fmean(values))
        assert (row.smallest, row.largest) == (min(values), max(values))
        if row.metric == "reliability":
            assert row.worst == "s2"


def test_the_worst_is_the_largest_where_less_is_better() -> None:
    b = ReportBuilder("star", "predicted")
    b.add_many("broker", ["b1", "b2", "b3"], "utilisation", [0.1, 0.7, 0.7], how="exact")
    b.add_many("broker", ["b1", "b2"], "rate_in_per_s", [1, 2], how="exact")
    assert [row.worst for row in b.build().summary()] == ["b2", ""]


def test_the_mean_never_leaves_the_range() -> None:
    b = ReportBuilder("star", "predicted")
    b.add_many("broker", [f"b{i}" for i in range(3)], "utilisation", [0.1] * 3, how="exact")
    (row,) = b.build().summary()
    assert row.mean == 0.1


def test_keys_stay_apart_even_where_their_numbers_would_overflow() -> None:
    codes = np.array([0, 1, 2, 1], dtype=np.int32)
    keys = fold([(codes, 2**31 - 1)] * 5)
    assert len(set(keys.tolist())) == 3
    assert keys[1] == keys[3]


def test_groups_are_those_of_plain_python() -> None:
    rng = np.random.default_rng(1)
    keys, values = rng.integers(0, 20, 300), rng.integers(0, 9, 300).astype(float)
    groups = Groups(keys)
    seen = list(dict.fromkeys(keys.tolist()))
    assert keys[groups.first].tolist() == seen
    for i, key in enumerate(seen):
        rows = [row for row in range(300) if keys[row] == key]
        assert groups.size[i] == len(rows)
        assert groups.largest_row(values)[i] == max(rows, key=lambda row: (values[row], -row))
