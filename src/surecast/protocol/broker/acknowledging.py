"""Acknowledgements of clients for what they were sent (MQTT 5.0, section 4.3).

One of another message than is in flight is out of date, and has no effect; one of another kind than its message waits
for breaks the protocol: then the connection ends.
"""

from __future__ import annotations

from collections.abc import Sequence

from surecast.protocol.broker.connection import Connection
from surecast.protocol.broker.incoming import Incoming, ViolationError
from surecast.protocol.broker.message import Delivery
from surecast.protocol.broker.observer import Counters, Observer
from surecast.protocol.broker.outgoing import Outgoing
from surecast.protocol.broker.session import Session
from surecast.protocol.broker.state_journal import Journal
from surecast.protocol.mqtt import AckBatch, PacketType, Puback, Pubcomp, Pubrec, ReasonCode

__all__ = ["Acknowledging"]

_PUBACK = 0x40
_PUBREC = 0x50
_PUBREL = 0x62
_PUBCOMP = 0x70


class Acknowledging:
    """Takes messages that have arrived out of the queues of sessions, and lets others follow."""

    def __init__(
        self, journal: Journal, incoming: Incoming, outgoing: Outgoing, counters: Counters, observer: Observer | None
    ):
        self._journal = journal
        self._incoming = incoming
        self._outgoing = outgoing
        self._counters = counters
        self._observer = observer

    def takes_alone(self, connection: Connection, data: bytes, now: float) -> bool:
        """Takes the bytes of a PUBACK that came alone, as most do, for the message that was sent first, as most are.

        All else is left alone; then the result is False.
        """
        session, identifier = connection.session, data[2] << 8 | data[3]
        if session is None or data[0] != _PUBACK or data[1] != 2 or not connection.decoder.is_at_packet:
            return False
        plain = session.plain
        if plain.first != identifier or plain.after == identifier or session.tracked:
            return False
        self._counters.packets_in += 1
        size = plain.take_first()
        session.bytes_queued -= size
        session.quota.bytes_queued -= size
        session.accounts.delivered += 1
        if session.waiting.entries or session.warned:
            self._outgoing.fill(session, now)
        return True

    def batch(self, connection: Connection, session: Session, batch: AckBatch, now: float) -> None:
        """The client acknowledges many messages, or one."""
        kind, identifiers = batch.first_byte, batch.packet_ids
        self._counters.packets_in += len(identifiers) - 1
        if kind == _PUBACK and not session.tracked:
            size = session.plain.acknowledge(identifiers)
            if size:
                session.bytes_queued -= size
                session.quota.bytes_queued -= size
                session.accounts.delivered += len(identifiers)
                if session.waiting.entries or session.warned:
                    self._outgoing.fill(session, now)
                return
        if kind == _PUBREL:
            self._incoming.release(connection, session, identifiers)
        elif self._observer is not None or session.resend or session.target is not None:
            for packet in batch.packets():
                if isinstance(packet, Puback):
                    self.acknowledged(connection, session, packet, now)
                elif isinstance(packet, Pubrec):
                    self.received(connection, session, packet, now)
                elif isinstance(packet, Pubcomp):
                    self.completed(connection, session, packet, now)
        elif kind == _PUBREC:
            self._received_together(session, identifiers)
        else:
            try:
                self._take_together(session, identifiers, kind == _PUBCOMP)
            finally:
                if session.waiting.entries or session.warned:
                    self._outgoing.fill(session, now)

    def _take_together(self, session: Session, identifiers: Sequence[int], is_completed: bool) -> None:
        """Takes messages out of those in flight, up to the first that waits for another acknowledgement."""
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
        if not is_right:
            raise _wrong_kind(_PUBCOMP if is_completed else _PUBACK)

    def _received_together(self, session: Session, identifiers: Sequence[int]) -> None:
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
        if not is_right:
            raise _wrong_kind(_PUBREC)

    def acknowledged(self, connection: Connection, session: Session, packet: Puback, now: float) -> None:
        """The client has a QoS 1 message (PUBACK), or refused it."""
        identifier = packet.packet_id
        delivery = session.inflight.get(identifier)
        if delivery is None:
            return
        if delivery.qos != 1:
            raise _wrong_kind(_PUBACK)
        self._finish(session, identifier, delivery, "rejected" if packet.reason >= 0x80 else "", now)
        if session.waiting.entries or session.resend or session.warned:
            self._outgoing.fill(session, now)

    def received(self, connection: Connection, session: Session, packet: Pubrec, now: float) -> None:
        """The client has a QoS 2 message (PUBREC), or refused it; it is told to go on (PUBREL).

        A PUBREC may come twice, but who has taken a message cannot refuse it any more.
        """
        identifier, reason = packet.packet_id, packet.reason
        delivery = session.inflight.get(identifier)
        if delivery is None:
            if reason < 0x80:
                self._outgoing.release(session, identifier, known=False)
            return
        if delivery.qos != 2 or (delivery.released and reason >= 0x80):
            raise _wrong_kind(_PUBREC)
        if reason >= 0x80:
            self._finish(session, identifier, delivery, "rejected", now)
            self._outgoing.fill(session, now)
            return
        if not delivery.released:
            delivery.released = True
            if session.lifetime_s:
                self._journal.queued(session, delivery)
        self._outgoing.release(session, identifier, known=True)

    def completed(self, connection: Connection, session: Session, packet: Pubcomp, now: float) -> None:
        """The exchange of a QoS 2 message is over (PUBCOMP)."""
        delivery = session.inflight.get(packet.packet_id)
        if delivery is None:
            return
        if not delivery.released:
            raise _wrong_kind(_PUBCOMP)
        self._finish(session, packet.packet_id, delivery, "", now)
        self._outgoing.fill(session, now)

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
        if session.target is not None:
            _count_for_target(session, delivery, now)
        if session.lifetime_s:
            self._journal.forget_queued(session, delivery)
        if self._observer is not None:
            self._observer.delivered(session, delivery.message, delivery.qos, now)


def _count_for_target(session: Session, delivery: Delivery, now: float) -> None:
    """Counts a message that has arrived for the session's target: its response time, and the rate of transmission."""
    state, monitor = session.target, session.monitor
    if state is None or monitor is None:
        return
    monitor.served += 1.0
    if not session.queued:
        monitor.idle(now)
    target = state.target
    state.results.delivered(max(0.0, now - delivery.message.published_at), target.time_s, target.quantile)


def _wrong_kind(kind: int) -> ViolationError:
    name = PacketType(kind >> 4).name
    return ViolationError(ReasonCode.PROTOCOL_ERROR, f"{name}: the message with this identifier waits for another one")
