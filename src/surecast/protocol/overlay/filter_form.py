"""Joint filters as bytes, on links and on disk."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from surecast.protocol.codec import TEXT, U8, Form, sized
from surecast.protocol.demand import EVERY_CONTENT, JointFilter
from surecast.protocol.filters import Filter, parse
from surecast.protocol.mqtt.topics import validate_filter

__all__ = ["FILTER"]

_KEPT_MAX: Final = 512
_CONTENT: Final = sized(4, is_text=True)


class _FilterForm(Form):
    """A joint filter: its topic filter, its QoS, and the text of its content filter; empty where there is none."""

    size_min = 7

    def write(self, value: Any, parts: list[bytes]) -> None:
        joint: JointFilter = value
        TEXT.write(joint.topic, parts)
        U8.write(joint.qos, parts)
        _CONTENT.write(joint.content_text, parts)

    def read(self, data: bytes, at: int) -> tuple[Any, int]:
        topic, at = TEXT.read(data, at)
        qos, at = U8.read(data, at)
        text, at = _CONTENT.read(data, at)
        validate_filter(topic)
        content = EVERY_CONTENT
        if text:
            content = (_parsed if len(text) <= _KEPT_MAX else parse)(text)
        return JointFilter(topic, content, qos), at


@lru_cache(maxsize=1_024)
def _parsed(text: str) -> Filter:
    return parse(text)


FILTER: Final = _FilterForm()
