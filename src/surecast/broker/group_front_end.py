"""The front end of a replica on a real processor: it sees how long its commands take."""

from __future__ import annotations

import time

from surecast.protocol.group import FrontEnd
from surecast.protocol.group.commands import Decoded

__all__ = ["TimedFrontEnd"]


class TimedFrontEnd(FrontEnd):
    """A front end whose commands are made so long that each takes about 10 ms of this processor.

    A client may have what costs all replicas much in few bytes: messages to a thousand sessions, content filters.
    """

    _begun_s = 0.0

    def decoded(self, incarnation: int, sequence: int) -> Decoded | None:
        """The packets of an own command, which is carried out now."""
        command = super().decoded(incarnation, sequence)
        self._begun_s = time.thread_time()
        return command

    def carried_out(self) -> None:
        """The command is carried out."""
        self.took(time.thread_time() - self._begun_s)
