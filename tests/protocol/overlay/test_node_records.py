"""What a node has on disk comes back as it was; any other bytes are refused."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocol.overlay.overlay_world import World
from tests.protocol.overlay.written_frames import JOINTS, NAMES, U64, events
from tests.seeds import seeds

from surecast.protocol.codec import CodecError
from surecast.protocol.demand import SubscriptionRecord
from surecast.protocol.overlay.custody import HandledBatch, StoredBatch
from surecast.protocol.overlay.event_id import EventId
from surecast.protocol.overlay.node_records import is_node_record, node_records, read_node_record

FIRSTS = st.builds(EventId, NAMES, U64, U64)
HOPS = st.lists(st.tuples(NAMES, st.sampled_from((0, 1, 2))), min_size=1, max_size=3).map(tuple)
HELD = st.builds(
    lambda frame, hops: (("held", *frame.batch.first), StoredBatch(frame.tree, frame.batch, hops)), events(), HOPS
)
HANDLED = st.builds(
    lambda first, count, kind: ((kind, *first), HandledBatch(first, count, kind == "handled")),
    FIRSTS, st.integers(1, 1 << 20), st.sampled_from(("handled", "delivered")),
)  # fmt: skip
DEMAND = st.builds(
    lambda tree, name, joint, count: (("demand", tree, name, joint), count),
    st.integers(0, 15), NAMES, JOINTS, st.integers(1, 9),
)  # fmt: skip
SUBSCRIPTIONS = st.builds(
    lambda tree, home, joint, source, issued: (
        ("subscription", tree, home, joint), SubscriptionRecord(source, issued)
    ),
    st.integers(0, 15), NAMES, JOINTS, NAMES, st.tuples(U64, U64),
)  # fmt: skip
RECORDS = HELD | HANDLED | DEMAND | SUBSCRIPTIONS


@given(st.lists(RECORDS, max_size=5))
def test_records_come_back_as_they_were(journal: list[Any]) -> None:
    records = [*node_records(journal)]
    assert all(is_node_record(key) for key, _ in records)
    assert [read_node_record(key, value) for key, value in records if value is not None] == journal
    gone = [(key, None) for key, _ in journal]
    assert [*node_records(gone)] == [(key, None) for key, _ in records]


@given(RECORDS, st.integers(0, 1 << 32))
def test_any_record_is_read_or_refused(entry: Any, seed: int) -> None:
    random = Random(seed)
    ((key, value),) = node_records([entry])
    assert value is not None
    parts = [bytearray(key), bytearray(value)]
    for part in parts:
        if part and random.random() < 0.7:
            part[random.randrange(len(part))] = random.randrange(256)
        if part and random.random() < 0.3:
            del part[random.randrange(len(part)) :]
    with suppress(CodecError):
        read_node_record(bytes(parts[0]), bytes(parts[1]))


@pytest.mark.parametrize("seed", seeds(6, range(12)))
def test_a_world_whose_disks_are_bytes_keeps_what_it_must(seed: int) -> None:
    """As the worlds of nodes elsewhere, but all that a broker finds on its disk was written and read as records."""
    scheme = Random(seed).choice(("buffering", "bypass-buffering"))
    world = World(Random(seed), scheme, refresh="end-to-end" if seed % 2 else "link")
    start = world._start

    def start_from_bytes(name: str) -> None:
        machine = world.machines[name]
        records = [*node_records(machine.disk.items())]
        machine.disk = dict(read_node_record(key, value) for key, value in records if value is not None)
        start(name)

    world._start = start_from_bytes  # type: ignore[method-assign]
    for _ in range(250):
        world.step()
        assert world.problems() == []
    world.heal()
    assert world.problems() == []
    assert world.missing() == []
