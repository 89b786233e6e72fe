"""Brokers for tests: in this process on a loop of their own, or as real processes; and certificates."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

SURECAST = Path(sys.executable).parent / "surecast"


class Process:
    """A broker as a process, with its log lines."""

    def __init__(self, *arguments: str | Path, port: int = 0):
        command = [SURECAST, "broker", "--port", str(port), "--log-format", "json", *arguments]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        self.lines: list[dict[str, Any]] = []
        self._more = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.started = self.wait_for("started")

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._more:
                data = json.loads(line) if line.startswith("{") else {"event": "text", "text": line}
                self.lines.append(data)
                self._more.notify_all()
        with self._more:
            self.lines.append({"event": "end of log"})
            self._more.notify_all()

    def wait_for(self, event: str, after: int = 0) -> dict[str, Any]:
        """The first line of an event."""

        def found() -> dict[str, Any] | None:
            return next((line for line in self.lines[after:] if line["event"] in (event, "end of log")), None)

        with self._more:
            assert self._more.wait_for(found, timeout=20), f"no {event} in {self.lines}"
            line = found()
            assert line is not None
            assert line["event"] == event, self.lines
            return line

    @property
    def port(self) -> int:
        return int(self.started["listeners"][0]["port"])

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(timeout=20)
        self._reader.join(timeout=5)
        if self.process.stderr is not None:
            self.process.stderr.close()
        return code


@pytest.fixture
def start_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Process]]:
    """Starts broker processes, which end with the test at the latest."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    started: list[Process] = []

    def start(*arguments: str | Path, port: int = 0) -> Process:
        process = Process(*arguments, port=port)
        started.append(process)
        return process

    yield start
    for process in started:
        process.end(signal.SIGKILL)


@pytest.fixture
def running(tmp_path: Path) -> Callable[..., AbstractAsyncContextManager[Any]]:
    """A broker in this process: `async with running({"field": value}) as service`."""
    import asyncio

    from surecast.broker.config import load_config
    from surecast.broker.run import BrokerService
    from surecast.broker.run_log import BrokerLog

    @asynccontextmanager
    async def run(flags: dict[str, Any] | None = None) -> AsyncIterator[Any]:
        given = {"listeners[0].port": 0, "admin_socket": tmp_path / "admin.sock", "drain": "1s", **(flags or {})}
        with (tmp_path / "broker.log").open("a") as stream:
            service = BrokerService(load_config(None, given), BrokerLog("debug", "json", stream))
            task = asyncio.create_task(service.run())
            ready = asyncio.create_task(service.ready.wait())
            await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                ready.cancel()
                task.result()
            try:
                yield service
            finally:
                service.stop()
                await task

    return run


@dataclass(frozen=True)
class Certificates:
    ca: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path


def make_certificate(folder: Path, name: str, ca: str | None, subject: str, extension: str = "") -> None:
    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={subject}"]
    if ca is None:
        openssl("req", "-x509", *new, "-days", "30", "-keyout", f"{name}.key", "-out", f"{name}.crt")
        return
    openssl("req", *new, "-keyout", f"{name}.key", "-out", f"{name}.csr")
    (folder / f"{name}.ext").write_text(extension)
    signing = ["-CA", f"{ca}.crt", "-CAkey", f"{ca}.key", "-CAcreateserial", "-days", "30"]
    openssl("x509", "-req", "-in", f"{name}.csr", *signing, "-out", f"{name}.crt", "-extfile", f"{name}.ext")


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority, a server's certificate for loopback, and a client's for `ann`."""
    folder = tmp_path_factory.mktemp("certificates")
    make_certificate(folder, "ca", None, "Test Authority")
    make_certificate(folder, "server", "ca", "localhost", "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1\n")
    make_certificate(folder, "ann", "ca", "ann")
    files = ("ca.crt", "server.crt", "server.key", "ann.crt", "ann.key")
    return Certificates(*(folder / file for file in files))
