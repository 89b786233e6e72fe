"""The records of a node on disk: keys and values of bytes, beside those of a broker's own state.

    oi                   the incarnation of the last start
    oh ORIGIN ...        events in custody, with the neighbours that have not acknowledged them
    oa ORIGIN ...        events that were in custody and need it no more
    od ORIGIN ...        events that came at best effort and were delivered
    os TREE NEIGHBOUR .. a filter that a neighbour announced, and how often
    oe TREE HOME ...     a subscription that is refreshed from end to end, and the neighbour from which it came
    om TOPIC             the retained message of a topic, or that it was deleted
    oz                   the latest stamp of a deletion that was forgotten
    oq TOPIC             the home of a session, or that the session has ended
    oy                   the latest stamp of such an end that was forgotten
    ox SESSION           how far a session that moves has come, and what it has had (`session_moves.py`)

Events are named by their first one: origin (with its length in front), incarnation and number, eight bytes each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias

from surecast.errors import PeerError
from surecast.protocol.codec import REST, TEXT, U8, U16, U32, U64, CodecError, Layout, many, pair
from surecast.protocol.demand import JointFilter, SubscriptionRecord
from surecast.protocol.overlay.custody import HandledBatch, StoredBatch
from surecast.protocol.overlay.event_codec import event_parts, read_events
from surecast.protocol.overlay.event_id import EventId
from surecast.protocol.overlay.filter_form import FILTER
from surecast.protocol.overlay.overlay_frames import EventBatch, Events

__all__ = ["INCARNATION_KEY", "NodeKey", "is_node_record", "node_records", "read_node_record"]

NodeKey: TypeAlias = tuple[Any, ...]
"""The key of a record of a node, as its journal has it."""

INCARNATION_KEY: Final = b"oi"

_BATCH: Final = Struct(">QQ")
_PREFIXES: Final = {"held": b"oh", "handled": b"oa", "delivered": b"od", "demand": b"os", "subscription": b"oe"}
_MAPS: Final = {"retained": b"om", "home": b"oq"}
_HORIZONS: Final = {"horizon": b"oz", "home-horizon": b"oy"}
_KINDS: Final = {prefix: kind for kind, prefix in _PREFIXES.items()}


class _HeldRow(NamedTuple):
    tree: int
    hops: tuple[tuple[str, int], ...]
    events: bytes


class _DemandKey(NamedTuple):
    tree: int
    neighbour: str
    joint: JointFilter


class _SubscriptionKey(NamedTuple):
    tree: int
    home: str
    joint: JointFilter


_EVENTS_KEY: Final = Layout("key of events", EventId, origin=TEXT, incarnation=U64, number=U64)
_DEMAND_KEY: Final = Layout("key of demand", _DemandKey, tree=U8, neighbour=TEXT, joint=FILTER)
_SUBSCRIPTION_KEY: Final = Layout("key of a subscription", _SubscriptionKey, tree=U8, home=TEXT, joint=FILTER)
_SUBSCRIPTION: Final = Layout("subscription", SubscriptionRecord, source=TEXT, issued=pair(U64, U64))
_HELD: Final = Layout("events in custody", _HeldRow, tree=U8, hops=many(pair(TEXT, U8), U16), events=REST)
_HANDLED: Final[Layout[Any]] = Layout("handled events", dict, count=U32)
_COUNT: Final[Layout[Any]] = Layout("demand", dict, count=U32)


def node_records(journal: Iterable[tuple[NodeKey, Any]]) -> Iterator[tuple[bytes, bytes | None]]:
    """Yields the journal of a node as records; None where one goes.

    >>> ((key, value),) = node_records([(("handled", "b1", 1, 7), HandledBatch(EventId("b1", 1, 7), 3, True))])
    >>> key[:6], value.hex()
    (b'oa\\x00\\x02b1', '00000003')
    """
    for (kind, *names), value in journal:
        if kind == "demand":
            key = b"os" + _DEMAND_KEY.encode(_DemandKey(*names))
        elif kind == "subscription":
            key = b"oe" + _SUBSCRIPTION_KEY.encode(_SubscriptionKey(*names))
        elif kind in _MAPS:
            key = _MAPS[kind] + names[0].encode()
        elif kind in _HORIZONS:
            yield _HORIZONS[kind], value.to_bytes(8, "big")
            continue
        else:
            origin = names[0].encode()
            key = _PREFIXES[kind] + len(origin).to_bytes(2, "big") + origin + _BATCH.pack(*names[1:])
        yield key, None if value is None else _value(value)


def _value(value: StoredBatch | HandledBatch | SubscriptionRecord | tuple[int, EventBatch] | int) -> bytes:
    if isinstance(value, SubscriptionRecord):
        return _SUBSCRIPTION.encode(value)
    if isinstance(value, tuple):
        return b"".join(event_parts(Events(*value)))
    if isinstance(value, StoredBatch):
        head, data = event_parts(Events(value.tree, value.batch))
        return _HELD.encode(_HeldRow(value.tree, value.hops, head + data))
    return (value if isinstance(value, int) else value.count).to_bytes(4, "big")


def is_node_record(key: bytes) -> bool:
    """Returns whether a record is one of a node.

    >>> is_node_record(b"oi"), is_node_record(b"m")
    (True, False)
    """
    return key[:1] == b"o"


def read_node_record(key: bytes, value: bytes) -> tuple[NodeKey, Any]:
    """Returns a record of a node as its journal had it; CodecError where it is none."""
    for kind, prefix in _HORIZONS.items():
        if key == prefix:
            return (kind,), int.from_bytes(value, "big")
    for kind, prefix in _MAPS.items():
        if key[:2] == prefix:
            events = _events(value)
            return (kind, key[2:].decode()), (events.tree, events.batch)
    if key[:2] not in _KINDS:
        raise CodecError(f"overlay record: a key that begins with {key[:2]!r}")
    kind = _KINDS[key[:2]]
    if kind == "demand":
        return (kind, *_DEMAND_KEY.decode(key[2:])), _COUNT.decode(value)["count"]
    if kind == "subscription":
        return (kind, *_SUBSCRIPTION_KEY.decode(key[2:])), _SUBSCRIPTION.decode(value)
    first = _EVENTS_KEY.decode(key[2:])
    if kind != "held":
        return (kind, *first), HandledBatch(first, _HANDLED.decode(value)["count"], kind == "handled")
    row = _HELD.decode(value)
    return (kind, *first), StoredBatch(row.tree, _events(row.events).batch, row.hops)


def _events(data: bytes) -> Events:
    try:
        return read_events(data, 0)
    except PeerError as error:
        raise CodecError(f"overlay record: {error}") from error
