"""Plans of all kinds, how packets are divided among paths, and how plans follow failures."""

from __future__ import annotations

from itertools import pairwise, permutations

import networkx as nx
import numpy as np
import pytest
from tests.seeds import seeds

from surecast.errors import ConfigurationError
from surecast.protocol.paths import PathPlanner
from surecast.scenario import load_system
from surecast.scenario.paths import (
    PATH_KINDS,
    CapacityGraph,
    PathKind,
    Schedule,
    apportion,
    maximum_flow,
    tree_plan,
    widest_path,
)
from surecast.scenario.paths.schedule import BLOCKS_MAX, _joined

# The butterfly: source 0, sinks 5 and 6, and the narrow link from 3 to 4.
BUTTERFLY = {
    (0, 1): 1.0,
    (0, 2): 1.0,
    (1, 5): 1.0,
    (2, 6): 1.0,
    (1, 3): 1.0,
    (2, 3): 1.0,
    (3, 4): 1.0,
    (4, 5): 1.0,
    (4, 6): 1.0,
}


def random_graph(seed: int, nodes: int = 8, degree: float = 3.5) -> CapacityGraph:
    rng = np.random.default_rng(seed)
    links = [(i, int(rng.integers(0, i)), float(rng.uniform(1, 9))) for i in range(1, nodes)]
    more = [(a, b) for a in range(nodes) for b in range(a) if rng.random() < degree / nodes]
    links += [(a, b, float(rng.uniform(1, 9))) for a, b in more]
    return CapacityGraph.both_ways(links)


def test_the_butterfly_carries_two_with_coding_and_one_and_a_half_at_most_without() -> None:
    planner = PathPlanner(CapacityGraph(BUTTERFLY))
    plan = planner.plan("maximum-flow", 0, [5, 6])
    assert plan.rate_per_s == 2.0
    assert plan.coded_links() == BUTTERFLY
    schedule = Schedule.of(plan, 20)
    assert set(schedule.counts.values()) == {10}
    assert schedule.rate_per_s(planner.graph, coded=True) == 2.0
    assert schedule.rate_per_s(planner.graph, coded=False) == 1.0  # the narrow link carries all 20 packets
    (narrow,) = schedule.forwarding(3).branches
    assert narrow.is_contended
    assert narrow.count == 10
    assert narrow.blocks == ((0, 20),)
    assert not any(branch.is_contended for branch in schedule.forwarding(0).branches)


@pytest.mark.parametrize("seed", seeds(6, range(12)))
@pytest.mark.parametrize("kind", PATH_KINDS)
def test_each_sink_gets_the_rate_and_no_link_more_than_its_capacity(seed: int, kind: PathKind) -> None:
    graph = random_graph(seed)
    plan = PathPlanner(graph).plan(kind, 0, range(8))
    assert plan.sinks == tuple(range(1, 8))
    for sink in plan.sinks:
        assert sum(path.rate_per_s for path in plan.paths[sink]) == pytest.approx(plan.rate_per_s)
    for link, rate_per_s in plan.coded_links().items():
        assert rate_per_s <= graph.capacity(*link) * (1 + 1e-9)
    if kind == "maximum-flow":
        assert plan.rate_per_s == pytest.approx(min(maximum_flow(graph, 0, s).rate_per_s for s in plan.sinks))


@pytest.mark.parametrize("seed", range(6))
def test_kinds_of_paths_are_ordered_by_what_they_carry(seed: int) -> None:
    planner = PathPlanner(random_graph(seed))
    tree, single, flow = (planner.plan(kind, 0, range(8)).rate_per_s for kind in PATH_KINDS)
    assert tree <= single <= flow + 1e-9


@pytest.mark.parametrize("seed", seeds(6, range(8)))
def test_the_widest_path_is_the_best_of_all_paths(seed: int) -> None:
    graph = random_graph(seed, nodes=6)
    graph.set_node(3, 4.0)
    best = (0.0, 0)
    for size in range(5):
        for between in permutations(range(1, 5), size):
            nodes = (0, *between, 5)
            width = min(min(graph.capacity(a, b), graph.node_capacity(a)) for a, b in pairwise(nodes))
            best = max(best, (width, -len(nodes)))
    found = widest_path(graph, 0, 5)
    assert found is not None
    assert (found.rate_per_s, -len(found.nodes)) == best


@pytest.mark.parametrize("seed", seeds(6, range(8)))
@pytest.mark.parametrize("kind", ["tree", "single-path"])
def test_single_paths_form_a_tree_and_have_the_best_rate_that_they_can(seed: int, kind: PathKind) -> None:
    graph = random_graph(seed)
    plan = PathPlanner(graph).plan(kind, 0, range(8))
    into = [b for _, b in plan.coded_links()]
    assert len(into) == len(set(into)) == 7
    widest = [widest_path(graph, 0, sink) for sink in range(1, 8)]
    best = min(path.rate_per_s for path in widest if path is not None)
    assert plan.rate_per_s == best if kind == "single-path" else plan.rate_per_s <= best


