"""Charts of curves with points and intervals."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surecast.errors import ConfigurationError
from surecast.studio.curves import Curve, Marks, curve_chart, curves
from surecast.studio.curves_page import curves_figure, curves_table

LINE = Curve("a <b>", [1.0, 2.0, 3.0], [1.0, 4.0, 9.0], Marks([1.0, 3.0], [1.1, 8.5], [0.9, 8.0], [1.3, 9.0]))
OTHER = Curve("ceiling", [1.0, 3.0], [10.0, math.nan], dashed=True, colour=5)
LABELS: dict[str, Any] = {"title": "squares", "x_label": "x", "y_label": "y (s)"}


@pytest.mark.parametrize("suffix", ["html", "svg", "png"])
def test_files(tmp_path: Path, suffix: str) -> None:
    path = curves([LINE, OTHER], tmp_path / f"c.{suffix}", level=("target", 5.0), moment=("now", 2.0), **LABELS)
    content = path.read_bytes()
    assert content == curves([LINE, OTHER], path, level=("target", 5.0), moment=("now", 2.0), **LABELS).read_bytes()
    if suffix == "html":
        text = content.decode()
        assert "Points: simulated, with 95 % intervals." in text
        assert "<b>a" not in re.sub(r"<script.*?</script>", "", text, flags=re.S)


def test_the_figure_has_lines_intervals_and_points() -> None:
    figure = curves_figure(curve_chart([LINE, OTHER], **LABELS))
    modes = [trace["mode"] for trace in figure.spec["data"]]
    assert modes == ["lines", "lines", "markers", "lines"]
    bars = np.array(figure.spec["data"][1]["y"])
    assert bars[:2].tolist() == [0.9, 1.3]
    assert np.isnan(bars[2])
    assert figure.spec["data"][3]["line"]["dash"] == "dash"
    assert "var(--series-5)" in json.dumps(figure.spec["data"][3]["line"])


def test_the_table_has_every_number() -> None:
    table = curves_table(curve_chart([LINE, OTHER], **LABELS))
    assert table.rows[0] == ["a <b>", 1.0, 1.0, 1.1, 0.9, 1.3]
    assert table.rows[1] == ["a <b>", 2.0, 4.0, None, None, None]
    assert table.rows[-1] == ["ceiling", 3.0, None, None, None, None]


def test_axes_hold_everything() -> None:
    chart = curve_chart([LINE], y_from_zero=True, level=("t", 20.0), **LABELS)
    assert chart.y_ends[0] == 0.0
    assert chart.y_ends[1] > 20.0
    assert chart.x_ends[0] < 1.0 < 3.0 < chart.x_ends[1]
    below = curve_chart([Curve("c", [0.0, 1.0], [-2.0, 3.0])], y_from_zero=True, **LABELS)
    assert below.y_ends[0] < -2.0
    log = curve_chart([Curve("c", [0.1, 10.0], [0.0, 100.0])], x_log=True, y_log=True, **LABELS)
    assert log.x_ends[0] > 0
    assert log.y_ends[0] > 0


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
        curve_chart(lines, **LABELS)
