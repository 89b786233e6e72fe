"""Reading the event log by offset, while the broker writes it or afterwards."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from surecast.errors import SurecastError

__all__ = ["EventLogError", "OffsetAhead", "OffsetGone", "read_from", "segments_of"]

_PREFIX, _SUFFIX, _DIGITS = "events-", ".jsonl", 20
_OFFSET = b'{"offset":'
_NEAR_BYTES = 16 << 10  # below this, reading on is quicker than another step of the search


class EventLogError(SurecastError):
    """The event log cannot be opened, read or written; the message names the file."""


class OffsetGone(EventLogError):  # noqa: N818 - what it is, not that it is an error
    """The record at the offset is not kept any more; `first_available` is the next one that is."""

    def __init__(self, offset: int, first_available: int):
        self.offset, self.first_available = offset, first_available
        super().__init__(f"offset {offset} is not kept any more; the first that is after it is {first_available}")


class OffsetAhead(EventLogError):  # noqa: N818
    """The log has never got as far as the offset; `next_offset` is the one that its next record will have."""

    def __init__(self, offset: int, next_offset: int):
        self.offset, self.next_offset = offset, next_offset
        super().__init__(f"offset {offset} is in the future: the next record will be {next_offset}; read from there")


def read_from(folder: Path, offset: int, limit: int = 1000) -> list[dict[str, Any]]:
    """The records from `offset` on, `limit` at most; none where `offset` is the next to be written.

    Raises OffsetGone where retention has removed the record at the offset, and OffsetAhead where the log has never got
    so far. A line that is still being written is not read.

    >>> import tempfile
    >>> from surecast.broker.event_log import EventLog, Started, Stopped
    >>> with tempfile.TemporaryDirectory() as name, EventLog(Path(name)) as log:
    ...     log.append(Started(1700000000.5, "b1"))
    ...     log.append(Stopped(1700000060.5, "b1"))
    ...     log.flush()
    ...     read_from(Path(name), 1)
    [{'offset': 1, 'time': 1700000060.5, 'type': 'stopped', 'broker': 'b1'}]
    """
    if offset < 0 or limit < 1:
        raise EventLogError(f"offset {offset} and limit {limit}: write an offset from 0 and a limit from 1")
    while True:
        segments = segments_of(folder)
        try:
            return _read(segments, offset, limit)
        except OSError as error:
            # Retention may have removed a segment since it was listed; then the list is another one now.
            if not isinstance(error, FileNotFoundError) or segments_of(folder) == segments:
                raise EventLogError(f"{folder}: the event log cannot be read: {error.strerror or error}") from error


def segments_of(folder: Path) -> list[tuple[int, Path]]:
    """The first offset and the file of every segment, oldest first."""
    try:
        names = [path for path in folder.iterdir() if path.name.startswith(_PREFIX) and path.suffix == _SUFFIX]
    except OSError as error:
        raise EventLogError(f"{folder}: the event log cannot be read: {error.strerror or error}") from error
    digits = ((path.name[len(_PREFIX) : -len(_SUFFIX)], path) for path in names)
    return sorted((int(text), path) for text, path in digits if len(text) == _DIGITS and text.isdecimal())


def segment_name(first_offset: int) -> str:
    """The name of the segment that begins with this offset.

    >>> segment_name(12345)
    'events-00000000000000012345.jsonl'
    """
    return f"{_PREFIX}{first_offset:0{_DIGITS}}{_SUFFIX}"


def offset_of(line: bytes, path: Path) -> int:
    """The offset that a line begins with."""
    try:
        if line.startswith(_OFFSET):
            return int(line[len(_OFFSET) : line.index(b",")])
    except ValueError:
        pass
    raise EventLogError(f"{path}: a line that is no record: {line[:60]!r}")


def _read(segments: list[tuple[int, Path]], offset: int, limit: int) -> list[dict[str, Any]]:
    if not segments:
        if offset:
            raise OffsetAhead(offset, 0)
        return []
    if offset < segments[0][0]:
        raise OffsetGone(offset, segments[0][0])
    records: list[dict[str, Any]] = []
    expected = offset
    end = 0
    for first, path in segments[bisect_right(segments, offset, key=lambda segment: segment[0]) - 1 :]:
        end = max(end, first)
        with path.open("rb") as file:
            for found, line in _lines_from(file, path, expected):
                if found != expected:  # a loss of power can take the end of one segment and leave the next
                    if records:
                        return records
                    raise OffsetGone(offset, found)
                records.append(_decoded(line, path))
                expected += 1
                if len(records) == limit:
                    return records
            if not records:
                end = max(end, _end(file, path, first))
    if not records and end < offset:
        raise OffsetAhead(offset, end)
    return records


def _decoded(line: bytes, path: Path) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads(line)
    except ValueError as error:
        raise EventLogError(f"{path}: a line that is no record: {line[:60]!r}") from error
    return record


def _lines_from(file: IO[bytes], path: Path, offset: int) -> Iterator[tuple[int, bytes]]:
    """The whole lines from the first whose offset is not below `offset`, each with its offset."""
    low, high = 0, file.seek(0, 2)
    while high - low > _NEAR_BYTES:
        file.seek((low + high) // 2)
        file.readline()
        start = file.tell()
        line = file.readline()
        if start >= high:
            break
        if not line.endswith(b"\n") or offset_of(line, path) >= offset:
            high = start
        else:
            low = start + len(line)
    file.seek(low)
    for line in file:
        if not line.endswith(b"\n"):
            return
        if (found := offset_of(line, path)) >= offset:
            yield found, line


def _end(file: IO[bytes], path: Path, first: int) -> int:
    """The offset after the last whole line, or the first of the segment if there is none."""
    size = file.seek(0, 2)
    tail_bytes = _NEAR_BYTES
    while True:
        start = max(0, size - tail_bytes)
        file.seek(start)
        lines = file.read(size - start).split(b"\n")
        # The last part is what follows the last line end; the first may be the rest of a line.
        whole = lines[:-1] if start == 0 else lines[1:-1]
        if whole:
            return offset_of(whole[-1], path) + 1
        if start == 0:
            return first
        tail_bytes *= 4
