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
from surecast.studio.files import write_atomically
from surecast.studio.page_assets import SCRIPT, style_sheet
from surecast.studio.style import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Bullets",
    "Cell",
    "Downloads",
    "Figure",
    "Heading",
    "Page",
    "Paragraph",
    "Section",
    "Table",
    "content_policy",
    "html_cell",
    "html_figure",
    "html_text",
    "plain_values",
    "plotly_js",
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
class Figure:
    """A Plotly figure as plain data: `spec` has `data` and `layout`; its colours may be CSS variables of the page.

    `alt` says in a sentence what the figure shows, for who cannot see it. The height is `ratio` times the width, but
    at least `height_px_min`.
    """

    spec: dict[str, Any]
    alt: str
    caption: str = ""
    ratio: float = 0.62
    height_px_min: int = 400


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


Section = Heading | Paragraph | Bullets | Figure | Table | Downloads


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
        figures += isinstance(section, Figure)
        body.append(_section(section, figures))
    scripts = [plotly_js(), SCRIPT] if figures else []
    theme = ' data-theme="dark"' if page.dark else ""
    subtitle = f'<p class="subtitle">{html_text(page.subtitle)}</p>' if page.subtitle else ""
    return "\n".join(
        [
            "<!DOCTYPE html>",
            f'<html lang="{html_text(page.lang)}"{theme}>',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{content_policy(scripts)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            '<meta name="generator" content="Surecast">',
            '<link rel="icon" href="data:,">',
            f"<title>{html_text(page.title)}</title>",
            f"<style>{style_sheet()}</style>",
            "</head>",
            "<body>",
            f"<header><h1>{html_text(page.title)}</h1>{subtitle}</header>",
            "<main>",
            *body,
            "</main>",
            "<footer>Made by Surecast. This page is one file and loads nothing from the network.</footer>",
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
        case Figure():
            return html_figure(section, number)
        case Table():
            return _table(section)
        case Downloads(table, name):
            return _downloads(table, name)


def html_figure(figure: Figure, number: int) -> str:
    """Returns the HTML of a figure, which the page's script draws from the data beside it."""
    caption = f"<figcaption>{html_text(figure.caption)}</figcaption>" if figure.caption else ""
    size = f"--ratio: {figure.ratio:.4f}; --least: {figure.height_px_min}px"
    return (
        f'<figure><div class="plot" id="figure-{number}" role="img" aria-label="{html_text(figure.alt)}" '
        f'style="{size}">'
        "<noscript>The figure needs JavaScript; the numbers are in the table.</noscript></div>"
        f'<script type="application/json" id="figure-{number}-data">{_json(figure.spec)}</script>{caption}</figure>'
    )


def _table(table: Table) -> str:
    columns = range(len(table.header))
    numeric = [all(not isinstance(row[i], str) for row in table.rows) and bool(table.rows) for i in columns]
    kinds = [' class="number"' if is_number else "" for is_number in numeric]
    head = "".join(f'<th scope="col"{kinds[i]}>{html_text(table.header[i])}</th>' for i in columns)
    body = []
    for row in table.rows:
        first = f'<th scope="row"{kinds[0]}>{html_cell(row[0])}</th>'
        body.append(f"<tr>{first}{''.join(f'<td{kinds[i]}>{html_cell(row[i])}</td>' for i in columns[1:])}</tr>")
    label = html_text(table.caption)
    return (
        f'<div class="table" role="region" tabindex="0" aria-label="{label}"><table><caption>{label}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def _downloads(table: Table, name: str) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([clean(cell) for cell in table.header])
    writer.writerows([[clean(cell) if isinstance(cell, str) else cell for cell in row] for row in table.rows])
    records = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    stem = re.sub(r"[^\w.-]+", "-", clean(name)).strip(".-") or "numbers"
    plain = json.dumps(plain_values(records), indent=1)
    files = (("csv", "text/csv", text.getvalue()), ("json", "application/json", plain))
    links = []
    for suffix, kind, content in files:
        data = base64.b64encode(content.encode()).decode()
        target = f"data:{kind};charset=utf-8;base64,{data}"
        links.append(f'<a download="{html_text(stem)}.{suffix}" href="{target}">{suffix.upper()}</a>')
    return f'<p class="downloads">Save “{html_text(table.caption)}” as {" or ".join(links)}.</p>'


def html_text(text: str) -> str:
    """Returns text escaped for HTML."""
    return escape(clean(text), quote=True)


def html_cell(cell: Cell, figures: int = 6) -> str:
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
    """Returns plain lists, numbers (rounded to so many figures) and strings; what is not finite becomes null."""
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


def content_policy(scripts: Sequence[str]) -> str:
    """Returns the content security policy of a page: it may load only its own inline content."""
    allowed = [f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" for script in scripts]
    return (
        f"default-src 'none'; script-src {' '.join(allowed) or chr(39) + 'none' + chr(39)}; "
        "style-src 'unsafe-inline'; img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'"
    )


def plotly_js() -> str:
    """Returns Plotly's JavaScript from its wheel."""
    from plotly.offline import get_plotlyjs

    script: str = get_plotlyjs()
    return script.replace("\r\n", "\n").replace("</script", "<\\/script")
