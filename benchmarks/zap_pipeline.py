"""Events per second of the statistics of viewers on Spark, and how the time grows with the log.

    python benchmarks/zap_pipeline.py [--boxes 20000] [--hours 24] [--spark 'local[*]'] [--scales 1,2,4,8]

Generates a day of set-top boxes, `--boxes` of them times each scale, as files of an hour. Prints for each scale the
seconds and events per second of the batch job (changes of boxes, then viewers of channels by minute), of the streaming
job (changes of boxes, file after file, through a watermark) and of the same query on one machine without Spark: in
DuckDB where it is installed, and by pandas, which the streaming job uses inside. Start of Spark is left out.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd  # type: ignore[import-untyped,unused-ignore]
import pyarrow as pa
import pyarrow.parquet as pq

from surecast.pipeline.sweep import sweep_session
from surecast.pipeline.zap_changes import box_changes, box_changes_stream, next_changes
from surecast.pipeline.zap_viewers import channel_viewers
from surecast.zap.generator import Generator
from surecast.zap.table import CHANGE, STATUS_KINDS, EventTable, join_tables
from surecast.zap.traffic import Traffic

START_S = 1_704_067_200
SCHEMA = (
    "time TIMESTAMP, box STRING, kind STRING, value INT, to_channel STRING, from_channel STRING, "
    "log STRING, file STRING, position BIGINT"
)
DUCKDB = """
WITH heard AS (
  SELECT time, box, CASE WHEN kind = 'zap' THEN 1 ELSE value END AS value, position,
    last_value(CASE WHEN kind = 'zap' THEN to_channel END IGNORE NULLS) OVER boxes AS channel
  FROM read_parquet('{files}') WHERE kind IN ('zap', 'power')
  WINDOW boxes AS (PARTITION BY box ORDER BY time, file, position ROWS UNBOUNDED PRECEDING)),
states AS (
  SELECT time, box, now, lag(now) OVER (PARTITION BY box ORDER BY time, position) AS before
  FROM (SELECT *, CASE WHEN value <> 0 THEN channel END AS now FROM heard WHERE channel IS NOT NULL)),
steps AS (
  SELECT time, before AS channel, -1 AS by FROM states WHERE now IS DISTINCT FROM before AND before IS NOT NULL
  UNION ALL
  SELECT time, now, 1 FROM states WHERE now IS DISTINCT FROM before AND now IS NOT NULL),
seconds AS (SELECT time, channel, sum(by) AS change FROM steps GROUP BY ALL)
SELECT count(*), sum(viewers) FROM (
  SELECT sum(change) OVER (PARTITION BY channel ORDER BY time) AS viewers FROM seconds)
"""


def columns(events: EventTable, file: str) -> pa.Table:
    """Events as rows of zap_events."""
    is_zap = events.kind == CHANGE
    names = np.array([*events.channels, ""], dtype=object)
    kinds = np.array(["zap", *STATUS_KINDS], dtype=object)
    to = np.where(is_zap, names[np.where(is_zap, events.value, -1)], None)
    before = np.where(is_zap, names[np.where(is_zap, events.previous, -1)], None)
    return pa.table(
        {
            "time": pa.array(events.time_s * 1_000_000, pa.timestamp("us", "UTC")),
            "box": pa.array(events.boxes()),
            "kind": pa.array(kinds[events.kind]),
            "value": pa.array(events.value, pa.int32(), mask=is_zap),
            "to_channel": pa.array(to, pa.string()),
            "from_channel": pa.array(before, pa.string()),
            "log": pa.array([file] * len(events)),
            "file": pa.array([file] * len(events)),
            "position": pa.array(np.arange(len(events))),
        }
    )


def write_day(folder: Path, boxes: int, hours: int) -> int:
    """A file for each hour; how many events there are."""
    generator = Generator(Traffic(boxes=boxes), START_S, seed=1, announce=True)
    batches = generator.batches(hours * 3600.0)
    total = 0
    per_hour = 3600 // generator.traffic.batch_s
    for hour in range(hours):
        events = join_tables([next(batches).events for _ in range(per_hour)])
        pq.write_table(columns(events, f"{hour:02d}"), folder / f"{hour:02d}.parquet")
        total += len(events)
    return total


def timed(work: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s


def by_pandas(folder: Path) -> int:
    """The changes of boxes in one table of this process, and the viewers after each second."""
    frame = pd.read_parquet(folder, columns=["time", "box", "kind", "value", "to_channel", "file", "position"])
    frame = frame[frame["kind"].isin(["zap", "power"])]
    events = pd.DataFrame(
        {
            "time": frame["time"],
            "box": frame["box"],
            "value": frame["value"].where(frame["kind"] != "zap", 1),
            "to_channel": frame["to_channel"],
            "order": frame["file"].astype(str) + frame["position"].astype(str).str.zfill(9),
        }
    )
    changes, _ = next_changes(pd.DataFrame(columns=["box", "channel", "on", "since"]), events)
    parts = [changes[["time", name]].rename(columns={name: "channel"}).assign(by=by).dropna()
             for name, by in (("from_channel", -1), ("to_channel", 1))]  # fmt: skip
    steps = pd.concat(parts).groupby(["channel", "time"])["by"].sum()
    return len(steps.groupby(level=0).cumsum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--boxes", type=int, default=20_000)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--spark", default="local[*]")
    parser.add_argument("--scales", default="1,2,4,8")
    chosen = parser.parse_args()
    try:
        import duckdb
    except ImportError:
        duckdb = None
        print("duckdb is not installed, and left out")
    with (
        tempfile.TemporaryDirectory() as name,
        sweep_session(chosen.spark, Path(name) / "spark") as spark,
    ):
        spark.conf.set("spark.sql.shuffle.partitions", "8")
        print(f"{'scale':>5} {'events':>11} {'job':<9} {'seconds':>8} {'events/s':>10}")
        for scale in [int(text) for text in chosen.scales.split(",")]:
            folder = Path(name) / f"day{scale}"
            folder.mkdir()
            events = write_day(folder, chosen.boxes * scale, chosen.hours)

            def batch(folder: Path = folder) -> None:
                changes = box_changes(spark.read.schema(SCHEMA).parquet(str(folder)))
                changes.write.mode("overwrite").parquet(f"{folder}.changes")
                viewers = channel_viewers(spark.read.parquet(f"{folder}.changes"), 60)
                viewers.write.mode("overwrite").parquet(f"{folder}.viewers")

            def stream(folder: Path = folder) -> None:
                source = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 6).parquet(str(folder))
                query = box_changes_stream(source, "10 minutes").writeStream.format("parquet")
                query = query.option("checkpointLocation", f"{folder}.state").option("path", f"{folder}.streamed")
                query.trigger(availableNow=True).start().awaitTermination()

            jobs: dict[str, Callable[[], object]] = {"batch": batch, "stream": stream}
            if duckdb is not None:
                jobs["duckdb"] = lambda folder=folder: duckdb.sql(DUCKDB.format(files=f"{folder}/*.parquet")).fetchall()
            jobs["pandas"] = lambda folder=folder: by_pandas(folder)
            for job, work in jobs.items():
                took_s = timed(work)
                print(f"{scale:>5} {events:>11,} {job:<9} {took_s:>8.1f} {events / took_s:>10,.0f}", flush=True)


if __name__ == "__main__":
    main()
