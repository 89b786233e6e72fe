"""A self-contained HTML page from sections: it needs no network, follows light and dark, and prints.

Everything that comes from outside is escaped. The page forbids itself the network, and any script but its own two,
by a content security policy. Plotly's JavaScript is inlined once, and only where there is a figure.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import math
import re
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surecast.errors import ConfigurationError
from surecast.studio.chart import Chart
from surecast.studio.files import write_atomically
from surecast.studio.page_assets import SCRIPT, style_sheet
from surecast.studio.plotly_figure import alternative_text, figure_data, plotly_js
from surecast.studio.style import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Bullets",
    "Cell",
    "Downloads",
    "Heading",
    "Page",
    "Paragraph",
    "Section",
    "Table",
    "csv_text",
    "html_figure",
    "html_save_link",
    "html_table",
    "html_text",
    "plain_values",
    "render_document",
    "render_page",
    "write_page",
]

Cell = str | int | float | None


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading; the page's title is its only one of level 1."""

    text: str
    level: int = 2


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Plain text."""

    text: str


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list of plain texts."""

    items: Sequence[str]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under column names. Numbers are aligned right and written to six figures; None is an empty cell."""

    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str


@dataclass(frozen=True, slots=True)
class Downloads:
    """Links that save a table's numbers, unrounded, as CSV and as JSON; `name` is the file's, without suffix."""

    table: Table
    name: str


Section = Heading | Paragraph | Bullets | Chart | Table | Downloads


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its title, a line under it, and its sections in order. `dark` fixes the dark appearance."""

    title: str
    sections: Sequence[Section]
    subtitle: str = ""
    dark: bool = False
    lang: str = "en"


def render_page(page: Page) -> str:
    """Returns the page as one HTML document.

    >>> "&lt;b&gt;" in render_page(Page("a title", [Paragraph("<b>")]))
    True
    """
    figures = 0
    body: list[str] = []
    for section in page.sections:
        figures += isinstance(section, Chart)
        body.append(_section(section, figures))
    subtitle = f'<p class="subtitle">{html_text(page.subtitle)}</p>' if page.subtitle else ""
    header = f"<h1>{html_text(page.title)}</h1>{subtitle}"
    return render_document(page.title, header, body, has_figures=bool(figures), dark=page.dark, lang=page.lang)


def render_document(
    title: str,
    header: str,
    body: Sequence[str],
    *,
    has_figures: bool,
    style: str = "",
    footer: str = "Made by Surecast.",
    dark: bool = False,
    lang: str = "en",
) -> str:
    """Returns an HTML document around a header and a body that are HTML already; `style` follows that of all pages."""
    scripts = [plotly_js(), SCRIPT] if has_figures else []
    theme = ' data-theme="dark"' if dark else ""
    return "\n".join(
        [
            "<!DOCTYPE html>",
            f'<html lang="{html_text(lang)}"{theme}>',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_content_policy(scripts)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            '<meta name="generator" content="Surecast">',
            '<link rel="icon" href="data:,">',
            f"<title>{html_text(title)}</title>",
            f"<style>{style_sheet()}{style}</style>",
            "</head>",
            "<body>",
            f"<header>{header}</header>",
            "<main>",
            *body,
            "</main>",
            f"<footer>{footer} This page is one file and loads nothing from the network.</footer>",
            *(f"<script>{script}</script>" for script in scripts),
            "</body>",
            "</html>",
            "",
        ]
    )


def write_page(page: Page, path: Path | str) -> Path:
    """Writes the page to an ``.html`` file, whole or not at all, and returns its path."""
    path = Path(path)
    if path.suffix.lower() != ".html":
        raise ConfigurationError(f"cannot write a page to {path}: end its name in .html")
    return write_atomically(path, render_page(page).encode())


def _section(section: Section, number: int) -> str:
    match section:
        case Heading(text, level):
            level = min(6, max(2, level))
            return f"<h{level}>{html_text(text)}</h{level}>"
        case Paragraph(text):
            return f"<p>{html_text(text)}</p>"
        case Bullets(items):
            return "<ul>" + "".join(f"<li>{html_text(item)}</li>" for item in items) + "</ul>"
        case Chart():
            return html_figure(section, number)
        case Table():
            return html_table(section)
        case Downloads(table, name):
            return _downloads(table, name)


