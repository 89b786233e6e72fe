"""Events per second of the statistics of viewers on Spark, and how the time grows with the log; DuckDB as a yardstick.

    python benchmarks/zap_pipeline.py [--boxes 100000] [--hours 24] [--scales 1,2,4,8] [--spark 'local[*]']
                                      [--duckdb PYTHON] [--limit 300]

Generates a day of set-top boxes, `--boxes` of them times each scale, as one file for each hour and publisher. Prints
for each scale the seconds and events per second of

- batch: changes of boxes, then viewers of channels by minute, both written as Parquet;
- stream: changes of boxes, six hours of files at a time, through a watermark, with a checkpoint;
- duckdb: the same as batch in one query of DuckDB, on all cores, its result written as Parquet. PYTHON is an
  interpreter that has it (`pip install duckdb` in an environment of its own; Surecast does not need it). Its viewers
  are compared with those of Spark.

A day of 100,000 boxes is 4.9 million events. Start of Spark is left out, as is that of DuckDB. No scale is begun that
would end more than `--limit` seconds after the first one began, by what the one before took.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from surecast.pipeline import ServerSettings
from surecast.pipeline.spark_sweep import sweep_session
from surecast.pipeline.zap_changes import box_changes, box_changes_stream
from surecast.pipeline.zap_viewers import channel_viewers
from surecast.zap.event_table import CHANGE, STATUS_KINDS, EventTable, join_tables
from surecast.zap.generator import Generator
from surecast.zap.traffic import Traffic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START_S = 1_704_067_200
HOURS_AT_ONCE = 6
SCHEMA = (
    "time TIMESTAMP, box STRING, kind STRING, value INT, to_channel STRING, from_channel STRING, "
    "log STRING, file STRING, position BIGINT"
)
DUCKDB = """
COPY (
WITH heard AS (
  SELECT epoch(time)::BIGINT AS at_s, box, CASE WHEN kind = 'zap' THEN 1 ELSE value END AS value, file, position,
    last_value(CASE WHEN kind = 'zap' THEN to_channel END IGNORE NULLS) OVER boxes AS channel
  FROM read_parquet('{folder}/*.parquet') WHERE kind IN ('zap', 'power')
  WINDOW boxes AS (PARTITION BY box ORDER BY time, file, position ROWS UNBOUNDED PRECEDING)),
states AS (
  SELECT at_s, after, lag(after) OVER (PARTITION BY box ORDER BY at_s, file, position) AS before
  FROM (SELECT *, CASE WHEN value <> 0 THEN channel END AS after FROM heard WHERE channel IS NOT NULL)),
changes AS (SELECT * FROM states WHERE after IS DISTINCT FROM before),
steps AS (
  SELECT at_s, before AS channel, -1 AS step FROM changes WHERE before IS NOT NULL
  UNION ALL SELECT at_s, after, 1 FROM changes WHERE after IS NOT NULL),
seconds AS (SELECT at_s, channel, sum(step)::BIGINT AS change FROM steps GROUP BY ALL),
held AS (
  SELECT channel, at_s, sum(change) OVER channels AS viewers, lead(at_s) OVER channels AS until_s
  FROM seconds WINDOW channels AS (PARTITION BY channel ORDER BY at_s)),
spans AS (
  SELECT channel, viewers, at_s,
    coalesce(until_s, (SELECT max(at_s) - max(at_s) % {window_s} + {window_s} FROM changes)) AS until_s
  FROM held WHERE viewers > 0),
cut AS (
  SELECT *, unnest(
    generate_series(at_s - at_s % {window_s}, until_s - 1 - (until_s - 1) % {window_s}, {window_s})) AS start_s
  FROM spans)
SELECT start_s, channel,
  coalesce(max(CASE WHEN until_s >= start_s + {window_s} THEN viewers END), 0)::BIGINT AS viewers,
  sum(viewers * (least(until_s, start_s + {window_s}) - greatest(at_s, start_s))) / {window_s} AS viewers_mean,
  max(viewers)::BIGINT AS viewers_max
FROM cut GROUP BY start_s, channel
) TO '{result}' (FORMAT parquet)
"""
DUCKDB_PROGRAM = """
import sys, time, duckdb
query = sys.stdin.read()
began = time.perf_counter()
duckdb.execute(query)
print(time.perf_counter() - began)
"""
WINDOW_S = 60


def words(names: tuple[str, ...], codes: np.ndarray, known: np.ndarray) -> pa.Array:
    """Names by their numbers; null where they are not known."""
    numbers = pa.array(np.where(known, codes, 0), pa.int32(), mask=~known)
    return pa.DictionaryArray.from_arrays(numbers, pa.array(names, pa.string()))


def columns(events: EventTable, file: str) -> pa.Table:
    """Events as rows of zap_events."""
    is_zap = events.kind == CHANGE
    every = np.ones(len(events), dtype=np.bool_)
    first, box = np.unique(events.address, return_index=True)[1], np.unique(events.address, return_inverse=True)[1]
    one_file = words((file,), np.zeros(len(events), dtype=np.int32), every)
    return pa.table(
        {
            "time": pa.array(events.time_s * 1_000_000, pa.timestamp("us", "UTC")),
            "box": words(tuple(events[first].boxes()), box, every),
            "kind": words(("zap", *STATUS_KINDS), events.kind, every),
            "value": pa.array(events.value, pa.int32(), mask=is_zap),
            "to_channel": words(events.channels, events.value, is_zap),
            "from_channel": words(events.channels, events.previous, is_zap),
            "log": one_file,
            "file": one_file,
            "position": pa.array(np.arange(len(events))),
        }
    )


def write_day(folder: Path, boxes: int, hours: int, publisher: int) -> int:
    """A file for each hour of one publisher's boxes; how many events there are."""
    generator = Generator(Traffic(boxes=boxes), START_S, seed=1, publisher=publisher, announce=True)
    batches = generator.batches(hours * 3600.0)
    total = 0
    per_hour = 3600 // generator.traffic.batch_s
    for hour in range(hours):
        events = join_tables([next(batches).events for _ in range(per_hour)])
        path = folder / f"{hour:02d}-{publisher:03d}.parquet"
        pq.write_table(columns(events, path.stem), path, store_schema=False)
        # A stream takes files by their age: all of an hour before those of the next.
        os.utime(path, (START_S + hour, START_S + hour))
        total += len(events)
    return total


