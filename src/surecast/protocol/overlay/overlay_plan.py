"""The plan of an overlay: its brokers and links, its trees, and which topics travel on which tree by which scheme.

Every broker has the same plan. A topic belongs to the longest prefix of whole levels that the plan names, and, where
that prefix has several trees, to one of them by a hash of the topic. A topic filter is announced on every tree on which
a topic that it matches may travel.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from typing import Final, Literal
from zlib import crc32

from surecast.errors import ConfigurationError
from surecast.protocol.demand import FLOODING, SUMMARIES
from surecast.protocol.mqtt.topics import covers, has_wildcard, intersects

__all__ = [
    "HOMES",
    "HOME_TOPICS",
    "MEMBERS",
    "SESSION_SHARE",
    "SESSION_TOPIC",
    "TREES_MAX",
    "OverlayPlan",
    "SchemeParts",
    "Tree",
    "scheme_parts",
]

TREES_MAX: Final = 16
MEMBERS: Final = 2 * TREES_MAX
"""The members of shared subscriptions of a tree are announced under a number that is so much more than the tree's."""
HOMES: Final = 3 * TREES_MAX
"""The homes of sessions that belong to a tree are compared under a number that is so much more than the tree's."""
HOME_TOPICS: Final = "$sessions/"
"""The topics of the homes of sessions begin with this; no client can publish or subscribe to them."""
SESSION_TOPIC: Final = "$session"
SESSION_SHARE: Final = "$share/$session/$session"
"""What brokers tell each other about sessions that move is for one member, the broker; no client can be another."""

Link = tuple[str, str]


@dataclass(frozen=True, slots=True)
class SchemeParts:
    """The parts of a node that a fault-tolerance scheme uses.

    `custody`: events and their forwarding sets are on disk until each neighbour has acknowledged them.
    `detours`: every broker knows the state of all links, and events are sent around what has failed.
    `refreshes`: where demand is refreshed from end to end, home brokers send subscriptions again and again.
    """

    custody: bool = False
    detours: bool = False
    refreshes: bool = True


_SCHEMES: Final[Mapping[str, SchemeParts]] = {
    "none": SchemeParts(refreshes=False),
    "periodic-subscription": SchemeParts(),
    "buffering": SchemeParts(custody=True),
    "bypass": SchemeParts(detours=True),
    "bypass-buffering": SchemeParts(custody=True, detours=True),
}


def scheme_parts(scheme: str) -> SchemeParts:
    """Returns the parts that a scheme uses.

    >>> scheme_parts("bypass-buffering")
    SchemeParts(custody=True, detours=True, refreshes=True)
    """
    if scheme not in _SCHEMES:
        raise ConfigurationError(f"no scheme {scheme!r}; use one of {', '.join(_SCHEMES)}")
    return _SCHEMES[scheme]


@dataclass(frozen=True)
class Tree:
    """One spanning tree. With a `root`, demand is announced to the parent alone and events go to it in any case.

    `algorithm` says what of the demand behind a link is announced over it; `algorithms` names it for single links.
    `refresh` says how a broker that has lost its table has it again: `link`, by a comparison at every link-up, or
    `end-to-end`, when the home brokers send their subscriptions again. Then there are no summaries.
    With `advertisements`, demand is announced only towards publishers that have advertised what meets it.
    """

    links: tuple[Link, ...]
    scheme: str = "none"
    algorithm: str = "covering"
    algorithms: tuple[tuple[Link, str], ...] = ()
    root: str | None = None
    refresh: Literal["link", "end-to-end"] = "link"
    advertisements: bool = False


