"""Code and environments go to workers that have neither: on a real cluster, with nothing shared but a storage URL."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from tests.pipeline.cluster import STATIC, standalone_cluster
from tests.pipeline.logs import ZAPS, broker_records, rows_of, subscriber_qos, write_log

from surecast.errors import ConfigurationError
from surecast.pipeline import ServerSettings, connect, open_tables, read_table, run_tables
from surecast.pipeline.ship import main, pack_code, pack_environment, requirements
from surecast.pipeline.spark_sweep import Sweep, run_blocks
from surecast.pipeline.sweep_plan import plan_on_spark
from surecast.planning.placement import Constraints, placement_problem, plan_placement
from surecast.scenario import load_system

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

COMPANY = Path(__file__).parents[2] / "examples" / "company.yaml"
WHERE = pa.schema([("number", pa.int64()), ("python", pa.string()), ("code", pa.string())])


def bare_environment(folder: Path, *, has_dependencies: bool) -> str:
    """An environment without Surecast, and with nothing at all or what Surecast depends on; its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    if has_dependencies:
        (site,) = folder.glob("lib/python*/site-packages")
        for path in Path(sysconfig.get_path("purelib")).iterdir():
            if path.suffix != ".pth" and "surecast" not in path.name and path.name not in ("pyspark", "tests"):
                (site / path.name).symlink_to(path)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    tried = subprocess.run([python, "-c", "import surecast"], env=clean, cwd=folder, capture_output=True, check=False)
    assert b"No module named 'surecast'" in tried.stderr
    return python


def whereabouts() -> Callable[[NDArray[np.int64]], pa.Table]:
    """Which interpreter a worker runs, and where it has the code from."""

    def evaluate(numbers: NDArray[np.int64]) -> pa.Table:
        import surecast

        same = {"python": sys.executable, "code": surecast.__file__}
        return pa.table({"number": pa.array(numbers), **{k: pa.array([v] * len(numbers)) for k, v in same.items()}})

    return evaluate


def work_there(master: str, static: dict[str, str], folder: Path, *, plans: bool) -> list[dict[str, str]]:
    """The pipeline, and if wanted a plan, on a cluster, held against this process; and where workers had the code."""
    logs, output, storage = folder / "logs", folder / "output", f"file://{folder}/storage"
    write_log(logs / "b1", broker_records(1, 60))
    (logs / "evening.zap").write_text("".join(f"{line}\n" for line in ZAPS), encoding="utf-8")
    settings = ServerSettings(master, static={**STATIC, **static, "spark.sql.warehouse.dir": f"{storage}/tables"})
    with open_tables(output, settings) as (spark, _):
        sweep = Sweep(f"{storage}/where", "where", 4, 4, WHERE)
        found: list[dict[str, str]] = run_blocks(spark, sweep, whereabouts()).to_table().to_pylist()
        report = run_tables(spark, [str(logs)], output, storage=f"{storage}/state", statistics=["subscriber_qos"])
        rows = rows_of(logs / "b1")
        assert (report.records, report.duplicates) == (len(rows) + len(ZAPS), 1)
        qos = {row["client"]: row for row in read_table(spark, "subscriber_qos", 10)}
        assert {client: row["on_time"] for client, row in qos.items()} == {
            client: values["on_time"] for client, values in subscriber_qos(rows).items()
        }
        if plans:
            scenario, system = load_system(COMPANY)
            problem, limits = placement_problem(system, scenario), Constraints(max_brokers=2)
            there = plan_on_spark(spark, problem, f"{storage}/cases", constraints=limits, algorithms=["flooding"])
            here = plan_placement(problem, constraints=limits, algorithms=["flooding"])
            assert (there.best, there.front, there.feasible_count) == (here.best, here.front, here.feasible_count)
    assert (folder / "storage" / "state").is_dir()
    assert (folder / "storage" / "tables" / "subscriber_qos").is_dir()
    assert not (output / "checkpoints").exists()
    return found


@pytest.mark.long
def test_code_goes_to_workers_that_have_the_dependencies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = bare_environment(tmp_path / "theirs", has_dependencies=True)
    pack_code(tmp_path / "surecast.zip")
    monkeypatch.chdir(tmp_path)
    static = {"spark.submit.pyFiles": "surecast.zip", "spark.pyspark.python": python}
    with standalone_cluster(tmp_path, "/nowhere/python") as cluster:
        found = work_there(cluster.master, static, tmp_path, plans=True)
    assert {row["python"] for row in found} == {python}
    works = [str(tmp_path / f"work{number}") for number in range(2)]
    assert all(row["code"].startswith(tuple(works)) and "surecast.zip" in row["code"] for row in found)


@pytest.mark.long
def test_an_environment_goes_to_workers_that_have_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pack_environment(tmp_path / "environment.tar.gz")
    monkeypatch.chdir(tmp_path)
    static = {"spark.archives": "environment.tar.gz#environment", "spark.pyspark.python": "environment/bin/python"}
    with standalone_cluster(tmp_path, bare_environment(tmp_path / "theirs", has_dependencies=False)) as cluster:
        found = work_there(cluster.master, static, tmp_path, plans=False)
    for row in found:
        assert "/environment/site-packages/surecast/" in row["code"]
        assert any(row["code"].startswith(str(tmp_path / f"work{number}")) for number in range(2))


def test_what_is_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main([str(tmp_path / "surecast.zip")])
    with zipfile.ZipFile(tmp_path / "surecast.zip") as packed:
        names = set(packed.namelist())
    assert {"surecast/__init__.py", "surecast/pipeline/input_source.py", "pyspark_surecast/__init__.py"} <= names
    assert not any("__pycache__" in name for name in names)
    assert {"numpy", "pyarrow", "pandas", "pyspark", "pydantic-core"} <= requirements()
    assert not {"pytest", "ruff", "mypy"} & requirements()
    monkeypatch.setattr("surecast.pipeline.ship.requirements", lambda: {"surecast", "pyspark", "networkx"})
    main([str(tmp_path / "environment.tar.gz")])
    with tarfile.open(tmp_path / "environment.tar.gz") as environment:
        names = set(environment.getnames())
        environment.extractall(tmp_path, filter="tar")
    assert {"site-packages/surecast/__init__.py", "site-packages/networkx/__init__.py"} <= names
    assert not any("pyspark/" in name for name in names)
    asked = "import networkx, surecast; print(networkx.__file__, surecast.__file__)"
    told = subprocess.run([tmp_path / "bin" / "python", "-c", asked], capture_output=True, text=True, check=True)
    assert told.stdout.split() == [
        str(tmp_path / "site-packages" / name / "__init__.py") for name in ("networkx", "surecast")
    ]
    with pytest.raises(ConfigurationError, match=r"write a name that ends in \.zip"):
        main([str(tmp_path / "surecast.tar")])


def test_code_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"spark\.submit\.pyFiles .*none\.zip: there is no such file"):
        connect("sc://localhost:1", [str(tmp_path / "none.zip")])
