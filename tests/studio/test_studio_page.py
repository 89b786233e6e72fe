"""The page: one file, nothing from the network, everything escaped, readable by all."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surecast.errors import ConfigurationError
from surecast.studio import (
    Axis,
    Bullets,
    Chart,
    Downloads,
    Heading,
    Line,
    Page,
    Paragraph,
    RuleLine,
    Table,
    draw_system,
    render_page,
    write_page,
)

NASTY = "</script><script>alert('x')</script> & \"quoted\" <img src=x>"
CHART = Chart(
    [Line(NASTY, np.array([1.0, 2.0]), (2, math.nan))],
    title=NASTY,
    x=Axis(NASTY),
    y=Axis(NASTY),
    caption=NASTY,
    rules=[RuleLine(NASTY, 1.5)],
)


class Reader(HTMLParser):
    """Collects tags with their attributes, and checks that they close in order."""

    VOID = ("meta", "link", "img", "br", "input", "hr")

    def __init__(self, html: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script" and "type" not in self.tags[-1][1]:
            self.scripts.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def sections() -> list[Any]:
    table = Table(["name", "value"], [[NASTY, 0.125], ["b", None]], NASTY)
    return [
        Heading(NASTY),
        Paragraph(NASTY),
        Bullets([NASTY]),
        CHART,
        replace(CHART, about="second"),
        table,
        Downloads(table, NASTY),
    ]


def test_plotly_is_inlined_once_however_many_figures() -> None:
    page = render_page(Page(NASTY, sections()))
    read = Reader(page)
    assert len(read.scripts) == 2
    assert read.scripts[0].lstrip().startswith("/**\n* plotly.js")
    assert page.count("* plotly.js v") == 1
    assert len([s for s in read.all("script") if s.get("type") == "application/json"]) == 2


def test_a_page_without_a_figure_has_no_script() -> None:
    page = render_page(Page("t", [Paragraph("p")]))
    assert "<script" not in page
    assert "script-src 'none'" in page
    assert len(page) < 10_000


def test_nothing_is_loaded_from_anywhere(systems: Any, tmp_path: Path) -> None:
    for page in (
        render_page(Page(NASTY, sections())),
        draw_system(systems["cities"], tmp_path / "a.html").read_text(),
    ):
        read = Reader(page)
        for tag, attributes in read.tags:
            for name in ("src", "href", "data", "action", "poster", "srcset", "background"):
                value = attributes.get(name)
                assert value is None or value.startswith("data:"), (tag, value)
        ours = page.replace(read.scripts[0], "")
        assert not re.search(r"https?:|//[a-z]|@import|url\(", ours.replace("file://", ""))


def test_the_policy_allows_the_two_scripts_of_the_page_and_no_others() -> None:
    read = Reader(render_page(Page("t", sections())))
    (policy,) = [m["content"] for m in read.all("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in read.scripts]
    assert re.findall(r"'sha256-([^']+)'", policy) == hashes
    assert "unsafe-inline" not in policy.split(";")[1]


def test_everything_is_escaped() -> None:
    page = render_page(Page(NASTY, sections()))
    ours = page.replace(Reader(page).scripts[0], "")
    assert "<script>alert" not in ours
    assert "</script><script" not in ours
    assert "<img" not in ours
    assert "&lt;img src=x&gt;" in ours


def test_what_is_not_finite_becomes_null(figures_of: Any) -> None:
    first, _ = figures_of(render_page(Page("t", sections())))
    assert first["data"][0]["x"] == [1.0, 2.0]
    assert first["data"][0]["y"] == [2, None]
    assert "&lt;script" in first["layout"]["xaxis"]["title"]["text"]


def test_the_numbers_can_be_saved_unrounded() -> None:
    table = Table(["name", "value"], [['a,"b"', 0.1 + 0.2], ["c", None], ["d", 7]], "numbers")
    read = Reader(render_page(Page("t", [Downloads(table, "../my numbers")])))
    files = {}
    for link in read.all("a"):
        assert link["href"] is not None
        files[link["download"]] = base64.b64decode(link["href"].split(",", 1)[1]).decode()
    assert set(files) == {"my-numbers.csv", "my-numbers.json"}
    rows = list(csv.reader(io.StringIO(files["my-numbers.csv"])))
    assert rows == [["name", "value"], ['a,"b"', "0.30000000000000004"], ["c", ""], ["d", "7"]]
    records = json.loads(files["my-numbers.json"])
    assert records[0] == {"name": 'a,"b"', "value": 0.1 + 0.2}
    assert records[1]["value"] is None


def test_the_page_speaks_to_screen_readers() -> None:
    read = Reader(render_page(Page("A title", sections(), lang="en")))
    assert read.all("html")[0]["lang"] == "en"
    assert len(read.all("title")) == len(read.all("h1")) == len(read.all("main")) == 1
    for figure in [d for d in read.all("div") if d.get("class") == "plot"]:
        assert figure["role"] == "img"
        assert figure["aria-label"]
    assert len(read.all("caption")) == len(read.all("table"))
    assert all(th["scope"] in ("col", "row") for th in read.all("th"))
    assert {m.get("name") for m in read.all("meta")} >= {"viewport", "color-scheme"}


def test_a_page_can_be_fixed_to_dark() -> None:
    assert 'data-theme="dark"' in render_page(Page("t", [], dark=True))
    assert 'data-theme="' not in render_page(Page("t", []))


def test_a_page_is_written_whole_and_only_as_html(tmp_path: Path) -> None:
    assert write_page(Page("t", []), tmp_path / "a.html").read_text().startswith("<!DOCTYPE html>")
    with pytest.raises(ConfigurationError, match=r"\.html"):
        write_page(Page("t", []), tmp_path / "a.txt")
