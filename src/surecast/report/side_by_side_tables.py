"""Three answers side by side as Rich tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surecast.report.figure import SCOPES
from surecast.report.formatting import format_value
from surecast.report.metric_registry import metric_or_plain
from surecast.report.report_tables import more, title_of
from surecast.report.side_by_side import SideBySide
from surecast.tables import FittedTable, plain

if TYPE_CHECKING:
    from rich.console import Group, RenderableType

__all__ = ["render_side_by_side"]


def render_side_by_side(answers: SideBySide, *, limit: int = 20) -> Group:
    """Returns the verdict, the means of every metric with the mean differences, and the figures furthest apart."""
    from rich.console import Group

    parts: list[RenderableType] = [plain(_heading(answers), "bold"), _means_table(answers)]
    if limit > 0:
        parts.append(_figures_table(answers, limit))
    return Group(*parts)


def _heading(answers: SideBySide) -> str:
    lines = list(answers.verdict)
    lines += [f"{info}{'' if info.seed is None else f', seed {info.seed}'}" for info in answers.infos]
    lines.append(f"{len(answers):,} figure{'s' if len(answers) != 1 else ''} in all {len(answers.infos)}")
    for name, rows in answers.only.items():
        if rows:
            lines.append(f"not in all, but {name}: {sum(row.count for row in rows):,} figures")
    for warning in dict.fromkeys(warning for info in answers.infos for warning in info.warnings):
        sides = [info.source for info in answers.infos if warning in info.warnings]
        lines.append(f"! {' and '.join(sides)}: {warning}")
    return "\n".join(lines)


def _has_variants(answers: SideBySide) -> bool:
    return len(answers.columns[0].variant.words) > 1


def _means_table(answers: SideBySide) -> FittedTable:
    variants = _has_variants(answers)
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
    variants = _has_variants(answers)
    rows = []
    for row in answers.rows(limit):
        unit = metric_or_plain(row.metric).unit
        texts = [f"{SCOPES.get(row.scope, row.scope)} {row.name}".rstrip(), title_of(row.metric, row.detail)]
        numbers = [format_value(row.values[name], unit) for name in answers.names]
        rows.append(([row.variant] if variants else []) + texts + [*numbers, format_value(row.spread, unit)])
    names = (["Variant"] if variants else []) + ["Of", "Figure"]
    headers = [*(name.capitalize() for name in answers.names), "Spread"]
    return FittedTable("Furthest apart", names, headers, rows, more(len(answers), limit))
