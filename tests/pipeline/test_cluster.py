"""A sweep and the pipeline on a real standalone cluster, a master and two workers; one is killed in the middle."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from tests.pipeline.logs import ZAPS, broker_records, rows_of, subscriber_qos, write_log
from tests.pipeline.network import live_broker

from surecast.errors import ConfigurationError
from surecast.pipeline import ServerSettings, find_java, open_tables, read_table, run_tables
from surecast.pipeline.sweep import Sweep, run_blocks, sweep_session
from surecast.pipeline.sweep_plan import plan_on_spark
from surecast.plan.placement import Constraints, placement_problem, plan_placement
from surecast.scenario import load_system

if TYPE_CHECKING:
    from numpy.typing import NDArray

WAIT_S = 120.0
LOCAL = "127.0.0.1"
LEAN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
STATIC = {
    "spark.driver.host": LOCAL,
    "spark.driver.bindAddress": LOCAL,
    "spark.executor.memory": "512m",
    "spark.executor.defaultJavaOptions": LEAN,
    "spark.driver.defaultJavaOptions": LEAN,
    "spark.default.parallelism": "4",
    # Work begins when both workers are there, so that the one that is killed has some.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
}


@dataclass(frozen=True)
class Cluster:
    master: str
    workers: list[subprocess.Popen[bytes]]


def start(folder: Path, name: str, said: str, *arguments: str) -> tuple[subprocess.Popen[bytes], str]:
    """One part of a cluster, in a process group of its own; and what it says when it is ready."""
    import pyspark

    home = Path(pyspark.__file__).parent
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SPARK")}
    environment |= {"JAVA_HOME": find_java(), "SPARK_HOME": str(home), "SPARK_LOCAL_IP": LOCAL}
    environment |= {"PYSPARK_PYTHON": sys.executable, "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": LEAN}
    log = folder / f"{name}.log"
    with log.open("wb") as opened:
        command = [str(home / "bin" / "spark-class"), *arguments]
        process = subprocess.Popen(command, stdout=opened, stderr=opened, env=environment, start_new_session=True)
    deadline_s = time.monotonic() + WAIT_S
    while time.monotonic() < deadline_s:
        if found := re.search(said, log.read_text(errors="replace")):
            return process, found[0]
        assert process.poll() is None, log.read_text()
        time.sleep(0.1)
    pytest.fail(f"{name} did not start: {log.read_text()[-2000:]}")


def kill(process: subprocess.Popen[bytes]) -> None:
    """A machine that is gone: the process and all that it started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    try:
        find_java()
    except ConfigurationError as error:
        pytest.skip(str(error))
    processes = []
    try:
        package = "org.apache.spark.deploy"
        arguments = [f"{package}.master.Master", "--host", LOCAL, "--port", "0", "--webui-port", "0"]
        master, address = start(tmp_path, "master", rf"spark://{LOCAL}:\d+", *arguments)
        processes.append(master)
        for number in range(2):
            folder = str(tmp_path / f"work{number}")
            worker = [f"{package}.worker.Worker", "--cores", "1", "--memory", "1g", "--host", LOCAL]
            worker += ["--webui-port", "0", "--work-dir", folder, address]
            processes.append(start(tmp_path, f"worker{number}", "Successfully registered", *worker)[0])
        yield Cluster(address, processes[1:])
    finally:
        for process in reversed(processes):
            kill(process)


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
        deadline_s = time.monotonic() + WAIT_S
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
