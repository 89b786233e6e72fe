"""The worked examples of the capacity paper, Figures 2 and 3 (section 2.3), message by message.

Five brokers: B1 in the middle, linked to B0, B2, B3 and B4. C1 subscribes to F at B2, then C2 to G at B3, where F
covers G; then C3 publishes n, which matches both, at B4. In the hierarchy B0 is the root.
"""

from __future__ import annotations

from collections import deque

import pytest

from surecast.errors import ConfigurationError, PeerError
from surecast.protocol.filters import NOTHING, Event, Filter, parse
from surecast.protocol.routing import ALGORITHMS, Deliver, Effect, Message, Notify, RoutingBroker, Send, Update

F = parse("Stock: price > 30")
G = parse("Stock: price > 35")
N = Event("Stock", {"price": 37})
EDGE = ["B0", "B2", "B3", "B4"]
PARENTS = {"B0": None, "B1": "B0", "B2": "B1", "B3": "B1", "B4": "B1"}

Hop = tuple[str, str, Message]


class Bench:
    """The five brokers, joined by links without latency."""

    def __init__(self, scheme: str, algorithm: str):
        self.brokers = {
            name: RoutingBroker(
                name,
                EDGE if name == "B1" else ["B1"],
                scheme,
                algorithm,
                PARENTS[name] if scheme == "hierarchical" else None,
            )
            for name in PARENTS
        }

    def run(self, name: str, effects: list[Effect]) -> tuple[list[Hop], list[str]]:
        """Carries out effects until nothing is left to do: what was sent, in order, and who got something."""
        sent: list[Hop] = []
        got: list[str] = []
        waiting = deque((name, effect) for effect in effects)
        while waiting:
            at, effect = waiting.popleft()
            if isinstance(effect, Deliver):
                got.append(effect.client)
                continue
            assert isinstance(effect, Send)
            sent.append((at, effect.to, effect.message))
            assert len(sent) < 1000, "messages go round and round"
            waiting.extend((effect.to, more) for more in self.brokers[effect.to].handle(effect.message, at))
        return sent, got

    def subscribe(self, name: str, client: str, one: Filter) -> list[Hop]:
        return self.run(name, self.brokers[name].subscribe(client, one))[0]

    def unsubscribe(self, name: str, client: str, one: Filter) -> list[Hop]:
        return self.run(name, self.brokers[name].unsubscribe(client, one))[0]

    def publish(self, name: str, event: Event) -> tuple[list[Hop], list[str]]:
        return self.run(name, self.brokers[name].publish(event))

    def tables(self) -> dict[str, list[tuple[str, Filter]]]:
        return {
            name: [(hop, one) for hop in broker.neighbours for one in broker.entries_for(hop)]
            for name, broker in self.brokers.items()
        }


def added(*filters: Filter) -> Update:
    return Update(added=filters)


def test_figure_2_peer_to_peer_covering_based_routing() -> None:
    bench = Bench("peer-to-peer", "covering")
    assert bench.subscribe("B2", "C1", F) == [
        ("B2", "B1", added(F)),
        ("B1", "B0", added(F)),
        ("B1", "B3", added(F)),
        ("B1", "B4", added(F)),
    ]
    # "G is not forwarded to the neighbor brokers B0 and B4, but only to B2"
    assert bench.subscribe("B3", "C2", G) == [("B3", "B1", added(G)), ("B1", "B2", added(G))]
    assert bench.tables() == {
        "B0": [("B1", F)],
        "B1": [("B2", F), ("B3", G)],
        "B2": [("B1", G)],
        "B3": [("B1", F)],
        "B4": [("B1", F)],
    }
    sent, got = bench.publish("B4", N)
    assert sent == [("B4", "B1", Notify(N)), ("B1", "B2", Notify(N)), ("B1", "B3", Notify(N))]
    assert got == ["C1", "C2"]


def test_figure_3_hierarchical_covering_based_routing() -> None:
    bench = Bench("hierarchical", "covering")
    assert bench.subscribe("B2", "C1", F) == [("B2", "B1", added(F)), ("B1", "B0", added(F))]
    assert bench.subscribe("B3", "C2", G) == [("B3", "B1", added(G))]
    assert bench.tables() == {"B0": [("B1", F)], "B1": [("B2", F), ("B3", G)], "B2": [], "B3": [], "B4": []}
    sent, got = bench.publish("B4", N)
    # "the notification n is additionally forwarded to the root broker"
    assert sent == [
        ("B4", "B1", Notify(N)),
        ("B1", "B0", Notify(N)),
        ("B1", "B2", Notify(N)),
        ("B1", "B3", Notify(N)),
    ]
    assert got == ["C1", "C2"]


def test_a_revocation_and_what_it_uncovers_travel_in_one_message() -> None:
    """Eq. 18's factor 2 (models, item 17): the revocation of F costs as many messages as F did."""
    bench = Bench("peer-to-peer", "covering")
    bench.subscribe("B2", "C1", F)
    bench.subscribe("B3", "C2", G)
    assert bench.unsubscribe("B2", "C1", F) == [
        ("B2", "B1", Update(removed=(F,))),
        ("B1", "B0", Update(removed=(F,), added=(G,))),
        ("B1", "B3", Update(removed=(F,))),
        ("B1", "B4", Update(removed=(F,), added=(G,))),
    ]
    assert bench.publish("B4", N)[1] == ["C2"]


