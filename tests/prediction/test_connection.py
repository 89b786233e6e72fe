"""Connection probabilities against enumeration of all states, closed forms and each other."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
import pytest
from tests.seeds import seeds

from surecast.prediction import connection_probability, disjoint_path_bound
from surecast.prediction.reliability import ConnectionSolver, disjoint_paths, sample_connections


def numbered(graph: nx.Graph) -> nx.Graph:
    nx.set_edge_attributes(graph, {edge: i for i, edge in enumerate(graph.edges)}, "link")
    return graph


def enumerated(graph: nx.Graph, broker_up: list[float], link_up: list[float], s: int, t: int) -> float:
    """Sums over all states of all brokers and links."""
    brokers, links = list(graph), list(graph.edges)
    total = 0.0
    for state in itertools.product([False, True], repeat=len(brokers) + len(links)):
        up = {v for v, is_up in zip(brokers, state, strict=False) if is_up}
        if s not in up or t not in up:
            continue
        rest = state[len(brokers) :]
        alive = nx.Graph()
        alive.add_nodes_from(up)
        alive.add_edges_from(e for e, is_up in zip(links, rest, strict=True) if is_up and up.issuperset(e))
        if nx.has_path(alive, s, t):
            ups = [broker_up[v] for v in brokers] + [link_up[graph.edges[e]["link"]] for e in links]
            total += float(np.prod([a if is_up else 1 - a for a, is_up in zip(ups, state, strict=True)]))
    return total


@pytest.mark.parametrize("seed", seeds(6, range(12)))
def test_small_graphs_against_all_states(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4, 7))
    m = int(rng.integers(n - 1, min(n * (n - 1) // 2, 13 - n) + 1))
    graph = numbered(nx.gnm_random_graph(n, m, seed=seed))
    broker_up, link_up = rng.uniform(0.3, 1.0, n).tolist(), rng.uniform(0.3, 1.0, m).tolist()
    kind = seed % 3
    if kind == 1:
        broker_up = [1.0] * n
    elif kind == 2:
        link_up = [1.0] * m
    exact = enumerated(graph, broker_up, link_up, 0, n - 1)
    assert connection_probability(graph, broker_up, link_up, 0, n - 1) == pytest.approx(exact, abs=1e-12)
    # reliability Eq. 12: a lower bound
    assert disjoint_path_bound(graph, broker_up, link_up, 0, n - 1) <= exact + 1e-12


def test_series_parallel_and_bridge() -> None:
    path = numbered(nx.path_graph(4))
    assert connection_probability(path, [0.9, 0.8, 0.7, 0.6], [0.5, 0.4, 0.3], 0, 3) == pytest.approx(
        0.9 * 0.8 * 0.7 * 0.6 * 0.5 * 0.4 * 0.3
    )
    ring = numbered(nx.cycle_graph(4))
    up = 0.9 * 0.9 * (1 - (1 - 0.9 * 0.8**2) ** 2)
    assert connection_probability(ring, [0.9] * 4, [0.8] * 4, 0, 2) == pytest.approx(up)
    bridge = numbered(nx.Graph([(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)]))
    p, q = 0.8, 0.2
    closed = p * (1 - q**2) ** 2 + q * (1 - (1 - p**2) ** 2)
    assert connection_probability(bridge, [1.0] * 4, [p] * 5, 0, 3) == pytest.approx(closed)


def test_the_same_broker_and_no_way_at_all() -> None:
    graph = numbered(nx.Graph([(0, 1), (2, 3)]))
    assert connection_probability(graph, [0.9] * 4, [0.5] * 2, 0, 0) == 0.9
    assert connection_probability(graph, [0.9] * 4, [0.5] * 2, 0, 3) == 0.0
    assert disjoint_path_bound(graph, [0.9] * 4, [0.5] * 2, 0, 0) == 0.9
    assert disjoint_path_bound(graph, [0.9] * 4, [0.5] * 2, 0, 3) == 0.0


def test_pairs_share_what_their_blocks_have_in_common() -> None:
    """Two rings joined at a broker, and a tail: a pair's probability is a product over the blocks between."""
    graph = numbered(nx.Graph([(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 2), (4, 5)]))
    rng = np.random.default_rng(3)
    broker_up, link_up = rng.uniform(0.5, 0.9, 6).tolist(), rng.uniform(0.5, 0.9, 7).tolist()
    solver = ConnectionSolver(graph, broker_up, link_up)
    for s, t in itertools.combinations(range(6), 2):
        assert solver.probability(s, t) == pytest.approx(enumerated(graph, broker_up, link_up, s, t), abs=1e-12)
        assert solver.probability(t, s) == pytest.approx(solver.probability(s, t), rel=1e-12)


