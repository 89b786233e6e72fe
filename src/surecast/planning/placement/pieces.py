"""The work folder of a running plan: it keeps finished pieces, for one plan at a time."""

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
from surecast.report.report_files import write_whole

__all__ = ["WorkFolder", "kept_placements", "work_folder"]

Array = NDArray[np.float64]

_HEAD: Final = "plan.json"
_LOCK: Final = "lock"
_PIECE: Final = re.compile(r"placements-(\d+)\.npy")
_SAVE_AFTER_S = 1.0


class WorkFolder:
    """A folder that keeps the figures of placements; `add` saves those of about a second together as one piece."""

    def __init__(self, path: Path):
        self.path = path
        self._start = 0
        self._waiting: list[Array] = []
        self._saved_s = time.monotonic()

    def read(self, figures: Array) -> NDArray[np.bool_]:
        """Fills in the saved figures, and returns which placements have them; a damaged piece counts as missing."""
        filled = np.zeros(len(figures), dtype=np.bool_)
        for start, path in _pieces(self.path):
            with suppress(OSError, ValueError, EOFError):
                piece = np.load(BytesIO(path.read_bytes()))
                if piece.shape[1:] == figures.shape[1:] and start + len(piece) <= len(figures):
                    figures[start : start + len(piece)] = piece
                    filled[start : start + len(piece)] = True
        return filled

    def add(self, start: int, figures: Array) -> None:
        """Saves the figures of the placements from `start` on, within about a second."""
        if self._waiting and start != self._start + sum(map(len, self._waiting)):
            self.save()
        if not self._waiting:
            self._start = start
        self._waiting.append(figures)
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
    """Yields the folder of a plan, created or reopened, locked against other plans; it is deleted when the plan is
    done."""
    lock = _locked(path)
    try:
        recorded = _read_head(path)
        if resume and recorded is not None and recorded != fingerprint:
            raise ConfigurationError(
                f"{path} was left by a plan of another scenario or with other options; start anew with resume=False "
                "(--no-resume), or remove it"
            )
        if not resume or recorded is None:
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
    """Returns how many placements the folder of an interrupted plan has figures of."""
    count = 0
    for _, piece in _pieces(path):
        with suppress(OSError, ValueError, EOFError):
            count += len(np.load(piece, mmap_mode="r"))
    return count


def _locked(path: Path) -> int:
    """Returns an open lock on the folder, which is made if it is missing; refuses what is no folder of a plan."""
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
    """Returns whether an open lock belongs to the folder as it is now."""
    try:
        return os.path.samestat(os.fstat(lock), (path / _LOCK).stat())
    except FileNotFoundError:
        return False


def _is_of_a_plan(path: Path) -> bool:
    """Returns whether a plan left the folder, or it is empty but for the files that a starting plan creates first."""
    if _read_head(path) is not None:
        return True
    try:
        return all(entry.name == _LOCK or entry.name.startswith(f".{_HEAD}.") for entry in path.iterdir())
    except OSError:
        return not path.exists()


def _pieces(path: Path) -> list[tuple[int, Path]]:
    """Returns the pieces in a folder, each with the number of its first placement."""
    try:
        entries = [(_PIECE.fullmatch(entry.name), entry) for entry in sorted(path.iterdir())]
    except OSError:
        return []
    return [(int(match[1]), entry) for match, entry in entries if match]


def _read_head(path: Path) -> str | None:
    try:
        return str(json.loads((path / _HEAD).read_text(encoding="utf-8"))["plan"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _writer(figures: Array) -> Callable[[IO[bytes]], object]:
    return lambda file: np.save(file, figures)
