"""Which neighbours want an event: the demand that each of them announced on one tree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from surecast.errors import PeerError
from surecast.protocol.demand.filter_hashes import FilterHashes
from surecast.protocol.demand.joint_filter import EVERY_CONTENT, JointFilter
from surecast.protocol.demand.summaries import DemandChange
from surecast.protocol.filters import Event, FilterIndex
from surecast.protocol.mqtt.topic_tree import TopicTree

__all__ = ["DemandTable", "TopicDemand"]

_FILTERS_MAX: Final = 1_000_000
_TOPICS_KEPT: Final = 10_000
_KEPT_TOPIC_MAX: Final = 256


class _Wanted:
    """The demand with one topic filter: who wants all events and who those with some contents, at which QoS."""

    __slots__ = ("always", "contents")

    def __init__(self) -> None:
        self.always: dict[tuple[str, int], None] = {}
        self.contents: FilterIndex[tuple[str, int]] | None = None


@dataclass(frozen=True, slots=True)
class TopicDemand:
    """The demand for one topic: the QoS for each neighbour that wants all events on it, and who wants some of them."""

    always: dict[str, int]
    conditional: tuple[FilterIndex[tuple[str, int]], ...]

    def neighbours(self, event: Event) -> dict[str, int]:
        """Returns the neighbours that want an event on this topic, each with its highest QoS."""
        if not self.conditional:
            return self.always
        wanted = dict(self.always)
        for index in self.conditional:
            for neighbour, qos in index.match(event):
                if qos > wanted.get(neighbour, -1):
                    wanted[neighbour] = qos
        return dict(sorted(wanted.items()))


class DemandTable:
    """The demand of all neighbours on one tree.

    >>> from surecast.protocol.filters import parse
    >>> table = DemandTable(["b2", "b3"])
    >>> table.apply("b2", DemandChange(added=(JointFilter("stock/+", parse("price > 35"), 1),)))
    >>> table.apply("b3", DemandChange(added=(JointFilter("stock/#"),)))
    >>> demand = table.find("stock/acme")
    >>> demand.neighbours(Event("stock/acme", {"price": 37}))
    {'b2': 1, 'b3': 0}
    >>> demand.neighbours(Event("stock/acme", {"price": 30})), sorted(table.attributes)
    ({'b3': 0}, ['price'])
    """

    def __init__(self, neighbours: Iterable[str], filters_max: int = _FILTERS_MAX):
        self.attributes: Counter[str] = Counter()
        """The attributes that some filter names; an event need not carry others."""
        self._filters_max = filters_max
        self.held = {name: FilterHashes() for name in neighbours}
        """The filters that each neighbour announced and did not revoke."""
        self._tree: TopicTree[str, _Wanted] = TopicTree()
        self._found: dict[str, TopicDemand] = {}

    def __len__(self) -> int:
        """The number of entries, over all neighbours."""
        return sum(map(len, self.held.values()))

    def apply(self, neighbour: str, change: DemandChange) -> None:
        """Takes in what a neighbour announced and revoked: all of it or, where it is wrong, nothing."""
        held = self.held[neighbour]
        net: dict[JointFilter, int] = {}
        for by, filters in ((1, change.added), (-1, change.removed)):
            for joint in filters:
                net[joint] = net.get(joint, 0) + by
        for joint, number in net.items():
            if joint.qos not in (0, 1, 2):
                raise PeerError(f"{neighbour} announced a filter at QoS {joint.qos}")
            if not joint.satisfiable:
                raise PeerError(f"{neighbour} announced a filter that no event can match; such filters stay local")
            if held.count(joint) + number < 0:
                raise PeerError(f"{neighbour} revoked the filter {joint}, which it has not announced")
        size = len(held) + sum(net.values())
        if size > self._filters_max:
            raise PeerError(f"{neighbour} announced {size} filters; at most {self._filters_max} are taken")
        for joint, number in net.items():
            before = held.count(joint)
            held.shift(joint, number)
            if number > 0 and not before:
                self._file(neighbour, joint)
            elif number < 0 and before == -number:
                self._unfile(neighbour, joint)

    def find(self, topic: str) -> TopicDemand:
        """Returns the demand for a topic; it is kept until the demand changes."""
        demand = self._found.get(topic)
        if demand is None:
            always: dict[str, int] = {}
            conditional: list[FilterIndex[tuple[str, int]]] = []
            for wanted in self._tree.match(topic):
                if wanted.contents is not None:
                    conditional.append(wanted.contents)
                for neighbour, qos in wanted.always:
                    always[neighbour] = max(qos, always.get(neighbour, 0))
            demand = TopicDemand(dict(sorted(always.items())), tuple(conditional))
            if len(topic) <= _KEPT_TOPIC_MAX:
                if len(self._found) >= _TOPICS_KEPT:
                    self._found.clear()
                self._found[topic] = demand
        return demand

    def _file(self, neighbour: str, joint: JointFilter) -> None:
        wanted = self._tree.get(joint.topic, "")
        if wanted is None:
            wanted = _Wanted()
            self._tree.subscribe(joint.topic, "", wanted)
        if joint.content is EVERY_CONTENT or joint.content == EVERY_CONTENT:
            wanted.always[neighbour, joint.qos] = None
        else:
            if wanted.contents is None:
                wanted.contents = FilterIndex()
            wanted.contents.add(joint.content, (neighbour, joint.qos))
            self.attributes.update(name for name, _ in joint.content.constraints)
        self._found.clear()

    def _unfile(self, neighbour: str, joint: JointFilter) -> None:
        wanted = self._tree.get(joint.topic, "")
        assert wanted is not None
        if joint.content == EVERY_CONTENT:
            del wanted.always[neighbour, joint.qos]
        elif wanted.contents is not None:
            wanted.contents.remove(joint.content, (neighbour, joint.qos))
            if not wanted.contents:
                wanted.contents = None
        if not wanted.always and wanted.contents is None:
            self._tree.unsubscribe(joint.topic, "")
        for name, _ in joint.content.constraints:
            self.attributes[name] -= 1
            if not self.attributes[name]:
                del self.attributes[name]
        self._found.clear()
