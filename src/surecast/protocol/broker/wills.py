"""Wills: published when a client is gone without a DISCONNECT, at once or after the will delay (MQTT 5.0, 3.1.3.2)."""

from __future__ import annotations

import math
from dataclasses import replace

from surecast.protocol.broker.incoming import Authorise, Incoming
from surecast.protocol.broker.message import text_field
from surecast.protocol.broker.message_expiry import interval_of, lifetime_of
from surecast.protocol.broker.observer import Counters
from surecast.protocol.broker.session import Session, SessionWill
from surecast.protocol.broker.state_journal import Journal
from surecast.protocol.broker.timers import Timers
from surecast.protocol.mqtt import PacketType, Publish, encode_properties
from surecast.protocol.mqtt import Will as RequestedWill

__all__ = ["Wills"]


class Wills:
    """Keeps, publishes and cancels the wills of sessions."""

    def __init__(self, journal: Journal, timers: Timers, incoming: Incoming, counters: Counters, authorise: Authorise):
        self._journal = journal
        self._timers = timers
        self._incoming = incoming
        self._counters = counters
        self._authorise = authorise

    def set(self, session: Session, will: RequestedWill, now: float) -> None:
        """Takes the will of a CONNECT.

        It is on disk before the CONNACK is sent: should the broker die, it is all that speaks for this client.
        """
        session.will = self._make(will, session, now)
        self._journal.keep(session.will.message)
        self._journal.will(session, session.will)

    def _make(self, will: RequestedWill, session: Session, now: float) -> SessionWill:
        asked = will.properties
        packet = Publish(will.topic, will.payload, will.qos, will.retain)
        message = self._incoming.message(packet, will.topic, text_field(will.topic), session.key, now)
        passed_on = replace(asked, will_delay_s=None, message_expiry_s=None)
        message.properties = encode_properties(passed_on, PacketType.PUBLISH)
        message.size += len(message.properties)
        return SessionWill(message, asked.will_delay_s or 0, lifetime_of(asked), interval_s=interval_of(asked))

    def begin_delay(self, session: Session, will: SessionWill, now: float) -> None:
        """The client of a session that goes on is gone: its will is sent now, or after the delay that it asked for."""
        if will.delay_s == 0:
            self.publish(session, now)
            return
        will.due_at = min(now + will.delay_s, session.ends_at)
        self._journal.will(session, will)
        self._timers.add(will.due_at, "will", session.key)

    def delay_over(self, session: Session | None, now: float) -> None:
        """Publishes a will whose delay is over; nothing happens if it was cancelled."""
        if session is None or session.will is None:
            return
        if session.will.due_at <= now:
            self.publish(session, now)
        elif session.will.due_at != math.inf:
            self._timers.add(session.will.due_at, "will", session.key)

    def publish(self, session: Session, now: float) -> None:
        """Publishes a will, if its client may publish to that topic."""
        will = session.will
        if will is None:
            return
        self._remove(session, will)
        message = will.message
        message.published_at = now
        message.expires_at = now + will.lifetime_s
        message.interval_end = now + will.interval_s
        if not message.topic.startswith("$") and self._authorise(
            session.user, session.client, "publish", message.topic
        ):
            self._incoming.take(message, now)
        else:
            self._counters.unauthorised += 1

    def cancel(self, session: Session) -> None:
        """The client has disconnected in order, or is back before the delay is over."""
        if session.will is not None:
            self._remove(session, session.will)

    def _remove(self, session: Session, will: SessionWill) -> None:
        session.will = None
        self._journal.forget_will(session, will)
