"""Any bytes either decode or raise PeerError, and what was encoded decodes to the same."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surecast.errors import PeerError
from surecast.protocol.paxos import decode, encode
from surecast.protocol.paxos import paxos_messages as m
from surecast.protocol.paxos.log_values import join_segments, make_segment, pack_requests, segments_of, walk
from surecast.protocol.paxos.wire import VERSION, encode_parts

REQUESTS = pack_requests([(7, 1, b"command"), (8, 2, b"")])
SEGMENT = make_segment(3, 1 << 40, REQUESTS).whole()
VALUE = join_segments(123_456, [make_segment(3, 1 << 40, REQUESTS), make_segment(2, 5, REQUESTS)])
MESSAGES: list[m.Message] = [
    m.Heartbeat(6, True, 4, 1, 0, False, 6, 5, -5, 7, 9),
    m.PreVote(6),
    m.Grant(6),
    m.Prepare(6),
    m.Promise(6, 4, ((5, 3, b"v"), (6, 2, b""))),
    m.Reject(6),
    m.Accept(6, 5, 4, VALUE),
    m.Accept(6, 5, 4, b""),
    m.Accepted(6, 4, (5, 7)),
    m.Chosen(6, 4, 5, 14),
    m.Propose(6, 5, VALUE),
    m.Voted(6, 5, bytes(16), VALUE),
    m.Voted(6, 5, bytes(16), None),
    m.Close(6, (5, 6)),
    m.Closed(6, 5, 0, None),
    m.Closed(6, 5, 6, b""),
    m.Forward((SEGMENT, SEGMENT)),
    m.Fetch(5, 0, 0),
    m.Entries(5, 9, (VALUE, b"")),
    m.SnapshotPart(9, 100, 50, bytes(16), b"data"),
    m.Checkpoint(32, bytes(range(16))),
    m.Rejoin(3, 6, 5, 4, bytes(16), (7, 8)),
    m.Admit(7, 4, bytes(16)),
    m.Refuse(7, 5, 50, 40),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_what_was_encoded_decodes_to_the_same(message: m.Message) -> None:
    assert decode(encode(message)) == message
    seen = decode(memoryview(encode(message)))
    assert seen == message
    if isinstance(seen, m.Accept | m.Propose):
        assert type(seen.value) is bytes  # it outlives what it was read from


@pytest.mark.parametrize("piece", [b"", SEGMENT[:13], SEGMENT[:-1], SEGMENT + b"x", SEGMENT + SEGMENT])
def test_what_is_forwarded_is_whole_segments(piece: bytes) -> None:
    with pytest.raises(PeerError, match="paxos"):
        decode(encode(m.Forward((SEGMENT, piece))))


def test_every_kind_of_message_is_covered() -> None:
    assert {type(message) for message in MESSAGES} == set(m.Message.__args__)  # type: ignore[attr-defined]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.integers(0, 255), st.binary(max_size=80))
def test_any_bytes_decode_or_raise_peer_error(kind: int, rest: bytes) -> None:
    try:
        decode(bytes((VERSION, kind % 20)) + rest)
    except PeerError:
        pass


def test_damaged_messages_decode_or_raise_peer_error_and_never_hold_a_batch_that_cannot_be_walked() -> None:
    rng = random.Random(1)
    for _ in range(4_000):
        data = bytearray(encode(rng.choice(MESSAGES)))
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            message = decode(bytes(data[: rng.randint(0, len(data))] if rng.random() < 0.5 else data))
        except PeerError:
            continue
        if isinstance(message, m.Accept | m.Propose):
            walk_all(message.value)


def walk_all(value: bytes) -> None:
    for _, _, at in segments_of(value):
        assert all(begin <= end <= len(value) for _, _, begin, end in walk(value, at))


def test_a_value_that_cannot_be_walked_is_refused_though_its_checksum_is_right() -> None:
    rng = random.Random(2)
    taken = refused = 0
    for _ in range(2_000):
        value = bytearray(VALUE)
        for _ in range(rng.randint(1, 3)):
            value[rng.randrange(len(value))] = rng.randrange(256)
        damaged = bytes(value[: rng.randint(1, len(value))] if rng.random() < 0.3 else value)
        try:
            message = decode(encode(m.Accept(6, 5, 4, damaged)))
        except PeerError:
            refused += 1
            continue
        assert isinstance(message, m.Accept)
        walk_all(message.value)
        taken += 1
    assert taken > 100
    assert refused > 100


def test_damage_to_a_value_that_the_shell_did_not_sum_is_noticed() -> None:
    head, value = encode_parts(m.Accept(6, 5, 4, VALUE))
    data, begin = head + value, len(head)
    assert value == VALUE
    assert data == encode(m.Accept(6, 5, 4, VALUE))
    for at in range(begin, len(data)):
        with pytest.raises(PeerError, match="checksum"):
            decode(data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :])
    for one in MESSAGES:
        assert bool(encode_parts(one)[1]) == (isinstance(one, m.Accept | m.Propose) and bool(one.value))
