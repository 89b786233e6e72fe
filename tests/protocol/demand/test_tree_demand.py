"""Demand on a tree of brokers that lose sessions and are restarted, against the demand of all clients together."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from random import Random

import pytest
from tests.protocol.demand.test_summaries import EVENTS, drawn

from surecast.errors import PeerError
from surecast.protocol.demand import DemandChange, FilterHashes, JointFilter
from surecast.protocol.demand.summaries import SUMMARIES
from surecast.protocol.demand.tree_demand import (
    LOCAL,
    DemandBucket,
    DemandFrame,
    DemandHashes,
    DemandUpdate,
    TreeDemand,
)
from surecast.protocol.filters import Event, parse
from surecast.protocol.mqtt.topics import match

ALGORITHMS = [*SUMMARIES, "flooding", "mixed"]


class Tree:
    """Brokers on a random tree. Links keep the order; a session that ends loses what is on it."""

    def __init__(self, random: Random, size: int, algorithm: str, *, is_rooted: bool = False):
        self.random = random
        self.is_rooted = is_rooted
        self.parents = {f"b{n}": f"b{random.randrange(n)}" for n in range(1, size)}
        names = [f"b{n}" for n in range(size)]
        self.algorithms: dict[str, dict[str, str]] = {name: {} for name in names}
        for child, parent in self.parents.items():
            chosen = random.choice([*SUMMARIES, "flooding"]) if algorithm == "mixed" else algorithm
            self.algorithms[child][parent] = self.algorithms[parent][child] = chosen
        self.clients: dict[str, list[JointFilter]] = {name: [] for name in names}
        self.brokers = {name: self.new(name) for name in names}
        self.links: dict[tuple[str, str], deque[DemandFrame]] = {
            (a, b): deque() for a in names for b in self.algorithms[a]
        }
        self.down: set[frozenset[str]] = set()
        self.frames = 0
        for a, b in self.links:
            self.send(a, self.brokers[a].compare(b))

    def new(self, name: str) -> TreeDemand:
        parent = self.parents.get(name) if self.is_rooted else None
        return TreeDemand(0, self.algorithms[name], parent, self.is_rooted)

    def send(self, sender: str, frames: list[tuple[str, DemandFrame]]) -> None:
        for to, frame in frames:
            self.frames += 1
            if frozenset((sender, to)) not in self.down:
                self.links[sender, to].append(frame)

    def arrive(self, a: str, b: str) -> None:
        self.send(b, self.brokers[b].receive(a, self.links[a, b].popleft()))

    def change(self, name: str) -> None:
        there = self.clients[name]
        removed = [there.pop(self.random.randrange(len(there)))] if there and self.random.random() < 0.4 else []
        added = [drawn(self.random) for _ in range(self.random.choice((0, 1, 2)))]
        there += added
        self.send(name, self.brokers[name].local(added, removed))

    def cut(self, a: str, b: str) -> None:
        """Ends the session of a link."""
        self.down.add(frozenset((a, b)))
        self.links[a, b].clear()
        self.links[b, a].clear()

    def join(self, a: str, b: str) -> None:
        """Begins a new session of a link."""
        self.down.discard(frozenset((a, b)))
        for name, other in ((a, b), (b, a)):
            self.send(name, self.brokers[name].compare(other))

    def restart(self, name: str) -> None:
        """A broker loses its memory; its clients come back at once."""
        for other in self.algorithms[name]:
            self.cut(name, other)
        self.brokers[name] = self.new(name)
        self.brokers[name].local(added=self.clients[name])

    def step(self) -> None:
        name = self.random.choice(sorted(self.brokers))
        draw = self.random.random()
        busy = [link for link, frames in self.links.items() if frames]
        if draw < 0.55 and busy:
            self.arrive(*self.random.choice(busy))
        elif draw < 0.8:
            self.change(name)
        elif draw < 0.88:
            self.cut(name, self.random.choice(sorted(self.algorithms[name])))
        elif draw < 0.97 and self.down:
            self.join(*self.random.choice([sorted(link) for link in sorted(self.down, key=sorted)]))
        else:
            self.restart(name)

    def settle(self) -> None:
        for link in sorted(self.down, key=sorted):
            self.join(*sorted(link))
        for _ in range(200_000):
            busy = [link for link, frames in self.links.items() if frames]
            if not busy:
                return
            self.arrive(*self.random.choice(busy))
        raise AssertionError("comparisons do not come to rest")

    def reached(self, origin: str, event: Event) -> dict[str, int]:
        """The brokers whose clients get an event published at a broker, and its QoS there; published at QoS 2."""
        reached: dict[str, int] = {}
        ahead = [(origin, "", 2)]
        while ahead:
            name, source, qos = ahead.pop()
            broker = self.brokers[name]
            wanted = broker.table.find(event.class_name).neighbours(event.values)
            for hop, highest in wanted.items():
                if hop == LOCAL:
                    assert any(match(joint.topic, event.class_name) for joint in self.clients[name])
                    own = [joint.qos for joint in self.clients[name] if joint.matches(event)]
                    if own:
                        reached[name] = min(qos, highest, max(own))
                elif hop != source:
                    ahead.append((hop, name, min(qos, highest)))
        return reached

    def expected(self, event: Event) -> dict[str, int]:
        qos = {
            name: max((joint.qos for joint in joints if joint.matches(event)), default=-1)
            for name, joints in self.clients.items()
        }
        return {name: highest for name, highest in qos.items() if highest >= 0}

    def check(self) -> None:
        for event in self.random.sample([event for event in EVENTS if event.class_name[0] != "$"], 25):
            origin = self.random.choice(sorted(self.brokers))
            assert self.reached(origin, event) == self.expected(event)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("seed", range(8))
def test_events_reach_all_who_want_them_once_the_overlay_has_come_to_rest(algorithm: str, seed: int) -> None:
    random = Random(f"{algorithm} {seed}")
    tree = Tree(random, random.choice((2, 3, 5, 8)), algorithm)
    for _ in range(3):
        for _ in range(120):
            tree.step()
        tree.settle()
        tree.check()
        for (a, b), frames in tree.links.items():
            assert not frames
            if b in tree.brokers[a]._announced:
                assert tree.brokers[b].table.held[a].filters() == tree.brokers[a]._announced[b].filters()
        assert not any(broker.unknown for broker in tree.brokers.values())


@pytest.mark.parametrize("algorithm", SUMMARIES)
@pytest.mark.parametrize("seed", range(6))
def test_in_a_hierarchy_demand_goes_up_and_events_go_up_in_any_case(algorithm: str, seed: int) -> None:
    random = Random(f"rooted {algorithm} {seed}")
    tree = Tree(random, 7, algorithm, is_rooted=True)
    for _ in range(150):
        tree.step()
    tree.settle()
    tree.check()
    for child, parent in tree.parents.items():
        assert tree.brokers[child].table.held[parent].filters() == []


def test_a_restart_in_the_middle_of_a_chain_revokes_nothing_that_is_still_wanted() -> None:
    tree = Tree(Random(1), 2, "covering")
    tree.brokers = {name: TreeDemand(0, {}) for name in ()}
    names = ["b0", "b1", "b2"]
    tree.algorithms = {name: {} for name in names}
    for a, b in pairwise(names):
        tree.algorithms[a][b] = tree.algorithms[b][a] = "covering"
    tree.parents, tree.clients = {}, {name: [] for name in names}
    tree.brokers = {name: tree.new(name) for name in names}
    tree.links = {(a, b): deque() for a in names for b in tree.algorithms[a]}
    for a, b in tree.links:
        tree.send(a, tree.brokers[a].compare(b))
    tree.settle()
    wanted = [JointFilter(f"a/{n}", qos=1) for n in range(50)]
    tree.send("b2", tree.brokers["b2"].local(added=wanted))
    tree.settle()
    tree.restart("b1")
    tree.join("b0", "b1")
    while tree.links["b0", "b1"] or tree.links["b1", "b0"]:
        for link in (("b0", "b1"), ("b1", "b0")):
            if tree.links[link]:
                tree.arrive(*link)
    assert tree.brokers["b0"].table.held["b1"].filters() == wanted_sorted(wanted), "b1 does not know of b2 yet"
    assert tree.brokers["b1"].unknown == ("b2",)
    tree.settle()
    assert tree.brokers["b1"].table.held["b2"].filters() == wanted_sorted(wanted)
    assert tree.brokers["b1"].unknown == ()


def wanted_sorted(filters: list[JointFilter]) -> list[JointFilter]:
    return sorted(filters, key=lambda one: one.order)


def test_after_the_grace_period_what_is_not_known_is_revoked() -> None:
    b1 = TreeDemand(0, {"b0": "simple", "b2": "simple"})
    b0 = TreeDemand(0, {"b1": "simple"})
    b0.restore("b1", [JointFilter("a")])
    ((_, question),) = b0.compare("b1")
    assert b1.receive("b0", question) == []
    frames = b1.settle()
    while frames:
        answers = [frame for _, sent in frames for _, frame in b0.receive("b1", sent)]
        frames = [frame for answer in answers for frame in b1.receive("b0", answer)]
    assert b0.table.held["b1"].filters() == []


def test_a_comparison_costs_in_proportion_to_the_difference() -> None:
    a, b = TreeDemand(0, {"b": "simple"}), TreeDemand(0, {"a": "simple"})
    joints = [JointFilter(f"site/{n}") for n in range(4_000)]
    a.local(added=joints)
    b.restore("a", joints[:-3])
    filters, sums, frames = 0, 0, b.compare("a")
    sender, other = b, a
    while frames:
        for _, frame in frames:
            filters += len(frame.filters) if isinstance(frame, DemandBucket) else 0
            sums += len(frame.sums) if isinstance(frame, DemandHashes) else 0
        name = "b" if sender is b else "a"
        frames = [answer for _, frame in frames for answer in other.receive(name, frame)]
        sender, other = other, sender
    assert b.table.held["a"].filters() == wanted_sorted(joints)
    assert filters < 40
    assert sums < 300


def test_equal_demand_is_compared_by_one_hash_in_each_direction() -> None:
    a, b = TreeDemand(0, {"b": "covering"}), TreeDemand(0, {"a": "covering"})
    ((_, question),) = a.compare("b")
    ((_, answer),) = b.receive("a", question)
    assert isinstance(answer, DemandHashes)
    assert len(answer.sums) == 1
    assert a.receive("b", answer) == []


def test_what_breaks_the_rules_is_refused() -> None:
    b2 = TreeDemand(3, {"b1": "covering", "b3": "covering"}, parent="b1", is_rooted=True)
    update = DemandUpdate(3, DemandChange(added=(JointFilter("a"),)))
    with pytest.raises(PeerError, match="b1 announced demand on tree 3, over a link that carries none"):
        b2.receive("b1", update)
    with pytest.raises(PeerError, match="b3 asks for the demand on tree 3"):
        b2.receive("b3", DemandHashes(3, "held", ((0, 0, 0),)))
    with pytest.raises(PeerError, match="place 16 of level 1"):
        b2.receive("b3", DemandHashes(3, "announced", ((1, 16, 0),)))
    with pytest.raises(PeerError, match="bucket 5000"):
        b2.receive("b3", DemandBucket(3, 5000, ()))
    inside = FilterHashes()
    inside.change(added=[JointFilter("a")])
    wrong = next(n for n in range(4096) if not inside.filters(n))
    with pytest.raises(PeerError, match="do not belong into bucket"):
        b2.receive("b3", DemandBucket(3, wrong, (JointFilter("a"),)))


def test_a_broker_that_answers_too_early_is_noticed() -> None:
    """The mutation: a broker that was just started answers before it knows what is behind its other links."""

    class Hasty(TreeDemand):
        @property
        def _unknown(self) -> dict[str, None]:
            return {}

        @_unknown.setter
        def _unknown(self, value: dict[str, None]) -> None:
            pass

    def revoked(kind: type[TreeDemand]) -> bool:
        b0, b1 = TreeDemand(0, {"b1": "covering"}), kind(0, {"b0": "covering", "b2": "covering"})
        b0.restore("b1", [JointFilter("a")])
        frames, at_b1 = b0.compare("b1"), True
        while frames:
            receiver, name = (b1, "b0") if at_b1 else (b0, "b1")
            frames = [answer for to, frame in frames if to != "b2" for answer in receiver.receive(name, frame)]
            at_b1 = not at_b1
        return not b0.table.held["b1"].filters()

    assert revoked(Hasty)
    assert not revoked(TreeDemand)


def test_events_carry_all_attributes_where_filters_farther_on_are_not_known() -> None:
    below = TreeDemand(0, {"root": "covering", "child": "covering"}, parent="root", is_rooted=True)
    assert below.table.names is None, "the root may know a filter that names anything"
    beside = TreeDemand(0, {"b1": "covering"})
    assert beside.table.names == ()
    beside.receive("b1", DemandUpdate(0, DemandChange(added=(JointFilter("stock", parse("price > 35")),))))
    assert beside.table.names == ("price",)
    assert beside.table.has_all(("price", "volume"))
    assert not beside.table.has_all(("volume",))
