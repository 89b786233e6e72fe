"""The effects of the log on a broker up to an instance, in a few bytes that are equal on all replicas.

At every checkpoint the counts of the whole broker go in, and the check sum of what content filters decided. Every so
often the books of some sessions follow, those of all in turn. All of it is cheap: nothing is done for a message.
"""

from __future__ import annotations

import struct
from itertools import islice
from typing import Final

from surecast.protocol.broker import Broker, Session

__all__ = ["effects_of"]

_TOTALS: Final = struct.Struct(">16Q")
_SESSION: Final = struct.Struct(">12q")
_AUDIT_EVERY: Final = 256
_AUDITED_MAX: Final = 256


def effects_of(broker: Broker, slot: int) -> bytes:
    """Returns what to hash at a checkpoint."""
    sessions, tally, past = broker.sessions, broker.tally, broker.sessions.past
    totals = _TOTALS.pack(
        broker.routes.contents.decisions,
        broker.incoming.next_number,
        broker.next_connection,
        sessions.serial,
        len(sessions.by_key),
        len(broker.retained),
        broker.routes.count,
        len(broker.requests),
        tally.published,
        tally.bytes_in,
        tally.unauthorised,
        tally.protocol_errors,
        past.matched,
        past.delivered,
        past.expired,
        past.dropped_total,
    )
    return totals if slot % _AUDIT_EVERY else totals + _audit(broker, slot)


def _audit(broker: Broker, slot: int) -> bytes:
    """The books and queues of the sessions whose turn it is."""
    sessions = broker.sessions.by_key
    parts = -(-len(sessions) // _AUDITED_MAX) or 1
    first = slot // _AUDIT_EVERY % parts * _AUDITED_MAX
    return b"".join(map(_books, islice(sessions.values(), first, first + _AUDITED_MAX)))


def _books(session: Session) -> bytes:
    books = session.books
    counted = sum(group.count for group in session.groups)  # by groups, and not yet in the books
    return _SESSION.pack(
        session.serial,
        books.matched + counted,
        books.delivered + counted,
        books.expired,
        books.dropped_total,
        session.next_identifier,
        session.next_sequence,
        len(session.inflight),
        len(session.waiting),
        session.bytes_queued,
        len(session.subscriptions),
        len(session.received),
    )
