"""The demand of one tree at one broker: what each neighbour wants, and what is announced to each of them.

Changes travel as updates. At every link-up, and at every refresh, the two ends compare hashes instead of repeating all:

    holder      sends the root of what it holds from the other end
    announcer   answers with its own root and, where they differ, the sums one level below
    holder      ends if its root is equal; else it answers the sums that differ with its own, one level further below
    announcer   goes on like this, and sends the buckets that differ, whole, with its root behind them

Links keep the order of frames. So an equal root says that the holder has all that the announcer had said before it.

A broker that was just started knows nothing of what is behind its other links. It would revoke what its neighbour
rightly remembers. So it answers a comparison only when every other neighbour has told it all, or after a grace period;
until then it only adds.

While a neighbour is down, brokers behind it may be reached around it. With each of them demand is compared and updated
as if it were that neighbour, under a name of its own (`around`), until the neighbour itself has told all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from surecast.errors import PeerError
from surecast.protocol.demand.advertised_summary import AdvertisedSummary
from surecast.protocol.demand.demand_table import DemandTable
from surecast.protocol.demand.filter_hashes import DEPTH, FANOUT, FilterHashes, Sum
from surecast.protocol.demand.joint_filter import JointFilter
from surecast.protocol.demand.summaries import SUMMARIES, DemandChange, DemandSummary

__all__ = ["FLOODING", "LOCAL", "DemandBucket", "DemandFrame", "DemandHashes", "DemandUpdate", "TreeDemand", "around"]

LOCAL: Final = ""
"""The neighbour that stands for the broker's own clients. It gets all events on their topics; their filters by content
are matched where these clients are served."""

FLOODING: Final = "flooding"
"""The algorithm that announces nothing: all events go over the link."""

_AROUND: Final = "\0"
_EVERYTHING: Final = JointFilter("#", qos=2)


@dataclass(slots=True)
class DemandUpdate:
    """The demand behind the sender changes."""

    tree: int
    change: DemandChange


@dataclass(frozen=True, slots=True)
class DemandHashes:
    """Sums over what the sender announced, or over what it holds from the receiver."""

    tree: int
    side: Literal["announced", "held"]
    sums: tuple[Sum, ...]


@dataclass(frozen=True, slots=True)
class DemandBucket:
    """All that the sender announces of one bucket."""

    tree: int
    bucket: int
    filters: tuple[JointFilter, ...]


DemandFrame: TypeAlias = DemandUpdate | DemandHashes | DemandBucket
_Outgoing: TypeAlias = list[tuple[str, DemandFrame]]


class TreeDemand:
    """One tree at one broker. `parent` is set where demand is announced towards a root only. A `table` that is new may
    be given, in place of one that finds neighbours.

    >>> b1 = TreeDemand(0, {"b2": "covering"})
    >>> b2 = TreeDemand(0, {"b1": "covering", "b3": "covering"})
    >>> b1.local(added=[JointFilter("stock/#", qos=1)])
    [('b2', DemandUpdate(tree=0, change=DemandChange(removed=(), added=(JointFilter(...),))))]
    >>> [to for to, _ in b2.receive("b1", b1.local(added=[JointFilter("news/#")])[0][1])]
    ['b3']
    """

    def __init__(
        self,
        tree: int,
        algorithms: Mapping[str, str],
        parent: str | None = None,
        is_rooted: bool = False,
        *,
        is_advertised: bool = False,
        table: DemandTable | None = None,
    ):
        self.tree = tree
        always = [name for name, algorithm in algorithms.items() if algorithm == FLOODING or name == parent]
        self.table = table if table is not None else DemandTable([LOCAL, *algorithms], always, by_topic=[LOCAL])
        self.changed: list[tuple[str, DemandChange]] = []
        """The changes of the table since this list was last emptied, for a caller that keeps it on disk."""
        told = [name for name, algorithm in algorithms.items() if algorithm != FLOODING]
        self._heard = tuple(name for name in told if name != parent)
        if is_rooted:
            told = [name for name in told if name == parent]
        self._summaries: dict[str, DemandSummary | AdvertisedSummary] = {}
        for name in told:
            summary = SUMMARIES[algorithms[name]]()
            self._summaries[name] = AdvertisedSummary(summary) if is_advertised else summary
        self._silent = dict.fromkeys(told if is_advertised else ())
        """The neighbours that have not told yet what is advertised behind them: what they want is not known to them."""
        self._announced: dict[str, FilterHashes[JointFilter]] = {name: FilterHashes() for name in told}
        self._synced = dict.fromkeys(self._heard, False)
        self._unknown = dict.fromkeys(self._heard)
        self._asked: dict[str, None] = {}
        self._arounds: dict[str, str] = {}
        flooded = [name for name, algorithm in algorithms.items() if algorithm == FLOODING]
        if flooded and told:
            # What is behind a flooded link is not announced over it, so that it may be everything.
            for name in told:
                self._announce(name, (), [_EVERYTHING])

    @property
    def unknown(self) -> Sequence[str]:
        """The neighbours that have not told what they want since this broker was started."""
        return tuple(self._unknown)

    def announced_sum(self, neighbour: str) -> int | None:
        """Returns the sum of hashes over all that was announced to a neighbour; None where nothing ever is."""
        announced = self._announced.get(neighbour)
        return None if announced is None else announced.root[2]

    def is_compared(self, neighbour: str) -> bool:
        """Returns whether all is known that a neighbour wants: since it came up, or for as long as it was not lost."""
        return self._synced.get(neighbour, True)

    def local(self, added: Iterable[JointFilter] = (), removed: Iterable[JointFilter] = ()) -> _Outgoing:
        """Takes in a change of the demand of the broker's own clients; returns what to send to whom."""
        gone = tuple([joint for joint in removed if joint.content.satisfiable])
        return self._apply(LOCAL, DemandChange(gone, tuple([joint for joint in added if joint.content.satisfiable])))

    def advertised(self, neighbour: str, change: DemandChange) -> _Outgoing:
        """Takes in a change of what is advertised behind a neighbour; returns what to announce to it."""
        summary = self._summaries.get(neighbour)
        if not isinstance(summary, AdvertisedSummary):
            return []
        return self._announced_to(neighbour, summary.advertise(change.removed, change.added))

    def advertised_all(self, neighbour: str) -> _Outgoing:
        """A neighbour has told all that is advertised behind it; returns the answers that waited for that."""
        if neighbour not in self._silent:
            return []
        del self._silent[neighbour]
        return self._answer_asked()

    def compare(self, neighbour: str, is_resumed: bool = False) -> _Outgoing:
        """Begins a comparison with a neighbour, at a link-up or a refresh; `is_resumed` says that no update is lost."""
        if neighbour not in self._synced:
            # Nothing is told by who is nearer to the root, so what went around it ends as soon as it is back.
            return [] if neighbour in self._arounds else self._end_around(neighbour)
        self._synced[neighbour] = self._synced[neighbour] and is_resumed
        return [(neighbour, DemandHashes(self.tree, "held", (self.table.held[neighbour].root,)))]

    def tell(self, neighbour: str) -> _Outgoing:
        """Begins a comparison with a neighbour that may not know yet that there is something to compare."""
        announced = self._announced[neighbour]
        if not announced.size or not self._can_answer(neighbour):
            return []
        return [(neighbour, DemandHashes(self.tree, "announced", (announced.root,)))]

    def begin_around(self, hop: str, target: str) -> _Outgoing:
        """Begins a comparison with a broker that is reached around a neighbour which is down, unless one goes on."""
        name = around(hop, target)
        if name in self._arounds or (hop not in self._synced and hop not in self._announced):
            return []
        self._arounds[name] = hop
        frames: _Outgoing = []
        if hop in self._synced:
            self._synced[name] = False
            self.table.stand_for(name, hop)
            frames.append((name, DemandHashes(self.tree, "held", (self.table.held[name].root,))))
        if hop in self._announced and all(other == hop for other in self._unknown):
            # The other end may not have noticed yet that the neighbour is down: it need not ask again when it does.
            frames.append((name, DemandHashes(self.tree, "announced", (self._announced[hop].root,))))
        return frames

    def is_around(self, name: str) -> bool:
        """Returns whether demand is compared with a broker under this name."""
        return name in self._arounds

    def receive(self, neighbour: str, frame: DemandFrame) -> _Outgoing:
        """Takes in a frame of a neighbour, or of a broker around one; returns what to send to whom."""
        if isinstance(frame, DemandHashes) and frame.side == "held":
            if self._arounds.get(neighbour, neighbour) not in self._announced:
                raise PeerError(f"{neighbour} asks for the demand on tree {self.tree}, which is not announced to it")
            return self._answer(neighbour, _checked(neighbour, frame))
        if neighbour not in self._synced and neighbour in self._arounds:
            return []
        if neighbour not in self._synced:
            raise PeerError(f"{neighbour} announced demand on tree {self.tree}, over a link that carries none")
        if isinstance(frame, DemandUpdate):
            is_exact = self._synced[neighbour] and neighbour not in self._arounds  # frames around a failure can be lost
            return self._apply(neighbour, frame.change if is_exact else self._possible(neighbour, frame.change))
        if isinstance(frame, DemandBucket):
            return self._apply(neighbour, self._difference(neighbour, frame))
        return self._descend(neighbour, _checked(neighbour, frame))

    def settle(self) -> _Outgoing:
        """Ends the grace period: comparisons are answered with what is known."""
        self._unknown.clear()
        self._silent.clear()
        return self._answer_asked()

    def restore(self, neighbour: str, filters: Iterable[JointFilter]) -> None:
        """Takes over from disk what a neighbour, or a client, had announced."""
        self._apply(neighbour, DemandChange(added=tuple(filters)))
        self.changed.clear()
        self._unknown.pop(neighbour, None)

    def _apply(self, source: str, change: DemandChange) -> _Outgoing:
        """Takes in what a source wants, and passes on what follows from it."""
        if not change.removed and not change.added:
            return []
        self.table.apply(source, change)
        self.changed.append((source, change))
        frames: _Outgoing = []
        hop = self._arounds.get(source, source)
        for name in self._summaries:
            if name != hop:
                frames += self._announce(name, change.removed, change.added)
        return frames

    def _announce(self, name: str, removed: Iterable[JointFilter], added: Iterable[JointFilter]) -> _Outgoing:
        return self._announced_to(name, self._summaries[name].change(removed, added))

    def _announced_to(self, name: str, change: DemandChange | None) -> _Outgoing:
        if change is None:
            return []
        self._announced[name].change(change.removed, change.added)
        update = DemandUpdate(self.tree, change)
        return [(name, update), *((other, update) for other, hop in self._arounds.items() if hop == name)]

    def _possible(self, source: str, change: DemandChange) -> DemandChange:
        """Returns the part of a change that can be applied before a comparison has ended.

        A filter that is there is not added, and one that is not there is not removed.
        """
        held = self.table.held[source]
        removed = tuple(joint for joint in dict.fromkeys(change.removed) if held.count(joint))
        added = tuple(joint for joint in dict.fromkeys(change.added) if not held.count(joint) or joint in removed)
        return DemandChange(removed, added)

    def _difference(self, neighbour: str, frame: DemandBucket) -> DemandChange:
        """The change that makes a bucket equal to that of its announcer."""
        if not 0 <= frame.bucket < FANOUT**DEPTH:
            raise PeerError(f"{neighbour} sent bucket {frame.bucket}; there are {FANOUT**DEPTH}")
        theirs: FilterHashes[JointFilter] = FilterHashes()
        theirs.change(added=frame.filters)
        if theirs.filters(frame.bucket) != theirs.filters():
            raise PeerError(f"{neighbour} sent filters that do not belong into bucket {frame.bucket}")
        held = self.table.held[neighbour]
        both = dict.fromkeys([*frame.filters, *held.filters(frame.bucket)])
        net = {joint: theirs.count(joint) - held.count(joint) for joint in both}
        removed = tuple(joint for joint, number in net.items() for _ in range(-number))
        added = tuple(joint for joint, number in net.items() for _ in range(number))
        return DemandChange(removed, added)

    def _descend(self, neighbour: str, sums: Sequence[Sum]) -> _Outgoing:
        """The holder's side: it ends where the announcer's root is equal, and goes down where its sums differ."""
        held = self.table.held[neighbour]
        if sums[:1] == [held.root]:
            self._synced[neighbour] = True
            self._unknown.pop(neighbour, None)
            return [*self._end_around(neighbour), *self._answer_asked()]
        self._synced[neighbour] = False
        places = held.differing(sums[1:]) or [(0, 0)]
        return [(neighbour, DemandHashes(self.tree, "held", tuple(held.below(places))))]

    def _answer(self, neighbour: str, sums: Sequence[Sum]) -> _Outgoing:
        """The announcer's side: its root, with the sums below those of the holder that differ, behind whole buckets."""
        if not self._can_answer(self._arounds.get(neighbour, neighbour)):
            self._asked[neighbour] = None
            return []
        announced = self._announced[self._arounds.get(neighbour, neighbour)]
        places = announced.differing(sums)
        frames: _Outgoing = [
            (neighbour, DemandBucket(self.tree, place, tuple(announced.filters(place))))
            for level, place in places
            if level == DEPTH
        ]
        deeper = announced.below([place for place in places if place[0] < DEPTH])
        frames.append((neighbour, DemandHashes(self.tree, "announced", (announced.root, *deeper))))
        return frames

    def _can_answer(self, hop: str) -> bool:
        """Says whether it is known what is behind all other links, and what a neighbour advertises."""
        return hop not in self._silent and all(other == hop for other in self._unknown)

    def _answer_asked(self) -> _Outgoing:
        """Takes up the comparisons that had to wait."""
        frames: _Outgoing = []
        for name in list(self._asked):
            hop = self._arounds.get(name, name)
            if self._can_answer(hop):
                del self._asked[name]
                frames.append((name, DemandHashes(self.tree, "announced", (self._announced[hop].root,))))
        return frames

    def _end_around(self, hop: str) -> _Outgoing:
        """Forgets what was told around a neighbour, which has told all itself now."""
        frames: _Outgoing = []
        for name in [name for name, own in self._arounds.items() if own == hop]:
            if name in self._synced:
                frames += self._apply(name, DemandChange(removed=tuple(self.table.held[name].filters())))
                del self._synced[name]
                self.table.forget(name)
            del self._arounds[name]
            self._asked.pop(name, None)
        return frames


def around(hop: str, target: str) -> str:
    """Returns the name of a broker that is reached around a neighbour.

    >>> around("b2", "b3").split(chr(0))
    ['b2', 'b3']
    """
    return f"{hop}{_AROUND}{target}"


def _checked(neighbour: str, frame: DemandHashes) -> Sequence[Sum]:
    for level, place, _ in frame.sums:
        if not 0 <= level <= DEPTH or not 0 <= place < FANOUT**level:
            raise PeerError(f"{neighbour} sent a sum for place {place} of level {level}, which there is not")
    return list(dict.fromkeys(frame.sums))  # repetitions would be answered as often
