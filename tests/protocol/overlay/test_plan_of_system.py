"""The plan of a scenario: its trees, schemes and algorithms, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from surecast.errors import AssumptionError
from surecast.protocol.overlay.overlay_plan import OverlayPlan
from surecast.protocol.overlay.plan_of_system import plan_of_system
from surecast.scenario import Scenario
from surecast.scenario.system import System

EXAMPLES = Path("examples")


def system_of(name: str, settings: dict[str, Any] | None = None) -> System:
    return Scenario.load(EXAMPLES / f"{name}.yaml", settings or {}).system


def test_each_topic_travels_on_the_links_that_the_scenario_gives_it() -> None:
    system = system_of("reliability-graph")
    plan = plan_of_system(system)
    names = [broker.name for broker in system.overlay.brokers]
    for topic, links in system.overlay.trees.items():
        wanted = {(names[system.overlay.links[i].a], names[system.overlay.links[i].b]) for i in links}
        assert set(plan.trees[plan.tree_of(topic)].links) == wanted
    assert {tree.scheme for tree in plan.trees} == {"bypass-buffering"}


def test_an_overlay_that_is_a_tree_has_one_tree_for_all_topics() -> None:
    plan = plan_of_system(system_of("reliability-tree"))
    assert (len(plan.trees), plan.prefixes, plan.trees[0].root) == (1, (("", (0,)),), None)
    assert set(plan.trees[0].links) == set(plan.links)


def test_hierarchical_routing_has_a_root_and_the_algorithm_of_the_scenario() -> None:
    system = system_of("company")
    plan = plan_of_system(system)
    assert plan.trees[0].algorithm == "merging"
    assert plan.trees[0].root == system.overlay.brokers[system.overlay.root].name
    other = plan_of_system(system, scheme="none", algorithm="simple", is_hierarchical=False)
    assert (other.trees[0].scheme, other.trees[0].algorithm, other.trees[0].root) == ("none", "simple", None)


@pytest.mark.parametrize(
    ("example", "settings", "words"),
    [
        (
            "company",
            {"overlay.links": "{build: ring}", "delivery.routing": "null"},
            "the overlay has cycles .*no topic says on which tree",
        ),
        (
            "reliability-graph",
            {
                "overlay.brokers": "[{name: b, count: 30}]",
                "overlay.links": "{build: ring}",
                "workload.topics": "[{name: topic, count: 60}]",
            },
            "60 topics have .* different broker trees and schemes, and an overlay runs at most 16",
        ),
        ("reliability-tree", {"workload.topics": "[a/#]", "workload.publishers[0].topics": "[a/#]"}, "has a wildcard"),
    ],
)
def test_a_system_that_cannot_be_an_overlay_is_refused(example: str, settings: dict[str, str], words: str) -> None:
    with pytest.raises(AssumptionError, match=words):
        plan_of_system(system_of(example, settings))


def test_a_plan_of_one_broker_has_a_tree_without_links() -> None:
    plan = plan_of_system(system_of("dropping"))
    assert isinstance(plan, OverlayPlan)
    assert plan.trees[0].links == ()
