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
        # The quick compiler, the simple collector and no check of Spark's classes: a short run never earns back what
        # these cost. The quick compiler's code cache is small by itself: once it is full, nothing more is compiled.
        "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m "
        "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
        "spark.sql.streaming.stateStore.maintenanceInterval": "1h",
        "spark.hadoop.hive.stats.autogather": "false",
    },
)
LEAN_RUN = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    # State in memory and small files, where a run of the product has RocksDB.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    ),
}
SHARED_SERVER = ServerSettings(
    LEAN_SERVER.master,
    # No metastore: tables that end with the server need none. test_killed_run has one.
    static={**LEAN_SERVER.static, **LEAN_RUN, "spark.sql.catalogImplementation": "in-memory"},
)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    try:
        find_java()
    except Exception as error:
        pytest.skip(str(error))
    with spark_server(tmp_path_factory.mktemp("spark"), SHARED_SERVER) as started:
        yield started


@pytest.fixture(scope="session")
def spark(server: Server) -> Iterator[SparkSession]:
    session = connect(server.remote)
    for name, value in LEAN_RUN.items():
        session.conf.set(name, value)
    yield session
    session.stop()
