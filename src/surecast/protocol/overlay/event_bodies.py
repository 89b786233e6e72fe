"""The messages of a batch of events, as the core of a broker has them: bytes that go from link to link as they are.

Messages without properties stay the `PublishBatch` that a client sent. Its bytes reach clients far away without being
read again, so every broker checks that they are what they claim to be, packet by packet and without a loop in Python.
Messages with properties, and those too long for a batch, are written one behind the other (`MessageRun`), and are read
by the brokers alone that deliver them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, repeat
from operator import add, sub
from struct import Struct
from typing import Final, NamedTuple

from surecast.errors import PeerError
from surecast.protocol.mqtt.batches import FLAGS_OF, PublishBatch
from surecast.protocol.mqtt.wire import variable_bytes

__all__ = ["BatchedMessage", "MessageRun", "read_publish_batch"]

_FIRST: Final = (0,)
_KEPT_TOPIC_MAX: Final = 256
_PACKET_BYTES_MAX: Final = 16_386  # no packet of a batch says its length in more than two bytes
_MESSAGE: Final = Struct(">BdI")


class BatchedMessage(NamedTuple):
    """One message of a run. `interval_s` is its expiry interval; `properties` are those that subscribers get."""

    retain: bool
    interval_s: float
    properties: bytes
    payload: bytes


class MessageRun:
    """Messages to one topic, one behind the other in `data`; `ends` says where each ends.

    >>> run = MessageRun.of([BatchedMessage(False, 60.0, b"", b"one"), BatchedMessage(True, 60.0, b"", b"two")])
    >>> run.part(1, 2).messages()
    [BatchedMessage(retain=True, interval_s=60.0, properties=b'', payload=b'two')]
    """

    __slots__ = ("data", "ends")

    topics: tuple[str, ...] = ()
    firsts: tuple[int, ...] = ()

    def __init__(self, data: bytes, ends: Sequence[int]):
        self.data = data
        self.ends = ends

    @classmethod
    def of(cls, messages: Sequence[BatchedMessage]) -> MessageRun:
        """Returns the run of some messages."""
        parts: list[bytes] = []
        ends: list[int] = []
        end = 0
        for retain, interval_s, properties, payload in messages:
            parts += (_MESSAGE.pack(retain, interval_s, len(properties)), properties, payload)
            end += _MESSAGE.size + len(properties) + len(payload)
            ends.append(end)
        return cls(b"".join(parts), ends)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MessageRun) and (self.data, [*self.ends]) == (other.data, [*other.ends])

    __hash__ = None  # type: ignore[assignment]

    @property
    def size(self) -> int:
        """The bytes of all messages."""
        return len(self.data)

    def part(self, start: int, stop: int) -> MessageRun:
        """Returns some of the messages."""
        begin = self.ends[start - 1] if start else 0
        return MessageRun(
            self.data[begin : self.ends[stop - 1]], [end - begin for end in self.ends[start:stop]]
        )  # fmt: skip

    def messages(self) -> list[BatchedMessage]:
        """Returns the messages, one by one; PeerError where the bytes are none."""
        return [*self._read()]

    def check(self) -> None:
        """Raises PeerError where the bytes are no messages."""
        for _ in self._read():
            pass

    def _read(self) -> Iterator[BatchedMessage]:
        data, start = self.data, 0
        for end in self.ends:
            at = start + _MESSAGE.size
            if at > end:
                raise PeerError(f"events: a message of {end - start} bytes, which has no room for its head")
            retain, interval_s, size = _MESSAGE.unpack_from(data, start)
            if retain > 1 or not interval_s >= 0 or at + size > end:  # not a number is no interval either
                raise PeerError("events: a message whose head is none")
            yield BatchedMessage(bool(retain), interval_s, data[at : at + size], data[at + size : end])
            start = end


def read_publish_batch(
    data: bytes, ends: Sequence[int], topics: Sequence[str], firsts: Sequence[int], version_5: bool
) -> PublishBatch:
    """Returns the batch of PUBLISH packets that some bytes are; PeerError where they are none.

    All packets must have the flags of the first, and no properties. Nothing is looked for: `ends` says where each
    packet ends, and `firsts` which is the first to each topic, so it is enough to compare the head of each with what
    it must be.
    """
    first_byte = data[0] if data else 0
    if first_byte not in FLAGS_OF:
        raise PeerError(f"events: a batch of packets that begin with {first_byte}, which are no PUBLISH")
    if len(topics) > 1:
        return _read_mixed(data, first_byte, ends, topics, firsts, version_5)
    topic = topics[0]
    head_of = _Heads(first_byte, topic.encode(), version_5)
    if isinstance(ends, range) or len(ends) == 1:
        lengths: Sequence[int] = (ends[0],) * len(ends)
        starts: Sequence[int] = range(0, len(data), ends[0])
    else:
        starts = (0, *ends[:-1])
        lengths = [*map(sub, ends, starts)]
    heads = [*map(head_of.__getitem__, lengths)]
    starts_with: Callable[[bytes, int], bool] = data.startswith
    if not all(map(starts_with, heads, starts)):
        raise PeerError(f"events: a batch with a packet that is no PUBLISH to {topic!r} like the first")
    if version_5 and first_byte & 6:
        lengths_at = [start + len(head) + 2 for start, head in zip(starts, heads, strict=True)]
        if any(map(data.__getitem__, lengths_at)):
            raise PeerError("events: a batch with a packet that has properties")
    return PublishBatch(data, first_byte, version_5, (topic,), _FIRST, ends, None if first_byte & 6 else ())


def _read_mixed(
    data: bytes, first_byte: int, ends: Sequence[int], topics: Sequence[str], firsts: Sequence[int], version_5: bool
) -> PublishBatch:
    """Returns the batch of packets to several topics that some bytes are."""
    starts = (0, *ends[:-1])
    lengths = map(sub, ends, starts)
    topic_of: Sequence[str] = topics
    if len(topics) < len(ends):
        nexts = (*firsts[1:], len(ends))
        topic_of = [*chain.from_iterable(map(repeat, topics, map(sub, nexts, firsts)))]
    make = _mixed_head if max(map(len, topics)) <= _KEPT_TOPIC_MAX else _mixed_head.__wrapped__
    heads = [*map(make, repeat(first_byte), repeat(version_5), topic_of, lengths)]
    starts_with: Callable[[bytes, int], bool] = data.startswith
    if not all(map(starts_with, heads, starts)):
        raise PeerError("events: a batch with a packet that is no PUBLISH to its topic like the first")
    ids_at: Sequence[int] = ()
    if first_byte & 6:
        ids_at = [*map(add, starts, map(len, heads))]
        if version_5 and any(map(data.__getitem__, [at + 2 for at in ids_at])):
            raise PeerError("events: a batch with a packet that has properties")
    return PublishBatch(data, first_byte, version_5, topics, firsts, ends, ids_at)


@lru_cache(maxsize=4_096)
def _mixed_head(first_byte: int, version_5: bool, topic: str, length: int) -> bytes:
    return _Heads(first_byte, topic.encode(), version_5)[length]


class _Heads(dict[int, bytes]):
    """The first bytes of packets without properties, by their length."""

    def __init__(self, first_byte: int, topic: bytes, version_5: bool):
        super().__init__()
        self._first = bytes((first_byte,))
        self._field = len(topic).to_bytes(2, "big") + topic
        if version_5 and not first_byte & 6:
            self._field += b"\0"
        self._rest = (2 + version_5) * (first_byte & 6 > 0)

    def __missing__(self, length: int) -> bytes:
        lengths_bytes = 1 if length <= 129 else 2
        head = self._first + variable_bytes(max(length - 1 - lengths_bytes, 0)) + self._field
        if not len(head) + self._rest <= length <= _PACKET_BYTES_MAX:
            raise PeerError(f"events: a packet of {length} bytes in a batch; it has {len(head) + self._rest} or more")
        self[length] = head
        return head
