"""A sweep on a real standalone cluster, a master and two workers; one worker is killed in the middle."""

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

from surecast.errors import ConfigurationError
from surecast.pipeline import ServerSettings, find_java
from surecast.pipeline.sweep import Sweep, run_blocks, sweep_session
from surecast.pipeline.sweep_plan import plan_on_spark
from surecast.plan.placement import Constraints, placement_problem, plan_placement
from surecast.scenario import load_system

if TYPE_CHECKING:
    from numpy.typing import NDArray

WAIT_S = 120.0
LOCAL = "127.0.0.1"
LEAN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


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
    static = {
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
    with sweep_session(cluster.master, tmp_path / "spark", ServerSettings(static=static)) as spark:
        killer = threading.Thread(target=kill_one)
        killer.start()
        sweep = Sweep(str(tmp_path / "squares"), "squares", 8, 8, "number BIGINT, square BIGINT")
        rows = run_blocks(spark, sweep, slow_squares(marks)).collect()  # type: ignore[arg-type]
        killer.join()
        assert sorted((row["number"], row["square"]) for row in rows) == [(n, n * n) for n in range(8)]
        begun = Counter(mark.name.partition("-")[0] for mark in marks.iterdir())
        assert max(begun.values()) > 1  # what the killed worker had begun was done again
        there = plan_on_spark(spark, problem, str(tmp_path / "cases"), constraints=limits, algorithms=algorithms)
    assert cluster.workers[0].poll() is not None
    here = plan_placement(problem, constraints=limits, algorithms=algorithms)
    assert (there.best, there.front, there.feasible_count) == (here.best, here.front, here.feasible_count)
