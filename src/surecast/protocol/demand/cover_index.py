"""An index of joint filters that finds those that cover a filter, and those that it covers.

It is a tree of the levels of topic filters. A walk along the levels of the filter in question passes only the branches
whose topics cover it, or are covered by it; of the filters at their ends the contents and the QoS are compared.
"""

from __future__ import annotations

from collections.abc import Iterator

from surecast.protocol.demand.joint_filter import JointFilter
from surecast.protocol.mqtt.topics import filter_levels

__all__ = ["CoverIndex"]


class _Node:
    """The filters whose topic filter ends here, and the further levels of longer ones."""

    __slots__ = ("below", "filters")

    def __init__(self) -> None:
        self.below: dict[str, _Node] = {}
        self.filters: dict[JointFilter, None] = {}


class CoverIndex:
    """A set of joint filters.

    >>> index = CoverIndex()
    >>> index.add(JointFilter("a/#", qos=1))
    >>> index.add(JointFilter("a/b/c"))
    >>> [filter.topic for filter in index.covering(JointFilter("a/+"))]
    ['a/#']
    >>> [filter.topic for filter in index.covered_by(JointFilter("a/b/#"))]
    ['a/b/c']
    """

    def __init__(self) -> None:
        self._root = _Node()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __contains__(self, filter: JointFilter) -> bool:
        node: _Node | None = self._root
        for level in filter_levels(filter.topic):
            node = node.below.get(level) if node is not None else None
        return node is not None and filter in node.filters

    def __iter__(self) -> Iterator[JointFilter]:
        return iter(_everything(self._root))

    def add(self, filter: JointFilter) -> None:
        """Takes a filter in; nothing changes where it is there already."""
        node = self._root
        for level in filter_levels(filter.topic):
            node = node.below.setdefault(level, _Node())
        self._size += filter not in node.filters
        node.filters[filter] = None

    def remove(self, filter: JointFilter) -> None:
        """Takes a filter out; KeyError where it is not there."""
        path = [self._root]
        levels = filter_levels(filter.topic)
        for level in levels:
            path.append(path[-1].below[level])
        del path[-1].filters[filter]
        self._size -= 1
        for level, node, parent in zip(reversed(levels), reversed(path), reversed(path[:-1]), strict=False):
            if node.filters or node.below:
                break
            del parent.below[level]

    def covering(self, filter: JointFilter) -> list[JointFilter]:
        """Returns the filters that cover a filter; itself, where it is there."""
        qos, content = filter.qos, filter.content
        return [
            other
            for node in self._above(filter)
            for other in node.filters
            if other.qos >= qos and other.content.covers(content)
        ]

    def is_covered(self, filter: JointFilter) -> bool:
        """Returns whether a filter is covered by one that is there."""
        qos, content = filter.qos, filter.content
        for node in self._above(filter):
            for other in node.filters:
                if other.qos >= qos and other.content.covers(content):
                    return True
        return False

    def _above(self, filter: JointFilter) -> list[_Node]:
        """The nodes whose topics cover those of a filter."""
        candidates: list[_Node] = []
        nodes = [self._root]
        dollar = filter.topic[:1] == "$"  # no filter that begins with a wildcard matches a topic that begins with $
        for level in filter_levels(filter.topic):
            candidates += [node.below["#"] for node in nodes if "#" in node.below]
            if level == "#":
                nodes = []
                break
            steps = ("+",) if level == "+" else (level,) if dollar else ("+", level)
            nodes = [node.below[step] for node in nodes for step in steps if step in node.below]
            dollar = False
        candidates += nodes
        candidates += [node.below["#"] for node in nodes if "#" in node.below]  # "a/#" matches "a"
        return candidates

    def covered_by(self, filter: JointFilter) -> list[JointFilter]:
        """Returns the filters that a filter covers; itself, where it is there."""
        nodes = [self._root]
        hidden = True  # a wildcard at the first level does not match levels that begin with $
        covered: list[JointFilter] = []
        for level in filter_levels(filter.topic):
            if level == "#":
                covered = [other for node in nodes for other in _everything(node)]
                nodes = []
            elif level == "+":
                nodes = [
                    below
                    for node in nodes
                    for step, below in node.below.items()
                    if step != "#" and not (hidden and step[:1] == "$")
                ]
            else:
                nodes = [node.below[level] for node in nodes if level in node.below]
            hidden = False
        covered += [other for node in nodes for other in node.filters]
        return [other for other in covered if other.qos <= filter.qos and filter.content.covers(other.content)]


def _everything(node: _Node) -> list[JointFilter]:
    """The filters of a node and of all nodes below it."""
    filters: list[JointFilter] = []
    stack = [node]
    while stack:
        node = stack.pop()
        filters += node.filters
        stack.extend(node.below.values())
    return filters
