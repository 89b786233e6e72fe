"""Speed of the dropping models, and their quality on real mobile connections.

Run without arguments: a million parameter sets of the closed forms and of their inverses, then one queue under each
mechanism. With SURECAST_DATA set to a folder that holds mobility/3glogs and mobility/4glogs, also the mean response
time predicted from one, two and three moments of the measured periods, beside that of a queue driven by them.
"""

from __future__ import annotations

import gzip
import json
import os
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from surecast.prediction.dropping import (
    OnOffQueue,
    ResponseTarget,
    arrival_rate_for,
    evaluate,
    join_probability_for,
    join_probability_for_quantile,
    largest_parameter,
    mean_number,
    measured_phases,
    optimal_policy,
    probability_within,
    response_mean_s,
    response_quantile_s,
)
from surecast.scenario.mechanism import Mechanism

Array = NDArray[np.float64]
SETS = 1_000_000
MOMENTS: tuple[Literal[1, 2, 3], ...] = (1, 2, 3)


def clock(label: str, call: Callable[[], Any]) -> Any:
    call()
    begin = time.perf_counter()
    result = call()
    print(f"  {label}: {time.perf_counter() - begin:.3f} s")
    return result


def closed_forms() -> None:
    rng = np.random.default_rng(1)
    service, on, off = rng.uniform(4, 16, SETS), rng.uniform(5, 60, SETS), rng.uniform(5, 60, SETS)
    join, target = rng.random(SETS), rng.uniform(1, 20, SETS)
    arrival = rng.uniform(0.05, 0.95, SETS) * service / (1 + join * off / on)
    queue = (arrival, service, on, off)
    print(f"{SETS:,} parameter sets")
    clock("mean number", lambda: mean_number(*queue, join))
    clock("mean response time", lambda: response_mean_s(*queue, join))
    clock("probability of delivery within a time", lambda: probability_within(target, *queue, join))
    clock("99 % quantile of the response time", lambda: response_quantile_s(0.99, *queue, join))
    clock("join probability for a mean", lambda: join_probability_for(target, *queue))
    clock("join probability for a quantile", lambda: join_probability_for_quantile(target, 0.9, *queue))
    clock("arrival rate for a mean", lambda: arrival_rate_for(target, service, on, off, join))


def mechanisms() -> None:
    queue, target = OnOffQueue.exponential(2.0, 8.0, 20.0, 20.0), ResponseTarget(7.0)
    print("one queue, parameters for a mean of 7 s")
    found = {
        "join probability": clock("join probability", lambda: largest_parameter(queue, "join_probability", target)),
        "buffer": clock("buffer", lambda: largest_parameter(queue, "buffer_size", target)),
        "lifetime": clock("lifetime", lambda: largest_parameter(queue, "lifetime_s", target)),
        "optimal": clock("optimal", lambda: optimal_policy(queue, 7.0)),
    }
    for name, result in found.items():
        print(f"  {name}: {result.answer.success_share:.4f} delivered, {result.answer.response_mean_s:.4f} s")


def periods_of(folder: Path) -> tuple[Array, Array]:
    """Connected and disconnected periods of all trips one after another; below 30 kbit/s there is no connection."""
    samples = [s for file in sorted(folder.iterdir()) for s in json.loads(gzip.decompress(file.read_bytes()))]
    states = [sample["bandwidth_kbps"] >= 30 for sample in samples]
    edges = [0, *(i + 1 for i, (a, b) in enumerate(pairwise(states)) if a != b)]
    sums = np.add.reduceat([sample["duration_ms"] / 1000.0 for sample in samples], edges)
    on, off = sums[0 if states[0] else 1 :: 2], sums[1 if states[0] else 0 :: 2]
    count = min(len(on), len(off))
    return on[:count], off[:count]


def drive(on: Array, off: Array, arrival: float, service: float, events: int) -> float:
    """Mean response time of a queue whose connection follows the periods, over and over; nothing is dropped."""
    rng = np.random.default_rng(1)
    arrived = np.cumsum(rng.exponential(1.0 / arrival, events))
    rounds = int(arrived[-1] * 1.3 / (on.sum() + off.sum())) + 2
    ons, offs = np.tile(on, rounds), np.tile(off, rounds)
    starts = np.concatenate([[0.0], np.cumsum(ons + offs)[:-1]])
    served_before = np.concatenate([[0.0], np.cumsum(ons)[:-1]])
    period = np.searchsorted(starts, arrived, side="right") - 1
    connected = served_before[period] + np.minimum(arrived - starts[period], ons[period])
    needs = rng.exponential(1.0 / service, events)
    total = np.cumsum(needs)
    finished = total + np.maximum.accumulate(connected - (total - needs))
    at = np.searchsorted(served_before, finished, side="left") - 1
    return float((starts[at] + finished - served_before[at] - arrived).mean())


def traces(folder: Path) -> None:
    print("measured connections: mean response time in s, driven and predicted from 1, 2 and 3 moments")
    for name in ("3glogs", "4glogs"):
        on, off = periods_of(folder / name)
        for arrival in (1.0, 4.0, 6.0):
            driven = drive(on, off, arrival, 8.0, 3_000_000)
            mixed = np.random.default_rng(2)
            shuffled = drive(mixed.choice(on, 20_000), mixed.choice(off, 20_000), arrival, 8.0, 3_000_000)
            predicted = [
                evaluate(OnOffQueue(arrival, 8.0, measured_phases(on, off, moments=k)), Mechanism()).response_mean_s
                for k in MOMENTS
            ]
            shown = ", ".join(f"{value:.3f}" for value in predicted)
            print(f"  {name}, {arrival:g}/s of 8/s: driven {driven:.3f}, periods shuffled {shuffled:.3f}; {shown}")


if __name__ == "__main__":
    closed_forms()
    mechanisms()
    if os.environ.get("SURECAST_DATA"):
        traces(Path(os.environ["SURECAST_DATA"]) / "mobility")
