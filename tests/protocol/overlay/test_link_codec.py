"""Frames as bytes: what is written is read, however it is cut, and any bytes are read or raise PeerError."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.protocol.overlay.written_frames import FRAMES, HELLOS, WRITTEN, events

from surecast.errors import PeerError
from surecast.protocol.link import LinkAck, LinkHello, NumberedFrame, SessionName
from surecast.protocol.mqtt import PacketDecoder, encode_publish
from surecast.protocol.overlay.event_bodies import MessageRun
from surecast.protocol.overlay.event_codec import EVENTS_MAX
from surecast.protocol.overlay.event_id import EventId
from surecast.protocol.overlay.frame_sizes import frame_bytes
from surecast.protocol.overlay.link_codec import FrameReader, write
from surecast.protocol.overlay.link_frames import OverlayHello
from surecast.protocol.overlay.overlay_frames import Detoured, EventBatch, Events, UnknownFrame

HELLO = OverlayHello("b1", "b2", 1, "00", LinkHello(SessionName(), SessionName(), 0, 100))


def outcome(chunks: list[bytes]) -> tuple[list[Any], str]:
    """What a reader yields, and the error that it ends with."""
    reader, received = FrameReader(), []
    try:
        for chunk in chunks:
            received += reader.feed(chunk)  # what came before the error is kept, as list += takes one after the other
    except PeerError as error:
        return received, str(error)
    return received, ""


def cut(data: bytes, places: list[int]) -> list[bytes]:
    bounds = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in pairwise(bounds)]


@given(HELLOS, st.lists(WRITTEN, max_size=4), st.lists(st.integers(0, 1 << 16), max_size=6))
def test_what_is_written_is_read_however_it_is_cut(hello: OverlayHello, written: list[Any], places: list[int]) -> None:
    data = write([hello, *written])
    assert outcome(cut(data, places)) == ([hello, *written], "")


@given(FRAMES)
def test_the_size_of_a_frame_is_that_of_its_bytes(frame: Any) -> None:
    assert frame_bytes(frame) == len(write([NumberedFrame(1, 0, 0, frame)]))


def mutated(data: bytes, random: Random) -> bytes:
    """The same bytes with a few set, taken out, or put in, lengths above all."""
    changed = bytearray(data)
    for _ in range(random.randrange(1, 4)):
        place = random.randrange(len(changed))
        draw = random.random()
        if draw < 0.6:
            changed[place] = random.choice((0, 1, 127, 128, 255, random.randrange(256)))
        elif draw < 0.8:
            del changed[place : place + random.randrange(1, 9)]
        else:
            changed[place:place] = random.randbytes(random.randrange(1, 9))
        if not changed:
            return b"\0"
    return bytes(changed)


@settings(max_examples=100)
@given(st.lists(WRITTEN, min_size=1, max_size=3), st.integers(0, 1 << 32))
def test_any_bytes_are_read_or_raise_peer_error_in_one_piece_as_byte_by_byte(written: list[Any], seed: int) -> None:
    data = write([HELLO]) + mutated(write(written), Random(seed))
    whole = outcome([data])
    assert outcome([data[n : n + 1] for n in range(len(data))]) == whole
    for each in whole[0]:
        if isinstance(each, NumberedFrame) and not isinstance(each.content, UnknownFrame):
            assert outcome([write([HELLO, each])])[1] == ""


@given(st.binary(max_size=300))
def test_any_bytes_at_all_are_read_or_raise_peer_error(data: bytes) -> None:
    assert outcome([data]) == outcome([data[n : n + 1] for n in range(len(data))])
    framed = write([HELLO]) + len(data).to_bytes(4, "big") + data
    assert outcome([framed]) == outcome([framed[n : n + 1] for n in range(len(framed))])


@given(events(), st.integers(0, 1 << 32))
def test_a_batch_that_is_taken_reaches_clients_as_the_publish_packets_that_it_claims_to_be(
    frame: Events, seed: int
) -> None:
    """Its bytes go to clients unread: whoever changes them between brokers must not be able to write other packets."""
    data = mutated(write([NumberedFrame(1, 0, 0, frame)]), Random(seed))
    for each in outcome([write([HELLO]) + data])[0][1:]:
        batch = each.content.batch if isinstance(each, NumberedFrame) and isinstance(each.content, Events) else None
        if batch is None or batch.body is None or isinstance(batch.body, MessageRun):
            continue
        body = batch.body
        decoder = PacketDecoder(version=5 if body.version_5 else 4)
        qos = body.flags[0]
        at_qos_1 = body.renumbered(1, 0, body.count) if qos else body.data
        packets = decoder.feed(at_qos_1)
        assert body.topics[0] == batch.topic
        assert [packet.topic for packet in packets] == [
            topic for topic, begin, stop in body.stretches() for _ in range(begin, stop)
        ]
        assert decoder.held_bytes == 0
        if qos:
            assert (
                len(PacketDecoder(version=5 if body.version_5 else 4).feed(body.lowered(0, body.count))) == body.count
            )


def test_optional_kinds_are_passed_over_and_count_as_frames() -> None:
    optional = (0xC0 | 5).to_bytes(1, "big") + (1).to_bytes(8, "big") + b"something of a later version"
    plain = b"\x90later"
    data = write([HELLO]) + b"".join(len(part).to_bytes(4, "big") + part for part in (optional, plain))
    received, error = outcome([data + write([LinkAck(3)])])
    assert error == ""
    assert [type(each) for each in received] == [OverlayHello, NumberedFrame, LinkAck]
    assert received[1].content == UnknownFrame(0xC5)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (write([LinkAck(1)]), "a hello is expected"),
        (write([HELLO, HELLO]), "no hello is expected"),
        (write([HELLO]) + b"\0\0\0\0", "a frame of 0 bytes"),
        (write([HELLO]) + b"\xff\xff\xff\xff", "a frame of 4294967295 bytes"),
        (b"\0\2\0\0\1", "a frame of 131072 bytes"),
        (write([HELLO]) + b"\0\0\0\1\x05", "kind 5, which is not known"),
        (write([HELLO]) + b"\0\0\0\x09\x7f" + bytes(8), "kind 127, which is not known"),
        (write([HELLO]) + b"\0\0\0\2\x41\0", "without a whole number"),
    ],
)
def test_what_may_not_come_is_refused_by_name(data: bytes, words: str) -> None:
    assert words in outcome([data])[1]


def one(**changes: Any) -> Events:
    return Events(0, replace(EventBatch(EventId("b1", 1, 1), 1, "t", 0.0, qos=1), **changes), "b1")


def test_lies_about_counts_take_no_memory_and_no_time() -> None:
    bodiless = write([HELLO, NumberedFrame(1, 0, 0, one(count=EVENTS_MAX))])
    assert "which there cannot be" in outcome([bodiless])[1]
    many_filters = b"\x43" + bytes(8) + b"\0" + b"\xff\xff\xff\xff"
    assert "do not fit" in outcome([write([HELLO]) + len(many_filters).to_bytes(4, "big") + many_filters])[1]
    inner: Any = one()
    data = write([NumberedFrame(1, 0, 0, Detoured("b1", (), "b2", inner))])
    nested = data[4:13]
    for _ in range(2000):
        nested = nested[:9] + b"\0\1a\0\1a\0\0\x42" + nested[9:]
    assert "a detour of a frame of kind 66" in outcome([write([HELLO]) + len(nested).to_bytes(4, "big") + nested])[1]


def test_a_batch_to_several_topics_is_refused_where_its_topics_do_not_fit() -> None:
    (mixed,) = PacketDecoder(version=4).feed_batches(
        b"".join(encode_publish(t, b"x", version=4) for t in (b"a", b"b", b"b"))
    )
    data = write([NumberedFrame(1, 0, 0, one(count=3, topic="a", qos=0, body=mixed))])
    at = data.index(b"\0\0\0\2\0\0\0\1\0\0\0\1b")
    for change, words in (
        (b"\0\0\0\4\0\0\0\1\0\0\0\1b", "3 to 4 topics"),
        (b"\0\0\0\1\0\0\0\1\0\0\0\1b", "3 to 1 topics"),
        (b"\0\0\0\2\0\0\0\1\0\0\0\0b", "do not begin one behind the other"),
        (b"\0\0\0\2\0\0\0\1\0\0\0\3b", "do not begin one behind the other"),
        (b"\0\0\0\2\0\0\0\1\0\0\0\2b", "no PUBLISH to its topic"),
        (b"\0\0\0\2\0\0\0\1\0\0\0\1c", "no PUBLISH to its topic"),
        (b"\0\0\0\2\0\0\0\1\0\0\0\1#", "their topics"),
        (b"\0\0\0\2\0\xff\0\1\0\0\0\1b", "go on to byte"),
    ):
        changed = data[:at] + change + data[at + len(change) :]
        assert words in outcome([write([HELLO]) + changed])[1], words


def test_times_are_set_by_the_clock_of_the_receiver() -> None:
    reader = FrameReader()
    reader.ahead_s = 2.5
    _, frame = reader.feed(write([HELLO, NumberedFrame(1, 0, 0, one(published_s=10.0, expires_s=20.0))]))
    assert isinstance(frame, NumberedFrame)
    batch = frame.content.batch
    assert (batch.published_s, batch.expires_s) == (7.5, 17.5)
