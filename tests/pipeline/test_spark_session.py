"""Starting and stopping Spark, what is said when it cannot be, and a run that is killed."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.patience import PATIENCE_S
from typer.testing import CliRunner

from surecast.cli.pipeline import app
from surecast.errors import ConfigurationError
from surecast.pipeline import OutputBusy, ServerSettings, SparkFailed, connect, find_java, spark_server
from surecast.pipeline.spark_session import _driver_python


def test_without_java_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match=r"Spark needs Java 17 or later, and .* has none\. Install it"):
        find_java()


def test_an_old_java_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere:/bin")
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(ConfigurationError, match="has Java 8"):
        find_java()


def test_spark_starts_python_with_the_installed_pyspark(tmp_path: Path) -> None:
    """Spark's own copy has no compiled code, and a stream whose Python does not answer in ten seconds fails."""
    import pyspark

    library = Path(pyspark.__file__).parent / "python" / "lib"
    (tmp_path / "with space").mkdir()
    paths = [library / "pyspark.zip", tmp_path / "with space", *library.glob("py4j-*.zip"), tmp_path / "spark.jar"]
    asked = "import os, sys, pyspark; print(os.environ['PYTHONPATH'], pyspark.__file__, sys.argv[1:], sep='|')"
    command = [str(_driver_python(tmp_path)), "-c", asked, "a b", "*"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == f"{tmp_path / 'with space'}|{pyspark.__file__}|['a b', '*']"


def test_an_output_in_use_is_refused(tmp_path: Path) -> None:
    with (tmp_path / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(OutputBusy, match="another run is using this output"), spark_server(tmp_path):
            pass


def test_what_spark_says_when_it_does_not_start(tmp_path: Path) -> None:
    settings = ServerSettings("local[1]", memory="1")  # a byte
    with pytest.raises(SparkFailed, match=r"Spark did not start: .*server\.log"), spark_server(tmp_path, settings):
        pass


def test_a_remote_that_is_none() -> None:
    with pytest.raises(ConfigurationError, match="write the address of a Spark Connect server"):
        connect("spark://localhost:7077")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "--input", "nothing-here", "--output", "o"], "nothing-here: there is no such file or folder"),
        (["run", "--input", ".", "--output", "o", "--window", "0s"], "--window 0s: give a time above 0"),
        (["run", "--input", ".", "--output", "o", "--master", "mesos"], "--master mesos: write local[2]"),
        (["run", "--input", ".", "--output", "o", "--conf", "x"], "--conf x: write --conf NAME=VALUE"),
        (
            ["run", "--input", ".", "--output", "o", "--remote", "sc://h", "--master", "local[1]"],
            "--remote: the server",
        ),
        (["run", "--input", ".", "--output", "o", "--storage", "state"], "--storage state: write a URL that all"),
        (["run", "--input", "http://b", "--output", "o", "--token-file", "t"], "--token-file t: the token cannot be"),
        (["run", "--input", "http://me:x@b", "--output", "o"], "url b: leave user and password out of the address"),
        (["show", "broker_accounts", "--output", "o"], "--output o: there are no tables"),
    ],
)
def test_mistakes_are_refused_before_spark_starts(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = CliRunner().invoke(app, arguments)
    assert isinstance(answer.exception, ConfigurationError)
    assert said in str(answer.exception)


def test_tables_are_listed_without_spark() -> None:
    answer = CliRunner().invoke(app, ["tables", "--json"])
    assert answer.exit_code == 0
    assert "quarantine" in json.loads(answer.output)


def test_the_guard_ends_its_command_when_its_starter_is_gone(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "surecast.pipeline.guard", "sleep", "600"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        pid = int(process.stdout.readline())
        os.kill(pid, 0)
        process.stdin.close()
        assert process.wait(PATIENCE_S) == -signal.SIGTERM % 256 or process.returncode
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    pytest.fail("the command goes on")
