"""The folder of a plan that is under way: pieces of it as they are found, for one plan at a time."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import IO, Final

import numpy as np
from numpy.typing import NDArray

from surecast.errors import ConfigurationError
from surecast.report.files import write_whole

__all__ = ["WorkFolder", "kept_placements", "work_folder"]

Array = NDArray[np.float64]

_HEAD: Final = "plan.json"
_LOCK: Final = "lock"
_PIECE: Final = re.compile(r"placements-(\d+)\.npy")
_SAVE_AFTER_S = 1.0


class WorkFolder:
    """Where the figures of placements are kept; `add` saves what came together in about a second as one piece."""

    def __init__(self, path: Path):
        self.path = path
        self._start = 0
        self._waiting: list[Array] = []
        self._saved_s = time.monotonic()

    def read(self, figures: Array) -> NDArray[np.bool_]:
        """Fills in what was kept, and says of which placements; a damaged piece is as if it were not there."""
        known = np.zeros(len(figures), dtype=np.bool_)
        for start, path in _pieces(self.path):
            with suppress(OSError, ValueError, EOFError):
                found = np.load(BytesIO(path.read_bytes()))
                if found.shape[1:] == figures.shape[1:] and start + len(found) <= len(figures):
                    figures[start : start + len(found)] = found
                    known[start : start + len(found)] = True
        return known

    def add(self, start: int, found: Array) -> None:
        """Keeps the figures of the placements from `start` on, soon."""
        if self._waiting and start != self._start + sum(map(len, self._waiting)):
            self.save()
        if not self._waiting:
            self._start = start
        self._waiting.append(found)
        if time.monotonic() - self._saved_s >= _SAVE_AFTER_S:
            self.save()

    def save(self) -> None:
        """Keeps what has come since the last piece."""
        if self._waiting:
            piece = np.concatenate(self._waiting)
            write_whole(self.path / f"placements-{self._start:09d}.npy", _writer(piece))
            self._waiting = []
        self._saved_s = time.monotonic()


@contextmanager
def work_folder(path: Path, fingerprint: str, resume: bool) -> Iterator[WorkFolder]:
    """The folder of a plan, made or found again, that no other plan uses meanwhile; it goes when the plan is done."""
    lock = _locked(path)
    try:
        known = _read_head(path)
        if resume and known is not None and known != fingerprint:
            raise ConfigurationError(
                f"{path} was left by a plan of another scenario or with other options; start anew with resume=False "
                "(--no-resume), or remove it"
            )
        if not resume or known is None:
            for _, piece in _pieces(path):
                piece.unlink()
            text = json.dumps({"plan": fingerprint})
            write_whole(path / _HEAD, lambda file: file.write(text.encode()))
        folder = WorkFolder(path)
        try:
            yield folder
        except BaseException:
            folder.save()
            raise
        # Another plan may open the folder at this moment: then it is that one's.
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(lock)


def kept_placements(path: Path) -> int:
    """How many placements the folder of an interrupted plan has figures of."""
    count = 0
    for _, piece in _pieces(path):
        with suppress(OSError, ValueError, EOFError):
            count += len(np.load(piece, mmap_mode="r"))
    return count


def _locked(path: Path) -> int:
    """An open lock on the folder, which is made if it is missing; refuses what is no folder of a plan."""
    import fcntl

    while True:
        if path.exists() and not _is_of_a_plan(path):
            raise ConfigurationError(f"{path} is no folder of an interrupted plan; name another, or remove it")
        try:
            path.mkdir(exist_ok=True)
            lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:
            if path.parent.is_dir():
                continue  # a plan that ends took the folder away in between
            raise ConfigurationError(f"{path}: the folder {path.parent} does not exist; create it first") from None
        except OSError as error:
            raise ConfigurationError(f"{path}: the folder cannot be made: {error.strerror or error}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise ConfigurationError(
                f"another plan is writing to {path}; wait for it, or choose another --out"
            ) from None
        if _is_in_place(lock, path):
            return lock
        os.close(lock)  # a plan that ended took the folder away in between: once more


def _is_in_place(lock: int, path: Path) -> bool:
    """Whether an open lock is that of the folder as it is now."""
    try:
        return os.path.samestat(os.fstat(lock), (path / _LOCK).stat())
    except FileNotFoundError:
        return False


def _is_of_a_plan(path: Path) -> bool:
    """Whether a plan left the folder, or it is empty but for what a plan that begins just now puts there first."""
    if _read_head(path) is not None:
        return True
    try:
        return all(entry.name == _LOCK or entry.name.startswith(f".{_HEAD}.") for entry in path.iterdir())
    except OSError:
        return not path.exists()


def _pieces(path: Path) -> list[tuple[int, Path]]:
    """The pieces in a folder, each with the number of its first placement."""
    try:
        found = [(_PIECE.fullmatch(entry.name), entry) for entry in sorted(path.iterdir())]
    except OSError:
        return []
    return [(int(match[1]), entry) for match, entry in found if match]


def _read_head(path: Path) -> str | None:
    try:
        return str(json.loads((path / _HEAD).read_text(encoding="utf-8"))["plan"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _writer(found: Array) -> Callable[[IO[bytes]], object]:
    return lambda file: np.save(file, found)
