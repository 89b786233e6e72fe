"""`surecast pipeline`: logs become tables and statistics, on Spark."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from surecast.cli.mqtt_options import MQTT_CONTEXT, ClientOptions, MqttCommand
from surecast.cli.options import AsJson, takes_groups
from surecast.errors import ConfigurationError, refuse_unknown

if TYPE_CHECKING:
    from surecast.pipeline import RunReport, ServerSettings

__all__ = ["app"]

app = typer.Typer(help="Turn logs into tables and statistics, on Spark.", no_args_is_help=True)

Output = Annotated[
    Path, typer.Option("--output", "-o", help="Folder of the tables; a second run reads only what is new.")
]


@dataclass(frozen=True, kw_only=True)
class SparkServerOptions:
    """The options of a Spark server and of its tables."""

    master: Annotated[
        str, typer.Option(help="Where Spark works: local[2] for two cores of this machine, or spark://HOST:PORT.")
    ] = "local[*]"
    memory: Annotated[str, typer.Option(help="Memory of the Spark server, such as 2g.")] = "1g"
    remote: Annotated[
        str | None, typer.Option(metavar="sc://HOST:PORT", help="Use a Spark Connect server that runs already.")
    ] = None
    database: Annotated[str, typer.Option(help="Database of the tables in Spark's catalog.")] = "default"
    conf: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A setting with which Spark starts. May be repeated."),
    ] = None

    no_server: Annotated[
        bool,
        typer.Option(
            "--no-server",
            envvar="SURECAST_NO_SERVER",
            help="Start Spark for this command alone; without it, Spark stays for the next one, until nobody uses it.",
        ),
    ] = False

    @property
    def keeps_server(self) -> bool:
        """True if Spark is to stay for the next command."""
        return not self.no_server and self.remote is None and self.master.startswith("local")

    def settings(self) -> ServerSettings:
        """Returns the settings with which Spark starts; refuses those that contradict each other."""
        return server_settings(self.master, self.memory, self.remote, self.conf)

    def check_tables(self, folder: Path, option: str) -> None:
        """Refuses a folder that has no tables."""
        if self.remote is None and not (folder / "metastore").is_dir():
            raise ConfigurationError(f"{option} {folder}: there are no tables; run surecast pipeline run first")


@app.command()
@takes_groups
def run(
    inputs: Annotated[
        list[str],
        typer.Option(
            "--input",
            "-i",
            metavar="PATH|[NAME=]URL",
            help="A folder or file of logs and traces, or a broker's HTTP listener with its log. May be repeated.",
        ),
    ],
    output: Output,
    server: SparkServerOptions,
    window: Annotated[str, typer.Option(metavar="TIME", help="Length of the windows of load over time.")] = "1min",
    schedule: Annotated[
        Path | None,
        typer.Option(
            help="Television programmes, for their reach: a .csv or .parquet file with channel, start, end, title."
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", help="For logs that are read over the network: file that has the token."),
    ] = None,
    username: Annotated[
        str | None,
        typer.Option(
            "--username", "-u", help="For logs that are read over the network: user name, in place of a token."
        ),
    ] = None,
    password: Annotated[
        str | None,
        typer.Option("--pw", "-P", envvar="SURECAST_PASSWORD", show_envvar=True, help="Password of that user."),
    ] = None,
    full_refresh: Annotated[
        bool, typer.Option("--full-refresh", help="Delete the tables, and read everything again.")
    ] = False,
    by_command: Annotated[
        bool,
        typer.Option(
            "--spark-pipelines", help="Run the pipeline with Spark's own command spark-pipelines, which is slower."
        ),
    ] = False,
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Where the state of the streams is kept, such as s3a://bucket/state; by default in the output folder.",
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Read what is new in logs and traces into tables, and compute their statistics.

    Files are recognised by name or first line. Malformed records go to the table quarantine, with the reason.
    """
    from surecast.documents.units import seconds_of

    window_s = seconds_of("--window", window, is_positive=True)
    settings = server.settings()
    if schedule is not None and (schedule.suffix not in (".csv", ".parquet") or not schedule.exists()):
        raise ConfigurationError(f"--schedule {schedule}: name a .csv or .parquet file that is there")
    if storage is not None and "://" not in storage:
        raise ConfigurationError(
            f"--storage {storage}: write a URL that all machines of Spark see, such as file:///srv"
        )
    from surecast.cli.output import print_json
    from surecast.pipeline import LogAccess, run_pipeline

    access = LogAccess(_token(token_file), username, password if username is not None else None)
    with _progress() as progress:
        report = run_pipeline(
            inputs,
            output,
            settings=settings,
            remote=server.remote,
            database=server.database,
            window_s=window_s,
            full_refresh=full_refresh,
            by_command=by_command,
            access=access,
            storage=storage,
            configuration={"surecast.schedule": "" if schedule is None else str(schedule.absolute())},
            progress=progress,
            keep_server=server.keeps_server,
        )
    if json:
        print_json(report.as_dict())
    else:
        _print_report(report, output)
        if server.keeps_server and not report.unchanged:
            _print_server()


