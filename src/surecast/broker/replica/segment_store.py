"""The store of a replica: an append-only log in files, one write and one `fdatasync` for each commit.

In memory it keeps for every live key where its value stands. When more than half of the log is garbage, a commit also
takes the live pairs of the oldest file along, and the file leaves the log once that is durable. Files go oldest first;
so a deletion may be forgotten with its file, because everything it deletes was in files older still, which are gone.

A file that left is used again: writing over what is there needs no new pages and blocks, and its sync no change of the
file system. That makes a write three times, and a sync nearly twice as quick.

A commit that was cut off by a crash is the last thing in the last file. It is cut away when the store is opened.
Damage anywhere else is not: the store then refuses to open, since a replica that forgot a promise may break the group.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, NamedTuple

from surecast.broker.replica.segment_file import (
    ENTRY_BYTES,
    HEAD_BYTES,
    Head,
    entry_head,
    make_head,
    other_format,
    scan,
    write_all,
)
from surecast.broker.store_base import Operation, StoreError, StoreStatistics
from surecast.broker.store_rows import PAIR_BYTES
from surecast.errors import ConfigurationError

__all__ = ["SegmentStore"]

_PREFIX: Final = "paxos-"
_SPARE: Final = "spare-"
_SPARES_MAX: Final = 8
_LOCK: Final = "lock"
_UNSYNCED: Final = "unsynced"
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_COUNTS: Final = struct.Struct("<II")


class _Value(NamedTuple):
    """Where a value stands, and what its pair takes."""

    segment: int
    at: int
    size: int
    pair_bytes: int


class _Segment:
    """A file of the log."""

    __slots__ = ("bytes", "file", "path", "salt")

    def __init__(self, path: Path, file: int, salt: int, size: int):
        self.path = path
        self.file = file
        self.salt = salt
        self.bytes = size


class SegmentStore:
    """The store in one folder, locked against every other process while it is open.

    `durability`: with `full` a commit that returned survives a loss of power; with `os` the end of the process. A store
    that was written with `os` and found after the machine started anew does not open: it may have lost promises.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with SegmentStore(Path(folder)) as store:
    ...         store.commit([(b"a", b"1"), (b"b", b"2")])
    ...         store.commit([(b"a", None)])
    ...     with SegmentStore(Path(folder)) as store:
    ...         list(store.items())
    [(b'b', b'2')]
    """

    def __init__(
        self,
        folder: Path,
        durability: Literal["full", "os"] = "full",
        segment_bytes: int = 16 << 20,
        slack_bytes: int = 32 << 20,
    ):
        if durability not in ("full", "os"):
            raise ConfigurationError(f"durability: {durability!r} is unknown here; write 'full' or 'os'")
        self.folder = folder
        self.cut_bytes = 0
        self._durability: Literal["full", "os"] = durability
        self._segment_bytes = segment_bytes
        self._slack_bytes = slack_bytes
        self._segments: dict[int, _Segment] = {}
        self._last = 0
        self._spares: list[Path] = []
        self._index: dict[bytes, _Value] = {}
        self._live_bytes = 0
        self._log_bytes = 0
        self._next = 1
        self._broken = ""
        self._lock = -1
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._take_lock()
            self._check_boot()
            self._load()
            self._mark_unsynced()
        except OSError as error:
            self._let_go()
            raise StoreError(f"{error.filename or folder}: {error.strerror}; the folder must be writable") from error
        except BaseException:
            self._let_go()
            raise

    @property
    def durability(self) -> Literal["full", "os"]:
        """What a commit that returned survives."""
        return self._durability

    def commit(self, operations: Iterable[Operation]) -> None:
        """Applies all operations or none, the later ones over the earlier ones, and returns when they are durable.

        Where it raises StoreError because there was no room, nothing has changed. Where the disk did not confirm what
        it took, nothing is known of it, and the store takes no more commits.
        """
        changes = dict(operations)
        index = self._index
        pairs = {key: value for key, value in changes.items() if value is not None}
        deleted = [key for key, value in changes.items() if value is None and key in index]
        if not pairs and not deleted:
            return
        if self._broken:
            raise StoreError(self._broken)
        oldest = self._take_oldest(pairs, changes)
        self._append(pairs, deleted)
        for key in deleted:
            self._live_bytes -= index.pop(key).pair_bytes
        if oldest:
            self._delete(oldest)

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Every live pair once, read from disk."""
        for key, value in list(self._index.items()):
            yield key, self._read(value)

    def statistics(self) -> StoreStatistics:
        """The present size."""
        return StoreStatistics(len(self._index), self._live_bytes, self._log_bytes, len(self._segments))

    def close(self) -> None:
        """Lets go of the files. Closing twice is harmless."""
        if self._lock < 0:
            return
        if not self._broken:
            with suppress(OSError):
                self._tidy()
        self._let_go()

    def __enter__(self) -> SegmentStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Writing

    def _append(self, pairs: dict[bytes, bytes], deleted: list[bytes]) -> None:
        """Writes one entry, makes it durable, and enters its pairs into the index."""
        keys = [*pairs, *deleted]
        lengths = struct.pack(f"<{len(keys) + len(pairs)}I", *map(len, keys), *map(len, pairs.values()))
        table = _COUNTS.pack(len(pairs), len(deleted)) + lengths + b"".join(keys)
        number, segment = self._current()
        parts = [entry_head(self._next, segment.salt, table, pairs.values()), table, *pairs.values()]
        size = sum(map(len, parts))
        try:
            write_all(segment.file, parts, segment.bytes)
        except OSError as error:
            self._undo(segment, error)
        try:
            if self._durability == "full":
                os.fdatasync(segment.file)
        except OSError as error:
            self._broken = f"{segment.path}: the disk did not confirm a commit ({error.strerror}); replace this replica"
            raise StoreError(self._broken) from error
        self._enter(number, segment.bytes + ENTRY_BYTES + len(table), pairs)
        segment.bytes += size
        self._log_bytes += size
        self._next += 1

    def _undo(self, segment: _Segment, error: OSError) -> None:
        """Takes back half an entry."""
        try:
            os.ftruncate(segment.file, segment.bytes)
        except OSError:
            self._broken = f"{segment.path}: a commit was written in part ({error.strerror}); start this replica again"
        raise StoreError(f"{segment.path}: {error.strerror}; make room, then start this replica again") from error

    def _enter(self, segment: int, at: int, pairs: dict[bytes, bytes]) -> None:
        index = self._index
        for key, value in pairs.items():
            former = index.get(key)
            if former is not None:
                self._live_bytes -= former.pair_bytes
            pair_bytes = len(key) + len(value) + PAIR_BYTES
            index[key] = _Value(segment, at, len(value), pair_bytes)
            self._live_bytes += pair_bytes
            at += len(value)

    def _current(self) -> tuple[int, _Segment]:
        """The file to write to, a new one where the last is full."""
        number = self._last
        if number and (last := self._segments[number]).bytes < self._segment_bytes:
            return number, last
        number += 1
        self._segments[number] = self._begin(number)
        self._last = number
        self._log_bytes += HEAD_BYTES
        return number, self._segments[number]

    def _begin(self, number: int) -> _Segment:
        """A file for the next entries, a used one where there is one; it gets its name when it is ready."""
        spare = self._spares.pop() if self._spares else self.folder / f"{_SPARE}{number:010d}.log"
        path = self._path(number)
        salt = secrets.randbits(32)
        file = -1
        try:
            file = os.open(spare, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            write_all(file, [make_head(Head(number, self._next, os.fstat(file).st_size, salt))], 0)
            if self._durability == "full":
                os.fdatasync(file)
            spare.rename(path)
            if self._durability == "full":
                self._sync_folder()
        except OSError as error:
            if file >= 0:
                os.close(file)
            for half in (spare, path):
                with suppress(OSError):
                    half.unlink()
            raise StoreError(f"{path}: {error.strerror}; nothing was committed") from error
        return _Segment(path, file, salt, HEAD_BYTES)

    def _take_oldest(self, pairs: dict[bytes, bytes], changes: dict[bytes, bytes | None]) -> int:
        """Adds the live pairs of the oldest file where garbage dominates; the number of that file, or 0."""
        if len(self._segments) < 2 or self._log_bytes <= 2 * self._live_bytes + self._slack_bytes:
            return 0
        oldest = min(self._segments)
        for key, value in self._index.items():
            if value.segment == oldest and key not in changes:
                pairs[key] = self._read(value)
        return oldest

    def _delete(self, number: int) -> None:
        segment = self._segments.pop(number)
        self._log_bytes -= segment.bytes
        os.close(segment.file)
        spare = self.folder / f"{_SPARE}{number:010d}.log"
        try:
            if len(self._spares) < _SPARES_MAX and segment.bytes <= 2 * self._segment_bytes:
                segment.path.rename(spare)
                self._spares.append(spare)
            else:
                segment.path.unlink()
            if self._durability == "full":
                self._sync_folder()  # were the next file gone first, what it deletes would be back
        except OSError as error:
            self._broken = f"{segment.path}: it cannot be taken away ({error.strerror}); start this replica again"

    def _read(self, value: _Value) -> bytes:
        try:
            data = os.pread(self._segments[value.segment].file, value.size, value.at)
        except OSError as error:
            raise StoreError(f"{self._path(value.segment)}: {error.strerror}") from error
        if len(data) != value.size:
            raise StoreError(f"{self._path(value.segment)}: shorter than it was when it was written")
        return data

    # Opening

    def _path(self, number: int) -> Path:
        return self.folder / f"{_PREFIX}{number:010d}.log"

    def _take_lock(self) -> None:
        self._lock = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(f"{self.folder}: another process uses this store; give each replica its own") from None

    def _check_boot(self) -> None:
        path = self.folder / _UNSYNCED
        if path.exists() and path.read_text() != _boot():
            raise StoreError(
                f"{self.folder}: the machine started anew while this store was written without sync; it may have lost "
                f"promises. Replace this replica by a new one; or, if the whole group stopped, delete {path} to go on "
                f"with what is left, and the last {_PREFIX}*.log if that is damaged at byte 0"
            )

    def _mark_unsynced(self) -> None:
        path = self.folder / _UNSYNCED
        if self._durability == "os":
            path.write_text(_boot())
        elif path.exists():
            self._sync_all()
            path.unlink()
        self._sync_folder()

    def _load(self) -> None:
        names = sorted(path for path in self.folder.glob(f"{_PREFIX}*.log"))
        for path in names:
            self._load_file(path, is_first=path == names[0], is_last=path == names[-1])
        self._spares = sorted(self.folder.glob(f"{_SPARE}*.log"))

    def _load_file(self, path: Path, is_first: bool, is_last: bool) -> None:
        number = int(path.stem.removeprefix(_PREFIX))
        data = path.read_bytes()
        if (other := other_format(data)) is not None:
            raise StoreError(
                f"{path}: it has format {other}, of another version of surecast; back the group up with that one, and "
                "restore the backup here"
            )
        found = scan(data)
        if found is None or found.head.segment != number or found.follows or (found.torn and not is_last):
            at = 0 if found is None or found.head.segment != number else found.end
            raise StoreError(f"{path}: damaged at byte {at}; replace this replica by a new one")
        if not is_first and self._next != found.head.first:
            raise StoreError(f"{path}: commit {self._next} is missing; replace this replica by a new one")
        self._next = found.head.first
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._segments[number] = _Segment(path, file, found.head.salt, found.end)
        self._last = number
        for entry in found.entries:
            self._next = entry.number + 1
            self._enter(number, entry.values_at, dict(entry.pairs))
            for key in entry.deleted:
                former = self._index.pop(key, None)
                if former is not None:
                    self._live_bytes -= former.pair_bytes
        if is_last and found.end < found.size:
            self.cut_bytes = found.torn
            os.ftruncate(file, found.end)
            os.fsync(file)
        self._log_bytes += found.end

    def _tidy(self) -> None:
        """Leaves nothing behind the last commit, and all of it on the disk."""
        if self._segments:
            last = self._segments[self._last]
            os.ftruncate(last.file, last.bytes)
        if self._durability == "os":
            self._sync_all()
            (self.folder / _UNSYNCED).unlink(missing_ok=True)

    def _sync_all(self) -> None:
        for segment in self._segments.values():
            os.fsync(segment.file)
        self._sync_folder()

    def _sync_folder(self) -> None:
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _let_go(self) -> None:
        for segment in self._segments.values():
            os.close(segment.file)
        self._segments.clear()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _boot() -> str:
    """What tells this start of the machine from others; empty where the system does not say."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""
