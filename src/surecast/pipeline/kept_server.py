"""A Spark server that stays between commands, one for each user: started on first use, stopped when nobody uses it.

`surecast pipeline serve` runs it. Where it is, and the token for it, are in a file that only the user can read. Two
locks say the rest, and end with the processes that hold them, however these end: `serving`, held by the server, and
`in-use`, held by the command that uses it. The server takes `in-use` for an instant now and then: as long as it gets
it, nobody is there. It stops while it holds `in-use`, so no command finds a server that is about to go.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from surecast.errors import SurecastError
from surecast.pipeline.run_manifest import code_digest
from surecast.pipeline.spark_session import (
    START_S,
    OutputBusy,
    ServerSettings,
    SparkFailed,
    SparkServer,
    find_java,
    spark_server,
)

__all__ = ["IDLE_S", "KeptServer", "kept_server", "resident_bytes", "serve", "server_folder", "serving", "stop_server"]

IDLE_S: Final = 600.0
FOLDER_VARIABLE: Final = "SURECAST_SERVER_FOLDER"
_SERVER_FILE: Final = "server.json"
_LOG_FILE: Final = "server.log"
_LOOK_S: Final = 0.5
_STOP_S: Final = 60.0
_PROBE_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class KeptServer:
    """A server that runs: for which tables, how it was started, and where it is."""

    pid: int
    """Of the process that keeps Spark, not of Spark."""
    output: str
    settings: dict[str, Any]
    digest: str
    """Of the settings and of the code of the pipeline."""
    server: dict[str, Any]
    idle_s: float

    def spark(self) -> SparkServer:
        """Returns the Spark server that it keeps."""
        return SparkServer(self.server["remote"], self.server["pid"], Path(self.server["log"]))


def server_folder() -> Path:
    """Returns the folder of the user's server; nobody else can look into it."""
    place = os.environ.get(FOLDER_VARIABLE)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(place) if place else cache / "surecast" / "spark-server"


