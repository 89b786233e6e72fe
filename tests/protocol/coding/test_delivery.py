"""Events through losses and recoding brokers, beside elimination done the slow way."""

from __future__ import annotations

import coding_oracle
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surecast.errors import ConfigurationError
from surecast.protocol.coding import CodingSettings, EventDecoder, EventEncoder, Packet, Recoder, VectorKind, encode
from surecast.protocol.coding.generation import Generation

SETTINGS = st.builds(
    CodingSettings,
    packets=st.integers(1, 7),
    redundancy=st.sampled_from([0.0, 0.5, 2.0]),
    field_bits=st.sampled_from([1, 4, 8]),
    packet_bytes=st.integers(1, 11),
    key=st.sampled_from([None, b"sixteen bytes ok"]),
)


def through_brokers(
    sent: list[Packet], hops: int, count: int, loss: float, settings: CodingSettings, generator: np.random.Generator
) -> list[Packet]:
    """What arrives after some brokers that each take what is not lost and send `count` fresh combinations of each
    generation; as packets that went over the wire."""
    for _ in range(hops):
        recoder = Recoder(settings)
        for packet in sent:
            if generator.random() >= loss:
                recoder.receive(encode(packet, settings))
        generations = recoder.layout.generations if recoder.layout else 0
        sent = [
            recoder.packet(int(generator.integers(1 << 62)), number)
            for number in range(generations)
            if recoder.rank_of(number)
            for _ in range(count)
        ]
    return [packet for packet in sent if generator.random() >= loss]


