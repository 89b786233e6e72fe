"""A gate in front of what a broker sends on a link, for experiments: it cuts the link, delays it, or makes it lossy.

A link is a stream, so nothing in it is lost for good: what a network loses arrives later, when it is sent again, and
what is behind it waits. A cut holds everything back; if it ends before the link is given up, all of it arrives.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

__all__ = ["GateSettings", "LinkGate"]

RESEND_S: Final = 0.2
"""How much later something arrives that the network has lost once."""


@dataclass(frozen=True, slots=True)
class GateSettings:
    """The settings of a gate: hold all back, delay it, or delay a share of it further, as if it had been lost once."""

    is_cut: bool = False
    delay_s: float = 0.0
    loss: float = 0.0

    @property
    def is_open(self) -> bool:
        """Returns whether the gate does nothing."""
        return not self.is_cut and not self.delay_s and not self.loss


class LinkGate:
    """The gate of one link; `write` is what sends bytes on it."""

    def __init__(self) -> None:
        self.settings = GateSettings()
        self.write: Callable[[bytes], None] | None = None
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._last_s = 0.0

    def send(self, data: bytes) -> None:
        """Sends bytes through the gate."""
        settings = self.settings
        if settings.is_open and not self._waiting:
            self._pass(data)
            return
        due_s = asyncio.get_running_loop().time() + settings.delay_s
        while settings.loss and random.random() < settings.loss:
            due_s += RESEND_S
        self._last_s = due_s = max(due_s, self._last_s)
        self._waiting.append((due_s, data))
        self._plan()

    def change(self, settings: GateSettings) -> None:
        """Takes other settings; what a cut has held back goes on when it ends."""
        self.settings = settings
        self._plan()

    def clear(self) -> None:
        """Forgets what waits: its connection is over."""
        self._waiting.clear()
        self._last_s = 0.0

    def _pass(self, data: bytes) -> None:
        if self.write is not None:
            self.write(data)

    def _plan(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting and not self.settings.is_cut:
            self._timer = asyncio.get_running_loop().call_at(self._waiting[0][0], self._due)

    def _due(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time() + 0.0005  # timers are as coarse as a millisecond
        while self._waiting and self._waiting[0][0] <= now:
            self._pass(self._waiting.popleft()[1])
        self._plan()
