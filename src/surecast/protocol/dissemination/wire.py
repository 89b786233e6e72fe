"""Messages as datagrams.

| bytes | field |
|---|---|
| 2 | magic `SD` |
| 1 | version, 1 |
| 1 | kind; plus 128 where the checksum is keyed |
| 4 | sender |
| as the kind says | body |
| 4 or 16 | CRC-32C, or keyed BLAKE2b, of all before |

Numbers are big-endian, times whole microseconds. Any bytes either decode or raise `DatagramError`, whose reason is
what rejections are counted by; and whatever decodes, encodes to the same bytes again.
"""

from __future__ import annotations

import struct
from enum import StrEnum
from typing import Final

from surecast.errors import ConfigurationError, PeerError
from surecast.protocol.coding import CodingSettings, Kind, Packet, PacketError
from surecast.protocol.coding import encode as encode_packet
from surecast.protocol.coding import parse as parse_packet
from surecast.protocol.coding.checksum import CRC_BYTES, KEYED_BYTES, checksum, checksum_fits
from surecast.protocol.dissemination import messages as m
from surecast.protocol.dissemination.body import Body
from surecast.protocol.gossip import Announced, Digest, Push, Reply, Request, Wanted
from surecast.scenario.paths import Branch

__all__ = [
    "DATA_BYTES",
    "DatagramError",
    "Reason",
    "ack_bytes",
    "decode",
    "digest_bytes",
    "encode",
    "message_bytes",
    "request_bytes",
    "view_bytes",
]

MAGIC: Final = b"SD"
VERSION: Final = 1
_KEYED: Final = 128
_TIME_MAX: Final = 1 << 53
_HEADER: Final = struct.Struct(">2sBBI")
_DATA: Final = struct.Struct(">IHBQ")
_PUSH: Final = struct.Struct(">IQ")
_ACK: Final = struct.Struct(">QIHB")
_INSTALL: Final = struct.Struct(">IIIIHH")
_BRANCH: Final = struct.Struct(">IIH")
_BLOCK: Final = struct.Struct(">II")
_VIEW: Final = struct.Struct(">IIBHH")
_KNOWN: Final = struct.Struct(">IIH")
_SUBSCRIBE: Final = struct.Struct(">IIHH")
_NUMBER: Final = struct.Struct(">I")
_REGISTERED: Final = struct.Struct(">IB")
_PUBLISH: Final = struct.Struct(">IIQ")
_GRANTED: Final = struct.Struct(">IBQId")
_EVENT: Final = struct.Struct(">QIIQ")
_REQUEST: Final = struct.Struct(">Q")
_WANTED: Final = struct.Struct(">IHH")
_PACKET: Final = 31 + CRC_BYTES
"""What a coded packet takes besides its vector and its payload."""

DATA_BYTES: Final = _HEADER.size + _DATA.size + _PACKET
"""What a datagram of data takes besides the encoding vector, the payload and its own checksum."""


class Reason(StrEnum):
    """Why a datagram is rejected."""

    LONG = "too long"
    SHORT = "too short"
    MAGIC = "not ours"
    VERSION = "unknown version"
    KIND = "unknown kind"
    CHECKSUM = "wrong checksum"
    FORM = "malformed"
    PACKET = "bad packet"


class DatagramError(PeerError):
    """Bytes that are no datagram of ours."""

    def __init__(self, reason: Reason, message: str):
        self.reason = reason
        super().__init__(f"datagram rejected ({reason}): {message}")


_KINDS: Final[tuple[type[m.Message], ...]] = (
    m.Data,
    Push,
    Reply,
    Digest,
    Request,
    m.Ack,
    m.Install,
    m.View,
    m.Known,
    m.Subscribe,
    m.Unsubscribe,
    m.Registered,
    m.Publish,
    m.Granted,
)
_NUMBER_OF: Final = {kind: number for number, kind in enumerate(_KINDS)}


