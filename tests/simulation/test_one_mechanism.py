"""One mechanism for one job: a second scheduler, pool or interval formula does not come back unnoticed."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SOURCE = ROOT / "src" / "surecast"


def imported(source: str) -> set[str]:
    """All that a module imports, each with its module: `heapq`, `heapq.heappush`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found.update({node.module}, (f"{node.module}.{alias.name}" for alias in node.names))
    return found


@cache
def imported_by(path: Path) -> set[str]:
    """All that a file imports; every file is read once for all tests."""
    return imported(text_of(path))


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def users(names: set[str], *folders: Path) -> set[str]:
    """The files of some folders that import one of these names. Only files with its last part are read as Python."""
    words = {name.rpartition(".")[2] for name in names}
    files = [path for folder in folders for path in folder.rglob("*.py")]
    files = [path for path in files if any(word in text_of(path) for word in words)]
    return {path.relative_to(ROOT).as_posix() for path in files if imported_by(path) & names}


def test_simulations_have_one_clock() -> None:
    """The compiled kernel of the composed simulation has a heap of its own: compiled code cannot call the clock."""
    assert users({"heapq", "sched", "asyncio"}, SOURCE / "simulation") == {
        "src/surecast/simulation/experiment/clock.py",
        "src/surecast/simulation/composed/kernels.py",
    }


def test_student_t_is_computed_in_one_place() -> None:
    student = {"scipy.special.stdtrit", "scipy.special.stdtr", "scipy.stats.t"}
    assert users(student, ROOT / "src", ROOT / "tools", ROOT / "benchmarks") == {
        "src/surecast/simulation/experiment/confidence.py"
    }


def test_models_share_one_pool() -> None:
    """Brokers have threads of their own, which check passwords; they share no work."""
    pools = {"multiprocessing", "concurrent.futures.ProcessPoolExecutor", "concurrent.futures.ThreadPoolExecutor"}
    folders = [SOURCE / name for name in ("simulation", "prediction", "planning", "models", "measurement", "scenario")]
    assert users(pools, *folders) == set()
    assert "src/surecast/workers.py" in users(pools, SOURCE)


def test_independent_runs_are_shared_out_by_the_harness_alone() -> None:
    """A simulation with a loop of its own over a pool would know nothing of seeds, progress and precision.

    The processes of a load, and of a calibration, are no runs: each sends or receives for all of its time.
    """
    assert users({"surecast.workers", "surecast.workers.worker_pool"}, ROOT / "src") == {
        "src/surecast/calibration/calibrating.py",
        "src/surecast/load/load_run.py",
        "src/surecast/planning/placement/exhaustive.py",
        "src/surecast/simulation/experiment/replications.py",
    }


@pytest.mark.parametrize("folder", sorted(path.name for path in (SOURCE / "simulation").iterdir() if path.is_dir()))
def test_no_simulation_ends_its_own_intervals(folder: str) -> None:
    """Where a half-width becomes two ends, None without one, `interval_ends` does it."""
    for path in (SOURCE / "simulation" / folder).rglob("*.py"):
        assert folder == "experiment" or "(None, None) if" not in path.read_text(encoding="utf-8"), path


@pytest.mark.parametrize("source", ["import heapq", "from heapq import heappush", "def f():\n    import heapq"])
def test_an_import_is_seen_wherever_it_stands(source: str) -> None:
    assert "heapq" in imported(source)
