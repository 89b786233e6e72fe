"""A batch of messages: PUBLISH packets behind each other, which a broker treats as one.

It keeps the bytes as they came and says where each packet ends, so that it is passed on as one slice, or with other
packet identifiers at places that are known. A single message is a batch of one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import repeat
from struct import Struct, pack
from typing import Final, NamedTuple

from surecast.protocol.mqtt.packets import Publish, publish_from_wire
from surecast.protocol.mqtt.wire import variable_bytes

__all__ = ["FIRST", "FLAGS_OF", "Likeness", "PublishBatch", "beginnings", "has_none", "join", "moved"]

FLAGS_OF: Final = {
    0x30 | dup << 3 | qos << 1 | retain: (qos, bool(retain), bool(dup))
    for qos in (0, 1, 2)
    for retain in (0, 1)
    for dup in ((0, 1) if qos else (0,))
}
"""First byte of a PUBLISH to QoS, retain and dup. QoS 3 does not exist, and QoS 0 is never sent twice."""

FIRST: Final = (0,)
"""Which message is the first of each topic, where there is one topic."""

_SHORT_BYTES_MAX: Final = 129  # a packet that says its length in one byte
_PUBACK: Final = b"\x40\x02"
_IDENTIFIERS: Final = pack(">65536H", *range(65_536))
_PACK_IDENTIFIER: Final = Struct(">H").pack_into
_new: Final = object.__new__


class PublishBatch:
    """PUBLISH packets with equal flags and without properties, one or more, as they came behind each other.

    `data` is all of them; `first_byte` is that of each and says the flags. `ends` says where each ends in `data`; at
    QoS 1 and 2 `ids_at` says where their packet identifiers are. Both are ranges where several packets have one topic
    and equal lengths. `topics` are the topics in their order, and packet `firsts[i]` is the first to `topics[i]`.
    `version_5` is that of the protocol. Methods that take `begin` and `stop` are about the messages from `begin` on and
    before `stop`.

    >>> from surecast.protocol.mqtt import PacketDecoder
    >>> (batch,) = PacketDecoder(version=4).feed_batches(bytes.fromhex("3206000174000778 320700017400087979"))
    >>> batch.topics, batch.ends, batch.ids_at
    (['t'], [8, 17], [5, 13])
    """

    __slots__ = ("_ids_at", "count", "data", "ends", "first_byte", "firsts", "topics", "version_5")

    def __init__(
        self,
        data: bytes,
        first_byte: int,
        version_5: bool,
        topics: Sequence[str],
        firsts: Sequence[int],
        ends: Sequence[int],
        ids_at: Sequence[int] | None,
    ):
        """If `ids_at` is None and there is one topic, the places of the identifiers are found when they are needed."""
        self.data = data
        self.first_byte = first_byte
        self.version_5 = version_5
        self.topics = topics
        self.firsts = firsts
        self.ends = ends
        self._ids_at = ids_at
        self.count = len(ends)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, PublishBatch)
            and (self.data, self.version_5) == (other.data, other.version_5)
            and [*self.stretches()] == [*other.stretches()]
            and [*self.ends] == [*other.ends]
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<PublishBatch of {self.count} to {self.topics}, QoS {self.flags[0]}, {len(self.data)} bytes>"

    @property
    def size(self) -> int:
        """The bytes of all packets."""
        return len(self.data)

    @property
    def flags(self) -> tuple[int, bool, bool]:
        """QoS, retain and dup of each."""
        return FLAGS_OF[self.first_byte]

    @property
    def ids_at(self) -> Sequence[int]:
        """The places of the packet identifiers, at QoS 1 and 2."""
        ids_at = self._ids_at
        if ids_at is None:
            ids_at = self._ids_at = self._find_identifiers()
        return ids_at

    def _find_identifiers(self) -> Sequence[int]:
        ends, data = self.ends, self.data
        if not self.first_byte & 6:
            return ()
        topic_at = 2 if data[1] < 128 else 3
        width = 2 + (data[topic_at] << 8 | data[topic_at + 1])
        if isinstance(ends, range):
            return range(topic_at + width, len(data), ends.step)
        short, long = 2 + width, 3 + width
        return [
            start + (short if end - start <= _SHORT_BYTES_MAX else long)
            for start, end in zip([0, *ends], ends, strict=False)
        ]

    def likeness(self) -> Likeness:
        """Returns what tells more of the same: this batch has one length and topic."""
        length, data, has_id = self.ends[0], self.data, self.first_byte & 6 > 0
        at = 2 if data[1] < 128 else 3
        id_at = at + 2 + (data[at] << 8 | data[at + 1])
        none_at = id_at + 2 * has_id if self.version_5 else 0
        head, count = data[:id_at], self.count
        unpack = beginnings(length, id_at, count) if count > 1 else None
        return Likeness(self, len(data), head, unpack, (head,) * count, id_at + 1 if has_id else 0, none_at, length)

    def of(self, data: bytes) -> PublishBatch:
        """Returns the batch of `data`, which is like this one."""
        batch = _new(PublishBatch)  # a third quicker than to call the class, and it is done for most reads
        batch.data = data
        batch.first_byte = self.first_byte
        batch.version_5 = self.version_5
        batch.topics = self.topics
        batch.firsts = self.firsts
        batch.ends = self.ends
        batch._ids_at = self._ids_at
        batch.count = self.count
        return batch

    def part(self, begin: int, stop: int) -> PublishBatch:
        """Some of the messages, as a batch of their own."""
        if not begin and stop == self.count:
            return self
        ends, ids_at = self.ends, self.ids_at if len(self.topics) > 1 else self._ids_at
        start = ends[begin - 1] if begin else 0
        first = bisect_right(self.firsts, begin) - 1
        last = bisect_right(self.firsts, stop - 1)
        firsts = [0, *(at - begin for at in self.firsts[first + 1 : last])]
        return PublishBatch(
            self.data[start : ends[stop - 1]], self.first_byte, self.version_5, self.topics[first:last], firsts,
            moved(ends[begin:stop], start), None if ids_at is None else moved(ids_at[begin:stop], start),
        )  # fmt: skip

    def by_topic(self) -> list[PublishBatch]:
        """The messages to each topic that come together, as batches of their own."""
        return [self.part(begin, stop) for _, begin, stop in self.stretches()]

    def bytes_of(self, begin: int, stop: int) -> bytes:
        """The packets as they came."""
        return self.data[self.ends[begin - 1] if begin else 0 : self.ends[stop - 1]]

    def fit(self, packet_bytes_max: int, begin: int, stop: int) -> int:
        """Returns how many messages from `begin` on come before the first packet that is longer."""
        ends = self.ends
        start = ends[begin - 1] if begin else 0
        if isinstance(ends, range):
            return stop - begin if ends.step <= packet_bytes_max else 0
        for number in range(begin, stop):
            if ends[number] - start > packet_bytes_max:
                return number - begin
            start = ends[number]
        return stop - begin

    def sizes(self, begin: int, stop: int) -> list[int]:
        """Returns what each message counts in a queue: the bytes of its topic, with their length, and its payload."""
        ends, rest = self.ends, (4 if self.first_byte & 6 else 2) + self.version_5
        if isinstance(ends, range):
            return [ends.step - rest - (ends.step > _SHORT_BYTES_MAX)] * (stop - begin)
        start = ends[begin - 1] if begin else 0
        if stop - begin == 1:
            length = ends[begin] - start
            return [length - rest - (length > _SHORT_BYTES_MAX)]
        some = ends[begin:stop]
        return [
            (length := end - start) - rest - (length > _SHORT_BYTES_MAX)
            for start, end in zip([start, *some], some, strict=False)
        ]

    def renumbered(self, identifier: int, begin: int, stop: int) -> bytes:
        """The packets with identifiers from this one on, which must not go beyond 65,535.

        >>> from surecast.protocol.mqtt import PacketDecoder
        >>> (batch,) = PacketDecoder(version=4).feed_batches(bytes.fromhex("3206000174000778 320700017400087979"))
        >>> batch.renumbered(256, 0, 2).hex(" ")
        '32 06 00 01 74 01 00 78 32 07 00 01 74 01 01 79 79'
        """
        whole, ends, ids_at = self.data, self.ends, self._ids_at or self.ids_at
        start = ends[begin - 1] if begin else 0
        if stop - begin == 1:
            at = ids_at[begin]
            return whole[start:at] + identifier.to_bytes(2, "big") + whole[at + 2 : ends[begin]]
        if stop - begin < len(ends):
            whole, ids_at = whole[start : ends[stop - 1]], moved(ids_at[begin:stop], start)
        data = bytearray(whole)
        after = identifier + len(ids_at)
        if isinstance(ids_at, range):
            at, step = ids_at.start, ids_at.step
            data[at::step] = _IDENTIFIERS[2 * identifier : 2 * after : 2]
            data[at + 1 :: step] = _IDENTIFIERS[2 * identifier + 1 : 2 * after : 2]
        else:
            deque(map(_PACK_IDENTIFIER, repeat(data), ids_at, range(identifier, after)), maxlen=0)
        return bytes(data)

    def lowered(self, begin: int, stop: int) -> bytes:
        """The same messages at QoS 0: without packet identifiers.

        >>> from surecast.protocol.mqtt import PacketDecoder
        >>> (batch,) = PacketDecoder(version=4).feed_batches(bytes.fromhex("3206000174000778 320700017400087979"))
        >>> batch.lowered(0, 2).hex(" ")
        '30 04 00 01 74 78 30 05 00 01 74 79 79'
        """
        whole, ends, ids_at = self.data, self.ends, self._ids_at or self.ids_at
        if isinstance(ends, range) and stop - begin == len(ends):
            length, id_at = ends.step, ids_at[0]
            topic_at, head = _lowered_head(length)
            if len(head) == topic_at:
                data = bytearray(whole)
                # Whole columns go, and are set: that is as quick for a hundred packets as for one.
                del data[id_at + 1 :: length]
                del data[id_at :: length - 1]
                for at, byte in enumerate(head):
                    data[at :: length - 2] = bytes((byte,)) * len(ends)
                return bytes(data)
        pieces: list[bytes] = []
        start = ends[begin - 1] if begin else 0
        for end, id_at in zip(ends[begin:stop], ids_at[begin:stop], strict=True):
            topic_at, head = _lowered_head(end - start)
            pieces += (head, whole[start + topic_at : id_at], whole[id_at + 2 : end])
            start = end
        return b"".join(pieces)

    def answers(self, begin: int, stop: int, reason: int = 0) -> bytes:
        """The PUBACK packets for messages of QoS 1, one after the other; a reason is for MQTT 5.

        >>> from surecast.protocol.mqtt import PacketDecoder
        >>> (batch,) = PacketDecoder(version=4).feed_batches(bytes.fromhex("3206000174000778 3206000174000879"))
        >>> batch.answers(0, 2).hex(" "), batch.answers(0, 2, 16).hex(" ")
        ('40 02 00 07 40 02 00 08', '40 03 00 07 10 40 03 00 08 10')
        """
        whole, ids_at = self.data, self._ids_at or self.ids_at
        if stop - begin == 1 and not reason:
            at = ids_at[begin]
            return _PUBACK + whole[at : at + 2]
        if stop - begin < len(ids_at):
            ids_at = ids_at[begin:stop]
        if reason:
            end = bytes((reason,))
            return b"".join([b"\x40\x03" + whole[at : at + 2] + end for at in ids_at])
        if isinstance(ids_at, range):
            data = bytearray(b"\x40\x02\0\0" * len(ids_at))
            stop_at = ids_at[-1] + 2
            data[2::4] = whole[ids_at.start : stop_at : ids_at.step]
            data[3::4] = whole[ids_at.start + 1 : stop_at : ids_at.step]
            return bytes(data)
        return _PUBACK + _PUBACK.join([whole[at : at + 2] for at in ids_at])

    def stretches(self) -> Iterator[tuple[str, int, int]]:
        """The topics, each with the numbers of its first message and of the first after its last."""
        return zip(self.topics, self.firsts, [*self.firsts[1:], self.count], strict=True)

    def payloads(self) -> list[bytes]:
        """The payloads, one by one."""
        data, extra = self.data, self.version_5
        return [data[at + extra : end] for at, end in zip(self._body_places(), self.ends, strict=True)]

    def _body_places(self) -> list[int]:
        """Returns where the properties of each packet of MQTT 5, or else its payload, begin."""
        if self.first_byte & 6:
            return [at + 2 for at in self.ids_at]
        data, ends, start = self.data, self.ends, 0
        places: list[int] = []
        for end in ends:
            at = start + (2 if end - start <= _SHORT_BYTES_MAX else 3)
            places.append(at + 2 + (data[at] << 8 | data[at + 1]))
            start = end
        return places

    def converted(self) -> PublishBatch:
        """The same messages in the other version of the protocol, of those with batches: 3.1.1 and 5.

        >>> from surecast.protocol.mqtt import PacketDecoder
        >>> (batch,) = PacketDecoder(version=4).feed_batches(bytes.fromhex("3206000174000778 320700017400087979"))
        >>> batch.converted().data.hex(" ")
        '32 07 00 01 74 00 07 00 78 32 08 00 01 74 00 08 00 79 79'
        """
        whole, first_byte, extra = self.data, self.first_byte, self.version_5
        none, by = (b"", -1) if extra else (b"\0", 1)
        pieces: list[bytes] = []
        ends: list[int] = []
        ids_at: list[int] = []
        start = after = 0
        for at, end in zip(self._body_places(), self.ends, strict=True):
            topic_at, head = _converted_head(first_byte, end - start, by)
            pieces += (head, whole[start + topic_at : at], none, whole[at + extra : end])
            ids_at.append(after + len(head) + at - start - topic_at - 2)
            after += len(head) + end - start - topic_at + by
            ends.append(after)
            start = end
        is_even = isinstance(self.ends, range)
        return PublishBatch(
            b"".join(pieces), first_byte, not extra, self.topics, self.firsts,
            range(ends[0], after + 1, ends[0]) if is_even else ends,
            (range(ids_at[0], after, ends[0]) if is_even else ids_at) if first_byte & 6 else (),
        )  # fmt: skip

    def packets(self) -> list[Publish]:
        """The packets, one by one.

        >>> from surecast.protocol.mqtt import PacketDecoder
        >>> (batch,) = PacketDecoder(version=4).feed_batches(bytes.fromhex("3004 0001 74 78"))
        >>> batch.packets()
        [Publish(topic='t', payload=b'x', qos=0, ...)]
        """
        data, ends, ids_at, flags = self.data, self.ends, self.ids_at, self.flags
        payloads = self.payloads()
        made: list[Publish] = []
        start = 0
        for topic, first, last in self.stretches():
            for number in range(first, last):
                end, packet_id = ends[number], 0
                if flags[0]:
                    at = ids_at[number]
                    packet_id = data[at] << 8 | data[at + 1]
                made.append(publish_from_wire(topic, payloads[number], flags, packet_id, data[start:end]))
                start = end
        return made


class Likeness(NamedTuple):
    """The marks of messages like those of a batch of one length and topic.

    They have its size, the first begins with `head`, and of several `unpack` gives their `heads`. The low byte of the
    first identifier is at `low_at`, 0 if there is none; the first length of properties at `none_at`, 0 before MQTT 5.
    """

    batch: PublishBatch
    size: int
    head: bytes
    unpack: Callable[[bytes, int], tuple[bytes, ...]] | None
    heads: tuple[bytes, ...]
    low_at: int
    none_at: int
    length: int


def join(batches: Sequence[PublishBatch], pieces: Sequence[bytes] | None = None) -> PublishBatch:
    """The messages of several batches in their order, as one: all are to the same topic with the same flags.

    With `pieces` the bytes are these, each of them like its batch.

    >>> from surecast.protocol.mqtt import PacketDecoder
    >>> (batch,) = PacketDecoder(version=4).feed_batches(bytes.fromhex("3004000174 78"))
    >>> join([batch, batch]).ends
    range(6, 13, 6)
    """
    first = batches[0]
    if pieces is None:
        pieces = [batch.data for batch in batches]
    if len(batches) == 1:
        return first if pieces[0] is first.data else first.of(pieces[0])
    data = b"".join(pieces)
    length = first.ends[0]
    for batch in batches:
        ends = batch.ends
        if ends[0] != length or (batch.count > 1 and not isinstance(ends, range)):
            break
    else:
        even = range(length, len(data) + 1, length)
        return PublishBatch(data, first.first_byte, first.version_5, first.topics, FIRST, even, None)
    all_ends: list[int] = []
    at = 0
    for batch, piece in zip(batches, pieces, strict=True):
        all_ends += [at + end for end in batch.ends] if at else batch.ends
        at += len(piece)
    return PublishBatch(data, first.first_byte, first.version_5, first.topics, FIRST, all_ends, None)


def has_none(low: bytes, high: bytes) -> bool:
    """Returns whether an identifier is 0, of which these are the bytes."""
    return any(not one and not other for one, other in zip(low, high, strict=True))


def moved(places: Sequence[int], by: int) -> Sequence[int]:
    """Returns places in the bytes of a batch that begins by so many bytes later."""
    if not by or not places:
        return places
    if isinstance(places, range):
        return range(places.start - by, places.stop - by, places.step)
    return [place - by for place in places]


@lru_cache(maxsize=512)
def beginnings(length: int, id_at: int, count: int) -> Callable[[bytes, int], tuple[bytes, ...]]:
    """Returns a structure that takes the beginnings of so many packets of equal length at once."""
    return Struct(f"{id_at}s{length - id_at}x" * count).unpack_from


@lru_cache(maxsize=2048)
def _lowered_head(length: int) -> tuple[int, bytes]:
    """Of a packet with an identifier: where its topic begins, and what comes before that without the identifier."""
    topic_at = 2 if length <= _SHORT_BYTES_MAX else 3
    return topic_at, b"\x30" + variable_bytes(length - topic_at - 2)


@lru_cache(maxsize=2048)
def _converted_head(first_byte: int, length: int, by: int) -> tuple[int, bytes]:
    """Of a packet that becomes longer or shorter: where its topic begins, and what comes before that then."""
    topic_at = 2 if length <= _SHORT_BYTES_MAX else 3
    return topic_at, bytes((first_byte,)) + variable_bytes(length - topic_at + by)
