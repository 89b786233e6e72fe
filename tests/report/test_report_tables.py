"""Reports as people see them."""

from __future__ import annotations

import pytest
from rich.console import Console, RenderableType

from surecast.report import (
    Figure,
    QoSReport,
    ReportBuilder,
    ReportError,
    compare,
    format_figure,
    format_value,
    render_comparison,
)
from surecast.report import render as render_report


def shown(what: RenderableType, width: int = 160) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(what)
    return capture.get()


@pytest.fixture
def report() -> QoSReport:
    b = ReportBuilder("star", "simulated", seed=7, notes=["links never fail"])
    names = [f"sub{i:03d}" for i in range(500)]
    values = [0.9 + i / 10_000 for i in range(500)]
    b.add_many("subscriber", names, "reliability", values, how="simulated", low=[v - 0.003 for v in values],
               high=[v + 0.003 for v in values])  # fmt: skip
    b.add_many("subscriber", names[:20], "delay_mean_s", [0.001 * i for i in range(20)], how="simulated")
    b.add("system", "", "notification_delay_worst_s", 0.0423, how="approximation")
    b.add("broker", "b[red]3", "utilisation", 1.07, how="exact")
    b.add("broker", "b\x1b[1m4", "rate_in_per_s", 1400, how="upper_bound", detail="control")
    b.warn("broker b3 is overloaded")
    return b.build()


def test_the_whole_report(report: QoSReport) -> None:
    text = shown(render_report(report))
    for part in (
        "star, simulated, seed 7: 523 figures",
        "! broker b3 is overloaded",
        "links never fail",
        "≈ 42.3 ms",
        "Subscribers, in summary",
        "Subscribers, worst first by real-time reliability",
        "~ 90.0 ± 0.3 %",
        "Real-time reliability: 92.5 % in the mean of 500 subscribers, 90.0 % for the worst, sub000.",
        "The busiest is broker b[red]3, at 107 % of what it can carry.",
        "… and 480 more",
        "b[red]3",
        "= 1.07",
        "≤ 1,400/s",
        "~ simulated, with its 95 % confidence interval",
        "≤ upper bound",
    ):
        assert part in text
    assert "\x1b" not in text
    assert text.index("Whole system") < text.index("in summary") < text.index("worst first")
    assert "measured" not in text


def test_the_worst_come_first_and_the_number_of_rows_is_limited(report: QoSReport) -> None:
    text = shown(render_report(report, scope="subscriber", limit=2))
    rows = text[text.index("worst first") :]
    assert "sub000" in rows
    assert "sub001" in rows
    assert "sub002" not in rows
    assert "… and 498 more" in rows
    assert "Whole system" not in text
    assert "worst first" not in shown(render_report(report, limit=0))


def test_rows_can_be_sorted_by_any_column(report: QoSReport) -> None:
    text = shown(render_report(report, scope="subscriber", limit=1, sort_by="delay_mean_s"))
    rows = text[text.index("worst first by mean delay") :]
    assert "sub019" in rows
    assert "19 ms" in rows
    assert "largest first by messages in: control" in shown(render_report(report, sort_by="rate_in_per_s:control"))
    with pytest.raises(ReportError, match=r"cannot sort by 'delay_mean': there is .*did you mean 'delay_mean_s'"):
        render_report(report, sort_by="delay_mean")


def test_components_without_the_column_come_last(report: QoSReport) -> None:
    text = shown(render_report(report, scope="subscriber", limit=21, sort_by="delay_mean_s"))
    rows = text[text.index("worst first") :]
    assert rows.index("sub019") < rows.index("sub000") < rows.index("sub020")


def test_columns_that_do_not_fit_follow_below_with_the_names_again(report: QoSReport) -> None:
    text = shown(render_report(report, scope="subscriber"), width=30)
    assert max(len(line) for line in text.splitlines()) <= 30
    rows = text[text.index("worst first") :]
    second = rows.index("delay")
    assert rows.index("sub000") < second < rows.index("sub000", second)


