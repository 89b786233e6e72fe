"""Messages on their way to sessions: queues, packet identifiers, acknowledgements, overflow (MQTT 5.0, section 4)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from surecast.protocol.broker.connection import Connection
from surecast.protocol.broker.fan_out import Group, Target
from surecast.protocol.broker.message import Delivery, Message
from surecast.protocol.broker.message_batch import Made, MessageBatch
from surecast.protocol.broker.message_expiry import remove_expired
from surecast.protocol.broker.observer import Counters, Observer
from surecast.protocol.broker.queue_limits import (
    expires_at,
    full_reason,
    has_bytes,
    importance_of,
    is_full,
    is_hopeless,
    joins,
    victim_for,
    warn,
)
from surecast.protocol.broker.session import Session
from surecast.protocol.broker.state_journal import Journal
from surecast.protocol.broker.waiting_queue import WaitingRun
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
        if session.seen is not None and not session.seen.takes(message):
            session.accounts.matched -= 1
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

    def send_batch(self, group: Group, batch: PublishBatch, begin: int, sizes: list[int]) -> list[tuple[Target, int]]:
        """Sends messages of QoS 1 as they came, with packet identifiers of their own, to sessions that end soon.

        The messages are those from `begin` on, which have these sizes. Returns the sessions that had no room for all,
        with how many they got. A session ends with its connection, so that nothing need be kept but the sizes. What is
        made for one session is the same for others that have got as many messages so far.
        """
        if group.version_5 is not batch.version_5:
            return [(target, 0) for target in group.targets]
        late: list[tuple[Target, int]] = []
        made: Made = {}
        is_long = len(batch.data) > group.bytes_max
        count = len(sizes)
        size = sizes[0] if count == 1 else sum(sizes)
        last, data = 0, b""
        for target in group.targets:
            session = target.session
            connection, quota, plain = session.connection, session.quota, session.plain
            identifier, first, after = session.next_identifier + 1, plain.first, plain.after
            if (
                connection is None
                or session.tracked
                or session.waiting.entries
                or after - first + count > session.short_max
                or (after != identifier and after != first)
                or identifier + count > 65_536
                or session.bytes_queued + size > session.bytes_max
                or quota.bytes_queued + size > quota.bytes_max
                or is_long
            ):
                sent = self._send_some(session, batch, begin, sizes, made)
                if sent < count:
                    late.append((target, sent))
                continue
            plain.extend(identifier, sizes)
            session.next_identifier = identifier + count - 1
            session.bytes_queued += size
            quota.bytes_queued += size
            session.accounts.matched += count
            if not connection.is_elsewhere:
                if identifier != last:
                    last, data = identifier, _numbered(batch, identifier, begin, count, made)
                connection.out.append(data)
        self._dirty.update(group.connections)
        return late

    def _send_some(self, session: Session, batch: PublishBatch, begin: int, sizes: list[int], made: Made) -> int:
        """As `send_batch`, for one session and as many messages as its client has room for; returns their number."""
        connection, quota, plain = session.connection, session.quota, session.plain
        if connection is None or session.waiting.entries or connection.version_5 is not batch.version_5:
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
            connection.out.append(_numbered(batch, identifier, begin, count, made))
            self._dirty.add(connection)
        return count

    def send_late(self, target: Target, source: MessageBatch, sent: int, now: float) -> None:
        """Gives a client messages of QoS 1 that could not all be sent at once, after the first that were `sent`."""
        session, sizes, count = target.session, source.sizes, source.count
        connection = session.connection
        batch = source.batch if connection is None else source.of_version(connection.version_5)
        while sent < count:
            done = self._wait_together(session, source, sent)
            if not done:
                done = self._send_some(session, batch, sent, sizes[sent:] if sent else sizes, source.made)
            if not done:
                self.deliver(target, source.messages[sent], now)
                done = 1
            sent += done

    def keep_batch(self, target: Target, source: MessageBatch, now: float) -> None:
        """Gives messages of QoS 1 to a session that is to have an entry of its own for each, all at once if it can."""
        session, count = target.session, source.count
        limits, queued, size = session.limits, session.queued, sum(source.sizes)
        connection = session.connection
        if (
            queued + count > limits.queue_messages_max
            or not has_bytes(session, size)
            or (connection is None and limits.drops_when_away)
            or limits.queue_lifetime_s < math.inf
            or session.target is not None
            or (session.seen is not None and not session.seen.takes_all(source.event, count, source.published_at))
        ):
            for message in source.messages:
                self.deliver(target, message, now)
            return
        if queued + count >= limits.warn_at:
            warn(session, max(queued + 1, limits.warn_at), self._counters)
        identifiers = target.identifiers
        deliveries = [
            Delivery(message, 1, False, identifiers, sequence)
            for sequence, message in enumerate(source.messages, session.next_sequence)
        ]
        session.next_sequence += count
        session.bytes_queued += size
        session.quota.bytes_queued += size
        session.accounts.matched += count
        if session.lifetime_s:
            self._journal.keep_all(source.messages)
        started = 0
        if connection is not None and not session.waiting.entries:
            started = max(0, min(count, session.window - session.inflight_count))
            self._start_together(session, connection, deliveries[:started], source, now)
        if started < count:
            session.waiting.extend(deliveries[started:])
            if session.lifetime_s:
                self._journal.queued_all(session, deliveries[started:])
            if started and session.inflight_count < session.window:
                self.fill(session, now)  # some of those that were to be sent are too large for the client

    def _start_together(
        self, session: Session, connection: Connection, deliveries: list[Delivery], source: MessageBatch, now: float
    ) -> None:
        """Sends the first messages of a batch for the first time, as they came where that is possible."""
        count = len(deliveries)
        batch = source.of_version(connection.version_5)
        if (
            not count
            or connection.aliases_max
            or (connection.version_5 and deliveries[0].identifiers)
            or (
                len(batch.data) > connection.packet_bytes_max
                and batch.fit(connection.packet_bytes_max, 0, count) < count
            )
        ):
            self._start(session, connection, deliveries, now)
            return
        inflight = session.inflight
        identifier, free = session.free_identifiers(count)
        if free < count:
            self._start(session, connection, deliveries, now)
            return
        for number, delivery in enumerate(deliveries, identifier):
            delivery.identifier = number
            inflight[number] = delivery
        session.next_identifier = identifier + count - 1
        if session.lifetime_s:
            self._journal.queued_all(session, deliveries)
        if not connection.is_elsewhere:
            connection.out.append(_numbered(batch, identifier, 0, count, source.made))
            self._dirty.add(connection)

    def _wait_together(self, session: Session, source: MessageBatch, begin: int) -> int:
        """Lets messages that came together wait; returns how many it was, of those from `begin` on."""
        limits, queued = session.limits, session.queued
        if limits.queue_lifetime_s < math.inf or (
            not session.waiting.entries and session.inflight_count < session.window
        ):
            return 0
        count = min(source.count - begin, limits.queue_messages_max - queued)
        size = sum(source.sizes[begin : begin + count])
        if count <= 0 or not has_bytes(session, size):
            return 0
        if queued + count >= limits.warn_at:
            warn(session, max(queued + 1, limits.warn_at), self._counters)
        if 2 * count < source.count:
            # What does not wait itself must not be kept for long for what does.
            source, begin = source.part(begin, begin + count), 0
        session.waiting.append_run(WaitingRun(source, begin, begin + count, session.next_sequence))
        session.next_sequence += count
        session.bytes_queued += size
        session.quota.bytes_queued += size
        session.accounts.matched += count
        return count

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
                self.release(session, delivery.identifier, True)
            elif not self._write(session, connection, delivery, now, _DUP):
                del session.inflight[delivery.identifier]
                self.leave(session, delivery, "too-large", now)
        waiting = session.waiting
        while waiting.entries and not session.resend and (room := session.window - session.inflight_count) > 0:
            run = waiting.entries[0]
            if isinstance(run, WaitingRun) and self._send_run(session, connection, run, room):
                continue
            self._start(session, connection, self._next_waiting(session, room, now), now)
        if session.warned and session.queued < _CALM_AT * session.limits.queue_messages_max:
            session.warned = False

    def expire(self, session: Session, now: float) -> None:
        """Takes out what expired while it waited."""
        for delivery in remove_expired(session, now):
            self.leave(session, delivery, "expired", now)

    def clear(self, session: Session, now: float, hand_on: Callable[[str, Message, float], bool]) -> None:
        """The session ends: what it still had is dropped, or handed on to another member of a shared subscription.

        A QoS 2 message that has been sent goes to nobody else [MQTT-4.8.2-5]. `hand_on` returns whether there is one.
        """
        for delivery in (*session.inflight.values(), *session.waiting):
            reason, message = "session-ended", delivery.message
            if delivery.share and (delivery.qos == 1 or not delivery.identifier):
                if message.expires_at <= now:
                    reason = reason if delivery.identifier else "expired"
                elif hand_on(delivery.share, message, now):
                    reason = "handed-on"
            self.leave(session, delivery, reason, now)
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
            head, tail = connection.parts(message, 0, retain, identifiers, now)
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
        if (
            session.connection is None
            and session.limits.drops_when_away
            and not joins(session, message)
            and not self._displace(session, message, now)
        ):
            self._drop(session, message, "not-joined", now)
            return True
        queued = session.queued + 1
        if queued >= session.limits.warn_at:
            warn(session, queued, self._counters)
        if is_full(session, message.size) and not self._make_room(session, message, now):
            self._drop(session, message, full_reason(session, message.size, self._counters), now)
            return False
        delivery = Delivery(message, qos, retain, identifiers, session.next_sequence)
        delivery.share = share
        session.next_sequence += 1
        session.bytes_queued += message.size
        session.quota.bytes_queued += message.size
        connection = session.connection
        if session.target is not None and connection is not None and session.monitor is not None:
            session.monitor.busy(now)
        if session.lifetime_s:
            self._journal.keep(message)
        if connection is not None and not session.waiting.entries and session.inflight_count < session.window:
            self._start(session, connection, (delivery,), now)
            return True
        self.wait(session, delivery)
        if session.lifetime_s:
            self._journal.queued(session, delivery)
        return True

    @staticmethod
    def wait(session: Session, delivery: Delivery) -> None:
        """Puts a message at the end of those that wait."""
        session.waiting.append(delivery)
        if session.target is not None and session.target.importance is not None:
            session.target.importance.note(delivery)
        at = expires_at(session, delivery.message)
        if at < session.expiry_check_at:
            session.expiry_check_at = at

    def _make_room(self, session: Session, message: Message, now: float) -> bool:
        """Frees a place in a full queue by the overflow rule; False if the new message is the one to go."""
        self.expire(session, now)
        if is_hopeless(session, message.size):
            return False
        while is_full(session, message.size) and self._displace(session, message, now):
            pass
        if session.limits.overflow in ("drop-new", "reject"):
            return not is_full(session, message.size)
        while is_full(session, message.size):
            victim = victim_for(session, message)
            if victim is None:
                return False
            reason = full_reason(session, message.size, self._counters)
            session.waiting.remove(victim)
            self.leave(session, victim, reason, now)
        return True

    def _displace(self, session: Session, message: Message, now: float) -> bool:
        """Drops a less important message that waits, for a more important one; False if there is none."""
        importance = importance_of(session)
        if importance is None:
            return False
        self.expire(session, now)
        victim = importance.less_important(message, session.waiting)
        if victim is None:
            return False
        session.waiting.remove(victim)
        self.leave(session, victim, "displaced", now)
        return True

    def _send_run(self, session: Session, connection: Connection, run: WaitingRun, room: int) -> bool:
        """Sends waiting messages that came together, as many as there is room for; False if the first needs care."""
        source, begin = run.source, run.begin
        batch, count = source.of_version(connection.version_5), min(run.stop - begin, room)
        if len(batch.data) > connection.packet_bytes_max:
            count = batch.fit(connection.packet_bytes_max, begin, begin + count)
        identifier, count = session.free_identifiers(count)
        if not count:
            return False
        session.plain.extend(identifier, source.sizes[begin : begin + count])
        session.next_identifier = identifier + count - 1
        if not connection.is_elsewhere:
            if len(source.made) > 1:
                source.made.clear()
            connection.out.append(_numbered(batch, identifier, begin, count, source.made))
            self._dirty.add(connection)
        session.waiting.skip(run, count)
        return True

    def _next_waiting(self, session: Session, room: int, now: float) -> list[Delivery]:
        """Takes at most so many messages out of the queue that are to be sent now, up to a run that can be sent so."""
        waiting = session.waiting
        entries, taken = waiting.entries, [waiting.popleft()]
        while entries and len(taken) < room and not isinstance(entries[0], WaitingRun):
            taken.append(waiting.popleft())
        if session.expiry_check_at > now:
            return taken
        kept: list[Delivery] = []
        for delivery in taken:
            if expires_at(session, delivery.message) <= now:
                self.leave(session, delivery, "expired", now)
            else:
                kept.append(delivery)
        return kept

    def _start(self, session: Session, connection: Connection, deliveries: Sequence[Delivery], now: float) -> None:
        """Sends messages for the first time: they get their packet identifiers and are in flight."""
        inflight, identifier, write = session.inflight, session.next_identifier, self._write
        for delivery in deliveries:
            before = identifier
            identifier = identifier + 1 if identifier < 65_535 else 1
            while identifier in inflight:
                identifier = identifier + 1 if identifier < 65_535 else 1
            delivery.identifier = identifier
            inflight[identifier] = delivery
            if not write(session, connection, delivery, now, 0):
                del inflight[identifier]
                identifier = before
                self.leave(session, delivery, "too-large", now)
            elif session.lifetime_s:
                self._journal.queued(session, delivery)
        session.next_identifier = identifier

    def _write(self, session: Session, connection: Connection, delivery: Delivery, now: float, dup: int) -> bool:
        if connection.is_elsewhere and connection.packet_bytes_max >= _NO_LIMIT and not connection.aliases_max:
            return True  # it is written where the client is, and whether it is depends on nothing else
        head, tail = connection.parts(delivery.message, delivery.qos, delivery.retain, delivery.identifiers, now)
        if len(head) + 2 + len(tail) > connection.packet_bytes_max:
            return False
        if dup:
            head = bytes((head[0] | dup,)) + head[1:]
        connection.out.append(head + delivery.identifier.to_bytes(2, "big") + tail)
        self._dirty.add(connection)
        return True

    def release(self, session: Session, identifier: int, known: bool) -> None:
        """Tells the client to go on with a QoS 2 message (PUBREL)."""
        connection = session.connection
        if connection is None:
            return
        packet = identifier.to_bytes(2, "big")
        if not known and connection.version_5:
            packet += bytes((ReasonCode.PACKET_IDENTIFIER_NOT_FOUND,))
        connection.out.append(bytes((0x62, len(packet))) + packet)
        self._dirty.add(connection)

    def leave(self, session: Session, delivery: Delivery, reason: str, now: float) -> None:
        """A delivery that was in the queue and will never arrive."""
        size = delivery.message.size
        session.bytes_queued -= size
        session.quota.bytes_queued -= size
        if session.lifetime_s:
            self._journal.forget_queued(session, delivery)
        delivery.sequence = -1
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


def _numbered(batch: PublishBatch, identifier: int, begin: int, count: int, made: Made) -> bytes:
    """Returns messages with identifiers from this one on, which may have been made for another session."""
    key = (batch.version_5, identifier, begin, count)
    data = made.get(key)
    if data is None:
        data = made[key] = batch.renumbered(identifier, begin, begin + count)
    return data
