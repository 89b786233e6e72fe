"""What a run is, decided before it begins; and what is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from surecast.errors import AssumptionError, ConfigurationError
from surecast.measurement import make_plan
from surecast.scenario import Streams, System, build, parse_text
from surecast.scenario.mechanism import JoinTable, Mechanism

HEAD = "surecast: 1\nname: one\n"
ONE = {"brokers": [{"name": "b"}]}
PUBLISHER = {"name": "p", "home": "b", "topics": ["t"], "rate": "2/s"}
SUBSCRIBER = {"name": "s", "home": "b", "topics": ["t"]}
CLASSES = {
    "classes": ["c"],
    "clients": [{"name": "k", "home": "b"}],
    "subscriptions": {"active": 5, "lifetime": "60s"},
    "publications": "1/s",
}
COMING = {**SUBSCRIBER, "connectivity": {"on": "20s", "off": "20s"}, "service": "8/s", "response_target": "7s"}


def system_of(*subscribers: Any, overlay: Any = ONE, **sections: Any) -> System:
    workload = {"topics": ["t", "u"], "publishers": [PUBLISHER], "subscribers": list(subscribers or [SUBSCRIBER])}
    data = {"overlay": overlay, "workload": workload, **sections}
    return build(parse_text(HEAD + "".join(f"{name}: {json.dumps(value)}\n" for name, value in data.items())))


@pytest.mark.parametrize(
    ("system", "says"),
    [
        (lambda: system_of(delivery={"coding": {}}), r"delivery\.coding"),
        (lambda: system_of(availability={"clients": {"mtbf": "1h", "mttr": "1min"}}), r"availability\.clients"),
        (lambda: system_of(workload=CLASSES | {"topics": ["t"], "publishers": [PUBLISHER]}), r"workload\.classes"),
        (
            lambda: system_of(workload=CLASSES, availability={"brokers": {"mtbf": "1h", "mttr": "1min"}}),
            r"availability\.brokers: .* filter classes",
        ),
        (lambda: system_of(workload={"topics": ["t"]}), r"workload\.publishers: one has none"),
        (
            lambda: system_of(
                COMING,
                {**COMING, "name": "other", "response_target": "9s"},
                delivery={"dropping": {"policy": "expiry", "lifetime": "auto"}},
            ),
            r"delivery\.dropping\.lifetime: auto gives the subscribers different lifetimes",
        ),
    ],
)
def test_what_cannot_be_run_is_refused_by_its_field(system: Callable[[], System], says: str) -> None:
    with pytest.raises(AssumptionError, match=says):
        make_plan(system())


def test_the_optimal_policy_is_a_threshold_of_the_broker() -> None:
    plan = make_plan(system_of(COMING, delivery={"dropping": {"policy": "optimal"}}))
    (rule,) = plan.limits()["clients"]
    threshold = sum(plan.mechanisms["s"].join_table[0])
    assert rule["limits"] == {"join_threshold": threshold}
    assert threshold > 0.0


def test_subscribers_that_ask_leave_the_parameter_to_the_broker() -> None:
    system = system_of(COMING, SUBSCRIBER | {"name": "wall"}, delivery={"dropping": {"policy": "optimal"}})
    plan = make_plan(system, scale=10.0, asks_targets=True)
    limits = plan.limits()
    assert limits["clients"] == []
    assert (limits["limits"]["connected_prior"], limits["limits"]["disconnected_prior"]) == ("2s", "2s")
    asking, wall = system.subscribers
    assert plan.asks_of(asking).user == (
        ("surecast-response-mean-ms", "700"),
        ("surecast-response-policy", "optimal"),
    )
    assert not plan.asks_of(wall).user
    assert plan.variant(asking) == "optimal"


@pytest.mark.parametrize(
    ("subscriber", "dropping", "says"),
    [
        (COMING, {"policy": "none"}, r"delivery\.dropping\.policy: none: subscribers that ask"),
        (COMING, {"policy": "finite-buffer", "buffer_size": 4}, r"delivery\.dropping\.buffer_size: 4: .* write auto"),
        (SUBSCRIBER, {"policy": "optimal"}, r"workload\.subscribers: nobody comes and goes"),
    ],
)
def test_what_leaves_nothing_to_ask_is_refused_by_its_field(
    subscriber: dict[str, Any], dropping: dict[str, Any], says: str
) -> None:
    with pytest.raises(AssumptionError, match=says):
        make_plan(system_of(subscriber, delivery={"dropping": dropping}), asks_targets=True)


@pytest.mark.parametrize("table", [((0.5, 0.5, 0.0), (1.0,)), ((1.0, 0.5), (1.0,)), ((1.0, 0.0), (1.0, 0.0))])
def test_a_table_that_is_no_threshold_is_refused(table: JoinTable, monkeypatch: pytest.MonkeyPatch) -> None:
    mechanism = Mechanism(join_table=table)
    monkeypatch.setattr("surecast.prediction.find_mechanisms", lambda system: {"s": mechanism})
    with pytest.raises(AssumptionError, match=r"delivery\.dropping\.policy: the join table of s is no threshold"):
        make_plan(system_of(COMING, delivery={"dropping": {"policy": "optimal"}}))


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan])
def test_a_time_scale_is_a_positive_number(scale: float) -> None:
    with pytest.raises(ConfigurationError, match=r"the time scale is .* above 0 and finite"):
        make_plan(system_of(), scale=scale)


def test_a_time_scale_that_no_client_keeps_up_with_is_refused_with_one_that_fits() -> None:
    with pytest.raises(AssumptionError, match="use a time scale of 2500 or less"):
        make_plan(system_of(), scale=2501, duration_s=60, client_processes=1)
    with pytest.raises(AssumptionError, match="there are 3: use a time scale of"):
        make_plan(system_of(), scale=7501, duration_s=60, client_processes=3)
    assert make_plan(system_of(), scale=7500, duration_s=60, client_processes=3).client_processes == 3


def test_there_are_as_many_client_processes_as_the_messages_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    scales = (2500, 2501, 10000)
    needed = {scale: make_plan(system_of(), scale=scale, duration_s=60).client_processes for scale in scales}
    assert needed == {2500: 1, 2501: 2, 10000: 4}
    with pytest.raises(AssumptionError, match="there are 4"):
        make_plan(system_of(), scale=10001, duration_s=60)


@pytest.mark.parametrize("number", [0, 17])
def test_a_number_of_client_processes_that_cannot_be_is_refused(number: int) -> None:
    with pytest.raises(ConfigurationError, match=f"`client_processes`: {number}: it must be 1 to 16"):
        make_plan(system_of(), duration_s=60, client_processes=number)


def test_times_of_a_run_must_make_sense() -> None:
    with pytest.raises(ConfigurationError, match="the duration is 0"):
        make_plan(system_of(), duration_s=0)
    with pytest.raises(ConfigurationError, match="the patience is -1 s"):
        make_plan(system_of(), duration_s=1, patience_s=-1)
    with pytest.raises(ConfigurationError, match="the leader is to be killed at 9 s; the run has 5 s"):
        make_plan(system_of(), duration_s=5, leader_kills_s=[9])


def test_publications_are_those_of_the_first_simulated_run() -> None:
    plan = make_plan(system_of(), duration_s=100.0, warm_up_s=10.0, seed=7)
    rng, time_s, times = Streams(7).generator("run 0/publications", "p"), 0.0, []
    while (time_s := time_s + rng.standard_exponential() / 2.0) < 110.0:
        times.append(time_s)
    assert plan.events.time_s.tolist() == pytest.approx(times)
    assert plan.real_s == 110.0


def test_mechanisms_become_limits_of_the_client() -> None:
    join = {"policy": "probabilistic", "join_probability": 0.25}
    told = make_plan(system_of(COMING, delivery={"dropping": join}), duration_s=10).limits()
    assert told["clients"] == [{"client": "subscriber s", "limits": {"join_probability": 0.25}}]
    buffer = {"policy": "finite-buffer", "buffer_size": 9}
    told = make_plan(system_of(COMING, delivery={"dropping": buffer}), duration_s=10).limits()
    assert told["clients"][0]["limits"] == {"queue_messages": 9, "overflow": "drop-new"}
    expiry = {"policy": "expiry", "lifetime": "5s"}
    plan = make_plan(system_of(COMING, delivery={"dropping": expiry}), duration_s=10)
    assert plan.limits()["clients"] == []
    assert set(plan.events.lifetime_s.tolist()) == {5.0}
    assert plan.expiring_too == ()
    wall = {**SUBSCRIBER, "name": "wall"}
    both = make_plan(system_of(COMING, wall, delivery={"dropping": expiry}), duration_s=10)
    assert set(both.events.lifetime_s.tolist()) == {5.0}
    assert both.expiring_too == (1,)
    assert make_plan(system_of(COMING, wall, delivery={"dropping": buffer}), duration_s=10).expiring_too == ()


def test_a_group_is_told_what_the_scenario_says_of_replication() -> None:
    replication = {"replicas": 3, "variant": "batch", "durable": False, "suspect": "500ms", "delay": "2ms"}
    plan = make_plan(system_of(delivery={"replication": replication}), duration_s=10)
    options = plan.group_options()
    assert (options["sync"], options["link_delay"]) == ("none", "2ms")
    assert options["paxos"] == {"variant": "batch", "alpha": 10, "suspect": "0.5s", "heartbeat": "0.1s"}
    assert plan.patience_s == 5.0
    assert plan.broker_variant == "batch, 3 replicas"


def test_variants_are_those_of_predictions() -> None:
    plan = make_plan(system_of(COMING, {**SUBSCRIBER, "name": "wall"}), duration_s=10)
    assert [plan.variant(s) for s in plan.system.subscribers] == ["no dropping", "buffering"]
    alone = make_plan(system_of(COMING), duration_s=10)
    assert [alone.variant(s) for s in alone.system.subscribers] == ["none"]


@pytest.mark.parametrize("repair", ["independent", "single"])
def test_processes_fail_as_often_as_the_scenario_says(repair: str) -> None:
    system = system_of(
        availability={"brokers": {"mtbf": "40s", "mttr": "10s"}},
        delivery={"replication": {"replicas": 3, "repair": repair}},
    )
    plan = make_plan(system, duration_s=20_000.0, seed=1)
    down_s = np.zeros(3)
    repairs: list[tuple[float, float]] = []
    for i, trace in enumerate(plan.traces):
        assert (np.diff(trace) > 0).all()
        pairs = [(float(a), float(b)) for a, b in zip(trace[::2], trace[1::2], strict=False)]
        down_s[i] = sum(min(b, plan.end_s) - min(a, plan.end_s) for a, b in pairs)
        repairs += pairs
    if repair == "independent":
        assert down_s.mean() / plan.end_s == pytest.approx(0.2, abs=0.02)
    else:
        # With one repairer who is never done with more than one at a time, at most one is repaired per 10 s.
        assert 0.22 < down_s.mean() / plan.end_s < 0.35
        ends = sorted(end for _, end in repairs)
        assert len(set(ends)) == len(ends)
