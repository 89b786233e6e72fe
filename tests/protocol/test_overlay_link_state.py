"""Link-state flooding: whatever happens, brokers that can reach each other come to agree on who they can reach."""

from __future__ import annotations

from collections import deque
from random import Random

import networkx as nx
import pytest

from surecast.protocol.overlay import LinkState, LinkStateView, OverlayMap, Send


class Flood:
    """Views joined by links that deliver in random order; each change is noticed by whoever is there to notice it."""

    def __init__(self, graph: nx.Graph[str], random: Random):
        self.overlay = OverlayMap(graph.edges, {}, graph.nodes)
        self.views = {name: LinkStateView(name, self.overlay) for name in graph}
        self.graph = graph
        self.down_brokers: set[str] = set()
        self.down_links: set[frozenset[str]] = set()
        self.queue: deque[tuple[str, Send]] = deque()
        self.random = random

    def truth(self) -> nx.Graph[str]:
        up: nx.Graph[str] = nx.Graph()
        up.add_nodes_from(name for name in self.graph if name not in self.down_brokers)
        up.add_edges_from(
            (a, b) for a, b in self.graph.edges if a in up and b in up and frozenset((a, b)) not in self.down_links
        )
        return up

    def toggle_link(self, a: str, b: str) -> None:
        pair = frozenset((a, b))
        self.down_links ^= {pair}
        if not {a, b} & self.down_brokers:
            self._report(a, b, pair not in self.down_links)
            self._report(b, a, pair not in self.down_links)

    def toggle_broker(self, name: str) -> None:
        self.down_brokers ^= {name}
        up = name not in self.down_brokers
        if up:
            self.views[name] = LinkStateView(name, self.overlay, all_up=False)
        for other in self.graph[name]:
            if other not in self.down_brokers and frozenset((name, other)) not in self.down_links:
                self._report(other, name, up)
                if up:
                    self._report(name, other, True)

    def _report(self, name: str, neighbour: str, up: bool) -> None:
        self.queue.extend((name, send) for send in self.views[name].neighbour_changed(neighbour, up))

    def settle(self, at_most: int = 10**6) -> None:
        """Delivers messages; any two may overtake each other, some come twice."""
        for _ in range(at_most):
            if not self.queue:
                return
            self.queue.rotate(self.random.randrange(len(self.queue)))
            sender, send = self.queue.popleft()
            if self.truth().has_edge(sender, send.to):
                assert isinstance(send.message, LinkState)
                for _ in range(1 + (self.random.random() < 0.1)):
                    answer = self.views[send.to].receive(send.message, sender)
                    self.queue.extend((send.to, further) for further in answer)


@pytest.mark.parametrize("seed", range(40))
def test_views_agree_with_connectivity_once_messages_have_settled(seed: int) -> None:
    random = Random(seed)
    graph = nx.relabel_nodes(nx.gnp_random_graph(7, 0.45, seed=seed), str)
    if not graph.edges:
        pytest.skip("a graph without links has nothing to flood")
    flood = Flood(graph, random)
    for _ in range(30):
        if random.random() < 0.5:
            flood.toggle_link(*random.choice(sorted(graph.edges)))
        else:
            flood.toggle_broker(random.choice(sorted(graph)))
        # Mostly the next change comes before the last one has settled.
        flood.settle(at_most=random.choice([0, 3, 10**6]))
    flood.settle()
    truth = flood.truth()
    for name in truth:
        lengths = nx.single_source_shortest_path_length(truth, name)
        view = flood.views[name]
        found = {other: view.path_to(other) for other in graph}
        assert {other for other, path in found.items() if path is not None} == set(lengths), f"seed {seed}, {name}"
        for other, path in found.items():
            if path is not None:
                assert len(path) == lengths[other], f"seed {seed}: {name} to {other}"
                assert nx.is_path(truth, [name, *path]), f"seed {seed}: {name} to {other}"


def test_a_recovered_broker_outbids_its_announcements_from_before_the_crash() -> None:
    overlay = OverlayMap([("a", "b"), ("b", "c")], {})
    b = LinkStateView("b", overlay)
    b.receive(LinkState("a", 17, ()), "a")
    a = LinkStateView("a", overlay, all_up=False)
    first = a.neighbour_changed("b", up=True)
    assert first == [Send("b", LinkState("a", 1, ()))]
    answer = b.receive(LinkState("a", 1, ()), "a")
    assert answer == [Send("a", LinkState("a", 17, ()))], "what b knows is newer, so it says so"
    assert a.receive(LinkState("a", 17, ()), "b") == [Send("b", LinkState("a", 18, ()))]
    assert b.receive(LinkState("a", 18, ()), "a") == [Send("c", LinkState("a", 18, ()))]
