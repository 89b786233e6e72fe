"""Algorithms by link and advertisements: nodes against paths counted by hand, formulas against nodes."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from surecast.errors import AssumptionError, ScenarioError
from surecast.prediction.capacity import predict_capacity
from surecast.prediction.capacity.capacity_model import capacity_model
from surecast.scenario import System, build, parse_text
from surecast.scenario.system import Matching
from surecast.simulation.capacity import ALGORITHMS, simulate_routing
from surecast.simulation.capacity.routing_plan import Settings, make_plan
from surecast.simulation.capacity.routing_run import RoutingWorld, simulate_run
from surecast.simulation.capacity.run_sums import RunResult

_CONTROL = 1


def tree(seed: int, routing: str, *, brokers: int = 6, capacity: str = ", capacity: 60/s") -> System:
    rng = random.Random(seed)
    links = [f"[b{rng.randrange(i)}, b{i}]" for i in range(1, brokers)]
    clients = [f"{{name: c{i}, home: b{rng.randrange(brokers)}}}" for i in range(8)]
    text = f"""
    surecast: 1
    name: tree {seed}
    overlay:
      brokers: [{", ".join(f"{{name: b{i}{capacity}}}" for i in range(brokers))}]
      links: [{", ".join(links)}]
      root: b{rng.randrange(brokers)}
    workload:
      classes: [{{name: k, count: 3}}]
      clients: [{", ".join(clients)}]
      subscriptions: {{active: 40, lifetime: 8s}}
      publications: 25/s
    delivery: {{routing: {routing}}}
    """
    return build(parse_text(text))


def published_by(system: System, clients: set[int]) -> System:
    """The system in which some clients alone publish, as much as all did."""
    workload = system.class_workload
    assert workload is not None
    rates = workload.publication_rate_per_s
    chosen = np.isin(np.arange(rates.shape[1]), sorted(clients))
    alone = np.where(chosen, rates.sum(axis=1, keepdims=True) / chosen.sum(), 0.0)
    return replace(system, class_workload=replace(workload, publication_rate_per_s=alone))


def run(system: System, algorithm: str, *, seed: int = 1, check: bool = False) -> RunResult:
    settings = Settings(algorithms=(algorithm,), duration_s=20.0, warm_up_s=0.0, seed=seed, check=check)
    return simulate_run(make_plan(system), settings, algorithm, 0)


MIXED = "{links: [{between: [b0, b1], algorithm: flooding}, {between: [b5, b%d], algorithm: identity}]}"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("seed", [1, 2])
def test_settled_subscribers_get_each_event_once_whatever_the_algorithms_of_links(seed: int, algorithm: str) -> None:
    rng = random.Random(seed)
    parent = [rng.randrange(i) for i in range(1, 6)][-1]
    system = tree(seed, f"{{advertisements: true, {(MIXED % parent)[1:]}")
    assert run(system, algorithm, seed=seed, check=True).checked > 300
    assert run(published_by(system, {2, 5}), algorithm, seed=seed, check=True).checked > 300


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_where_everybody_publishes_everything_everywhere_advertisements_change_nothing(algorithm: str) -> None:
    systems = []
    for advertised in ("false", "true"):
        system = tree(3, f"{{advertisements: {advertised}}}")
        workload = system.class_workload
        assert workload is not None
        homes = tuple(i % 6 for i in range(len(workload.client_home)))
        systems.append(replace(system, class_workload=replace(workload, client_home=homes)))
    plain, advertised_too = (run(system, algorithm) for system in systems)
    assert (plain.sent == advertised_too.sent).all()
    assert (plain.remote_s == advertised_too.remote_s).all()
    assert (plain.delays == advertised_too.delays).all()


@pytest.mark.parametrize("seed", [4, 5, 6])
def test_with_one_publisher_a_subscription_costs_the_links_to_its_broker(seed: int) -> None:
    """Under simple routing each change is sent over each link between the two homes, and nowhere else."""
    system = published_by(tree(seed, "{advertisements: true}", capacity=""), {0})
    workload = system.class_workload
    assert workload is not None
    plan = make_plan(system)
    home = workload.client_home[0]
    towards: dict[int, int] = {}
    ahead = [home]
    for broker in ahead:
        for link in plan.leaving(broker):
            if plan.head[link] not in (home, *towards):
                towards[plan.head[link]] = (link + plan.links) % (2 * plan.links)
                ahead.append(plan.head[link])
    result = run(system, "peer-to-peer simple", seed=seed)
    changes = result.received[_CONTROL] - np.bincount(
        list(plan.head), weights=result.sent[_CONTROL], minlength=plan.brokers
    )
    expected = np.zeros(2 * plan.links)
    for broker, number in enumerate(changes):
        at = broker
        while at != home:
            expected[towards[at]] += number
            at = plan.head[towards[at]]
    assert changes.sum() > 100
    assert (result.sent[_CONTROL] == expected).all()
    without = run(published_by(tree(seed, "{}", capacity=""), {0}), "peer-to-peer simple", seed=seed)
    assert (without.sent[0] == result.sent[0]).all(), "events take the same ways"
    assert without.sent[_CONTROL].sum() == changes.sum() * plan.links


def test_a_link_of_its_own_algorithm_has_the_messages_of_that_algorithm() -> None:
    """On a chain of two brokers the one link decides."""
    common: dict[str, Any] = {"brokers": 2}
    for algorithm in ("flooding", "identity", "merging"):
        alone = run(tree(7, "{}", **common), "flooding" if algorithm == "flooding" else f"peer-to-peer {algorithm}")
        routing = f"{{links: [{{between: [b1, b0], algorithm: {algorithm}}}]}}"
        assert (run(tree(7, routing, **common), "peer-to-peer simple").sent == alone.sent).all()


@pytest.mark.parametrize("algorithm", [each for each in ALGORITHMS if each.startswith("peer")])
@pytest.mark.parametrize("advertised", ["true", "false"])
def test_links_that_all_have_one_algorithm_have_its_formulas(algorithm: str, advertised: str) -> None:
    name = algorithm.rpartition(" ")[2]
    plain = published_by(tree(4, f"{{advertisements: {advertised}}}"), {0, 1})
    brokers = plain.overlay.brokers
    ends = [(brokers[link.a].name, brokers[link.b].name) for link in plain.overlay.links]
    links = ", ".join(f"{{between: [{a}, {b}], algorithm: {name}}}" for a, b in ends)
    mixed = published_by(tree(4, f"{{advertisements: {advertised}, links: [{links}]}}"), {0, 1})
    for scheme in ("peer-to-peer", "hierarchical"):
        one, other = capacity_model(plain), capacity_model(mixed)
        known, found = one.flows(f"{scheme} {name}"), other.flows(f"{scheme} simple")
        assert found.notifications == pytest.approx(known.notifications, rel=1e-6)
        assert found.controls == pytest.approx(known.controls, rel=1e-6)
        entries = other.remote_entries(f"{scheme} simple")
        assert entries == pytest.approx(one.remote_entries(f"{scheme} {name}"), rel=1e-6)
        assert (other.passing(f"{scheme} simple")[1] == one.passing(f"{scheme} {name}")[1]).all()


@pytest.mark.parametrize(
    ("seed", "algorithm", "routing"),
    [
        (12, "peer-to-peer covering", "{links: [{between: [b0, b1], algorithm: merging}, LAST flooding}]}"),
        (13, "peer-to-peer merging", "{advertisements: true, links: [{between: [b0, b1], algorithm: covering}]}"),
        (14, "hierarchical covering", "{links: [{between: [b0, b1], algorithm: identity}, LAST merging}]}"),
    ],
)
def test_mixed_algorithms_are_predicted_as_they_are_simulated(seed: int, algorithm: str, routing: str) -> None:
    """Messages over each link and entries at each broker, against the nodes in virtual time."""
    rng = random.Random(seed)
    parent = [rng.randrange(i) for i in range(1, 6)][-1]
    routing = routing.replace("LAST", f"{{between: [b{parent}, b5], algorithm:")
    system = published_by(tree(seed, routing, capacity=""), {1, 2, 3})
    model = capacity_model(system)
    flows = model.flows(algorithm)
    rates = np.stack([flows.notifications @ model.count, flows.controls @ model.count])
    entries = np.zeros(model.tree.brokers)
    np.add.at(
        entries,
        model.tree.tail,
        model.remote_entries(algorithm) @ model.count + model.entries_for_all(algorithm),
    )
    results = [run(system, algorithm, seed=s) for s in range(1, 9)]
    duration_s = 20.0
    sent = np.array([np.asarray(result.sent) for result in results]) / duration_s
    held = np.array([np.asarray(result.remote_s) for result in results]) / duration_s
    least = np.sqrt(rates / (duration_s * len(results)))
    error = np.maximum(sent.std(axis=0, ddof=1) / math.sqrt(len(results)), least)
    assert (np.abs(sent.mean(axis=0) - rates) <= 4.5 * error + 1e-9).all()
    spread = held.std(axis=0, ddof=1) / math.sqrt(len(results))
    assert (np.abs(held.mean(axis=0) - entries) <= 4.5 * spread + 0.02 * entries + 1e-9).all()


def test_what_has_no_formulas_is_refused_by_both_fields() -> None:
    by_link = tree(1, "{links: [{between: [b0, b1], algorithm: flooding}]}")
    matching = Matching("counting", 1e-5, 1e-6, 1e-6, 1e-6, 1e-5, 1e-6)
    brokers = tuple(replace(broker, matching=matching) for broker in by_link.overlay.brokers)
    with pytest.raises(AssumptionError, match=r"delivery\.routing\.links beside overlay\.brokers\.matching"):
        predict_capacity(replace(by_link, overlay=replace(by_link.overlay, brokers=brokers)))
    with pytest.raises(AssumptionError, match=r"links beside --algorithm 'peer-to-peer merging-as-printed'"):
        predict_capacity(by_link, ["peer-to-peer merging-as-printed"])
    report = predict_capacity(by_link, ["flooding", "peer-to-peer covering"])
    assert any("b0--b1 flooding" in note for note in report.info.notes)
    report = simulate_routing(by_link, ["peer-to-peer covering"], duration_s=1, warm_up_s=0, runs=1, seed=1)
    assert any("b0--b1 flooding" in note for note in report.info.notes)


@pytest.mark.parametrize(
    ("routing", "wrong"),
    [
        ("{links: [{between: [b0, b9], algorithm: simple}]}", "there is no link between b0 and b9"),
        ("{links: [{between: [b0, b1], algorithm: gossip}]}", "links\\[0\\].algorithm"),
        (
            "{links: [{between: [b0, b1], algorithm: simple}, {between: [b1, b0], algorithm: identity}]}",
            "each link stands there once",
        ),
        ("{algorithm: flooding, advertisements: true}", "flooding passes no subscription on"),
    ],
)
def test_what_makes_no_sense_is_refused(routing: str, wrong: str) -> None:
    with pytest.raises(ScenarioError, match=wrong):
        tree(1, routing)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_nodes_count_their_messages_and_entries_as_the_simulation_does(algorithm: str) -> None:
    system = tree(8, "{}")
    plan = make_plan(system)
    world = RoutingWorld(plan, Settings(algorithms=(algorithm,), duration_s=10.0, warm_up_s=0.0, seed=8), algorithm, 0)
    world.install()
    nodes = [broker.node for broker in world._brokers]
    before = [node.messages() for node in nodes]
    world.begin()
    world.advance(10.0)
    result = world.end()
    for link, (tail, head) in enumerate(zip(plan.tail, plan.head, strict=True)):
        then, now = (messages[tail][plan.names[head]] for messages in (before, [node.messages() for node in nodes]))
        for kind, name in enumerate(("events", "demand-updates")):
            assert now.get(name, 0) - then.get(name, 0) == result.sent[kind, link], (algorithm, name)
    assert result.sent.sum() > 200
    for broker in world._brokers:
        assert sum(broker.node.table_sizes().values()) == broker.remote_entries
