"""The figures of a report, column by column.

A text column is an array of codes and the words they stand for, each word once and in order of first appearance;
so equal rows have equal columns, however they were added. An absent interval end is NaN, an absent number of
samples is -1; neither is ever a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from surecast.report.figure import SCOPES, Figure, describe_key
from surecast.report.metric_registry import find_metric
from surecast.report.report_errors import ReportError, listing, suggestion

__all__ = ["COLUMNS", "KEY", "NO_SAMPLES", "TEXT", "Codes", "Columns", "Floats", "Groups", "Ints", "Words", "fold"]


Codes = NDArray[np.int32]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Rows = NDArray[np.intp] | NDArray[np.bool_]

KEY = ("variant", "scope", "name", "metric", "detail")
TEXT = (*KEY, "how")
COLUMNS = (*KEY, "value", "how", "low", "high", "samples")
NO_SAMPLES = -1
_Array = TypeVar("_Array", Codes, Floats, Ints)


@dataclass(frozen=True, slots=True, eq=False)
class Words:
    """A column of text: `words[codes[i]]` is the text of row i.

    >>> column = Words.of(["b", "a", "b"])
    >>> column.words, column.codes.tolist(), column[2]
    (('b', 'a'), [0, 1, 0], 'b')
    """

    codes: Codes
    words: tuple[str, ...]

    @classmethod
    def of(cls, texts: Sequence[str]) -> Words:
        """Encodes one text per row."""
        index: dict[str, int] = {}
        codes = np.fromiter((index.setdefault(text, len(index)) for text in texts), dtype=np.int32, count=len(texts))
        return cls(codes, tuple(index))

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, row: int) -> str:
        return self.words[int(self.codes[row])]

    def is_word(self, word: str) -> NDArray[np.bool_]:
        """Returns, for each row, whether it holds this word."""
        code = self.words.index(word) if word in self.words else -1
        return np.asarray(self.codes == code)

    def is_one_of(self, words: Sequence[str]) -> NDArray[np.bool_]:
        """Returns, for each row, whether it holds one of these words."""
        codes = [code for code, word in enumerate(self.words) if word in words]
        return np.isin(self.codes, np.array(codes, dtype=np.int32))

    def take(self, rows: Rows) -> Words:
        return Words(self.codes[rows], self.words).normalised()

    def normalised(self) -> Words:
        """Returns the same column with every word once, in order of first appearance, and none unused."""
        used, first, inverse = np.unique(self.codes, return_index=True, return_inverse=True)
        order = np.argsort(first, kind="stable")
        rank = np.empty(len(used), dtype=np.int32)
        rank[order] = np.arange(len(used), dtype=np.int32)
        codes = rank[inverse.reshape(-1)]
        return Words(_frozen(codes), tuple(self.words[used[i]] for i in order))

    def texts(self) -> list[str]:
        """Returns the text of every row; one object per distinct word, not per row."""
        return [self.words[code] for code in self.codes.tolist()]

    def equals(self, other: Words) -> bool:
        return self.words == other.words and np.array_equal(self.codes, other.codes)


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """All columns of a report, normalised and read-only as `assemble` makes them."""

    variant: Words
    scope: Words
    name: Words
    metric: Words
    detail: Words
    how: Words
    value: Floats
    low: Floats
    high: Floats
    samples: Ints

    def __len__(self) -> int:
        return len(self.value)

    def text(self, column: str) -> Words:
        """Returns one of the text columns by its name."""
        words: Words = getattr(self, column)
        return words

    @classmethod
    def assemble(cls, texts: Iterable[Words], value: Floats, low: Floats, high: Floats, samples: Ints) -> Columns:
        """Makes columns of new arrays, the texts in the order of `TEXT`; normalises and freezes them."""
        variant, scope, name, metric, detail, how = (text.normalised() for text in texts)
        numbers = (_frozen(value), _frozen(low), _frozen(high))
        return cls(variant, scope, name, metric, detail, how, *numbers, _frozen(samples))

    def take(self, rows: Rows) -> Columns:
        texts = (Words(self.text(column).codes[rows], self.text(column).words) for column in TEXT)
        return Columns.assemble(texts, self.value[rows], self.low[rows], self.high[rows], self.samples[rows])

    def key(self, row: int) -> tuple[str, str, str, str, str]:
        """Returns variant, scope, name, metric and detail of a row."""
        return self.variant[row], self.scope[row], self.name[row], self.metric[row], self.detail[row]

    def family(self, row: int) -> tuple[str, str, str, str]:
        """Returns the key of a row without the name: variant, scope, metric and detail."""
        return self.variant[row], self.scope[row], self.metric[row], self.detail[row]

    def equals(self, other: Columns) -> bool:
        """Returns whether all rows are the same, in the same order."""
        for field in fields(self):
            mine, its = getattr(self, field.name), getattr(other, field.name)
            same = mine.equals(its) if isinstance(mine, Words) else np.array_equal(mine, its, mine.dtype.kind == "f")
            if not same:
                return False
        return True

    def describe(self, row: int) -> str:
        """Returns the key of a row, in words."""
        return describe_key(*self.key(row))

    def figure(self, row: int) -> Figure:
        low, high, samples = float(self.low[row]), float(self.high[row]), int(self.samples[row])
        return Figure(
            scope=self.scope[row],
            name=self.name[row],
            metric=self.metric[row],
            value=float(self.value[row]),
            how=self.how[row],
            detail=self.detail[row],
            variant=self.variant[row],
            low=None if low != low else low,
            high=None if high != high else high,
            samples=None if samples == NO_SAMPLES else samples,
        )

    def figures(self) -> Iterator[Figure]:
        return (self.figure(row) for row in range(len(self)))

    def keys(self, columns: Sequence[str] = KEY) -> Ints:
        """Returns one number per row, equal for two rows exactly if they agree in these columns."""
        return fold([(self.text(column).codes, len(self.text(column).words)) for column in columns])


class Groups:
    """Rows that share a key, in order of first appearance.

    >>> groups = Groups(np.array([7, 3, 7]))
    >>> groups.first.tolist(), groups.of.tolist(), groups.largest_row(np.array([1.0, 5.0, 2.0])).tolist()
    ([0, 1], [0, 1, 0], [2, 1])
    """

    def __init__(self, keys: Ints):
        used, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        order = np.argsort(first, kind="stable")
        rank = np.empty(len(used), dtype=np.intp)
        rank[order] = np.arange(len(used))
        self.first: NDArray[np.intp] = first[order]
        self.of: NDArray[np.intp] = rank[inverse.reshape(-1)]
        self.size: NDArray[np.intp] = np.bincount(self.of, minlength=len(used))

    def __len__(self) -> int:
        return len(self.first)

    def sum(self, values: Floats) -> Floats:
        return np.asarray(np.bincount(self.of, weights=values, minlength=len(self)), dtype=np.float64)

    def mean(self, values: Floats) -> Floats:
        """Returns the mean by group, never outside the group's own values, whatever the rounding."""
        mean = self.sum(values) / self.size
        return np.clip(mean, values[self.largest_row(-values)], values[self.largest_row(values)])

    def largest_row(self, values: Floats) -> NDArray[np.intp]:
        """Returns the row of the largest value of each group; the first one of equals."""
        order = np.lexsort((-values, self.of))
        starts = np.concatenate(([0], np.cumsum(self.size)[:-1])).astype(np.intp)
        return np.asarray(order[starts[: len(self)]], dtype=np.intp)


