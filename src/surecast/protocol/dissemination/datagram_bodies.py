"""The bodies of datagrams, between header and checksum: how each message is written and read."""

from __future__ import annotations

import struct
from typing import Final

from surecast.protocol.coding import CodingSettings
from surecast.protocol.coding import encode as encode_packet
from surecast.protocol.coding import parse as parse_packet
from surecast.protocol.coding.checksum import CRC_BYTES
from surecast.protocol.dissemination import dissemination_messages as m
from surecast.protocol.dissemination.body import Body
from surecast.protocol.gossip import Announced, Announcement, PacketRequest, Push, Reply, Wanted
from surecast.scenario.paths import Branch

__all__ = [
    "ACK",
    "DATA",
    "EVENT",
    "PACKET",
    "PUSH",
    "REQUEST",
    "VIEW",
    "WANTED",
    "bitmap_bytes",
    "read_body",
    "write_body",
]

_TIME_MAX: Final = 1 << 53
DATA: Final = struct.Struct(">IHBQ")
PUSH: Final = struct.Struct(">IQ")
ACK: Final = struct.Struct(">QIHB")
INSTALL: Final = struct.Struct(">IIIIHH")
BRANCH: Final = struct.Struct(">IIH")
BLOCK: Final = struct.Struct(">II")
VIEW: Final = struct.Struct(">IIBHH")
KNOWN: Final = struct.Struct(">IIH")
SUBSCRIBE: Final = struct.Struct(">IIHH")
NUMBER: Final = struct.Struct(">I")
REGISTERED: Final = struct.Struct(">IB")
PUBLISH: Final = struct.Struct(">IIQ")
GRANTED: Final = struct.Struct(">IBQId")
EVENT: Final = struct.Struct(">QIIQ")
REQUEST: Final = struct.Struct(">Q")
WANTED: Final = struct.Struct(">IHH")
PACKET: Final = 31 + CRC_BYTES
"""What a coded packet takes besides its vector and its payload."""


def write_body(message: m.Message, coding: CodingSettings) -> bytes:
    """The part of a datagram between header and checksum."""
    if isinstance(message, m.Data):
        head = DATA.pack(message.group, message.number, message.turn, _microseconds(message.deadline_s))
        return head + encode_packet(message.packet, coding)
    if isinstance(message, Push | Reply):
        head = PUSH.pack(message.group, _microseconds(message.deadline_s))
        return head + encode_packet(message.packet, coding)
    if isinstance(message, Announcement):
        return _events(message.events)
    if isinstance(message, PacketRequest):
        parts = [REQUEST.pack(message.event_id)]
        for wanted in message.wanted:
            parts.append(WANTED.pack(wanted.generation, wanted.count, len(wanted.numbers)))
            parts.append(struct.pack(f">{len(wanted.numbers)}H", *wanted.numbers))
        return b"".join(parts)
    if isinstance(message, m.HopAck):
        head = ACK.pack(message.event_id, message.generation, message.number, message.turn)
        return head + message.received.to_bytes(bitmap_bytes(message.received.bit_length()), "big")
    if isinstance(message, m.Install):
        return _install(message)
    return _service_body(message)


def _install(message: m.Install) -> bytes:
    parts = [
        INSTALL.pack(message.group, message.version, message.packets, message.expected, message.part, message.parts)
    ]
    for branch in message.branches:
        parts.append(BRANCH.pack(branch.neighbour, branch.count, len(branch.blocks)))
        parts += [BLOCK.pack(*block) for block in branch.blocks]
    return b"".join(parts)


def _service_body(
    message: m.View | m.Known | m.Register | m.Unregister | m.Registered | m.PublishRequest | m.Granted,
) -> bytes:
    if isinstance(message, m.View):
        head = VIEW.pack(message.group, message.version, message.member, len(message.peers), len(message.events))
        return head + struct.pack(f">{len(message.peers)}I", *message.peers) + _events(message.events)
    if isinstance(message, m.Known):
        return KNOWN.pack(message.group, message.version, message.part)
    if isinstance(message, m.Register):
        topic, content = message.topic.encode(), message.content.encode()
        return SUBSCRIBE.pack(message.number, message.home, len(topic), len(content)) + topic + content
    if isinstance(message, m.Unregister):
        return NUMBER.pack(message.number)
    if isinstance(message, m.PublishRequest):
        head = PUBLISH.pack(message.number, message.size, _microseconds(message.deadline_s))
        return head + message.body.encode()
    if isinstance(message, m.Granted):
        return GRANTED.pack(message.number, message.accepted, message.event_id, message.group, message.rate_per_s)
    return REGISTERED.pack(message.number, message.accepted)


