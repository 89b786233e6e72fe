"""A report holds exactly what was added, and nothing that cannot be right."""

from __future__ import annotations

import math

import numpy as np
import pytest

from surecast.report import Figure, QoSReport, ReportBuilder, ReportError


def builder() -> ReportBuilder:
    return ReportBuilder("star", "simulated", seed=7, version="1")


def test_a_figure_comes_back_as_it_was_added() -> None:
    b = builder()
    b.add("subscriber", "s1", "share_dropped", 0.25, how="simulated", detail="expired", variant="bypass", low=0.2,
          high=0.3, samples=40)  # fmt: skip
    assert list(b.build()) == [
        Figure("subscriber", "s1", "share_dropped", 0.25, "simulated", "expired", "bypass", 0.2, 0.3, 40)
    ]


def test_columns_and_single_figures_give_the_same_report() -> None:
    one, many = builder(), builder()
    for name, value in (("s1", 0.5), ("s2", 0.75)):
        one.add("subscriber", name, "reliability", value, how="exact", low=0.1, samples=3)
    many.add_many("subscriber", np.array(["s1", "s2"]), "reliability", [0.5, 0.75], how="exact", low=0.1, samples=3)
    assert one.build() == many.build()


def test_the_order_of_adding_is_kept_across_single_figures_and_columns() -> None:
    b = builder()
    b.add("broker", "b9", "utilisation", 0.1, how="exact")
    b.add_many("broker", ["b1", "b0"], "utilisation", [0.2, 0.3], how="exact")
    b.add("broker", "b5", "utilisation", 0.4, how="exact")
    assert [figure.name for figure in b.build()] == ["b9", "b1", "b0", "b5"]


def test_every_text_may_be_a_column() -> None:
    b = builder()
    b.add_many("broker", ["b1", "b1"], "rate_in_per_s", [5, 6], how=["exact", "upper_bound"],
               detail=["notification", "control"], variant=["x", "y"])  # fmt: skip
    assert [(f.how, f.detail, f.variant) for f in b.build()] == [
        ("exact", "notification", "x"),
        ("upper_bound", "control", "y"),
    ]


def test_the_same_tuple_of_names_serves_as_detail_too() -> None:
    words = ("alpha", "beta")
    b = builder()
    b.add_many("broker", words, "rate_in_per_s", [1, 2], how="exact")
    b.add_many("broker", words, "rate_in_per_s", [1, 2], how="exact", detail=words)
    b.add_many("broker", words, "utilisation", [1, 2], how="exact")
    assert [(f.name, f.detail) for f in b.build()] == [
        ("alpha", ""), ("beta", ""), ("alpha", "alpha"), ("beta", "beta"), ("alpha", ""), ("beta", "")
    ]  # fmt: skip


def test_figures_that_do_not_exist_are_left_out() -> None:
    b = builder()
    b.add_many("subscriber", ["s1", "s2"], "reliability", [math.nan, 0.5], how="exact", where=[False, True])
    assert [figure.name for figure in b.build()] == ["s2"]


def test_absent_ends_and_samples_in_columns() -> None:
    b = builder()
    b.add_many("subscriber", ["s1", "s2"], "reliability", [0.5, 0.5], how="exact", low=[math.nan, 0.4], samples=[-1, 9])
    first, second = b.build()
    assert (first.low, first.samples, second.low, second.high, second.samples) == (None, None, 0.4, None, 9)


def test_the_builder_copies_what_it_is_given_and_the_report_is_read_only() -> None:
    values = np.array([0.5, 0.25])
    b = builder()
    b.add_many("subscriber", ["s1", "s2"], "reliability", values, how="exact")
    values[0] = 0.9
    report = b.build()
    assert report.value("reliability", name="s1") == 0.5
    with pytest.raises(ValueError, match="read-only"):
        report.columns.value[0] = 1.0


def test_repeated_figures_are_refused_by_name() -> None:
    b = builder()
    b.add("subscriber", "s1", "reliability", 0.5, how="exact", variant="bypass")
    b.add_many("subscriber", ["s0", "s1"], "reliability", [0.5, 0.6], how="simulated", variant="bypass")
    with pytest.raises(ReportError, match="bypass: subscriber s1, reliability: this figure was given twice"):
        b.build()


def test_the_same_figure_of_another_variant_is_another_figure() -> None:
    b = builder()
    for variant in ("", "bypass"):
        b.add("subscriber", "s1", "reliability", 0.5, how="exact", variant=variant)
    assert b.build().variants == ("", "bypass")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metric": "reliabilty"}, "unknown metric 'reliabilty'; did you mean 'reliability'"),
        ({"scope": "broker"}, "metric 'reliability' is not for scope 'broker', only for subscriber"),
        ({"scope": "subscribers"}, "unknown scope 'subscribers'.*did you mean 'subscriber'"),
        ({"name": ""}, "needs the name of its subscriber"),
        ({"scope": "system"}, "name 's1' must be empty"),
        ({"detail": "p99"}, "metric 'reliability' is not split"),
        ({"metric": "delay_quantile_s"}, "needs its quantile as detail, such as 'p99', not ''"),
        ({"how": "guessed"}, "unknown how 'guessed'; known are exact"),
        ({"value": math.nan}, "subscriber s1, reliability: the value is not a number"),
        ({"value": math.inf}, "subscriber s1, reliability: value is inf; a figure must be finite"),
        ({"value": 1.01}, "subscriber s1, reliability: value 1.01 is out of range; it must be between 0 and 1"),
        ({"value": -0.01}, "out of range"),
        ({"metric": "delay_mean_s", "value": -1.0}, "it must be 0 or more"),
        ({"low": 0.6, "high": 0.4}, "has its ends exchanged"),
        ({"low": 0.6}, "lies outside its own interval"),
        ({"high": math.inf}, "high is inf"),
        ({"samples": -2}, "samples"),
        ({"name": "\ud800"}, "not valid Unicode"),
    ],
)
def test_what_cannot_be_right_is_refused(change: dict[str, object], message: str) -> None:
    given: dict[str, object] = {
        "scope": "subscriber", "name": "s1", "metric": "reliability", "value": 0.5, "how": "exact"
    }  # fmt: skip
    given |= change
    with pytest.raises(ReportError, match=message):
        builder().add(**given)  # type: ignore[arg-type]
    given["names"], given["values"] = [given.pop("name")], [given.pop("value")]
    with pytest.raises(ReportError, match=message):
        builder().add_many(**given)  # type: ignore[arg-type]


