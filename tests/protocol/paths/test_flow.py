"""Maximum flow against the smallest of all cuts, one library against the other, and decomposition into paths."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surecast.errors import AssumptionError, ConfigurationError
from surecast.scenario.paths import CapacityGraph, Flow, decompose, maximum_flow


def smallest_cut(graph: CapacityGraph, nodes: int, source: int, sink: int) -> float:
    """Every set that holds the source and not the sink; a node inside may be cut at its own capacity instead.

    With capacities of nodes a cut chooses for each node whether its entry and its exit are on the source's side.
    """
    places = [
        (node, side) for node in range(nodes) for side in "io" if (node, side) not in ((source, "i"), (sink, "o"))
    ]
    best = math.inf
    for size in range(len(places) + 1):
        for chosen in combinations(places, size):
            inside = {(source, "i"), *chosen}
            total = 0.0
            for node in range(nodes):
                if (node, "i") in inside and (node, "o") not in inside:
                    total += graph.node_capacity(node)
            for (a, b), capacity in graph.links():
                if (a, "o") in inside and (b, "i") not in inside:
                    total += capacity
            best = min(best, total)
    return best


def check_flow(graph: CapacityGraph, flow: Flow) -> None:
    """Within capacities, conserved at every node, and as large as its cut."""
    balance: dict[int, float] = {}
    into: dict[int, float] = {}
    for (a, b), amount in flow.links.items():
        assert 0 < amount <= graph.capacity(a, b) * (1 + 1e-9)
        balance[a] = balance.get(a, 0.0) - amount
        balance[b] = balance.get(b, 0.0) + amount
        into[b] = into.get(b, 0.0) + amount
    into[flow.source] = into.get(flow.source, 0.0) + flow.rate_per_s
    for node, amount in into.items():
        assert amount <= graph.node_capacity(node) * (1 + 1e-9) + 1e-9
    for node, amount in balance.items():
        expected = {flow.source: -flow.rate_per_s, flow.sink: flow.rate_per_s}.get(node, 0.0)
        assert amount == pytest.approx(expected, abs=1e-6)
    cut = math.fsum(graph.node_capacity(a) if a == b else graph.capacity(a, b) for a, b in flow.cut)
    assert cut == pytest.approx(flow.rate_per_s, abs=1e-6)


@st.composite
def graphs(draw: st.DrawFn, whole: bool = False, nodes_max: int = 5) -> tuple[CapacityGraph, int]:
    nodes = draw(st.integers(2, nodes_max))
    capacity = st.integers(0, 9).map(float) if whole else st.floats(0.0, 10.0)
    pairs = [(a, b) for a in range(nodes) for b in range(nodes) if a != b]
    links = {pair: draw(capacity) for pair in draw(st.lists(st.sampled_from(pairs), min_size=1, unique=True))}
    limited = draw(st.lists(st.integers(0, nodes - 1), unique=True, max_size=3))
    return CapacityGraph({(0, 1): 0.0, **links}, {node: draw(capacity) for node in [*limited, 1]}), nodes


@given(graphs(nodes_max=4))
def test_maximum_flow_equals_the_smallest_cut(case: tuple[CapacityGraph, int]) -> None:
    graph, nodes = case
    flow = maximum_flow(graph, 0, nodes - 1) if nodes - 1 in graph else None
    if flow is not None:
        assert flow.rate_per_s == pytest.approx(smallest_cut(graph, nodes, 0, nodes - 1), abs=1e-6)
        check_flow(graph, flow)


@given(graphs(whole=True, nodes_max=7))
def test_both_libraries_find_the_same_value(case: tuple[CapacityGraph, int]) -> None:
    graph, _ = case
    one, other = (maximum_flow(graph, 0, 1, library) for library in ("networkx", "scipy"))
    assert one.rate_per_s == other.rate_per_s
    for flow in (one, other):
        check_flow(graph, flow)


@given(graphs())
def test_paths_add_up_to_the_flow_and_no_link_carries_more(case: tuple[CapacityGraph, int]) -> None:
    graph, _ = case
    flow = maximum_flow(graph, 0, 1)
    paths = decompose(flow)
    assert math.fsum(path.rate_per_s for path in paths) == pytest.approx(flow.rate_per_s, abs=1e-6)
    assert len(paths) <= max(len(flow.links), 1)
    load: dict[tuple[int, int], float] = {}
    for path in paths:
        assert path.nodes[0] == 0
        assert path.nodes[-1] == 1
        assert len(set(path.nodes)) == len(path.nodes)
        for link in path.links:
            load[link] = load.get(link, 0.0) + path.rate_per_s
    for link, amount in flow.links.items():  # all of the flow is on paths: it has no cycles
        assert load.get(link, 0.0) == pytest.approx(amount, abs=1e-6)


def test_a_large_graph_of_whole_capacities_gives_the_same_value_in_both_libraries() -> None:
    rng = np.random.default_rng(4)
    links: dict[tuple[int, int], float] = {}
    while len(links) < 1200:
        a, b = (int(x) for x in rng.integers(0, 150, 2))
        if a != b:
            links[a, b] = float(rng.integers(1, 100))
    graph = CapacityGraph(links, dict.fromkeys(range(2, 40), 300.0))
    flows = [maximum_flow(graph, 0, 1, library) for library in ("networkx", "scipy", "")]
    assert len({flow.rate_per_s for flow in flows}) == 1
    for flow in flows:
        check_flow(graph, flow)
        assert math.fsum(path.rate_per_s for path in decompose(flow)) == flow.rate_per_s


def test_the_capacity_of_a_node_limits_what_passes_it() -> None:
    graph = CapacityGraph({(0, 1): 9.0, (1, 2): 9.0, (0, 2): 1.0}, {1: 4.0})
    flow = maximum_flow(graph, 0, 2)
    assert flow.rate_per_s == 5.0
    assert flow.cut == ((0, 2), (1, 1))


@pytest.mark.parametrize("end", [0, 2])
def test_the_capacities_of_both_ends_count(end: int) -> None:
    graph = CapacityGraph({(0, 1): 9.0, (1, 2): 9.0}, {end: 4.0})
    assert maximum_flow(graph, 0, 2).rate_per_s == 4.0


def test_a_cycle_in_a_flow_is_taken_out() -> None:
    from surecast.scenario.paths.flow import _cancel_cycles

    arcs = {(0, 1): 2.0, (1, 2): 3.0, (2, 3): 3.0, (3, 1): 1.0, (3, 4): 2.0, (5, 6): 1.0, (6, 5): 1.0}
    _cancel_cycles(arcs)
    assert arcs == {(0, 1): 2.0, (1, 2): 2.0, (2, 3): 2.0, (3, 4): 2.0}


def test_a_library_that_leaves_a_cycle_in_the_flow_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = CapacityGraph({(0, 1): 2.0, (1, 3): 2.0, (1, 2): 1.0, (2, 1): 1.0})
    left = {(0, 1): 2.0, (1, 3): 2.0, (1, 2): 1.0, (2, 1): 1.0}
    monkeypatch.setattr("surecast.scenario.paths.flow._by_networkx", lambda split: dict(left))
    flow = maximum_flow(graph, 0, 3)
    assert flow.rate_per_s == 2.0
    assert flow.links == {(0, 1): 2.0, (1, 3): 2.0}


def test_infinite_capacities_are_fine_unless_a_whole_path_has_none_other() -> None:
    graph = CapacityGraph({(0, 1): math.inf, (1, 2): 3.0, (0, 2): math.inf})
    with pytest.raises(AssumptionError, match="0 - 2 has a capacity"):
        maximum_flow(graph, 0, 2)
    graph.set_link(0, 2, 1.5)
    assert maximum_flow(graph, 0, 2).rate_per_s == 4.5
    graph.set_link(0, 2, 1.0)
    assert maximum_flow(graph, 0, 2, "scipy").rate_per_s == 4.0


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda g: maximum_flow(g, 0, 0), "both node 0"),
        (lambda g: maximum_flow(g, 0, 7), "node 7"),
        (lambda g: maximum_flow(g, 0, 1, "other"), "unknown library"),
        (lambda g: maximum_flow(g, 0, 1, "scipy"), "whole"),
        (lambda g: g.set_link(0, 1, -1.0), "0 or more"),
        (lambda g: g.set_link(0, 1, math.nan), "0 or more"),
        (lambda g: g.set_link(1, 1, 1.0), "two different"),
        (lambda g: g.fail_link(1, 0), "no such link"),
    ],
)
def test_what_makes_no_sense_is_refused(ask: object, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ask(CapacityGraph({(0, 1): 0.5}))  # type: ignore[operator]