def _events(events: tuple[Announced, ...]) -> bytes:
    return b"".join([EVENT.pack(e.event_id, e.group, e.size, _microseconds(e.deadline_s)) for e in events])


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
            event_id, group, size, time = self.take(EVENT)
            events.append(Announced(event_id, group, size, _seconds(time)))
        return tuple(events)


def _seconds(microseconds: int) -> float:
    if microseconds >= _TIME_MAX:
        raise ValueError("a time is 2^53 microseconds or more")
    return microseconds / 1e6


def bitmap_bytes(bits: int) -> int:
    return (bits + 7) // 8


def _bitmap(data: bytes) -> int:
    if data and not data[0]:
        raise ValueError("its bitmap begins with nothing")
    return int.from_bytes(data, "big")


def _flag(value: int) -> bool:
    if value > 1:
        raise ValueError(f"{value} is neither 0 nor 1")
    return bool(value)


def read_body(kind: type[m.Message], data: bytes, coding: CodingSettings) -> m.Message:
    """A message of a kind from its body, all of which must be used up; ValueError or struct.error if it is none."""
    reader = _Reader(data)
    message: m.Message
    if kind is m.Data:
        group, number, turn, time = reader.take(DATA)
        deadline_s = _seconds(time)
        message = m.Data(group, number, deadline_s, parse_packet(reader.rest(), coding), turn)
    elif kind is Push or kind is Reply:
        group, time = reader.take(PUSH)
        deadline_s = _seconds(time)
        packet = parse_packet(reader.rest(), coding)
        message = Push(group, deadline_s, packet) if kind is Push else Reply(group, deadline_s, packet)
    elif kind is Announcement:
        message = Announcement(reader.events())
    elif kind is PacketRequest:
        message = _read_request(reader)
    elif kind is m.HopAck:
        event_id, generation, number, turn = reader.take(ACK)
        message = m.HopAck(event_id, generation, number, turn, _bitmap(reader.rest()))
    elif kind is m.Install:
        message = _read_install(reader)
    else:
        message = _read_service(kind, reader)
    if reader.more:
        raise ValueError(f"{len(data) - reader.at} bytes too many")
    return message


def _read_request(reader: _Reader) -> PacketRequest:
    (event_id,) = reader.take(REQUEST)
    wanted: list[Wanted] = []
    while reader.more:
        generation, count, numbers = reader.take(WANTED)
        if wanted and generation <= wanted[-1].generation:
            raise ValueError("its generations are not in order")  # so that none is asked for twice
        wanted.append(Wanted(generation, count, reader.words("H", numbers)))
    return PacketRequest(event_id, tuple(wanted))


def _read_install(reader: _Reader) -> m.Install:
    group, version, packets, expected, part, parts = reader.take(INSTALL)
    if not packets or not part < parts:
        raise ValueError("it is of no packets, or a part beyond the last")
    branches: list[Branch] = []
    while reader.more:
        neighbour, count, size = reader.take(BRANCH)
        blocks: list[tuple[int, int]] = []
        for _ in range(size):
            begin, end = reader.take(BLOCK)
            if not (blocks[-1][1] if blocks else -1) < begin < end <= packets:
                raise ValueError("its blocks are not in order")
            blocks.append((begin, end))
        if not 1 <= count <= packets or not blocks:
            raise ValueError(f"a branch has {count} of {packets} packets")
        branches.append(Branch(neighbour, count, tuple(blocks)))
    return m.Install(group, version, packets, expected, tuple(branches), part, parts)


def _read_service(kind: type[m.Message], reader: _Reader) -> m.Message:
    if kind is m.View:
        group, version, member, peers, events = reader.take(VIEW)
        names = reader.words("I", peers)
        return m.View(group, version, names, reader.events(events), _flag(member))
    if kind is m.Known:
        return m.Known(*reader.take(KNOWN))
    if kind is m.Register:
        number, home, topic, content = reader.take(SUBSCRIBE)
        return m.Register(number, home, reader.text(topic), reader.text(content))
    if kind is m.Unregister:
        return m.Unregister(*reader.take(NUMBER))
    if kind is m.PublishRequest:
        number, size, time = reader.take(PUBLISH)
        return m.PublishRequest(number, size, _seconds(time), Body.decode(reader.rest()))
    if kind is m.Granted:
        number, accepted, event_id, group, rate_per_s = reader.take(GRANTED)
        if not rate_per_s >= 0.0:
            raise ValueError(f"a rate of {rate_per_s}")
        return m.Granted(number, _flag(accepted), event_id, group, rate_per_s)
    number, accepted = reader.take(REGISTERED)
    return m.Registered(number, _flag(accepted))
