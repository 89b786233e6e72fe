"""The tour for real: its stages, what a signal leaves of it, and the whole of it with Spark."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.patience import PATIENCE_S
from tests.tour.processes import SURECAST, Begin, using, wait_for

from surecast.tour import why_no_spark

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for processes in /proc")

PAGE_BYTES_MAX = 6_500_000


def test_the_quick_tour(quick_tour: dict[str, Any]) -> None:
    stages = {one["name"]: one for one in quick_tour["stages"]}
    states = {name: "skipped" if name == "learn" else "done" for name in stages}
    assert list(stages) == ["plan", "predict", "run", "learn", "overlay", "check"]
    assert {name: one["state"] for name, one in stages.items()} == states
    assert stages["check"]["figures"]["lost_although_acknowledged"] == 0
    assert stages["overlay"]["figures"]["lost_although_acknowledged"] == 0
    # capacity section 4: ten offices, so 2^10 - 1 placements, under nine algorithms
    assert stages["plan"]["figures"]["cases"] == 1023 * 9
    predicted = stages["predict"]["figures"]
    assert predicted["reliability periodic-subscription"] < predicted["reliability bypass-buffering"]
    run = stages["run"]["figures"]
    assert run["nothing_acknowledged_lost"]
    assert run["same_order"]
    assert run["statistics_right"]
    assert run["acknowledged"] == run["messages"] > 100
    assert run["killed_replica"] in (1, 2, 3)
    assert run["gap_s"] > 0.0


def left_in(folder: Path) -> list[Path]:
    """What is left in the folder for temporary files, but for the one of all local sockets of a user."""
    return [one for one in folder.iterdir() if one.name != f"surecast-{os.getuid()}"]


def check_gone(tmp_path: Path) -> None:
    assert wait_for(lambda: not using(tmp_path), PATIENCE_S), using(tmp_path)
    assert left_in(tmp_path / "tmp") == []
    assert not (tmp_path / "out" / "tour.html").exists()


FROM_THE_RUN_ON = """
from surecast.cli import main
from surecast.tour import walk
walk.take_tour.__kwdefaults__["stages"] = walk.STAGES[2:]
main()
"""


def test_ended_while_the_group_runs_it_leaves_nothing(begin: Begin, tmp_path: Path) -> None:
    process = begin(sys.executable, "-c", FROM_THE_RUN_ON, "demo", "--quick", "--out", "out")
    assert wait_for(lambda: sum("--group" in one for one in using(tmp_path / "tmp")) == 3, PATIENCE_S)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + signal.SIGTERM
    assert "interrupted by SIGTERM" in said
    assert "Traceback" not in said
    check_gone(tmp_path)


@pytest.mark.long
def test_interrupted_while_spark_runs_it_leaves_nothing(begin: Begin, tmp_path: Path) -> None:
    if why := why_no_spark():
        pytest.skip(why)
    process = begin(SURECAST, "demo", "--quick", "--out", "out")
    assert wait_for(lambda: any("SparkConnectServer" in one for one in using(tmp_path / "tmp")), PATIENCE_S)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + signal.SIGINT
    assert "Traceback" not in said
    check_gone(tmp_path)


@pytest.mark.long
def test_the_whole_tour_twice_at_once(begin: Begin, tmp_path: Path) -> None:
    if why := why_no_spark():
        pytest.skip(why)
    first = begin(SURECAST, "demo", "--quick", "--out", "out", "--json")
    assert wait_for((tmp_path / "out" / ".lock").exists, PATIENCE_S)
    same = begin(SURECAST, "demo", "--quick", "--out", "out")
    _, said = same.communicate(timeout=PATIENCE_S)
    assert same.returncode == 1
    assert "another demo is writing to out" in said
    other = begin(SURECAST, "demo", "--quick", "--out", "other", "--json")
    for process, folder in ((first, "out"), (other, "other")):
        out, error = process.communicate(timeout=900)
        told = json.loads(out)
        assert process.returncode == 0, (error, told["stages"])
        assert told["ok"]
        assert [(one["name"], one["state"]) for one in told["stages"]] == [
            (name, "done") for name in ("plan", "predict", "run", "learn", "overlay", "check")
        ]
        assert (tmp_path / told["report"]).stat().st_size < PAGE_BYTES_MAX
        assert (tmp_path / folder / "learned.yaml").exists()
    assert left_in(tmp_path / "tmp") == []
    assert wait_for(lambda: not using(tmp_path), PATIENCE_S), using(tmp_path)