@app.command()
@takes_groups
def show(
    table: Annotated[str, typer.Argument(help="Name of a table; surecast pipeline tables lists them.")],
    output: Output,
    server: SparkServerOptions,
    limit: Annotated[int, typer.Option(min=1, help="Most rows to show.")] = 20,
    json: AsJson = False,
) -> None:
    """Show rows of a table."""
    settings = server.settings()
    from surecast.cli.output import console, print_json, print_table

    rows = [
        {name: _plain(value) for name, value in row.items()} for row in _rows(table, output, server, settings, limit)
    ]
    if json:
        print_json(rows)
        return
    if not rows:
        console.print(f"{table} has no rows")
        return
    texts = [name for name in rows[0] if any(isinstance(row[name], str) for row in rows)]
    figures = [name for name in rows[0] if name not in texts]
    print_table(texts, figures, [[_cell(row[name]) for name in (*texts, *figures)] for row in rows])


def _rows(
    table: str, output: Path, server: SparkServerOptions, settings: ServerSettings, limit: int
) -> list[dict[str, Any]]:
    """Returns the first rows of a table: from the files of the last run, or if they are elsewhere, by Spark."""
    from surecast.pipeline.run_manifest import first_rows, read_manifest
    from surecast.pipeline.table_catalogue import TABLES

    refuse_unknown("table", [table], TABLES)
    if server.remote is None:
        manifest = read_manifest(output)
        if manifest is not None and manifest.database == server.database:
            return first_rows(output, table, limit)
        server.check_tables(output, "--output")
    from surecast.cli.output import working
    from surecast.pipeline import open_tables, read_table

    opened = open_tables(output, settings, server.remote, keep_server=server.keeps_server)
    with working("starting Spark"), opened as (spark, _):
        return read_table(spark, table, limit, server.database)


@app.command()
def tables(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder of tables: also show their rows and size.")
    ] = None,
    json: AsJson = False,
) -> None:
    """List the tables of the pipeline, and what is in each."""
    from surecast.cli.output import print_json, print_table
    from surecast.pipeline.table_catalogue import TABLES

    if output is None:
        if json:
            print_json(TABLES)
        else:
            print_table(("table", "what is in it"), (), TABLES.items())
        return
    from surecast.pipeline.run_manifest import read_manifest

    manifest = read_manifest(output)
    if manifest is None:
        raise ConfigurationError(f"--output {output}: no run has finished there; run surecast pipeline run first")
    held = {name: manifest.tables[name] for name in TABLES if name in manifest.tables}
    if json:
        print_json(
            {
                n: {"text": TABLES[n], "rows": t.rows, "bytes": t.size_bytes, "files": len(t.files)}
                for n, t in held.items()
            }
        )
        return
    rows = [[n, TABLES[n], f"{t.rows:,}", f"{t.size_bytes:,}", f"{len(t.files):,}"] for n, t in held.items()]
    print_table(("table", "what is in it"), ("rows", "bytes", "files"), rows)


@app.command()
def serve(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder of the tables that the server is for.")
    ] = None,
    idle: Annotated[str, typer.Option(metavar="TIME", help="Stop when no command has used it for so long.")] = "10min",
    master: Annotated[
        str, typer.Option(help="Where Spark works: local[2] for two cores of this machine.")
    ] = "local[*]",
    memory: Annotated[str, typer.Option(help="Memory of the Spark server, such as 2g.")] = "1g",
    conf: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A setting with which Spark starts. May be repeated."),
    ] = None,
    brief: Annotated[
        bool | None,
        typer.Option("--brief/--no-brief", help="Configure Spark for little work; decided by the tables if left out."),
    ] = None,
    stop: Annotated[bool, typer.Option("--stop", help="Stop the server that runs.")] = False,
) -> None:
    """Run the Spark server that `run` and `learn` use, until nobody uses it. They start it themselves; there is one for
    each user."""
    from surecast.cli.output import console
    from surecast.documents.units import seconds_of
    from surecast.pipeline.kept_server import KeptServer, stop_server
    from surecast.pipeline.kept_server import serve as serve_tables
    from surecast.pipeline.pipeline_run import for_size

    if stop:
        console.print("stopped" if stop_server() else "there is none")
        return
    if output is None:
        raise ConfigurationError("--output: name the folder of the tables that the server is for")
    settings = replace(server_settings(master, memory, None, conf), is_brief=brief)

    def show_start(kept: KeptServer) -> None:
        console.print(f"Spark serves {kept.output}, process {kept.server['pid']}, heap {memory}", markup=False)

    def end(*_: object) -> None:
        sys.exit(0)  # Spark is stopped on the way

    signal.signal(signal.SIGTERM, end)
    idle_s = seconds_of("--idle", idle, is_positive=True)
    console.print(serve_tables(output, for_size(settings, output), idle_s, show_start), markup=False)


