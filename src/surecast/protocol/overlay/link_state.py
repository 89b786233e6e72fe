"""Each broker's view of the whole overlay, kept up to date by flooding (reliability section 2.4.3)."""

from __future__ import annotations

from surecast.protocol.overlay.effects import Send
from surecast.protocol.overlay.messages import LinkState
from surecast.protocol.overlay.overlay_map import OverlayMap

__all__ = ["LinkStateView"]


class LinkStateView:
    """What one broker believes to be up. A link counts as up unless one of its ends says that it is not.

    A broker that comes back has lost its view and its sequence number. Whenever two neighbours come together each
    sends the other all it knows; so the broker learns the overlay's state, and meets its own last announcement from
    before the crash, which it outbids.

    >>> overlay = OverlayMap([("b1", "b2"), ("b2", "b3"), ("b1", "b3")], {})
    >>> view = LinkStateView("b1", overlay)
    >>> view.path_to("b3")
    ('b3',)
    >>> [send.to for send in view.neighbour_changed("b3", up=False)]
    ['b2']
    >>> view.path_to("b3")
    ('b2', 'b3')
    """

    def __init__(self, broker: str, overlay: OverlayMap, *, all_up: bool = True):
        self.broker = broker
        self._neighbours = overlay.neighbours
        down = () if all_up else overlay.neighbours[broker]
        self._own_down: set[str] = set(down)
        self._latest: dict[str, LinkState] = {}
        self._sequence = 0
        self._paths: dict[str, tuple[str, ...]] | None = None

    def is_up(self, neighbour: str) -> bool:
        """Whether the broker's own detector says that a neighbour can be reached directly."""
        return neighbour not in self._own_down

    def path_to(self, target: str) -> tuple[str, ...] | None:
        """The brokers of a shortest path of what is up, without this broker and with the target; None if none."""
        if self._paths is None:
            self._paths = self._find_paths()
        return self._paths.get(target)

    def neighbour_changed(self, neighbour: str, up: bool) -> list[Send]:
        """Takes in what the neighbour detector found; announces it to all neighbours that are up."""
        if up == (neighbour not in self._own_down):
            return []
        if up:
            self._own_down.discard(neighbour)
        else:
            self._own_down.add(neighbour)
        effects = self._announce()
        if up:
            known = (state for origin, state in self._latest.items() if origin != self.broker)
            effects += [Send(neighbour, state) for state in known]
        return effects

    def receive(self, state: LinkState, sender: str) -> list[Send]:
        """Takes in an announcement, and passes it on if it is news."""
        known = self._latest.get(state.origin)
        if state.origin == self.broker:
            if known is not None and (state.sequence < known.sequence or state == known):
                return []
            self._sequence = max(self._sequence, state.sequence)
            return self._announce()
        if known is not None and state.sequence <= known.sequence:
            return [Send(sender, known)] if state.sequence < known.sequence else []
        self._latest[state.origin] = state
        self._paths = None
        return [Send(to, state) for to in self._up_neighbours() if to != sender]

    def _announce(self) -> list[Send]:
        self._sequence += 1
        state = LinkState(self.broker, self._sequence, tuple(sorted(self._own_down)))
        self._latest[self.broker] = state
        self._paths = None
        return [Send(to, state) for to in self._up_neighbours()]

    def _up_neighbours(self) -> list[str]:
        return [name for name in self._neighbours[self.broker] if name not in self._own_down]

    def _find_paths(self) -> dict[str, tuple[str, ...]]:
        """Breadth first; among equally short paths the one whose brokers come first in the alphabet."""
        down = {origin: frozenset(state.down) for origin, state in self._latest.items()}
        down[self.broker] = frozenset(self._own_down)
        nothing: frozenset[str] = frozenset()
        paths: dict[str, tuple[str, ...]] = {self.broker: ()}
        reached = [self.broker]
        for broker in reached:
            path, cut = paths[broker], down.get(broker, nothing)
            for other in self._neighbours[broker]:
                if other not in paths and other not in cut and broker not in down.get(other, nothing):
                    paths[other] = (*path, other)
                    reached.append(other)
        return paths
