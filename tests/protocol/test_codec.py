"""The codec of cold structures: exact bytes, errors that name kind and field, and any bytes decode or are refused."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surecast.protocol import codec
from surecast.protocol.broker import BrokerCore
from surecast.protocol.broker.connection_record import _CONNECTION
from surecast.protocol.broker.state_records import ACCOUNTS, APPOINTMENT, BROKER, FILED, LIMITS, RUNNING_SESSION
from surecast.protocol.codec import (
    BOOL,
    F64,
    I64,
    REST,
    REST_TEXT,
    TEXT,
    U8,
    U16,
    U32,
    U64,
    CodecError,
    Layout,
    bytes_of,
    choice,
    many,
    numbers,
    optional,
    pairs,
    sized,
)


class Part(NamedTuple):
    """A structure inside another."""

    name: str
    size: int


class Whole(NamedTuple):
    """Something of every form."""

    kind: str
    flag: bool
    byte: int
    word: int
    offset: int
    share: float
    digest: bytes
    name: str
    data: bytes
    parts: tuple[Part, ...]
    counts: tuple[int, ...]
    table: dict[str, int]
    maybe: Part | None
    rest: bytes


PART = Layout("part", Part, name=TEXT, size=U32)
WHOLE = Layout(
    "whole",
    Whole,
    kind=choice(("near", "far")),
    flag=BOOL,
    byte=U8,
    word=U16,
    offset=I64,
    share=F64,
    digest=bytes_of(4),
    name=TEXT,
    data=sized(),
    parts=many(PART, U16),
    counts=numbers(U64, U8),
    table=pairs(TEXT, U8, is_sorted=True),
    maybe=optional(PART),
    rest=REST,
)
SAMPLE = Whole(
    "far", True, 7, 258, -2, 0.5, b"abcd", "ü", b"\0x", (Part("a", 1), Part("", 2)), (9, 1 << 63), {"b": 2, "a": 1},
    Part("c", 3), b"end",
)  # fmt: skip
GOLDEN = (
    "010107" "0102" "fffffffffffffffe" "3fe0000000000000" "61626364" "0002c3bc" "000000020078"
    "0002" "00016100000001" "000000000002" "02" "0000000000000009" "8000000000000000"
    "00000002" "00016101" "00016202" "01" "00016300000003" "656e64"
)  # fmt: skip


BY_HAND = {
    "broker/cast/endpoint.py": "the address in front of each datagram",
    "broker/cast/loopback_relay.py": "the address in front of each datagram",
    "broker/replica/client_port.py": "requests of clients, many to a frame",
    "broker/replica/client_wire.py": "answers to clients, many to a frame",
    "broker/replica/frames.py": "the head of each frame",
    "broker/replica/snapshot_files.py": "the answer of a process that writes a snapshot",
    "broker/replica/unix_socket.py": "a structure of the kernel",
    "broker/segment_clean.py": "entries of the store",
    "broker/segment_file.py": "entries of the store",
    "broker/segment_mark.py": "a mapped page, written in place",
    "broker/segment_store.py": "entries of the store",
    "load/probing.py": "payloads of load generators",
    "load/publication_encoder.py": "payloads of load generators, many at once",
    "load/receiving.py": "payloads of load generators",
    "load/sending.py": "payloads of load generators",
    "measurement/client_processes.py": "the length in front of each message between processes",
    "measurement/load_clients.py": "payloads of load generators",
    "protocol/broker/snapshot.py": "the heads of rows",
    "protocol/broker/state_records.py": "messages and queue entries, one of each for every durable message",
    "protocol/codec.py": "the codec",
    "protocol/coding/coded_packets.py": "packets of network coding",
    "protocol/dissemination/datagrams.py": "the head of each datagram",
    "protocol/filters/intervals.py": "the order of floating-point numbers",
    "protocol/group/commands.py": "items of commands, many for each instance",
    "protocol/group/effects.py": "what is hashed, never read",
    "protocol/group/group_overlay.py": "what is hashed, never read, and one number",
    "protocol/group/machine.py": "the name of a connection in RELEASE",
    "protocol/object_state.py": "any object, by its attributes: no layout could list them",
    "protocol/mqtt/ack_batches.py": "acknowledgements, many at once",
    "protocol/mqtt/batches.py": "batches of publications",
    "protocol/overlay/event_bodies.py": "messages of an event frame, many to a frame",
    "protocol/overlay/event_codec.py": "the head of each frame of events",
    "protocol/overlay/filter_form.py": "counts of members behind a filter",
    "protocol/overlay/link_codec.py": "the head of each frame",
    "protocol/overlay/node_records.py": "events in custody, one record for each batch",
    "protocol/overlay_broker/session_moves.py": "errors of records that are none",
    "protocol/paxos/election.py": "what is hashed, never read",
    "protocol/paxos/example_store.py": "what is hashed, never read",
    "protocol/paxos/journal.py": "votes, one for each instance",
    "protocol/paxos/log_values.py": "values",
    "protocol/paxos/machine.py": "what is hashed, never read",
    "protocol/paxos/membership.py": "a command of one size, which is told from others by it",
    "protocol/paxos/wire.py": "messages, several for each instance",
    "protocol/rows.py": "rows of the store, each packed by one call",
    "simulation/reliability/protocol/journal.py": "what is hashed, never read",
}
"""The modules below surecast that write or read bytes by hand, and what: it is hot, or not the project's own format."""


