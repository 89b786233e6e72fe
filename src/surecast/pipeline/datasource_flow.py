"""Logs over the network as inputs of the pipeline: each is another flow into `raw_records`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import urlsplit

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from surecast.pipeline.datasource import SurecastSource

__all__ = ["TOKEN_VARIABLE", "define_log_flows", "flow_name"]

TOKEN_VARIABLE: Final = "SURECAST_TOKEN"
"""The environment variable with the administrator's token of the brokers; it is written down nowhere."""


def flow_name(url: str) -> str:
    """The name of a log's flow, under which Spark keeps how far it has been read.

    >>> flow_name("http://b1.example.org:9883")
    'log_of_b1_example_org_9883'
    """
    return "log_of_" + re.sub(r"\W", "_", urlsplit(url).netloc)


def define_log_flows(spark: SparkSession, urls: Sequence[str], clean: Callable[[DataFrame], DataFrame]) -> None:
    """Defines the flows in the graph that is being registered; `clean` is what all raw records go through."""
    if urls:
        spark.dataSource.register(SurecastSource)
    for url in urls:
        _define(spark, url, clean)


def _define(spark: SparkSession, url: str, clean: Callable[[DataFrame], DataFrame]) -> None:
    options = {"url": url, "raw": "true"}
    if token := os.environ.get(TOKEN_VARIABLE):
        options["token"] = token

    @dp.append_flow(target="raw_records", name=flow_name(url))
    def records() -> DataFrame:
        return clean(spark.readStream.format(SurecastSource.name()).options(**options).load())
