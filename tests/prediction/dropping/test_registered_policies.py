"""Dropping policies of one's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from surecast.errors import AssumptionError, ConfigurationError
from surecast.prediction import POLICIES, find_mechanisms, predict_dropping
from surecast.prediction.dropping import (
    OnOffQueue,
    ResponseTarget,
    evaluate,
    largest_parameter,
    register_policy,
    unregister_policy,
)
from surecast.scenario import System, build, parse_text
from surecast.scenario.mechanism import Mechanism


def system(capacity: str = "", target: str = "7s") -> System:
    return build(
        parse_text(f"""
surecast: 1
name: commuter
overlay: {{brokers: [{{name: b{capacity}}}]}}
workload:
  topics: [t]
  publishers: [{{name: p, home: b, topics: [t], rate: 2/s}}]
  subscribers:
    - {{name: s, home: b, topics: [t], connectivity: {{on: 20s, off: 20s}}, service: 8/s, response_target: {target}}}
""")
    )


def short_queue(queue: OnOffQueue, target: ResponseTarget) -> Mechanism | None:
    return largest_parameter(queue, "join_probability", target, Mechanism(buffer_size=10)).mechanism


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    register_policy("short-queue", short_queue)
    yield
    unregister_policy("short-queue")
    assert POLICIES == ["none", "probabilistic", "expiry", "finite-buffer", "optimal"]


def test_a_registered_policy_is_predicted_beside_the_others() -> None:
    report = predict_dropping(system(), ["probabilistic", "short-queue"])
    found = find_mechanisms(system(), "short-queue")["s"]
    assert (found.buffer_size, found.name) == (10, "finite-buffer")
    own = evaluate(OnOffQueue.exponential(2.0, 8.0, 20.0, 20.0), found)
    assert report.value("success_share", name="s", variant="short-queue") == pytest.approx(own.success_share)
    assert report.value("delay_mean_s", name="s", variant="short-queue") <= 7.0
    assert "short-queue" in POLICIES


def test_a_rule_is_given_what_the_way_to_the_queue_leaves_of_the_target() -> None:
    asked: list[float] = []

    def remember(_: OnOffQueue, target: ResponseTarget) -> Mechanism | None:
        asked.append(target.time_s)
        return Mechanism(lifetime_s=20.0)

    register_policy("short-queue", remember)
    # dropping Eq. 1: an M/M/1 queue with 2/s and 4/s takes half a second
    found = find_mechanisms(system(", capacity: 4/s"), "short-queue")["s"]
    assert asked == [pytest.approx(6.5)]
    assert found.lifetime_s == pytest.approx(20.5), "lifetimes count from publication"


def test_a_target_that_a_rule_cannot_meet_is_refused_by_name() -> None:
    register_policy("short-queue", lambda queue, target: None)
    with pytest.raises(AssumptionError, match="subscriber s: the policy finds no way to meet the target of 7 s"):
        predict_dropping(system(), ["short-queue"])


@pytest.mark.parametrize("name", ["none", "optimal", "all", ""])
def test_names_that_mean_something_else_are_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="choose another name"):
        register_policy(name, short_queue)


def test_what_is_not_registered_is_not_known() -> None:
    unregister_policy("short-queue")
    unregister_policy("short-queue")
    with pytest.raises(ConfigurationError, match="there is no policy 'short-queue'"):
        predict_dropping(system(), ["short-queue"])
