"""Statistics of quality of service from the event logs of brokers: each function is one materialised view.

A broker is known by the name in its own log, and where the log has none, by the folder of the log. The replicas of a
group are one broker, by the name of the group: what several of them wrote down counts once. Only `broker_uptime` is of
each replica, for it is replicas that fail.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from surecast.event_log_records import FATES
from surecast.pipeline.records import EVENT_COLUMNS

__all__ = [
    "ACCURACY",
    "QUANTILES",
    "broker_accounts",
    "broker_load",
    "broker_uptime",
    "input_files",
    "publisher_rates",
    "subscriber_losses",
    "subscriber_qos",
]

QUANTILES: Final = (0.5, 0.9, 0.95, 0.99)
ACCURACY: Final = 10_000  # a quantile's rank is right to 1/10,000; it is exact for fewer values than that
_TOLD: Final = tuple(name for name in EVENT_COLUMNS if name not in ("offset", "broker", "group", "replica", "replicas"))
_ORDER: Final = ("at_s", "copy", "offset")
"""The order of events: by offset in the log of one broker, by time in the logs of a group."""


def input_files(spark: SparkSession) -> DataFrame:
    """Returns, for each file, its records, how many are in the quarantine, and the byte up to which it was read.

    A log over the network counts records, where a file counts bytes.
    """
    raw = spark.read.table("raw_records").groupBy("file", "source", "log")
    size = F.when(F.col("file").rlike("^https?://"), F.lit(1)).otherwise(F.col("bytes"))
    files = raw.agg(F.count("*").alias("records"), F.max(F.col("position") + size).alias("read_bytes"))
    bad = spark.read.table("quarantine").groupBy("file", "source").agg(F.count("*").alias("quarantined"))
    return files.join(bad, ["file", "source"], "left").select(
        "source", "log", "file", "records", F.coalesce("quarantined", F.lit(0)).alias("quarantined"), "read_bytes"
    )


def subscriber_qos(spark: SparkSession) -> DataFrame:
    """Returns, for each subscriber, the fates of its messages, the share on time, and quantiles of the delay.

    A message without a deadline is on time whenever it is delivered. Where neither the publisher nor the log says
    when a message with a deadline was published, it is `unknown` and not in the share.
    """
    fates = _fates(spark)
    is_delivered = F.col("type") == "delivered"
    quantiles = F.percentile_approx("delay_s", list(QUANTILES), ACCURACY)
    totals = fates.groupBy("broker", "client").agg(
        F.count("*").alias("messages"),
        _count(F.col("on_time")).alias("on_time"),
        _count(is_delivered & ~F.col("on_time")).alias("late"),
        _count(is_delivered & F.col("on_time").isNull()).alias("unknown"),
        _count(F.col("type") == "dropped").alias("dropped"),
        _count(F.col("type") == "expired").alias("expired"),
        F.avg("delay_s").alias("delay_mean_s"),
        quantiles.alias("quantiles"),
        F.max("delay_s").alias("delay_max_s"),
    )
    reliability = F.try_divide(F.col("on_time"), F.col("messages") - F.col("unknown"))
    names = [F.get("quantiles", F.lit(i)).alias(f"delay_p{round(100 * q)}_s") for i, q in enumerate(QUANTILES)]
    counts = ("messages", "on_time", "late", "unknown", "dropped", "expired")
    return totals.select(
        "broker", "client", *counts, reliability.alias("reliability"), "delay_mean_s", *names, "delay_max_s"
    )


def subscriber_losses(spark: SparkSession) -> DataFrame:
    """Returns, for each subscriber and reason, the messages that were dropped or expired."""
    lost = _events(spark).where(F.col("type").isin("dropped", "expired"))
    reason = F.when(F.col("type") == "expired", F.lit("expired")).otherwise(F.col("reason"))
    return lost.groupBy("broker", "client", reason.alias("reason")).agg(
        F.count("*").alias("messages"), F.sum("bytes").alias("bytes")
    )


def broker_accounts(spark: SparkSession) -> DataFrame:
    """Returns, for each broker, receivers = delivered + dropped + expired + waiting, summed over messages.

    `overdrawn` counts messages of which more became than had receivers, `unpublished` fates whose `published` record
    is not in the tables, `lost_records` what the log says it could not write. The accounts balance where all are 0.
    """
    events = _events(spark)
    of_message = events.where(F.col("type").isin("published", *FATES)).groupBy("broker", "log", "message")
    counts = [_count(F.col("type") == kind).alias(kind) for kind in FATES]
    receivers = F.sum(F.when(F.col("type") == "published", F.col("receivers"))).alias("receivers")
    fates = sum((F.col(k) for k in FATES), F.lit(0)).alias("fates")
    messages = of_message.agg(receivers, *counts).select("*", fates)
    is_published = F.col("receivers").isNotNull()
    accounts = messages.groupBy("broker").agg(
        _count(is_published).alias("messages"),
        F.coalesce(F.sum("receivers"), F.lit(0)).alias("receivers"),
        *[F.coalesce(F.sum(F.when(is_published, F.col(kind))), F.lit(0)).alias(kind) for kind in FATES],
        F.coalesce(
            F.sum(F.when(is_published, F.greatest(F.col("receivers") - F.col("fates"), F.lit(0)))), F.lit(0)
        ).alias("waiting"),
        _count(is_published & (F.col("fates") > F.col("receivers"))).alias("overdrawn"),
        F.coalesce(F.sum(F.when(~is_published, F.col("fates"))), F.lit(0)).alias("unpublished"),
    )
    lost = _lost_records(spark)
    lost_records = F.coalesce("lost_records", F.lit(0))
    faults = F.col("overdrawn") + F.col("unpublished") + lost_records
    columns = ("broker", "messages", "receivers", *FATES, "waiting", "overdrawn", "unpublished")
    return accounts.join(lost, "broker", "left").select(
        *columns, lost_records.alias("lost_records"), (faults == 0).alias("balanced")
    )


def broker_load(spark: SparkSession, window_s: float = 60.0) -> DataFrame:
    """Returns, for each broker and window of time with records, rates, bytes, and subscriptions at its end."""
    events = _events(spark)
    window = (F.floor(F.col("time") / window_s) * window_s).alias("start_s")
    keys = ["broker", "log", "client", "filter"]
    kinds = events.where(F.col("type").isin("subscribed", "unsubscribed")).select(
        *keys,
        *_ORDER,
        "time",
        (F.col("type") == "subscribed").cast("int").alias("held"),
    )
    # A subscription that is made again changes nothing, and one that is not held cannot end.
    before = F.lag("held", 1, 0).over(Window.partitionBy(*keys).orderBy(*_ORDER))
    changes = kinds.select("broker", window, (F.col("held") - before).alias("change"))
    changes = changes.groupBy("broker", "start_s").agg(F.sum("change").alias("change"))
    counted = events.groupBy("broker", window).agg(
        *[_count(F.col("type") == kind).alias(kind) for kind in ("published", *FATES)],
        *[
            F.coalesce(F.sum(F.when(F.col("type") == kind, F.col("bytes"))), F.lit(0)).alias(name)
            for kind, name in (("published", "bytes_in"), ("delivered", "bytes_out"))
        ],
        F.max("queue_length").alias("queue_length_max"),
    )
    over = Window.partitionBy("broker").orderBy("start_s").rowsBetween(Window.unboundedPreceding, 0)
    held = F.sum(F.coalesce("change", F.lit(0))).over(over)
    rates = [(F.col(kind) / window_s).alias(f"{kind}_per_s") for kind in ("published", "delivered")]
    columns = ("published", *FATES, "bytes_in", "bytes_out", "queue_length_max")
    joined = counted.join(changes, ["broker", "start_s"], "left")
    return joined.select("broker", "start_s", *columns, *rates, held.alias("subscriptions"))


def broker_uptime(spark: SparkSession) -> DataFrame:
    """Returns, for each broker or replica, the intervals in which it was up, and whether each ended by `stopped`, by a
    `crash` or not yet.

    An incarnation begins with its `started`: a replica of a group that catches up then writes down what was before.
    After a crash `up_to_s` is the last record before the next start: the broker was up at least until then, and down
    at the latest one interval of `alive` records later.
    """
    by_offset = Window.partitionBy("process", "log").orderBy("offset", "time")
    starts = F.sum(F.when(F.col("type") == "started", 1).otherwise(0)).over(by_offset)
    incarnations = _logged(spark).select("process", "log", "type", "time", starts.alias("incarnation"))
    intervals = incarnations.groupBy("process", "log", "incarnation").agg(
        F.coalesce(F.min(F.when(F.col("type") == "started", F.col("time"))), F.min("time")).alias("up_from_s"),
        F.max("time").alias("up_to_s"),
        F.max(F.when(F.col("type") == "stopped", F.lit(True)).otherwise(F.lit(False))).alias("stopped"),
    )
    last = F.max("incarnation").over(Window.partitionBy("process", "log")) == F.col("incarnation")
    ended = F.when(F.col("stopped"), F.lit("stopped")).when(last, F.lit("open")).otherwise(F.lit("crash"))
    return intervals.select(
        F.col("process").alias("broker"),
        "up_from_s",
        "up_to_s",
        ended.alias("ended_by"),
        (F.col("incarnation") > 0).alias("seen_start"),
    )


def publisher_rates(spark: SparkSession) -> DataFrame:
    """Returns, for each publisher, messages, rate between its first and last, and the squared variation of its gaps.

    A Poisson stream has a squared coefficient of variation of 1, a steady one 0, a bursty one more.
    """
    published = _events(spark).where("type = 'published'")
    time = F.coalesce("publication_time", "time")
    by_time = Window.partitionBy("broker", "client").orderBy("at", "offset")
    gap_s = (F.col("at") - F.lag("at").over(by_time)).alias("gap_s")
    gaps = published.select("*", time.alias("at")).select("*", gap_s)
    totals = gaps.groupBy("broker", "client").agg(
        F.count("*").alias("messages"),
        F.countDistinct("topic").alias("topics"),
        F.sum("bytes").alias("bytes"),
        F.min("at").alias("first_s"),
        F.max("at").alias("last_s"),
        F.avg("gap_s").alias("gap_mean_s"),
        F.var_samp("gap_s").alias("gap_variance"),
    )
    rate = F.try_divide(F.lit(1.0), F.col("gap_mean_s")).alias("rate_per_s")
    variation = F.try_divide(F.col("gap_variance"), F.col("gap_mean_s") * F.col("gap_mean_s"))
    columns = ("messages", "topics", "bytes", "first_s", "last_s")
    return totals.select("broker", "client", *columns, rate, variation.alias("gap_variation_squared"))


def _logged(spark: SparkSession) -> DataFrame:
    """Returns the records of brokers and replicas, each with the name of its `process`, and its `of_group` if it has
    one."""
    events = spark.read.table("broker_events")
    named = events.where("broker IS NOT NULL").groupBy("log")
    starts = F.when(F.col("group").isNotNull(), F.col("offset"))
    names = named.agg(F.max_by("broker", "offset").alias("name"), F.max_by("group", starts).alias("of_group"))
    # Named one by one: `drop` would look the table up before the graph has brought it up to date.
    columns = [name for name in EVENT_COLUMNS if name not in ("broker", "group", "replica", "replicas")]
    return events.join(F.broadcast(names), "log", "left").select(
        F.coalesce("name", "log").alias("process"), "of_group", *columns, "log"
    )


def _events(spark: SparkSession) -> DataFrame:
    """Returns the events of brokers, each once, with its broker, in the order of `_ORDER`.

    All replicas of a group write down the same, with the same time. One that was down has it later, or not at all, and
    may write the last records before a crash again.
    """
    logged = _logged(spark)
    alone = logged.where("of_group IS NULL").select(
        F.col("process").alias("broker"), *_TOLD, "log", F.lit(0.0).alias("at_s"), F.lit("").alias("copy"), "offset"
    )
    once = (
        logged.where("of_group IS NOT NULL")
        .groupBy("of_group", *_TOLD)
        .agg(F.min(F.struct("log", "offset")).alias("first"))
    )
    return alone.unionByName(
        once.select(
            F.col("of_group").alias("broker"),
            *_TOLD,
            F.concat(F.lit("group "), F.col("of_group")).alias("log"),
            F.col("time").alias("at_s"),
            F.col("first.log").alias("copy"),
            F.col("first.offset").alias("offset"),
        )
    )


def _lost_records(spark: SparkSession) -> DataFrame:
    """Returns, for each broker, the records that its log could not write. For a group, those of the replica that lost
    fewest: a record in any of its logs is not lost."""
    lost = F.coalesce(F.sum(F.when(F.col("type") == "lost", F.col("records"))), F.lit(0)).alias("lost")
    of_logs = _logged(spark).groupBy("process", "of_group", "log").agg(lost)
    of_processes = of_logs.groupBy("process", "of_group").agg(F.sum("lost").alias("lost"))
    broker = F.coalesce("of_group", "process").alias("broker")
    # A broker that is no group has one process.
    return of_processes.groupBy(broker).agg(F.min("lost").alias("lost_records"))


def _fates(spark: SparkSession) -> DataFrame:
    """Returns the fates of messages, with the delay of those delivered and whether they were on time."""
    events = _events(spark)
    published = events.where("type = 'published'").select(
        "log", "message", F.col("time").alias("published_s"), F.col("deadline_s").alias("asked_s")
    )
    fates = events.where(F.col("type").isin(*FATES)).join(published, ["log", "message"], "left")
    sent_s = F.coalesce("publication_time", "published_s")
    delay_s = F.when(F.col("type") == "delivered", F.col("time") - sent_s)
    deadline_s = F.coalesce("deadline_s", "asked_s")
    # The log writes times to the microsecond, so a difference of two is right to that.
    is_early = F.round(delay_s - deadline_s, 6) <= 0
    on_time = F.when(F.col("type") == "delivered", F.when(deadline_s.isNull(), F.lit(True)).otherwise(is_early))
    return fates.select("broker", "client", "type", delay_s.alias("delay_s"), on_time.alias("on_time"))


def _count(condition: Column) -> Column:
    return F.count_if(F.coalesce(condition, F.lit(False)))
