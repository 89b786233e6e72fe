"""Viewing of boxes, from their changes (`zap_changes`): stops on channels, sessions, programmes, and unusual
periods."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from surecast.errors import ConfigurationError
from surecast.pipeline.zap_viewers import seconds

__all__ = [
    "REACH_S",
    "SURF_S",
    "box_departures",
    "box_sessions",
    "channel_stops",
    "hourly_slots",
    "programme_reach",
    "viewing_stops",
]

SURF_S: Final = 60
"""A stop on a channel that is shorter is surfing; one that is as long or longer is staying."""
REACH_S: Final = 60
"""A programme has reached a box that was tuned in for so long altogether."""
HISTORY: Final = 28
HISTORY_LEAST: Final = 7
DEPARTS_AT: Final = 6.0
_QUANTILES: Final = (0.5, 0.9, 0.99)
_ACCURACY: Final = 10_000
_BIN_S: Final = 3600
_DAY_S: Final = 86_400
_NORMAL_MAD: Final = 1.4826  # the standard deviation of a normal distribution over its median absolute deviation


def viewing_stops(changes: DataFrame) -> DataFrame:
    """Returns each time that a box was on a channel: box, channel, start, end, is_open.

    A stop that had not ended at the last change of the log is open, and `end` is the time of that change.
    """
    ended = changes.where("from_channel IS NOT NULL").select(
        "box", F.col("from_channel").alias("channel"), F.col("since").alias("start"), F.col("time").alias("end")
    )
    # A box is where it came to once more often than it left; the order within one second does not matter so.
    steps = F.array(
        F.struct(F.col("from_channel").alias("channel"), F.lit(-1).alias("by")),
        F.struct(F.col("to_channel").alias("channel"), F.lit(1).alias("by")),
    )
    moves = changes.select("box", "time", F.inline(steps)).where("channel IS NOT NULL").groupBy("box", "channel")
    left = moves.agg(F.sum("by").alias("here"), F.max(F.when(F.col("by") > 0, F.col("time"))).alias("start"))
    log_end = changes.agg(F.max("time").alias("end"))
    still = left.where("here > 0").join(F.broadcast(log_end)).select("box", "channel", "start", "end")
    return ended.select("*", F.lit(False).alias("is_open")).unionAll(still.select("*", F.lit(True).alias("is_open")))


def channel_stops(changes: DataFrame, surf_s: int = SURF_S) -> DataFrame:
    """Returns, for each channel, its stops that ended, how many were surfing and staying, and how long they were.

    Columns: channel, stops, surfs, stays, surf_share (of stops), surf_time_share, mean_s, p50_s, p90_s, p99_s, max_s.
    """
    ended = viewing_stops(changes).where("NOT is_open")
    length = (seconds("end") - seconds("start")).alias("length_s")
    short = F.col("length_s") < surf_s
    quantiles = F.percentile_approx("length_s", list(_QUANTILES), _ACCURACY)
    totals = (
        ended.select("channel", length)
        .groupBy("channel")
        .agg(
            F.count("*").alias("stops"),
            F.count_if(short).alias("surfs"),
            F.count_if(~short).alias("stays"),
            F.avg(short.cast("int")).alias("surf_share"),
            F.try_divide(F.sum(F.when(short, F.col("length_s")).otherwise(0)), F.sum("length_s")).alias(
                "surf_time_share"
            ),
            F.avg("length_s").alias("mean_s"),
            quantiles.alias("quantiles"),
            F.max("length_s").alias("max_s"),
        )
    )
    names = [F.get("quantiles", F.lit(i)).alias(f"p{round(100 * q)}_s") for i, q in enumerate(_QUANTILES)]
    counts = ("channel", "stops", "surfs", "stays", "surf_share", "surf_time_share", "mean_s")
    return totals.select(*counts, *names, "max_s")


def box_sessions(changes: DataFrame, surf_s: int = SURF_S) -> DataFrame:
    """Returns each time that a box was on: box, start, end, length_s, stops, channels, surfs, is_open.

    A session is open where the box had not been switched off at the last change of the log.
    """
    stops = viewing_stops(changes)
    by_box = Window.partitionBy("box").orderBy("start", "end")
    follows = F.col("start") == F.lag("end").over(by_box)
    begun = stops.select("*", (~F.coalesce(follows, F.lit(False))).cast("int").alias("begins"))
    so_far = by_box.rowsBetween(Window.unboundedPreceding, 0)
    numbered = begun.select("*", F.sum("begins").over(so_far).alias("session"))
    length_s = seconds("end") - seconds("start")
    sessions = numbered.groupBy("box", "session").agg(
        F.min("start").alias("start"),
        F.max("end").alias("end"),
        F.sum(length_s).alias("length_s"),
        F.count("*").alias("stops"),
        F.countDistinct("channel").alias("channels"),
        F.count_if((length_s < surf_s) & ~F.col("is_open")).alias("surfs"),
        F.max("is_open").alias("is_open"),
    )
    return sessions.select("box", "start", "end", "length_s", "stops", "channels", "surfs", "is_open")


def hourly_slots(changes: DataFrame) -> DataFrame:
    """Returns a schedule for logs without one: every hour in which a channel was viewed (channel, start, end,
    title)."""
    bins = _binned(viewing_stops(changes)).select("channel", "bin").distinct()
    start = F.timestamp_seconds(F.col("bin") * _BIN_S)
    return bins.select(
        "channel",
        start.alias("start"),
        F.timestamp_seconds((F.col("bin") + 1) * _BIN_S).alias("end"),
        F.date_format(start, "HH:mm").alias("title"),
    )


def programme_reach(changes: DataFrame, schedule: DataFrame | None = None, reach_s: int = REACH_S) -> DataFrame:
    """Returns, for each programme, how many boxes it reached, its viewers on average, and its share of all viewing
    meanwhile.

    `schedule` has channel, start, end and title; without one every hour of a channel is a programme. Columns: channel,
    start, end, title, reach (boxes tuned in for `reach_s` or more), boxes (tuned in at all), viewing_s, viewers_mean,
    share (of the viewing of all channels between its start and end; NULL where nobody viewed anything).
    """
    slots = (hourly_slots(changes) if schedule is None else schedule).select(
        "channel", seconds("start").alias("slot_s"), seconds("end").alias("slot_end_s"), "title"
    )
    slots = slots.where("slot_end_s > slot_s")
    pieces = _binned(viewing_stops(changes))
    bins = F.sequence(_bin(F.col("slot_s")), _bin(F.col("slot_end_s") - 1))
    parts = slots.select("*", F.explode(bins).alias("bin"))
    seen_s = F.least("end_s", "slot_end_s") - F.greatest("start_s", "slot_s")
    key = ["channel", "slot_s", "slot_end_s"]
    met = parts.join(pieces, ["channel", "bin"]).select(*key, "box", seen_s.alias("seen_s")).where("seen_s > 0")
    by_box = met.groupBy(*key, "box").agg(F.sum("seen_s").alias("seen_s"))
    own = by_box.groupBy(*key).agg(
        F.count_if(F.col("seen_s") >= reach_s).alias("reach"),
        F.count("*").alias("boxes"),
        F.sum("seen_s").alias("viewing_s"),
    )
    joined = slots.join(own, key, "left").join(_all_viewing(slots, pieces), ["slot_s", "slot_end_s"], "left")
    counts = [F.coalesce(name, F.lit(0)).alias(name) for name in ("reach", "boxes", "viewing_s")]
    times = [F.timestamp_seconds(name).alias(as_) for name, as_ in (("slot_s", "start"), ("slot_end_s", "end"))]
    whole = joined.select("channel", *times, "title", *counts, "slot_s", "slot_end_s", "all_s")
    return whole.select(
        *("channel", "start", "end", "title", "reach", "boxes", "viewing_s"),
        (F.col("viewing_s") / (F.col("slot_end_s") - F.col("slot_s"))).alias("viewers_mean"),
        F.try_divide("viewing_s", "all_s").alias("share"),
    )


def box_departures(
    changes: DataFrame, period_s: int = _DAY_S, history: int = HISTORY, least: int = HISTORY_LEAST
) -> DataFrame:
    """Periods (days) in which a box was unlike its own history.

    The rule, for the number of changes and for the time viewed: a value departs if it is further from the median of
    the `history` periods before than DEPARTS_AT times their spread. The spread is 1.4826 times their median absolute
    deviation, at least a tenth of the median, and at least 1 change or 60 s. Periods without any event count as 0; the
    first `least` periods of a box, and the last period of the log, which may not be whole, are not judged. Columns:
    box, start, measure (`changes` or `viewing_s`), value, usual (the median), spread, departs_by (in spreads).
    """
    if period_s < 1 or not 1 <= least <= history:
        raise ConfigurationError(
            f"period_s {period_s}, history {history}, least {least}: write 1 s or more, and least from 1 to history"
        )
    periods = _by_period(changes, period_s)
    measures = F.stack(F.lit(2), F.lit("changes"), F.col("changes"), F.lit("viewing_s"), F.col("viewing_s"))
    values = periods.select("box", "period", "last", measures.alias("measure", "value"))
    before = Window.partitionBy("box", "measure").orderBy("period").rowsBetween(-history, -1)
    past = values.select("*", F.array_sort(F.collect_list("value").over(before)).alias("past"))
    judged = past.where((F.size("past") >= least) & (F.col("period") < F.col("last")))
    usual = judged.select("*", _median(F.col("past")).alias("usual"))
    off_by = F.array_sort(F.transform("past", lambda value: F.abs(value - F.col("usual"))))
    floor = F.when(F.col("measure") == "changes", 1.0).otherwise(60.0)
    spread = F.greatest(_NORMAL_MAD * F.col("mad"), F.col("usual") / 10.0, floor)
    spreads = usual.select("*", _median(off_by).alias("mad")).select("*", spread.alias("spread"))
    departures = spreads.select("*", ((F.col("value") - F.col("usual")) / F.col("spread")).alias("departs_by"))
    start = F.timestamp_seconds(F.col("period") * period_s).alias("start")
    return departures.where(F.abs("departs_by") > DEPARTS_AT).select(
        "box", start, "measure", "value", "usual", "spread", "departs_by"
    )


def _by_period(changes: DataFrame, period_s: int) -> DataFrame:
    """Returns, for each box and period from its first to the log's last, changes and seconds viewed; and the last
    period."""
    period = F.floor(seconds("time") / period_s).cast("bigint")
    counted = changes.groupBy("box", period.alias("period")).agg(F.count("*").alias("changes"))
    pieces = _binned(viewing_stops(changes), period_s).groupBy("box", F.col("bin").alias("period"))
    viewed = pieces.agg(F.sum(F.col("end_s") - F.col("start_s")).alias("viewing_s"))
    last = changes.agg(F.max(period).alias("last"))
    first = changes.groupBy("box").agg(F.min(period).alias("first"))
    calendar = first.join(F.broadcast(last)).select(
        "box", "last", F.explode(F.sequence("first", "last")).alias("period")
    )
    joined = calendar.join(counted, ["box", "period"], "left").join(viewed, ["box", "period"], "left")
    return joined.select(
        "box", "period", "last", *[F.coalesce(name, F.lit(0)).alias(name) for name in ("changes", "viewing_s")]
    )


def _all_viewing(slots: DataFrame, pieces: DataFrame) -> DataFrame:
    """Returns the viewing of all channels between the start and end of each slot (slot_s, slot_end_s, all_s).

    Up to a second t of an hour, boxes viewed t times the stops begun less those ended, less the sum of the seconds at
    which they began, plus that at which they ended: sums that run over the hour, so no stop meets every slot.
    """
    steps = F.array(
        F.struct(F.col("start_s").alias("at"), F.lit(1).alias("by")),
        F.struct(F.col("end_s").alias("at"), F.lit(-1).alias("by")),
    )
    begun = pieces.select("bin", F.inline(steps)).groupBy("bin", "at").agg(F.sum("by").alias("by"))
    spans = slots.select("slot_s", "slot_end_s").distinct()
    bins = F.sequence(_bin(F.col("slot_s")), _bin(F.col("slot_end_s") - 1))
    parts = spans.select("*", F.explode(bins).alias("bin"))
    low = F.greatest(F.col("slot_s"), F.col("bin") * _BIN_S).alias("low")
    high = F.least(F.col("slot_end_s"), (F.col("bin") + 1) * _BIN_S).alias("high")
    parts = parts.select("slot_s", "slot_end_s", "bin", low, high)
    edges = parts.select("bin", F.explode(F.array("low", "high")).alias("at")).distinct()
    run = Window.partitionBy("bin").orderBy("at").rangeBetween(Window.unboundedPreceding, 0)
    marks = begun.unionAll(edges.select("*", F.lit(0).cast("bigint").alias("by")))
    total = F.col("at") * F.sum("by").over(run) - F.sum(F.col("by") * F.col("at")).over(run)
    sums = marks.select("bin", "at", total.alias("viewed_s")).distinct()
    lows = sums.select("bin", F.col("at").alias("low"), F.col("viewed_s").alias("low_s"))
    highs = sums.select("bin", F.col("at").alias("high"), F.col("viewed_s").alias("high_s"))
    met = parts.join(lows, ["bin", "low"]).join(highs, ["bin", "high"])
    return met.groupBy("slot_s", "slot_end_s").agg(F.sum(F.col("high_s") - F.col("low_s")).alias("all_s"))


def _binned(stops: DataFrame, bin_s: int = _BIN_S) -> DataFrame:
    """Stops cut at whole hours, so that joins are by equality (box, channel, bin, start_s, end_s)."""
    timed = stops.select("box", "channel", seconds("start").alias("from_s"), seconds("end").alias("to_s"))
    bins = F.sequence(_bin(F.col("from_s"), bin_s), _bin(F.col("to_s") - 1, bin_s))
    cut = timed.where("to_s > from_s").select("box", "channel", "from_s", "to_s", F.explode(bins).alias("bin"))
    return cut.select(
        "box",
        "channel",
        "bin",
        F.greatest(F.col("from_s"), F.col("bin") * bin_s).alias("start_s"),
        F.least(F.col("to_s"), (F.col("bin") + 1) * bin_s).alias("end_s"),
    )


def _bin(second: Column, bin_s: int = _BIN_S) -> Column:
    return F.floor(second / bin_s).cast("bigint")


def _median(ordered: Column) -> Column:
    """Returns the median of a sorted array."""
    last = F.size(ordered) - 1
    low, high = (F.floor(last / 2).cast("int"), F.ceil(last / 2).cast("int"))
    return (F.get(ordered, low) + F.get(ordered, high)) / 2.0