def html_figure(chart: Chart, number: int) -> str:
    """Returns the HTML of a chart, which the page's script draws from the data beside it."""
    caption = f"<figcaption>{html_text(chart.caption)}</figcaption>" if chart.caption else ""
    size = f"--ratio: {chart.ratio:.4f}; --least: {chart.height_px_min}px"
    return (
        f'<figure><div class="plot" id="figure-{number}" role="img" aria-label="{html_text(alternative_text(chart))}" '
        f'style="{size}">'
        "<noscript>The figure needs JavaScript; the numbers are in the table.</noscript></div>"
        f'<script type="application/json" id="figure-{number}-data">{_json(figure_data(chart))}</script>'
        f"{caption}</figure>"
    )


def html_table(table: Table, *, figures: int = 6, rows_max: int | None = None) -> str:
    """Returns the HTML of a table: numbers with so many figures, and so many rows at the most."""
    columns = range(len(table.header))
    rows = table.rows[:rows_max]
    numeric = [all(not isinstance(row[i], str) for row in rows) and bool(rows) for i in columns]
    kinds = [' class="number"' if is_number else "" for is_number in numeric]
    head = "".join(f'<th scope="col"{kinds[i]}>{html_text(table.header[i])}</th>' for i in columns)
    body = []
    for row in rows:
        cells = "".join(f"<td{kinds[i]}>{_cell(row[i], figures)}</td>" for i in columns[1:])
        body.append(f'<tr><th scope="row"{kinds[0]}>{_cell(row[0], figures)}</th>{cells}</tr>')
    label = html_text(table.caption)
    return (
        f'<div class="table" role="region" tabindex="0" aria-label="{label}"><table><caption>{label}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def _downloads(table: Table, name: str) -> str:
    records = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    stem = re.sub(r"[^\w.-]+", "-", clean(name)).strip(".-") or "numbers"
    plain = json.dumps(plain_values(records), indent=1)
    links = [
        html_save_link(f"{stem}.csv", "text/csv", csv_text(table)),
        html_save_link(f"{stem}.json", "application/json", plain),
    ]
    return f'<p class="downloads">Save “{html_text(table.caption)}” as {" or ".join(links)}.</p>'


def csv_text(table: Table) -> str:
    """Returns a table as CSV, its numbers in full."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([clean(cell) for cell in table.header])
    writer.writerows([[clean(cell) if isinstance(cell, str) else cell for cell in row] for row in table.rows])
    return text.getvalue()


def html_save_link(name: str, kind: str, content: str) -> str:
    """Returns a link that saves content under a name, and shows the ending of the name."""
    data = base64.b64encode(content.encode("utf-8", "replace")).decode()
    shown = name.rpartition(".")[2].upper()
    return f'<a download="{html_text(name)}" href="data:{kind};charset=utf-8;base64,{data}">{html_text(shown)}</a>'


def html_text(text: str) -> str:
    """Returns text escaped for HTML."""
    return escape(clean(text), quote=True)


def _cell(cell: Cell, figures: int) -> str:
    """Returns a cell of a table, a number with so many figures."""
    if cell is None:
        return ""
    if isinstance(cell, str):
        return html_text(cell)
    return f"{cell:,}" if isinstance(cell, int) else f"{cell:.{figures}g}"


def _json(spec: Any) -> str:
    """Returns JSON that no HTML parser can leave: every ``<``, ``>`` and ``&`` is written as an escape."""
    text = json.dumps(plain_values(spec, figures=9), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def plain_values(value: Any, figures: int | None = None) -> Any:
    """Returns plain lists, strings and numbers, rounded to `figures`; numbers that are not finite become null."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(str(k)): plain_values(v, figures) for k, v in value.items()}
    if hasattr(value, "tolist"):
        return plain_values(value.tolist(), figures)
    if isinstance(value, (list, tuple)):
        return [plain_values(v, figures) for v in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return value if figures is None else float(f"{value:.{figures}g}")
    return value


def _content_policy(scripts: Sequence[str]) -> str:
    """Returns the content security policy of a page: it may load only its own inline content."""
    allowed = [f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" for script in scripts]
    return (
        f"default-src 'none'; script-src {' '.join(allowed) or chr(39) + 'none' + chr(39)}; "
        "style-src 'unsafe-inline'; img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'"
    )