def encode(
    message: m.Message, sender: int, coding: CodingSettings, key: bytes | None = None, mtu_bytes: int = 1400
) -> bytes:
    """A message as a datagram.

    >>> datagram = encode(m.Ack(7, 0, 3, 1, 0b1000), 1, CodingSettings())
    >>> len(datagram), decode(datagram, CodingSettings())
    (28, (1, Ack(event_id=7, generation=0, number=3, turn=1, received=8)))
    """
    kind = _NUMBER_OF[type(message)] | (_KEYED if key is not None else 0)
    try:
        datagram = _HEADER.pack(MAGIC, VERSION, kind, sender) + _body(message, coding)
    except struct.error as error:
        raise ConfigurationError(f"{message!r} cannot be sent: {error}") from None
    datagram += checksum(datagram, key)
    if len(datagram) > mtu_bytes:
        raise ConfigurationError(
            f"a {type(message).__name__} takes {len(datagram)} bytes, and a datagram holds {mtu_bytes}"
        )
    return datagram


def decode(
    datagram: bytes, coding: CodingSettings, key: bytes | None = None, mtu_bytes: int = 1400
) -> tuple[int, m.Message]:
    """The sender that a datagram names, and the message in it.

    >>> decode(b"hello", CodingSettings())
    Traceback (most recent call last):
    ...
    surecast.protocol.dissemination.wire.DatagramError: datagram rejected (too short): it has 5 bytes
    """
    tail = CRC_BYTES if key is None else KEYED_BYTES
    if len(datagram) > mtu_bytes:
        raise DatagramError(Reason.LONG, f"it has {len(datagram)} bytes; {mtu_bytes} are allowed")
    if len(datagram) < _HEADER.size + tail:
        raise DatagramError(Reason.SHORT, f"it has {len(datagram)} bytes")
    magic, version, kind, sender = _HEADER.unpack_from(datagram)
    if magic != MAGIC:
        raise DatagramError(Reason.MAGIC, f"it begins with {magic!r}, not {MAGIC!r}")
    if version != VERSION:
        raise DatagramError(Reason.VERSION, f"version {version}; this is version {VERSION}")
    number = kind & ~_KEYED
    if number >= len(_KINDS) or bool(kind & _KEYED) != (key is not None):
        raise DatagramError(Reason.KIND, f"kind {kind}")
    if not checksum_fits(datagram[:-tail], datagram[-tail:], key):
        raise DatagramError(Reason.CHECKSUM, "it was damaged, or made with another key")
    try:
        return sender, _message(_KINDS[number], datagram[_HEADER.size : -tail], coding)
    except PacketError as error:
        raise DatagramError(Reason.PACKET, str(error)) from None
    except (struct.error, ValueError, PeerError) as error:
        raise DatagramError(Reason.FORM, f"a {_KINDS[number].__name__}: {error}") from None


def ack_bytes(numbers: int) -> int:
    """An acknowledgement of so many packets, without checksum."""
    return _HEADER.size + _ACK.size + _bitmap_bytes(numbers)


def digest_bytes(events: int) -> int:
    """A digest of so many events, without checksum."""
    return _HEADER.size + events * _EVENT.size


def request_bytes(generations: int, numbers: int) -> int:
    """A request for so many generations and numbers of packets, without checksum."""
    return _HEADER.size + _REQUEST.size + generations * _WANTED.size + 2 * numbers


def view_bytes(peers: int) -> int:
    """A view of so many peers, without events and checksum."""
    return _HEADER.size + _VIEW.size + 4 * peers


def message_bytes(
    message: m.Message, coding: CodingSettings, key: bytes | None = None, payload_bytes: int | None = None
) -> int:
    """How long the datagram of a message is, without making it. `payload_bytes` counts each payload as so long, for
    simulations that carry shorter ones.

    >>> message_bytes(m.Ack(7, 0, 3), CodingSettings())
    27
    """
    tail = CRC_BYTES if key is None else KEYED_BYTES
    if isinstance(message, m.Data):
        body = _DATA.size + _packet_bytes(message.packet, coding, payload_bytes)
    elif isinstance(message, Push | Reply):
        body = _PUSH.size + _packet_bytes(message.packet, coding, payload_bytes)
    elif isinstance(message, Digest):
        body = _EVENT.size * len(message.events)
    elif isinstance(message, m.Ack):
        body = _ACK.size + _bitmap_bytes(message.received.bit_length())
    else:
        body = len(_body(message, coding))
    return _HEADER.size + body + tail


def _packet_bytes(packet: Packet, coding: CodingSettings, payload_bytes: int | None) -> int:
    if packet.kind is Kind.PLAIN:
        vector = 2
    elif packet.kind is Kind.SEEDED:
        vector = 8
    else:
        vector = (packet.packets * coding.field_bits + 7) // 8
    tail = CRC_BYTES if coding.key is None else KEYED_BYTES
    return _PACKET - CRC_BYTES + tail + vector + (len(packet.payload) if payload_bytes is None else payload_bytes)


