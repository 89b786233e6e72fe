"""Buffers, lifetimes, join tables and hybrids against chains built state by state, and distributions against them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.linalg import expm_multiply

from surecast.errors import AssumptionError
from surecast.prediction.dropping import (
    OnOffQueue,
    Phases,
    QueueAnswer,
    ResponseTarget,
    TargetVerdict,
    evaluate,
    join_probability_for,
    join_probability_for_quantile,
    largest_parameter,
    probability_within,
    response_mean_s,
    response_quantile_s,
    stationary,
    tail_terms,
)
from surecast.prediction.dropping.queue import after
from surecast.scenario.mechanism import Mechanism

Array = NDArray[np.float64]
PAPER = OnOffQueue.exponential(2.0, 8.0, 20.0, 20.0)
ODD = OnOffQueue.exponential(1.1, 2.0, 5.0, 3.0)


def dumb(queue: OnOffQueue, mechanism: Mechanism, top: int, times: tuple[float, ...]) -> dict[str, object]:
    """Everything from a chain built state by state, and from a second one that follows an event to its end."""
    arrival, service = queue.arrival_per_s, queue.service_per_s
    periods = queue.periods_s
    assert periods is not None
    on, off = periods
    expiry = 1.0 / mechanism.lifetime_s if mechanism.expires else 0.0
    limit = top if mechanism.buffer_size is None else mechanism.buffer_size

    def joins(n: int, up: int) -> float:
        if n >= limit:
            return 0.0
        if mechanism.join_table is not None:
            row = mechanism.join_table[up]
            return row[min(n, len(row) - 1)]
        return 1.0 if up else mechanism.join_probability

    size = 2 * (limit + 1)
    matrix = np.zeros((size, size))

    def flow(a: int, b: int, rate: float) -> None:
        matrix[a, b] += rate
        matrix[a, a] -= rate

    for n in range(limit + 1):
        flow(2 * n, 2 * n + 1, 1.0 / off)
        flow(2 * n + 1, 2 * n, 1.0 / on)
        for up in (0, 1):
            if n < limit:
                flow(2 * n + up, 2 * (n + 1) + up, arrival * joins(n, up))
            if n > 0:
                flow(2 * n + up, 2 * (n - 1) + up, service * up + expiry * n)
    system, right = matrix.T.copy(), np.zeros(size)
    system[0], right[0] = 1.0, 1.0
    p = np.linalg.solve(system, right).reshape(-1, 2)
    accepted = np.array([[p[n, up] * joins(n, up) for up in (0, 1)] for n in range(limit + 1)])
    # the tagged event: how many stand before it, and the state; it leaves delivered or expired
    follow = np.zeros((size, size))
    deliver = np.zeros(size)
    for n in range(limit + 1):
        for up in (0, 1):
            at = 2 * n + up
            follow[at, 2 * n + 1 - up] += 1.0 / (on if up else off)
            leave = service * up
            if n == 0:
                deliver[at] = leave
            else:
                follow[at, at - 2] += leave + expiry * n
            follow[at, at] -= 1.0 / (on if up else off) + leave + expiry * (n + 1)
    start = (accepted / accepted.sum()).ravel()
    reach = np.linalg.solve(-follow, deliver)
    spent = np.linalg.solve(-follow, reach)
    share = float(start @ reach)
    tails = [float(start @ expm_multiply(csr_array(follow * t), reach)) / share for t in times]
    return {
        "success": float(accepted.sum()) * share,
        "response": float(start @ spent) / share,
        "number": float(np.arange(limit + 1) @ p.sum(axis=1)),
        "full": p[limit] if mechanism.buffer_size is not None else np.zeros(2),
        "expired": expiry * (np.arange(limit + 1) @ p) / arrival,
        "within": [1.0 - tail for tail in tails],
    }


TIMES = (0.05, 1.0, 7.0, 40.0)


@pytest.mark.parametrize("queue", [PAPER, ODD])
@pytest.mark.parametrize(
    ("mechanism", "top"),
    [
        (Mechanism(buffer_size=1), 0),
        (Mechanism(buffer_size=22), 0),
        (Mechanism(buffer_size=30, join_probability=0.5), 0),
        (Mechanism(lifetime_s=12.0, lifetime_distribution="exponential"), 130),
        (Mechanism(lifetime_s=12.0, lifetime_distribution="exponential", join_probability=0.3), 110),
        (Mechanism(lifetime_s=12.0, lifetime_distribution="exponential", buffer_size=15), 0),
        (Mechanism(join_table=((1.0,) * 6 + (0.4, 0.0), (1.0,) * 30 + (0.0,))), 31),
        (Mechanism(join_table=((1.0, 0.5, 0.0), (1.0,))), 90),
    ],
)
def test_mechanisms_agree_with_a_chain_built_state_by_state(queue: OnOffQueue, mechanism: Mechanism, top: int) -> None:
    found, other = evaluate(queue, mechanism), dumb(queue, mechanism, top, TIMES)
    assert found.success_share == pytest.approx(other["success"], rel=1e-9)
    assert found.response_mean_s == pytest.approx(other["response"], rel=1e-9)
    assert found.queue_length_mean == pytest.approx(other["number"], rel=1e-9)
    for key, word in (("full", "buffer full"), ("expired", "expired")):
        for state, name in enumerate(("disconnected", "connected")):
            share = found.dropped.get(f"{word} while {name}", 0.0)
            assert share == pytest.approx(other[key][state], abs=1e-10)  # type: ignore[index]
    assert found.success_share + sum(found.dropped.values()) == pytest.approx(1.0, abs=1e-12)
    assert [found.within(t) for t in TIMES] == pytest.approx(other["within"], abs=1e-8)
    assert found.within(found.quantile_s(0.9)) == pytest.approx(0.9, abs=1e-8)
    assert found.truncation < 1e-12


@pytest.mark.parametrize("join", [0.0, 0.05, 0.35, 1.0])
def test_the_four_exponentials_are_the_response_time(join: float) -> None:
    """The response time given the state found (dropping Fig. 3), followed to its end on the truncated chain."""
    queue = (2.0, 8.0, 20.0, 20.0, join)
    levels = 2200 if join == 1.0 else 700
    joined = stationary(*queue, levels) * np.array([join, 1.0])
    start = (joined / joined.sum()).ravel()
    stay = np.array([[-1 / 20, 1 / 20], [1 / 20, -1 / 20 - 8.0]])
    rows = [(2 * n + i, 2 * n + j, stay[i, j]) for n in range(levels) for i in range(2) for j in range(2)]
    rows += [(2 * n + 1, 2 * n - 1, 8.0) for n in range(1, levels)]
    at, to, value = (np.array(column) for column in zip(*rows, strict=True))
    follow = csr_array((value, (at.astype(int), to.astype(int))), shape=(2 * levels, 2 * levels))
    for t in (0.01, 0.3, 7.0):
        expected = 1.0 - float(start @ expm_multiply(follow * t, np.ones(2 * levels)))
        assert float(probability_within(t, *queue)) == pytest.approx(expected, abs=1e-9)
    weights, rates = tail_terms(*queue)
    assert weights.sum() == pytest.approx(1.0, abs=1e-11)
    assert (weights / rates).sum() == pytest.approx(float(response_mean_s(*queue)), rel=1e-11)
    for q in (0.1, 0.5, 0.999):
        assert float(probability_within(response_quantile_s(q, *queue), *queue)) == pytest.approx(q, abs=1e-10)


def test_a_good_fifth_of_the_delivered_events_exceed_a_target_for_the_mean() -> None:
    join = join_probability_for(7.0, 2.0, 8.0, 20.0, 20.0).join_probability
    assert float(probability_within(7.0, 2.0, 8.0, 20.0, 20.0, join)) == pytest.approx(0.7769, abs=1e-4)


def test_join_probabilities_for_quantiles_are_the_largest() -> None:
    quantile = np.array([0.5, 0.8, 0.95, 0.9999])
    answer = join_probability_for_quantile(7.0, quantile, 2.0, 8.0, 20.0, 20.0)
    assert answer.verdict.tolist() == [TargetVerdict.DROPPING] * 3 + [TargetVerdict.IMPOSSIBLE]
    for q, join in zip(quantile[:3], answer.join_probability[:3], strict=True):
        assert float(probability_within(7.0, 2.0, 8.0, 20.0, 20.0, join)) == pytest.approx(q, abs=1e-10)
        scan = np.linspace(join, 1.0, 40)[1:]
        assert (probability_within(7.0, 2.0, 8.0, 20.0, 20.0, scan) < q).all()
    assert join_probability_for_quantile(500.0, 0.9, 2.0, 8.0, 20.0, 20.0).verdict == TargetVerdict.NOT_NEEDED
    assert join_probability_for_quantile(7.0, 0.9, 9.0, 8.0, 20.0, 20.0).verdict == TargetVerdict.UNSTABLE


def always_connected(arrival: float, service: float) -> OnOffQueue:
    return OnOffQueue(arrival, service, Phases(np.zeros((1, 1)), np.array([True])))


@pytest.mark.parametrize(("arrival", "service", "lifetime"), [(2.0, 3.0, 1.5), (4.0, 3.0, 2.0), (1.0, 8.0, 0.1)])
def test_deterministic_lifetimes_without_disconnections_are_the_textbook_queue(
    arrival: float, service: float, lifetime: float
) -> None:
    """M/M/1 whose events stay a fixed time at most: the oldest one's age has a density like exp((a - m) x)."""
    found = evaluate(always_connected(arrival, service), Mechanism(lifetime_s=lifetime))
    d = arrival - service
    area = math.expm1(d * lifetime) / d
    empty = 1.0 / (1.0 + arrival * area)
    assert found.success_share == pytest.approx(service * empty * area, rel=1e-10)
    moment = (lifetime * math.exp(d * lifetime) - area) / d
    assert found.response_mean_s == pytest.approx(moment / area, rel=1e-10)
    half = 0.5 * lifetime
    assert found.within(half) == pytest.approx(math.expm1(d * half) / d / area, rel=1e-10)


