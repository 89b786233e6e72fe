"""A sweep and the pipeline on a real standalone cluster, a master and two workers; one is killed in the middle."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from tests.patience import PATIENCE_S
from tests.pipeline.cluster import STATIC, Cluster, kill, standalone_cluster
from tests.pipeline.logs import ZAPS, broker_records, rows_of, subscriber_qos, write_log
from tests.pipeline.network import live_broker

from surecast.pipeline import ServerSettings, open_tables, read_table, run_tables
from surecast.pipeline.spark_sweep import Sweep, run_blocks, sweep_session
from surecast.pipeline.sweep_plan import plan_on_spark
from surecast.planning.placement import Constraints, placement_problem, plan_placement
from surecast.scenario import load_system

if TYPE_CHECKING:
    from numpy.typing import NDArray


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with standalone_cluster(tmp_path) as started:
        yield started


def slow_squares(folder: Path) -> object:
    """Numbers and their squares, with a mark on disk for every task that has begun."""

    def evaluate(numbers: NDArray[np.int64]) -> pa.Table:
        (folder / f"{numbers[0]}-{os.getpid()}").touch()
        time.sleep(2.0)
        return pa.table({"number": pa.array(numbers), "square": pa.array(numbers * numbers)})

    return evaluate


@pytest.mark.long
def test_a_killed_worker_changes_nothing(cluster: Cluster, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()

    def kill_one() -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while len({mark.name.partition("-")[2] for mark in marks.iterdir()}) < 2 and time.monotonic() < deadline_s:
            time.sleep(0.05)
        kill(cluster.workers[0])

    scenario, system = load_system("examples/company.yaml")
    problem = placement_problem(system, scenario)
    limits, algorithms = Constraints(max_brokers=2), ["flooding", "peer-to-peer covering"]
    with sweep_session(cluster.master, tmp_path / "spark", ServerSettings(static=STATIC)) as spark:
        killer = threading.Thread(target=kill_one)
        killer.start()
        schema = pa.schema([("number", pa.int64()), ("square", pa.int64())])
        sweep = Sweep(str(tmp_path / "squares"), "squares", 8, 8, schema)
        rows = run_blocks(spark, sweep, slow_squares(marks)).to_table().to_pylist()  # type: ignore[arg-type]
        killer.join()
        assert sorted((row["number"], row["square"]) for row in rows) == [(n, n * n) for n in range(8)]
        begun = Counter(mark.name.partition("-")[0] for mark in marks.iterdir())
        assert max(begun.values()) > 1  # what the killed worker had begun was done again
        there = plan_on_spark(spark, problem, str(tmp_path / "cases"), constraints=limits, algorithms=algorithms)
    assert cluster.workers[0].poll() is not None
    here = plan_placement(problem, constraints=limits, algorithms=algorithms)
    assert (there.best, there.front, there.feasible_count) == (here.best, here.front, here.feasible_count)


@pytest.mark.long
def test_the_pipeline_goes_on_without_a_worker(cluster: Cluster, tmp_path: Path) -> None:
    """Tables, state of streams and a log over the network; the worker dies when half of the tables are to be made."""
    logs, output = tmp_path / "logs", tmp_path / "output"
    write_log(logs / "b1", broker_records(1, 60))
    (logs / "evening.zap").write_text("".join(f"{line}\n" for line in ZAPS), encoding="utf-8")

    def kill_one(table: str, state: str) -> None:
        if (table, state) == ("broker_events", "running"):
            kill(cluster.workers[0])

    settings = ServerSettings(cluster.master, static=STATIC)
    with live_broker(tmp_path) as live, open_tables(output, settings) as (spark, _):
        inputs = [str(logs), live.url]
        live.serve(6)
        first = run_tables(spark, inputs, output, access=live.access, progress=kill_one)
        assert cluster.workers[0].poll() is not None
        live.serve(3)
        second = run_tables(spark, inputs, output, access=live.access)
        rows, heard = rows_of(logs / "b1"), rows_of(live.log)
        assert (first.duplicates, second.duplicates) == (1, 1)
        assert second.records == len(rows) + len(heard) + len(ZAPS)
        assert second.records - first.records == second.new_records > 0
        expected = subscriber_qos(rows) | subscriber_qos(heard)
        found = {row["client"]: row for row in read_table(spark, "subscriber_qos", 10)}
        assert found.keys() == expected.keys()
        for client, values in expected.items():
            for name, value in values.items():
                assert found[client][name] == pytest.approx(value, abs=1e-6), (client, name)