def test_a_sparse_overlay_of_thirty_brokers_and_sixty_links() -> None:
    graph = numbered(nx.gnm_random_graph(30, 60, seed=5))
    rng = np.random.default_rng(1)
    broker_up, link_up = rng.uniform(0.9, 0.95, 30), np.full(60, 0.99)
    exact = connection_probability(graph, broker_up.tolist(), link_up.tolist(), 0, 29)
    ends = np.array(list(graph.edges))
    value, low, high = sample_connections(broker_up, ends, link_up, np.array([[0, 29]]), 200_000, 4)
    assert exact is not None
    assert low[0] - 1e-4 <= exact <= high[0] + 1e-4
    assert value[0] == pytest.approx(exact, abs=3e-4)
    # the order of the sweep does not matter
    names = dict(enumerate(np.random.default_rng(2).permutation(30).tolist()))
    shuffled = nx.relabel_nodes(graph, names)
    up = {names[v]: broker_up[v] for v in range(30)}
    again = connection_probability(shuffled, up, link_up.tolist(), names[29], names[0])
    assert again == pytest.approx(exact, abs=1e-12)


def test_too_many_states_are_refused() -> None:
    graph = numbered(nx.complete_graph(8))
    assert connection_probability(graph, [0.9] * 8, [0.9] * 28, 0, 7, states_max=50) is None
    exact = connection_probability(graph, [0.9] * 8, [0.9] * 28, 0, 7)
    assert exact == pytest.approx(0.81, abs=1e-5)
    wide = numbered(nx.complete_graph(20))
    assert connection_probability(wide, [0.9] * 20, [0.9] * 190, 0, 19) is None


def test_samples_of_all_pairs_at_once() -> None:
    graph = numbered(nx.Graph([(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)]))
    broker_up, link_up = np.array([0.9, 0.7, 0.8, 0.6]), np.array([0.5, 0.9, 0.8, 0.7, 0.6])
    pairs = np.array([(a, b) for a in range(4) for b in range(a, 4)])
    value, low, high = sample_connections(broker_up, np.array(list(graph.edges)), link_up, pairs, 60_000, 8)
    exact = [connection_probability(graph, broker_up.tolist(), link_up.tolist(), *pair) for pair in pairs.tolist()]
    assert (low <= value).all()
    assert (value <= high).all()
    assert value == pytest.approx(np.array(exact), abs=0.01)
    assert np.mean((low <= exact) & (exact <= high)) >= 0.8


def test_paths_come_from_a_maximum_flow() -> None:
    """A shortest path taken first would block both of two disjoint ones."""
    graph = numbered(nx.Graph([(0, 1), (1, 4), (4, 5), (0, 3), (3, 4), (1, 2), (2, 5)]))
    paths = disjoint_paths(graph, [0.9] * 6, [0.9] * 7, 0, 5)
    assert sorted(paths) == [[0, 1, 2, 5], [0, 3, 4, 5]]
    adjacent = numbered(nx.Graph([(0, 1), (0, 2), (2, 1)]))
    assert sorted(disjoint_paths(adjacent, [0.9] * 3, [0.9] * 3, 0, 1)) == [[0, 1], [0, 2, 1]]
    # reliability Eq. 12 is exact where the disjoint paths are the whole graph
    assert disjoint_path_bound(adjacent, [0.9] * 3, [0.8] * 3, 0, 1) == pytest.approx(
        connection_probability(adjacent, [0.9] * 3, [0.8] * 3, 0, 1)
    )
