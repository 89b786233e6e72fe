"""The effects of the log on a broker up to an instance, in a few bytes that are equal on all replicas.

At every checkpoint the counts of the whole broker go in, and the check sum of what content filters decided. Every so
often the accounts of some sessions follow, those of all in turn. All of it is cheap: nothing is done for a message.
"""

from __future__ import annotations

import struct
from itertools import islice
from typing import Final

from surecast.protocol.broker import BrokerCore, Session

__all__ = ["effects_of"]

_TOTALS: Final = struct.Struct(">16Q")
_SESSION: Final = struct.Struct(">12q")
_AUDIT_EVERY: Final = 256
_AUDITED_MAX: Final = 256


def effects_of(broker: BrokerCore, slot: int) -> bytes:
    """Returns what to hash at a checkpoint."""
    sessions, counters, past = broker.sessions, broker.counters, broker.sessions.past
    totals = _TOTALS.pack(
        broker.routes.contents.decisions,
        broker.incoming.next_number,
        broker.next_connection,
        sessions.serial,
        len(sessions.by_key),
        len(broker.retained),
        broker.routes.count,
        len(broker.requests),
        counters.published,
        counters.bytes_in,
        counters.unauthorised,
        counters.protocol_errors,
        past.matched,
        past.delivered,
        past.expired,
        past.dropped_total,
    )
    return totals if slot % _AUDIT_EVERY else totals + _audit(broker, slot)


def _audit(broker: BrokerCore, slot: int) -> bytes:
    """The accounts and queues of the sessions whose turn it is."""
    sessions = broker.sessions.by_key
    parts = -(-len(sessions) // _AUDITED_MAX) or 1
    first = slot // _AUDIT_EVERY % parts * _AUDITED_MAX
    return b"".join(map(_accounts, islice(sessions.values(), first, first + _AUDITED_MAX)))


def _accounts(session: Session) -> bytes:
    accounts = session.accounts
    counted = sum(group.count for group in session.groups)  # by groups, and not yet in the accounts
    return _SESSION.pack(
        session.serial,
        accounts.matched + counted,
        accounts.delivered + counted,
        accounts.expired,
        accounts.dropped_total,
        session.next_identifier,
        session.next_sequence,
        session.inflight_count,
        len(session.waiting),
        session.bytes_queued,
        len(session.subscriptions),
        len(session.received),
    )