def test_variants_have_a_column_only_if_there_are_several(report: QoSReport) -> None:
    assert "Variant" not in shown(render_report(report))
    b = ReportBuilder("star", "predicted")
    b.add_report(report, variant="bypass")
    b.add_report(report, variant="buffering")
    text = shown(render_report(b.build()))
    assert "Variant" in text
    assert "buffering" in text
    one = shown(render_report(b.build(), variant="bypass"))
    assert "buffering" not in one
    with pytest.raises(ReportError, match="no variant 'bypas'; it has bypass, buffering; did you mean"):
        render_report(b.build(), variant="bypas")


def test_what_cannot_be_shown_is_refused(report: QoSReport) -> None:
    with pytest.raises(ReportError, match="no figure of scope 'router'; it has system, subscriber, broker"):
        render_report(report, scope="router")
    with pytest.raises(ReportError, match="unknown scope"):
        render_report(report, scope="routers")


def test_an_empty_report_says_so() -> None:
    assert "no figures" in shown(render_report(ReportBuilder("star", "predicted").build()))


def test_a_comparison(report: QoSReport) -> None:
    b = ReportBuilder("ring", "measured")
    names = [f"sub{i:03d}" for i in range(400)]
    b.add_many("subscriber", names, "reliability", [0.91] * 400, how="measured", low=0.9, high=0.95)
    b.add("system", "", "notification_delay_worst_s", 0.0846, how="measured")
    b.add("class", "c1", "traffic_per_s", 5, how="measured")
    text = shown(render_comparison(compare(report, b.build()), limit=5))
    for part in (
        "a: star, simulated, seed 7",
        "b: ring, measured",
        "! the two reports are about different scenarios",
        "401 figures in both",
        "Agreement",
        "Largest disagreements",
        "+42.3 ms",
        "+100.0 %",
        "… and 396 more",
        "only in a: 122 figures",
        "subscriber, Real-time reliability: 100 (sub400, sub401, sub402, …)",
        "only in b: 1 figure\n",
    ):
        assert part in text
    narrow = shown(render_comparison(compare(report, b.build())), width=70)
    assert max(len(line) for line in narrow.splitlines()) <= 70
    for header in ("Inside", "Count", "Correlation", "Relative"):
        assert header in narrow
    assert "+42.3 ms" in narrow


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0, "s", "0 s"),
        (3.2e-8, "s", "32 ns"),
        (4.56789e-4, "s", "456.8 µs"),
        (1.0, "s", "1 s"),
        (7200.0, "s", "2 h"),
        (1e6, "s", "11.57 d"),
        (0.0, "share", "0 %"),
        (1.0, "share", "100 %"),
        (0.999_999_87, "share", "99.999987 %"),
        (0.000_123, "share", "0.012 %"),
        (1e-12, "share", "1e-10 %"),
        (1.25, "ratio", "1.25"),
        (1234567.0, "count", "1,234,567"),
        (1234.5678, "count", "1,235"),
        (1e20, "count", "1.000e+20"),
        (0.5, "1/s", "0.5/s"),
    ],
)
def test_numbers(value: float, unit: str, text: str) -> None:
    assert format_value(value, unit) == text


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (0.912, 0.909, 0.915, "~ 91.2 ± 0.3 %"),
        (0.912, 0.8995, 0.9245, "~ 91.2 ± 1.3 %"),
        (0.912, 0.912, 0.912, "~ 91.2 ± 0 %"),
        (0.99, 0.9, 1.0, "~ 99 % [90, 100]"),
        (0.912, 0.9, None, "~ 91.2 % [90.0, …]"),
        (0.912, None, None, "~ 91.2 %"),
    ],
)
def test_intervals(value: float, low: float | None, high: float | None, text: str) -> None:
    assert format_figure(Figure("subscriber", "s1", "reliability", value, "simulated", low=low, high=high)) == text


def test_an_interval_has_the_unit_of_its_value() -> None:
    figure = Figure("subscriber", "s1", "delay_mean_s", 0.0123, "measured", low=0.0119, high=0.0127)
    assert format_figure(figure) == "• 12.3 ± 0.4 ms"
    wide = Figure("subscriber", "s1", "mtbf_s", 2_592_000.0, "measured", low=1_728_000.0, high=3_456_000.0)
    assert format_figure(wide) == "• 30 ± 10 d"
