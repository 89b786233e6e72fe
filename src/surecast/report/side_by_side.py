"""Answers to one scenario side by side: per figure, per metric, and how far every two of them are apart."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from surecast.report.agreement import UNKNOWN, Unmatched, consistent, unmatched
from surecast.report.columns import KEY, Codes, Columns, Floats, Groups, Words, fold
from surecast.report.formatting import format_value
from surecast.report.info import ReportInfo
from surecast.report.metric_registry import metric_or_plain
from surecast.report.report import QoSReport
from surecast.report.report_errors import ReportError, listing, suggestion
from surecast.report.report_summary import FAMILY

__all__ = ["SideBySide", "SideBySideFamily", "SideBySideRow", "place_side_by_side"]

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


FORMAT: Final = "surecast-side-by-side"
FORMAT_VERSION: Final = 1
_VERDICT_METRICS: Final = ("reliability", "success_share", "delay_mean_s", "throughput_per_s")


@dataclass(frozen=True, slots=True)
class SideBySideRow:
    """One figure that all reports have. `values`, `low` and `high` are by answer; `spread` is the largest value less
    the smallest."""

    variant: str
    scope: str
    name: str
    metric: str
    detail: str
    values: dict[str, float]
    low: dict[str, float | None]
    high: dict[str, float | None]
    spread: float


@dataclass(frozen=True, slots=True)
class SideBySideFamily:
    """All figures of one variant, scope, metric and detail. `means` are by answer.

    The others are by pair of answers, as in `predicted and simulated`: the mean and the largest absolute difference,
    and the share of pairs that fit an interval or a bound, None where there is none.
    """

    variant: str
    scope: str
    metric: str
    detail: str
    count: int
    means: dict[str, float]
    mean_absolute: dict[str, float]
    largest: dict[str, float]
    largest_name: str
    inside: dict[str, float | None]


class SideBySide:
    """Several reports of one scenario side by side, the largest spreads first. Made by `place_side_by_side`."""

    def __init__(self, reports: Sequence[QoSReport]):
        self.infos: tuple[ReportInfo, ...] = tuple(report.info for report in reports)
        self.names: tuple[str, ...] = tuple(info.source for info in self.infos)
        if len(set(self.names)) < len(self.names):
            raise ReportError(f"two of the reports are {listing(list(self.names))}; give one of each kind")
        rows = _shared_rows(reports)
        columns = [report.columns.take(own) for report, own in zip(reports, rows, strict=True)]
        values = np.array([each.value for each in columns])
        distance = np.max([disagreement(columns[0], values[i], values[k]) for i, k in self._pairs()], axis=0)
        order = np.argsort(-distance, kind="stable")
        self.columns: tuple[Columns, ...] = tuple(each.take(order) for each in columns)
        self.only: dict[str, list[Unmatched]] = {
            info.source: unmatched(report.columns.take(np.setdiff1d(np.arange(len(report)), own)))
            for info, report, own in zip(self.infos, reports, rows, strict=True)
        }

    def __len__(self) -> int:
        return len(self.columns[0])

    def _pairs(self) -> list[tuple[int, int]]:
        return list(combinations(range(len(self.infos)), 2))

    @property
    def pairs(self) -> tuple[str, ...]:
        """The names of every two answers, as summaries have them."""
        return tuple(f"{self.names[i]} and {self.names[k]}" for i, k in self._pairs())

    @cached_property
    def summary(self) -> list[SideBySideFamily]:
        """One row per variant, scope, metric and detail; the family with the largest spread first."""
        families = Groups(self.columns[0].keys(FAMILY))
        means = [families.mean(each.value) for each in self.columns]
        sizes = [np.abs(self.columns[k].value - self.columns[i].value) for i, k in self._pairs()]
        absolute = [families.mean(size) for size in sizes]
        inside = [consistent(self.columns[i], self.columns[k]) for i, k in self._pairs()]
        spread = np.max(sizes, axis=0)
        worst = families.largest_row(spread)
        decided = [families.sum((each != UNKNOWN).astype(np.float64)) for each in inside]
        fits = [families.sum((each == 1).astype(np.float64)) for each in inside]
        rows = []
        for i, first in enumerate(families.first.tolist()):
            members = families.of == i
            rows.append(
                SideBySideFamily(
                    *self.columns[0].family(first),
                    count=int(families.size[i]),
                    means={name: float(mean[i]) for name, mean in zip(self.names, means, strict=True)},
                    mean_absolute={pair: float(mean[i]) for pair, mean in zip(self.pairs, absolute, strict=True)},
                    largest={pair: float(size[members].max()) for pair, size in zip(self.pairs, sizes, strict=True)},
                    largest_name=self.columns[0].name[int(worst[i])],
                    inside={
                        pair: float(good[i] / all_[i]) if all_[i] else None
                        for pair, good, all_ in zip(self.pairs, fits, decided, strict=True)
                    },
                )
            )
        return rows

    def rows(self, limit: int | None = None) -> list[SideBySideRow]:
        """Returns the figures that all have, the largest spreads first; at most `limit` of them."""
        count = len(self) if limit is None else min(limit, len(self))
        return [self._row(row) for row in range(count)]

    def _row(self, row: int) -> SideBySideRow:
        values = {name: float(each.value[row]) for name, each in zip(self.names, self.columns, strict=True)}

        def ends(arrays: Sequence[Floats]) -> dict[str, float | None]:
            named = {name: float(array[row]) for name, array in zip(self.names, arrays, strict=True)}
            return {name: None if value != value else value for name, value in named.items()}

        return SideBySideRow(
            *self.columns[0].key(row),
            values=values,
            low=ends([each.low for each in self.columns]),
            high=ends([each.high for each in self.columns]),
            spread=max(values.values()) - min(values.values()),
        )

    @property
    def verdict(self) -> list[str]:
        """Returns a sentence for each variant: the distance of every two answers in the figure that matters most."""
        sentences = []
        chosen = next((m for m in _VERDICT_METRICS if any(family.metric == m for family in self.summary)), None)
        for variant in dict.fromkeys(self.columns[0].variant.texts()):
            of_variant = [f for f in self.summary if f.variant == variant and f.metric == chosen and not f.detail]
            family = min(of_variant, key=lambda f: (f.scope != "subscriber", f.scope), default=None)
            if family is None:
                continue
            unit = metric_or_plain(family.metric).unit
            apart = (
                f"{pair} {format_value(family.mean_absolute[pair], unit)} (largest "
                f"{format_value(family.largest[pair], unit)})"
                for pair in self.pairs
            )
            what = metric_or_plain(family.metric).label.lower()
            of_whom = f" of {family.count:,} {family.scope}{'s' if family.count > 1 else ''}"
            sentences.append(
                f"{variant + ': ' if variant else ''}mean difference in {what}"
                f"{'' if family.scope == 'system' else of_whom}: {', '.join(apart)}"
            )
        return sentences

    def as_dict(self, limit: int | None = None) -> dict[str, Any]:
        """Returns everything as plain values, ready for JSON; with at most `limit` rows."""
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "verdict": self.verdict,
            "answers": {info.source: info.as_dict() for info in self.infos},
            "summary": [asdict(family) for family in self.summary],
            "only": {name: [asdict(row) for row in rows] for name, rows in self.only.items()},
            "rows": [asdict(row) for row in self.rows(limit)],
        }

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes all of it as .json; of two answers a comparison can be written as .parquet too."""
        from surecast.report.report_files import encode_json, suffix_of, write_whole

        target = Path(path)
        if suffix_of(target) != ".json":
            raise ReportError(f"{target}: three answers are saved as .json; compare two of them for .parquet")
        text = encode_json(self.as_dict()) + "\n"
        write_whole(target, lambda file: file.write(text.encode()))
        return target

    def _repr_html_(self) -> str:
        """Returns the tables that the command prints, for a notebook."""
        from surecast.report.compare_tables import render_side_by_side
        from surecast.report.data_frames import NOTEBOOK_ROWS, as_html

        return as_html(render_side_by_side(self, limit=NOTEBOOK_ROWS))


