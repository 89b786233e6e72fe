"""Runs every code block of the README and of docs/, so that none of them lies.

The blocks of one page run in order, in one empty folder that holds a copy of `examples/`:

- ``python`` blocks with ``>>>`` are doctests; without, they are executed;
- ``yaml`` blocks whose first line is ``# file: NAME`` are written to that file;
- ``console`` blocks are commands behind ``$``, each with its expected output (``...`` matches anything); a command
  whose line ends in ``# exits N`` must exit with N;
- other blocks are text.
"""

from __future__ import annotations

import doctest
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXIT = re.compile(r"\s+# exits (\d+)$")
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
RUN_ELSEWHERE = re.compile(r"^(make|git|cd|apt|brew|\.venv|\. \.venv|SURECAST_DATA=)")


@dataclass
class Block:
    language: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [Block(m[1], m[2], text[: m.start()].count("\n") + 2) for m in BLOCK.finditer(text)]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_block_of_the_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.language == "python":
            run_python(block, page, names)
        elif block.language == "yaml":
            write_yaml(block, tmp_path)
        elif block.language == "console":
            run_console(block, page, tmp_path)


def run_python(block: Block, page: Path, names: dict[str, object]) -> None:
    if ">>>" not in block.text:
        exec(compile(block.text, str(page), "exec"), names)
        return
    test = doctest.DocTestParser().get_doctest(block.text, names, page.name, str(page), block.line)
    failures: list[str] = []
    doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=failures.append, clear_globs=False)
    assert not failures, "".join(failures)
    names.update(test.globs)


def write_yaml(block: Block, folder: Path) -> None:
    first, _, rest = block.text.partition("\n")
    if first.startswith("# file: "):
        (folder / first.removeprefix("# file: ").strip()).write_text(rest, encoding="utf-8")


def run_console(block: Block, page: Path, folder: Path) -> None:
    environment = dict(os.environ, COLUMNS="110", NO_COLOR="1", TERM="dumb")
    environment["PATH"] = str(Path(sys.executable).parent) + os.pathsep + environment["PATH"]
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        line, _, expected = part.partition("\n")
        command = EXIT.sub("", line)
        if RUN_ELSEWHERE.match(command):
            continue
        wanted = int(found[1]) if (found := EXIT.search(line)) else 0
        done = subprocess.run(
            command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        shown = done.stdout + done.stderr
        where = f"{page.name}:{block.line}: {command}"
        assert done.returncode == wanted, f"{where} exited with {done.returncode}:\n{shown}"
        if expected.strip():
            checker = doctest.OutputChecker()
            assert checker.check_output(expected, shown, OPTIONS), f"{where} printed:\n{shown}\nnot:\n{expected}"


def test_there_are_pages() -> None:
    assert len(PAGES) > 5
    assert sum(len(blocks(page)) for page in PAGES) > 15
