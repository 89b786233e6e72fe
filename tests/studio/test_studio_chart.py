"""Charts described once: what page and picture show alike, where axes end, and what cannot be drawn."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surecast.errors import ConfigurationError
from surecast.studio import Area, Axis, Bars, Chart, Line, Points, RuleLine, draw_chart
from surecast.studio.chart import Layer, Names, Paths, Span, ticks_between
from surecast.studio.draw import numbers_table
from surecast.studio.plotly_figure import figure_data
from surecast.studio.style import LIGHT

NAME = "a <b>"
LINE = Line(NAME, [1.0, 2.0, 3.0], [1.0, 4.0, 9.0], how="by formula")
MARKS = Points(NAME, [1.0, 3.0], [1.1, 8.5], [0.9, 8.0], [1.3, 9.0], how="simulated")
OTHER = Line("ceiling", [1.0, 3.0], [10.0, math.nan], dashed=True, colour=5, how="by formula")
AXES: dict[str, Any] = {"x": Axis("x"), "y": Axis("y (s)")}


def squares(*layers: Layer, **more: Any) -> Chart:
    return Chart(layers or (LINE, MARKS, OTHER), **{"title": "squares", **AXES, **more})


def every_kind() -> Chart:
    """A chart with every kind of layer, as none would be drawn."""
    xy = np.array([[1.0, 2.0], [3.0, 4.0]])
    return squares(
        Area("between", [1.0, 2.0, 3.0], [1.0, 1.0, math.nan], [2.0, 3.0, math.nan]),
        Paths("roads", [xy], colour="physical", width_px=1.0, cased=True, avoid=1.0),
        Bars(NAME, [1.0, 2.0], [3.0, math.nan], ["3 ms", "none"], marked=0),
        LINE,
        MARKS,
        Points("across", [2.0], [2.0], [1.0], [3.0], across=True, hollow=True, symbol="x"),
        Points("shades", *xy.T, shades=[0.0, 1.0], size_px=[9.0, 12.0]),
        Names(["<i>one</i>", "two"], xy, radii_px=[4.0, 6.0], sides=["top center", "middle right"], seconds=["1", ""]),
        Names(["mid"], np.array([[2.0, 3.0]]), radii_px=[1.0], sides=[""], quiet=True, centred=True),
        rules=[RuleLine("target", 5.0, upright=False), RuleLine("<u>now</u>", 2.0), RuleLine("then", 2.5, dashed=True)],
        spans=[Span(1.5, 2.0)],
    )


@pytest.mark.parametrize("suffix", ["html", "svg", "png"])
@pytest.mark.parametrize("chart", [squares, every_kind])
def test_the_same_chart_gives_the_same_bytes(tmp_path: Path, chart: Callable[[], Chart], suffix: str) -> None:
    first, second = (draw_chart(chart(), tmp_path / f"{i}.{suffix}").read_bytes() for i in range(2))
    assert first == second
    assert first.startswith({"html": b"<!DOCTYPE", "svg": b"<?xml", "png": b"\x89PNG"}[suffix])


@pytest.mark.parametrize(
    ("form", "log"),
    [("free", False), ("square", False), ("plane", False), ("layers", False), ("free", True), ("square", True)],
)
def test_plotly_accepts_every_figure_and_no_name_is_markup(form: Any, log: bool) -> None:
    from plotly.graph_objects import Figure

    chart = every_kind()
    more = {"x": Axis("<s>x</s>", log=True, ends=(0.5, 9.0)), "y": Axis("y", log=True)} if log else {}
    layers = [layer for layer in chart.layers if not (log and isinstance(layer, Bars))]
    figure = figure_data(Chart(layers, title="t", **{**AXES, **more}, rules=chart.rules, spans=chart.spans, form=form))
    Figure(json.loads(json.dumps(figure, default=lambda values: np.where(np.isnan(values), 0.0, values).tolist())))
    text = str(figure)
    assert "<i>" not in text
    assert "<u>" not in text
    assert "<s>" not in text


def test_a_page_escapes_names(tmp_path: Path) -> None:
    text = draw_chart(squares(caption="<b>caption"), tmp_path / "a.html").read_text()
    assert "<b>a" not in re.sub(r"<script.*?</script>", "", text, flags=re.S)
    assert "<b>caption" not in text


def test_one_label_is_one_colour_and_one_entry_of_the_legend() -> None:
    chart = squares()
    assert chart.colour(LINE) == chart.colour(MARKS) == 0
    assert chart.entries == [NAME, "ceiling"]
    figure = figure_data(chart)
    shown = [trace["name"] for trace in figure["data"] if trace["showlegend"]]
    assert shown == ["a &lt;b&gt;", "ceiling"]
    assert squares(LINE, MARKS).entries == []  # one thing needs no legend
    reference = squares(Line("all", [1.0], [2.0], colour="ink"), LINE, OTHER)
    assert reference.entries == [NAME, "ceiling", "all"]


def test_intervals_lie_under_all_marks() -> None:
    figure = figure_data(squares())
    modes = [trace["mode"] for trace in figure["data"]]
    assert modes == ["lines", "lines", "markers", "lines"]
    bars = np.array(figure["data"][0]["y"])
    assert bars[:2].tolist() == [0.9, 1.3]
    assert np.isnan(bars[2])
    assert figure["data"][3]["line"]["dash"] == "7px,4px"
    assert figure["data"][3]["line"]["color"] == "var(--series-5)"
    many = Points("many", *np.ones((2, 500)))
    assert many.interval_opacity < MARKS.interval_opacity


def test_the_table_has_every_number() -> None:
    table = numbers_table(squares())
    assert table.header == ["Series", "x", "By formula", "Simulated", "Low", "High"]
    assert table.rows[0] == [NAME, 1.0, 1.0, 1.1, 0.9, 1.3]
    assert table.rows[1] == [NAME, 2.0, 4.0, None, None, None]
    assert table.rows[-1] == ["ceiling", 3.0, None, None, None, None]
    assert numbers_table(squares(Line("c", [1.0], [2.0]))).header == ["Series", "x", "y (s)"]


def test_axes_hold_everything() -> None:
    chart = squares(LINE, y=Axis("y", from_zero=True), rules=[RuleLine("t", 20.0, upright=False), RuleLine("now", 5.0)])
    assert chart.y_ends[0] == 0.0
    assert chart.y_ends[1] > 20.0
    assert chart.x_ends[0] < 1.0 < 5.0 < chart.x_ends[1]
    below = squares(Line("c", [0.0, 1.0], [-2.0, 3.0]), y=Axis("y", from_zero=True))
    assert below.y_ends[0] < -2.0
    log = squares(Line("c", [0.1, 10.0], [0.0, 100.0]), x=Axis("x", log=True), y=Axis("y", log=True))
    assert log.x_ends[0] > 0
    assert log.y_ends[0] > 0
    cut = squares(y=Axis("y", from_zero=True, high=7.0))
    assert cut.y_ends == (0.0, 7.0)
    assert figure_data(cut)["layout"]["yaxis"]["range"][1] == 7.0
    assert squares(x=Axis("x", ends=(1.0, 3.0))).x_ends == (1.0, 3.0)
    flat = squares(Line("c", [2.0], [0.0]))
    assert flat.x_ends[0] < 2.0 < flat.x_ends[1]
    assert flat.y_ends[0] < 0.0 < flat.y_ends[1]


def test_ticks_are_round_numbers_within_the_axis() -> None:
    assert [text for _, text in ticks_between(Axis(), 0.0, 1.0, 5)] == ["0", "0.2", "0.4", "0.6", "0.8", "1"]
    assert [text for _, text in ticks_between(Axis(whole=True), 0.0, 2.0)] == ["0", "1", "2"]
    assert [value for value, _ in ticks_between(Axis(), 3.0, -0.5, 4)] == [0, 1, 2, 3]
    assert [text for _, text in ticks_between(Axis(log=True), 10.0, 1e5)] == ["10", "100", "1,000", "10,000", "100,000"]
    named = Axis(ticks=((0.0, "a"), (1.0, "b"), (9.0, "far")))
    assert ticks_between(named, 0.0, 1.0) == [(0.0, "a"), (1.0, "b")]


def test_names_of_rules_stand_above_the_chart_one_over_the_other() -> None:
    figure = figure_data(every_kind())
    notes = {note["text"]: note for note in figure["layout"]["annotations"]}
    assert notes["then"]["yshift"] > notes["&lt;u&gt;now&lt;/u&gt;"]["yshift"]
    assert notes["then"]["y"] == 1
    assert notes["target"]["y"] == 5.0
    rules = [shape for shape in figure["layout"]["shapes"] if shape["type"] == "line"]
    assert [shape.get("x0") for shape in rules] == [0, 2.0, 2.5]


def test_a_bar_has_its_text_and_the_marked_one_its_colour() -> None:
    figure = figure_data(every_kind())
    (bars,) = (trace for trace in figure["data"] if trace["type"] == "bar")
    assert bars["marker"]["color"] == ["var(--accent)", "var(--series-0)"]
    (texts,) = (trace for trace in figure["data"] if trace.get("mode") == "text")
    assert [text.strip() for text in texts["text"]] == ["3 ms", "none"]
    assert list(texts["x"]) == [3.0, 0.0]


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([], "nothing to draw"),
        ([Line("c", [1.0], [math.nan])], "nothing to draw"),
        ([Line("c", [1.0], [1.0, 2.0])], "series 'c': 1 x but 2 y"),
        ([Line("c", [math.nan], [1.0])], "every x must be finite"),
        ([Line("c", [1.0], [math.inf])], "infinite"),
        ([Points("c", [1.0], [1.0], [0.5])], "both low and high"),
        ([Points("c", [1.0], [1.0], [0.5, 1], [2.0, 1])], "series 'c': 1 x but 2 low"),
        ([Area("b", [1.0, 2.0], [1.0], [2.0, 3.0])], "series 'b': 2 x but 1 low"),
        ([Line(f"{i}", [1.0], [1.0]) for i in range(len(LIGHT.series) + 1)], "10 series: at most 9"),
    ],
)
def test_mistakes(layers: list[Layer], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Chart(layers, title="t", **AXES)


def test_a_logarithmic_axis_needs_values_above_zero() -> None:
    with pytest.raises(ConfigurationError, match="a logarithmic y axis needs values above 0"):
        squares(Line("c", [1.0], [0.0]), y=Axis("y", log=True))


def test_an_unknown_suffix_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"\.html, \.svg, \.png"):
        draw_chart(squares(), tmp_path / "a.gif")


def test_only_the_two_renderers_import_what_draws() -> None:
    source = Path(__file__).parents[2] / "src" / "surecast"
    importing: dict[str, set[str]] = {}
    for path in source.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if not any(package in text for package in ("matplotlib", "plotly")):
            continue  # reading all modules as Python takes seconds
        for node in ast.walk(ast.parse(text)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for package in {name.partition(".")[0] for name in names} & {"matplotlib", "plotly"}:
                importing.setdefault(package, set()).add(path.relative_to(source).as_posix())
    assert importing == {
        "matplotlib": {"studio/matplotlib_picture.py"},
        "plotly": {"studio/plotly_figure.py"},
    }
