"""The demand that a node knows, on all trees, and its ways: over links, around failures, to disk.

Demand is refreshed link by link (comparisons of hashes at every link-up and every R) or from end to end (each home
broker sends its subscriptions along the whole tree again every R), as the plan has it for each tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any

from surecast.errors import PeerError
from surecast.protocol.demand import (
    LOCAL,
    DemandFrame,
    DemandTable,
    JointFilter,
    MemberTable,
    SharedDemand,
    Subscription,
    SubscriptionKey,
    SubscriptionRecord,
    Subscriptions,
    TopicDemand,
    TreeDemand,
    around,
)
from surecast.protocol.link import CONTROL
from surecast.protocol.mqtt.topics import parse_shared
from surecast.protocol.overlay.node_accounts import NodeAccounts
from surecast.protocol.overlay.node_links import NodeLinks, NodeSettings
from surecast.protocol.overlay.overlay_frames import Detoured
from surecast.protocol.overlay.overlay_plan import MEMBERS, TREES_MAX, OverlayPlan, scheme_parts
from surecast.protocol.overlay.overlay_view import OverlayView

__all__ = ["DISK_KINDS", "NodeDemand"]

DISK_KINDS = frozenset({"demand", "subscription", "retained", "horizon", "home", "home-horizon"})
"""The kinds of records on disk that are about demand or maps; the kind is the first part of a key."""

_ADVERTS_BY = "covering"
"""The algorithm by which advertisements are announced, on every link."""


class NodeDemand:
    """The demand of all trees at one node. `overfull` has the neighbours that take none of it for too long."""

    def __init__(
        self,
        name: str,
        plan: OverlayPlan,
        incarnation: int,
        settings: NodeSettings,
        links: NodeLinks,
        view: OverlayView,
        accounts: NodeAccounts,
        journal: list[tuple[tuple[Any, ...], Any]],
    ):
        self.name = name
        self.overfull: dict[str, None] = {}
        self._plan = plan
        self._settings = settings
        self._links = links
        self._view = view
        self._accounts = accounts
        self._journal = journal
        self._parts = tuple(scheme_parts(tree.scheme) for tree in plan.trees)
        self._trees: dict[int, TreeDemand] = {}
        self._subscriptions: dict[int, Subscriptions] = {}
        for number, tree in enumerate(plan.trees):
            if tree.refresh == "end-to-end":
                self._subscriptions[number] = self._make_subscriptions(number, incarnation)
            else:
                self._trees[number] = TreeDemand(number, *self._shape(number), is_advertised=tree.advertisements)
        self._adverts = {
            number: TreeDemand(number + TREES_MAX, dict.fromkeys(plan.tree_neighbours(number, name), _ADVERTS_BY))
            for number, tree in enumerate(plan.trees)
            if tree.advertisements
        }
        """Advertisements behind each link, on trees that have them: they travel as demand does, to all."""
        self._members: dict[int, TreeDemand] = {}
        """The members of shared subscriptions on each tree where there are any; they are known everywhere."""
        self._member_tables: dict[int, MemberTable] = {}
        self._has_settled = False
        self._nearer = tuple(plan.ancestors(number, name) for number in range(len(plan.trees)))
        self._tables = {number: demand.table for number, demand in self._trees.items()}
        self._arounds: dict[tuple[int, str, str], str] = {}

    def find(self, tree: int, topic: str, now: float) -> TopicDemand:
        """Returns who wants events of a topic."""
        table = self._tables.get(tree)
        if table is not None:
            return table.find(topic)
        self._subscriptions[tree].expire(now)
        self._keep(tree)
        return self._subscriptions[tree].table.find(topic)

    def has_members(self, tree: int) -> bool:
        """Returns whether there are shared subscriptions on a tree."""
        return tree in self._members

    def members(self) -> list[JointFilter]:
        """Returns the members of shared subscriptions that are known, here and elsewhere, sorted."""
        known = {joint: None for table in self._member_tables.values() for joint in table.members()}
        return sorted(known, key=lambda joint: joint.order)

    def shared(self, tree: int, topic: str) -> list[SharedDemand]:
        """Returns the shared subscriptions that want events of a topic."""
        members = self._member_tables.get(tree)
        return members.shared(topic) if members is not None else []

    def shared_by(self, tree: int, key: str) -> SharedDemand | None:
        """Returns a shared subscription by its filter as clients write it; None where nobody is known to be one of its
        members."""
        parsed, members = parse_shared(key), self._member_tables.get(tree)
        return members.get(*parsed) if parsed is not None and members is not None else None

    def takers(self, tree: int, topic: str) -> Mapping[str, int] | None:
        """Returns the neighbours to which events of a topic may go; None where that may be any of the tree."""
        wanted = self._trees[tree].table.find(topic) if tree in self._trees else None
        return None if wanted is None or wanted.conditional else wanted.always

    def wanted_by(self, neighbour: str, tree: int) -> list[JointFilter]:
        """Returns what a neighbour has announced on a tree, sorted."""
        return self._table(tree).held[neighbour].filters()

    def sums(self, neighbour: str, tree: int) -> tuple[int, int | None]:
        """Returns sums of hashes over what a neighbour has announced on a tree, and over what was announced to it."""
        demand = self._trees.get(tree) or self._subscriptions[tree]
        return demand.table.held[neighbour].root[2], demand.announced_sum(neighbour)

    def entries(self, neighbour: str, tree: int) -> int:
        """Returns how many filters a neighbour has announced on a tree."""
        held = self._table(tree).held.get(neighbour)
        return 0 if held is None else held.size

    @property
    def remote_entries(self) -> int:
        """The filters that neighbours have announced, over all trees."""
        tables = [demand.table for demand in self._trees.values()]
        tables += [subscriptions.table for subscriptions in self._subscriptions.values()]
        return sum(table.size - table.held[LOCAL].size for table in tables)

    def attributes(self, tree: int) -> tuple[str, ...] | None:
        """Returns the names of attributes that some filter on a tree asks for; None where others may farther on."""
        names = self._table(tree).names
        members = self._member_tables.get(tree)
        if names is None or members is None or members.has_all(names):
            return names
        return tuple(sorted({*names, *members.attributes}))

    def has_all(self, tree: int, names: tuple[str, ...]) -> bool:
        """Returns whether the filters on a tree name no other attributes than these."""
        return self._table(tree).has_all(names)

    def change(self, added: Iterable[JointFilter], removed: Iterable[JointFilter]) -> None:
        """Takes in a change of what the broker's own clients want."""
        wanted = (tuple(added), tuple(removed))
        if len(self._plan.trees) == 1 and self._trees:
            self._tell(0, self._trees[0].local(*wanted))
            return
        for number in range(len(self._plan.trees)):
            mine = [[joint for joint in joints if number in self._plan.trees_for(joint.topic)] for joints in wanted]
            if number in self._trees:
                self._tell(number, self._trees[number].local(*mine))
            else:
                self._spread(number, self._subscriptions[number].local(*mine))

    def change_members(self, added: Sequence[JointFilter], removed: Sequence[JointFilter]) -> None:
        """Takes in a change of the members that shared subscriptions have among the broker's own clients."""
        for number in range(len(self._plan.trees)):
            mine = [
                [joint for joint in each if number in self._plan.trees_for(joint.topic)] for each in (added, removed)
            ]
            if any(mine):
                self._tell_members(number, self._members_of(number).local(*mine))

    def advertise(self, added: Iterable[JointFilter], removed: Iterable[JointFilter]) -> None:
        """Takes in a change of what the broker's own clients will publish."""
        changes = (tuple(added), tuple(removed))
        for number, adverts in self._adverts.items():
            mine = [[joint for joint in joints if number in self._plan.trees_for(joint.topic)] for joints in changes]
            self._tell_adverts(number, adverts.local(*mine))

    def is_advertised(self, tree: int, topic: str) -> bool:
        """Returns whether the broker's own clients have said that they will publish to a topic, where they have to."""
        return tree not in self._adverts or LOCAL in self._adverts[tree].table.find(topic).always

    def refresh(self, joint: JointFilter) -> None:
        """Sends what the broker's own clients want again, on trees that are refreshed from end to end."""
        for number in self._plan.trees_for(joint.topic):
            if number in self._subscriptions:
                self._spread(number, self._subscriptions[number].refresh(joint))

    def refresh_all(self, now: float) -> None:
        """Compares demand with all neighbours that are up, and sends what the broker's own clients want again."""
        for neighbour in self._links.up():
            self.compare(neighbour, is_resumed=True)
        for number, hop, target in self._arounds:
            self._tell(number, self._trees[number].compare(around(hop, target), is_resumed=True))
            if number in self._members and self._members[number].is_around(around(hop, target)):
                self._tell_members(number, self._members[number].compare(around(hop, target), is_resumed=True))
        for number, subscriptions in self._subscriptions.items():
            if self._parts[number].refreshes:
                self._spread(number, subscriptions.refresh_all())
            subscriptions.expire(now)
            self._keep(number)

    def compare(self, neighbour: str, is_resumed: bool) -> None:
        """Begins to compare demand with a neighbour; `is_resumed` says that no frame of it is lost."""
        for number in self._links.trees_of(neighbour):
            if number in self._adverts:
                self._tell_adverts(number, self._adverts[number].compare(neighbour, is_resumed=is_resumed))
            if number in self._trees:
                self._tell(number, self._trees[number].compare(neighbour, is_resumed=is_resumed))
            if number in self._members:
                self.compare_members(number, neighbour, is_resumed=is_resumed)

    def compare_members(self, number: int, neighbour: str, *, is_resumed: bool) -> None:
        """Begins to compare the members of shared subscriptions; where there are none at both ends nothing is sent."""
        members = self._members[number]
        frames = members.compare(neighbour, is_resumed=is_resumed)
        is_needed = members.table.held[neighbour].size > 0  # else the other end begins if it has announced any
        self._tell_members(number, [*(frames if is_needed else ()), *members.tell(neighbour)])

    def is_compared(self, neighbour: str) -> bool:
        """Returns whether the demand of a neighbour is known on all trees whose demand is compared by link."""
        return all(demand.is_compared(neighbour) for demand in self._trees.values())

    @property
    def is_known(self) -> bool:
        """Returns whether all neighbours have told what they want since this broker was started, or the grace period is
        over."""
        planes = [*self._trees.values(), *self._members.values()]
        return self._has_settled or not (self._subscriptions or any(demand.unknown for demand in planes))

    def settle(self) -> None:
        """Ends the grace period: comparisons are answered with what is known."""
        for number, adverts in self._adverts.items():
            self._tell_adverts(number, adverts.settle())
        for number, demand in self._trees.items():
            self._tell(number, demand.settle())
        self._has_settled = True
        for number, members in self._members.items():
            self._tell_members(number, members.settle())
            for neighbour in self._links.up():
                if self._plan.joins(number, self.name, neighbour):
                    self._tell_members(number, members.tell(neighbour))

    def receive(self, neighbour: str, frame: DemandFrame | Subscription, now: float) -> None:
        """Takes in what a neighbour wants."""
        if isinstance(frame, Subscription):
            self._take(neighbour, frame, now)
        elif frame.tree in self._trees:
            self._tell(frame.tree, self._trees[frame.tree].receive(neighbour, frame))
        elif (number := frame.tree - MEMBERS) >= 0:
            self._tell_members(number, self._members_of(number).receive(neighbour, frame))
        elif (number := frame.tree - TREES_MAX) in self._adverts:
            self._tell_adverts(number, self._adverts[number].receive(neighbour, frame))
        else:
            raise PeerError(f"{neighbour} compares demand on tree {frame.tree}, which is refreshed from end to end")

    def take_detour(self, detour: Detoured, now: float) -> None:
        """Takes in what a broker wants that is reached around a failure."""
        frame = detour.frame
        if isinstance(frame, Subscription):
            self._take(detour.via, frame, now)
        elif (number := frame.tree - MEMBERS) >= 0:
            members, name = self._members_of(number), around(detour.via, detour.sender)
            if members.is_around(name):
                assert isinstance(frame, DemandFrame)
                self._tell_members(number, members.receive(name, frame))
        elif frame.tree in self._trees and self._trees[frame.tree].is_around(name := around(detour.via, detour.sender)):
            assert isinstance(frame, DemandFrame)
            self._tell(frame.tree, self._trees[frame.tree].receive(name, frame))

    def view_changed(self) -> None:
        """Asks the brokers that can be reached around neighbours that are down what they want."""
        for number, demand in self._trees.items():
            for hop in self._plan.tree_neighbours(number, self.name) if self._parts[number].detours else ():
                if not self._links.is_up(hop):
                    for path, via in self._ways_around(number, hop):
                        self._arounds[number, hop, path[-1]] = via if path[-1] != hop else self.name
                        self._tell(number, demand.begin_around(hop, path[-1]))
                        if number in self._members:
                            self._tell_members(number, self._members[number].begin_around(hop, path[-1]))

    def restore(self, records: Mapping[tuple[Any, ...], Any], now: float) -> None:
        """Takes back what was on disk."""
        demand: dict[tuple[int, str], list[JointFilter]] = {}
        known: dict[int, dict[SubscriptionKey, SubscriptionRecord]] = {}
        for key, record in records.items():
            if key[0] == "demand":
                demand.setdefault((key[1], key[2]), []).extend([key[3]] * record)
            elif key[0] == "subscription":
                known.setdefault(key[1], {})[SubscriptionKey(*key[2:])] = record
        for number, parts in enumerate(self._parts):
            if number in self._subscriptions:
                self._subscriptions[number].restore(known.get(number, {}), now)
            elif parts.custody:
                for neighbour in self._plan.tree_neighbours(number, self.name):
                    self._trees[number].restore(neighbour, demand.get((number, neighbour), ()))
            if any(plane == number + MEMBERS for plane, _ in demand):
                members = self._members_of(number)
                for neighbour in self._plan.tree_neighbours(number, self.name):
                    members.restore(neighbour, demand.get((number + MEMBERS, neighbour), ()))

    # Inside

    def _table(self, tree: int) -> DemandTable:
        return (self._trees.get(tree) or self._subscriptions[tree]).table

    def _ways_around(self, tree: int, hop: str) -> list[tuple[tuple[str, ...], str]]:
        """Returns the detours on which demand goes around a neighbour: on a tree with a root not to those who, as this
        broker, announce theirs to it."""
        ways = self._view.detours(tree, hop)
        if hop != self._plan.parent(tree, self.name):
            return ways
        return [(path, via) for path, via in ways if path[-1] in self._nearer[tree]]

    def _shape(self, tree: int) -> tuple[dict[str, str], str | None, bool]:
        plan, name = self._plan, self.name
        algorithms = {hop: plan.algorithm(tree, name, hop) for hop in plan.tree_neighbours(tree, name)}
        return algorithms, plan.parent(tree, name), plan.trees[tree].root is not None

    def _make_subscriptions(self, tree: int, incarnation: int) -> Subscriptions:
        parts = self._parts[tree]
        algorithms, parent, is_rooted = self._shape(tree)
        timeout_s = self._settings.timeout_s
        # What is on disk is there to outlive failures, and what is never refreshed cannot come in time.
        never = parts.custody or not parts.refreshes
        return Subscriptions(
            tree,
            self.name,
            incarnation,
            algorithms,
            parent=parent,
            is_rooted=is_rooted,
            timeout_s=inf if never else timeout_s,
            void_s=timeout_s,
        )

    def _members_of(self, tree: int) -> TreeDemand:
        """Returns the members of shared subscriptions on a tree; most overlays have none, and nothing is kept."""
        members = self._members.get(tree)
        if members is None:
            hops = self._plan.tree_neighbours(tree, self.name)
            table = self._member_tables[tree] = MemberTable([LOCAL, *hops])
            members = self._members[tree] = TreeDemand(tree + MEMBERS, dict.fromkeys(hops, "simple"), table=table)
            if self._has_settled:
                members.settle()
            for number, hop, target in self._arounds:
                if number == tree:
                    self._tell_members(tree, members.begin_around(hop, target))
        return members

    def _tell(self, tree: int, frames: list[tuple[str, DemandFrame]]) -> None:
        """Sends demand; what is for a neighbour whose session has ended is left to the comparison when it is back."""
        self._send(tree, self._trees[tree], frames)

    def _tell_members(self, tree: int, frames: list[tuple[str, DemandFrame]]) -> None:
        """Sends members of shared subscriptions, in the same way."""
        self._send(tree, self._members[tree], frames)

    def _send(self, tree: int, demand: TreeDemand, frames: list[tuple[str, DemandFrame]]) -> None:
        if self._parts[tree].custody:
            for source, change in demand.changed:
                for joint in dict.fromkeys([*change.removed, *change.added]) if source in self._links.sessions else ():
                    count = demand.table.held[source].count(joint)
                    self._journal.append((("demand", demand.tree, source, joint), count or None))
        demand.changed.clear()
        for to, frame in frames:
            hop, _, target = to.partition("\0")
            if target:
                self._tell_around(tree, hop, target, frame)
            elif self._links.put_control(to, frame):
                self.overfull[to] = None

    def _tell_adverts(self, tree: int, frames: list[tuple[str, DemandFrame]]) -> None:
        """Sends advertisements, and the demand that they meet or meet no more."""
        adverts, demand = self._adverts[tree], self._trees[tree]
        self._put(frames)
        for source, change in adverts.changed:
            self._tell(tree, demand.advertised(source, change))
        adverts.changed.clear()
        for hop in self._plan.tree_neighbours(tree, self.name):
            if hop not in adverts.unknown:
                self._tell(tree, demand.advertised_all(hop))

    def _put(self, frames: list[tuple[str, DemandFrame]]) -> None:
        for to, frame in frames:
            if self._links.put_control(to, frame):
                self.overfull[to] = None

    def _tell_around(self, tree: int, hop: str, target: str, frame: DemandFrame) -> None:
        """Sends demand around a neighbour that is down; what is lost is repaired by the next comparison."""
        path, via = self._view.path_to(target), self._arounds.get((tree, hop, target))
        if path and via is not None and self._links.is_up(path[0]):
            self._links.put(path[0], CONTROL, Detoured(self.name, path[1:], via, frame))

    def _take(self, source: str, frame: Subscription, now: float) -> None:
        if frame.tree not in self._subscriptions:
            raise PeerError(f"{source} sent a subscription on tree {frame.tree}, whose demand is compared by link")
        self._spread(frame.tree, self._subscriptions[frame.tree].receive(source, frame, now))

    def _spread(self, tree: int, frames: list[tuple[str, Subscription]]) -> None:
        """Sends subscriptions on along a tree, around what is down where the scheme has detours; else they are lost."""
        self._keep(tree)
        for hop, frame in frames:
            if self._links.is_up(hop):
                if self._links.put_control(hop, frame):
                    self.overfull[hop] = None
                continue
            if not self._parts[tree].detours:
                self._accounts.subscriptions_lost += 1
                continue
            for path, via in self._ways_around(tree, hop):
                if self._links.is_up(path[0]):
                    self._links.put(path[0], CONTROL, Detoured(self.name, path[1:], via, frame))

    def _keep(self, tree: int) -> None:
        """Has the subscriptions that changed on disk, where events wait there for whom they are about."""
        changed = self._subscriptions[tree].changed
        if changed and self._parts[tree].custody:
            self._journal += [(("subscription", tree, *key), record) for key, record in changed.items()]
        changed.clear()
