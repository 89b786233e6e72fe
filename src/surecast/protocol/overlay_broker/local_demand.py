"""The demand of the clients of one broker, as joint filters: each combination of topic and content once, at its highest
QoS."""

from __future__ import annotations

from collections.abc import Iterable

from surecast.protocol.broker.session import Subscription
from surecast.protocol.demand import EVERY_CONTENT, JointFilter
from surecast.protocol.filters import Filter

__all__ = ["LocalDemand"]

_Wish = tuple[str, Filter]


class LocalDemand:
    """Counts subscriptions, those of sessions whose clients are away too.

    >>> demand = LocalDemand()
    >>> added, removed = demand.change([(Subscription("stock/#", 0), 1), (Subscription("stock/#", 1), 1)])
    >>> [str(joint) for joint in added], removed
    (['stock/# at QoS 1'], [])
    >>> added, removed = demand.change([(Subscription("stock/#", 1), -1)])
    >>> [str(joint) for joint in added], [str(joint) for joint in removed]
    (['stock/# at QoS 0'], ['stock/# at QoS 1'])
    """

    def __init__(self) -> None:
        self._counts: dict[_Wish, list[int]] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def change(self, subscriptions: Iterable[tuple[Subscription, int]]) -> tuple[list[JointFilter], list[JointFilter]]:
        """Takes in subscriptions that began (1) and ended (-1); returns the joint filters that come and those that
        go. What ends where it began changes nothing."""
        before: dict[_Wish, int | None] = {}
        for subscription, by in subscriptions:
            joint = JointFilter(subscription.filter, subscription.content or EVERY_CONTENT)
            wish = (joint.topic, joint.content)
            counts = self._counts.setdefault(wish, [0, 0, 0])
            before.setdefault(wish, _highest(counts))
            counts[subscription.qos] += by
        added: list[JointFilter] = []
        removed: list[JointFilter] = []
        for wish, qos in before.items():
            now_qos = _highest(self._counts[wish])
            if now_qos is None:
                del self._counts[wish]
            if qos != now_qos:
                removed += [JointFilter(*wish, qos)] if qos is not None else []
                added += [JointFilter(*wish, now_qos)] if now_qos is not None else []
        return added, removed


def _highest(counts: list[int]) -> int | None:
    """Returns the highest QoS of which there is any."""
    return 2 if counts[2] else 1 if counts[1] else 0 if counts[0] else None
