"""Spark is killed in the middle of a run; the next run, by Spark's own command, ends in the same tables."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest
from tests.pipeline.conftest import LEAN_RUN, LEAN_SERVER
from tests.pipeline.logs import ZAPS, broker_records, rows_of, subscriber_qos, write_log

from surecast.errors import ConfigurationError
from surecast.pipeline import SparkFailed, connect, find_java, read_table, run_tables, spark_server


@pytest.mark.long
def test_a_killed_run_is_finished_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        find_java()
    except ConfigurationError as error:
        pytest.skip(str(error))
    # Without the virtual environment, `python3` is another interpreter, that has none of our packages.
    monkeypatch.setenv("PATH", "/usr/local/bin:/usr/bin:/bin")
    logs, output = tmp_path / "logs", tmp_path / "output"
    write_log(logs / "b1", broker_records(1, 60))
    (logs / "evening.zap").write_text("".join(f"{line}\n" for line in ZAPS), encoding="utf-8")
    states: list[tuple[str, str]] = []
    with spark_server(output, LEAN_SERVER) as server:

        def kill_in_the_middle(table: str, state: str) -> None:
            states.append((table, state))
            if (table, state) == ("broker_events", "running"):
                os.kill(server.pid, signal.SIGKILL)

        spark = connect(server.remote)
        with pytest.raises(SparkFailed):
            run_tables(spark, [str(logs)], output, configuration=LEAN_RUN, progress=kill_in_the_middle)
    assert ("raw_records", "completed") in states
    assert ("subscriber_qos", "completed") not in states

    with spark_server(output, LEAN_SERVER) as server:
        spark = connect(server.remote)
        report = run_tables(spark, [str(logs)], output, by_command_at=server.remote, configuration=LEAN_RUN)
        rows, files = rows_of(logs / "b1"), 1 + len(list((logs / "b1").glob("*.jsonl")))
        assert report.tables["broker_events"] == len(rows)
        assert (report.files, report.records, report.duplicates) == (files, len(rows) + len(ZAPS), 1)
        found = {row["client"]: row for row in read_table(spark, "subscriber_qos", 10)}
        expected = subscriber_qos(rows)
        assert Counter({c: row["on_time"] for c, row in found.items()}) == Counter(
            {c: int(values["on_time"]) for c, values in expected.items()}
        )
        spark.stop()