@app.command(cls=MqttCommand, context_settings=MQTT_CONTEXT)
@takes_groups
def spool(
    connection: ClientOptions,
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder of the spool; an input of surecast pipeline run.")
    ],
    topics: Annotated[
        list[str] | None, typer.Option("-t", "--topic", help="Topic filter. May be repeated; by default zap/events/#.")
    ] = None,
    tables: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Output folder of the runs: what they have read is removed from the spool."
        ),
    ] = None,
    count: Annotated[int | None, typer.Option("-C", "--count", min=1, help="Exit after so many messages.")] = None,
    json: AsJson = False,
) -> None:
    """Write set-top boxes' events from a subscription to files for `run`.

    Each message is acknowledged when it is on disk. The session on the broker is kept (-i names it): what comes while
    nobody spools is sent on the next start.
    """
    import asyncio

    from surecast.cli.output import console, errors, print_json
    from surecast.pipeline.spool import Spool, SpoolReport, spool_subscription

    if not connection.client_id:
        raise ConfigurationError("-i: name the session that the broker keeps while nobody spools")
    kept, report = replace(connection, keep_session=True), SpoolReport()
    tell = lambda text: errors.print(text, markup=False, soft_wrap=True)  # noqa: E731
    with Spool(out) as opened, suppress(KeyboardInterrupt):
        asyncio.run(
            spool_subscription(
                kept.client, topics or ["zap/events/#"], opened, report, tables=tables, count=count, told=tell
            )
        )
    if json:
        print_json(asdict(report))
    else:
        console.print(
            f"{report.messages:,} messages, {report.lines:,} lines in {out}; {report.resent:,} of the messages resent, "
            f"{report.connections} connections",
            markup=False,
            soft_wrap=True,
        )


def _print_server() -> None:
    from surecast.cli.output import console
    from surecast.pipeline.kept_server import resident_bytes, serving

    kept = serving()
    if kept is not None and (held := resident_bytes(kept.server["pid"])) is not None:
        console.print(
            f"Spark stays for {kept.idle_s / 60:g} min, with {held >> 20:,} MiB; "
            "surecast pipeline serve --stop ends it, --no-server does without it",
            soft_wrap=True,
        )


def _print_report(report: RunReport, output: Path) -> None:
    from surecast.cli.output import console, print_table

    if report.unchanged:
        console.print(
            f"nothing new in {report.files:,} files; the tables in {output} are those of the last run",
            markup=False,
            soft_wrap=True,
        )
        _print_waiting(report)
        return
    console.print(
        f"{report.files:,} files, {report.records:,} records ({report.new_records:,} new): {report.sound:,} sound, "
        f"{report.duplicates:,} seen before, {sum(report.quarantined.values()):,} in quarantine"
    )
    for noun, title, counts in (("reason", "in quarantine", report.quarantined), ("table", "rows", report.tables)):
        if counts:
            print_table((noun,), (title,), [[name, f"{count:,}"] for name, count in counts.items()])
    _print_waiting(report)
    console.print(f"tables in {output}, after {report.duration_s:.0f} s", markup=False, soft_wrap=True)


def _print_waiting(report: RunReport) -> None:
    from surecast.cli.output import console

    for file, count in report.waiting_bytes.items():
        console.print(
            f"{file}: {count:,} bytes are left for the next run, as their line is not complete",
            markup=False,
            soft_wrap=True,
        )


@contextmanager
def _progress() -> Iterator[Callable[[str, str], None]]:
    """Yields a function that shows, on a terminal, how many tables are done and the one in progress."""
    from surecast.cli.output import errors

    if not errors.is_terminal:
        yield lambda table, state: None
        return
    states: dict[str, str] = {}
    with errors.status("starting Spark ...") as status:

        def show_state(table: str, state: str) -> None:
            states[table] = state
            done = sum(each == "completed" for each in states.values())
            status.update(f"{done} of {len(states)} tables, {table} {state} ...")

        yield show_state


def server_settings(master: str, memory: str, remote: str | None, conf: list[str] | None) -> ServerSettings:
    from surecast.pipeline import ServerSettings

    if remote is not None and (conf or master != "local[*]"):
        raise ConfigurationError("--remote: the server runs already; --master and --conf are for one that is started")
    if remote is None and not master.startswith(("local", "spark://", "yarn", "k8s://")):
        raise ConfigurationError(f"--master {master}: write local[2], or the address of a cluster, spark://HOST:7077")
    static = {}
    for text in conf or []:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise ConfigurationError(f"--conf {text}: write --conf NAME=VALUE, such as --conf spark.cores.max=4")
        static[name.strip()] = value.strip()
    return ServerSettings(master, memory, static)


def _token(file: Path | None) -> str | None:
    try:
        return None if file is None else file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigurationError(f"--token-file {file}: the token cannot be read: {error.strerror}") from None


def _plain(value: Any) -> Any:
    """Returns a value in a form that JSON can hold."""
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) and abs(value) < 1e6 else str(value)
