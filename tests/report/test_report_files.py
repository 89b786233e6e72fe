"""Reports in files: what was saved is what is loaded, and what is damaged is refused."""

from __future__ import annotations

import json
import math
import os
import stat
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surecast.errors import UserError
from surecast.report import QoSReport, ReportBuilder, ReportError, ReportInfo, as_dict, from_arrow, load, save
from surecast.report.figure import HOW
from surecast.report.metric_catalogue import CATALOGUE

BOTH = pytest.mark.parametrize("suffix", [".json", ".parquet"])

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@st.composite
def reports(draw: st.DrawFn) -> QoSReport:
    """Any report at all, of a few figures."""
    builder = ReportBuilder(
        draw(texts),
        draw(st.sampled_from(["predicted", "simulated", "measured"])),
        seed=draw(st.none() | st.integers(0, 2**70)),
        version=draw(st.none() | st.just("0.1")),
        notes=draw(st.lists(texts, max_size=2)),
        warnings=draw(st.lists(texts, max_size=2)),
        parameters=draw(st.dictionaries(texts, plain, max_size=3)),
    )
    seen = set()
    for _ in range(draw(st.integers(0, 8))):
        metric = draw(st.sampled_from(CATALOGUE))
        scope = draw(st.sampled_from(metric.scopes))
        name = "" if scope == "system" else draw(texts.filter(bool))
        details = {"": st.just(""), "quantile": st.sampled_from(["p50", "p99.9"])}
        detail, variant = draw(details.get(metric.split, texts)), draw(texts)
        if (variant, scope, name, metric.name, detail) in seen:
            continue
        seen.add((variant, scope, name, metric.name, detail))
        value = draw(st.floats(0, 1 if metric.unit == "share" else 1e150))
        low = draw(st.none() | st.floats(0, value))
        high = draw(st.none() | st.floats(value, 1e150))
        how, samples = draw(st.sampled_from(list(HOW))), draw(st.none() | st.integers(0, 2**63 - 1))
        builder.add(scope, name, metric.name, value, how=how, detail=detail, variant=variant, low=low, high=high,
                    samples=samples)  # fmt: skip
    return builder.build()


def example() -> QoSReport:
    b = ReportBuilder("star", "simulated", seed=7, version="1", warnings=["w"], parameters={"runs": 20})
    b.add_many("subscriber", ["s1", "s2"], "reliability", [0.1 + 0.2, 1 / 3], how="simulated", low=0.2, high=0.4)
    b.add("broker", "b1", "rate_in_per_s", 5.0, how="exact", detail="control", variant="bypass", samples=12)
    return b.build()