def _body(message: m.Message, coding: CodingSettings) -> bytes:
    """The part of a datagram between header and checksum."""
    if isinstance(message, m.Data):
        head = _DATA.pack(message.group, message.number, message.turn, _microseconds(message.deadline_s))
        return head + encode_packet(message.packet, coding)
    if isinstance(message, Push | Reply):
        head = _PUSH.pack(message.group, _microseconds(message.deadline_s))
        return head + encode_packet(message.packet, coding)
    if isinstance(message, Digest):
        return _events(message.events)
    if isinstance(message, Request):
        parts = [_REQUEST.pack(message.event_id)]
        for wanted in message.wanted:
            parts.append(_WANTED.pack(wanted.generation, wanted.count, len(wanted.numbers)))
            parts.append(struct.pack(f">{len(wanted.numbers)}H", *wanted.numbers))
        return b"".join(parts)
    if isinstance(message, m.Ack):
        head = _ACK.pack(message.event_id, message.generation, message.number, message.turn)
        return head + message.received.to_bytes(_bitmap_bytes(message.received.bit_length()), "big")
    if isinstance(message, m.Install):
        return _install(message)
    return _service_body(message)


def _install(message: m.Install) -> bytes:
    parts = [
        _INSTALL.pack(message.group, message.version, message.packets, message.expected, message.part, message.parts)
    ]
    for branch in message.branches:
        parts.append(_BRANCH.pack(branch.neighbour, branch.count, len(branch.blocks)))
        parts += [_BLOCK.pack(*block) for block in branch.blocks]
    return b"".join(parts)


def _service_body(
    message: m.View | m.Known | m.Subscribe | m.Unsubscribe | m.Registered | m.Publish | m.Granted,
) -> bytes:
    if isinstance(message, m.View):
        head = _VIEW.pack(message.group, message.version, message.member, len(message.peers), len(message.events))
        return head + struct.pack(f">{len(message.peers)}I", *message.peers) + _events(message.events)
    if isinstance(message, m.Known):
        return _KNOWN.pack(message.group, message.version, message.part)
    if isinstance(message, m.Subscribe):
        topic, content = message.topic.encode(), message.content.encode()
        return _SUBSCRIBE.pack(message.number, message.home, len(topic), len(content)) + topic + content
    if isinstance(message, m.Unsubscribe):
        return _NUMBER.pack(message.number)
    if isinstance(message, m.Publish):
        head = _PUBLISH.pack(message.number, message.size, _microseconds(message.deadline_s))
        return head + message.body.encode()
    if isinstance(message, m.Granted):
        return _GRANTED.pack(message.number, message.accepted, message.event_id, message.group, message.rate_per_s)
    return _REGISTERED.pack(message.number, message.accepted)


def _events(events: tuple[Announced, ...]) -> bytes:
    return b"".join([_EVENT.pack(e.event_id, e.group, e.size, _microseconds(e.deadline_s)) for e in events])


def _microseconds(time_s: float) -> int:
    if not 0.0 <= time_s * 1e6 < _TIME_MAX:
        raise struct.error(f"a time of {time_s} s is not between 0 and 2^53 microseconds")
    return round(time_s * 1e6)


class _Reader:
    """Takes a body apart from front to back; all of it must be used up."""

    def __init__(self, data: bytes):
        self.data = data
        self.at = 0

    @property
    def more(self) -> bool:
        return self.at < len(self.data)

    def take(self, layout: struct.Struct) -> tuple[int, ...]:
        values: tuple[int, ...] = layout.unpack_from(self.data, self.at)
        self.at += layout.size
        return values

    def words(self, code: str, count: int) -> tuple[int, ...]:
        return self.take(struct.Struct(f">{count}{code}"))

    def text(self, size: int) -> str:
        text = self.data[self.at : self.at + size]
        if len(text) != size:
            raise ValueError("a text is cut off")
        self.at += size
        return text.decode()

    def rest(self) -> bytes:
        rest = self.data[self.at :]
        self.at = len(self.data)
        return rest

    def events(self, count: int | None = None) -> tuple[Announced, ...]:
        events: list[Announced] = []
        while self.more if count is None else len(events) < count:
            event_id, group, size, time = self.take(_EVENT)
            events.append(Announced(event_id, group, size, _seconds(time)))
        return tuple(events)


