"""Bars: what is given is drawn and can be saved, and what cannot be drawn is refused by name."""

from __future__ import annotations

import base64
import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surecast.errors import ConfigurationError
from surecast.studio import BarSeries, bars

LABELS: Any = {"title": "Brokers", "value_label": "reliability"}
NAMES = ["b1", "b2", "<script>b3"]
SERIES = [
    BarSeries("before", NAMES, [0.80, 0.90, 0.853]),
    BarSeries("<b>after</b>", NAMES, np.array([0.91, float("nan"), 0.95])),
]


def bar_traces(figure: Any) -> list[Any]:
    return [trace for trace in figure["data"] if trace["type"] == "bar"]


def texts(figure: Any) -> list[list[str]]:
    return [[text.strip() for text in trace["text"]] for trace in figure["data"] if trace.get("mode") == "text"]


def many(rows: int, series: int = 1) -> list[BarSeries]:
    names = [f"row {i}" for i in range(rows)]
    return [BarSeries(f"series {k}", names, list(range(rows))) for k in range(series)]


@pytest.mark.parametrize("dark", [False, True])
def test_all_three_kinds_of_file_are_made(dark: bool, tmp_path: Path, figures_of: Any) -> None:
    from plotly.graph_objects import Figure

    for suffix in ("svg", "png", "html"):
        assert bars(SERIES, tmp_path / f"a.{suffix}", target=0.85, dark=dark, **LABELS).is_file()
    ElementTree.parse(tmp_path / "a.svg")
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    page = (tmp_path / "a.html").read_text()
    (figure,) = figures_of(page)
    Figure(figure)
    assert page.count("* plotly.js v") == 1
    assert len(list(tmp_path.iterdir())) == 3


def test_a_png_is_as_wide_as_asked(tmp_path: Path) -> None:
    content = bars(SERIES, tmp_path / "a.png", width=640, **LABELS).read_bytes()
    assert int.from_bytes(content[16:20], "big") == 640


def test_names_are_never_read_as_markup(tmp_path: Path, figures_of: Any) -> None:
    hostile = "<img src=x onerror=alert(1)>"
    page = bars(
        [BarSeries(hostile, [hostile], [1.5])],
        tmp_path / "a.html",
        title=hostile,
        value_label=hostile,
        unit=hostile,
        caption=hostile,
        notes={hostile: hostile},
        target=1.0,
        target_label=hostile,
    ).read_text()
    assert "<img" not in page
    (figure,) = figures_of(page)
    assert "<img" not in json.dumps(figure)
    assert "&lt;img" in figure["layout"]["yaxis"]["ticktext"][0]
    # A dollar sign starts no mathematics in a picture.
    bars([BarSeries("$", ["$x^{2$", "a\x00b\n"], [1.0, 2.0])], tmp_path / "a.svg", title="$\\frac", value_label="$_$")
    ElementTree.parse(tmp_path / "a.svg")


def test_each_series_has_its_bar_and_its_value_in_every_row(tmp_path: Path, figures_of: Any) -> None:
    (figure,) = figures_of(bars(SERIES, tmp_path / "a.html", target=0.85, **LABELS).read_text())
    before, after = bar_traces(figure)
    assert before["x"] == [0.8, 0.9, 0.853]
    assert after["x"] == [0.91, None, 0.95]
    assert texts(figure) == [["0.800", "0.900", "0.853"], ["0.910", "none", "0.950"]]
    assert all(a < b < a + 1 for a, b in zip(before["y"], after["y"], strict=True))
    assert [note["text"] for note in figure["layout"]["annotations"]] == ["target 0.85"]
    assert figure["layout"]["xaxis"]["range"][0] == 0.0


def test_a_name_that_a_series_lacks_has_no_bar_there(tmp_path: Path, figures_of: Any) -> None:
    series = [BarSeries("now", ["a", "b"], [1, 2]), BarSeries("then", ["c", "a"], [3, 4])]
    (figure,) = figures_of(bars(series, tmp_path / "a.html", **LABELS).read_text())
    assert figure["layout"]["yaxis"]["ticktext"] == ["a", "b", "c"]
    assert [trace["x"] for trace in bar_traces(figure)] == [[1, 2, None], [4, None, 3]]


