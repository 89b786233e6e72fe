"""The actions of set-top boxes, one row for each real change: from a channel, or off, to a channel, or off.

A box is on the channel it was last heard on, while it is on, as in `surecast.zap.viewers`: its own record counts, not
the FROMCH of an event. An event that changes nothing makes no row. Events of a box are taken by time, and within one
second by log, file and position. All statistics of viewers are made from these rows.

`box_changes` finds them in a whole table with Spark's own functions. `box_changes_stream` finds the same rows in a
stream, a watermark later: Spark has no function for what a box was before, so boxes are kept in buckets, and a bucket
is one Arrow table that pandas works on as a whole.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import pandas as pd  # type: ignore[import-untyped,unused-ignore]
import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from surecast.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql.streaming.state import GroupState

__all__ = ["BUCKETS", "CHANGE_SCHEMA", "box_changes", "box_changes_stream", "next_changes"]

CHANGE_SCHEMA: Final = "time TIMESTAMP, box STRING, from_channel STRING, to_channel STRING, since TIMESTAMP"
"""`from_channel` is NULL where the box was off or never heard of, `to_channel` where it is switched off; `since` is
when the box came to where it was before, NULL the first time."""
BUCKETS: Final = 16
_KEPT: Final = ("time", "box", "value", "to_channel", "order")
_STATE: Final = ("box", "channel", "on", "since")


def box_changes(events: DataFrame) -> DataFrame:
    """Returns the changes of a table of events with the columns of `zap_events`; columns: CHANGE_SCHEMA."""
    by_box = Window.partitionBy("box").orderBy("time", "log", "file", "position")
    heard = _heard(events).select(
        "time",
        "box",
        "value",
        F.last("to_channel", ignorenulls=True).over(by_box.rowsBetween(Window.unboundedPreceding, 0)).alias("channel"),
        "log",
        "file",
        "position",
    )
    # A box without an earlier event is on an unknown channel.
    placed = heard.where("channel IS NOT NULL").select("*", F.when(F.col("value") != 0, F.col("channel")).alias("now"))
    before = placed.select("*", F.lag("now").over(by_box).alias("before"))
    changed = before.where(~F.col("now").eqNullSafe(F.col("before")))
    return changed.select(
        "time",
        "box",
        F.col("before").alias("from_channel"),
        F.col("now").alias("to_channel"),
        F.lag("time").over(by_box).alias("since"),
    )


def box_changes_stream(events: DataFrame, lateness: str = "10 minutes", buckets: int = BUCKETS) -> DataFrame:
    """Returns the changes of a stream of events, each once the watermark is past it: `lateness` behind the latest
    event.

    An event that comes later than that is left out; Spark counts it as `numRowsDroppedByWatermark` of the query's
    progress. `buckets` is how many parts the boxes are kept in, at least as many as the cluster has cores.
    """
    if buckets < 1:
        raise ConfigurationError(f"buckets {buckets}: write 1 or more")
    # Not the character 0: pandas takes it for the end of a text.
    order = F.concat_ws("\u0001", "log", "file", F.lpad(F.col("position").cast("string"), 20, "0"))
    bucket = F.pmod(F.xxhash64("box"), F.lit(buckets)).cast("int").alias("bucket")
    heard = _heard(events.withWatermark("time", lateness)).select(
        bucket, "time", "box", "value", "to_channel", order.alias("order")
    )
    state = "boxes BINARY, waiting BINARY"
    return heard.groupBy("bucket").applyInPandasWithState(_advance, CHANGE_SCHEMA, state, "append", "EventTimeTimeout")


def next_changes(boxes: pd.DataFrame, events: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Returns the changes that events make to boxes, and the boxes afterwards.

    `boxes` has box, channel, on, since; `events` time, box, value (1 on, 0 off), to_channel, order.

    >>> import pandas as pd
    >>> none = pd.DataFrame({"box": [], "channel": [], "on": [], "since": []})
    >>> zap = {"time": pd.Timestamp(9, unit="s"), "box": "10.0.0.1", "value": 1, "to_channel": "B", "order": ""}
    >>> changes, boxes = next_changes(none, pd.DataFrame([zap]))
    >>> changes["to_channel"].tolist(), boxes["channel"].tolist(), boxes["on"].tolist()
    (['B'], ['B'], [True])
    """
    held = pd.DataFrame(
        {"box": boxes["box"], "channel": boxes["channel"], "on": boxes["on"].astype(bool), "time": boxes["since"]}
    )
    new = events.sort_values(["box", "time", "order"], kind="stable")
    new = pd.DataFrame({"box": new["box"], "channel": new["to_channel"], "on": new["value"] != 0, "time": new["time"]})
    parts = [part.assign(held=is_held) for part, is_held in ((held, True), (new, False)) if len(part)]
    if not parts:
        return pd.DataFrame(columns=["time", "box", "from_channel", "to_channel", "since"]), boxes
    rows = pd.concat(parts, ignore_index=True).sort_values("box", kind="stable", ignore_index=True)
    rows["channel"] = rows.groupby("box", sort=False)["channel"].ffill()
    rows = rows[rows["channel"].notna()].reset_index(drop=True)
    # Off is the empty name, which no channel has; so is what was before the first row of a box.
    rows["now"] = rows["channel"].where(rows["on"], "")
    of_box = rows.groupby("box", sort=False)
    rows["before"] = of_box["now"].shift().fillna("")
    # Whether a held row was itself a change is known from its time: it has one.
    changed = (rows["now"] != rows["before"]) | rows["held"]
    moments = rows.loc[changed].copy()
    moments["since"] = moments.groupby("box", sort=False)["time"].shift()
    change_rows = moments[~moments["held"]]
    changes = pd.DataFrame(
        {
            "time": change_rows["time"],
            "box": change_rows["box"],
            "from_channel": change_rows["before"].where(change_rows["before"] != "", None),
            "to_channel": change_rows["now"].where(change_rows["now"] != "", None),
            "since": change_rows["since"],
        }
    )
    last = rows.groupby("box", sort=False).tail(1).set_index("box")
    last_change = moments.groupby("box", sort=False)["time"].last()
    after = pd.DataFrame(
        {
            "box": last.index,
            "channel": last["channel"].to_numpy(),
            "on": last["on"].to_numpy(),
            "since": last_change.reindex(last.index).to_numpy(),
        }
    )
    return changes, after


