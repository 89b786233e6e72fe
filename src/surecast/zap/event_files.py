"""Events in files: text, also compressed (.gz), or Parquet; one file, or a folder with a file for each hour.

Columns of Parquet: `time` (timestamp without a zone), `box` (IPv4 address), `kind` (channel, volume, mute or power),
`to_channel` and `from_channel` (null for a status), `value` (null for a channel change).
"""

from __future__ import annotations

import gzip
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from surecast.errors import ConfigurationError, FileError
from surecast.zap.event_table import CHANGE, STATUS_KINDS, EventTable, address_of, address_texts, join_tables
from surecast.zap.events import VOLUME_MAX, BadLine, Event, channel_fault, is_address, parse_lines, stamp

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["EventWriter", "Format", "Payload", "payloads", "read_table", "read_tables"]

Format = Literal["text", "parquet"]
Bad = Callable[[BadLine], None]
Progress = Callable[[int, int], None]
_KINDS = ("channel", *STATUS_KINDS)
_LINES_AT_ONCE = 50_000
_ROWS_AT_ONCE = 500_000
_HOUR_S = 3600


class EventWriter:
    """Writes tables one after the other, to a file or, if `path` is a folder or has no suffix, to files of an hour.

    Files appear whole, under their names, when they are complete.

    >>> import tempfile
    >>> from surecast.zap.events import parse_line
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with EventWriter(Path(folder, "a.txt"), "text") as writer:
    ...         writer.write(EventTable.of([parse_line("2024-01-01,20:17:05,10.0.0.1,Mute: 1")]))
    ...     read_table(Path(folder, "a.txt")).lines()
    ['2024-01-01,20:17:05,10.0.0.1,Mute: 1']
    """

    def __init__(self, path: Path, format: Format):
        self.path, self.format = path, format
        self.files: list[Path] = []
        self.count = 0
        self._hourly = path.is_dir() or not path.suffix
        self._hour = -1
        self._sink: _Sink | None = None
        if self._hourly:
            path.mkdir(parents=True, exist_ok=True)
        elif not path.parent.is_dir():
            raise ConfigurationError(f"{path}: the folder {path.parent} does not exist; create it first")
        elif (path.suffix == ".parquet") != (format == "parquet"):
            raise ConfigurationError(f"{path}: only names of Parquet files end in .parquet; the format is {format}")

    def __enter__(self) -> EventWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            if self._sink is not None:
                self._sink.abandon()
            return
        if self._sink is None and not self._hourly:
            self._open(self.path)
        self._close()

    def write(self, table: EventTable) -> None:
        """Adds events, which must not be earlier, by the hour, than those before."""
        self.count += len(table)
        if not self._hourly:
            (self._sink or self._open(self.path)).write(table)
            return
        hours = table.time_s // _HOUR_S
        for hour in np.unique(hours).tolist():
            if hour < self._hour:
                raise ConfigurationError(f"{self.path}: events go back to an hour that is written; sort them by time")
            if hour > self._hour:
                self._close()
                self._hour = hour
                name = stamp(hour * _HOUR_S)[:13].replace("-", "").replace(",", "-")
                suffix = "parquet" if self.format == "parquet" else "txt"
                self._open(self.path / f"zap-{name}.{suffix}")
            if self._sink is not None:
                self._sink.write(table[hours == hour])

    def _open(self, path: Path) -> _Sink:
        self._sink = _ParquetSink(path) if self.format == "parquet" else _TextSink(path)
        self.files.append(path)
        return self._sink

    def _close(self) -> None:
        if self._sink is not None:
            self._sink.close()
            self._sink = None


class _Sink(ABC):
    """A file being written: a hidden file that is renamed when it is complete."""

    def __init__(self, path: Path):
        self.path = path
        self.part = path.with_name(f".{path.name}.part")

    @abstractmethod
    def write(self, table: EventTable) -> None:
        """Appends events."""

    def close(self) -> None:
        self.part.replace(self.path)

    def abandon(self) -> None:
        self.part.unlink(missing_ok=True)


class _TextSink(_Sink):
    def __init__(self, path: Path):
        super().__init__(path)
        # no time stamp within, so that equal events make equal files
        packed = path.suffix == ".gz"
        self._raw: IO[bytes] = self.part.open("wb")
        self._file = gzip.GzipFile("", "wb", 6, self._raw, mtime=0) if packed else self._raw

    def write(self, table: EventTable) -> None:
        if len(table):
            self._file.write(("\n".join(table.lines()) + "\n").encode())

    def close(self) -> None:
        self._file.close()
        self._raw.close()
        super().close()

    def abandon(self) -> None:
        self._file.close()
        self._raw.close()
        super().abandon()


