"""The calls by which a broker reports what it does: for event logs, warnings and metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from surecast.protocol.broker.connection import Connection
from surecast.protocol.broker.message import Message
from surecast.protocol.broker.session import Session, Subscription
from surecast.protocol.broker.target_state import TargetState

__all__ = ["ConnectionHooks", "Counters", "Observer"]


def _nothing(*arguments: object) -> None:
    """Does nothing: stands for a hook that nobody has set."""


@dataclass(frozen=True, slots=True)
class ConnectionHooks:
    """Functions to call when connections begin and end. They cost messages nothing, and must not raise."""

    accepted: Callable[[Connection], None] = _nothing
    """A client was accepted."""
    refused: Callable[[Connection, str], None] = _nothing
    """A CONNECT was answered with a refusal: the connection, and why. It is closed; `closed` does not follow."""
    closed: Callable[[Connection, str, str], None] = _nothing
    """A connection is over: the connection, its client (empty if none was accepted), and why."""


class Observer(Protocol):
    """Is told of every step of every message. A broker without one takes shorter ways, so it is for event logs."""

    def published(self, message: Message, receivers: int, now: float) -> None:
        """A message was taken over from a client; it goes to so many sessions, which is told next."""

    def delivered(self, session: Session, message: Message, qos: int, now: float) -> None:
        """A message was written to a client (QoS 0) or acknowledged by it."""

    def dropped(self, session: Session, message: Message, reason: str, now: float) -> None:
        """A message will not reach a session; `expired` is a reason too."""

    def connected(self, session: Session, now: float) -> None:
        """A client was accepted."""

    def disconnected(self, session: Session, reason: str, now: float) -> None:
        """A client's connection ended."""

    def subscribed(self, session: Session, subscription: Subscription, now: float) -> None:
        """A client subscribed."""

    def decided(self, session: Session, state: TargetState, now: float) -> None:
        """The policy for a session's response target was decided."""

    def unsubscribed(self, session: Session, subscription: Subscription, reason: str, now: float) -> None:
        """A subscription ended: taken back by the `client`, removed by an `administrator`, or with its `session`."""


@dataclass(slots=True)
class Counters:
    """Counts of a broker since its start, and lines for its log that have not been written yet."""

    packets_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    published: int = 0
    unauthorised: int = 0
    protocol_errors: int = 0
    connections: int = 0
    refused: int = 0
    limited: Counter[str] = field(default_factory=Counter, compare=False)
    """Counts of how often each limit was reached, by its name in the configuration."""
    notices: list[str] = field(default_factory=list)

    def notice(self, text: str) -> None:
        """Adds a line; beyond a thousand unwritten ones the rest is lost, and memory is not."""
        if len(self.notices) < 1_000:
            self.notices.append(text)
