"""A run at QoS 0 is what its packets would be one by one, also where the length field itself gets shorter."""

from __future__ import annotations

import random

import pytest

from surecast.protocol.mqtt import V5, V311, PacketDecoder, Publish, PublishRun, encode


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("size", [0, 1, 60, *range(112, 132), 300, *range(16_365, 16_380)])
def test_a_lowered_run_equals_its_packets(version: int, size: int) -> None:
    drawn = random.Random(size)
    for count in (2, 17):
        packets = [Publish("bench/0", drawn.randbytes(size), 1, packet_id=n + 1) for n in range(count)]
        found = PacketDecoder(version=version).feed_runs(b"".join(encode(packet, version) for packet in packets))
        runs = [run for run in found if isinstance(run, PublishRun)]
        assert runs or size > 8_000
        for run in runs:
            single = [encode(Publish(packet.topic, packet.payload), version) for packet in run.packets()]
            assert run.lowered() == b"".join(single)
