"""Content-based routing against an oracle that knows everything, on random trees and random histories.

The oracle evaluates every subscription centrally. From the subscriptions behind a link it also says, for each
algorithm, which entries a broker must have for a neighbour, and so which links an event and a control message take.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter, deque
from functools import reduce

import pytest

from surecast.protocol.filters import NOTHING, Event, Exists, Filter, Interval, StartsWith, equals, hull, merge
from surecast.protocol.routing import ALGORITHMS, Deliver, Effect, Message, Notify, RoutingBroker, Update

CASES = [
    (scheme, algorithm)
    for algorithm in ALGORITHMS
    for scheme in ("peer-to-peer", "hierarchical")
    if (scheme, algorithm) != ("hierarchical", "flooding")
]
Subscription = tuple[str, str, Filter]
"""Broker, client, filter."""


def some_filter(rng: random.Random) -> Filter:
    """Often covered, equal or adjacent to another, sometimes for any class, rarely unsatisfiable."""
    if rng.random() < 0.03:
        return NOTHING
    low, high = sorted([rng.randrange(6), rng.randrange(6)])
    x = ("x", Interval(low, high, low < high and rng.random() < 0.3, low < high and rng.random() < 0.3))
    y = ("y", rng.choice([Exists(), equals("a"), StartsWith("a"), equals(1)]))
    parts = [part for part, share in ((x, 0.85), (y, 0.25)) if rng.random() < share]
    return Filter(rng.choices(["A", "B", None], [6, 4, 1])[0], parts)


def some_event(rng: random.Random) -> Event:
    values: dict[str, float | str] = {"x": rng.randrange(-1, 13) / 2}
    if rng.random() < 0.6:
        values["y"] = rng.choice(["a", "ab", "b"]) if rng.random() < 0.7 else 1
    return Event(rng.choice(["A", "B", "C"]), values)


class World:
    """A random tree of brokers. Each link keeps the order of its messages; among links any may be next."""

    def __init__(self, seed: int, scheme: str, algorithm: str):
        self.rng = random.Random(seed)
        self.scheme, self.algorithm = scheme, algorithm
        self.what = f"seed {seed}, {scheme} {algorithm}"
        size = self.rng.randrange(1, 8)
        self.parent = {f"b{n}": f"b{self.rng.randrange(n)}" if n else None for n in range(size)}
        self.hops: dict[str, list[str]] = {name: [] for name in self.parent}
        for child, parent in self.parent.items():
            if parent is not None:
                self.hops[child].append(parent)
                self.hops[parent].append(child)
        root_first = scheme == "hierarchical"
        self.brokers = {
            name: RoutingBroker(name, self.hops[name], scheme, algorithm, self.parent[name] if root_first else None)
            for name in self.parent
        }
        self.links: dict[tuple[str, str], deque[Message]] = {}
        self.sent: list[tuple[str, str, Message]] = []
        self.delivered: list[tuple[str, Event]] = []
        self.active: set[Subscription] = set()

    def carry_out(self, name: str, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Deliver):
                self.delivered.append((effect.client, effect.event))
            else:
                self.sent.append((name, effect.to, effect.message))
                self.links.setdefault((name, effect.to), deque()).append(effect.message)

    def step(self) -> bool:
        """Lets one message arrive; False if none is under way."""
        busy = sorted(link for link, waiting in self.links.items() if waiting)
        if not busy:
            return False
        sender, receiver = self.rng.choice(busy)
        message = self.links[sender, receiver].popleft()
        self.carry_out(receiver, self.brokers[receiver].handle(message, sender))
        return True

    def settle(self) -> None:
        for _ in range(10_000):
            if not self.step():
                return
        raise AssertionError(f"{self.what}: messages go round and round")

    def change(self) -> None:
        """Subscribes or unsubscribes somewhere."""
        if self.active and self.rng.random() < 0.45:
            gone = self.rng.choice(sorted(self.active, key=str))
            self.active.remove(gone)
            self.carry_out(gone[0], self.brokers[gone[0]].unsubscribe(*gone[1:]))
            return
        name = self.rng.choice(sorted(self.brokers))
        new = (name, f"{name}-{self.rng.randrange(3)}", some_filter(self.rng))
        self.active.add(new)
        self.carry_out(name, self.brokers[name].subscribe(*new[1:]))

    def side(self, near: str, far: str) -> set[str]:
        """The brokers that `near` reaches over `far`: T(near, far) of the paper."""
        found, waiting = {near}, [far]
        while waiting:
            name = waiting.pop()
            found.add(name)
            waiting += [hop for hop in self.hops[name] if hop not in found]
        return found - {near}

    def behind(self, near: str, far: str) -> list[Filter]:
        """The subscriptions that `near` reaches over `far`; those that match nothing do not count."""
        side = self.side(near, far)
        return [one for name, _, one in self.active if name in side and one.satisfiable]

    def wanted(self, near: str, far: str) -> Counter[Filter]:
        """Which entries `near` must have for `far` (section 3.1.1); for exact merging those of covering instead."""
        if self.algorithm == "flooding" or (self.scheme == "hierarchical" and self.parent[near] == far):
            return Counter()
        filters = self.behind(near, far)
        if self.algorithm == "simple":
            return Counter(filters)
        if self.algorithm == "identity-exact":
            return Counter(set(filters))
        classes = {one.class_name for one in filters}
        if self.algorithm == "identity":
            return Counter(Filter(name) for name in classes)
        if self.algorithm == "merging":
            return Counter(reduce(hull, (one for one in filters if one.class_name == name)) for name in classes)
        return Counter(one for one in set(filters) if not any(other != one and other.covers(one) for other in filters))

    def directed(self) -> list[tuple[str, str]]:
        return [(near, far) for near in self.hops for far in self.hops[near]]


@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize(("scheme", "algorithm"), CASES)
def test_every_subscriber_gets_exactly_what_matches_and_only_the_links_needed_are_used(
    scheme: str, algorithm: str, seed: int
) -> None:
    world = World(seed, scheme, algorithm)
    for _ in range(25):
        for _ in range(world.rng.randrange(5)):
            world.change()
            for _ in range(world.rng.randrange(4)):
                world.step()
        world.settle()
        event, source = some_event(world.rng), world.rng.choice(sorted(world.brokers))
        world.sent.clear()
        world.delivered.clear()
        world.carry_out(source, world.brokers[source].publish(event))
        world.settle()
        due = sorted({client for _, client, one in world.active if one.matches(event)})
        assert sorted(world.delivered) == [(client, event) for client in due], world.what
        taken = Counter((near, far) for near, far, _ in world.sent)
        away = [(near, far) for near, far in world.directed() if source not in world.side(near, far)]
        needed = {
            (near, far)
            for near, far in away
            if algorithm == "flooding"
            or (scheme == "hierarchical" and world.parent[near] == far)
            or any(one.matches(event) for one in world.wanted(near, far))
        }
        assert taken == Counter(needed), f"{world.what}: {event} from {source}"


@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize(("scheme", "algorithm"), CASES)
def test_the_tables_hold_what_the_algorithm_says(scheme: str, algorithm: str, seed: int) -> None:
    """Simple: all. Covering: the maximal ones. Identity: a class once. Merging: a hull per class. Exact merging: at
    most as many as there are different filters, for exactly the same events."""
    world = World(seed, scheme, algorithm)
    for _ in range(20):
        for _ in range(world.rng.randrange(1, 6)):
            world.change()
            world.step()
        world.settle()
        for near, far in world.directed():
            entries = Counter(world.brokers[near].entries_for(far))
            wanted = world.wanted(near, far)
            assert entries == Counter(world.brokers[far].announced_to(near)), world.what
            if algorithm != "merging-exact":
                assert entries == wanted, f"{world.what}: {near} for {far}"
                continue
            assert entries.total() <= len(set(world.behind(near, far))), f"{world.what}: {near} for {far}"
            assert all(any(entry.covers(one) for entry in entries) for one in wanted), world.what
            pairs = itertools.combinations(entries.elements(), 2)
            assert all(merge(*pair) is None for pair in pairs), f"{world.what}: {near} for {far} could be merged"
            for event in [some_event(world.rng) for _ in range(30)]:
                assert any(e.matches(event) for e in entries) == any(w.matches(event) for w in wanted), world.what
        for name, broker in world.brokers.items():
            assert broker.local_entries == sum(home == name for home, _, _ in world.active), world.what
            assert broker.remote_entries == sum(len(broker.entries_for(hop)) for hop in broker.neighbours), world.what


@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize(("scheme", "algorithm"), CASES)
def test_a_change_costs_one_message_on_each_link_whose_entries_change(scheme: str, algorithm: str, seed: int) -> None:
    """Eqs. 17 and 18, with the revocation and what it uncovers in one message (models, item 17)."""
    world = World(seed, scheme, algorithm)
    for _ in range(50):
        before = {link: world.wanted(*link) for link in world.directed()}
        world.sent.clear()
        world.change()
        world.settle()
        taken = Counter((far, near) for near, far, _ in world.sent)
        assert max(taken.values(), default=0) <= 1, world.what
        if algorithm != "merging-exact":
            changed = {link for link, entries in before.items() if entries != world.wanted(*link)}
            assert set(taken) == changed, world.what
        for _, _, message in world.sent:
            assert isinstance(message, Update), world.what
            assert not set(message.removed) & set(message.added), world.what


def control_messages(seed: int, scheme: str, algorithm: str, gaps: bool) -> int:
    """How many control messages a history of 60 changes takes; with gaps each one settles before the next."""
    world = World(seed, scheme, algorithm)
    changes = random.Random(seed)
    for _ in range(60):
        world.rng.seed(changes.random())
        world.change()
        if gaps or changes.random() < 0.3:
            world.settle()
    world.settle()
    return sum(not isinstance(message, Notify) for _, _, message in world.sent)


@pytest.mark.parametrize("gaps", [True, False])
@pytest.mark.parametrize("scheme", ["peer-to-peer", "hierarchical"])
@pytest.mark.parametrize("seed", range(10))
def test_no_algorithm_takes_more_control_messages_than_simple(seed: int, scheme: str, gaps: bool) -> None:
    """It must hold on every history: each change reaches a broker once and leaves it once per link at most."""
    count = {name: control_messages(seed, scheme, name, gaps) for kind, name in CASES if kind == scheme}
    assert all(count["simple"] >= number for number in count.values()), f"seed {seed}: {count}"
    if gaps:  # a subscription that equals another one is covered by it
        assert count["identity-exact"] >= count["covering"], f"seed {seed}: {count}"
    assert count.get("flooding", 0) == 0
