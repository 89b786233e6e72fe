"""Events as bytes: one head, then the messages as they are.

The head has fixed fields, then the stamp of retained events, what events for a member of a shared subscription have
more (how often they were handed on, the subscription and the broker, with U+0000 between them), the names (origin,
attempt, topic, publisher, with U+0000 between them), the attributes where there are any, the further topics where there
are several (how many, where each begins unless every packet has its own, then their names with U+0000 between them),
and where each message ends if they are not equally long. So the receiver need not look for anything. This is written by
hand, since every message between brokers passes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import islice
from math import inf, isfinite, isnan
from operator import lt
from struct import Struct, pack, unpack_from
from typing import Any, Final

from surecast.errors import ConfigurationError, PeerError
from surecast.protocol.codec import BOOL, U16, U32, Form, Layout, many, pair, sized
from surecast.protocol.filters import Value
from surecast.protocol.mqtt.batches import PublishBatch
from surecast.protocol.mqtt.topics import parse_shared, validate_filter, validate_topic_name
from surecast.protocol.mqtt.wire import text_problem
from surecast.protocol.overlay.event_bodies import MessageRun, read_publish_batch
from surecast.protocol.overlay.event_id import EventId
from surecast.protocol.overlay.overlay_frames import EventBatch, Events

__all__ = ["EVENTS_MAX", "event_bytes", "event_parts", "read_events"]

EVENTS_MAX: Final = 1 << 16
"""No batch on a link has more events."""

_HEAD: Final = Struct(">BBBIQQddII")
_NO_BODY, _PLAIN, _PLAIN_5, _RUN, _MIXED, _MIXED_5 = range(6)
_MIXTURE: Final = Struct(">II")
_STAMP: Final = Struct(">Q")
_SHARE: Final = Struct(">BI")
_QOS_MASK, _IS_STAMPED, _DELETES, _IS_SHARED = 6, 8, 16, 32  # in the flags, besides the bit of equal lengths
_STAMP_MAX: Final = 1 << 62
_FIRST: Final = (0,)
_KEPT_TOPIC_MAX: Final = 256
_DIGITS_MAX: Final = 310
_EQUAL: Final = 1  # the messages are equally long
_BODILESS_MAX: Final = 64  # events without messages cost time and no bytes
_NAMES_KEPT_BYTES_MAX: Final = 512
_SHARE_BYTES_MAX: Final = 1 << 17


class _ValueForm(Form):
    """The value of an attribute: a text, or a number, which stays whole where it is."""

    size_min = 3

    def write(self, value: Any, parts: list[bytes]) -> None:
        if isinstance(value, str):
            kind, data = b"t", value.encode("utf-8", "surrogatepass")
        elif isinstance(value, int):
            kind, data = b"i", b"%d" % value
        else:
            kind, data = b"f", pack(">d", value)
        _BYTES.write(data, parts)
        parts.append(kind)

    def read(self, data: bytes, at: int) -> tuple[Any, int]:
        written, at = _BYTES.read(data, at)
        kind, value = data[at : at + 1], None
        if kind == b"t":
            value = written.decode("utf-8", "surrogatepass")
        elif kind == b"i" and len(written) <= _DIGITS_MAX:
            value = int(written)
            float(value)  # one that is too large for it could not be compared
        elif kind == b"f" and isfinite(number := unpack_from(">d", written)[0]):
            value = number
        if value is None:
            raise ValueError(f"a value of the kind {kind!r} with {len(written)} bytes")
        return value, at + 1


_BYTES: Final = sized(4)
_NAME: Final = sized(2, is_text=True)
_ATTRIBUTES: Final[Layout[Any]] = Layout(
    "attributes of events",
    dict,
    is_whole=BOOL,
    names=many(_NAME, U16),
    each=many(many(pair(_NAME, _ValueForm()), U16, dict), U32),
)


class _Attributes:
    """Attributes as their layout writes them."""

    __slots__ = ("each", "is_whole", "names")

    def __init__(self, batch: EventBatch):
        self.is_whole, self.names = batch.names is None, batch.names or ()
        self.each = [[*attributes.items()] for attributes in batch.attributes]


def event_bytes(events: Events) -> int:
    """Returns how many bytes some events have.

    >>> batch = EventBatch(EventId("b1", 1, 7), 1, "stock/acme", published_s=0.0)
    >>> event_bytes(Events(0, batch, "b1")) == len(b"".join(event_parts(Events(0, batch, "b1"))))
    True
    """
    batch = events.batch
    body = batch.body
    size = _HEAD.size + len(_names(events)) + (_STAMP.size if batch.stamp else 0)
    if batch.share:
        size += len(_share(batch))
    if batch.attributes or batch.names is not None:
        size += 7 + sum(2 + len(name.encode()) for name in batch.names or ())
        size += sum(map(_attributes_bytes, batch.attributes))
    if body is not None:
        size += body.size
        if isinstance(body, PublishBatch | MessageRun) and not _is_equal(body.ends):
            size += 4 * len(body.ends)
            if len(body.topics) > 1:
                size += _mixture_bytes(body)
    return size


def _attributes_bytes(attributes: Mapping[str, Value]) -> int:
    size = 2 + 7 * len(attributes)
    for name, value in attributes.items():
        size += len(name) if name.isascii() else len(name.encode())
        if isinstance(value, str):
            size += len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass"))
        else:
            size += len(str(value)) if isinstance(value, int) else 8
    return size


def event_parts(events: Events) -> tuple[bytes, bytes]:
    """Returns events as bytes: all that stands before the messages, and these."""
    batch, body = events.batch, events.batch.body
    first = batch.first
    names = _names(events)
    has_attributes = batch.attributes or batch.names is not None
    attributes = _ATTRIBUTES.encode(_Attributes(batch)) if has_attributes else b""
    kind, is_equal, mixture, ends, data = _NO_BODY, _EQUAL, b"", b"", b""
    if isinstance(body, PublishBatch | MessageRun):
        kind = _RUN if isinstance(body, MessageRun) else _PLAIN_5 if body.version_5 else _PLAIN
        data = body.data
        if len(body.topics) > 1:
            kind += _MIXED - _PLAIN
            mixture = _mixture(body)
        if not _is_equal(body.ends):
            is_equal, ends = 0, pack(f">{len(body.ends)}I", *body.ends)
    elif body is not None:
        raise TypeError(f"a {type(body).__name__} has no form on a link")
    stamp = b""
    if batch.stamp:
        is_equal |= _IS_STAMPED | _DELETES * batch.deletes
        stamp = _STAMP.pack(batch.stamp)
    elif batch.share:
        is_equal |= _IS_SHARED
        stamp = _share(batch)
    head = _HEAD.pack(
        events.tree, batch.qos << 1 | is_equal, kind, batch.count, first.incarnation, first.number,
        batch.published_s, batch.expires_s, len(names), len(attributes),
    )  # fmt: skip
    return b"".join((head, stamp, names, attributes, mixture, ends)), data


def _share(batch: EventBatch) -> bytes:
    names = f"{batch.share}\0{batch.at}".encode()
    return _SHARE.pack(batch.handed, len(names)) + names


def _mixture_bytes(body: PublishBatch | MessageRun) -> int:
    topics = body.topics
    places = 4 * (len(topics) - 1) if len(topics) < len(body.ends) else 0
    text = "".join(topics[1:])
    size = len(text) if text.isascii() else len(text.encode())
    return _MIXTURE.size + places + size + len(topics) - 2


def _mixture(body: PublishBatch | MessageRun) -> bytes:
    """Returns the topics of a body behind its first one, and where they begin."""
    topics, firsts = body.topics, body.firsts
    names = "\0".join(topics[1:]).encode()
    has_places = len(topics) < len(body.ends)
    return b"".join((
        _MIXTURE.pack(len(topics), len(names)),
        pack(f">{len(topics) - 1}I", *firsts[1:]) if has_places else b"",
        names,
    ))  # fmt: skip


def read_events(data: bytes, at: int, ahead_s: float = 0.0) -> Events:
    """Returns the events that the bytes from a place on are; PeerError where they are none.

    `ahead_s` says by how much the clock of their sender is ahead; their times are set by the clock of the receiver.
    """
    if len(data) - at < _HEAD.size:
        raise PeerError(f"events: {len(data) - at} bytes; their head has {_HEAD.size}")
    (tree, flags, kind, count, incarnation, number, published_s, expires_s, names_bytes,
     attributes_bytes) = _HEAD.unpack_from(data, at)  # fmt: skip
    qos, stamp = (flags & _QOS_MASK) >> 1, 0
    share, at_broker, handed = "", "", 0
    most = EVENTS_MAX if kind else _BODILESS_MAX
    if flags >= 2 * _IS_SHARED or qos > 2 or kind > _MIXED_5 or not 1 <= count <= most:
        raise PeerError(f"events: {count} of the kind {kind} with the flags {flags}, which there cannot be")
    if not isfinite(published_s) or isnan(expires_s) or expires_s == -inf:
        raise PeerError(f"events: published at {published_s}, and their lifetime ends at {expires_s}")
    at += _HEAD.size
    if flags & _IS_SHARED:
        handed, share, at_broker, at = _read_share(data, at, flags)
    elif flags > 5:
        stamp = _read_stamp(data, at, flags, kind)
        at += _STAMP.size
    attributes_at = at + names_bytes
    ends_at = attributes_at + attributes_bytes
    if ends_at > len(data):
        raise PeerError(f"events: their head goes on to byte {ends_at} of {len(data)}")
    names = data[at:attributes_at]
    read = _read_names if names_bytes <= _NAMES_KEPT_BYTES_MAX else _read_names.__wrapped__
    origin, attempt, topic, publisher = read(names)
    attributes: tuple[Mapping[str, Value], ...] = ()
    looked_for: tuple[str, ...] | None = None
    if attributes_bytes:
        row = _ATTRIBUTES.decode(data[attributes_at:ends_at])
        attributes, looked_for = row["each"], None if row["is_whole"] else row["names"]
        if attributes and len(attributes) != count:
            raise PeerError(f"events: {count}, with the attributes of {len(attributes)}")
    topics: tuple[str, ...] = (topic,)
    firsts: tuple[int, ...] = _FIRST
    if kind >= _MIXED:
        topics, firsts, ends_at = _read_mixture(data, ends_at, count, topic)
        kind -= _MIXED - _PLAIN
        if flags & _EQUAL:
            raise PeerError("events: to several topics, which say that they are equally long")
    body = _read_body(kind, data, ends_at, count, flags & _EQUAL, topics, firsts) if kind else None
    if not kind and len(data) > ends_at:
        raise PeerError(f"events: {len(data) - ends_at} bytes after their end")
    return Events(
        tree,
        EventBatch(
            EventId(origin, incarnation, number), count, topic, published_s - ahead_s, expires_s - ahead_s,
            qos, attributes, body, publisher, looked_for, stamp, flags & _DELETES > 0, share, at_broker, handed,
        ),
        attempt,
    )  # fmt: skip


def _read_stamp(data: bytes, at: int, flags: int, kind: int) -> int:
    """Returns the stamp of events that are retained."""
    if not flags & _IS_STAMPED or kind not in (_NO_BODY, _RUN) or len(data) < at + _STAMP.size:
        raise PeerError(f"events: flags {flags} and kind {kind}, which there cannot be")
    stamp: int = _STAMP.unpack_from(data, at)[0]
    if not 0 < stamp <= _STAMP_MAX:
        raise PeerError(f"events: retained with the stamp {stamp}, which is beyond all times")
    return stamp


def _read_share(data: bytes, at: int, flags: int) -> tuple[int, str, str, int]:
    """Returns what events for a member of a shared subscription have more, and the place behind it."""
    begin = at + _SHARE.size
    if flags & (_IS_STAMPED | _DELETES) or begin > len(data):
        raise PeerError(f"events: for a shared subscription, with the flags {flags}, which there cannot be")
    handed, size = _SHARE.unpack_from(data, at)
    names = data[begin : begin + size]
    if len(names) < size or size > _SHARE_BYTES_MAX:
        raise PeerError(f"events: the name of a shared subscription of {size} bytes")
    share, broker = _read_share_names(names)
    return handed, share, broker, begin + size


@lru_cache(maxsize=1_024)
def _read_share_names(names: bytes) -> tuple[str, str]:
    try:
        share, broker = names.decode().split("\0")
        if (shared := parse_shared(share)) is None:
            raise ValueError(f"{share!r} is no shared subscription")
        validate_filter(shared[1])
    except (ValueError, ConfigurationError) as error:
        raise PeerError(f"events: their shared subscription: {error}") from error
    return share, broker


def _read_mixture(data: bytes, at: int, count: int, topic: str) -> tuple[tuple[str, ...], tuple[int, ...], int]:
    """Returns the topics of a batch, the places of the first messages to each, and where what is behind them begins."""
    begin = at + _MIXTURE.size
    if begin > len(data):
        raise PeerError(f"events: {len(data) - at} bytes in place of several topics")
    number, names_bytes = _MIXTURE.unpack_from(data, at)
    if not 1 < number <= count:
        raise PeerError(f"events: {count} to {number} topics")
    has_places = number < count
    names_at = begin + 4 * (number - 1) * has_places
    end = names_at + names_bytes
    if end > len(data):
        raise PeerError(f"events: their topics go on to byte {end} of {len(data)}")
    firsts = (0, *unpack_from(f">{number - 1}I", data, begin)) if has_places else tuple(range(count))
    if firsts[-1] >= count or not all(map(lt, firsts, islice(firsts, 1, None))):
        raise PeerError("events: topics that do not begin one behind the other")
    try:
        topics = (topic, *data[names_at:end].decode().split("\0"))
        for each in topics:
            (_check_topic if len(each) <= _KEPT_TOPIC_MAX else _check_topic.__wrapped__)(each)
    except (ValueError, ConfigurationError) as error:
        raise PeerError(f"events: their topics: {error}") from error
    if len(topics) != number:
        raise PeerError(f"events: {len(topics)} topics in place of {number}")
    return topics, firsts, end


def _read_body(
    kind: int,
    data: bytes,
    ends_at: int,
    count: int,
    is_equal: int,
    topics: Sequence[str],
    firsts: Sequence[int],
) -> PublishBatch | MessageRun:
    at = ends_at if is_equal else ends_at + 4 * count
    size = len(data) - at
    ends: Sequence[int]
    if is_equal:
        if size < count or size % count:
            raise PeerError(f"events: {size} bytes of {count} messages, which are no equal parts")
        ends = (size,) if count == 1 else range(size // count, size + 1, size // count)
    else:
        if size < count:
            raise PeerError(f"events: {max(size, 0)} bytes of {count} messages")
        ends = [*unpack_from(f">{count}I", data, ends_at)]
        if ends[-1] != size or ends[0] < 1 or not all(map(lt, ends, islice(ends, 1, None))):
            raise PeerError("events: messages that do not end one behind the other, and the last where the bytes do")
    if kind == _RUN:
        run = MessageRun(data[at:], ends)
        run.check()
        return run
    return read_publish_batch(data[at:], ends, topics, firsts, kind == _PLAIN_5)


def _is_equal(ends: Sequence[int]) -> bool:
    return isinstance(ends, range) or len(ends) == 1


def _names(events: Events) -> bytes:
    batch = events.batch
    join = _join_names if len(batch.topic) + len(batch.publisher) <= _NAMES_KEPT_BYTES_MAX else _join_names.__wrapped__
    return join(batch.first.origin, events.attempt, batch.topic, batch.publisher)


@lru_cache(maxsize=4_096)
def _join_names(origin: str, attempt: str, topic: str, publisher: str) -> bytes:
    return "\0".join((origin, attempt, topic, publisher)).encode()


@lru_cache(maxsize=4_096)
def _read_names(names: bytes) -> tuple[str, str, str, str]:
    try:
        origin, attempt, topic, publisher = names.decode().split("\0", 3)
        _check_topic.__wrapped__(topic)
    except (ValueError, ConfigurationError) as error:
        raise PeerError(f"events: their names: {error}") from error
    return origin, attempt, topic, publisher


@lru_cache(maxsize=4_096)
def _check_topic(topic: str) -> None:
    """Raises ConfigurationError where clients could not have published to a topic."""
    validate_topic_name(topic)
    if not topic.isprintable() and (problem := text_problem(topic, strict=True)):
        raise ConfigurationError(f"the topic {problem}")
