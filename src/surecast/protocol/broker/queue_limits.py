"""The limits of queues: when a queue is full, why a message finds no room, and who is told of it."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from surecast.protocol.broker.importance import Importance
from surecast.protocol.broker.message import Delivery, Message
from surecast.protocol.broker.observer import Counters
from surecast.protocol.broker.quotas import SESSION_SHARE
from surecast.protocol.broker.session import Session

__all__ = [
    "expires_at",
    "full_reason",
    "has_bytes",
    "importance_of",
    "is_full",
    "is_hopeless",
    "joins",
    "victim_for",
    "warn",
]


def has_bytes(session: Session, size: int) -> bool:
    """Returns whether so many bytes more are far from every limit."""
    quota = session.quota
    return session.bytes_queued + size <= session.bytes_max and quota.bytes_queued + size <= quota.bytes_max


def is_full(session: Session, size: int) -> bool:
    """Returns whether a message of this size has no room."""
    quota = session.quota
    return _is_queue_full(session, size) or (
        quota.bytes_queued + size > quota.bytes_max and session.bytes_queued + size > _quota_room(session)
    )


def is_hopeless(session: Session, size: int) -> bool:
    """Returns whether a message does not fit, even if nothing waits: then nothing must be dropped for it."""
    limit = min(session.bytes_max, _quota_room(session))
    if size > limit:
        return bool(session.inflight or session.waiting.entries or limit < session.bytes_max)
    if session.bytes_queued + size <= limit or not session.inflight:
        return False
    return sum(d.message.size for d in session.inflight.values()) + size > limit


def victim_for(session: Session, message: Message) -> Delivery | None:
    """Returns the message that is dropped from a full queue for another; None if that is the one to go."""
    waiting: Sequence[Delivery] = session.waiting.unpacked()
    if (importance := importance_of(session)) is not None:
        waiting = importance.equally_important(message, session.waiting)  # what is less important has gone before
    if not waiting:
        return None
    if session.limits.overflow != "expire-first":
        return waiting[0]
    if session.expiry_check_at == float("inf"):
        return None
    victim = min(waiting, key=lambda delivery: expires_at(session, delivery.message))
    return victim if expires_at(session, victim.message) < expires_at(session, message) else None


def importance_of(session: Session) -> Importance | None:
    """Returns what waits by its importance, if the target of a session says what is to be kept first."""
    state = session.target
    if state is None or not state.target.keep_first:
        return None
    if state.importance is None:
        state.importance = Importance(state.target.keep_first, session.waiting.unpacked())
    return state.importance


def full_reason(session: Session, size: int, counters: Counters) -> str:
    """Returns why a message is dropped where there is no room, and counts it if its quota is full."""
    if _is_queue_full(session, size):
        return "queue-full"
    quota = session.quota
    counters.limited[quota.limit] += 1
    quota.dropped += 1
    if quota.dropped == quota.notice_at:
        quota.notice_at *= 10
        whose = session.user if session.user else session.address
        counters.notice(
            f"the queues of all sessions of {whose} hold {quota.bytes_queued} bytes; {quota.limit} is "
            f"{quota.bytes_max}, and {quota.dropped} of their messages found no room"
        )
    return "quota-full"


def warn(session: Session, queued: int, counters: Counters) -> None:
    """Warns, once, of a queue that is nearly full."""
    if not session.warned:
        session.warned = True
        limit, rule = session.limits.queue_messages_max, session.limits.overflow
        counters.notice(
            f"the queue of {session.client} holds {queued} messages; {limit} is the limit, and then {rule} applies"
        )


def joins(session: Session, message: Message) -> bool:
    """Returns whether a message joins the queue of a session that is away, by its join probability and threshold.

    No random number is drawn: every replica of a broker comes to the same decision, and so does a repetition.
    """
    limits = session.limits
    probability = min(limits.join_probability, limits.join_threshold - session.queued)
    if probability >= 1.0:
        return True
    drawn = sha256(session.key_field + message.number.to_bytes(8, "big")).digest()
    return int.from_bytes(drawn[:6], "big") < probability * (1 << 48)


def expires_at(session: Session, message: Message) -> float:
    """Returns when a message is not to be sent to a session any more."""
    return min(message.expires_at, message.published_at + session.limits.queue_lifetime_s)


def _is_queue_full(session: Session, size: int) -> bool:
    queued = session.queued
    return queued >= session.limits.queue_messages_max or (
        queued > 0 and session.bytes_queued + size > session.bytes_max
    )


def _quota_room(session: Session) -> int:
    """Returns how many bytes a session may have in its queue, after what the others of its quota have."""
    quota = session.quota
    return max(SESSION_SHARE, quota.bytes_max - quota.bytes_queued + session.bytes_queued)
