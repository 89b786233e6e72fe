"""Learn: Spark reads the logs of the run, counts viewers, estimates parameters, and a scenario comes out."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from surecast.errors import AssumptionError
from surecast.pipeline import RunReport, ServerSettings, open_tables, read_table, run_tables
from surecast.pipeline.learn import Learned, LearnedValue, Statistics, learn_scenario
from surecast.prediction.composed import predict_composed
from surecast.report.report_files import write_whole
from surecast.scenario import Scenario, System, build, parse_text
from surecast.studio.chart import Axis, Chart, Layer, Line, Points
from surecast.studio.page import Cell, Table
from surecast.tour.live_clients import GROUP, TABLET, Live, LiveSettings
from surecast.tour.stage_content import (
    Block,
    CheckedClaim,
    CheckedClaims,
    Code,
    Key,
    Picture,
    SavedTable,
    StageOutcome,
    Text,
    Tile,
    TourContext,
    picture,
    share,
)
from surecast.zap import viewers_topic

__all__ = ["learn_stage", "prediction_of", "verdicts_of"]

Rows = list[dict[str, Any]]
_SHOWN: Final = 5
_ROWS_MAX: Final = 100_000
_TABLES: Final = 21
_SMALL: Final = {
    # There are some ten thousand records: to share them out, and to keep their state in a database, takes longer.
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    ),
}


def learn_stage(context: TourContext) -> StageOutcome:
    """Turns the logs of the live run into tables, statistics, estimates and a scenario."""
    live, logs = context.live, context.logs
    assert live is not None, "the stage is skipped without a run"
    assert logs is not None
    report, statistics, rows = _read(context, logs)
    learned = learn_scenario(statistics, name="learned", base=_base())
    path = context.out / "learned.yaml"
    text = learned.to_yaml()
    write_whole(path, lambda file: file.write(text.encode()))
    context.learned = path
    mine = [row for row in rows["subscriber_qos"] if row["broker"] == GROUP]
    lead = (
        f"Spark read {report.records:,} records of {report.files} log files, of three replicas and three regions, "
        f"counted the viewers of each channel, and put {report.sound:,} records into tables; "
        f"{sum(report.quarantined.values())} could not be used. What all replicas wrote down counts once: from it "
        f"Spark estimated {len(learned.estimates)} parameters with their intervals, and wrote the scenario below, "
        "which the other commands take like any other."
    )
    tiles = (
        Tile("log records", f"{report.records:,}", f"in {report.files} files"),
        Tile("rows in tables", f"{sum(report.tables.values()):,}", f"{len(report.tables)} tables"),
        Tile("parameters estimated", f"{len(learned.estimates)}", "each with a 95 % interval"),
        Tile("not usable", f"{sum(report.quarantined.values())}", "records in quarantine"),
    )
    blocks: tuple[Block, ...] = (
        _viewers(rows["channel_top"]),
        _estimates(learned, live),
        verdicts_of(report, rows, live),
        _qos(mine),
        prediction_of(learned, mine),
        Code("The scenario", text, "learned.yaml"),
    )
    key: Key = {
        "records": report.records,
        "files": report.files,
        "quarantined": sum(report.quarantined.values()),
        "estimates": len(learned.estimates),
        "scenario": str(path),
        "spark_s": round(report.duration_s, 1),
    }
    return StageOutcome(lead, tiles, blocks, key)


def _read(context: TourContext, logs: Path) -> tuple[RunReport, Statistics, dict[str, Rows]]:
    """Runs the pipeline in one session of Spark; returns its report, the statistics, and some tables."""
    context.show("starting Spark", 0, 0)
    output = context.work / "tables"
    states: dict[str, str] = {}

    def show_state(table: str, state: str) -> None:
        states[table] = state
        context.show(f"Spark, {table}", sum(each == "completed" for each in states.values()), max(len(states), _TABLES))

    with open_tables(output, ServerSettings(master="local[2]", is_brief=True)) as (spark, _):
        from surecast.pipeline.learn.table_statistics import read_statistics

        report = run_tables(spark, [str(logs)], output, window_s=60.0, configuration=_SMALL, progress=show_state)
        context.show("estimating", 0, 0)
        statistics = read_statistics(spark)
        wanted = ("channel_top", "channel_viewers", "subscriber_qos", "broker_accounts", "broker_uptime")
        rows = {name: read_table(spark, name, _ROWS_MAX) for name in wanted}
    return report, statistics, rows


def _base() -> tuple[Scenario, System]:
    """Returns the settings that no log contains: the dropping of the broker for the tablet."""
    join = LiveSettings(1.0).join_probability
    scenario = parse_text(
        "{surecast: 1, name: base, overlay: {brokers: [{name: zap}]}, "
        f"delivery: {{dropping: {{policy: probabilistic, join_probability: {join}}}}}}}"
    )
    return scenario, build(scenario)


def _viewers(top: Rows) -> Picture:
    """Returns the picture of the most viewed channels of the evening."""
    last = max((row["start"] for row in top), default=None)
    names = [row["channel"] for row in top if row["start"] == last][:_SHOWN]
    starts = sorted({row["start"] for row in top})
    counts = {(row["start"], row["channel"]): row["viewers"] for row in top}
    minutes = [float(k) for k in range(len(starts))]
    layers: list[Layer] = []
    for name in names:
        viewers = [float(counts.get((start, name), math.nan)) for start in starts]
        layers += [Line(name, minutes, viewers, hover=()), Points(name, minutes, viewers, size_px=6.0)]
    step = -(-len(starts) // 8) if starts else 1
    chart = Chart(
        layers,
        title="Viewers of the evening",
        x=Axis(
            "time of the evening, by the clock of the set-top boxes (hours:minutes)",
            ticks=[(minutes[k], _clock(starts[k])) for k in range(0, len(starts), step)],
        ),
        y=Axis("viewers at the end of the minute (boxes)", from_zero=True, whole=True),
        caption=(
            "Counted by Spark from the logs of the boxes, minute by minute. It is the same evening that the broker "
            "counted live, by other code; below the two are compared. Where a curve has a gap, the channel was not "
            "among the ten most viewed."
        ),
        ratio=0.0,
    )
    rows: list[list[Cell]] = [[_clock(row["start"]), row["rank"], row["channel"], row["viewers"]] for row in top]
    return picture(chart, ("time", "rank", "channel", "viewers"), rows, "evening")


def _clock(start: Any) -> str:
    moment = start if isinstance(start, datetime) else datetime.fromtimestamp(float(start), UTC)
    return moment.strftime("%H:%M")


def _estimates(learned: Learned, live: Live) -> SavedTable:
    """Returns every estimate beside the setting of the run, where there is one."""
    rows: list[list[Cell]] = []
    for estimate in learned.estimates:
        truth = _truth(estimate, live)
        high = "no limit" if math.isinf(estimate.high) else f"{estimate.high:.3g}"
        rows.append(
            [
                estimate.what,
                f"{estimate.value:.3g} {estimate.unit}".strip(),
                f"{estimate.low:.3g} to {high}",
                truth,
                estimate.n,
                estimate.verdict,
            ]
        )
    header = ("what", "estimate", "95 % interval", "the run had", "observations", "verdict")
    return SavedTable(Table(header, rows, "What Spark learned, beside what is known to be so"), "estimates")


def _truth(estimate: LearnedValue, live: Live) -> str:
    """Returns the true value of the run, if known: a setting of the tour, or what its clients recorded."""
    settings = LiveSettings(1.0)
    if estimate.what.startswith("rate of region-"):
        number = int(estimate.what.removeprefix("rate of region-").split(":")[0])
        mine = [each.sent_at for each in live.sent if each.publisher == number]
        span_s = max(mine, default=0.0) - min(mine, default=0.0)
        rate = f", {(len(mine) - 1) / span_s:.3g} per s for {span_s:.0f} s, else none" if span_s > 0.0 else ""
        return f"{len(mine)} messages{rate}"
    means = {f"{TABLET} on": settings.on_s, f"{TABLET} off": settings.off_s}
    return f"drawn with a mean of {means[estimate.what]:g} s" if estimate.what in means else ""


def verdicts_of(report: RunReport, rows: Mapping[str, Rows], live: Live) -> CheckedClaims:
    """Returns the verdicts on the tables, compared with what the clients of the run received."""
    name = next(iter(live.arrived))
    published = {
        message.topic: int(message.payload)
        for message in live.arrived[name]
        if message.topic.startswith("zap/viewers/")
    }
    last = max((row["start"] for row in rows["channel_viewers"]), default=None)
    counted = {viewers_topic(row["channel"]): row["viewers"] for row in rows["channel_viewers"] if row["start"] == last}
    channels = published.keys() | counted.keys()
    wrong = sum(published.get(channel, 0) != counted.get(channel, 0) for channel in channels)
    crashed = [row["broker"] for row in rows["broker_uptime"] if row["ended_by"] == "crash"]
    killed = f"{GROUP}-{live.killed}"
    accounts = [row for row in rows["broker_accounts"] if row["broker"] == GROUP]
    return CheckedClaims(
        "Checked on the tables",
        (
            CheckedClaim(
                report.records == report.sound + report.duplicates + sum(report.quarantined.values()),
                "Every record is accounted for.",
                f"{report.records:,} read = {report.sound:,} sound + {report.duplicates:,} seen before + "
                f"{sum(report.quarantined.values())} in quarantine.",
            ),
            CheckedClaim(
                wrong == 0,
                "Spark counts the viewers that the broker published.",
                f"{len(channels)} channels at the end of the evening; {wrong} differ.",
            ),
            CheckedClaim(
                len(accounts) == 1 and accounts[0]["balanced"],
                "The accounts of the group balance, whatever its replicas wrote down how often.",
                "; ".join(_balance(row) for row in accounts) or "There are none.",
            ),
            CheckedClaim(
                crashed == [killed],
                "The logs tell of one crash.",
                f"{', '.join(crashed) or 'none'}; {killed} was killed.",
            ),
        ),
    )


def _balance(row: Mapping[str, Any]) -> str:
    return (
        f"{row['messages']:,} messages for {row['receivers']:,} receivers: {row['delivered']:,} delivered, "
        f"{row['dropped']:,} dropped, {row['expired']:,} expired, {row['waiting']:,} waiting; "
        f"{row['overdrawn']:,} with more than that, {row['unpublished']:,} that were never published"
    )


def _qos(mine: Sequence[Mapping[str, Any]]) -> SavedTable:
    header = ("subscriber", "messages", "in time", "dropped", "expired", "mean delay in ms", "99 % within ms")
    rows: list[list[Cell]] = []
    for row in mine:
        delays = [None if row[name] is None else 1000.0 * row[name] for name in ("delay_mean_s", "delay_p99_s")]
        rows.append(
            [
                row["client"],
                row["messages"],
                "-" if row["reliability"] is None else share(row["reliability"]),
                row["dropped"],
                row["expired"],
                *delays,
            ]
        )
    return SavedTable(Table(header, rows, "What each subscriber got, by the log"), "subscriber-qos")


def prediction_of(learned: Learned, mine: Sequence[Mapping[str, Any]]) -> Text:
    """Returns the prediction of the learned scenario beside the logs; or the reason why there is none.

    Its one failure was made on purpose, in a run of seconds: how often replicas fail is left out.
    """
    title = "The circle closes"
    system = build(
        parse_text(json.dumps({name: part for name, part in learned.data.items() if name != "availability"}))
    )
    row = next((row for row in mine if row["client"] == TABLET and row["messages"]), None)
    coming = any(item.name == TABLET and item.connectivity is not None for item in system.subscribers)
    if row is None or not coming:
        return Text(
            "The tablet left or came back too seldom for its periods to be estimated; a longer run has them.", title
        )
    got = (row["on_time"] + row["late"] + row["unknown"]) / row["messages"]
    logged = f"By the log it got {share(got)} of {row['messages']:,}."
    try:
        report = predict_composed(system, factors=False)
    except AssumptionError as refusal:
        return Text(f"The models refuse the learned scenario, and say why: {refusal}. {logged}", title)
    shares = [item.value for item in report.select(scope="subscriber", metric="success_share") if item.name == TABLET]
    if not shares:  # a report has the subscribers that can be served, and says why others are left out
        refusals = [warning for warning in report.info.warnings if TABLET in warning]
        why = "; ".join(refusals) or "by the learned scenario nobody publishes what it subscribed to"
        return Text(f"The models have no answer for the tablet: {why}. {logged}", title)
    return Text(
        f"Predicted from the learned scenario, without the failure that was made, the tablet gets {share(shares[0])} "
        f"of its events, half of those that come while it is away being dropped. {logged} So few periods on and off "
        "line tell their means only roughly; the intervals above say how roughly.",
        title,
    )