class _ParquetSink(_Sink):
    def __init__(self, path: Path):
        import pyarrow.parquet as pq

        super().__init__(path)
        self._writer = pq.ParquetWriter(self.part, _schema(), compression="zstd")
        self._waiting: list[EventTable] = []
        self._rows = 0

    def write(self, table: EventTable) -> None:
        # batches are small; a row group of each would be slow to read
        self._waiting.append(table)
        self._rows += len(table)
        if self._rows >= _ROWS_AT_ONCE:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()
        super().close()

    def abandon(self) -> None:
        self._writer.close()
        super().abandon()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(_to_arrow(join_tables(self._waiting)))
        self._waiting, self._rows = [], 0


def read_tables(path: Path, bad: Bad | None = None, progress: Progress | None = None) -> Iterator[EventTable]:
    """Yields the events of a file or of all files of a folder in order of their names, in parts.

    `bad` is told of every line that is no event; `progress` of bytes read and bytes in all.
    """
    files = sorted(p for p in path.iterdir() if p.is_file() and p.name[0] != ".") if path.is_dir() else [path]
    if not files:
        raise FileError("this folder holds no files; name one with files of events", str(path))
    try:
        total = sum(file.stat().st_size for file in files)
        done = 0
        for file in files:
            for place, table in _parquet_tables(file) if file.suffix == ".parquet" else _text_tables(file, bad):
                if progress is not None:
                    progress(done + place, total)
                yield table
            done += file.stat().st_size
    except FileNotFoundError as error:
        raise FileError("there is no such file", str(error.filename or path)) from None
    except (EOFError, gzip.BadGzipFile) as error:
        raise FileError(f"this is not a whole .gz file: {error}", str(path)) from None
    except OSError as error:
        raise FileError(f"cannot be read: {error.strerror or error}", str(path)) from None


def read_table(path: Path, bad: Bad | None = None) -> EventTable:
    """Returns all events of a file or folder."""
    return join_tables(list(read_tables(path, bad)))


def _text_tables(path: Path, bad: Bad | None) -> Iterator[tuple[int, EventTable]]:
    with path.open("rb") as raw:
        file: IO[bytes] | gzip.GzipFile = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
        first = 1
        while lines := list(islice(file, _LINES_AT_ONCE)):
            good: list[Event] = []
            for event in parse_lines(lines, str(path), first):
                if not isinstance(event, BadLine):
                    good.append(event)
                elif bad is not None:
                    bad(event)
            first += len(lines)
            yield raw.tell(), EventTable.of(good)


