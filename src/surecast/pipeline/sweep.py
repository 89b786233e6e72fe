"""Many cases evaluated on Spark by a pure function, in blocks that are saved as they are done.

Cases are numbered. A block is a range of numbers and one job of Spark: its numbers are shared among the cores, each
share goes through the function as a whole, and what comes out is one folder of Parquet, there as a whole or not at all.
So a sweep that was interrupted goes on with the first block that is missing, wherever it runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.fs as fs
from numpy.typing import NDArray

from surecast.errors import ConfigurationError
from surecast.pipeline.session import ServerSettings, connect, in_short, spark_server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Evaluate", "Sweep", "run_blocks", "sweep_session"]

Evaluate = Callable[[NDArray[np.int64]], pa.Table]
"""From the numbers of cases to rows."""
Progress = Callable[[int, int], None]
_HEAD: Final = "sweep.json"
_DONE: Final = "_SUCCESS"


@dataclass(frozen=True, slots=True)
class Sweep:
    """What is swept over: `count` cases, `block` of them at a time, and the columns that come out.

    `storage` is a folder or URL that all machines of the cluster see. `fingerprint` stands for everything that the
    results depend on.
    """

    storage: str
    fingerprint: str
    count: int
    block: int
    schema: str

    @property
    def blocks(self) -> list[tuple[int, int]]:
        """First number of each block, and the number after its last.

        >>> Sweep("out", "", 10, 4, "").blocks
        [(0, 4), (4, 8), (8, 10)]
        """
        return [(at, min(at + self.block, self.count)) for at in range(0, self.count, self.block)]

    def folder(self, number: int) -> str:
        """Where a block is."""
        return f"{self.storage}/block={number:06d}"


@contextmanager
def sweep_session(spark: str, work: Path, settings: ServerSettings | None = None) -> Iterator[SparkSession]:
    """A session for `--spark`: of a Connect server that runs (sc://HOST:PORT), or of one that is started for a master
    (local[4], spark://HOST:7077), with its logs in the folder `work`."""
    from pyspark.errors import PySparkException

    from surecast.pipeline.session import SparkFailed

    if not spark.startswith(("sc://", "local", "spark://", "yarn", "k8s://")):
        raise ConfigurationError(
            f"--spark {spark}: write local[4] for cores of this machine, the address of a cluster, spark://HOST:7077, "
            "or that of a Spark Connect server, sc://HOST:15002"
        )
    with ExitStack() as stack:
        address = spark
        if not spark.startswith("sc://"):
            chosen = settings or ServerSettings()
            started = ServerSettings(spark, chosen.memory, chosen.static)
            address = stack.enter_context(spark_server(work, started)).remote
        session = connect(address)
        stack.callback(session.stop)
        try:
            yield session
        except PySparkException as error:
            raise SparkFailed(in_short([str(error)])) from error


def run_blocks(
    spark: SparkSession, sweep: Sweep, evaluate: Evaluate, *, resume: bool = True, progress: Progress | None = None
) -> DataFrame:
    """Evaluates all cases that are not there yet; the DataFrame of all rows.

    `evaluate` is sent to the workers, so all that it needs must be in it. `progress` is told how many cases are done.
    """
    system, root = _opened(sweep.storage)
    _begin(system, root, sweep, resume)
    done = 0
    for number, (start, stop) in enumerate(sweep.blocks):
        path = f"{root}/block={number:06d}/{_DONE}"
        if system.get_file_info(path).type != fs.FileType.File:
            rows = spark.range(start, stop).mapInArrow(_mapped(evaluate), sweep.schema)
            rows.write.mode("overwrite").parquet(_url(sweep.folder(number)))
        done += stop - start
        if progress is not None:
            progress(done, sweep.count)
    return spark.read.schema(f"{sweep.schema}, block INT").parquet(_url(sweep.storage))


def _mapped(evaluate: Evaluate) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for Spark: a task's numbers go through `evaluate` together."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers = [batch.column(0).to_numpy(zero_copy_only=False) for batch in batches]
        if numbers:
            yield from evaluate(np.concatenate(numbers)).combine_chunks().to_batches(max_chunksize=1 << 16)

    return run


def _begin(system: fs.FileSystem, root: str, sweep: Sweep, resume: bool) -> None:
    """Makes the folder, or finds it as this sweep left it; refuses what another sweep has written."""
    head = f"{root}/{_HEAD}"
    wanted = {"fingerprint": sweep.fingerprint, "count": sweep.count, "block": sweep.block, "schema": sweep.schema}
    try:
        if system.get_file_info(head).type == fs.FileType.File and resume:
            with system.open_input_stream(head) as opened:
                found = json.loads(opened.read())
            if found != wanted:
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


def _url(path: str) -> str:
    return path if "://" in path else Path(path).absolute().as_uri().replace("%3D", "=")
