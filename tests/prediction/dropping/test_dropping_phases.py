"""Periods that are not exponential: fits, the queue with more phases, and real mobile connections."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.linalg import expm_multiply

from surecast.errors import AssumptionError, ConfigurationError
from surecast.prediction.dropping import (
    OnOffQueue,
    Phases,
    evaluate,
    exponential_phases,
    fitted_phases,
    infinite_queue,
    mean_number,
    measured_phases,
    rate_matrix,
)
from surecast.scenario import parse_distribution
from surecast.scenario.mechanism import Mechanism

Array = NDArray[np.float64]


def phases_of(on: dict[str, object], off: dict[str, object]) -> Phases:
    return fitted_phases(parse_distribution(on), parse_distribution(off))[0]


VARIABLE = phases_of(
    {"distribution": "hyperexponential", "mean": "6s", "scv": 3}, {"distribution": "erlang", "mean": "3s", "stages": 3}
)


def dumb_levels(phases: Phases, arrival: float, service: float, join: float, levels: int) -> Array:
    """The truncated chain as one dense matrix."""
    size = len(phases.generator)
    matrix = np.zeros((levels * size, levels * size))
    for n in range(levels):
        here = slice(n * size, (n + 1) * size)
        matrix[here, here] += phases.generator
        for i in range(size):
            a = n * size + i
            for b, rate in (
                (a + size, arrival * (1.0 if phases.connected[i] else join) if n < levels - 1 else 0.0),
                (a - size, service if phases.connected[i] and n > 0 else 0.0),
            ):
                if rate:
                    matrix[a, b] += rate
                    matrix[a, a] -= rate
    system, right = matrix.T.copy(), np.zeros(levels * size)
    system[0], right[0] = 1.0, 1.0
    return np.asarray(np.linalg.solve(system, right).reshape(levels, size), dtype=np.float64)


@pytest.mark.parametrize("join", [0.0, 0.4, 1.0])
def test_the_queue_with_more_phases_is_the_truncated_chain(join: float) -> None:
    arrival, service, levels = 1.0, 4.0, 140
    p = dumb_levels(VARIABLE, arrival, service, join, levels)
    empty, climb = infinite_queue(VARIABLE, arrival, service, join)
    assert np.abs(empty - p[0]).max() < 1e-11
    assert np.abs(p[5] @ climb - p[6]).max() < 1e-11
    found = evaluate(OnOffQueue(arrival, service, VARIABLE), Mechanism(join_probability=join))
    number = float(np.arange(levels) @ p.sum(axis=1))
    joined = p * VARIABLE.by_state(join, 1.0)
    assert found.queue_length_mean == pytest.approx(number, rel=1e-8)
    assert found.response_mean_s == pytest.approx(number / (arrival * joined.sum()), rel=1e-8)
    # the response time: follow an event that finds n others, with no arrivals after it
    size = len(VARIABLE.generator)
    serve = np.diag(VARIABLE.by_state(0.0, service))
    follow = np.kron(np.eye(levels), VARIABLE.generator - serve) + np.kron(np.eye(levels, k=-1), serve)
    for t in (0.2, 3.0):
        tail = expm_multiply(csr_array(follow * t), np.ones(levels * size)) @ joined.ravel() / joined.sum()
        assert found.within(t) == pytest.approx(1.0 - tail, abs=1e-8)


def test_two_phases_give_the_closed_form() -> None:
    """dropping Eqs. 15, 16, 19."""
    _, climb = infinite_queue(exponential_phases(20.0, 30.0), 2.0, 8.0, 0.7)
    assert np.abs(climb - rate_matrix(2.0, 8.0, 20.0, 30.0, 0.7)).max() < 1e-13
    # exponential times written as two equal branches are still exponential
    doubled = phases_of(
        {"distribution": "hyperexponential", "probabilities": [0.5, 0.5], "means": ["20s", "20s"]}, {"mean": "30s"}
    )
    answer = evaluate(OnOffQueue(2.0, 8.0, doubled), Mechanism(join_probability=0.7))
    assert answer.queue_length_mean == pytest.approx(float(mean_number(2.0, 8.0, 20.0, 30.0, 0.7)), rel=1e-9)


def period_moments(phases: Phases, connected: bool) -> tuple[float, float, float]:
    """Moments of the periods in one state, from the phases alone."""
    inside = phases.connected == connected
    stay = phases.generator[np.ix_(inside, inside)]
    start = phases.shares[~inside] @ phases.generator[np.ix_(~inside, inside)]
    start = start / start.sum()
    rest = np.linalg.inv(-stay)
    return (
        float(start @ rest @ np.ones(len(stay))),
        float(2.0 * start @ rest @ rest @ np.ones(len(stay))),
        float(6.0 * start @ rest @ rest @ rest @ np.ones(len(stay))),
    )


def test_fits_keep_the_moments() -> None:
    rng = np.random.default_rng(2)
    on, off = rng.lognormal(2.0, 1.2, 400), rng.gamma(2.5, 3.0, 400)
    phases = measured_phases(on, off, moments=3)
    assert period_moments(phases, True) == pytest.approx([float((on**k).mean()) for k in (1, 2, 3)], rel=1e-8)
    assert period_moments(phases, False)[:2] == pytest.approx([float((off**k).mean()) for k in (1, 2)], rel=1e-8)
    two = measured_phases(on, off)
    assert period_moments(two, True)[:2] == pytest.approx([float((on**k).mean()) for k in (1, 2)], rel=1e-8)
    one = measured_phases(on, off, moments=1)
    assert period_moments(one, True)[0] == pytest.approx(float(on.mean()))
    assert len(one.generator) == 2
    for wrong in ([], [-1.0], [np.nan], [0.0, 0.0]):
        with pytest.raises(ConfigurationError, match="on_s"):
            measured_phases(wrong, off)


def test_an_unstable_queue_with_more_phases_is_refused() -> None:
    with pytest.raises(AssumptionError, match="unstable"):
        evaluate(OnOffQueue(3.0, 4.0, VARIABLE), Mechanism())


def mobile_periods(folder: Path) -> tuple[Array, Array]:
    """Connected and disconnected periods of all trips one after another; below 30 kbit/s there is no connection."""
    states: list[bool] = []
    lengths: list[float] = []
    for file in sorted(folder.iterdir()):
        for sample in json.loads(gzip.decompress(file.read_bytes())):
            states.append(sample["bandwidth_kbps"] >= 30)
            lengths.append(sample["duration_ms"] / 1000.0)
    edges = [0, *(i + 1 for i, (a, b) in enumerate(pairwise(states)) if a != b), len(states)]
    sums = np.add.reduceat(lengths, edges[:-1])
    first = states[0]
    on, off = (sums[0 if first else 1 :: 2], sums[1 if first else 0 :: 2])
    count = min(len(on), len(off))
    return on[:count], off[:count]


def drive(on: Array, off: Array, arrival: float, service: float, events: int, seed: int) -> float:
    """Mean response time of a queue whose connection follows the measured periods, over and over; nothing is dropped.

    Transmission only uses connected time, so the queue is first solved in connected time, then put on the real clock.
    """
    rng = np.random.default_rng(seed)
    arrived = np.cumsum(rng.exponential(1.0 / arrival, events))
    rounds = int(arrived[-1] * 1.3 / (on.sum() + off.sum())) + 2
    ons, offs = np.tile(on, rounds), np.tile(off, rounds)
    starts = np.concatenate([[0.0], np.cumsum(ons + offs)[:-1]])
    served_before = np.concatenate([[0.0], np.cumsum(ons)[:-1]])
    period = np.searchsorted(starts, arrived, side="right") - 1
    clock = served_before[period] + np.minimum(arrived - starts[period], ons[period])
    needs = rng.exponential(1.0 / service, events)
    total = np.cumsum(needs)
    finished = total + np.maximum.accumulate(clock - (total - needs))
    at = np.searchsorted(served_before, finished, side="left") - 1
    return float((starts[at] + finished - served_before[at] - arrived).mean())


def test_the_driver_agrees_with_the_formula_on_exponential_periods() -> None:
    rng = np.random.default_rng(4)
    mean = drive(rng.exponential(5.0, 60_000), rng.exponential(3.0, 60_000), 1.0, 4.0, 400_000, 8)
    expected = evaluate(OnOffQueue.exponential(1.0, 4.0, 5.0, 3.0), Mechanism()).response_mean_s
    assert mean == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("arrival", [1.0, 4.0])
def test_real_connections_need_more_than_the_mean_of_their_periods(real_data: Path, arrival: float) -> None:
    """Commuters' 3G: exponential periods predict a quarter of the response time, three moments nearly all of it."""
    folder = real_data / "mobility" / "3glogs"
    if not folder.is_dir():
        pytest.skip(f"no traces at {folder}")
    on, off = mobile_periods(folder)
    driven = drive(on, off, arrival, 8.0, 1_000_000, 1)
    by_moments = [
        evaluate(OnOffQueue(arrival, 8.0, measured_phases(on, off, moments=k)), Mechanism()).response_mean_s
        for k in (1, 2, 3)
    ]
    assert by_moments[0] < 0.35 * driven
    assert by_moments[1] == pytest.approx(driven, rel=0.3)
    assert by_moments[2] == pytest.approx(driven, rel=0.1)
