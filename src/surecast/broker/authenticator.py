"""Decides which user a CONNECT proves to be: by certificate, by password, or nobody where that is allowed.

Passwords are checked in threads, in the order of a `CheckQueue`. One that is known to be right, since it was checked
before, is not checked again: whatever others try meanwhile, a client that was here comes back at once.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Final

from surecast.broker.password_queue import CheckQueue, Pair, Spacing, source_of
from surecast.broker.security import NAME_MAX, Users, address_of
from surecast.protocol.broker import Origin
from surecast.protocol.mqtt import Connect, ReasonCode

__all__ = ["Authenticator", "IsWanted", "Verdict"]

Verdict = str | ReasonCode
"""The user, empty for nobody in particular; or why the client must not stay."""

IsWanted = Callable[[bool], bool]
"""Tells whether anybody still waits for an answer; asked with True, after many wrong passwords, only who is there."""

_AT_ONCE: Final = 100
"""Checks that are found to be needless in one turn of the event loop, before others have their turn."""


@dataclass(frozen=True, slots=True)
class _Check:
    """A password that is to be checked, and who waits for the answer: None says that there is no room for it."""

    name: str
    password: bytes
    is_wanted: IsWanted
    answer: asyncio.Future[bool | None]


def _always(strictly: bool) -> bool:
    return True


class Authenticator:
    """Checks credentials. `is_anonymous` says of a listener whether clients without a user name may stay there.

    At most `at_once` passwords are checked at the same time, in the threads of `executor`. `counts` has the checks by
    their result: remembered, right, wrong, busy (no room in the queue) and gone (nobody waited for it any more).
    """

    def __init__(
        self,
        users: Users | None,
        is_anonymous: Callable[[str], bool],
        *,
        executor: Executor | None = None,
        at_once: int = 2,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.users = users
        self.counts: Counter[str] = Counter()
        self._is_anonymous = is_anonymous
        self._executor = executor
        self._at_once = at_once
        self._clock = clock
        self._queue: CheckQueue[_Check] = CheckQueue()
        self._running = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """Passwords that wait to be checked."""
        return self._queue.waiting

    def limit(self, waiting_max: int, spacing: Spacing) -> None:
        """Takes other limits; what was counted is counted on."""
        self._queue.waiting_max, self._queue.spacing = waiting_max, spacing

    async def __call__(self, connect: Connect, origin: Origin, is_wanted: IsWanted = _always) -> Verdict:
        """Returns the user, or why the client must not stay."""
        if origin.identity:
            return origin.identity
        if connect.username is None or self.users is None:
            return "" if self._is_anonymous(origin.listener) else ReasonCode.BAD_USER_NAME_OR_PASSWORD
        is_right = await self.check(connect.username, connect.password or b"", address_of(origin.peer), is_wanted)
        if is_right is None:
            return ReasonCode.SERVER_BUSY
        return connect.username if is_right else ReasonCode.BAD_USER_NAME_OR_PASSWORD

    async def check(self, name: str, password: bytes, address: str, is_wanted: IsWanted = _always) -> bool | None:
        """Returns whether a name and a password are right; None if there is no room to find out."""
        if self.users is None:
            return False
        if self.users.remembers(name, password):
            self.counts["remembered"] += 1
            return True
        check = _Check(name, password, is_wanted, asyncio.get_running_loop().create_future())
        # No user has a longer name. All longer ones count as one user, so that they take no memory.
        user = name if len(name) <= NAME_MAX else ""
        left_out = self._queue.add(check, source_of(address), user, self._clock())
        if left_out is not None:
            self._answer(left_out, None, "busy")
        self._go_on()
        return await check.answer

    def _go_on(self) -> None:
        """Begins as many checks as there are threads for."""
        loop, now = asyncio.get_running_loop(), self._clock()
        for _ in range(_AT_ONCE):
            found = self._queue.take(now) if self._running < self._at_once else None
            if found is None:
                break
            check, pair = found
            users = self.users
            if not check.is_wanted(self._queue.is_spaced(pair, now)) or check.answer.done() or users is None:
                self._queue.done(pair, None, now)
                self._answer(check, None, "gone")
            elif users.remembers(check.name, check.password):
                self._queue.done(pair, None, now)
                self._answer(check, True, "remembered")
            else:
                self._running += 1
                verdict = loop.run_in_executor(self._executor, users.verify, check.name, check.password)
                verdict.add_done_callback(partial(self._checked, check, pair))
        else:
            loop.call_soon(self._go_on)
        self._plan(loop, now)

    def _checked(self, check: _Check, pair: Pair[_Check], verdict: asyncio.Future[bool]) -> None:
        self._running -= 1
        is_right = not verdict.cancelled() and verdict.exception() is None and verdict.result()
        self._queue.done(pair, is_right, self._clock())
        self._answer(check, is_right, "right" if is_right else "wrong")
        self._go_on()

    def _answer(self, check: _Check, is_right: bool | None, result: str) -> None:
        self.counts[result] += 1
        if not check.answer.done():
            check.answer.set_result(is_right)

    def _plan(self, loop: asyncio.AbstractEventLoop, now: float) -> None:
        """Sets the clock for the next check that is spaced."""
        at = self._queue.next_at()
        if self._timer is None and at != math.inf:
            self._timer = loop.call_later(max(0.001, at - now), self._due)

    def _due(self) -> None:
        self._timer = None
        self._go_on()
