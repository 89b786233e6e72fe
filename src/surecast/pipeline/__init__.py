"""The data pipeline on Spark: logs become clean tables, and tables become statistics.

Importing this package imports no pyspark; running a pipeline does, and says what to install where it is missing.
"""

from __future__ import annotations

from surecast.pipeline.datasource_log import LogAccess
from surecast.pipeline.pipeline_run import RunReport, open_tables, read_table, run_pipeline, run_tables
from surecast.pipeline.spark_session import (
    OutputBusy,
    ServerSettings,
    SparkFailed,
    SparkServer,
    connect,
    find_java,
    spark_server,
)

__all__ = [
    "LogAccess",
    "OutputBusy",
    "RunReport",
    "ServerSettings",
    "SparkFailed",
    "SparkServer",
    "connect",
    "find_java",
    "open_tables",
    "read_table",
    "run_pipeline",
    "run_tables",
    "spark_server",
]
