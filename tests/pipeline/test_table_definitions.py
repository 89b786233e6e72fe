"""Logs with known contents through the whole pipeline, in two pieces, against plain Python.

Two runs serve all tests: one that makes few tables of a part of the logs, and one that makes all of the rest. What
costs time is a table of a run, not what is in it.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from pyspark.sql import functions as F  # noqa: N812
from pyspark.testing import assertDataFrameEqual
from tests.pipeline.conftest import LEAN_RUN
from tests.pipeline.learn.logs_known import replica_logs
from tests.pipeline.logs import AVT, BAD_LINES, ZAPS, broker_records, rows_of, subscriber_qos, write_log
from tests.pipeline.network import LiveBroker, live_broker
from tests.pipeline.zaps import changes_of
from typer.testing import CliRunner

from surecast.broker.event_log import Alive, Lost, Record, Started, Stopped
from surecast.cli.pipeline import app
from surecast.errors import ConfigurationError
from surecast.pipeline import RunReport, SparkServer, read_table, run_tables
from surecast.pipeline.pipeline_run import count_raw, differences
from surecast.pipeline.qos import ACCURACY, QUANTILES
from surecast.pipeline.records import EVENT_COLUMNS
from surecast.pipeline.run_manifest import first_rows
from surecast.pipeline.table_catalogue import CLEAN, TABLES
from surecast.pipeline.table_definitions import VIEWS
from surecast.pipeline.zap_views import ZAP_VIEWS
from surecast.zap.events import BadLine, ChannelChange, parse_lines

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


STREAMING = {*CLEAN, "quarantine", "raw_records"}


def group_records() -> list[Record]:
    """What happened at a group, which served all the time."""
    records = broker_records(3, 20)
    return [records[0], *[each for each in records[1:] if not isinstance(each, Started | Alive | Stopped)]]


def write_inputs(folder: Path) -> None:
    records = group_records()
    first_s, end_s = records[0].time, records[-1].time
    away = {1: (first_s + 14.0, end_s - 1.0, False), 2: (first_s + 12.0, first_s + 16.0, True)}
    for number, log in enumerate(replica_logs(records, "till", away), 1):
        lost = [Lost(end_s + 1.0, 3, "disk full")] if number == 1 else []  # the others have what it lost
        write_log(folder / f"till{number}", [*log, *lost])
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
    """Logs in two runs: the reports of both, the tables after them, and what was told of the second."""

    whole: Path
    """The logs as they are in the end, without the copies."""
    folder: Path
    output: Path
    growing: Path
    copied: int
    """Records that are there in two files."""
    first: RunReport
    second: RunReport
    states: list[tuple[str, str]]
    table: Callable[[str], DataFrame]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    with live_broker(tmp_path_factory.mktemp("live")) as broker:
        yield broker


@pytest.fixture(scope="module")
def pieces(
    spark: SparkSession, server: SparkServer, live: LiveBroker, tmp_path_factory: pytest.TempPathFactory
) -> Pieces:
    """First the half of each growing file, the later broker, and what a running broker has logged till then; then the
    rest, with copies of what was there, by the command. The state store is that of the product."""
    folder = tmp_path_factory.mktemp("pieces")
    whole, parts, output = folder / "whole", folder / "logs", folder / "output"
    write_inputs(whole)
    shutil.copytree(whole / "b2", parts / "b2")
    shutil.copytree(whole / "till2", parts / "till2")
    segments = sorted((whole / "b1").glob("*.jsonl"))
    (parts / "b1").mkdir()
    shutil.copy(segments[-1], parts / "b1")  # the latest first: what comes after it is late
    growing = parts / "evening.zap"
    growing.write_bytes((whole / "evening.zap").read_bytes()[:190])  # in the middle of a line
    inputs = [str(parts), f"live={live.url}"]
    state_store = "spark.sql.streaming.stateStore.providerClass"
    lean = {name: value for name, value in LEAN_RUN.items() if name != state_store}
    live.serve(5)
    first = run_tables(
        spark, inputs, output, database="logs", access=live.access, statistics=["box_changes"], configuration=lean
    )
    live.serve(7)
    for path in whole.rglob("*"):
        if path.is_file():
            target = parts / path.relative_to(whole)
            target.parent.mkdir(exist_ok=True)
            if not target.exists() or target == growing:
                target.write_bytes(path.read_bytes())
    copy = parts / "b1" / f"{segments[0].stem} (copy).jsonl"
    shutil.copy(segments[0], copy)
    states: list[tuple[str, str]] = []
    place = ["--output", str(output), "--remote", server.remote, "--database", "logs", "--json"]
    given = [text for name in inputs for text in ("--input", name)]
    with pytest.MonkeyPatch.context() as patch:
        told: Callable[[str, str], None] = lambda table, state: states.append((table, state))  # noqa: E731
        patch.setattr("surecast.cli.pipeline._progress", lambda: nullcontext(told))
        answer = CliRunner().invoke(app, ["run", *given, "--token-file", str(live.token_file), *place])
    assert answer.exit_code == 0, answer.output
    report = json.loads(answer.stdout)
    assert report == json.loads((output / "report.json").read_text())
    for name in TABLES:
        spark.catalog.refreshTable(f"logs.{name}")  # another session made them
    copied = len(copy.read_text().splitlines())
    second = RunReport(**report)
    return Pieces(
        whole, parts, output, growing, copied, first, second, states, lambda name: spark.read.table(f"logs.{name}")
    )


def test_every_record_is_accounted_for(pieces: Pieces, live: LiveBroker) -> None:
    report = pieces.second
    paths = [*pieces.folder.rglob("*"), *live.log.glob("*.jsonl")]
    lines = [path.read_text().splitlines() for path in paths if path.suffix in (".jsonl", ".zap", ".avt")]
    extra = 3 + 2 + 1  # samples of the trip, sessions below their header, and the file that is none of ours
    assert report.records == sum(len(each) for each in lines) + extra
    assert report.records == report.sound + report.duplicates + sum(report.quarantined.values())
    assert report.duplicates == 1 + pieces.copied
    assert report.new_records == report.records - pieces.first.records > 0
    assert list(pieces.first.waiting_bytes) == [str(pieces.growing)]
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


def test_quarantine_says_where_and_what(pieces: Pieces) -> None:
    assert "live" not in {row["log"] for row in pieces.table("quarantine").select("log").distinct().collect()}
    for row in pieces.table("quarantine").where("source IN ('broker', 'zap', 'avt')").collect():
        with Path(row["file"]).open("rb") as file:
            file.seek(row["position"])
            assert file.readline().decode().rstrip("\n") == row["text"]


def test_broker_events_are_the_logs(spark: SparkSession, pieces: Pieces, live: LiveBroker) -> None:
    """In whatever pieces, order and copies they came; that over the network is that on the broker's disk."""
    table = pieces.table("broker_events").select("log", *EVENT_COLUMNS)
    folders = {path.name: path for path in pieces.whole.iterdir() if path.is_dir()} | {"live": live.log}
    assert len(folders) == 6
    rows = []
    for log, folder in folders.items():
        lines = [line for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]
        lines = [line for line in lines if line not in BAD_LINES]
        rows += [(log, *[json.loads(line).get(name) for name in EVENT_COLUMNS]) for line in lines]
    assertDataFrameEqual(table, spark.createDataFrame(rows, table.schema))


