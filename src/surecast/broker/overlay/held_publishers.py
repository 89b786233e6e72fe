"""Publishers that have to wait for a link: nothing more is read of them until it has room."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from surecast.broker.shell import Channel, Shell

__all__ = ["HoldsPublishers"]


class HoldsPublishers(Shell):
    """A shell whose publishers wait for links of an overlay."""

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self._waiting_for_links: set[Channel] = set()

    @property
    def publishers_waiting(self) -> int:
        """The number of publishers that wait."""
        return len(self._waiting_for_links)

    def _hold_publishers(self, held: Iterable[str]) -> None:
        """Reads nothing of the publishers with these session keys, which need a link that is full, and of those before
        again."""
        if not held and not self._waiting_for_links:
            return
        waiting: set[Channel] = set()
        for key in held:
            session = self.broker.sessions.by_key.get(key)
            connection = session.connection if session is not None else None
            channel = self._channels.get(connection) if connection is not None else None
            if channel is not None:
                waiting.add(channel)
        before, self._waiting_for_links = self._waiting_for_links, waiting
        for channel in waiting - before:
            channel.pause_reading()
        for channel in before - waiting:
            if channel in self._rest:
                self.loop.call_soon(self._next_piece, channel)
            else:
                self._read_on(channel)
        for channel in waiting:
            self._excuse(channel.connection)

    def _forget_waiting(self) -> None:
        self._waiting_for_links.clear()

    def _waits(self, channel: Channel) -> bool:
        """Returns whether a client waits, for a link or else."""
        return channel in self._waiting_for_links or super()._waits(channel)

    def _read_on(self, channel: Channel) -> None:
        if channel not in self._waiting_for_links:
            super()._read_on(channel)
