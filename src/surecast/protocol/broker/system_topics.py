"""The topics under `$SYS`: what a broker says of itself to subscribers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from surecast.protocol.broker.accounts import REASONS
from surecast.protocol.broker.message import Message, text_field

if TYPE_CHECKING:
    from surecast.protocol.broker.core import BrokerCore

__all__ = ["publish_system_topics", "system_values"]

_ROOT = "$SYS/broker"


def system_values(broker: BrokerCore, now: float) -> dict[str, str]:
    """The values by topic, without the common beginning; the names follow those that monitoring tools know."""
    accounts, counters = broker.accounts(), broker.counters
    sessions = broker.sessions.by_key.values()
    connected = sum(1 for session in sessions if session.connection is not None)
    uptime_s = 0 if broker.started_at is None else int(now - broker.started_at)
    values: dict[str, object] = {
        "uptime": f"{uptime_s} seconds",
        "clients/connected": connected,
        "clients/disconnected": len(sessions) - connected,
        "clients/total": len(sessions),
        "connections/accepted": counters.connections,
        "connections/refused": counters.refused,
        "subscriptions/count": broker.routes.count,
        "retained messages/count": len(broker.retained),
        "bytes/received": counters.bytes_in,
        "bytes/sent": counters.bytes_out,
        "publish/messages/received": counters.published,
        "publish/messages/unauthorised": counters.unauthorised,
        "protocol errors": counters.protocol_errors,
        "accounts/matched": accounts.matched,
        "accounts/delivered": accounts.delivered,
        "accounts/expired": accounts.expired,
        "accounts/queued": accounts.queued,
        "accounts/dropped": accounts.dropped_total,
    }
    values |= {f"accounts/dropped/{reason}": accounts.dropped.get(reason, 0) for reason in REASONS}
    return {name: str(value) for name, value in values.items()}


def publish_system_topics(
    broker: BrokerCore, version: str, now: float, others: Mapping[str, str] | None = None
) -> None:
    """Publishes what has changed, as retained messages that are not durable; `others` is what the core cannot know."""
    for name, value in {"version": version, **system_values(broker, now), **(others or {})}.items():
        topic = f"{_ROOT}/{name}"
        payload = value.encode()
        before = broker.retained.get(topic)
        if before is None or before.payload != payload:
            broker.incoming.take(Message(0, topic, text_field(topic), payload, retain=True, published_at=now), now)
