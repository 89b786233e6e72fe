"""Content-based routing message by message: what passes each link, what each broker's table holds, what is delivered.

Each case is a random tree of brokers with its own workload, under all nine algorithms. Kept are the number of messages
by kind, and digests: of all messages in their order with time, link and kind; of the counts by link; of table entries
over time; of the delays.
"""

from __future__ import annotations

import hashlib
import random
from typing import Any

import numpy as np
import pytest

from surecast.scenario import System, build, parse_text
from surecast.simulation.capacity import ALGORITHMS
from surecast.simulation.capacity.routing_plan import Settings, make_plan
from surecast.simulation.capacity.routing_run import RoutingWorld

__all__ = ["MESSAGE_CASES", "messages_of", "random_tree"]

_TWO_ATTRIBUTES = """
      filters:
        - {name: price, value: {edges: [0, 10, 50, 200], weights: [60, 30, 10]},
           interval: {centre: {edges: [0, 10, 200], weights: [1, 1]}, width: {edges: [0, 5, 20], weights: [3, 1]}},
           constrained: 0.8}
        - {name: grade, value: [1, 1, 2, 3], interval: {ends: values}, constrained: 0.5}"""
_EQUAL_FILTERS = """
      filters: [{name: grade, value: [1, 1, 2, 3], interval: {ends: values}}]"""

MESSAGE_CASES: dict[str, dict[str, Any]] = {
    "busy queues 1": {"seed": 1},
    "busy queues 2": {"seed": 2},
    "long links 3": {"seed": 3, "latency": "400ms", "duration_s": 10.0},
    "no delays 4": {"seed": 4, "capacity": "", "latency": "0ms"},
    "exponential service 5": {"seed": 5, "capacity": ", capacity: 80/s, service: exponential"},
    "fourteen brokers 6": {"seed": 6, "brokers": 14, "active": 120, "classes": 5, "duration_s": 6.0},
    "two attributes 7": {"seed": 7, "filters": _TWO_ATTRIBUTES},
    "equal filters 8": {"seed": 8, "filters": _EQUAL_FILTERS},
    "two brokers 9": {"seed": 9, "brokers": 2, "active": 4},
    "one broker 10": {"seed": 10, "brokers": 1},
}


def random_tree(
    seed: int,
    brokers: int = 6,
    *,
    capacity: str = ", capacity: 60/s",
    latency: str = "20ms",
    classes: int = 3,
    active: int = 40,
    filters: str = "",
) -> System:
    """Returns a system whose overlay is a random tree; its queues are busy, so that messages overtake each other."""
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
      classes: [{{name: k, count: {classes}}}]{filters}
      clients: [{", ".join(f"{{name: c{i}, home: b{rng.randrange(brokers)}}}" for i in range(8))}]
      subscriptions: {{active: {active}, lifetime: 8s}}
      publications: 25/s
    """
    return build(parse_text(text))


def messages_of(*, seed: int, duration_s: float = 8.0, **shape: Any) -> dict[str, Any]:
    """Returns what is kept of one run under each algorithm."""
    plan = make_plan(random_tree(seed, **shape))
    settings = Settings(algorithms=ALGORITHMS, duration_s=duration_s, warm_up_s=1.0, seed=seed)
    return {algorithm: _kept(plan, settings, algorithm) for algorithm in ALGORITHMS}


def _kept(plan: Any, settings: Settings, algorithm: str) -> list[Any]:
    log = hashlib.blake2b(digest_size=12)
    send = RoutingWorld.send

    def logged(self: RoutingWorld, now: float, link: int, message: Any, cause: Any) -> None:
        log.update(f"{now:.9g} {link} {cause.kind} {cause.class_index} {cause.removes}\n".encode())
        send(self, now, link, message, cause)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RoutingWorld, "send", logged)
        result = RoutingWorld(plan, settings, algorithm, 0).simulate()
    return [
        *result.sent.sum(axis=1).astype(int).tolist(),
        log.hexdigest(),
        _digest(result.sent, result.arrived, result.link_s),
        _digest(result.local_s, result.remote_s),
        _digest(result.delays, result.delay_s, result.rows, result.bins, result.counts),
    ]


def _digest(*arrays: Any) -> str:
    numbers = [f"{number:.9g}" for array in arrays for number in np.asarray(array, dtype=np.float64).ravel().tolist()]
    return hashlib.blake2b(" ".join(numbers).encode(), digest_size=12).hexdigest()
