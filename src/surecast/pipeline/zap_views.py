"""The statistics of viewers as tables of the pipeline: each function of the session is one materialised view.

They are computed from all events, so what comes late counts like everything else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from surecast.pipeline import zap_viewers, zap_viewing
from surecast.pipeline.zap_changes import box_changes

__all__ = ["SCHEDULE_KEY", "SCHEDULE_SCHEMA", "ZAP_VIEWS", "read_schedule"]

SCHEDULE_KEY: Final = "surecast.schedule"
"""The setting of a run that names the schedule: a .csv file with a header, or a .parquet file or folder."""
SCHEDULE_SCHEMA: Final = "channel STRING, start TIMESTAMP, end TIMESTAMP, title STRING"


def read_schedule(spark: SparkSession, path: str) -> DataFrame:
    """Returns the programmes of a file: channel, start, end, title; times in UTC, as those of logs are taken to be."""
    reader = spark.read.schema(SCHEDULE_SCHEMA)
    if path.endswith(".csv"):
        return reader.csv(path, header=True, mode="FAILFAST", timestampFormat="yyyy-MM-dd HH:mm[:ss]")
    return reader.parquet(path)


def _changes(spark: SparkSession) -> DataFrame:
    return box_changes(spark.read.table("zap_events"))


def _viewers(spark: SparkSession, window_s: float) -> DataFrame:
    # Logs of boxes have whole seconds, so a shorter window is one second.
    return zap_viewers.channel_viewers(spark.read.table("box_changes"), max(1, round(window_s)))


def _top(spark: SparkSession) -> DataFrame:
    return zap_viewers.top_by_window(spark.read.table("channel_viewers"))


def _flow(spark: SparkSession) -> DataFrame:
    return zap_viewers.channel_flow(spark.read.table("box_changes"))


def _stops(spark: SparkSession) -> DataFrame:
    return zap_viewing.channel_stops(spark.read.table("box_changes"))


def _sessions(spark: SparkSession) -> DataFrame:
    return zap_viewing.box_sessions(spark.read.table("box_changes"))


def _reach(spark: SparkSession) -> DataFrame:
    path = spark.conf.get(SCHEDULE_KEY, "")
    schedule = read_schedule(spark, path) if path else None
    return zap_viewing.programme_reach(spark.read.table("box_changes"), schedule)


def _departures(spark: SparkSession) -> DataFrame:
    return zap_viewing.box_departures(spark.read.table("box_changes"))


ZAP_VIEWS: Final[dict[str, Callable[..., DataFrame]]] = {
    "box_changes": _changes,
    "channel_viewers": _viewers,
    "channel_top": _top,
    "channel_flow": _flow,
    "channel_stops": _stops,
    "box_sessions": _sessions,
    "programme_reach": _reach,
    "box_departures": _departures,
}
