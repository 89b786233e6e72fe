"""Deliveries against an oracle that knows all subscriptions; replay; accounts; what is refused."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surecast.errors import AssumptionError, ConfigurationError, PeerError
from surecast.prediction.capacity import predict_capacity
from surecast.scenario import Streams, System, build, load_system, parse_text
from surecast.simulation.capacity import ALGORITHMS, simulate_routing
from surecast.simulation.capacity.client_behaviour import SimulatedClient
from surecast.simulation.capacity.estimates import worst_path
from surecast.simulation.capacity.routed_brokers import RoutedBroker
from surecast.simulation.capacity.routing_plan import Settings, make_plan
from surecast.simulation.capacity.routing_run import simulate_run
from surecast.simulation.reliability.protocol import SafetyError

COMPANY = Path(__file__).parents[3] / "examples" / "company.yaml"


def tree(seed: int, brokers: int = 6, *, capacity: str = ", capacity: 60/s", latency: str = "20ms") -> System:
    """A random tree whose queues are busy, so that messages overtake each other on different paths."""
    rng = random.Random(seed)
    links = [f"{{between: [b{rng.randrange(i)}, b{i}], latency: {latency}}}" for i in range(1, brokers)]
    text = f"""
    surecast: 1
    name: tree {seed}
    overlay:
      brokers: [{", ".join(f"{{name: b{i}{capacity}}}" for i in range(brokers))}]
      links: [{", ".join(links)}]
      root: b{rng.randrange(brokers)}
    workload:
      classes: [{{name: k, count: 3}}]
      clients: [{", ".join(f"{{name: c{i}, home: b{rng.randrange(brokers)}}}" for i in range(8))}]
      subscriptions: {{active: 40, lifetime: 8s}}
      publications: 25/s
    """
    return build(parse_text(text))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("seed", [1, 2])
def test_settled_subscribers_get_each_event_once(seed: int, algorithm: str) -> None:
    settings = Settings(algorithms=(algorithm,), duration_s=20.0, warm_up_s=0.0, seed=seed, check=True)
    result = simulate_run(make_plan(tree(seed)), settings, algorithm, 0)
    assert result.checked > 500


def central(system: System, settings: Settings, run: int) -> Counter[int]:
    """Who gets how many events if everybody knows everything at once: intervals as pairs of numbers, no brokers."""
    plan = make_plan(system)
    changes: list[tuple[float, int, Any]] = []
    end_s = settings.warm_up_s + settings.duration_s
    for index in range(len(plan.workload.clients)):
        client = SimulatedClient(plan, index, Streams(settings.seed), run)
        for one, left_s in client.first_subscriptions():
            changes += [(-1.0, 1, one), (left_s, -1, one)]
        now = 0.0
        while (following := client.next_subscription()) is not None and (now := now + following[0]) <= end_s:
            one, lifetime_s = client.subscription(following[1])
            changes += [(now, 1, one), (now + lifetime_s, -1, one)]
        now = 0.0
        while (following := client.next_publication()) is not None and (now := now + following[0]) <= end_s:
            changes.append((now, 0, client.event(following[1])))
    active: list[Any] = []
    got: Counter[int] = Counter()
    for now, change, what in sorted(changes, key=lambda each: each[0]):
        if now > end_s:
            break
        if change > 0:
            active.append(what)
        elif change < 0:
            active.remove(what)
        elif now > settings.warm_up_s:
            ((_, value),) = what.attributes
            got.update(
                {
                    one.client
                    for one in active
                    if one.filter.class_name == what.class_name
                    and one.filter.constraints[0][1].low <= value <= one.filter.constraints[0][1].high
                }
            )
    return got


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_without_delays_routing_is_a_central_matcher(algorithm: str) -> None:
    system = tree(9, capacity="", latency="0ms")
    settings = Settings(algorithms=(algorithm,), duration_s=30.0, warm_up_s=5.0, seed=3)
    result = simulate_run(make_plan(system), settings, algorithm, 2)
    expected = central(system, settings, 2)
    assert sum(expected.values()) > 1000
    assert {i: int(n) for i, n in enumerate(result.delays[:8]) if n} == dict(expected)
    assert result.delay_s.sum() == 0.0


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (lambda sent, got: (sent, []), "did not get an event"),
        (lambda sent, got: (sent, got + got), "gets an event twice"),
        (lambda sent, got: (sent, ["c0"] if got else []), "c0|did not"),
        (lambda sent, got: ([], got), "came behind"),
    ],
)
def test_the_oracle_finds_faults(fault: Any, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that is lost is noticed by the link: its frames are numbered."""
    handle = RoutedBroker.handle
    count = itertools.count()

    def broken(self: RoutedBroker, now: float, frame: Any, sender: str) -> Any:
        outcome = handle(self, now, frame, sender)
        return fault(*outcome) if next(count) % 20 == 19 else outcome

    monkeypatch.setattr(RoutedBroker, "handle", broken)
    name = "peer-to-peer covering"
    with pytest.raises((SafetyError, PeerError), match=message):
        simulate_run(
            make_plan(tree(1)),
            Settings(algorithms=(name,), duration_s=20.0, warm_up_s=0.0, seed=1, check=True),
            name,
            0,
        )


