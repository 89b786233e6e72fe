"""A disk that loses power: what the system calls of a store leave behind.

Sectors of what was not synced are there in any mixture of their versions; of the changes of the folder since it was
synced, the first few are. Files are real ones while the store is open; the disk keeps beside them what would be left.
The mark is changed in memory, without a call: what it holds is looked at in each call.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from surecast.broker import private, segment_file, segment_mark, segment_store

__all__ = ["Disk", "PowerLoss"]

_SECTOR = 64
_RENAME, _UNLINK = Path.rename, Path.unlink
Names = dict[str, int]


def _is_kept(path: Path) -> bool:
    return path.suffix == ".log" or path.stem == "mark"


class PowerLoss(BaseException):
    """Nothing of the process goes on."""


class Disk:
    """Stands in for `os` in the modules of the store. Power is lost in the call number `ends_at`.

    `errors` is the probability that a call fails instead, as it does on a disk that is full or broken.
    """

    def __init__(self, folder: Path, left: dict[str, bytes], draw: random.Random, ends_at: int, errors: float):
        self._folder = folder
        self._boot = draw.getrandbits(64)  # each disk is another start of the machine
        self._draw = draw
        self._ends_at = ends_at
        self._errors = errors
        self._calls = 0
        self._open: dict[int, int] = {}
        self._others: set[int] = set()
        self._names: Names = {}
        self._changes: list[Callable[[Names], object]] = []
        self._versions: list[list[bytes]] = []  # of each file; the first is what is on the disk for certain
        for name, content in left.items():
            (folder / name).write_bytes(content)
            self._names[name] = len(self._versions)
            self._versions.append([content])
        self._synced = dict(self._names)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """From now on the store works with this disk."""
        patch.setattr(segment_store, "os", self)
        patch.setattr(segment_file, "os", self)
        patch.setattr(segment_mark, "os", self)
        patch.setattr(private, "os", self)  # it opens the lock
        patch.setattr(segment_mark, "_boot", lambda: (self._boot, self._boot))
        patch.setattr(Path, "rename", lambda path, target: self._rename(path, target))
        patch.setattr(Path, "unlink", lambda path, missing_ok=False: self._unlink(path, missing_ok))

    def let_go(self) -> None:
        """Closes what the store did not come to close."""
        for file in (*self._open, *self._others):
            self.close(file)

    def left(self) -> dict[str, bytes]:
        """What is found when the power is back."""
        self._look_at_mark()
        names = dict(self._synced)
        for change in self._changes[: self._draw.randint(0, len(self._changes))]:
            change(names)
        return {name: self._mixture(self._versions[file]) for name, file in names.items()}

    def _mixture(self, versions: list[bytes]) -> bytes:
        size = len(self._draw.choice(versions))
        newest = self._draw.choice((0.0, 0.5, 0.9, 1.0))
        content = bytearray()
        for at in range(0, size, _SECTOR):
            version = versions[-1] if self._draw.random() < newest else self._draw.choice(versions)
            content += version[at : at + _SECTOR].ljust(_SECTOR, b"\0")
        return bytes(content[:size])

    def _look_at_mark(self) -> None:
        """Notes what was written to the mark since the last call: the kernel may have written it to the disk."""
        if "mark" in self._names and (path := self._folder / "mark").exists():
            versions, content = self._versions[self._names["mark"]], path.read_bytes()
            if content != versions[-1]:
                versions.append(content)

    def _call(self, done: Callable[[], Any]) -> Any:
        """A call that may fail, or be the last one, done or not."""
        self._look_at_mark()
        self._calls += 1
        if self._calls == self._ends_at:
            if self._draw.random() < 0.5:
                done()
            raise PowerLoss
        if self._draw.random() < self._errors:
            raise OSError(errno.EIO, "the disk failed")
        return done()

    def _change(self, change: Callable[[Names], object]) -> None:
        change(self._names)
        self._changes.append(change)

    def _write(self, file: int, content: bytes) -> None:
        self._versions[self._open[file]].append(content)

    # What the store calls.

    def open(self, path: Path, flags: int, mode: int = 0o777) -> int:
        if not _is_kept(path):
            other = os.open(path, flags, mode)
            self._others.add(other)
            return other

        def opened() -> int:
            file = os.open(path, flags, mode)
            if path.name not in self._names:
                number = len(self._versions)
                self._versions.append([b""])
                self._change(lambda names: names.__setitem__(path.name, number))
            self._open[file] = self._names[path.name]
            return file

        return int(self._call(opened))

    def close(self, file: int) -> None:
        self._open.pop(file, None)
        self._others.discard(file)
        os.close(file)

    def pwritev(self, file: int, parts: Sequence[bytes | memoryview], at: int) -> int:
        data = b"".join(parts)
        if self._draw.random() < 0.2:  # a call may write less than it was asked to
            data = data[: self._draw.randint(1, len(data))]

        def written() -> int:
            content = self._versions[self._open[file]][-1]
            self._write(file, content[:at].ljust(at, b"\0") + data + content[at + len(data) :])
            return os.pwrite(file, data, at)

        return int(self._call(written))

    def ftruncate(self, file: int, size: int) -> None:
        def truncated() -> None:
            self._write(file, self._versions[self._open[file]][-1][:size])
            os.ftruncate(file, size)

        self._call(truncated)

    def fdatasync(self, file: int) -> None:
        self._look_at_mark()
        versions = self._versions[self._open[file]]
        self._call(lambda: versions.__setitem__(slice(None), versions[-1:]))

    def fsync(self, file: int) -> None:
        if file in self._open:
            self.fdatasync(file)
            return

        def synced() -> None:
            self._synced, self._changes = dict(self._names), []

        self._call(synced)

    def _rename(self, path: Path, target: Path) -> None:
        if _is_kept(path):
            self._call(lambda: self._change(lambda names: names.__setitem__(target.name, names.pop(path.name))))
        _RENAME(path, target)

    def _unlink(self, path: Path, missing_ok: bool) -> None:
        if _is_kept(path) and path.exists():
            self._call(lambda: self._change(lambda names: names.pop(path.name)))
        _UNLINK(path, missing_ok)
