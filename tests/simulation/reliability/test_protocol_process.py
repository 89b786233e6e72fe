"""The simulated protocol against a deliberately dumb second implementation of the stochastic process.

With no latency, ideal refreshes and ideal retransmission, what becomes of every single event follows from the failures
and repairs alone. The oracle here computes it event by event with networkx, and must agree with the protocol exactly.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from functools import cache
from itertools import pairwise

import networkx as nx
import pytest

from surecast.scenario import System, build, parse_text
from surecast.simulation.reliability.protocol import Options, WorldResult, simulate_world

IDEAL = Options(refresh_s=0.0, retransmission_s=0.0, keeps_fates=True)


def system_of(seed: int, *, shape: str = "{build: random-graph, mean_degree: 2.6}", deadline: str = "40s") -> System:
    return build(
        parse_text(f"""
surecast: 1
name: random
seed: {seed}
overlay:
  brokers: [{{name: b, count: 6}}]
  links: {shape}
  topic_trees: {{root: random}}
availability:
  brokers: {{mtbf: 300s, mttr: 60s}}
  links: {{mtbf: 200s, mttr: 40s}}
workload:
  topics: [{{name: t, count: 3}}]
  deadline: {deadline}
  publishers: [{{name: p, count: 4, home: random, topics: by-popularity, rate: 1/s}}]
  subscribers: [{{name: s, count: 12, home: random, topics: by-popularity}}]
""")
    )


class Oracle:
    """The states of all components over time, and what the process says about an event."""

    def __init__(self, system: System, result: WorldResult):
        self.system = system
        self.names = [broker.name for broker in system.overlay.brokers]
        self.times = [-math.inf]
        down: set[tuple[str, str]] = set()
        self.down = [frozenset(down)]
        for change in result.transitions:
            (down.discard if change.up else down.add)((change.kind, change.name))
            self.times.append(change.time_s)
            self.down.append(frozenset(down))
        self.graph = cache(self._graph)

    def at(self, time_s: float) -> int:
        return bisect_right(self.times, time_s) - 1

    def _graph(self, state: int) -> nx.Graph[str]:
        graph: nx.Graph[str] = nx.Graph()
        down = self.down[state]
        graph.add_nodes_from(name for name in self.names if ("broker", name) not in down)
        for link in self.system.overlay.links:
            a, b = self.names[link.a], self.names[link.b]
            if ("link", link.name) not in down and a in graph and b in graph:
                graph.add_edge(a, b)
        return graph

    def route(self, topic: str, start: str, end: str) -> list[str]:
        tree = self.system.overlay.subgraph(self.system.overlay.trees[topic])
        index = self.system.overlay.index
        return [self.names[i] for i in nx.shortest_path(tree, index[start], index[end])]

    def passes(self, time_s: float, a: str, b: str) -> float:
        """When a, b and the link between them are first all up."""
        for state in range(self.at(time_s), len(self.times)):
            if self.graph(state).has_edge(a, b):
                return max(time_s, self.times[state])
        return math.inf

    def arrival(self, scheme: str, topic: str, time_s: float, route: list[str]) -> tuple[float, str]:
        """When an event arrives (infinitely late if never), and why not."""
        start, end = route[0], route[-1]
        now = self.graph(self.at(time_s))
        if start not in now:
            return math.inf, "home broker down"
        connected = end in now and nx.has_path(now, start, end)
        if scheme == "bypass":
            return (time_s, "") if connected else (math.inf, "partitioned")
        if scheme == "periodic-subscription":
            whole = all(now.has_edge(a, b) for a, b in pairwise(route))
            return (time_s, "") if whole else (math.inf, "path down")
        if scheme == "bypass-buffering" and connected:
            return time_s, ""
        for i, (a, b) in enumerate(pairwise(route)):
            before_s, time_s = time_s, self.passes(time_s, a, b)
            if scheme == "bypass-buffering":
                opens_s = self.way_opens(topic, route[i:], before_s, time_s)
                if opens_s < math.inf:
                    return opens_s, "expired"
            if time_s == math.inf:
                break
            graph = self.graph(self.at(time_s))
            if scheme == "bypass-buffering" and end in graph and nx.has_path(graph, route[i + 1], end):
                break
        return time_s, "expired"

    def way_opens(self, topic: str, route: list[str], since_s: float, until_s: float) -> float:
        """When an event that waits at the first broker of a route for the second goes around that and comes to the end.

        It is sent once to each of the next brokers behind it that can be reached. They pass it on once: a broker that
        crashed has forgotten what it sent, and what it passed on.
        """
        tree = self.system.overlay.subgraph(self.system.overlay.trees[topic])
        index, start, end = self.system.overlay.index, route[0], route[-1]
        sent: set[str] = set()
        passed: set[str] = set()
        for state in range(self.at(since_s), len(self.times)):
            time_s = max(since_s, self.times[state])
            if time_s >= until_s:
                break
            graph = self.graph(state)
            passed &= graph.nodes
            if start not in graph:
                sent.clear()
                continue
            ahead, targets = [(route[1], start)], set()
            for broker, before in ahead:
                if broker in graph and nx.has_path(graph, start, broker):
                    targets.add(broker)
                else:
                    ahead += [(self.names[n], broker) for n in tree[index[broker]] if self.names[n] != before]
            effective = targets - sent - passed
            sent |= targets
            reached = nx.node_connected_component(graph, start)
            if effective & set(route):
                if end in reached:
                    return time_s
                passed |= reached & set(route)
        return math.inf


@pytest.mark.parametrize("scheme", ["periodic-subscription", "buffering", "bypass", "bypass-buffering"])
@pytest.mark.parametrize("seed", range(3))
def test_every_event_fares_as_the_process_says(scheme: str, seed: int) -> None:
    system = system_of(seed)
    result = simulate_world(system, scheme, duration_s=600, seed=seed, options=IDEAL)
    oracle = Oracle(system, result)
    homes = {publisher.name: oracle.names[publisher.home] for publisher in system.publishers}
    deadline_s = system.publishers[0].deadline_s
    assert len(result.fates) > 600
    for fate in result.fates:
        target = result.targets[fate.target]
        route = oracle.route(target.topic, homes[fate.event.publisher], target.home)
        arrives_s, reason = oracle.arrival(scheme, target.topic, fate.published_s, route)
        delay_s = arrives_s - fate.published_s
        expected = "on time" if delay_s <= deadline_s else reason
        assert fate.outcome == expected, f"{fate}, {target}, route {route}; replay: {result.replay}"
        if expected == "on time":
            assert fate.delay_s == pytest.approx(delay_s, abs=1e-6), f"{fate}; replay: {result.replay}"


def test_without_refreshes_nothing_arrives_where_every_broker_can_fail() -> None:
    """reliability section 4.1: the subscriptions are eventually lost."""
    result = simulate_world(system_of(1), "none", duration_s=500, seed=1, options=IDEAL)
    assert result.published.sum() > 0
    assert result.on_time.sum() == 0
    assert result.lost["no routing entry"].sum() > 0
