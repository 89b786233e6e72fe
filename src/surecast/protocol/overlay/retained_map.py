"""The retained messages of an overlay: at every broker a map from topic to the last message, kept equal by versions.

A retained publication travels as an event to all brokers of its tree, whatever their demand, so that it is also what
live subscribers get. Its *stamp* is a hybrid logical time: the clock of its home broker in microseconds, or one more
than any stamp seen there. The later version of a topic wins, by stamp and then by origin. A deletion is a version too,
a *tombstone*.

What failures have cost is found by comparison: sums of hashes, level by level (`FilterHashes`), at a link-up that lost
something and every minute. Where a bucket differs, one end lists its versions, and each end sends what the other lacks.
What is news goes on to the other neighbours on the tree.

A tombstone is forgotten when every broker of the plan has it. On each tree the first broker of the plan asks now and
then: a *wave* goes to all brokers with the tombstones that it has, comes back with those that all have, and goes out
again to drop them. Where a broker is away no wave comes back. There are at most `retained_max` tombstones; beyond it
the oldest go all the same, and who was away meanwhile takes the map anew: what it has on topics that are gone is
deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from math import inf
from typing import Any, Final, TypeAlias

from surecast.errors import PeerError
from surecast.protocol.demand import DEPTH, FilterHashes
from surecast.protocol.overlay.event_id import EventId
from surecast.protocol.overlay.overlay_frames import (
    EventBatch,
    MapBucket,
    MapEntries,
    MapForget,
    MapFrame,
    MapKey,
    MapSums,
)
from surecast.protocol.overlay.overlay_plan import OverlayPlan

__all__ = ["RetainedItem", "RetainedMap", "key_of"]

_BUCKETS_AT_ONCE: Final = 64
"""So many buckets are repaired before a comparison begins again: what waits for a neighbour stays bounded."""
_ENTRIES_BYTES_MAX: Final = 256 << 10
_WAVE_KEYS_MAX: Final = 2_000
_DROPPED_MAX: Final = 10_000
_STAMPS_PER_S: Final = 1_000_000
_STAMP_MAX: Final = 1 << 62

Frames: TypeAlias = list[tuple[str, MapFrame]]
"""Frames, each with the neighbour that it is for."""


class RetainedItem:
    """A version of a topic, as hashes of the map need it."""

    __slots__ = ("_digest", "key")

    def __init__(self, key: MapKey):
        self.key = key
        self._digest: tuple[int, int] | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RetainedItem) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key.topic)

    @property
    def order(self) -> tuple[Any, ...]:
        return self.key

    @property
    def digest(self) -> tuple[int, int]:
        """The bucket, which is that of the topic, and a number for the version."""
        if self._digest is None:
            topic = self.key.topic.encode()
            version = b"%d\0%s" % (self.key.stamp, self.key.origin.encode())
            place = int.from_bytes(blake2b(topic, digest_size=2).digest(), "big")
            self._digest = place, int.from_bytes(blake2b(topic + b"\0" + version, digest_size=8).digest(), "big")
        return self._digest


@dataclass(slots=True)
class _Wave:
    """The wave that passes a broker now: who asked, who has not answered yet, and what all have so far."""

    number: int
    parent: str | None
    waiting: dict[str, None]
    keys: dict[MapKey, None]


class _TreeMap:
    """The map of one tree."""

    def __init__(self) -> None:
        self.entries: dict[str, EventBatch] = {}
        self.hashes: FilterHashes[RetainedItem] = FilterHashes()
        self.items: dict[str, RetainedItem] = {}
        self.tombstones: dict[str, None] = {}
        self.next_expiry_s = inf
        """No message expires before."""
        self.wave = _Wave(0, None, {}, {})
        self.away: dict[str, None] = {}
        """The neighbours that were down when tombstones went that they may lack."""


def key_of(entry: EventBatch) -> MapKey:
    """Returns the version that an entry is."""
    return MapKey(entry.topic, entry.stamp, entry.first.origin)


class RetainedMap:
    """The retained messages that one broker knows, tree by tree.

    `take` and `receive` change it; `changed` then has the topics whose message is another one or none, until
    `take_changed`. `journal` gets what is to be on disk, under names of records of its own: of an entry, and of the
    latest stamp that was forgotten.

    >>> from surecast.protocol.overlay.event_id import EventId
    >>> from surecast.protocol.overlay.overlay_plan import Tree
    >>> plan = OverlayPlan(("b1", "b2"), (("b1", "b2"),), (Tree((("b1", "b2"),)),))
    >>> retained = RetainedMap("b1", plan, [], lambda: EventId("b1", 1, 9), bool, 100, 1_000)
    >>> old, new = (EventBatch(EventId("b1", 1, n), 1, "t", 0.0, stamp=retained.stamp(1.0, 1)) for n in range(2))
    >>> retained.take(0, new), retained.take(0, old), retained.get("t") is new
    (True, False, True)
    """

    def __init__(
        self,
        name: str,
        plan: OverlayPlan,
        journal: list[tuple[tuple[Any, ...], Any]],
        take_id: Callable[[], EventId],
        is_up: Callable[[str], bool],
        entries_max: int,
        bytes_max: int,
        kinds: tuple[str, str] = ("retained", "horizon"),
    ):
        self._name = name
        self._plan = plan
        self._journal = journal
        self._take_id = take_id
        self._is_up = is_up
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._entry_kind, self._horizon_kind = kinds
        self._trees = [_TreeMap() for _ in plan.trees]
        self._clock = 0
        self._horizon = 0
        """The latest stamp of a tombstone that was dropped."""
        self._dropped: dict[MapKey, None] = {}
        self.bytes = 0
        self.entries_sent = 0
        """The messages that comparisons have sent."""
        self.refused = 0
        """The messages of others that were not kept, since the map was full."""
        self.changed: dict[str, None] = {}

    def __len__(self) -> int:
        """The number of topics with a message."""
        return sum(len(tree.entries) - len(tree.tombstones) for tree in self._trees)

    @property
    def tombstones(self) -> int:
        """The number of deletions that some broker may not know yet."""
        return sum(len(tree.tombstones) for tree in self._trees)

    def get(self, topic: str) -> EventBatch | None:
        """Returns the message of a topic, as events; None where there is none."""
        entry = self._trees[self._plan.tree_of(topic)].entries.get(topic)
        return None if entry is None or entry.deletes else entry

    def topics(self) -> list[str]:
        """Returns the topics that have a message, sorted."""
        return sorted(topic for tree in self._trees for topic in tree.entries if topic not in tree.tombstones)

    def stamp(self, now: float, count: int) -> int:
        """Returns the stamp of the first of some events that are published now."""
        stamp = max(int(now * _STAMPS_PER_S), self._clock + 1)
        self._clock = stamp + count - 1
        return stamp

    def take_changed(self) -> list[tuple[str, EventBatch | None]]:
        """Returns the topics that have changed since the last call, each with its message, or None."""
        changed, self.changed = self.changed, {}
        return [(topic, self.get(topic)) for topic in changed]

    def take(self, tree: int, batch: EventBatch, *, is_repair: bool = False) -> bool:
        """Takes in the last of some retained events to one topic; returns whether it is the latest version."""
        entry = batch.part(batch.count - 1, batch.count)
        if entry.stamp > _STAMP_MAX:
            raise PeerError(f"retained: a version with the stamp {entry.stamp}, which is beyond all times")
        self._clock = max(self._clock, entry.stamp)
        of = self._trees[tree]
        before = of.entries.get(entry.topic)
        if before is not None:
            if (entry.stamp, entry.first.origin) <= (before.stamp, before.first.origin):
                return False
        elif is_repair:
            if key_of(entry) in self._dropped:
                return False
        elif entry.stamp <= self._horizon:
            return False  # maybe it was deleted, and that is forgotten; if not, the next comparison brings it
        if not self._has_room(entry, before):
            self.refused += 1
            return False
        self._set(of, entry, before)
        self._journal.append(((self._entry_kind, entry.topic), (tree, entry)))
        if entry.deletes and len(of.tombstones) > self._entries_max:
            self._drop_oldest(of)
        return True

    def restore(self, records: Mapping[tuple[Any, ...], Any]) -> None:
        """Takes back what was on disk."""
        for key, record in records.items():
            if key[0] == self._horizon_kind:
                self._horizon = record
            elif key[0] == self._entry_kind:
                tree, entry = record
                self._set(self._trees[tree], entry, None)
                self._clock = max(self._clock, entry.stamp)
        self._clock = max(self._clock, self._horizon)
        self.changed.clear()

    def expire(self, now: float) -> None:
        """Clears the topics whose message has expired. It counts as deleted by the same version until all know that: a
        broker that was away may still have the message before."""
        for tree in self._trees:
            for topic, entry in list(tree.entries.items()) if tree.next_expiry_s <= now else ():
                if entry.expires_s <= now and not entry.deletes:
                    self.bytes -= _bytes_of(entry)
                    tree.entries[topic] = replace(entry, body=None, deletes=True, attributes=())
                    tree.tombstones[topic] = None
                    self._journal.append(((self._entry_kind, topic), (self._trees.index(tree), tree.entries[topic])))
                    self.changed[topic] = None
            if tree.next_expiry_s <= now:
                times = (entry.expires_s for entry in tree.entries.values() if not entry.deletes)
                tree.next_expiry_s = min(times, default=inf)

    # Comparisons

    def compare(self, neighbour: str) -> Frames:
        """Begins to compare the maps of all trees that a link carries. Both ends do at a link-up: the one whose name
        comes first goes on, and the other asks it to."""
        asks = neighbour < self._name
        return [frame for tree in self._trees_of(neighbour) for frame in self._begin(neighbour, tree, asks=asks)]

    def receive(
        self, neighbour: str, frame: MapFrame, now: float, is_coming: Callable[[str, EventBatch], bool]
    ) -> tuple[Frames, list[tuple[int, EventBatch]]]:
        """Takes in a frame of a neighbour; returns frames, and the messages that are news here, each with its tree.

        `is_coming` tells whether a version is on its way to a neighbour as an event: it need not be sent twice.
        """
        if isinstance(frame, MapSums):
            return self._take_sums(neighbour, frame), []
        if isinstance(frame, MapBucket):
            return self._take_bucket(neighbour, frame, now, is_coming), []
        if isinstance(frame, MapEntries):
            return self._take_entries(neighbour, frame, is_coming)
        return self._take_wave(neighbour, frame), []

    def _begin(self, neighbour: str, tree: int, *, asks: bool = True) -> Frames:
        of = self._trees[tree]
        return [(neighbour, MapSums(tree, (of.hashes.root,), asks))] if of.entries else []

    def _take_sums(self, neighbour: str, frame: MapSums) -> Frames:
        of = self._trees[frame.tree]
        places = of.hashes.differing(frame.sums)
        is_root = [(level, place) for level, place, _ in frame.sums] == [(0, 0)]
        if not places:
            if is_root:
                of.away.pop(neighbour, None)
            return []
        if is_root and of.entries and not frame.asks:
            return []  # this end has told its sums as well, and the other goes on with them
        buckets = [place for level, place in places if level == DEPTH]
        if not buckets:
            return [(neighbour, MapSums(frame.tree, tuple(of.hashes.below(places))))]
        some = buckets[:_BUCKETS_AT_ONCE]
        ends = [len(some) < len(buckets) and place == some[-1] for place in some]
        return [
            (neighbour, MapBucket(frame.tree, place, self._keys(of, place), is_last))
            for place, is_last in zip(some, ends, strict=True)
        ]

    def _keys(self, of: _TreeMap, bucket: int) -> tuple[MapKey, ...]:
        return tuple(item.key for item in of.hashes.filters(bucket))

    def _take_bucket(
        self, neighbour: str, frame: MapBucket, now: float, is_coming: Callable[[str, EventBatch], bool]
    ) -> Frames:
        of = self._trees[frame.tree]
        theirs = {key.topic: key for key in frame.keys}
        lacking: list[EventBatch] = []
        wanted: list[str] = []
        for key in self._keys(of, frame.bucket):
            other = theirs.get(key.topic)
            if other is None or other.version < key.version:
                lacking.append(of.entries[key.topic])
        for topic, key in theirs.items():
            own = of.entries.get(topic)
            if own is None and neighbour in of.away and key.stamp <= self._horizon:
                lacking.append(self._delete(frame.tree, topic, key, now))
            elif own is None or key_of(own).version < key.version:
                wanted.append(topic)
        return self._entries(neighbour, frame.tree, lacking, tuple(wanted), is_coming, begins_again=frame.is_last)

    def _entries(
        self,
        neighbour: str,
        tree: int,
        entries: Iterable[EventBatch],
        wanted: tuple[str, ...],
        is_coming: Callable[[str, EventBatch], bool],
        *,
        begins_again: bool = False,
    ) -> Frames:
        """Returns frames with entries, besides those that are on their way."""
        frames: Frames = []
        portion: list[EventBatch] = []
        size = 0
        for entry in entries:
            if is_coming(neighbour, entry):
                continue
            if size > _ENTRIES_BYTES_MAX:
                frames.append((neighbour, MapEntries(tree, tuple(portion), (), False)))
                portion, size = [], 0
            portion.append(entry)
            size += 100 + (entry.body.size if entry.body is not None else 0)
        if portion or wanted or begins_again:
            frames.append((neighbour, MapEntries(tree, tuple(portion), wanted, begins_again)))
        return frames

    def _take_entries(
        self, neighbour: str, frame: MapEntries, is_coming: Callable[[str, EventBatch], bool]
    ) -> tuple[Frames, list[tuple[int, EventBatch]]]:
        of = self._trees[frame.tree]
        fresh = [entry for entry in frame.entries if self.take(frame.tree, entry, is_repair=True)]
        own = [of.entries[topic] for topic in frame.wanted if topic in of.entries]
        frames = self._entries(neighbour, frame.tree, own, (), is_coming)
        for hop in self._plan.tree_neighbours(frame.tree, self._name) if fresh else ():
            if hop != neighbour:
                frames += self._entries(hop, frame.tree, fresh, (), is_coming)
        if frame.begins_again:
            frames += self._begin(neighbour, frame.tree)
        return frames, [(frame.tree, entry) for entry in fresh]

    def _delete(self, tree: int, topic: str, key: MapKey, now: float) -> EventBatch:
        """Deletes what somebody has who was away for longer than tombstones could be kept."""
        batch = EventBatch(
            first=self._take_id(), count=1, topic=topic, published_s=now, qos=1,
            stamp=self.stamp(now, 1), deletes=True,
        )  # fmt: skip
        self.take(tree, batch, is_repair=True)
        return batch

    # Forgetting

    def disconnected(self, neighbour: str) -> None:
        """The link to a neighbour is down."""
        for tree in self._trees_of(neighbour):
            wave = self._trees[tree].wave
            if neighbour in wave.waiting or neighbour == wave.parent:
                wave.waiting, wave.keys = {}, {}

    def begin_waves(self, now: float) -> Frames:
        """Asks all brokers which tombstones they have, on the trees of which this is the first broker."""
        frames: Frames = []
        if self._name != self._plan.brokers[0]:
            return frames
        for number, tree in enumerate(self._trees):
            hops = self._plan.tree_neighbours(number, self._name)
            keys = [tree.items[topic].key for topic in tree.tombstones][:_WAVE_KEYS_MAX]
            if not keys or not all(map(self._is_up, hops)):
                continue
            wave = tree.wave = _Wave(
                max(tree.wave.number + 1, int(now)), None, dict.fromkeys(hops), dict.fromkeys(keys)
            )
            frames += [(hop, MapForget(number, wave.number, "ask", tuple(keys))) for hop in hops]
            frames += self._end_wave(number)
        return frames

    def _take_wave(self, neighbour: str, frame: MapForget) -> Frames:
        of = self._trees[frame.tree]
        others = [hop for hop in self._plan.tree_neighbours(frame.tree, self._name) if hop != neighbour]
        if frame.step == "drop":
            self._drop(of, frame.keys)
            return [(hop, frame) for hop in others]
        wave = of.wave
        if frame.step == "ask":
            if frame.number <= wave.number:
                return []
            keys = {key: None for key in frame.keys if self._has(of, key)}
            of.wave = _Wave(frame.number, neighbour, dict.fromkeys(others), keys)
            asked: Frames = [(hop, MapForget(frame.tree, frame.number, "ask", tuple(keys))) for hop in others]
            return asked + self._end_wave(frame.tree)
        if frame.number != wave.number or neighbour not in wave.waiting:
            return []
        del wave.waiting[neighbour]
        have = set(frame.keys)
        wave.keys = {key: None for key in wave.keys if key in have}
        return self._end_wave(frame.tree)

    def _end_wave(self, tree: int) -> Frames:
        """Goes on where all have answered: back to who asked, or out again to drop what all have."""
        of = self._trees[tree]
        wave = of.wave
        if wave.waiting:
            return []
        keys = tuple(wave.keys)
        if wave.parent is not None:
            return [(wave.parent, MapForget(tree, wave.number, "have", keys))]
        self._drop(of, keys)
        hops = self._plan.tree_neighbours(tree, self._name) if keys else ()
        return [(hop, MapForget(tree, wave.number, "drop", keys)) for hop in hops]

    def _has(self, of: _TreeMap, key: MapKey) -> bool:
        """Returns whether a deletion is known here, or something later on its topic."""
        entry = of.entries.get(key.topic)
        return entry is not None and key_of(entry).version >= key.version

    def _drop(self, of: _TreeMap, keys: Iterable[MapKey]) -> None:
        for key in keys:
            item = of.items.get(key.topic)
            entry = of.entries.get(key.topic)
            if item is None or entry is None or item.key != key or not (entry.deletes or entry.expires_s < inf):
                continue
            self.bytes -= _bytes_of(entry)
            self.changed[key.topic] = None
            of.tombstones.pop(key.topic, None)
            del of.entries[key.topic], of.items[key.topic]
            of.hashes.shift(item, -1)
            self._journal.append(((self._entry_kind, key.topic), None))
            self._dropped[key] = None
            if len(self._dropped) > _DROPPED_MAX:
                del self._dropped[next(iter(self._dropped))]
            if key.stamp > self._horizon:
                self._horizon = key.stamp
                self._journal.append(((self._horizon_kind,), key.stamp))

    def _drop_oldest(self, of: _TreeMap) -> None:
        """Drops a tombstone that others may lack: who is down now takes the map anew when it is back."""
        self._drop(of, [of.items[next(iter(of.tombstones))].key])
        of.away |= {hop: None for hop in self._plan.neighbours(self._name) if not self._is_up(hop)}

    # Inside

    def _trees_of(self, neighbour: str) -> list[int]:
        return [
            tree
            for tree in range(len(self._trees))
            if neighbour in self._plan.tree_neighbours(tree, self._name)
        ]  # fmt: skip

    def _has_room(self, entry: EventBatch, before: EventBatch | None) -> bool:
        """Returns whether an entry fits. Home brokers refuse what does not, so that only publications of one moment at
        several brokers, or a broker that lies, can be beyond it: there is room for as much again."""
        if entry.deletes:
            return True
        was = 0 if before is None or before.deletes else 1
        grows = _bytes_of(entry) - (0 if before is None else _bytes_of(before))
        return len(self) + 1 - was <= 2 * self._entries_max and self.bytes + grows <= 2 * self._bytes_max

    def _set(self, of: _TreeMap, entry: EventBatch, before: EventBatch | None) -> None:
        topic = entry.topic
        if before is not None:
            of.hashes.shift(of.items[topic], -1)
            self.bytes -= _bytes_of(before)
        of.entries[topic] = entry
        of.next_expiry_s = min(of.next_expiry_s, entry.expires_s)
        of.tombstones.pop(topic, None)
        if entry.deletes:
            of.tombstones[topic] = None
        item = of.items[topic] = RetainedItem(key_of(entry))
        of.hashes.shift(item, 1)
        self.bytes += _bytes_of(entry)
        self.changed[topic] = None


def _bytes_of(entry: EventBatch) -> int:
    return 0 if entry.deletes else len(entry.topic) + (entry.body.size if entry.body is not None else 0)
