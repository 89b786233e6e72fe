"""One report against another: the picture shows how far they are apart."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surecast.errors import ConfigurationError
from surecast.studio import ScatterGroup, scatter

LABELS: Any = {"x_label": "predicted delay", "y_label": "measured delay", "unit": "ms"}
GROUPS = [
    ScatterGroup("buffering", [1.0, 2.0, 3.0], [1.5, 2.0, 2.0], [1.4, float("nan"), 1.0], [1.6, float("nan"), 3.0]),
    ScatterGroup("<b>bypass</b>", np.array([4.0, 5.0]), np.array([4.25, 5.25]), names=["s1", "<script>s2"]),
]


def test_all_three_kinds_of_file_are_made(tmp_path: Path, figures_of: Any) -> None:
    from plotly.graph_objects import Figure

    for suffix in ("svg", "png", "html"):
        assert scatter(GROUPS, tmp_path / f"a.{suffix}", **LABELS).is_file()
    ElementTree.parse(tmp_path / "a.svg")
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    page = (tmp_path / "a.html").read_text()
    (figure,) = figures_of(page)
    Figure(figure)
    assert len(list(tmp_path.iterdir())) == 3
    assert page.count("* plotly.js v") == 1
    assert "<script>s2" not in page
    assert "<b>bypass" not in page


def test_the_legend_gives_mean_and_largest_error(tmp_path: Path, figures_of: Any) -> None:
    (figure,) = figures_of(scatter(GROUPS, tmp_path / "a.html", **LABELS).read_text())
    names = [trace["name"] for trace in figure["data"] if trace.get("mode") == "markers"]
    assert names == [
        "buffering (3 points)<br>mean error 0.5 ms, largest 1 ms",
        "&lt;b&gt;bypass&lt;/b&gt; (2 points)<br>mean error 0.25 ms, largest 0.25 ms",
    ]


def test_both_axes_are_equal_and_the_diagonal_crosses_them(tmp_path: Path, figures_of: Any) -> None:
    (figure,) = figures_of(scatter(GROUPS, tmp_path / "a.html", **LABELS).read_text())
    layout = figure["layout"]
    (diagonal,) = (trace for trace in figure["data"] if trace.get("name") == "both agree")
    assert layout["xaxis"]["range"] == layout["yaxis"]["range"] == diagonal["x"] == diagonal["y"]
    assert layout["yaxis"]["scaleanchor"] == "x"
    assert layout["xaxis"]["title"]["text"] == "predicted delay (ms)"
    low, high = layout["xaxis"]["range"]
    assert low < 1.0
    assert high > 5.25


def test_the_same_points_give_the_same_bytes(tmp_path: Path) -> None:
    first, second = (scatter(GROUPS, tmp_path / f"{i}.svg", **LABELS).read_bytes() for i in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("groups", "says"),
    [
        ([], "nothing to compare"),
        ([ScatterGroup("a", [], [])], "nothing to compare"),
        ([ScatterGroup("a", [1.0], [])], "group 'a': 1 x but 0 y"),
        ([ScatterGroup("a", [1.0], [1.0], names=["p", "q"])], "2 names"),
        ([ScatterGroup("a", [1.0, 2.0], [1.0, float("nan")], names=["p", "q"])], "q has no finite x and y"),
        ([ScatterGroup("a", [1.0], [1.0], low=[0.5])], "both low and high"),
        ([ScatterGroup("a", [1.0], [1.0], low=[2.0], high=[0.5], names=["p"])], "interval of p"),
    ],
)
def test_what_cannot_be_compared_is_refused_by_name(groups: list[ScatterGroup], says: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=says):
        scatter(groups, tmp_path / "a.png", **LABELS)
    assert not list(tmp_path.iterdir())


def test_a_single_point_and_equal_points_have_room(tmp_path: Path) -> None:
    for i, value in enumerate((0.0, 1.0, -3.0)):
        assert scatter([ScatterGroup("a", [value], [value])], tmp_path / f"{i}.png", **LABELS).is_file()


def test_an_unknown_suffix_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"\.html, \.svg, \.png"):
        scatter(GROUPS, tmp_path / "a.jpg", **LABELS)
