"""The plan of an overlay that a scenario describes: for simulations and for brokers that run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from surecast.errors import AssumptionError
from surecast.protocol.demand import FLOODING
from surecast.protocol.mqtt.topics import has_wildcard
from surecast.protocol.overlay.overlay_plan import TREES_MAX, Link, OverlayPlan, Tree

if TYPE_CHECKING:  # a broker that runs needs no scenarios, and none of what they need
    from surecast.scenario.system import System

__all__ = ["plan_of_system"]

_ALGORITHM = "covering"
"""The algorithm where a scenario has no `delivery.routing`: topics without wildcards are announced once each by it."""


def plan_of_system(
    system: System,
    *,
    scheme: str | None = None,
    algorithm: str | None = None,
    is_hierarchical: bool | None = None,
    refresh: Literal["link", "end-to-end"] | None = None,
) -> OverlayPlan:
    """Returns the plan of a system: its brokers and links, and one tree for all topics that travel on the same links
    by the same scheme.

    Scheme and algorithm are those of the scenario unless others are given; a topic with a scheme of its own keeps it.
    Other topics travel on the first tree. `refresh` is how a broker that has lost its table has it again (`Tree`): as
    the scenario says, but link by link what is routed by an algorithm, as it would not be summarised otherwise.
    AssumptionError where the system cannot be such an overlay.

    >>> from surecast.scenario import Scenario
    >>> plan = plan_of_system(Scenario.load("examples/reliability-graph.yaml").system, scheme="buffering")
    >>> len(plan.brokers), len(plan.trees), plan.trees[0].scheme, plan.tree_of("topic-1")
    (10, 7, 'buffering', 0)
    """
    routing = system.delivery.routing
    tolerance = system.delivery.fault_tolerance
    if refresh is None:
        refresh = tolerance.refresh if algorithm is None and routing is None else "link"
    if algorithm is None:
        algorithm = _ALGORITHM if routing is None else routing.algorithm
    if is_hierarchical is None:
        is_hierarchical = routing is not None and routing.scheme == "hierarchical"
    overlay = system.overlay
    names = tuple(broker.name for broker in overlay.brokers)
    pairs: tuple[Link, ...] = tuple((names[link.a], names[link.b]) for link in overlay.links)
    topics = {topic.name: overlay.trees[topic.name] for topic in system.topics if topic.name in overlay.trees}
    _check_topics(system, list(topics))
    default = scheme if scheme is not None else tolerance.scheme
    ways = {topic: (links, tolerance.schemes.get(topic, default)) for topic, links in topics.items()}
    used = list(dict.fromkeys(ways.values())) or [(_only_tree(system), default)]
    if len(used) > TREES_MAX:
        raise AssumptionError(
            f"{system.name}: its {len(topics)} topics have {len(used)} different broker trees and schemes, and an "
            f"overlay runs at most {TREES_MAX}; write overlay.topic_trees: {{root: {names[0]}}}, or roots for fewer "
            "trees"
        )
    root = names[overlay.root] if is_hierarchical else None
    by_link = () if routing is None else tuple((each.between, each.algorithm) for each in routing.links)
    advertisements = routing is not None and routing.advertisements and algorithm != FLOODING
    trees = tuple(
        Tree(
            own := tuple(pairs[i] for i in links),
            chosen,
            algorithm,
            tuple((link, name) for link, name in by_link if link in own or link[::-1] in own),
            root=root,
            refresh=refresh,
            advertisements=advertisements,
        )
        for links, chosen in used
    )
    prefixes: dict[str, tuple[int, ...]] = {"": (0,)}
    if len(used) > 1:
        prefixes |= {topic: (used.index(way),) for topic, way in ways.items()}
    return OverlayPlan(names, pairs, trees, tuple(prefixes.items()))


def _only_tree(system: System) -> tuple[int, ...]:
    """Returns the links of the one tree that there can be where no topic has a tree."""
    overlay = system.overlay
    if not overlay.is_tree:
        raise AssumptionError(
            f"{system.name}: the overlay has cycles ({len(overlay.brokers)} brokers, {len(overlay.links)} links), and "
            "no topic says on which tree its events travel; name workload.topics, or write links: "
            "{build: spanning-tree}"
        )
    return tuple(range(len(overlay.links)))


def _check_topics(system: System, topics: list[str]) -> None:
    for topic in topics:
        if has_wildcard(topic) or topic.startswith("$"):
            raise AssumptionError(
                f"{system.name}: topic {topic!r} has a wildcard of MQTT, or begins with $, and no events can be "
                "published to it; give it another name"
            )
