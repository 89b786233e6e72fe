"""What a scenario means: names looked up, ranges drawn, generators run."""

from __future__ import annotations

import itertools
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from surecast.scenario import Scenario, System, build, load_system, parse_text
from surecast.scenario.system import Histogram

BASE = """
surecast: 1
name: test
seed: 5
overlay:
  brokers: [{{name: b, count: {brokers}}}]
  links: {links}
availability:
  brokers: {{availability: [0.9, 0.95], period: [1d, 9d]}}
  links: {{availability: 0.99, period: 60000s}}
workload:
  topics: [{{name: t, count: 10}}]
  popularity_exponent: 1
  deadline: 1h
  publishers: [{{name: p, count: 10, topics: one-each, rate: [1/min, 2/min]}}]
  subscribers: [{{name: s, count: 500}}]
"""


def system(brokers: int = 10, links: str = "{build: random-graph, mean_degree: 3}") -> System:
    return build(parse_text(BASE.format(brokers=brokers, links=links)))


def test_the_same_file_means_the_same_system() -> None:
    assert system() == system()


def test_adding_a_broker_redraws_nothing_else() -> None:
    small, large = system(10, "{build: random-tree}"), system(11, "{build: random-tree}")
    assert large.overlay.brokers[:10] == small.overlay.brokers
    assert large.overlay.links[:9] == small.overlay.links
    assert [p.rate_per_s for p in large.publishers] == [p.rate_per_s for p in small.publishers]
    assert [s.topics for s in large.subscribers] == [s.topics for s in small.subscribers]
    moved = [b.home for a, b in zip(small.subscribers, large.subscribers, strict=True) if a.home != b.home]
    assert set(moved) == {10}
    assert 20 < len(moved) < 80


@pytest.mark.parametrize(
    ("build_as", "links"),
    [
        ("random-tree", 9),
        ("star", 9),
        ("chain", 9),
        ("ring", 10),
        ("complete", 45),
        ("random-graph, mean_degree: 3", 15),
    ],
)
def test_built_overlays_are_connected_and_have_the_right_number_of_links(build_as: str, links: int) -> None:
    overlay = system(links=f"{{build: {build_as}}}").overlay
    assert nx.is_connected(overlay.graph)
    assert len(overlay.links) == overlay.graph.number_of_edges() == links
    assert overlay.is_tree == (links == 9)


def test_topic_trees_are_shortest_path_trees_of_the_overlay() -> None:
    overlay = system().overlay
    assert set(overlay.trees) == {f"t-{i}" for i in range(1, 11)}
    assert len(set(overlay.trees.values())) > 1
    for tree in overlay.trees.values():
        graph = overlay.subgraph(tree)
        assert nx.is_tree(graph)
        distances = dict(nx.all_pairs_shortest_path_length(overlay.graph))
        in_tree = dict(nx.all_pairs_shortest_path_length(graph))
        assert any(in_tree[root] == distances[root] for root in graph)


def test_a_tree_overlay_is_the_tree_of_every_topic() -> None:
    overlay = system(links="{build: random-tree}").overlay
    assert set(overlay.trees.values()) == {tuple(range(9))}


def test_availability_and_period_give_up_and_down_times() -> None:
    for broker in system().overlay.brokers:
        assert broker.failures is not None
        assert 0.9 <= broker.availability <= 0.95
        period = broker.failures.mtbf_s + broker.failures.mttr_s
        assert 86400 <= period <= 9 * 86400
        assert broker.failures.mtbf_s == pytest.approx(broker.availability * period)
    assert len({broker.availability for broker in system().overlay.brokers}) == 10
    assert [link.availability for link in system().overlay.links] == pytest.approx([0.99] * 15)


def test_topics_follow_the_power_law() -> None:
    big = build(parse_text(BASE.format(brokers=2, links="{build: chain}").replace("count: 500", "count: 20000")))
    counts = np.array([sum(1 for s in big.subscribers if s.topics == (t.name,)) for t in big.topics])
    expected = np.array([1 / k for k in range(1, 11)])
    assert counts / 20000 == pytest.approx(expected / expected.sum(), abs=0.01)
    assert [t.popularity for t in big.topics] == pytest.approx(expected / expected.sum())


def test_several_topics_each_are_different() -> None:
    text = BASE.format(brokers=2, links="{build: chain}").replace(
        "{name: s, count: 500}", "{name: s, count: 50, topic_count: 4}"
    )
    assert all(len(set(s.topics)) == 4 for s in build(parse_text(text)).subscribers)


