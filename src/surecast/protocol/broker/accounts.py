"""The accounts of a session: every message that was routed to it is accounted for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

__all__ = ["REASONS", "Accounts"]

REASONS: Final[tuple[str, ...]] = (
    "queue-full",
    "quota-full",
    "not-joined",
    "displaced",
    "offline-qos0",
    "slow-qos0",
    "too-large",
    "rejected",
    "session-ended",
    "handed-on",
    "moved",
)
"""Why a message is dropped; docs/semantics.md explains each."""


@dataclass(slots=True)
class Accounts:
    """Counts of one session, or of a broker. What is neither delivered, dropped nor expired is still queued.

    >>> accounts = Accounts()
    >>> accounts.matched += 3
    >>> accounts.delivered += 1
    >>> accounts.drop("queue-full")
    >>> accounts.queued
    1
    """

    matched: int = 0
    delivered: int = 0
    expired: int = 0
    dropped: dict[str, int] = field(default_factory=dict)

    def drop(self, reason: str, count: int = 1) -> None:
        """Counts messages dropped for a reason."""
        self.dropped[reason] = self.dropped.get(reason, 0) + count

    @property
    def dropped_total(self) -> int:
        """Messages dropped, whatever the reason."""
        return sum(self.dropped.values())

    @property
    def queued(self) -> int:
        """Returns how many messages must still be queued by these accounts; the queue of the session must agree."""
        return self.matched - self.delivered - self.expired - self.dropped_total

    def add(self, other: Accounts) -> None:
        """Adds the counts of another."""
        self.matched += other.matched
        self.delivered += other.delivered
        self.expired += other.expired
        for reason, count in other.dropped.items():
            self.drop(reason, count)

    def as_dict(self) -> dict[str, object]:
        """Plain data, for status answers."""
        return {
            "matched": self.matched,
            "delivered": self.delivered,
            "expired": self.expired,
            "dropped": dict(sorted(self.dropped.items())),
            "queued": self.queued,
        }
