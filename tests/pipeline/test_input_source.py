"""The stream of inputs, files and logs over the network together, driven as Spark does, without Spark."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.pipeline.network import TOKEN, LogServer

from surecast.broker.event_log import EventLog, Started
from surecast.errors import ConfigurationError
from surecast.pipeline.datasource_log import LogAccess, LogError, log_at
from surecast.pipeline.input_source import Inputs

Rows = list[dict[str, Any]]


def read_on(start: dict[str, Any], *inputs: str, token: str = TOKEN) -> tuple[Rows, dict[str, Any]]:
    """All that is new since an offset, in one batch, and the offset after it."""
    reader = Inputs({"inputs": json.dumps(inputs), "token": token}).streamReader(None)  # type: ignore[arg-type]
    end = reader.latestOffset(start, ReadAllAvailable())
    return read_batch(start, end, *inputs), json.loads(json.dumps(end))


def read_batch(start: dict[str, Any], end: dict[str, Any], *inputs: str) -> Rows:
    reader = Inputs({"inputs": json.dumps(inputs), "token": TOKEN}).streamReader(None)  # type: ignore[arg-type]
    there = pickle.loads(pickle.dumps(reader))  # as a worker has it
    batches = (batch for part in reader.partitions(start, end) for batch in there.read(part))
    return [row for batch in batches for row in batch.to_pylist()]


def append(server: LogServer, count: int, time_s: float = 1700001000.0) -> None:
    with EventLog(server.folder) as log:
        for number in range(count):
            log.append(Started(time_s + number, "later"))


def test_files_and_logs_are_read_on_together(log_server: LogServer, tmp_path: Path) -> None:
    zaps = tmp_path / "evening.zap"
    zaps.write_text("one\ntwo\n")
    inputs = (str(zaps), log_server.url)
    rows, end = read_on({}, *inputs)
    assert end == {str(zaps): 8, log_server.url: 50}
    assert [row["text"] for row in rows if row["source"] == "zap"] == ["one", "two"]
    found = [row for row in rows if row["source"] == "broker"]
    assert [(row["position"], row["file"]) for row in found] == [(number, log_server.url) for number in range(50)]
    assert found[3]["log"] == log_server.url.removeprefix("http://")
    assert json.loads(found[3]["text"]) == {"offset": 3, "time": 1700000003.0, "type": "started", "broker": "b3"}

    assert read_on(end, *inputs) == ([], end)  # nothing is new
    append(log_server, 2)
    with zaps.open("a") as file:
        file.write("three\n")
    rows, later = read_on(end, *inputs)
    assert sorted((row["position"], row["problem"]) for row in rows) == [(8, None), (50, None), (51, None)]
    # A batch that was cut off is the same records again, however the log has grown, and if it is no input any more.
    append(log_server, 5)
    assert read_batch(end, later, *inputs) == rows
    assert read_batch(end, later, str(zaps)) == rows


def test_what_is_decided_on_is_read_and_nothing_else(log_server: LogServer, tmp_path: Path) -> None:
    """What grows meanwhile, or is new, waits for the next run."""
    folder = tmp_path / "zaps"
    folder.mkdir()
    zaps, other = folder / "evening.zap", folder / "other.zap"
    zaps.write_text("one\ntwo\n")
    inputs = (str(folder), log_server.url)
    _, start = read_on({}, *inputs)
    zaps.write_text("one\ntwo\nthree\nfour\n")
    other.write_text("five\n")
    append(log_server, 3)
    upto = {str(zaps): 14, log_server.url: 51}
    options = {"inputs": json.dumps(inputs), "token": TOKEN, "upto": json.dumps(upto)}
    reader = Inputs(options).streamReader(None)  # type: ignore[arg-type]
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end == start | upto
    rows = read_batch(start, end, *inputs)
    assert [row["text"] for row in rows if row["source"] == "zap"] == ["three"]
    assert [row["position"] for row in rows if row["source"] == "broker"] == [50]
    rows, _ = read_on(end, *inputs)
    assert sorted(row["text"] for row in rows if row["file"] != log_server.url) == ["five", "four"]


def test_a_log_may_have_a_name(log_server: LogServer) -> None:
    rows, end = read_on({}, f"hub={log_server.url}/")
    assert {row["log"] for row in rows} == {"hub"}
    assert end == {log_server.url: 50}
    assert log_at("s3://bucket/a=b") is None


def test_a_log_that_was_truncated_says_what_is_missing(log_server: LogServer) -> None:
    log_server.truncated_to = 10
    rows, end = read_on({}, log_server.url)
    assert [row["position"] for row in rows] == list(range(10, 50))  # nobody had asked for those before
    append(log_server, 20)
    log_server.truncated_to = 60
    rows, _ = read_on(end, log_server.url)
    assert [row["position"] for row in rows if row["problem"] is None] == [50, *range(60, 70)]
    (lost,) = [json.loads(row["text"]) for row in rows if row["position"] == 50 and row["problem"] is None]
    assert (lost["type"], lost["records"], lost["time"]) == ("lost", 10, 1700001010.0)
    (problem,) = [row["problem"] for row in rows if row["problem"] is not None]
    assert problem == "10 records from offset 50 on were removed from the log before it was read"


def test_a_log_that_began_anew_is_read_from_its_beginning(log_server: LogServer) -> None:
    _, end = read_on({}, log_server.url)
    shutil.rmtree(log_server.folder)
    append(log_server, 4)
    rows, end = read_on(end, log_server.url)
    assert rows[0]["problem"] == (
        "the log ended at offset 50 when it was last read, and ends at 4: it began anew, or its last records were lost"
    )
    assert [row["position"] for row in rows[1:]] == [0, 1, 2, 3]
    assert read_on(end, log_server.url) == ([], {log_server.url: 4})


def test_records_that_are_gone_when_a_batch_is_read_again(log_server: LogServer) -> None:
    rows = read_batch({log_server.url: 45}, {log_server.url: 60}, log_server.url)
    assert [row["position"] for row in rows] == [*range(45, 50), 50, 50]
    assert rows[-1]["problem"] == "10 records from offset 50 on were removed from the log before it was read"


def test_what_cannot_be_an_input_is_refused(log_server: LogServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surecast.pipeline.datasource_log._PAUSE_S", 0.001)
    with pytest.raises(LogError, match="it wants the administrator's token"):
        read_on({}, log_server.url, token="wrong")
    with pytest.raises(LogError, match=r"127\.0\.0\.1:1: no broker answers"):
        read_on({}, "http://127.0.0.1:1")
    with pytest.raises(ConfigurationError, match="url b1: leave user and password out of the address"):
        log_at("http://me:secret@b1:9883")


def test_secrets_go_to_another_process_by_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    access = LogAccess(user="reader", password="secret")
    assert "secret" not in repr(access)
    for name, value in access.environment().items():
        monkeypatch.setenv(name, value)
    assert LogAccess.of_environment() == access
