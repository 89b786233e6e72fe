"""A session on its way to another broker, in pieces: its head, and then its queue with what is in flight.

The old broker takes a piece out of its queue when the other has it on disk. The entries keep their order by their
sequence numbers, so both can say how far they have come. At the new broker what is moved goes before what came there
directly, as long as nothing of that was sent; later it goes to the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from surecast.protocol.broker.message import Delivery, Message
from surecast.protocol.broker.session import Session
from surecast.protocol.broker.state_records import (
    message_record,
    queued_record,
    read_message,
    read_queued,
    read_subscription,
    subscription_record,
)
from surecast.protocol.codec import F64, TEXT, U16, U64, Layout, many, numbers, pair, sized

if TYPE_CHECKING:
    from surecast.protocol.broker.core import BrokerCore

__all__ = ["FRONT", "SESSION_HEAD", "SESSION_PIECE", "SessionHead", "SessionPiece", "SessionTransfers"]

FRONT: Final = 1 << 32
"""Entries that came directly to a session that is on its way here are numbered from here on: those that are moved go
before them."""
_PIECE_ENTRIES_MAX: Final = 10_000


class SessionHead(NamedTuple):
    """A session without its queue. Infinite times have no end; `subscriptions` are records."""

    user: str
    client: str
    listener: str
    address: str
    lifetime_s: float
    next_identifier: int
    received: tuple[int, ...]
    subscriptions: tuple[tuple[bytes, bytes], ...]


class SessionPiece(NamedTuple):
    """Entries of a queue with numbers from `after` on and below `until`, as the records of the message and of the
    entry."""

    after: int
    until: int
    rows: tuple[tuple[bytes, bytes], ...]


SESSION_HEAD: Final = Layout(
    "session", SessionHead, user=TEXT, client=TEXT, listener=TEXT, address=TEXT, lifetime_s=F64, next_identifier=U16,
    received=numbers(U16), subscriptions=many(pair(sized(), sized())),
)  # fmt: skip
SESSION_PIECE: Final = Layout("piece of a queue", SessionPiece, after=U64, until=U64, rows=many(pair(sized(), sized())))


class SessionTransfers:
    """Takes sessions of a broker apart, and puts them together."""

    def __init__(self, core: BrokerCore):
        self._core = core

    # At the broker that a session leaves

    @staticmethod
    def head_of(session: Session) -> SessionHead:
        """Returns the head of a session as it is."""
        return SessionHead(
            session.user, session.client, session.listener, session.address, session.lifetime_s,
            session.next_identifier, tuple(sorted(session.received)),
            tuple(subscription_record(session, each) for each in session.subscriptions.values()),
        )  # fmt: skip

    @staticmethod
    def queued(session: Session, after: int, bytes_max: int) -> SessionPiece:
        """Returns a piece of what is queued from a number on; without rows where there is nothing."""
        late = [delivery for delivery in session.inflight.values() if delivery.sequence >= after]
        waiting = session.waiting.unpacked()
        skipped = 0
        if waiting and waiting[0].sequence < after:
            low, high = 0, len(waiting)
            while low < high:  # the queue is in the order of its numbers
                middle = (low + high) // 2
                low, high = (middle + 1, high) if waiting[middle].sequence < after else (low, middle)
            skipped = low
        some = islice(waiting, skipped, skipped + _PIECE_ENTRIES_MAX)
        deliveries = sorted([*late, *some], key=_sequence) if late else some
        return _piece(session, after, deliveries, bytes_max)

    def take_out(self, session: Session, before: int, now: float) -> bool:
        """Takes out the entries with lower numbers, which another broker has; returns whether any was in flight."""
        gone = [delivery for delivery in session.inflight.values() if delivery.sequence < before]
        for delivery in gone:
            del session.inflight[delivery.identifier]
        was_in_flight = bool(gone)
        waiting = session.waiting
        while waiting.entries and waiting.unpacked()[0].sequence < before:
            gone.append(waiting.popleft())
        for delivery in gone:
            if session.seen is not None:
                session.seen.gave(delivery.message)
            self._core.outgoing.leave(session, delivery, "moved", now)
        return was_in_flight

    # At the broker to which it goes

    def make(self, head: SessionHead, now: float) -> Session:
        """Makes a session whose client is not there yet, with its subscriptions."""
        core = self._core
        session = Session(head.client, 0, head.lifetime_s, head.user)
        session.listener, session.address = head.listener, head.address
        session.next_identifier = head.next_identifier
        session.next_sequence = FRONT
        session.ends_at = now + head.lifetime_s
        core.sessions.adopt(session)
        core.journal.session(session)
        if session.ends_at != math.inf:
            core.timers.add(session.ends_at, "session", session.key)
        for identifier in head.received:
            session.received.add(identifier)
            core.journal.received(session, identifier)
        self.subscribe(session, head)
        return session

    def subscribe(self, session: Session, head: SessionHead) -> None:
        """Gives a session the subscriptions of a head."""
        for key, value in head.subscriptions:
            _, subscription = read_subscription(key, value, {})
            self._core.routes.add(session, subscription)
            self._core.journal.subscription(session, subscription)

    def put_in(
        self, session: Session, piece: SessionPiece, ahead_s: float, now: float, *, keeps_flight: bool, is_behind: bool
    ) -> int:
        """Puts entries into a queue: before what came directly, or at the end where it `is_behind`, the client is
        there, or it has begun anew (not `keeps_flight`). Returns how many the session had already.

        A message that the client has (PUBREC) goes no further where it has begun anew.
        """
        core = self._core
        deliveries = [self._read(stored, queued, ahead_s) for stored, queued in piece.rows]
        is_front = (
            keeps_flight and not is_behind and session.connection is None and session.next_sequence >= FRONT
        )  # fmt: skip
        behind: list[Delivery] = []
        waiting = session.waiting
        number = session.next_sequence
        if is_front:
            entries = waiting.unpacked()
            while entries and entries[-1].sequence >= FRONT:
                behind.append(entries[-1])
                waiting.remove_last()
            before = [*session.inflight.values(), *islice(reversed(entries), 1)]
            number = max((each.sequence for each in before if each.sequence < FRONT), default=-1) + 1
        repeated = 0
        for delivery in deliveries:
            message, identifier = delivery.message, delivery.identifier
            if delivery.released and not keeps_flight:
                continue
            is_new = session.seen is None or session.seen.takes_moved(message)
            if not is_new and not (delivery.released and identifier not in session.inflight):
                repeated += 1
                continue
            if not keeps_flight or identifier in session.inflight or session.connection is not None:
                delivery.identifier, delivery.released = 0, False
            delivery.sequence = number
            number += 1
            self._add(session, delivery)
        if is_front:
            for each in reversed(behind):
                waiting.append(each)
        else:
            session.next_sequence = number
        if session.connection is not None:
            core.outgoing.fill(session, now)
        return repeated

    def take_out_done(self, session: Session, is_done: Callable[[Message], bool], now: float) -> None:
        """Takes out what the client has had at another broker, where it is not there."""
        flight = [each for each in session.inflight.values() if not each.released] if session.connection is None else []
        gone = [each for each in flight if is_done(each.message)]
        for delivery in gone:
            del session.inflight[delivery.identifier]
        waiting = [each for each in session.waiting.unpacked() if is_done(each.message)]
        for delivery in waiting:
            session.waiting.remove(delivery)
        for delivery in (*gone, *waiting):
            self._core.outgoing.leave(session, delivery, "moved", now)

    def _read(self, stored: bytes, queued: bytes, ahead_s: float) -> Delivery:
        incoming = self._core.incoming
        message = read_message(b"", stored)
        message.number = incoming.next_number
        incoming.next_number += 1
        message.published_at -= ahead_s
        message.expires_at -= ahead_s
        message.interval_end -= ahead_s
        return read_queued(0, queued, _Any(message))

    def _add(self, session: Session, delivery: Delivery) -> None:
        core, size = self._core, delivery.message.size
        session.accounts.matched += 1
        session.bytes_queued += size
        session.quota.bytes_queued += size
        if delivery.identifier:
            session.inflight[delivery.identifier] = delivery
        else:
            core.outgoing.wait(session, delivery)
        if session.lifetime_s:
            core.journal.keep(delivery.message)
            core.journal.queued(session, delivery)

    def renew(self, session: Session, now: float) -> None:
        """Has a session begin anew for its client: it keeps what is queued, and nothing else. What the client has said
        that it has (PUBREC) goes no further; identifiers are free."""
        core = self._core
        for key in list(session.subscriptions):
            subscription = core.routes.remove(session, key)
            if subscription is not None:
                core.journal.forget_subscription(session, subscription)
        for identifier in sorted(session.received):
            core.journal.forget_received(session, identifier)
        session.received.clear()
        queued = sorted([*session.inflight.values(), *session.waiting], key=_sequence)
        session.inflight.clear()
        session.waiting.clear()
        session.resend.clear()
        for delivery in queued:
            if delivery.released:
                core.outgoing.leave(session, delivery, "moved", now)
                continue
            core.outgoing.wait(session, delivery)
            if delivery.identifier:
                delivery.identifier = 0
                core.journal.queued(session, delivery)
        session.renewed = True


class _Any(dict[int, Message]):
    """Has one message under every number."""

    def __init__(self, message: Message):
        super().__init__()
        self._message = message

    def __missing__(self, number: int) -> Message:
        return self._message


def _piece(session: Session, after: int, deliveries: Iterable[Delivery], bytes_max: int) -> SessionPiece:
    rows: list[tuple[bytes, bytes]] = []
    size, until = 0, after
    for delivery in deliveries:
        if rows and size + delivery.message.size > bytes_max:
            break
        stored, queued = message_record(delivery.message)[1], queued_record(session, delivery)[1]
        rows.append((stored, queued))
        size += len(stored)
        until = delivery.sequence + 1
    return SessionPiece(after, until, tuple(rows))


def _sequence(delivery: Delivery) -> int:
    return delivery.sequence
