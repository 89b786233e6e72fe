"""The shared subscriptions that a broker knows of: which brokers have members, how many, and which events they want."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from surecast.protocol.demand.demand_table import DemandTable
from surecast.protocol.demand.joint_filter import JointFilter
from surecast.protocol.filters import Event, Value
from surecast.protocol.mqtt.topic_tree import TopicTree

__all__ = ["MemberTable", "SharedDemand"]

_TOPICS_KEPT: Final = 10_000
_KEPT_TOPIC_MAX: Final = 256


class SharedDemand:
    """One shared subscription: its name, its topic filter, and the members at each broker.

    Of two counts for one broker and filter the later one holds: around a failure a newer one can come by another way.
    """

    def __init__(self, share: str, topic: str):
        self.share, self.topic = share, topic
        self.entries: dict[JointFilter, int] = {}
        """Returns what was announced, and by how many neighbours."""
        self._latest: list[JointFilter] | None = None
        self.has_contents = False

    @property
    def key(self) -> str:
        """The filter as clients write it."""
        return f"$share/{self.share}/{self.topic}"

    @property
    def homes(self) -> list[str]:
        """The brokers with members, sorted."""
        return sorted({joint.members.home for joint in self.entries if joint.members is not None})

    def change(self, joint: JointFilter, by: int) -> None:
        """A neighbour has announced members at a broker, or revoked them."""
        number = self.entries.get(joint, 0) + by
        if number:
            self.entries[joint] = number
        else:
            del self.entries[joint]
        self._latest = None

    def put_in_order(self, entries: Iterable[tuple[JointFilter, int]]) -> None:
        """Has the same entries in this order."""
        self.entries = dict(entries)
        self._latest = None

    def weights(self, values: Mapping[str, Value]) -> dict[str, tuple[int, int, int]]:
        """Returns the brokers with members that want an event with these attributes, sorted, each with how many are
        connected, how many are away, and their highest QoS."""
        if self._latest is None:
            of = {
                (joint.members.home, joint.content_text, joint.qos): joint
                for joint in self.entries
                if joint.members is not None
            }
            self._latest = [of[key] for key in sorted(of)]
            self.has_contents = any(joint.content.constraints for joint in self._latest)
        weights: dict[str, tuple[int, int, int]] = {}
        for joint in self._latest:
            assert joint.members is not None
            _, home, ready, away = joint.members
            if not joint.content.constraints or joint.content.matches(Event("", values)):
                before = weights.get(home, (0, 0, 0))
                weights[home] = (before[0] + ready, before[1] + away, max(before[2], joint.qos))
        return weights


class MemberTable(DemandTable):
    """As `DemandTable`, for the members of shared subscriptions.

    >>> from surecast.protocol.demand.joint_filter import Members
    >>> from surecast.protocol.demand.summaries import DemandChange
    >>> table = MemberTable(["b2"])
    >>> workers = JointFilter("jobs/#", qos=1, members=Members("workers", "b3", 2, 1))
    >>> table.apply("b2", DemandChange(added=(workers,)))
    >>> [(shared.key, shared.weights({})) for shared in table.shared("jobs/7")]
    [('$share/workers/jobs/#', {'b3': (2, 1, 1)})]
    """

    def __init__(self, neighbours: Iterable[str]):
        super().__init__(neighbours)
        self._groups: dict[tuple[str, str], SharedDemand] = {}
        self._by_topic_filter: TopicTree[str, SharedDemand] = TopicTree(cached_topics=0)
        self._kept: dict[str, list[SharedDemand]] = {}

    def shared(self, topic: str) -> list[SharedDemand]:
        """Returns the shared subscriptions that want messages to a topic, sorted."""
        if not self._groups:
            return []
        matching = self._kept.get(topic)
        if matching is None:
            matching = sorted(self._by_topic_filter.match(topic), key=lambda each: (each.share, each.topic))
            if len(topic) <= _KEPT_TOPIC_MAX:
                if len(self._kept) >= _TOPICS_KEPT:
                    self._kept.clear()
                self._kept[topic] = matching
        return matching

    def members(self) -> list[JointFilter]:
        """Returns the members that are known."""
        return [joint for group in self._groups.values() for joint in group.entries]

    def in_order(self) -> list[tuple[str, str, tuple[tuple[JointFilter, int], ...]]]:
        """Returns each shared subscription with what was announced, in the order in which it came."""
        return [(group.share, group.topic, tuple(group.entries.items())) for group in self._groups.values()]

    def put_in_order(self, groups: Iterable[tuple[str, str, tuple[tuple[JointFilter, int], ...]]]) -> None:
        """Has what was announced in this order: of two counts the later one holds."""
        before, self._groups = self._groups, {}
        for share, topic, entries in groups:
            group = self._groups[share, topic] = before[share, topic]
            group.put_in_order(entries)

    def get(self, share: str, topic_filter: str) -> SharedDemand | None:
        """Returns a shared subscription; None where nobody is known to be a member."""
        return self._groups.get((share, topic_filter))

    def _file(self, neighbour: str, joint: JointFilter) -> None:
        assert joint.members is not None
        key = (joint.members.share, joint.topic)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = SharedDemand(*key)
            self._by_topic_filter.subscribe(joint.topic, joint.members.share, group)
            self._kept.clear()
        group.change(joint, 1)
        self._count_names(joint, 1)

    def _unfile(self, neighbour: str, joint: JointFilter) -> None:
        assert joint.members is not None
        key = (joint.members.share, joint.topic)
        group = self._groups[key]
        group.change(joint, -1)
        self._count_names(joint, -1)
        if not group.entries:
            del self._groups[key]
            self._by_topic_filter.unsubscribe(joint.topic, joint.members.share)
            self._kept.clear()
