"""Access rules and limits that hold at all replicas. Both came through the log, and are part of the state."""

from __future__ import annotations

from collections.abc import Callable

from surecast.protocol.broker import BrokerCore, BrokerSettings, LimitTable, everyone
from surecast.protocol.broker.incoming import Authorise

__all__ = ["MakeLimits", "MakeRules", "Rules"]

MakeRules = Callable[[bytes], tuple[Authorise, bool]]
"""Makes access rules of what was written: who may do what, and whether every delivery is checked."""
MakeLimits = Callable[[bytes], tuple[BrokerSettings, LimitTable]]


class Rules:
    """The access rules and the limits in force, as they were written (`access`, `limits`)."""

    def __init__(self, make_rules: MakeRules | None, make_limits: MakeLimits | None):
        self._make_rules = make_rules
        self._make_limits = make_limits
        self.access = b""
        self.limits = b""
        self.authorise: Authorise = everyone
        self.checks_deliveries = False

    def anew(self) -> Rules:
        """The same, with nothing in force."""
        return Rules(self._make_rules, self._make_limits)

    def use(self, access: bytes) -> None:
        """Puts access rules in force."""
        self.access = access
        self.authorise, self.checks_deliveries = everyone, False
        if access and self._make_rules is not None:
            self.authorise, self.checks_deliveries = self._make_rules(access)

    def use_limits(self, limits: bytes, broker: BrokerCore, now: float) -> None:
        """Puts limits in force."""
        self.limits = limits
        if limits and self._make_limits is not None:
            broker.configure(*self._make_limits(limits), now)

    def revoke(self, broker: BrokerCore, now: float) -> None:
        """Ends what the access rules do not allow any more."""
        broker.permissions_changed(self.checks_deliveries)
        for session in list(broker.sessions.by_key.values()):
            for key, subscription in list(session.subscriptions.items()):
                if not self.authorise(session.user, session.client, "subscribe", subscription.filter):
                    broker.remove_subscription(session, key, now)
