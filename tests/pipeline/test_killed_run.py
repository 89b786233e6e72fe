"""Spark is killed in the middle of a run; the next run, by Spark's own command, ends in the same tables."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.pipeline.conftest import LEAN_RUN, LEAN_SERVER
from tests.pipeline.logs import ZAPS, broker_records, rows_of, subscriber_qos, write_log
from tests.pipeline.network import live_broker

from surecast.errors import ConfigurationError
from surecast.pipeline import SparkFailed, connect, find_java, read_table, run_tables, spark_server


@pytest.mark.long
@pytest.mark.parametrize("killed_in", ["raw_records", "broker_events"])
def test_a_killed_run_is_finished_by_the_next(killed_in: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With files and a log over the network; the broker goes on while nobody reads. A further run reads nothing, and
    one that forgets the tables makes the same again."""
    try:
        find_java()
    except ConfigurationError as error:
        pytest.skip(str(error))
    logs, output = tmp_path / "logs", tmp_path / "output"
    write_log(logs / "b1", broker_records(1, 60))
    (logs / "evening.zap").write_text("".join(f"{line}\n" for line in ZAPS), encoding="utf-8")
    with live_broker(tmp_path) as live:
        live.serve(5)
        # Without the virtual environment, `python3` is another interpreter, that has none of our packages.
        monkeypatch.setenv("PATH", "/usr/local/bin:/usr/bin:/bin")
        inputs = [str(logs), live.url]
        states: list[tuple[str, str]] = []
        with spark_server(output, LEAN_SERVER) as server:

            def kill_in_the_middle(table: str, state: str) -> None:
                states.append((table, state))
                if (table, state) == (killed_in, "running"):
                    os.kill(server.pid, signal.SIGKILL)

            spark = connect(server.remote)
            with pytest.raises(SparkFailed):
                run_tables(
                    spark, inputs, output, access=live.access, configuration=LEAN_RUN, progress=kill_in_the_middle
                )
        assert (killed_in, "running") in states
        assert ("subscriber_qos", "completed") not in states

        live.serve(4)
        with spark_server(output, LEAN_SERVER) as server:
            spark = connect(server.remote)
            report = run_tables(
                spark, inputs, output, by_command_at=server.remote, access=live.access, configuration=LEAN_RUN
            )
            assert live.access.token is not None
            assert not any(live.access.token in path.read_text() for path in (output / "project").iterdir())
            rows, heard = rows_of(logs / "b1"), rows_of(live.log)
            files = 2 + len(list((logs / "b1").glob("*.jsonl")))
            assert report.tables["broker_events"] == len(rows) + len(heard)
            records = len(rows) + len(heard) + len(ZAPS)
            assert (report.files, report.records, report.duplicates) == (files, records, 1)
            found = {row["client"]: row for row in read_table(spark, "subscriber_qos", 10)}
            expected = subscriber_qos(rows) | subscriber_qos(heard)
            assert {c: row["on_time"] for c, row in found.items()} == {
                c: int(values["on_time"]) for c, values in expected.items()
            }
            again = run_tables(spark, inputs, output, access=live.access, configuration=LEAN_RUN)
            assert (again.new_records, again.tables) == (0, report.tables)
            anew = run_tables(spark, inputs, output, access=live.access, full_refresh=True, configuration=LEAN_RUN)
            assert (anew.new_records, anew.tables) == (report.records, report.tables)
            spark.stop()
