"""The applications that may run inside a replicated broker, by what the group's file asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from surecast.broker.group_config import BrokerGroupSpec
    from surecast.protocol.group import Application

__all__ = ["applications_of"]


def applications_of(group: BrokerGroupSpec) -> list[Application]:
    """Returns the applications of a group, and imports only those."""
    if group.zap is None:
        return []
    from surecast.zap.viewers_application import ZapViewers

    return [ZapViewers((group.zap.top,), group.zap.every)]