def test_the_same_seed_gives_the_same_report() -> None:
    common: dict[str, Any] = {"duration_s": 4.0, "warm_up_s": 1.0, "runs": 2}
    chosen = ["flooding", "hierarchical merging"]
    first = list(simulate_routing(tree(1), chosen, seed=5, **common))
    assert first == list(simulate_routing(tree(1), chosen, seed=5, **common))
    assert first == list(simulate_routing(tree(1), chosen, seed=5, workers=2, **common))
    assert first != list(simulate_routing(tree(1), chosen, seed=6, **common))
    alone = simulate_routing(tree(1), chosen[1:], seed=5, **common)
    assert list(alone) == [figure for figure in first if figure.variant == chosen[1]]


def test_clients_do_the_same_under_every_algorithm() -> None:
    report = simulate_routing(tree(2, capacity=""), duration_s=10, warm_up_s=0, runs=1, seed=5)
    local = {
        tuple(
            round(value, 9)
            for value in report.values("table_entries", scope="broker", detail="local", variant=name).values()
        )
        for name in ALGORITHMS
    }
    assert len(local) == 1


def test_what_comes_to_a_broker_was_sent_to_it() -> None:
    plan = make_plan(tree(3))
    for algorithm in ALGORITHMS:
        result = simulate_run(
            plan, Settings(algorithms=(algorithm,), duration_s=15.0, warm_up_s=0.0, seed=1), algorithm, 0
        )
        arrived = np.zeros(plan.brokers)
        np.add.at(arrived, list(plan.head), result.arrived)
        from_clients = result.received.sum(axis=0) - arrived
        assert (from_clients >= 0).all()
        assert from_clients.sum() > 25 * 15 * 0.8
        assert (result.sent.sum(axis=0) - result.arrived >= 0).all()
        assert (result.sent.sum(axis=0) - result.arrived).sum() <= 60  # on their way at the end
        assert (result.served[: plan.brokers] == result.received.sum(axis=0)).all()
        assert (result.busy_s <= 15.0 + 1e-9).all()
        assert (result.busy_s > 0).all()


def test_the_report_has_the_keys_of_the_prediction() -> None:
    _, system = load_system(COMPANY, {"workload.subscriptions.active": "600", "workload.classes[0].count": "20"})
    chosen = ["flooding", "peer-to-peer identity", "hierarchical covering"]
    not_simulated = {"headroom_factor", "waiting_averaged_s"}
    for shared in (True, False):
        predicted = predict_capacity(system, chosen, shared_directions=shared)
        simulated = simulate_routing(
            system, chosen, duration_s=1, warm_up_s=0.5, runs=2, seed=1, shared_directions=shared
        )
        keys = [
            {(f.variant, f.scope, f.name, f.metric, f.detail) for f in report if f.metric not in not_simulated}
            for report in (predicted, simulated)
        ]
        missing = {key for key in keys[0] - keys[1] if key[3] != "notification_delay_latest_s" or not key[4]}
        # What has no traffic in so short a time has no mean, and what nothing passes is not listed.
        rare = ("waiting_mean_s", "delay_mean_s", "delay_quantile_s", "traffic_per_s", "utilisation")
        assert all(key[3] in rare for key in missing), sorted(missing)[:20]
        assert len(missing) <= 0.1 * len(keys[0])
        known = {key[1:4:2] for key in keys[0]}
        extra = {key[1:4:2] for key in keys[1]} - known
        own = {("broker", "delay_mean_s"), ("router", "delay_mean_s"), ("physical_link", "delay_mean_s")}
        assert extra <= own | {("system", "subscription_delay_mean_s")}


