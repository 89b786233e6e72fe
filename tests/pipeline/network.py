"""Logs over the network: a server that answers as a broker does and loses what it is told to, and a real broker."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.broker.conftest import Process
from tests.patience import PATIENCE_S
from tests.pipeline.logs import rows_of

from surecast.broker.event_log import OffsetAhead, OffsetGone, read_from
from surecast.client import SyncGroupClient
from surecast.pipeline import LogAccess

TOKEN = "let-me-in"


class LogServer(ThreadingHTTPServer):
    """Answers GET /log as a broker does, from a folder; `truncated_to` is the first offset that is kept."""

    folder: Path
    truncated_to = 0
    asked: list[int]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class LogHandler(BaseHTTPRequestHandler):
    server: LogServer

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        offset, limit = int(query["offset"][0]), min(7, int(query["limit"][0]))
        self.server.asked.append(offset)
        status = 200
        data: dict[str, Any] = {}
        try:
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                status, data = 401, {"error": "no"}
            elif offset < self.server.truncated_to:
                raise OffsetGone(offset, self.server.truncated_to)
            else:
                records = read_from(self.server.folder, offset, limit)
                data = {"records": records, "next_offset": offset + len(records)}
        except OffsetGone as error:
            status, data = 410, {"error": str(error), "first_available": error.first_available}
        except OffsetAhead as error:
            status, data = 416, {"error": str(error), "next_offset": error.next_offset}
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@dataclass(frozen=True)
class LiveBroker:
    """A broker process with an event log and an HTTP listener."""

    process: Process
    log: Path
    token_file: Path

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.process.port}"

    @property
    def url(self) -> str:
        return f"http://{self.process.started['http'][0]}"

    @property
    def access(self) -> LogAccess:
        return LogAccess(self.token_file.read_text(encoding="utf-8").strip())

    def serve(self, messages: int) -> None:
        """A client that publishes and hears itself; when this returns, all of it is in the log."""
        before = sum(row["type"] == "disconnected" for row in rows_of(self.log))
        with SyncGroupClient([self.address], client_id=f"client-{before}") as client:
            client.subscribe("plant/#")
            for number in range(messages):
                client.publish(f"plant/{number % 3}", b"x" * (number % 5))
                client.message(PATIENCE_S)
        deadline_s = time.monotonic() + PATIENCE_S
        while sum(row["type"] == "disconnected" for row in rows_of(self.log)) == before:
            assert time.monotonic() < deadline_s, "the broker did not log that its client went"
            time.sleep(0.02)


@contextmanager
def live_broker(folder: Path) -> Iterator[LiveBroker]:
    """Runs a broker whose log says nothing while nothing happens."""
    log, token = folder / "live-log", folder / "token"
    settings = {"event_log.folder": log, "event_log.alive_interval": "1h", "http.port": 0, "http.token_file": token}
    given = [text for name, value in settings.items() for text in ("--set", f"{name}={value}")]
    process = Process("--folder", folder / "live-state", "--name", "live", *given)
    try:
        yield LiveBroker(process, log, token)
    finally:
        process.end()
