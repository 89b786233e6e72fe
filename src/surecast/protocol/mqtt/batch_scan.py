"""Batches of messages found in what was read.

A busy client sends many messages in one write. `find_publishes` finds what belongs together in one scan of a read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from surecast.protocol.mqtt.batches import FIRST, FLAGS_OF, PublishBatch, beginnings, moved

__all__ = ["find_publishes"]

_WINDOW: Final = 128  # so many packets of equal length are looked at first
_LONGEST: Final = 16_387  # no packet in a batch is longer
_EQUAL_MIN: Final = 8  # fewer of equal length may be chance: what follows is looked at in any case


def find_publishes(
    data: bytes,
    begin: int,
    longest: int,
    known: Callable[[bytes], str | None],
    learn: Callable[[bytes], str | None],
    version_5: bool,
) -> PublishBatch | None:
    """The batch that begins with the packet at `begin`; None if that is not whole or there is more to it.

    `known`, or else `learn`, gives the topic of a field, which is a topic with its length in front, and None if it is
    none. A packet with anything special about it, longer than `longest`, or cut off, ends the batch before it.
    """
    size, first_byte = len(data), data[begin]
    if size - begin < 5 or first_byte not in FLAGS_OF:
        return None
    length, at = data[begin + 1], begin + 2
    if length > 127:
        more = data[at]
        if not 0 < more < 128:
            return None
        length += (more - 1) << 7
        at += 1
    end = at + length
    id_at = at + 2 + (data[at] << 8 | data[at + 1])
    extra = 2 + version_5 if first_byte & 6 else version_5
    if end > size or end - begin > longest or id_at + extra > end:
        return None
    if (extra > 1 and not (data[id_at] or data[id_at + 1])) or (version_5 and data[id_at + extra - 1]):
        return None
    field = data[at:id_at]
    topic = known(field) or learn(field)
    if not topic:
        return None
    if end + 4 >= size or data[end] != first_byte:
        return PublishBatch(
            data if size == end - begin else data[begin:end], first_byte, version_5, (topic,), FIRST,
            (end - begin,), (id_at - begin,) if extra > 1 else (),
        )  # fmt: skip
    ends, ids_at = [end], [id_at] if extra > 1 else []
    if data.startswith(data[begin:id_at], end):
        length = end - begin
        count = _count_equal(data, begin, length, id_at - begin, version_5 and id_at - begin + extra - 1, extra > 1)
        end = begin + count * length
        if count >= _EQUAL_MIN or (end == size and count > 1):
            return PublishBatch(
                data if size == end - begin else data[begin:end], first_byte, version_5, (topic,), FIRST,
                range(length, count * length + 1, length),
                range(id_at - begin, count * length, length) if extra > 1 else (),
            )  # fmt: skip
        ends += range(begin + 2 * length, end + 1, length)
        if extra > 1:
            ids_at += range(id_at + length, end, length)
    return _find_more(data, begin, longest, known, learn, version_5, [topic], field, ends, ids_at)


def _find_more(  # noqa: C901
    data: bytes,
    begin: int,
    longest: int,
    known: Callable[[bytes], str | None],
    learn: Callable[[bytes], str | None],
    version_5: bool,
    topics: list[str],
    field: bytes,
    ends: list[int],
    ids_at: list[int],
) -> PublishBatch:
    """The batch of which the first packets were found, with all that belongs to it; `field` is the last topic."""
    size, first_byte, startswith = len(data), data[begin], data.startswith
    has_id = first_byte & 6 > 0
    extra = 2 * has_id + version_5
    start, width = ends[-1], len(field)
    firsts = [0]
    add_end, add_id, add_topic, add_first = ends.append, ids_at.append, topics.append, firsts.append
    count = len(ends)
    last, is_limited = size - 4, longest < _LONGEST
    while start < last and data[start] == first_byte:
        length, at = data[start + 1], start + 2
        if length > 127:
            more = data[at]
            if not 0 < more < 128:
                break
            length += (more - 1) << 7
            at += 1
        end = at + length
        id_at = at + width
        topic = None
        if not startswith(field, at):
            other = data[at:id_at]
            topic = known(other)  # which says its own length: what is known is the field, and not just like it
            if topic is None:
                id_at = at + 2 + (data[at] << 8 | data[at + 1])
                if id_at > end or end > size:
                    break
                other = data[at:id_at]
                topic = known(other) or learn(other)
                if not topic:
                    break
        after = id_at + extra
        if after > end or end > size or (is_limited and end - start > longest) or (version_5 and data[after - 1]):
            break
        if has_id:
            if not (data[id_at] or data[id_at + 1]):
                break
            add_id(id_at)
        if topic is not None:
            add_topic(topic)
            add_first(count)
            field, width = other, id_at - at
        add_end(end)
        count += 1
        start = end
    end = ends[-1]
    if count == 1:
        return PublishBatch(data[begin:end], first_byte, version_5, topics, firsts,
                            (end - begin,), moved(ids_at, begin))  # fmt: skip
    if begin or end < size:
        data = data[begin:end]
    return PublishBatch(data, first_byte, version_5, topics, firsts, moved(ends, begin), moved(ids_at, begin))


def _count_equal(data: bytes, start: int, length: int, id_at: int, none_at: int, has_id: bool) -> int:
    """Counts the packets like the sound one at `start`, of `length` bytes, behind each other there, with it.

    They begin with the same bytes up to `id_at`. Where `none_at` is not 0, the byte there must be, or there are
    properties; a packet that has an identifier is unsound if that is 0. Ever more packets are looked at, so that those
    looked at in vain stay in proportion.
    """
    prefix, startswith = data[start : start + id_at], data.startswith
    last = len(data) - length
    begin = start
    count, rest = divmod(len(data) - start, length)
    if not rest and 4 <= count <= _WINDOW and beginnings(length, id_at, count)(data, start) == (prefix,) * count:
        # Most reads of messages of equal length have nothing else.
        has_properties = none_at and data[start + none_at :: length].strip(b"\0")
        if not has_properties and not (has_id and b"\0" in data[start + id_at + 1 :: length]):
            return count
    while True:
        end = begin
        stop = min(last, begin + (4 * (begin - start) or _WINDOW * length) - length)
        while end <= stop and startswith(prefix, end):
            end += length
        count = (end - begin) // length
        if none_at:
            none = data[begin + none_at : end : length]
            count = len(none) - len(none.lstrip(b"\0"))
        if has_id:
            low = data[begin + id_at + 1 : end : length]
            if b"\0" in low:
                high = data[begin + id_at : end : length]
                count = next((i for i in range(count) if not high[i] and not low[i]), count)
        begin += count * length
        if begin < end or end <= stop or begin > last:
            return (begin - start) // length
