"""What a broker tells one neighbour about the subscriptions behind it: one digest per algorithm and link.

A digest takes in how the filters behind a link change (those of the broker's clients, and the entries of all other
neighbours) and says how what was announced over the link has to change. What is announced depends on these filters
alone, not on the order in which they came; with exact merging only the events it stands for do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeVar

from surecast.errors import ConfigurationError
from surecast.protocol.filters import Filter, hull, merge
from surecast.protocol.routing.messages import Update

__all__ = ["DIGESTS", "Digest", "register_digest", "unregister_digest"]

_Key = TypeVar("_Key")


class Digest(ABC):
    """Keeps what is announced over a link equal to what its algorithm makes of the filters behind it.

    >>> from surecast.protocol.filters import parse
    >>> digest = DIGESTS["covering"]()
    >>> digest.change(added=[parse("S: p > 1"), parse("S: p > 2")])
    Update(removed=(), added=(Filter(...),))
    >>> [str(filter) for filter in digest.announced]
    ['S: p > 1']
    >>> update = digest.change(removed=[parse("S: p > 1")])
    >>> [str(filter) for filter in update.removed], [str(filter) for filter in update.added]
    (['S: p > 1'], ['S: p > 2'])
    """

    def __init__(self) -> None:
        self._announced: dict[Filter, int] = {}
        self._net: dict[Filter, int] = {}

    @property
    def announced(self) -> list[Filter]:
        """What the neighbour was told and not told to forget; repeated where it has more than one entry."""
        return [one for one, number in self._announced.items() for _ in range(number)]

    def change(self, removed: Iterable[Filter] = (), added: Iterable[Filter] = ()) -> Update | None:
        """Takes in a change behind the link; the one message it takes to pass it on, None if none is needed."""
        self._net.clear()
        for one in added:
            self._add(one)
        for one in removed:
            self._remove(one)
        gone: list[Filter] = []
        new: list[Filter] = []
        for one, number in self._net.items():
            (new if number > 0 else gone).extend([one] * abs(number))
        return Update(tuple(gone), tuple(new)) if gone or new else None

    @abstractmethod
    def _add(self, filter: Filter) -> None:
        """Takes in one filter more."""

    @abstractmethod
    def _remove(self, filter: Filter) -> None:
        """Takes in that one filter is gone."""

    def _announce(self, filter: Filter) -> None:
        self._announced[filter] = self._announced.get(filter, 0) + 1
        self._net[filter] = self._net.get(filter, 0) + 1

    def _revoke(self, filter: Filter) -> None:
        _take(self._announced, filter)
        self._net[filter] = self._net.get(filter, 0) - 1


class _Simple(Digest):
    """Announces every filter, as often as it is behind the link."""

    def _add(self, filter: Filter) -> None:
        self._announce(filter)

    def _remove(self, filter: Filter) -> None:
        self._revoke(filter)


class _IdentityExact(Digest):
    """Announces every filter once."""

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[Filter, int] = {}

    def _add(self, filter: Filter) -> None:
        if _put(self._counts, filter):
            self._announce(filter)

    def _remove(self, filter: Filter) -> None:
        if _take(self._counts, filter):
            self._revoke(filter)


class _Identity(Digest):
    """Announces every class once, without constraints (*capacity* section 3.1.1)."""

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[str | None, int] = {}

    def _add(self, filter: Filter) -> None:
        if _put(self._counts, filter.class_name):
            self._announce(Filter(filter.class_name))

    def _remove(self, filter: Filter) -> None:
        if _take(self._counts, filter.class_name):
            self._revoke(Filter(filter.class_name))


class _ByClass(Digest):
    """Counts the filters behind the link by class; says when one comes for the first time or goes for good."""

    def __init__(self) -> None:
        super().__init__()
        self._classes: dict[str | None, dict[Filter, int]] = {}

    def _add(self, filter: Filter) -> None:
        if _put(self._classes.setdefault(filter.class_name, {}), filter):
            self._came(filter)

    def _remove(self, filter: Filter) -> None:
        counts = self._classes[filter.class_name]
        if _take(counts, filter):
            if not counts:
                del self._classes[filter.class_name]
            self._went(filter)

    @abstractmethod
    def _came(self, filter: Filter) -> None:
        """Takes in a filter that was not there."""

    @abstractmethod
    def _went(self, filter: Filter) -> None:
        """Takes in that a filter is there no more."""


class _Covering(_ByClass):
    """Announces the maximal filters: those that no other filter behind the link covers."""

    def __init__(self) -> None:
        super().__init__()
        self._maximal: dict[str | None, dict[Filter, None]] = {}

    def _came(self, filter: Filter) -> None:
        for class_name in {filter.class_name, None}:
            if any(other.covers(filter) for other in self._maximal.get(class_name, ())):
                return
        covered = [other for other in _within(self._maximal, filter.class_name) if filter.covers(other)]
        for other in covered:
            self._drop(other)
        self._maximal.setdefault(filter.class_name, {})[filter] = None
        self._announce(filter)

    def _went(self, filter: Filter) -> None:
        if filter not in self._maximal.get(filter.class_name, ()):
            return
        self._drop(filter)
        for other in [other for other in _within(self._classes, filter.class_name) if filter.covers(other)]:
            self._came(other)  # what it uncovers comes back

    def _drop(self, filter: Filter) -> None:
        del self._maximal[filter.class_name][filter]
        if not self._maximal[filter.class_name]:
            del self._maximal[filter.class_name]
        self._revoke(filter)


class _Merging(_ByClass):
    """Announces one filter per class: the hull of all filters of the class (*capacity* section 3.1.1).

    The witnesses of a hull are the filters that made it grow. As long as they are all there, it stands.
    """

    def __init__(self) -> None:
        super().__init__()
        self._hulls: dict[str | None, Filter] = {}
        self._witnesses: dict[str | None, set[Filter]] = {}

    def _came(self, filter: Filter) -> None:
        before = self._hulls.get(filter.class_name)
        if before is None or not before.covers(filter):
            self._witnesses.setdefault(filter.class_name, set()).add(filter)
            self._replace(filter.class_name, filter if before is None else hull(before, filter))

    def _went(self, filter: Filter) -> None:
        if filter not in self._witnesses[filter.class_name]:
            return
        del self._witnesses[filter.class_name]
        self._replace(filter.class_name, None)
        for one in self._classes.get(filter.class_name, ()):
            self._came(one)

    def _replace(self, class_name: str | None, new: Filter | None) -> None:
        before = self._hulls.pop(class_name, None)
        if before is not None:
            self._revoke(before)
        if new is not None:
            self._hulls[class_name] = new
            self._announce(new)


class _MergingExact(_ByClass):
    """Announces filters that together match exactly the same events: merged in pairs wherever that is exact.

    Which pairs are merged depends on the order in which the filters came, and the result need not be the smallest
    possible, which would be a hard problem. The witnesses are the filters that were not covered by what was announced
    when they came. When one of them goes, the filters of its class are merged anew, in the order of their written form.
    """

    def __init__(self) -> None:
        super().__init__()
        self._merged: dict[str | None, list[Filter]] = {}
        self._witnesses: dict[str | None, set[Filter]] = {}

    def _came(self, filter: Filter) -> None:
        name = filter.class_name
        if any(one.covers(filter) for own in {name, None} for one in self._merged.get(own, ())):
            return
        self._witnesses.setdefault(name, set()).add(filter)
        done = self._merged.setdefault(name, [])
        merged, at = filter, 0
        while at < len(done):
            both = merge(done[at], merged)
            if both is None:
                at += 1
            else:
                self._revoke(done.pop(at))
                merged, at = both, 0
        done.append(merged)
        self._announce(merged)
        if name is None:
            self._drop_covered(merged)

    def _went(self, filter: Filter) -> None:
        name = filter.class_name
        if filter not in self._witnesses.get(name, ()):
            return
        # Filters for any class may have covered those of every class, so that all of them are merged anew.
        names = [name] if name is not None else [None, *sorted(own for own in self._classes if own is not None)]
        for own in names:
            self._witnesses.pop(own, None)
            for one in self._merged.pop(own, ()):
                self._revoke(one)
        for own in names:
            for one in sorted(self._classes.get(own, ()), key=str):
                self._came(one)

    def _drop_covered(self, wide: Filter) -> None:
        for name, filters in self._merged.items():
            if name is not None:
                for one in [one for one in filters if wide.covers(one)]:
                    filters.remove(one)
                    self._revoke(one)


def _put(counts: dict[_Key, int], key: _Key) -> bool:
    """Counts one more; whether it is the first."""
    number = counts.get(key, 0) + 1
    counts[key] = number
    return number == 1


def _take(counts: dict[_Key, int], key: _Key) -> bool:
    """Counts one less; whether it was the last."""
    number = counts[key] - 1
    if number:
        counts[key] = number
        return False
    del counts[key]
    return True


def _within(classes: Mapping[str | None, Mapping[Filter, object]], class_name: str | None) -> Iterator[Filter]:
    """The filters that one of this class could cover."""
    if class_name is not None:
        yield from classes.get(class_name, ())
        return
    for filters in classes.values():
        yield from filters


DIGESTS: Final[dict[str, type[Digest]]] = {
    "simple": _Simple,
    "identity": _Identity,
    "identity-exact": _IdentityExact,
    "covering": _Covering,
    "merging": _Merging,
    "merging-exact": _MergingExact,
}
"""The digest of each algorithm; flooding has none."""

_OWN: Final = frozenset({"flooding", *DIGESTS})


def register_digest(algorithm: str, digest: type[Digest]) -> None:
    """Adds a routing algorithm: what it tells a neighbour of the filters behind a link.

    The digest must announce filters that together match at least the events that the filters behind it match.

    >>> class Everything(Digest):
    ...     def _add(self, filter: Filter) -> None:
    ...         if not self.announced:
    ...             self._announce(Filter())
    ...     def _remove(self, filter: Filter) -> None:
    ...         pass
    >>> register_digest("everything", Everything)
    >>> "everything" in DIGESTS
    True
    >>> unregister_digest("everything")
    """
    if algorithm in _OWN or " " in algorithm or not algorithm:
        raise ConfigurationError(f"a routing algorithm of one's own cannot be called {algorithm!r}; take another word")
    DIGESTS[algorithm] = digest


def unregister_digest(algorithm: str) -> None:
    """Takes a registered algorithm away again; for tests and for extensions that are unloaded."""
    if algorithm not in _OWN:
        DIGESTS.pop(algorithm, None)
