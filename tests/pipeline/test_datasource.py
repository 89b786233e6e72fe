"""The data source `surecast`: a real broker's log as a table and as a stream, and rows published to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.testing import assertDataFrameEqual
from tests.broker.conftest import Process
from tests.patience import PATIENCE_S
from tests.pipeline.network import TOKEN, LogServer

from surecast.broker.event_log import EventLog, Stopped, read_from
from surecast.client import SyncGroupClient
from surecast.errors import ConfigurationError
from surecast.event_log_records import SPARK_SCHEMA
from surecast.pipeline.datasource import SurecastSource
from surecast.pipeline.datasource_log import LogAccess, LogError, LogTruncated, RemoteLog, ranges
from surecast.pipeline.datasource_publish import RowPublisher

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def log_of(server: LogServer, **options: Any) -> RemoteLog:
    return RemoteLog(server.url, LogAccess(TOKEN), **options)


def offsets(log: RemoteLog, start: int, end: int) -> list[int]:
    return [record["offset"] for records in log.read(start, end) for record in records]


def test_ranges_of_a_log_are_its_records_once(log_server: LogServer) -> None:
    log = log_of(log_server)
    assert (log.first(), log.end()) == (0, 50)
    found = [offset for each in ranges(3, 50, 11) for offset in offsets(log, *each)]
    assert found == list(range(3, 50))


def test_a_truncated_log_says_so_or_leaves_a_mark(log_server: LogServer) -> None:
    log_server.truncated_to = 30
    assert log_of(log_server).first() == 30
    with pytest.raises(LogTruncated, match=r"20 records from offset 10 on are gone, the first that is kept is 30"):
        offsets(log_of(log_server), 10, 40)
    whole = [record for part in log_of(log_server, keep_on=True).read(10, 40) for record in part]
    assert (whole[0]["type"], whole[0]["records"], whole[0]["time"]) == ("lost", 20, 1700000030.0)
    assert [record["offset"] for record in whole] == [10, *range(30, 40)]
    gone = [record for part in log_of(log_server, keep_on=True).read(10, 20) for record in part]
    assert [(record["type"], record["records"]) for record in gone] == [("lost", 10)]


def test_what_cannot_be_read_is_said(log_server: LogServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surecast.pipeline.datasource_log._PAUSE_S", 0.001)
    with pytest.raises(LogError, match="it wants the administrator's token"):
        RemoteLog(log_of(log_server).url).end()
    with pytest.raises(LogError, match="read up to offset 60, and now ends at 50"):
        offsets(log_of(log_server), 40, 60)
    with pytest.raises(LogError, match="no broker answers"):
        RemoteLog("http://127.0.0.1:1").end()


def test_options_are_checked() -> None:
    with pytest.raises(ConfigurationError, match="option url: name the broker's HTTP listener"):
        SurecastSource({}).reader(None)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="option recordsPerPartition is '0'"):
        SurecastSource({"url": "http://b", "recordsPerPartition": "0"}).reader(None)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="there is no request; request is an identity of the row"):
        RowPublisher.of({"brokers": "b"}, ["topic", "payload"])
    with pytest.raises(ConfigurationError, match="there is also colour"):
        RowPublisher.of({"brokers": "b"}, ["topic", "payload", "request", "colour"])
    with pytest.raises(ConfigurationError, match="option brokers: name the brokers"):
        RowPublisher.of({}, ["topic", "payload", "request"])


def test_a_table_is_the_log_and_a_stream_goes_on_where_it_stopped(
    spark: SparkSession, log_server: LogServer, tmp_path: Path
) -> None:
    """Without registering anything: sessions know the source. A second run reads what is new, and nothing twice."""
    options = {"url": log_of(log_server).url, "token": TOKEN, "recordsPerPartition": "20"}
    table = spark.read.format("surecast").options(**options).load()
    rows = read_from(log_server.folder, 0)
    expected = [{name: row.get(name) for name in table.columns} for row in rows]
    assertDataFrameEqual(table, spark.createDataFrame(expected, SPARK_SCHEMA))
    part = spark.read.format("surecast").options(**options, startingOffset="5", endingOffset="9").load()
    assert sorted(row["offset"] for row in part.collect()) == [5, 6, 7, 8]

    def run() -> None:
        stream = spark.readStream.format("surecast").options(**options, maxRecordsPerBatch="30").load()
        query = stream.writeStream.option("checkpointLocation", str(tmp_path / "state"))
        query.trigger(availableNow=True).toTable("log_stream").awaitTermination()

    run()
    with EventLog(log_server.folder) as log:
        log.append(Stopped(1700001000.0, "b0"))
    run()
    run()
    found = spark.read.table("log_stream").orderBy("offset").collect()
    assert [row["offset"] for row in found] == list(range(51))
    assert found[-1]["type"] == "stopped"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Process]:
    process = Process("--folder", tmp_path / "state")
    yield process
    process.end()


def received(client: SyncGroupClient, count: int) -> list[str]:
    """So many messages, and what comes after them within a second."""
    first = [client.message(PATIENCE_S).payload.decode() for _ in range(count)]
    return first + [message.payload.decode() for message in client.messages(timeout_s=1.0)]


def test_rows_are_published_once_however_often_they_are_written(spark: SparkSession, broker: Process) -> None:
    address = f"127.0.0.1:{broker.port}"
    with SyncGroupClient([address], client_id="reader") as client:
        client.subscribe("viewers/#")
        rows = [(f"viewers/{i}", f"{i}", f"row {i}") for i in range(300)]
        frame = spark.createDataFrame(rows, "topic STRING, payload STRING, request STRING")
        for _ in range(2):
            frame.write.format("surecast").option("brokers", address).mode("append").save()
        assert sorted(received(client, 300), key=int) == [str(i) for i in range(300)]


def test_a_stream_that_stops_and_goes_on_publishes_once(spark: SparkSession, broker: Process, tmp_path: Path) -> None:
    """Also what it had published when it was cut off before it could write down that it had."""
    address = f"127.0.0.1:{broker.port}"
    source, state = tmp_path / "rows", tmp_path / "stream"
    source.mkdir()

    def write(numbers: range) -> None:
        lines = [json.dumps({"topic": "viewers", "payload": str(i), "request": f"row {i}"}) for i in numbers]
        (source / f"{numbers.start}.json").write_text("\n".join(lines))

    def run() -> None:
        rows = spark.readStream.schema("topic STRING, payload STRING, request STRING").json(str(source))
        query = rows.writeStream.format("surecast").option("brokers", address)
        query = query.option("checkpointLocation", str(state)).trigger(availableNow=True)
        query.start().awaitTermination()

    with SyncGroupClient([address], client_id="reader") as client:
        client.subscribe("viewers")
        write(range(40))
        run()
        first = received(client, 40)
        # Cut off after the rows and before the commit: the next query begins with the same batch.
        for path in (state / "commits").iterdir():
            path.unlink()
        write(range(40, 70))
        run()
        assert sorted([*first, *received(client, 30)], key=int) == [str(i) for i in range(70)]
    assert sorted(path.name for path in (state / "commits").iterdir() if path.name.isdigit()) == ["0", "1"]


def test_a_broker_that_does_not_answer_gives_way_to_the_next(broker: Process) -> None:
    publisher = RowPublisher((("127.0.0.1", 1), ("127.0.0.1", broker.port)))
    rows = [{"topic": "a", "payload": b"x", "request": f"r{i}", "qos": 1} for i in range(3)]
    assert publisher.publish(iter([pa.RecordBatch.from_pylist(rows)])) == 3
    with pytest.raises(ConfigurationError, match="a row to publish has no topic or no request"):
        publisher.publish(iter([pa.RecordBatch.from_pylist([*rows, {**rows[0], "request": None}])]))
