"""The time in a group that works in cycles, against a simulation of leader and follower task by task."""

from __future__ import annotations

import heapq
import math

import numpy as np
import pytest

from surecast.prediction.composed import predict_composed
from surecast.prediction.replication.gated_group import gated_time
from surecast.scenario import build, parse_text

MESSAGE_S, TASK_S = 0.005, 0.0005


def simulated(rate: float, squared_cv: float, events: int, seed: int = 1) -> tuple[float, float]:
    """Returns mean and standard deviation of the time of events beyond the messages; services have mean 1."""
    rng = np.random.default_rng(seed)
    came = np.cumsum(rng.exponential(1.0 / rate, events))
    services = np.ones(events) if squared_cv == 0.0 else rng.gamma(1.0 / squared_cv, squared_cv, events)
    propose, vote, carry_out, follow = range(4)
    queue = [(float(time), propose, i) for i, time in enumerate(came)]
    heapq.heapify(queue)
    leader = follower = 0.0
    took = np.zeros(events)
    while queue:
        now, task, i = heapq.heappop(queue)
        if task == propose:
            leader = max(leader, now) + TASK_S
            heapq.heappush(queue, (leader + MESSAGE_S, vote, i))
        elif task == vote:
            follower = max(follower, now) + TASK_S
            heapq.heappush(queue, (follower + MESSAGE_S, carry_out, i))
        elif task == carry_out:
            leader = max(leader, now) + services[i]
            took[i] = leader - came[i] - 2.0 * MESSAGE_S
            heapq.heappush(queue, (leader + MESSAGE_S, follow, i))
        else:
            follower = max(follower, now) + services[i]
    kept = took[events // 10 :]
    return float(kept.mean()), float(kept.std())


@pytest.mark.parametrize("squared_cv", [0.0, 1.0 / 3.0, 1.0])
@pytest.mark.parametrize(("load", "error"), [(0.2, 0.03), (0.5, 0.05), (0.8, 0.1)])
def test_mean_and_deviation_are_those_of_a_simulated_group(squared_cv: float, load: float, error: float) -> None:
    mean_s, deviation_s = simulated(load, squared_cv, 60_000)
    time_s, variance_s2 = gated_time(load, 1.0, squared_cv, 2.0 * (MESSAGE_S + TASK_S))
    assert time_s == pytest.approx(mean_s, rel=error)
    assert math.sqrt(variance_s2) == pytest.approx(deviation_s, rel=1.5 * error)


def test_it_is_no_plain_queue() -> None:
    """Regular service at four fifths: 3 times as long as M/D/1, because followers vote when a batch is done."""
    plain_s = 1.0 + 0.8 / (2.0 * 0.2)
    assert gated_time(0.8, 1.0, 0.0, 0.01)[0] > 2.0 * plain_s


CHAIN = """
surecast: 1
name: groups
overlay: {brokers: [{name: a, capacity: 10/s, service: deterministic}, {name: b, capacity: 10/s}], links: [[a, b]]}
workload:
  topics: [t]
  deadline: DEADLINE
  publishers: [{name: p, home: a, topics: [t], rate: 7/s}]
  subscribers: [{name: near, home: a, topics: [t]}, {name: far, home: b, topics: [t]}]
delivery: {replication: {replicas: 3}}
"""


def test_groups_in_series_are_warned_about_by_name_and_size() -> None:
    warnings = predict_composed(build(parse_text(CHAIN.replace("DEADLINE", "1s")))).info.warnings
    named = [w for w in warnings if "may be off" in w]
    assert len(named) == 1
    assert named[0].startswith("composed: subscriber far: may be off by 0.")
    assert 0.02 < float(named[0].split("by ")[1].split()[0]) < 0.3
    late = predict_composed(build(parse_text(CHAIN.replace("DEADLINE", "1h")))).info.warnings
    assert not [w for w in late if "may be off" in w]
