"""Events as text: what P2S section 3.3 defines, and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    parse_lines,
)

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).filter(lambda name: not channel_fault(name))
times = st.integers(0, 253_402_300_799)
addresses = st.tuples(*[st.integers(0, 255)] * 4).map(lambda parts: ".".join(map(str, parts)))
changes = st.builds(ChannelChange, times, addresses, names, names)
statuses = st.one_of(
    st.builds(Status, times, addresses, st.just("volume"), st.integers(0, 100)),
    st.builds(Status, times, addresses, st.sampled_from(["mute", "power"]), st.integers(0, 1)),
)


@given(st.one_of(changes, statuses))
def test_an_event_comes_back_from_its_text(event: Event) -> None:
    text = str(event)
    assert parse_line(text) == event
    assert text.count(",") == (4 if isinstance(event, ChannelChange) else 3)
    moment = datetime.fromtimestamp(event.time_s, UTC)
    assert text.startswith(f"{moment.year:04d}-{moment:%m-%d,%H:%M:%S},{event.box},")


@given(st.lists(st.one_of(changes, statuses)))
def test_events_come_back_from_columns(events: list[Event]) -> None:
    table = EventTable.of(events)
    assert list(table.events()) == events
    assert table.lines() == [str(event) for event in events]


@given(st.text())
def test_any_text_is_an_event_that_writes_the_same_text_or_is_refused(text: str) -> None:
    try:
        event = parse_line(text)
    except LineError as error:
        assert str(error)
    else:
        assert str(event) == text


@given(st.lists(st.one_of(st.binary(max_size=30), statuses.map(lambda one: str(one).encode()))))
def test_bad_lines_are_reported_in_their_places_and_parsing_goes_on(lines: list[bytes]) -> None:
    data = b"\n".join(lines).split(b"\n")
    found = list(parse_lines(data, "log"))
    assert len(found) == sum(line.removesuffix(b"\r") != b"" for line in data)
    for bad in found:
        if isinstance(bad, BadLine):
            assert bad.file == "log"
            assert data[bad.line - 1].decode("utf-8", "surrogateescape").startswith(bad.text)


def test_the_longest_line_that_we_write_is_under_60_bytes() -> None:
    name = "x" * SHORT_CHANNEL_BYTES
    assert len(str(ChannelChange(0, "255.255.255.255", name, name)).encode()) == 59


@pytest.mark.parametrize(
    ("rest", "reason"),
    [
        ("2024-01-01,20:00:00,10.0.0.1", "3 fields; write 5"),
        ("2024-01-01,20:00:00,10.0.0.1,A,B,C", "6 fields; write 5"),
        ("2024-02-30,20:00:00,10.0.0.1,Mute: 1", "the date '2024-02-30'"),
        ("0000-01-01,20:00:00,10.0.0.1,Mute: 1", "the date '0000-01-01'"),
        ("2024/02/03,20:00:00,10.0.0.1,Mute: 1", "the date '2024/02/03'"),
        ("٢٠٢٤-01-01,20:00:00,10.0.0.1,Mute: 1", "the date"),
        ("2024-01-01,24:00:00,10.0.0.1,Mute: 1", "the time '24:00:00'"),
        ("2024-01-01,20:00,10.0.0.1,Mute: 1", "the time '20:00'"),
        ("2024-01-01,20:00:00,10.0.0.256,Mute: 1", "the address '10.0.0.256'"),
        ("2024-01-01,20:00:00,10.0.0.01,Mute: 1", "the address '10.0.0.01'"),
        ("2024-01-01,20:00:00, 10.0.0.1,Mute: 1", "the address ' 10.0.0.1'"),
        ("2024-01-01,20:00:00,10.0.0.1,Volume: 101", "the status 'Volume: 101'"),
        ("2024-01-01,20:00:00,10.0.0.1,Volume: 007", "the status 'Volume: 007'"),
        ("2024-01-01,20:00:00,10.0.0.1,Mute: 2", "the status 'Mute: 2'"),
        ("2024-01-01,20:00:00,10.0.0.1,Power: on", "the status 'Power: on'"),
        ("2024-01-01,20:00:00,10.0.0.1,A,", "a channel without a name"),
        ("2024-01-01,20:00:00,10.0.0.1,A , B", "the channel 'A ' begins or ends with a space"),
        ("2024-01-01,20:00:00,10.0.0.1,A\t1,B", "has a comma or a control character"),
        ("2024-01-01,20:00:00,10.0.0.1,A\udcff,B", "has bytes that are not UTF-8"),
        (f"2024-01-01,20:00:00,10.0.0.1,{'A' * (CHANNEL_BYTES_MAX + 1)},B", "has more than 40 bytes"),
    ],
)
def test_what_is_wrong_is_named(rest: str, reason: str) -> None:
    with pytest.raises(LineError, match=reason.replace("(", r"\(")):
        parse_line(rest)