def _heard(events: DataFrame) -> DataFrame:
    """Returns the events that say where a box is: zaps, and power; `value` is 1 for on."""
    is_zap = F.col("kind") == "zap"
    value = F.when(is_zap, F.lit(1)).otherwise(F.col("value")).alias("value")
    channel = F.when(is_zap, F.col("to_channel")).alias("to_channel")
    return events.where(F.col("kind").isin("zap", "power")).select(
        "time", "box", value, channel, "log", "file", "position"
    )


def _advance(key: tuple[Any, ...], batches: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Adds new events to a bucket of boxes, and yields the changes that no later event can precede."""
    boxes, waiting = _read(state)
    parts = [waiting, *(batch[list(_KEPT)] for batch in batches)]
    parts = [part for part in parts if len(part)]
    events = pd.concat(parts, ignore_index=True) if parts else waiting
    # Spark leaves out what is not after the watermark, so what is not after it is complete.
    watermark = pd.Timestamp(state.getCurrentWatermarkMs(), unit="ms")
    ripe = events["time"] <= watermark
    changes, boxes = next_changes(boxes, events[ripe])
    waiting = events[~ripe]
    state.update((_written(boxes, _STATE), _written(waiting, _KEPT)))
    if len(waiting):
        first = int(waiting["time"].min().timestamp() * 1000)
        state.setTimeoutTimestamp(max(first, state.getCurrentWatermarkMs()) + 1)
    yield changes


def _read(state: GroupState) -> tuple[pd.DataFrame, pd.DataFrame]:
    if not state.exists:
        return pd.DataFrame(columns=list(_STATE)), pd.DataFrame(columns=list(_KEPT))
    boxes, waiting = state.get
    return _table(boxes), _table(waiting)


def _table(data: bytes) -> pd.DataFrame:
    with pa.ipc.open_stream(io.BytesIO(data)) as reader:
        frame: pd.DataFrame = reader.read_pandas()
    return frame


def _written(table: pd.DataFrame, columns: tuple[str, ...]) -> bytes:
    arrow = pa.Table.from_pandas(table[list(columns)], preserve_index=False)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, arrow.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(arrow)
    return sink.getvalue()
