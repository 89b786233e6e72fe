"""Reports as Arrow tables. Only this module and `files.py` need pyarrow, and both are loaded when they are used."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from surecast.report.agreement import UNKNOWN
from surecast.report.columns import COLUMNS, KEY, NO_SAMPLES, TEXT, Columns, Floats, Ints, Words
from surecast.report.figure_checks import check_columns, check_read
from surecast.report.info import ReportInfo, check_text
from surecast.report.report import QoSReport
from surecast.report.report_errors import ReportError

if TYPE_CHECKING:
    from surecast.report.comparison import Comparison

__all__: list[str] = []

HEAD = b"surecast"
"""The key of the table's metadata that holds the head of the report, as JSON."""


def text_to_arrow(column: Words) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(column.codes), pa.array(column.words, pa.string()))


def floats_to_arrow(column: Floats) -> pa.Array:
    """Returns numbers as an Arrow array; NaN becomes null."""
    return pa.array(column, pa.float64(), mask=np.isnan(column))


def report_to_arrow(report: QoSReport) -> pa.Table:
    """Returns one row per figure, texts dictionary-encoded, the head in the metadata."""
    columns = report.columns
    arrays: dict[str, pa.Array] = {column: text_to_arrow(columns.text(column)) for column in TEXT}
    arrays["value"] = pa.array(columns.value)
    arrays["low"], arrays["high"] = floats_to_arrow(columns.low), floats_to_arrow(columns.high)
    arrays["samples"] = pa.array(columns.samples, mask=columns.samples == NO_SAMPLES)
    head = json.dumps(report.info.head(), allow_nan=False).encode()
    return pa.table([arrays[name] for name in COLUMNS], names=list(COLUMNS), metadata={HEAD: head})


def report_from_arrow(table: pa.Table, info: ReportInfo | None = None) -> QoSReport:
    """Makes a report of an Arrow table with the columns of `QoSReport.to_arrow`.

    The head comes from the table's metadata unless it is given; further columns are ignored.

    >>> from surecast.report.report import example_report
    >>> report_from_arrow(example_report().to_arrow()) == example_report()
    True
    """
    if info is None:
        head = (table.schema.metadata or {}).get(HEAD)
        if head is None:
            raise ReportError("the table has no head: it was not written as a QoS report")
        try:
            info = ReportInfo.from_head(json.loads(head))
        except (ValueError, RecursionError):
            raise ReportError("the head of the report is damaged") from None
    check_columns(table.column_names)
    try:
        texts = (_text_from_arrow(name, table[name]) for name in TEXT)
        value, low, high = (_floats_from_arrow(name, table[name]) for name in ("value", "low", "high"))
        columns = Columns.assemble(texts, value, low, high, _samples_from_arrow(table["samples"]))
    except pa.ArrowException as error:
        raise ReportError(f"a column of the report has the wrong type: {error}") from error
    if table["value"].null_count:
        row = int(np.argmax(np.isnan(columns.value)))
        raise ReportError(f"{columns.describe(row)}: the value is missing")
    check_read(columns)
    return QoSReport(info, columns)


def _text_from_arrow(name: str, column: pa.ChunkedArray) -> Words:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        raise ReportError(f"column {name!r} holds {column.type}, not text")
    if column.null_count:
        raise ReportError(f"column {name!r} has missing texts")
    if column.type != pa.dictionary(pa.int32(), pa.string()):
        column = column.cast(pa.string()).dictionary_encode()
    encoded = column.unify_dictionaries()
    if not encoded.num_chunks:
        return Words(np.empty(0, np.int32), ())
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in encoded.chunks])
    words = tuple(check_text(name, word) for word in encoded.chunk(0).dictionary.to_pylist())
    if len(codes) and (codes.min() < 0 or codes.max() >= len(words)):
        raise ReportError(f"column {name!r} is damaged")
    return _without_repeated_words(Words(codes, words))


def _without_repeated_words(column: Words) -> Words:
    """Returns a column in which each word has one code; a foreign dictionary may hold a word twice."""
    index: dict[str, int] = {}
    table = np.array([index.setdefault(word, len(index)) for word in column.words], dtype=np.int32)
    return Words(table[column.codes], tuple(index)) if len(table) else column


def _floats_from_arrow(name: str, column: pa.ChunkedArray) -> Floats:
    _check_numeric(name, column)
    return np.array(column.cast(pa.float64()).to_numpy(), dtype=np.float64)


def _samples_from_arrow(column: pa.ChunkedArray) -> Ints:
    _check_numeric("samples", column)
    return np.array(column.cast(pa.int64()).fill_null(NO_SAMPLES).to_numpy(), dtype=np.int64)


def _check_numeric(name: str, column: pa.ChunkedArray) -> None:
    kind = column.type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind)):
        raise ReportError(f"column {name!r} holds {kind}, not numbers")


def comparison_to_arrow(comparison: Comparison, head: dict[str, Any]) -> pa.Table:
    """Returns one row per figure that both reports have; the summaries are in the metadata."""
    a, b = comparison.a_columns, comparison.b_columns
    arrays: dict[str, pa.Array] = {column: text_to_arrow(a.text(column)) for column in KEY}
    arrays |= {"a": pa.array(a.value), "b": pa.array(b.value), "difference": pa.array(comparison.difference)}
    arrays["relative"] = floats_to_arrow(comparison.relative)
    arrays["disagreement"] = pa.array(comparison.disagreement)
    arrays["inside"] = pa.array(comparison.inside == 1, mask=comparison.inside == UNKNOWN)
    for side, columns in (("a", a), ("b", b)):
        arrays[f"{side}_how"] = text_to_arrow(columns.how)
        arrays |= {f"{side}_low": floats_to_arrow(columns.low), f"{side}_high": floats_to_arrow(columns.high)}
    metadata = {HEAD: json.dumps(head, allow_nan=False).encode()}
    return pa.table(list(arrays.values()), names=list(arrays), metadata=metadata)
