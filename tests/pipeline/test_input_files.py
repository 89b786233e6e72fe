"""Input files are cut into records without Spark: every byte is read once, in whatever pieces."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surecast.errors import ConfigurationError
from surecast.pipeline import input_files as files
from surecast.pipeline.formats import recognise
from surecast.pipeline.input_files import FileRange, find_files, ranges_between, read_range, readable_end

LONG_AGO = 1e12  # a time at which every file has settled


def read_all(folder: Path, start: dict[str, int] | None = None) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """All records that are new since `start`, and how far the files are read then."""
    start = start or {}
    found = find_files([str(folder)])
    end = {**start, **{path: readable_end(each, start.get(path, 0), LONG_AGO) for path, each in found.items()}}
    folders = {path: each.folder for path, each in found.items()}
    batches = (batch for part in ranges_between(start, end, folders) for batch in read_range(part))
    return [row for batch in batches for row in batch.to_pylist()], end


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=12), max_size=30), st.data())
def test_ranges_of_any_size_give_every_line_once(lines: list[str], data: st.DataObject) -> None:
    import tempfile

    text = "".join(f"{line}\n" for line in lines).encode()
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "a.zap"
        path.write_bytes(text)
        cuts = sorted({0, len(text), *data.draw(st.lists(st.integers(0, len(text)), max_size=6))})
        parts = [FileRange(str(path), "f", a, b, len(text), 0) for a, b in pairwise(cuts)]
        rows = [row for part in parts for batch in read_range(part) for row in batch.to_pylist()]
    expected, position = [], 0
    for line in lines:
        size = len(line.encode()) + 1
        if line:
            expected.append((position, size, line))
        position += size
    assert [(row["position"], row["bytes"], row["text"]) for row in rows] == expected


def test_small_blocks_read_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.zap").write_text("".join(f"line {i} {'x' * (i % 17)}\n" for i in range(500)))
    whole, _ = read_all(tmp_path)
    monkeypatch.setattr(files, "BLOCK_BYTES", 64)
    monkeypatch.setattr(files, "RANGE_BYTES", 1000)
    pieces, _ = read_all(tmp_path)
    assert len(whole) == 500
    assert pieces == whole


def test_a_growing_file_is_read_on(tmp_path: Path) -> None:
    path = tmp_path / "events-00000000000000000000.jsonl"
    path.write_text('{"offset":0}\n{"offset":1}\n{"off')
    first, end = read_all(tmp_path)
    assert [row["text"] for row in first] == ['{"offset":0}', '{"offset":1}']  # never a half line of a broker
    path.write_text('{"offset":0}\n{"offset":1}\n{"offset":2}\n')
    second, end = read_all(tmp_path, end)
    assert [(row["position"], row["text"]) for row in second] == [(26, '{"offset":2}')]
    assert read_all(tmp_path, end)[0] == []


def test_a_last_line_without_end_is_read_when_its_file_has_settled(tmp_path: Path) -> None:
    path = tmp_path / "a.zap"
    path.write_text("one\ntwo")
    (found,) = find_files([str(path)]).values()
    assert readable_end(found, 0, found.modified_s + 1) == 4
    assert files.unread_bytes(found, 4) == 3
    assert readable_end(found, 0, found.modified_s + 601) == 7


def test_what_a_file_lost_or_changed_is_said(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.zap", tmp_path / "b.zap.gz"
    plain.write_text("one\ntwo\n")
    packed.write_bytes(gzip.compress(b"three\n"))
    rows, end = read_all(tmp_path)
    assert [row["text"] for row in rows] == ["one", "two", "three"]
    plain.write_text("one\n")
    packed.write_bytes(gzip.compress(b"three\nfour and more\n"))
    rows, _ = read_all(tmp_path, end)
    assert [row["problem"].partition(":")[0].partition(";")[0] for row in rows] == [
        "the file had 8 bytes when it was last read, and has 4",
        "the compressed file changed after it was read",
    ]


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("notes.md", b"# hello\n", "the file has no format that is known"),
        ("a.zap.gz", gzip.compress(b"one\n" * 1000, mtime=0)[:-20], "the compressed data end or break"),
        ("events_20240101.json", b'{"a": [1', "the file is no JSON document"),
        ("events_20240101.json", b"3", "the document holds no list"),
        ("a.zap", b"\xff\xfe\n", "the line is not UTF-8"),
        ("a.zap", b"x" * (files.LINE_BYTES_MAX + 10) + b"\n", "the line is longer than 4 MiB"),
    ],
)
def test_what_cannot_be_read_is_a_problem(tmp_path: Path, name: str, content: bytes, problem: str) -> None:
    (tmp_path / name).write_bytes(content)
    rows, _ = read_all(tmp_path)
    assert rows[-1]["problem"].startswith(problem)
    assert rows[-1]["file"] == str(tmp_path / name)


def test_a_file_removed_before_it_is_read(tmp_path: Path) -> None:
    part = FileRange(str(tmp_path / "gone.zap"), "f", 0, 10, 10, 0)
    (batch,) = read_range(part)
    assert batch.to_pylist()[0]["problem"] == "the file was removed before it could be read"


def test_documents_give_one_record_for_each_element(tmp_path: Path) -> None:
    (tmp_path / "report_bus.json").write_text('[{"duration_ms": 840, "bandwidth_kbps": 5}, {"duration_ms": 1000}]')
    rows, _ = read_all(tmp_path)
    assert [(row["position"], json.loads(row["text"])["start_ms"]) for row in rows] == [(0, 0), (1, 840)]


def test_logs_are_named_by_their_folder(tmp_path: Path) -> None:
    for folder in ("b1", "eu/b2"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "events-00000000000000000000.jsonl").write_text("{}\n")
    (tmp_path / ".hidden").write_text("x\n")
    assert sorted(row["log"] for row in read_all(tmp_path)[0]) == ["b1", "eu/b2"]
    assert [row["log"] for row in read_all(tmp_path / "b1")[0]] == ["b1"]


def test_an_input_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no such file or folder"):
        find_files([str(tmp_path / "nothing")])


def test_real_traces_are_recognised_and_whole(real_data: Path) -> None:
    # The counts of records that the data's own descriptions state.
    expected = {
        "availability/lanl/lanl_failures.csv.gz": ("lanl", 16210),
        "availability/web_sites/web_sites_a.avt.gz": ("avt", 66),
        "iptv/brighttv_sessions/sessions_a.csv.gz": ("viewing", 4969),
        "events/sigcomm2009_mobiclique/activity.csv": ("activity", 224),
        "availability/cloud_uptime_archive/slack_global-status_operator_reported.csv": ("outages", 261),
    }
    for name, (source, count) in expected.items():
        rows, _ = read_all(real_data / name)
        assert ({row["source"] for row in rows}, len(rows)) == ({source}, count)
    stb, _ = read_all(real_data / "iptv" / "stb_gobx")
    assert sum(row["source"] == "stb" for row in stb) == 4316


def test_contacts_are_not_taken_for_availability() -> None:
    assert recognise("contacts.dat", "1\t8\t121\t121\t1\t0") is None