def follow_lifetimes(queue: OnOffQueue, lifetime: float, events: int, seed: int) -> tuple[float, float, float]:
    """Events one after another through a queue with a deterministic lifetime: delivered, response, expired off."""
    periods = queue.periods_s
    assert periods is not None
    rng = np.random.default_rng(seed)
    gaps = rng.exponential(1.0 / queue.arrival_per_s, events).tolist()
    needs = rng.exponential(1.0 / queue.service_per_s, events).tolist()
    lengths = rng.exponential(1.0, events).tolist()
    on, end, used = True, lengths[0] * periods[0], 1
    now = arrived = total = 0.0
    delivered = expired_off = 0
    for gap, need in zip(gaps, needs, strict=True):
        arrived += gap
        deadline = arrived + lifetime
        left = need
        now = max(now, arrived)
        while now < deadline:
            while end <= now:
                on, end, used = not on, end + lengths[used] * periods[1 if on else 0], used + 1
            until = min(end, deadline)
            if on and now + left <= until:
                now += left
                delivered, total = delivered + 1, total + now - arrived
                break
            left -= until - now if on else 0.0
            now = until
        else:
            expired_off += not on
    return delivered / events, total / delivered, expired_off / events


@pytest.mark.parametrize(("queue", "lifetime"), [(ODD, 4.0), (OnOffQueue.exponential(6.0, 8.0, 0.5, 0.5), 0.6)])
def test_deterministic_lifetimes_agree_with_events_followed_one_by_one(queue: OnOffQueue, lifetime: float) -> None:
    found = evaluate(queue, Mechanism(lifetime_s=lifetime))
    share, response, expired_off = follow_lifetimes(queue, lifetime, 150_000, 7)
    assert found.success_share == pytest.approx(share, abs=0.01)
    assert found.response_mean_s == pytest.approx(response, rel=0.015)
    assert found.dropped["expired while disconnected"] == pytest.approx(expired_off, abs=0.012)
    assert found.success_share + sum(found.dropped.values()) == pytest.approx(1.0, abs=1e-11)


