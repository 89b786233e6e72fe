"""The state of a broker in an overlay as bytes: links, custody, demand, memory of events, retained messages, accounts.

Another broker that was made with the same name, plan and settings goes on with it as if it had done all that itself.
What is only found faster by being kept (the demand for a topic, paths, sums of hashes) is left out.
"""

from __future__ import annotations

from typing import Any, Final

from surecast.protocol.demand import (
    EVERY_CONTENT,
    DemandChange,
    DemandTable,
    FilterHashes,
    JointFilter,
    MemberTable,
)
from surecast.protocol.filters import Filter, parse
from surecast.protocol.object_state import ObjectState, OwnForm
from surecast.protocol.overlay.event_codec import event_parts, read_events
from surecast.protocol.overlay.node_links import NodeSettings
from surecast.protocol.overlay.overlay_frames import EventBatch, Events
from surecast.protocol.overlay.overlay_plan import OverlayPlan
from surecast.protocol.overlay.overlay_view import OverlayView
from surecast.protocol.overlay.retained_map import RetainedItem
from surecast.protocol.overlay_broker.overlay_broker import OverlayBroker

__all__ = ["restore_state", "state_of"]


def _content_text(content: Filter) -> str:
    return "" if content == EVERY_CONTENT else str(content)


def _content(text: str) -> Filter:
    return parse(text) if text else EVERY_CONTENT


def _build_hashes(there: Any, counts: Any) -> FilterHashes[Any]:
    hashes: FilterHashes[Any] = there if there is not None else FilterHashes()
    hashes.clear()
    for item, count in counts:
        hashes.shift(item, count)
    return hashes


def _reduce_table(table: DemandTable) -> Any:
    held = tuple((name, hashes.counts()) for name, hashes in table.held.items())
    return held, tuple(table.stands_for.items())


def _build_table(there: Any, reduced: Any) -> DemandTable:
    if there is None:
        raise ValueError("a table of demand on a tree that there is not")
    table: DemandTable = there
    held, stands_for = reduced
    for name, neighbour in stands_for:
        table.stand_for(name, neighbour)
    for name, counts in held:
        table.apply(name, DemandChange(added=tuple(joint for joint, count in counts for _ in range(count))))
    return table


def _reduce_members(table: MemberTable) -> Any:
    return _reduce_table(table), tuple(table.in_order())


def _build_members(there: Any, reduced: Any) -> DemandTable:
    (held, stands_for), in_order = reduced
    around = {name for name, _ in stands_for}
    table: MemberTable = there if there is not None else MemberTable([name for name, _ in held if name not in around])
    _build_table(table, (held, stands_for))
    table.put_in_order(in_order)
    return table


_STATE: Final = ObjectState(
    tuple(f"surecast.protocol.{name}" for name in ("overlay", "link", "demand", "overlay_broker")),
    {
        Filter: OwnForm(_content_text, lambda _, text: _content(text), is_value=True),
        JointFilter: OwnForm(
            lambda joint: (joint.topic, joint.content_text, joint.qos, joint.members),
            lambda _, reduced: JointFilter(reduced[0], _content(reduced[1]), reduced[2], reduced[3]),
            is_value=True,
        ),
        EventBatch: OwnForm(
            lambda batch: b"".join(event_parts(Events(0, batch))), lambda _, data: read_events(data, 0).batch
        ),
        RetainedItem: OwnForm(lambda item: item.key, lambda _, key: RetainedItem(key)),
        FilterHashes: OwnForm(lambda hashes: hashes.counts(), _build_hashes),
        DemandTable: OwnForm(_reduce_table, _build_table),
        MemberTable: OwnForm(_reduce_members, _build_members),
    },
    given=(OverlayPlan, NodeSettings),
    caches={
        OverlayView: ("_paths",),
        OverlayBroker: ("core", "deliveries", "connections", "_traffic", "_members", "_early"),
    },
)


def state_of(broker: OverlayBroker) -> bytes:
    """Returns the state of a broker of an overlay, besides that of its core; equal states are equal bytes."""
    return _STATE.write(broker)


def restore_state(broker: OverlayBroker, data: bytes) -> None:
    """Gives a new broker the state of another one, of the same name, plan and settings; PeerError where it is none.

    Its core has its own state already: what it has collected of that is part of this one.
    """
    _STATE.read(data, broker)
    broker.restored()
