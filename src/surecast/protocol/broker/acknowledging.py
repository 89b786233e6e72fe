"""Acknowledgements of clients for what they were sent (MQTT 5.0, section 4.3).

One of another message than is in flight is out of date, and has no effect; one of another kind than its message waits
for breaks the protocol: then the methods here return False, and the connection ends.
"""

from __future__ import annotations

from collections.abc import Sequence

from surecast.protocol.broker.message import Delivery
from surecast.protocol.broker.observer import Observer
from surecast.protocol.broker.outgoing import Outgoing
from surecast.protocol.broker.session import Session
from surecast.protocol.broker.state_journal import Journal
from surecast.protocol.mqtt import ReasonCode

__all__ = ["Acknowledging"]

_PUBACK = 0x40
_PUBREC = 0x50
_PUBCOMP = 0x70


class Acknowledging:
    """Takes messages that have arrived out of the queues of sessions, and lets others follow."""

    def __init__(self, journal: Journal, outgoing: Outgoing, observer: Observer | None):
        self._journal = journal
        self._outgoing = outgoing
        self._observer = observer

    def together(self, kind: int, session: Session, identifiers: Sequence[int], now: float) -> bool:
        """The client has many messages; `kind` is the first byte of the packets in which it says so."""
        if kind == _PUBACK and not session.tracked and not session.resend:
            size = session.plain.acknowledge(identifiers)
            if size:
                session.bytes_queued -= size
                session.quota.bytes_queued -= size
                session.accounts.delivered += len(identifiers)
                if session.waiting.entries or session.warned:
                    self._outgoing.fill(session, now)
                return True
        if self._observer is not None or session.resend:
            say = {_PUBACK: self.acknowledge, _PUBREC: self.received}.get(kind)
            if say is None:
                return all(self.completed(session, each, now) for each in identifiers)
            return all(say(session, each, ReasonCode.SUCCESS, now) for each in identifiers)
        if kind == _PUBREC:
            return self._received_together(session, identifiers)
        is_right = self._take_together(session, identifiers, kind == _PUBCOMP)
        if session.waiting.entries or session.warned:
            self._outgoing.fill(session, now)
        return is_right

    def _take_together(self, session: Session, identifiers: Sequence[int], is_completed: bool) -> bool:
        """Takes messages out of those in flight; False from the first on that waits for another acknowledgement."""
        taken: list[Delivery] = []
        done, size, is_right = 0, 0, True
        tracked, plain = session.tracked, session.plain
        for number, identifier in enumerate(identifiers):
            if not tracked and plain and not is_completed:
                plain_size = plain.acknowledge(identifiers[number:])
                if plain_size:
                    done += len(identifiers) - number
                    size += plain_size
                    break
            delivery = tracked.get(identifier)
            if delivery is None and (not plain or (delivery := session.inflight.get(identifier)) is None):
                continue
            if not (delivery.released if is_completed else delivery.qos == 1):
                is_right = False
                break
            del tracked[identifier]
            taken.append(delivery)
            done += 1
            size += delivery.message.size
        session.bytes_queued -= size
        session.quota.bytes_queued -= size
        session.accounts.delivered += done
        if session.lifetime_s:
            self._journal.forget_queued_all(session, taken)
        return is_right

    def _received_together(self, session: Session, identifiers: Sequence[int]) -> bool:
        """The client has many QoS 2 messages, and is told to go on."""
        release, inflight = self._outgoing.release, session.inflight
        changed: list[Delivery] = []
        is_right = True
        for identifier in identifiers:
            delivery = inflight.get(identifier)
            if delivery is None:
                release(session, identifier, known=False)
                continue
            if delivery.qos != 2:
                is_right = False
                break
            if not delivery.released:
                delivery.released = True
                changed.append(delivery)
            release(session, identifier, known=True)
        if session.lifetime_s:
            self._journal.queued_all(session, changed)
        return is_right

    def acknowledge(self, session: Session, identifier: int, reason: ReasonCode, now: float) -> bool:
        """The client has a QoS 1 message (PUBACK), or refused it."""
        delivery = session.inflight.get(identifier)
        if delivery is None:
            return True
        if delivery.qos != 1:
            return False
        self._finish(session, identifier, delivery, "rejected" if reason >= 0x80 else "", now)
        if session.waiting.entries or session.resend or session.warned:
            self._outgoing.fill(session, now)
        return True

    def received(self, session: Session, identifier: int, reason: ReasonCode, now: float) -> bool:
        """The client has a QoS 2 message (PUBREC), or refused it; it is told to go on (PUBREL).

        A PUBREC may come twice, but who has taken a message cannot refuse it any more.
        """
        delivery = session.inflight.get(identifier)
        if delivery is None:
            if reason < 0x80:
                self._outgoing.release(session, identifier, known=False)
            return True
        if delivery.qos != 2 or (delivery.released and reason >= 0x80):
            return False
        if reason >= 0x80:
            self._finish(session, identifier, delivery, "rejected", now)
            self._outgoing.fill(session, now)
            return True
        if not delivery.released:
            delivery.released = True
            if session.lifetime_s:
                self._journal.queued(session, delivery)
        self._outgoing.release(session, identifier, known=True)
        return True

    def completed(self, session: Session, identifier: int, now: float) -> bool:
        """The exchange of a QoS 2 message is over (PUBCOMP)."""
        delivery = session.inflight.get(identifier)
        if delivery is None:
            return True
        if not delivery.released:
            return False
        self._finish(session, identifier, delivery, "", now)
        self._outgoing.fill(session, now)
        return True

    def _finish(self, session: Session, identifier: int, delivery: Delivery, problem: str, now: float) -> None:
        """An exchange is over, well or not."""
        del session.inflight[identifier]
        if session.resend and delivery in session.resend:
            session.resend.remove(delivery)
        if problem:
            self._outgoing.leave(session, delivery, problem, now)
            return
        size = delivery.message.size
        session.bytes_queued -= size
        session.quota.bytes_queued -= size
        session.accounts.delivered += 1
        if session.lifetime_s:
            self._journal.forget_queued(session, delivery)
        if self._observer is not None:
            self._observer.delivered(session, delivery.message, delivery.qos, now)