def test_a_subscription_replaces_what_it_covers_in_one_message() -> None:
    bench = Bench("hierarchical", "covering")
    bench.subscribe("B3", "C2", G)
    assert bench.subscribe("B2", "C1", F) == [("B2", "B1", added(F)), ("B1", "B0", Update(removed=(G,), added=(F,)))]


def test_the_other_algorithms_on_the_same_scene() -> None:
    everything = parse("Stock: true")
    expected: dict[str, list[Hop]] = {
        "flooding": [],
        "simple": [("B3", "B1", added(G)), *(("B1", hop, added(G)) for hop in ("B0", "B2", "B4"))],
        "identity": [("B3", "B1", added(everything)), ("B1", "B2", added(everything))],
        "identity-exact": [("B3", "B1", added(G)), *(("B1", hop, added(G)) for hop in ("B0", "B2", "B4"))],
        "covering": [("B3", "B1", added(G)), ("B1", "B2", added(G))],
        "merging": [("B3", "B1", added(G)), ("B1", "B2", added(G))],
        "merging-exact": [("B3", "B1", added(G)), ("B1", "B2", added(G))],
    }
    assert set(expected) == set(ALGORITHMS)
    for algorithm, hops in expected.items():
        bench = Bench("peer-to-peer", algorithm)
        bench.subscribe("B2", "C1", F)
        assert bench.subscribe("B3", "C2", G) == hops, algorithm
        assert bench.publish("B4", N)[1] == ["C1", "C2"], algorithm


def test_merging_announces_the_hull_and_exact_merging_the_union() -> None:
    low, high, middle = (parse(f"Stock: price in {text}") for text in ("[1, 2]", "[3, 4]", "[2, 3]"))
    for algorithm, after_two in (("merging", ["Stock: price in [1, 4]"]), ("merging-exact", [str(low), str(high)])):
        broker = RoutingBroker("B2", ["B1"], "peer-to-peer", algorithm)
        broker.subscribe("C1", low)
        broker.subscribe("C2", high)
        assert sorted(map(str, broker.announced_to("B1"))) == after_two
        broker.subscribe("C3", middle)
        assert [str(one) for one in broker.announced_to("B1")] == ["Stock: price in [1, 4]"]
        broker.unsubscribe("C3", middle)
        assert sorted(map(str, broker.announced_to("B1"))) == after_two
        broker.unsubscribe("C1", low)
        assert broker.announced_to("B1") == [high]


def test_a_subscription_counts_once_and_one_that_is_not_there_not_at_all() -> None:
    broker = RoutingBroker("B2", ["B1"], "peer-to-peer", "simple")
    assert broker.unsubscribe("C1", F) == []
    assert len(broker.subscribe("C1", F)) == 1
    assert broker.subscribe("C1", F) == []
    assert broker.subscribe("C1", NOTHING) == []
    assert (broker.local_entries, broker.remote_entries) == (2, 0)
    assert len(broker.subscribe("C2", F)) == 1
    assert broker.announced_to("B1") == [F, F]
    assert broker.publish(N) == [Deliver("C1", N), Deliver("C2", N)]
    assert broker.unsubscribe("C1", NOTHING) == []
    assert len(broker.unsubscribe("C1", F)) == 1


def test_what_a_peer_does_wrong_is_refused_and_changes_nothing() -> None:
    broker = RoutingBroker("B1", ["B0", "B2"], "hierarchical", "covering", parent="B0")
    with pytest.raises(PeerError, match="not its neighbour"):
        broker.handle(Notify(N), "B9")
    with pytest.raises(PeerError, match="go up only"):
        broker.handle(added(F), "B0")
    with pytest.raises(PeerError, match="has not announced"):
        broker.handle(Update(removed=(F,), added=(G,)), "B2")
    with pytest.raises(PeerError, match="no event can match"):
        broker.handle(added(G, NOTHING), "B2")
    with pytest.raises(PeerError, match="stay local"):
        RoutingBroker("B1", ["B0"], "peer-to-peer", "flooding").handle(added(F), "B0")
    assert (broker.remote_entries, broker.announced_to("B0"), broker.announced_to("B2")) == (0, [], [])


@pytest.mark.parametrize(
    ("neighbours", "scheme", "algorithm", "parent", "wrong"),
    [
        (["B0"], "ring", "simple", None, "no scheme 'ring'"),
        (["B0"], "peer-to-peer", "magic", None, "no algorithm 'magic'"),
        (["B0"], "hierarchical", "flooding", "B0", "no hierarchical form"),
        (["B0"], "peer-to-peer", "simple", "B0", "leave it out"),
        (["B0"], "hierarchical", "simple", "B7", "B7 is not among"),
        (["B0", "B0"], "peer-to-peer", "simple", None, "each named once"),
        (["B1"], "peer-to-peer", "simple", None, "other brokers"),
        ([""], "peer-to-peer", "simple", None, "none empty"),
    ],
)
def test_what_cannot_be_is_refused(
    neighbours: list[str], scheme: str, algorithm: str, parent: str | None, wrong: str
) -> None:
    with pytest.raises(ConfigurationError, match=wrong):
        RoutingBroker("B1", neighbours, scheme, algorithm, parent)
