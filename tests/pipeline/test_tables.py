"""Logs with known contents through the whole pipeline, against plain Python; and in pieces against all at once."""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from pyspark.sql import functions as F  # noqa: N812
from pyspark.testing import assertDataFrameEqual
from tests.pipeline.conftest import LEAN_RUN
from tests.pipeline.logs import AVT, BAD_LINES, ZAPS, broker_records, rows_of, subscriber_qos, write_log
from tests.pipeline.network import LiveBroker, live_broker
from typer.testing import CliRunner

from surecast.cli.pipeline import app
from surecast.errors import ConfigurationError
from surecast.pipeline import RunReport, Server, run_tables
from surecast.pipeline.accounts import count_raw, differences
from surecast.pipeline.catalogue import CLEAN, STATISTICS, TABLES
from surecast.pipeline.qos import ACCURACY, QUANTILES
from surecast.pipeline.tables import VIEWS
from surecast.pipeline.zap_views import ZAP_VIEWS
from surecast.zap.events import BadLine, ChannelChange, parse_lines

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession


@dataclass(frozen=True)
class Once:
    """All logs in one run."""

    folder: Path
    report: RunReport
    table: Callable[[str], DataFrame]


def write_inputs(folder: Path) -> None:
    write_log(folder / "b1", broker_records(1, 60))
    write_log(folder / "b2", broker_records(2, 40))
    (folder / "b2" / "events-00000000000000009999.jsonl").write_text("".join(f"{line}\n" for line in BAD_LINES))
    (folder / "evening.zap").write_text("".join(f"{line}\n" for line in ZAPS), encoding="utf-8")
    (folder / "hosts.avt").write_text("".join(f"{line}\n" for line in AVT))
    (folder / "report_bus.json").write_text(
        '[{"duration_ms": 1000, "bandwidth_kbps": 500}, {"duration_ms": 500, "bandwidth_kbps": 3}, {}]'
    )
    (folder / "sessions.csv").write_text(
        "UserID,Channel2,RecordDate2,Duration2\n"
        "7,Trace TV,2016/01/04 18:09,00:02:05\n"
        "7,Trace TV,2016/13/04 18:09,00:02:00\n"
    )
    (folder / "notes.md").write_text("# nothing for us\n")


@dataclass(frozen=True)
class Pieces:
    """The same logs in two runs: their reports, the tables after them, and what was told of the second run."""

    inputs: Path
    live: LiveBroker
    output: Path
    copy: Path
    growing: Path
    first: RunReport
    second: RunReport
    tables: dict[str, list[Row]]
    states: list[tuple[str, str]]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    with live_broker(tmp_path_factory.mktemp("live")) as broker:
        yield broker


@pytest.fixture(scope="module")
def pieces(spark: SparkSession, live: LiveBroker, tmp_path_factory: pytest.TempPathFactory) -> Pieces:
    """First the half of each growing file, the later broker, and what a running broker has logged till then; then the
    rest, with copies of what was there."""
    folder = tmp_path_factory.mktemp("pieces")
    whole, parts, output = folder / "whole", folder / "logs", folder / "output"
    write_inputs(whole)
    shutil.copytree(whole / "b2", parts / "b2")
    segments = sorted((whole / "b1").glob("*.jsonl"))
    (parts / "b1").mkdir()
    shutil.copy(segments[-1], parts / "b1")  # the latest first: what comes after it is late
    growing = parts / "evening.zap"
    growing.write_bytes((whole / "evening.zap").read_bytes()[:190])  # in the middle of a line
    states: list[tuple[str, str]] = []

    def run() -> RunReport:
        states.clear()
        told: Callable[[str, str], None] = lambda table, state: states.append((table, state))  # noqa: E731
        inputs = [str(parts), f"live={live.url}"]
        return run_tables(
            spark, inputs, output, database="logs", access=live.access, configuration=LEAN_RUN, progress=told
        )

    live.serve(5)
    first = run()
    live.serve(7)
    for path in whole.rglob("*"):
        if path.is_file():
            target = parts / path.relative_to(whole)
            target.parent.mkdir(exist_ok=True)
            if not target.exists() or target == growing:
                target.write_bytes(path.read_bytes())
    copy = parts / "b1" / f"{segments[0].stem} (copy).jsonl"
    shutil.copy(segments[0], copy)
    second = run()
    tables = {name: compared(spark.read.table(f"logs.{name}")).collect() for name in {*CLEAN, *STATISTICS}}
    return Pieces(parts, live, output, copy, growing, first, second, tables, states)


