"""The statistics that Spark reduces tables to are those of a loop over the records; and what the command refuses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer
from tests.pipeline.conftest import LEAN_RUN
from tests.pipeline.learn.logs_known import Truth, known_log, replica_logs, statistics_of
from tests.pipeline.logs import write_log

from surecast.broker.event_log import Published, Record, Unsubscribed
from surecast.errors import ConfigurationError, SurecastError
from surecast.event_log_records import SPARK_SCHEMA
from surecast.pipeline import run_tables
from surecast.pipeline.learn import Statistics, Times, learn_scenario
from surecast.pipeline.learn.log_statistics import Client
from surecast.scenario import Scenario, parse_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EPOCH_S = 1_700_000_000.0
NEEDED = ["broker_uptime", "publisher_rates"]


def later(record: Record) -> Record:
    """The same record at a time that a log may have."""
    changes: dict[str, Any] = {"time": round(record.time + EPOCH_S, 6)}
    if isinstance(record, Published) and record.publication_time is not None:
        changes["publication_time"] = record.publication_time + EPOCH_S
    return record._replace(**changes)


def assert_same(found: Mapping[Client, Times], expected: Mapping[Client, Times]) -> None:
    kept = {client: times for client, times in expected.items() if len(times.value_s)}
    assert found.keys() == kept.keys()
    for client, times in kept.items():
        assert (found[client].ends, found[client].cut_off) == (times.ends, times.cut_off)
        assert found[client].total_s == pytest.approx(times.total_s, abs=1e-3)


@pytest.mark.long
def test_from_logs_through_the_pipeline_to_a_scenario(spark: SparkSession, tmp_path: Path) -> None:
    from surecast.pipeline.learn.table_statistics import read_statistics

    truth = Truth(duration_s=400.0, up_s=80.0)
    records = [later(each) for each in known_log(truth, 5)]
    records.append(Unsubscribed(records[-1].time + 0.5, "s2", "plant/#", "client"))
    write_log(tmp_path / "logs" / "hub", records)
    (tmp_path / "logs" / "lines.avt").write_text("hub--edge 3 0 100 110 220 225 400\n")
    spark.sql("CREATE DATABASE learned")
    run_tables(
        spark,
        [str(tmp_path / "logs")],
        tmp_path / "output",
        database="learned",
        statistics=NEEDED,
        configuration=LEAN_RUN,
    )
    found, expected = read_statistics(spark, "learned"), statistics_of(records, truth.broker)
    incarnations = sorted(found.incarnations, key=lambda incarnation: incarnation.up_from_s)
    assert [incarnation.ended_by for incarnation in incarnations] == [
        incarnation.ended_by for incarnation in expected.incarnations
    ]
    assert [incarnation.up_to_s for incarnation in incarnations] == pytest.approx(
        [incarnation.up_to_s for incarnation in expected.incarnations], abs=1e-5
    )
    assert found.alive_s["hub"] == pytest.approx(1.0, abs=1e-3)
    assert_same(found.on, expected.on)
    assert_same(found.off, expected.off)
    assert_same(found.service, expected.service)
    assert {*found.published} == {*expected.published}
    assert found.deadlines == expected.deadlines
    assert {client: sum(each.values()) for client, each in found.windows.items()} == {
        client: sum(each.values()) for client, each in expected.windows.items()
    }
    assert {*found.subscriptions} == {*expected.subscriptions}
    assert found.arrivals == expected.arrivals
    assert found.lifetimes is not None
    assert expected.lifetimes is not None
    assert_same({("", ""): found.lifetimes}, {("", ""): expected.lifetimes})
    answer = learn_scenario(found)
    scenario = parse_text(answer.to_yaml())
    assert set(scenario.availability.each) == {"hub", "hub--edge"}
    assert len(scenario.workload.subscribers) == truth.subscribers
    with pytest.raises(ConfigurationError, match="the table broker_events is not in the database nowhere"):
        read_statistics(spark, "nowhere")


@pytest.mark.long
def test_replicas_of_a_group_are_learned_as_one_broker(spark: SparkSession, tmp_path: Path) -> None:
    """Three logs of which two have gaps give the statistics of the one log that has everything."""
    from surecast.pipeline.learn.table_statistics import read_statistics

    truth = Truth(broker="till", duration_s=300.0, up_s=1e9)
    records = [later(each) for each in known_log(truth, 6)]
    first_s, last = records[0].time, records[-1].time
    extra = [
        Published(last - 1.0, "probe 1", "surecast-run/probe", 90_001, 1, 0, 0),
        Published(last - 0.5, "", "zap/viewers/A", 90_002, 0, 1, 0),
    ]
    whole = sorted([*records, *extra], key=lambda each: each.time)
    away = {1: (first_s + 80.0, first_s + 110.0, False), 2: (first_s + 150.0, first_s + 190.0, True)}
    for number, log in enumerate(replica_logs(whole, "till", away), 1):
        write_log(tmp_path / "logs" / str(number), log)
    spark.sql("CREATE DATABASE replicas")
    run_tables(
        spark,
        [str(tmp_path / "logs")],
        tmp_path / "output",
        database="replicas",
        statistics=NEEDED,
        configuration=LEAN_RUN,
    )
    found, expected = read_statistics(spark, "replicas"), statistics_of(records, "till")
    assert [incarnation.broker for incarnation in found.incarnations] == ["till"]
    assert found.incarnations[0].up_from_s == pytest.approx(first_s, abs=1e-5)
    assert found.incarnations[0].up_to_s == pytest.approx(last, abs=1e-5)
    incarnations = sorted(
        found.groups["till"].incarnations, key=lambda incarnation: (incarnation.broker, incarnation.up_from_s)
    )
    assert [(incarnation.broker, incarnation.ended_by) for incarnation in incarnations] == [
        ("till-1", "crash"),
        ("till-1", "open"),
        ("till-2", "crash"),
        ("till-2", "open"),
        ("till-3", "open"),
    ]
    assert [incarnation.up_from_s - first_s for incarnation in incarnations] == pytest.approx(
        [0.0, 110.0, 0.0, 190.0, 0.0], abs=1e-5
    )
    assert_same(found.on, expected.on)
    assert_same(found.off, expected.off)
    assert_same(found.service, expected.service)
    assert {*found.published} == {*expected.published}
    assert {(row.client, row.topic, row.messages) for row in found.aside} == {
        ("probe 1", "surecast-run/probe", 1),
        ("", "zap/viewers/A", 1),
    }
    assert found.deadlines == expected.deadlines
    assert {client: sum(each.values()) for client, each in found.windows.items()} == {
        client: sum(each.values()) for client, each in expected.windows.items()
    }
    assert {*found.subscriptions} == {*expected.subscriptions}
    assert found.arrivals == expected.arrivals
    scenario = parse_text(learn_scenario(found).to_yaml())
    assert [each.name for each in scenario.overlay.brokers] == ["till"]
    assert scenario.delivery.replication.replicas == 3
    assert {each.name for each in scenario.workload.publishers} == set(truth.rates)


def test_what_was_held_back_during_an_outage_was_published_then(spark: SparkSession) -> None:
    """All replicas are down for most of the time. One publisher keeps its messages until the group is back, by a clock
    that is an hour fast; two lose them, of which one does not say when it published."""
    from surecast.pipeline.learn.table_statistics import read_statistics

    up = [(0.0, 100.0), (400.0, 500.0)]
    rows: list[dict[str, Any]] = []
    for number in (1, 2, 3):
        log: list[dict[str, Any]] = []
        for start_s, end_s in up:
            named = {"type": "started", "broker": f"g-{number}", "group": "g", "replicas": 3}
            log.append({"time": start_s, **named})
            log += [
                {"time": float(at), "type": "alive", "broker": f"g-{number}"} for at in range(int(start_s), int(end_s))
            ]
        for at in range(500):
            sent_s = at + 0.5
            is_up = any(start_s <= sent_s < end_s for start_s, end_s in up)
            taken_s = sent_s if is_up else 401.0
            message = {"type": "published", "topic": "t", "message": at, "qos": 1, "bytes": 1, "receivers": 0}
            log.append({"time": taken_s + 0.01, "client": "keeps", "publication_time": sent_s + 3600.0, **message})
            if is_up:
                log.append({"time": taken_s, "client": "loses", "publication_time": sent_s, **message})
                log.append({"time": taken_s, "client": "silent", **message})
        log.sort(key=lambda row: row["time"])
        rows += [{"log": f"r{number}", "offset": offset, **row} for offset, row in enumerate(log)]
    tables = {
        "broker_events": (f"log STRING, {SPARK_SCHEMA}", rows),
        "broker_uptime": (
            "broker STRING, up_from_s DOUBLE, up_to_s DOUBLE, ended_by STRING, seen_start BOOLEAN",
            [(f"g-{n}", a, b - 1.0, "open" if a else "crash", True) for n in (1, 2, 3) for a, b in up],
        ),
        "availability": (
            "source STRING, trace STRING, component STRING, up BOOLEAN, start_s DOUBLE, end_s DOUBLE",
            [],
        ),
        "publisher_rates": ("broker STRING, client STRING, messages BIGINT, gap_variation_squared DOUBLE", []),
    }
    spark.sql("CREATE DATABASE held")
    for name, (schema, values) in tables.items():
        spark.createDataFrame(values, schema).write.saveAsTable(f"held.{name}")
    found = read_statistics(spark, "held")
    assert found.held.keys() == {("g", "keeps")}
    ((from_s, until_s),) = found.held["g", "keeps"]
    assert from_s == pytest.approx(100.51)
    assert until_s == 400.0
    scenario = parse_text(learn_scenario(found).to_yaml())
    rates = {each.name: each.rate[0] for each in scenario.workload.publishers}
    assert rates == {name: pytest.approx(1.0, rel=0.02) for name in ("keeps", "loses", "silent")}


def refuse(arguments: list[str]) -> SurecastError:
    from typer.testing import CliRunner

    from surecast.cli.learn import learn

    app = typer.Typer()
    app.command()(learn)
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, SurecastError), result.output
    return result.exception


def test_the_command_refuses_before_spark_is_started(tmp_path: Path) -> None:
    tables = ["--tables", str(tmp_path)]
    assert "there are no tables" in str(refuse(tables))
    (tmp_path / "metastore").mkdir()
    out = tmp_path / "scenario.yaml"
    out.write_text("mine")
    assert "the file exists" in str(refuse([*tables, "--out", str(out)]))
    assert out.read_text() == "mine"
    assert "write topics or classes" in str(refuse([*tables, "--workload", "x"]))
    assert "cannot be read" in str(refuse([*tables, "--filters", str(tmp_path / "none")]))


def test_the_command_writes_prints_and_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of the command but Spark: the statistics are those of the loop."""
    from typer.testing import CliRunner

    import surecast.pipeline
    import surecast.pipeline.learn.table_statistics
    from surecast.cli.learn import learn

    statistics = statistics_of(known_log(Truth(duration_s=300.0), 1), "hub")
    monkeypatch.setattr(surecast.pipeline, "open_tables", lambda *_, **__: nullcontext((None, "")))
    monkeypatch.setattr(surecast.pipeline.learn.table_statistics, "read_statistics", lambda *_: statistics)
    (tmp_path / "metastore").mkdir()
    out = tmp_path / "scenario.yaml"
    app = typer.Typer()
    app.command()(learn)
    command = ["--tables", str(tmp_path), "--out", str(out), "--name", "mine"]
    result = CliRunner().invoke(app, [*command, "--json"])
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert Scenario.load(out).to_data() == parse_text(json.dumps(answer["scenario"])).to_data()
    assert {"field", "value", "low", "high", "n", "verdict"} <= answer["estimates"][0].keys()
    result = CliRunner().invoke(app, [*command, "--force"])
    assert result.exit_code == 0, result.output
    assert Scenario.load(out).name == "mine"
    out.write_text("mine")
    monkeypatch.setattr(surecast.pipeline.learn.table_statistics, "read_statistics", lambda *_: Statistics())
    result = CliRunner().invoke(app, [*command, "--force"])
    assert "there is nothing to learn from" in str(result.exception)
    assert out.read_text() == "mine"
