"""One run of the pipeline: from files and logs to tables, and the report that accounts for every record."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from surecast.errors import ConfigurationError, refuse_unknown
from surecast.pipeline.datasource_log import LogAccess, log_at
from surecast.pipeline.kept_server import kept_server, stop_server
from surecast.pipeline.run_manifest import (
    Manifest,
    NewRecords,
    TableFiles,
    begin_run,
    code_digest,
    end_run,
    link_tables,
    local_path,
    new_records,
    read_manifest,
)
from surecast.pipeline.spark_session import OutputBusy, ServerSettings, SparkFailed, connect, in_short, spark_server
from surecast.pipeline.table_catalogue import CLEAN, STATISTICS, TABLES, chosen_statistics, tables_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from surecast.pipeline.graph_runner import PipelineSettings

__all__ = [
    "QUARANTINE",
    "Counted",
    "RunReport",
    "count_raw",
    "differences",
    "for_size",
    "open_tables",
    "read_table",
    "run_pipeline",
    "run_tables",
]

REPORT_FILE: Final = "report.json"
BRIEF_BYTES: Final = 64 << 20
"""A run that reads, and has read, less than this is brief: most of its time would go to what makes Spark fast."""
_RECORD_BYTES: Final = 200  # of a log over the network, usually
_PACKED: Final = 8  # how much larger a compressed file is than it looks, usually
_NEW_MAX: Final = 1000  # inputs with something new that are named one by one; if more, all are read to their ends
_METASTORE_LOCKED: Final = "XSDB6"  # Derby's code for a database that another process has open
_STATE_STORE: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@dataclass(frozen=True, slots=True)
class RunReport:
    """The contents of the tables after a run. records = quarantined + duplicates + sound, each counted on its own."""

    files: int
    """Files and logs over the network that have records."""
    records: int
    sound: int
    duplicates: int
    """Records that were there already, in the same or another file; they count once."""
    quarantined: dict[str, int]
    """By reason."""
    new_records: int
    """Records that this run read."""
    waiting_bytes: dict[str, int]
    """By file, what is not read yet: a last line without its end. Empty where the files are on another machine."""
    tables: dict[str, int]
    """Rows of every table that is up to date after this run."""
    duration_s: float
    unchanged: bool = False
    """True if nothing was new: Spark was not started, and the tables are those of the last run."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def run_pipeline(
    inputs: Sequence[str],
    output: Path,
    *,
    settings: ServerSettings | None = None,
    remote: str | None = None,
    database: str = "default",
    window_s: float = 60.0,
    full_refresh: bool = False,
    by_command: bool = False,
    access: LogAccess | None = None,
    storage: str | None = None,
    statistics: Sequence[str] | None = None,
    configuration: Mapping[str, str] | None = None,
    progress: Callable[[str, str], None] | None = None,
    keep_server: bool = False,
) -> RunReport:
    """Reads what is new in the inputs into the tables of `output`, and computes the statistics anew; does not start
    Spark if there is nothing to do.

    An input is a file, a folder, or the address of a broker's HTTP listener, whose log is read with `access`.
    `by_command` lets `spark-pipelines run` do the work, in place of the Spark session at hand. `storage` is a URL that
    Spark and all its workers can write to, for the state of the streams; by default a folder of `output`. `statistics`
    names those to compute, in place of all; others stay as they are. `keep_server` uses the Spark server of the user,
    which goes on for the next run. The report is in the output folder too.
    """
    started_s = time.monotonic()
    paths = [_absolute(name) for name in inputs]
    chosen = chosen_statistics(tuple(STATISTICS) if statistics is None else statistics)
    storage = storage or _as_url(output / "checkpoints")
    if not full_refresh:
        digest = _digest(database, window_s, chosen, storage, configuration)
        warehouse = None if remote else (settings or ServerSettings()).warehouse(output)
        new = _new_records(output, paths, access, digest, warehouse)
        if new is not None and not new.upto:
            report = _unchanged(new.last, paths, started_s)
            _write(output / REPORT_FILE, report)
            return report
    if remote is None:
        new_bytes = _input_bytes(paths, access)  # what is not there is refused before Spark is started
        settings = for_size(settings, output, new_bytes)
    with open_tables(output, settings, remote, keep_server=keep_server) as (spark, address):
        report = run_tables(
            spark,
            paths,
            output,
            database=database,
            window_s=window_s,
            full_refresh=full_refresh,
            by_command_at=address if by_command else None,
            access=access,
            storage=storage,
            statistics=statistics,
            configuration=configuration,
            progress=progress,
            started_s=started_s,
        )
    _write(output / REPORT_FILE, report)
    return report