def fold(columns: Sequence[tuple[Codes, int]]) -> Ints:
    """Folds columns of codes, each with its number of words, into one number per row; no two keys share a number."""
    key = np.zeros(len(columns[0][0]), dtype=np.int64)
    span = 1
    for codes, size in columns:
        if span * max(size, 1) >= 2**62:
            used, inverse = np.unique(key, return_inverse=True)
            key, span = inverse.reshape(-1).astype(np.int64), len(used)
        key = key * max(size, 1) + codes
        span *= max(size, 1)
    return key


def _frozen(array: _Array) -> _Array:
    array.flags.writeable = False
    return array


def matching_rows(columns: Columns, wanted: Mapping[str, str | None]) -> NDArray[np.intp]:
    """Returns the rows where each column holds what is wanted, None meaning anything.

    A scope or metric that nobody knows is refused, as it is most likely a slip; one that is merely absent is not.
    """
    check_scope(wanted.get("scope"))
    metric = wanted.get("metric")
    if metric is not None and metric not in columns.metric.words:
        find_metric(metric)
    mask = np.ones(len(columns), dtype=np.bool_)
    for column, word in wanted.items():
        if word is not None:
            mask &= columns.text(column).is_word(word)
    return np.flatnonzero(mask)


def check_scope(scope: str | None) -> None:
    """Refuses an unknown scope."""
    if scope is not None and scope not in SCOPES:
        raise ReportError(f"unknown scope {scope!r}; known are {listing(SCOPES)}{suggestion(scope, SCOPES)}")
