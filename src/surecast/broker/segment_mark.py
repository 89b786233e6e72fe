"""The mark of a store: how far its log is known to reach, kept beside it.

A log that ends early looks like one whose last commit was cut off by a crash. The mark tells them apart. It is a file
of 192 bytes mapped into memory; `confirm` puts the number of a commit there once the commit is as durable as it was
promised to be, with four stores to memory and no system call.

What the mark says of a log, when it is opened again:

- The process ended, the machine did not (the mark has the boot identity of this start of the machine). What was in
  memory is in the page cache: the mark is exact. Every commit that returned is at or below `number`, and the log must
  reach it.
- The machine ended. The kernel may have lost newer versions of the mark, never invented one. With durability `full` a
  number is put into the mark after the disk has confirmed the commit: so the log must still reach `number`, but newer
  commits may be missed by the mark, those of the last second at most, since the mark is synced once a second. With
  `os` the log must reach `synced`: what `sync` had brought to the disk before it put the number there.

Each number stands in two slots, written in turn, each with a check: a process that is killed between two stores to
memory, or a bit that flips, leaves the other slot, which is one commit older.
"""

from __future__ import annotations

import mmap
import os
import secrets
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from zlib_ng.zlib_ng import crc32

from surecast.broker.segment_file import write_all
from surecast.broker.store_base import DamagedError, StoreError

__all__ = ["MARK_NAME", "Mark", "MarkState", "new_store", "read_mark"]

MARK_NAME: Final = "mark"
_MAGIC: Final = b"SCMK"
_FORMAT: Final = 1
_HEAD: Final = struct.Struct("<4sIQI")
_SIZE: Final = 192
_NUMBER, _SYNCED, _BOOT = 8, 12, 16  # words of eight bytes; each part in a sector of its own
_CHECK: Final = 0xC3A5_5A3C_96F0_0F69
_UNSYNCED, _CLOSED = 1, 2
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class MarkState:
    """The content of a mark: whose it is, the last commit that returned, the last one known to be on the disk.

    `same_boot`: the machine has not started anew since it was written. `full`: commits were synced before they
    returned. `closed`: the store was closed in good order. `is_older`: one of two slots cannot be read, so that
    `number` may be one too low.
    """

    store: int
    number: int
    synced: int
    same_boot: bool
    full: bool
    closed: bool
    is_older: bool

    @property
    def floor(self) -> int:
        """The commit that the log must reach."""
        return self.number if self.same_boot or self.full else self.synced


def read_mark(path: Path) -> MarkState:
    """Reads a mark; DamagedError where it is none."""
    data = path.read_bytes()
    if len(data) >= _HEAD.size and data[:4] == _MAGIC and (found := _HEAD.unpack_from(data)[1]) != _FORMAT:
        raise StoreError(f"{path}: it has format {found}, of another version of surecast")
    if len(data) != _SIZE or data[: _HEAD.size] != _head(_HEAD.unpack_from(data)[2]):
        raise DamagedError(path, min(len(data), _SIZE) % _SIZE, "it is not a mark of a store")
    store = int(_HEAD.unpack_from(data)[2])
    words = memoryview(data).cast("Q")
    key = store ^ _CHECK
    number, synced = _valid(words, _NUMBER, key), _valid(words, _SYNCED, key)
    for at, slots in ((_NUMBER, number), (_SYNCED, synced)):
        if not slots:
            raise DamagedError(path, 8 * at, "the number of the last commit cannot be read")
    high, low, mode, check = words[_BOOT : _BOOT + 4]
    is_known = high ^ low ^ mode ^ key == check
    if not is_known:  # it was being written, by a process that was killed: the log was on the disk, and is as it was
        return MarkState(store, max(number), max(synced), True, True, True, len(number) < 2)
    is_closed, is_full = bool(mode & _CLOSED), not mode & _UNSYNCED
    return MarkState(store, max(number), max(synced), (high, low) == _boot(), is_full, is_closed, len(number) < 2)


def _valid(words: memoryview, at: int, key: int) -> list[int]:
    """Returns the numbers of those of two slots whose check is right."""
    return [words[slot] for slot in (at, at + 2) if words[slot] ^ key == words[slot + 1]]


class Mark:
    """The mark of an open store. One thread confirms; another one may sync."""

    def __init__(self, folder: Path, store: int | None = None):
        """Opens the mark of a folder; makes one where `store` is given."""
        self.path = folder / MARK_NAME
        if store is not None:
            self._make(store)
        self._file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._map = mmap.mmap(self._file, _SIZE)
        except BaseException:
            os.close(self._file)
            raise
        self._words = memoryview(self._map).cast("Q")
        self.store = int.from_bytes(self._map[8:16], "little")
        self._key = self.store ^ _CHECK
        self._slot = _SYNCED

    def _make(self, store: int) -> None:
        draft = self.path.with_suffix(".new")
        key = store ^ _CHECK
        slots = struct.pack("<8Q", *((0, key) * 4))
        file = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            write_all(file, [_head(store).ljust(64, b"\0") + slots + bytes(64)], 0)
            os.fsync(file)
        finally:
            os.close(file)
        draft.rename(self.path)

    def confirm(self, number: int) -> None:
        """Notes that a commit has returned."""
        words = self._words
        at = _NUMBER + 2 * (number & 1)
        words[at] = number
        words[at + 1] = number ^ self._key

    def confirm_synced(self, number: int) -> None:
        """Notes that all commits up to a number are on the disk, and syncs the mark."""
        self._slot = _SYNCED + 2 if self._slot == _SYNCED else _SYNCED
        self._words[self._slot] = number
        self._words[self._slot + 1] = number ^ self._key
        self.sync()

    def begin(self, number: int, full: bool) -> None:
        """Notes that the log, all of it on the disk, reaches `number`, and how commits will be made durable."""
        for each in (number, number + 1):  # both slots
            at = _NUMBER + 2 * (each & 1)
            self._words[at] = number
            self._words[at + 1] = number ^ self._key
        self.confirm_synced(number)
        self._set_mode(0 if full else _UNSYNCED)

    def end(self, number: int) -> None:
        """Notes that the store is closed, all of its log on the disk."""
        self.confirm_synced(number)
        self._set_mode(_CLOSED)

    def _set_mode(self, mode: int) -> None:
        high, low = _boot()
        for at, word in enumerate((high, low, mode, high ^ low ^ mode ^ self._key)):
            self._words[_BOOT + at] = word
        self.sync()

    def sync(self) -> None:
        """Brings the mark to the disk."""
        os.fdatasync(self._file)

    def close(self) -> None:
        """Lets go of the file."""
        self._words.release()
        self._map.close()
        os.close(self._file)


def new_store() -> int:
    """Draws the identity of a store."""
    return secrets.randbits(64) | 1


def _head(store: int) -> bytes:
    content = _HEAD.pack(_MAGIC, _FORMAT, store, 0)[:-4]
    return content + crc32(content).to_bytes(4, "little")


def _boot() -> tuple[int, int]:
    """Returns what tells this start of the machine from others; a number of its own where the system does not say."""
    try:
        text = _BOOT_ID.read_text().strip().replace("-", "")
        return int(text[:16], 16), int(text[16:], 16)
    except (OSError, ValueError):
        return secrets.randbits(64), secrets.randbits(64)
