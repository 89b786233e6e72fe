"""Longest mean paths by broker and class, and headroom where routing tables make service times longer."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from surecast.prediction.capacity import predict_capacity
from surecast.prediction.capacity.capacity_model import capacity_model
from surecast.prediction.capacity.delays import longest_paths, mean_waiting_s
from surecast.scenario import System, build, parse_text

TEXT = """
surecast: 1
name: tree
overlay:
  brokers:
    - {name: a, capacity: 100/s MATCHING}
    - {name: b, capacity: 80/s MATCHING}
    - {name: c, capacity: 120/s MATCHING}
    - {name: d, capacity: 90/s MATCHING}
  links: [{between: [a, b], latency: 5ms}, {between: [b, c], latency: 20ms}, {between: [b, d], latency: 1ms}]
workload:
  classes: [{name: k, count: 2}]
  clients: [{name: w, home: a}, {name: x, home: b}, {name: y, home: c}, {name: z, home: d}]
  subscriptions: {active: 80, lifetime: 60s}
  publications: 30/s
"""


def tree(matching: str = "") -> System:
    return build(parse_text(TEXT.replace(" MATCHING", matching)))


@pytest.mark.parametrize("matching", ["", ", matching: {algorithm: brute-force, predicate: 20us}"])
def test_longest_paths_from_every_broker(matching: str) -> None:
    # capacity Eqs. 40, 41 over all paths, one at a time
    system = tree(matching)
    model = capacity_model(system)
    flows = model.flows("peer-to-peer covering")
    loads = model.loads(flows)
    found = longest_paths(model, "peer-to-peer covering", loads)
    at = mean_waiting_s(loads)[:4] + loads.notification_s[:, 0]
    graph = system.overlay.graph
    for p in range(4):
        ways = []
        for d in range(4):
            path = nx.shortest_path(graph, p, d)
            latency = sum(graph.edges[pair]["latency"] for pair in nx.utils.pairwise(path))
            ways.append(latency + sum(at[i] for i in path))
        assert found[p] == pytest.approx(np.full(found.shape[1], max(ways)))


def test_headroom_where_tables_cost_time() -> None:
    # The more subscriptions, the longer a scan of the table: less room than the rates alone would leave.
    plain, scan = (
        predict_capacity(tree(each), ["peer-to-peer simple"])
        for each in ("", ", matching: {algorithm: brute-force, lookup: 0s, entry: 0s, predicate: 50us, update: 0s}")
    )
    factor = scan.value("headroom_factor")
    assert 1 < factor < plain.value("headroom_factor")
    system = tree(", matching: {algorithm: brute-force, lookup: 0s, entry: 0s, predicate: 50us, update: 0s}")
    model = capacity_model(system)
    at = model.loads(model.flows("peer-to-peer simple", factor), factor)
    assert at.utilisation.max() == pytest.approx(1.0, abs=1e-9)


def test_headroom_of_tables_alone() -> None:
    text = TEXT
    for number in (100, 80, 120, 90):
        text = text.replace(f"capacity: {number}/s MATCHING", "matching: {algorithm: index, lookup: 1ms, match: 1ms}")
    report = predict_capacity(build(parse_text(text)), ["peer-to-peer covering"])
    assert report.value("headroom_factor") > 1
