"""Sweeps on Spark: the same answers as in this process, row by row; interrupted sweeps go on."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from tests.seeds import seeds
from typer.testing import CliRunner

from surecast.cli.app import app
from surecast.errors import ConfigurationError
from surecast.pipeline import SparkServer
from surecast.pipeline.spark_sweep import Sweep, run_blocks, sweep_session
from surecast.pipeline.sweep_plan import plan_on_spark, unrank
from surecast.pipeline.sweep_runs import simulate_on_spark
from surecast.planning.placement import Constraints, misses, placement_problem, plan_placement
from surecast.planning.placement.goals import pareto_front
from surecast.report import as_dict
from surecast.scenario import load_system
from surecast.simulation import simulate_reliability

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from pyspark.sql import SparkSession


SQUARES = pa.schema([("number", pa.int64()), ("square", pa.int64())])


def squares(fails_from: int) -> Callable[[NDArray[np.int64]], pa.Table]:
    """Numbers and their squares; fails from some number on."""

    def evaluate(numbers: NDArray[np.int64]) -> pa.Table:
        if (numbers >= fails_from).any():
            raise ValueError("no further")
        return pa.table({"number": pa.array(numbers), "square": pa.array(numbers * numbers)})

    return evaluate


def test_placements_are_numbered_as_combinations_come() -> None:
    expected = [c for size in range(1, 7) for c in itertools.combinations(range(6), size)]
    masks = unrank(np.arange(63), 6)
    assert [tuple(np.flatnonzero(mask).tolist()) for mask in masks] == expected


@pytest.mark.parametrize("seed", seeds(6, range(12)))
def test_the_front_is_that_of_comparing_every_two(seed: int) -> None:
    """With ties, cases that are not allowed, unknown figures and unlimited headroom."""
    rng = np.random.default_rng(seed)
    points = rng.integers(0, 40, (800, 1 + seed % 4)) * rng.choice([1.0, 0.1, -1.0], 1 + seed % 4)
    points[rng.random(points.shape) < 0.05] = np.inf
    points[rng.random(points.shape) < 0.01] = -np.inf
    allowed = rng.random(800) < (0.0 if seed == 11 else 0.9)
    found = pareto_front(points, allowed).tolist()
    possible = [i for i in range(800) if allowed[i] and not np.isposinf(points[i]).any()]
    first: dict[tuple[float, ...], int] = {}
    for i in possible:
        beaten = any((points[j] <= points[i]).all() and (points[j] < points[i]).any() for j in possible)
        if not beaten:
            first.setdefault(tuple(points[i].tolist()), i)
    assert found == sorted(first.values())


def test_a_sweep_goes_on_where_it_failed(spark: SparkSession, tmp_path: Path) -> None:
    sweep = Sweep(str(tmp_path / "out"), "squares", 50, 20, SQUARES)
    told: list[tuple[int, int]] = []
    with pytest.raises(Exception, match="no further"):
        run_blocks(spark, sweep, squares(45), progress=lambda done, of: told.append((done, of)))
    assert told == [(20, 50), (40, 50)]
    # Files of the block that was not finished are made anew, whatever they are called.
    stray = tmp_path / "out" / "block=000002" / "part-000000000041.parquet"
    stray.write_bytes((tmp_path / "out" / "block=000000" / "part-000000000000.parquet").read_bytes())
    first = next((tmp_path / "out" / "block=000000").glob("*.parquet")).stat().st_mtime_ns
    rows = run_blocks(spark, sweep, squares(99)).to_table().to_pydict()
    assert sorted(zip(*rows.values(), strict=True)) == [(n, n * n) for n in range(50)]
    assert next((tmp_path / "out" / "block=000000").glob("*.parquet")).stat().st_mtime_ns == first
    other = Sweep(sweep.storage, "cubes", 50, 20, sweep.schema)
    with pytest.raises(ConfigurationError, match="has the results of another sweep"):
        run_blocks(spark, other, squares(99))
    assert run_blocks(spark, other, squares(99), resume=False).count_rows() == 50
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("")
    with pytest.raises(ConfigurationError, match=r"has other files, such as notes\.txt"):
        run_blocks(spark, Sweep(str(tmp_path / "mine"), "", 1, 1, sweep.schema), squares(99))


@pytest.mark.parametrize("limits", [Constraints(max_brokers=3), Constraints(max_brokers=2, min_headroom=9.0)])
def test_a_plan_is_that_of_this_process(spark: SparkSession, tmp_path: Path, limits: Constraints) -> None:
    """Best, best of each algorithm, front, counts, what stands in the way, and all rows."""
    scenario, system = load_system("examples/company.yaml")
    problem = placement_problem(system, scenario)
    algorithms = ["flooding", "peer-to-peer covering"]
    here = plan_placement(problem, constraints=limits, algorithms=algorithms)
    there = plan_on_spark(spark, problem, str(tmp_path / "cases"), constraints=limits, algorithms=algorithms, block=100)
    assert (there.evaluations, there.feasible_count) == (here.evaluations, here.feasible_count)
    assert there.best == here.best
    assert there.best_by_algorithm == here.best_by_algorithm
    assert there.front == here.front
    assert misses(there) == misses(here)
    table = spark.read.parquet(str(tmp_path / "cases")).toArrow().to_pandas().sort_values(["number", "algorithm"])
    expected = here.table().to_pandas()
    expected["number"] = np.repeat(np.arange(here.evaluations), len(algorithms))
    expected = expected.astype({"placement": str, "algorithm": str}).sort_values(["number", "algorithm"])
    assert table["placement"].tolist() == expected["placement"].tolist()
    for name in ("notification_delay_worst_s", "message_rate_per_s", "headroom_factor", "cost"):
        np.testing.assert_array_equal(table[name].to_numpy(), expected[name].to_numpy())


def test_a_report_is_that_of_this_process(spark: SparkSession, tmp_path: Path) -> None:
    _, system = load_system("examples/reliability-tree.yaml")
    schemes = ["buffering", "bypass"]
    here = simulate_reliability(system, schemes, runs=5, duration_s=3 * 86400, seed=3)
    there = simulate_on_spark(
        spark, system, str(tmp_path / "runs"), schemes, runs=5, duration_s=3 * 86400, seed=3, block=3
    )
    assert as_dict(there) == as_dict(here)


def test_the_commands_answer_the_same_with_and_without_spark(
    server: SparkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    plan = ["plan", "examples/company.yaml", "--max-brokers", "1", "--algorithm", "flooding", "--json"]
    runs = ["simulate", "examples/reliability-tree.yaml", "--scheme", "bypass", "--runs", "2", "--duration", "1d"]
    for command, option in ((plan, "--out"), ([*runs, "--json"], "--runs-out")):
        here = CliRunner().invoke(app, command)
        there = CliRunner().invoke(app, [*command, "--spark", server.remote, option, str(tmp_path / command[0])])
        assert there.exit_code == here.exit_code, there.exception
        assert json.loads(there.stdout) == json.loads(here.stdout)
        assert list((tmp_path / command[0]).glob("block=000000/*.parquet"))
    missing = CliRunner().invoke(app, [*plan, "--spark", "local[1]"])
    assert "--spark: name a folder for the results with --out" in str(missing.exception)


def test_a_master_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"--spark mesos: write local\[4\]"), sweep_session("mesos", tmp_path):
        pass
