"""The error of a simulation that finds a fault in the protocol it runs."""

from __future__ import annotations

from surecast.errors import SurecastError

__all__ = ["SafetyError"]


class SafetyError(SurecastError):
    """The protocol broke a promise. The message says which, when, and how to see it again."""

    def __init__(self, what: str, time_s: float, replay: str):
        self.what = what
        self.time_s = time_s
        self.replay = replay
        super().__init__(f"at virtual time {time_s!r} s: {what}; replay: {replay}")
