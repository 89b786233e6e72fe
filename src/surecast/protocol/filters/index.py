"""The index that finds the filters an event matches, without looking at the others.

A filter is filed by its class, then by its equalities (hash tables, nested in the order of the attributes), then by one
more of its constraints: an interval, a prefix or existence. What is left of it is checked when it is found. Where every
filter has at most one constraint besides equalities, nothing is looked at in vain: the cost is that of a few look-ups,
a search in sorted lists, and the matches. With more, filters whose filed constraint alone holds are looked at as well;
the one to file a filter under is the one that seems to hold most rarely. How often an interval holds is guessed from a
sample of the ends that intervals on this attribute have: where the interests are, the values are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from math import isinf
from typing import Final, Generic, TypeVar

from surecast.protocol.filters.constraints import Constraint, Equals, Interval, StartsWith
from surecast.protocol.filters.event import Event, Value
from surecast.protocol.filters.filter import Filter
from surecast.protocol.filters.intervals import IntervalTable

__all__ = ["FilterIndex"]

K = TypeVar("K", bound=Hashable)

_SAMPLE_MAX: Final = 256
_SAMPLE_ENOUGH: Final = 16


class _Sample:
    """The last few ends of intervals on one attribute, sorted; says which share of them an interval holds."""

    __slots__ = ("oldest", "ordered", "recent")

    def __init__(self) -> None:
        self.ordered: list[float] = []
        self.recent: list[float] = []
        self.oldest = 0

    def add(self, interval: Interval) -> None:
        for end in (interval.low, interval.high):
            if isinf(end):
                continue
            if len(self.recent) < _SAMPLE_MAX:
                self.recent.append(end)
            else:
                del self.ordered[bisect_left(self.ordered, self.recent[self.oldest])]
                self.recent[self.oldest] = end
                self.oldest = (self.oldest + 1) % _SAMPLE_MAX
            insort(self.ordered, end)

    def share(self, interval: Interval) -> float | None:
        """Returns an estimate of the share of values in the interval; None with too few samples."""
        size = len(self.ordered)
        if size < _SAMPLE_ENOUGH:
            return None
        inside = bisect_right(self.ordered, interval.high) - bisect_left(self.ordered, interval.low)
        return (inside + 0.5) / (size + 1)


class _Entry(Generic[K]):
    """One filter in the index: who wants it, and where it is filed."""

    __slots__ = ("filed", "filter", "keys", "path", "rest", "serial")

    def __init__(self, filter: Filter, serial: int, share: Callable[[str, Constraint], float]):
        self.filter = filter
        self.serial = serial
        self.keys: dict[K, None] = {}
        self.path: list[tuple[str, Value]] = []
        others: list[tuple[str, Constraint]] = []
        for name, constraint in filter.constraints:
            value = _only_value(constraint)
            if value is None:
                others.append((name, constraint))
            else:
                self.path.append((name, value))
        if len(others) > 1:
            others.sort(key=lambda pair: share(*pair))  # stable: the names decide among equals
        self.filed: tuple[str, Constraint] | None = others[0] if others else None
        self.rest = tuple(others[1:])

    def rest_holds(self, values: Mapping[str, Value]) -> bool:
        for name, constraint in self.rest:
            value = values.get(name)
            if value is None or not constraint.holds(value):
                return False
        return True


class _Attribute(Generic[K]):
    """The entries of a node that are filed under one attribute."""

    __slots__ = ("existing", "intervals", "lengths", "prefixes")

    def __init__(self) -> None:
        self.intervals: IntervalTable[_Entry[K]] = IntervalTable()
        self.prefixes: dict[str, dict[int, _Entry[K]]] = {}
        self.lengths: Counter[int] = Counter()
        self.existing: dict[int, _Entry[K]] = {}

    def add(self, constraint: Constraint, entry: _Entry[K]) -> None:
        if isinstance(constraint, Interval):
            self.intervals.add(constraint, entry.serial, entry)
        elif isinstance(constraint, StartsWith):
            if constraint.prefix not in self.prefixes:
                self.prefixes[constraint.prefix] = {}
                self.lengths[len(constraint.prefix)] += 1
            self.prefixes[constraint.prefix][entry.serial] = entry
        else:
            self.existing[entry.serial] = entry

    def remove(self, constraint: Constraint, entry: _Entry[K]) -> bool:
        """Removes an entry. Returns whether it was the last one."""
        if isinstance(constraint, Interval):
            self.intervals.remove(constraint, entry.serial)
        elif isinstance(constraint, StartsWith):
            prefix = constraint.prefix
            del self.prefixes[prefix][entry.serial]
            if not self.prefixes[prefix]:
                del self.prefixes[prefix]
                self.lengths[len(prefix)] -= 1
                if not self.lengths[len(prefix)]:
                    del self.lengths[len(prefix)]
        else:
            del self.existing[entry.serial]
        return not (len(self.intervals) or self.prefixes or self.existing)

    def find(self, value: Value, found: list[_Entry[K]]) -> None:
        if self.existing:
            found += self.existing.values()
        if not isinstance(value, str):
            self.intervals.find(value, found)
            return
        for length in self.lengths:
            if length <= len(value):
                found += self.prefixes.get(value[:length], {}).values()


class _Node(Generic[K]):
    """The filters that agree on the class and on some equalities."""

    __slots__ = ("attributes", "below", "here")

    def __init__(self) -> None:
        self.here: _Entry[K] | None = None
        self.below: dict[str, dict[Value, _Node[K]]] = {}
        self.attributes: dict[str, _Attribute[K]] = {}

    def add(self, entry: _Entry[K]) -> None:
        node = self
        for name, value in entry.path:
            node = node.below.setdefault(name, {}).setdefault(value, _Node())
        if entry.filed is None:
            node.here = entry
        else:
            name, constraint = entry.filed
            node.attributes.setdefault(name, _Attribute()).add(constraint, entry)

    def remove(self, entry: _Entry[K]) -> bool:
        """Removes an entry and every node that becomes empty. Returns whether this node is empty now."""
        nodes = [self]
        for name, value in entry.path:
            nodes.append(nodes[-1].below[name][value])
        last = nodes[-1]
        if entry.filed is None:
            last.here = None
        elif last.attributes[entry.filed[0]].remove(entry.filed[1], entry):
            del last.attributes[entry.filed[0]]
        for (name, value), parent in zip(reversed(entry.path), reversed(nodes[:-1]), strict=True):
            if parent.below[name][value].is_empty:
                del parent.below[name][value]
                if not parent.below[name]:
                    del parent.below[name]
        return self.is_empty

    @property
    def is_empty(self) -> bool:
        return self.here is None and not self.below and not self.attributes

    def find(self, values: Mapping[str, Value], found: list[_Entry[K]]) -> None:
        if self.here is not None:
            found.append(self.here)
        for name, value in values.items():
            if self.below:
                table = self.below.get(name)
                child = table.get(value) if table is not None else None
                if child is not None:
                    child.find(values, found)
            attribute = self.attributes.get(name)
            if attribute is not None:
                attribute.find(value, found)


class FilterIndex(Generic[K]):
    """Filters, each wanted by one or more keys: a client, a neighbour.

    >>> from surecast.protocol.filters import parse
    >>> index: FilterIndex[str] = FilterIndex()
    >>> index.add(parse("Stock: price > 35"), "s1")
    True
    >>> index.add(parse('Stock: name startswith "F"'), "s2")
    True
    >>> sorted(index.match(Event("Stock", {"name": "Foo", "price": 37})))
    ['s1', 's2']
    >>> index.remove(parse("Stock: price > 35"), "s1"), len(index)
    (True, 1)
    """

    def __init__(self) -> None:
        self._entries: dict[Filter, _Entry[K]] = {}
        self._classes: dict[str | None, _Node[K]] = {}
        self._samples: dict[str | None, dict[str, _Sample]] = {}
        self._serial = 0
        self._size = 0

    def __len__(self) -> int:
        """The number of pairs of a filter and a key."""
        return self._size

    def add(self, filter: Filter, key: K) -> bool:
        """Takes a filter in for a key; False if it was there."""
        entry = self._entries.get(filter)
        if entry is None:
            entry = self._entries[filter] = self._filed(filter)
            if filter.satisfiable:
                self._classes.setdefault(filter.class_name, _Node()).add(entry)
        elif key in entry.keys:
            return False
        entry.keys[key] = None
        self._size += 1
        return True

    def remove(self, filter: Filter, key: K) -> bool:
        """Takes a filter out for a key; False if it was not there."""
        entry = self._entries.get(filter)
        if entry is None or key not in entry.keys:
            return False
        del entry.keys[key]
        self._size -= 1
        if not entry.keys:
            del self._entries[filter]
            if filter.satisfiable and self._classes[filter.class_name].remove(entry):
                del self._classes[filter.class_name]
                self._samples.pop(filter.class_name, None)
        return True

    def match(self, event: Event) -> set[K]:
        """The keys that want an event, each once."""
        return _keys(self._found(event), event.values)

    def match_values(self, values: Mapping[str, Value]) -> set[K]:
        """The keys that want an event of no class with these attributes, each once.

        >>> index: FilterIndex[str] = FilterIndex()
        >>> index.add(Filter(None, {"price": Interval(1, 5)}), "s1"), index.match_values({"price": 3})
        (True, {'s1'})
        """
        found: list[_Entry[K]] = []
        node = self._classes.get(None)
        if node is not None:
            node.find(values, found)
        return _keys(found, values)

    def filters_matching(self, event: Event) -> list[Filter]:
        """The filters that match an event, each once.

        >>> index: FilterIndex[int] = FilterIndex()
        >>> index.add(Filter("Stock"), 1), index.add(Filter("Weather"), 2)
        (True, True)
        >>> [str(filter) for filter in index.filters_matching(Event("Stock"))]
        ['Stock: true']
        """
        return [entry.filter for entry in self._found(event) if entry.rest_holds(event.values)]

    def _filed(self, filter: Filter) -> _Entry[K]:
        """A new entry, filed under the constraint that seems to hold most rarely."""
        samples: dict[str, _Sample] = {}
        if len(filter.constraints) > 1:
            samples = self._samples.setdefault(filter.class_name, {})

        def share(name: str, constraint: Constraint) -> float:
            known = None
            if isinstance(constraint, Interval) and name in samples:
                known = samples[name].share(constraint)
            return _share(constraint) if known is None else known

        entry: _Entry[K] = _Entry(filter, self._serial, share)
        self._serial += 1
        if entry.rest:
            for name, constraint in filter.constraints:
                if isinstance(constraint, Interval) and not constraint.is_point:
                    samples.setdefault(name, _Sample()).add(constraint)
        return entry

    def _found(self, event: Event) -> list[_Entry[K]]:
        found: list[_Entry[K]] = []
        for class_name in (event.class_name, None):
            node = self._classes.get(class_name)
            if node is not None:
                node.find(event.values, found)
        return found


def _keys(entries: list[_Entry[K]], values: Mapping[str, Value]) -> set[K]:
    keys: set[K] = set()
    for entry in entries:
        if not entry.rest or entry.rest_holds(values):
            keys.update(entry.keys)
    return keys


def _only_value(constraint: Constraint) -> Value | None:
    """The one value that meets a constraint; None if there are more."""
    if isinstance(constraint, Equals):
        return constraint.text
    return constraint.low if isinstance(constraint, Interval) and constraint.is_point else None


def _share(constraint: Constraint) -> float:
    """Returns an estimate of the share of values that meet a constraint, by its kind alone."""
    if isinstance(constraint, Interval):
        return (0.2, 0.5, 1.0)[isinf(constraint.low) + isinf(constraint.high)]
    if isinstance(constraint, StartsWith):
        return 0.5 ** len(constraint.prefix)
    return 1.0
