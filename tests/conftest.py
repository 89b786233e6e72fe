"""Fixtures that every test may use."""

from __future__ import annotations

import gc
import io
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# The same examples every time: a test that fails sometimes tells nobody anything. `--hypothesis-profile thorough` has
# more, and others each time.
settings.register_profile("surecast", derandomize=True, deadline=None, max_examples=50)
settings.register_profile("thorough", deadline=None, max_examples=1000)
settings.load_profile("surecast")

# No command leaves a Spark server behind; a test that wants one deletes the variable.
os.environ["SURECAST_NO_SERVER"] = "1"

# What is collected stays to the end: looking for garbage in it took as long as collecting it.
gc.disable()

REPOSITORY = Path(__file__).parent.parent

LONG_TEST_S = 1500

ON_SPARK = "tests/pipeline/"
"""The folder whose tests share a Spark server: all of them go to one worker, so that there is one server."""

APART = "tests/test_docs.py"
"""The file whose tests are long, share nothing and wait a lot: each goes to whoever is free."""

SLOW_FIRST = ("tour/test_browser", "pipeline/", "test_docs", "cli/test_interrupts", "measurement/", "broker/")
"""The files whose fixtures and tests take longest. They begin first, so that no worker is left alone with one."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts slow files first, and gives long tests a longer time limit than the one in pyproject.toml."""
    places = [str(REPOSITORY / "tests" / name) for name in SLOW_FIRST]
    items.sort(key=lambda item: next((n for n, place in enumerate(places) if str(item.path).startswith(place)), 99))
    for item in items:
        if item.get_closest_marker("long") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(LONG_TEST_S))


def pytest_collection_finish() -> None:
    """Collects garbage from now on, seldom, and never looks again at the tests and modules that are there to stay.

    With Python's own thresholds a sixth of the time of simulated protocols goes into looking for garbage.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Returns the distribution of files over workers: each to whoever is free, those that share a server to one, and
    the pages of the documentation one by one."""
    from xdist.scheduler import LoadFileScheduling

    class Files(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith(APART):
                return nodeid
            return ON_SPARK if nodeid.startswith(ON_SPARK) else super()._split_scope(nodeid)

    return Files(config, log)


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder of real topologies and traces: `SURECAST_DATA`, or `shared/data` beside the checkout."""
    folder = Path(os.environ.get("SURECAST_DATA") or REPOSITORY.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}: set SURECAST_DATA to a folder that holds topologies/ and latency/")
    return folder


@pytest.fixture
def run_here(monkeypatch: pytest.MonkeyPatch) -> Callable[[Sequence[str]], subprocess.CompletedProcess[str]]:
    """Runs `surecast` with these arguments in this process: what is slow to import is imported once."""
    from surecast.cli import main
    from surecast.cli.output import console, errors

    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.setenv("NO_COLOR", "1")
    for one in (console, errors):
        # made when it was imported, before the variables were set
        monkeypatch.setattr(one, "_width", 110)
        monkeypatch.setattr(one, "no_color", True)

    def run(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        command = ["surecast", *arguments]
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
