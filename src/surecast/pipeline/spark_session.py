"""Spark for the pipeline: one Spark Connect server for a run, on this machine, or one that runs elsewhere.

A server of our own listens on 127.0.0.1 at a free port, wants a token that only this process knows, and keeps all it
writes in the output folder: tables, metastore, logs. It ends with the process that started it, however that ends.
"""

from __future__ import annotations

import importlib.util
import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final, cast

from surecast.errors import ConfigurationError, SurecastError
from surecast.extras import missing_extra
from surecast.report.report_files import locked_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "OutputBusy",
    "ServerSettings",
    "SparkFailed",
    "SparkServer",
    "connect",
    "find_java",
    "in_short",
    "spark_server",
]

JAVA_OLDEST: Final = 17
START_S: Final = 180.0
PY_FILES: Final = "spark.submit.pyFiles"
_ARCHIVES: Final = "spark.archives"
_WAREHOUSE: Final = "spark.sql.warehouse.dir"
_FILES: Final = "spark.files"
_PYTHON: Final = "spark.pyspark.python"
_WORKER_PYTHON: Final = "spark.sql.execution.pyspark.python"
_PATH: Final = "spark.executorEnv.PATH"
_USUAL_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
_ERROR_CHARACTERS: Final = 600
_STARTED: Final = re.compile(r"Spark Connect server started at: \S*?:(\d+)")
_BRIEF: Final = {
    # The quick compiler, the simple collector and no check of Spark's classes. The quick compiler's code cache is small
    # by itself: once it is full, nothing more is compiled.
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
    # Plans are carried out step by step: each is carried out once, and compiling it takes longer than that.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.hadoop.hive.stats.autogather": "false",
}
_DRIVER_PYTHON: Final = """\
#!/bin/sh
# Python without Spark's own copy of pyspark, which has no compiled code: the installed one starts three times as fast.
set -f
kept=
IFS=:
for each in $PYTHONPATH; do
  case $each in
    */python/lib/pyspark.zip | */python/lib/py4j-*.zip | *.jar) ;;
    *) kept=$kept${{kept:+:}}$each ;;
  esac
done
unset IFS
PYTHONPATH=$kept exec {interpreter} "$@"
"""
_LOG_SETTINGS: Final = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %p %c{1}: %m%n%ex{short.message}%n
logger.connect.name = org.apache.spark.sql.connect.service.SparkConnectServer
logger.connect.level = info
logger.hive.name = org.apache.hadoop.hive
logger.hive.level = error
"""


class SparkFailed(SurecastError):  # noqa: N818 - what it is, not that it is an error
    """Spark could not be started or could not do its work; the message names the log to look into."""


class OutputBusy(SurecastError):  # noqa: N818
    """Another run is using the same output folder."""

    def __init__(self, output: Path):
        super().__init__(f"{output}: another run is using this output; wait for it, or choose another --output")


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The settings to start Spark with."""

    master: str = "local[*]"
    """The master of Spark: this process (`local[*]`), or a cluster (`spark://host:7077`)."""
    memory: str = "1g"
    """Heap of the server, as Spark writes it."""
    static: Mapping[str, str] = field(default_factory=dict)
    """More settings of Spark that must be known when it starts, such as another metastore."""
    is_brief: bool | None = None
    """True if there is little to do, so that Spark spares what only long work earns back. None: decided by the size of
    the input that a run reads and has read."""

    @property
    def py_files(self) -> list[str]:
        """Files of Python code that go to the workers, as `spark.submit.pyFiles` has them.

        >>> ServerSettings(static={"spark.submit.pyFiles": "surecast.zip, more.zip"}).py_files
        ['surecast.zip', 'more.zip']
        """
        return [name for text in self.static.get(PY_FILES, "").split(",") if (name := text.strip())]

    def warehouse(self, output: Path) -> str:
        """Returns the folder or URL of the tables of an output folder."""
        return self.static.get(_WAREHOUSE, str(output.absolute() / "tables"))


@dataclass(frozen=True, slots=True)
class SparkServer:
    """A running Spark Connect server: where to connect to, the id of its process, and its log."""

    remote: str
    pid: int
    log: Path


