"""Batches are what their packets are one by one: found in any stream, however cut, and whatever is made of them."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.seeds import seeds

from surecast.protocol.mqtt import (
    V5,
    V311,
    AckBatch,
    Packet,
    PacketDecoder,
    PacketError,
    Pingreq,
    Properties,
    Puback,
    Publish,
    PublishBatch,
    Pubrec,
    ReasonCode,
    encode,
)
from surecast.protocol.mqtt.batches import join

TOPICS = ("a/b", "b", "a/c", "long/" + "t" * 300)
SIZES = (0, 3, 20, 110, 121, 122, 123, 124, 130, 9_000)


def plain_decoder(version: int, **settings: Any) -> PacketDecoder:
    """A decoder that reads every message by the plain way."""
    decoder = PacketDecoder(version=version, **settings)
    decoder._learn = lambda field: None  # type: ignore[method-assign]
    return decoder


def outcome(decoder: PacketDecoder, *chunks: bytes) -> tuple[list[Packet], str]:
    packets: list[Packet] = []
    for chunk in chunks:
        try:
            packets += decoder.feed(chunk)
        except PacketError as error:
            return [*packets, *error.packets], str(error)
    return packets, ""


def traffic(drawn: random.Random, version: int, count: int, sizes: tuple[int, ...] = SIZES) -> list[Packet]:
    """What a busy client sends: mostly messages, of equal or of varying length, to one topic or to several."""
    packets: list[Packet] = []
    topic, qos, size, varies, alternates = "a/b", 1, 20, False, False
    while len(packets) < count:
        if drawn.random() < 0.1:
            topic, qos, size = drawn.choice(TOPICS), drawn.randrange(3), drawn.choice(sizes)
            varies, alternates = drawn.random() < 0.5, drawn.random() < 0.3
        what = drawn.random()
        if what < 0.03:
            packets += [Puback(drawn.randrange(1, 65_536)), Puback(7), Puback(8), Puback(9), Pingreq()]
            packets += [Puback(3), Pubrec(4), Puback(5)]
        properties = Properties(user=(("a", "b"),)) if version == V5 and 0.03 < what < 0.06 else Properties()
        packets.append(
            Publish(
                drawn.choice(TOPICS[:3]) if alternates else topic,
                drawn.randbytes(drawn.choice(sizes) if varies else size),
                qos,
                0.06 < what < 0.08,
                qos > 0 and 0.08 < what < 0.1,
                drawn.choice((1, 255, 256, 65_535, drawn.randrange(1, 65_536))) if qos else 0,
                properties,
            )
        )
    return packets


def batch_of(packets: list[Publish], version: int) -> PublishBatch:
    (batch,) = PacketDecoder(version=version).feed_batches(b"".join(encode(packet, version) for packet in packets))
    assert isinstance(batch, PublishBatch)
    return batch


@pytest.mark.parametrize("seed", seeds(10, range(30)))
def test_random_streams_are_read_as_by_the_plain_way(seed: int) -> None:
    drawn = random.Random(seed)
    version = drawn.choice((V311, V5))
    packets = traffic(drawn, version, 300)
    data = b"".join(encode(packet, version) for packet in packets)
    cuts = sorted(drawn.randrange(len(data)) for _ in range(drawn.choice((0, 1, 30))))
    chunks = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    assert outcome(PacketDecoder(version=version), *chunks) == outcome(plain_decoder(version), data) == (packets, "")


@pytest.mark.parametrize("seed", range(6))
def test_a_stream_may_be_cut_at_every_byte(seed: int) -> None:
    drawn = random.Random(seed)
    version = (V311, V5)[seed % 2]
    packets = traffic(drawn, version, 25, (0, 3, 5, 130))
    data = b"".join(encode(packet, version) for packet in packets)
    for at in range(len(data) + 1):
        assert outcome(PacketDecoder(version=version), data[:at], data[at:]) == (packets, "")
    assert outcome(PacketDecoder(version=version), *(data[at : at + 1] for at in range(len(data)))) == (packets, "")


@pytest.mark.parametrize("seed", seeds(10, range(40)))
def test_what_is_broken_is_noticed_at_the_same_place(seed: int) -> None:
    drawn = random.Random(seed)
    version = drawn.choice((V311, V5))
    data = bytearray(b"".join(encode(packet, version) for packet in traffic(drawn, version, 40, (0, 3, 5, 130))))
    for _ in range(30):
        broken = bytearray(data)
        at = drawn.randrange(len(data))
        broken[at] = drawn.choice((0, 0, broken[at] ^ 1 << drawn.randrange(8), drawn.randrange(256)))
        assert outcome(PacketDecoder(200, version), bytes(broken)) == outcome(
            plain_decoder(version, max_packet_size=200), bytes(broken)
        )


@pytest.mark.parametrize("seed", range(10))
def test_what_came_before_has_no_influence(seed: int) -> None:
    drawn = random.Random(seed)
    version = drawn.choice((V311, V5))
    decoder = PacketDecoder(version=version)
    for _ in range(20):
        data = b"".join(encode(packet, version) for packet in traffic(drawn, version, 20))
        assert decoder.feed_batches(data) == PacketDecoder(version=version).feed_batches(data)


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("count", [1, 2, 7, 8, 200, 700])
def test_all_messages_of_a_kind_are_one_batch(version: int, count: int) -> None:
    even = [Publish("a/b", b"%05d" % n, 1, packet_id=n + 1) for n in range(count)]
    batch = batch_of(even, version)
    assert batch.packets() == even
    assert isinstance(batch.ends, range) or count == 1
    varying = [Publish("a/b", b"x" * (n * 73 % 200), 1, packet_id=n + 1) for n in range(count)]
    assert batch_of(varying, version).packets() == varying
    mixed = [Publish(f"a/{n % 7}", b"x" * (n * 73 % 200), 1, packet_id=n + 1) for n in range(count)]
    batch = batch_of(mixed, version)
    assert batch.packets() == mixed
    assert len(batch.topics) == count


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("sizes", [(20,), (125,), (20, 20, 150, 3), (3, 122, 123, 124, 125, 126, 400, 16_000)])
@pytest.mark.parametrize("topics", [("a/b",), ("a/b", "a/b", "c")])
def test_what_is_made_of_a_part_is_made_of_its_packets(
    version: int, sizes: tuple[int, ...], topics: tuple[str, ...]
) -> None:
    packets = [
        Publish(topics[n % len(topics)], b"x" * sizes[n % len(sizes)], 1, packet_id=60_000 + n * 7) for n in range(12)
    ]
    batch = batch_of(packets, version)
    for begin in range(12):
        for stop in range(begin + 1, 13):
            some = packets[begin:stop]
            assert batch.bytes_of(begin, stop) == b"".join(encode(packet, version) for packet in some)
            assert batch.part(begin, stop) == batch_of(some, version)
            assert batch.part(begin, stop).packets() == some
            assert batch.sizes(begin, stop) == [2 + len(p.topic) + len(p.payload) for p in some]
            low = [Publish(packet.topic, packet.payload) for packet in some]
            assert batch.lowered(begin, stop) == b"".join(encode(packet, version) for packet in low)
            other = [Publish(p.topic, p.payload, 1, packet_id=250 + n) for n, p in enumerate(some)]
            assert batch.renumbered(250, begin, stop) == b"".join(encode(packet, version) for packet in other)
            for reason in (0, ReasonCode.NO_MATCHING_SUBSCRIBERS)[: 1 + (version == V5)]:
                answers = [encode(Puback(packet.packet_id, ReasonCode(reason)), version) for packet in some]
                assert batch.answers(begin, stop, reason) == b"".join(answers)
            fits = [len(encode(packet, version)) <= 150 for packet in some]
            assert batch.fit(150, begin, stop) == (fits.index(False) if False in fits else len(fits))
    assert [part.packets() for part in batch.by_topic()] == [
        packets[begin:stop] for _, begin, stop in batch.stretches()
    ]


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("size", [0, 1, 60, *range(112, 132), 300, *range(16_365, 16_380)])
def test_the_length_itself_may_get_shorter(version: int, size: int) -> None:
    drawn = random.Random(size)
    for count in (2, 17):
        packets = [Publish("bench/0", drawn.randbytes(size), 1, packet_id=n + 1) for n in range(count)]
        found = PacketDecoder(version=version).feed_batches(b"".join(encode(packet, version) for packet in packets))
        batches = [batch for batch in found if isinstance(batch, PublishBatch)]
        assert batches or size > 8_000
        for batch in batches:
            single = [encode(Publish(packet.topic, packet.payload), version) for packet in batch.packets()]
            assert batch.lowered(0, batch.count) == b"".join(single)


@pytest.mark.parametrize("seed", range(10))
def test_batches_are_joined(seed: int) -> None:
    drawn = random.Random(seed)
    version, qos = drawn.choice((V311, V5)), drawn.randrange(2)
    sizes = drawn.choice(((20,), (20, 130, 7)))
    all_packets: list[Publish] = []
    batches = []
    for _ in range(drawn.randrange(1, 6)):
        packets = [
            Publish("a/b", b"x" * drawn.choice(sizes), qos, packet_id=qos * drawn.randrange(1, 65_536))
            for _ in range(drawn.choice((1, 2, 9)))
        ]
        all_packets += packets
        batches.append(batch_of(packets, version))
    joined = join(batches)
    assert joined == batch_of(all_packets, version)
    assert [*joined.ids_at] == [*batch_of(all_packets, version).ids_at]
    assert joined.packets() == all_packets


@pytest.mark.parametrize("seed", seeds(10, range(20)))
def test_acknowledgements_are_found(seed: int) -> None:
    drawn = random.Random(seed)
    first = drawn.choice((1, 250, 65_000))
    identifiers = [first + n for n in range(drawn.choice((1, 2, 128, 129, 530)))]
    if drawn.random() < 0.5:
        identifiers[drawn.randrange(len(identifiers))] = 9
    data = b"".join(encode(Puback(identifier), V311) for identifier in identifiers)
    tail = drawn.choice((b"", b"\xc0\0", b"\x40", b"\x40\x02\0"))
    found = PacketDecoder(version=V311).feed_batches(data + tail)
    assert isinstance(found[0], AckBatch)
    assert [p for each in found if isinstance(each, AckBatch) for p in each.packet_ids] == identifiers
    if identifiers == [*range(first, first + len(identifiers))]:
        assert isinstance(found[0].packet_ids, range) or len(identifiers) == 1


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("count", [1, 2, 3, 16, 40])
def test_a_read_like_the_one_before_is_read_as_if_it_were_the_first(version: int, qos: int, count: int) -> None:
    def read(first: int = 200, topic: str = "a/b", size: int = 12, **more: Any) -> bytes:
        packets = [Publish(topic, b"x" * size, qos, packet_id=qos and first + n, **more) for n in range(count)]
        return b"".join(encode(packet, version) for packet in packets)

    data = read()
    length = len(data) // count
    others = [read(), read(255), read(topic="a/c"), read(retain=True), read(size=11), data[:-1] + b"y", data]
    for at in {0, count // 2, count - 1}:
        for place, byte in ((0, 0x30), (0, 0x3F), (1, 0x80), (3, 0), (7, 0), (8, 0), (9, 7), (7, 2)):
            changed = bytearray(data)
            changed[at * length + place] = byte
            others.append(bytes(changed))
            changed[at * length + 8] = 0
            others.append(bytes(changed))
    for other in others:
        decoder = PacketDecoder(version=version)
        assert decoder.feed_batches(data) == decoder.feed_batches(data)
        fresh = outcome(PacketDecoder(version=version), other)
        assert outcome(decoder, other) == fresh == outcome(plain_decoder(version), other)
    decoder = PacketDecoder(version=version)
    decoder.feed_batches(data)
    decoder.limit(length - 1)
    with pytest.raises(PacketError):
        decoder.feed_batches(data)
