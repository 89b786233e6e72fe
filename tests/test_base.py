"""The base alone, a wheel in an empty environment, runs a broker, its clients and a group. Nothing is fetched."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackagePath, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parent.parent
BASE_BYTES_MAX = 100_000_000
HEAVY = ("matplotlib", "networkx", "numba", "numpy", "pandas", "plotly", "pyarrow", "pyspark", "scipy")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the command `surecast` of an environment that has the base and nothing else."""
    folder = tmp_path_factory.mktemp("base")
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True, timeout=PATIENCE_S)
    packages = next((environment / "lib").glob("python*/site-packages"))
    pip(
        "--python",
        str(environment / "bin" / "python"),
        "install",
        "--no-deps",
        "--no-compile",
        str(build_wheel(folder)),
    )
    (wheel,) = packages.glob("surecast-*.dist-info")
    copy_requirements((wheel / "METADATA").read_text(encoding="utf-8"), packages)
    return environment / "bin" / "surecast"


def build_wheel(folder: Path) -> Path:
    """Builds the wheel of this checkout from a copy, so that nothing is left in it."""
    source, wheels = folder / "source", folder / "wheels"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(
        ROOT / "src" / "surecast", source / "src" / "surecast", ignore=shutil.ignore_patterns("__pycache__")
    )
    pip("wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", str(wheels), str(source))
    (wheel,) = wheels.iterdir()
    return wheel


def pip(*arguments: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHONPATH"))}
    environment |= {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}
    command = [sys.executable, "-m", "pip", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def copy_requirements(metadata: str, packages: Path) -> None:
    """Copies what the base requires, and what that requires, from the environment of the tests."""
    waiting = [line.partition(": ")[2] for line in metadata.splitlines() if line.startswith("Requires-Dist: ")]
    copied: set[str] = set()
    while waiting:
        requirement = Requirement(waiting.pop())
        is_wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if not is_wanted or requirement.name in copied:
            continue
        assert not requirement.extras, requirement
        copied.add(requirement.name)
        package = distribution(requirement.name)
        for file in package.files or ():
            copy_file(file, packages)
        waiting += package.requires or ()


def copy_file(file: PackagePath, packages: Path) -> None:
    target = packages / file
    if ".." in file.parts or "__pycache__" in file.parts:  # scripts, bytecode
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(Path(str(file.locate())), target)


def run(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *arguments], env=own_environment(), capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


def own_environment() -> dict[str, str]:
    """Returns the variables of this process without those that would lead to another Surecast."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}


@contextmanager
def started(program: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Runs a command in the background, and interrupts it in the end."""
    process = subprocess.Popen(
        [program, *arguments], env=own_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def await_port(port: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S).close()
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError(f"nobody listens at port {port}")


def deliver(program: Path, publish_port: int, subscribe_port: int) -> None:
    """Publishes a retained message at one place and receives it at another."""
    message = ["-t", "shop/orders", "-q", "1"]
    published = run(program, "pub", "-p", str(publish_port), *message, "-m", "42 apples", "-r")
    assert published.returncode == 0, published.stderr
    received = run(program, "sub", "-p", str(subscribe_port), *message, "-C", "1", "-W", "60")
    assert (received.returncode, received.stdout) == (0, "42 apples\n"), received.stderr


def test_the_base_is_small_and_has_no_package_of_an_extra(program: Path) -> None:
    packages = next((program.parents[1] / "lib").glob("python*/site-packages"))
    assert not [name for name in HEAVY if (packages / name).exists()]
    size = sum(file.stat().st_size for file in packages.rglob("*") if file.is_file())
    assert size < BASE_BYTES_MAX, f"{size:,} bytes"


def test_the_base_runs_a_broker_and_clients(program: Path) -> None:
    port = free_port()
    with started(program, "broker", "-p", str(port)):
        await_port(port)
        deliver(program, port, port)
        status = run(program, "broker", "status", "-p", str(port))
        assert "matched    1 = 1 delivered" in status.stdout, status.stderr


def test_the_base_runs_a_group(program: Path, tmp_path: Path) -> None:
    with started(program, "cluster", "up", "-p", "0", "--folder", str(tmp_path / "group"), "--json") as group:
        assert group.stdout is not None
        lines = []
        for line in group.stdout:
            lines.append(line)
            if line == "}\n":
                break
        ports = [int(address.rpartition(":")[2]) for address in json.loads("".join(lines))["mqtt"]]
        assert len(ports) == 3
        deliver(program, ports[0], ports[1])


def test_the_base_says_which_extra_a_prediction_needs(program: Path) -> None:
    done = run(program, "predict", "shop.yaml")
    assert done.returncode == 1
    assert done.stderr == "error: this needs numpy, which is not installed; run: pip install 'surecast[models]'\n"


def test_the_base_says_which_extra_a_program_needs(program: Path) -> None:
    command = [program.with_name("python"), "-c", "from surecast import Scenario"]
    done = subprocess.run(
        command, env=own_environment(), capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 1
    assert "ModuleNotFoundError: this needs numpy, which is not installed; run: pip install" in done.stderr
