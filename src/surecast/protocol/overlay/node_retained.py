"""The maps of a node: what neighbours say of theirs, and what the own ones miss or have too much.

There are one or two: retained messages, and which broker has the session of each client. Frames say which one by a
number that is added to the tree's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from surecast.protocol.demand import LOCAL
from surecast.protocol.overlay.node_demand import NodeDemand
from surecast.protocol.overlay.node_events import NodeEvents
from surecast.protocol.overlay.node_links import NodeLinks
from surecast.protocol.overlay.overlay_frames import MapEntries, MapFrame
from surecast.protocol.overlay.retained_map import RetainedMap

__all__ = ["NodeRetained"]


class NodeRetained:
    """Compares a map of one broker with those of its neighbours, and delivers what that brings. `plane` is what is
    added to the number of a tree in its frames."""

    def __init__(self, retained: RetainedMap, links: NodeLinks, demand: NodeDemand, events: NodeEvents, plane: int = 0):
        self._plane = plane
        self._retained = retained
        self._links = links
        self._demand = demand
        self._events = events

    def compare(self, neighbour: str) -> None:
        """Begins to compare all with a neighbour."""
        self._put(self._retained.compare(neighbour))

    def take(self, neighbour: str, frame: MapFrame, now: float) -> None:
        """Takes in what a neighbour says of its map."""
        own = replace(frame, tree=frame.tree - self._plane) if self._plane else frame
        frames, fresh = self._retained.receive(neighbour, own, now, self._events.is_coming)
        self._put(frames)
        for tree, entry in fresh:
            if LOCAL in self._demand.find(tree, entry.topic, now).possible() and now < entry.expires_s:
                self._events.deliver_repaired(tree, entry)

    def disconnected(self, neighbour: str) -> None:
        """The link to a neighbour is down."""
        self._retained.disconnected(neighbour)

    def refresh(self, now: float) -> None:
        """Compares the map with all neighbours that are up, and forgets deletions that all know."""
        self._retained.expire(now)
        for hop in self._links.up():
            self.compare(hop)
        self._put(self._retained.begin_waves(now))

    def _put(self, frames: Iterable[tuple[str, MapFrame]]) -> None:
        """Sends frames about the map; what a neighbour misses is found by the next comparison."""
        for hop, own in frames:
            frame = replace(own, tree=own.tree + self._plane) if self._plane else own
            if isinstance(frame, MapEntries) and (self._links.is_up(hop) or hop in self._links.down_since):
                self._retained.entries_sent += len(frame.entries)
            if self._links.put_control(hop, frame):
                self._demand.overfull[hop] = None
