from __future__ import annotations

from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from surecast.scenario import build, load_system, parse_text
from surecast.scenario.flows import flows_of

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("name", ["reliability-tree", "reliability-graph"])
def test_routes_follow_the_topic_trees(name: str) -> None:
    _, system = load_system(EXAMPLES / f"{name}.yaml")
    flows = flows_of(system)
    assert len(flows.interest_of) == 500
    for i, publisher, topic, route in zip(flows.interest, flows.publisher, flows.topic, flows.route, strict=True):
        found = flows.routes[route]
        tree = system.overlay.subgraph(system.overlay.trees[system.topics[topic].name])
        home = flows.interests[i][0]
        assert list(found.brokers) == nx.shortest_path(tree, system.publishers[publisher].home, home)
        pairs = zip(found.brokers, found.brokers[1:], strict=False)
        assert list(found.links) == [tree.edges[pair]["link"] for pair in pairs]


def test_rates_and_weights() -> None:
    text = """{surecast: 1, name: x, overlay: {brokers: [{name: a}, {name: b}], links: [[a, b]]}, workload: {
      topics: [t, u, v],
      publishers: [{name: p, home: a, topics: [t, u], rate: 4/s}, {name: q, home: b, topics: [t], rate: 1/s}],
      subscribers: [{name: s, home: a, topics: [t, u]}, {name: r, home: a, topics: [u, t]},
                    {name: w, home: b, topics: [v]}]}}"""
    flows = flows_of(build(parse_text(text)))
    assert len(flows.interests) == 2
    assert flows.rate_per_s.tolist() == [2, 1, 2]
    assert flows.interest_of.tolist() == [0, 0, 1]
    values = flows.weighted(np.array([1.0, 0.0, 0.5]))
    assert values[0] == pytest.approx((2 * 1 + 1 * 0 + 2 * 0.5) / 5)
    assert np.isnan(flows.per_subscriber(values)).tolist() == [False, False, True]
