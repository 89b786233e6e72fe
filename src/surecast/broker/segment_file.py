"""One file of the store: a head, then entries, each a whole commit, then perhaps what was there before.

    head   = magic:4 format:4 segment:8 first:8 old:8 store:8 oldest:4 salt:4 checksum:4
    entry  = mark:4 size:4 number:8 oldest:4 moved:4 checksum:4 row

A row is one of `protocol/rows.py`; the checksum is that of its table and of the checksums of its values. Numbers of
entries have no gaps, over all files; `first` is that of the first entry here. `store` is the identity of the store,
drawn when it was made: a file of another store is never taken for one of this. `oldest` is the number of the oldest
file that is needed once the entry is there, so that a file missing at the beginning is noticed. The last `moved` pairs
of an entry were moved here from that oldest file.

A file that was used before keeps its old content up to `old` bytes, until new entries stand over it. Marks follow from
the salt, drawn for each use of a file, and checksums begin with it: so neither old content nor anything a client sends
can look like an entry.
"""

from __future__ import annotations

import os
import struct
import threading
from asyncio import AbstractEventLoop
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Final, NamedTuple

from zlib_ng.zlib_ng import crc32

from surecast.protocol.rows import unpack

__all__ = [
    "ENTRY_BYTES",
    "HEAD_BYTES",
    "BarrierThread",
    "Head",
    "Scan",
    "Segment",
    "SegmentEntry",
    "Syncer",
    "entry_at",
    "entry_head",
    "entry_size",
    "make_head",
    "next_entry",
    "other_format",
    "read_all",
    "scan",
    "write_all",
]


_MAGIC: Final = b"SCPX"
_FORMAT: Final = 5
_MARK: Final = 0xA553455A
_HEAD: Final = struct.Struct(">4sIQQQQIII")
_ENTRY: Final = struct.Struct(">4sIQIII")
HEAD_BYTES: Final = _HEAD.size
ENTRY_BYTES: Final = _ENTRY.size
_PARTS_MAX: Final = 512


class Segment:
    """An open file of the log; `bytes` is where its last entry ends, `draft` its name as long as it is not `path`."""

    __slots__ = ("bytes", "draft", "file", "path", "salt")

    def __init__(self, path: Path, file: int, salt: int, size: int, draft: Path | None = None):
        self.draft = draft
        self.path = path
        self.file = file
        self.salt = salt
        self.bytes = size


class Head(NamedTuple):
    """The head of a file: its number, that of its first entry, how far old content may reach, whose it is, the salt."""

    segment: int
    first: int
    old: int
    store: int
    oldest: int
    salt: int


@dataclass(frozen=True, slots=True)
class SegmentEntry:
    """A whole entry that was found: its number, where its values begin, what it holds, and where it ends."""

    number: int
    oldest: int
    moved: int
    values_at: int
    pairs: list[tuple[bytes, bytes]]
    checksums: list[int]
    """Of the values."""
    deleted: list[bytes]
    end: int


@dataclass(frozen=True, slots=True)
class Scan:
    """The content of a file: its entries up to `end`, and the first whole one after a damaged part, if there is any.

    `torn` is what there is of a commit that was begun at the end, in bytes.
    """

    head: Head
    entries: list[SegmentEntry]
    end: int
    size: int
    torn: int
    follows: SegmentEntry | None


def make_head(head: Head) -> bytes:
    """Returns the head of a file."""
    content = _HEAD.pack(_MAGIC, _FORMAT, *head, 0)[:-4]
    return content + crc32(content).to_bytes(4, "big")


def entry_head(
    number: int, oldest: int, moved: int, salt: int, table: bytes, size: int, checksums: Sequence[int]
) -> bytes:
    """Returns what stands before a row of so many bytes, given as its table and the checksums of its values."""
    fields = struct.pack(f">IQII{len(checksums)}I", size, number, oldest, moved, *checksums)
    mark = (salt ^ _MARK).to_bytes(4, "big")  # as `_mark`, without calling it
    return _ENTRY.pack(mark, size, number, oldest, moved, crc32(fields, crc32(table, salt)))


def _mark(salt: int) -> bytes:
    return (salt ^ _MARK).to_bytes(4, "big")


def other_format(data: bytes) -> int | None:
    """Returns the format of a file of another version; None where it is this one's, or no such file at all."""
    magic, number = struct.unpack_from(">4sI", data) if len(data) >= HEAD_BYTES else (b"", 0)
    return number if magic == _MAGIC and number != _FORMAT else None