@contextmanager
def spark_server(output: Path, settings: ServerSettings | None = None) -> Iterator[SparkServer]:
    """Runs a Spark Connect server whose tables are in the folder `output`, and stops it at the end."""
    settings = settings or ServerSettings()
    java_home = find_java()
    output = output.absolute()
    with ExitStack() as stack:
        stack.enter_context(locked_folder(output, "--output", OutputBusy(output)))
        log = output / "server.log"
        (output / "log4j2.properties").write_text(_LOG_SETTINGS)
        token = secrets.token_hex(16)
        environment = _environment(java_home, token, settings.master, _driver_python(output))
        command = [sys.executable, "-m", "surecast.pipeline.guard", *_command(output, settings)]
        opened = stack.enter_context(log.open("wb"))
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=opened,
            env=environment,
            cwd=output,
            start_new_session=True,
        )
        stack.callback(_stop, process)
        assert process.stdout is not None
        pid = int(process.stdout.readline() or 0)
        port = _wait_for_port(process, log, output)
        yield SparkServer(f"sc://localhost:{port}/;token={token}", pid, log)


def connect(remote: str, py_files: Sequence[str] = ()) -> SparkSession:
    """Returns a new session on a Spark Connect server, with the time zone that all tables are in.

    `py_files` go to the server and from there to its workers, where they can be imported from. A Spark Connect server
    does nothing with those that it is started with (`--py-files`): they belong to a session.

    >>> connect("somewhere")
    Traceback (most recent call last):
    ...
    surecast.errors.ConfigurationError: --remote somewhere: write the address of a Spark Connect server, such as ...
    """
    if not remote.startswith("sc://"):
        raise ConfigurationError(
            f"--remote {remote}: write the address of a Spark Connect server, such as sc://localhost:15002"
        )
    _check_pyspark()
    missing = [name for name in py_files if not Path(name).is_file()]
    if missing:
        raise ConfigurationError(
            f"{PY_FILES} {missing[0]}: there is no such file; python -m surecast.pipeline.ship makes it"
        )
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.client.retries import DefaultPolicy

    try:
        # A session of its own: one that exists in this process may belong to another server.
        spark: SparkSession = SparkSession.builder.remote(remote).create()
        # Spark's own policy tries for ten minutes; a server that is gone for seconds does not come back.
        patient = DefaultPolicy(max_retries=6, backoff_multiplier=2.0, initial_backoff=100, max_backoff=4000)
        cast(Any, spark).client.set_retry_policies([patient])
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        if py_files:
            spark.addArtifacts(*py_files, pyfile=True)
    except PySparkException as error:
        where = remote.partition("/;")[0]
        details = re.search(r'details = "([^"]*)"', str(error))
        reason = details[1] if details else str(error).splitlines()[0]
        raise SparkFailed(f"{where}: no Spark Connect server answers there: {reason}") from error
    return spark


def find_java() -> str:
    """Returns the home of a Java that Spark can run on; raises an error that says what to install if there is none."""
    _check_pyspark()
    home = os.environ.get("JAVA_HOME", "")
    on_path = shutil.which("java")
    homes = [Path(home)] if home else []
    homes += [Path(on_path).resolve().parent.parent] if on_path else []
    versions = []
    for each in homes:
        version = _java_version(each / "bin" / "java")
        if version >= JAVA_OLDEST:
            return str(each)
        versions.append(f"{each} has {f'Java {version}' if version else 'none'}")
    raise ConfigurationError(
        f"Spark needs Java {JAVA_OLDEST} or later, and {'; '.join(versions) or 'there is none'}. Install it "
        "(apt install default-jre-headless, dnf install java-latest-openjdk-headless, brew install openjdk), or set "
        "JAVA_HOME to where it is"
    )


def in_short(messages: Sequence[str]) -> str:
    """Returns the first error, without plans and stack traces.

    >>> in_short(["[TABLE_OR_VIEW_NOT_FOUND] The table `a` cannot be found.\\n'Project\\n+- 'Unresolved\\n"])
    '[TABLE_OR_VIEW_NOT_FOUND] The table `a` cannot be found.'
    """
    text = next((each for each in messages if "upstream" not in each), messages[-1])
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(("\t", "'", "+-", "JVM"))]
    return " ".join(lines)[:_ERROR_CHARACTERS]


def _check_pyspark() -> None:
    if importlib.util.find_spec("pyspark") is None:
        raise ConfigurationError(missing_extra("pyspark"))