@settings(max_examples=100)
@given(
    settings=SETTINGS,
    data=st.binary(max_size=90),
    hops=st.integers(0, 3),
    loss=st.sampled_from([0.0, 0.2, 0.5]),
    seed=st.integers(0, 1 << 32),
)
def test_what_arrives_is_decoded_exactly_as_far_as_its_rank_allows(
    settings: CodingSettings, data: bytes, hops: int, loss: float, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    bits = settings.field_bits
    sent = list(EventEncoder(5, data, settings, seed).packets())
    arrived = through_brokers(sent, hops, settings.packets + 2, loss, settings, generator)
    generator.shuffle(arrived)
    decoder = EventDecoder(settings, 5)
    rows: dict[int, list[list[int]]] = {}
    for packet in arrived:
        mine = rows.setdefault(packet.generation, [])
        before = coding_oracle.rank(mine, bits)
        mine.append([*packet.vector(bits).tolist(), *coding_oracle.symbols(packet.payload, bits)])
        after = len(coding_oracle.reduced(mine, packet.packets, bits))
        assert decoder.receive(encode(packet, settings)) == (after > before)
    assert not decoder.rejected
    assert decoder.innovative + decoder.redundant == len(arrived)
    assert decoder.prefix() == slow_prefix(decoder, rows, bits)
    assert data.startswith(decoder.prefix())
    if decoder.layout is not None:
        assert decoder.missing == decoder.layout.packets - sum(
            len(coding_oracle.reduced(mine, decoder.layout.packets_in(number), bits)) for number, mine in rows.items()
        )
    if decoder.complete:
        assert decoder.data() == data
    else:
        with pytest.raises(ConfigurationError, match="missing"):
            decoder.data()


def slow_prefix(decoder: EventDecoder, rows: dict[int, list[list[int]]], bits: int) -> bytes:
    """The in-order part that the reduced matrices determine."""
    layout, found = decoder.layout, b""
    if layout is None:
        return found
    for number in range(layout.generations):
        packets = layout.packets_in(number)
        solved = {
            row[:packets].index(1): coding_oracle.payload_of(row[packets:], bits)
            for row in coding_oracle.reduced(rows.get(number, []), packets, bits)
            if sum(value != 0 for value in row[:packets]) == 1
        }
        for position in range(packets):
            if position not in solved:
                return found[: layout.size]
            found += solved[position]
    return found[: layout.size]


@pytest.mark.parametrize("bits", [1, 4, 8])
@pytest.mark.parametrize(("packets", "length"), [(16, 1000), (64, 1024), (100, 333)])
def test_large_generations_survive_loss_and_three_recoding_brokers(bits: int, packets: int, length: int) -> None:
    settings = CodingSettings(packets=packets, redundancy=1.0, field_bits=bits, packet_bytes=length)
    generator = np.random.default_rng(packets + bits)
    data = generator.bytes(2 * packets * length - 17)
    arrived = through_brokers(
        list(EventEncoder(9, data, settings, 3).packets()), 3, int(1.6 * packets) + 12, 0.2, settings, generator
    )
    decoder = EventDecoder(settings)
    for packet in arrived:
        decoder.add(packet)
    assert decoder.complete
    assert decoder.data() == data


def test_plain_packets_are_usable_at_once_and_in_order() -> None:
    settings = CodingSettings(packets=4, packet_bytes=3)
    encoder = EventEncoder(1, b"abcdefghijkl", settings, seed=1)
    decoder = EventDecoder(settings)
    plain = encoder.plain()
    seen = []
    for packet in (plain[0], plain[2], plain[1]):
        decoder.add(packet)
        seen.append(decoder.prefix())
    assert seen == [b"abc", b"abc", b"abcdefghi"]
    assert decoder.prefix(start=4) == b"efghi"
    assert decoder.prefix(start=12) == b""
    assert decoder.add(encoder.coded(1)[0])
    assert decoder.prefix(start=9) == b"jkl"


def test_a_late_plain_packet_frees_the_row_that_stood_for_it() -> None:
    generation = Generation(3, 1, field_bits=8)
    assert generation.add_coded(np.array([1, 1, 1], dtype=np.uint8), b"\x07")
    assert generation.add_plain(0, b"\x01")
    assert generation.add_coded(np.array([0, 1, 0], dtype=np.uint8), b"\x02")
    assert generation.complete
    assert generation.all_plain() == b"\x01\x02\x04"
    assert not generation.add_plain(2, b"\x04")


def test_a_plain_packet_that_could_be_computed_is_not_innovative() -> None:
    generation = Generation(3, 1, field_bits=8)
    generation.add_coded(np.array([1, 1, 0], dtype=np.uint8), b"\x03")
    generation.add_coded(np.array([1, 2, 0], dtype=np.uint8), b"\x05")
    assert not generation.add_plain(0, b"\x01")
    assert (generation.rank, generation.known(1), generation.plain(1)) == (2, True, b"\x02")


def test_generations_without_payload_count_ranks() -> None:
    generation = Generation(2, 0, field_bits=4)
    assert generation.add_coded(np.array([3, 4], dtype=np.uint8), b"")
    assert generation.add_plain(1, b"")
    assert generation.complete
    assert generation.recode(seed=2)[1] == b""


@pytest.mark.parametrize("field_bits", [1, 4, 8])
def test_a_recoded_packet_is_never_empty(field_bits: int) -> None:
    settings = CodingSettings(packets=1, packet_bytes=4, field_bits=field_bits)
    for make in (Recoder(settings), EventDecoder(settings)):
        make.add(EventEncoder(1, b"data", settings, seed=0).plain()[0])
        for seed in range(40):
            assert make.packet(seed).vector(field_bits).any()


def test_a_decoder_recodes_for_others_before_and_after_it_is_complete() -> None:
    settings = CodingSettings(packets=6, packet_bytes=4)
    data = b"four and twenty bytes, ."
    encoder = EventEncoder(1, data, settings, seed=4)
    first, second = EventDecoder(settings), EventDecoder(settings)
    for packet in (*encoder.plain()[:2], *encoder.coded(2)):
        first.add(packet)
    for seed in range(6):
        second.add(first.packet(seed))
    assert second.rank == first.rank == 4
    for packet in encoder.plain():
        first.add(packet)
    assert first.data() == data
    for seed in range(6, 12):
        second.add(first.packet(seed))
    assert second.data() == data


def test_coded_packets_are_fresh_each_time_and_repeat_with_the_seed() -> None:
    settings = CodingSettings(packets=8, packet_bytes=2)
    one, other = (EventEncoder(1, bytes(16), settings, seed=11) for _ in range(2))
    seeds = [packet.seed for packet in (*one.coded(50), *one.coded(50))]
    assert len(set(seeds)) == 100
    assert seeds == [packet.seed for packet in other.coded(100)]
    assert all(packet.kind is VectorKind.SEEDED for packet in one.coded())


def test_there_is_nothing_to_recode_before_a_packet_came() -> None:
    with pytest.raises(ConfigurationError, match="no packet of generation 0 to recode"):
        Recoder(CodingSettings()).packet(seed=1)
    with pytest.raises(ConfigurationError, match="4 generations, and none numbered 4"):
        EventEncoder(1, bytes(128_000), CodingSettings(), seed=1).coded(1, generation=4)


@given(size=st.integers(0, 4000), settings=SETTINGS)
def test_an_event_is_cut_evenly(size: int, settings: CodingSettings) -> None:
    encoder = EventEncoder(1, bytes(size), settings, seed=1)
    layout = encoder.layout
    counts = [layout.packets_in(number) for number in range(layout.generations)]
    assert sum(counts) == layout.packets == len(encoder.plain())
    assert max(counts) <= settings.packets
    assert max(counts) - min(counts) <= 1
    assert [layout.first_of(number) for number in range(layout.generations)] == np.cumsum([0, *counts[:-1]]).tolist()
    assert size <= layout.packets * layout.payload_bytes
    assert layout.payload_bytes <= settings.packet_bytes
