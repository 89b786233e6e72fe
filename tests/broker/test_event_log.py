"""The event log: it writes what its page says, in order, through rotation, retention, crashes and full disks."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.patience import PATIENCE_S

from surecast.broker import event_log
from surecast.broker.event_log import (
    RECORD_TYPES,
    Alive,
    Delivered,
    Dropped,
    EventLog,
    EventLogError,
    OffsetAhead,
    OffsetGone,
    Published,
    Record,
    Started,
    read_from,
)
from surecast.errors import ConfigurationError
from surecast.event_log_records import COLUMNS as TABLE
from surecast.event_log_records import LINE_WRITERS, SPARK_SCHEMA

PAGE = (Path(__file__).parent.parent.parent / "docs" / "logs.md").read_text(encoding="utf-8")


def rows_of(heading: str) -> list[list[str]]:
    """The cells of the table below a heading of the page."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


COLUMNS = {name.strip("`"): kind for name, kind, *_ in rows_of("Columns")}
FIELDS = {
    kind.strip("`"): (re.findall(r"`(\w+)`", always), re.findall(r"`(\w+)`", perhaps))
    for kind, always, perhaps, _ in rows_of("Record types")
}
PYTHON = {"BIGINT": int, "INT": int, "DOUBLE": float, "STRING": str}


def alive(i: int) -> Alive:
    return Alive(1000.0 + i, f"b{i}")


def written(folder: Path) -> list[dict[str, Any]]:
    """All records by reading the files line by line, the dumb way."""
    lines = [line for path in sorted(folder.glob("events-*.jsonl")) for line in path.read_text().splitlines()]
    return [json.loads(line) for line in lines]


# The page and the records


def test_the_page_lists_the_record_types_and_their_fields() -> None:
    assert list(FIELDS) == list(RECORD_TYPES)
    assert set(RECORD_TYPES.values()) == set(get_args(Record))
    for kind, record_type in RECORD_TYPES.items():
        always, perhaps = FIELDS[kind]
        optional = set(record_type._field_defaults)
        assert set(perhaps) == optional
        assert set(always) == set(record_type._fields) - optional - {"time"}
        hints = get_type_hints(record_type)
        for name in record_type._fields:
            assert PYTHON[COLUMNS[name]] in (hints[name], *get_args(hints[name]))


def test_the_columns_of_every_record_are_in_the_table_with_their_types() -> None:
    for record_type in RECORD_TYPES.values():
        hints = get_type_hints(record_type)
        assert record_type._fields[0] == "time"
        for name in record_type._fields:
            kinds = {kind for kind in (*get_args(hints[name]), hints[name]) if kind in (int, float, str)}
            assert kinds == {PYTHON[TABLE[name].type]}


def test_lines_are_byte_for_byte_those_of_before() -> None:
    """Each type with its required columns alone, and with all of them."""
    lines: list[str] = []
    for record_type in RECORD_TYPES.values():
        values: dict[str, Any] = {
            name: {"STRING": 'a"\\é\n', "DOUBLE": 1700000000.25}.get(TABLE[name].type, position)
            for position, name in enumerate(record_type._fields)
        }
        required = {name: value for name, value in values.items() if name not in record_type._field_defaults}
        for chosen in (required, values):
            lines.append(LINE_WRITERS[record_type](record_type(**chosen), len(lines), "1700000000.250000"))
    assert "".join(lines) == (Path(__file__).parent / "golden" / "event-log.jsonl").read_text(encoding="ascii")


def test_the_schema_is_written_in_one_place() -> None:
    source = Path(event_log.__file__).parent.parent
    others = [path for path in source.rglob("*.py") if "queue_length BIGINT" in path.read_text(encoding="utf-8")]
    assert "queue_length BIGINT" in SPARK_SCHEMA
    assert others == [], "Spark's schema of the log is built from surecast.event_log_records.COLUMNS"


def test_the_schema_for_spark_is_the_table() -> None:
    schema = re.search(r"```sql\n(.*?)```", PAGE, re.DOTALL)
    assert schema
    assert [tuple(column.split()) for column in schema[1].split(",")] == list(COLUMNS.items())


