"""From a scenario to the system it means: names looked up, ranges drawn, generators run, everything checked."""

from __future__ import annotations

from dataclasses import replace

from surecast.errors import Problem, ScenarioError
from surecast.scenario.build.classes import build_class_workload
from surecast.scenario.build.clients import Surroundings, build_publishers, build_subscribers, build_topics
from surecast.scenario.build.collect import Collector
from surecast.scenario.build.failures import FailureTable
from surecast.scenario.build.network import build_network
from surecast.scenario.build.overlay import build_overlay, build_trees
from surecast.scenario.build.profiles import with_profile_services
from surecast.scenario.spec.scenario import Scenario
from surecast.scenario.streams import Streams
from surecast.scenario.system import Overlay, Publisher, Subscriber, System, Topic

__all__ = ["build", "find_problems"]


def build(scenario: Scenario) -> System:
    """Returns the system that a scenario describes; ScenarioError with every problem if it describes none."""
    collect = Collector(scenario.source, scenario.name)
    system = _resolve(scenario, collect)
    if collect.problems or system is None:
        raise ScenarioError(collect.problems or [collect.source.problem((), "cannot be resolved")])
    return system


def find_problems(scenario: Scenario) -> list[Problem]:
    """Returns the problems of the parts of a scenario that could be read, where other parts could not."""
    collect = Collector(scenario.source, scenario.name)
    _resolve(scenario, collect)
    return collect.problems


def _resolve(scenario: Scenario, collect: Collector) -> System | None:
    streams = Streams(scenario.seed)
    failures = FailureTable(scenario.availability, streams, scenario.delivery.fault_tolerance.start)
    network = None
    if scenario.network is not None and collect.intact(("network",)):
        network = build_network(scenario.network, streams, collect)
        if network is None:
            collect.source.damaged.add(("network",))
    overlay = build_overlay(scenario.overlay, network, failures, streams, collect)
    sound = not collect.problems
    topics = build_topics(scenario.workload, collect)
    is_alike = scenario.availability.clients is None and scenario.delivery.coding is None
    where = Surroundings(network, overlay, streams, collect, is_alike)
    publishers = build_publishers(scenario.workload, topics, where)
    subscribers = build_subscribers(scenario.workload, topics, scenario.targets, where)
    class_workload = build_class_workload(scenario.workload, where)
    if overlay is None or not sound:
        return None
    trees = build_trees(scenario.overlay.topic_trees, overlay, topics, publishers, streams, collect)
    overlay = replace(overlay, trees=trees)
    _check_delivery(scenario, overlay, subscribers, collect)
    _check_schemes(scenario, topics, collect)
    _note_unserved(publishers, subscribers, collect)
    if scenario.delivery.routing is not None and class_workload is None:
        collect.notes.append("content-based routing has no effect without filter classes")
    system = System(
        scenario.name,
        scenario.seed,
        network,
        overlay,
        topics,
        publishers,
        subscribers,
        class_workload,
        failures.clients(),
        scenario.delivery,
        scenario.targets,
        scenario.experiment,
        tuple(collect.notes),
    )
    return system if collect.problems else with_profile_services(system, collect)


def _check_delivery(
    scenario: Scenario, overlay: Overlay, subscribers: tuple[Subscriber, ...], collect: Collector
) -> None:
    routing = scenario.delivery.routing
    if routing is not None and not overlay.is_tree:
        import networkx as nx

        around = [overlay.brokers[a].name for a, _ in nx.find_cycle(overlay.graph)]
        cycle = " - ".join(around[:6]) + (f" - and {len(around) - 6} more" if len(around) > 6 else "")
        hint = "build the links as a tree, or leave out routing to use one tree per topic"
        message = f"{routing.algorithm} routing needs an overlay without cycles, and there is the cycle {cycle}"
        collect.add(("delivery", "routing"), message, hint)
    if routing is not None:
        names = {frozenset((overlay.brokers[link.a].name, overlay.brokers[link.b].name)) for link in overlay.links}
        for place, each in enumerate(routing.links):
            if frozenset(each.between) not in names:
                message = f"there is no link between {each.between[0]} and {each.between[1]}"
                hint = "name two brokers that a link of the overlay joins"
                collect.add(("delivery", "routing", "links", place, "between"), message, hint)
    names_of_brokers = [broker.name for broker in overlay.brokers]
    for place, name in enumerate(scenario.delivery.replication.brokers):
        if name not in names_of_brokers:
            collect.unknown(("delivery", "replication", "brokers", place), "broker", name, names_of_brokers)
    dropping = scenario.delivery.dropping
    automatic = "auto" in (dropping.join_probability, dropping.lifetime, dropping.buffer_size)
    if automatic or dropping.policy == "optimal":
        aimless = [s.name for s in subscribers if s.connectivity is not None and s.response_target_s is None]
        if aimless:
            message = f"policy {dropping.policy} works towards a target, and {aimless[0]} has no response-time target"
            collect.add(("delivery", "dropping"), message, "give targets.response_time, or response_target")


def _check_schemes(scenario: Scenario, topics: tuple[Topic, ...], collect: Collector) -> None:
    names = [topic.name for topic in topics]
    for topic in scenario.delivery.fault_tolerance.schemes:
        if topic not in names:
            collect.unknown(("delivery", "fault_tolerance", "schemes", topic), "topic", topic, names)


def _note_unserved(publishers: tuple[Publisher, ...], subscribers: tuple[Subscriber, ...], collect: Collector) -> None:
    """Notes subscribers without a publisher: they have no reliability, which is no error."""
    published = {topic for publisher in publishers for topic in publisher.topics}
    unserved = sum(1 for subscriber in subscribers if not published.intersection(subscriber.topics))
    if unserved:
        collect.notes.append(f"{unserved} of {len(subscribers)} subscribers want only topics that nobody publishes")