@settings(max_examples=60, deadline=None)
@given(report=reports(), suffix=st.sampled_from([".json", ".parquet"]))
def test_what_was_saved_is_what_is_loaded(
    report: QoSReport, suffix: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("reports") / f"report{suffix}"
    assert save(report, path) == path
    again = load(path)
    assert again == report
    assert [repr(figure) for figure in again] == [repr(figure) for figure in report]
    content = path.read_bytes()
    save(again, path)
    assert path.read_bytes() == content


@settings(max_examples=30, deadline=None)
@given(report=reports())
def test_the_plain_values_are_the_content_of_the_json_file(
    report: QoSReport, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = save(report, tmp_path_factory.mktemp("reports") / "report.json")
    assert json.loads(path.read_text(encoding="utf-8")) == as_dict(report)
    json.dumps(as_dict(report), allow_nan=False)


@BOTH
def test_a_file_replaces_another_as_a_whole_and_leaves_nothing_behind(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"report{suffix}"
    path.write_bytes(b"old")
    save(example(), path)
    assert load(path) == example()
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(example(), tmp_path / "report.json")
    before = path.read_bytes()

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ReportError, match=r"report.json: cannot be written: No space left on device"):
        save(example(), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_may_be_read_by_whom_the_umask_allows(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        path = save(example(), tmp_path / "report.json")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "link.json"
    link.symlink_to(tmp_path / "real" / "report.json")
    save(example(), link)
    assert link.is_symlink()
    assert load(tmp_path / "real" / "report.json") == example()


@pytest.mark.parametrize("name", ["report.csv", "report", "report.json.gz"])
def test_other_suffixes_are_refused(name: str, tmp_path: Path) -> None:
    for attempt in (lambda: save(example(), tmp_path / name), lambda: load(tmp_path / name)):
        with pytest.raises(ReportError, match=r"a report is a \.json or a \.parquet file"):
            attempt()


@BOTH
def test_missing_files_and_folders(suffix: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no such file"):
        load(tmp_path / f"none{suffix}")
    with pytest.raises(ReportError, match="does not exist; create it first"):
        save(example(), tmp_path / "none" / f"report{suffix}")
    (tmp_path / f"folder{suffix}").mkdir()
    with pytest.raises(ReportError, match="this is a folder"):
        load(tmp_path / f"folder{suffix}")
    with pytest.raises(ReportError, match="cannot be written"):
        save(example(), tmp_path / f"folder{suffix}")


@BOTH
def test_a_truncated_file_is_refused_wherever_it_was_cut(suffix: str, tmp_path: Path) -> None:
    path = save(example(), tmp_path / f"report{suffix}")
    content = path.read_bytes()
    for length in range(0, len(content.rstrip()) - 1, 41):
        path.write_bytes(content[:length])
        with pytest.raises(ReportError, match=f"report{suffix}: the file is damaged"):
            load(path)


@BOTH
def test_a_changed_byte_is_noticed_or_harmless(suffix: str, tmp_path: Path) -> None:
    """Any bytes at all either load as a report or raise the error that names the file."""
    path = save(example(), tmp_path / f"report{suffix}")
    content = path.read_bytes()
    for position in range(0, len(content), 7):
        path.write_bytes(content[:position] + bytes([content[position] ^ 0x55]) + content[position + 1 :])
        try:
            assert len(load(path)) == len(example())
        except ReportError as error:
            assert path.name in str(error)


def test_a_changed_figure_in_a_parquet_file_is_noticed(tmp_path: Path) -> None:
    path = save(example(), tmp_path / "report.parquet")
    content = path.read_bytes()
    for position in range(4, 400, 3):  # the pages stand first
        path.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
        try:
            assert load(path) == example()
        except ReportError:
            pass


def change(path: Path, **changes: Any) -> None:
    content = json.loads(path.read_text())
    content.update(changes)
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not ...}))


FIGURE = as_dict(example())["figures"][0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "surecast-comparison"}, "this is a 'surecast-comparison' file, not a QoS report"),
        ({"format": ...}, "this is not a QoS report"),
        ({"format_version": 2}, "format version 2, and this Surecast reads up to 1: upgrade Surecast"),
        ({"format_version": "1"}, "the file is damaged"),
        ({"seed": ..., "notes": ...}, "the head of the report lacks seed, notes"),
        ({"notes": "one"}, "notes: must be a list of texts"),
        ({"parameters": []}, "parameters: must be a mapping"),
        ({"scenario": 5}, "scenario: 5 is not text"),
        ({"figures": ...}, "'figures' is missing"),
        ({"figures": [1]}, "not a list of figures"),
        ({"figures": [{"scope": "system"}]}, "figure 0: column variant, name.* is missing"),
        ({"figures": [FIGURE | {"value": None}]}, "figure 0: value is None, not a number"),
        ({"figures": [FIGURE | {"value": "0.5"}]}, "figure 0: value is '0.5', not a number"),
        ({"figures": [FIGURE | {"value": True}]}, "figure 0: value is True, not a number"),
        ({"figures": [FIGURE | {"value": 10**400}]}, "too large"),
        ({"figures": [FIGURE | {"value": math.nan}]}, "NaN is not a number that a report can hold"),
        ({"figures": [FIGURE | {"value": 1.5}]}, "out of range"),
        ({"figures": [FIGURE | {"samples": 1.5}]}, "samples is 1.5"),
        ({"figures": [FIGURE | {"name": None}]}, "name is None, not text"),
        ({"figures": [FIGURE | {"name": ""}]}, "needs the name of its subscriber"),
        ({"figures": [FIGURE | {"name": "\ud800"}]}, "not valid Unicode"),
        ({"figures": [FIGURE | {"metric": ""}]}, "a figure has no metric"),
        ({"figures": [FIGURE | {"scope": "planet"}]}, "unknown scope 'planet'"),
        ({"figures": [FIGURE | {"how": "guessed"}]}, "unknown how 'guessed'"),
        ({"figures": [FIGURE, FIGURE]}, "subscriber s1, reliability: this figure was given twice"),
    ],
)
def test_a_json_file_that_is_no_report(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = save(example(), tmp_path / "report.json")
    change(path, **changes)
    with pytest.raises(ReportError, match=message) as caught:
        load(path)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize("content", ["[" * 100_000, "5", "null", '"x"', "\x00", '{"format": "surecast-report"'])
def test_json_that_is_something_else(content: str, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(content)
    with pytest.raises(ReportError, match=r"damaged or not JSON|not a QoS report"):
        load(path)


def test_a_number_too_large_for_a_float_is_refused(tmp_path: Path) -> None:
    path = save(example(), tmp_path / "report.json")
    path.write_text(path.read_text().replace("0.30000000000000004", "1e999"))
    with pytest.raises(ReportError, match="value is inf"):
        load(path)


def test_metrics_that_are_not_registered_here_can_be_read(tmp_path: Path) -> None:
    path = save(example(), tmp_path / "report.json")
    change(path, figures=[FIGURE | {"metric": "novel_delay_s", "value": -3.0, "low": None}])
    report = load(path)
    assert report.value("novel_delay_s", name="s1") == -3.0
    assert load(save(report, tmp_path / "report.parquet")) == report
    assert report.summary()[0].worst == ""


def test_the_parquet_file_is_a_flat_table_for_everybody(tmp_path: Path) -> None:
    table = pq.read_table(save(example(), tmp_path / "report.parquet"))
    assert table.column_names == [
        "variant", "scope", "name", "metric", "detail", "value", "how", "low", "high", "samples"
    ]  # fmt: skip
    assert table.to_pylist() == as_dict(example())["figures"]
    assert json.loads(table.schema.metadata[b"surecast"])["scenario"] == "star"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda t: t.drop_columns(["low", "how"]), "column how, low is missing"),
        (lambda t: t.replace_schema_metadata({}), "has no head"),
        (lambda t: t.replace_schema_metadata({b"surecast": b"{"}), "the head of the report is damaged"),
        (lambda t: t.set_column(5, "value", pa.array([1.0, None, 2.0])), "subscriber s2, .*: the value is missing"),
        (lambda t: t.set_column(5, "value", pa.array(["a", "b", "c"])), "'value' holds string, not numbers"),
        (lambda t: t.set_column(2, "name", pa.array([1, 2, 3])), "'name' holds int64, not text"),
        (lambda t: t.set_column(2, "name", pa.array(["a", None, "b"])), "'name' has missing texts"),
        (lambda t: t.set_column(9, "samples", pa.array([1.5, 2.0, 3.0])), "wrong type"),
        (lambda t: pa.concat_tables([t, t]), "3 figures are repeated in all"),
    ],
)
def test_a_table_that_is_no_report(make: Any, message: str, tmp_path: Path) -> None:
    table = make(example().to_arrow())
    with pytest.raises(ReportError, match=message):
        from_arrow(table)
    path = tmp_path / "report.parquet"
    pq.write_table(table, path)
    with pytest.raises(ReportError, match=message):
        load(path)


def test_tables_of_other_origin_with_plain_texts_in_several_pieces() -> None:
    table = example().to_arrow()
    for i, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(i, field.name, table[i].cast(pa.string()).cast(pa.large_string()))
    table = pa.concat_tables([table.slice(0, 1), table.slice(1)]).append_column("more", pa.array([1, 2, 3]))
    report = from_arrow(table.replace_schema_metadata({}), ReportInfo("other", "measured"))
    assert list(report) == list(example())
    assert report.info.scenario == "other"


def test_pieces_with_dictionaries_of_their_own() -> None:
    table = example().to_arrow()
    pieces = [from_arrow(table.slice(i, 1)).to_arrow() for i in range(3)]
    assert from_arrow(pa.concat_tables(pieces)) == example()
