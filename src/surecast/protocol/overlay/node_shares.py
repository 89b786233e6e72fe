"""Shared subscriptions over brokers: each event goes to one member of each, wherever its members are.

The home broker of an event decides for each shared subscription which broker serves it: by a hash of the event's
identity over the members that it knows at each broker. It sends an event for that broker alone, with an identity of
its own, along the tree. So custody, detours and the memory of what was seen treat it as any event: whatever way it
comes, and however often, one broker gives it to one member. Brokers that know different numbers of members for a moment
cannot disagree about it, because nobody else decides.

A broker that has no member any more hands the event on: it decides anew, among the others, and the event gets a new
identity. So does a broker on the way whose link towards the members is down, where others are in reach and no copy
can go around.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Final

from surecast.protocol.demand import SharedDemand
from surecast.protocol.filters import Value
from surecast.protocol.overlay.event_id import EventId
from surecast.protocol.overlay.node_demand import NodeDemand
from surecast.protocol.overlay.node_links import NodeLinks
from surecast.protocol.overlay.overlay_frames import EventBatch
from surecast.protocol.overlay.overlay_plan import OverlayPlan, SchemeParts
from surecast.protocol.overlay.overlay_view import OverlayView
from surecast.protocol.overlay.unseen import runs_of

__all__ = ["HANDED_MAX", "NodeShares"]

HANDED_MAX: Final = 16
"""An event is handed on at most so often: two brokers whose members may not have it would hand it to each other."""


class NodeShares:
    """Decides which broker serves an event of a shared subscription, and knows the way there."""

    def __init__(
        self,
        name: str,
        plan: OverlayPlan,
        parts: Sequence[SchemeParts],
        demand: NodeDemand,
        links: NodeLinks,
        view: OverlayView,
    ):
        self._name = name
        self._plan = plan
        self._parts = parts
        self._demand = demand
        self._links = links
        self._view = view
        self._before: dict[int, dict[str, str]] = {}

    def choose(
        self, tree: int, group: SharedDemand, batch: EventBatch, besides: str = ""
    ) -> list[tuple[int, int, tuple[str, int]]]:
        """Returns runs of events with the broker that serves them, other than one, and the highest QoS there; with no
        broker where nobody is a member who wants them."""
        first = batch.first
        if not batch.attributes:
            wanted = self._candidates(tree, group, {}, besides)
            if len(wanted) <= 1:
                home = [(name, qos) for name, _, qos in wanted] or [("", 0)]
                return [(0, batch.count, home[0])]
            each = [_pick(wanted, first.plus(place)) for place in range(batch.count)]
        else:
            each = [
                _pick(self._candidates(tree, group, values, besides), first.plus(place))
                for place, values in enumerate(batch.attributes)
            ]
        return [*runs_of(each)]

    def is_better_elsewhere(self, tree: int, batch: EventBatch) -> bool:
        """Returns whether events on their way to a broker should be handed on: the link towards it is down, and another
        broker with members is in reach. Where copies go around failures one may have come, and nothing is handed on."""
        if self._parts[tree].detours or batch.handed >= HANDED_MAX or self.is_in_reach(tree, batch.at):
            return False
        group = self._demand.shared_by(tree, batch.share)
        return group is not None and any(self.is_in_reach(tree, home) for home in group.homes if home != batch.at)

    def hop(self, tree: int, broker: str) -> str:
        """Returns the neighbour on a tree that is on the way to a broker."""
        before = self._ways(tree)
        while before[broker] != self._name:
            broker = before[broker]
        return broker

    def is_on_way(self, tree: int, broker: str, other: str) -> bool:
        """Returns whether the way to a broker leads over another one, or to it."""
        before = self._ways(tree)
        while broker not in (other, self._name):
            broker = before[broker]
        return broker == other

    def hops(self, tree: int, topic: str) -> dict[str, None]:
        """Returns the neighbours to which events of shared subscriptions may go."""
        homes = (home for group in self._demand.shared(tree, topic) for home in group.homes)
        return {self.hop(tree, home): None for home in homes if home != self._name}

    def _candidates(
        self, tree: int, group: SharedDemand, values: Mapping[str, Value], besides: str
    ) -> list[tuple[str, int, int]]:
        """Returns brokers with their weights and QoS: those in reach with connected members; else those in reach with
        members that are away; else all."""
        weights = group.weights(values)
        of = [(home, *each) for home, each in weights.items() if home != besides]
        near = [each for each in of if self.is_in_reach(tree, each[0])]
        if some := [(home, ready, qos) for home, ready, _, qos in near if ready]:
            return some
        return [(home, ready + away, qos) for home, ready, away, qos in near or of]

    def is_in_reach(self, tree: int, broker: str) -> bool:
        """Returns whether a broker can be reached, as far as this one knows: of all links where the tree has detours,
        else of its own."""
        if broker == self._name:
            return True
        if self._parts[tree].detours:
            return self._view.path_to(broker) is not None
        return self._links.is_up(self.hop(tree, broker))

    def _ways(self, tree: int) -> dict[str, str]:
        """Returns the broker before each broker on the way there."""
        before = self._before.get(tree)
        if before is None:
            before = self._before[tree] = {self._name: ""}
            reached = [self._name]
            for broker in reached:
                for other in self._plan.tree_neighbours(tree, broker):
                    if other not in before:
                        before[other] = broker
                        reached.append(other)
        return before


def _pick(candidates: list[tuple[str, int, int]], event: EventId) -> tuple[str, int]:
    """Returns one of some brokers, with its QoS: the same for the same event and weights, at every broker.

    >>> _pick([("b1", 1, 0), ("b2", 3, 1)], EventId("b1", 1, 7))
    ('b2', 1)
    """
    total = sum(weight for _, weight, _ in candidates)
    if not total:
        return ("", 0)
    text = b"%s\0%d\0%d" % (event.origin.encode(), event.incarnation, event.number)
    place = int.from_bytes(blake2b(text, digest_size=8).digest(), "big") * total >> 64
    for name, weight, qos in candidates:
        place -= weight
        if place < 0:
            return (name, qos)
    raise AssertionError("the weights add up to their sum")
