"""Three answers side by side, against a deliberately dumb second computation."""

from __future__ import annotations

import json
import random
from io import StringIO
from itertools import combinations
from pathlib import Path

import pytest
from rich.console import Console

from surecast.report import QoSReport, ReportBuilder, ReportError, place_side_by_side, render_side_by_side

SOURCES = ("predicted", "simulated", "measured")


def report(source: str, values: dict[tuple[str, str], float], **more: float) -> QoSReport:
    builder = ReportBuilder("star", source)
    for (variant, name), value in values.items():
        builder.add("subscriber", name, "reliability", value, how=source if source != "predicted" else "exact",
                    variant=variant)  # fmt: skip
    for metric, value in more.items():
        builder.add("system", "", metric, value, how="exact")
    return builder.build()


@pytest.mark.parametrize("seed", range(5))
def test_rows_means_and_differences_are_those_of_the_shared_figures(seed: int) -> None:
    rng = random.Random(seed)
    names = [(variant, f"s{i}") for variant in ("buffering", "bypass") for i in range(6)]
    tables = []
    for _ in SOURCES:
        own = rng.sample(names, len(names) - rng.randrange(4))
        tables.append({key: rng.random() for key in own})
    answers = place_side_by_side(*map(report, SOURCES, tables))
    shared = set(tables[0]) & set(tables[1]) & set(tables[2])
    assert {(row.variant, row.name) for row in answers.rows()} == shared
    for row in answers.rows():
        expected = [table[row.variant, row.name] for table in tables]
        assert list(row.values.values()) == expected
        assert row.spread == pytest.approx(max(expected) - min(expected))
    spreads = [row.spread for row in answers.rows()]
    assert spreads == sorted(spreads, reverse=True)
    for family in answers.summary:
        keys = [key for key in shared if key[0] == family.variant]
        assert family.count == len(keys)
        for table, source in zip(tables, SOURCES, strict=True):
            assert family.means[source] == pytest.approx(sum(table[key] for key in keys) / len(keys))
        for i, k in combinations(range(3), 2):
            apart = [abs(tables[i][key] - tables[k][key]) for key in keys]
            pair = f"{SOURCES[i]} and {SOURCES[k]}"
            assert family.mean_absolute[pair] == pytest.approx(sum(apart) / len(apart))
            assert family.largest[pair] == pytest.approx(max(apart))


def test_the_verdict_comes_first_and_the_tables_fit_80_columns() -> None:
    values = {("bypass-buffering", f"subscriber-{i}"): 0.9 + i / 1000 for i in range(30)}
    answers = place_side_by_side(*(report(source, values) for source in SOURCES))
    out = StringIO()
    Console(file=out, width=80).print(render_side_by_side(answers, limit=5))
    text = out.getvalue()
    assert text.startswith("bypass-buffering: mean difference in real-time reliability of 30")
    assert max(map(len, text.splitlines())) <= 80
    header = next(line for line in text.splitlines() if "Predicted" in line)
    assert "Simulated" in header
    assert "Measured" in header


def test_what_only_some_have_is_counted(tmp_path: Path) -> None:
    values = {("", "a"): 0.5}
    answers = place_side_by_side(
        report("predicted", values, delay_mean_s=1.0), report("simulated", values), report("measured", values)
    )
    assert [row.metric for row in answers.only["predicted"]] == ["delay_mean_s"]
    assert answers.only["measured"] == []
    saved = json.loads(answers.save(tmp_path / "three.json").read_text())
    assert saved["verdict"] == answers.verdict
    assert saved["rows"][0]["values"]["measured"] == 0.5


def test_reports_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    one = report("predicted", {("", "a"): 0.5})
    with pytest.raises(ReportError, match="no figure in common"):
        place_side_by_side(one, report("simulated", {("", "b"): 0.5}), report("measured", {("", "a"): 0.5}))
    with pytest.raises(ReportError, match="give one of each kind"):
        place_side_by_side(one, one, one)
    answers = place_side_by_side(one, report("simulated", {("", "a"): 0.4}), report("measured", {("", "a"): 0.5}))
    with pytest.raises(ReportError, match=r"saved as \.json"):
        answers.save(tmp_path / "three.parquet")
