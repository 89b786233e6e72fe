"""Charts of lines: where lines end, files of every kind, and hostile names."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from surecast.errors import ConfigurationError
from surecast.studio.lines import Band, Line, LineChart, Mark, draw_lines
from surecast.studio.lines_page import line_figure


def chart(**more: object) -> LineChart:
    lines = (
        Line("rises", [1.0, 2.0, 3.0], [1.0, 2.0, math.nan], ends="saturates at 2.5"),
        Line("<b>steep</b>", [1.0, 2.0, 3.0], [1.0, 2.0, 12.0], colour=1, ends="ends"),
        Line("many", [1.0, 2.0, 3.0], [1.0, 1.5, 2.0], colour=-1, faint=True),
    )
    fields: dict[str, object] = {"bands": (Band("between", [1.0, 2.0], [1.0, 1.0], [2.0, 3.0]),), "y_max": 7.0}
    return LineChart("a chart", "load", "ms", lines, marks=(Mark(2.0, "now"),), **{**fields, **more})  # type: ignore[arg-type]


def test_where_lines_end() -> None:
    drawn = chart()
    assert drawn.end_of(drawn.lines[0]) == (2.0, 2.0)
    assert drawn.end_of(drawn.lines[1]) == (2.5, 7.0)
    assert drawn.end_of(Line("high", [1.0], [9.0])) == (1.0, 7.0)
    assert drawn.end_of(Line("none", [1.0], [math.nan])) is None


@pytest.mark.parametrize("more", [{}, {"log_x": True}, {"stacked": True, "bands": (), "ticks": (1.0, 2.0, 3.0)}])
def test_every_kind_of_file(tmp_path: Path, more: dict[str, object]) -> None:
    for name, begin in (("a.html", b"<!DOCTYPE"), ("a.svg", b"<?xml"), ("a.png", b"\x89PNG")):
        assert draw_lines(chart(**more), tmp_path / name).read_bytes().startswith(begin)
    assert "<b>steep</b>" not in (tmp_path / "a.html").read_text()


def test_figure_of_a_page() -> None:
    figure = line_figure(chart())
    traces = figure.spec["data"]
    assert [trace.get("name") for trace in traces if trace.get("showlegend", True)] == [
        "between", "rises", "&lt;b&gt;steep&lt;/b&gt;",
    ]  # fmt: skip
    crosses = [trace for trace in traces if trace["mode"] == "markers"]
    assert [(trace["x"], trace["y"]) for trace in crosses] == [([2.0], [2.0]), ([2.5], [7.0])]
    assert figure.spec["layout"]["shapes"][0]["x0"] == 2.0
    assert "rises" in figure.alt


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="nothing to draw"):
        LineChart("a", "x", "y", ())
    with pytest.raises(ConfigurationError, match="line 'a': 2 x but 1 y"):
        LineChart("a", "x", "y", (Line("a", [1.0, 2.0], [1.0]),))
    with pytest.raises(ConfigurationError):
        draw_lines(chart(), tmp_path / "a.gif")