def test_the_row_at_fault_is_named() -> None:
    with pytest.raises(ReportError, match=r"subscriber s2, reliability: value 3\.0"):
        builder().add_many("subscriber", ["s1", "s2"], "reliability", [0.5, 3.0], how="exact")


def test_a_trace_of_rounding_is_no_error() -> None:
    b = builder()
    b.add("subscriber", "s1", "reliability", 1.0 + 2e-16, how="exact", high=1.0)
    b.add("subscriber", "s2", "delay_mean_s", -1e-17, how="exact")
    assert len(b.build()) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"values": [0.5]}, "2 texts for column 'name', but 1 values"),
        ({"values": 0.5}, "values: expected one value per name"),
        ({"values": [[0.5, 0.5]]}, "shape"),
        ({"values": ["x", "y"]}, "values: not all of them are numbers"),
        ({"low": [0.1]}, "low: expected 2 values"),
        ({"samples": [1.5, 2.5]}, "samples: not all of them are whole numbers"),
    ],
)
def test_columns_must_fit_together(change: dict[str, object], message: str) -> None:
    given: dict[str, object] = {"names": ["s1", "s2"], "values": [0.5, 0.6], **change}
    with pytest.raises(ReportError, match=message):
        builder().add_many("subscriber", metric="reliability", how="exact", **given)  # type: ignore[arg-type]


def test_notes_and_warnings_are_kept_once() -> None:
    b = ReportBuilder("star", "predicted", notes=["a"])
    for _ in range(2):
        b.note("a")
        b.note("b")
        b.warn("broker b3 is overloaded")
    info = b.build().info
    assert info.notes == ("a", "b")
    assert info.warnings == ("broker b3 is overloaded",)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"source": "guessed"}, "unknown source 'guessed'"),
        ({"seed": 1.5}, "seed: 1.5 is not a whole number"),
        ({"parameters": {"a": [1, math.nan]}}, r"parameters.a\[1\]: nan is not a finite number"),
        ({"parameters": {"a": object()}}, "parameters.a: object cannot be stored"),
        ({"parameters": {1: 2}}, "parameters, key: 1 is not text"),
    ],
)
def test_a_head_that_no_file_could_hold_is_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(ReportError, match=message):
        ReportBuilder(**{"scenario": "star", "source": "predicted", **given})  # type: ignore[arg-type]


def test_parameters_become_plain_values() -> None:
    b = ReportBuilder("star", "predicted", seed=int(np.int64(3)), parameters={"n": np.int64(4), "pair": (1, 2.5)})
    assert b.build().info.parameters == {"n": 4, "pair": [1, 2.5]}


def test_reports_can_be_collected_as_variants() -> None:
    one = builder()
    one.add("system", "", "message_rate_per_s", 5.0, how="exact", detail="control")
    one.warn("w")
    both = builder()
    for variant in ("flooding", "covering"):
        both.add_report(one.build(), variant=variant)
    both.add_report(QoSReport(one.build().info, one.build().columns))
    report = both.build()
    assert report.variants == ("flooding", "covering", "")
    assert report.info.warnings == ("w",)


def test_half_a_million_figures_stay_in_columns() -> None:
    count = 100_000
    names = tuple(f"s{i}" for i in range(count))
    values = np.linspace(0.0, 1.0, count)
    b = builder()
    for metric in ("reliability", "share_on_time", "share_late", "share_queued", "delay_mean_s"):
        b.add_many("subscriber", names, metric, values, how="simulated")
    report = b.build()
    columns = report.columns
    assert len(report) == 5 * count
    assert columns.value.dtype == np.float64
    assert columns.value.nbytes == 8 * len(report)
    for column in ("variant", "scope", "name", "metric", "detail", "how"):
        text = columns.text(column)
        assert text.codes.dtype == np.int32
        assert len(text.codes) == len(report)
    assert len(columns.name.words) == count
    assert columns.metric.words == ("reliability", "share_on_time", "share_late", "share_queued", "delay_mean_s")
    assert report.value("delay_mean_s", name="s99999") == 1.0


def test_an_empty_report_is_a_report() -> None:
    report = builder().build()
    assert len(report) == 0
    assert list(report) == []
    assert report.summary() == []
    assert report.wide("broker") == []
    assert report.to_arrow().num_rows == 0
