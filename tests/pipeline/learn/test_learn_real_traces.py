"""Real traces of availability, connections and viewers, read by Spark and learned from, beside plain means."""

from __future__ import annotations

import csv
import gzip
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F  # noqa: N812

from surecast.pipeline.input_files import RECORD_SCHEMA, find_files, ranges_between, read_range
from surecast.pipeline.learn import Learned, Statistics, Times, choose_lifetime, learn_scenario
from surecast.pipeline.learn.component_times import find_components
from surecast.pipeline.learn.log_statistics import AvailabilityRow
from surecast.pipeline.records import INTERVAL_SOURCES, intervals, judged, viewing_session
from surecast.prediction import predict_reliability
from surecast.scenario import build, parse_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.long
TRACES = (
    "availability/web_sites/web_sites_a.avt.gz",
    "availability/grid5000/event_trace.tab.gz",
    "availability/lanl/lanl_failures.csv.gz",
    "availability/cloud_uptime_archive/slack_global-status_operator_reported.csv",
    "availability/cloud_uptime_archive/minehut_online_game.csv",
    "events/sigcomm2009_mobiclique/activity.csv",
    "mobility/3glogs",
    "iptv/brighttv_sessions",
)
SAMPLE = 12
"""Components of each trace that are learned from."""


@pytest.fixture(scope="module")
def raw(spark: SparkSession, real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """The sound records of the traces."""
    found = find_files([str(real_data / name) for name in TRACES])
    ranges = ranges_between({}, {path: each.size_bytes for path, each in found.items()}, {})
    table = pa.Table.from_batches([batch for part in ranges for batch in read_range(part)], RECORD_SCHEMA)
    folder = tmp_path_factory.mktemp("learned")
    pq.write_table(table, folder / "raw.parquet")
    judged(spark.read.parquet(str(folder / "raw.parquet"))).where("problem IS NULL").write.parquet(
        str(folder / "sound")
    )
    return spark.read.parquet(str(folder / "sound"))


@pytest.fixture(scope="module")
def rows(raw: DataFrame) -> dict[str, list[AvailabilityRow]]:
    """Intervals of the first components of each source, by name."""
    traces = raw.where(F.col("source").isin(*INTERVAL_SOURCES))
    table = traces.select("source", "log", F.inline(intervals(F.col("source"), F.col("text"))))
    columns = table.select("source", "log", "component", "up", "start_s", "end_s").toArrow().to_pydict().values()
    by_component: dict[tuple[str, str, str], list[AvailabilityRow]] = defaultdict(list)
    for row in zip(*columns, strict=True):
        by_component[row[:3]].append(AvailabilityRow(*row))
    kept: dict[str, list[AvailabilityRow]] = defaultdict(list)
    taken: Counter[str] = Counter()
    for (source, _, _), each in sorted(by_component.items()):
        # Of machines with few failures little can be said.
        if taken[source] < SAMPLE and len(each) >= 60 - 50 * (source in ("activity", "bandwidth")):
            kept[source] += each
            taken[source] += 1
    return kept


@pytest.fixture(scope="module")
def learned(rows: dict[str, list[AvailabilityRow]]) -> dict[str, Learned]:
    return {source: learn_scenario(Statistics(intervals=tuple(each))) for source, each in rows.items()}


def test_every_kind_of_trace_becomes_a_scenario(learned: dict[str, Learned]) -> None:
    assert learned.keys() == {"avt", "fta", "lanl", "outages", "activity", "bandwidth"}
    for source, answer in learned.items():
        system = build(parse_text(answer.to_yaml()))
        assert answer.estimates, source
        if source in ("activity", "bandwidth"):
            assert all(each.connectivity is not None for each in system.subscribers)
    first, second = (each["name"] for each in learned["fta"].data["overlay"]["brokers"][:2])
    workload = {
        "topics": ["t"],
        "deadline": "1h",
        "publishers": [{"name": "p", "home": first, "topics": ["t"], "rate": "1/min"}],
        "subscribers": [{"name": "s", "home": second, "topics": "all"}],
    }
    system = build(parse_text(json.dumps(learned["fta"].data | {"workload": workload})))
    (figure,) = predict_reliability(system, ["buffering"]).figures(metric="reliability", scope="subscriber")
    assert 0.0 < figure.value < 1.0


def test_plain_means_are_in_the_intervals(rows: dict[str, list[AvailabilityRow]], learned: dict[str, Learned]) -> None:
    """The total time over the ends, as nobody cuts anything off: by far most intervals have it."""
    inside = total = 0
    chosen: Counter[str] = Counter()
    for source, answer in learned.items():
        times = {each.name: each.times for each in find_components(Statistics(intervals=tuple(rows[source])))}
        for estimate in answer.estimates:
            name, _, what = estimate.what.rpartition(" ")
            each = times[name].up if what in ("mtbf", "on") else times[name].down
            mean = (each.total_s + each.residual_s) / (each.ends + each.residual_ends)
            inside += estimate.low <= mean <= estimate.high
            total += 1
            chosen[estimate.verdict.split("), ")[-1].split()[0]] += 1
            assert 0.0 < estimate.low <= estimate.value <= estimate.high
    assert total >= 80
    assert inside >= 0.8 * total
    # Real failures are seldom exponential.
    assert sum(chosen.values()) - chosen["exponential"] > total / 2


def test_how_long_viewers_stay(raw: DataFrame, real_data: Path) -> None:
    session = viewing_session(F.col("text")).alias("session")
    found = raw.where("source = 'viewing'").select(session).select("session.duration_s").toArrow().column(0).to_numpy()
    fit = choose_lifetime(Times.of(found))
    (path,) = (real_data / "iptv/brighttv_sessions").glob("*.gz")
    with gzip.open(path, "rt", newline="") as lines:
        clocks = [row["Duration2"].split(":") for row in csv.DictReader(lines)]
    lengths = np.array([3600 * int(h) + 60 * int(m) + int(s) for h, m, s in clocks])
    assert fit.ends == (lengths > 0).sum()
    assert fit.law.name != "exponential"
    assert fit.low_s <= lengths[lengths > 0].mean() <= fit.high_s
