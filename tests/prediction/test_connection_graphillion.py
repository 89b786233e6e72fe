"""The exact connection probability against graphillion, a decision-diagram library, where only links fail."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
import pytest

from surecast.prediction import connection_probability

graphillion = pytest.importorskip("graphillion")


@pytest.mark.parametrize(("brokers", "links", "seed"), [(6, 9, 1), (8, 14, 2), (12, 20, 3), (16, 26, 6)])
def test_equal_to_the_decision_diagram(brokers: int, links: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = nx.gnm_random_graph(brokers, links, seed=seed)
    for a, b in itertools.pairwise(range(brokers)):
        graph.add_edge(a, b)
    for i, (a, b) in enumerate(graph.edges):
        graph.edges[a, b]["link"] = i
    link_up = rng.uniform(0.3, 0.99, graph.number_of_edges())
    edges = [(min(a, b), max(a, b)) for a, b in graph.edges]
    graphillion.GraphSet.set_universe(edges)
    joined = graphillion.GraphSet({}).supergraphs(graphillion.GraphSet.paths(0, brokers - 1))
    expected = joined.probability({edge: float(link_up[graph.edges[edge]["link"]]) for edge in edges})
    found = connection_probability(graph, np.ones(brokers), link_up, 0, brokers - 1)
    assert found == pytest.approx(expected, rel=1e-9)
