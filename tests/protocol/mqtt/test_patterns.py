"""A decoder that expects more of the same finds what it would have found without."""

from __future__ import annotations

import random

import pytest

from surecast.protocol.mqtt import (
    V5,
    V311,
    AckRun,
    Packet,
    PacketDecoder,
    PacketError,
    Pingreq,
    Properties,
    Puback,
    Publish,
    PublishRun,
    ReasonCode,
    encode,
)
from surecast.protocol.mqtt.runs import run_of_one

Found = list[Packet | PublishRun | AckRun]


def messages(version: int, qos: int, count: int, *, topic: str = "a/b", size: int = 9, first: int = 1) -> bytes:
    return b"".join(
        encode(Publish(topic, b"%d" % n + b"." * size, qos, packet_id=n if qos else 0), version)
        for n in range(first, first + count)
    )


def expecting(version: int, data: bytes) -> PacketDecoder:
    """A decoder that expects more like some data."""
    decoder = PacketDecoder(version=version)
    (run,) = decoder.feed_runs(data)
    if isinstance(run, Publish):
        run = run_of_one(run, version == V5) or run
    assert isinstance(run, PublishRun)
    decoder.expect(run)
    return decoder


def singles(found: Found) -> list[Packet]:
    return [p for each in found for p in (each.packets() if isinstance(each, (PublishRun, AckRun)) else [each])]


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("count", [1, 2, 16, 64])
@pytest.mark.parametrize("expected", [1, 3])
def test_more_of_the_same(version: int, qos: int, count: int, expected: int) -> None:
    decoder = expecting(version, messages(version, qos, expected, first=100))
    data = messages(version, qos, count, first=200)
    (found,) = PacketDecoder(version=version).feed_runs(data)
    wanted = run_of_one(found, version == V5) if isinstance(found, Publish) else found
    for _ in range(2):
        pattern = decoder.more(data)
        assert pattern is not None
        assert pattern.run(data) == wanted
    assert decoder.feed_runs(data) == [found]


@pytest.mark.parametrize("version", [V311, V5])
def test_everything_else_is_left_to_the_usual_way(version: int) -> None:
    data = messages(version, 1, 3, first=100)
    decoder = expecting(version, data)
    length = len(data) // 3
    special = encode(Publish("a/b", b"100" + b"." * 9, 1, True, packet_id=7), version)
    assert len(special) == length
    others = [
        b"", data[:-1], data + b"\x30", data[1:], data[:length] + special + data[:length], special, data * 30,
        messages(version, 1, 3, topic="a/c", first=100), messages(version, 1, 3, size=8, first=100),
        messages(version, 0, 3, size=11, first=100), data + encode(Pingreq(), version), b"\xc0\x00",
    ]  # fmt: skip
    for other in others:
        assert decoder.more(other) is None
        assert decoder.held_bytes == 0
    assert decoder.more(data) is not None


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("count", [1, 3])
def test_an_identifier_of_zero_is_not_overlooked(version: int, at: int, count: int) -> None:
    data = messages(version, 1, count, first=255)
    decoder = expecting(version, messages(version, 1, 1, first=255))
    assert decoder.more(data) is not None  # 256 has a zero in it
    length = len(data) // count
    id_at = data.index(b"a/b") + 3 + at % count * length
    wrong = data[:id_at] + b"\0\0" + data[id_at + 2 :]
    assert decoder.more(wrong) is None
    with pytest.raises(PacketError):
        decoder.feed_runs(wrong)
    assert decoder.more(data) is None


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_properties_are_not_overlooked(qos: int, at: int) -> None:
    plain = Publish("a/b", b"12345678", qos, packet_id=7 * qos)
    special = Publish("a/b", b"123", qos, packet_id=7 * qos, properties=Properties(message_expiry_s=9))
    assert len(encode(plain, V5)) == len(encode(special, V5))
    packets = [special if n == at else plain for n in range(3)]
    data = b"".join(encode(packet, V5) for packet in packets)
    decoder = expecting(V5, encode(plain, V5))
    assert decoder.more(data) is None
    assert decoder.more(encode(special, V5)) is None
    assert [p.properties for p in singles(decoder.feed_runs(data)) if isinstance(p, Publish)] == [
        p.properties for p in packets
    ]


def test_the_beginning_of_a_packet_and_another_limit_end_what_is_expected() -> None:
    data = messages(V311, 1, 3, first=100)
    decoder = expecting(V311, data)
    assert decoder.feed_runs(data[:5]) == []
    assert decoder.more(data) is None
    assert decoder.feed_runs(data[5:]) == PacketDecoder(version=V311).feed_runs(data)
    assert decoder.more(data) is not None
    decoder.limit(len(data) // 3 - 1)
    assert decoder.more(data) is None
    with pytest.raises(PacketError) as raised:
        decoder.feed_runs(data)
    assert raised.value.reason_code == ReasonCode.PACKET_TOO_LARGE


@pytest.mark.parametrize("seed", range(30))
def test_random_streams(seed: int) -> None:
    drawn = random.Random(seed)
    version = drawn.choice((V311, V5))
    plain, expectant = PacketDecoder(version=version), PacketDecoder(version=version)
    expected: Found = []
    found: Found = []
    more, topic, qos, size = 0, "a/b", 1, 20
    for _ in range(300):
        if drawn.random() < 0.1:
            topic, qos, size = drawn.choice(("a/b", "b", "a/c")), drawn.randrange(3), drawn.choice((0, 20, 120, 9_000))
        data = messages(version, qos, drawn.choice((1, 2, 16, 70)), topic=topic, size=size, first=1_000)
        cut = drawn.randrange(len(data)) if drawn.random() < 0.1 else 0
        for part in (data[:cut], data[cut:]):
            expected += plain.feed_runs(part)
            pattern = expectant.more(part)
            if pattern is not None:
                more += 1
                found.append(pattern.run(part))
                continue
            got = expectant.feed_runs(part)
            found += got
            last = got[-1] if got else None
            if isinstance(last, Publish):
                last = run_of_one(last, version == V5)
            if isinstance(last, PublishRun):
                expectant.expect(last)
    assert singles(found) == singles(expected)
    assert more > 50


@pytest.mark.parametrize("count", [1, 2, 16, 300])
def test_the_answers_to_a_run_are_its_acknowledgements(count: int) -> None:
    for version, reason in ((V311, 0), (V5, 0), (V5, ReasonCode.NO_MATCHING_SUBSCRIBERS)):
        data = messages(version, 1, 1, first=1_000)
        pattern = expecting(version, data).more(data)
        run = None if pattern is None else pattern.run(data)
        if count > 1:
            (found,) = PacketDecoder(version=version).feed_runs(messages(version, 1, count, first=1_000))
            run = found if isinstance(found, PublishRun) else None
        assert run is not None
        single = [encode(Puback(1_000 + n, ReasonCode(reason)), version) for n in range(count)]
        assert run.answers(reason) == b"".join(single)


def test_a_pattern_remembers_few_sizes_of_bursts() -> None:
    data = messages(V311, 1, 64, first=1_000)
    pattern = expecting(V311, data).more(data)
    assert pattern is not None
    length = pattern.length
    assert all(pattern.fits(data[: count * length]) for count in (*range(1, 65), 2, 16))
    assert len(pattern._known) <= 4
    assert pattern is expecting(V311, data[: 3 * length]).more(data)  # equal ones are one
