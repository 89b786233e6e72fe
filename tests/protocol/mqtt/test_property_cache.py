"""The short cut for properties that were read before gives what the plain way gives, whatever comes and however cut."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surecast.protocol.mqtt import V5, Connect, PacketDecoder, PacketError, Properties, Publish, encode
from surecast.protocol.mqtt import decode as module

HELLO = encode(Connect("c", version=V5), V5)
TEXT = st.text(alphabet="abé", max_size=4)
PROPERTIES = st.builds(
    Properties,
    payload_format=st.sampled_from([None, 0, 1]),
    message_expiry_s=st.sampled_from([None, 0, 7]),
    content_type=st.none() | TEXT,
    correlation_data=st.none() | st.binary(max_size=3),
    topic_alias=st.sampled_from([None, None, 3]),
    user=st.lists(st.tuples(TEXT, TEXT), max_size=2).map(tuple),
)
PUBLISH = st.builds(
    lambda topic, payload, qos, dup, properties: Publish(
        topic, payload, qos, False, dup and qos > 0, 5 if qos else 0, properties
    ),
    st.sampled_from(["a", "b/c"]),
    st.binary(max_size=5),
    st.integers(0, 2),
    st.booleans(),
    PROPERTIES,
)


class Plain(PacketDecoder):
    """A decoder that remembers nothing."""

    def _learn(self, field: bytes) -> None:
        return None

    def _remember(self, packet: Publish) -> None:
        pass


def parts(packets: list[Any]) -> list[Any]:
    return [(p, p.raw, p.raw_properties, vars(p.properties)) if isinstance(p, Publish) else p for p in packets]


def outcome(decoder: PacketDecoder, chunks: list[bytes]) -> tuple[list[Any], str]:
    packets: list[Any] = []
    for chunk in chunks:
        try:
            packets += decoder.feed(chunk)
        except PacketError as error:
            return parts([*packets, *error.packets]), str(error)
    return parts(packets), ""


@settings(max_examples=100, deadline=None)
@given(st.lists(PUBLISH, min_size=1, max_size=6), st.integers(1, 40), st.data())
def test_packets_seen_before_are_read_as_if_they_were_new(sent: list[Publish], size: int, data: st.DataObject) -> None:
    stream = HELLO + b"".join(encode(packet, V5) for packet in [*sent, *sent, *sent[::-1]])
    if data.draw(st.booleans(), "damage"):
        at = data.draw(st.integers(len(HELLO), len(stream) - 1), "at")
        stream = stream[:at] + bytes((data.draw(st.integers(0, 255), "byte"),)) + stream[at + 1 :]
    chunks = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert outcome(PacketDecoder(), chunks) == outcome(Plain(), chunks) == outcome(Plain(), [stream])


def test_a_block_that_runs_over_the_end_of_its_packet_is_no_hit() -> None:
    properties = Properties(user=(("ab", "cd"),))
    good = encode(Publish("t", b"payload", properties=properties), V5)
    decoder = PacketDecoder()
    assert len(decoder.feed(HELLO + good * 3)) == 4
    # The same bytes, but the packet ends in the middle of the block, and the rest is that of a next packet.
    cut = bytes((0x30, 8)) + good[2:]
    with pytest.raises(PacketError, match="the properties have"):
        decoder.feed(cut)


def test_the_memory_of_a_connection_is_bounded() -> None:
    decoder = PacketDecoder()
    decoder.feed(HELLO)
    for number in range(500):
        for pad in ("", "x" * 200):
            sent = Publish("t", b"1", properties=Properties(user=((str(number), pad),)))
            assert decoder.feed(encode(sent, V5)) == [sent]
    assert 0 < len(decoder._properties) <= module._CACHED_PROPERTIES
    assert max(map(len, decoder._properties)) <= 127