def test_a_log_over_the_network(pieces: Pieces, live: LiveBroker) -> None:
    rows = rows_of(live.log)
    (read,) = pieces.table("input_files").where("log = 'live'").collect()
    assert (read["file"], read["records"], read["read_bytes"]) == (live.url, len(rows), len(rows))
    assert pieces.first.tables["broker_events"] < pieces.second.tables["broker_events"]
    (accounts,) = pieces.table("broker_accounts").where("broker = 'live'").collect()
    assert (accounts["messages"], accounts["delivered"], accounts["balanced"]) == (12, 12, True)


def test_zap_events_are_what_the_line_parser_reads(pieces: Pieces) -> None:
    expected: set[tuple[Any, ...]] = set()
    for event in parse_lines(ZAPS):
        if isinstance(event, ChannelChange):
            expected.add((event.time_s, event.box, "zap", None, event.to_channel, event.from_channel))
        elif not isinstance(event, BadLine):
            expected.add((event.time_s, event.box, event.kind, event.value, None, None))
    columns = ("unix_timestamp(time)", "box", "kind", "value", "to_channel", "from_channel")
    found = [tuple(row) for row in pieces.table("zap_events").selectExpr(*columns).collect()]
    assert set(found) == expected
    assert len(found) == len(expected)


def test_intervals_and_sessions(spark: SparkSession, pieces: Pieces) -> None:
    expected = [
        ("avt", "host-a", True, 0.0, 3600.0),
        ("avt", "host-a", True, 7200.0, 10800.0),
        ("bandwidth", "connection", True, 0.0, 1.0),
        ("bandwidth", "connection", False, 1.0, 1.5),
    ]
    table = pieces.table("availability").select("source", "component", "up", "start_s", "end_s")
    assertDataFrameEqual(table, spark.createDataFrame(expected, table.schema))
    (session,) = pieces.table("viewing_sessions").collect()
    assert (session["user"], session["channel"], session["duration_s"]) == ("7", "Trace TV", 125)


