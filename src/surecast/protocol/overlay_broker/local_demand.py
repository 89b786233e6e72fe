"""The demand of the clients of one broker, as joint filters: each combination of topic and content once, at its highest
QoS; and the members of shared subscriptions, each combination of topic, content and QoS once, with their number."""

from __future__ import annotations

from collections.abc import Iterable

from surecast.protocol.broker.session import Session, Subscription
from surecast.protocol.demand import EVERY_CONTENT, JointFilter, Members
from surecast.protocol.filters import Filter

__all__ = ["LocalDemand", "LocalMembers"]

_Wish = tuple[str, Filter]
_Place = tuple[str, str, Filter, int]
"""The name of a shared subscription, and the topic, content and QoS of its members."""


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


class LocalMembers:
    """Counts the members that shared subscriptions have at one broker.

    >>> members, session = LocalMembers("b1"), Session("s", 1)
    >>> session.subscriptions["$share/w/jobs"] = Subscription("jobs", 1, share="w")
    >>> added, removed = members.change([session])
    >>> [str(joint) for joint in added], removed
    (['jobs at QoS 1, shared in w by 0 connected and 1 away at b1'], [])
    """

    def __init__(self, broker: str) -> None:
        self._broker = broker
        self._of: dict[Session, tuple[dict[_Place, None], bool]] = {}
        self._counts: dict[_Place, list[int]] = {}

    def change(self, sessions: Iterable[Session]) -> tuple[list[JointFilter], list[JointFilter]]:
        """Looks at sessions whose subscriptions or connections have changed; returns the joint filters that come and
        those that go."""
        before: dict[_Place, tuple[int, int]] = {}

        def shift(places: Iterable[_Place], is_away: bool, by: int) -> None:
            for place in places:
                counts = self._counts.setdefault(place, [0, 0])
                before.setdefault(place, (counts[0], counts[1]))
                counts[is_away] += by

        for session in sessions:
            places, is_away = self._of.pop(session, ({}, False))
            shift(places, is_away, -1)
            places = {
                (each.share, each.filter, each.content or EVERY_CONTENT, each.qos): None
                for each in session.subscriptions.values()
                if each.share and not each.filter.startswith("$")
            }
            is_away = session.connection is None
            shift(places, is_away, 1)
            if places:
                self._of[session] = (places, is_away)
        changed = [place for place, counts in before.items() if counts != (*self._counts[place],)]
        removed = [self._joint(place, *before[place]) for place in changed if any(before[place])]
        added = [self._joint(place, *self._counts[place]) for place in changed if any(self._counts[place])]
        for place in before:
            if not any(self._counts[place]):
                del self._counts[place]
        return added, removed

    def _joint(self, place: _Place, ready: int, away: int) -> JointFilter:
        share, topic, content, qos = place
        return JointFilter(topic, content, qos, Members(share, self._broker, ready, away))


def _highest(counts: list[int]) -> int | None:
    """Returns the highest QoS of which there is any."""
    return 2 if counts[2] else 1 if counts[1] else 0 if counts[0] else None
