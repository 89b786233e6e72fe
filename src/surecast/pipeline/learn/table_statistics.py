"""Reduces the tables of the pipeline to statistics: the only part of estimation that knows Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from surecast.errors import ConfigurationError
from surecast.event_log_records import FATES, PROBE_TOPICS
from surecast.pipeline.learn.component_times import Membership, join_replicas
from surecast.pipeline.learn.log_statistics import (
    BINS_PER_E,
    AvailabilityRow,
    Client,
    Deadline,
    ObservedPublications,
    ObservedSubscription,
    Statistics,
    UptimeRow,
    binned,
)
from surecast.pipeline.learn.samples import Times

__all__ = ["read_statistics"]

WINDOWS: Final = 64
_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "broker_events": (
        "log", "offset", "time", "type", "broker", "client", "filter", "topic", "message", "queue_length", "deadline_s",
        "reason", "publication_time",
    ),
    "broker_uptime": ("broker", "up_from_s", "up_to_s", "ended_by", "seen_start"),
    "availability": ("source", "trace", "component", "up", "start_s", "end_s"),
    "publisher_rates": ("broker", "client", "messages", "gap_variation_squared"),
}  # fmt: skip
_OF_GROUPS: Final[Mapping[str, str]] = {"group": "string", "replicas": "int"}
"""Columns of broker_events that tables of older logs do not have."""
_OF_PROCESSES: Final = ("started", "stopped", "alive", "lost")
_BY_BROKER: Final = "server shutting down"
_BY_REPLICA: Final = ("the replica of the connection is down", "sent to another replica")
_TAKEN_OVER: Final = "session taken over"
_ORDER: Final = ("at_s", "copy", "offset")
"""The order of events: by offset in the log of one broker, by time in the logs of a group."""


def read_statistics(spark: SparkSession, database: str = "default") -> Statistics:
    """Returns all statistics that the tables of a database give."""
    tables = {name: _table(spark, database, name, columns) for name, columns in _NEEDED.items()}
    named = _named(tables["broker_events"])
    alive_s = _alive(named)
    uptimes = [UptimeRow(*row) for row in tables["broker_uptime"].collect()]
    membership = _membership(named)
    incarnations, groups = join_replicas(uptimes, membership, alive_s)
    intervals = tuple(AvailabilityRow(*row) for row in tables["availability"].collect())
    start_s = min((incarnation.up_from_s for incarnation in incarnations), default=0.0)
    window_s = max((max((incarnation.up_to_s for incarnation in incarnations), default=0.0) - start_s) / WINDOWS, 1e-3)
    if not incarnations:
        return Statistics(intervals=intervals)
    # Every event is read several times, and names and incarnations need a sort: it is done once.
    events = _events(
        spark, named, [incarnation for incarnation in incarnations if incarnation.broker in groups]
    ).cache()
    try:
        return Statistics(
            incarnations=incarnations,
            groups=groups,
            alive_s=alive_s,
            intervals=intervals,
            **_connections(events),
            **_publications(events, start_s, window_s),
            start_s=start_s,
            window_s=window_s,
            gap_variation=_gap_variation(tables["publisher_rates"], membership),
            **_subscriptions(events),
            service=_service(events),
        )
    finally:
        events.unpersist()


def _table(spark: SparkSession, database: str, name: str, columns: tuple[str, ...]) -> DataFrame:
    if not spark.catalog.tableExists(f"{database}.{name}"):
        raise ConfigurationError(f"the table {name} is not in the database {database}; run surecast pipeline run first")
    table = spark.read.table(f"{database}.{name}")
    missing = [column for column in columns if column not in table.columns]
    if missing:
        raise ConfigurationError(
            f"the table {name} has no column {', '.join(missing)}; make it anew with "
            "surecast pipeline run --full-refresh"
        )
    if name != "broker_events":
        return table.select(*columns)
    of_groups = [
        F.col(column) if column in table.columns else F.lit(None).cast(kind).alias(column)
        for column, kind in _OF_GROUPS.items()
    ]
    return table.select(*columns, *of_groups)


def _named(table: DataFrame) -> DataFrame:
    """Returns events with the name of the broker or replica whose log they are in, and its group if it is in one."""
    starts = F.when(F.col("group").isNotNull(), F.col("offset"))
    names = (
        table.where("broker IS NOT NULL")
        .groupBy("log")
        .agg(
            F.max_by("broker", "offset").alias("name"),
            F.max_by("group", starts).alias("of_group"),
            F.max_by("replicas", starts).alias("size"),
        )
    )
    joined = table.drop(*_OF_GROUPS).join(F.broadcast(names), "log", "left")
    return joined.withColumn("broker", F.coalesce("name", "log")).drop("name")


def _membership(named: DataFrame) -> dict[str, tuple[str, int]]:
    rows = named.where("type = 'started' AND of_group IS NOT NULL").select("broker", "of_group", "size").distinct()
    return {row["broker"]: (row["of_group"], row["size"] or 1) for row in rows.collect()}


def _events(spark: SparkSession, named: DataFrame, group_incarnations: Sequence[UptimeRow]) -> DataFrame:
    """Events with the name of their broker, the number of its incarnation, and when that was first and last seen."""
    columns = [name for name in _NEEDED["broker_events"] if name not in ("log", "offset", "broker")]
    alone = named.where("of_group IS NULL")
    events = alone.select("log", "broker", *columns, F.lit(0.0).alias("at_s"), F.lit("").alias("copy"), "offset")
    if group_incarnations:
        events = events.unionByName(_of_groups(spark, named, columns, group_incarnations))
    of_log = Window.partitionBy("log").orderBy(*_ORDER)
    incarnation = F.sum(F.when(F.col("type") == "started", 1).otherwise(0)).over(of_log)
    lived = events.withColumn("incarnation", incarnation)
    of_life = Window.partitionBy("log", "incarnation")
    since_s = F.min(F.when(F.col("type") == "started", F.col("time"))).over(of_life)
    return lived.withColumn("until_s", F.max("time").over(of_life)).withColumn("since_s", since_s)


def _of_groups(
    spark: SparkSession, named: DataFrame, columns: list[str], group_incarnations: Sequence[UptimeRow]
) -> DataFrame:
    """Returns the events of groups, each once, a `started` where a group began to serve, and an `alive` where it ended.

    All replicas write down the same with the same time. One that was down has it later, or not at all, and may write
    the last records before a crash again.
    """
    group_events = named.where(F.col("of_group").isNotNull() & ~F.col("type").isin(*_OF_PROCESSES))
    once = group_events.groupBy("of_group", *columns).agg(F.min(F.struct("log", "offset")).alias("first"))
    place = F.concat(F.lit("group "), F.col("of_group")).alias("log")
    group = F.col("of_group").alias("broker")
    events = once.select(
        place, group, *columns, F.col("time").alias("at_s"), F.col("first.log").alias("copy"), F.col("first.offset")
    )
    rows = [(incarnation.broker, incarnation.up_from_s, "started") for incarnation in group_incarnations]
    rows += [(incarnation.broker, incarnation.up_to_s, "alive") for incarnation in group_incarnations]
    marks = spark.createDataFrame(rows, "of_group STRING, time DOUBLE, type STRING")
    columns_of_marks = {"time": F.col("time"), "type": F.col("type")}
    kinds = {each.name: each.dataType for each in events.schema.fields}
    return events.unionByName(
        marks.select(
            place,
            group,
            *[columns_of_marks.get(name, F.lit(None).cast(kinds[name])).alias(name) for name in columns],
            F.col("time").alias("at_s"),
            F.lit("").alias("copy"),
            F.lit(-1).cast("bigint").alias("offset"),
        )
    )


def _alive(named: DataFrame) -> dict[str, float]:
    of_log = Window.partitionBy("log").orderBy("offset")
    incarnation = F.sum(F.when(F.col("type") == "started", 1).otherwise(0)).over(of_log)
    signs = named.where("type IN ('alive', 'started')").withColumn("incarnation", incarnation).where("type = 'alive'")
    by_life = Window.partitionBy("log", "incarnation").orderBy("offset")
    signs = signs.withColumn("gap_s", F.col("time") - F.lag("time").over(by_life))
    gaps = signs.groupBy("broker").agg(F.percentile_approx("gap_s", 0.5).alias("gap_s"))
    return {row["broker"]: row["gap_s"] for row in gaps.collect() if row["gap_s"] is not None}


def _connections(events: DataFrame) -> dict[str, Any]:
    """Returns connected and disconnected periods of subscribers; the end of a broker's incarnation cuts them off.

    A subscriber that moves to another replica stays connected. One that loses its replica did not leave, and the time
    until it is back says nothing about its own disconnected periods.
    """
    subscribers = events.where("type = 'subscribed'").select("broker", "client").distinct()
    ends = (F.col("type") == "unsubscribed") & (F.col("reason") == "session")
    marks = (
        events.where(F.col("type").isin("connected", "disconnected") | ends)
        .join(F.broadcast(subscribers), ["broker", "client"], "left_semi")
        .withColumn("kind", F.when(ends, F.lit("gone")).otherwise(F.col("type")))
        .where(~F.coalesce(F.col("reason") == _TAKEN_OVER, F.lit(False)))
    )
    of_client = Window.partitionBy("log", "incarnation", "client").orderBy(*_ORDER)
    before = F.lag("kind").over(of_client)
    changes = marks.withColumn("before", before).where(
        F.when(F.col("kind") == "gone", F.col("before") == "disconnected").otherwise(
            F.col("before").isNull() | (F.col("before") != F.col("kind"))
        )
    )
    after, after_s = F.lead("kind").over(of_client), F.lead("time").over(of_client)
    by_broker = F.lead("reason").over(of_client).isin(_BY_BROKER, *_BY_REPLICA)
    periods = (
        changes.withColumn("after", after)
        .withColumn("after_s", F.coalesce(after_s, F.col("until_s")))
        .withColumn("by_broker", F.coalesce(by_broker, F.lit(False)))
        .where((F.col("kind") != "gone") & ~F.coalesce(F.col("reason").isin(*_BY_REPLICA), F.lit(False)))
        .select(
            "broker",
            "client",
            (F.col("kind") == "connected").alias("on"),
            F.coalesce(
                F.when(
                    F.col("kind") == "connected", (F.col("after") == "disconnected") & ~F.col("by_broker")
                ).otherwise(F.col("after") == "connected"),
                F.lit(False),
            ).alias("ended"),
            (F.col("after_s") - F.col("time")).alias("length_s"),
        )
    )
    bins = _in_bins(periods, "broker", "client", "on")
    return {
        "on": _by_client(row for row in bins if row["on"]),
        "off": _by_client(row for row in bins if not row["on"]),
    }


def _publications(events: DataFrame, start_s: float, window_s: float) -> dict[str, Any]:
    all_published = events.where("type = 'published'")
    aside = (F.col("client") == "") | F.col("topic").startswith(PROBE_TOPICS)
    counts = all_published.groupBy("broker", "client", "topic", aside.alias("aside")).count().collect()
    published = all_published.where(~aside)
    modes = published.groupBy("broker", "client").agg(
        F.mode("deadline_s").alias("deadline_s"), F.count("*").alias("of")
    )
    usual = published.join(modes, ["broker", "client"]).where(published["deadline_s"] == modes["deadline_s"])
    deadlines = usual.groupBy("broker", "client", modes["deadline_s"], "of").count().collect()
    sent = _sent(published)
    number = F.floor((F.col("sent_s") - F.lit(start_s)) / F.lit(window_s)).alias("window")
    windows: dict[Client, dict[int, int]] = defaultdict(dict)
    for row in sent.groupBy("broker", "client", number).count().collect():
        windows[row["broker"], row["client"]][row["window"]] = row["count"]
    held: dict[Client, list[tuple[float, float]]] = defaultdict(list)
    late = sent.where("sent_s < since_s").groupBy("broker", "client", "since_s").agg(F.min("sent_s").alias("from_s"))
    for row in late.collect():
        held[row["broker"], row["client"]].append((row["from_s"], row["since_s"]))
    return {
        "published": tuple(_counted(row) for row in counts if not row["aside"]),
        "aside": tuple(_counted(row) for row in counts if row["aside"]),
        "deadlines": {
            (row["broker"], row["client"]): Deadline(row["deadline_s"], row["count"], row["of"]) for row in deadlines
        },
        "windows": dict(windows),
        "held": {client: tuple(sorted(spans)) for client, spans in held.items()},
    }


def _sent(published: DataFrame) -> DataFrame:
    """Returns messages with their publication time by the broker's clock, where the publisher states it.

    What a publisher held back while the broker was down is taken all at once when it is up again. A publisher's clock
    is as far off as the message of it that was on its way for the shortest time says.
    """
    on_way_s = F.col("time") - F.col("publication_time")
    least_s = F.min(on_way_s).over(Window.partitionBy("broker", "client"))
    sent_s = F.least(F.col("time"), F.col("publication_time") + least_s)
    return published.withColumn("sent_s", F.coalesce(sent_s, F.col("time")))


def _counted(row: Any) -> ObservedPublications:
    return ObservedPublications(row["broker"], row["client"], row["topic"], row["count"])


def _gap_variation(table: DataFrame, membership: Membership) -> dict[Client, float]:
    """Returns the variation of the gaps of each publisher; of a group, from the replica that has most of its
    messages."""
    variation: dict[Client, float] = {}
    for row in sorted(table.collect(), key=lambda row: (row["messages"], row["broker"])):
        if row["gap_variation_squared"] is not None:
            group, _ = membership.get(row["broker"], (row["broker"], 1))
            variation[group, row["client"]] = row["gap_variation_squared"]
    return variation


def _subscriptions(events: DataFrame) -> dict[str, Any]:
    """Filters that were subscribed to, and how long subscriptions lasted; they outlive a restart of the broker."""
    of_filter = Window.partitionBy("log", "client", "filter").orderBy(*_ORDER)
    marks = events.where(F.col("type").isin("subscribed", "unsubscribed"))
    changes = marks.withColumn("before", F.lag("type").over(of_filter)).where(
        F.coalesce(F.col("before"), F.lit("unsubscribed")) != F.col("type")
    )
    ends = events.groupBy("log").agg(F.max("time").alias("log_end_s"))
    subscribed = (
        changes.withColumn("after_s", F.lead("time").over(of_filter))
        .where("type = 'subscribed'")
        .join(F.broadcast(ends), "log")
        .withColumn("ended", F.col("after_s").isNotNull())
        .withColumn("length_s", F.coalesce("after_s", "log_end_s") - F.col("time"))
    )
    filters = subscribed.groupBy("broker", "client", "filter").agg(F.max(~F.col("ended")).alias("held"))
    lengths = _in_bins(subscribed.select("ended", "length_s"))
    return {
        "subscriptions": tuple(ObservedSubscription(*row) for row in filters.collect()),
        "arrivals": subscribed.count(),
        "lifetimes": binned((row["ended"], row["count"], row["total"]) for row in lengths),
    }


def _service(events: DataFrame) -> dict[Client, Times]:
    """Returns times between two deliveries to a client with more messages waiting after the first; the end of a
    connection cuts them off."""
    marks = events.where(F.col("type").isin("connected", "disconnected", *FATES))
    of_client = Window.partitionBy("log", "incarnation", "client").orderBy(*_ORDER)
    waited = (F.lag("type").over(of_client) == "delivered") & (F.lag("queue_length").over(of_client) > 0)
    gaps = (
        marks.withColumn("waited", waited)
        .withColumn("length_s", F.col("time") - F.lag("time").over(of_client))
        .where("type IN ('delivered', 'disconnected') AND waited")
        .select("broker", "client", (F.col("type") == "delivered").alias("ended"), "length_s")
    )
    return _by_client(_in_bins(gaps, "broker", "client"))


def _in_bins(periods: DataFrame, *keys: str) -> list[Any]:
    """Counts and sums of times above 0 that are nearly equal."""
    number: Column = F.floor(F.log("length_s") * F.lit(BINS_PER_E)).alias("bin")
    binned_periods = periods.where("length_s > 0").groupBy(*keys, "ended", number)
    return binned_periods.agg(F.count("*").alias("count"), F.sum("length_s").alias("total")).collect()


def _by_client(rows: Iterable[Any]) -> dict[Client, Times]:
    bins: dict[Client, list[tuple[bool, int, float]]] = defaultdict(list)
    for row in rows:
        bins[row["broker"], row["client"]].append((row["ended"], row["count"], row["total"]))
    return {client: binned(each) for client, each in bins.items()}
