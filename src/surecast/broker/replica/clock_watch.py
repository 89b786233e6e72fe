"""Says when the clocks of a group differ, once when it begins and once when it is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from surecast.broker.service_log import BrokerLog
from surecast.protocol.paxos.clocks import Clocks

__all__ = ["ClockWatch", "wrong_clock"]

_LOG: Final = 0
"""Stands for the log among the replicas whose time differs."""


class ClockWatch:
    """Compares the clock of one replica with those of the others, and the log with what a majority has reached.

    A clock differs where the measurement leaves no doubt that it is off by more than `alarm_s`.
    """

    def __init__(self, replica: int, alarm_s: float, log: BrokerLog):
        self.replica = replica
        self.alarm_s = alarm_s
        self._log = log
        self._differing: set[int] = set()

    def check(self, clocks: Clocks, peers: Iterable[int], log_us: int, now: float) -> None:
        """Says what began to differ since the last time, and what ceased to."""
        for peer in peers:
            difference = clocks.difference(peer)
            if difference is not None and self._turned(peer, difference.least_s > self.alarm_s):
                ahead_s = round(difference.ahead_s, 3)
                self._say("clocks", peer in self._differing, peer=peer, ahead_s=ahead_s)
        reached_s = clocks.reached_s(now)
        ahead_s = 0.0 if reached_s is None else log_us / 1e6 - reached_s
        if reached_s is not None and self._turned(_LOG, ahead_s > self.alarm_s):
            self._say(
                "the time of the log and the clocks of a majority", _LOG in self._differing, ahead_s=round(ahead_s, 3)
            )

    def _turned(self, whose: int, differs: bool) -> bool:
        if differs is (whose in self._differing):
            return False
        (self._differing.add if differs else self._differing.discard)(whose)
        return True

    def _say(self, what: str, differ: bool, **fields: float) -> None:
        if differ:
            self._log.warning(f"{what} differ", replica=self.replica, **fields, alarm_s=self.alarm_s)
        else:
            self._log.info(f"{what} agree again", replica=self.replica, **fields)


def wrong_clock(file: Path) -> Callable[[], float]:
    """A clock that is ahead by the seconds in a file, 0 where there is none; for experiments.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "offset"
    ...     _ = file.write_text("7200")
    ...     7199 < wrong_clock(file)() - time.time() < 7201
    True
    """

    def now() -> float:
        try:
            return time.time() + float(file.read_text())
        except (OSError, ValueError):
            return time.time()

    return now
