"""One Spark Connect server for all tests, as lean as it can be: tiny tables gain nothing from compiled plans."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipeline.network import LogHandler, LogServer

from surecast.broker.event_log import EventLog, Started
from surecast.pipeline import ServerSettings, SparkServer, connect, find_java, spark_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAN_SERVER = ServerSettings(
    "local[2]", static={"spark.sql.streaming.stateStore.maintenanceInterval": "1h"}, is_brief=True
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
    is_brief=True,
)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkServer]:
    try:
        find_java()
    except Exception as error:
        pytest.skip(str(error))
    with spark_server(tmp_path_factory.mktemp("spark"), SHARED_SERVER) as started:
        yield started


@pytest.fixture(scope="session")
def spark(server: SparkServer) -> Iterator[SparkSession]:
    session = connect(server.remote)
    for name, value in LEAN_RUN.items():
        session.conf.set(name, value)
    yield session
    session.stop()


@pytest.fixture
def log_server(tmp_path: Path) -> Iterator[LogServer]:
    """A log of 50 records over HTTP."""
    found = LogServer(("127.0.0.1", 0), LogHandler)
    found.folder, found.asked = tmp_path / "log", []
    with EventLog(found.folder) as log:
        for number in range(50):
            log.append(Started(1700000000.0 + number, f"b{number}"))
    thread = threading.Thread(target=found.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield found
    found.shutdown()
    thread.join()
    found.server_close()
