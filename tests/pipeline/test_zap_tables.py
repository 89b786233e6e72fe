"""Statistics of viewers: Spark against the event-by-event counts, and against ZapViewers on the same log."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd  # type: ignore[import-untyped,unused-ignore]
import pytest
from pyspark.testing import assertDataFrameEqual
from tests.pipeline.zaps import START_S, Change, Stop, changes_of, evening, reach_of, stops_of, viewers_by_second

from surecast.errors import ConfigurationError
from surecast.pipeline import zap_changes, zap_viewers, zap_viewing
from surecast.pipeline.zap_views import SCHEDULE_SCHEMA, read_schedule
from surecast.zap.events import ChannelChange, Event
from surecast.zap.viewers import Viewers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENT_SCHEMA = (
    "time TIMESTAMP, box STRING, kind STRING, value INT, to_channel STRING, from_channel STRING, "
    "log STRING, file STRING, position BIGINT"
)


def moment(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC).replace(tzinfo=None)


def event_rows(events: list[Event], file: str = "a.zap") -> list[tuple[Any, ...]]:
    """Rows of zap_events."""
    rows: list[tuple[Any, ...]] = []
    for position, event in enumerate(events):
        if isinstance(event, ChannelChange):
            what: tuple[Any, ...] = ("zap", None, event.to_channel, event.from_channel)
        else:
            what = (event.kind, event.value, None, None)
        rows.append((moment(event.time_s), event.box, *what, file, file, position))
    return rows


@dataclass(frozen=True)
class Evening:
    """A log, what plain Python makes of it, and what Spark does."""

    events: list[Event]
    changes: list[Change]
    stops: list[Stop]
    found: DataFrame


@pytest.fixture(scope="module")
def log(spark: SparkSession) -> Evening:
    events = list(evening().events())
    table = spark.createDataFrame(event_rows(events), EVENT_SCHEMA)
    zap_changes.box_changes(table).write.mode("overwrite").saveAsTable("evening_changes")
    changes = changes_of(events)
    return Evening(events, changes, stops_of(changes), spark.read.table("evening_changes"))


def change_rows(changes: list[Change]) -> list[tuple[Any, ...]]:
    return [(moment(t), box, a, b, None if since is None else moment(since)) for t, box, a, b, since in changes]


def test_changes_are_those_of_the_boxes(spark: SparkSession, log: Evening) -> None:
    assert len(log.changes) > 500
    assert any(after is None for _, _, _, after, _ in log.changes)
    assertDataFrameEqual(log.found, spark.createDataFrame(change_rows(log.changes), zap_changes.CHANGE_SCHEMA))


def test_viewers_and_top_lists_are_those_of_zapviewers(log: Evening) -> None:
    """P2S Listing 4: num_viewers and compute_top_list after all events up to an instant."""
    for after_s in (1, 1800, 3 * 3600):
        viewers = Viewers()
        viewers.execute(event for event in log.events if event.time_s <= START_S + after_s)
        at = moment(START_S + after_s)
        counts = {row["channel"]: row["viewers"] for row in zap_viewers.viewers_at(log.found, at).collect()}
        assert counts == {name: n for name in viewers.channels if (n := viewers.num_viewers(name))}
        assert sum(counts.values()) == viewers.on
        top = [(row["channel"], row["viewers"]) for row in zap_viewers.top_channels(log.found, at, 5).collect()]
        assert top == [(each.channel, each.viewers) for each in viewers.compute_top_list(5)]


def test_windows_have_the_viewers_of_their_seconds(log: Evening) -> None:
    window_s = 600
    end_s = log.changes[-1][0] // window_s * window_s + window_s
    seconds = viewers_by_second(log.changes, end_s)
    expected: dict[tuple[int, str], list[int]] = defaultdict(lambda: [0] * window_s)
    for second, viewers in seconds.items():
        for channel, count in viewers.items():
            expected[second // window_s * window_s, channel][second % window_s] = count
    table = zap_viewers.channel_viewers(log.found, window_s)
    found = {(int(row["start"].replace(tzinfo=UTC).timestamp()), row["channel"]): row for row in table.collect()}
    assert found.keys() == expected.keys()
    for key, counts in expected.items():
        row = found[key]
        assert (row["viewers"], row["viewers_max"]) == (counts[-1], max(counts)), key
        assert row["viewers_mean"] == pytest.approx(statistics.fmean(counts))
    top = zap_viewers.top_by_window(table, 3).where("rank = 1").collect()
    for row in top:
        start_s = int(row["start"].replace(tzinfo=UTC).timestamp())
        best = min((-counts[-1], name) for (start, name), counts in expected.items() if start == start_s)
        assert (-row["viewers"], row["channel"]) == best


def test_flow_from_channel_to_channel(spark: SparkSession, log: Evening) -> None:
    flow = Counter((a or "(off)", b or "(off)") for _, _, a, b, since in log.changes if since is not None)
    table = zap_viewers.channel_flow(log.found)
    assertDataFrameEqual(table, spark.createDataFrame([(a, b, n) for (a, b), n in flow.items()], table.schema))


def test_stops_surfing_and_staying(spark: SparkSession, log: Evening) -> None:
    stops = zap_viewing.viewing_stops(log.found)
    rows = [(s.box, s.channel, moment(s.start_s), moment(s.end_s), s.is_open) for s in log.stops]
    assertDataFrameEqual(stops, spark.createDataFrame(rows, stops.schema))
    lengths: dict[str, list[int]] = defaultdict(list)
    for stop in log.stops:
        if not stop.is_open:
            lengths[stop.channel].append(stop.end_s - stop.start_s)
    found = {row["channel"]: row for row in zap_viewing.channel_stops(log.found, 60).collect()}
    assert found.keys() == lengths.keys()
    for channel, values in lengths.items():
        row, surfs = found[channel], [value for value in values if value < 60]
        assert (row["stops"], row["surfs"], row["stays"]) == (len(values), len(surfs), len(values) - len(surfs))
        assert row["surf_time_share"] == pytest.approx(sum(surfs) / sum(values))
        assert (row["mean_s"], row["max_s"]) == (pytest.approx(statistics.fmean(values)), max(values))
        assert row["p50_s"] == sorted(values)[(len(values) + 1) // 2 - 1]


def test_sessions_are_from_power_on_to_off(log: Evening) -> None:
    sessions: dict[str, list[list[Stop]]] = defaultdict(list)
    for stop in sorted(log.stops, key=lambda stop: (stop.box, stop.start_s, stop.end_s)):
        own = sessions[stop.box]
        if own and own[-1][-1].end_s == stop.start_s:
            own[-1].append(stop)
        else:
            own.append([stop])
    expected = {
        (box, each[0].start_s): (each[-1].end_s - each[0].start_s, len(each), len({s.channel for s in each}))
        for box, own in sessions.items()
        for each in own
    }
    rows = zap_viewing.box_sessions(log.found).collect()
    found = {
        (row["box"], int(row["start"].replace(tzinfo=UTC).timestamp())): (
            row["length_s"],
            row["stops"],
            row["channels"],
        )
        for row in rows
    }
    assert found == expected
    assert sum(row["is_open"] for row in rows) == sum(stop.is_open for stop in log.stops)


@pytest.mark.parametrize("scheduled", [True, False])
def test_reach_and_share_of_programmes(spark: SparkSession, log: Evening, scheduled: bool) -> None:
    schedule = None
    if scheduled:  # odd times, over the hour, overlapping other channels' programmes, and one that nobody viewed
        offsets = [(600, 2000), (2000, 5500), (5500, 5531), (3000, 9000)]
        channels = sorted({stop.channel for stop in log.stops})[:4]
        slots = [(c, START_S + a, START_S + b) for c, (a, b) in zip(channels, offsets, strict=True)]
        slots.append(("nobody", START_S, START_S + 60))
        programmes = [(c, moment(a), moment(b), "news") for c, a, b in slots]
        schedule = spark.createDataFrame(programmes, "channel STRING, start TIMESTAMP, end TIMESTAMP, title STRING")
    else:
        hours = range(START_S, START_S + 3 * 3600, 3600)
        slots = [(c, h, h + 3600) for c in {stop.channel for stop in log.stops} for h in hours]
    expected = reach_of(log.stops, slots, 120)
    rows = zap_viewing.programme_reach(log.found, schedule, 120).collect()
    for row in rows:
        start_s, end_s = (int(row[name].replace(tzinfo=UTC).timestamp()) for name in ("start", "end"))
        reach, boxes, viewing_s, all_s = expected.pop((row["channel"], start_s, end_s))
        assert (row["reach"], row["boxes"], row["viewing_s"]) == (reach, boxes, viewing_s)
        assert row["viewers_mean"] == pytest.approx(viewing_s / (end_s - start_s))
        assert row["share"] == pytest.approx(viewing_s / all_s)
    assert not any(boxes for _, boxes, _, _ in expected.values())  # hours without viewers are no slots


def test_a_schedule_is_a_csv_or_parquet_file(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "programmes.csv"
    path.write_text('channel,start,end,title\nA,2024-01-01 20:15,2024-01-01 21:00:30,"News, late"\n')
    found = read_schedule(spark, str(path))
    start, end = datetime(2024, 1, 1, 20, 15), datetime(2024, 1, 1, 21, 0, 30)
    assertDataFrameEqual(found, spark.createDataFrame([("A", start, end, "News, late")], SCHEDULE_SCHEMA))
    found.write.parquet(str(tmp_path / "programmes.parquet"))
    assertDataFrameEqual(read_schedule(spark, str(tmp_path / "programmes.parquet")), found)


def test_boxes_that_depart_from_their_history(spark: SparkSession) -> None:
    """Steady boxes with a day of 40 changes, and one that falls silent; the others never depart."""
    events: list[Event] = []
    day_s = 86_400
    for day in range(12):
        for number in range(4):
            box = f"10.0.0.{number}"
            if number == 1 and day == 9:
                continue
            count = 40 if (number, day) == (0, 10) else 12 + (day + number) % 3
            events += [ChannelChange(day * day_s + 60 * i, box, f"C{i % 2}{day}", "X") for i in range(count)]
    events.sort(key=lambda event: event.time_s)
    table = spark.createDataFrame(event_rows(events), EVENT_SCHEMA)
    rows = zap_viewing.box_departures(zap_changes.box_changes(table)).where("measure = 'changes'").collect()
    found = {(row["box"], row["start"].day - 1): (row["value"], row["usual"]) for row in rows}
    assert found == {("10.0.0.0", 10): (40, 13.0), ("10.0.0.1", 9): (0, 13.0)}
    (high,) = [row["departs_by"] for row in rows if row["value"] == 40]
    past = [12 + day % 3 for day in range(10)]
    mad = statistics.median(abs(value - 13) for value in past)
    assert high == pytest.approx((40 - 13) / max(1.4826 * mad, 1.3))


def test_a_stream_in_pieces_and_out_of_order_gives_the_same_changes(
    spark: SparkSession, log: Evening, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Files of a quarter of an hour with the order inside mixed; then one event that is too late for the watermark."""
    folder = tmp_path_factory.mktemp("stream")
    (folder / "in").mkdir()
    frame = pd.DataFrame(event_rows(log.events), columns=[part.split()[0] for part in EVENT_SCHEMA.split(", ")])
    frame["value"] = frame["value"].astype("Int32")
    frame["time"] = frame["time"].astype("datetime64[us]")
    quarter = (frame["time"].astype("int64") // 900_000_000 - frame["time"].astype("int64").min() // 900_000_000) // 4

    def run() -> int:
        stream = spark.readStream.schema(EVENT_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
        changes = zap_changes.box_changes_stream(stream, "5 minutes", buckets=2)
        query = (
            changes.writeStream.option("checkpointLocation", str(folder / "state"))
            .trigger(availableNow=True)
            .toTable("stream_changes")
        )
        query.awaitTermination()
        return sum(o["numRowsDroppedByWatermark"] for each in query.recentProgress for o in each["stateOperators"])

    for number, part in frame.groupby(quarter):
        mixed = part.sample(frac=1.0, random_state=int(number))
        mixed.to_parquet(folder / "in" / f"{number:03d}.parquet", index=False)
    assert run() == 0
    late = frame.head(1).copy()
    far = late.assign(time=frame["time"].max() + pd.Timedelta(hours=1), box="10.9.9.9")
    both = pd.concat([late, far]).astype({"time": "datetime64[us]"})
    both.to_parquet(folder / "in" / "900.parquet", index=False)
    assert run() == 1
    assertDataFrameEqual(
        spark.read.table("stream_changes"), spark.createDataFrame(change_rows(log.changes), zap_changes.CHANGE_SCHEMA)
    )


def test_mistakes_are_refused(log: Evening) -> None:
    with pytest.raises(ConfigurationError, match="window_s 0: write whole seconds"):
        zap_viewers.channel_viewers(log.found, 0)
    with pytest.raises(ConfigurationError, match="n 0: write 1 or more"):
        zap_viewers.top_channels(log.found, moment(START_S), 0)
    with pytest.raises(ConfigurationError, match="least from 1 to history"):
        zap_viewing.box_departures(log.found, least=30)
