"""The broker's event and availability log: JSON Lines in segment files. docs/logs.md describes the files.

It is no store (`segment_store.py`): nobody looks a record up by a key, and whoever reads the log reads its files, with
Spark or with tools for text. As pairs of a store its records took twice the processor time and a key in memory each.

Records are gathered in memory and written once per turn of the event loop. The log never waits for the disk unless it
is told to, and never stops the broker: what cannot be written is counted, and the next record that can says how many
were lost.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from types import TracebackType

from surecast.broker.event_log_reader import (
    EventLogError,
    OffsetAhead,
    OffsetGone,
    offset_of,
    read_from,
    segment_name,
    segments_of,
)
from surecast.broker.private import make_private, open_file
from surecast.errors import ConfigurationError
from surecast.event_log_records import (
    LINE_WRITERS,
    RECORD_TYPES,
    Alive,
    Connected,
    Decided,
    Delivered,
    Disconnected,
    Dropped,
    Expired,
    LinkDown,
    LinkUp,
    Lost,
    Published,
    Record,
    Started,
    Stopped,
    Subscribed,
    Unsubscribed,
)

__all__ = [
    "RECORD_TYPES",
    "Alive",
    "Connected",
    "Decided",
    "Delivered",
    "Disconnected",
    "Dropped",
    "EventLog",
    "EventLogError",
    "Expired",
    "LinkDown",
    "LinkUp",
    "Lost",
    "OffsetAhead",
    "OffsetGone",
    "Published",
    "Record",
    "Started",
    "Stopped",
    "Subscribed",
    "Unsubscribed",
    "read_from",
]

BUFFER_RECORDS = 10_000  # written without being asked, so that the buffer is bounded


@dataclass(slots=True)
class _Segment:
    first_offset: int
    path: Path
    bytes: int
    first_time: float | None  # None as long as it is empty


class EventLog:
    """The log in one folder, locked against every other writer while it is open.

    A segment is closed before it would grow above `segment_bytes`, or when it is `segment_s` old by the times of its
    records. The oldest segments are deleted when all of them take more than `retention_bytes`, or when all their
    records are older than `retention_s`; the one that is written to stays. With `sync`, `flush` returns when the disk
    has confirmed the records.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name, EventLog(Path(name)) as log:
    ...     log.append(Connected(1700000000.0, "sensor-1", user="plant"))
    ...     log.flush()
    ...     print((Path(name) / "events-00000000000000000000.jsonl").read_text(), end="")
    {"offset":0,"time":1700000000.000000,"type":"connected","client":"sensor-1","user":"plant"}
    """

    def __init__(
        self,
        folder: Path,
        segment_bytes: int = 64 << 20,
        segment_s: float = 3600.0,
        retention_bytes: int | None = None,
        retention_s: float | None = None,
        sync: bool = False,
    ):
        for name, value in (("segment_bytes", segment_bytes), ("segment_s", segment_s)):
            if not value > 0:
                raise ConfigurationError(f"event log: {name} is {value}; it must be positive")
        for name, limit in (("retention_bytes", retention_bytes), ("retention_s", retention_s)):
            if limit is not None and not limit > 0:
                raise ConfigurationError(f"event log: {name} is {limit}; it must be positive, or left out")
        self.folder = folder
        self.cut_bytes = 0
        """Bytes of a half-written end that were cut off when the log was opened."""
        self._segment_bytes, self._segment_s = segment_bytes, segment_s
        self._retention_bytes, self._retention_s = retention_bytes, retention_s
        self._sync = sync
        self._lines: list[str] = []
        self._lines_time = 0.0  # of the first line
        self._time = -1.0
        self._time_text = ""
        self._lost = 0
        self._lost_reason = ""
        self._file: FileIO | None = None
        self._lock, self.warning = _locked(folder)
        try:
            self._segments = [_opened(first, path) for first, path in segments_of(folder)]
            self._next = self._recover() if self._segments else 0
            self._total_bytes = sum(segment.bytes for segment in self._segments)
        except OSError as error:
            os.close(self._lock)
            raise EventLogError(f"{folder}: the event log cannot be opened: {error.strerror or error}") from error
        except BaseException:
            os.close(self._lock)
            raise

    @property
    def next_offset(self) -> int:
        """The offset of the next record."""
        return self._next

    @property
    def lost(self) -> int:
        """The number of records that could not be written and are not yet reported in the log."""
        return self._lost

    def append(self, record: Record) -> None:
        """Adds a record to those that the next flush writes."""
        lines = self._lines
        time = record.time
        if time != self._time:
            self._time = time
            self._time_text = f"{time:.6f}"
        if not lines:
            self._lines_time = time
            if self._lost:
                lost = Lost(time, self._lost, self._lost_reason)
                lines.append(LINE_WRITERS[Lost](lost, self._next, self._time_text))
                self._next += 1
        lines.append(LINE_WRITERS[record.__class__](record, self._next, self._time_text))
        self._next += 1
        if len(lines) >= BUFFER_RECORDS:
            with suppress(EventLogError):  # counted as lost, and reported with the next record
                self.flush()

    def flush(self) -> None:
        """Writes the records appended. After an EventLogError the log goes on, and the lost records are counted."""
        if not self._lines:
            return
        lines, self._lines = self._lines, []
        data = "".join(lines).encode("ascii")
        first = self._next - len(lines)
        written = 0
        try:
            file, segment = self._segment_for(len(data), first)
            rest = memoryview(data)
            try:
                while written < len(data):
                    written += file.write(rest[written:]) or 0
            finally:
                written = self._keep_whole_lines(file, segment, data, written)
            if self._sync:
                os.fsync(file.fileno())
        except OSError as error:
            self._count_lost(lines, data.count(b"\n", 0, written), error)
            if self._file:
                self._file.close()
                self._file = None
            raise EventLogError(f"{self.folder}: the event log cannot be written: {error.strerror or error}") from error
        self._lost = 0
        self._retain()

    def close(self) -> None:
        """Writes what was appended and lets go of the folder. Closing twice is harmless."""
        if self._lock < 0:
            return
        try:
            self.flush()
        finally:
            if self._file:
                self._file.close()
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> EventLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _segment_for(self, new_bytes: int, first: int) -> tuple[FileIO, _Segment]:
        """The segment that the next bytes belong to, and its open file."""
        segment = self._segments[-1] if self._segments else None
        is_full = segment is not None and (
            (segment.bytes and segment.bytes + new_bytes > self._segment_bytes)
            or (segment.first_time is not None and self._lines_time - segment.first_time >= self._segment_s)
        )
        if self._file and segment and not is_full:
            return self._file, segment
        if segment is None or is_full:
            segment = _Segment(first, self.folder / segment_name(first), 0, None)
        file = open_file(segment.path, "ab")
        if self._file:
            self._file.close()
        self._file = file
        os.ftruncate(file.fileno(), segment.bytes)
        if not self._segments or self._segments[-1] is not segment:
            self._segments.append(segment)
        return file, segment

    def _keep_whole_lines(self, file: FileIO, segment: _Segment, data: bytes, written: int) -> int:
        """Takes back a line that was written in part; returns the bytes of the whole ones."""
        whole = written if written == len(data) else data.rfind(b"\n", 0, written) + 1
        if whole and segment.first_time is None:
            segment.first_time = self._lines_time
        segment.bytes += whole
        self._total_bytes += whole
        if whole < written:
            with suppress(OSError):  # it is tried again before the next write
                os.ftruncate(file.fileno(), segment.bytes)
        return whole

    def _count_lost(self, lines: list[str], kept: int, error: OSError) -> None:
        """The offsets of what was not written are free again. A report of earlier losses is no loss itself."""
        reported = bool(self._lost)
        self._next -= len(lines) - kept
        if reported and kept:
            self._lost = 0
        self._lost += len(lines) - kept - (1 if reported and not kept else 0)
        self._lost_reason = error.strerror or str(error)

    def _retain(self) -> None:
        """Deletes the oldest segments that are beyond what is to be kept."""
        segments = self._segments
        while len(segments) > 1:
            too_large = self._retention_bytes is not None and self._total_bytes > self._retention_bytes
            # All records of a segment are older than the first of the next.
            newer = segments[1].first_time
            too_old = self._retention_s is not None and newer is not None and newer < self._time - self._retention_s
            if not (too_large or too_old):
                return
            oldest = segments.pop(0)
            self._total_bytes -= oldest.bytes
            with suppress(OSError):  # one that cannot be deleted is not worth stopping for
                oldest.path.unlink()

    def _recover(self) -> int:
        """Cuts off what a crash left half-written at the end; returns the next offset."""
        segment = self._segments[-1]
        expected, good_bytes, last = segment.first_offset, 0, b""
        with segment.path.open("rb") as file:
            for line in file:
                if not (line.startswith(b'{"offset":%d,' % expected) and line.endswith(b"}\n")):
                    break
                good_bytes += len(line)
                expected += 1
                last = line
        if last and not _is_json(last):
            good_bytes -= len(last)
            expected -= 1
        self.cut_bytes = segment.bytes - good_bytes
        if self.cut_bytes:
            os.truncate(segment.path, good_bytes)
            segment.bytes = good_bytes
            if not good_bytes:
                segment.first_time = None
        return expected


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _opened(first: int, path: Path) -> _Segment:
    """A segment that is there already, with the time of its first record."""
    with path.open("rb") as file:
        line = file.readline()
    time = None
    if line.endswith(b"}\n") and _is_json(line) and offset_of(line, path) == first:
        time = float(json.loads(line)["time"])
    return _Segment(first, path, path.stat().st_size, time)


def _locked(folder: Path) -> tuple[int, str]:
    """Makes the folder and locks it; the lock ends with the process, however it ends. The text warns of its mode."""
    try:
        warning = make_private(folder)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise EventLogError(f"{folder}: the event log cannot be opened: {error.strerror or error}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise EventLogError(f"{folder}: another broker writes its event log here; choose another folder") from error
    return handle, warning
