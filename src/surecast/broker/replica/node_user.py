"""The user of a replica: the server of a broker, or the port of a service."""

from __future__ import annotations

__all__ = ["NodeUser"]


class NodeUser:
    """Uses a node, which calls these methods. Here they do nothing."""

    def submit_waiting(self) -> None:
        """Hands in what has arrived: a turn begins."""

    def end_turn(self) -> None:
        """Sends whatever the handler put aside: a majority has stored what it follows from.

        It is called after each turn of the event loop in which the replica did something, and before it syncs its disk.
        """

    def receive_unordered(self, content: bytes) -> None:
        """Takes what another node sent with `peers.post_unordered`: in order, but it may be lost."""

    def give_up(self, error: Exception) -> None:
        """Ends: the node cannot go on, because of its store or of an exception in the handler.

        It said nothing that it could not store, and is silent from now on. This is called once.
        """
