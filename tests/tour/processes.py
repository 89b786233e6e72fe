"""Processes of the tour, and what of them is left."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

SURECAST = str(Path(sys.executable).parent / "surecast")
Begin = Callable[..., subprocess.Popen[str]]


def using(folder: Path) -> list[str]:
    """The command lines of all processes that name a folder, or work in it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            where = str((process / "cwd").readlink())
        except OSError:
            continue  # it has ended, or is another user's
        if str(folder) in command or where.startswith(str(folder)):
            found.append(command)
    return found


def wait_for(seen: Callable[[], bool], seconds: float) -> bool:
    """Whether something comes to be so in time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if seen():
            return True
        time.sleep(0.05)
    return False
