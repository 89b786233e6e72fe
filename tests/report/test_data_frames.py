"""A report shows itself in a notebook, and becomes a data frame where the library is installed."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest

from surecast.report import Comparison, QoSReport, ReportBuilder, ReportError, compare
from surecast.report.report import example_report

HOSTILE = '<script>alert("x")</script>&\x1b[31m'


class Reader(HTMLParser):
    """Collects the tags and the texts of a page, and checks that tags are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.open: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    assert not reader.open
    return reader


def hostile() -> QoSReport:
    builder = ReportBuilder(HOSTILE, "predicted", warnings=[HOSTILE], notes=[HOSTILE])
    for name in (HOSTILE, "b<1>"):
        builder.add("subscriber", name, "reliability", 0.9, how="exact", variant=HOSTILE, detail="")
        builder.add("subscriber", name, "reliability", 0.8, how="exact", variant="<b>other</b>")
    return builder.build()


def test_a_notebook_shows_the_tables_of_the_commands() -> None:
    page = read(example_report()._repr_html_())
    assert page.tags == {"div", "pre", "p", "em", "table", "thead", "tbody", "tr", "th", "td"}
    assert "star, simulated, seed 7: 7 figures" in page.texts[0]
    assert "! run for 60 s only" in page.texts[0]
    assert {"Whole system", "Subscribers, in summary", "s1", "s2", "b1"} <= set(page.texts)
    page = read(compare(example_report(), example_report())._repr_html_())
    assert "7 figures in both" in page.texts[0]


@pytest.mark.parametrize("shown", [hostile(), compare(hostile(), hostile())])
def test_hostile_names_are_text(shown: QoSReport | Comparison) -> None:
    html = shown._repr_html_()
    page = read(html)
    assert not page.tags & {"script", "b"}
    assert any('<script>alert("x")</script>&' in text for text in page.texts)
    assert "\x1b" not in html


def test_data_frames_have_the_columns_of_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    monkeypatch.setitem(sys.modules, "polars", SimpleNamespace(from_arrow=lambda table: ("polars", table)))
    for shown in (example_report(), compare(example_report(), example_report())):
        table = shown.to_arrow()
        frame = shown.to_pandas()
        assert list(frame.columns) == table.column_names
        assert len(frame) == len(shown)
        assert frame["name"].tolist() == table.column("name").to_pylist()
        assert shown.to_polars() == ("polars", table)


@pytest.mark.parametrize(
    ("missing", "call", "said"),
    [
        ("pyarrow", "to_arrow", "this needs pyarrow, which is not installed; run: pip install 'surecast[models]'"),
        ("pandas", "to_pandas", "this needs pandas, which is not installed; run: pip install 'surecast[spark]'"),
        ("polars", "to_polars", "this needs polars, which is not installed; run: pip install polars"),
    ],
)
def test_a_missing_library_is_named_in_one_line(
    monkeypatch: pytest.MonkeyPatch, missing: str, call: str, said: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    for shown in (example_report(), compare(example_report(), example_report())):
        with pytest.raises(ReportError) as refusal:
            getattr(shown, call)()
        assert str(refusal.value) == said