def test_subscriber_qos_is_the_message_by_message_count(pieces: Pieces) -> None:
    for seed in (1, 2):
        expected = subscriber_qos(rows_of(pieces.whole / f"b{seed}"))
        found = {
            row["client"]: row for row in pieces.table("subscriber_qos").where(f"broker = 'broker-{seed}'").collect()
        }
        assert found.keys() == expected.keys()
        for client, values in expected.items():
            assert found[client]["unknown"] == 0
            for name, value in values.items():
                assert found[client][name] == pytest.approx(value, abs=1e-6), (client, name)


def test_losses_and_accounts(pieces: Pieces) -> None:
    rows = rows_of(pieces.whole / "b1")
    kinds = Counter(row["type"] for row in rows)
    losses = pieces.table("subscriber_losses").where("broker = 'broker-1'").collect()
    assert {row["reason"] for row in losses} == {"queue full", "expired"}
    assert sum(row["messages"] for row in losses) == kinds["dropped"] + kinds["expired"]
    accounts = {row["broker"]: row.asDict() for row in pieces.table("broker_accounts").collect()}
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
    assert accounts["broker-1"] == expected
    assert (accounts["broker-2"]["lost_records"], accounts["broker-2"]["balanced"]) == (4, False)


def test_load_over_time(pieces: Pieces) -> None:
    rows = rows_of(pieces.whole / "b1")
    load = pieces.table("broker_load").where("broker = 'broker-1'").orderBy("start_s").collect()
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


def test_uptime_and_rates(pieces: Pieces) -> None:
    rows = rows_of(pieces.whole / "b1")
    starts = [i for i, row in enumerate(rows) if row["type"] == "started"]
    before = max(row["time"] for row in rows[: starts[1]])
    incarnations = pieces.table("broker_uptime").where("broker = 'broker-1'").orderBy("up_from_s").collect()
    assert [(row["up_from_s"], row["up_to_s"], row["ended_by"]) for row in incarnations] == [
        (rows[0]["time"], before, "crash"),
        (rows[starts[1]]["time"], rows[-1]["time"], "stopped"),
    ]
    for row in pieces.table("publisher_rates").where("broker = 'broker-1'").collect():
        own = [each for each in rows if each["type"] == "published" and each["client"] == row["client"]]
        times = np.sort([each.get("publication_time", each["time"]) for each in own])
        gaps = np.diff(times)
        assert row["messages"] == len(own)
        assert row["rate_per_s"] == pytest.approx((len(own) - 1) / (times[-1] - times[0]), rel=1e-6)
        assert row["gap_variation_squared"] == pytest.approx(gaps.var(ddof=1) / gaps.mean() ** 2, rel=1e-6)


def test_a_run_makes_the_tables_that_are_asked_for(pieces: Pieces) -> None:
    assert pieces.first.tables.keys() == STREAMING | {"input_files", "box_changes"}
    assert pieces.second.tables.keys() == TABLES.keys()


def test_no_table_is_computed_before_what_it_comes_from(pieces: Pieces) -> None:
    states = pieces.states
    for name in TABLES.keys() - {"raw_records"}:
        assert states.index((name, "starting")) > states.index(("raw_records", "completed")), name
    origins = {
        "broker_events": set(VIEWS) - {"input_files"},
        "zap_events": {"box_changes"},
        "box_changes": set(ZAP_VIEWS) - {"box_changes", "channel_top"},
        "channel_viewers": {"channel_top"},
    }
    for origin, names in origins.items():
        for name in names:
            assert states.index((name, "starting")) > states.index((origin, "completed")), name


