"""Reads the files of a store when it is opened, and tells damage from the end of a crash.

A crash leaves at most one commit that is not whole, the last thing in the last file: it was never confirmed, and is cut
away. Everything else is damage, and refused with the file, the byte and what to do:

- a commit that is not whole, and a whole one after it;
- a file that is missing in the middle (numbers of files and of commits have no gaps), at the beginning (each commit
  names the oldest file that is needed), or at the end, or that ends early (the mark names a commit that was confirmed);
- a file of another store (each names its store), under another's name, or replaced by an older copy of itself (it then
  ends early).

Only a commit above the mark can go unnoticed: none after the end of the process, those of the last second after a loss
of power (`segment_mark` says why). The store then warns that the last commit is in doubt.

Where commits are not synced and the machine ended, the commits above the synced part of the log may be lost or damaged
in any order. They are cut away from the first one that is not whole, with a warning that says how many.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from surecast.broker.segment_file import Scan, SegmentEntry, other_format, scan
from surecast.broker.segment_mark import MARK_NAME, MarkState
from surecast.broker.store_base import DamagedError, StoreError
from surecast.protocol.rows import PAIR_BYTES

__all__ = [
    "AT_MASK",
    "CHECKSUM_SHIFT",
    "SEGMENT_SHIFT",
    "SIZE_BITS",
    "SIZE_MASK",
    "LoadedFile",
    "LogReader",
    "segment_number",
    "segment_path",
]

_PREFIX: Final = "segment-"
SIZE_BITS: Final = 32
AT_BITS: Final = 40
CHECKSUM_SHIFT: Final = SIZE_BITS + AT_BITS
SEGMENT_SHIFT: Final = CHECKSUM_SHIFT + 32
"""A place in the index is one number: the size of a value, where it stands, its checksum, the number of its file."""
SIZE_MASK: Final = (1 << SIZE_BITS) - 1
AT_MASK: Final = (1 << AT_BITS) - 1


def segment_path(folder: Path, number: int) -> Path:
    """Returns where a file of the log is."""
    return folder / f"{_PREFIX}{number:010d}.log"


def segment_number(path: Path) -> int:
    """Returns the number of a file of the log."""
    return int(path.stem.removeprefix(_PREFIX))


@dataclass(frozen=True, slots=True)
class LoadedFile:
    """A file of the log: its number, its salt, where its last whole commit ends, and its size."""

    path: Path
    number: int
    salt: int
    end: int
    size: int


@dataclass
class LogReader:
    """Reads a log up to its end. `state` is what the mark says; `may_lose`: what was not synced may be gone."""

    folder: Path
    state: MarkState
    may_lose: bool
    index: dict[bytes, int] = field(default_factory=dict)
    files: list[LoadedFile] = field(default_factory=list)
    beyond: list[Path] = field(default_factory=list)
    """Files behind the first commit that a loss of power took."""
    live_bytes: int = 0
    next: int = 1
    oldest: int = 1
    torn_bytes: int = 0

    def read(self) -> None:
        """Reads all files; DamagedError where something is missing that was confirmed."""
        self._check_ends(self.read_files())

    def read_files(self) -> list[Path]:
        """Reads files as far as they can be read, or may be lost; returns all of them."""
        names = sorted(self.folder.glob(f"{_PREFIX}*.log"))
        for at, path in enumerate(names):
            try:
                self._read_file(path, is_last=at == len(names) - 1)
            except DamagedError:
                if not self.may_lose or self.next <= self.state.synced:
                    raise
                kept = 1 if self.files and self.files[-1].path == path else 0
                self.beyond = names[at + kept :]
                break
        return names

    def _read_file(self, path: Path, is_last: bool) -> None:
        data = path.read_bytes()
        if (other := other_format(data)) is not None:
            raise StoreError(
                f"{path}: it has format {other}, of another version of surecast: run that one until its queues are "
                "empty, then begin with an empty folder"
            )
        found = scan(data)
        self._check_head(path, found)
        assert found is not None
        if not self.files:
            self.next, self.oldest = found.head.first, found.head.oldest
        number = segment_number(path)
        for entry in found.entries:
            self._enter(number, entry)
        self.files.append(LoadedFile(path, number, found.head.salt, found.end, found.size))
        if found.follows is not None:
            raise DamagedError(path, found.end, f"commit {self.next} is not whole, commit {found.follows.number} is")
        if found.torn and not is_last:
            raise DamagedError(path, found.end, f"commit {self.next} is not whole, and another file follows")
        self.torn_bytes = found.torn

    def _check_head(self, path: Path, found: Scan | None) -> None:
        if found is None:
            raise DamagedError(path, 0, "it does not begin as a file of a store does")
        number, head = segment_number(path), found.head
        if head.store != self.state.store:
            raise DamagedError(path, 0, "it belongs to another store")
        if head.segment != number:
            raise DamagedError(path, 0, f"it is file {head.segment} of the store under another name")
        if not self.files:
            return
        before = self.files[-1]
        if number != before.number + 1:
            missing = segment_path(self.folder, before.number + 1)
            raise DamagedError(missing, 0, f"the file is missing, with commit {self.next}")
        if head.first != self.next:
            raise DamagedError(before.path, before.end, f"commit {self.next} is missing; {path.name} follows")

    def _enter(self, number: int, entry: SegmentEntry) -> None:
        index = self.index
        at = entry.values_at
        base = number << SEGMENT_SHIFT
        for (key, value), checksum in zip(entry.pairs, entry.checksums, strict=True):
            size = len(value)
            former = index.get(key)
            self.live_bytes += size + (len(key) + PAIR_BYTES if former is None else -(former & SIZE_MASK))
            index[key] = base | checksum << CHECKSUM_SHIFT | at << SIZE_BITS | size
            at += size
        for key in entry.deleted:
            former = index.pop(key, None)
            if former is not None:
                self.live_bytes -= (former & SIZE_MASK) + len(key) + PAIR_BYTES
        self.next = entry.number + 1
        self.oldest = entry.oldest

    def _check_ends(self, names: list[Path]) -> None:
        """Checks that the log reaches back and forth as far as it must."""
        floor = self.state.floor
        if self.next <= floor:
            reason = f"the log ends with commit {self.next - 1}, but commit {floor} was confirmed"
            if not self.files:
                raise DamagedError(self.folder / MARK_NAME, 0, f"the log is gone, but commit {floor} was confirmed")
            raise DamagedError(self.files[-1].path, self.files[-1].end, reason)
        if self.files and self.files[0].number > self.oldest:
            missing = segment_path(self.folder, self.oldest)
            raise DamagedError(missing, 0, f"the file is missing; {names[0].name} is not the beginning")

    def value(self, location: int, contents: Mapping[int, bytes]) -> bytes:
        """Returns the value at a place of the index, of the contents of files by their numbers."""
        at = location >> SIZE_BITS & AT_MASK
        return contents[location >> SEGMENT_SHIFT][at : at + (location & SIZE_MASK)]

    def doubt(self) -> str:
        """Returns which commits may be lost though it cannot be told, in words; nothing where all are there."""
        state, end = self.state, self.next - 1
        where = self.files[-1].path if self.files else self.folder
        if self.may_lose:
            lost = max(0, state.number - end)
            if lost:
                return f"{where}: commits {end + 1} to {state.number} were not on the disk when the machine ended"
            return f"{where}: commits after {end} were not on the disk when the machine ended, if there were any"
        if not (state.same_boot or state.closed):
            return f"{where}: commit {end + 1} is in doubt: it was under way when the machine ended, if there was one"
        if state.is_older and end <= state.number:
            return f"{where}: commit {end + 1} is in doubt: the mark is damaged, and tells only of the one before"
        return ""