def test_a_long_deterministic_lifetime_changes_nothing() -> None:
    found, free = evaluate(ODD, Mechanism(lifetime_s=400.0)), evaluate(ODD, Mechanism())
    assert found.success_share == pytest.approx(1.0, abs=1e-9)
    assert found.response_mean_s == pytest.approx(free.response_mean_s, rel=1e-8)
    assert found.queue_length_mean == pytest.approx(free.queue_length_mean, rel=1e-8)
    for t in (0.3, 2.0, 20.0):
        assert found.within(t) == pytest.approx(free.within(t), abs=1e-9)


def test_a_short_lifetime_expires_in_overload_too() -> None:
    found = evaluate(OnOffQueue.exponential(50.0, 8.0, 20.0, 20.0), Mechanism(lifetime_s=10.0))
    # nearly always busy while connected
    assert found.success_share == pytest.approx(8.0 * 0.5 / 50.0, rel=1e-6)


@pytest.mark.parametrize("parameter", ["join_probability", "buffer_size", "lifetime_s"])
@pytest.mark.parametrize("target", [ResponseTarget(7.0), ResponseTarget(7.0, 0.8)])
@pytest.mark.parametrize("distribution", ["deterministic", "exponential"])
def test_the_parameter_found_is_the_largest(parameter: str, target: ResponseTarget, distribution: str) -> None:
    base = Mechanism(lifetime_distribution=distribution) if parameter == "lifetime_s" else Mechanism()  # type: ignore[arg-type]
    found = largest_parameter(PAPER, parameter, target, base)  # type: ignore[arg-type]
    assert found.verdict is TargetVerdict.DROPPING
    assert found.answer is not None
    assert found.mechanism is not None
    assert target.excess(found.answer) <= 1e-9
    value = getattr(found.mechanism, parameter)
    larger = value + 1 if parameter == "buffer_size" else value * 1.001
    changes = {parameter: larger, "lifetime_distribution": base.lifetime_distribution}
    assert target.excess(evaluate(PAPER, Mechanism(**changes))) > 0.0


