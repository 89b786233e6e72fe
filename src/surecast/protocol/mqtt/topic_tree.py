"""Lookup of the subscribers of a topic, and of the topics that a filter matches: two tries over the levels of topics.

Neither is walked by recursion, and both refuse topics with too many levels, so that a deep topic costs nobody a stack.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Final, Generic, TypeVar

from surecast.protocol.mqtt.topics import MAX_LEVELS, has_wildcard, validate_filter, validate_topic_name

__all__ = ["TopicMap", "TopicTree"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
C = TypeVar("C")

_CACHED_BYTES: Final = 256


class _Node(Generic[C]):
    """A place in a trie: the levels below it, and what is filed here. `+` and `#` are levels like any other."""

    __slots__ = ("below", "content")

    def __init__(self) -> None:
        self.below: dict[str, _Node[C]] = {}
        self.content: C | None = None


def _reach(root: _Node[C], levels: list[str]) -> _Node[C]:
    """The node of these levels, made where it is missing."""
    node = root
    for level in levels:
        below = node.below.get(level)
        if below is None:
            below = node.below[level] = _Node()
        node = below
    return node


def _path(root: _Node[C], levels: list[str]) -> list[_Node[C]]:
    """The nodes from the root to the one of these levels; empty if there is none."""
    path = [root]
    for level in levels:
        below = path[-1].below.get(level)
        if below is None:
            return []
        path.append(below)
    return path


def _prune(path: list[_Node[C]], levels: list[str]) -> None:
    """Takes away the nodes at the end of a path that have become useless."""
    for node, level in zip(reversed(path[:-1]), reversed(levels), strict=True):
        below = node.below[level]
        if below.below or below.content is not None:
            return
        del node.below[level]


class TopicTree(Generic[K, V]):
    """Subscriptions: under each filter, one value for every key, which is a client for instance.

    What matches a topic is remembered for up to `cached_topics` topics. A change of a filter without wildcards makes
    the tree forget one topic, any other change makes it forget all.

    >>> tree = TopicTree()
    >>> tree.subscribe("sport/#", "ann", "QoS 1"), tree.subscribe("sport/+/score", "bob", "QoS 0")
    (None, None)
    >>> tree.match("sport/tennis/score")
    ('QoS 1', 'QoS 0')
    >>> tree.unsubscribe("sport/#", "ann"), tree.match("sport/tennis/score"), len(tree)
    ('QoS 1', ('QoS 0',), 1)
    """

    def __init__(self, max_levels: int = MAX_LEVELS, cached_topics: int = 4096):
        self._max_levels = max_levels
        self._cached_topics = cached_topics
        self._root: _Node[dict[K, V]] = _Node()
        self._size = 0
        self._cache: dict[str, tuple[V, ...]] = {}

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[tuple[str, K, V]]:
        """All subscriptions as filter, key and value. The tree must not be changed meanwhile."""
        stack = [("", self._root)]
        while stack:
            prefix, node = stack.pop()
            if node.content:
                yield from ((prefix, key, value) for key, value in node.content.items())
            begin = f"{prefix}/" if node is not self._root else ""
            stack.extend((begin + level, below) for level, below in node.below.items())

    def subscribe(self, filter: str, key: K, value: V) -> V | None:
        """Files a value under a filter and a key; the value that was there before."""
        validate_filter(filter, self._max_levels)
        node = _reach(self._root, filter.split("/"))
        if node.content is None:
            node.content = {}
        before = node.content.get(key)
        self._size += key not in node.content
        node.content[key] = value
        self._forget(filter)
        return before

    def unsubscribe(self, filter: str, key: K) -> V | None:
        """Takes out what is filed under a filter and a key; None if nothing was."""
        levels = filter.split("/")
        path = _path(self._root, levels)
        if not path or path[-1].content is None or key not in path[-1].content:
            return None
        content = path[-1].content
        value = content.pop(key)
        self._size -= 1
        if not content:
            path[-1].content = None
            _prune(path, levels)
        self._forget(filter)
        return value

    def get(self, filter: str, key: K) -> V | None:
        """Returns what is filed under a filter and a key."""
        path = _path(self._root, filter.split("/"))
        content = path[-1].content if path else None
        return content.get(key) if content else None

    def match(self, topic: str) -> tuple[V, ...]:
        """The values of all filters that match a topic; a key with several such filters is there several times."""
        found = self._cache.get(topic)
        if found is None:
            found = self._search(topic)
            if len(topic) <= _CACHED_BYTES and self._cached_topics:
                if len(self._cache) >= self._cached_topics:
                    self._cache.clear()
                self._cache[topic] = found
        return found

    def _search(self, topic: str) -> tuple[V, ...]:
        found: list[V] = []
        nodes = [self._root]
        wild = topic[:1] != "$"  # a filter that begins with a wildcard does not match a topic that begins with $
        for level in topic.split("/"):
            deeper: list[_Node[dict[K, V]]] = []
            for node in nodes:
                below = node.below
                if wild:
                    if (rest := below.get("#")) is not None and rest.content:
                        found.extend(rest.content.values())
                    if (any_level := below.get("+")) is not None:
                        deeper.append(any_level)
                if (same := below.get(level)) is not None:
                    deeper.append(same)
            if not deeper:
                return tuple(found)
            nodes, wild = deeper, True
        for node in nodes:
            if node.content:
                found.extend(node.content.values())
            if (rest := node.below.get("#")) is not None and rest.content:
                found.extend(rest.content.values())
        return tuple(found)

    def _forget(self, filter: str) -> None:
        if has_wildcard(filter):
            self._cache.clear()
        else:
            self._cache.pop(filter, None)


class TopicMap(Generic[V]):
    """A value for each of some topics, found by topic or by filter; the retained messages for instance.

    >>> store = TopicMap()
    >>> store["house/kitchen/light"] = "on"
    >>> store["house/hall/light"] = "off"
    >>> sorted(store.matching("house/+/light"))
    [('house/hall/light', 'off'), ('house/kitchen/light', 'on')]
    >>> store.pop("house/hall/light"), store.get("house/hall/light"), len(store)
    ('off', None, 1)
    """

    def __init__(self, max_levels: int = MAX_LEVELS):
        self._max_levels = max_levels
        self._root: _Node[str] = _Node()
        self._values: dict[str, V] = {}

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __contains__(self, topic: str) -> bool:
        return topic in self._values

    def __setitem__(self, topic: str, value: V) -> None:
        if topic not in self._values:
            validate_topic_name(topic, self._max_levels)
            _reach(self._root, topic.split("/")).content = topic
        self._values[topic] = value

    def get(self, topic: str) -> V | None:
        return self._values.get(topic)

    def pop(self, topic: str) -> V | None:
        """Takes a topic's value out; None if it had none."""
        if topic not in self._values:
            return None
        levels = topic.split("/")
        path = _path(self._root, levels)
        path[-1].content = None
        _prune(path, levels)
        return self._values.pop(topic)

    def matching(self, filter: str) -> list[tuple[str, V]]:
        """Topics and values that a filter (not a shared one) matches. The map may be changed while the list is used."""
        validate_filter(filter, self._max_levels)
        values = self._values
        if not has_wildcard(filter):
            return [(filter, values[filter])] if filter in values else []
        wanted = filter.split("/")
        nodes = [self._root]
        for depth, want in enumerate(wanted):
            if want == "#":
                return [(topic, values[topic]) for topic in _all_below(nodes, hidden=depth == 0)]
            if want != "+":
                nodes = [node.below[want] for node in nodes if want in node.below]
            else:
                nodes = [b for n in nodes for level, b in n.below.items() if depth or level[:1] != "$"]
        return [(node.content, values[node.content]) for node in nodes if node.content is not None]

    def in_tree_order(self) -> list[str]:
        """The topics in an order in which another map must be given them to answer `matching` in the same order."""
        return list(_all_below([self._root], hidden=False))[::-1]

    def arrange(self, topics: Iterable[str]) -> None:
        """Makes the topics be listed in this order; `matching` keeps its own."""
        values = {topic: self._values[topic] for topic in topics}
        if len(values) != len(self._values):
            raise ValueError(f"{len(values)} topics are named, but there are {len(self._values)}")
        self._values = values


def _all_below(nodes: list[_Node[str]], hidden: bool) -> Iterator[str]:
    """Returns what is filed at these nodes and under them; from the root, topics that begin with $ are left out."""
    if hidden:
        nodes = [below for node in nodes for level, below in node.below.items() if level[:1] != "$"]
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node.content is not None:
            yield node.content
        stack.extend(node.below.values())
