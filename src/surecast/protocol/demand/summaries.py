"""Summaries of demand: what a broker announces to one neighbour of the filters behind it, by routing algorithm.

A summary takes in how the filters behind a link change (those of the broker's own clients, and those that all other
neighbours on the tree announced) and returns how what was announced over the link has to change. What is announced
depends on these filters alone, not on the order in which they came; with exact merging only the events for which it
stands do. The algorithms are those of the *capacity* paper, sections 2 and 3.1.1, with topic filters as classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from surecast.errors import ConfigurationError
from surecast.protocol.demand.cover_index import CoverIndex
from surecast.protocol.demand.joint_filter import JointFilter, joint_hull, joint_merge

__all__ = ["SUMMARIES", "DemandChange", "DemandSummary", "register_summary", "unregister_summary"]

_Key = TypeVar("_Key")


@dataclass(slots=True)
class DemandChange:
    """The demand behind a link changes: these filters go, those come. Nobody changes one that was made.

    Each subscription and each revocation costs at most one change per link: a revocation carries along all that it
    uncovers, a subscription all that it makes superfluous (*capacity* Eq. 18). A filter may be named repeatedly where
    each subscription has an entry of its own (simple routing).
    """

    removed: tuple[JointFilter, ...] = ()
    added: tuple[JointFilter, ...] = ()


class DemandSummary(ABC):
    """Keeps what is announced over a link equal to what its algorithm makes of the filters behind the link.

    >>> from surecast.protocol.filters import parse
    >>> summary = SUMMARIES["covering"]()
    >>> change = summary.change(added=[JointFilter("s/#", parse("p > 1")), JointFilter("s/a", parse("p > 2"))])
    >>> [str(filter) for filter in change.added]
    ['s/# where p > 1 at QoS 0']
    >>> change = summary.change(removed=[JointFilter("s/#", parse("p > 1"))])
    >>> [str(filter) for filter in change.removed], [str(filter) for filter in change.added]
    (['s/# where p > 1 at QoS 0'], ['s/a where p > 2 at QoS 0'])
    """

    def __init__(self) -> None:
        self._announced: dict[JointFilter, int] = {}
        self._net: dict[JointFilter, int] = {}

    @property
    def announced(self) -> list[JointFilter]:
        """The joint filters announced to the neighbour and not withdrawn, sorted, each once for every entry."""
        return _repeated(self._announced)

    def change(self, removed: Iterable[JointFilter] = (), added: Iterable[JointFilter] = ()) -> DemandChange | None:
        """Takes in a change behind the link; returns the one that passes it on, None where none is needed."""
        self._net.clear()
        for joint in added:
            self._add(joint)
        for joint in removed:
            self._remove(joint)
        if not self._net:
            return None
        gone = {joint: -number for joint, number in self._net.items() if number < 0}
        new = {joint: number for joint, number in self._net.items() if number > 0}
        return DemandChange(tuple(_repeated(gone)), tuple(_repeated(new))) if gone or new else None

    @abstractmethod
    def _add(self, joint: JointFilter) -> None:
        """Takes in one filter more."""

    @abstractmethod
    def _remove(self, joint: JointFilter) -> None:
        """Takes in that one filter is gone."""

    def _announce(self, joint: JointFilter) -> None:
        _count(self._announced, joint)
        self._net[joint] = self._net.get(joint, 0) + 1

    def _revoke(self, joint: JointFilter) -> None:
        _discount(self._announced, joint)
        self._net[joint] = self._net.get(joint, 0) - 1


class _Simple(DemandSummary):
    """Announces every filter, as often as it is behind the link."""

    def _add(self, joint: JointFilter) -> None:
        self._announce(joint)

    def _remove(self, joint: JointFilter) -> None:
        self._revoke(joint)


class _IdentityExact(DemandSummary):
    """Announces every filter once."""

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[JointFilter, int] = {}

    def _add(self, joint: JointFilter) -> None:
        if _count(self._counts, joint):
            self._announce(joint)

    def _remove(self, joint: JointFilter) -> None:
        if _discount(self._counts, joint):
            self._revoke(joint)


class _Identity(DemandSummary):
    """Announces every topic filter once, without content, at the highest QoS behind the link."""

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[str, list[int]] = {}

    def _add(self, joint: JointFilter) -> None:
        self._shift(joint, 1)

    def _remove(self, joint: JointFilter) -> None:
        self._shift(joint, -1)

    def _shift(self, joint: JointFilter, by: int) -> None:
        by_qos = self._counts.setdefault(joint.topic, [0, 0, 0])
        before = _highest(by_qos)
        by_qos[joint.qos] += by
        after = _highest(by_qos)
        if after == before:
            return
        if before is not None:
            self._revoke(JointFilter(joint.topic, qos=before))
        if after is not None:
            self._announce(JointFilter(joint.topic, qos=after))
        else:
            del self._counts[joint.topic]


class _Distinct(DemandSummary):
    """Counts equal filters behind the link; `_came` and `_went` say when one is there first, and no more."""

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[JointFilter, int] = {}

    def _add(self, joint: JointFilter) -> None:
        if _count(self._counts, joint):
            self._came(joint)

    def _remove(self, joint: JointFilter) -> None:
        if _discount(self._counts, joint):
            self._went(joint)

    @abstractmethod
    def _came(self, joint: JointFilter) -> None:
        """Takes in a filter that was not there."""

    @abstractmethod
    def _went(self, joint: JointFilter) -> None:
        """Takes in that a filter is there no more."""


class _Covering(_Distinct):
    """Announces the maximal filters: those that no other filter behind the link covers."""

    def __init__(self) -> None:
        super().__init__()
        self._all = CoverIndex()
        self._maximal = CoverIndex()

    def _came(self, joint: JointFilter) -> None:
        self._all.add(joint)
        self._cover(joint)

    def _cover(self, joint: JointFilter) -> None:
        if self._maximal.is_covered(joint):
            return
        for covered in self._maximal.covered_by(joint):
            self._maximal.remove(covered)
            self._revoke(covered)
        self._maximal.add(joint)
        self._announce(joint)

    def _went(self, joint: JointFilter) -> None:
        self._all.remove(joint)
        if joint not in self._maximal:
            return
        self._maximal.remove(joint)
        self._revoke(joint)
        for uncovered in self._all.covered_by(joint):
            self._cover(uncovered)


class _Merging(_Distinct):
    """Announces one filter for each topic filter: the hull of all filters on it.

    The witnesses of a hull are the filters that made it grow. As long as they are all there, it stands.
    """

    def __init__(self) -> None:
        super().__init__()
        self._topics: dict[str, dict[JointFilter, None]] = {}
        self._hulls: dict[str, JointFilter] = {}
        self._witnesses: dict[str, dict[JointFilter, None]] = {}

    def _came(self, joint: JointFilter) -> None:
        self._topics.setdefault(joint.topic, {})[joint] = None
        self._grow(joint)

    def _grow(self, joint: JointFilter) -> None:
        before = self._hulls.get(joint.topic)
        if before is not None:
            if before.covers(joint):
                return
            self._revoke(before)
        self._witnesses.setdefault(joint.topic, {})[joint] = None
        hull = self._hulls[joint.topic] = joint if before is None else joint_hull(before, joint)
        self._announce(hull)

    def _went(self, joint: JointFilter) -> None:
        topic = joint.topic
        others = self._topics[topic]
        del others[joint]
        if joint in self._witnesses[topic]:
            del self._witnesses[topic]
            self._revoke(self._hulls.pop(topic))
            for other in others:
                self._grow(other)
        if not others:
            del self._topics[topic]


class _MergingExact(_Distinct):
    """Announces filters that together match exactly the same events: merged in pairs wherever that is exact.

    Which pairs are merged depends on the order in which the filters came, and the result need not be the smallest
    possible, which would be a hard problem. The witnesses of a merged filter are those that went into it: when one of
    them goes, what it was merged into is revoked, and the filters that this covered are merged anew, in their order.
    """

    def __init__(self) -> None:
        super().__init__()
        self._all = CoverIndex()
        self._merged = CoverIndex()
        self._of_topic: dict[str, dict[JointFilter, None]] = {}

    def _came(self, joint: JointFilter) -> None:
        self._all.add(joint)
        self._merge(joint)

    def _merge(self, joint: JointFilter) -> None:
        if self._merged.is_covered(joint):
            return
        merged: JointFilter | None = joint
        while merged is not None:
            joint = merged
            merged = None
            for other in self._of_topic.get(joint.topic, ()):
                if (merged := joint_merge(other, joint)) is not None:
                    self._drop(other)
                    break
        for covered in self._merged.covered_by(joint):
            self._drop(covered)
        self._merged.add(joint)
        self._of_topic.setdefault(joint.topic, {})[joint] = None
        self._announce(joint)

    def _went(self, joint: JointFilter) -> None:
        self._all.remove(joint)
        holders = self._merged.covering(joint)
        for holder in holders:
            self._drop(holder)
        for holder in holders:
            for other in sorted(self._all.covered_by(holder), key=lambda one: one.order):
                self._merge(other)

    def _drop(self, joint: JointFilter) -> None:
        self._merged.remove(joint)
        others = self._of_topic[joint.topic]
        del others[joint]
        if not others:
            del self._of_topic[joint.topic]
        self._revoke(joint)


def _highest(by_qos: list[int]) -> int | None:
    """The highest QoS of which there is any."""
    return next((qos for qos in (2, 1, 0) if by_qos[qos]), None)


def _repeated(counts: dict[JointFilter, int]) -> list[JointFilter]:
    """Each filter as often as it counts, sorted."""
    ordered = sorted(counts, key=lambda one: one.order) if len(counts) > 1 else counts
    return [joint for joint in ordered for _ in range(counts[joint])]


def _count(counts: dict[_Key, int], key: _Key) -> bool:
    """Counts one more; returns whether it is the first."""
    number = counts.get(key, 0) + 1
    counts[key] = number
    return number == 1


def _discount(counts: dict[_Key, int], key: _Key) -> bool:
    """Counts one less; returns whether it was the last."""
    number = counts[key] - 1
    if number:
        counts[key] = number
        return False
    del counts[key]
    return True


SUMMARIES: Final[dict[str, type[DemandSummary]]] = {
    "simple": _Simple,
    "identity": _Identity,
    "identity-exact": _IdentityExact,
    "covering": _Covering,
    "merging": _Merging,
    "merging-exact": _MergingExact,
}
"""The summary of each routing algorithm; flooding has none."""

_OWN: Final = frozenset({"flooding", *SUMMARIES})


def register_summary(algorithm: str, summary: type[DemandSummary]) -> None:
    """Adds a routing algorithm: what it announces to a neighbour of the filters behind a link.

    The summary must announce filters that together match at least the events that the filters behind it match.

    >>> class Everything(DemandSummary):
    ...     def _add(self, filter: JointFilter) -> None:
    ...         if not self.announced:
    ...             self._announce(JointFilter("#", qos=2))
    ...     def _remove(self, filter: JointFilter) -> None:
    ...         pass
    >>> register_summary("everything", Everything)
    >>> "everything" in SUMMARIES
    True
    >>> unregister_summary("everything")
    """
    if algorithm in _OWN or " " in algorithm or not algorithm:
        raise ConfigurationError(f"a routing algorithm of one's own cannot be called {algorithm!r}; take another word")
    SUMMARIES[algorithm] = summary


def unregister_summary(algorithm: str) -> None:
    """Takes a registered algorithm away again; for tests and for extensions that are unloaded."""
    if algorithm not in _OWN:
        SUMMARIES.pop(algorithm, None)
