"""Drift, trends and change points of failures, on periods that are drawn with and without them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from surecast.pipeline.learn.component_times import UpDown, fit_pair
from surecast.pipeline.learn.drift import change_of, drift_of, trend_of, widened
from surecast.pipeline.learn.samples import ObservedPeriod

DAY = 86400.0


def observed(rng: np.random.Generator, mean_s: list[float], span_s: float) -> list[ObservedPeriod]:
    """Returns exponential times up, with one mean after the other, and times down of ten minutes."""
    periods, now = [], 0.0
    while now < span_s:
        up_s = rng.exponential(mean_s[min(int(now / span_s * len(mean_s)), len(mean_s) - 1)])
        periods.append(ObservedPeriod(True, now, min(now + up_s, span_s), end_seen=now + up_s < span_s))
        now += up_s
        if now < span_s:
            periods.append(ObservedPeriod(False, now, min(now + 600.0, span_s)))
            now += 600.0
    return periods


def test_a_drift_of_many_machines_is_found_and_none_where_there_is_none() -> None:
    rng = np.random.default_rng(1)
    steady = [observed(rng, [DAY], 100 * DAY) for _ in range(60)]
    assert drift_of(steady, True) < 0.1
    factors = rng.lognormal(0.0, 0.8, 60)
    drifting = [observed(rng, [DAY, DAY * factor], 100 * DAY) for factor in factors]
    assert drift_of(drifting, True) == pytest.approx(0.8, abs=0.2)
    assert drift_of(drifting, False) < 0.2
    assert drift_of(drifting[:2], True) == 0.0


def test_an_interval_with_drift_covers_the_next_half_and_without_it_does_not() -> None:
    rng = np.random.default_rng(2)
    inside = {True: 0, False: 0}
    for _ in range(150):
        mean_s = DAY * float(rng.lognormal(0.0, 0.5))
        later_s = mean_s * float(rng.lognormal(0.0, 0.5))
        times = UpDown.of(observed(rng, [mean_s], 100 * DAY))
        pair = fit_pair(times.up, times.down)
        assert not isinstance(pair, str)
        for drift in inside:
            low, high = widened(pair[0].mean_s, pair[0].low_s, pair[0].high_s, 0.5 if drift else 0.0)
            inside[drift] += low <= later_s <= high
    assert inside[True] > 0.92 * 150
    assert inside[False] < 0.6 * 150


def test_a_trend_and_the_time_of_a_change_are_found() -> None:
    rng = np.random.default_rng(3)
    changed = observed(rng, [2 * DAY, 2 * DAY, DAY / 4, DAY / 4], 400 * DAY)
    trend, change = trend_of(changed), change_of(changed)
    assert trend is not None
    assert trend == pytest.approx(1 / 8, rel=0.4)
    assert change is not None
    assert change.at_s == pytest.approx(200 * DAY, rel=0.1)
    assert change.before_s == pytest.approx(2 * DAY, rel=0.3)
    assert change.after_s == pytest.approx(DAY / 4, rel=0.3)


def test_steady_machines_have_hardly_ever_a_trend_or_a_change() -> None:
    rng = np.random.default_rng(4)
    steady = [observed(rng, [DAY], 200 * DAY) for _ in range(200)]
    assert sum(trend_of(periods) is not None for periods in steady) <= 2
    assert sum(change_of(periods) is not None for periods in steady) <= 4


def test_a_wider_interval_keeps_its_middle() -> None:
    low, high = widened(10.0, 5.0, 20.0, 1.0)
    assert low * high == pytest.approx(100.0)
    assert math.log(high / 10.0) == pytest.approx(math.hypot(math.log(2.0), 1.959963984540054))
