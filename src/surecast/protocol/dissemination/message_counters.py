"""Counters of what a node sent, received and refused."""

from __future__ import annotations

from collections import Counter

__all__ = ["MessageCounters"]


class MessageCounters:
    """Messages and bytes by the kind of message, and refusals by their reason.

    >>> counters = MessageCounters()
    >>> counters.sent("Announcement", 44), counters.sent("Data", 1000)
    (None, None)
    >>> counters.sent_bytes["Announcement"], counters.overhead()
    (44, (1, 44))
    """

    def __init__(self) -> None:
        self.sent_messages: Counter[str] = Counter()
        self.sent_bytes: Counter[str] = Counter()
        self.received_messages: Counter[str] = Counter()
        self.received_bytes: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()

    def sent(self, kind: str, size: int) -> None:
        self.sent_messages[kind] += 1
        self.sent_bytes[kind] += size

    def received(self, kind: str, size: int) -> None:
        self.received_messages[kind] += 1
        self.received_bytes[kind] += size

    def overhead(self) -> tuple[int, int]:
        """Messages and bytes sent that are not packets on their paths."""
        messages = self.sent_messages.total() - self.sent_messages["Data"]
        return messages, self.sent_bytes.total() - self.sent_bytes["Data"]