def scan(data: bytes) -> Scan | None:
    """Reads a file; None where not even its head is whole.

    >>> from surecast.protocol.rows import pack
    >>> row = pack({b"key": b"value"})
    >>> head = entry_head(9, 2, 0, 77, row[:-5], len(row), [crc32(b"value")])
    >>> whole = make_head(Head(3, 9, 0, 5, 2, 77)) + head + row
    >>> found = scan(whole + b"torn")
    >>> [(entry.number, entry.pairs) for entry in found.entries], found.size - found.end, found.torn, found.follows
    ([(9, [(b'key', b'value')])], 4, 4, None)
    """
    if len(data) < HEAD_BYTES:
        return None
    head = Head(*_HEAD.unpack_from(data)[2:8])
    if data[:HEAD_BYTES] != make_head(head):
        return None
    entries: list[SegmentEntry] = []
    at, number = HEAD_BYTES, head.first
    while (found := entry_at(data, at, head.salt)) is not None and found.number == number:
        entries.append(found)
        at = found.end
        number += 1
    return Scan(head, entries, at, len(data), _torn(data, at, head, number), next_entry(data, at, head.salt))


def next_entry(data: bytes, at: int, salt: int) -> SegmentEntry | None:
    """Returns the first whole entry at a place or after it; None where there is none."""
    mark = _mark(salt)
    following = data.find(mark, at)
    while following >= 0:
        if (found := entry_at(data, following, salt)) is not None:
            return found
        following = data.find(mark, following + 1)
    return None


def _torn(data: bytes, at: int, head: Head, number: int) -> int:
    """Returns how much there is of an entry that was cut off; old content is none."""
    rest = len(data) - at
    if rest >= ENTRY_BYTES:
        mark, size, found = _ENTRY.unpack_from(data, at)[:3]
        if mark == _mark(head.salt) and found == number:
            return min(rest, int(ENTRY_BYTES + size))
    return len(data) - max(at, head.old) if len(data) > head.old else 0


def entry_size(data: bytes) -> int:
    """Returns how many bytes an entry takes, by its head."""
    return ENTRY_BYTES + int(_ENTRY.unpack_from(data)[1])


def entry_at(data: bytes, at: int, salt: int) -> SegmentEntry | None:
    """Returns the entry at a place; None where there is no whole one."""
    if at + ENTRY_BYTES > len(data):
        return None
    mark, size, number, oldest, moved, _ = _ENTRY.unpack_from(data, at)
    begin = at + ENTRY_BYTES
    if mark != _mark(salt) or begin + size > len(data):
        return None
    row = data[begin : begin + size]
    try:
        pairs, deleted = unpack(row)
    except ValueError:
        return None
    values = [value for _, value in pairs]
    table = size - sum(map(len, values))
    checksums = list(map(crc32, values))
    if data[at:begin] != entry_head(number, oldest, moved, salt, row[:table], size, checksums):
        return None
    return SegmentEntry(number, oldest, moved, begin + table, pairs, checksums, deleted, begin + size)


def read_all(file: int, size: int, at: int) -> bytes:
    """Reads so many bytes from a place on; fewer where the file ends."""
    parts = []
    while size > 0 and (part := os.pread(file, size, at)):
        parts.append(part)
        at += len(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def write_all(file: int, parts: list[bytes], at: int, size: int = -1) -> None:
    """Writes all parts from a place on; `size` is the sum of their sizes, where it is known."""
    written = os.pwritev(file, parts[:_PARTS_MAX], at)
    if written == size:
        return  # the usual case
    rest: list[bytes | memoryview] = list(parts)
    while rest:
        at += written
        whole = 0
        while whole < len(rest) and written >= (size := len(rest[whole])):
            written -= size
            whole += 1
        del rest[:whole]
        if rest:
            rest[0] = memoryview(rest[0])[written:]
            written = os.pwritev(file, rest[:_PARTS_MAX], at)


class BarrierThread:
    """Calls the barriers of a store in a thread of its own, in their order.

    `done` is called in the event loop when one is over, and told why it failed, if it did.
    """

    def __init__(self, loop: AbstractEventLoop, done: Callable[[BaseException | None], None]):
        self._loop = loop
        self._done = done
        self._failure: BaseException | None = None
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="surecast-barrier", daemon=True)
        self._thread.start()

    def call(self, barrier: Callable[[], None]) -> None:
        """Has a barrier called after those before it."""
        self._jobs.put(barrier)

    def stop(self) -> BaseException | None:
        """Ends the thread, after the barriers that it has; returns why one failed, as `done` is not called in time."""
        self._jobs.put(None)
        self._thread.join()
        return self._failure

    def _run(self) -> None:
        while (barrier := self._jobs.get()) is not None:
            try:
                barrier()
            except BaseException as error:
                self._failure = error
            with suppress(RuntimeError):  # the loop may be closed by now
                self._loop.call_soon_threadsafe(self._done, self._failure)


class Syncer:
    """Calls `sync` again and again in a thread of its own."""

    def __init__(self, sync: Callable[[], None], every_s: float):
        self._sync = sync
        self._every_s = every_s
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="surecast-sync", daemon=True)
        self._thread.start()

    def hurry(self) -> None:
        """Has the next sync come now."""
        self._wake.set()

    def stop(self) -> None:
        """Ends the thread."""
        self._stopping = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping:
            self._wake.wait(self._every_s)
            self._wake.clear()
            if not self._stopping:
                self._sync()
