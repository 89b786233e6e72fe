"""Real traces parsed by Spark, against the counts and means that the data's own descriptions state."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F  # noqa: N812
from tests.pipeline.conftest import LEAN_RUN

from surecast.pipeline.input_files import RECORD_SCHEMA, find_files, ranges_between, read_range
from surecast.pipeline.pipeline_run import Counted, count_raw
from surecast.pipeline.records import intervals, judged, viewing_session, zap_event

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TRACES = (
    "availability/lanl/lanl_failures.csv.gz",
    "availability/grid5000/event_trace.tab.gz",
    "availability/web_sites/web_sites_a.avt.gz",
    "availability/cloud_uptime_archive",
    "events/sigcomm2009_mobiclique/activity.csv",
    "iptv/stb_gobx",
    "iptv/brighttv_sessions",
)


@pytest.fixture(scope="module")
def raw(spark: SparkSession, real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataFrame]:
    """What the table raw_records would hold, without the stream."""
    compiled = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
    for name, value in compiled.items():  # these tables are large enough to earn it
        spark.conf.set(name, value)
    found = find_files([str(real_data / name) for name in TRACES])
    ranges = ranges_between({}, {path: each.size_bytes for path, each in found.items()}, {})
    table = pa.Table.from_batches([batch for part in ranges for batch in read_range(part)], RECORD_SCHEMA)
    path = tmp_path_factory.mktemp("real") / "raw.parquet"
    pq.write_table(table, path)
    checked = path.with_name("judged")
    judged(spark.read.parquet(str(path))).write.parquet(str(checked))
    yield spark.read.parquet(str(checked))
    for name in compiled:
        spark.conf.set(name, LEAN_RUN[name])


def test_every_line_is_sound_or_said_to_be_bad(raw: DataFrame) -> None:
    found = {
        (row["source"], row["problem"]): row["count"] for row in raw.groupBy("source", "problem").count().collect()
    }
    outages = 261 + 65 + 35 + 136 + 43 + 91 + 275 + 426 + 884 + 3388 + 2908
    assert found == {
        ("lanl", None): 16_210,
        ("fta", None): 222_094,
        ("avt", None): 66,
        ("outages", None): outages,
        ("activity", None): 224,
        ("stb", None): 4_316,
        ("viewing", None): 4_969,
        ("unknown", "the file has no format that is known"): 1,  # program_data.txt
    }


def test_what_comes_twice_is_counted(raw: DataFrame) -> None:
    boxes = count_raw(raw.where("source IN ('stb', 'viewing')"))
    assert boxes["viewing_sessions"] == Counted(4_969, 4_969)
    assert boxes["zap_events"] == Counted(4_316, 4_316 - 36)


def test_events_of_boxes(raw: DataFrame) -> None:
    event = zap_event(F.col("source"), F.col("text")).alias("event")
    events = raw.where("source = 'stb'").select(event).select("event.*")
    kinds = {(row["kind"], row["value"]): row["count"] for row in events.groupBy("kind", "value").count().collect()}
    assert kinds == {("alive", None): 2_827, ("zap", None): 1_443, ("power", 1): 26, ("power", 0): 20}
    summed = events.agg(F.count_distinct("box"), F.date_format(F.min("time"), "D"), F.date_format(F.max("time"), "D"))
    assert tuple(summed.collect()[0]) == (9, "1", "3")


def test_intervals_have_the_stated_means(raw: DataFrame, real_data: Path) -> None:
    traces = raw.where("source IN ('fta', 'avt', 'lanl', 'activity', 'outages')")
    rows = traces.select("source", F.inline(intervals(F.col("source"), F.col("text"))))
    hours = (F.avg(F.col("end_s") - F.col("start_s")) / 3600).alias("mean_h")
    few = F.when(F.col("source").isin("avt", "activity"), F.col("component"))
    found: dict[tuple[str, bool], Any] = {
        (row["source"], row["up"]): row
        for row in rows.groupBy("source", "up")
        .agg(hours, F.count("*").alias("count"), F.count_distinct(few).alias("components"))
        .collect()
    }
    assert found["fta", True]["mean_h"] == pytest.approx(33.3, abs=0.05)
    assert found["fta", False]["mean_h"] == pytest.approx(11.7, abs=0.05)
    assert found["fta", True]["count"] + found["fta", False]["count"] == 222_094
    assert (found["avt", True]["count"], found["avt", True]["components"]) == (23_300, 66)
    assert found["avt", True]["mean_h"] == pytest.approx(13.3, abs=0.05)
    # The description says 75 users and a mean of 5.5 h, which the file does not bear out: it is read a second time.
    lines = (real_data / "events/sigcomm2009_mobiclique/activity.csv").read_text().splitlines()[1:]
    users = [[float(field) for field in line.split(";")] for line in lines]
    mean_h = sum(end - start for _, start, end in users) / len(users) / 3600
    assert (found["activity", True]["count"], len(users)) == (224, 224)
    assert found["activity", True]["components"] == len({user for user, _, _ in users})
    assert found["activity", True]["mean_h"] == pytest.approx(mean_h)
    assert found["lanl", False]["count"] == 16_210
    assert found["outages", False]["count"] + found["outages", True]["count"] == 8_512


def test_sessions_of_viewers(raw: DataFrame) -> None:
    session = viewing_session(F.col("text")).alias("session")
    rows = raw.where("source = 'viewing'").select(session).select("session.*")
    found = rows.agg(F.count_distinct("user"), F.count_distinct("channel"), F.median("duration_s")).collect()[0]
    assert tuple(found) == (2_185, 20, 105.0)
