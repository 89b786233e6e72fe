"""How tests call the command line: in this process, which is cheap, or as a real process, as a user does."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def surecast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `surecast ...` in an empty folder, in this process: what is slow to import is imported once."""
    from surecast.cli import main
    from surecast.cli.output import console, errors

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.setenv("NO_COLOR", "1")
    for one in (console, errors):
        # made when it was imported, before the variables were set
        monkeypatch.setattr(one, "_width", 110)
        monkeypatch.setattr(one, "no_color", True)

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = ["surecast", *map(str, arguments)]
        monkeypatch.setattr(sys, "argv", command)
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
        code: int | str | None = 0
        with redirect_stdout(out), redirect_stderr(err):
            try:
                main()
            except SystemExit as stop:
                code = stop.code
                if isinstance(code, str):  # as Python ends with a message
                    print(code, file=sys.stderr)  # noqa: T201
                    code = 1
        texts = [stream.buffer.getvalue().decode() for stream in (out, err)]
        return subprocess.CompletedProcess(command, int(code or 0), *texts)

    return run


@pytest.fixture
def surecast_process(tmp_path: Path) -> Run:
    """Runs `surecast ...` in an empty folder, as a process of its own."""

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        environment = dict(os.environ, COLUMNS="110", NO_COLOR="1")
        command = [str(Path(sys.executable).parent / "surecast"), *map(str, arguments)]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=180, check=False
        )

    return run
