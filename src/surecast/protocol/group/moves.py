"""Clients that move from one connection to the next: the end of a connection comes before the beginning of the next.

A client says goodbye to one replica and connects to another at once. What the first has read of it may reach the log
behind its new CONNECT. So an entry whose client is still connected waits, in the replicated state, until the home of
the old connection has said that all it had of it is in the log (RELEASE). It does not wait for a home that cannot be
reached: whoever finds that out says RELEASE too. And it never waits for longer than `WAIT_S`, by the time of the log.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from surecast.protocol.codec import F64, U16, U64, Layout, pair, sized

__all__ = ["NEWCOMER", "WAIT_S", "Home", "Moves", "Newcomer"]

WAIT_S: Final = 0.5

Home = tuple[int, int]
"""A replica, and the number of a connection there."""


@dataclass(slots=True)
class Newcomer:
    """A client that enters: where, whose session it wants, and the data of its ENTER item.

    The first of those who want one session waits for the replica `awaited`, until the time `until` at the latest.
    """

    home: Home
    session: str
    entry: bytes
    awaited: int = 0
    until: float = math.inf


NEWCOMER: Final = Layout(
    "newcomer",
    Newcomer,
    home=pair(U16, U64),
    session=sized(is_text=True),
    entry=sized(),
    awaited=U16,
    until=F64,
)


class Moves:
    """Those who wait for their session to be left by the connection before, in order.

    `queues` has them by session, first those who began to wait first. `left_by` finds the home of the
    connection that has a session now. `ask` is told who begins to wait for whom, and `admit` lets somebody in.
    """

    def __init__(
        self,
        left_by: Callable[[str], Home | None],
        ask: Callable[[Newcomer, Home], None],
        admit: Callable[[Newcomer, float], None],
    ):
        self._left_by = left_by
        self._ask = ask
        self._admit = admit
        self.queues: dict[str, list[Newcomer]] = {}
        self._sessions: dict[Home, str] = {}
        self.overdue = 0
        """Clients let in because their time to wait was over; each replica counts since it started."""

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def next_at(self) -> float:
        """Returns when somebody has waited for long enough; infinite if nobody waits."""
        first = next(iter(self.queues.values()), None)
        return math.inf if first is None else first[0].until

    def enter(self, newcomer: Newcomer, now: float) -> None:
        """Lets a client in, at once where its session is free."""
        queue = self.queues.get(newcomer.session)
        if queue is None:
            if not self._waits(newcomer, now):
                self._admit(newcomer, now)
                return
            queue = self.queues[newcomer.session] = []
        queue.append(newcomer)
        self._sessions[newcomer.home] = newcomer.session

    def release(self, home: Home, now: float) -> None:
        """Nobody need wait with the entry of a connection any longer."""
        session = self._sessions.get(home)
        if session is not None and self.queues[session][0].home == home:
            self._admit_first(session, now)

    def leave(self, home: Home, now: float) -> None:
        """The connection of somebody who waits is gone."""
        session = self._sessions.pop(home, None)
        if session is None:
            return
        queue = self.queues[session]
        was_first = queue[0].home == home
        queue[:] = [newcomer for newcomer in queue if newcomer.home != home]
        if was_first:
            self._settle(session, now)

    def down(self, replica: int, now: float) -> None:
        """A replica and all its connections are gone."""
        for home in [home for home in self._sessions if home[0] == replica]:
            self.leave(home, now)
        for session in [session for session, queue in self.queues.items() if queue[0].awaited == replica]:
            self._settle(session, now)

    def due(self, now: float) -> None:
        """Lets those in who have waited for long enough."""
        while self.next_at <= now:
            self.overdue += 1
            self._admit_first(next(iter(self.queues)), now)

    def newcomers(self) -> list[Newcomer]:
        """Returns all who wait, in order."""
        return [newcomer for queue in self.queues.values() for newcomer in queue]

    def restore(self, newcomers: Iterable[Newcomer]) -> None:
        """Takes over the `newcomers` of another."""
        for newcomer in newcomers:
            self.queues.setdefault(newcomer.session, []).append(newcomer)
            self._sessions[newcomer.home] = newcomer.session

    def _admit_first(self, session: str, now: float) -> None:
        newcomer = self.queues[session].pop(0)
        del self._sessions[newcomer.home]
        self._admit(newcomer, now)
        self._settle(session, now)

    def _settle(self, session: str, now: float) -> None:
        """Lets those in who need not wait, up to the first who must."""
        queue = self.queues.pop(session)
        while queue and not self._waits(queue[0], now):
            newcomer = queue.pop(0)
            del self._sessions[newcomer.home]
            self._admit(newcomer, now)
        if queue:
            self.queues[session] = queue  # behind those who began to wait before

    def _waits(self, newcomer: Newcomer, now: float) -> bool:
        home = self._left_by(newcomer.session)
        if home is None:
            return False
        newcomer.awaited, newcomer.until = home[0], now + WAIT_S
        self._ask(newcomer, home)
        return True