@pytest.mark.parametrize("seed", seeds(6, range(10)))
@pytest.mark.parametrize("kind", PATH_KINDS)
def test_the_packets_of_each_sink_reach_it_whole(seed: int, kind: PathKind) -> None:
    """With forwarding by blocks every packet arrives; with coding the counts admit a flow of all packets."""
    plan = PathPlanner(random_graph(seed)).plan(kind, 0, range(8))
    schedule = Schedule.of(plan, 37)
    counted: nx.DiGraph[int] = nx.DiGraph()
    for (a, b), count in schedule.counts.items():
        counted.add_edge(a, b, capacity=count)
    for sink in plan.sinks:
        assert nx.maximum_flow_value(counted, 0, sink) >= 37
    held = {0: set(range(37))}
    for _ in range(8):
        for node in schedule.nodes():
            for branch in schedule.forwarding(node).branches:
                got = {index for index in held.get(node, ()) if branch.wants(index)}
                held.setdefault(branch.neighbour, set()).update(got)
    for sink in plan.sinks:
        assert held[sink] == set(range(37))


def test_blocks_are_joined_over_the_smallest_gaps_where_there_are_too_many() -> None:
    blocks = [(i * 10, i * 10 + 8) for i in range(100)] + [(1000 + i * 3, 1000 + i * 3 + 2) for i in range(20)]
    joined = _joined(blocks)
    assert len(joined) == BLOCKS_MAX
    assert joined[-1] == (1000, 1059)
    assert all(any(begin <= b and e <= end for begin, end in joined) for b, e in blocks)


def test_packets_are_divided_by_flow_with_less_than_one_packet_of_error() -> None:
    rng = np.random.default_rng(1)
    for _ in range(200):
        weights = [float(w) for w in rng.exponential(size=int(rng.integers(1, 9)))]
        total = int(rng.integers(1, 100))
        parts = apportion(total, weights)
        assert sum(parts) == total
        for part, weight in zip(parts, weights, strict=True):
            assert abs(part - total * weight / sum(weights)) < 1


def test_plans_follow_every_change_and_flows_are_kept_where_nothing_changed_for_them() -> None:
    rng = np.random.default_rng(7)
    graph = random_graph(3, nodes=10)
    planner = PathPlanner(graph)
    links = [link for link, _ in graph.links()]
    failed: set[tuple[int, int]] = set()
    asked = 0
    for step in range(150):
        a, b = links[int(rng.integers(0, len(links)))]
        if (a, b) in failed:
            planner.restore_link(a, b)
            failed.discard((a, b))
        elif rng.random() < 0.5:
            planner.fail_link(a, b)
            failed.add((a, b))
        else:
            planner.set_link(a, b, float(rng.uniform(0.5, 9)))
        if step % 40 == 20:
            planner.fail_node(9)
        if step % 40 == 30:
            planner.restore_node(9)
        sinks = [2, 5, 7, 9]
        plan = planner.plan("maximum-flow", 0, sinks)
        asked += len(sinks)
        for sink in sinks:
            fresh = maximum_flow(graph, 0, sink).rate_per_s
            assert plan.limits.get(sink, 0.0) == pytest.approx(fresh, abs=1e-9)
            assert (sink in plan.unreachable) == (fresh == 0.0)
    assert planner.flows_found < asked * 0.8


def test_a_sink_that_cannot_be_reached_does_not_hold_up_the_others() -> None:
    planner = PathPlanner(CapacityGraph({(0, 1): 2.0, (1, 2): 3.0}))
    planner.fail_link(1, 2)
    for kind in PATH_KINDS:
        plan = planner.plan(kind, 0, [1, 2])
        assert plan.unreachable == (2,)
        assert plan.rate_per_s == 2.0
    planner.restore_link(1, 2)
    assert planner.plan("maximum-flow", 0, [1, 2]).unreachable == ()


def test_a_given_tree_is_followed_and_must_be_one() -> None:
    graph = CapacityGraph.both_ways([(0, 1, 5.0), (1, 2, 3.0), (0, 2, 9.0)])
    assert tree_plan(graph, 0, [2], [(2, 1), (1, 0)]).paths[2][0].nodes == (0, 1, 2)
    with pytest.raises(ConfigurationError, match="cycle"):
        tree_plan(graph, 0, [2], [(0, 1), (1, 2), (0, 2)])


def test_the_example_scenario_gains_by_maximum_flow(repository: object) -> None:
    overlay = load_system(f"{repository}/examples/coded.yaml")[1].overlay
    planner = PathPlanner(CapacityGraph.of_overlay(overlay))
    sinks = range(1, len(overlay.brokers))
    tree, single, flow = (planner.plan(kind, 0, sinks).rate_per_s for kind in PATH_KINDS)
    assert tree <= single <= flow
