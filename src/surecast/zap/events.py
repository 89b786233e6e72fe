"""The events of set-top boxes, as lines of text.

P2S section 3.3 has two: a channel change with five fields (DATE, TIME, STB-IP, TOCH, FROMCH) and a status with four
(DATE, TIME, STB-IP, STATUS), where the status is a volume from 0 to 100, mute or power. Fields are parted by commas:

    2024-01-01,20:16:58,10.0.0.1,MBC2,MBC Action
    2024-01-01,20:17:05,10.0.0.1,Volume: 35

A line is under 60 bytes if its channel names have at most `SHORT_CHANNEL_BYTES` bytes, as all that we write have.
Longer names, up to `CHANNEL_BYTES_MAX`, are read. Dates and times are those of the log's own clock, without a zone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache
from typing import Literal

from surecast.errors import PeerError

__all__ = [
    "CHANNEL_BYTES_MAX",
    "SHORT_CHANNEL_BYTES",
    "BadLine",
    "ChannelChange",
    "Event",
    "LineError",
    "Status",
    "StatusKind",
    "channel_fault",
    "is_address",
    "parse_line",
    "parse_lines",
    "stamp",
]

SHORT_CHANNEL_BYTES = 11
"""Two names of this length and the longest address make a line of 59 bytes."""
CHANNEL_BYTES_MAX = 40
DAY_S = 86_400
VOLUME_MAX = 100
_SHOWN_CHARACTERS = 100
_EPOCH = date(1970, 1, 1)
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d):([0-5]\d)", re.ASCII)
_OCTET = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_ADDRESS = re.compile(rf"{_OCTET}(?:\.{_OCTET}){{3}}", re.ASCII)
_STATUS = re.compile(r"(?:Volume: (100|[1-9]?\d)|(Mute|Power): ([01]))", re.ASCII)
# Spelt out, as replicas with different tables of Unicode must agree: controls, line separators, halves of pairs.
_UNFIT = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff,]")

StatusKind = Literal["volume", "mute", "power"]


class LineError(PeerError):
    """A line is not an event; the message says why."""


@dataclass(frozen=True, slots=True)
class ChannelChange:
    """A box went from one channel to another. `time_s` is the date and time, in seconds since 1970.

    >>> print(ChannelChange(1704140218, "10.0.0.1", "MBC2", "MBC Action"))
    2024-01-01,20:16:58,10.0.0.1,MBC2,MBC Action
    """

    time_s: int
    box: str
    to_channel: str
    from_channel: str

    def __str__(self) -> str:
        return f"{stamp(self.time_s)},{self.box},{self.to_channel},{self.from_channel}"


@dataclass(frozen=True, slots=True)
class Status:
    """A box changed its volume (0 to 100), was muted (1) or not (0), or was switched on (1) or off (0).

    >>> print(Status(1704140225, "10.0.0.1", "volume", 35))
    2024-01-01,20:17:05,10.0.0.1,Volume: 35
    """

    time_s: int
    box: str
    kind: StatusKind
    value: int

    def __str__(self) -> str:
        return f"{stamp(self.time_s)},{self.box},{self.kind.capitalize()}: {self.value}"


Event = ChannelChange | Status


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that is not an event: where it stands, its beginning, and why.

    >>> print(BadLine("a.txt", 7, "hello", "1 field"))
    a.txt:7: 1 field: 'hello'
    """

    file: str
    line: int
    text: str
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}: {self.text!r}"


@lru_cache(maxsize=4096)
def stamp(time_s: int) -> str:
    """Returns the first two fields of an event at this time.

    >>> stamp(1704140218)
    '2024-01-01,20:16:58'
    """
    days, second = divmod(time_s, DAY_S)
    day = _EPOCH + timedelta(days=days)
    return f"{day.isoformat()},{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"


