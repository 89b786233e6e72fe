"""Each broker's view of the whole overlay, kept up to date by flooding, and the ways around what has failed
(*reliability* section 2.4.3)."""

from __future__ import annotations

from surecast.protocol.overlay.overlay_frames import NodeState
from surecast.protocol.overlay.overlay_plan import OverlayPlan

__all__ = ["OverlayView"]


class OverlayView:
    """One broker's belief about which links are up. A link counts as up unless one of its ends says that it is not.

    States are ordered by incarnation and sequence, so that a broker that was restarted is believed at once.

    >>> links = (("b1", "b2"), ("b2", "b3"), ("b1", "b3"))
    >>> from surecast.protocol.overlay.overlay_plan import Tree
    >>> view = OverlayView("b1", OverlayPlan(("b1", "b2", "b3"), links, (Tree(links[:2]),)), incarnation=1)
    >>> view.path_to("b2")
    >>> for other in ("b2", "b3"):
    ...     state = view.link_changed(other, is_up=True)
    >>> view.path_to("b2")
    ('b2',)
    >>> state = view.link_changed("b2", is_up=False)
    >>> view.path_to("b2"), view.detours(0, "b2")
    (('b3', 'b2'), [(('b3', 'b2'), 'b1')])
    """

    def __init__(self, broker: str, plan: OverlayPlan, incarnation: int):
        self.broker = broker
        self._plan = plan
        self._incarnation = incarnation
        self._sequence = 0
        self._down = set(plan.neighbours(broker))
        self._states: dict[str, NodeState] = {}
        self._paths: dict[str, dict[str, tuple[str, ...]]] = {}
        """The paths to all brokers, by the neighbour that they avoid; with none under an empty name."""

    def is_up(self, neighbour: str) -> bool:
        """Returns whether the link to a neighbour is up, as this broker's own detector has it."""
        return neighbour not in self._down

    @property
    def states(self) -> tuple[NodeState, ...]:
        """The known states of all brokers, this one included; for a neighbour that has just come up."""
        return tuple(self._states[name] for name in sorted(self._states))

    def link_changed(self, neighbour: str, is_up: bool) -> NodeState:
        """Takes in a change of an own link; returns the state to flood."""
        (self._down.discard if is_up else self._down.add)(neighbour)
        self._sequence += 1
        state = NodeState(self.broker, self._incarnation, self._sequence, tuple(sorted(self._down)))
        self._states[self.broker] = state
        self._paths = {}
        return state

    def take(self, state: NodeState) -> bool:
        """Takes in the state of another broker; returns whether it is news, to be flooded on."""
        known = self._states.get(state.broker)
        if state.broker == self.broker or (known is not None and state.age <= known.age):
            return False
        self._states[state.broker] = state
        self._paths = {}
        return True

    def path_to(self, target: str, besides: str = "") -> tuple[str, ...] | None:
        """Returns the brokers of a shortest path of what is up, without this broker and with the target; or None. The
        path does not lead over `besides`."""
        paths = self._paths.get(besides)
        if paths is None:
            paths = self._paths[besides] = self._find_paths(besides)
        return paths.get(target)

    def path_around(self, neighbour: str) -> tuple[str, ...] | None:
        """Returns the brokers of a shortest path to a neighbour that does not lead over the link to it; or None."""
        state = self._states.get(neighbour)
        ends = [
            path
            for other in self._plan.neighbours(neighbour)
            if other != self.broker
            and (state is None or other not in state.down)
            and (its := self._states.get(other)) is not None
            and neighbour not in its.down
            and (path := self.path_to(other, neighbour)) is not None
        ]
        return (*min(ends, key=len), neighbour) if ends else None

    def detours(self, tree: int, hop: str, *, is_passed_over: bool = False) -> list[tuple[tuple[str, ...], str]]:
        """Returns whom to send to in place of a neighbour on a tree: a path to each, and the broker before it on the
        tree. These are the neighbour itself where another path leads to it; else the next brokers behind it on the
        tree that can be reached, and in place of one that cannot, those behind it in turn. The neighbour itself
        is not among them where it is passed over."""
        ways: list[tuple[tuple[str, ...], str]] = []
        ahead = [(hop, self.broker)]
        for broker, before in ahead:
            path = self.path_to(broker, hop if is_passed_over else "")
            if path is not None:
                ways.append((path, before))
            else:
                ahead += [(child, broker) for child in self._plan.tree_neighbours(tree, broker) if child != before]
        return ways

    def _find_paths(self, besides: str) -> dict[str, tuple[str, ...]]:
        """Breadth first; among equally short paths the one whose brokers come first in the alphabet."""
        down = {name: frozenset(state.down) for name, state in self._states.items()}
        down[self.broker] = frozenset(self._down)
        nothing: frozenset[str] = frozenset()
        paths: dict[str, tuple[str, ...]] = {self.broker: ()}
        reached = [self.broker]
        for broker in reached:
            path, cut = paths[broker], down.get(broker, nothing)
            for other in self._plan.neighbours(broker):
                if other in paths or other == besides:
                    continue
                if other not in cut and broker not in down.get(other, nothing):
                    paths[other] = (*path, other)
                    reached.append(other)
        return paths