@pytest.mark.parametrize(
    ("values", "unit", "written"),
    [
        ([3, 1200], "", ["3", "1,200"]),
        ([0.02114, -0.00004], "", ["0.02114", "\N{MINUS SIGN}0.00004"]),
        ([0.99995, 0.99999], "", ["0.99995", "0.99999"]),
        ([1 / 3, 0.9], "", ["0.3333", "0.9000"]),
        ([16.4, 50.0], "%", ["16.4 %", "50.0 %"]),
        ([0.0, 0.0], "", ["0", "0"]),
        ([2e12, 1.0], "", ["2e+12", "1"]),
    ],
)
def test_values_have_as_many_digits_as_tell_them_apart(
    values: list[float], unit: str, written: list[str], tmp_path: Path, figures_of: Any
) -> None:
    page = bars([BarSeries("a", ["p", "q"], values)], tmp_path / "a.html", unit=unit, **LABELS).read_text()
    (figure,) = figures_of(page)
    assert texts(figure) == [written]
    assert bars([BarSeries("a", ["p", "q"], values)], tmp_path / "a.png", unit=unit, target=-1.0, **LABELS).is_file()


@pytest.mark.parametrize(("rows", "series", "drawn"), [(40, 1, 40), (57, 2, 40), (40, 6, 20)])
def test_too_many_rows_are_cut_and_the_remainder_is_stated(
    rows: int, series: int, drawn: int, tmp_path: Path, figures_of: Any
) -> None:
    page = bars(many(rows, series), tmp_path / "a.html", **LABELS).read_text()
    (figure,) = figures_of(page)
    assert len(figure["layout"]["yaxis"]["ticktext"]) == drawn
    stated = f"The first {drawn} of {rows} rows are drawn; {rows - drawn} more are not. The table has all."
    assert (stated in page) == (drawn < rows)
    assert f">row {rows - 1}</th>" in page
    assert bars(many(rows, series), tmp_path / "a.png", **LABELS).is_file()


def test_the_numbers_can_be_saved_with_their_notes(tmp_path: Path) -> None:
    series = [BarSeries("mean", ["b1", "b2"], [1 / 3, 0.9])]
    page = bars(series, tmp_path / "a.html", notes={"b1": "busy"}, **LABELS).read_text()
    (data,) = re.findall(r'href="data:application/json;charset=utf-8;base64,([^"]+)"', page)
    assert json.loads(base64.b64decode(data)) == [
        {"Name": "b1", "mean": 1 / 3, "Note": "busy"},
        {"Name": "b2", "mean": 0.9, "Note": ""},
    ]


def test_a_note_stands_beside_its_name_or_under_it(tmp_path: Path, figures_of: Any) -> None:
    def labels(note: str) -> list[str]:
        page = bars([BarSeries("a", ["b1", "b2"], [1, 2])], tmp_path / "a.html", notes={"b1": note}, **LABELS)
        (figure,) = figures_of(page.read_text())
        found: list[str] = figure["layout"]["yaxis"]["ticktext"]
        return found

    assert labels("2 of 3") == ["b1 · 2 of 3", "b2"]
    assert labels("seventy-five messages per event") == ["b1<br>seventy-five messages per event", "b2"]


def test_the_same_bars_give_the_same_bytes(tmp_path: Path) -> None:
    for suffix in ("svg", "png", "html"):
        first, second = (bars(SERIES, tmp_path / f"{i}.{suffix}", **LABELS).read_bytes() for i in range(2))
        assert first == second


@pytest.mark.parametrize(
    ("series", "says"),
    [
        ([], "nothing to draw"),
        ([BarSeries("a", [], [])], "nothing to draw"),
        ([BarSeries("a", ["p"], [float("nan")])], "nothing to draw"),
        ([BarSeries("a", ["p"], [])], "series 'a': 1 names but 0 values"),
        ([BarSeries("a", ["p", "p"], [1, 2])], "p has more than one value"),
        ([BarSeries("a", ["p"], [float("inf")])], "the value of p is infinite"),
        ([BarSeries("a", ["p"], [1]), BarSeries("a", ["p"], [2])], "'a' is given more than once"),
        (many(2, 7), "7 series: at most 6"),
    ],
)
def test_what_cannot_be_drawn_is_refused_by_name(series: list[BarSeries], says: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=says):
        bars(series, tmp_path / "a.png", **LABELS)
    assert not list(tmp_path.iterdir())


def test_an_unknown_suffix_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"\.html, \.svg, \.png"):
        bars(SERIES, tmp_path / "a.jpg", **LABELS)


def test_a_target_must_be_a_number(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="a target of nan"):
        bars(SERIES, tmp_path / "a.svg", target=float("nan"), **LABELS)
