"""Which neighbours want an event: the demand that each of them announced on one tree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final

from surecast.errors import PeerError
from surecast.protocol.demand.filter_hashes import FilterHashes
from surecast.protocol.demand.joint_filter import JointFilter
from surecast.protocol.demand.summaries import DemandChange
from surecast.protocol.filters import FilterIndex, Value
from surecast.protocol.filters.constraints import Equals, StartsWith
from surecast.protocol.mqtt.topic_tree import TopicTree
from surecast.protocol.mqtt.topics import has_wildcard

__all__ = ["DemandTable", "TopicDemand"]

_FILTERS_MAX: Final = 1_000_000
_TEXT_BYTES_MAX: Final = 256 << 20
_QOS_MAX: Final = 2
_TOPICS_KEPT: Final = 10_000
_KEPT_TOPIC_MAX: Final = 256


class _Wanted:
    """The demand with one topic filter: who wants all events and who those with some contents, at which QoS."""

    __slots__ = ("always", "contents", "holders")

    def __init__(self) -> None:
        self.always: dict[tuple[str, int], int] = {}
        self.holders: dict[tuple[str, int], int] = {}
        """Those with some contents, and how many filters of each."""
        self.contents: FilterIndex[tuple[str, int]] | None = None


@dataclass(frozen=True, slots=True)
class TopicDemand:
    """The demand for one topic: the QoS for each neighbour to which all events on it go, and who wants some of them."""

    always: Mapping[str, int]
    conditional: tuple[_Wanted, ...]
    stands_for: Mapping[str, str]

    def neighbours(self, values: Mapping[str, Value]) -> Mapping[str, int]:
        """Returns the neighbours to which an event with these attributes goes, sorted, each with its highest QoS."""
        if not self.conditional:
            return self.always
        indexes = (wanted.contents for wanted in self.conditional)
        return self._with(chain.from_iterable(index.match_values(values) for index in indexes if index is not None))

    def possible(self) -> Mapping[str, int]:
        """Returns the neighbours to which an event may have to go whose attributes are not all known here."""
        return self._with(chain.from_iterable(wanted.holders for wanted in self.conditional))

    def _with(self, others: Iterable[tuple[str, int]]) -> Mapping[str, int]:
        wanted = dict(self.always)
        for name, qos in others:
            hop = self.stands_for.get(name, name)
            if qos > wanted.get(hop, -1):
                wanted[hop] = qos
        return dict(sorted(wanted.items())) if len(wanted) > 1 else wanted


class DemandTable:
    """The demand of all neighbours on one tree. To those in `always` events go whatever they want, and to those in
    `by_topic` all events on the topics that they want: these match contents themselves.

    >>> from surecast.protocol.filters import parse
    >>> table = DemandTable(["b2", "b3"])
    >>> table.apply("b2", DemandChange(added=(JointFilter("stock/+", parse("price > 35"), 1),)))
    >>> table.apply("b3", DemandChange(added=(JointFilter("stock/#"),)))
    >>> demand = table.find("stock/acme")
    >>> demand.neighbours({"price": 37})
    {'b2': 1, 'b3': 0}
    >>> demand.neighbours({"price": 30}), sorted(table.attributes)
    ({'b3': 0}, ['price'])
    """

    def __init__(
        self,
        neighbours: Iterable[str],
        always: Iterable[str] = (),
        by_topic: Iterable[str] = (),
        filters_max: int = _FILTERS_MAX,
        text_bytes_max: int = _TEXT_BYTES_MAX,
    ):
        self.attributes: dict[str, int] = {}
        """The number of filters that name each attribute; an event need not carry those that none does."""
        self._always, self._by_topic = tuple(always), frozenset(by_topic)
        self._filters_max = filters_max
        self._text_bytes_max = text_bytes_max
        self._text_bytes: dict[str, int] = {}
        self.held: dict[str, FilterHashes[JointFilter]] = {name: FilterHashes() for name in neighbours}
        """The filters that each neighbour announced and did not revoke."""
        self.size = 0
        """The number of entries, over all neighbours."""
        self._stands_for: dict[str, str] = {}
        self._tree: TopicTree[str, _Wanted] = TopicTree(cached_topics=0)
        self._of_filter: dict[str, _Wanted] = {}
        self._found: dict[str, TopicDemand] = {}
        self._names: tuple[str, ...] | None = ()

    def stand_for(self, name: str, neighbour: str) -> None:
        """Takes a name under which demand is held that is to be met by way of a neighbour."""
        self.held[name] = FilterHashes()
        self._stands_for[name] = neighbour
        self._found.clear()

    def forget(self, name: str) -> None:
        """Forgets such a name, of which nothing is held any more."""
        del self.held[name], self._stands_for[name]
        self._text_bytes.pop(name, None)
        self._found.clear()

    @property
    def stands_for(self) -> Mapping[str, str]:
        """The names that stand for a neighbour, in the order in which they came."""
        return self._stands_for

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the attributes that events have to carry, sorted; None for all of them, where events go on to
        neighbours whose filters are not known here."""
        if self._names is None and not self._always:
            self._names = tuple(sorted(self.attributes))
        return None if self._always else self._names

    def has_all(self, names: tuple[str, ...] | None) -> bool:
        """Returns whether the filters here name no other attributes than these; None stands for all."""
        return names is None or names == self.names or set(self.attributes) <= set(names)

    def apply(self, neighbour: str, change: DemandChange) -> None:
        """Takes in what a neighbour announced and revoked: all of it or, where it is wrong, nothing."""
        net = _net(change)
        held = self.held[neighbour]
        for joint, number in net.items():
            if not 0 <= joint.qos <= _QOS_MAX:
                raise PeerError(f"{neighbour} announced a filter at QoS {joint.qos}")
            if not joint.content.satisfiable:
                raise PeerError(f"{neighbour} announced a filter that no event can match; such filters stay local")
            if number < 0 and held.count(joint) + number < 0:
                raise PeerError(f"{neighbour} revoked the filter {joint}, which it has not announced")
        growth = len(change.added) - len(change.removed)
        size = held.size + growth
        if size > self._filters_max:
            raise PeerError(f"{neighbour} announced {size} filters; at most {self._filters_max} are taken")
        text_bytes = self._text_bytes.get(neighbour, 0) + sum(
            number * _text_bytes(joint) for joint, number in net.items()
        )
        if text_bytes > (most := self._text_bytes_max):
            raise PeerError(f"{neighbour} announced filters of {text_bytes} bytes; at most {most} are taken")
        self._text_bytes[neighbour] = text_bytes
        self.size += growth
        for joint, number in net.items():
            count = held.shift(joint, number)
            if number > 0 and count == number:
                self._file(neighbour, joint)
            elif number < 0 and not count:
                self._unfile(neighbour, joint)

    def find(self, topic: str) -> TopicDemand:
        """Returns the demand for a topic; it is kept until the demand changes."""
        demand = self._found.get(topic)
        if demand is None:
            always = dict.fromkeys(self._always, _QOS_MAX)
            conditional: list[_Wanted] = []
            for wanted in self._tree.match(topic):
                if wanted.holders:
                    conditional.append(wanted)
                for name, qos in wanted.always:
                    hop = self._stands_for.get(name, name)
                    always[hop] = max(qos, always.get(hop, 0))
            demand = TopicDemand(dict(sorted(always.items())), tuple(conditional), self._stands_for)
            if len(topic) <= _KEPT_TOPIC_MAX:
                if len(self._found) >= _TOPICS_KEPT:
                    self._found.clear()
                self._found[topic] = demand
        return demand

    def _file(self, neighbour: str, joint: JointFilter) -> None:
        wanted = self._of_filter.get(joint.topic)
        if wanted is None:
            wanted = self._of_filter[joint.topic] = _Wanted()
            self._tree.subscribe(joint.topic, "", wanted)
        if not joint.content.constraints or neighbour in self._by_topic:
            key = (neighbour, joint.qos)
            number = wanted.always.get(key, 0)
            wanted.always[key] = number + 1
            if not number:
                self._forget(joint.topic)
            return
        if wanted.contents is None:
            wanted.contents = FilterIndex()
            self._forget(joint.topic)
        key = (neighbour, joint.qos)
        wanted.holders[key] = wanted.holders.get(key, 0) + 1
        wanted.contents.add(joint.content, key)
        self._count_names(joint, 1)

    def _unfile(self, neighbour: str, joint: JointFilter) -> None:
        wanted = self._of_filter[joint.topic]
        if not joint.content.constraints or neighbour in self._by_topic:
            key = (neighbour, joint.qos)
            wanted.always[key] -= 1
            if not wanted.always[key]:
                del wanted.always[key]
                self._forget(joint.topic)
        elif wanted.contents is not None:
            key = (neighbour, joint.qos)
            wanted.contents.remove(joint.content, key)
            wanted.holders[key] -= 1
            if not wanted.holders[key]:
                del wanted.holders[key]
            if not wanted.contents:
                wanted.contents = None
                self._forget(joint.topic)
            self._count_names(joint, -1)
        if not (wanted.always or wanted.holders):
            del self._of_filter[joint.topic]
            self._tree.unsubscribe(joint.topic, "")

    def _count_names(self, joint: JointFilter, by: int) -> None:
        """Counts the attributes that a filter names."""
        for name, _ in joint.content.constraints:
            number = self.attributes[name] = self.attributes.get(name, 0) + by
            if number in (0, by):
                self._names = None
            if not number:
                del self.attributes[name]

    def _forget(self, topic_filter: str) -> None:
        """Forgets the demand for the topics that a filter matches; an index that only changes stays the same one."""
        if has_wildcard(topic_filter):
            self._found.clear()
        else:
            self._found.pop(topic_filter, None)


def _net(change: DemandChange) -> dict[JointFilter, int]:
    """By how much the number of each filter changes."""
    if not change.removed and len(change.added) == 1:
        return {change.added[0]: 1}
    net: dict[JointFilter, int] = {}
    for joint in change.added:
        net[joint] = net.get(joint, 0) + 1
    for joint in change.removed:
        net[joint] = net.get(joint, 0) - 1
    return net


def _text_bytes(joint: JointFilter) -> int:
    """Returns about how many bytes of text a filter takes; numbers are short."""
    size = len(joint.topic)
    for name, constraint in joint.content.constraints:
        size += len(name)
        if isinstance(constraint, Equals):
            size += len(constraint.text)
        elif isinstance(constraint, StartsWith):
            size += len(constraint.prefix)
    return size