def place_side_by_side(*reports: QoSReport) -> SideBySide:
    """Returns several reports of one scenario side by side, with the figures that all of them have.

    >>> from surecast.report import ReportBuilder
    >>> answers = []
    >>> for source, how, value in (("predicted", "exact", 0.95), ("simulated", "simulated", 0.94),
    ...                            ("measured", "measured", 0.91)):
    ...     builder = ReportBuilder("star", source)
    ...     builder.add("subscriber", "s", "reliability", value, how=how)
    ...     answers.append(builder.build())
    >>> both = place_side_by_side(*answers)
    >>> both.rows()[0].values, round(both.rows()[0].spread, 3)
    ({'predicted': 0.95, 'simulated': 0.94, 'measured': 0.91}, 0.04)
    """
    if len(reports) < 2:
        raise ReportError("give two reports or more")
    return SideBySide(reports)


def _shared_rows(reports: Sequence[QoSReport]) -> list[np.ndarray[tuple[int], np.dtype[np.intp]]]:
    """Returns, for each report, the rows of the figures that all of them have, in the same order."""
    first = reports[0]
    joins = [join(first, other, None) for other in reports[1:]]
    shared = np.arange(len(first), dtype=np.intp)
    for each in joins:
        shared = np.intersect1d(shared, each.a_rows)
    if not len(shared):
        have = "; ".join(f"{report.info} has {listing(report.families())}" for report in reports)
        raise ReportError(f"the reports have no figure in common: {have}")
    rows = [shared]
    for each in joins:
        order = np.argsort(each.a_rows)
        rows.append(each.b_rows[order][np.searchsorted(each.a_rows[order], shared)])
    return rows
