"""Strategies for all that goes over a connection between brokers."""

from __future__ import annotations

from math import inf
from typing import Any

from hypothesis import strategies as st

from surecast.protocol.demand import (
    DemandBucket,
    DemandChange,
    DemandHashes,
    DemandUpdate,
    JointFilter,
    Members,
    Subscription,
)
from surecast.protocol.filters import Filter, above, at_most, between, equals
from surecast.protocol.link import LinkAck, LinkHello, NumberedFrame, SessionName
from surecast.protocol.mqtt import PublishBatch, encode_publish
from surecast.protocol.overlay.event_bodies import BatchedMessage, MessageRun
from surecast.protocol.overlay.event_id import EventId
from surecast.protocol.overlay.frame_rules import lane_of
from surecast.protocol.overlay.frame_sizes import frame_bytes
from surecast.protocol.overlay.link_frames import OverlayHello, Ping, Pong
from surecast.protocol.overlay.overlay_frames import (
    Detoured,
    EventBatch,
    Events,
    LinkStates,
    MapBucket,
    MapEntries,
    MapForget,
    MapKey,
    MapSums,
    Marker,
    NodeState,
)

U64 = st.integers(0, (1 << 64) - 1)
U16 = st.integers(0, (1 << 16) - 1)
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=12)
LEVELS = st.text(st.characters(exclude_characters="+#/", exclude_categories=["Cs", "Cc", "Cn"]), max_size=8)
TOPICS = st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(bool)
FILTERS = TOPICS | st.just("#") | TOPICS.map(lambda topic: f"{topic}/+/#")
TIMES = st.floats(0, 2e9)
VALUES = st.integers(-(10**300), 10**300) | st.floats(-1e300, 1e300) | st.text(max_size=10) | st.just("\ud83d")
ATTRIBUTES = st.dictionaries(NAMES, VALUES, max_size=3)
SESSIONS = st.builds(SessionName, U64, U64)
CREDIT = st.lists(st.tuples(st.integers(0, 16), U64), max_size=4).map(tuple)
PAYLOADS = st.binary(max_size=200)


@st.composite
def publish_batches(draw: Any, topic: str) -> PublishBatch:
    """Packets as the decoder of a client makes them, equally long or not, to one topic or more."""
    version_5, qos, retain = draw(st.booleans()), draw(st.sampled_from((0, 1, 2))), draw(st.booleans())
    sizes = draw(st.lists(st.integers(0, 300), min_size=1, max_size=12)) if draw(st.booleans()) else [40] * 12
    topics = [topic, *draw(st.lists(TOPICS | st.just(topic), max_size=len(sizes) - 1))]
    firsts = sorted(draw(st.permutations(range(1, len(sizes))))[: len(topics) - 1])
    topic_of = [topics[sum(first <= number for first in firsts)] for number in range(len(sizes))]
    packets = [
        encode_publish(topic_of[number].encode(), bytes(size), qos, retain, False, number + 1, version=4 + version_5)
        for number, size in enumerate(sizes)
    ]
    ends = [sum(map(len, packets[: n + 1])) for n in range(len(packets))]
    data, length = b"".join(packets), len(packets[0])
    if len(topics) > 1:
        ids_at = [end - size - 2 - version_5 for end, size in zip(ends, sizes, strict=True)] if qos else ()
        return PublishBatch(data, data[0], version_5, tuple(topics), (0, *firsts), ends, ids_at)
    is_equal = len(packets) > 8 and all(len(packet) == length for packet in packets)
    places = range(length, len(data) + 1, length) if is_equal else ends
    return PublishBatch(data, data[0], version_5, (topic,), (0,), places, None if qos else ())


RUNS = st.lists(
    st.builds(BatchedMessage, st.booleans(), TIMES | st.just(inf), st.binary(max_size=30), PAYLOADS),
    min_size=1,
    max_size=5,
).map(MessageRun.of)


SHARED = st.just(()) | st.tuples(
    st.builds("$share/{}/{}".format, NAMES.filter(lambda name: not set("+#/") & set(name)), FILTERS), NAMES,
    st.integers(0, 16),
)  # fmt: skip
"""What events for a member of a shared subscription have more; nothing for others."""