@pytest.fixture(scope="module")
def once(spark: SparkSession, server: Server, pieces: Pieces) -> Once:
    """All logs in one run, by the command, which forgets what is there. Its state store is that of the product."""
    pieces.copy.rename(pieces.output / pieces.copy.name)
    place = ["--output", str(pieces.output), "--remote", server.remote, "--database", "logs", "--json"]
    inputs = ["--input", str(pieces.inputs), "--input", f"live={pieces.live.url}"]
    access = ["--token-file", str(pieces.live.token_file)]
    answer = CliRunner().invoke(app, ["run", *inputs, *access, "--full-refresh", *place])
    assert answer.exit_code == 0, answer.output
    told = json.loads(answer.stdout)
    assert told == json.loads((pieces.output / "report.json").read_text())
    for name in TABLES:
        spark.catalog.refreshTable(f"logs.{name}")  # another session made them anew
    return Once(pieces.inputs, RunReport(**told), lambda name: spark.read.table(f"logs.{name}"))


def compared(table: DataFrame) -> DataFrame:
    """Without where a record was found first: of two copies it may be either."""
    return table.select(*[column for column in table.columns if column not in ("file", "position")])


def test_every_record_is_accounted_for(once: Once, live: LiveBroker) -> None:
    report = once.report
    paths = [*once.folder.rglob("*"), *live.log.glob("*.jsonl")]
    lines = [path.read_text().splitlines() for path in paths if path.suffix in (".jsonl", ".zap", ".avt")]
    extra = 3 + 2 + 1  # samples of the trip, sessions below their header, and the file that is none of ours
    assert report.records == sum(len(each) for each in lines) + extra
    assert report.records == report.sound + report.duplicates + sum(report.quarantined.values())
    assert report.duplicates == 1
    assert report.new_records == report.records
    reasons = Counter(BAD_LINES.values()) + Counter(
        {
            "not 4 or 5 fields": 2,
            "no date and time": 3 + 1,
            "no IPv4 address": 1,
            "unknown status": 1,
            "no channel name": 2,
            "not the number of sessions that it says": 1,
            "ends before it starts": 1,
            "no session": 1,
            "no component, state, start or end": 1,
            "the file has no format that is known": 1,
        }
    )
    assert report.quarantined == dict(reasons)


def test_quarantine_says_where_and_what(once: Once) -> None:
    assert "live" not in {row["log"] for row in once.table("quarantine").select("log").distinct().collect()}
    for row in once.table("quarantine").where("source IN ('broker', 'zap', 'avt')").collect():
        with Path(row["file"]).open("rb") as file:
            file.seek(row["position"])
            assert file.readline().decode().rstrip("\n") == row["text"]


def test_broker_events_are_the_log(spark: SparkSession, once: Once) -> None:
    rows = rows_of(once.folder / "b1")
    table = once.table("broker_events").where("log = 'b1'").drop("log", "file", "position")
    expected = spark.createDataFrame([{name: row.get(name) for name in table.columns} for row in rows], table.schema)
    assertDataFrameEqual(table, expected)


def test_a_log_over_the_network_is_that_on_the_brokers_disk(
    spark: SparkSession, once: Once, pieces: Pieces, live: LiveBroker
) -> None:
    rows = rows_of(live.log)
    table = once.table("broker_events").where("log = 'live'").drop("log", "file", "position")
    expected = spark.createDataFrame([{name: row.get(name) for name in table.columns} for row in rows], table.schema)
    assertDataFrameEqual(table, expected)
    (read,) = once.table("input_files").where("log = 'live'").collect()
    assert (read["file"], read["records"], read["read_bytes"]) == (live.url, len(rows), len(rows))
    assert pieces.first.tables["broker_events"] < pieces.second.tables["broker_events"]
    (books,) = once.table("broker_books").where("broker = 'live'").collect()
    assert (books["messages"], books["delivered"], books["balanced"]) == (12, 12, True)


def test_zap_events_are_what_the_line_parser_reads(once: Once) -> None:
    expected: set[tuple[Any, ...]] = set()
    for event in parse_lines(ZAPS):
        if isinstance(event, ChannelChange):
            expected.add((event.time_s, event.box, "zap", None, event.to_channel, event.from_channel))
        elif not isinstance(event, BadLine):
            expected.add((event.time_s, event.box, event.kind, event.value, None, None))
    columns = ("unix_timestamp(time)", "box", "kind", "value", "to_channel", "from_channel")
    found = [tuple(row) for row in once.table("zap_events").selectExpr(*columns).collect()]
    assert set(found) == expected
    assert len(found) == len(expected)