texts = st.text(max_size=8)
VALUES = {
    "STRING": texts,
    "BIGINT": st.integers(0, 2**62),
    "INT": st.integers(0, 2),
    "DOUBLE": st.integers(0, 2**51).map(lambda n: n / 1e6),
}


@pytest.mark.parametrize("kind", RECORD_TYPES)
@given(data=st.data())
def test_each_line_is_its_record_in_the_documented_columns(kind: str, data: st.DataObject) -> None:
    """Against the general JSON decoder: every value comes back, whatever the strings hold, in the page's types."""
    record_type = RECORD_TYPES[kind]
    optional = record_type._field_defaults
    values: dict[str, Any] = {
        name: data.draw(st.none() | VALUES[COLUMNS[name]] if name in optional else VALUES[COLUMNS[name]])
        for name in record_type._fields
    }
    record = record_type(**values)
    line = LINE_WRITERS[record_type](record, 17, f"{record.time:.6f}")
    assert line.endswith("}\n")
    assert line.isascii()
    assert len(line.splitlines()) == 1
    found = json.loads(line)
    assert found == {"offset": 17, "type": kind, **{k: v for k, v in values.items() if v is not None}}
    assert all(type(value) is PYTHON[COLUMNS[name]] for name, value in found.items())


def test_a_deadline_that_json_cannot_say_is_left_out() -> None:
    line = LINE_WRITERS[Published](Published(1.0, "c", "t", 1, 0, 5, 1, None, float("nan"), float("inf")), 0, "1.0")
    assert "publication_time" not in json.loads(line)
    assert "deadline_s" not in json.loads(line)


def test_published_and_delivered_are_joined_by_the_message(tmp_path: Path) -> None:
    with EventLog(tmp_path) as log:
        for message in range(5):
            log.append(Published(10.0, "p", "t", message, 1, 100, receivers=2, publication_time=9.5, deadline_s=1.0))
            log.append(Delivered(10.25, "s1", "t", message, 1, 100, 0, publication_time=9.5, deadline_s=1.0))
            log.append(Dropped(10.25, "s2", "t", message, 1, 100, 7, "queue full"))
    records = read_from(tmp_path, 0)
    fates = [r["message"] for r in records if r["type"] in ("delivered", "dropped", "expired")]
    for record in records:
        if record["type"] == "published":
            assert fates.count(record["message"]) == record["receivers"]


# Segments


def test_segments_are_named_by_their_first_offset_and_limited_in_size(tmp_path: Path) -> None:
    with EventLog(tmp_path, segment_bytes=400) as log:
        for i in range(50):
            log.append(alive(i))
            if i % 3 == 2:
                log.flush()
    files = sorted(tmp_path.iterdir())
    assert len(files) > 5
    for file in files:
        first = json.loads(file.read_text().splitlines()[0])["offset"]
        assert file.name == f"events-{first:020}.jsonl"
        assert file.stat().st_size <= 400
    assert [r["offset"] for r in written(tmp_path)] == list(range(50))


def test_a_segment_is_closed_when_it_is_old_also_after_a_restart(tmp_path: Path) -> None:
    for i in range(30):
        with EventLog(tmp_path, segment_s=10) as log:
            log.append(alive(i))
    assert [int(file.stem[7:]) for file in sorted(tmp_path.iterdir())] == [0, 10, 20]


def test_retention_deletes_whole_segments_by_size_and_by_age(tmp_path: Path) -> None:
    with EventLog(tmp_path / "size", segment_bytes=500, retention_bytes=2000) as log:
        for i in range(200):
            log.append(alive(i))
            log.flush()
            assert sum(f.stat().st_size for f in (tmp_path / "size").iterdir()) <= 2000
        offsets = [r["offset"] for r in written(tmp_path / "size")]
        assert offsets == list(range(offsets[0], 200))
        assert len(offsets) > 15
    with EventLog(tmp_path / "age", segment_s=10, retention_s=35) as log:
        for i in range(200):
            log.append(alive(i))
            log.flush()
            oldest = written(tmp_path / "age")[0]["time"]
            newest = 1000 + i
            assert newest - oldest <= 35 + 10
            assert newest - oldest >= min(i, 35)


def test_the_last_segment_is_never_deleted(tmp_path: Path) -> None:
    with EventLog(tmp_path, retention_bytes=1, retention_s=1e-3) as log:
        for i in range(10):
            log.append(alive(i))
            log.flush()
        assert len(written(tmp_path)) == 10