@pytest.mark.parametrize("shared", [True, False])
def test_the_worst_path_is_that_of_the_prediction(shared: bool) -> None:
    # capacity Eqs. 40-45: all paths tried one by one, against the recursion over the tree
    _, system = load_system(COMPANY, {"workload.subscriptions.active": "5000"})
    plan = make_plan(system, shared_directions=shared)
    report = predict_capacity(system, shared_directions=shared)
    for algorithm in ALGORITHMS:
        waits = {
            (f.scope, f.name, f.detail): f.value for f in report.figures(metric="waiting_mean_s", variant=algorithm)
        }
        waiting = []
        for queue in plan.queues:
            detail = ""
            if queue.part is not None and not queue.part[0] and not shared:
                detail = "backward" if queue.part[2] else "forward"
            waiting.append(waits.get((queue.scope, queue.name, detail), 0.0))
        for metric, control in (("notification_delay_worst_s", False), ("subscription_delay_worst_s", True)):
            found = worst_path(plan, algorithm, np.array(waiting), control=control)
            assert found is not None
            assert found.delay_s == pytest.approx(report.value(metric, variant=algorithm)), algorithm


def test_what_cannot_be_simulated_is_refused() -> None:
    system = tree(1)
    common: dict[str, Any] = {"warm_up_s": 0.0, "runs": 1, "seed": 1}
    with pytest.raises(ConfigurationError, match="there is no algorithm 'gossip'"):
        simulate_routing(system, ["gossip"], duration_s=1, **common)
    with pytest.raises(ConfigurationError, match="write a list"):
        simulate_routing(system, "flooding", duration_s=1, **common)
    with pytest.raises(ConfigurationError, match="duration_s"):
        simulate_routing(system, duration_s=0, **common)
    with pytest.raises(ConfigurationError, match="runs: 0 must be 1 or more"):
        simulate_routing(system, duration_s=1, warm_up_s=0, runs=0, seed=1)
    with pytest.raises(AssumptionError, match="no filter classes"):
        simulate_routing(replace(system, class_workload=None), duration_s=1, **common)
    workload = system.class_workload
    assert workload is not None
    for name in ("a/#", "+", "$SYS"):
        wild = replace(workload, classes=(replace(workload.classes[0], name=name), *workload.classes[1:]))
        with pytest.raises(AssumptionError, match="classes are topics"):
            simulate_routing(replace(system, class_workload=wild), duration_s=1, **common)
    more = replace(system.overlay.links[0], name="again", a=0, b=5)
    cyclic = replace(system, overlay=replace(system.overlay, links=(*system.overlay.links, more)))
    with pytest.raises(AssumptionError, match="no tree"):
        simulate_routing(cyclic, duration_s=1, **common)


def test_failures_and_link_capacities_are_left_out_and_it_is_said() -> None:
    system = tree(1)
    first = replace(system.overlay.links[0], capacity_per_s=100.0, loss=0.1)
    system = replace(system, overlay=replace(system.overlay, links=(first, *system.overlay.links[1:])))
    report = simulate_routing(system, ["flooding"], duration_s=1, warm_up_s=0, runs=1, seed=1)
    assert len(report.info.warnings) == 2
    assert "overlay.links.capacity" in report.info.warnings[0]
    assert "overlay.links.loss" in report.info.warnings[1]
