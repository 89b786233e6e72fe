"""One Spark Connect server for all tests, as lean as it can be: tiny tables gain nothing from compiled plans."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from surecast.pipeline import Server, ServerSettings, connect, find_java, spark_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAN_SERVER = ServerSettings(
    "local[2]",
    static={
        # The quick compiler and the simple collector: a short run never earns back what the others cost.
        "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.streaming.stateStore.maintenanceInterval": "1h",
    },
)
LEAN_RUN = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
}


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    try:
        find_java()
    except Exception as error:
        pytest.skip(str(error))
    with spark_server(tmp_path_factory.mktemp("spark"), LEAN_SERVER) as started:
        yield started


@pytest.fixture(scope="session")
def spark(server: Server) -> Iterator[SparkSession]:
    session = connect(server.remote)
    for name, value in LEAN_RUN.items():
        session.conf.set(name, value)
    yield session
    session.stop()