# Reading


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """Offsets 400 to 1999 in segments of different sizes, the largest of more than one step of the search."""
    draw = random.Random(1)
    with EventLog(tmp_path, segment_bytes=60_000) as log:
        for i in range(2000):
            log.append(Alive(1000.0 + i, "b" * draw.randrange(1, 300)))
            if draw.random() < 0.02:
                log.flush()
    files = sorted(tmp_path.iterdir())
    first = next(k for k, file in enumerate(files) if int(file.stem[7:]) > 400)
    for file in files[: first - 1]:
        file.unlink()
    assert len(files) - first > 3
    return tmp_path


def test_any_offset_and_limit_give_what_a_full_read_gives(many: Path) -> None:
    everything = written(many)
    first = everything[0]["offset"]
    for offset in [*range(first, 2000, 7), first, 1999]:
        for limit in (1, 10, 5000):
            assert read_from(many, offset, limit) == everything[offset - first :][:limit]
    assert read_from(many, 2000) == []


def test_offsets_outside_the_log_are_errors(many: Path) -> None:
    first = written(many)[0]["offset"]
    with pytest.raises(OffsetGone, match="not kept any more") as gone:
        read_from(many, first - 1)
    assert gone.value.first_available == first
    with pytest.raises(OffsetAhead, match="in the future: the next record will be 2000") as ahead:
        read_from(many, 2001)
    assert ahead.value.next_offset == 2000
    for offset, limit in ((-1, 1), (0, 0)):
        with pytest.raises(EventLogError, match="write an offset"):
            read_from(many, offset, limit)


def test_an_empty_log_and_none_at_all(tmp_path: Path) -> None:
    with EventLog(tmp_path / "log") as log:
        assert log.next_offset == 0
        assert read_from(tmp_path / "log", 0) == []
        with pytest.raises(OffsetAhead):
            read_from(tmp_path / "log", 1)
    with pytest.raises(EventLogError, match="cannot be read"):
        read_from(tmp_path / "nothing", 0)