def parse_line(text: str) -> Event:
    """Returns the event of a line without its line end; LineError if it is none.

    >>> parse_line("2024-01-01,20:16:58,10.0.0.1,MBC2,MBC Action")
    ChannelChange(time_s=1704140218, box='10.0.0.1', to_channel='MBC2', from_channel='MBC Action')
    >>> parse_line("2024-01-01,20:17:05,10.0.0.1,Volume: 101")
    Traceback (most recent call last):
    ...
    surecast.zap.events.LineError: the status 'Volume: 101'; write Volume: 0 to 100, Mute: 0 or 1, or Power: 0 or 1
    """
    fields = text.split(",")
    if len(fields) not in (4, 5):
        count = f"{len(fields)} field{'s' if len(fields) > 1 else ''}"
        raise LineError(f"{count}; write 5 for a channel change or 4 for a status, parted by commas")
    time_s = _moment_s(fields[0], fields[1])
    box = fields[2]
    if not is_address(box):
        raise LineError(f"the address {_short(box)}; write an IPv4 address such as 10.0.0.1")
    if len(fields) == 5:
        for name in fields[3:]:
            if fault := _known_fault(name):
                raise LineError(fault)
        return ChannelChange(time_s, box, fields[3], fields[4])
    status = _STATUS.fullmatch(fields[3])
    if status is None:
        raise LineError(f"the status {_short(fields[3])}; write Volume: 0 to 100, Mute: 0 or 1, or Power: 0 or 1")
    if status[1] is not None:
        return Status(time_s, box, "volume", int(status[1]))
    return Status(time_s, box, "mute" if status[2] == "Mute" else "power", int(status[3]))


def parse_lines(lines: Iterable[str | bytes], file: str = "", first: int = 1) -> Iterator[Event | BadLine]:
    """Yields the events of lines and, in its place, each line that is none. Empty lines are skipped.

    >>> list(parse_lines(["2024-01-01,20:17:05,10.0.0.1,Mute: 1", "", "hello"], "a.txt"))[-1]
    BadLine(file='a.txt', line=3, text='hello', reason='1 field; write 5 for a channel change or 4 for a status, ...')
    """
    for number, raw in enumerate(lines, first):
        text = raw.decode("utf-8", "surrogateescape") if isinstance(raw, bytes) else raw
        text = text.removesuffix("\n").removesuffix("\r")
        if not text:
            continue
        try:
            yield parse_line(text)
        except LineError as error:
            yield BadLine(file, number, text[:_SHOWN_CHARACTERS], str(error))


def channel_fault(name: str) -> str:
    """Returns the fault in the name of a channel; empty if there is none.

    >>> channel_fault("MBC2"), channel_fault(" MBC2")
    ('', "the channel ' MBC2' begins or ends with a space")
    """
    if not name:
        return "a channel without a name"
    if unfit := _UNFIT.search(name):
        fault = "bytes that are not UTF-8" if "\ud800" <= unfit[0] <= "\udfff" else "a comma or a control character"
        return f"the channel {_short(name)} has {fault}"
    if name[0] == " " or name[-1] == " ":
        return f"the channel {_short(name)} begins or ends with a space"
    if len(name.encode()) > CHANNEL_BYTES_MAX:
        return f"the channel {_short(name)} has more than {CHANNEL_BYTES_MAX} bytes"
    return ""


def is_address(text: str) -> bool:
    """Returns whether a text is an IPv4 address.

    >>> is_address("10.0.0.1"), is_address("10.0.0.01")
    (True, False)
    """
    return _ADDRESS.fullmatch(text) is not None


_known_fault = lru_cache(maxsize=4096)(channel_fault)


@lru_cache(maxsize=4096)
def _moment_s(day_text: str, time_text: str) -> int:
    """Returns the seconds since 1970 of a date and time; cached, since many events share a second."""
    match = _DATE.fullmatch(day_text)
    try:
        day = date(*map(int, match.groups())) if match else None
    except ValueError:
        day = None
    if day is None:
        raise LineError(f"the date {_short(day_text)}; write a day such as 2024-01-31")
    time = _TIME.fullmatch(time_text)
    if time is None:
        raise LineError(f"the time {_short(time_text)}; write a time such as 20:16:58")
    return (day - _EPOCH).days * DAY_S + int(time[1]) * 3600 + int(time[2]) * 60 + int(time[3])


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "...")
