"""The Spark data source of the input files: a stream of records, each read once, in parallel ranges.

Its offset is how far every file has been read. So a file that grows is read on from there, a run that was killed reads
the same ranges again, and what a file lost or changed is said, not guessed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from surecast.pipeline.files import FileRange, find_files, ranges_between, read_range, readable_end

__all__ = ["RAW_SCHEMA", "InputFiles"]

RAW_SCHEMA = "source STRING, log STRING, file STRING, position BIGINT, bytes BIGINT, text STRING, problem STRING"


@dataclass
class _Partition(InputPartition):
    part: FileRange


class InputFiles(DataSource):
    """`spark.readStream.format("surecast-files").option("inputs", '["/logs"]')`; schema: RAW_SCHEMA."""

    @classmethod
    def name(cls) -> str:
        return "surecast-files"

    def schema(self) -> str:
        return RAW_SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return _FilesReader(self.options)


class _FilesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: MutableMapping[str, str]):
        self.inputs: list[str] = json.loads(options["inputs"])
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
        if self.target is None:
            found = find_files(self.inputs)
            self.folders = {path: each.folder for path, each in found.items()}
            self.target = {path: readable_end(each, start.get(path, 0)) for path, each in found.items()}
        return dict(sorted({**start, **self.target}.items()))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if not self.folders:
            self.folders = {path: each.folder for path, each in find_files(self.inputs).items()}
        return [_Partition(part) for part in ranges_between(start, end, self.folders)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Partition)
        return read_range(partition.part)
