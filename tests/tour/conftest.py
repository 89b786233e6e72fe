"""The tour as a process of its own, with a folder of its own for temporary files, so that what it leaves is seen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.tour.processes import Begin

STAGES_ONLY = """
import json, sys
from pathlib import Path
from surecast.tour import STAGES, take_tour
tour = take_tour(Path(sys.argv[1]), wanted="quick", stages=[one for one in STAGES if one.name in sys.argv[2:]])
print(json.dumps(tour.as_dict()))
"""


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


@pytest.fixture(scope="session")
def some_stages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """The stages that need no Spark and take seconds, taken once for all tests of the page."""
    folder = tmp_path_factory.mktemp("tour")
    done = subprocess.run(
        [sys.executable, "-c", STAGES_ONLY, str(folder), "plan", "predict", "run"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found
