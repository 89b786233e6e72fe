"""The set-up script: clear refusals, and pins that fit together (a real Spark session included)."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def setup() -> ModuleType:
    spec = importlib.util.spec_from_file_location("surecast_setup", ROOT / "tools" / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fake(folder: Path, name: str, output: str) -> Path:
    program = folder / name
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{output}\nEND\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize("version", ["3 9", "3 15", "2 7"])
def test_a_python_that_is_too_old_or_too_new_is_refused(version: str, tmp_path: Path) -> None:
    fake(tmp_path, "python3", version + "\n/usr/bin/python3")
    environment = {"PATH": f"{tmp_path}:/bin:/usr/bin", "PYTHON": "python3"}
    command = [sys.executable, str(ROOT / "tools" / "setup.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1
    assert f"needs Python 3.11 to 3.14; python3 is {version.replace(' ', '.')}" in done.stderr


def test_a_second_run_does_nothing(setup: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the stamp of the same files and version in place, nothing is installed again."""
    calls: list[str] = []
    for name in ("VENV", "STAMP", "JAVA_HOME_FILE"):
        monkeypatch.setattr(setup, name, str(tmp_path / Path(getattr(setup, name)).relative_to(ROOT)))
    monkeypatch.setattr(setup, "make_venv", lambda *_: (tmp_path / ".venv" / "bin").mkdir(parents=True))
    monkeypatch.setattr(setup, "install_packages", lambda: fake(tmp_path / ".venv" / "bin", "surecast", "installed"))
    monkeypatch.setattr(setup, "compile_kernels", lambda: calls.append("kernels"))
    monkeypatch.setattr(setup, "find_java", lambda: calls.append("java") or "/java")
    setup.set_up()
    setup.set_up()
    assert calls == ["kernels", "java"]
    assert (tmp_path / ".venv" / "java-home").read_text() == "/java"


def test_only_what_is_installed_is_installed_again(setup: ModuleType) -> None:
    """A change of a linter's or a test's options is none of what is installed."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    part = setup.installed_sections(text)
    assert setup.installed_sections(text.replace("strict = true", "strict = false")) == part
    assert setup.installed_sections(f"{text}\n[[tool.importlinter.contracts]]\nid = 'more'\n") == part
    for name in ("requires =", "dependencies =", "models =", "surecast =", "where ="):
        assert name in part
        assert setup.installed_sections(text.replace(name, f"other-{name}")) != part
    assert "[tool.setuptools.package-data]" in part
    assert not re.search(r"tool\.(?!setuptools)", part)


def test_the_environment_is_never_made_with_its_own_interpreter(setup: ModuleType) -> None:
    version, base = setup.inspect_python(sys.executable)
    assert version == sys.version_info[:2]
    assert not Path(base).is_relative_to(ROOT / ".venv")


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "25" x', 25),
        ("?", 0),
    ],
)
def test_java_versions(setup: ModuleType, text: str, version: int, tmp_path: Path) -> None:
    assert setup.java_version(str(fake(tmp_path, "java", text))) == version


def test_java_is_found_by_its_home(setup: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(tmp_path, "bin/java", 'openjdk version "21.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert setup.find_java() == str(tmp_path)


def test_every_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(d for extra in project["optional-dependencies"].values() for d in extra)]
    names = {d.split(">")[0].split("[")[0].split("=")[0].split(";")[0].lower() for d in wanted} - {project["name"]}
    lines = (ROOT / "constraints.txt").read_text().split()
    pinned = {line.split("==")[0].lower() for line in lines}
    assert names <= pinned
    assert all("==" in line and "://" not in line for line in lines)


@pytest.mark.long
def test_the_pins_run_a_spark_session(tmp_path: Path) -> None:
    """Java, PySpark, pandas and PyArrow of the set-up work together, in a process of their own."""
    pytest.importorskip("pyspark")
    code = """
import os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual
spark = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
         .config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
         .config("spark.sql.shuffle.partitions", "1").getOrCreate())
frame = spark.range(3)
assertDataFrameEqual(frame, spark.createDataFrame([(0,), (1,), (2,)], "id long"))
assert frame.toPandas()["id"].sum() == 3
spark.stop()
print("spark works")
"""
    # Whatever a Spark session of this process has left in the environment is none of this one's business.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    if "JAVA_HOME is not set" in done.stderr or "java: not found" in done.stderr:
        pytest.skip("no Java 17 or later: install it, remove .venv, and run make test again")
    assert "spark works" in done.stdout, done.stderr[-3000:]
