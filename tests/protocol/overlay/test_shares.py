"""Shared subscriptions over nodes: seeds of the fault simulation, and broken nodes that it finds out."""

from __future__ import annotations

from typing import Any

import pytest
from tests.protocol.overlay.share_world import run_share_seed
from tests.seeds import seeds

from surecast.protocol.overlay.node_events import NodeEvents
from surecast.protocol.overlay.overlay_frames import EventBatch
from surecast.protocol.overlay.overlay_node import OverlayNode


@pytest.mark.parametrize("first", seeds(3, range(0, 25, 5)))
def test_every_event_goes_to_one_member_of_each_shared_subscription(first: int) -> None:
    for seed in range(first, first + 5):
        what, problems, world = run_share_seed(seed, steps=150)
        assert problems == [], what
        assert world.served


class _HandsOnWhatGoesAround(NodeEvents):
    """Hands events on for which a copy may have gone around a failure."""

    def _way_to_member(self, tree: int, batch: EventBatch, now: float) -> Any:
        if batch.at != self._name and not self._links.is_up(self._shares.hop(tree, batch.at)):
            self.hand_on(tree, batch, now)
            return {}
        return super()._way_to_member(tree, batch, now)


class _ForgetsWhatNobodyTakes(OverlayNode):
    """Drops events for a member that has left."""

    def hand_on(self, batch: EventBatch, now: float) -> None:
        """Does nothing."""


class _ServesBothWays(NodeEvents):
    """Does not look whether its members have had an event by a detour."""

    def _deliver_best_effort(self, tree: int, batch: EventBatch) -> None:
        self._deliver([batch])


class _ForgetsMembers(OverlayNode):
    """Has no members of other brokers on disk, and does not compare them."""

    def link_up(self, neighbour: str, hello: Any, now: float) -> None:
        self._demand.compare_members = lambda number, neighbour, *, is_resumed: None  # type: ignore[method-assign]
        super().link_up(neighbour, hello, now)

    def restore(self, records: Any) -> None:
        super().restore({key: record for key, record in records.items() if key[0] != "demand" or key[1] < 32})


@pytest.mark.parametrize("broken", [_HandsOnWhatGoesAround, _ForgetsWhatNobodyTakes, _ServesBothWays, _ForgetsMembers])
def test_a_broken_node_is_found_out(
    broken: type[OverlayNode] | type[NodeEvents], monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = broken if issubclass(broken, OverlayNode) else OverlayNode
    if issubclass(broken, NodeEvents):
        monkeypatch.setattr("surecast.protocol.overlay.overlay_node.NodeEvents", broken)
    assert any(run_share_seed(seed, steps=150, node=kind)[1] for seed in range(10))
