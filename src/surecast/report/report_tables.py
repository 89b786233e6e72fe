"""Reports and comparisons as Rich tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from surecast.report.columns import Columns, Groups, check_scope
from surecast.report.figure import HOW, SCOPES
from surecast.report.formatting import format_figure, format_value
from surecast.report.metric_registry import catalogue_rank, metric_or_plain
from surecast.report.report import QoSReport
from surecast.report.report_errors import ReportError, listing, suggestion
from surecast.report.report_summary import column_name, wide_cells, wide_columns
from surecast.report.verdict import verdict_of
from surecast.tables import FittedTable, plain

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.text import Text

__all__ = ["render"]

Pair = tuple[str, str]


def render(
    report: QoSReport,
    *,
    scope: str | None = None,
    variant: str | None = None,
    limit: int = 20,
    sort_by: str | None = None,
) -> Group:
    """Returns a report as its verdict and tables: warnings, figures of the whole system, a summary per metric, then the
    worst components.

    `scope` and `variant` restrict what is shown; at most `limit` components of each scope are listed, none with 0.
    They are sorted by the column `sort_by` (a metric, or `metric:detail`), the worst first; without it by the first
    column that has a better and a worse.

    >>> from rich.console import Console
    >>> from surecast.report.report import example_report
    >>> Console(width=100).print(render(example_report(), scope="subscriber"))  # doctest: +ELLIPSIS
    star, simulated, seed 7: 7 figures
    Real-time reliability: 92.5 % in the mean of 2 subscribers, ...
    ! run for 60 s only
    ...
    """
    from rich.console import Group

    check_scope(scope)
    if variant is not None and variant not in report.variants:
        hint = suggestion(variant, report.variants)
        raise ReportError(f"the report has no variant {variant!r}; it has {listing(report.variants)}{hint}")
    shown = report.select(variant=variant)
    scopes = [each for each in shown.scopes if scope in (None, each)]
    if scope is not None and not scopes:
        raise ReportError(f"the report has no figure of scope {scope!r}; it has {listing(shown.scopes)}")
    parts: list[RenderableType] = [_heading(report)]
    if "system" in scopes:
        parts.append(_system_table(shown.select(scope="system")))
    tables = {each: shown.select(scope=each) for each in scopes if each != "system"}
    if sort_by is not None:
        _check_sort_by(sort_by, tables)
    parts += [_summary_table(each, part) for each, part in tables.items()]
    if limit > 0:
        parts += [_component_table(each, part.columns, limit, sort_by) for each, part in tables.items()]
    parts.append(_legend(shown.columns.take(shown.columns.scope.is_one_of(scopes))))
    return Group(*parts)


def more(total: int, shown: int) -> str:
    """Returns the caption of a table that was cut.

    >>> more(500, 20), more(3, 3)
    ('… and 480 more', '')
    """
    return f"… and {total - shown:,} more" if total > shown else ""


def title_of(metric: str, detail: str) -> str:
    """Returns the title of a metric in a table.

    >>> title_of("share_dropped", "expired")
    'Dropped: expired'
    """
    label = metric_or_plain(metric).label
    return f"{label}: {detail}" if detail else label


def _heading(report: QoSReport) -> Text:
    info = report.info
    seed = "" if info.seed is None else f", seed {info.seed}"
    text = plain(f"{info}{seed}: {len(report):,} figure{'s' if len(report) != 1 else ''}", "bold")
    for line in verdict_of(report):
        text.append("\n").append_text(plain(line))
    for warning in info.warnings:
        text.append("\n").append_text(plain(f"! {warning}", "yellow"))
    for note in info.notes:
        text.append("\n").append_text(plain(f"  {note}", "dim"))
    return text


def _legend(columns: Columns) -> Text:
    marks = (f"{mark} {meaning}" for how, (mark, meaning) in HOW.items() if how in columns.how.words)
    return plain("\n".join(marks) if len(columns) else "no figures", "dim")


def _system_table(system: QoSReport) -> FittedTable:
    variants = len(system.variants) > 1
    rows = [
        ([figure.variant] if variants else []) + [title_of(figure.metric, figure.detail), format_figure(figure)]
        for figure in sorted(system, key=lambda figure: catalogue_rank(figure.metric))
    ]
    return FittedTable("Whole system", (["Variant"] if variants else []) + ["Figure"], ["Value"], rows)


def _summary_table(scope: str, report: QoSReport) -> FittedTable:
    """Returns the mean and extremes of every figure of a scope."""
    variants = len(report.variants) > 1
    rows = []
    for row in sorted(report.summary(), key=lambda row: catalogue_rank(row.metric)):
        unit = metric_or_plain(row.metric).unit
        numbers = [format_value(value, unit) for value in (row.mean, row.smallest, row.largest)]
        texts = ([row.variant] if variants else []) + [title_of(row.metric, row.detail)]
        rows.append([*texts, *numbers, row.worst, f"{row.count:,}"])
    names = (["Variant"] if variants else []) + ["Figure"]
    title = f"{_plural(scope)}, in summary"
    return FittedTable(title, names, ["Mean", "Smallest", "Largest", "Worst", "Count"], rows)


def _check_sort_by(sort_by: str, tables: dict[str, QoSReport]) -> None:
    names = dict.fromkeys(column_name(*pair) for part in tables.values() for pair in wide_columns(part.columns))
    if sort_by not in names:
        raise ReportError(f"cannot sort by {sort_by!r}: there is {listing(names)}{suggestion(sort_by, names)}")


def _component_table(scope: str, columns: Columns, limit: int, sort_by: str | None) -> FittedTable:
    """Returns the worst components of a scope, one row each."""
    pairs = wide_columns(columns)
    chosen = [pair for pair in pairs if column_name(*pair) == sort_by]
    directed = [pair for pair in pairs if metric_or_plain(pair[0]).better]
    key = (chosen or directed or pairs)[0]
    pairs = [key, *(pair for pair in pairs if pair != key)]
    components, total = _worst(columns, key, limit)
    variants = len(columns.variant.words) > 1
    rows = []
    for variant, name, cells in wide_cells(components):
        texts = ([variant] if variants else []) + [name]
        rows.append(texts + [format_figure(components.figure(cells[p])) if p in cells else "-" for p in pairs])
    order = "worst" if metric_or_plain(key[0]).better else "largest"
    by = title_of(*key)
    return FittedTable(
        f"{_plural(scope)}, {order} first by {by[0].lower()}{by[1:]}",
        (["Variant"] if variants else []) + ["Name"],
        [title_of(*pair) for pair in pairs],
        rows,
        more(total, limit),
    )


def _plural(scope: str) -> str:
    words = SCOPES[scope]
    return f"{words[0].upper()}{words[1:]}{'es' if words.endswith('s') else 's'}"


def _worst(columns: Columns, key: Pair, limit: int) -> tuple[Columns, int]:
    """Returns all figures of the components that are worst by one metric, worst first, and how many components there
    are.

    Each variant has its share of them: a bad one does not hide the others. Components without that metric come last.
    """
    groups = Groups(columns.keys(("variant", "name")))
    is_key = columns.metric.is_word(key[0]) & columns.detail.is_word(key[1])
    sign = 1.0 if metric_or_plain(key[0]).better == "more" else -1.0
    rank = np.full(len(groups), np.inf)
    rank[groups.of[is_key]] = sign * columns.value[is_key]
    variant = np.zeros(len(groups), dtype=np.intp)
    variant[groups.of] = Groups(columns.keys(("variant",))).of
    by_rank = np.argsort(rank, kind="stable")
    rank_in_variant = np.empty(len(groups), dtype=np.intp)
    for each in np.unique(variant):
        own = by_rank[variant[by_rank] == each]
        rank_in_variant[own] = np.arange(len(own))
    chosen = by_rank[np.sort(np.argsort(rank_in_variant[by_rank], kind="stable")[:limit])]
    order_of = np.full(len(groups), -1, dtype=np.intp)
    order_of[chosen] = np.arange(len(chosen))
    rows = np.flatnonzero(order_of[groups.of] >= 0)
    return columns.take(rows[np.argsort(order_of[groups.of[rows]], kind="stable")]), len(groups)
