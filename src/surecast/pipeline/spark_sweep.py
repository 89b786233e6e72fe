"""Many cases evaluated on Spark by a pure function, in blocks that are saved as they are done.

Cases are numbered. A block is a range of numbers and one job of Spark: its numbers are shared among the cores, each
share goes through the function as a whole, and the worker writes what comes out as one file of Parquet: rows that went
back through Spark would cost several times what it costs to find them. A block is there as a whole or not at all. So a
sweep that was interrupted goes on with the first block that is missing, wherever it runs.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as fs
import pyarrow.parquet as pq
from numpy.typing import NDArray

from surecast.errors import ConfigurationError
from surecast.pipeline.spark_session import ServerSettings, connect, in_short, spark_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Evaluate", "Sweep", "run_blocks", "sweep_session"]

Evaluate = Callable[[NDArray[np.int64]], pa.Table]
"""From the numbers of cases to rows."""
Progress = Callable[[int, int], None]
_HEAD: Final = "sweep.json"
_DONE: Final = "_SUCCESS"


@dataclass(frozen=True, slots=True)
class Sweep:
    """The cases of a sweep: `count` cases, `block` of them at a time, and the columns of the result.

    `storage` is a folder or URL that all machines of the cluster see. `fingerprint` stands for everything that the
    results depend on.
    """

    storage: str
    fingerprint: str
    count: int
    block: int
    schema: pa.Schema

    @property
    def blocks(self) -> list[tuple[int, int]]:
        """The first number of each block, and the number after its last.

        >>> Sweep("out", "", 10, 4, pa.schema([])).blocks
        [(0, 4), (4, 8), (8, 10)]
        """
        return [(first, min(first + self.block, self.count)) for first in range(0, self.count, self.block)]


@contextmanager
def sweep_session(spark: str, work: Path, settings: ServerSettings | None = None) -> Iterator[SparkSession]:
    """Yields a session for `--spark`: of a Connect server that runs (sc://HOST:PORT), or of one that is started for a
    master (local[4], spark://HOST:7077), with its logs in the folder `work`."""
    from pyspark.errors import PySparkException

    from surecast.pipeline.spark_session import SparkFailed

    if not spark.startswith(("sc://", "local", "spark://", "yarn", "k8s://")):
        raise ConfigurationError(
            f"--spark {spark}: write local[4] for cores of this machine, the address of a cluster, spark://HOST:7077, "
            "or that of a Spark Connect server, sc://HOST:15002"
        )
    chosen = settings or ServerSettings()
    with ExitStack() as stack:
        address = spark
        if not spark.startswith("sc://"):
            started = ServerSettings(spark, chosen.memory, chosen.static)
            address = stack.enter_context(spark_server(work, started)).remote
        session = connect(address, chosen.py_files)
        stack.callback(session.stop)
        try:
            yield session
        except PySparkException as error:
            raise SparkFailed(in_short([str(error)])) from error


def run_blocks(
    spark: SparkSession, sweep: Sweep, evaluate: Evaluate, *, resume: bool = True, progress: Progress | None = None
) -> ds.Dataset:
    """Evaluates all cases that are not there yet; returns the rows of all, which are read lazily.

    `evaluate` is sent to the workers, so all that it needs must be in it. `progress` is told how many cases are done.
    """
    system, root = _opened(sweep.storage)
    _begin(system, root, sweep, resume)
    done = 0
    files: list[str] = []
    for number, (start, stop) in enumerate(sweep.blocks):
        folder = f"block={number:06d}"
        if system.get_file_info(f"{root}/{folder}/{_DONE}").type != fs.FileType.File:
            _run_block(spark, sweep, evaluate, folder, (start, stop))
        files += sorted(_parquet_files(system, f"{root}/{folder}"))
        done += stop - start
        if progress is not None:
            progress(done, sweep.count)
    return ds.dataset(files, sweep.schema, format="parquet", filesystem=system)


def _run_block(spark: SparkSession, sweep: Sweep, evaluate: Evaluate, folder: str, numbers: tuple[int, int]) -> None:
    """Runs one job of Spark. The files of an interrupted one are deleted first: its tasks may have been divided
    differently."""
    system, root = _opened(sweep.storage)
    if system.get_file_info(f"{root}/{folder}").type == fs.FileType.Directory:
        system.delete_dir(f"{root}/{folder}")
    system.create_dir(f"{root}/{folder}")
    spark.range(*numbers).mapInArrow(_written(sweep, evaluate, folder), "rows BIGINT").collect()
    for each in system.get_file_info(fs.FileSelector(f"{root}/{folder}")):
        if each.base_name.startswith("."):  # of an attempt that failed
            system.delete_file(each.path)
    with system.open_output_stream(f"{root}/{folder}/{_DONE}"):
        pass


def _written(
    sweep: Sweep, evaluate: Evaluate, folder: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Returns the function for Spark: a task's numbers go through `evaluate` together, and into one file. A file has
    the name of its first number, so that a task that is done twice leaves one."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts = [batch.column(0).to_numpy(zero_copy_only=False) for batch in batches]
        if not parts or not sum(map(len, parts)):
            return
        numbers = np.concatenate(parts)
        rows = evaluate(numbers)
        system, root = _opened(sweep.storage)
        name = f"part-{int(numbers[0]):012d}.parquet"
        hidden = f"{root}/{folder}/.{name}.{uuid.uuid4().hex}"
        # Without the schema of Arrow, columns of words are read as words and not as codes.
        pq.write_table(rows, hidden, filesystem=system, store_schema=False, compression="snappy")
        system.move(hidden, f"{root}/{folder}/{name}")
        yield pa.RecordBatch.from_pydict({"rows": [rows.num_rows]})

    return run


def _parquet_files(system: fs.FileSystem, folder: str) -> list[str]:
    infos = system.get_file_info(fs.FileSelector(folder))
    return [each.path for each in infos if each.extension == "parquet" and not each.base_name.startswith((".", "_"))]


def _begin(system: fs.FileSystem, root: str, sweep: Sweep, resume: bool) -> None:
    """Makes the folder, or finds it as this sweep left it; refuses what another sweep has written."""
    head = f"{root}/{_HEAD}"
    wanted = {
        "fingerprint": sweep.fingerprint,
        "count": sweep.count,
        "block": sweep.block,
        "schema": _column_texts(sweep.schema),
    }
    try:
        if system.get_file_info(head).type == fs.FileType.File and resume:
            with system.open_input_stream(head) as opened:
                head_data = json.loads(opened.read())
            if head_data != wanted:
                raise ConfigurationError(
                    f"{sweep.storage} has the results of another sweep; name another folder, or remove this one"
                )
            return
        if system.get_file_info(root).type == fs.FileType.Directory:
            infos = system.get_file_info(fs.FileSelector(root))
            ours = [each for each in infos if each.base_name == _HEAD or each.base_name.startswith("block=")]
            others = [each for each in infos if each not in ours and not each.base_name.startswith((".", "_"))]
            if others:
                raise ConfigurationError(f"{sweep.storage} has other files, such as {others[0].base_name}")
            for each in ours:
                system.delete_file(each.path) if each.is_file else system.delete_dir(each.path)
        system.create_dir(root, recursive=True)
        with system.open_output_stream(head) as opened:
            opened.write(json.dumps(wanted).encode())
    except OSError as error:
        raise ConfigurationError(f"{sweep.storage}: {error}; name a folder that can be written to") from None


def _opened(storage: str) -> tuple[fs.FileSystem, str]:
    if "://" not in storage:
        return fs.LocalFileSystem(), str(Path(storage).absolute())
    try:
        system, root = fs.FileSystem.from_uri(storage)
    except (pa.ArrowInvalid, OSError) as error:
        raise ConfigurationError(f"{storage}: {error}; write a folder, or a URL such as s3://bucket/folder") from None
    return system, root.rstrip("/")


def _column_texts(schema: pa.Schema) -> list[str]:
    return [f"{field.name} {field.type}" for field in schema]
