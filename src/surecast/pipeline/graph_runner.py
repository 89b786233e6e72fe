"""Runs a graph of tables: inside one Connect session, or as a project of the command `spark-pipelines`.

The session way uses the functions that the command itself is made of, which are internal to PySpark: they are used
here and nowhere else. It saves the start of another Java and another Python.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from pyspark.errors import PySparkException
from pyspark.pipelines.add_pipeline_analysis_context import add_pipeline_analysis_context
from pyspark.pipelines.block_session_mutations import block_session_mutations
from pyspark.pipelines.graph_element_registry import graph_element_registration_context
from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry
from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.connect import proto

from surecast.documents.reading import yaml_text
from surecast.errors import ConfigurationError
from surecast.pipeline.spark_session import SparkFailed, find_java, in_short

__all__ = ["PipelineSettings", "bound_late", "run_by_command", "run_in_session", "write_project"]

Progress = Callable[[str, str], None]
"""Called with a table and what happens to it: queued, starting, running, completed, failed."""

_FLOW: Final = re.compile(r"Flow '?(?:\S+\.)?(\w+)'? (?:is|has) ([A-Z]+)")
_BOUND_LATE: Final = {
    *("read", "project", "filter", "join", "set_op", "sort", "limit", "offset", "aggregate", "deduplicate"),
    *("subquery_alias", "hint", "local_relation", "range", "with_relations"),
}
"""Steps of a plan that Spark Connect leaves alone until the graph is put together."""
_DEFINITIONS: Final = """\
from surecast.pipeline.table_definitions import define

define(spark)  # noqa: F821 - the command puts it here
"""


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """The settings of one run: the state of its streams is in `storage`, its tables in the catalog's `database`."""

    storage: str
    configuration: Mapping[str, str]
    database: str = "default"
    full_refresh: bool = False
    """Forget all tables and streams, and read everything again."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """More variables of the environment of `spark-pipelines`: what the definitions must know and no file may hold."""


def run_in_session(
    spark: SparkSession,
    define: Callable[[SparkSession], None],
    settings: PipelineSettings,
    progress: Progress | None = None,
) -> None:
    """Runs the graph that `define` defines, to its end; SparkFailed with the first error where a table fails."""
    for name, value in settings.configuration.items():
        spark.conf.set(name, value)
    errors: list[str] = []
    try:
        graph = create_dataflow_graph(
            spark,
            default_catalog=None,
            default_database=settings.database,
            sql_conf=settings.configuration,
        )
        registry = SparkConnectGraphElementRegistry(spark, graph)
        with (
            graph_element_registration_context(registry),
            add_pipeline_analysis_context(spark=spark, dataflow_graph_id=graph, flow_name=None),
            block_session_mutations(),
        ):
            define(spark)
        with warnings.catch_warnings():
            # That the server is gone is an error here; Spark gives a warning too.
            warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]")
            for message in _start(spark, graph, settings):
                if "Error:" in message or "FAILED" in message:
                    errors.append(message)
                _tell(progress, message)
    except PySparkException as error:
        raise SparkFailed(in_short([*errors, str(error)])) from error


def bound_late(name: str, rows: DataFrame) -> DataFrame:
    """Returns the rows if the graph will know all tables that they come from; raises an error that names the step if
    not.

    Below `withColumn` and some others Spark looks tables up when a graph is registered. One that is there from the
    run before is then read as it is, and not after the graph has brought it up to date.
    """
    early = sorted(_steps(cast(Any, rows)._plan.plan(cast(Any, rows.sparkSession).client)) - _BOUND_LATE)
    if early:
        raise ConfigurationError(
            f"the table {name} is made with {', '.join(early)}, which reads its tables as the last run left them; "
            "write it with select, such as select('*', column.alias('name'))"
        )
    return rows


def _steps(message: Any) -> set[str]:
    """Returns the kinds of all relations in a plan, including those inside expressions."""
    kinds: set[str] = set()
    if isinstance(message, proto.Relation):
        kind = message.WhichOneof("rel_type")
        has_pivot = kind == "aggregate" and message.aggregate.HasField("pivot")
        kinds.add("pivot" if has_pivot else str(kind))
    for named, value in message.ListFields():
        if named.message_type is None or named.message_type.GetOptions().map_entry:
            continue
        for each in value if isinstance(value, Sequence) or hasattr(value, "extend") else (value,):
            kinds |= _steps(each)
    return kinds


def write_project(folder: Path, settings: PipelineSettings) -> Path:
    """Writes a project for `spark-pipelines` into the folder; the path of its spec."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "definitions.py").write_text(_DEFINITIONS)
    spec = {
        "name": "surecast",
        "storage": settings.storage,
        "database": settings.database,
        "configuration": dict(settings.configuration),
        "libraries": [{"glob": {"include": "definitions.py"}}],
    }
    path = folder / "spark-pipeline.yml"
    path.write_text(yaml_text(spec))
    return path


def run_by_command(remote: str, spec: Path, settings: PipelineSettings, progress: Progress | None = None) -> None:
    """Runs the project with `spark-pipelines run` on a Spark Connect server."""
    import pyspark

    home = Path(pyspark.__file__).parent
    command = [str(home / "bin" / "spark-pipelines"), "run", "--spec", str(spec), "--remote", remote]
    command += ["--full-refresh-all"] if settings.full_refresh else []
    environment = {key: value for key, value in os.environ.items() if key != "SPARK_REMOTE"}
    environment |= {"SPARK_HOME": str(home), "JAVA_HOME": find_java()}
    environment |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, **settings.environment}
    lines: list[str] = []
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.rstrip())
            _tell(progress, line)
    # The command fails after a run whose Python source reports counters, although the run is complete.
    if process.returncode and not any("Run is COMPLETED" in line for line in lines):
        raise SparkFailed(in_short([line for line in lines if "rror" in line] or lines[-3:]))


def _start(spark: SparkSession, graph: str, settings: PipelineSettings) -> Iterator[str]:
    """Starts the run; the messages of its events until it ends."""
    command = proto.Command()
    command.pipeline_command.start_run.CopyFrom(
        proto.PipelineCommand.StartRun(
            dataflow_graph_id=graph, full_refresh_all=settings.full_refresh, dry=False, storage=settings.storage
        )
    )
    client = cast(Any, spark).client
    request = client._execute_plan_request_with_metadata()
    client._set_command_in_plan(request.plan, command)
    # PySpark's own loop over the responses gives up at counters of Python workers, which a Python source sends.
    for response in client._execute_and_fetch_as_iterator(request, {}):
        if isinstance(response, dict) and "pipeline_event_result" in response:
            yield response["pipeline_event_result"].event.message


def _tell(progress: Progress | None, message: str) -> None:
    if progress is not None and (match := _FLOW.search(message)):
        progress(match[1], match[2].lower())
