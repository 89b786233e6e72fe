"""The Spark data source `surecast`: a broker's event log as a table or a stream, and rows as publications.

    spark.read.format("surecast").option("url", "http://broker:9883").option("token", "...").load()
    spark.readStream.format("surecast").options(...).load()
    frame.write.format("surecast").option("brokers", "broker:1883").mode("append").save()

A stream's offset is the offset of the log, and a range of offsets is always the same records, so each record is in the
tables of a query once. Sessions of PySpark know the source by themselves (`pyspark_surecast`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from surecast.errors import ConfigurationError
from surecast.event_log_records import COLUMNS, SPARK_SCHEMA
from surecast.pipeline.datasource_log import LogAccess, LogError, RemoteLog, ranges
from surecast.pipeline.formats import BROKER

if TYPE_CHECKING:
    from surecast.pipeline.datasource_publish import RowPublisher

__all__ = ["PARTITION_RECORDS", "RAW_SCHEMA", "SurecastSource", "raw_batch"]

RAW_SCHEMA: Final = "source STRING, log STRING, file STRING, position BIGINT, bytes BIGINT, text STRING, problem STRING"
"""The columns of raw_records, with option raw=true."""
PARTITION_RECORDS: Final = 50_000
_TYPES: Final = {"BIGINT": pa.int64(), "INT": pa.int32(), "DOUBLE": pa.float64(), "STRING": pa.string()}


@dataclass
class _Range(InputPartition):
    start: int
    end: int


class SurecastSource(DataSource):
    """Options to read: url; token, or user and password; startingOffset (earliest, latest or a number), endingOffset
    (of a table), recordsPerPartition, maxRecordsPerBatch (of a stream), failOnDataLoss, raw.

    Options to write: brokers (HOST:PORT, parted by commas), username, password, tls (true or false). Columns to write:
    topic, payload (text or bytes) and request, the identity by which the broker knows a row that it has had already;
    qos (1 if left out) and retain if wanted.
    """

    @classmethod
    def name(cls) -> str:
        return "surecast"

    def schema(self) -> str:
        return RAW_SCHEMA if _flag(self.options, "raw", False) else SPARK_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return _TableReader(self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return _StreamReader(self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        if overwrite:
            raise ConfigurationError("what was published cannot be taken back: write with mode append")
        return _TableWriter(_publisher(self.options, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        return _StreamWriter(_publisher(self.options, schema))


class _Reading:
    """The part that the two readers share: options, and a range of records as Arrow."""

    def __init__(self, options: Mapping[str, str]):
        if "url" not in options:
            raise ConfigurationError('option url: name the broker\'s HTTP listener, such as "http://127.0.0.1:9883"')
        self.log = RemoteLog(
            options["url"].rstrip("/"),
            LogAccess.of(options),
            keep_on=not _flag(options, "failOnDataLoss", True),
        )
        self.is_raw = _flag(options, "raw", False)
        self.size = _number(options, "recordsPerPartition", PARTITION_RECORDS, 1)
        self.starting = options.get("startingOffset", "earliest")
        self.ending = options.get("endingOffset", "latest")
        self.batch_max = _number(options, "maxRecordsPerBatch", 0, 0)

    def start(self) -> int:
        if self.starting == "earliest":
            return self.log.first()
        return self.log.end() if self.starting == "latest" else _offset(self.starting, "startingOffset")

    def batches(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Range)
        for records in self.log.read(partition.start, partition.end):
            yield raw_batch(self.log, records) if self.is_raw else _columns(records)


class _TableReader(DataSourceReader):
    def __init__(self, options: Mapping[str, str]):
        self.reading = _Reading(options)

    def partitions(self) -> Sequence[InputPartition]:
        reading = self.reading
        end = reading.log.end() if reading.ending == "latest" else _offset(reading.ending, "endingOffset")
        return [_Range(*each) for each in ranges(reading.start(), end, reading.size)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.reading.batches(partition)


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Mapping[str, str]):
        self.reading = _Reading(options)
        self.target: int | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - these are Spark's names
        return {"offset": self.reading.start()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self.reading.batch_max) if self.reading.batch_max else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.target = self.reading.log.end()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        position = int(start["offset"])
        end = self.reading.log.end() if self.target is None else self.target
        if end < position:
            raise LogError(
                f"{self.reading.log.url}: the log was read up to offset {position}, and now ends at {end}: its folder "
                "was emptied, or a loss of power took records; start anew with another checkpoint"
            )
        if isinstance(limit, ReadMaxRows):
            end = min(end, position + limit.max_rows)
        return {"offset": end}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [_Range(*each) for each in ranges(int(start["offset"]), int(end["offset"]), self.reading.size)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.reading.batches(partition)


class _TableWriter(DataSourceArrowWriter):
    def __init__(self, publisher: RowPublisher):
        self.publisher = publisher

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        self.publisher.publish(iterator)
        return WriterCommitMessage()


class _StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, publisher: RowPublisher):
        self.publisher = publisher

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        self.publisher.publish(iterator)
        return WriterCommitMessage()


def _publisher(options: Mapping[str, str], schema: StructType) -> RowPublisher:
    # Only writing imports the client: every session and every task that reads imports this module.
    from surecast.pipeline.datasource_publish import RowPublisher

    return RowPublisher.of(options, schema.fieldNames())


def _columns(records: list[dict[str, Any]]) -> pa.RecordBatch:
    """Returns records under the columns of the log; a field that a record lacks is NULL."""
    fields = [(column.name, _TYPES[column.type]) for column in COLUMNS.values()]
    return pa.RecordBatch.from_pylist(records, schema=pa.schema(fields))


def raw_batch(log: RemoteLog, records: list[dict[str, Any]]) -> pa.RecordBatch:
    """Records as lines, with the columns of RAW_SCHEMA; their position is their offset."""
    rows: list[dict[str, Any]] = []
    for record in records:
        text = json.dumps(record, separators=(",", ":"), ensure_ascii=False)
        rows.append({"source": BROKER, "log": log.name, "file": log.url, "position": record["offset"], "text": text})
        rows[-1]["bytes"] = len(text.encode()) + 1
    names = [part.split() for part in RAW_SCHEMA.split(", ")]
    return pa.RecordBatch.from_pylist(rows, schema=pa.schema([(name, _TYPES[kind]) for name, kind in names]))


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise ConfigurationError(f"option {name} is {text!r}: write true or false")
    return text == "true"


def _number(options: Mapping[str, str], name: str, default: int, least: int) -> int:
    text = options.get(name, str(default))
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise ConfigurationError(f"option {name} is {text!r}: write a whole number of {least} or more")
    return int(text)


def _offset(text: str, name: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ConfigurationError(f"option {name} is {text!r}: write earliest, latest, or an offset such as 1000")
    return int(text)
