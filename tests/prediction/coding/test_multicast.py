"""Ranks where paths share links: flows against a library's, and draws against the sum over all losses."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
import pytest
from scipy.stats import binom

from surecast.prediction.coding.multicast import CodedLink, Way, sample_ranks


@pytest.mark.parametrize("seed", range(5))
def test_flows_are_those_of_networkx(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ends = [(a, b) for a, b in itertools.permutations(range(6), 2) if rng.random() < 0.45]
    links = [CodedLink(a, b, int(rng.integers(0, 12)), 0.0) for a, b in ends]
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(6))
    graph.add_edges_from((k.a, k.b, {"capacity": k.sent}) for k in links)
    ways = [Way(broker, tuple(range(len(links)))) for broker in range(1, 6)]
    found = sample_ranks(0, 1000, links, ways, samples=2, seed=1)
    expected = [nx.maximum_flow_value(graph, 0, broker) for broker in range(1, 6)]
    assert found.tolist() == [expected, expected]


def test_two_paths_with_a_common_link_against_all_losses() -> None:
    """0 - 1 is common to the paths over 2 and 3 to 4; five links of two to four packets, all counts summed over."""
    links = [
        CodedLink(0, 1, 4, 0.2),
        CodedLink(1, 2, 2, 0.1),
        CodedLink(1, 3, 2, 0.3),
        CodedLink(2, 4, 2, 0.25),
        CodedLink(3, 4, 2, 0.15),
    ]
    expected = np.zeros(5)
    for through in itertools.product(*(range(link.sent + 1) for link in links)):
        chance = np.prod([binom.pmf(k, link.sent, 1 - link.loss) for k, link in zip(through, links, strict=True)])
        rank = min(through[0], min(through[1], through[3]) + min(through[2], through[4]))
        expected[rank] += chance
    samples = 40_000
    drawn = sample_ranks(0, 4, links, [Way(4, (0, 1, 2, 3, 4))], samples, seed=3)[:, 0]
    shares = np.bincount(drawn, minlength=5) / samples
    assert np.all(np.abs(shares - expected) <= 4 * np.sqrt(expected * (1 - expected) / samples) + 1e-9)


def test_what_brokers_have_in_common_is_common() -> None:
    links = [CodedLink(0, 1, 10, 0.5), CodedLink(1, 2, 10, 0.0)]
    drawn = sample_ranks(0, 10, links, [Way(1, (0,)), Way(2, (0, 1)), Way(0, ())], 500, seed=2)
    assert np.array_equal(drawn[:, 0], drawn[:, 1])
    assert np.all(drawn[:, 2] == 10)
