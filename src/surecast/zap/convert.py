"""Real logs as events: set-top-box logs in JSON, and viewing sessions in CSV, both also compressed (.gz).

A set-top-box log is an object with a list of records: `mac`, `eventdate`, `eventtime`, `code` and `chname`. ELWS is a
channel change, SSTART and SSTAND are power on and off. SALIVE says every ten minutes which channel is on; it makes an
event only if that was not known. Sessions have the columns UserID, Channel2, RecordDate2 (start) and Duration2.
Boxes get addresses from 10.0.0.1 on, in order of their names.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from surecast.errors import FileError
from surecast.zap.event_table import EventTable
from surecast.zap.events import (
    CHANNEL_BYTES_MAX,
    SHORT_CHANNEL_BYTES,
    BadLine,
    ChannelChange,
    Event,
    LineError,
    Status,
    channel_fault,
    parse_line,
)

__all__ = ["Converted", "apply_retention", "convert", "short_names"]

_FIRST_ADDRESS = (10 << 24) + 1
_ORDER = {"SSTART": 0, "ELWS": 1, "SALIVE": 2, "SSTAND": 3}
_SESSION_COLUMNS = ("UserID", "Channel2", "RecordDate2", "Duration2")


@dataclass(frozen=True)
class Converted:
    """Events in order of time, what every name became, and the records that could not be read."""

    table: EventTable
    channels: dict[str, str]
    boxes: dict[str, str]
    bad: tuple[BadLine, ...]
    duplicates: int


@dataclass(frozen=True, slots=True)
class _Record:
    box: str
    time_s: int
    code: str
    channel: str = ""


def convert(path: Path, retention_s: float = 0.0, short: bool = True) -> Converted:
    """Returns the events of a log, or of all logs (.json, .csv, also with .gz) of a folder.

    `retention_s` leaves out channels that were left so soon, as the boxes of P2S do. `short` cuts names so that every
    line is under 60 bytes.
    """
    bad: list[BadLine] = []
    records: list[_Record] = []
    for file in _files(path):
        read = _stb_records if ".json" in file.suffixes else _session_records
        records += read(file, bad)
    unique = dict.fromkeys(records)
    names = sorted({record.channel for record in unique if record.channel})
    channels = short_names(names) if short else {name: _cut(_tidy(name), CHANNEL_BYTES_MAX) for name in names}
    ids = sorted({record.box for record in unique})
    boxes = {box: _address(_FIRST_ADDRESS + i) for i, box in enumerate(ids)}
    by_box: dict[str, list[_Record]] = defaultdict(list)
    for record in sorted(unique, key=lambda each: (each.time_s, _ORDER[each.code])):
        by_box[record.box].append(record)
    events = [event for box in ids for event in _events(by_box[box], boxes[box], channels)]
    if retention_s > 0.0:
        events = apply_retention(events, retention_s)
    events.sort(key=lambda event: event.time_s)
    return Converted(EventTable.of(events), channels, boxes, tuple(bad), len(records) - len(unique))


def apply_retention(events: Iterable[Event], retention_s: float) -> list[Event]:
    """Returns the events that boxes report which drop channels left within `retention_s`, box after box.

    What is reported is chained: FROMCH is the channel reported before. A way back to it is no change.

    >>> fields = ["20:00:00,10.0.0.1,B,A", "20:00:09,10.0.0.1,C,B", "20:00:10,10.0.0.1,D,C"]
    >>> lines = [f"2024-01-01,{rest}" for rest in fields]
    >>> for event in apply_retention(map(parse_line, lines), 3.0): print(event)
    2024-01-01,20:00:00,10.0.0.1,B,A
    2024-01-01,20:00:10,10.0.0.1,D,B
    """
    by_box: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        by_box[event.box].append(event)
    reported_events: list[Event] = []
    for listed in by_box.values():
        reported = ""
        switched_on = True
        for event, left_s in zip(listed, _left_s(listed), strict=True):
            if isinstance(event, Status):
                switched_on |= event.kind == "power" and event.value == 1
                reported_events.append(event)
            elif left_s - event.time_s > retention_s:
                before = reported or event.from_channel
                if switched_on or event.to_channel != before:
                    reported_events.append(ChannelChange(event.time_s, event.box, event.to_channel, before))
                reported, switched_on = event.to_channel, False
    return reported_events


def short_names(names: Iterable[str], limit: int = SHORT_CHANNEL_BYTES) -> dict[str, str]:
    """Returns names without characters that a line cannot hold, cut to `limit` bytes and still all different.

    >>> short_names(["Al Kahera Wal Nas", "Al Kahera Wal Nas +2", "MBC2 "])
    {'Al Kahera Wal Nas': 'Al Kahera W', 'Al Kahera Wal Nas +2': 'Al Kahera~2', 'MBC2 ': 'MBC2'}
    """
    short_of: dict[str, str] = {}
    used: set[str] = set()
    # names that fit as they are keep theirs
    for name in sorted(names, key=lambda name: (len(_tidy(name).encode()) > limit, name)):
        tidy = _tidy(name)
        numbered = (_cut(tidy, limit - len(f"~{i}")) + f"~{i}" for i in count(2))
        short = _cut(tidy, limit)
        while short in used:
            short = next(numbered)
        used.add(short)
        short_of[name] = short
    return dict(sorted(short_of.items()))


def _events(records: list[_Record], box: str, channels: dict[str, str]) -> Iterator[Event]:
    """Yields the events of one box, from its records in order of time."""
    tuned = ""
    for record in records:
        if record.code in ("SSTART", "SSTAND"):
            yield Status(record.time_s, box, "power", int(record.code == "SSTART"))
            continue
        channel = channels[record.channel]
        if record.code == "ELWS" or channel != tuned:
            yield ChannelChange(record.time_s, box, channel, tuned or channel)
        tuned = channel


def _left_s(events: list[Event]) -> list[float]:
    """Returns the time at which the box next leaves a channel, after each of its events: for another, or off."""
    left: list[float] = []
    next_s = math.inf
    for event in reversed(events):
        left.append(next_s)
        if isinstance(event, ChannelChange) or (event.kind == "power" and event.value == 0):
            next_s = event.time_s
    return left[::-1]


def _files(path: Path) -> list[Path]:
    def fits(file: Path) -> bool:
        return file.suffix in (".json", ".csv") or (
            file.suffix == ".gz" and {".json", ".csv"} & set(file.suffixes) != set()
        )

    if path.is_dir():
        files = sorted(file for file in path.iterdir() if fits(file))
        if not files:
            raise FileError("this folder holds no .json or .csv logs, nor such with .gz", str(path))
        return files
    if not fits(path):
        raise FileError("a log to convert ends in .json, .csv, .json.gz or .csv.gz", str(path))
    return [path]


def _read(path: Path) -> str:
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8-sig")
    except (OSError, EOFError) as error:
        raise FileError(f"cannot be read: {getattr(error, 'strerror', None) or error}", str(path)) from None
    except UnicodeDecodeError:
        raise FileError("this is not UTF-8 text", str(path)) from None


def _stb_records(path: Path, bad: list[BadLine]) -> Iterator[_Record]:
    try:
        data = json.loads(_read(path))
    except ValueError as error:
        raise FileError(f"this is not JSON: {error}", str(path)) from None
    lists = [value for value in data.values() if isinstance(value, list)] if isinstance(data, dict) else []
    if len(lists) != 1:
        raise FileError("a set-top-box log is an object with one list of records", str(path))
    for number, record in enumerate(lists[0], 1):
        parsed, reason = _stb_record(record)
        if parsed is None:
            bad.append(BadLine(str(path), number, json.dumps(record, ensure_ascii=False)[:100], reason))
        else:
            yield parsed


def _stb_record(record: Any) -> tuple[_Record | None, str]:
    if not isinstance(record, dict) or not all(isinstance(record.get(k), str) for k in ("mac", "code")):
        return None, "a record without mac or code"
    code, channel = record["code"], record.get("chname")
    if code not in _ORDER:
        return None, f"the code {code!r} is unknown"
    time_s, reason = _time_s(f"{record.get('eventdate')},{record.get('eventtime')}")
    if time_s is None:
        return None, reason
    if code in ("SSTART", "SSTAND"):
        return _Record(record["mac"], time_s, code), ""
    if not isinstance(channel, str) or channel_fault(_cut(_tidy(channel), CHANNEL_BYTES_MAX)):
        return None, "a channel without a name"
    return _Record(record["mac"], time_s, code, channel), ""


def _session_records(path: Path, bad: list[BadLine]) -> Iterator[_Record]:
    """Yields power on, a channel and power off for each session; one that another of the same user cuts short has no
    end."""
    reader = csv.DictReader(io.StringIO(_read(path)))
    if not set(_SESSION_COLUMNS) <= set(reader.fieldnames or ()):
        raise FileError(f"sessions have the columns {', '.join(_SESSION_COLUMNS)}", str(path), 1)
    by_user: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for row in reader:
        user, channel, start, length = (row[name] or "" for name in _SESSION_COLUMNS)
        start_s, reason = _time_s(start.replace("/", "-").replace(" ", ",") + ":00")
        length_s, wrong = _time_s(f"1970-01-01,{length}")
        if start_s is None or length_s is None or channel_fault(_cut(_tidy(channel), CHANNEL_BYTES_MAX)):
            why = reason or wrong or "a channel without a name"
            bad.append(BadLine(str(path), reader.line_num, ",".join(map(str, row.values()))[:100], why))
        else:
            by_user[user].append((start_s, length_s, channel))
    for user, sessions in by_user.items():
        sessions.sort()
        for i, (start_s, length_s, channel) in enumerate(sessions):
            yield _Record(user, start_s, "SSTART")
            yield _Record(user, start_s, "ELWS", channel)
            if i + 1 == len(sessions) or sessions[i + 1][0] > start_s + length_s:
                yield _Record(user, start_s + length_s, "SSTAND")


def _time_s(text: str) -> tuple[int | None, str]:
    try:
        return parse_line(f"{text},0.0.0.0,Mute: 0").time_s, ""
    except LineError as error:
        return None, str(error)


def _tidy(name: str) -> str:
    """Returns a name without commas and control characters, with single spaces."""
    return " ".join("".join(c if c != "," and not channel_fault(f"a{c}a") else " " for c in name).split())


def _cut(name: str, limit: int) -> str:
    return name.encode()[:limit].decode("utf-8", "ignore").rstrip()


def _address(number: int) -> str:
    return ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))
