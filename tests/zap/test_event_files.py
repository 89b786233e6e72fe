"""Events in files, and real logs as events."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from surecast.errors import ConfigurationError, FileError
from surecast.zap import (
    BadLine,
    ChannelChange,
    EventTable,
    EventWriter,
    Generator,
    Status,
    Traffic,
    apply_retention,
    convert,
    join_tables,
    parse_line,
    payloads,
    read_table,
    read_tables,
)
from surecast.zap.convert import short_names
from surecast.zap.event_files import Format

START = 1_704_135_000  # 2024-01-01 18:50:00


@pytest.fixture(scope="module")
def some() -> EventTable:
    return join_tables([batch.events for batch in Generator(Traffic(boxes=500), START).batches(3600)])


@pytest.mark.parametrize(("name", "format"), [("a.txt", "text"), ("a.txt.gz", "text"), ("a.parquet", "parquet")])
def test_a_file_holds_what_was_written(some: EventTable, tmp_path: Path, name: str, format: Format) -> None:
    with EventWriter(tmp_path / name, format) as writer:
        for part in (some[:100], some[100:100], some[100:]):
            writer.write(part)
    assert writer.count == len(some)
    assert read_table(tmp_path / name).lines() == some.lines()
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("format", ["text", "parquet"])
def test_a_folder_has_a_file_for_each_hour(some: EventTable, tmp_path: Path, format: Format) -> None:
    with EventWriter(tmp_path / "out", format) as writer:
        writer.write(some)
        with pytest.raises(ConfigurationError, match="sort them by time"):
            writer.write(some)
    suffix = "txt" if format == "text" else "parquet"
    assert [path.name for path in writer.files] == [f"zap-20240101-{hour}.{suffix}" for hour in (18, 19)]
    first = read_table(writer.files[0])
    assert (first.time_s < START + 600).all()
    assert read_table(tmp_path / "out").lines() == [*first.lines(), *some[len(first) :].lines()]
    seen: list[tuple[int, int]] = []
    list(read_tables(tmp_path / "out", progress=lambda done, total: seen.append((done, total))))
    assert seen[-1][0] == seen[-1][1] == sum(path.stat().st_size for path in writer.files)


def test_parquet_has_plain_columns_for_other_tools(some: EventTable, tmp_path: Path) -> None:
    with EventWriter(tmp_path / "a.parquet", "parquet") as writer:
        writer.write(some)
    rows = pq.read_table(tmp_path / "a.parquet").to_pylist()
    for row, event in zip(rows, some.events(), strict=True):
        assert row["time"].isoformat(sep=",") == str(event)[:19]
        assert row["box"] == event.box
        if isinstance(event, ChannelChange):
            assert (row["kind"], row["value"]) == ("channel", None)
            assert (row["to_channel"], row["from_channel"]) == (event.to_channel, event.from_channel)
        else:
            assert (row["kind"], row["value"], row["to_channel"]) == (event.kind, event.value, None)


def stop_after(writer: EventWriter, table: EventTable) -> None:
    writer.write(table)
    raise ConfigurationError("stop")


def test_failures_leave_no_file_and_files_that_are_none_are_refused(some: EventTable, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="stop"), EventWriter(tmp_path / "a.txt", "text") as writer:
        stop_after(writer, some)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileError, match="no such file"):
        read_table(tmp_path / "a.txt")
    with pytest.raises(FileError, match="holds no files"):
        read_table(tmp_path)
    with pytest.raises(ConfigurationError, match="does not exist"):
        EventWriter(tmp_path / "no" / "a.txt", "text")
    with pytest.raises(ConfigurationError, match="end in"):
        EventWriter(tmp_path / "a.txt", "parquet")
    (tmp_path / "a.parquet").write_bytes(b"hello")
    with pytest.raises(FileError, match="not a Parquet file"):
        read_table(tmp_path / "a.parquet")
    (tmp_path / "a.gz").write_bytes(b"hello")
    with pytest.raises(FileError, match="not a whole"):
        read_table(tmp_path / "a.gz")
    pq.write_table(pa.table({"time": [1]}), tmp_path / "b.parquet")
    with pytest.raises(FileError, match="not a Parquet file of events"):
        read_table(tmp_path / "b.parquet")


def test_bad_lines_are_told_with_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"2024-01-01,20:00:00,10.0.0.1,Mute: 1\r\n\nhello\n2024-01-01,20:00:00,10.0.0.1,A\xff,B\n")
    bad: list[BadLine] = []
    assert len(read_table(path, bad.append)) == 1
    assert [(line.line, line.file) for line in bad] == [(3, str(path)), (4, str(path))]


def test_an_empty_log_is_a_file_too(tmp_path: Path) -> None:
    for name in ("a.txt", "a.parquet"):
        with EventWriter(tmp_path / name, "text" if name == "a.txt" else "parquet"):
            pass
        assert len(read_table(tmp_path / name)) == 0


# Messages.


def test_messages_hold_all_events_in_order_and_are_sent_after_their_batch(some: EventTable) -> None:
    found = list(payloads([some[:777], some[777:]], bytes_max=1000))
    assert b"\n".join(one.data for one in found).decode().split("\n") == some.lines()
    assert max(len(one.data) for one in found) <= 1000
    assert sum(one.events for one in found) == len(some)
    for one in found:
        for line in one.data.decode().split("\n"):
            assert one.after_s - 10 <= parse_line(line).time_s - START < one.after_s
    late = EventTable.of([Status(100, "10.0.0.1", "mute", 1), Status(80, "10.0.0.1", "mute", 0)])
    assert [one.events for one in payloads([late])] == [2]


# Real logs.


def record(mac: str, time: str, code: str, channel: str | None = None) -> dict[str, str | None]:
    return {"mac": mac, "eventdate": "2024-01-01", "eventtime": time, "code": code, "chname": channel}


def test_a_set_top_box_log_becomes_events(tmp_path: Path) -> None:
    records = [
        record("b", "12:00:05", "ELWS", "Two, and  more\xa0"),
        record("b", "12:00:00", "SSTART"),
        record("b", "12:00:00", "ELWS", "One"),
        record("a", "12:10:00", "SALIVE", "One"),
        record("a", "12:20:00", "SALIVE", "One"),
        record("b", "12:00:05", "ELWS", "Two, and  more\xa0"),
        record("b", "13:00:00", "SSTAND"),
        record("b", "13:00:00", "WHAT"),
        record("b", "25:00:00", "SSTAND"),
        record("b", "13:00:00", "ELWS"),
    ]
    path = tmp_path / "log.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"events": records}).encode()))
    found = convert(path)
    assert found.table.lines() == [
        "2024-01-01,12:00:00,10.0.0.2,Power: 1",
        "2024-01-01,12:00:00,10.0.0.2,One,One",
        "2024-01-01,12:00:05,10.0.0.2,Two and mor,One",
        "2024-01-01,12:10:00,10.0.0.1,One,One",
        "2024-01-01,13:00:00,10.0.0.2,Power: 0",
    ]
    assert found.boxes == {"a": "10.0.0.1", "b": "10.0.0.2"}
    assert found.duplicates == 1
    assert [line.line for line in found.bad] == [8, 9, 10]
    assert convert(path, short=False).table.lines()[2].endswith("Two and more,One")


def test_sessions_become_power_and_channels(tmp_path: Path) -> None:
    path = tmp_path / "sessions.csv"
    path.write_text(
        "UserID,Channel2,RecordDate2,Duration2\n"
        "7,A,2016/01/04 18:00,00:02:00\n7,B,2016/01/04 18:01,00:10:00\n7,C,2016/13/04 18:00,00:02:00\n"
    )
    found = convert(tmp_path)
    assert found.table.lines() == [
        "2016-01-04,18:00:00,10.0.0.1,Power: 1",
        "2016-01-04,18:00:00,10.0.0.1,A,A",
        "2016-01-04,18:01:00,10.0.0.1,Power: 1",
        "2016-01-04,18:01:00,10.0.0.1,B,A",
        "2016-01-04,18:11:00,10.0.0.1,Power: 0",
    ]
    assert [(line.line, line.reason[:8]) for line in found.bad] == [(4, "the date")]


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    for name, text, what in (
        ("a.json", "[", "not JSON"),
        ("a.json", "[]", "one list of records"),
        ("a.csv", "a,b\n", "sessions have the columns"),
        ("a.txt", "", "ends in .json"),
        ("a.json.gz", "x", "cannot be read"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(FileError, match=what):
            convert(tmp_path / name)


def test_retention_is_what_the_generator_does() -> None:
    """The same boxes with and without the rule: the rule, applied afterwards to raw events, gives the same stops."""
    traffic = Traffic(boxes=300, volume_per_h=0.0, mute_per_h=0.0)
    kept, raw = (
        join_tables([batch.events for batch in Generator(one, START, seed=4).batches(7200)])
        for one in (traffic, Traffic(boxes=300, volume_per_h=0.0, mute_per_h=0.0, retention_s=0.0))
    )
    ruled = apply_retention(raw.events(), 3.0)
    ruled.sort(key=lambda event: event.time_s)
    wanted = {line for line in kept.lines() if "Power" not in line}
    found = {str(event) for event in ruled if isinstance(event, ChannelChange)}
    # seconds are cut, so that stops of 3 to 4 s may fall on either side, and what follows them has another FROMCH
    ends = {line.rsplit(",", 1)[0] for line in wanted}, {line.rsplit(",", 1)[0] for line in found}
    assert len(ends[0] ^ ends[1]) < 0.1 * len(ends[0])
    assert len(wanted & found) > 0.7 * len(wanted)


def test_short_names_are_different_and_short() -> None:
    names = [f"A channel with a long name {i}" for i in range(200)] + ["日本放送協会総合テレビ", "A channel w"]
    found = short_names(names)
    assert len(set(found.values())) == len(names)
    assert all(0 < len(name.encode()) <= 11 for name in found.values())
    assert found["A channel w"] == "A channel w"


def test_the_real_set_top_box_log(real_data: Path) -> None:
    found = convert(real_data / "iptv" / "stb_gobx")
    assert (len(found.boxes), len(found.bad), found.duplicates) == (9, 0, 36)
    assert np.bincount(found.table.kind).tolist()[3] == 46
    lines = found.table.lines()
    assert max(len(line.encode()) for line in lines) < 60
    assert [str(parse_line(line)) for line in lines] == lines


def test_the_real_sessions(real_data: Path) -> None:
    found = convert(real_data / "iptv" / "brighttv_sessions")
    assert (len(found.boxes), len(found.channels), len(found.bad)) == (2185, 20, 0)
    assert max(len(line.encode()) for line in found.table.lines()) < 60
