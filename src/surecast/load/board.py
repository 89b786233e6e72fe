"""A board that the processes of a generator share: where the run is, and how far each process is.

A file in memory with one number of eight bytes in each slot. Each slot has one writer, so that nothing is locked.
"""

from __future__ import annotations

import mmap
import os
from enum import IntEnum
from pathlib import Path
from types import TracebackType
from typing import Final

__all__ = ["Board", "Phase", "Progress", "Stage"]

_HEAD: Final = 4
_EACH: Final = 8


class Phase(IntEnum):
    """The stage of the run; only the controller writes it."""

    CONNECTING = 0
    RUNNING = 1
    ENDING = 2
    STOPPED = 3


class Stage(IntEnum):
    """The stage of a process."""

    STARTING = 0
    CONNECTING = 1
    CONNECTED = 2
    SENT = 3


class Progress(IntEnum):
    """The slots of a process."""

    STAGE = 0
    SENT = 1
    EXPECTED = 2
    DELIVERED = 3
    ACKNOWLEDGED = 4
    CONNECTED = 5


class Board:
    """The board, in a file of a folder of this run's own.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Board(Path(folder) / "board", 2) as board:
    ...     board.put(1, Progress.SENT, 7)
    ...     board.put(0, Progress.SENT, 3)
    ...     board.sum(Progress.SENT), board.phase.name
    (10, 'CONNECTING')
    """

    def __init__(self, path: Path, processes: int):
        self.path, self.processes = path, processes
        size = 8 * (_HEAD + processes * _EACH)
        if not path.exists():
            path.write_bytes(bytes(size))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), size)
        self._slots = memoryview(self._map).cast("Q")
        self._parent = os.getppid()

    def __enter__(self) -> Board:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._slots.release()
        self._map.close()

    @property
    def phase(self) -> Phase:
        """Returns where the run is."""
        return Phase(self._slots[0])

    def enter(self, phase: Phase) -> None:
        """Moves the run on."""
        self._slots[0] = int(phase)

    @property
    def is_stopped(self) -> bool:
        """Returns whether a process of the run should end now: it was told so, or its controller is gone."""
        return self._slots[0] == Phase.STOPPED or os.getppid() != self._parent

    def begin(self, start_ns: int, from_ns: int, until_ns: int) -> None:
        """Sets when messages begin, and between which moments they are measured; the clock is that of the machine."""
        self._slots[1], self._slots[2], self._slots[3] = start_ns, from_ns, until_ns
        self.enter(Phase.RUNNING)

    @property
    def times_ns(self) -> tuple[int, int, int]:
        """Returns when messages begin, and between which moments they are measured."""
        return self._slots[1], self._slots[2], self._slots[3]

    def put(self, process: int, slot: Progress, value: int) -> None:
        """Writes a slot of a process."""
        self._slots[_HEAD + process * _EACH + slot] = value

    def get(self, process: int, slot: Progress) -> int:
        """Returns a slot of a process."""
        return self._slots[_HEAD + process * _EACH + slot]

    def sum(self, slot: Progress) -> int:
        """Returns the sum of a slot over all processes."""
        return sum(self._slots[_HEAD + slot :: _EACH])
