"""The front end of a replica on a real processor: it sees how long its commands take."""

from __future__ import annotations

import time
from typing import Final

from surecast.protocol.group import FrontEnd
from surecast.protocol.group.commands import Decoded
from surecast.protocol.group.work import WORK_S

__all__ = ["TimedFrontEnd"]

_WATCHED: Final = 256


class TimedFrontEnd(FrontEnd):
    """A front end whose commands are made so long that each takes about 10 ms of this processor.

    A client may have what costs all replicas much in few bytes: messages to a thousand sessions, content filters.
    Reading the processor time is a system call, so the elapsed time is looked at first. Where it is too long, the
    command may have been costly or interrupted: the processor time of the next commands tells.
    """

    _begun_s = 0.0
    _watched = _WATCHED

    def decoded(self, incarnation: int, sequence: int) -> Decoded | None:
        """The packets of an own command, which is carried out now."""
        command = super().decoded(incarnation, sequence)
        self._begun_s = time.thread_time() if self._watched else time.perf_counter()
        return command

    def carried_out(self) -> None:
        """The command is carried out."""
        if self._watched:
            time_s = time.thread_time() - self._begun_s
            self._watched = _WATCHED if time_s > WORK_S else self._watched - 1
        elif (time_s := time.perf_counter() - self._begun_s) > WORK_S:
            self._watched = _WATCHED
            return
        self.took(time_s)