def serving() -> KeptServer | None:
    """Returns the user's server if one runs."""
    folder = server_folder()
    if not (folder / _SERVER_FILE).exists():
        return None
    with _lock(folder / "serving") as has_ended:
        if has_ended:
            return None
    try:
        return KeptServer(**json.loads((folder / _SERVER_FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None  # it is just starting or ending, or is of another version


@contextmanager
def kept_server(output: Path, settings: ServerSettings, idle_s: float = IDLE_S) -> Iterator[SparkServer]:
    """Yields the user's server for these tables and settings, started if there is none; it goes on afterwards.

    A server for other tables, with other settings or of another version is stopped first. While another command uses
    the server, this one starts a server of its own that ends with it.
    """
    find_java()
    output, folder = output.absolute(), server_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with ExitStack() as stack:
        if not stack.enter_context(_lock(folder / "in-use", patience_s=_PROBE_S)):
            running = serving()
            if running is not None and running.output == str(output):
                raise OutputBusy(output)
            yield stack.enter_context(spark_server(output, settings))
            return
        running = serving()
        if running is None or (running.output, running.digest) != (str(output), _digest(settings)):
            _end(folder)
            running = _start(folder, output, settings, idle_s)
        yield running.spark()


def stop_server(output: Path | None = None) -> bool:
    """Stops the user's server, or that of some tables alone, and waits until it has ended; False if there is none.

    An error while a command uses it.
    """
    running = serving()
    if running is None or (output is not None and running.output != str(output.absolute())):
        return False
    folder = server_folder()
    with _lock(folder / "in-use", patience_s=_PROBE_S) as nobody_is_there:
        if not nobody_is_there:
            raise OutputBusy(Path(running.output))
        return _end(folder)


def serve(
    output: Path,
    settings: ServerSettings,
    idle_s: float = IDLE_S,
    told: Callable[[KeptServer], None] = lambda _: None,
) -> str:
    """Runs the server until nobody has used it for `idle_s`; returns why it ended."""
    folder, output = server_folder(), output.absolute()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with ExitStack() as stack:
        if not stack.enter_context(_lock(folder / "serving", patience_s=_PROBE_S)):
            raise SurecastError("a Spark server of this user runs already; stop it with surecast pipeline serve --stop")
        stack.callback((folder / _SERVER_FILE).unlink, missing_ok=True)
        server = stack.enter_context(spark_server(output, settings))
        spark = {"remote": server.remote, "pid": server.pid, "log": str(server.log)}
        kept = KeptServer(os.getpid(), str(output), asdict(settings), _digest(settings), spark, idle_s)
        _write(folder / _SERVER_FILE, kept)
        told(kept)
        used_s = time.monotonic()
        while True:
            time.sleep(_LOOK_S)
            if not _runs(server.pid):
                return f"Spark has ended; its log is {server.log}"
            if not output.is_dir():
                return f"{output} is not there any more"
            with _lock(folder / "in-use") as nobody_is_there:
                if not nobody_is_there:
                    used_s = time.monotonic()
                elif time.monotonic() - used_s >= idle_s:
                    (folder / _SERVER_FILE).unlink(missing_ok=True)
                    return f"nobody has used it for {idle_s:g} s"


def _end(folder: Path) -> bool:
    """Ends the server if there is one, and waits until it has."""
    deadline_s = time.monotonic() + _STOP_S
    is_asked = False
    while time.monotonic() < deadline_s:
        with _lock(folder / "serving") as has_ended:
            if has_ended:
                return is_asked
        running = serving()
        if running is not None and not is_asked:
            is_asked = True
            with suppress(ProcessLookupError):
                os.kill(running.pid, signal.SIGTERM)
        time.sleep(0.1)
    raise SurecastError(f"the Spark server of this user did not end within {_STOP_S:g} s; its log is in {folder}")


def _start(folder: Path, output: Path, settings: ServerSettings, idle_s: float) -> KeptServer:
    log = folder / _LOG_FILE
    with log.open("wb") as opened:
        process = subprocess.Popen(
            _command(output, settings, idle_s),
            stdin=subprocess.DEVNULL,
            stdout=opened,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    deadline_s = time.monotonic() + START_S
    while time.monotonic() < deadline_s:
        running = serving()
        if running is not None and running.pid == process.pid:
            process.returncode = 0  # it goes on after this command, which therefore does not wait for it
            return running
        if process.poll() is not None:
            last_lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()][-3:]
            raise SparkFailed(f"the Spark server did not start: {' / '.join(last_lines)}; its log is {log}")
        time.sleep(0.1)
    process.terminate()
    raise SparkFailed(f"the Spark server did not start within {START_S:g} s; its log is {log}")


def _command(output: Path, settings: ServerSettings, idle_s: float) -> list[str]:
    command = [sys.executable, "-m", "surecast", "pipeline", "serve", "--output", str(output), "--idle", f"{idle_s}s"]
    command += ["--master", settings.master, "--memory", settings.memory]
    if settings.is_brief is not None:
        command += ["--brief" if settings.is_brief else "--no-brief"]
    for name, value in settings.static.items():
        command += ["--conf", f"{name}={value}"]
    return command


def _digest(settings: ServerSettings) -> str:
    return code_digest({**asdict(settings), "python": sys.executable})


@contextmanager
def _lock(path: Path, patience_s: float = 0.0) -> Iterator[bool]:
    """Takes a lock for the time of the block, and says whether it could."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline_s = time.monotonic() + patience_s
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline_s:
                    yield False
                    return
                time.sleep(0.05)
            else:
                yield True
                return
    finally:
        os.close(handle)


def resident_bytes(pid: int) -> int | None:
    """Returns the memory that a process has now; None where the system does not tell."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS:")), None)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        try:
            os.kill(pid, 0)
        except OSError:
            return False
        return True
    return state not in "ZX"


def _write(path: Path, kept: KeptServer) -> None:
    temporary = path.with_suffix(".new")
    temporary.unlink(missing_ok=True)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(asdict(kept), file)
    temporary.replace(path)