def _parquet_tables(path: Path) -> Iterator[tuple[int, EventTable]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            size, rows, count = path.stat().st_size, 0, max(1, file.metadata.num_rows)
            for batch in file.iter_batches(_ROWS_AT_ONCE, columns=_schema().names):
                rows += len(batch)
                yield size * rows // count, _from_arrow(pa.Table.from_batches([batch]), path)
    except (pa.ArrowInvalid, pa.ArrowKeyError, KeyError) as error:
        raise FileError(f"this is not a Parquet file of events: {error}", str(path)) from None


def _schema() -> pa.Schema:
    import pyarrow as pa

    words = pa.dictionary(pa.int32(), pa.string())
    return pa.schema(
        [
            ("time", pa.timestamp("us")),
            ("box", words),
            ("kind", words),
            ("to_channel", words),
            ("from_channel", words),
            ("value", pa.int32()),
        ]
    )


def _to_arrow(table: EventTable) -> pa.Table:
    import pyarrow as pa

    change = table.kind == CHANGE
    addresses, places = np.unique(table.address, return_inverse=True)

    def words(places: Any, names: Any, missing: Any = None) -> pa.DictionaryArray:
        return pa.DictionaryArray.from_arrays(
            pa.array(places.astype(np.int32), mask=missing), pa.array(names, pa.string())
        )

    columns = [
        pa.array(table.time_s * 1_000_000, pa.int64()).cast(pa.timestamp("us")),
        words(places, address_texts(addresses)),
        words(table.kind, _KINDS),
        words(table.value, table.channels, ~change),
        words(table.previous, table.channels, ~change),
        pa.array(table.value, pa.int32(), mask=change),
    ]
    return pa.Table.from_arrays(columns, schema=_schema())


def _from_arrow(table: pa.Table, path: Path) -> EventTable:
    import pyarrow.compute as pc

    if not len(table):
        return EventTable.of([])
    names: dict[str, int] = {}
    to, previous = _numbers(table["to_channel"], names), _numbers(table["from_channel"], names)
    kind = _numbers(table["kind"], {kind: i for i, kind in enumerate(_KINDS)})
    boxes: dict[str, int] = {}
    box = _numbers(table["box"], boxes)
    value = pc.fill_null(table["value"], -1).to_numpy()
    change = kind == CHANGE
    limits = np.array([0, VOLUME_MAX, 1, 1])[np.clip(kind, 0, 3)]
    wrong = np.where(change, (to < 0) | (previous < 0), (value < 0) | (value > limits))
    wrong |= (kind < 0) | (kind > 3) | (box < 0)
    faults = [fault for name in names if (fault := channel_fault(name))]
    faults += [f"the address {text!r}" for text in boxes if not is_address(text)]
    if wrong.any() or faults:
        why = faults[0] if faults else "a box, kind, channel or value is missing or wrong"
        raise FileError(f"this is not a Parquet file of events: {why}", str(path))
    return EventTable(
        table["time"].to_numpy().astype("datetime64[s]").astype(np.int64),
        np.array([address_of(text) for text in boxes], dtype=np.uint32)[box],
        kind.astype(np.uint8),
        np.where(change, to, value).astype(np.int32),
        np.where(change, previous, -1).astype(np.int32),
        tuple(names),
    )


def _numbers(column: pa.ChunkedArray, places: dict[str, int]) -> NDArray[np.int32]:
    """Returns a column of words as their indices; new words are appended; -1 for null."""
    import pyarrow as pa

    plain = column.combine_chunks()
    coded = plain if pa.types.is_dictionary(plain.type) else plain.dictionary_encode()
    new = [places.setdefault(word, len(places)) for word in coded.dictionary.to_pylist()]
    index = coded.indices.fill_null(len(new)).to_numpy(zero_copy_only=False)
    return np.asarray(np.array([*new, -1], dtype=np.int32)[index], dtype=np.int32)


PAYLOAD_BYTES_MAX = 60_000


@dataclass(frozen=True, slots=True)
class Payload:
    """Lines of events that are sent together, so many seconds of the log after its first batch began."""

    after_s: int
    events: int
    data: bytes


def payloads(tables: Iterable[EventTable], batch_s: int = 10, bytes_max: int = PAYLOAD_BYTES_MAX) -> Iterator[Payload]:
    """Yields the messages of a log: all events of `batch_s` seconds are sent at their end, in messages of up to
    `bytes_max`.

    Batches begin at whole multiples of `batch_s`. Events that are earlier than those before them are sent with these.

    >>> from surecast.zap.events import parse_line
    >>> fields = ["20:00:01,10.0.0.1,B,A", "20:00:09,10.0.0.1,C,B", "20:00:30,10.0.0.1,B,C"]
    >>> lines = [f"2024-01-01,{rest}" for rest in fields]
    >>> [(one.after_s, one.events) for one in payloads([EventTable.of(map(parse_line, lines))])]
    [(10, 2), (40, 1)]
    """
    if batch_s < 1 or bytes_max < 1000:
        raise ConfigurationError(f"batch_s {batch_s}, bytes_max {bytes_max}: write at least 1 and 1000")
    first: int | None = None
    current = 0
    waiting: list[EventTable] = []
    for table in tables:
        if not len(table):
            continue
        # an event out of order belongs to the latest batch that has begun
        batches = np.maximum.accumulate(np.maximum(table.time_s // batch_s, current))
        first = int(batches[0]) if first is None else first
        for batch in np.unique(batches).tolist():
            if batch > current:
                yield from _split(waiting, (current + 1 - first) * batch_s, bytes_max)
                waiting, current = [], batch
            waiting.append(table[batches == batch])
    if first is not None:
        yield from _split(waiting, (current + 1 - first) * batch_s, bytes_max)


def _split(tables: list[EventTable], after_s: int, bytes_max: int) -> Iterator[Payload]:
    lines: list[bytes] = []
    size = 0
    for text in join_tables(tables).lines():
        line = text.encode()
        if lines and size + len(line) + 1 > bytes_max:
            yield Payload(after_s, len(lines), b"\n".join(lines))
            lines, size = [], 0
        lines.append(line)
        size += len(line) + 1
    if lines:
        yield Payload(after_s, len(lines), b"\n".join(lines))
