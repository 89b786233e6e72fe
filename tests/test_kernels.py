"""Kernels that have to be compiled are announced once, and kept where the user can write."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

KERNEL = """
from surecast.kernels import njit

@njit(cache=True)
def double(x):
    return 2 * x

print(double(1), double(1.5))
"""


def run_at_terminal(program: Path, **variables: str) -> tuple[str, str]:
    """Runs a program whose standard error is a terminal; returns what it wrote to its output and to the terminal."""
    ours, theirs = pty.openpty()
    try:
        environment = {**os.environ, **variables}
        done = subprocess.run(
            [sys.executable, program], env=environment, stdout=subprocess.PIPE, stderr=theirs, timeout=120, check=False
        )
        os.set_blocking(ours, False)
        try:
            shown = os.read(ours, 10_000).decode()
        except BlockingIOError:
            shown = ""
    finally:
        os.close(theirs)
        os.close(ours)
    assert done.returncode == 0, shown
    return done.stdout.decode(), shown


def test_compilation_is_announced_once_and_kept_for_the_user_where_the_folder_is_not_writable(tmp_path: Path) -> None:
    program = tmp_path / "installed" / "program.py"
    program.parent.mkdir()
    program.write_text(KERNEL)
    (program.parent / "__pycache__").write_text("")  # a folder of this name cannot be made, by nobody
    cache = tmp_path / "cache"
    variables = {"XDG_CACHE_HOME": str(cache), "NUMBA_CACHE_DIR": ""}
    output, shown = run_at_terminal(program, **variables)
    assert output == "2 3.0\n"
    assert shown.count("compiling kernels, once") == 1
    assert list(cache.rglob("*.nbi"))
    assert run_at_terminal(program, **variables) == ("2 3.0\n", "")


def test_nothing_is_announced_where_nobody_looks(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(KERNEL)
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=120, check=True)
    assert (done.stdout, done.stderr) == ("2 3.0\n", "")
