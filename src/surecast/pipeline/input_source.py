"""The Spark data source of the inputs: a stream of records, each read once, in parallel ranges.

Inputs are files, and logs of brokers over the network. The offset is the position up to which every file has been
read, in bytes, and every log, in records. So an input that grew is read from there on, a run that was killed reads the
same ranges again, and lost or changed parts of an input are reported, not guessed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from surecast.pipeline.datasource import PARTITION_RECORDS, RAW_SCHEMA, raw_batch
from surecast.pipeline.datasource_log import REMOVED, LogAccess, RemoteLog, log_at, ranges
from surecast.pipeline.formats import BROKER
from surecast.pipeline.input_files import RECORD_SCHEMA, FileRange, find_files, ranges_between, read_range, readable_end

__all__ = ["Inputs", "LogRange", "log_ranges", "read_log_range"]


@dataclass(frozen=True, slots=True)
class LogRange:
    """The range of a log that one task reads: the records from `start` to before `end`."""

    log: RemoteLog
    start: int
    end: int
    shrunk_from: int | None = None
    """The former end of a log that is shorter now than when it was last read; only in its first range."""


@dataclass
class _Partition(InputPartition):
    part: FileRange | LogRange


class Inputs(DataSource):
    """`spark.readStream.format("surecast-inputs").option("inputs", '["/logs", "http://127.0.0.1:9883"]')`.

    Options token, or user and password, are for all logs over the network. Option `upto` has the positions up to which
    to read inputs, as JSON; then nothing else is read. Schema: RAW_SCHEMA.
    """

    @classmethod
    def name(cls) -> str:
        return "surecast-inputs"

    def schema(self) -> str:
        return RAW_SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return _InputsReader(self.options)


class _InputsReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: MutableMapping[str, str]):
        self.access = LogAccess.of(options)
        inputs: list[str] = json.loads(options["inputs"])
        logs = [(text, log_at(text, self.access)) for text in inputs]
        self.files = [text for text, log in logs if log is None]
        self.logs = {log.url: log for _, log in logs if log is not None}
        self.upto: dict[str, int] = json.loads(options.get("upto", "{}"))
        self.folders: dict[str, str] = {}
        self.target: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        # What has been read before is not known here: the ends are found from there, in latestOffset.
        self.target = None

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        if self.target is None and self.upto:
            self.target = self.upto
        if self.target is None:
            files = find_files(self.files)
            self.folders = {path: each.folder for path, each in files.items()}
            self.target = {path: readable_end(each, start.get(path, 0)) for path, each in files.items()}
            self.target |= {url: log.end() for url, log in self.logs.items()}
        return dict(sorted({**start, **self.target}.items()))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if not self.folders:
            self.folders = {path: each.folder for path, each in find_files(self.files).items()}
        # A log that is no input any more may be in a batch that was cut off.
        logs = {key: self.logs.get(key) or log_at(key, self.access) for key in end}
        files = {key: upto for key, upto in end.items() if logs[key] is None}
        parts: list[FileRange | LogRange] = [*ranges_between(start, files, self.folders)]
        for url, log in logs.items():
            if log is not None:
                parts += log_ranges(log, start.get(url), end[url])
        return [_Partition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Partition)
        part = partition.part
        return read_range(part) if isinstance(part, FileRange) else read_log_range(part)


def log_ranges(log: RemoteLog, start: int | None, end: int) -> list[LogRange]:
    """Returns the ranges of a log from where the last run stopped; from its beginning if there was none.

    A log that ends before that began anew, or lost its last records: all that it has is read, since what was read
    before is known by its offset, time and text.
    """
    shrunk_from = start if start is not None and start > end else None
    first = log.first() if start is None or shrunk_from is not None else start
    parts = [LogRange(log, *each) for each in ranges(first, end, PARTITION_RECORDS)]
    return parts if shrunk_from is None else [LogRange(log, end, end, shrunk_from), *parts]


def read_log_range(part: LogRange) -> Iterator[pa.RecordBatch]:
    """Yields the records of one range; records that the log has lost are a record too."""
    log = part.log
    if part.shrunk_from is not None:
        problem = (
            f"the log ended at offset {part.shrunk_from} when it was last read, and ends at {part.end}: it began anew, "
            "or its last records were lost"
        )
        yield _problem(log, part.end, problem)
    for records in log.read(part.start, part.end):
        yield raw_batch(log, records)
        for record in records:
            if record["type"] == "lost" and record.get("reason") == REMOVED:
                problem = f"{record['records']} records from offset {record['offset']} on were {REMOVED}"
                yield _problem(log, record["offset"], problem)


def _problem(log: RemoteLog, offset: int, problem: str) -> pa.RecordBatch:
    values: Mapping[str, Any] = {"source": BROKER, "log": log.name, "file": log.url, "position": offset, "bytes": 0}
    return pa.RecordBatch.from_pylist([{**values, "text": "", "problem": problem}], schema=RECORD_SCHEMA)
