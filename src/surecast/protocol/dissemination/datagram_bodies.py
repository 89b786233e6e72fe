"""The bodies of datagrams, between header and checksum: a table of the fields of each message."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

from surecast.protocol.codec import (
    BOOL,
    F64,
    TEXT,
    U8,
    U16,
    U32,
    U64,
    Fixed,
    Form,
    Layout,
    many,
    numbers,
    pair,
)
from surecast.protocol.coding import CodingSettings, Packet
from surecast.protocol.coding import encode as encode_packet
from surecast.protocol.coding import parse as parse_packet
from surecast.protocol.coding.checksum import CRC_BYTES
from surecast.protocol.dissemination import dissemination_messages as m
from surecast.protocol.dissemination.body import BODY
from surecast.protocol.gossip import Announced, Announcement, PacketRequest, Push, Reply, Wanted
from surecast.scenario.paths import Branch

__all__ = [
    "DATA_BYTES",
    "EVENT",
    "HOP_ACK",
    "KINDS",
    "PACKET_BYTES",
    "PUSH_BYTES",
    "REQUEST",
    "VIEW",
    "WANTED",
    "bitmap_bytes",
    "layouts",
]

_TIME_MAX: Final = 1 << 53
PACKET_BYTES: Final = 31 + CRC_BYTES
"""Bytes of a coded packet besides its vector and its payload."""


def _microseconds(time_s: float) -> int:
    if not 0.0 <= time_s * 1e6 < _TIME_MAX:
        raise ValueError(f"a time of {time_s} s is not between 0 and 2^53 microseconds")
    return round(time_s * 1e6)


def _seconds(microseconds: int) -> float:
    if microseconds >= _TIME_MAX:
        raise ValueError("a time is 2^53 microseconds or more")
    return microseconds / 1e6


def bitmap_bytes(bits: int) -> int:
    """Returns how many bytes a bitmap takes."""
    return (bits + 7) // 8


class _Bitmap(Form):
    """A number as the rest of the bytes, without zeros in front."""

    def write(self, value: int, parts: list[bytes]) -> None:
        parts.append(value.to_bytes(bitmap_bytes(value.bit_length()), "big"))

    def read(self, data: bytes, at: int) -> tuple[int, int]:
        if at < len(data) and not data[at]:
            raise ValueError("its bitmap begins with nothing")
        return int.from_bytes(data[at:], "big"), len(data)


class _CodedPacket(Form):
    """A packet of network coding, as the rest of the bytes."""

    def __init__(self, coding: CodingSettings):
        self._coding = coding

    def write(self, value: Packet, parts: list[bytes]) -> None:
        parts.append(encode_packet(value, self._coding))

    def read(self, data: bytes, at: int) -> tuple[Packet, int]:
        return parse_packet(data[at:], self._coding), len(data)


def _request(event_id: int, wanted: tuple[Wanted, ...]) -> PacketRequest:
    if any(before.generation >= after.generation for before, after in pairwise(wanted)):
        raise ValueError("its generations are not in order")  # so that none is asked for twice
    return PacketRequest(event_id, wanted)


def _install(**fields: Any) -> m.Install:
    install = m.Install(**fields)
    if not install.packets or not install.part < install.parts:
        raise ValueError("it is of no packets, or a part beyond the last")
    for branch in install.branches:
        end = -1
        for begin, after in branch.blocks:
            if not end < begin < after <= install.packets:
                raise ValueError("its blocks are not in order")
            end = after
        if not 1 <= branch.count <= install.packets or not branch.blocks:
            raise ValueError(f"a branch has {branch.count} of {install.packets} packets")
    return install


def _granted(**fields: Any) -> m.Granted:
    granted = m.Granted(**fields)
    if not granted.rate_per_s >= 0.0:
        raise ValueError(f"a rate of {granted.rate_per_s}")
    return granted


_TIME: Final = Fixed("Q", _microseconds, _seconds)
EVENT: Final = Layout("event", Announced, event_id=U64, group=U32, size=U32, deadline_s=_TIME)
WANTED: Final = Layout("wanted", Wanted, generation=U32, count=U16, numbers=numbers(U16, U16))
_BRANCH: Final = Layout("branch", Branch, neighbour=U32, count=U32, blocks=many(pair(U32, U32), U16))
REQUEST: Final = Layout("request", _request, event_id=U64, wanted=many(WANTED, None))
HOP_ACK: Final = Layout(
    "acknowledgement", m.HopAck, event_id=U64, generation=U32, number=U16, attempt=U8, received=_Bitmap()
)
VIEW: Final = Layout(
    "view", m.View, group=U32, version=U32, member=BOOL, peers=numbers(U32, U16), events=many(EVENT, U16)
)
_COLD: Final[dict[type[m.Message], Layout[Any]]] = {
    Announcement: Layout("announcement", Announcement, events=many(EVENT, None)),
    PacketRequest: REQUEST,
    m.HopAck: HOP_ACK,
    m.Install: Layout(
        "installation",
        _install,
        group=U32,
        version=U32,
        packets=U32,
        expected=U32,
        part=U16,
        parts=U16,
        branches=many(_BRANCH, None),
    ),
    m.View: VIEW,
    m.Known: Layout("known", m.Known, group=U32, version=U32, part=U16),
    m.Register: Layout("registration", m.Register, number=U32, home=U32, topic=TEXT, content=TEXT),
    m.Unregister: Layout("end of a registration", m.Unregister, number=U32),
    m.Registered: Layout("answer to a registration", m.Registered, number=U32, accepted=BOOL),
    m.PublishRequest: Layout("publish request", m.PublishRequest, number=U32, size=U32, deadline_s=_TIME, body=BODY),
    m.Granted: Layout("grant", _granted, number=U32, accepted=BOOL, event_id=U64, group=U32, rate_per_s=F64),
}
KINDS: Final[tuple[type[m.Message], ...]] = (m.Data, Push, Reply, *_COLD)
"""The kinds of messages, by their numbers in datagrams."""


@lru_cache(maxsize=16)
def layouts(coding: CodingSettings) -> dict[type[m.Message], Layout[Any]]:
    """Returns the layout of each kind of message, for the coding of the packets in them."""
    packet = _CodedPacket(coding)
    data = Layout("data", m.Data, group=U32, number=U16, attempt=U8, deadline_s=_TIME, packet=packet)
    push = Layout("push", Push, group=U32, deadline_s=_TIME, packet=packet)
    reply = Layout("reply", Reply, group=U32, deadline_s=_TIME, packet=packet)
    return {m.Data: data, Push: push, Reply: reply, **_COLD}


DATA_BYTES: Final = layouts(CodingSettings())[m.Data].size_min
PUSH_BYTES: Final = layouts(CodingSettings())[Push].size_min