def test_intervals_and_sessions(spark: SparkSession, once: Once) -> None:
    expected = [
        ("avt", "host-a", True, 0.0, 3600.0),
        ("avt", "host-a", True, 7200.0, 10800.0),
        ("bandwidth", "connection", True, 0.0, 1.0),
        ("bandwidth", "connection", False, 1.0, 1.5),
    ]
    table = once.table("availability").select("source", "component", "up", "start_s", "end_s")
    assertDataFrameEqual(table, spark.createDataFrame(expected, table.schema))
    (session,) = once.table("viewing_sessions").collect()
    assert (session["user"], session["channel"], session["duration_s"]) == ("7", "Trace TV", 125)


def test_subscriber_qos_is_the_message_by_message_count(once: Once) -> None:
    for seed in (1, 2):
        expected = subscriber_qos(rows_of(once.folder / f"b{seed}"))
        found = {
            row["client"]: row for row in once.table("subscriber_qos").where(f"broker = 'broker-{seed}'").collect()
        }
        assert found.keys() == expected.keys()
        for client, values in expected.items():
            assert found[client]["unknown"] == 0
            for name, value in values.items():
                assert found[client][name] == pytest.approx(value, abs=1e-6), (client, name)


def test_losses_and_books(once: Once) -> None:
    rows = rows_of(once.folder / "b1")
    kinds = Counter(row["type"] for row in rows)
    losses = once.table("subscriber_losses").where("broker = 'broker-1'").collect()
    assert {row["reason"] for row in losses} == {"queue full", "expired"}
    assert sum(row["messages"] for row in losses) == kinds["dropped"] + kinds["expired"]
    books = {row["broker"]: row.asDict() for row in once.table("broker_books").collect()}
    fates = {name: kinds[name] for name in ("delivered", "dropped", "expired")}
    expected = {
        "broker": "broker-1",
        "messages": 60,
        "receivers": 180,
        **fates,
        "waiting": 180 - sum(fates.values()),
        "overdrawn": 0,
        "unpublished": 0,
        "lost_records": 0,
        "balanced": True,
    }
    assert books["broker-1"] == expected
    assert (books["broker-2"]["lost_records"], books["broker-2"]["balanced"]) == (4, False)