@dataclass(frozen=True)
class OverlayPlan:
    """The brokers, links and trees of an overlay, as every broker of it knows them.

    >>> links = (("b1", "b2"), ("b2", "b3"), ("b1", "b3"))
    >>> plan = OverlayPlan(("b1", "b2", "b3"), links, (Tree(links[:2]), Tree(links[1:])), (("", (0,)), ("stock", (1,))))
    >>> plan.tree_of("stock/acme"), plan.tree_of("stocks"), plan.trees_for("+/acme")
    (1, 0, (0, 1))
    >>> plan.neighbours("b3"), plan.tree_neighbours(0, "b3")
    (('b1', 'b2'), ('b2',))
    """

    brokers: tuple[str, ...]
    links: tuple[Link, ...]
    trees: tuple[Tree, ...]
    prefixes: tuple[tuple[str, tuple[int, ...]], ...] = (("", (0,)),)
    epoch: int = 1
    _graph: dict[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)
    _forest: tuple[dict[str, tuple[str, ...]], ...] = field(init=False, repr=False, compare=False)
    _parents: tuple[dict[str, str], ...] = field(init=False, repr=False, compare=False)
    _algorithms: tuple[dict[Link, str], ...] = field(init=False, repr=False, compare=False)
    _by_prefix: dict[str, tuple[int, ...]] = field(init=False, repr=False, compare=False)
    _names: frozenset[str] = field(init=False, repr=False, compare=False)
    _joined: tuple[frozenset[Link], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check(self)
        set_field = object.__setattr__
        set_field(self, "_graph", _adjacency(self.brokers, self.links))
        set_field(self, "_forest", tuple(_adjacency(self.brokers, tree.links) for tree in self.trees))
        set_field(self, "_parents", tuple(map(_parents, self.trees, self._forest)))
        set_field(self, "_algorithms", tuple({_pair(*link): name for link, name in t.algorithms} for t in self.trees))
        set_field(self, "_by_prefix", dict(self.prefixes))
        set_field(self, "_names", frozenset(self.brokers))
        both_ways = (frozenset((*tree.links, *((b, a) for a, b in tree.links))) for tree in self.trees)
        set_field(self, "_joined", tuple(both_ways))

    @property
    def hash(self) -> str:
        """A check sum over all that the plan says; equal plans have equal ones."""
        fields = {name: value for name, value in asdict(self).items() if name[0] != "_"}
        return blake2b(json.dumps(fields, sort_keys=True).encode(), digest_size=16).hexdigest()

    @property
    def names(self) -> frozenset[str]:
        """The names of the brokers, as a set."""
        return self._names

    def has_adverts(self, plane: int) -> bool:
        """Returns whether a number is that of the advertisements of a tree: `TREES_MAX` more than the tree's."""
        return 0 <= plane - TREES_MAX < len(self.trees) and self.trees[plane - TREES_MAX].advertisements

    def tree_of_plane(self, plane: int) -> int:
        """Returns the tree whose demand, advertisements, members or homes of sessions are told under a number."""
        if plane >= HOMES:
            return plane - HOMES
        if plane >= MEMBERS:
            return plane - MEMBERS
        return plane - TREES_MAX if self.has_adverts(plane) else plane

    def joins(self, tree: int, broker: str, other: str) -> bool:
        """Returns whether there is such a tree, and two brokers are neighbours on it."""
        return 0 <= tree < len(self._joined) and (broker, other) in self._joined[tree]

    def neighbours(self, broker: str) -> tuple[str, ...]:
        """Returns the brokers with a link to a broker, sorted."""
        return self._graph[broker]

    def tree_neighbours(self, tree: int, broker: str) -> tuple[str, ...]:
        """Returns the neighbours of a broker on a tree, sorted."""
        return self._forest[tree][broker]

    def parent(self, tree: int, broker: str) -> str | None:
        """Returns the neighbour towards the root of a tree; None at the root, and on a tree without one."""
        return self._parents[tree].get(broker)

    def ancestors(self, tree: int, broker: str) -> tuple[str, ...]:
        """Returns the brokers from a broker to the root of a tree, the nearest first; none on a tree without one.

        >>> links = (("b1", "b2"), ("b2", "b3"))
        >>> OverlayPlan(("b1", "b2", "b3"), links, (Tree(links, root="b1"),)).ancestors(0, "b3")
        ('b2', 'b1')
        """
        ancestors: list[str] = []
        parent = self.parent(tree, broker)
        while parent is not None:
            ancestors.append(parent)
            parent = self.parent(tree, parent)
        return tuple(ancestors)

    def algorithm(self, tree: int, broker: str, neighbour: str) -> str:
        """Returns the routing algorithm of a link on a tree."""
        return self._algorithms[tree].get(_pair(broker, neighbour), self.trees[tree].algorithm)

    def tree_of(self, topic: str) -> int:
        """Returns the tree on which events of a topic travel."""
        if len(self.trees) == 1:
            return 0
        prefix = topic
        while prefix not in self._by_prefix:
            prefix = prefix.rpartition("/")[0]
        trees = self._by_prefix[prefix]
        return trees[0] if len(trees) == 1 else trees[crc32(topic.encode()) % len(trees)]

    def trees_for(self, topic_filter: str) -> tuple[int, ...]:
        """Returns the trees on which events that a topic filter matches may travel."""
        if len(self.trees) == 1:
            return (0,)
        if not has_wildcard(topic_filter):
            return (self.tree_of(topic_filter),)
        trees: set[int] = set()
        around = [prefix for prefix in self._by_prefix if not prefix or covers(f"{prefix}/#", topic_filter)]
        innermost = max(around, key=len)
        for prefix, numbers in self.prefixes:
            is_inside = len(prefix) > len(innermost) and intersects(topic_filter, f"{prefix}/#")
            if prefix == innermost or is_inside:
                trees.update(numbers)
        return tuple(sorted(trees))


def _pair(a: str, b: str) -> Link:
    return (a, b) if a < b else (b, a)


def _adjacency(brokers: Iterable[str], links: Iterable[Link]) -> dict[str, tuple[str, ...]]:
    others: dict[str, set[str]] = {broker: set() for broker in brokers}
    for a, b in links:
        others[a].add(b)
        others[b].add(a)
    return {broker: tuple(sorted(names)) for broker, names in others.items()}


def _parents(tree: Tree, adjacency: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    parents: dict[str, str] = {}
    reached = [tree.root] if tree.root is not None else []
    for broker in reached:
        for child in adjacency[broker]:
            if child != parents.get(broker):
                parents[child] = broker
                reached.append(child)
    return parents


def _check(plan: OverlayPlan) -> None:
    """Refuses a plan that does not hold together, naming the part."""
    brokers = set(plan.brokers)
    if len(brokers) < len(plan.brokers) or "" in brokers:
        raise ConfigurationError("plan: each broker needs a name of its own that is not empty")
    if not 1 <= len(plan.trees) <= TREES_MAX:
        raise ConfigurationError(f"plan: {len(plan.trees)} trees; an overlay has 1 to {TREES_MAX}")
    pairs = _check_links("links", plan.links, brokers)
    for number, tree in enumerate(plan.trees):
        _check_tree(plan, f"trees[{number}]", tree, pairs)
    names = [prefix for prefix, _ in plan.prefixes]
    if "" not in names or len(set(names)) < len(names):
        raise ConfigurationError("plan: prefixes: each stands once, and the empty one, for all other topics, is there")
    for prefix, trees in plan.prefixes:
        if not trees or not all(0 <= tree < len(plan.trees) for tree in trees):
            raise ConfigurationError(f"plan: prefixes[{prefix!r}]: {trees} are not trees of the plan")


def _check_tree(plan: OverlayPlan, where: str, tree: Tree, pairs: set[Link]) -> None:
    brokers = set(plan.brokers)
    scheme_parts(tree.scheme)
    own = _check_links(where, tree.links, brokers)
    if own - pairs:
        raise ConfigurationError(f"plan: {where}: {sorted(own - pairs)[0]} is no link of the overlay")
    if len(own) != len(brokers) - 1 or not _is_connected(plan.brokers, tree.links):
        raise ConfigurationError(f"plan: {where}: its {len(own)} links are no tree of all {len(brokers)} brokers")
    if tree.root is not None and tree.root not in brokers:
        raise ConfigurationError(f"plan: {where}.root: {tree.root!r} is no broker of the overlay")
    if tree.refresh not in ("link", "end-to-end"):
        raise ConfigurationError(f"plan: {where}.refresh: {tree.refresh!r}; write 'link' or 'end-to-end'")
    if tree.advertisements and tree.refresh != "link":
        raise ConfigurationError(f"plan: {where}.advertisements: they need refresh 'link', not {tree.refresh!r}")
    known = (FLOODING, *SUMMARIES)
    if tree.algorithm not in known:
        raise ConfigurationError(f"plan: {where}.algorithm: no {tree.algorithm!r}; use one of {', '.join(known)}")
    if tree.algorithm == FLOODING and tree.root is not None:
        raise ConfigurationError(f"plan: {where}.root: flooding has no hierarchical form; leave the root out")
    for link, algorithm in tree.algorithms:
        if _pair(*link) not in own:
            raise ConfigurationError(f"plan: {where}.algorithms: {link} is no link of this tree")
        if algorithm not in known:
            raise ConfigurationError(
                f"plan: {where}.algorithms: no {algorithm!r} for {link}; use one of {', '.join(known)}"
            )


def _check_links(where: str, links: Iterable[Link], brokers: set[str]) -> set[Link]:
    pairs: set[Link] = set()
    for a, b in links:
        if a == b or a not in brokers or b not in brokers:
            raise ConfigurationError(f"plan: {where}: {(a, b)} does not join two brokers of the overlay")
        if _pair(a, b) in pairs:
            raise ConfigurationError(f"plan: {where}: {(a, b)} stands there twice")
        pairs.add(_pair(a, b))
    return pairs


def _is_connected(brokers: tuple[str, ...], links: Iterable[Link]) -> bool:
    adjacency = _adjacency(brokers, links)
    reached = list(brokers[:1])
    for broker in reached:
        reached += [other for other in adjacency[broker] if other not in reached]
    return len(reached) == len(brokers)
