"""Runs: many packets of one shape, one after the other, that a broker can treat as one.

A busy client sends hundreds of messages in one write, often to one topic and of one length, and acknowledges them the
same way. A decoder that is asked for runs gives such packets out as one `PublishRun` or `AckRun`, which hold what the
single packets would say; `packets` takes them apart again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from typing import Final

from surecast.protocol.mqtt.packets import Puback, Publish, publish_from_wire
from surecast.protocol.mqtt.properties import NO_PROPERTIES
from surecast.protocol.mqtt.wire import variable_bytes

__all__ = ["AckRun", "Pattern", "PublishRun", "find_acks", "find_publishes", "pattern_of", "run_of_one"]

_ALIKE_MAX: Final = 64
_COUNTS_MAX: Final = 4  # clients send bursts of few sizes, and each takes memory
_KNOWN_BYTES_MAX: Final = 512  # longer topics are not worth the memory
_WINDOW: Final = 128  # so many packets are looked at first
_ID_AT_MAX: Final = 65_535  # two bytes say where identifiers are, where a run is told to others


@dataclass(slots=True)  # not frozen: that would make it three times as dear, and there are many
class PublishRun:
    """PUBLISH packets in a row with equal topic, flags and length, and without properties; a decoder gives two or more.

    `data` is all of them, each of `length` bytes; in each the packet identifier (at QoS 1 and 2) stands at `id_at`
    and the payload begins at `payload_at`.
    """

    topic: str
    flags: tuple[int, bool, bool]
    count: int
    length: int
    id_at: int
    payload_at: int
    data: bytes

    def lowered(self) -> bytes:
        """The same messages at QoS 0: without packet identifiers.

        >>> run = find_publishes(bytes.fromhex("3206 0001 74 0007 78 3206 0001 74 0008 79"), 0, 8, 5, 7, "t",
        ...                      (1, False, False))
        >>> run.lowered().hex(" ")
        '30 04 00 01 74 78 30 04 00 01 74 79'
        """
        whole, length, id_at, count = self.data, self.length, self.id_at, self.count
        topic_at, remaining, is_shorter = _lowered_head(length)
        if count == 1 or is_shorter:
            head = b"\x30" + remaining + whole[topic_at:id_at]
            return b"".join([head + whole[at + id_at + 2 : at + length] for at in range(0, len(whole), length)])
        data = bytearray(whole)
        # Whole columns go, and are set: that is as quick for a hundred packets as for one.
        del data[id_at + 1 :: length]
        del data[id_at :: length - 1]
        length -= 2
        data[::length] = b"\x30" * count
        for at, byte in enumerate(remaining, 1):
            data[at::length] = bytes((byte,)) * count
        return bytes(data)

    def answers(self, reason: int = 0) -> bytes:
        """The PUBACK packets for the messages of a run of QoS 1, one after the other; a reason is for MQTT 5.

        >>> run = find_publishes(bytes.fromhex("3206 0001 74 0007 78 3206 0001 74 0008 79"), 0, 8, 5, 7, "t",
        ...                      (1, False, False))
        >>> run.answers().hex(" "), run.answers(16).hex(" ")
        ('40 02 00 07 40 02 00 08', '40 03 00 07 10 40 03 00 08 10')
        """
        whole, length, id_at = self.data, self.length, self.id_at
        size = 5 if reason else 4
        answer = bytes((0x40, 3, 0, 0, reason)) if reason else b"\x40\x02\0\0"
        if self.count == 1:
            return answer[:2] + whole[id_at : id_at + 2] + answer[4:]
        data = bytearray(answer * self.count)
        data[2::size], data[3::size] = whole[id_at::length], whole[id_at + 1 :: length]
        return bytes(data)

    def packets(self) -> list[Publish]:
        """The packets, one by one."""
        data, length, id_at, payload_at, flags = self.data, self.length, self.id_at, self.payload_at, self.flags
        made = []
        for start in range(0, len(data), length):
            at = start + id_at
            packet_id = data[at] << 8 | data[at + 1] if flags[0] else 0
            end = start + length
            made.append(
                publish_from_wire(self.topic, data[start + payload_at : end], flags, packet_id, data[start:end])
            )
        return made


@dataclass(frozen=True, slots=True)
class AckRun:
    """PUBACK packets in a row that report success; `packet_ids` in their order."""

    packet_ids: tuple[int, ...]

    def packets(self) -> list[Puback]:
        """The packets, one by one."""
        return [Puback(packet_id) for packet_id in self.packet_ids]


class Pattern:
    """What the messages of runs have in common: a client that sends to a topic sends more of the same, as do others.

    `version_5` is that of the protocol. `pattern_of` gives equal ones as one and the same.

    >>> data = bytes.fromhex("3206 0001 74 0007 78 3206 0001 74 0008 79")
    >>> pattern = pattern_of(data[:5], 8, 7)
    >>> pattern.fits(data), pattern.fits(data[:8]), pattern.fits(data[:9])
    (True, True, False)
    >>> pattern.run(data) == find_publishes(data, 0, 8, 5, 7, "t", (1, False, False))
    True
    """

    __slots__ = ("_has_id", "_known", "flags", "head", "id_at", "length", "payload_at", "topic", "version_5")

    def __init__(self, head: bytes, length: int, payload_at: int):
        first = head[0]
        topic_at = next(at for at in range(1, 5) if head[at] < 128) + 3
        self.topic = head[topic_at:].decode()
        self.flags = (first >> 1 & 3, bool(first & 1), bool(first & 8))
        self.head = head
        self.length = length
        self.id_at = len(head)
        self.payload_at = payload_at
        self._has_id = self.flags[0] > 0
        self.version_5 = payload_at > self.id_at + 2 * self._has_id
        self._known: dict[int, tuple[Callable[[bytes], tuple[bytes, ...]], tuple[bytes, ...]]] = {}

    def fits(self, data: bytes) -> bool:
        """Whether all of `data` is a run, or one message, of this kind; not also where it is more than this tells."""
        length, id_at, size = self.length, self.id_at, len(data)
        count = size // length
        if count * length != size or not data.startswith(self.head):
            return False
        if count > 1:
            known = self._known.get(count)
            if known is None:
                if count > _ALIKE_MAX:
                    return False
                if len(self._known) >= _COUNTS_MAX:
                    self._known.clear()
                known = self._known[count] = (_heads(length, id_at, count).unpack, (self.head,) * count)
            unpack, heads = known
            if unpack(data) != heads:
                return False
        if (
            self._has_id
            and b"\0" in data[id_at + 1 :: length]
            and b"\0\0" in _identifiers(length, id_at, count).unpack(data)
        ):
            return False
        return not (self.version_5 and data[self.payload_at - 1 :: length].strip(b"\0"))

    def run(self, data: bytes) -> PublishRun:
        """A run of what fits."""
        length = self.length
        return PublishRun(self.topic, self.flags, len(data) // length, length, self.id_at, self.payload_at, data)


def pattern_of(head: bytes, length: int, payload_at: int) -> Pattern:
    """The pattern of messages that begin with `head`, up to their identifiers, and have this length."""
    return (_known_pattern if len(head) <= _KNOWN_BYTES_MAX else Pattern)(head, length, payload_at)


@lru_cache(maxsize=4096)
def _known_pattern(head: bytes, length: int, payload_at: int) -> Pattern:
    return Pattern(head, length, payload_at)


@lru_cache(maxsize=512)
def _heads(length: int, id_at: int, count: int) -> Struct:
    """Takes the beginnings of all packets of a run at once."""
    return Struct(f"{id_at}s{length - id_at}x" * count)


@lru_cache(maxsize=512)
def _identifiers(length: int, id_at: int, count: int) -> Struct:
    """Takes the packet identifiers of a run."""
    return Struct(f"{id_at}x2s{length - id_at - 2}x" * count)


@lru_cache(maxsize=1024)
def _lowered_head(length: int) -> tuple[int, bytes, bool]:
    """Of a packet with an identifier: where the topic begins; without the identifier: its remaining length.

    Last comes whether this length itself takes fewer bytes then.
    """
    topic_at = next(at for at in range(2, 6) if len(variable_bytes(length - at)) == at - 1)
    remaining = variable_bytes(length - topic_at - 2)
    return topic_at, remaining, len(remaining) < topic_at - 1


def run_of_one(packet: Publish, version_5: bool) -> PublishRun | None:
    """A packet as a run; None where there is more to it than a run can say.

    >>> packet = publish_from_wire("t", b"x", (1, False, False), 7, bytes.fromhex("3206 0001 74 0007 78"))
    >>> run_of_one(packet, version_5=False).packets() == [packet]
    True
    """
    raw = packet.raw
    if not raw or packet.properties is not NO_PROPERTIES or not packet.topic:
        return None
    qos, length = packet.qos, len(raw)
    payload_at = length - len(packet.payload)
    id_at = payload_at - 2 * (qos > 0) - version_5
    if id_at > _ID_AT_MAX:
        return None
    flags = (qos, packet.retain, packet.dup)
    return PublishRun(packet.topic, flags, 1, length, id_at, payload_at, raw)


def find_publishes(
    data: bytes, start: int, length: int, id_at: int, payload_at: int, topic: str, flags: tuple[int, bool, bool]
) -> PublishRun | None:
    """The run that begins with the sound packet of `length` bytes at `start`; None if it is alone.

    `id_at` and `payload_at` count from `start`. A packet with anything special about it ends the run before it.
    """
    prefix = data[start : start + id_at]
    last = min(len(data) - length, start + _WINDOW * length)
    end = start + length
    while end <= last and data.startswith(prefix, end):
        end += length
    count = (end - start) // length
    if count < 2:
        return None
    has_id = flags[0] > 0
    # MQTT 5: like the first one, all must say that there are no properties.
    none_at = payload_at - 1 if payload_at > id_at + 2 * has_id else 0
    count = _sound_packets(data, start, end, length, none_at, id_at if has_id else 0)
    if count > _WINDOW:
        count = _count_more(data, start, count, length, none_at, id_at, has_id)
    elif count < 2:
        return None
    return PublishRun(topic, flags, count, length, id_at, payload_at, data[start : start + count * length])


def _count_more(data: bytes, start: int, count: int, length: int, none_at: int, id_at: int, has_id: bool) -> int:
    """Counts on in a long run; ever more packets are looked at, so that those looked at in vain stay in proportion."""
    prefix, last = data[start : start + id_at], len(data) - length
    while True:
        window = 4 * count
        begin = end = start + count * length
        stop = min(last, begin + (window - 1) * length)
        while end <= stop and data.startswith(prefix, end):
            end += length
        sound = _sound_packets(data, begin, end, length, none_at, id_at if has_id else 0)
        count += sound
        if sound < window:
            return count


def _sound_packets(data: bytes, begin: int, end: int, length: int, none_at: int, id_at: int) -> int:
    """Counts the packets of `length` bytes before the first with properties, at `none_at`, or without identifier."""
    count = (end - begin) // length
    if none_at:
        none = data[begin + none_at : end : length]
        count = len(none) - len(none.lstrip(b"\0"))
    if id_at:
        high, low = data[begin + id_at : end : length], data[begin + id_at + 1 : end : length]
        if b"\0" in low and b"\0" in high:
            count = next((i for i in range(count) if not high[i] and not low[i]), count)
    return count


def find_acks(data: bytes, start: int) -> AckRun | None:
    """The run of plain PUBACK packets that begins at `start`; None if there is none.

    >>> find_acks(bytes.fromhex("4002 0001 4002 0002 c000"), 0)
    AckRun(packet_ids=(1, 2))
    """
    count = (len(data) - start) // 4
    if count < 2:
        # Many clients acknowledge each message as it comes.
        identifier = data[start + 2] << 8 | data[start + 3] if count and data[start + 1] == 2 else 0
        return AckRun((identifier,)) if identifier else None
    looked = min(count, _WINDOW)
    ids = _ack_ids(data, start, start + 4 * looked)
    while len(ids) == looked < count:
        # Ever more are looked at, so that what is looked at in vain, or copied, stays in proportion.
        more = min(count - looked, 4 * looked)
        ids += _ack_ids(data, start + 4 * looked, start + 4 * (looked + more))
        looked += more
    return AckRun(ids) if ids else None


def _ack_ids(data: bytes, start: int, end: int) -> tuple[int, ...]:
    """Reads the identifiers of the plain PUBACK packets between `start` and `end`, up to the first that is not one."""
    firsts, lengths = data[start:end:4], data[start + 1 : end : 4]
    count = min(len(firsts) - len(firsts.lstrip(b"\x40")), len(lengths) - len(lengths.lstrip(b"\x02")))
    end = start + 4 * count
    ids = tuple(high << 8 | low for high, low in zip(data[start + 2 : end : 4], data[start + 3 : end : 4], strict=True))
    return ids[: ids.index(0)] if 0 in ids else ids
