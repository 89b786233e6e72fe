"""Reports in files: JSON to read and exchange, Parquet for many figures."""

from __future__ import annotations

import fcntl
import json
import math
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

import numpy as np

from surecast.errors import ConfigurationError
from surecast.report.columns import COLUMNS, NO_SAMPLES, TEXT, Columns, Floats, Ints, Words
from surecast.report.figure_checks import check_columns, check_read
from surecast.report.info import ReportInfo, check_text
from surecast.report.report import QoSReport
from surecast.report.report_errors import ReportError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["as_dict", "load", "save"]

SUFFIXES = (".json", ".parquet")
_REQUIRED = frozenset(COLUMNS)


def as_dict(report: QoSReport) -> dict[str, Any]:
    """Returns the report as plain values, ready for JSON: its head, and one mapping per figure.

    >>> from surecast.report.report import example_report
    >>> as_dict(example_report())["figures"][2]["value"]
    0.95
    """
    return {**report.info.head(), "figures": list(_records(report.columns))}


def save(report: QoSReport, path: str | os.PathLike[str]) -> Path:
    """Writes a report as .json or .parquet, decided by the suffix, and returns the path.

    The file appears whole or not at all, even if the machine stops on the way.

    >>> import tempfile
    >>> from surecast.report.report import example_report
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = save(example_report(), Path(folder, "star.parquet"))
    ...     load(path) == example_report()
    True
    """
    target = Path(path)
    if suffix_of(target) == ".parquet":
        table = report.to_arrow()
        write_whole(target, lambda file: write_parquet(table, file))
    else:
        write_whole(target, lambda file: file.writelines(line.encode() for line in _json_lines(report)))
    return target


def load(path: str | os.PathLike[str]) -> QoSReport:
    """Reads a report that `save` wrote.

    >>> load("nowhere.json")
    Traceback (most recent call last):
    ...
    surecast.report.report_errors.ReportError: nowhere.json: there is no such file
    """
    source = Path(path)
    read = _load_parquet if suffix_of(source) == ".parquet" else _load_json
    try:
        return read(source)
    except FileNotFoundError:
        raise ReportError(f"{source}: there is no such file") from None
    except IsADirectoryError:
        raise ReportError(f"{source}: this is a folder, not a file") from None
    except PermissionError:
        raise ReportError(f"{source}: you may not read this file") from None
    except OSError as error:
        raise ReportError(f"{source}: cannot be read: {error.strerror or error}") from error
    except ReportError as error:
        raise ReportError(f"{source}: {error}") from error


