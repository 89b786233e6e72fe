"""A summary of demand that leaves out what no publisher behind the link can meet: subscriptions travel to advertisers.

A publisher advertises joint filters that match all it will publish; these are known on the whole tree. A filter is
announced over a link only if it and something advertised behind that link can match the same event. Content and topics
count, the QoS does not.
"""

from __future__ import annotations

from collections.abc import Iterable

from surecast.protocol.demand.joint_filter import JointFilter
from surecast.protocol.demand.summaries import DemandChange, DemandSummary
from surecast.protocol.mqtt.topics import has_wildcard, intersects

__all__ = ["AdvertisedSummary"]


class AdvertisedSummary:
    """Passes the filters behind a link on to a summary, as far as they meet what is advertised at its other end.

    >>> from surecast.protocol.demand.summaries import SUMMARIES
    >>> summary = AdvertisedSummary(SUMMARIES["covering"]())
    >>> summary.change(added=[JointFilter("stock/#"), JointFilter("news")]) is None
    True
    >>> [str(joint) for joint in summary.advertise(added=[JointFilter("stock/acme")]).added]
    ['stock/# at QoS 0']
    >>> [str(joint) for joint in summary.advertise(removed=[JointFilter("stock/acme")]).removed]
    ['stock/# at QoS 0']
    """

    def __init__(self, summary: DemandSummary):
        self._summary = summary
        self._behind: dict[JointFilter, int] = {}
        self._wanted: dict[JointFilter, None] = {}
        """The filters behind the link that meet something advertised."""
        self._adverts: dict[JointFilter, int] = {}
        self._by_topic: dict[str, dict[JointFilter, None]] = {}
        self._wild: dict[JointFilter, None] = {}

    def change(self, removed: Iterable[JointFilter] = (), added: Iterable[JointFilter] = ()) -> DemandChange | None:
        """Takes in a change behind the link; returns the one that passes it on, None where none is needed."""
        gone: list[JointFilter] = []
        new: list[JointFilter] = []
        for joint in added:
            self._behind[joint] = self._behind.get(joint, 0) + 1
            if joint in self._wanted or self._is_met(joint):
                self._wanted[joint] = None
                new.append(joint)
        for joint in removed:
            self._behind[joint] -= 1
            if joint in self._wanted:
                gone.append(joint)
            if not self._behind[joint]:
                del self._behind[joint]
                self._wanted.pop(joint, None)
        return self._summary.change(gone, new)

    def advertise(self, removed: Iterable[JointFilter] = (), added: Iterable[JointFilter] = ()) -> DemandChange | None:
        """Takes in what is advertised behind the link, and no longer; returns how what is announced has to change."""
        come: list[JointFilter] = []
        is_less = False
        for advert in added:
            number = self._adverts.get(advert, 0)
            self._adverts[advert] = number + 1
            if not number:
                self._file(advert)
                come.append(advert)
        for advert in removed:
            self._adverts[advert] -= 1
            if not self._adverts[advert]:
                del self._adverts[advert]
                self._unfile(advert)
                is_less = True
        new = [joint for joint in self._behind if joint not in self._wanted and any(_meet(joint, a) for a in come)]
        self._wanted |= dict.fromkeys(new)
        gone = [joint for joint in self._wanted if not self._is_met(joint)] if is_less else []
        for joint in gone:
            del self._wanted[joint]
        return self._summary.change(
            [joint for joint in gone for _ in range(self._behind[joint])],
            [joint for joint in new for _ in range(self._behind[joint])],
        )

    def _file(self, advert: JointFilter) -> None:
        if has_wildcard(advert.topic):
            self._wild[advert] = None
        else:
            self._by_topic.setdefault(advert.topic, {})[advert] = None

    def _unfile(self, advert: JointFilter) -> None:
        if has_wildcard(advert.topic):
            del self._wild[advert]
            return
        same = self._by_topic[advert.topic]
        del same[advert]
        if not same:
            del self._by_topic[advert.topic]

    def _is_met(self, joint: JointFilter) -> bool:
        if has_wildcard(joint.topic):
            return any(_meet(joint, advert) for advert in self._adverts)
        same = self._by_topic.get(joint.topic, ())
        return any(_meet(joint, advert) for advert in same) or any(_meet(joint, advert) for advert in self._wild)


def _meet(a: JointFilter, b: JointFilter) -> bool:
    """Returns whether some event is matched by both."""
    return intersects(a.topic, b.topic) and a.content.intersects(b.content)
