"""Processor time and elapsed time until Surecast answers: its imports, its commands, a broker, a prediction.

    python -m benchmarks.startup                     medians of seven runs each
    python -m benchmarks.startup --source DIR/src    of another checkout, with the packages of this environment
    python -m benchmarks.startup --python PROGRAM    of what is installed in another environment

A broker is measured from the start of its process to the CONNACK of its first client. With --kernels a prediction is
measured with an empty folder of compiled kernels too.
"""

from __future__ import annotations

import argparse
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.broker.contestants import HOST, processor_s

from surecast.broker.free_ports import free_port

MODULES = (
    "surecast",
    "surecast.client",
    "surecast.broker.broker_service",
    "surecast.broker.group_run",
    "surecast.scenario",
)
TEMPLATE = "minimal"
CONNECT = bytes.fromhex("100d 0004 4d515454 04 02 003c 0001 73")
CONNACK = bytes.fromhex("20020000")
LONGEST_S = 300.0


@dataclass(frozen=True)
class Cost:
    processor_s: float
    elapsed_s: float


@dataclass(frozen=True)
class Installation:
    """The interpreter and the environment variables that run the Surecast to measure."""

    python: str
    environment: Mapping[str, str]

    def command(self, *arguments: str) -> list[str]:
        return [self.python, "-m", "surecast", *arguments]


def run_once(installation: Installation, command: Sequence[str], **variables: str) -> Cost:
    """Runs a command to its end."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    environment = {**installation.environment, **variables}
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=LONGEST_S)
    after, end = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    return Cost(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, end - start)


def first_connack(installation: Installation) -> Cost:
    """Starts a broker in memory and connects until it answers."""
    port = free_port()
    command = installation.command("broker", "--port", str(port), "--log-level", "error")
    start = time.monotonic()
    with subprocess.Popen(command, env=installation.environment, stderr=subprocess.DEVNULL) as process:
        try:
            _connect(port, start + LONGEST_S)
            return Cost(processor_s(process.pid), time.monotonic() - start)
        finally:
            process.terminate()


def _connect(port: int, deadline: float) -> None:
    while time.monotonic() < deadline:
        try:
            with socket.create_connection((HOST, port)) as connection:
                connection.sendall(CONNECT)
                if connection.recv(len(CONNACK), socket.MSG_WAITALL) == CONNACK:
                    return
        except ConnectionRefusedError:
            time.sleep(0.005)
    raise TimeoutError(f"no broker answered at port {port}")


def measure(name: str, count: int, once: Callable[[], Cost]) -> None:
    """Prints the medians of some runs; the first, which fills caches, is not counted unless it is the only one."""
    if count > 1:
        once()
    costs = [once() for _ in range(count)]
    processor = statistics.median(cost.processor_s for cost in costs)
    elapsed = statistics.median(cost.elapsed_s for cost in costs)
    print(f"{name:<44} {processor:8.3f} {elapsed:8.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, default=Path(__file__).resolve().parents[1] / "src")
    parser.add_argument("--python", help="interpreter of an environment in which Surecast is installed")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--kernels", action="store_true", help="also the first prediction, which compiles kernels")
    options = parser.parse_args()
    # Bytecode is kept, as it is wherever Surecast was installed.
    unset = ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "NUMBA_CACHE_DIR")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    if options.python is None:
        environment["PYTHONPATH"] = str(options.source)
    installation = Installation(options.python or sys.executable, environment)
    print(f"{'':<44} {'cpu s':>8} {'wall s':>8}")
    commands = {f"import {module}": [installation.python, "-c", f"import {module}"] for module in MODULES}
    for arguments in (["--version"], ["--help"], ["broker", "--help"]):
        commands[f"surecast {' '.join(arguments)}"] = installation.command(*arguments)
    for name, command in commands.items():
        measure(name, options.runs, partial(run_once, installation, command))
    measure("surecast broker, to the first CONNACK", options.runs, partial(first_connack, installation))
    with tempfile.TemporaryDirectory() as folder:
        scenario = str(Path(folder) / "scenario.yaml")
        run_once(installation, installation.command("scenario", "new", scenario, "--template", TEMPLATE))
        predict = installation.command("predict", scenario)
        if options.kernels:
            once = partial(run_once, installation, predict, NUMBA_CACHE_DIR=folder)
            measure("surecast predict, kernels compiled", 1, once)
        measure("surecast predict, kernels kept", options.runs, partial(run_once, installation, predict))


if __name__ == "__main__":
    main()
