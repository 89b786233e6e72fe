"""Two reports side by side: which rows are about the same figure, and how far they are apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surecast.report.columns import KEY, Codes, Columns, Floats, Groups, Words, fold
from surecast.report.metric_registry import metric_or_plain
from surecast.report.report import QoSReport
from surecast.report.report_errors import ReportError, listing, suggestion

__all__: list[str] = []

Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Join:
    """The rows of both reports that are about the same figure, and the rows of each that the other lacks."""

    a_rows: Rows
    b_rows: Rows
    only_a: Rows
    only_b: Rows


def join(a: QoSReport, b: QoSReport, variants: Mapping[str, str] | None) -> Join:
    """Pairs the figures of two reports by their key; `variants` says which variant of b stands for one of a.

    With `variants` given, figures of variants that it does not mention are left aside.
    """
    a_rows, b_rows = np.arange(len(a)), np.arange(len(b))
    a_variant = a.columns.variant
    if variants is not None:
        _check_variants(a, b, variants)
        a_rows = np.flatnonzero(a_variant.is_one_of(list(variants)))
        b_rows = np.flatnonzero(b.columns.variant.is_one_of(list(variants.values())))
        a_variant = Words(a_variant.codes, tuple(variants.get(word, word) for word in a_variant.words))
    pairs: list[tuple[Codes, int]] = []
    for column in KEY:
        mine = a_variant if column == "variant" else a.columns.text(column)
        index: dict[str, int] = {}
        recoded = [_recode(mine, index)[a_rows], _recode(b.columns.text(column), index)[b_rows]]
        pairs.append((np.concatenate(recoded), len(index)))
    keys = fold(pairs)
    a_keys, b_keys = keys[: len(a_rows)], keys[len(a_rows) :]
    order = np.argsort(b_keys, kind="stable")
    position = np.searchsorted(b_keys[order], a_keys)
    paired = np.zeros(len(a_keys), dtype=np.bool_)
    inside = position < len(b_keys)
    paired[inside] = b_keys[order][position[inside]] == a_keys[inside]
    partner = order[position[paired]]
    alone = np.ones(len(b_keys), dtype=np.bool_)
    alone[partner] = False
    return Join(a_rows[paired], b_rows[partner], a_rows[~paired], b_rows[alone])


def _recode(column: Words, index: dict[str, int]) -> Codes:
    """Codes of a column in a dictionary that both reports share."""
    table = np.array([index.setdefault(word, len(index)) for word in column.words], dtype=np.int32)
    return np.asarray(table[column.codes], dtype=np.int32)


def _check_variants(a: QoSReport, b: QoSReport, variants: Mapping[str, str]) -> None:
    for report, which, words in ((a, "first", variants.keys()), (b, "second", variants.values())):
        for word in words:
            if word not in report.variants:
                hint = suggestion(word, report.variants)
                raise ReportError(
                    f"the {which} report has no variant {word!r}; it has {listing(report.variants)}{hint}"
                )


def disagreement(columns: Columns, a: Floats, b: Floats) -> Floats:
    """Returns the distance of two values, in a unit that lets figures of different metrics be compared.

    It is the absolute difference over the scale of its family, that is of all compared figures of the same scope,
    metric and detail. The scale of a share is 1; of anything else it is the root mean square of all values of the
    family in both reports, but of a ratio at least 1. So within a family the order is that of the absolute
    difference, and 0.1 means a tenth of the full range of a share, or of the typical size of anything else.
    """
    families = Groups(columns.keys(("scope", "metric", "detail")))
    size = np.maximum(np.abs(a), np.abs(b))
    largest = size[families.largest_row(size)] if len(families) else np.empty(0)
    safe = np.where(largest > 0, largest, 1.0)
    relative = (a / safe[families.of]) ** 2 + (b / safe[families.of]) ** 2
    scale = safe * np.sqrt(families.sum(relative) / (2 * families.size))
    units = [metric_or_plain(columns.metric[row]).unit for row in families.first.tolist()]
    scale = np.where([unit == "share" for unit in units], 1.0, scale)
    scale = np.where([unit == "ratio" for unit in units], np.maximum(scale, 1.0), scale)
    return np.asarray(np.abs(b - a) / np.where(scale > 0, scale, 1.0)[families.of], dtype=np.float64)
