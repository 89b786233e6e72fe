"""Runs a command for as long as whoever started it lives: `python -m surecast.pipeline.guard COMMAND ...`.

The command's process id is the first line of standard output. When standard input ends, because it was closed or
because the starter was killed, the command is asked to end, and after a while made to.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

__all__ = ["guard"]

LOOK_S: Final = 0.2
PATIENCE_S: Final = 15.0


def guard(command: Sequence[str]) -> int:
    """Runs the command until it ends or standard input does; its exit status."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    os.write(1, f"{child.pid}\n".encode())
    while child.poll() is None:
        ready, _, _ = select.select([0], [], [], LOOK_S)
        if ready and not os.read(0, 1):
            break
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            child.kill()
    return child.wait()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the starter, which then closes standard input
    sys.exit(guard(sys.argv[1:]))
