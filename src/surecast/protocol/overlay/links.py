"""How a broker reaches its neighbours on a topic tree: directly, or around what has failed."""

from __future__ import annotations

from surecast.protocol.overlay.effects import Effect, Send
from surecast.protocol.overlay.link_state import LinkStateView
from surecast.protocol.overlay.messages import Detour, EventMessage, Subscribe, Unsubscribe
from surecast.protocol.overlay.overlay_map import OverlayMap

__all__ = ["DetouringLinks", "DirectLinks"]


class DirectLinks:
    """Without any knowledge of failures: everything is sent to the neighbour itself and may be lost."""

    def is_up(self, neighbour: str) -> bool:
        """Whether a neighbour is believed to be reachable directly."""
        return True

    def send(self, topic: str, hop: str, message: EventMessage | Subscribe | Unsubscribe) -> list[Effect]:
        """What brings a message to those behind a neighbour on the tree of a topic."""
        return [Send(hop, message)]


class DetouringLinks(DirectLinks):
    """With a view of the overlay: what a failed neighbour should have got is sent to those behind it on the tree.

    >>> from surecast.protocol.overlay.messages import LinkState
    >>> stock = [("b1", "b2"), ("b2", "b3"), ("b2", "b4")]
    >>> overlay = OverlayMap([*stock, ("b1", "b3"), ("b3", "b4")], {"Stock": stock})
    >>> view = LinkStateView("b1", overlay)
    >>> _ = view.neighbour_changed("b2", up=False)
    >>> DetouringLinks("b1", overlay, view).targets("Stock", "b2")  # so far it may be only the link
    [(('b3', 'b2'), 'b1')]
    >>> for other in ("b3", "b4"):
    ...     _ = view.receive(LinkState(other, 1, ("b2",)), other)
    >>> DetouringLinks("b1", overlay, view).targets("Stock", "b2")
    [(('b3',), 'b2'), (('b3', 'b4'), 'b2')]
    """

    def __init__(self, broker: str, overlay: OverlayMap, view: LinkStateView):
        self.broker = broker
        self._overlay = overlay
        self._view = view

    def is_up(self, neighbour: str) -> bool:
        return self._view.is_up(neighbour)

    def send(self, topic: str, hop: str, message: EventMessage | Subscribe | Unsubscribe) -> list[Effect]:
        if self._view.is_up(hop):
            return [Send(hop, message)]
        return [Send(path[0], Detour(path[1:], via, message)) for path, via in self.targets(topic, hop)]

    def targets(self, topic: str, hop: str) -> list[tuple[tuple[str, ...], str]]:
        """Whom to send to in place of a neighbour: a path to each, and its neighbour on the tree on this side.

        These are the neighbour itself where another path leads to it, else its immediately reachable children: its
        next brokers on the tree that can be reached, and in place of one that cannot, its own in turn.
        """
        found: list[tuple[tuple[str, ...], str]] = []
        ahead = [(hop, self.broker)]
        while ahead:
            broker, before = ahead.pop(0)
            path = self._view.path_to(broker)
            if path is not None:
                found.append((path, before))
            else:
                children = self._overlay.tree_neighbours(topic, broker)
                ahead += [(child, broker) for child in children if child != before]
        return found
