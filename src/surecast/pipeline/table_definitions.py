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
from surecast.pipeline.graph_runner import bound_late
from surecast.pipeline.input_source import Inputs
from surecast.pipeline.records import (
    EVENT_COLUMNS,
    broker_event,
    intervals,
    judged,
    viewing_session,
    zap_event,
)
from surecast.pipeline.table_catalogue import SOURCES, TABLES
from surecast.pipeline.zap_views import ZAP_VIEWS

__all__ = ["INPUTS_KEY", "TABLES_KEY", "UPTO_KEY", "VIEWS", "WINDOW_KEY", "define"]

INPUTS_KEY: Final = "surecast.inputs"
WINDOW_KEY: Final = "surecast.window_s"
TABLES_KEY: Final = "surecast.tables"
"""The tables to bring up to date, by name, with commas between them."""
UPTO_KEY: Final = "surecast.upto"
"""How far to read the inputs that have something new, as JSON; empty: to the end of all that there is."""

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
    chosen = (spark.conf.get(TABLES_KEY, "") or ",".join(TABLES)).split(",")
    spark.dataSource.register(Inputs)

    @_table("raw_records")
    def raw_records() -> DataFrame:
        reader = spark.readStream.format(Inputs.name()).option("inputs", inputs or "[]")
        reader = reader.option("upto", spark.conf.get(UPTO_KEY, "") or "{}").options(**credentials.options())
        return judged(reader.load())

    @_table("quarantine")
    def quarantine() -> DataFrame:
        bad = spark.readStream.table("raw_records").where("problem IS NOT NULL")
        return bad.select("source", "log", "file", "position", F.col("problem").alias("reason"), "text")

    for name, rows in _CLEAN_ROWS.items():
        if name in chosen:
            _define_clean(spark, name, rows)
    for name, view in (VIEWS | ZAP_VIEWS).items():
        if name in chosen:
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


def _define_clean(spark: SparkSession, name: str, rows: Callable[[DataFrame], DataFrame]) -> None:
    """Defines a streaming table of one kind of record. A record that appears again, in whatever file, counts once."""

    @_table(name)
    def clean() -> DataFrame:
        raw = spark.readStream.table("raw_records")
        return rows(raw.where(F.col("source").isin(*SOURCES[name]) & F.col("problem").isNull()))


def _broker_events(sound: DataFrame) -> DataFrame:
    digest = F.xxhash64("text").alias("digest")
    events = sound.select("log", "file", "position", digest, broker_event(F.col("text")).alias("event"))
    columns = [F.col(f"event.{name}").alias(name) for name in EVENT_COLUMNS]
    # Offsets begin at 0 again where a log's folder was emptied: the time and the digest tell such records apart.
    unique = events.select(*columns, "log", "file", "position", "digest").dropDuplicates(
        ["log", "offset", "time", "digest"]
    )
    return unique.select(*EVENT_COLUMNS, "log", "file", "position")


def _zap_events(sound: DataFrame) -> DataFrame:
    event = zap_event(F.col("source"), F.col("text")).alias("event")
    names = ("time", "box", "kind", "value", "to_channel", "from_channel")
    columns = sound.select("log", "file", "position", event).select("event.*", "log", "file", "position")
    digest = F.xxhash64(*names).alias("digest")
    unique = columns.select("*", digest).dropDuplicates(["time", "box", "digest"])
    return unique.select(*names, "log", "file", "position")


def _viewing_sessions(sound: DataFrame) -> DataFrame:
    session = viewing_session(F.col("text")).alias("session")
    rows = _of_traces(sound).select(session, "log", "file", "position")
    return rows.select("session.*", "log", "file", "position")


def _availability(sound: DataFrame) -> DataFrame:
    sessions = intervals(F.col("source"), F.col("text"))
    rows = _of_traces(sound).select(F.inline(sessions), "source", "log", "file", "position")
    return rows.select("source", F.col("log").alias("trace"), "component", "up", "start_s", "end_s", "file", "position")


def _of_traces(sound: DataFrame) -> DataFrame:
    # In a trace two equal lines are two observations; only the same line of the same trace is one.
    return sound.select("*", F.xxhash64("text").alias("digest")).dropDuplicates(["log", "position", "digest"])


_CLEAN_ROWS: Final[dict[str, Callable[[DataFrame], DataFrame]]] = {
    "broker_events": _broker_events,
    "zap_events": _zap_events,
    "viewing_sessions": _viewing_sessions,
    "availability": _availability,
}
