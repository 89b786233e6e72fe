"""The server that stays between commands, with a program that only waits in place of Spark."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.patience import PATIENCE_S
from typer.testing import CliRunner

from surecast.cli.app import app
from surecast.errors import SurecastError
from surecast.pipeline import OutputBusy, ServerSettings, SparkFailed, open_tables
from surecast.pipeline import kept_server as module
from surecast.pipeline.kept_server import kept_server, serving, stop_server

WAITER = """
import signal, subprocess, sys
from contextlib import contextmanager
from pathlib import Path
from surecast.pipeline import ServerSettings, SparkServer, kept_server

@contextmanager
def spark_server(output, settings):
    if output.name == "broken":
        sys.exit("Spark is not well")
    process = subprocess.Popen(["sleep", "60"])
    try:
        yield SparkServer("sc://localhost:1/;token=secret", process.pid, output / "server.log")
    finally:
        process.terminate()
        process.wait()

def end(*_):
    sys.exit(0)

signal.signal(signal.SIGTERM, end)
kept_server.spark_server = spark_server
kept_server.serve(Path(sys.argv[1]), ServerSettings(memory=sys.argv[2]), float(sys.argv[3]))
"""


def wait_until(holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    place = tmp_path / "user"
    monkeypatch.setenv("SURECAST_SERVER_FOLDER", str(place))
    monkeypatch.setattr(module, "find_java", lambda: "java")

    def command(output: Path, settings: ServerSettings, idle_s: float) -> list[str]:
        return [sys.executable, "-c", WAITER, str(output), settings.memory, str(idle_s)]

    monkeypatch.setattr(module, "_command", command)
    (tmp_path / "tables").mkdir()
    (tmp_path / "others").mkdir()
    yield place
    stop_server()
    assert serving() is None


def test_a_server_is_started_once_and_used_again(tmp_path: Path, folder: Path) -> None:
    output = tmp_path / "tables"
    assert not stop_server()
    assert not folder.exists()
    with kept_server(output, ServerSettings()) as first:
        pass
    with kept_server(output, ServerSettings()) as second:
        assert second == first
    running = serving()
    assert running is not None
    assert is_there(first.pid)
    secret = folder / "server.json"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert json.loads(secret.read_text())["server"]["remote"].endswith("token=secret")
    assert stop_server()
    assert not is_there(first.pid)
    assert not secret.exists()
    wait_until(lambda: not is_there(running.pid))


def test_another_output_other_settings_or_another_version_end_it(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = []
    for output, memory in (("tables", "1g"), ("others", "1g"), ("others", "2g")):
        with kept_server(tmp_path / output, ServerSettings(memory=memory)) as server:
            assert not any(is_there(pid) for pid in pids)
            pids.append(server.pid)
    saved = folder / "server.json"
    saved.write_text(saved.read_text().replace('"digest": "', '"digest": "old'))
    with kept_server(tmp_path / "others", ServerSettings(memory="2g")) as server:
        pids.append(server.pid)
    assert len({*pids}) == 4
    assert not stop_server(tmp_path / "tables")
    assert stop_server(tmp_path / "others")


def test_it_ends_when_nobody_uses_it(tmp_path: Path, folder: Path) -> None:
    with kept_server(tmp_path / "tables", ServerSettings(), idle_s=1.0) as server:
        time.sleep(2.5)
        assert is_there(server.pid)
    wait_until(lambda: not is_there(server.pid))
    assert not stop_server()
    with kept_server(tmp_path / "tables", ServerSettings()) as again:
        assert again.pid != server.pid
        with pytest.raises(OutputBusy), kept_server(tmp_path / "tables", ServerSettings()):
            pass
        with pytest.raises(OutputBusy):
            stop_server()


@pytest.mark.parametrize("killed", ["the process that keeps it", "Spark"])
def test_one_that_was_killed_is_started_anew(killed: str, tmp_path: Path, folder: Path) -> None:
    with kept_server(tmp_path / "tables", ServerSettings()) as server:
        pass
    running = serving()
    assert running is not None
    os.kill(server.pid if killed == "Spark" else running.pid, signal.SIGKILL)
    wait_until(lambda: serving() is None)
    with kept_server(tmp_path / "tables", ServerSettings()) as again:
        assert again.pid != server.pid
        assert is_there(again.pid)
    if killed != "Spark":
        os.kill(server.pid, signal.SIGKILL)  # a real server has a guard, which ends it


def test_it_ends_with_its_tables(tmp_path: Path, folder: Path) -> None:
    with kept_server(tmp_path / "tables", ServerSettings()) as server:
        pass
    (tmp_path / "tables").rmdir()
    wait_until(lambda: not is_there(server.pid))


def test_a_server_that_does_not_start_says_why(tmp_path: Path, folder: Path) -> None:
    problem = pytest.raises(SparkFailed, match="did not start: Spark is not well; its log is")
    with problem, kept_server(tmp_path / "broken", ServerSettings()):
        pass


def test_there_is_one_for_each_user(tmp_path: Path, folder: Path) -> None:
    with kept_server(tmp_path / "tables", ServerSettings()):
        pass
    with pytest.raises(SurecastError, match="runs already"):
        module.serve(tmp_path / "others", ServerSettings())


def test_a_command_beside_one_that_uses_it_has_its_own(tmp_path: Path, folder: Path) -> None:
    script = WAITER.replace("kept_server.serve(Path(sys.argv[1])", "end = kept_server.kept_server(Path(sys.argv[1])")
    script = script.rpartition("end =")[0] + (
        "\nkept_server.find_java = lambda: ''\nwith kept_server.kept_server(Path(sys.argv[1]), ServerSettings()) as s:"
        "\n    print(s.pid, flush=True)"
    )
    with kept_server(tmp_path / "tables", ServerSettings()) as server:
        command = [sys.executable, "-c", script, str(tmp_path / "others")]
        told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout
        assert int(told) != server.pid
        assert not is_there(int(told))
        assert is_there(server.pid)


def test_commands_keep_the_server_unless_they_are_told_not_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class KeptError(Exception):
        pass

    class OwnError(Exception):
        pass

    def raise_error(error: type[Exception]) -> Callable[..., None]:
        def start(*_: object) -> None:
            raise error

        return start

    monkeypatch.setattr("surecast.pipeline.pipeline_run.kept_server", raise_error(KeptError))
    monkeypatch.setattr("surecast.pipeline.pipeline_run.spark_server", raise_error(OwnError))
    monkeypatch.delenv("SURECAST_NO_SERVER")
    (tmp_path / "metastore").mkdir()
    (tmp_path / "evening.zap").write_text("")
    run = ["pipeline", "run", "--input", str(tmp_path / "evening.zap"), "--output", str(tmp_path / "tables")]
    learn = ["learn", "--tables", str(tmp_path)]

    def started(*command: str) -> type[BaseException] | None:
        return type(CliRunner().invoke(app, command).exception)

    assert (started(*run), started(*learn)) == (KeptError, KeptError)
    assert (started(*run, "--no-server"), started(*learn, "--no-server")) == (OwnError, OwnError)
    assert started(*run, "--master", "spark://localhost:7077") == OwnError
    monkeypatch.setenv("SURECAST_NO_SERVER", "1")
    assert started(*run) == OwnError
    with pytest.raises(OwnError), open_tables(tmp_path):
        pass
