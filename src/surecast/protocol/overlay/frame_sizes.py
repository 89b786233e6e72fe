"""Sizes of frames on a connection, without writing them: credit and the bounds of queues count these."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from surecast.protocol.demand import DemandBucket, DemandHashes, DemandUpdate, JointFilter, Subscription
from surecast.protocol.overlay.event_codec import event_bytes
from surecast.protocol.overlay.overlay_frames import (
    Detoured,
    Events,
    Frame,
    LinkStates,
    MapBucket,
    MapEntries,
    MapForget,
    MapKey,
    MapSums,
    Marker,
    UnknownFrame,
)

__all__ = ["frame_bytes"]

_HEAD_BYTES: Final = 13  # the length, the kind and the number
_SUM_BYTES: Final = 11


def frame_bytes(frame: Frame) -> int:
    """Returns how many bytes a frame has on a connection.

    >>> from surecast.protocol.overlay.overlay_frames import NodeState
    >>> frame_bytes(LinkStates((NodeState("b1", 1, 2, ("b2",)),)))
    41
    """
    return _HEAD_BYTES + _content_bytes(frame)


def _content_bytes(frame: Frame) -> int:
    if isinstance(frame, Events):
        return event_bytes(frame)
    return _SIZES[type(frame)](frame)


def _text_bytes(text: str) -> int:
    return 2 + (len(text) if text.isascii() else len(text.encode()))


def _filters_bytes(filters: Iterable[JointFilter]) -> int:
    size = 4
    for joint in filters:
        size += _text_bytes(joint.topic) + 3 + _text_bytes(joint.content_text)
        if joint.members is not None:
            size += _text_bytes(joint.members.share) + _text_bytes(joint.members.home) + 8
    return size


def _detour_bytes(detour: Detoured) -> int:
    names = _text_bytes(detour.sender) + _text_bytes(detour.via) + sum(map(_text_bytes, detour.path))
    return 3 + names + _content_bytes(detour.frame)


def _states_bytes(states: LinkStates) -> int:
    return 2 + sum(_text_bytes(state.broker) + 18 + sum(map(_text_bytes, state.down)) for state in states.states)


def _keys_bytes(keys: Iterable[MapKey]) -> int:
    return 4 + sum(8 + _text_bytes(key.topic) + _text_bytes(key.origin) for key in keys)


_SIZES: Final[dict[type, Callable[[Any], int]]] = {
    Detoured: _detour_bytes,
    DemandUpdate: lambda frame: 1 + _filters_bytes(frame.change.removed) + _filters_bytes(frame.change.added),
    DemandHashes: lambda frame: 6 + _SUM_BYTES * len(frame.sums),
    DemandBucket: lambda frame: 3 + _filters_bytes(frame.filters),
    Subscription: lambda frame: 18 + _text_bytes(frame.home) + _filters_bytes((frame.joint,)) - 4,
    LinkStates: _states_bytes,
    MapSums: lambda frame: 6 + _SUM_BYTES * len(frame.sums),
    MapBucket: lambda frame: 4 + _keys_bytes(frame.keys),
    MapEntries: lambda frame: (
        10 + sum(map(_text_bytes, frame.wanted)) + sum(4 + event_bytes(Events(0, entry)) for entry in frame.entries)
    ),
    MapForget: lambda frame: 10 + _keys_bytes(frame.keys),
    Marker: lambda frame: 16 + _text_bytes(frame.initiator),
    UnknownFrame: lambda frame: 0,
}