def _java_version(java: Path) -> int:
    try:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, check=True, errors="replace").stderr
    except (OSError, subprocess.CalledProcessError):
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(match[1]) if match else 0


def _spark_home() -> Path:
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _driver_python(output: Path) -> Path:
    """Makes the command by which Spark starts Python beside itself.

    Spark gives it ten seconds to answer, which on a busy machine is not long, and starts it for every stream.
    """
    script = output / "python"
    script.write_text(_DRIVER_PYTHON.format(interpreter=shlex.quote(sys.executable)))
    script.chmod(0o755)
    # Where files of the folder must not be executed, Python starts as Spark has it.
    return script if os.access(script, os.X_OK) else Path(sys.executable)


def _environment(java_home: str, token: str, master: str, python: Path) -> dict[str, str]:
    """Returns the environment for Spark: the Spark of this package and this interpreter, not whatever `python3` is on
    the PATH."""
    environment = dict(os.environ)
    for name in ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "PYTHONHOME", "SPARK_CONF_DIR"):
        environment.pop(name, None)
    environment |= {
        "JAVA_HOME": java_home,
        "SPARK_HOME": str(_spark_home()),
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_DRIVER_PYTHON": str(python),
        "SPARK_CONNECT_AUTHENTICATE_TOKEN": token,
    }
    if master.startswith("local"):
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    return environment


def _command(output: Path, settings: ServerSettings) -> list[str]:
    java_options = f"-Dderby.system.home={output} -Dderby.stream.error.file={output}/derby.log "
    java_options += f"-Dlog4j2.configurationFile={output}/log4j2.properties"
    options = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.ui.enabled": "false",
        "spark.sql.catalogImplementation": "hive",
        _WAREHOUSE: settings.warehouse(output),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={output}/metastore;create=true",
        "spark.driver.extraJavaOptions": java_options,
        "spark.driver.memory": settings.memory,
    }
    if settings.master.startswith("local"):
        options |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    if settings.is_brief:
        options |= _BRIEF
    options |= {name: value for name, value in settings.static.items() if name != PY_FILES}
    if settings.py_files:
        # Jobs of a session get its code with it (`connect`), and streams of a pipeline from here.
        options[_FILES] = ",".join(filter(None, [settings.static.get(_FILES, ""), *settings.py_files]))
    for name in {_ARCHIVES, _FILES} & options.keys():
        options[name] = _absolute_all(options[name])
    if not settings.master.startswith("local"):
        # The server starts Python too, its own; this is what it says to workers.
        python = PurePosixPath(settings.static.get(_PYTHON, sys.executable))
        if not python.is_absolute() and len(python.parts) > 1:
            # In an archive, which is in the working directory of streams, and one above that of a session's jobs.
            options[_PATH] = f"{python.parent}:../{python.parent}:{options.get(_PATH, _USUAL_PATH)}"
            python = PurePosixPath(python.name)
        options.setdefault(_WORKER_PYTHON, str(python))
    command = [str(_spark_home() / "bin" / "spark-submit"), "--master", settings.master]
    for name, value in options.items():
        command += ["--conf", f"{name}={value}"]
    return [*command, "--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]


def _absolute_all(names: str) -> str:
    """Returns files as Spark lists them, by full path: its working directory is another one.

    >>> _absolute_all("/a/e.tar#e, hdfs://b/f.zip")
    '/a/e.tar#e,hdfs://b/f.zip'
    """
    each = [name.strip() for name in names.split(",")]
    return ",".join(name if "://" in name else str(Path(name).absolute()) for name in each if name)


def _wait_for_port(process: subprocess.Popen[bytes], log: Path, output: Path) -> int:
    deadline_s = time.monotonic() + START_S
    while time.monotonic() < deadline_s:
        text = log.read_text(errors="replace")
        if match := _STARTED.search(text):
            return int(match[1])
        if process.poll() is not None:
            last_lines = [line for line in text.splitlines() if line.strip()][-3:]
            raise SparkFailed(f"Spark did not start: {' / '.join(last_lines) or 'it said nothing'}; its log is {log}")
        time.sleep(0.1)
    raise SparkFailed(f"Spark did not start within {START_S:g} s; its log is {log}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.wait()
    process.stdout.close()