NETWORK = """
surecast: 1
name: net
network:
  kind: given
  routers:
    - {name: A, x: 0, y: 0, domain: west}
    - {name: B, x: 300, y: 0, domain: west}
    - {name: C, x: 600, y: 0, domain: east}
    - {name: D, x: 600, y: 400, domain: east}
  links:
    - [A, B]
    - {between: [B, C], latency: 7ms, capacity: 100/s}
    - [C, D]
    - {between: [A, D], latency: 50ms}
  link_capacity: 1000/s
  router_capacity: [2000/s, 3000/s]
overlay:
  candidates: [A, C, D]
  brokers:
    - {name: b, at: candidates, capacity: 50/s, service: deterministic,
       control_service: {distribution: erlang, stages: 2}}
  links: {build: spanning-tree, by: %s}
  paths: %s
workload:
  classes:
    - {name: f, count: 2, hot_spot: west, locality: 0.8}
    - {name: g, hot_spot: random, locality: 0.5, weight: 4}
    - h
  clients: [{name: c, at: B}, {name: d, at: D}, {name: e, at: C}]
  subscriptions: {active: 700, lifetime: 10s}
  publications: 70/s
"""


def network_system(by: str = "hops") -> System:
    return build(parse_text(NETWORK % (by, by)))


def test_latency_comes_from_distance_or_from_the_file() -> None:
    network = network_system().network
    assert network is not None
    light = 299792.458 * 2 / 3
    assert [link.latency_s for link in network.links] == pytest.approx([300 / light, 0.007, 400 / light, 0.05])
    assert network.links[1].service is not None
    assert network.links[1].service.mean_s == pytest.approx(0.01)
    assert all(r.service is not None and 1 / 3000 <= r.service.mean_s <= 1 / 2000 for r in network.routers)


@pytest.mark.parametrize(
    ("by", "paths"), [("hops", {("A", "D"), ("C", "D")}), ("latency", {("A", "B", "C"), ("C", "D")})]
)
def test_spanning_tree_and_physical_paths(by: str, paths: set[tuple[str, ...]]) -> None:
    built = network_system(by)
    assert built.network is not None
    found = {tuple(built.network.routers[r].name for r in link.routers) for link in built.overlay.links}
    assert found == paths
    for link in built.overlay.links:
        physical = [built.network.links[i].latency_s for i in built.network.links_on(link.routers)]
        assert link.latency_s == pytest.approx(sum(physical))


def test_spanning_tree_is_minimal_among_all_trees() -> None:
    """Brute force over all spanning trees of a small overlay."""
    text = """{surecast: 1, name: x, network: {kind: random, routers: 30, mean_degree: 2.5}, overlay: {
      brokers: [{name: b, count: 5}], links: {build: spanning-tree, by: latency}, paths: latency}}"""
    built = build(parse_text(text))
    network, overlay = built.network, built.overlay
    assert network is not None
    routers = [b.router for b in overlay.brokers]
    distance = {r: network.distances_from(r, "latency") for r in routers if r is not None}
    weights = {(i, j): distance[routers[i]][routers[j]] for i, j in itertools.combinations(range(5), 2)}  # type: ignore[index]
    trees = [t for t in itertools.combinations(weights, 4) if nx.is_connected(nx.Graph(t)) and len(nx.Graph(t)) == 5]
    best = min(sum(weights[edge] for edge in tree) for tree in trees)
    assert sum(link.latency_s for link in overlay.links) == pytest.approx(best)


def test_service_times_by_message_type() -> None:
    broker = network_system().overlay.brokers[0]
    assert broker.notification_service is not None
    assert broker.control_service is not None
    assert broker.notification_service.moments() == pytest.approx((0.02, 0.0004, 0.000008))
    assert broker.control_service.moments()[1] == pytest.approx(0.0006)


def test_clients_go_to_the_nearest_broker() -> None:
    workload = network_system().class_workload
    assert workload is not None
    # B is one hop from A and from C: of equally near brokers the first wins.
    assert workload.client_home == (0, 2, 1)


def test_class_rates_follow_locality_and_weight() -> None:
    workload = network_system().class_workload
    assert workload is not None
    assert workload.active_subscriptions == pytest.approx(700)
    assert workload.publication_rate_per_s.sum() == pytest.approx(70)
    # Weights 1, 1, 4, 1; client c alone is in the west, d and e in the east.
    assert workload.publication_rate_per_s[0] == pytest.approx(np.array([0.8, 0.1, 0.1]) * 10)
    assert workload.publication_rate_per_s[3] == pytest.approx(np.array([1, 1, 1]) / 3 * 10)
    assert workload.publication_rate_per_s[2].sum() == pytest.approx(40)
    assert workload.subscription_rate_per_s == pytest.approx(workload.publication_rate_per_s)
    by_broker = workload.by_broker(workload.publication_rate_per_s, 3)
    assert by_broker[0] == pytest.approx(np.array([0.8, 0.1, 0.1]) * 10)


