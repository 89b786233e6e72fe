"""Runs every code block of the README and of docs/, so that none of them lies.

The blocks of one page run in order, in one empty folder that holds a copy of `examples/`:

- blocks whose first line is ``# file: NAME`` are written to that file, whatever their language;
- other ``python`` blocks with ``>>>`` are doctests; without, they are executed;
- ``console`` blocks are commands behind ``$``, each with its expected output (``...`` matches anything); a command
  whose line ends in ``# exits N`` must exit with N; one that needs Spark has more time, and is left out without Java;
  one that only computes runs in this process, where all that is slow to import is at hand;
- other blocks are text;
- ports of the form 188xx are moved to free ones, so that pages may be run at the same time.
"""

from __future__ import annotations

import doctest
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from tests.patience import PATIENCE_S

from surecast.errors import ConfigurationError
from surecast.pipeline import find_java

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXIT = re.compile(r"\s+# exits (\d+)$")
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
RUN_ELSEWHERE = re.compile(r"^(make|git|cd|apt|brew|\.venv|\. \.venv|SURECAST_DATA=)")
PORT = re.compile(r"\b188\d\d\b")
ON_SPARK = re.compile(r"^surecast (learn\b|pipeline (run|show)\b)")
# Such a command starts no other process, talks to none and needs no shell.
COMPUTES = re.compile(
    r"^surecast (--version|advise|broker --check-config|cast compare|compare|drop|plan|predict|report|scenario"
    r"|simulate|sweep|zap (generate|stats))\b(?!.*,measured)[^|&;<>$`*]*$"
)
RunHere = Callable[[Sequence[str]], subprocess.CompletedProcess[str]]


@dataclass
class Block:
    language: str
    text: str
    line: int


def blocks(page: Path, *, move_ports: bool = False) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    if move_ports:
        text = with_free_ports(text)
    return [Block(m[1], m[2], text[: m.start()].count("\n") + 2) for m in BLOCK.finditer(text)]


def with_free_ports(text: str) -> str:
    """The same text with all its ports moved by as much, so that neighbours stay neighbours, to where all are free."""
    offset = free_offset({int(found) for found in PORT.findall(text)})
    return PORT.sub(lambda found: str(int(found[0]) + offset), text)


def free_offset(ports: set[int]) -> int:
    for offset in range(os.getpid() % 400 * 30, 30_000, 7):
        with ExitStack() as held:
            try:
                for port in ports:
                    held.enter_context(socket.socket()).bind(("127.0.0.1", port + offset))
            except OSError:
                continue
            return offset
    raise AssertionError("no free ports")


def needs_spark(page: Path) -> bool:
    """Whether a page has commands that start Spark: they take a minute each."""
    lines = [line for block in blocks(page) if block.language == "console" for line in block.text.splitlines()]
    return any(ON_SPARK.match(line.removeprefix("$ ")) for line in lines)


RUN_PAGES = [pytest.param(page, marks=[pytest.mark.long] if needs_spark(page) else []) for page in PAGES]


@pytest.mark.parametrize("page", RUN_PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_block_of_the_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_here: RunHere
) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    try:
        for block in blocks(page, move_ports=True):
            if block.text.startswith("# file: "):
                write_file(block, tmp_path)
            elif block.language == "python":
                run_python(block, page, names)
            elif block.language == "console":
                run_console(block, page, tmp_path, run_here)
    finally:
        end_what_is_left(tmp_path)


def end_what_is_left(folder: Path) -> None:
    """Ends brokers that a page which failed has left in its folder; where there is no /proc, they stay."""
    for place in Path("/proc").glob("[0-9]*/cwd"):
        number = int(place.parent.name)
        try:
            if number != os.getpid() and place.readlink().is_relative_to(folder):
                os.kill(number, signal.SIGTERM)
        except OSError:
            continue


def run_python(block: Block, page: Path, names: dict[str, object]) -> None:
    if ">>>" not in block.text:
        exec(compile(block.text, str(page), "exec"), names)
        return
    test = doctest.DocTestParser().get_doctest(block.text, names, page.name, str(page), block.line)
    failures: list[str] = []
    doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=failures.append, clear_globs=False)
    assert not failures, "".join(failures)
    names.update(test.globs)


def write_file(block: Block, folder: Path) -> None:
    first, _, rest = block.text.partition("\n")
    (folder / first.removeprefix("# file: ").strip()).write_text(rest, encoding="utf-8")


@cache
def has_spark() -> bool:
    try:
        find_java()
    except ConfigurationError:
        return False
    return True


def run_console(block: Block, page: Path, folder: Path, run_here: RunHere) -> None:
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        line, _, expected = part.partition("\n")
        command = EXIT.sub("", line)
        if RUN_ELSEWHERE.match(command) or (ON_SPARK.match(command) and not has_spark()):
            continue
        wanted = int(found[1]) if (found := EXIT.search(line)) else 0
        if COMPUTES.match(command):
            done = run_here(shlex.split(command)[1:])
        else:
            done = run_there(command, folder)
        shown = done.stdout + done.stderr
        where = f"{page.name}:{block.line}: {command}"
        assert done.returncode == wanted, f"{where} exited with {done.returncode}:\n{shown}"
        if expected.strip():
            checker = doctest.OutputChecker()
            assert checker.check_output(expected, shown, OPTIONS), f"{where} printed:\n{shown}\nnot:\n{expected}"


def run_there(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a command in a shell, as a reader does."""
    environment = dict(os.environ, COLUMNS="110", NO_COLOR="1", TERM="dumb")
    environment["PATH"] = str(Path(sys.executable).parent) + os.pathsep + environment["PATH"]
    return subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1200 if ON_SPARK.match(command) else PATIENCE_S,
        check=False,
    )


def test_there_are_pages() -> None:
    assert len(PAGES) > 5
    assert sum(len(blocks(page)) for page in PAGES) > 15
