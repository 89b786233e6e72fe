"""The tables of the pipeline, as a Spark Declarative Pipelines graph: raw records, clean tables, statistics.

`define` is called while a graph is being registered (`graph.py`, or the project that `spark-pipelines run` reads). Raw
and clean tables are streaming tables: a run adds what is new. Statistics are materialised views: a run computes them
anew from the clean tables, so late records count like all others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from surecast.pipeline import qos
from surecast.pipeline.datasource_log import LogAccess
from surecast.pipeline.formats import BROKER
from surecast.pipeline.graph_runner import bound_late
from surecast.pipeline.input_source import Inputs
from surecast.pipeline.records import (
    EVENT_COLUMNS,
    INTERVAL_SOURCES,
    ZAP_SOURCES,
    broker_event,
    intervals,
    judged,
    viewing_session,
    zap_event,
)
from surecast.pipeline.table_catalogue import STATISTICS, TABLES
from surecast.pipeline.zap_views import ZAP_VIEWS

__all__ = ["INPUTS_KEY", "STATISTICS_KEY", "VIEWS", "WINDOW_KEY", "define"]

INPUTS_KEY: Final = "surecast.inputs"
WINDOW_KEY: Final = "surecast.window_s"
STATISTICS_KEY: Final = "surecast.statistics"
"""The statistics to compute, by name, with commas between them."""

_WINDOWED: Final = ("broker_load", "channel_viewers")

VIEWS: Final[dict[str, Callable[..., DataFrame]]] = {
    "input_files": qos.input_files,
    "subscriber_qos": qos.subscriber_qos,
    "subscriber_losses": qos.subscriber_losses,
    "broker_accounts": qos.broker_accounts,
    "broker_load": qos.broker_load,
    "broker_uptime": qos.broker_uptime,
    "publisher_rates": qos.publisher_rates,
}


def define(spark: SparkSession, access: LogAccess | None = None) -> None:
    """Defines the tables in the graph that is being registered.

    `access` is for logs over the network; the project of `spark-pipelines` has it from its environment, since a project
    is a file, and secrets are not written down.
    """
    credentials = LogAccess.of_environment() if access is None else access
    inputs = spark.conf.get(INPUTS_KEY)
    window_s = float(spark.conf.get(WINDOW_KEY, "60") or 60)
    spark.dataSource.register(Inputs)

    @_table("raw_records")
    def raw_records() -> DataFrame:
        reader = (
            spark.readStream.format(Inputs.name()).option("inputs", inputs or "[]").options(**credentials.options())
        )
        return judged(reader.load())

    @_table("quarantine")
    def quarantine() -> DataFrame:
        bad = spark.readStream.table("raw_records").where("problem IS NOT NULL")
        return bad.select("source", "log", "file", "position", F.col("problem").alias("reason"), "text")

    _define_clean(spark)
    chosen = spark.conf.get(STATISTICS_KEY, ",".join(STATISTICS)) or ""
    for name, view in (VIEWS | ZAP_VIEWS).items():
        if name in chosen.split(","):
            _define_view(spark, name, view, window_s)


def _table(name: str) -> Callable[[Callable[[], DataFrame]], None]:
    """Makes a function a streaming table of the graph."""

    def decorate(rows: Callable[[], DataFrame]) -> None:
        dp.table(name=name, comment=TABLES[name])(lambda: bound_late(name, rows()))

    return decorate


def _define_view(spark: SparkSession, name: str, view: Callable[..., DataFrame], window_s: float) -> None:
    @dp.materialized_view(name=name, comment=TABLES[name])
    def statistics() -> DataFrame:
        return bound_late(name, view(spark, window_s) if name in _WINDOWED else view(spark))


def _define_clean(spark: SparkSession) -> None:
    """Defines one streaming table for each kind of record. A record that appears again, in whatever file, counts
    once."""

    def sound(*sources: str) -> DataFrame:
        return spark.readStream.table("raw_records").where(F.col("source").isin(*sources) & F.col("problem").isNull())

    @_table("broker_events")
    def broker_events() -> DataFrame:
        digest = F.xxhash64("text").alias("digest")
        events = sound(BROKER).select("log", "file", "position", digest, broker_event(F.col("text")).alias("event"))
        columns = [F.col(f"event.{name}").alias(name) for name in EVENT_COLUMNS]
        # Offsets begin at 0 again where a log's folder was emptied: the time and the digest tell such records apart.
        unique = events.select(*columns, "log", "file", "position", "digest").dropDuplicates(
            ["log", "offset", "time", "digest"]
        )
        return unique.select(*EVENT_COLUMNS, "log", "file", "position")

    @_table("zap_events")
    def zap_events() -> DataFrame:
        event = zap_event(F.col("source"), F.col("text")).alias("event")
        names = ("time", "box", "kind", "value", "to_channel", "from_channel")
        columns = (
            sound(*ZAP_SOURCES).select("log", "file", "position", event).select("event.*", "log", "file", "position")
        )
        digest = F.xxhash64(*names).alias("digest")
        unique = columns.select("*", digest).dropDuplicates(["time", "box", "digest"])
        return unique.select(*names, "log", "file", "position")

    def of_traces(*sources: str) -> DataFrame:
        # In a trace two equal lines are two observations; only the same line of the same trace is one.
        traces = sound(*sources).select("*", F.xxhash64("text").alias("digest"))
        return traces.dropDuplicates(["log", "position", "digest"])

    @_table("viewing_sessions")
    def viewing_sessions() -> DataFrame:
        session = viewing_session(F.col("text")).alias("session")
        return (
            of_traces("viewing")
            .select(session, "log", "file", "position")
            .select("session.*", "log", "file", "position")
        )

    @_table("availability")
    def availability() -> DataFrame:
        sessions = intervals(F.col("source"), F.col("text"))
        rows = of_traces(*INTERVAL_SOURCES).select(F.inline(sessions), "source", "log", "file", "position")
        return rows.select(
            "source", F.col("log").alias("trace"), "component", "up", "start_s", "end_s", "file", "position"
        )
