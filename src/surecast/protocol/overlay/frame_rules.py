"""The rules for frames of a neighbour, by the plan. What passes them takes bounded memory and can be sent on.

Every broker checks all of a detour, and states of links, before it passes them on. So the one that is refused is the
neighbour that broke the rules, and not an honest one behind it that only passed a frame on.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from surecast.errors import PeerError
from surecast.protocol.demand import DEPTH, FANOUT, DemandBucket, DemandFrame, DemandUpdate, JointFilter, Subscription
from surecast.protocol.link import CONTROL
from surecast.protocol.overlay.overlay_frames import (
    Detoured,
    EventBatch,
    Events,
    Frame,
    LinkStates,
    MapBucket,
    MapEntries,
    MapForget,
    MapFrame,
    MapSums,
    Marker,
    UnknownFrame,
)
from surecast.protocol.overlay.overlay_plan import HOME_TOPICS, HOMES, MEMBERS, TREES_MAX, OverlayPlan, scheme_parts

__all__ = ["DETOURS", "check_frame", "lane_of"]

DETOURS: Final = TREES_MAX
"""The lane of detoured events, behind those of the trees."""

_BATCH_EVENTS_MAX: Final = 1 << 20
_QOS_MAX: Final = 2


def lane_of(frame: Frame) -> int:
    """Returns the lane of a link on which a frame travels.

    >>> from surecast.protocol.overlay.event_id import EventId
    >>> from surecast.protocol.overlay.overlay_frames import EventBatch
    >>> lane_of(Events(3, EventBatch(EventId("b1", 1, 0), 1, "stock", 0.0), "b1")), lane_of(LinkStates(()))
    (3, -1)
    """
    if isinstance(frame, Events):
        return frame.tree
    return DETOURS if isinstance(frame, Detoured) and isinstance(frame.frame, Events) else CONTROL


def check_frame(plan: OverlayPlan, receiver: str, neighbour: str, frame: Frame, lane: int) -> None:
    """Raises PeerError where a neighbour should not have sent a frame, or not on this lane of the link."""
    if isinstance(frame, Events):
        if not plan.joins(frame.tree, receiver, neighbour):
            raise PeerError(f"{neighbour} sent events on tree {frame.tree}, on which it is no neighbour")
        _check_events(plan, neighbour, frame)
        expected = frame.tree
    else:
        if isinstance(frame, LinkStates):
            _check_states(plan, neighbour, frame)
        elif isinstance(frame, Detoured):
            _check_detour(plan, receiver, neighbour, frame)
        elif isinstance(frame, Marker):
            if frame.initiator not in plan.names:
                raise PeerError(f"{neighbour} sent a marker of {frame.initiator}, which is no broker of the plan")
        elif not isinstance(frame, UnknownFrame):
            tree = frame.tree if isinstance(frame, Subscription) else plan.tree_of_plane(frame.tree)
            if not plan.joins(tree, receiver, neighbour):
                raise PeerError(f"{neighbour} sent demand on tree {frame.tree}, on which it is no neighbour")
            if isinstance(frame, MapSums | MapBucket | MapEntries | MapForget):
                _check_map(plan, neighbour, frame, tree)
            else:
                _check_demand(plan, neighbour, frame)
        expected = lane_of(frame)
    if lane != expected:
        raise PeerError(f"{neighbour} sent a frame of lane {expected} on lane {lane}")


def _check_map(plan: OverlayPlan, neighbour: str, frame: MapFrame, tree: int) -> None:
    if TREES_MAX <= frame.tree < HOMES:
        raise PeerError(f"{neighbour} compares a map under the number {frame.tree}, where there is none")
    if isinstance(frame, MapSums):
        wrong = any(not (0 <= level <= DEPTH and 0 <= place < FANOUT**level) for level, place, _ in frame.sums)
        if wrong or len(frame.sums) > FANOUT**DEPTH:
            raise PeerError(f"{neighbour} sent {len(frame.sums)} sums over retained messages, at places that are none")
    elif isinstance(frame, MapEntries):
        for entry in frame.entries:
            if not entry.stamp or entry.count != 1 or entry.topic.startswith(HOME_TOPICS) is (frame.tree < HOMES):
                raise PeerError(f"{neighbour} sent {entry.count} messages to {entry.topic!r} as one that is retained")
            _check_batch(plan, neighbour, entry, tree)
    elif isinstance(frame, MapBucket) and frame.bucket >= FANOUT**DEPTH:
        raise PeerError(f"{neighbour} sent bucket {frame.bucket} of retained messages, of {FANOUT**DEPTH}")


def _check_states(plan: OverlayPlan, neighbour: str, frame: LinkStates) -> None:
    for state in frame.states:
        if state.broker not in plan.names or not set(state.down) <= set(plan.neighbours(state.broker)):
            raise PeerError(f"{neighbour} sent a state of {state.broker} that does not fit the plan: {state.down}")


def _check_detour(plan: OverlayPlan, receiver: str, neighbour: str, detour: Detoured) -> None:
    stops, frame = (receiver, *detour.path), detour.frame
    if len(stops) > len(plan.brokers):
        raise PeerError(f"{neighbour} sent a detour over {len(stops)} brokers; there are {len(plan.brokers)}")
    for before, stop in pairwise(stops):
        if stop not in plan.neighbours(before):
            raise PeerError(f"{neighbour} sent a detour over {stop}, which is no neighbour of {before}")
    if not plan.joins(plan.tree_of_plane(frame.tree), stops[-1], detour.via):
        raise PeerError(f"{neighbour} sent a detour on tree {frame.tree}, on which {detour.via} is no neighbour")
    if detour.sender not in plan.names:
        raise PeerError(f"{neighbour} sent a detour of {detour.sender}, which is no broker of the plan")
    if isinstance(frame, Events):
        if not frame.attempt:
            raise PeerError(f"{neighbour} sent a detour of assured events; a detour is at best effort")
        _check_events(plan, neighbour, frame)
    else:
        _check_demand(plan, neighbour, frame)


def _check_demand(plan: OverlayPlan, neighbour: str, frame: DemandFrame | Subscription) -> None:
    """Filters with members, of brokers of the plan, and others are announced apart."""
    if frame.tree >= HOMES:
        raise PeerError(f"{neighbour} announced demand under the number {frame.tree}, where there is none")
    if isinstance(frame, Subscription):
        _check_subscription(plan, neighbour, frame)
    filters: tuple[JointFilter, ...] = ()
    if isinstance(frame, DemandUpdate):
        filters = (*frame.change.removed, *frame.change.added)
    elif isinstance(frame, DemandBucket):
        filters = frame.filters
    elif isinstance(frame, Subscription):
        filters = (frame.joint,)
    for joint in filters:
        if (joint.members is None) is (frame.tree >= MEMBERS):
            raise PeerError(f"{neighbour} announced {joint} under the number {frame.tree}, where it does not belong")
        if joint.members is not None and joint.members.home not in plan.names:
            raise PeerError(f"{neighbour} announced members at {joint.members.home}, which is no broker of the plan")


def _check_subscription(plan: OverlayPlan, neighbour: str, frame: Subscription) -> None:
    if frame.home not in plan.names or plan.trees[frame.tree].refresh != "end-to-end":
        raise PeerError(f"{neighbour} sent a subscription of {frame.home} on tree {frame.tree}, on which there is none")


def _check_events(plan: OverlayPlan, neighbour: str, events: Events) -> None:
    batch, attempt = events.batch, events.attempt
    if not attempt and not scheme_parts(plan.trees[events.tree].scheme).custody:
        raise PeerError(f"{neighbour} sent assured events on tree {events.tree}, whose scheme has no custody")
    if attempt and attempt not in plan.names:
        raise PeerError(f"{neighbour} sent events of {attempt}, which is no broker of the plan")
    _check_batch(plan, neighbour, batch, events.tree)


def _check_batch(plan: OverlayPlan, neighbour: str, batch: EventBatch, tree: int) -> None:
    origin, _, number = batch.first
    if origin not in plan.names:
        raise PeerError(f"{neighbour} sent events of {origin}, which is no broker of the plan")
    if batch.share and (batch.at not in plan.names or batch.stamp):
        raise PeerError(f"{neighbour} sent events for members at {batch.at}, with the stamp {batch.stamp}")
    if batch.stamp and plan.tree_of(batch.topic) != tree:
        raise PeerError(f"{neighbour} sent a retained message to {batch.topic!r} on tree {tree}, which is not its own")
    if not 1 <= batch.count <= _BATCH_EVENTS_MAX or number < 0 or not 0 <= batch.qos <= _QOS_MAX:
        raise PeerError(f"{neighbour} sent {batch.count} events from {batch.first} on at QoS {batch.qos}")
    if batch.attributes and len(batch.attributes) != batch.count:
        raise PeerError(f"{neighbour} sent {batch.count} events with the attributes of {len(batch.attributes)}")
