"""Routing by overlay nodes against an oracle that knows everything, on random trees and random histories.

The oracle evaluates every filter centrally. From the filters behind a link it also says, for each algorithm, which
entries a broker must have for a neighbour, and so which links an event and a change of demand take. Under `mixed` each
link has an algorithm of its own. With advertisements, filters travel only towards brokers whose clients may publish
what they match.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter, deque
from functools import reduce

import pytest
from tests.protocol.overlay.node_bench import NodeBench
from tests.seeds import seeds

from surecast.errors import ConfigurationError
from surecast.protocol.demand import SUMMARIES, DemandUpdate, JointFilter, joint_hull, joint_merge
from surecast.protocol.demand.advertised_summary import AdvertisedSummary
from surecast.protocol.filters import NOTHING, Event, Exists, Filter, Interval, StartsWith, equals
from surecast.protocol.link import NumberedFrame
from surecast.protocol.mqtt.topics import match
from surecast.protocol.overlay.node_links import NodeSettings, Written
from surecast.protocol.overlay.overlay_frames import Events, Frame
from surecast.protocol.overlay.overlay_node import OverlayNode
from surecast.protocol.overlay.overlay_plan import OverlayPlan, Tree

SCHEMES = ("peer-to-peer", "hierarchical")
ALGORITHMS = ("flooding", *SUMMARIES, "mixed")
MIXED = [name for name in ("flooding", *SUMMARIES) if name != "merging-exact"]
"""What exact merging announces depends on the order in which filters came, and so would all behind it."""

CASES = [(scheme, name) for name in ALGORITHMS for scheme in SCHEMES if (scheme, name) != ("hierarchical", "flooding")]
EVERYTHING = JointFilter("#", qos=2)


def some_filter(rng: random.Random) -> JointFilter:
    """Often covered, equal or adjacent to another, sometimes for several topics, rarely unsatisfiable."""
    if rng.random() < 0.03:
        return JointFilter("A", NOTHING)
    low, high = sorted([rng.randrange(6), rng.randrange(6)])
    x = ("x", Interval(low, high, low < high and rng.random() < 0.3, low < high and rng.random() < 0.3))
    y = ("y", rng.choice([Exists(), equals("a"), StartsWith("a"), equals(1)]))
    parts = [part for part, share in ((x, 0.85), (y, 0.25)) if rng.random() < share]
    topic = rng.choices(["A", "B", "#", "C/+", "C/d"], [6, 4, 1, 1, 1])[0]
    return JointFilter(topic, Filter(None, parts), rng.choices([0, 1, 2], [6, 2, 1])[0])


def some_event(rng: random.Random) -> Event:
    values: dict[str, float | str] = {"x": rng.randrange(-1, 13) / 2}
    if rng.random() < 0.6:
        values["y"] = rng.choice(["a", "ab", "b"]) if rng.random() < 0.7 else 1
    return Event(rng.choice(["A", "A", "B", "B", "C", "C/d"]), values)


def announced(algorithm: str, behind: Counter[JointFilter]) -> Counter[JointFilter]:
    """What an algorithm announces of filters, by its definition (*capacity* section 3.1.1)."""
    if algorithm == "simple":
        return Counter(behind)
    filters = set(behind)
    if algorithm == "identity-exact":
        return Counter(filters)
    topics = {joint.topic for joint in filters}
    if algorithm == "identity":
        qos = {topic: max(joint.qos for joint in filters if joint.topic == topic) for topic in topics}
        return Counter(JointFilter(topic, qos=qos[topic]) for topic in topics)
    if algorithm == "merging":
        return Counter(reduce(joint_hull, (joint for joint in filters if joint.topic == topic)) for topic in topics)
    return Counter(one for one in filters if not any(other != one and other.covers(one) for other in filters))


def meet(a: JointFilter, b: JointFilter) -> bool:
    """Whether some event is matched by both. Topics here have at most two levels."""
    topics = ("A", "B", "C", "C/d", "C/other", "other")
    is_common = any(match(a.topic, topic) and match(b.topic, topic) for topic in topics)
    return is_common and a.content.intersects(b.content)


class World:
    """A random tree of brokers. Each link keeps the order of its messages; among links any may be next."""

    def __init__(self, seed: int, scheme: str, algorithm: str, *, has_adverts: bool = False):
        self.rng = random.Random(seed)
        self.scheme, self.has_adverts = scheme, has_adverts
        self.adverts: list[tuple[str, JointFilter]] = []
        self.what = f"seed {seed}, {scheme} {algorithm}"
        size = self.rng.randrange(2, 8)
        names = [f"b{n}" for n in range(size)]
        self.parent = {names[n]: names[self.rng.randrange(n)] if n else None for n in range(size)}
        links = tuple((parent, child) for child, parent in self.parent.items() if parent is not None)
        own = random.Random(f"{seed} algorithms")
        self.algorithm = {link: own.choice(MIXED) if algorithm == "mixed" else algorithm for link in links}
        tree = Tree(
            links,
            algorithm="simple" if algorithm == "mixed" else algorithm,
            algorithms=tuple(self.algorithm.items()) if algorithm == "mixed" else (),
            root="b0" if scheme == "hierarchical" else None,
            advertisements=has_adverts,
        )
        self.plan = OverlayPlan(tuple(names), links, (tree,))
        self.nodes = {name: OverlayNode(name, self.plan, 1, NodeSettings()) for name in names}
        self.links: dict[tuple[str, str], deque[NumberedFrame[Frame]]] = {}
        self.sent: list[tuple[str, str, Frame]] = []
        self.delivered: list[tuple[str, str]] = []
        self.active: list[tuple[str, JointFilter]] = []
        for a, b in links:
            hellos = self.nodes[a].hello(b), self.nodes[b].hello(a)
            self.nodes[a].link_up(b, hellos[1], 0.0)
            self.nodes[b].link_up(a, hellos[0], 0.0)
        for name in names:
            self.flush(name)
        self.settle()
        self.sent.clear()

    def flush(self, name: str) -> None:
        """Puts what a node says on its links; what is no message of the paper is with the neighbour at once."""
        for batch in self.nodes[name].take_deliveries():
            event = Event(batch.topic, batch.attributes[0])
            if any(home == name and joint.matches(event) for home, joint in self.active):
                self.delivered.append((name, batch.topic))
        for hop in self.plan.neighbours(name):
            for written in self.nodes[name].output(hop):
                if isinstance(written, NumberedFrame):
                    self.links.setdefault((name, hop), deque()).append(written)
                    if isinstance(written.content, Events | DemandUpdate):
                        self.sent.append((name, hop, written.content))
                else:
                    self.receive(hop, name, written)

    def receive(self, name: str, sender: str, written: Written) -> None:
        self.nodes[name].receive(sender, written, 0.0)

    def step(self) -> bool:
        """Lets one message arrive; False if none is under way."""
        busy = sorted(link for link, waiting in self.links.items() if waiting)
        if not busy:
            return False
        sender, receiver = self.rng.choice(busy)
        self.receive(receiver, sender, self.links[sender, receiver].popleft())
        self.flush(receiver)
        return True

    def settle(self) -> None:
        for _ in range(20_000):
            if not self.step():
                return
        raise AssertionError(f"{self.what}: messages go round and round")

    def change(self) -> None:
        """Somebody wants something more, or no longer."""
        if self.active and self.rng.random() < 0.45:
            name, joint = self.active.pop(self.rng.randrange(len(self.active)))
            self.nodes[name].demand(removed=[joint])
        else:
            name, joint = self.rng.choice(self.plan.brokers), some_filter(self.rng)
            self.active.append((name, joint))
            self.nodes[name].demand(added=[joint])
        self.flush(name)

    def change_adverts(self) -> None:
        """Somebody will publish something more, or no longer."""
        if self.adverts and self.rng.random() < 0.4:
            name, joint = self.adverts.pop(self.rng.randrange(len(self.adverts)))
            self.nodes[name].advertise(removed=[joint])
        else:
            name, joint = self.rng.choice(self.plan.brokers), some_filter(self.rng)
            self.adverts.append((name, joint))
            self.nodes[name].advertise(added=[joint])
        self.flush(name)

    def publish(self, name: str, event: Event) -> None:
        self.nodes[name].publish(event.class_name, 1, 0.0, qos=2, attributes=(event.values,))
        self.flush(name)

    # The oracle

    def algorithm_of(self, a: str, b: str) -> str:
        return self.algorithm[a, b] if (a, b) in self.algorithm else self.algorithm[b, a]

    def is_told(self, near: str, far: str) -> bool:
        """Whether `far` announces anything to `near`."""
        is_up = self.scheme == "peer-to-peer" or self.parent[far] == near
        return is_up and self.algorithm_of(near, far) != "flooding"

    def wanted(self, near: str, far: str) -> Counter[JointFilter]:
        """Which entries `near` must have for `far`; for exact merging those of covering instead."""
        if not self.is_told(near, far):
            return Counter()
        behind = Counter(joint for name, joint in self.active if name == far and joint.satisfiable)
        for hop in self.plan.neighbours(far):
            if hop != near and self.algorithm_of(far, hop) != "flooding":
                behind += self.wanted(far, hop)
        if any(self.algorithm_of(far, hop) == "flooding" for hop in self.plan.neighbours(far)):
            behind[EVERYTHING] += 1
        if self.has_adverts:
            here = self.side(far, near)
            adverts = [advert for name, advert in self.adverts if name in here]
            behind = Counter({joint: n for joint, n in behind.items() if any(meet(joint, one) for one in adverts)})
        return announced(self.algorithm_of(near, far), behind)

    def side(self, near: str, far: str) -> set[str]:
        """The brokers that `near` reaches over `far`."""
        reached, ahead = {near}, [far]
        while ahead:
            name = ahead.pop()
            reached.add(name)
            ahead += [hop for hop in self.plan.neighbours(name) if hop not in reached]
        return reached - {near}

    def way(self, source: str, event: Event) -> Counter[tuple[str, str]]:
        """The links that an event must take."""
        taken: Counter[tuple[str, str]] = Counter()
        ahead = [(source, "")]
        while ahead:
            near, before = ahead.pop()
            for far in self.plan.neighbours(near):
                is_always = self.algorithm_of(near, far) == "flooding" or (
                    self.scheme == "hierarchical" and self.parent[near] == far
                )
                if far != before and (is_always or any(joint.matches(event) for joint in self.wanted(near, far))):
                    taken[near, far] += 1
                    ahead.append((far, near))
        return taken

    def directed(self) -> list[tuple[str, str]]:
        return [(near, far) for near in self.plan.brokers for far in self.plan.neighbours(near)]


@pytest.mark.parametrize("seed", seeds(6, range(12)))
@pytest.mark.parametrize(("scheme", "algorithm"), CASES)
def test_every_broker_gets_exactly_what_matches_and_only_the_links_needed_are_used(
    scheme: str, algorithm: str, seed: int
) -> None:
    world = World(seed, scheme, algorithm)
    for _ in range(20):
        for _ in range(world.rng.randrange(5)):
            world.change()
            for _ in range(world.rng.randrange(4)):
                world.step()
        world.settle()
        event, source = some_event(world.rng), world.rng.choice(world.plan.brokers)
        world.sent.clear()
        world.delivered.clear()
        world.publish(source, event)
        world.settle()
        due = sorted({(name, event.class_name) for name, joint in world.active if joint.matches(event)})
        assert sorted(world.delivered) == due, world.what
        taken = Counter((near, far) for near, far, _ in world.sent)
        assert taken == world.way(source, event), f"{world.what}: {event} from {source}"


@pytest.mark.parametrize("seed", seeds(6, range(12)))
@pytest.mark.parametrize(("scheme", "algorithm"), CASES)
def test_the_tables_hold_what_the_algorithm_says(scheme: str, algorithm: str, seed: int) -> None:
    """Simple: all. Covering: the maximal ones. Identity: a topic once. Merging: a hull for each topic. Exact merging:
    at most as many as there are different filters, for exactly the same events."""
    world = World(seed, scheme, algorithm)
    for _ in range(15):
        for _ in range(world.rng.randrange(1, 6)):
            world.change()
            world.step()
        world.settle()
        for near, far in world.directed():
            entries, wanted = Counter(world.nodes[near].wanted_by(far, 0)), world.wanted(near, far)
            if algorithm != "merging-exact":
                assert entries == wanted, f"{world.what}: {near} for {far}"
                continue
            assert all(any(entry.covers(one) for entry in entries) for one in wanted), world.what
            pairs = itertools.combinations(entries.elements(), 2)
            assert all(joint_merge(*pair) is None for pair in pairs), f"{world.what}: {near} for {far} could be merged"
            for event in [some_event(world.rng) for _ in range(20)]:
                assert any(e.matches(event) for e in entries) == any(w.matches(event) for w in wanted), world.what
        for name, node in world.nodes.items():
            assert node.remote_entries == sum(len(node.wanted_by(hop, 0)) for hop in world.plan.neighbours(name))


@pytest.mark.parametrize("seed", seeds(6, range(12)))
@pytest.mark.parametrize(("scheme", "algorithm"), CASES)
def test_a_change_costs_one_message_on_each_link_whose_entries_change(scheme: str, algorithm: str, seed: int) -> None:
    """capacity Eqs. 17 and 18, with the revocation and what it uncovers in one message."""
    world = World(seed, scheme, algorithm)
    for _ in range(30):
        before = {link: world.wanted(*link) for link in world.directed()}
        world.sent.clear()
        world.change()
        world.settle()
        taken = Counter((far, near) for near, far, _ in world.sent)
        assert max(taken.values(), default=0) <= 1, world.what
        if algorithm != "merging-exact":
            changed = {link for link, entries in before.items() if entries != world.wanted(*link)}
            assert set(taken) == changed, world.what
        for _, _, frame in world.sent:
            assert isinstance(frame, DemandUpdate), world.what
            assert not set(frame.change.removed) & set(frame.change.added), world.what


@pytest.mark.parametrize("seed", seeds(6, range(15)))
@pytest.mark.parametrize(("scheme", "algorithm"), CASES)
def test_with_advertisements_demand_is_announced_towards_publishers_only(
    scheme: str, algorithm: str, seed: int
) -> None:
    world = World(seed, scheme, algorithm, has_adverts=True)
    for _ in range(20):
        for _ in range(world.rng.randrange(6)):
            world.rng.choice((world.change, world.change, world.change_adverts))()
            for _ in range(world.rng.randrange(4)):
                world.step()
        world.settle()
        for near, far in world.directed():
            if algorithm != "merging-exact":
                entries = Counter(world.nodes[near].wanted_by(far, 0))
                assert entries == world.wanted(near, far), f"{world.what}: {near} for {far}"
        for source in world.plan.brokers:
            event = some_event(world.rng)
            if not any(name == source and advert.matches(event) for name, advert in world.adverts):
                continue
            world.sent.clear()
            world.delivered.clear()
            world.publish(source, event)
            world.settle()
            due = sorted({(name, event.class_name) for name, joint in world.active if joint.matches(event)})
            assert sorted(world.delivered) == due, f"{world.what}: {event} from {source}"
            if algorithm != "merging-exact":
                taken = Counter((near, far) for near, far, _ in world.sent)
                assert taken == world.way(source, event), f"{world.what}: {event} from {source}"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_broker_in_the_middle_that_is_restarted_makes_nobody_forget_what_is_advertised_and_wanted(
    scheme: str,
) -> None:
    links = (("b0", "b1"), ("b1", "b2"))
    tree = Tree(links, root="b2" if scheme == "hierarchical" else None, advertisements=True)
    bench = NodeBench(OverlayPlan(("b0", "b1", "b2"), links, (tree,)), NodeSettings(resume_s=0.0))
    source, home = ("b2", "b0") if scheme == "hierarchical" else ("b0", "b2")
    joint = JointFilter("A", Filter(None, {"x": Interval(1, 3)}))
    bench.advertise(source, JointFilter("A"))
    bench.demand(home, joint)
    assert bench.node(source).wanted_by("b1", 0) == [joint]
    bench.crash("b1")
    bench.start("b1")
    bench.join((source, "b1"))
    assert bench.node(source).wanted_by("b1", 0) == [joint], "b1 does not know yet what is behind its other link"
    bench.join((home, "b1"))
    assert bench.node(source).wanted_by("b1", 0) == [joint]
    bench.forget()
    bench.publish(source, "A", {"x": 2})
    assert [name for name, _ in bench.delivered] == [home]
    bench.advertise(source, removed=(JointFilter("A"),))
    assert bench.node(source).wanted_by("b1", 0) == []
    bench.publish(source, "A", {"x": 2})
    assert bench.node(source).accounts.unadvertised == 1


def test_advertisements_need_demand_that_is_refreshed_by_link() -> None:
    links = (("b0", "b1"),)
    with pytest.raises(ConfigurationError, match=r"trees\[0\].advertisements: they need refresh 'link'"):
        OverlayPlan(("b0", "b1"), links, (Tree(links, refresh="end-to-end", advertisements=True),))


def control_messages(seed: int, scheme: str, algorithm: str, gaps: bool) -> int:
    """How many changes of demand a history of 60 changes takes; with gaps each one settles before the next."""
    world = World(seed, scheme, algorithm)
    changes = random.Random(seed)
    for _ in range(60):
        world.rng.seed(changes.random())
        world.change()
        if gaps or changes.random() < 0.3:
            world.settle()
    world.settle()
    return sum(isinstance(frame, DemandUpdate) for _, _, frame in world.sent)


@pytest.mark.parametrize("gaps", [True, False])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("seed", seeds(6, range(8)))
def test_no_algorithm_takes_more_control_messages_than_simple(seed: int, scheme: str, gaps: bool) -> None:
    """It must hold on every history: each change reaches a broker once and leaves it once per link at most."""
    count = {name: control_messages(seed, scheme, name, gaps) for kind, name in CASES if kind == scheme}
    del count["mixed"]
    assert all(count["simple"] >= number for number in count.values()), f"seed {seed}: {count}"
    if gaps:  # a filter that equals another one is covered by it
        assert count["identity-exact"] >= count["covering"], f"seed {seed}: {count}"
    assert count.get("flooding", 0) == 0


def test_a_node_that_forgets_to_pass_a_change_on_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    summary = SUMMARIES["covering"]
    change = summary.change
    monkeypatch.setattr(summary, "change", lambda self, removed=(), added=(): change(self, (), added))
    with pytest.raises(AssertionError):
        test_the_tables_hold_what_the_algorithm_says("peer-to-peer", "covering", 1)


def test_demand_that_is_announced_whatever_is_advertised_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AdvertisedSummary, "_is_met", lambda self, joint: True)
    with pytest.raises(AssertionError):
        test_with_advertisements_demand_is_announced_towards_publishers_only("peer-to-peer", "simple", 1)
