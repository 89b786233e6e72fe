"""The page of the tour as text: everything is inside it, escaped, and can be saved."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from typing import Any

import numpy as np

from surecast.studio import Axis, Chart, Line
from surecast.studio.page import Table
from surecast.tour.stage_content import (
    CheckedClaim,
    CheckedClaims,
    Code,
    Result,
    SavedTable,
    StageOutcome,
    Text,
    Tile,
    picture,
)
from surecast.tour.tour_page import render_tour

HOSTILE = '</script><script>alert(1)</script>"><img src=x>&'


def page() -> str:
    drawn = Chart(
        [Line(HOSTILE, np.arange(3.0), np.array([1.0, np.nan, 3.0]))],
        title=HOSTILE,
        x=Axis(HOSTILE),
        y=Axis("y (s)"),
        about=HOSTILE,
        caption=HOSTILE,
    )
    rows: list[list[Any]] = [["a,b", 1, 0.123456789012, None], [HOSTILE, np.int64(2), float("nan"), "x"]]
    outcome = StageOutcome(
        HOSTILE,
        (Tile(HOSTILE, "1 ms", HOSTILE),),
        (
            picture(drawn, ("name", "n", "value", HOSTILE), rows, "numbers"),
            SavedTable(Table(("one",), [[HOSTILE]], HOSTILE), "open"),
            CheckedClaims(
                HOSTILE,
                (CheckedClaim(True, "a", "b"), CheckedClaim(False, HOSTILE, "b"), CheckedClaim(None, "c", HOSTILE)),
            ),
            Text(HOSTILE, HOSTILE),
            Code(HOSTILE, HOSTILE, "file.yaml"),
        ),
        {"x": 1.0},
    )
    results = [
        Result("one", HOSTILE, HOSTILE, "done", 1.25, outcome),
        Result("two", "Two", "q", "failed", 0.5, why=HOSTILE),
        Result("three", "Three", "q", "skipped", 0.0, why="there is no Java"),
    ]
    return render_tour(results, HOSTILE, HOSTILE, [("surecast x", HOSTILE)])


def test_nothing_leaves_its_place() -> None:
    scripts = re.findall(r"<script>(.*?)</script>", page(), re.DOTALL)
    assert len(scripts) == 2  # Plotly's and the page's own
    rest = re.sub(r"<script>.*?</script>", "", page(), flags=re.DOTALL)
    assert "alert(1)</script>" not in rest
    assert "<img" not in rest


def test_the_page_loads_nothing() -> None:
    rest = re.sub(r"<script>.*?</script>", "", page(), flags=re.DOTALL)
    assert "http:" not in rest
    assert "https:" not in rest
    assert "default-src 'none'" in rest
    assert not re.search(r'\b(src|href)="(?!#|data:)', rest)


def test_states_are_said() -> None:
    text = page()
    assert "Failed.</strong>" in text
    assert "Skipped.</strong> there is no Java" in text
    assert text.count('<li class="yes">') == text.count('<li class="no">') == text.count('<li class="open">') == 1


def test_numbers_can_be_saved_and_read_again() -> None:
    saved = {
        name: base64.b64decode(data).decode()
        for name, data in re.findall(r'download="([^"]+)" href="data:[^,]*;base64,([^"]*)"', page())
    }
    assert set(saved) == {"numbers.csv", "numbers.json", "open.csv", "open.json", "file.yaml"}
    rows = list(csv.reader(io.StringIO(saved["numbers.csv"])))
    assert rows == [["name", "n", "value", HOSTILE], ["a,b", "1", "0.12345679", ""], [HOSTILE, "2", "", "x"]]
    assert json.loads(saved["numbers.json"]) == {
        "columns": ["name", "n", "value", HOSTILE],
        "rows": [["a,b", 1, 0.12345679, None], [HOSTILE, 2, None, "x"]],
    }
    assert saved["file.yaml"] == HOSTILE


def test_figures_carry_plain_numbers() -> None:
    found = re.search(r'id="figure-1-data">(.*?)</script>', page(), re.DOTALL)
    assert found is not None
    assert json.loads(found[1])["data"][0]["y"] == [1.0, None, 3.0]