def timed(work: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s


def batch(spark: SparkSession, folder: Path) -> None:
    changes = box_changes(spark.read.schema(SCHEMA).parquet(str(folder)))
    changes.write.mode("overwrite").parquet(f"{folder}.changes")
    viewers = channel_viewers(spark.read.parquet(f"{folder}.changes"), WINDOW_S)
    viewers.write.mode("overwrite").parquet(f"{folder}.viewers")


def stream(spark: SparkSession, folder: Path, files_at_once: int) -> None:
    source = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", files_at_once).parquet(str(folder))
    query = box_changes_stream(source, "10 minutes").writeStream.format("parquet")
    query = query.option("checkpointLocation", f"{folder}.state").option("path", f"{folder}.streamed")
    running = query.trigger(availableNow=True).start()
    running.awaitTermination()
    late = sum(
        operator["numRowsDroppedByWatermark"]
        for progress in running.recentProgress
        for operator in progress["stateOperators"]
    )
    if late:
        print(f"{late:,} events came too late for the stream")


def by_duckdb(python: str, folder: Path) -> float:
    """Seconds of the query in another interpreter."""
    query = DUCKDB.format(folder=folder, result=f"{folder}.by-duckdb.parquet", window_s=WINDOW_S)
    told = subprocess.run([python, "-c", DUCKDB_PROGRAM], input=query, capture_output=True, text=True, check=True)
    return float(told.stdout.split()[-1])  # behind a progress bar


def sums(path: str) -> tuple[int, ...]:
    """Returns a fingerprint of tables of viewers: rows, and the sums of all figures."""
    table = pq.read_table(path, columns=["viewers", "viewers_mean", "viewers_max"])
    return table.num_rows, *(round(pc.sum(column).as_py()) for column in table.columns)


def measure(spark: SparkSession, folder: Path, scale: int, events: int, duckdb: str | None) -> None:
    """Runs and prints the jobs on one folder."""
    jobs: dict[str, Callable[[], float]] = {
        "batch": lambda: timed(lambda: batch(spark, folder)),
        "stream": lambda: timed(lambda: stream(spark, folder, scale * HOURS_AT_ONCE)),
    }
    if duckdb is not None:
        jobs["duckdb"] = lambda: by_duckdb(duckdb, folder)
    for job, work in jobs.items():
        took_s = work()
        print(f"{scale:>5} {events:>11,} {job:<9} {took_s:>8.1f} {events / took_s:>10,.0f}", flush=True)
    if duckdb is not None:
        ours, theirs = sums(f"{folder}.viewers"), sums(f"{folder}.by-duckdb.parquet")
        if ours != theirs:
            print(f"viewers of Spark and of DuckDB differ: {ours}, {theirs}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--boxes", type=int, default=100_000)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--scales", default="1,2,4,8")
    parser.add_argument("--spark", default="local[*]")
    parser.add_argument("--memory", default="4g")
    parser.add_argument("--duckdb", metavar="PYTHON")
    parser.add_argument("--limit", type=float, default=300.0)
    chosen = parser.parse_args()
    settings = ServerSettings(memory=chosen.memory)
    with (
        tempfile.TemporaryDirectory() as name,
        sweep_session(chosen.spark, Path(name) / "spark", settings) as spark,
    ):
        spark.conf.set("spark.sql.shuffle.partitions", "8")
        days = Path(name) / "days"
        days.mkdir()
        events: list[int] = []
        print(f"{'scale':>5} {'events':>11} {'job':<9} {'seconds':>8} {'events/s':>10}")
        began_s, each_s = time.perf_counter(), 0.0
        for scale in sorted(int(text) for text in chosen.scales.split(",")):
            if time.perf_counter() - began_s + each_s * scale > chosen.limit:
                print(f"{scale:>5} left out: it would end after {chosen.limit:g} s")
                break
            scale_began_s = time.perf_counter()
            events += [write_day(days, chosen.boxes, chosen.hours, each) for each in range(len(events), scale)]
            folder = Path(name) / f"day{scale}"
            folder.mkdir()
            for path in days.iterdir():
                os.link(path, folder / path.name)
            measure(spark, folder, scale, sum(events), chosen.duckdb)
            each_s = (time.perf_counter() - scale_began_s) / scale


if __name__ == "__main__":
    main()