def test_statistics_of_viewers_are_tables_too(pieces: Pieces) -> None:
    columns = ("unix_timestamp(time)", "box", "from_channel", "to_channel", "unix_timestamp(since)")
    found = {tuple(row) for row in pieces.table("box_changes").selectExpr(*columns).collect()}
    events = [event for event in parse_lines(ZAPS) if not isinstance(event, BadLine)]
    assert found == set(changes_of(sorted(events, key=lambda event: event.time_s)))
    for name in ("channel_viewers", "channel_top", "channel_stops", "box_sessions", "programme_reach"):
        assert (pieces.second.tables[name] > 0) == (name != "channel_stops"), name  # no stop has ended


def test_replicas_of_a_group_are_one_broker(pieces: Pieces) -> None:
    """One row for each client, with what one log that has everything says; only incarnations are of the replicas."""
    rows = [{"type": type(each).__name__.lower(), **each._asdict()} for each in group_records()]
    given = [{name: value for name, value in row.items() if value is not None} for row in rows]
    expected = subscriber_qos(given)
    found = pieces.table("subscriber_qos").where("broker LIKE 'till%'").collect()
    assert Counter((row["broker"], row["client"]) for row in found) == Counter(("till", name) for name in expected)
    for row in found:
        for name, value in expected[row["client"]].items():
            assert row[name] == pytest.approx(value, abs=1e-6), (row["client"], name)
    kinds = Counter(row["type"] for row in rows)
    (accounts,) = pieces.table("broker_accounts").where("broker LIKE 'till%'").collect()
    assert (accounts["broker"], accounts["messages"], accounts["balanced"]) == ("till", 20, True)
    assert [accounts[name] for name in ("delivered", "dropped", "expired")] == [
        kinds[name] for name in ("delivered", "dropped", "expired")
    ]
    load = pieces.table("broker_load").where("broker LIKE 'till%'").orderBy("start_s").collect()
    assert {row["broker"] for row in load} == {"till"}
    assert (sum(row["published"] for row in load), load[-1]["subscriptions"]) == (20, 2)
    rates = pieces.table("publisher_rates").where("broker LIKE 'till%'").collect()
    assert {(row["broker"], row["client"], row["messages"]) for row in rates} == {
        ("till", "p0", 10),
        ("till", "p1", 10),
    }
    incarnations = pieces.table("broker_uptime").where("broker LIKE 'till%'").collect()
    assert Counter(row["broker"] for row in incarnations) == {"till-1": 2, "till-2": 2, "till-3": 1}


def test_a_step_that_would_read_the_tables_of_the_last_run_is_refused(spark: SparkSession, pieces: Pieces) -> None:
    from surecast.pipeline.graph_runner import bound_late

    events = pieces.table("broker_events")
    wrong = events.select("log").withColumn("one", F.lit(1)).groupBy("log").count()
    with pytest.raises(ConfigurationError, match="the table x is made with with_columns, which reads its tables as"):
        bound_late("x", events.join(wrong, "log"))
    with pytest.raises(ConfigurationError, match="made with drop,"):
        bound_late("x", events.unionAll(events).drop("log"))
    bound_late("x", events.select("*", F.lit(1).alias("one")))


def test_a_lost_row_is_no_duplicate(spark: SparkSession, pieces: Pieces) -> None:
    raw = pieces.table("raw_records")
    held = {name: pieces.second.tables[name] for name in (*CLEAN, "quarantine")}
    held["availability"] = 3  # lines: one of them has two intervals
    assert differences(count_raw(raw), held) == []
    held["zap_events"] -= 1
    (said,) = differences(count_raw(raw), held)
    assert said == f"zap_events has {held['zap_events']} records in place of {held['zap_events'] + 1}"


def test_show_prints_rows(server: SparkServer, pieces: Pieces) -> None:
    place = ["--output", str(pieces.output), "--remote", server.remote, "--database", "logs"]
    shown = CliRunner().invoke(app, ["show", "broker_accounts", "--limit", "1", "--json", *place])
    assert shown.exit_code == 0, shown.output
    (row,) = json.loads(shown.stdout)
    assert (row["broker"], row["balanced"]) == ("broker-1", True)