@contextmanager
def open_tables(
    output: Path, settings: ServerSettings | None = None, remote: str | None = None, *, keep_server: bool = False
) -> Iterator[tuple[SparkSession, str]]:
    """Yields a session whose catalog has the tables of `output`, or that of a server elsewhere; and its address.

    The server ends with the block; with `keep_server` it is the user's, which goes on.
    """
    with ExitStack() as stack:
        log = None
        if remote is None:
            settings = for_size(settings, output)
            if keep_server:
                server = stack.enter_context(kept_server(output, settings))
            else:
                stop_server(output)  # the user's server, if it has these tables
                server = stack.enter_context(spark_server(output, settings))
            remote, log = server.remote, server.log
        else:
            output.mkdir(parents=True, exist_ok=True)
        spark = connect(remote, settings.py_files if settings else ())
        stack.callback(_close, spark)
        with _short_errors(output, log):
            yield spark, remote


def _close(spark: SparkSession) -> None:
    """Ends the session. Warnings are hidden: if its server is gone, the reason has been reported already."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        spark.stop()


@contextmanager
def _short_errors(output: Path, log: Path | None) -> Iterator[None]:
    """Says in a line what Spark says in pages; that the metastore is locked, only its log says."""
    from pyspark.errors import PySparkException

    try:
        yield
    except (SparkFailed, PySparkException) as error:
        if log is not None and _METASTORE_LOCKED in log.read_text(errors="replace"):
            raise OutputBusy(output) from None
        raise SparkFailed(in_short([str(error)]) + (f"; its log is {log}" if log else "")) from error


def run_tables(
    spark: SparkSession,
    inputs: Sequence[str],
    output: Path,
    *,
    database: str = "default",
    window_s: float = 60.0,
    full_refresh: bool = False,
    by_command_at: str | None = None,
    access: LogAccess | None = None,
    storage: str | None = None,
    statistics: Sequence[str] | None = None,
    configuration: Mapping[str, str] | None = None,
    progress: Callable[[str, str], None] | None = None,
    started_s: float | None = None,
) -> RunReport:
    """Runs the pipeline in an open session; `by_command_at` is the address for `spark-pipelines`.

    After a finished run only the tables are computed that new records can change.
    """
    from surecast.pipeline.graph_runner import PipelineSettings, run_by_command, run_in_session, write_project
    from surecast.pipeline.table_definitions import INPUTS_KEY, TABLES_KEY, UPTO_KEY, WINDOW_KEY, define

    started_s = time.monotonic() if started_s is None else started_s
    if not database.isidentifier():
        raise ConfigurationError(f"--database {database}: write a name of letters, digits and underscores")
    spark.sql(f"CREATE DATABASE IF NOT EXISTS {database}")
    access = access or LogAccess()
    chosen = chosen_statistics(tuple(STATISTICS) if statistics is None else statistics)
    tables = [name for name in TABLES if name in chosen or name not in STATISTICS]
    storage = storage or _as_url(output / "checkpoints")
    digest = _digest(database, window_s, chosen, storage, configuration)
    warehouse = spark.conf.get("spark.sql.warehouse.dir") or ""
    new = None if full_refresh else _new_records(output, inputs, access, digest, warehouse, is_sure=False)
    if new is not None and not 0 < len(new.upto) <= _NEW_MAX:
        new = None
    changed = tables if new is None else [name for name in tables_of(new.sources) if name in tables]
    settings = PipelineSettings(
        storage=storage,
        configuration={
            INPUTS_KEY: json.dumps([_absolute(name) for name in inputs]),
            WINDOW_KEY: repr(window_s),
            TABLES_KEY: ",".join(changed),
            UPTO_KEY: "" if new is None else json.dumps(new.upto),
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "4",
            "spark.sql.streaming.stateStore.providerClass": _STATE_STORE,
            **(configuration or {}),
        },
        database=database,
        full_refresh=full_refresh,
        environment=access.environment(),
    )
    begin_run(output)
    if new is not None:
        before = int(new.last.report["records"])
    else:
        before = 0 if full_refresh else _rows(spark, database, "raw_records")
    if by_command_at is None:
        run_in_session(spark, lambda session: define(session, access), settings, progress)
    else:
        run_by_command(by_command_at, write_project(output / "project", settings), settings, progress)
    files = link_tables(output, warehouse, database, TABLES)
    last = None if new is None else new.last
    report, counted = _report(spark, settings, inputs, changed, before, started_s, last, files)
    report = replace(report, tables={name: report.tables[name] for name in tables})
    end_run(
        output,
        digest=digest,
        warehouse=warehouse,
        database=database,
        checkpoints=storage,
        tables=files,
        counted=counted,
        report=report.as_dict(),
    )
    return report


def _digest(
    database: str, window_s: float, chosen: Sequence[str], storage: str, configuration: Mapping[str, str] | None
) -> str:
    """Returns what decides on the tables besides the inputs; the schedule counts by its size and time, as inputs do."""
    settings = {"database": database, "window_s": window_s, "statistics": chosen, "storage": storage}
    configuration = configuration or {}
    schedule = [
        (str(path), path.stat().st_size, path.stat().st_mtime_ns)
        for name in [configuration.get("surecast.schedule", "")]
        for path in ([Path(name), *sorted(Path(name).rglob("*"))] if name else [])
        if path.is_file()
    ]
    return code_digest({**settings, "configuration": configuration, "schedule": schedule})


def _new_records(
    output: Path,
    inputs: Sequence[str],
    access: LogAccess | None,
    digest: str,
    warehouse: str | None,
    is_sure: bool = True,
) -> NewRecords | None:
    """Returns what is new since the last finished run; None if that is not known, or all tables are to be computed.

    Inputs that are not there are an error, unless they may be on the machine of a server: without a `warehouse` or with
    `is_sure` False.
    """
    manifest = read_manifest(output)
    if manifest is None or manifest.digest != digest:
        return None
    if warehouse is not None and local_path(warehouse) != local_path(manifest.warehouse):
        return None
    try:
        return new_records(manifest, [_absolute(name) for name in inputs], access or LogAccess())
    except (ConfigurationError, OSError):
        if warehouse is not None and is_sure:
            raise
        return None


def _unchanged(last: Manifest, inputs: Sequence[str], started_s: float) -> RunReport:
    """Returns the report of a run that has nothing to do."""
    waiting, duration_s = _waiting(inputs, last.offsets or {}), time.monotonic() - started_s
    report = RunReport(**last.report)
    return replace(report, new_records=0, waiting_bytes=waiting, duration_s=duration_s, unchanged=True)


def read_table(spark: SparkSession, name: str, limit: int, database: str = "default") -> list[dict[str, Any]]:
    """Returns rows of a table, `limit` at most, in the order of their first columns."""
    refuse_unknown("table", [name], TABLES)
    if not spark.catalog.tableExists(f"{database}.{name}"):
        raise ConfigurationError(f"the table {name} is not there yet; run surecast pipeline run first")
    table = _fresh(spark, database, name)
    rows = table.orderBy(*table.columns[:3]).limit(limit).collect()
    return [row.asDict(recursive=True) for row in rows]


def _report(
    spark: SparkSession,
    settings: PipelineSettings,
    inputs: Sequence[str],
    names: Sequence[str],
    before: int,
    started_s: float,
    last: Manifest | None,
    linked: Mapping[str, TableFiles] | None,
) -> tuple[RunReport, dict[str, tuple[int, int]]]:
    """Returns the report of a run that computed the tables `names`, and the raw records of each clean table, counted.

    For other tables the counts are those of the last finished run. An error where tables do not hold what the raw
    records should become.
    """
    from pyspark.sql import functions as F  # noqa: N812

    def table(name: str) -> Any:
        return _fresh(spark, settings.database, name)

    reasons = table("quarantine").groupBy("reason").count().orderBy("reason").collect()
    files = table("input_files").select("file", "records", "read_bytes").collect()
    if linked is not None:
        tables = {name: each.rows for name, each in linked.items()}
    else:
        counts = [table(name).agg(F.count("*").alias("rows"), F.lit(name).alias("name")) for name in names]
        tables = {row["name"]: row["rows"] for row in reduce(lambda a, b: a.unionAll(b), counts).collect()}
    same = {} if last is None else {name: Counted(*last.counted[name]) for name in CLEAN if name not in names}
    held = {name: same[name].different if name in same else tables[name] for name in CLEAN}
    if "availability" not in same:
        # One line of a trace may hold several intervals, so its lines are counted, not its rows.
        held["availability"] = table("availability").select("file", "position").distinct().count()
    records = sum(row["records"] for row in files)
    quarantined = {row["reason"]: row["count"] for row in reasons}
    counted = count_raw(table("raw_records"), leave_out=tuple(same)) | same
    wrong = differences(counted, {**held, QUARANTINE: sum(quarantined.values())})
    if (read := sum(each.records for each in counted.values())) != records:
        wrong.append(f"input_files has {records} records in place of {read}")
    if wrong:
        raise SparkFailed(f"the tables do not add up: {'; '.join(wrong)}. Run it again with --full-refresh")
    clean = {name: counted.get(name, Counted(0, 0)) for name in CLEAN}
    report = RunReport(
        files=len(files),
        records=records,
        sound=sum(held.values()),
        duplicates=sum(each.records - each.different for each in clean.values()),
        quarantined=quarantined,
        new_records=records - before,
        waiting_bytes=_waiting(inputs, {row["file"]: row["read_bytes"] for row in files}),
        tables=tables,
        duration_s=time.monotonic() - started_s,
    )
    return report, {name: (each.records, each.different) for name, each in clean.items()}


def _input_bytes(inputs: Sequence[str], access: LogAccess | None) -> int:
    """Returns the approximate size of the inputs; refuses files that do not exist, and logs whose broker does not
    answer."""
    from surecast.pipeline.input_files import find_files

    logs = [log for name in inputs if (log := log_at(name, access or LogAccess())) is not None]
    files = find_files([name for name in inputs if log_at(name) is None])
    sizes = [each.size_bytes * (_PACKED if path.endswith(".gz") else 1) for path, each in files.items()]
    return sum(sizes) + _RECORD_BYTES * sum(log.end() for log in logs)


def for_size(settings: ServerSettings | None, output: Path, new_bytes: int = 0) -> ServerSettings:
    """Returns the settings for a small or large input: statistics are made of all that the tables hold, not of new
    records alone."""
    settings = settings or ServerSettings()
    if settings.is_brief is not None or not settings.master.startswith("local"):
        return settings
    held = sum(path.stat().st_size for path in (output / "tables").rglob("*") if path.is_file())
    return replace(settings, is_brief=held + new_bytes < BRIEF_BYTES)


def _waiting(inputs: Sequence[str], read_bytes: Mapping[str, int]) -> dict[str, int]:
    from surecast.pipeline.input_files import find_files, unread_bytes

    try:
        files = find_files([name for name in inputs if log_at(name) is None])
    except ConfigurationError:
        return {}
    waiting = {path: unread_bytes(each, read_bytes.get(path, 0)) for path, each in files.items()}
    return {path: count for path, count in waiting.items() if count}


def _fresh(spark: SparkSession, database: str, name: str) -> DataFrame:
    """Returns a table as it is now: a session remembers its files, and another one, such as the command's, may change
    them."""
    spark.catalog.refreshTable(f"{database}.{name}")
    return spark.read.table(f"{database}.{name}")


def _rows(spark: SparkSession, database: str, name: str) -> int:
    return spark.read.table(f"{database}.{name}").count() if spark.catalog.tableExists(f"{database}.{name}") else 0


def _absolute(name: str) -> str:
    return name if "://" in name else str(Path(name).absolute())


def _as_url(path: Path) -> str:
    return path.absolute().as_uri()


def _write(path: Path, report: RunReport) -> None:
    from surecast.report.report_files import write_whole

    text = json.dumps(report.as_dict(), indent=2) + "\n"
    write_whole(path, lambda opened: opened.write(text.encode()))


QUARANTINE: Final = "quarantine"


@dataclass(frozen=True, slots=True)
class Counted:
    """Raw records that belong in one table, and how many of them are different ones."""

    records: int
    different: int


def count_raw(raw: DataFrame, leave_out: Sequence[str] = ()) -> dict[str, Counted]:
    """Returns, by table, how many records the raw records should become; each record in the quarantine counts."""
    from pyspark.sql import functions as F  # noqa: N812

    from surecast.pipeline.formats import BROKER
    from surecast.pipeline.records import INTERVAL_SOURCES, ZAP_SOURCES, zap_event

    source, text = F.col("source"), F.col("text")
    is_zap, is_trace = source.isin(*ZAP_SOURCES), source.isin("viewing", *INTERVAL_SOURCES)
    table = F.when(F.col("problem").isNotNull(), F.lit(QUARANTINE)).when(source == BROKER, F.lit("broker_events"))
    table = table.when(is_zap, F.lit("zap_events")).when(source == "viewing", F.lit("viewing_sessions"))
    table = table.when(is_trace, F.lit("availability")).otherwise(F.concat(F.lit("no table for "), source))
    # An event of a box is known by what it says, a record of a broker by its line and log, of a trace by its place too.
    is_event = is_zap & F.col("problem").isNull()
    content = F.when(is_event, F.to_json(zap_event(source, text))).otherwise(text)
    key = (F.when(~is_event, F.col("log")), F.when(is_trace, F.col("position")), content)
    raw = raw.where(~table.isin(*leave_out)) if leave_out else raw
    keyed = raw.select(table.alias("table"), F.struct(F.xxhash64(*key), F.hash(*key)).alias("key"))
    counts = keyed.groupBy("table").agg(F.count("*").alias("records"), F.count_distinct("key").alias("different"))
    return {row["table"]: Counted(row["records"], row["different"]) for row in counts.collect()}


def differences(raw: Mapping[str, Counted], held: Mapping[str, int]) -> list[str]:
    """Returns texts that say which tables do not hold what they should; `held` is records by table.

    >>> differences({"zap_events": Counted(5, 4), "quarantine": Counted(1, 1)}, {"zap_events": 4, "quarantine": 1})
    []
    >>> differences({"zap_events": Counted(5, 4)}, {"zap_events": 3, "availability": 2})
    ['availability has 2 records in place of 0', 'zap_events has 3 records in place of 4']
    """
    texts = []
    for name in sorted({*raw, *held}):
        counted = raw.get(name, Counted(0, 0))
        wanted = counted.records if name == QUARANTINE else counted.different
        if held.get(name, 0) != wanted:
            texts.append(f"{name} has {held.get(name, 0)} records in place of {wanted}")
    return texts