def test_what_is_written_by_hand_has_a_reason() -> None:
    """Whoever packs a structure that is not hot declares its fields in a `Layout` instead."""
    source = Path(codec.__file__).parents[1]
    uses = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if re.search(r"^\s*(import struct|from struct import)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert uses == set(BY_HAND)


def test_the_bytes_of_every_form() -> None:
    assert WHOLE.encode(SAMPLE).hex() == GOLDEN
    assert WHOLE.decode(bytes.fromhex(GOLDEN)) == SAMPLE


@given(st.binary(max_size=120))
def test_any_bytes_decode_or_raise_the_one_error(data: bytes) -> None:
    try:
        value = WHOLE.decode(data)
    except CodecError as error:
        assert str(error).split(":")[0] in ("whole", "part")
    else:
        assert len(WHOLE.encode(value)) == len(data)


LAYOUTS = (ACCOUNTS, APPOINTMENT, BROKER, FILED, LIMITS, RUNNING_SESSION, _CONNECTION, WHOLE)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.kind)
def test_any_bytes_are_refused_by_the_name_of_their_kind(layout: Layout[Any]) -> None:
    rng = random.Random(layout.kind)
    for _ in range(500):
        data = rng.randbytes(rng.randrange(100))
        try:
            layout.decode(data)
        except CodecError as error:
            assert ": " in str(error)


def test_every_prefix_of_a_structure_is_refused_by_its_field() -> None:
    layout = Layout("seat", Part, name=TEXT, size=U32)
    data = layout.encode(Part("ann", 7))
    fields = set()
    for end in range(len(data)):
        with pytest.raises(CodecError, match=r"^seat: (name|size): ") as raised:
            layout.decode(data[:end])
        fields.add(str(raised.value).split(": ")[1])
    assert fields == {"name", "size"}
    with pytest.raises(CodecError, match="seat: it goes on for 1 bytes after its end"):
        layout.decode(data + b"x")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"kind": "else"}, "whole: .*kind"),
        ({"word": 1 << 16}, "whole: .*word"),
        ({"name": "x" * 70_000}, "whole: name"),
        ({"counts": (-1,)}, "whole: counts"),
        ({"parts": (Part("a", -1),)}, "whole: parts: part: size"),
        ({"maybe": Part("a", 1 << 32)}, "whole: maybe: part: size"),
    ],
)
def test_a_value_that_does_not_fit_is_named_by_its_field(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        WHOLE.encode(SAMPLE._replace(**change))


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\2", "choice: value: 2 is none of 2 choices"),
        (b"\0\2", "choice: flag: 2 is neither 0 nor 1"),
        (b"\0\1\xff\xff\xff\xff", "choice: parts: 4294967295 of them do not fit into 0 bytes"),
        (b"\0\1\0\0\0\1\0\1\xff\0\0\0\0", "part: name: 'utf-8' codec can't decode"),
    ],
)
def test_what_cannot_be_is_named_by_its_field(data: bytes, problem: str) -> None:
    layout = Layout("choice", dict, value=choice("ab"), flag=BOOL, parts=many(PART), text=REST_TEXT)
    with pytest.raises(CodecError, match=problem):
        layout.decode(data.ljust(2, b"\0"))


def test_a_count_cannot_announce_more_than_there_is() -> None:
    """Nothing is allocated for what is not there."""
    for form in (many(U8), numbers(U64), pairs(U8, U8)):
        with pytest.raises(CodecError, match="do not fit into"):
            Layout("list", dict, values=form).decode(b"\xff\xff\xff\xff\0")


def test_a_broker_without_anything_has_one_record_that_counts() -> None:
    from surecast.protocol.broker.snapshot import records_of

    ((key, value),) = records_of(BrokerCore())
    assert key == b"B"
    assert BROKER.decode(value).counts == (0,) * 8