def test_a_hole_that_a_loss_of_power_left_is_reported_not_passed_over(many: Path) -> None:
    files = sorted(many.iterdir())
    data = files[1].read_bytes()
    files[1].write_bytes(data[: len(data) // 2])  # half a line at its end, too
    whole = data[: len(data) // 2].count(b"\n")
    hole = int(files[1].stem[7:]) + whole
    records = read_from(many, hole - 3, 100)
    assert [r["offset"] for r in records] == [hole - 3, hole - 2, hole - 1]
    with pytest.raises(OffsetGone) as gone:
        read_from(many, hole)
    assert gone.value.first_available == int(files[2].stem[7:])


def test_reading_a_line_that_is_being_written_waits_for_its_end(tmp_path: Path) -> None:
    with EventLog(tmp_path) as log:
        log.append(alive(0))
        log.flush()
        file = next(tmp_path.iterdir())
        with file.open("ab") as other:
            other.write(LINE_WRITERS[Alive](alive(1), 1, "1.0")[:20].encode())
        assert len(read_from(tmp_path, 0)) == 1
        assert read_from(tmp_path, 1) == []
        with pytest.raises(OffsetAhead):
            read_from(tmp_path, 2)


def test_a_foreign_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "events-00000000000000000000.jsonl").write_text("hello\n")
    (tmp_path / "events-readme.jsonl").write_text("not a segment")
    with pytest.raises(EventLogError, match=r"00000\.jsonl: a line that is no record: b'hello"):
        read_from(tmp_path, 0)


# Crashes and refusals


@pytest.mark.parametrize(
    "tail", [b'{"offset":10,"ti', b"\0\0\0\0", b'{"offset":10,"time":}\n', b'{"offset":12,"x":1}\n']
)
def test_a_half_written_end_is_cut_off_and_offsets_go_on(tmp_path: Path, tail: bytes) -> None:
    with EventLog(tmp_path) as log:
        for i in range(10):
            log.append(alive(i))
    file = next(tmp_path.iterdir())
    with file.open("ab") as end:
        end.write(tail)
    with EventLog(tmp_path) as log:
        assert log.next_offset == 10
        assert log.cut_bytes == len(tail)
        assert len(written(tmp_path)) == 10
        log.append(alive(10))
    assert written(tmp_path) == read_from(tmp_path, 0)
    assert [r["offset"] for r in written(tmp_path)] == list(range(11))


def test_cut_at_any_byte_the_whole_lines_before_it_are_kept(tmp_path: Path) -> None:
    with EventLog(tmp_path) as log:
        for i in range(5):
            log.append(alive(i))
    file = next(tmp_path.iterdir())
    data = file.read_bytes()
    for size in range(len(data) + 1):
        file.write_bytes(data[:size])
        with EventLog(tmp_path) as log:
            assert log.next_offset == data[:size].count(b"\n")
            log.append(alive(99))
        assert [r["offset"] for r in written(tmp_path)] == list(range(log.next_offset))


def test_killed_in_the_middle_what_was_flushed_is_there(tmp_path: Path) -> None:
    code = """
import os, sys
from pathlib import Path
from surecast.broker.event_log import Alive, EventLog
log = EventLog(Path(sys.argv[1]), segment_bytes=5000)
for i in range(10**9):
    log.append(Alive(1000.0 + log.next_offset, "b"))
    if i % 5 == 4:
        log.flush()
        os.write(1, b"%d\\n" % log.next_offset)
"""
    flushed = 0
    for _ in range(3):
        child = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
        assert child.stdout is not None
        enough = flushed + 500
        for line in child.stdout:
            flushed = int(line)
            if flushed >= enough:
                child.kill()
                break
        flushed = max([flushed, *(int(line) for line in child.stdout if line.endswith(b"\n"))])
        child.wait(PATIENCE_S)
        child.stdout.close()
        with EventLog(tmp_path, segment_bytes=5000) as log:
            assert flushed <= log.next_offset <= flushed + 5
        records = written(tmp_path)
        assert [r["offset"] for r in records] == list(range(log.next_offset))
        assert [r["time"] for r in records] == [1000.0 + r["offset"] for r in records]


FILLER = """
import resource, sys
from pathlib import Path
from surecast.broker.event_log import Alive, EventLog, EventLogError
log = EventLog(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (1010, resource.RLIM_INFINITY))
failed = 0
for i in range(60):
    log.append(Alive(1000.0 + i, "b"))
    if i % 3 == 2:
        try:
            log.flush()
        except EventLogError as error:
            assert "File too large" in str(error), error
            failed += 1
lost = log.lost
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
log.append(Alive(2000.0, "b"))
log.flush()
assert log.lost == 0
print(failed, lost)
"""


def test_a_full_disk_loses_records_counts_them_and_goes_on(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FILLER, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    failed, lost = map(int, done.stdout.split())
    records = written(tmp_path)
    assert [r["offset"] for r in records] == list(range(len(records)))
    kinds = [r["type"] for r in records]
    assert failed > 5
    assert kinds.count("lost") == 1
    assert kinds[-2:] == ["lost", "alive"]
    assert records[-2]["records"] == lost == 60 - (len(records) - 2)
    assert records[-2]["reason"] == "File too large"
    assert [r["time"] for r in records[:-2]] == [1000.0 + i for i in range(len(records) - 2)]


def test_the_buffer_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "BUFFER_RECORDS", 10)
    with EventLog(tmp_path) as log:
        for i in range(25):
            log.append(alive(i))
        assert len(written(tmp_path)) == 20
    assert len(written(tmp_path)) == 25


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with EventLog(tmp_path):
        with pytest.raises(EventLogError, match="another broker writes its event log here"):
            EventLog(tmp_path)
        assert read_from(tmp_path, 0) == []
    log = EventLog(tmp_path, sync=True)
    log.append(Started(1.0, "b1"))
    log.close()
    log.close()
    assert len(written(tmp_path)) == 1


def test_wrong_settings_and_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="segment_bytes is 0; it must be positive"):
        EventLog(tmp_path, segment_bytes=0)
    with pytest.raises(ConfigurationError, match="retention_s is -1"):
        EventLog(tmp_path, retention_s=-1)
    (tmp_path / "file").write_text("")
    with pytest.raises(EventLogError, match="cannot be opened"):
        EventLog(tmp_path / "file")
