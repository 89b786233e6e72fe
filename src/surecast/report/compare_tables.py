"""Comparisons of two or three answers as Rich tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surecast.report.agreement import UNKNOWN, Unmatched
from surecast.report.columns import Columns
from surecast.report.comparison import Comparison
from surecast.report.figure import SCOPES
from surecast.report.formatting import format_percent, format_signed, format_value
from surecast.report.info import ReportInfo
from surecast.report.metric_registry import metric_or_plain
from surecast.report.report_tables import more, title_of
from surecast.report.side_by_side import SideBySide
from surecast.tables import FittedTable, plain

if TYPE_CHECKING:
    from rich.console import Group, RenderableType

__all__ = ["render_comparison", "render_side_by_side"]


def render_comparison(comparison: Comparison, *, limit: int = 20) -> Group:
    """Returns a comparison as tables: agreement per metric, the largest disagreements, and figures that only one report
    has.

    >>> from rich.console import Console
    >>> from surecast.report.comparison import compare
    >>> from surecast.report.report import example_report
    >>> same = compare(example_report(), example_report())
    >>> Console(width=100).print(render_comparison(same))  # doctest: +ELLIPSIS
    a: star, simulated, seed 7
    b: star, simulated, seed 7
    7 figures in both; 100% of 2 are consistent with an interval or a bound
    ...
    """
    from rich.console import Group

    parts: list[RenderableType] = [plain(_heading(comparison), "bold"), _agreement_table(comparison)]
    if limit > 0:
        parts.append(_difference_table(comparison, limit))
    parts += [plain(_only(side, rows)) for side, rows in (("a", comparison.only_a), ("b", comparison.only_b)) if rows]
    return Group(*parts)


def _heading(comparison: Comparison) -> str:
    lines = [f"a: {_describe(comparison.a)}", f"b: {_describe(comparison.b)}"]
    if comparison.variants:
        pairs = (f"{a or 'the only variant'} with {b or 'the only variant'}" for a, b in comparison.variants.items())
        lines.append(f"variants: {', '.join(pairs)}")
    if comparison.a.scenario != comparison.b.scenario:
        lines.append("! the two reports are about different scenarios")
    lines.append(f"{len(comparison):,} figure{'s' if len(comparison) != 1 else ''} in both{_consistency(comparison)}")
    for warning in dict.fromkeys((*comparison.a.warnings, *comparison.b.warnings)):
        sides = [name for name, info in (("a", comparison.a), ("b", comparison.b)) if warning in info.warnings]
        lines.append(f"! {' and '.join(sides)}: {warning}")
    return "\n".join(lines)


def _consistency(comparison: Comparison) -> str:
    """Returns how many of the figures that have an interval or a bound are consistent with it."""
    decided = comparison.inside[comparison.inside != UNKNOWN]
    return (
        f"; {decided.mean():.0%} of {len(decided):,} are consistent with an interval or a bound" if len(decided) else ""
    )


def _describe(info: ReportInfo) -> str:
    return f"{info}{'' if info.seed is None else f', seed {info.seed}'}"


def _has_variants(columns: Columns) -> bool:
    return len(columns.variant.words) > 1


def _agreement_table(comparison: Comparison) -> FittedTable:
    variants = _has_variants(comparison.a_columns)
    rows = []
    for row in comparison.summary:
        unit = metric_or_plain(row.metric).unit
        texts = [SCOPES.get(row.scope, row.scope), title_of(row.metric, row.detail)]
        numbers = [
            "-" if row.inside is None else f"{row.inside:.0%} of {row.inside_count:,}",
            format_value(row.mean_absolute, unit),
            format_value(row.largest, unit),
            f"{row.count:,}",
            "-" if row.correlation is None else f"{row.correlation:.4f}",
            format_value(row.root_mean_square, unit),
            format_signed(row.mean_difference, unit),
        ]
        rows.append(([row.variant] if variants else []) + texts + numbers)
    names = (["Variant"] if variants else []) + ["Of each", "Figure"]
    headers = ["Inside", "Mean |d|", "Largest |d|", "Count", "Correlation", "RMS d", "Mean d"]
    caption = "d = b - a; inside: consistent with the interval or the bound"
    return FittedTable("Agreement", names, headers, rows, caption)


def _difference_table(comparison: Comparison, limit: int) -> FittedTable:
    variants = _has_variants(comparison.a_columns)
    rows, styles = [], []
    for row in comparison.rows(limit):
        unit = metric_or_plain(row.metric).unit
        texts = [f"{SCOPES.get(row.scope, row.scope)} {row.name}".rstrip(), title_of(row.metric, row.detail)]
        numbers = [
            {None: "-", True: "yes", False: "no"}[row.inside],
            format_value(row.a, unit),
            format_value(row.b, unit),
            format_signed(row.difference, unit),
            format_percent(row.relative),
        ]
        rows.append(([row.variant] if variants else []) + texts + numbers)
        styles.append("red" if row.inside is False else "")
    names = (["Variant"] if variants else []) + ["Of", "Figure"]
    headers = ["Inside", "a", "b", "Difference", "Relative"]
    return FittedTable("Largest disagreements", names, headers, rows, more(len(comparison), limit), styles)


def _only(side: str, rows: list[Unmatched]) -> str:
    total = sum(row.count for row in rows)
    lines = [f"only in {side}: {total:,} figure{'s' if total != 1 else ''}"]
    for row in rows[:10]:
        named = f" ({', '.join(row.examples)}{', …' if row.count > len(row.examples) else ''})" if row.examples else ""
        variant = f"{row.variant}: " if row.variant else ""
        scope = SCOPES.get(row.scope, row.scope)
        lines.append(f"  {variant}{scope}, {title_of(row.metric, row.detail)}: {row.count:,}{named}")
    if len(rows) > 10:
        lines.append(f"  {more(len(rows), 10)}")
    return "\n".join(lines)


def render_side_by_side(answers: SideBySide, *, limit: int = 20) -> Group:
    """Returns the verdict, the means of every metric with the mean differences, and the figures furthest apart."""
    from rich.console import Group

    parts: list[RenderableType] = [plain(_side_by_side_heading(answers), "bold"), _means_table(answers)]
    if limit > 0:
        parts.append(_figures_table(answers, limit))
    return Group(*parts)


def _side_by_side_heading(answers: SideBySide) -> str:
    lines = [*answers.verdict, *(_describe(info) for info in answers.infos)]
    lines.append(f"{len(answers):,} figure{'s' if len(answers) != 1 else ''} in all {len(answers.infos)}")
    for name, rows in answers.only.items():
        if rows:
            lines.append(f"not in all, but {name}: {sum(row.count for row in rows):,} figures")
    for warning in dict.fromkeys(warning for info in answers.infos for warning in info.warnings):
        sides = [info.source for info in answers.infos if warning in info.warnings]
        lines.append(f"! {' and '.join(sides)}: {warning}")
    return "\n".join(lines)


def _means_table(answers: SideBySide) -> FittedTable:
    variants = _has_variants(answers.columns[0])
    rows = []
    for family in answers.summary:
        unit = metric_or_plain(family.metric).unit
        texts = [SCOPES.get(family.scope, family.scope), title_of(family.metric, family.detail)]
        numbers = [format_value(family.means[name], unit) for name in answers.names]
        numbers += [format_value(family.mean_absolute[pair], unit) for pair in answers.pairs]
        rows.append(([family.variant] if variants else []) + texts + numbers + [f"{family.count:,}"])
    names = (["Variant"] if variants else []) + ["Of each", "Figure"]
    differences = [f"{a[0].upper()}-{b[0].upper()}" for a, b in (pair.split(" and ") for pair in answers.pairs)]
    headers = [*(name.capitalize() for name in answers.names), *differences, "Count"]
    caption = f"means over the figures; {differences[0]}: mean absolute difference of {answers.pairs[0]}, and so on"
    return FittedTable("Side by side", names, headers, rows, caption)


def _figures_table(answers: SideBySide, limit: int) -> FittedTable:
    variants = _has_variants(answers.columns[0])
    rows = []
    for row in answers.rows(limit):
        unit = metric_or_plain(row.metric).unit
        texts = [f"{SCOPES.get(row.scope, row.scope)} {row.name}".rstrip(), title_of(row.metric, row.detail)]
        numbers = [format_value(row.values[name], unit) for name in answers.names]
        rows.append(([row.variant] if variants else []) + texts + [*numbers, format_value(row.spread, unit)])
    names = (["Variant"] if variants else []) + ["Of", "Figure"]
    headers = [*(name.capitalize() for name in answers.names), "Spread"]
    return FittedTable("Furthest apart", names, headers, rows, more(len(answers), limit))
