"""Reports in a notebook: as HTML, and as the data frames of other libraries."""

from __future__ import annotations

from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any

from surecast.extras import missing_extra
from surecast.report.report_errors import ReportError
from surecast.tables import FittedTable, plain

if TYPE_CHECKING:
    from rich.console import Group

__all__: list[str] = []

NOTEBOOK_ROWS = 10
"""Components of each scope that a notebook lists, as the commands do."""


def to_pandas(report: Any) -> Any:
    """Returns the figures of a report, or of a comparison, as a pandas data frame."""
    library("pandas")
    return report.to_arrow().to_pandas()


def to_polars(report: Any) -> Any:
    """Returns the figures of a report, or of a comparison, as a Polars data frame."""
    return library("polars").from_arrow(report.to_arrow())


def library(name: str) -> Any:
    """Imports a library. If it is missing, the error says in one line how to install it."""
    try:
        return import_module(name)
    except ImportError:
        message = missing_extra(name) or f"this needs {name}, which is not installed; run: pip install {name}"
        raise ReportError(message) from None


def as_html(parts: Group) -> str:
    """Returns what the commands print of a report as HTML: text and tables, with every name escaped."""
    from rich.text import Text

    shown = []
    for part in parts.renderables:
        if isinstance(part, FittedTable):
            shown.append(_table(part))
        elif isinstance(part, Text):
            shown.append(f'<pre style="white-space: pre-wrap">{_text(part.plain)}</pre>')
    return f"<div>{''.join(shown)}</div>"


def _table(table: FittedTable) -> str:
    """Returns a table with all its columns; numbers stand on the right."""
    left = len(table.names)
    align = ["left"] * left + ["right"] * len(table.headers)
    head = _row("th", [*table.names, *table.headers], align)
    body = "".join(_row("td", row, align) for row in table.rows)
    caption = f"<p>{_text(table.caption)}</p>" if table.caption else ""
    return f"<p><em>{_text(table.title)}</em></p><table><thead>{head}</thead><tbody>{body}</tbody></table>{caption}"


def _row(tag: str, cells: list[str], align: list[str]) -> str:
    shown = "".join(
        f'<{tag} style="text-align: {side}">{_text(cell)}</{tag}>' for cell, side in zip(cells, align, strict=True)
    )
    return f"<tr>{shown}</tr>"


def _text(text: str) -> str:
    """Returns text as it is: names are neither markup nor control sequences."""
    return escape(plain(text).plain)