def test_a_topology_file_is_found_beside_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "net.txt").write_text("a b 5ms\nb c 5ms\nc d 1ms\n")
    (tmp_path / "s.yaml").write_text(
        "surecast: 1\nname: x\nnetwork: {kind: file, path: net.txt, format: edges, domains: 2, link_latency: 3ms}\n"
        "overlay: {brokers: [{name: b, at: d}], candidates: {per_domain: 1}}\n"
    )
    _, built = load_system(tmp_path / "s.yaml")
    assert built.network is not None
    assert built.overlay.brokers[0].router == built.network.index["d"]
    assert {link.latency_s for link in built.network.links} == {0.003}
    assert len(built.network.domains) == 2
    assert len(built.overlay.candidates) == 2


def test_overrides_change_the_system(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(BASE.format(brokers=3, links="{build: chain}"))
    scenario, built = load_system(
        file, {"overlay.brokers[0].count": "7", "delivery.fault_tolerance.scheme": "buffering"}
    )
    assert len(built.overlay.brokers) == 7
    assert scenario.delivery.fault_tolerance.scheme == "buffering"


def test_subscribers_without_a_publisher_are_noted() -> None:
    text = """{surecast: 1, name: x, overlay: {brokers: [{name: b}]},
      workload: {topics: [a], subscribers: [{name: s, home: b}]}}"""
    assert build(parse_text(text)).notes == ("1 of 1 subscribers want only topics that nobody publishes",)


def test_root_is_central_unless_named() -> None:
    assert system(9, "{build: chain}").overlay.root == 4


STATISTICS = """
surecast: 1
name: measured
overlay:
  brokers: [{name: a, matching: index}, {name: b, matching: {algorithm: counting, match: 3us}}]
  links: [[a, b]]
workload:
  filters:
    - {name: volume, value: [3, 1, 3, 2], interval: {centre: [1, 2], width: {edges: [0, 1, 2], weights: [1, 0]}}}
    - {name: price, value: {edges: [0, 1, 2, 5, 7], weights: [0, 1, 3, 0]}, constrained: 80%}
  classes: [{name: c}, {name: d, filters: []}, {name: e, filters: [{name: p, value: [1, 2], interval: {ends: values}}]}]
  clients: [{name: x, home: a}]
  subscriptions: {active: 10, lifetime: 10s}
  publications: 1/s
"""


def test_filter_statistics_are_normalised() -> None:
    c, d, e = build(parse_text(STATISTICS)).class_workload.classes
    price, volume = c.filters
    assert (price.name, volume.name) == ("price", "volume")
    assert price.value == Histogram((1.0, 2.0, 5.0), (0.25, 0.75))
    assert price.ends == Histogram((0.0, 7.0), (1.0,))  # uniform over the range as written
    assert price.constrained == 0.8
    assert volume.value == Histogram((1.0, 2.0, 3.0), (0.25, 0.25, 0.5))
    assert (volume.ends, volume.width) == (None, Histogram((0.0, 1.0), (1.0,)))
    assert volume.centre == Histogram((1.0, 2.0), (0.5, 0.5))
    assert not volume.value.is_continuous
    assert volume.width.is_continuous
    assert d.filters is None
    assert e.filters[0].ends == e.filters[0].value == Histogram((1.0, 2.0), (0.5, 0.5))


def test_costs_of_matching_are_measured_unless_given() -> None:
    a, b = (broker.matching for broker in build(parse_text(STATISTICS)).overlay.brokers)
    assert (a.algorithm, b.algorithm) == ("index", "counting")
    assert a.match_s > 0
    assert b.match_s == pytest.approx(3e-6)
    assert b.predicate_s > 0
    assert build(parse_text(STATISTICS)).overlay.brokers[0].notification_service is None


def test_statistics_survive_being_written_and_read() -> None:
    scenario = parse_text(STATISTICS)
    again = Scenario.model_validate(scenario.model_dump(mode="json", exclude_unset=True))
    assert build(again).class_workload.classes == build(scenario).class_workload.classes
    assert build(again).overlay.brokers == build(scenario).overlay.brokers
