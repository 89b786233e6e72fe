"""Figures of the system on local processes: processor time, waits for a processor, memory, and how often they slept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import sysconf
from pathlib import Path

from surecast.errors import ConfigurationError

__all__ = ["ProcessUse", "processes_use"]


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """The use of processes so far: processor time, resident memory, how often they waited for something, and the time
    that they were ready and other processes had the processors."""

    processor_s: float
    memory_bytes: int
    waits: int
    held_up_s: float = 0.0

    def since(self, before: ProcessUse) -> ProcessUse:
        """Returns what was used after an earlier look; memory is that of now."""
        return ProcessUse(
            self.processor_s - before.processor_s,
            self.memory_bytes,
            self.waits - before.waits,
            self.held_up_s - before.held_up_s,
        )


def processes_use(pids: Sequence[int]) -> ProcessUse:
    """Returns what processes have used with all their threads, summed; ConfigurationError names one that is gone.

    >>> import os
    >>> use = processes_use([os.getpid()])
    >>> use.processor_s > 0, use.memory_bytes > 1_000_000, use.waits >= 0
    (True, True, True)
    """
    each = [_use(pid) for pid in pids]
    return ProcessUse(
        sum(use.processor_s for use in each),
        sum(use.memory_bytes for use in each),
        sum(use.waits for use in each),
        sum(use.held_up_s for use in each),
    )


def _use(pid: int) -> ProcessUse:
    folder, processor_ns, held_up_ns, waits = Path(f"/proc/{pid}"), 0, 0, 0
    try:
        for thread in (folder / "task").iterdir():
            try:
                # Nanoseconds on a processor; the times of `stat` are ticks of 10 ms.
                times = (thread / "schedstat").read_text(encoding="ascii").split()
                status = (thread / "status").read_text(encoding="ascii", errors="replace")
            except (FileNotFoundError, ProcessLookupError):
                continue  # the thread has ended meanwhile
            processor_ns, held_up_ns = processor_ns + int(times[0]), held_up_ns + int(times[1])
            waits += int(status.partition("\nvoluntary_ctxt_switches:")[2].split(None, 1)[0])
        pages = int((folder / "statm").read_text(encoding="ascii").split()[1])
    except PermissionError:
        raise ConfigurationError(f"process {pid}: /proc does not show it to this user") from None
    except OSError:
        raise ConfigurationError(f"process {pid}: there is no such process on this machine") from None
    return ProcessUse(processor_ns / 1e9, pages * sysconf("SC_PAGE_SIZE"), waits, held_up_ns / 1e9)
