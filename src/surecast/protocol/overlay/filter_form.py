"""Joint filters as bytes, on links and on disk."""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Any, Final

from surecast.protocol.codec import TEXT, U8, Form, sized
from surecast.protocol.demand import EVERY_CONTENT, JointFilter, Members
from surecast.protocol.filters import Filter, parse
from surecast.protocol.mqtt.topics import parse_shared, validate_filter

__all__ = ["FILTER"]

_KEPT_MAX: Final = 512
_CONTENT: Final = sized(4, is_text=True)
_HAS_MEMBERS: Final = 0x80
_COUNTS: Final = Struct(">II")


class _FilterForm(Form):
    """A joint filter: its topic filter, its QoS, and the text of its content filter; empty where there is none. Where
    0x80 is added to the QoS, the members of a shared subscription are behind it."""

    size_min = 7

    def write(self, value: Any, parts: list[bytes]) -> None:
        joint: JointFilter = value
        TEXT.write(joint.topic, parts)
        U8.write(joint.qos | (_HAS_MEMBERS if joint.members is not None else 0), parts)
        _CONTENT.write(joint.content_text, parts)
        if joint.members is not None:
            share, home, ready, away = joint.members
            TEXT.write(share, parts)
            TEXT.write(home, parts)
            parts.append(_COUNTS.pack(ready, away))

    def read(self, data: bytes, at: int) -> tuple[Any, int]:
        topic, at = TEXT.read(data, at)
        qos, at = U8.read(data, at)
        text, at = _CONTENT.read(data, at)
        validate_filter(topic)
        content = EVERY_CONTENT
        if text:
            content = (_parsed if len(text) <= _KEPT_MAX else parse)(text)
        members = None
        if qos & _HAS_MEMBERS:
            share, at = TEXT.read(data, at)
            home, at = TEXT.read(data, at)
            ready, away = _COUNTS.unpack_from(data, at)
            at += _COUNTS.size
            parse_shared(f"$share/{share}/{topic}")
            if "/" in share or not ready + away:
                raise ValueError(f"members of the shared subscription {share!r}: {ready} connected, {away} away")
            members = Members(share, home, ready, away)
        return JointFilter(topic, content, qos & ~_HAS_MEMBERS, members), at


@lru_cache(maxsize=1_024)
def _parsed(text: str) -> Filter:
    return parse(text)


FILTER: Final = _FilterForm()