def _seconds(microseconds: int) -> float:
    if microseconds >= _TIME_MAX:
        raise ValueError("a time is 2^53 microseconds or more")
    return microseconds / 1e6


def _bitmap_bytes(bits: int) -> int:
    return (bits + 7) // 8


def _bitmap(data: bytes) -> int:
    if data and not data[0]:
        raise ValueError("its bitmap begins with nothing")
    return int.from_bytes(data, "big")


def _flag(value: int) -> bool:
    if value > 1:
        raise ValueError(f"{value} is neither 0 nor 1")
    return bool(value)


def _message(kind: type[m.Message], data: bytes, coding: CodingSettings) -> m.Message:
    reader = _Reader(data)
    message: m.Message
    if kind is m.Data:
        group, number, turn, time = reader.take(_DATA)
        deadline_s = _seconds(time)
        message = m.Data(group, number, deadline_s, parse_packet(reader.rest(), coding), turn)
    elif kind is Push or kind is Reply:
        group, time = reader.take(_PUSH)
        deadline_s = _seconds(time)
        packet = parse_packet(reader.rest(), coding)
        message = Push(group, deadline_s, packet) if kind is Push else Reply(group, deadline_s, packet)
    elif kind is Digest:
        message = Digest(reader.events())
    elif kind is Request:
        message = _read_request(reader)
    elif kind is m.Ack:
        event_id, generation, number, turn = reader.take(_ACK)
        message = m.Ack(event_id, generation, number, turn, _bitmap(reader.rest()))
    elif kind is m.Install:
        message = _read_install(reader)
    else:
        message = _read_service(kind, reader)
    if reader.more:
        raise ValueError(f"{len(data) - reader.at} bytes too many")
    return message


def _read_request(reader: _Reader) -> Request:
    (event_id,) = reader.take(_REQUEST)
    wanted: list[Wanted] = []
    while reader.more:
        generation, count, numbers = reader.take(_WANTED)
        if wanted and generation <= wanted[-1].generation:
            raise ValueError("its generations are not in order")  # so that none is asked for twice
        wanted.append(Wanted(generation, count, reader.words("H", numbers)))
    return Request(event_id, tuple(wanted))


def _read_install(reader: _Reader) -> m.Install:
    group, version, packets, expected, part, parts = reader.take(_INSTALL)
    if not packets or not part < parts:
        raise ValueError("it is of no packets, or a part beyond the last")
    branches: list[Branch] = []
    while reader.more:
        neighbour, count, size = reader.take(_BRANCH)
        blocks: list[tuple[int, int]] = []
        for _ in range(size):
            begin, end = reader.take(_BLOCK)
            if not (blocks[-1][1] if blocks else -1) < begin < end <= packets:
                raise ValueError("its blocks are not in order")
            blocks.append((begin, end))
        if not 1 <= count <= packets or not blocks:
            raise ValueError(f"a branch has {count} of {packets} packets")
        branches.append(Branch(neighbour, count, tuple(blocks)))
    return m.Install(group, version, packets, expected, tuple(branches), part, parts)


def _read_service(kind: type[m.Message], reader: _Reader) -> m.Message:
    if kind is m.View:
        group, version, member, peers, events = reader.take(_VIEW)
        names = reader.words("I", peers)
        return m.View(group, version, names, reader.events(events), _flag(member))
    if kind is m.Known:
        return m.Known(*reader.take(_KNOWN))
    if kind is m.Subscribe:
        number, home, topic, content = reader.take(_SUBSCRIBE)
        return m.Subscribe(number, home, reader.text(topic), reader.text(content))
    if kind is m.Unsubscribe:
        return m.Unsubscribe(*reader.take(_NUMBER))
    if kind is m.Publish:
        number, size, time = reader.take(_PUBLISH)
        return m.Publish(number, size, _seconds(time), Body.decode(reader.rest()))
    if kind is m.Granted:
        number, accepted, event_id, group, rate_per_s = reader.take(_GRANTED)
        if not rate_per_s >= 0.0:
            raise ValueError(f"a rate of {rate_per_s}")
        return m.Granted(number, _flag(accepted), event_id, group, rate_per_s)
    number, accepted = reader.take(_REGISTERED)
    return m.Registered(number, _flag(accepted))
