"""Messages on their way to sessions: queues, packet identifiers, acknowledgements, overflow (MQTT 5.0, section 4)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256

from surecast.protocol.broker.connection import Connection
from surecast.protocol.broker.message import Delivery, Message
from surecast.protocol.broker.message_expiry import remove_expired
from surecast.protocol.broker.observer import Counters, Observer
from surecast.protocol.broker.quotas import SESSION_SHARE
from surecast.protocol.broker.routes import Target
from surecast.protocol.broker.session import Session
from surecast.protocol.broker.state_journal import Journal
from surecast.protocol.mqtt import PublishBatch, ReasonCode

__all__ = ["Outgoing"]

_DUP = 0x08
_CALM_AT = 0.5
_NO_LIMIT = 1 << 32  # no packet is as large


class Outgoing:
    """Sends messages to sessions, or keeps them; `dirty` collects the connections with something to send."""

    def __init__(
        self,
        journal: Journal,
        dirty: set[Connection],
        counters: Counters,
        observer: Observer | None,
    ):
        self._journal = journal
        self._dirty = dirty
        self._counters = counters
        self._observer = observer

    def deliver(self, target: Target, message: Message, now: float) -> bool:
        """Gives a message to a session; False if its queue had no room for it."""
        session = target.session
        qos = min(message.qos, target.qos)
        retain = message.retain and target.as_published
        session.accounts.matched += 1
        if qos == 0:
            self._send_once(session, message, retain, target.identifiers, now)
            return True
        return self._enqueue(session, message, qos, retain, target.identifiers, now, target.share)

    def send_retained(self, target: Target, message: Message, now: float, too_much: bool) -> None:
        """Gives a retained message to a new subscription; it is marked as retained."""
        session = target.session
        qos = min(message.qos, target.qos)
        session.accounts.matched += 1
        if qos == 0 and too_much:
            self._drop(session, message, "slow-qos0", now)
        elif qos == 0:
            self._send_once(session, message, True, target.identifiers, now)
        else:
            self._enqueue(session, message, qos, True, target.identifiers, now)

    def send_batch(  # noqa: C901 - no calls, since every subscriber of every batch goes through it
        self,
        session: Session,
        batch: PublishBatch,
        begin: int,
        sizes: list[int],
        made: dict[tuple[int, int, int], bytes],
    ) -> int:
        """Sends messages of QoS 1 as they came, with packet identifiers of their own.

        Returns how many it was: of the messages from `begin` on, which have these sizes, as many as the client has room
        for, one after the other. The session ends with its connection, so that nothing of them need be kept but the
        sizes. What is `made` for one session is the same for others that have got as many messages so far.
        """
        connection, quota, plain = session.connection, session.quota, session.plain
        if connection is None or session.waiting or connection.version_5 is not batch.version_5:
            return 0
        count = len(sizes)
        room = session.short_max - (plain.after - plain.first) - len(session.tracked)
        if count > room:
            if room <= 0:
                return 0
            count = room
        if len(batch.data) > connection.packet_bytes_max:
            count = batch.fit(connection.packet_bytes_max, begin, begin + count)
        identifier = session.next_identifier + 1
        if identifier + count > 65_536 or session.tracked or (plain.after != identifier and plain):
            identifier, count = session.free_identifiers(count)
        if count < len(sizes):
            if not count:
                return 0
            sizes = sizes[:count]
        size = sizes[0] if count == 1 else sum(sizes)
        if session.bytes_queued + size > session.bytes_max or quota.bytes_queued + size > quota.bytes_max:
            room = min(session.bytes_max - session.bytes_queued, quota.bytes_max - quota.bytes_queued)
            sizes = sizes[:]
            while sizes and size > room:
                size -= sizes.pop()
            count = len(sizes)
            if not count:
                return 0
        plain.extend(identifier, sizes)
        session.next_identifier = identifier + count - 1
        session.bytes_queued += size
        quota.bytes_queued += size
        session.accounts.matched += count
        if not connection.is_elsewhere:
            key = (identifier, begin, count)
            data = made.get(key)
            if data is None:
                data = made[key] = batch.renumbered(identifier, begin, begin + count)
            connection.out.append(data)
            self._dirty.add(connection)
        return count

    # Acknowledgements. One of another message than is in flight is out of date, and has no effect; one of another kind
    # than its message waits for breaks the protocol: these methods return False, and the connection ends.

    def acknowledge_all(self, session: Session, identifiers: Sequence[int], now: float) -> bool:
        """The client has many QoS 1 messages."""
        if not session.tracked and not session.resend:
            size = session.plain.acknowledge(identifiers)
            if size:
                session.bytes_queued -= size
                session.quota.bytes_queued -= size
                session.accounts.delivered += len(identifiers)
                if session.waiting or session.warned:
                    self.fill(session, now)
                return True
        if self._observer is not None or session.resend:
            return all(self.acknowledge(session, each, ReasonCode.SUCCESS, now) for each in identifiers)
        done, size, is_right = 0, 0, True
        tracked, plain, lasting = session.tracked, session.plain, session.lifetime_s > 0
        for number, identifier in enumerate(identifiers):
            if not tracked and plain:
                plain_size = plain.acknowledge(identifiers[number:])
                if plain_size:
                    done += len(identifiers) - number
                    size += plain_size
                    break
            delivery = tracked.get(identifier)
            if delivery is None and (not plain or (delivery := session.inflight.get(identifier)) is None):
                continue
            if delivery.qos != 1:
                is_right = False
                break
            del tracked[identifier]
            done += 1
            size += delivery.message.size
            if lasting:
                self._journal.forget_queued(session, delivery)
        session.bytes_queued -= size
        session.quota.bytes_queued -= size
        session.accounts.delivered += done
        if session.waiting or session.warned:
            self.fill(session, now)
        return is_right

    def acknowledge(self, session: Session, identifier: int, reason: ReasonCode, now: float) -> bool:
        """The client has a QoS 1 message (PUBACK), or refused it."""
        delivery = session.inflight.get(identifier)
        if delivery is None:
            return True
        if delivery.qos != 1:
            return False
        self._finish(session, identifier, delivery, "rejected" if reason >= 0x80 else "", now)
        if session.waiting or session.resend or session.warned:
            self.fill(session, now)
        return True

    def received(self, session: Session, identifier: int, reason: ReasonCode, now: float) -> bool:
        """The client has a QoS 2 message (PUBREC), or refused it; it is told to go on (PUBREL).

        A PUBREC may come twice, but who has taken a message cannot refuse it any more.
        """
        delivery = session.inflight.get(identifier)
        if delivery is None:
            if reason < 0x80:
                self._release(session, identifier, known=False)
            return True
        if delivery.qos != 2 or (delivery.released and reason >= 0x80):
            return False
        if reason >= 0x80:
            self._finish(session, identifier, delivery, "rejected", now)
            self.fill(session, now)
            return True
        if not delivery.released:
            delivery.released = True
            if session.lifetime_s:
                self._journal.queued(session, delivery)
        self._release(session, identifier, known=True)
        return True

    def completed(self, session: Session, identifier: int, now: float) -> bool:
        """The exchange of a QoS 2 message is over (PUBCOMP)."""
        delivery = session.inflight.get(identifier)
        if delivery is None:
            return True
        if not delivery.released:
            return False
        self._finish(session, identifier, delivery, "", now)
        self.fill(session, now)
        return True

    def resume(self, session: Session, now: float) -> None:
        """Sends again what was in flight, in its first order, and then what waits (MQTT 5.0, section 4.4)."""
        session.resend.clear()
        session.resend.extend(session.inflight.values())
        self.fill(session, now)

    def fill(self, session: Session, now: float) -> None:
        """Sends what waits, as far as the client's window allows."""
        connection = session.connection
        if connection is None:
            return
        while session.resend and len(session.inflight) - len(session.resend) < session.window:
            delivery = session.resend.popleft()
            if delivery.released:
                self._release(session, delivery.identifier, True)
            elif not self._write(session, connection, delivery, now, _DUP):
                del session.inflight[delivery.identifier]
                self._leave(session, delivery, "too-large", now)
        waiting = session.waiting
        while waiting and not session.resend and session.inflight_count < session.window:
            delivery = waiting.popleft()
            if delivery.message.expires_at <= now:
                self._leave(session, delivery, "expired", now)
            else:
                self._start(session, connection, delivery, now)
        if session.warned and session.queued < _CALM_AT * session.limits.queue_messages_max:
            session.warned = False

    def expire(self, session: Session, now: float) -> None:
        """Takes out what expired while it waited."""
        for delivery in remove_expired(session, now):
            self._leave(session, delivery, "expired", now)

    def clear(self, session: Session, now: float, heir_of: Callable[[str, Message], Target | None]) -> None:
        """The session ends: what it still had is dropped, or handed on to another member of a shared subscription.

        A QoS 2 message that has been sent goes to nobody else [MQTT-4.8.2-5]. `heir_of` finds the member.
        """
        for delivery in (*session.inflight.values(), *session.waiting):
            reason, message = "session-ended", delivery.message
            if delivery.share and (delivery.qos == 1 or not delivery.identifier):
                if message.expires_at <= now:
                    reason = reason if delivery.identifier else "expired"
                elif (heir := heir_of(delivery.share, message)) is not None:
                    reason = "handed-on"
                    self.deliver(heir, message, now)
            self._leave(session, delivery, reason, now)
        session.inflight.clear()
        session.waiting.clear()
        session.resend.clear()

    def _send_once(
        self, session: Session, message: Message, retain: bool, identifiers: tuple[int, ...], now: float
    ) -> None:
        connection = session.connection
        if connection is None:
            self._drop(session, message, "offline-qos0", now)
        elif connection.congested:
            self._drop(session, message, "slow-qos0", now)
        else:
            head, tail = self._parts(connection, message, 0, retain, identifiers, now)
            if len(head) + len(tail) > connection.packet_bytes_max:
                self._drop(session, message, "too-large", now)
                return
            connection.out.append(head + tail)
            self._dirty.add(connection)
            session.accounts.delivered += 1
            if self._observer is not None:
                self._observer.delivered(session, message, 0, now)

    def _enqueue(
        self,
        session: Session,
        message: Message,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
        now: float,
        share: str = "",
    ) -> bool:
        if session.connection is None and session.limits.join_probability < 1.0 and not _joins(session, message):
            self._drop(session, message, "not-joined", now)
            return True
        queued = session.queued + 1
        if queued >= session.limits.warn_at:
            self._check_length(session, queued)
        if self._is_full(session, message.size) and not self._make_room(session, message, now):
            self._drop(session, message, self._full_reason(session, message.size), now)
            return False
        delivery = Delivery(message, qos, retain, identifiers, session.next_sequence)
        delivery.share = share
        session.next_sequence += 1
        session.bytes_queued += message.size
        session.quota.bytes_queued += message.size
        connection = session.connection
        if session.lifetime_s:
            self._journal.keep(message)
        if connection is not None and not session.waiting and session.inflight_count < session.window:
            self._start(session, connection, delivery, now)
            return True
        self.wait(session, delivery)
        if session.lifetime_s:
            self._journal.queued(session, delivery)
        return True

    @staticmethod
    def wait(session: Session, delivery: Delivery) -> None:
        """Puts a message at the end of those that wait."""
        session.waiting.append(delivery)
        if delivery.message.expires_at < session.expiry_check_at:
            session.expiry_check_at = delivery.message.expires_at

    def _check_length(self, session: Session, queued: int) -> None:
        """Warns, once, of a queue that is nearly full."""
        if not session.warned:
            session.warned = True
            limit, rule = session.limits.queue_messages_max, session.limits.overflow
            self._counters.notice(
                f"the queue of {session.client} holds {queued} messages; {limit} is the limit, and then {rule} applies"
            )

    def _make_room(self, session: Session, message: Message, now: float) -> bool:
        """Frees a place in a full queue by the overflow rule; False if the new message is the one to go."""
        self.expire(session, now)
        rule = session.limits.overflow
        if rule in ("drop-new", "reject"):
            return not self._is_full(session, message.size)
        if self._is_hopeless(session, message.size):
            return False
        waiting = session.waiting
        while self._is_full(session, message.size):
            if not waiting:
                return False
            victim = waiting[0]
            if rule == "expire-first":
                if session.expiry_check_at == math.inf:
                    return False
                victim = min(waiting, key=lambda d: d.message.expires_at)
                if victim.message.expires_at >= message.expires_at:
                    return False
            reason = self._full_reason(session, message.size)
            waiting.remove(victim)
            self._leave(session, victim, reason, now)
        return True

    @staticmethod
    def _is_hopeless(session: Session, size: int) -> bool:
        """Whether a message does not fit, even if nothing waits: then nothing must be dropped for it."""
        limit = min(session.bytes_max, _quota_room(session))
        if size > limit:
            return bool(session.inflight or session.waiting or limit < session.bytes_max)
        if session.bytes_queued + size <= limit or not session.inflight:
            return False
        return sum(d.message.size for d in session.inflight.values()) + size > limit

    @staticmethod
    def _is_full(session: Session, size: int) -> bool:
        quota = session.quota
        return _is_queue_full(session, size) or (
            quota.bytes_queued + size > quota.bytes_max and session.bytes_queued + size > _quota_room(session)
        )

    def _full_reason(self, session: Session, size: int) -> str:
        """Returns why a message is dropped where there is no room, and counts it if its quota is full."""
        if _is_queue_full(session, size):
            return "queue-full"
        quota = session.quota
        self._counters.limited[quota.limit] += 1
        quota.dropped += 1
        if quota.dropped == quota.notice_at:
            quota.notice_at *= 10
            whose = session.user if session.user else session.address
            self._counters.notice(
                f"the queues of all sessions of {whose} hold {quota.bytes_queued} bytes; {quota.limit} is "
                f"{quota.bytes_max}, and {quota.dropped} of their messages found no room"
            )
        return "quota-full"

    def _start(self, session: Session, connection: Connection, delivery: Delivery, now: float) -> None:
        """Sends a message for the first time: it gets its packet identifier and is in flight."""
        before = session.next_identifier
        delivery.identifier = identifier = session.take_identifier()
        session.inflight[identifier] = delivery
        if not self._write(session, connection, delivery, now, 0):
            del session.inflight[identifier]
            session.next_identifier = before
            self._leave(session, delivery, "too-large", now)
        elif session.lifetime_s:
            self._journal.queued(session, delivery)

    def _write(self, session: Session, connection: Connection, delivery: Delivery, now: float, dup: int) -> bool:
        if connection.is_elsewhere and connection.packet_bytes_max >= _NO_LIMIT and not connection.aliases_max:
            return True  # it is written where the client is, and whether it is depends on nothing else
        head, tail = self._parts(connection, delivery.message, delivery.qos, delivery.retain, delivery.identifiers, now)
        if len(head) + 2 + len(tail) > connection.packet_bytes_max:
            return False
        if dup:
            head = bytes((head[0] | dup,)) + head[1:]
        connection.out.append(head + delivery.identifier.to_bytes(2, "big") + tail)
        self._dirty.add(connection)
        return True

    @staticmethod
    def _parts(
        connection: Connection, message: Message, qos: int, retain: bool, identifiers: tuple[int, ...], now: float
    ) -> tuple[bytes, bytes]:
        if not connection.aliases_max:
            return message.parts(connection.version_5, qos, retain, identifiers, now)
        aliases = connection.aliases
        alias = aliases.get(message.topic, 0)
        if alias:
            return message.aliased_parts(qos, retain, identifiers, now, alias, True)
        if len(aliases) >= connection.aliases_max:
            return message.parts(True, qos, retain, identifiers, now)
        parts = message.aliased_parts(qos, retain, identifiers, now, len(aliases) + 1, False)
        if len(parts[0]) + len(parts[1]) + 2 > connection.packet_bytes_max:
            # Without the alias it may just fit; and a packet that is not sent gives nothing a name.
            return message.parts(True, qos, retain, identifiers, now)
        aliases[message.topic] = len(aliases) + 1
        return parts

    def _release(self, session: Session, identifier: int, known: bool) -> None:
        connection = session.connection
        if connection is None:
            return
        packet = identifier.to_bytes(2, "big")
        if not known and connection.version_5:
            packet += bytes((ReasonCode.PACKET_IDENTIFIER_NOT_FOUND,))
        connection.out.append(bytes((0x62, len(packet))) + packet)
        self._dirty.add(connection)

    def _finish(self, session: Session, identifier: int, delivery: Delivery, problem: str, now: float) -> None:
        """An exchange is over, well or not."""
        del session.inflight[identifier]
        if session.resend and delivery in session.resend:
            session.resend.remove(delivery)
        if problem:
            self._leave(session, delivery, problem, now)
            return
        size = delivery.message.size
        session.bytes_queued -= size
        session.quota.bytes_queued -= size
        session.accounts.delivered += 1
        if session.lifetime_s:
            self._journal.forget_queued(session, delivery)
        if self._observer is not None:
            self._observer.delivered(session, delivery.message, delivery.qos, now)

    def _leave(self, session: Session, delivery: Delivery, reason: str, now: float) -> None:
        """A delivery that was in the queue and will never arrive."""
        size = delivery.message.size
        session.bytes_queued -= size
        session.quota.bytes_queued -= size
        if session.lifetime_s:
            self._journal.forget_queued(session, delivery)
        self._drop(session, delivery.message, reason, now)

    def _drop(self, session: Session, message: Message, reason: str, now: float) -> None:
        if reason == "expired":
            session.accounts.expired += 1
        else:
            session.accounts.drop(reason)
        if self._observer is not None:
            self._observer.dropped(session, message, reason, now)

    def forget(self, session: Session) -> None:
        """The session will not outlive its connection any more: its queue leaves the disk, not the memory."""
        deliveries: Iterable[Delivery] = (*session.inflight.values(), *session.waiting)
        for delivery in deliveries:
            self._journal.forget_queued(session, delivery)


def _is_queue_full(session: Session, size: int) -> bool:
    queued = session.queued
    return queued >= session.limits.queue_messages_max or (
        queued > 0 and session.bytes_queued + size > session.bytes_max
    )


def _quota_room(session: Session) -> int:
    """Returns how many bytes a session may have in its queue, after what the others of its quota have."""
    quota = session.quota
    return max(SESSION_SHARE, quota.bytes_max - quota.bytes_queued + session.bytes_queued)


def _joins(session: Session, message: Message) -> bool:
    """Whether a message joins the queue of a session that is away, by its join probability.

    No random number is drawn: every replica of a broker comes to the same decision, and so does a repetition.
    """
    drawn = sha256(session.key_field + message.number.to_bytes(8, "big")).digest()
    return int.from_bytes(drawn[:6], "big") < session.limits.join_probability * (1 << 48)