@st.composite
def events(draw: Any) -> Events:
    topic = draw(TOPICS)
    body = draw(st.none() | publish_batches(topic) | RUNS)
    count = draw(st.integers(1, 5)) if body is None else len(body.ends)
    attributes = tuple(draw(ATTRIBUTES) for _ in range(count)) if draw(st.booleans()) else ()
    first = EventId(draw(NAMES), draw(U64), draw(U64))
    expires_s, qos = draw(TIMES | st.just(inf)), draw(st.sampled_from((0, 1, 2)))
    publisher = draw(st.just("") | NAMES | st.just("ann\0till-7"))
    names = draw(st.none() | st.lists(NAMES, max_size=3).map(tuple))
    stamp = draw(st.sampled_from((0, 1, 1 << 62))) if not isinstance(body, PublishBatch) else 0
    batch = EventBatch(
        first, count, topic, draw(TIMES), expires_s, qos, attributes, body, publisher, names, stamp,
        bool(stamp) and draw(st.booleans()), *(draw(SHARED) if not stamp else ()),
    )  # fmt: skip
    return Events(draw(st.integers(0, 15)), batch, draw(st.just("") | NAMES))


CONTENTS = st.sampled_from(
    (Filter(), Filter(None, {"p": above(5)}), Filter(None, {"p": between(2, 7.5), "stock": equals('a "quoted" one')}))
) | st.builds(lambda name, number: Filter(None, {name: at_most(number)}), NAMES, st.floats(-1e300, 1e300))
SHARES = st.text(st.characters(exclude_characters="+#/\0", exclude_categories=["Cs"]), min_size=1, max_size=8)
U32 = st.integers(0, (1 << 32) - 1)
MEMBERS = st.none() | st.builds(Members, SHARES, NAMES, U32.map(lambda count: count | 1), U32)
JOINTS = st.builds(JointFilter, FILTERS, CONTENTS, st.sampled_from((0, 1, 2)), MEMBERS)
MANY = st.lists(JOINTS, max_size=4).map(tuple)
TREES = st.integers(0, 255)
SUMS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4095), U64), max_size=5).map(tuple)
DEMAND = (
    st.builds(DemandUpdate, TREES, st.builds(DemandChange, MANY, MANY))
    | st.builds(DemandHashes, TREES, st.sampled_from(("announced", "held")), SUMS)
    | st.builds(DemandBucket, TREES, U16, MANY)
    | st.builds(Subscription, TREES, NAMES, st.tuples(U64, U64), JOINTS, st.booleans())
)
STATES = st.lists(
    st.builds(NodeState, NAMES, U64, U64, st.lists(NAMES, max_size=3).map(tuple)), max_size=3
).map(tuple)  # fmt: skip
DETOURS = st.builds(Detoured, NAMES, st.lists(NAMES, max_size=3).map(tuple), NAMES, events() | DEMAND)
KEYS = st.lists(st.builds(MapKey, NAMES, U64, NAMES), max_size=3).map(tuple)
ENTRIES = st.lists(events().map(lambda frame: frame.batch), max_size=3).map(tuple)
WANTED = st.lists(NAMES, max_size=3).map(tuple)
MAPS = (
    st.builds(MapSums, TREES, SUMS, st.booleans())
    | st.builds(MapBucket, TREES, U16, KEYS, st.booleans())
    | st.builds(MapEntries, TREES, ENTRIES, WANTED, st.booleans())
    | st.builds(MapForget, TREES, U64, st.sampled_from(("ask", "have", "drop")), KEYS)
)
FRAMES = MAPS | events() | DEMAND | st.builds(LinkStates, STATES) | st.builds(Marker, NAMES, U64, U64) | DETOURS
NUMBERED = st.builds(
    lambda number, frame: NumberedFrame(number, lane_of(frame), frame_bytes(frame), frame), U64, FRAMES
)
HELLOS = st.builds(
    OverlayHello, NAMES, NAMES, U64, st.text("0123456789abcdef", max_size=32),
    st.builds(LinkHello, SESSIONS, SESSIONS, U64, U64, CREDIT, CREDIT), U16, U16,
)  # fmt: skip
WRITTEN = (
    NUMBERED
    | st.builds(LinkAck, U64, CREDIT)
    | st.builds(Ping, st.integers(0, 2**32 - 1), TIMES)
    | st.builds(Pong, st.integers(0, 2**32 - 1), TIMES, TIMES)
)
