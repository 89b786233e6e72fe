"""Kernels that have to be compiled are announced once, and kept where the user can write."""

from __future__ import annotations

import hashlib
import os
import pty
import subprocess
import sys
from pathlib import Path

from tests.patience import PATIENCE_S

from surecast import kernels

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
            [sys.executable, program],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=theirs,
            timeout=PATIENCE_S,
            check=False,
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
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert (done.stdout, done.stderr) == ("2 3.0\n", "")


INNER = "from surecast.kernels import njit\n@njit(cache=True)\ndef add(x):\n    return x + {}\n"
OUTER = """from surecast.kernels import njit
from surecast.inner import add
@njit(cache=True)
def twice(x):
    return add(add(x))
"""


def install(site: Path, added: int) -> None:
    """Writes what a wheel's installation leaves: the package, and the list of its files with their digests."""
    package, info = site / "surecast", site / "surecast-0.1.0.dist-info"
    package.mkdir(parents=True, exist_ok=True)
    info.mkdir(exist_ok=True)
    sources = {
        "__init__.py": "",
        "kernels.py": Path(kernels.__file__).read_text(encoding="utf-8"),
        "inner.py": INNER.format(added),
        "outer.py": OUTER,
    }
    record = []
    for name, text in sources.items():
        (package / name).write_text(text, encoding="utf-8")
        record.append(f"surecast/{name},sha256={hashlib.sha256(text.encode()).hexdigest()},{len(text)}\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: surecast\nVersion: 0.1.0\n")
    (info / "RECORD").write_text("".join(record))


def test_an_upgraded_wheel_uses_no_machine_code_of_the_version_before(tmp_path: Path) -> None:
    """The outer kernel's file is the same in both versions: its digest alone would not tell them apart."""
    site, cache = tmp_path / "site", tmp_path / "cache"
    environment = {**os.environ, "PYTHONPATH": str(site), "XDG_CACHE_HOME": str(cache), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("NUMBA_CACHE_DIR", None)

    def answer() -> str:
        command = [
            sys.executable,
            "-c",
            "from surecast.outer import twice; print(twice(1), sum(twice.stats.cache_hits.values()))",
        ]
        return subprocess.run(
            command, env=environment, cwd=tmp_path, text=True, timeout=PATIENCE_S, check=True, stdout=subprocess.PIPE
        ).stdout.strip()

    hits = []
    for added in (1, 5):
        install(site, added)
        for _ in range(2):
            result, cache_hits = answer().split()
            assert int(result) == 1 + 2 * added
            hits.append(int(cache_hits))
    assert hits == [0, 1, 0, 1]
    assert len(list((cache / "surecast").glob("0.1.0-*"))) == 2
    assert not list(site.rglob("*.nbi"))
