"""Charts of curves with points and intervals, bands and stacked shares; where lines end; hostile names."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surecast.errors import ConfigurationError
from surecast.studio.curves import Band, Curve, CurveChart, Marks, draw_curves
from surecast.studio.curves_page import curves_figure, curves_table

LINE = Curve("a <b>", [1.0, 2.0, 3.0], [1.0, 4.0, 9.0], Marks([1.0, 3.0], [1.1, 8.5], [0.9, 8.0], [1.3, 9.0]))
OTHER = Curve("ceiling", [1.0, 3.0], [10.0, math.nan], dashed=True, colour=5)
LABELS: dict[str, Any] = {"title": "squares", "x_label": "x", "y_label": "y (s)"}


@pytest.mark.parametrize("suffix", ["html", "svg", "png"])
def test_files(tmp_path: Path, suffix: str) -> None:
    chart = CurveChart([LINE, OTHER], level=("target", 5.0), moment=("now", 2.0), **LABELS)
    path = draw_curves(chart, tmp_path / f"c.{suffix}")
    content = path.read_bytes()
    assert content == draw_curves(chart, path).read_bytes()
    if suffix == "html":
        text = content.decode()
        assert "Points: simulated, with 95 % intervals." in text
        assert "<b>a" not in re.sub(r"<script.*?</script>", "", text, flags=re.S)


def test_the_figure_has_lines_intervals_and_points() -> None:
    figure = curves_figure(CurveChart([LINE, OTHER], **LABELS))
    modes = [trace["mode"] for trace in figure.spec["data"]]
    assert modes == ["lines", "lines", "markers", "lines"]
    bars = np.array(figure.spec["data"][1]["y"])
    assert bars[:2].tolist() == [0.9, 1.3]
    assert np.isnan(bars[2])
    assert figure.spec["data"][3]["line"]["dash"] == "7px,4px"
    assert "var(--series-5)" in json.dumps(figure.spec["data"][3]["line"])


def test_the_table_has_every_number() -> None:
    table = curves_table(CurveChart([LINE, OTHER], **LABELS))
    assert table.rows[0] == ["a <b>", 1.0, 1.0, 1.1, 0.9, 1.3]
    assert table.rows[1] == ["a <b>", 2.0, 4.0, None, None, None]
    assert table.rows[-1] == ["ceiling", 3.0, None, None, None, None]


def test_axes_hold_everything() -> None:
    chart = CurveChart([LINE], y_from_zero=True, level=("t", 20.0), **LABELS)
    assert chart.y_ends[0] == 0.0
    assert chart.y_ends[1] > 20.0
    assert chart.x_ends[0] < 1.0 < 3.0 < chart.x_ends[1]
    below = CurveChart([Curve("c", [0.0, 1.0], [-2.0, 3.0])], y_from_zero=True, **LABELS)
    assert below.y_ends[0] < -2.0
    log = CurveChart([Curve("c", [0.1, 10.0], [0.0, 100.0])], x_log=True, y_log=True, **LABELS)
    assert log.x_ends[0] > 0
    assert log.y_ends[0] > 0


def loads(**more: Any) -> CurveChart:
    lines = (
        Curve("rises", [1.0, 2.0, 3.0], [1.0, 2.0, math.nan], ends="saturates at 2.5"),
        Curve("<b>steep</b>", [1.0, 2.0, 3.0], [1.0, 2.0, 12.0], ends="ends"),
        Curve("many", [1.0, 2.0, 3.0], [1.0, 1.5, 2.0], faint=True),
        Curve("many", [1.0, 2.0, 3.0], [1.0, 1.4, 1.9], faint=True),
    )
    band = Band("between", [1.0, 2.0, 3.0], [1.0, 1.0, math.nan], [2.0, 3.0, math.nan])
    return CurveChart(lines, **{**LABELS, "bands": (band,), "y_max": 7.0, "moment": ("now", 2.0), **more})


def test_where_lines_end() -> None:
    drawn = loads()
    assert drawn.end_of(drawn.curves[0]) == (2.0, 2.0)
    assert drawn.end_of(drawn.curves[1]) == (2.5, 7.0)
    assert drawn.end_of(Curve("high", [1.0], [9.0])) == (1.0, 7.0)
    assert drawn.end_of(Curve("none", [1.0], [math.nan])) is None


STACKED: dict[str, Any] = {"stacked": True, "bands": (), "x_ticks": (1.0, 2.0, 3.0), "y_max": None}


@pytest.mark.parametrize("more", [{}, {"x_log": True}, STACKED])
def test_bands_ends_and_shares_in_every_kind_of_file(tmp_path: Path, more: dict[str, Any]) -> None:
    for name, begin in (("a.html", b"<!DOCTYPE"), ("a.svg", b"<?xml"), ("a.png", b"\x89PNG")):
        assert draw_curves(loads(**more), tmp_path / name).read_bytes().startswith(begin)
    assert "<b>steep</b>" not in (tmp_path / "a.html").read_text()


def test_the_figure_has_bands_crosses_and_faint_lines() -> None:
    figure = curves_figure(loads())
    traces = figure.spec["data"]
    assert [trace.get("name") for trace in traces if trace.get("showlegend", True)] == [
        "between", "rises", "&lt;b&gt;steep&lt;/b&gt;",
    ]  # fmt: skip
    crosses = [trace for trace in traces if trace["mode"] == "markers"]
    assert [(trace["x"], trace["y"]) for trace in crosses] == [([2.0], [2.0]), ([2.5], [7.0])]
    assert [len(trace["x"]) for trace in traces[:2]] == [2, 2]  # no area where the band has no value
    assert [trace["line"]["color"] for trace in traces if trace.get("opacity") == 0.55] == ["var(--steady)"] * 2
    assert figure.spec["layout"]["shapes"][0]["x0"] == 2.0
    assert figure.spec["layout"]["yaxis"]["range"][1] == 7.0
    assert "rises" in figure.alt


def test_shares_fill_the_axis() -> None:
    chart = loads(**STACKED)
    assert (chart.x_ends, chart.y_ends) == ((1.0, 3.0), (0.0, 1.0))
    figure = curves_figure(chart)
    assert {trace["stackgroup"] for trace in figure.spec["data"]} == {"all"}
    assert figure.spec["layout"]["xaxis"]["tickvals"] == [1.0, 2.0, 3.0]
    one = CurveChart([Curve("c", [2.0], [1.0])], stacked=True, **LABELS)
    assert one.x_ends[0] < 2.0 < one.x_ends[1]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "0 curves"),
        ([LINE] * 2, "more than once"),
        ([Curve("c", [1.0], [1.0, 2.0])], "1 x but 2 y"),
        ([Curve("c", [math.nan], [1.0])], "every x must be finite"),
        ([Curve("c", [1.0], [math.inf])], "infinite"),
        ([Curve("c", [1.0], [math.nan])], "nothing to draw"),
        ([Curve("c", [1.0], [1.0], Marks([1.0], [1.0], [0.5]))], "both low and high"),
        ([Curve("c", [1.0], [1.0], Marks([1.0], [1.0], [0.5, 1], [2.0, 1]))], "ends of intervals"),
    ],
)
def test_mistakes(lines: list[Curve], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        CurveChart(lines, **LABELS)


def test_mistakes_of_bands_shares_and_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="band 'b': give as many low and high as x"):
        loads(bands=(Band("b", [1.0, 2.0], [1.0], [2.0, 3.0]),))
    with pytest.raises(ConfigurationError, match="curve 'd': stacked curves must have the same x"):
        CurveChart([Curve("c", [1.0, 2.0], [1, 0.5]), Curve("d", [1.0], [0.5])], stacked=True, **LABELS)
    with pytest.raises(ConfigurationError):
        draw_curves(loads(), tmp_path / "a.gif")
