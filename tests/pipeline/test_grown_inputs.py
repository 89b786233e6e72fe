"""Runs on inputs that grow compute only what new records can change, and end in the tables of a full refresh."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.pipeline.conftest import LEAN_RUN
from tests.pipeline.logs import AVT, ZAPS, broker_records, write_log
from tests.pipeline.zaps import evening

from surecast.pipeline import RunReport, run_tables
from surecast.pipeline.run_manifest import first_rows, read_manifest
from surecast.pipeline.table_catalogue import STATISTICS, TABLES, tables_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOME = ("subscriber_qos", "channel_top", "channel_flow", "box_sessions")
COMPUTED = {"input_files", "box_changes", "channel_viewers", *SOME}
FIRST_OCCURRENCE = ("log", "file", "position")


def rows_of(output: Path, name: str) -> Counter[str]:
    """The rows of a table. Which of several equal records came first is not compared."""

    def known(column: str, value: Any) -> Any:
        if name in ("zap_events", "broker_events") and column in FIRST_OCCURRENCE:
            return None
        return float(f"{value:.9g}") if isinstance(value, float) else value

    rows = first_rows(output, name, 1_000_000)
    return Counter(repr([known(*each) for each in row.items()]) for row in rows)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 6))])
def test_grown_inputs_end_in_the_tables_of_a_full_refresh(seed: int, spark: SparkSession, tmp_path: Path) -> None:
    """Split at random, with repetitions, late records and broken ones."""
    rng = np.random.default_rng(seed)
    logs, output = tmp_path / "logs", tmp_path / "output"
    lines = [*evening(boxes=20, duration_s=1800, seed=seed).lines(), *ZAPS]
    lines += [lines[place] for place in rng.integers(len(lines), size=40)]
    lines = [lines[place] for place in rng.permutation(len(lines))]
    first, second = sorted(rng.integers(1, len(lines), size=2).tolist())
    write_log(tmp_path / "b1", broker_records(seed, 40))
    segments = sorted((tmp_path / "b1").glob("*.jsonl"))
    growing = logs / "evening.zap"

    def append(some: list[str]) -> None:
        with growing.open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in some)

    def bring(segment: Path, name: str = "") -> None:
        (logs / "b1").mkdir(exist_ok=True)
        (logs / "b1" / (name or segment.name)).write_bytes(segment.read_bytes())

    logs.mkdir()
    (logs / "hosts.avt").write_text("".join(f"{line}\n" for line in AVT))
    append(lines[:first])
    bring(segments[-1])

    def run(late: Path | None = None, *, full_refresh: bool = False) -> tuple[RunReport, set[str]]:
        """A run; a segment comes while it is under way."""
        computed: set[str] = set()

        def told(table: str, state: str) -> None:
            if not computed and late is not None:
                bring(late)
            computed.add(table)

        report = run_tables(
            spark,
            [str(logs)],
            output,
            database=f"grown{seed}",
            statistics=SOME,
            configuration=LEAN_RUN,
            full_refresh=full_refresh,
            progress=told,
        )
        assert report.records == report.sound + report.duplicates + sum(report.quarantined.values())
        assert report.tables.keys() == {name for name in TABLES if name in COMPUTED or name not in STATISTICS}
        return report, computed

    whole, computed = run()
    assert computed == whole.tables.keys()
    append(lines[first:second])
    zaps, computed = run(segments[0])
    assert computed == whole.tables.keys() & {*tables_of(["zap"])}
    assert zaps.new_records == second - first
    manifest = read_manifest(output)
    assert manifest is not None
    assert manifest.offsets is not None
    assert str(logs / "b1" / segments[0].name) not in manifest.offsets
    brokers, computed = run()
    assert computed == whole.tables.keys() & {*tables_of(["broker"])}
    assert brokers.tables["broker_events"] > zaps.tables["broker_events"]
    append(lines[second:])
    bring(segments[0], f"{segments[0].stem} (copy).jsonl")
    last, computed = run()
    assert computed == whole.tables.keys() - {"viewing_sessions", "availability"}
    grown = {name: rows_of(output, name) for name in last.tables}
    fresh, computed = run(full_refresh=True)
    assert computed == whole.tables.keys()
    for name in last.tables:
        assert rows_of(output, name) == grown[name], name
    assert (fresh.records, fresh.sound, fresh.duplicates, fresh.quarantined) == (
        last.records,
        last.sound,
        last.duplicates,
        last.quarantined,
    )