def test_hybrids_find_the_join_probability_beside_a_buffer() -> None:
    found = largest_parameter(PAPER, "join_probability", ResponseTarget(7.0), Mechanism(buffer_size=40))
    assert found.answer is not None
    assert found.answer.response_mean_s == pytest.approx(7.0, rel=1e-9)
    alone = largest_parameter(PAPER, "join_probability", ResponseTarget(7.0)).answer
    assert alone is not None
    assert found.answer.success_share > alone.success_share


def test_verdicts_say_when_nothing_helps_and_when_nothing_is_needed() -> None:
    assert largest_parameter(PAPER, "join_probability", ResponseTarget(0.1)).verdict is TargetVerdict.IMPOSSIBLE
    assert largest_parameter(PAPER, "buffer_size", ResponseTarget(0.1)).verdict is TargetVerdict.IMPOSSIBLE
    busy = OnOffQueue.exponential(9.0, 8.0, 20.0, 20.0)
    assert largest_parameter(busy, "join_probability", ResponseTarget(7.0)).verdict is TargetVerdict.UNSTABLE
    for parameter in ("join_probability", "buffer_size", "lifetime_s"):
        free = largest_parameter(PAPER, parameter, ResponseTarget(21.0))
        assert free.verdict is TargetVerdict.NOT_NEEDED
        assert free.mechanism == Mechanism()
    # a lifetime meets any target, in overload too
    assert largest_parameter(busy, "lifetime_s", ResponseTarget(0.1)).verdict is TargetVerdict.DROPPING


def test_what_has_no_exact_answer_is_refused() -> None:
    with pytest.raises(AssumptionError, match="deterministic lifetime together"):
        evaluate(PAPER, Mechanism(lifetime_s=5.0, join_probability=0.5))
    with pytest.raises(AssumptionError, match="input"):
        evaluate(PAPER, Mechanism(input_buffer_size=3))
    with pytest.raises(AssumptionError, match="join table"):
        evaluate(OnOffQueue.exponential(9.0, 8.0, 20.0, 20.0), Mechanism(join_table=((0.0,), (1.0,))))


def test_a_time_before_the_queue_is_added_to_the_distribution() -> None:
    """dropping Eq. 1 for the whole distribution: the input queue's time is exponential and independent."""
    rng = np.random.default_rng(3)
    grid = (np.arange(200_000) + 0.5) / 200_000
    before = -0.5 * np.log1p(-rng.permutation(grid))

    def mixed(answer: QueueAnswer, t: float) -> float:
        # the distribution of the sum, by averaging over the time before
        knots = np.linspace(0.0, t, 2001)
        values = np.array([answer.within(float(x)) for x in knots])
        return float(np.interp(t - before, knots, values, left=0.0).mean())

    free = evaluate(ODD, Mechanism(join_probability=0.4))
    law = after(free.law, 0.5)
    assert law is not None
    for t in (0.4, 3.0):
        assert law.within(t) == pytest.approx(mixed(free, t), abs=2e-4)
    full = evaluate(ODD, Mechanism(buffer_size=3))
    law = after(full.law, 0.5)
    assert law is not None
    assert law.within(3.0) == pytest.approx(mixed(full, 3.0), abs=2e-4)


def test_the_buffer_loses_events_while_connected_and_the_join_probability_does_not() -> None:
    """dropping Fig. 7: about 6 % of the events that arrive while connected, at the highest rate."""
    queue = OnOffQueue.exponential(7.7, 8.0, 20.0, 20.0)
    full = largest_parameter(queue, "buffer_size", ResponseTarget(7.0)).answer
    chance = largest_parameter(queue, "join_probability", ResponseTarget(7.0)).answer
    assert full is not None
    assert chance is not None
    assert full.lost_while_connected == pytest.approx(0.06, abs=0.005)
    assert chance.lost_while_connected == 0.0
