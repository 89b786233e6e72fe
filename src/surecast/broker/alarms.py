"""Memory and disk of the whole broker: where one runs short, publishers have to wait until there is room again.

Every queue has a bound of its own, but there are many queues. Above a high mark nothing is read of clients that
publish, while subscribers are served and empty their queues; below a low mark all are read again. So nothing that was
acknowledged has to be dropped, and the broker does not end for want of memory.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

__all__ = ["AlarmLimits", "Alarms", "free_bytes", "memory_bytes_usable", "memory_mark", "resident_bytes"]

_MEMORY_SHARE: Final = 0.6
_MEMORY_LOW: Final = 0.9
_DISK_LOW: Final = 1.25
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_LIMIT_FILES: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True, slots=True)
class AlarmLimits:
    """The marks of the alarms: memory of the process above the first, free disk below the second; None is never."""

    memory_bytes_max: int | None
    disk_free_bytes_min: int | None


@dataclass(slots=True)
class Alarms:
    """The state of both alarms. `memory` and `disk_free` measure bytes; the second is None where there is no disk.

    >>> used = [100]
    >>> alarms, marks = Alarms(lambda: used[0], lambda: None), AlarmLimits(190, None)
    >>> def check(memory_bytes: int) -> list[str]:
    ...     used[0] = memory_bytes
    ...     return sorted(alarms.check(marks))
    >>> [check(memory_bytes) for memory_bytes in (100, 200, 185, 150)], alarms.count
    ([[], ['memory'], ['memory'], []], 1)
    """

    memory: Callable[[], int]
    disk_free: Callable[[], int | None]
    on: dict[str, str] = field(default_factory=dict)
    count: int = 0
    memory_bytes: int = 0
    disk_free_bytes: int | None = None

    def check(self, marks: AlarmLimits) -> dict[str, str]:
        """Measures again; the alarms that are on, with what they say."""
        self.memory_bytes = self.memory()
        limit = marks.memory_bytes_max
        if limit is not None and self.memory_bytes > (limit * _MEMORY_LOW if "memory" in self.on else limit):
            give_back_memory()
            self.memory_bytes = self.memory() if "memory" in self.on else self.memory_bytes
            self._raise("memory", f"{self.memory_bytes >> 20} MiB are used; the high mark is {limit >> 20} MiB")
        else:
            self.on.pop("memory", None)
        free, least = self.disk_free(), marks.disk_free_bytes_min
        self.disk_free_bytes = free
        if free is not None and least is not None and free < (least * _DISK_LOW if "disk" in self.on else least):
            self._raise("disk", f"{free >> 20} MiB of disk are free; the low mark is {least >> 20} MiB")
        else:
            self.on.pop("disk", None)
        return self.on

    def _raise(self, kind: str, text: str) -> None:
        self.count += kind not in self.on
        self.on[kind] = text


def resident_bytes() -> int:
    """The memory that this process has of the machine."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


def free_bytes(folder: Path | None) -> int | None:
    """Returns what a user may still write to the disk of a folder; None where nothing is written."""
    if folder is None:
        return None
    try:
        state = os.statvfs(folder)
    except OSError:
        return None
    return state.f_bavail * state.f_frsize


@cache
def memory_bytes_usable() -> int:
    """The memory of the machine, or of the container."""
    found = [os.sysconf("SC_PHYS_PAGES") * _PAGE]
    for name in _LIMIT_FILES:
        with suppress(OSError, ValueError):
            found.append(int(Path(name).read_text()))
    return min(found)


def memory_mark() -> int:
    """The high mark where none is given."""
    return int(_MEMORY_SHARE * memory_bytes_usable())


def give_back_memory() -> None:
    """Returns what was freed to the system: otherwise a process that once was large looks large for ever."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
