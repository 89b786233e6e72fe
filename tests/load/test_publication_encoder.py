"""Publications of the generator as the packet decoder of the broker reads them."""

from __future__ import annotations

import struct

import pytest

from surecast.load import BrokerAccess, LoadPlan
from surecast.load.publication_encoder import HEADER, PublicationEncoder
from surecast.protocol.mqtt import V5, V311, PacketDecoder, Publish


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize(("size", "size_max"), [(20, 0), (64, 0), (120, 300), (20_000, 0)])
def test_the_broker_reads_what_was_meant(version: int, qos: int, size: int, size_max: int) -> None:
    plan = LoadPlan(
        BrokerAccess("localhost", 1883, version), qos=qos, size_bytes=size, size_max_bytes=size_max, retain=True
    )
    encoder = PublicationEncoder(plan, 9, 3)
    dues_ns = [10**15 + 7_000 * number for number in range(20)]
    identifiers = list(range(65_000, 65_020)) if qos else []
    data = encoder.encode_row(identifiers, 250, dues_ns, dues_ns[-1] + 5_000)
    decoder = PacketDecoder(version=version, side="server")
    packets = decoder.feed(data)
    assert len(packets) == 20
    for at, packet in enumerate(packets):
        assert isinstance(packet, Publish)
        assert (packet.topic, packet.qos, packet.retain) == (plan.topic(3), qos, True)
        assert packet.packet_id == (identifiers[at] if qos else 0)
        assert size <= len(packet.payload) <= max(size, size_max)
        stream, number, due_ns, late_us = struct.unpack_from(f">{HEADER}", packet.payload)
        assert (stream, number, due_ns) == (9, 250 + at, dues_ns[at])
        assert late_us == (dues_ns[-1] + 5_000 - due_ns) // 1000


def test_sizes_vary_between_their_bounds_and_are_the_same_for_a_seed() -> None:
    plan = LoadPlan(BrokerAccess("localhost", 1883), size_bytes=30, size_max_bytes=90, seed=4)
    sizes = [len(PublicationEncoder(plan, 1, 0).encode(0, 0, 0, 0)) for _ in range(3)]
    assert len(set(sizes)) == 1
    encoder = PublicationEncoder(plan, 1, 0)
    assert len({len(encoder.encode(0, number, 0, 0)) for number in range(64)}) > 20
