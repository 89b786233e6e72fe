"""Frames and the hello: any bytes either are understood or raise PeerError."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surecast.broker.replica.client_wire import read_answers
from surecast.broker.replica.frames import HEAD_BYTES, FrameReader, begin_frame, frame
from surecast.broker.replica.handshake import Hello, RefusalError, Welcome, refusal, shake_hands, welcome
from surecast.errors import PeerError


@given(st.lists(st.binary(max_size=50)), st.lists(st.integers(1, 40)))
def test_frames_come_out_whole_however_the_stream_is_cut(contents: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(frame, contents))
    reader, found, at = FrameReader(50), list[bytes](), 0
    for size in [*cuts, len(stream) + 1]:
        found += reader.feed(stream[at : at + size])
        at += size
    assert found == contents


@given(st.binary(min_size=2, max_size=60), st.integers(0), st.integers(1, 255), st.integers(1))
def test_what_is_summed_is_never_taken_damaged(content: bytes, where: int, change: int, much: int) -> None:
    summed = 1 + much % (len(content) - 1)
    data = bytearray(begin_frame(content[:summed], len(content) - summed) + content[summed:])
    assert FrameReader(1000).feed(bytes(data)) == [content]
    data[where % (HEAD_BYTES + summed)] ^= change
    with suppress(PeerError):
        assert FrameReader(1000).feed(bytes(data)) == []


@given(st.binary(min_size=2, max_size=60))
def test_zeros_do_not_switch_the_check_off(content: bytes) -> None:
    data = bytearray(frame(content))
    data[4:HEAD_BYTES] = bytes(HEAD_BYTES - 4)
    with pytest.raises(PeerError, match="checksum"):
        FrameReader(1000).feed(bytes(data))


@given(st.binary(min_size=1, max_size=60), st.integers(0), st.integers(1, 255))
def test_a_damaged_frame_is_never_taken(content: bytes, where: int, change: int) -> None:
    data = bytearray(frame(content))
    data[where % len(data)] ^= change
    try:
        found = FrameReader(1000).feed(bytes(data))
    except PeerError:
        return
    assert content not in found


def test_a_frame_that_is_too_large_is_refused_before_it_is_there() -> None:
    with pytest.raises(PeerError, match="at most 10 are taken"):
        FrameReader(10).feed(frame(bytes(11))[:12])


def test_a_large_frame_in_many_pieces_is_joined_once() -> None:
    """The pieces are kept as they are: what the reader holds is what was fed, however many there are."""
    reader = FrameReader(1 << 20)
    stream = frame(bytes(1 << 20))
    pieces = [stream[at : at + 64] for at in range(0, len(stream), 64)]
    for piece in pieces[:-1]:
        assert reader.feed(piece) == []
    assert len(reader._pieces) >= len(pieces) - 2
    assert reader.feed(pieces[-1]) == [bytes(1 << 20)]


def test_what_comes_in_two_parts_may_be_read_in_place() -> None:
    data = begin_frame(b"summed ", 4) + b"rest" + frame(b"whole")
    reader = FrameReader(100)
    reader.in_place = True
    first, second = reader.feed(data)
    assert (bytes(first), type(first), second) == (b"summed rest", memoryview, b"whole")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_hello_or_an_error_of_the_peer(data: bytes) -> None:
    for content in (data, b"H" + data, b"H{" + data + b"}"):
        with pytest.raises(PeerError):
            Hello.decode(content)


@given(st.binary(max_size=60))
def test_any_bytes_are_answers_or_an_error_of_the_peer(data: bytes) -> None:
    try:
        list(read_answers(b"A" + data))
    except PeerError:
        pass


def meet(acceptor: bytes, dialler: bytes, tamper: bool = False) -> Welcome:
    """A hello between two ends with these secrets."""
    said: list[bytes] = []

    async def send(content: bytes) -> None:
        said.append(content)

    async def receive() -> bytes:
        if len(said) == 1:
            return b"C" + b"random"
        given = Welcome(2, 5, 64, {"1": ["a:1", None, 0, 0]})
        answer = welcome(acceptor, given, said[0], b"C" + b"random")
        return answer.replace(b"a:1", b"b:1") if tamper else answer

    return asyncio.run(shake_hands(send, receive, Hello("peer", "plant", 1, 0, "00"), dialler))


def test_both_ends_prove_the_secret() -> None:
    assert meet(b"secret", b"secret") == Welcome(2, 5, 64, {"1": ["a:1", None, 0, 0]})
    with pytest.raises(PeerError, match="same secret"):
        meet(b"other", b"secret")
    with pytest.raises(PeerError, match="same secret"):
        meet(b"secret", b"secret", tamper=True)


def test_a_refusal_says_why() -> None:
    async def send(content: bytes) -> None:
        assert content

    async def receive() -> bytes:
        return refusal("not today")

    with pytest.raises(RefusalError, match="not today"):
        asyncio.run(shake_hands(send, receive, Hello("peer", "plant", 1), b"secret"))
