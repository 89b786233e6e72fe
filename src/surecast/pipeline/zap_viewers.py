"""Viewers of channels from the changes of boxes (`zap_changes`): over time, at any instant, and from where to where.

Every function takes the DataFrame of changes, of a table or of what a stream has written, and returns a DataFrame.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from surecast.errors import ConfigurationError

__all__ = [
    "channel_flow",
    "channel_viewers",
    "seconds",
    "top_by_window",
    "top_channels",
    "viewer_changes",
    "viewers_at",
]

OFF: Final = "(off)"
"""The channel before a box is switched on and after it is switched off; no real channel has this name."""


def viewer_changes(changes: DataFrame) -> DataFrame:
    """Returns, for each second and channel with changes, the change in its viewers (time, channel, change)."""
    steps = F.array(
        F.struct(F.col("from_channel").alias("channel"), F.lit(-1).alias("by")),
        F.struct(F.col("to_channel").alias("channel"), F.lit(1).alias("by")),
    )
    parts = changes.select("time", F.inline(steps)).where("channel IS NOT NULL")
    return parts.groupBy("time", "channel").agg(F.sum("by").alias("change"))


def viewers_at(changes: DataFrame, instant: datetime) -> DataFrame:
    """Channels with viewers at an instant, its own second included (channel, viewers)."""
    by_channel = viewer_changes(changes.where(F.col("time") <= F.lit(instant))).groupBy("channel")
    return by_channel.agg(F.sum("change").alias("viewers")).where("viewers > 0")


def top_channels(changes: DataFrame, instant: datetime, n: int = 10) -> DataFrame:
    """Returns the `n` most viewed channels at an instant, among equals by name (rank, channel, viewers)."""
    if n < 1:
        raise ConfigurationError(f"n {n}: write 1 or more")
    # Channels are few: as one sorted array they need no window over everything.
    ordered = F.array_sort(F.collect_list(F.struct((-F.col("viewers")).alias("fewer"), "channel")))
    top = viewers_at(changes, instant).agg(F.slice(ordered, 1, n).alias("top"))
    ranked = top.select(F.posexplode("top").alias("place", "each"))
    return ranked.select(
        (F.col("place") + 1).alias("rank"),
        F.col("each.channel").alias("channel"),
        (-F.col("each.fewer")).alias("viewers"),
    )


def channel_viewers(changes: DataFrame, window_s: int = 60) -> DataFrame:
    """Returns, for each window of time and channel with viewers in it, viewers at its last second, their mean and their
    maximum.

    A box stays where it was until it is heard of again, so in the last window the last counts go on to its end.
    Columns: start, channel, viewers, viewers_mean, viewers_max.
    """
    _check_window(window_s)
    by_channel = Window.partitionBy("channel").orderBy("at")
    steps = viewer_changes(changes).select("channel", seconds("time").alias("at"), "change")
    held = steps.select(
        "channel",
        "at",
        F.sum("change").over(by_channel.rowsBetween(Window.unboundedPreceding, 0)).alias("viewers"),
        F.lead("at").over(by_channel).alias("until"),
    ).where("viewers > 0")
    ends = changes.agg((_window_of(seconds(F.max("time")), window_s) + window_s).alias("log_end"))
    spans = held.join(F.broadcast(ends)).select(
        "channel", "viewers", "at", F.coalesce("until", "log_end").alias("until")
    )
    starts = F.sequence(_window_of(F.col("at"), window_s), _window_of(F.col("until") - 1, window_s), F.lit(window_s))
    cut = spans.select("channel", "viewers", "at", "until", F.explode(starts).alias("start_s"))
    end_s = F.col("start_s") + window_s
    lasts_s = F.least("until", end_s) - F.greatest("at", "start_s")
    totals = cut.groupBy("start_s", "channel").agg(
        F.coalesce(F.max(F.when(F.col("until") >= end_s, F.col("viewers"))), F.lit(0)).alias("viewers"),
        (F.sum(F.col("viewers") * lasts_s) / window_s).alias("viewers_mean"),
        F.max("viewers").alias("viewers_max"),
    )
    return totals.select(
        F.timestamp_seconds("start_s").alias("start"), "channel", "viewers", "viewers_mean", "viewers_max"
    )


def top_by_window(viewers: DataFrame, n: int = 10) -> DataFrame:
    """Returns the `n` most viewed channels at the last second of each window of `channel_viewers` (start, rank,
    ...)."""
    by_viewers = Window.partitionBy("start").orderBy(F.desc("viewers"), "channel")
    ranked = viewers.where("viewers > 0").select(
        "start", F.row_number().over(by_viewers).alias("rank"), "channel", "viewers"
    )
    return ranked.where(F.col("rank") <= n)


def channel_flow(changes: DataFrame) -> DataFrame:
    """Returns how often boxes went from each channel to each other, `(off)` among them (from_channel, to_channel,
    changes).

    The first time that a box is heard of it comes from nowhere, and is not in the matrix.
    """
    followed = changes.where("since IS NOT NULL")
    place = {name: F.coalesce(name, F.lit(OFF)).alias(name) for name in ("from_channel", "to_channel")}
    return followed.groupBy(*place.values()).agg(F.count("*").alias("changes"))


def seconds(time: Column | str) -> Column:
    """Returns a point in time as whole seconds since 1970."""
    return F.unix_seconds(F.col(time) if isinstance(time, str) else time)


def _window_of(second: Column, window_s: int) -> Column:
    """Returns the first second of the window that a second is in."""
    return second - F.pmod(second, F.lit(window_s))


def _check_window(window_s: int) -> None:
    if window_s < 1 or window_s != int(window_s):
        raise ConfigurationError(f"window_s {window_s}: write whole seconds, 1 or more")