def test_files_of_the_manifest_are_the_tables(spark: SparkSession, pieces: Pieces) -> None:
    """Read without Spark, with the same values in the same order, and by the commands."""
    for name in TABLES:
        by_spark, by_arrow = (
            read_table(spark, name, 100_000, "logs"),
            first_rows(pieces.output, name, 100_000),
        )
        assert Counter(map(repr, by_arrow)) == Counter(map(repr, by_spark)), name
        keys = [list(row.values())[:3] for row in by_arrow]
        assert keys == [list(row.values())[:3] for row in by_spark], name
    place = ["--output", str(pieces.output)]
    shown = CliRunner().invoke(app, ["show", "broker_accounts", "--database", "logs", "--json", *place])
    assert [row["broker"] for row in json.loads(shown.stdout)] == ["broker-1", "broker-2", "live", "till"]
    listed = json.loads(CliRunner().invoke(app, ["tables", "--json", *place]).stdout)
    assert {name: each["rows"] for name, each in listed.items()} == pieces.second.tables


def test_nothing_new_needs_no_spark(pieces: Pieces, live: LiveBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark is asked only when there is something to do."""

    class SparkIsAskedError(Exception):
        pass

    def ask(*_: Any, **__: Any) -> None:
        raise SparkIsAskedError

    monkeypatch.setattr("surecast.pipeline.pipeline_run.open_tables", ask)
    inputs = [text for name in (str(pieces.folder), f"live={live.url}") for text in ("--input", name)]
    output = ["--output", str(pieces.output), "--database", "logs", "--token-file", str(live.token_file)]
    command = ["run", *inputs, *output, "--remote", "sc://localhost:9", "--json"]
    answer = CliRunner().invoke(app, command)
    assert answer.exit_code == 0, answer.output
    report = RunReport(**json.loads(answer.stdout))
    same = replace(report, new_records=pieces.second.new_records, duration_s=pieces.second.duration_s, unchanged=False)
    assert (report.unchanged, report.new_records, same) == (True, 0, pieces.second)
    assert CliRunner().invoke(app, command[:-1]).stdout.startswith(f"nothing new in {report.files} files; ")

    def has_work(*more: str) -> bool:
        return isinstance(CliRunner().invoke(app, [*command, *more]).exception, SparkIsAskedError)

    assert not has_work()
    assert has_work("--full-refresh")
    assert has_work("--window", "2min")
    size = pieces.growing.stat().st_size
    with pieces.growing.open("ab") as file:
        file.write(b"2024-01-01,20:19:00")
    assert not has_work()  # half a line
    with pieces.growing.open("ab") as file:
        file.write(b",10.0.0.3,NRK1,A\n")
    assert has_work()
    os.truncate(pieces.growing, size)
    live.serve(1)
    assert has_work()


def test_a_scenario_is_learned_on_a_server_that_runs_already(
    server: SparkServer, pieces: Pieces, tmp_path: Path
) -> None:
    from surecast.cli.app import app as surecast
    from surecast.scenario import load_system

    place = ["--tables", str(pieces.output), "--remote", server.remote, "--database", "logs"]
    answer = CliRunner().invoke(surecast, ["learn", *place, "--out", str(tmp_path / "learned.yaml")])
    assert answer.exit_code == 0, answer.output
    learned, _ = load_system(tmp_path / "learned.yaml")
    assert {each.name for each in learned.overlay.brokers} == {"broker-1", "broker-2", "live", "till"}
    expected = {"p0": 3, "p1": 3, "client-0": 1, "client-1": 1}  # on all of the brokers that were made up
    assert Counter(each.name.split()[0] for each in learned.workload.publishers) == Counter(expected)


def test_show_reads_rows_as_json_has_them(spark: SparkSession, pieces: Pieces) -> None:
    rows: list[dict[str, Any]] = read_table(spark, "broker_accounts", 1, "logs")
    assert json.loads(json.dumps(rows))[0]["broker"] == "broker-1"
    with pytest.raises(ConfigurationError, match="there is no table 'nothing'; there are: raw_records"):
        read_table(spark, "nothing", 1, "logs")


def test_quantiles_of_fewer_values_than_the_accuracy_are_exact(spark: SparkSession) -> None:
    count = 9_000
    values = spark.range(count).select(((F.col("id") * 7_919) % count / 8).alias("delay_s"))  # a permutation
    (found,) = values.agg(F.percentile_approx("delay_s", list(QUANTILES), ACCURACY)).collect()[0]
    assert found == [(math.ceil(share * count) - 1) / 8 for share in QUANTILES]
