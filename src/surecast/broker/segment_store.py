"""The store of a broker and of a replica: an append-only log in files, one write and one `fdatasync` for each commit.

In memory it keeps for every live key where its value stands. The log is cleaned oldest file first: while more than half
of it is garbage, each commit also takes live pairs of the oldest file along, a few times its own size, so that no
commit waits for a long one; the file leaves the log once all of them are durable elsewhere. Files go oldest first; so a
deletion may be forgotten with its file, because everything it deletes was in files older still, which are gone.

A file that left is used again: writing over what is there needs no new pages and blocks, and its sync no change of the
file system. That makes a write three times, and a sync nearly twice as quick.

`write` and `barrier` are the two halves of a commit: a thread may wait for the disk, while the next one is collected.

A commit that was cut off by a crash is the last thing in the last file. It is cut away when the store is opened. Damage
anywhere else is not: the store then refuses to open (`segment_load`), and `segment_mark` tells an end that came early.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Final, Literal, cast

from zlib_ng.zlib_ng import crc32

from surecast.broker.private import make_private, open_private
from surecast.broker.segment_clean import Cleaning, check_value
from surecast.broker.segment_file import (
    ENTRY_BYTES,
    HEAD_BYTES,
    Head,
    Segment,
    Syncer,
    entry_head,
    make_head,
    read_all,
    write_all,
)
from surecast.broker.segment_load import (
    AT_MASK,
    CHECKSUM_SHIFT,
    SEGMENT_SHIFT,
    SIZE_BITS,
    SIZE_MASK,
    LogReader,
    segment_path,
)
from surecast.broker.segment_mark import MARK_NAME, Mark, new_store, read_mark
from surecast.broker.store_base import DamagedError, Operation, StoreError, StoreStatistics
from surecast.errors import ConfigurationError
from surecast.protocol.rows import DELETION_BYTES, PAIR_BYTES

__all__ = ["SegmentStore"]

_SPARE: Final = "spare-"
_SPARES_MAX: Final = 8
_LOCK: Final = "lock"
_STEP_FACTOR: Final = 4  # a commit that cleans goes through old bytes of so many times its own size,
_STEP_BYTES: Final = 16 << 10  # and so many more
_RETIRING_MAX: Final = 4  # files that wait for a sync before it is hurried
_CAUSES: Final = {
    errno.EACCES: "not writable; change the owner or the permissions of the folder and its files",
    errno.EPERM: "not writable; change the owner or the permissions of the folder and its files",
    errno.EROFS: "the file system is read-only; choose another folder",
    errno.ENOSPC: "the disk is full; nothing was written: free some space",
    errno.EIO: "the disk refused to read or write; nothing was committed: check the disk",
}
_REMEDY: Final = "restore the folder from a copy"


class SegmentStore:
    """The store in one folder, locked against every other process while it is open.

    `durability`: with `full` a commit that returned survives a loss of power; with `os` the end of the process.
    `may_lose` says what happens to a store that was written with `os` and is found after the machine started anew: it
    opens with all that was synced, the last seconds missing; otherwise it does not open, since a replica that forgot a
    promise may break its group. `remedy` is what a refusal says that should be done. `sync_every_s`: the mark, and with
    `os` the log, are synced so often by a thread of the store; never where it is 0.

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
        *,
        may_lose: bool = False,
        remedy: str = _REMEDY,
        sync_every_s: float = 1.0,
    ):
        if durability not in ("full", "os"):
            raise ConfigurationError(f"durability: {durability!r} is unknown here; write 'full' or 'os'")
        self._folder = folder
        self.cut_bytes = 0
        self.doubt = ""
        self._cut = ""
        self._loose = ""
        self._durability: Literal["full", "os"] = durability
        self._segment_bytes = segment_bytes
        self._slack_bytes = slack_bytes
        self._may_lose = may_lose
        self._keeps_order = durability == "os" and may_lose  # what was synced must stay whole without what was not
        self._remedy = remedy
        self._segments: dict[int, Segment] = {}
        self._last = 0
        self._oldest = 1
        self._spares: list[Path] = []
        self._left: list[Path] = []  # spares whose new name is not on the disk yet: used now, both names could be lost
        self._index: dict[bytes, int] = {}
        self._live_bytes = 0
        self._log_bytes = 0
        self._next = 1
        self._broken = ""
        self._lock = -1
        self._mark: Mark | None = None
        self._cleaning = Cleaning()
        self._synced = 0
        self._synced_segment = 0
        self._retiring: list[tuple[int, int]] = []
        self._syncer: Syncer | None = None
        self._confirmed = 0
        self._settling = Lock()
        self._open()
        if sync_every_s and (durability == "full" or may_lose):
            self._syncer = Syncer(self.sync, sync_every_s)

    @property
    def folder(self) -> Path:
        """Returns the folder that it is in."""
        return self._folder

    @property
    def durability(self) -> Literal["full", "os"]:
        """Returns what a commit that returned survives."""
        return self._durability

    def commit(self, operations: Iterable[Operation]) -> None:
        """Applies all operations or none, the later ones over the earlier ones, and returns when they are durable.

        Where it raises StoreError because there was no room, nothing has changed. Where the disk did not confirm what
        it took, nothing is known of it, and the store takes no more commits.
        """
        self.write(operations)
        if (number := self._next - 1) != self._confirmed:
            self._settle(number, self._segments[self._last])

    def write(self, operations: Iterable[Operation]) -> None:
        """As `commit`, but returns before the disk has confirmed anything: the next `barrier` sees to that.

        It waits for the barrier before it: after a loss of power, one commit at most may be on the disk in part.
        """
        changes = dict(operations)
        index = self._index
        deleted: list[bytes] = []
        if None in changes.values():
            pairs = {key: value for key, value in changes.items() if value is not None}
            deleted = [key for key in changes if key not in pairs and key in index]
        else:
            pairs = cast(dict[bytes, bytes], changes)
        if not pairs and not deleted:
            return
        if self._broken:
            raise StoreError(self._broken)
        if (number := self._next - 1) != self._confirmed:
            self._settle(number, self._segments[self._last])
        if self._log_bytes > 2 * self._live_bytes + self._slack_bytes and self._oldest < self._last:
            self._commit_cleaning(dict(pairs), deleted, changes)
        else:
            self._append(pairs, deleted, 0, self._oldest)
        for key in deleted:
            self._live_bytes -= (index.pop(key) & SIZE_MASK) + len(key) + PAIR_BYTES

    def barrier(self) -> Callable[[], None] | None:
        """Returns what makes all that was written durable, for any thread to call; None where all of it is."""
        number = self._next - 1
        if number == self._confirmed:
            return None
        return partial(self._settle, number, self._segments[self._last])

    def _settle(self, number: int, segment: Segment) -> None:
        """Makes the last commit durable, and says so."""
        with self._settling:
            if number <= self._confirmed:
                return
            if self._broken:
                raise StoreError(self._broken)
            is_full = self._durability == "full"
            try:
                if is_full:
                    os.fdatasync(segment.file)
                if segment.draft is not None:
                    segment.draft.rename(segment.path)
                    segment.draft = None
                    if is_full:
                        self._sync_folder()
            except OSError as error:
                self._broken = f"{segment.path}: the disk did not confirm a commit ({error.strerror}); {self._remedy}"
                raise StoreError(self._broken) from error
            assert self._mark is not None
            self._mark.confirm(number)
            self._confirmed = number
            if self._retiring:
                self._retire()

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Every live pair once, read from disk, one file after the other."""
        locations: dict[int, list[tuple[bytes, int]]] = {}
        for key, location in self._index.items():
            locations.setdefault(location >> SEGMENT_SHIFT, []).append((key, location))
        for number in sorted(locations):
            segment = self._segments[number]
            try:
                data = read_all(segment.file, segment.bytes, 0)
            except OSError as error:
                raise StoreError(f"{segment.path}: {error.strerror}") from error
            for key, location in locations.pop(number):
                at = location >> SIZE_BITS & AT_MASK
                value = data[at : at + (location & SIZE_MASK)]
                try:
                    check_value(segment, value, location)
                except DamagedError as error:
                    raise self._refusal(error) from None
                yield key, value

    def statistics(self) -> StoreStatistics:
        """The present size."""
        log_bytes = sum(segment.bytes for segment in list(self._segments.values()))
        return StoreStatistics(
            len(self._index), self._live_bytes, log_bytes, len(self._segments), self._next - 1, bool(self.doubt)
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """Returns what opening it found: commits in doubt, one that was cut off, a folder open to others."""
        return tuple(text for text in (self.doubt, self._cut, self._loose) if text)

    def sync(self) -> None:
        """Brings to the disk how far the log reaches, and with durability `os` the log itself. Any thread may call."""
        number, last, left = self._confirmed, self._last, len(self._left)
        if number == self._synced or self._mark is None or self._broken:
            return
        try:
            if self._durability == "full":
                self._mark.sync()
            else:
                for each in range(max(self._synced_segment, 1), last + 1):
                    if (segment := self._segments.get(each)) is not None:
                        os.fdatasync(segment.file)
                self._sync_folder()
                self._mark.confirm_synced(number)
        except OSError as error:
            self._broken = f"{self._folder}: the disk did not confirm commits ({error.strerror}); {self._remedy}"
            return
        self._synced, self._synced_segment = number, last
        self._spares += self._left[:left]
        del self._left[:left]

    def close(self) -> None:
        """Lets go of the files. Closing twice is harmless."""
        if self._syncer is not None:
            self._syncer.stop()
        if self._lock < 0:
            return
        if not self._broken:
            with suppress(OSError, StoreError):
                self._tidy()
        self._let_go()

    def __enter__(self) -> SegmentStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Writing

    def _append(self, pairs: dict[bytes, bytes], deleted: list[bytes], moved: int, oldest: int) -> None:
        """Writes one entry, makes it durable, and enters its pairs into the index."""
        keys = [*pairs, *deleted]
        values = [*pairs.values()]
        sizes = [*map(len, values)]
        counts = len(values), len(deleted)
        table = struct.pack(f"<{2 + len(keys) + len(sizes)}I", *counts, *map(len, keys), *sizes) + b"".join(keys)
        number = self._last
        if not number or (segment := self._segments[number]).bytes >= self._segment_bytes:
            number, segment = self._next_file()
        checksums = [*map(crc32, values)]
        row_bytes = len(table) + sum(sizes)
        size = ENTRY_BYTES + row_bytes
        parts = [entry_head(self._next, oldest, moved, segment.salt, table, row_bytes, checksums), table, *values]
        try:
            write_all(segment.file, parts, segment.bytes, size)
        except OSError as error:
            self._undo(segment, error)
        index = self._index
        at, base = segment.bytes + ENTRY_BYTES + len(table), number << SEGMENT_SHIFT
        for key, bytes_, checksum in zip(pairs, sizes, checksums, strict=True):
            former = index.get(key)
            self._live_bytes += bytes_ + (len(key) + PAIR_BYTES if former is None else -(former & SIZE_MASK))
            index[key] = base | checksum << CHECKSUM_SHIFT | at << SIZE_BITS | bytes_
            at += bytes_
        segment.bytes += size
        self._log_bytes += size
        self._next += 1
        self._oldest = oldest

    def _undo(self, segment: Segment, error: OSError) -> None:
        """Takes back half an entry."""
        try:
            os.ftruncate(segment.file, segment.bytes)
        except OSError:
            self._broken = f"{segment.path}: a commit was written in part ({error.strerror}); start again"
        cause = _CAUSES.get(error.errno or 0, f"{error.strerror}; nothing was committed: make room")
        raise StoreError(f"{segment.path}: {cause}") from error

    def _next_file(self) -> tuple[int, Segment]:
        """A new file to write to, as the last is full."""
        number = self._last + 1
        self._segments[number] = self._begin(number)
        self._last = number
        self._log_bytes += HEAD_BYTES
        return number, self._segments[number]

    def _begin(self, number: int) -> Segment:
        """A file for the next entries, a used one where there is one; named when the first one is durable."""
        assert self._mark is not None
        spare = self._spares.pop() if self._spares else self._folder / f"{_SPARE}{number:010d}.log"
        path = segment_path(self._folder, number)
        salt = secrets.randbits(32)
        file = -1
        try:
            file = os.open(spare, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            old = os.fstat(file).st_size
            write_all(file, [make_head(Head(number, self._next, old, self._mark.store, self._oldest, salt))], 0)
        except OSError as error:
            if file >= 0:
                os.close(file)
            with suppress(OSError):
                spare.unlink()
            cause = _CAUSES.get(error.errno or 0, f"{error.strerror}; nothing was committed")
            raise StoreError(f"{path}: {cause}") from error
        return Segment(path, file, salt, HEAD_BYTES, spare)

    # Cleaning

    def _commit_cleaning(
        self, pairs: dict[bytes, bytes], deleted: list[bytes], changes: dict[bytes, bytes | None]
    ) -> None:
        """Commits, and takes live pairs of the oldest file along; retires the file where none is left."""
        oldest, own = self._oldest, len(pairs)
        segment = self._segments[oldest]
        budget = _STEP_FACTOR * _size(pairs, deleted) + _STEP_BYTES
        try:
            after = self._cleaning.step(segment, oldest, self._index, pairs, changes, budget)
        except DamagedError as error:
            raise self._refusal(error) from None
        is_done = after.is_done(segment)
        self._append(pairs, deleted, len(pairs) - own, oldest + is_done)
        self._cleaning = after
        if is_done:
            self._cleaning = Cleaning()
            self._retiring.append((self._next - 1, oldest))
            self._log_bytes -= segment.bytes

    def _retire(self) -> None:
        """Takes files out of the log that nothing needs any more, once that is durable."""
        durable = self._synced if self._keeps_order else self._confirmed
        while self._retiring and self._retiring[0][0] <= durable:
            self._delete(self._retiring.pop(0)[1])
            if self._broken:
                return  # the next one must not go before this one
        if len(self._retiring) > _RETIRING_MAX and self._syncer is not None:
            self._syncer.hurry()

    def _delete(self, number: int) -> None:
        segment = self._segments.pop(number)
        os.close(segment.file)
        spare = self._folder / f"{_SPARE}{number:010d}.log"
        try:
            if len(self._spares) + len(self._left) < _SPARES_MAX and segment.bytes <= 2 * self._segment_bytes:
                segment.path.rename(spare)
                (self._left if self._keeps_order else self._spares).append(spare)
            else:
                segment.path.unlink()
            if self._durability == "full":
                self._sync_folder()  # were the next file gone first, what it deletes would be back
        except OSError as error:
            self._broken = f"{segment.path}: it cannot be taken away ({error.strerror}); start again"

    def _refusal(self, error: DamagedError) -> DamagedError:
        """Returns the error with what to do."""
        return DamagedError(error.path, error.at, error.reason, self._remedy)

    # Opening

    def _open(self) -> None:
        try:
            self._loose = make_private(self._folder)
            self._take_lock()
            self._load()
        except OSError as error:
            self._let_go()
            raise StoreError(
                f"{error.filename or self._folder}: {_CAUSES.get(error.errno or 0, error.strerror)}"
            ) from error
        except DamagedError as error:
            self._let_go()
            raise self._refusal(error) from None
        except BaseException:
            self._let_go()
            raise

    def _take_lock(self) -> None:
        self._lock = open_private(self._folder / _LOCK, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(
                f"{self._folder}: another broker is using this folder; stop it, or choose another folder"
            ) from None

    def _load(self) -> None:
        """Reads the log, cuts away what a crash left at its end, and makes sure that the rest is on the disk."""
        path = self._folder / MARK_NAME
        if not path.exists():
            if names := sorted(self._folder.glob("segment-*.log")):
                raise DamagedError(path, 0, f"the file is missing, though {names[-1].name} is there")
            self._mark = Mark(self._folder, new_store())
            self._sync_folder()
        state = read_mark(path)
        lost_power = not (state.same_boot or state.full or state.closed)
        if lost_power and not self._may_lose:
            raise StoreError(
                f"{self._folder}: the machine started anew while this store was written without sync; it may have lost "
                f"promises; {self._remedy}; or, if every replica of the group ended so, go on with what is left: run "
                f"surecast broker salvage {self._folder} --last-resort"
            )
        log = LogReader(self._folder, state, lost_power)
        log.read()
        self.doubt, self.cut_bytes = log.doubt(), log.torn_bytes
        if self.cut_bytes:
            self._cut = f"{log.files[-1].path}: commit {log.next} was cut off before it was confirmed, and is cut away"
        self._mark = self._mark or Mark(self._folder)
        self._take(log)
        self._mark.begin(self._next - 1, self._durability == "full")
        self._confirmed = self._synced = self._next - 1
        self._synced_segment = self._last
        self._spares = sorted(self._folder.glob(f"{_SPARE}*.log"))
        self._retiring = [(self._synced, number) for number in self._segments if number < self._oldest]
        self._retire()

    def _take(self, log: LogReader) -> None:
        self._index, self._live_bytes, self._next, self._oldest = log.index, log.live_bytes, log.next, log.oldest
        for one in log.files:
            file = os.open(one.path, os.O_RDWR | os.O_CLOEXEC)
            self._segments[one.number] = Segment(one.path, file, one.salt, one.end)
            self._last = one.number
            self._log_bytes += one.end if one.number >= log.oldest else 0
        for path in reversed(log.beyond):
            path.unlink()
        if log.files and log.files[-1].end < log.files[-1].size:
            os.ftruncate(self._segments[self._last].file, log.files[-1].end)
        self._sync_all()

    def _tidy(self) -> None:
        """Leaves nothing behind the last commit, and all of it on the disk."""
        assert self._mark is not None
        if (sync := self.barrier()) is not None:
            sync()
        if self._segments:
            last = self._segments[self._last]
            os.ftruncate(last.file, last.bytes)
        self._sync_all()
        self._mark.end(self._next - 1)
        self._synced = self._next - 1
        self._retire()

    def _sync_all(self) -> None:
        for segment in self._segments.values():
            os.fsync(segment.file)
        self._sync_folder()

    def _sync_folder(self) -> None:
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _let_go(self) -> None:
        for segment in self._segments.values():
            os.close(segment.file)
        self._segments.clear()
        if self._mark is not None:
            self._mark.close()
            self._mark = None
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _size(pairs: dict[bytes, bytes], deleted: list[bytes]) -> int:
    """Returns the bytes that an entry of these adds to the log."""
    keys_and_values = sum(map(len, pairs)) + sum(map(len, pairs.values())) + sum(map(len, deleted))
    return keys_and_values + PAIR_BYTES * len(pairs) + DELETION_BYTES * len(deleted) + ENTRY_BYTES