def write_whole(target: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Writes a file so that a reader finds the old one or the whole new one: temporary file, fsync, rename."""
    final = Path(os.path.realpath(target))
    temporary = final.with_name(f".{final.name[:100]}.{secrets.token_hex(6)}.tmp")
    try:
        with temporary.open("xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(final)
        _sync_folder(final.parent)
    except OSError as error:
        if not final.parent.exists():
            raise ReportError(f"{target}: the folder {final.parent} does not exist; create it first") from None
        raise ReportError(f"{target}: cannot be written: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextmanager
def locked_folder(folder: Path, option: str, busy: Exception) -> Iterator[None]:
    """Makes a folder, named by an option, and locks it; the lock ends with the process, however it ends.

    Raises `busy` where another process has it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise ConfigurationError(f"{option} {folder}: {error.strerror or error}; name a folder to write to") from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise busy from None
        yield
    finally:
        os.close(handle)


def save_table(table: pa.Table, path: Path | str) -> Path:
    """Writes a table as Parquet, whole or not at all, and returns the path."""
    target = Path(path)
    write_whole(target, lambda file: write_parquet(table, file))
    return target


def write_parquet(table: pa.Table, file: IO[bytes]) -> None:
    """Writes Parquet with a checksum on every page, so that damage is noticed."""
    import pyarrow.parquet as pq

    pq.write_table(table, file, compression="zstd", write_page_checksum=True)


def json_lines(head: dict[str, Any], name: str, records: Iterator[str]) -> Iterator[str]:
    """Yields a JSON object in lines: one for each key of its head, then one for each of the encoded records."""
    yield "{\n"
    for key, value in head.items():
        yield f"{encode_json(key)}: {encode_json(value)},\n"
    yield f"{json.dumps(name)}: [\n"
    separator = ""
    for record in records:
        yield separator + record
        separator = ",\n"
    yield "\n]\n}\n"


encode_json = json.JSONEncoder(allow_nan=False, ensure_ascii=False).encode
"""Strict JSON: no NaN and no infinity."""


def suffix_of(path: Path) -> str:
    """Returns the format of a file by its suffix.

    >>> suffix_of(Path("star.csv"))
    Traceback (most recent call last):
    ...
    surecast.report.report_errors.ReportError: star.csv: a report is a .json or a .parquet file, not '.csv'
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ReportError(f"{path}: a report is a .json or a .parquet file, not {suffix or 'one without suffix'!r}")
    return suffix


def _sync_folder(folder: Path) -> None:
    """Makes a rename durable, where the system can open folders."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _records(columns: Columns) -> Iterator[dict[str, Any]]:
    """Yields one mapping per figure, with the columns in the order of the Arrow table."""
    variant, scope, name, metric, detail, how = (columns.text(column).texts() for column in TEXT)
    ends = zip(columns.low.tolist(), columns.high.tolist(), columns.samples.tolist(), strict=True)
    rows = zip(variant, scope, name, metric, detail, columns.value.tolist(), how, ends, strict=True)
    for v, s, n, m, d, value, h, (low, high, samples) in rows:
        yield {
            "variant": v,
            "scope": s,
            "name": n,
            "metric": m,
            "detail": d,
            "value": value,
            "how": h,
            "low": None if math.isnan(low) else low,
            "high": None if math.isnan(high) else high,
            "samples": None if samples == NO_SAMPLES else samples,
        }


def _encoded(columns: Columns) -> Iterator[str]:
    """Yields the records as JSON. Each word is encoded once; numbers are finite, and `repr` gives back the very same
    number."""
    words = {column: [encode_json(word) for word in columns.text(column).words] for column in TEXT}
    texts = ([words[column][code] for code in columns.text(column).codes.tolist()] for column in TEXT)
    ends = zip(columns.low.tolist(), columns.high.tolist(), columns.samples.tolist(), strict=True)
    for v, s, n, m, d, how, value, (low, high, samples) in zip(*texts, columns.value.tolist(), ends, strict=True):
        yield (
            f'{{"variant": {v}, "scope": {s}, "name": {n}, "metric": {m}, "detail": {d}, "value": {value!r}, '
            f'"how": {how}, "low": {"null" if low != low else repr(low)}, '
            f'"high": {"null" if high != high else repr(high)}, '
            f'"samples": {"null" if samples == NO_SAMPLES else samples}}}'
        )


def _json_lines(report: QoSReport) -> Iterator[str]:
    return json_lines(report.info.head(), "figures", _encoded(report.columns))


def _load_parquet(path: Path) -> QoSReport:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from surecast.report.arrow import report_from_arrow

    try:
        with path.open("rb") as file:
            return report_from_arrow(pq.read_table(file, page_checksum_verification=True))
    except (FileNotFoundError, IsADirectoryError, PermissionError):
        raise
    except (pa.ArrowException, OSError, ValueError, LookupError) as error:
        raise ReportError(f"the file is damaged or not a Parquet file: {error}") from error


def _load_json(path: Path) -> QoSReport:
    try:
        with path.open(encoding="utf-8") as file:
            content = json.load(file, parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise ReportError("the file is damaged or not JSON: it is not UTF-8 text") from error
    except (ValueError, RecursionError) as error:
        raise ReportError(f"the file is damaged or not JSON: {error}") from error
    info = ReportInfo.from_head(content)
    columns = _columns_of(content.get("figures"))
    check_read(columns)
    return QoSReport(info, columns)


def _refuse_constant(word: str) -> NoReturn:
    raise ReportError(f"{word} is not a number that a report can hold")


def _columns_of(figures: object) -> Columns:
    if not isinstance(figures, list) or not all(isinstance(figure, dict) for figure in figures):
        raise ReportError("'figures' is missing or not a list of figures: the file is damaged")
    for number, figure in enumerate(figures):
        if not figure.keys() >= _REQUIRED:
            try:
                check_columns(figure)
            except ReportError as error:
                raise ReportError(f"figure {number}: {error}") from None
    texts = (_text_column(column, [figure[column] for figure in figures]) for column in TEXT)
    value = _float_column("value", [figure["value"] for figure in figures], nullable=False)
    low, high = (_float_column(end, [figure[end] for figure in figures], nullable=True) for end in ("low", "high"))
    return Columns.assemble(texts, value, low, high, _sample_column([figure["samples"] for figure in figures]))


def _text_column(name: str, texts: list[Any]) -> Words:
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise ReportError(f"figure {number}: {name} is {text!r}, not text")
    column = Words.of(texts)
    for word in column.words:
        check_text(name, word)
    return column


def _float_column(name: str, numbers: list[Any], nullable: bool) -> Floats:
    for number, value in enumerate(numbers):
        if not (isinstance(value, float) or type(value) is int or (nullable and value is None)):
            raise ReportError(f"figure {number}: {name} is {value!r}, not a number")
    try:
        return np.array([math.nan if value is None else value for value in numbers], dtype=np.float64)
    except OverflowError:
        raise ReportError(f"a {name} is too large") from None


def _sample_column(numbers: list[Any]) -> Ints:
    for number, samples in enumerate(numbers):
        if samples is not None and (type(samples) is not int or not 0 <= samples < 2**63):
            raise ReportError(f"figure {number}: samples is {samples!r}, not a whole number from 0 on")
    return np.array([NO_SAMPLES if samples is None else samples for samples in numbers], dtype=np.int64)
