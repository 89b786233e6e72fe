"""The compiled queues against deliberately dumb ones: every event looked at in every step, no sharing at all."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surecast.simulation.dropping.histogram import EDGES, quantile
from surecast.simulation.dropping.queue_kernel import (
    BINS,
    DELAY,
    DELIVERED,
    EXPIRED_INPUT,
    EXPIRED_OFF,
    EXPIRED_ON,
    INPUT_OVERFLOW,
    LATE,
    MET_OFF,
    MET_ON,
    NOT_MET,
    OUTCOMES,
    OVERFLOW,
    QUEUED,
    REJECTED,
    RESPONSE,
    STATES,
    SUMS,
    connected_time,
    count_outcomes,
    get_through,
    input_queue,
    output_queue,
)


class Reference:
    """The ON/OFF queue, one event of the simulation after the other, from lists."""

    def __init__(self, arrivals, coins, expiries, services, is_on, switches, size, protect, join_off, join_on, horizon):
        total = len(arrivals)
        self.outcome = [QUEUED] * total
        self.finish = [math.inf] * total
        self.met_on = [False] * total
        self.work = list(services)
        self.queue: list[int] = []
        self.busy: list[tuple[float, float]] = []
        self.expiry = [math.inf] * total
        pending = [(time, 3, i) for i, time in enumerate(arrivals)] + [(time, 2, 0) for time in switches]
        now = 0.0
        while True:
            # At equal times: transmissions end (0), events expire (1), the state changes (2), events arrive (3).
            steps = list(pending)
            if self.queue and is_on:
                steps.append((now + self.work[self.queue[0]], 0, self.queue[0]))
            steps += [(self.expiry[i], 1, i) for i in self.queue]
            time, kind, i = min(steps, default=(math.inf, 0, 0))
            if time > horizon or time == math.inf:
                break
            if self.queue and is_on:
                self.work[self.queue[0]] -= time - now
                self.busy.append((now, time))
            now = time
            if kind == 0:
                self.leave(i, DELIVERED, now)
            elif kind == 1:
                self.leave(i, EXPIRED_ON if is_on else EXPIRED_OFF, now)
            elif kind == 2:
                pending.remove((time, kind, i))
                is_on = not is_on
            else:
                pending.remove((time, kind, i))
                self.met_on[i] = is_on
                row = join_on if is_on else join_off
                room = not size or len(self.queue) < size
                joins = coins[i] < row[min(len(self.queue), len(row) - 1)]
                safe = protect and is_on
                if safe or (room and joins):
                    self.queue.append(i)
                    if not safe:
                        self.expiry[i] = expiries[i]
                else:
                    self.outcome[i], self.finish[i] = (REJECTED if room else OVERFLOW), now
        if self.queue and is_on:
            self.busy.append((now, math.inf))

    def leave(self, event: int, outcome: int, now: float) -> None:
        self.queue.remove(event)
        self.outcome[event], self.finish[event] = outcome, now


def compare(arrivals, coins, expiries, services, is_on, switches, size, protect, join_off, join_on, horizon):
    """Both on the same numbers; all outcomes and times must agree, and the integrals with those of the reference."""
    total = len(arrivals)
    window = (0.25 * horizon, 0.75 * horizon, horizon)
    each = expiries if len(expiries) else np.full(total, math.inf)
    in_order = bool((np.diff(each[np.isfinite(each)]) >= 0).all())
    dumb = Reference(
        arrivals.tolist(), coins, each.tolist(), services.tolist(), is_on, switches.tolist(), size, protect, join_off,
        join_on, horizon,
    )  # fmt: skip
    outcome, met_on, finish = np.zeros(total, np.int8), np.zeros(total, np.bool_), np.full(total, math.inf)
    rows, rules = (np.array(join_off), np.array(join_on)), (size, protect, in_order)
    area, busy = output_queue(
        arrivals, coins, expiries, services, is_on, switches, rules, *rows, window, outcome, met_on, finish
    )
    assert outcome.tolist() == dumb.outcome
    assert met_on.tolist() == dumb.met_on
    left = outcome != QUEUED
    np.testing.assert_allclose(finish[left], np.array(dumb.finish)[left], rtol=1e-12, atol=1e-9)
    low, high = window[:2]
    present = np.clip(np.array(dumb.finish), low, high) - np.clip(arrivals, low, high)
    assert area == pytest.approx(present.sum(), rel=1e-9, abs=1e-9)
    spans = sum(min(b, high) - max(a, low) for a, b in dumb.busy if min(b, high) > max(a, low))
    assert busy == pytest.approx(spans, rel=1e-9, abs=1e-9)
    return outcome


@pytest.mark.parametrize("lifetime", ["none", "deterministic", "exponential"])
@pytest.mark.parametrize("size", [0, 1, 5])
@pytest.mark.parametrize("protect", [False, True])
@pytest.mark.parametrize("rows", [((1.0,), (1.0,)), ((0.5,), (1.0,)), ((0.9, 0.7, 0.2), (1.0, 0.9, 0.6, 0.0))])
def test_equals_the_reference_event_by_event(lifetime, size, protect, rows) -> None:
    rng = np.random.default_rng([len(lifetime), size, protect, len(rows[0])])
    seen: set[int] = set()
    for _ in range(3):
        total = 150
        arrivals = np.cumsum(rng.exponential(1.0, total))
        expiries = {
            "none": np.empty(0),
            "deterministic": arrivals + 4.0,
            "exponential": arrivals + rng.exponential(4.0, total),
        }[lifetime]
        switches = np.cumsum(rng.exponential(5.0, 60))
        services = rng.exponential(0.8, total)
        is_on = bool(rng.random() < 0.5)
        coins, end = rng.random(total), float(arrivals[-1]) + 3.0
        outcome = compare(arrivals, coins, expiries, services, is_on, switches, size, protect, *rows, end)
        seen |= set(outcome.tolist())
    assert DELIVERED in seen
    assert (OVERFLOW in seen) == (size > 0)
    assert (EXPIRED_OFF in seen) == (lifetime != "none")
    assert REJECTED in seen or rows[0][0] != 0.5


whole = st.integers(0, 12).map(float)


@settings(max_examples=100, deadline=None)
@given(
    arrivals=st.lists(whole, max_size=12),
    switches=st.lists(st.integers(1, 15).map(float), max_size=6, unique=True),
    services=st.integers(0, 3),
    lifetime=st.integers(0, 5),
    size=st.integers(0, 3),
    protect=st.booleans(),
    is_on=st.booleans(),
)
def test_ties_are_taken_in_the_stated_order(arrivals, switches, services, lifetime, size, protect, is_on) -> None:
    total = len(arrivals)
    service = np.full(total, float(services))
    times = np.array(sorted(arrivals), dtype=float)
    expiries = times + lifetime if lifetime else np.empty(0)
    coins = np.linspace(0, 0.99, total)
    compare(times, coins, expiries, service, is_on, np.array(sorted(switches)), size, protect, (0.7,), (1.0,), 20.0)


def test_connected_time_is_that_of_the_window() -> None:
    switches = np.array([3.0, 5.0, 9.0])
    assert connected_time(True, switches, 1.0, 6.0) == 2.0 + 1.0
    assert connected_time(False, switches, 1.0, 20.0) == 2.0 + 11.0
    assert connected_time(True, np.empty(0), 1.0, 4.0) == 3.0


@pytest.mark.parametrize("size", [0, 1, 3])
def test_input_queue_equals_the_reference(size: int) -> None:
    rng = np.random.default_rng(size)
    arrivals, services = np.cumsum(rng.exponential(1.0, 400)), rng.exponential(0.9, 400)
    departures = np.empty(400)
    input_queue(arrivals, services, size, departures)
    present: list[float] = []
    for arrival, service, departure in zip(arrivals, services, departures, strict=True):
        present = [time for time in present if time > arrival]
        if size and len(present) >= size:
            assert departure == -1.0
            continue
        present.append(max([arrival, *present]) + service)
        assert departure == pytest.approx(present[-1])
    assert (departures < 0).any() == (size > 0)


def test_what_is_full_or_too_old_does_not_get_through_the_input_queue() -> None:
    published, arrivals = np.array([0.0, 1.0, 2.0, 3.0, 4.0]), np.array([0.5, -1.0, 4.0, 5.0, 9.0])
    counts = np.zeros((STATES, OUTCOMES), np.int64)
    kept = get_through(published, arrivals, published + 2.0, (1.0, 4.0, 20.0), counts)
    assert kept.tolist() == [True, False, False, False, False]
    # Two were too old, at the very moment too; a third one, published after the end, is not counted.
    assert counts[NOT_MET, EXPIRED_INPUT] == 2
    assert counts[NOT_MET, INPUT_OVERFLOW] == 1
    assert counts.sum() == 3
    assert get_through(published, arrivals, np.empty(0), (1.0, 4.0, 20.0), counts).tolist() == [
        True,
        False,
        True,
        True,
        True,
    ]


def test_tally_counts_events_of_the_window_only() -> None:
    published = np.array([0.0, 1.0, 2.0, 3.0, 9.0])
    arrivals = published + 0.5
    outcome = np.array([DELIVERED, DELIVERED, REJECTED, DELIVERED, DELIVERED], dtype=np.int8)
    met_on = np.array([True, True, False, False, True])
    finish = np.array([1.0, 2.0, 2.5, 6.0, 10.0])
    counts, sums = np.zeros((STATES, OUTCOMES), np.int64), np.zeros(SUMS)
    responses, delays = np.zeros(BINS, np.int64), np.zeros(BINS, np.int64)
    count_outcomes(
        published, np.full(5, 2.0), arrivals, outcome, met_on, finish, (1.0, 9.0, 99.0), counts, sums, responses, delays
    )
    assert counts[MET_ON, DELIVERED] == 1
    assert counts[MET_OFF, DELIVERED] == 1
    assert counts[MET_OFF, REJECTED] == 1
    assert counts.sum() == 3
    assert (sums[RESPONSE], sums[DELAY], sums[LATE]) == (0.5 + 2.5, 1.0 + 3.0, 1)
    assert responses.sum() == delays.sum() == 2


def test_bins_give_quantiles() -> None:
    rng = np.random.default_rng(7)
    times = np.concatenate([rng.exponential(5.0, 100_000), [0.0, 1e-9, 1e12]])
    size = len(times)
    zeros = np.zeros(size)
    responses, delays = np.zeros(BINS, np.int64), np.zeros(BINS, np.int64)
    counts, sums = np.zeros((STATES, OUTCOMES), np.int64), np.zeros(SUMS)
    outcome, met_on = np.full(size, DELIVERED, np.int8), np.ones(size, np.bool_)
    count_outcomes(
        zeros, np.full(1, math.inf), zeros, outcome, met_on, times, (0.0, 1.0, 2.0), counts, sums, responses, delays
    )
    assert responses.sum() == size
    assert responses[0] == 2
    assert responses[-1] == 1
    for share in (0.01, 0.5, 0.9, 0.999):
        assert quantile(responses, share) == pytest.approx(np.quantile(times, share), rel=2e-3)
    assert math.isnan(quantile(np.zeros(BINS, np.int64), 0.5))
    assert np.all(np.diff(EDGES) / EDGES[:-1] <= 2.0**-6)
