"""Writes what the core tells of clients and messages into the event log."""

from __future__ import annotations

from surecast.broker.event_log import (
    Connected,
    Decided,
    Delivered,
    Disconnected,
    Dropped,
    EventLog,
    Expired,
    LinkDown,
    LinkUp,
    Published,
    Subscribed,
    Unsubscribed,
)
from surecast.protocol.broker import Message, Session, Subscription
from surecast.protocol.broker.content import attributes_of
from surecast.protocol.broker.session import split_key
from surecast.protocol.broker.target_state import TargetState

__all__ = ["DEADLINE_PROPERTY", "PUBLICATION_PROPERTY", "EventObserver"]

DEADLINE_PROPERTY = "deadline-ms"
"""User property of a PUBLISH: how long the message is of use, in milliseconds."""
PUBLICATION_PROPERTY = "publication-time"
"""User property of a PUBLISH: when the publisher published, in seconds since 1970."""

_TIMES = (DEADLINE_PROPERTY, PUBLICATION_PROPERTY)
_Timing = tuple[float | None, float | None]


def _forget(record: object) -> None:
    """For a log that is quiet."""


class EventObserver:
    """An observer that appends records; whoever runs the broker flushes the log at the end of each turn.

    Messages that the broker publishes itself, those under `$SYS`, are not logged.
    """

    def __init__(self, log: EventLog):
        self._log = log
        self._append = log.append
        self._timed: tuple[Message | None, _Timing] = (None, (None, None))

    def set_quiet(self, quiet: bool) -> None:
        """Appends nothing for a while: what happens now is a repetition of what was logged before."""
        self._append = _forget if quiet else self._log.append

    def published(self, message: Message, receivers: int, now: float) -> None:
        """A message was taken over from a client."""
        if not message.number:
            return
        user, client = split_key(message.publisher)
        publication_time, deadline_s = self._timing(message)
        self._append(
            Published(
                now,
                client,
                message.topic,
                message.number,
                message.qos,
                len(message.payload),
                receivers,
                user or None,
                publication_time,
                deadline_s,
            )
        )

    def delivered(self, session: Session, message: Message, qos: int, now: float) -> None:
        """A message was written to a client (QoS 0) or acknowledged by it."""
        if message.number:
            self._append(
                Delivered(
                    now,
                    session.client,
                    message.topic,
                    message.number,
                    qos,
                    len(message.payload),
                    session.queued,
                    session.user or None,
                    *self._timing(message),
                )
            )

    def dropped(self, session: Session, message: Message, reason: str, now: float) -> None:
        """A message will not reach a session."""
        if not message.number:
            return
        fate = (now, session.client, message.topic, message.number, message.qos, len(message.payload), session.queued)
        user = session.user or None
        if reason == "expired":
            self._append(Expired(*fate, user, *self._timing(message)))
        else:
            self._append(Dropped(*fate, reason, user, *self._timing(message)))

    def connected(self, session: Session, now: float) -> None:
        """A client was accepted."""
        address = session.connection.origin.peer if session.connection is not None else None
        self._append(Connected(now, session.client, session.user or None, address or None, session.queued))

    def disconnected(self, session: Session, reason: str, now: float) -> None:
        """A client's connection ended."""
        said = "client" if reason == "disconnected" else reason
        self._append(Disconnected(now, session.client, said, session.user or None, session.queued))

    def subscribed(self, session: Session, subscription: Subscription, now: float) -> None:
        """A client subscribed."""
        self._append(Subscribed(now, session.client, subscription.key, subscription.qos, session.user or None))

    def unsubscribed(self, session: Session, subscription: Subscription, reason: str, now: float) -> None:
        """A subscription ended."""
        self._append(Unsubscribed(now, session.client, subscription.key, reason, session.user or None))

    def decided(self, session: Session, state: TargetState, now: float) -> None:
        """The policy for a session's response target was decided."""
        decision = state.decision
        policy = " ".join(filter(None, (decision.policy, decision.parameter)))
        reason = None if decision.is_met else decision.reason or "no policy meets it"
        user = session.user or None
        self._append(
            Decided(now, session.client, state.target.text, policy, decision.success, user, decision.response_s, reason)
        )

    def link_up(self, neighbour: str, is_resumed: bool, lost: int, now: float) -> None:
        """A link to another broker is up; so many events were lost since it was last."""
        self._append(LinkUp(now, neighbour, "resumed" if is_resumed else "new", lost or None))

    def link_down(self, neighbour: str, reason: str, now: float) -> None:
        """A link to another broker is down."""
        self._append(LinkDown(now, neighbour, reason))

    def _timing(self, message: Message) -> _Timing:
        """Publication time and deadline as the publisher gave them; the last message's are kept for its fates."""
        if not message.properties:
            return None, None
        if self._timed[0] is not message:
            given = attributes_of(message, _TIMES)
            time, deadline_ms = given.get(PUBLICATION_PROPERTY), given.get(DEADLINE_PROPERTY)
            self._timed = (
                message,
                (
                    time if isinstance(time, float) else None,
                    deadline_ms / 1000.0 if isinstance(deadline_ms, float) else None,
                ),
            )
        return self._timed[1]