def test_load_over_time(once: Once) -> None:
    rows = rows_of(once.folder / "b1")
    load = once.table("broker_load").where("broker = 'broker-1'").orderBy("start_s").collect()
    by_window = Counter((row["time"] // 60 * 60, row["type"]) for row in rows)
    for row in load:
        assert row["published"] == by_window[row["start_s"], "published"]
        assert row["published_per_s"] == pytest.approx(row["published"] / 60)
        held = {
            (each["client"], each["filter"]): each["type"] == "subscribed"
            for each in rows
            if "filter" in each and each["time"] < row["start_s"] + 60
        }
        assert row["subscriptions"] == sum(held.values())
    assert [load[0]["subscriptions"], load[-1]["subscriptions"]] == [3, 2]


def test_uptime_and_rates(once: Once) -> None:
    rows = rows_of(once.folder / "b1")
    starts = [i for i, row in enumerate(rows) if row["type"] == "started"]
    before = max(row["time"] for row in rows[: starts[1]])
    lives = once.table("broker_uptime").where("broker = 'broker-1'").orderBy("up_from_s").collect()
    assert [(row["up_from_s"], row["up_to_s"], row["ended_by"]) for row in lives] == [
        (rows[0]["time"], before, "crash"),
        (rows[starts[1]]["time"], rows[-1]["time"], "stopped"),
    ]
    for row in once.table("publisher_rates").where("broker = 'broker-1'").collect():
        own = [each for each in rows if each["type"] == "published" and each["client"] == row["client"]]
        times = np.sort([each.get("publication_time", each["time"]) for each in own])
        gaps = np.diff(times)
        assert row["messages"] == len(own)
        assert row["rate_per_s"] == pytest.approx((len(own) - 1) / (times[-1] - times[0]), rel=1e-6)
        assert row["gap_variation_squared"] == pytest.approx(gaps.var(ddof=1) / gaps.mean() ** 2, rel=1e-6)


def test_in_pieces_late_and_twice_gives_the_same_tables(once: Once, pieces: Pieces) -> None:
    assert list(pieces.first.waiting_bytes) == [str(pieces.growing)]
    copied = len((pieces.output / pieces.copy.name).read_text().splitlines())
    assert pieces.second.records == once.report.records + copied
    assert pieces.second.duplicates == once.report.duplicates + copied
    assert pieces.second.sound == once.report.sound
    assert pieces.second.quarantined == once.report.quarantined
    for name in {*CLEAN, *STATISTICS} - {"input_files"}:
        assertDataFrameEqual(compared(once.table(name)), pieces.tables[name])


def test_no_table_is_computed_before_what_it_comes_from(pieces: Pieces) -> None:
    states = pieces.states
    for name in {*CLEAN, *STATISTICS, "quarantine"}:
        assert states.index((name, "starting")) > states.index(("raw_records", "completed")), name
    for names, origin in ((set(VIEWS) - {"input_files"}, "broker_events"), (ZAP_VIEWS, "zap_events")):
        for name in names:
            assert states.index((name, "starting")) > states.index((origin, "completed")), name


def test_a_step_that_would_read_the_tables_of_the_last_run_is_refused(spark: SparkSession, once: Once) -> None:
    from surecast.pipeline.graph import bound_late

    events = once.table("broker_events")
    wrong = events.select("log").withColumn("one", F.lit(1)).groupBy("log").count()
    with pytest.raises(ConfigurationError, match="the table x is made with with_columns, which reads its tables as"):
        bound_late("x", events.join(wrong, "log"))
    with pytest.raises(ConfigurationError, match="made with drop,"):
        bound_late("x", events.unionAll(events).drop("log"))
    bound_late("x", events.select("*", F.lit(1).alias("one")))


def test_a_lost_row_is_no_duplicate(spark: SparkSession, once: Once) -> None:
    raw = once.table("raw_records")
    held = {name: once.report.tables[name] for name in (*CLEAN, "quarantine")}
    held["availability"] = 3  # lines: one of them has two intervals
    assert differences(count_raw(raw), held) == []
    held["zap_events"] -= 1
    (said,) = differences(count_raw(raw), held)
    assert said == f"zap_events has {held['zap_events']} records in place of {held['zap_events'] + 1}"


def test_show_prints_rows(server: Server, once: Once, pieces: Pieces) -> None:
    place = ["--output", str(pieces.output), "--remote", server.remote, "--database", "logs"]
    shown = CliRunner().invoke(app, ["show", "broker_books", "--limit", "1", "--json", *place])
    assert shown.exit_code == 0, shown.output
    (row,) = json.loads(shown.stdout)
    assert (row["broker"], row["balanced"]) == ("broker-1", True)


def test_a_scenario_is_learned_on_a_server_that_runs_already(
    server: Server, once: Once, pieces: Pieces, tmp_path: Path
) -> None:
    from surecast.cli.app import app as surecast
    from surecast.scenario import load_system

    place = ["--tables", str(pieces.output), "--remote", server.remote, "--database", "logs"]
    answer = CliRunner().invoke(surecast, ["learn", *place, "--out", str(tmp_path / "learned.yaml")])
    assert answer.exit_code == 0, answer.output
    learned, _ = load_system(tmp_path / "learned.yaml")
    assert {each.name for each in learned.overlay.brokers} == {"broker-1", "broker-2", "live"}
    expected = {"p0": 2, "p1": 2, "client-0": 1, "client-1": 1}  # on both of the brokers that were made up
    assert Counter(each.name.split()[0] for each in learned.workload.publishers) == Counter(expected)


def test_show_reads_rows_as_json_has_them(spark: SparkSession, once: Once) -> None:
    from surecast.pipeline import read_table

    rows: list[dict[str, Any]] = read_table(spark, "broker_books", 1, "logs")
    assert json.loads(json.dumps(rows))[0]["broker"] == "broker-1"
    with pytest.raises(ConfigurationError, match="there is no table 'nothing'; there are: raw_records"):
        read_table(spark, "nothing", 1, "logs")


def test_quantiles_of_fewer_values_than_the_accuracy_are_exact(spark: SparkSession) -> None:
    count = 9_000
    values = spark.range(count).select(((F.col("id") * 7_919) % count / 8).alias("delay_s"))  # a permutation
    (found,) = values.agg(F.percentile_approx("delay_s", list(QUANTILES), ACCURACY)).collect()[0]
    assert found == [(math.ceil(share * count) - 1) / 8 for share in QUANTILES]
