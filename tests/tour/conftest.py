"""The tour as a process of its own, with a folder of its own for temporary files, so that what it leaves is seen."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.tour.processes import Begin


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Starts a process whose temporary files are in `tmp_path/tmp`."""
    started: list[subprocess.Popen[str]] = []
    scratch = tmp_path / "tmp"
    scratch.mkdir()

    def start(*command: str) -> subprocess.Popen[str]:
        environment = dict(os.environ, TMPDIR=str(scratch), COLUMNS="110", NO_COLOR="1")
        process = subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.terminate()
            process.wait(60)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


WITHOUT_SPARK = """
from surecast import tour
from surecast.cli import main
from surecast.tour import walk
walk.why_no_spark = tour.why_no_spark = lambda: "the long tests have it"
main()
"""


@pytest.fixture(scope="session")
def quick_tour(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The quick tour as its command tells of it, taken once for all tests, whichever process runs them.

    Without its stage Learn, which starts Spark and takes longer than all others together: a long test has that too.
    """
    root = tmp_path_factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    told = root / "tour.json"
    with (root / "tour.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not told.exists():
            command = (sys.executable, "-c", WITHOUT_SPARK, "demo", "--quick", "--out", str(root / "tour"), "--json")
            done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
            told.write_text(done.stdout or json.dumps({"ok": False, "error": done.stderr}), encoding="utf-8")
    found: dict[str, Any] = json.loads(told.read_text(encoding="utf-8"))
    why = [stage["why"] for stage in found.get("stages", ()) if stage["state"] == "failed"]
    assert found["ok"], why or found
    return found
