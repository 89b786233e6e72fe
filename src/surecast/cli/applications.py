"""The applications that may run inside a replicated broker, by what the group's file asks for."""

from __future__ import annotations

from surecast.broker.group_config import BrokerGroupSpec
from surecast.protocol.group import Application
from surecast.zap.application import ZapViewers

__all__ = ["applications_of"]


def applications_of(group: BrokerGroupSpec) -> list[Application]:
    """The applications of a group."""
    return [] if group.zap is None else [ZapViewers((group.zap.top,), group.zap.every)]
