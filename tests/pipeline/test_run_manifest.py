"""The manifest of a run, on tables that are written as Spark writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from typer.testing import CliRunner

from surecast.cli.pipeline import app
from surecast.errors import ConfigurationError
from surecast.pipeline.run_manifest import begin_run, end_run, first_rows, link_tables, read_manifest

Rows = list[dict[str, Any]]


def write_table(folder: Path, name: str, rows: Rows) -> Path:
    """Writes a file of a statistic."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"part-{name}.snappy.parquet"
    pq.write_table(pa.Table.from_pylist(rows, pa.schema([("start", pa.int64()), ("channel", pa.string())])), path)
    return path


def write_commit(folder: Path, batch: str, paths: list[Path]) -> None:
    """Writes a commit of the sink of a stream."""
    log = folder / "_spark_metadata"
    log.mkdir(exist_ok=True)
    lines = [json.dumps({"path": path.as_uri(), "action": "add"}) for path in paths]
    (log / batch).write_text("\n".join(["v1", *lines]))


def finish(output: Path, rows: dict[str, int]) -> None:
    """Ends a run, whose tables have so many rows."""
    warehouse = (output / "my tables").as_uri()
    tables = link_tables(output, warehouse, "default", ("raw_records", "channel_top"))
    assert tables is not None
    assert {name: each.rows for name, each in tables.items()} == rows
    end_run(
        output,
        digest="d",
        warehouse=warehouse,
        database="default",
        checkpoints=(output / "checkpoints").as_uri(),
        tables=tables,
        counted={"zap_events": (5, 4)},
        report={},
    )


def test_a_reader_finds_the_last_finished_run(tmp_path: Path) -> None:
    """While a statistic is replaced, after a run that was killed, and until the next one has ended."""
    top = tmp_path / "my tables" / "channel_top"
    old = write_table(top, "a", [{"start": 1, "channel": "A"}])
    finish(tmp_path, {"channel_top": 1})
    begin_run(tmp_path)
    old.unlink()
    assert first_rows(tmp_path, "channel_top", 9) == [{"start": 1, "channel": "A"}]
    write_table(top, "b", [{"start": 2, "channel": "B"}])
    (top / "part-c.snappy.parquet").write_bytes(b"PAR1 half")
    assert first_rows(tmp_path, "channel_top", 9) == [{"start": 1, "channel": "A"}]
    (top / "part-c.snappy.parquet").unlink()
    finish(tmp_path, {"channel_top": 1})
    assert first_rows(tmp_path, "channel_top", 9) == [{"start": 2, "channel": "B"}]
    assert [path.name for path in (tmp_path / "finished").glob("*/*")] == ["part-b.snappy.parquet"]


def test_of_a_stream_only_what_its_sink_has_committed_is_read(tmp_path: Path) -> None:
    raw = tmp_path / "my tables" / "raw_records"
    paths = [write_table(raw, f"{number}", [{"start": number, "channel": "A"}]) for number in range(5)]
    write_commit(raw, "0", [paths[4]])  # is in the next one too
    write_commit(raw, "1.compact", [paths[4], paths[0]])
    write_commit(raw, "2", [paths[1]])
    write_commit(raw, ".3.tmp", [paths[2]])
    finish(tmp_path, {"raw_records": 3})
    assert [row["start"] for row in first_rows(tmp_path, "raw_records", 9)] == [0, 1, 4]


def test_tables_elsewhere_have_no_manifest(tmp_path: Path) -> None:
    write_table(tmp_path / "my tables" / "channel_top", "a", [])
    finish(tmp_path, {"channel_top": 0})
    assert link_tables(tmp_path, "s3a://bucket/tables", "default", ["channel_top"]) is None
    settings: dict[str, Any] = {"digest": "d", "database": "default", "counted": {}, "report": {}}
    end_run(tmp_path, warehouse="s3a://bucket/tables", checkpoints="s3a://bucket/state", tables=None, **settings)
    assert read_manifest(tmp_path) is None


def test_what_was_read_is_known_after_a_finished_run_only(tmp_path: Path) -> None:
    write_table(tmp_path / "my tables" / "channel_top", "a", [])
    flow = tmp_path / "checkpoints" / "_checkpoints" / "spark_catalog" / "default" / "raw_records" / "raw_records"
    for version, batch, size in (("0", "7", 9), ("1", "0", 1), ("1", "1", 2), ("1", "2", 3)):
        for kind, text in (("offsets", f'v1\n{{}}\n{{"/logs/a": {size}}}'), ("commits", "v1\n{}")):
            (flow / version / kind).mkdir(parents=True, exist_ok=True)
            if (kind, size) != ("commits", 3):  # a batch that was planned and not done
                (flow / version / kind / batch).write_text(text)
    finish(tmp_path, {"channel_top": 0})
    manifest = read_manifest(tmp_path)
    assert manifest is not None
    assert manifest.offsets == {"/logs/a": 2}
    begin_run(tmp_path)
    manifest = read_manifest(tmp_path)
    assert manifest is not None
    assert manifest.offsets is None
    assert first_rows(tmp_path, "channel_top", 9) == []


def test_the_first_rows_are_those_of_a_sorted_table(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    folder = tmp_path / "my tables" / "channel_top"
    folder.mkdir(parents=True)
    rows: Rows = []
    for number in range(4):
        mine: Rows = [
            {
                "start": None if rng.random() < 0.1 else int(rng.integers(5)),
                "channel": None if rng.random() < 0.1 else str(rng.choice(["A", "a", "Ñ", "", "TV 2"])),
                "value": float(rng.integers(9)),
                "payload": [number, place],
            }
            for place in range(60)
        ]
        pq.write_table(pa.Table.from_pylist(mine), folder / f"part-{number}.parquet", row_group_size=17)
        rows += mine

    def place(row: dict[str, Any]) -> tuple[Any, ...]:
        known = [(row[name] is not None, row[name] or "" if name == "channel" else row[name] or 0) for name in row][:3]
        return (*known, row["payload"])

    finish(tmp_path, {"channel_top": len(rows)})
    for limit in (1, 7, 100, 1000):
        assert first_rows(tmp_path, "channel_top", limit) == sorted(rows, key=place)[:limit]


def test_a_table_that_is_not_there_is_said_without_spark(tmp_path: Path) -> None:
    write_table(tmp_path / "my tables" / "channel_top", "a", [])
    finish(tmp_path, {"channel_top": 0})
    for name, problem in (
        ("nothing", "there is no table 'nothing'"),
        ("raw_records", "the table raw_records is not there yet; run surecast pipeline run first"),
    ):
        answer = CliRunner().invoke(app, ["show", name, "--output", str(tmp_path)])
        assert isinstance(answer.exception, ConfigurationError)
        assert problem in str(answer.exception)
    answer = CliRunner().invoke(app, ["tables", "--output", str(tmp_path / "other")])
    assert "no run has finished there" in str(answer.exception)
    (tmp_path / "manifest.json").write_text("{")
    answer = CliRunner().invoke(app, ["show", "channel_top", "--output", str(tmp_path)])
    assert "manifest.json: cannot be read" in str(answer.exception)
