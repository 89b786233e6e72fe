"""The store on SQLite, used as a log.

A commit is one transaction that appends one row (`store_rows`); a very large one becomes several rows of the same
transaction. In memory the store keeps for every live key the number of its row and the size of its pair, not the
value. The log is cleaned oldest row first: when it is larger than it should be, each commit also takes the live pairs
of the oldest rows into its own row and deletes those rows. Two things follow from that order: row numbers have no
gaps, so that a missing row is noticed; and a deletion may be forgotten with its row, because everything it deletes
was in rows older still, which are gone.

The work of cleaning is bounded by the size of the commit it rides on, so that no commit waits for a long one. The
log cannot outrun it: for each new byte it goes through four old ones, and of the whole log, which is more than twice
the live pairs, it writes less than half again.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal

from surecast.broker.store_base import Operation, StoreError, StoreStatistics
from surecast.broker.store_rows import DELETION_BYTES, PAIR_BYTES, ROW_BYTES, checksum, pack, split, unpack
from surecast.errors import ConfigurationError

__all__ = ["Cleaning", "SqliteStore"]

FILE_NAME = "broker.db"
APPLICATION = 0x53434253  # "SCBS" in the header of the file: Surecast broker store
FORMAT = 1
# A checkpoint runs inside a commit. Small and often, it holds one up for about 2 ms; with SQLite's 1000 pages, for 7.
CHECKPOINT_PAGES = 256
_SIZE_BITS = 32  # of an index entry: the row's number above, the size of the pair below
_SIZE_MASK = (1 << _SIZE_BITS) - 1


@dataclass(frozen=True, slots=True)
class Cleaning:
    """When the log is cleaned, and how much of it at a time."""

    live_factor: float = 2.0
    """The log may be this many times as large as the live pairs,"""
    slack_bytes: int = 4 << 20
    """and larger by this."""
    step_factor: int = 4
    """A commit that cleans takes rows of this many times its own size,"""
    step_bytes: int = 16 << 10
    """and this many bytes more; always one row at least."""
    row_bytes: int = 256 << 10
    """A larger commit is split into rows of this size, so that the one row at least is never a large one."""
    shrink_bytes: int = 64 << 20
    """A file of which this much and more than half is free is made smaller when it is opened."""

    def __post_init__(self) -> None:
        if self.live_factor < 1 or self.step_factor < 2:
            raise ConfigurationError("cleaning: live_factor must be 1 or more and step_factor 2 or more")
        if min(self.slack_bytes, self.step_bytes, self.row_bytes, self.shrink_bytes) < 0:
            raise ConfigurationError("cleaning: none of its sizes in bytes may be negative")


class SqliteStore:
    """The store of one broker in one folder, locked against every other process while it is open.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with SqliteStore(Path(folder)) as store:
    ...         store.commit([(b"session/1", b"alice"), (b"session/2", b"bob")])
    ...         store.commit([(b"session/1", None)])
    ...     with SqliteStore(Path(folder)) as store:
    ...         list(store.items())
    [(b'session/2', b'bob')]
    """

    def __init__(self, folder: Path, durability: Literal["full", "os"] = "full", cleaning: Cleaning | None = None):
        if durability not in ("full", "os"):
            raise ConfigurationError(f"durability: {durability!r} is unknown here; write 'full' or 'os'")
        self.path = folder / FILE_NAME
        self._durability: Literal["full", "os"] = durability
        self._cleaning = cleaning or Cleaning()
        self._index: dict[bytes, int] = {}
        self._live_bytes = 0
        self._log_bytes = 0
        self._first = 1  # the number of the oldest row, or of the next if there is none
        self._next = 1
        _make_folder(folder)
        # SQLite would open a file that is read-only, and fail later with another error.
        if not os.access(folder, os.W_OK | os.X_OK) or (self.path.exists() and not os.access(self.path, os.W_OK)):
            raise StoreError(f"{self.path}: {_CAUSES[sqlite3.SQLITE_READONLY]}")
        self._connection = self._connect()
        try:
            self._prepare()
            self._shrink()
            self._load()
        except sqlite3.Error as error:
            self._connection.close()
            raise self._explained(error) from error
        except BaseException:
            self._connection.close()
            raise

    @property
    def durability(self) -> Literal["full", "os"]:
        """What a commit that returned survives."""
        return self._durability

    def commit(self, operations: Iterable[Operation]) -> None:
        """Applies all operations or none, the later ones over the earlier ones, and returns when they are durable.

        Operations that change nothing on disk, such as a pair that is written and deleted in the same commit, cost
        nothing. On StoreError nothing has changed; the same operations may be committed again. Only where the disk
        refused to confirm what it had taken, and the process ends before the next commit, may the operations be found
        all the same, all of them.
        """
        changes = dict(operations)
        index = self._index
        pairs = {key: value for key, value in changes.items() if value is not None}
        deleted = [key for key, value in changes.items() if value is None and key in index]
        if not pairs and not deleted:
            return
        begun = False
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            begun = True
            new_bytes = _size(pairs, deleted)
            cleaned_rows, cleaned_bytes = self._take_oldest(pairs, new_bytes, changes)
            rows = self._write(pairs, deleted, _size(pairs, deleted) if cleaned_rows else new_bytes)
            if cleaned_rows:
                self._connection.execute("DELETE FROM log WHERE number < ?", (self._first + cleaned_rows,))
            self._connection.execute("COMMIT")
        except BaseException as error:
            if begun:
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
            if isinstance(error, (sqlite3.Error, OverflowError)):
                raise self._explained(error) from error
            raise
        for key in deleted:
            self._live_bytes -= index.pop(key) & _SIZE_MASK
        for row, size in rows:
            self._enter(self._next, row, size)
        self._first += cleaned_rows
        self._log_bytes -= cleaned_bytes

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Every live pair once, read from disk, the longest untouched first."""
        index = self._index
        try:
            for number, row in self._rows():
                for key, value in self._unpacked(number, row)[0]:
                    if index.get(key, 0) >> _SIZE_BITS == number:
                        yield key, value
        except sqlite3.Error as error:
            raise self._explained(error) from error

    def statistics(self) -> StoreStatistics:
        """The present size; `log_bytes` is what the rows take, without pages that are free for the next ones."""
        return StoreStatistics(len(self._index), self._live_bytes, self._log_bytes, self._next - self._first)

    def close(self) -> None:
        """Lets go of the files. Closing twice is harmless."""
        self._connection.close()

    def __enter__(self) -> SqliteStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Opening

    def _connect(self) -> sqlite3.Connection:
        try:
            # No waiting for a lock: whoever holds it is a running broker. Any one thread at a time may commit.
            return sqlite3.connect(self.path, timeout=0, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise self._explained(error) from error

    def _prepare(self) -> None:
        """Takes the lock, checks whose file this is, and makes the table in a new one."""
        ask = self._ask
        ask("PRAGMA locking_mode = EXCLUSIVE")
        application, version = ask("PRAGMA application_id"), ask("PRAGMA user_version")
        is_new = application == 0 and version == 0 and ask("SELECT count(*) FROM sqlite_master") == 0
        if application != APPLICATION and not is_new:
            raise StoreError(f"{self.path}: not a Surecast store; move it away, or choose another folder")
        if not is_new and version != FORMAT:
            raise StoreError(
                f"{self.path}: written by a newer version of Surecast (format {version}, this one reads {FORMAT}); "
                "upgrade Surecast, or choose another folder"
            )
        if ask("PRAGMA journal_mode = WAL") != "wal":
            raise StoreError(f"{self.path}: the file system does not allow a write-ahead log; choose a local folder")
        # In WAL mode NORMAL hands every commit to the operating system and syncs at checkpoints only, in an order that
        # loses no more than the last commits; FULL syncs the log in every commit.
        ask(f"PRAGMA synchronous = {'FULL' if self._durability == 'full' else 'NORMAL'}")
        ask(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        ask(f"PRAGMA journal_size_limit = {1 << 22}")  # after a very large commit
        ask("BEGIN IMMEDIATE")  # even where nothing is written: it is this that takes the lock for good
        if is_new:
            ask("CREATE TABLE log (number INTEGER PRIMARY KEY, checksum INTEGER NOT NULL, data BLOB NOT NULL)")
            ask(f"PRAGMA application_id = {APPLICATION}")
            ask(f"PRAGMA user_version = {FORMAT}")
        ask("COMMIT")

    def _ask(self, statement: str) -> object:
        answer = self._connection.execute(statement).fetchone()
        return answer[0] if answer else None

    def _shrink(self) -> None:
        """Gives back what a long queue has left free. Only here: it takes as long as writing the whole file."""
        pages, free, page_bytes = (
            int(str(self._ask(f"PRAGMA {name}"))) for name in ("page_count", "freelist_count", "page_size")
        )
        if free * page_bytes > self._cleaning.shrink_bytes and 2 * free > pages:
            with suppress(sqlite3.Error):  # where there is no room for it, the store works as well without
                self._connection.execute("VACUUM")

    def _load(self) -> None:
        """Reads the whole log: every row is there and undamaged, and the index says where each live pair is."""
        expected = None
        for number, row in self._rows():
            if expected is not None and number != expected:
                raise StoreError(f"{self.path}: row {expected} is missing; {_RESTORE}")
            if expected is None:
                self._first = number
            expected = self._next = number
            pairs, deleted = self._unpacked(number, row)
            for key in deleted:
                self._live_bytes -= self._index.pop(key, 0) & _SIZE_MASK
            self._enter(number, dict(pairs), len(row))
            expected += 1

    def _rows(self) -> Generator[tuple[int, bytes], None, None]:
        """All rows, oldest first, each with its checksum checked."""
        for number, expected, row in self._connection.execute("SELECT number, checksum, data FROM log ORDER BY number"):
            if not isinstance(row, bytes) or checksum(number, row) != expected:
                raise StoreError(f"{self.path}: row {number} is damaged: its checksum is wrong; {_RESTORE}")
            yield number, row

    def _unpacked(self, number: int, row: bytes) -> tuple[list[tuple[bytes, bytes]], list[bytes]]:
        try:
            return unpack(row)
        except ValueError as error:
            raise StoreError(f"{self.path}: row {number} is damaged: {error}; {_RESTORE}") from error

    # Writing

    def _take_oldest(
        self, pairs: dict[bytes, bytes], new_bytes: int, changes: dict[bytes, bytes | None]
    ) -> tuple[int, int]:
        """Moves the live pairs of the oldest rows into `pairs`, if the log is too large.

        Returns how many rows are thereby done with, and their bytes.
        """
        limits = self._cleaning
        excess = self._log_bytes + new_bytes - limits.live_factor * self._live_bytes - limits.slack_bytes
        budget = limits.step_factor * new_bytes + limits.step_bytes
        count = size = 0
        if excess <= 0:
            return count, size
        index = self._index
        with closing(self._rows()) as rows:
            for number, row in rows:
                if count and (size + len(row) > budget or size >= excess):
                    break
                old = self._unpacked(number, row)[0]
                pairs.update((k, v) for k, v in old if index.get(k, 0) >> _SIZE_BITS == number and k not in changes)
                count += 1
                size += len(row) + ROW_BYTES
        return count, size

    def _write(
        self, pairs: dict[bytes, bytes], deleted: list[bytes], size: int
    ) -> list[tuple[dict[bytes, bytes], int]]:
        """Appends the pairs and deletions, `size` bytes of them; returns the pairs and the bytes of each row."""
        limit = self._cleaning.row_bytes
        written = []
        for at, part in enumerate(split(pairs, limit) if size > limit else (pairs,)):
            number = self._next + at
            row = pack(part, () if at else deleted)
            self._connection.execute("INSERT INTO log VALUES (?, ?, ?)", (number, checksum(number, row), row))
            written.append((part, len(row)))
        return written

    def _enter(self, number: int, pairs: dict[bytes, bytes], row_bytes: int) -> None:
        """Notes that the newest row is `number` and holds these pairs."""
        index = self._index
        sizes = [len(key) + len(value) + PAIR_BYTES for key, value in pairs.items()]
        self._live_bytes += sum(sizes) - sum([old & _SIZE_MASK for old in map(index.get, pairs) if old is not None])
        index.update(zip(pairs, map((number << _SIZE_BITS).__or__, sizes), strict=True))
        self._log_bytes += row_bytes + ROW_BYTES
        self._next = number + 1

    def _explained(self, error: Exception) -> StoreError:
        """What went wrong, in words that say what to do."""
        code = getattr(error, "sqlite_errorcode", -1) & 0xFF
        return StoreError(f"{self.path}: {_CAUSES.get(code) or str(error)}")


_RESTORE = "restore the folder from a copy, or start with an empty one"
_CAUSES = {
    sqlite3.SQLITE_BUSY: "another broker is using this folder; stop it, or choose another folder",
    sqlite3.SQLITE_NOTADB: "not a Surecast store; move it away, or choose another folder",
    sqlite3.SQLITE_READONLY: "not writable; change the owner or the permissions of the folder and its files",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened or made; change the owner or the permissions of the folder",
    sqlite3.SQLITE_PERM: "not writable; change the owner or the permissions of the folder and its files",
    sqlite3.SQLITE_FULL: "the disk is full; nothing was written: free some space",
    sqlite3.SQLITE_IOERR: "the disk refused to read or write; nothing was committed: check the disk and its free space",
    sqlite3.SQLITE_CORRUPT: f"the file is damaged; {_RESTORE}",
    sqlite3.SQLITE_TOOBIG: "a single value is too large to store; the limit is 1,000,000,000 bytes",
}


def _size(pairs: dict[bytes, bytes], deleted: list[bytes]) -> int:
    """The bytes that a row of these adds to the log."""
    keys_and_values = sum(map(len, pairs)) + sum(map(len, pairs.values())) + sum(map(len, deleted))
    return keys_and_values + PAIR_BYTES * len(pairs) + DELETION_BYTES * len(deleted) + ROW_BYTES


def _make_folder(folder: Path) -> None:
    """Makes the folder and what is above it, so that they are there after a loss of power too."""
    missing = []
    above = folder
    try:
        while not above.exists():
            missing.append(above)
            above = above.parent
        for each in reversed(missing):
            each.mkdir(exist_ok=True)
            handle = os.open(each.parent, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
    except OSError as error:
        raise StoreError(f"{folder}: the folder cannot be made: {error.strerror or error}") from error
    if not folder.is_dir():
        raise StoreError(f"{folder}: a file, not a folder; choose another name")
