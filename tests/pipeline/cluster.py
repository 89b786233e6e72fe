"""A real standalone cluster for tests: a master and two workers, each in a process group and a folder of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from tests.patience import PATIENCE_S

from surecast.errors import ConfigurationError
from surecast.pipeline import find_java

LOCAL: Final = "127.0.0.1"
LEAN: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m"
STATIC: Final = {
    "spark.driver.host": LOCAL,
    "spark.driver.bindAddress": LOCAL,
    "spark.executor.memory": "512m",
    "spark.executor.defaultJavaOptions": LEAN,
    "spark.driver.defaultJavaOptions": LEAN,
    "spark.default.parallelism": "4",
    # Work begins when both workers are there, so that each has some.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
}


@dataclass(frozen=True)
class Cluster:
    master: str
    workers: list[subprocess.Popen[bytes]]


def start(folder: Path, name: str, said: str, *arguments: str, python: str) -> tuple[subprocess.Popen[bytes], str]:
    """One part of a cluster; and what it says when it is ready."""
    import pyspark

    home = Path(pyspark.__file__).parent
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK", "PYTHON"))}
    environment |= {"JAVA_HOME": find_java(), "SPARK_HOME": str(home), "SPARK_LOCAL_IP": LOCAL}
    environment |= {"PYSPARK_PYTHON": python, "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": LEAN}
    log, place = folder / f"{name}.log", folder / name
    place.mkdir()
    with log.open("wb") as opened:
        command = [str(home / "bin" / "spark-class"), *arguments]
        process = subprocess.Popen(
            command, stdout=opened, stderr=opened, env=environment, cwd=place, start_new_session=True
        )
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        if found := re.search(said, log.read_text(errors="replace")):
            return process, found[0]
        assert process.poll() is None, log.read_text()
        time.sleep(0.1)
    kill(process)
    pytest.fail(f"{name} did not start: {log.read_text()[-2000:]}")


def kill(process: subprocess.Popen[bytes]) -> None:
    """A machine that is gone: the process and all that it started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def standalone_cluster(folder: Path, python: str = sys.executable) -> Iterator[Cluster]:
    """Runs a master and two workers; `python` is what workers run where nobody says another one."""
    try:
        find_java()
    except ConfigurationError as error:
        pytest.skip(str(error))
    processes = []
    try:
        package = "org.apache.spark.deploy"
        arguments = [f"{package}.master.Master", "--host", LOCAL, "--port", "0", "--webui-port", "0"]
        master, address = start(folder, "master", rf"spark://{LOCAL}:\d+", *arguments, python=python)
        processes.append(master)
        for number in range(2):
            worker = [f"{package}.worker.Worker", "--cores", "1", "--memory", "1g", "--host", LOCAL]
            worker += ["--webui-port", "0", "--work-dir", str(folder / f"work{number}"), address]
            started, _ = start(folder, f"worker{number}", "Successfully registered", *worker, python=python)
            processes.append(started)
        yield Cluster(address, processes[1:])
    finally:
        for process in reversed(processes):
            kill(process)
