"""Comparison of logs, and the generator's parameters from a log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surecast.errors import AssumptionError
from surecast.zap import (
    EventTable,
    Generator,
    Traffic,
    compare_logs,
    convert,
    gaps_s,
    join_tables,
    parse_line,
)
from surecast.zap.event_table import CHANGE, POWER
from surecast.zap.fit import find_stops, fit_traffic, gap_chances
from surecast.zap.log_comparison import ks_distance, rank_shares, total_variation

MIDNIGHT = 1_704_067_200
TRUE = Traffic(
    boxes=1500,
    channels=200,
    zipf_exponent=0.7,
    surf_again=0.8,
    surf_start=0.3,
    surf_median_s=1.5,
    surf_sigma=0.6,
    stay_median_s=120.0,
    stay_sigma=1.2,
    next_share=0.0,
    on_mean_s=3600.0,
    on_per_day=6.0,
    volume_per_h=0.0,
    mute_per_h=0.0,
    retention_s=0.0,
)


def made(traffic: Traffic, duration_s: float, seed: int = 1) -> EventTable:
    return join_tables([batch.events for batch in Generator(traffic, MIDNIGHT, seed).batches(duration_s)])


@pytest.fixture(scope="module")
def day() -> EventTable:
    return made(TRUE, 86_400)


@given(st.lists(st.integers(0, 20), min_size=1), st.lists(st.integers(0, 20), min_size=1))
def test_the_distance_of_gaps_is_that_of_kolmogorov_and_smirnov(first: list[int], second: list[int]) -> None:
    everywhere = np.arange(21)[:, None]
    below = [(np.array(one) <= everywhere).mean(axis=1) for one in (first, second)]
    expected = np.abs(below[0] - below[1]).max()
    assert ks_distance(np.array(first), np.array(second)) == pytest.approx(expected, abs=1e-12)


def test_total_variation_is_the_largest_difference_of_any_set() -> None:
    random = np.random.default_rng(1)
    for _ in range(20):
        first, second = random.dirichlet(np.ones(6)), random.dirichlet(np.ones(4))
        padded = np.append(second, [0.0, 0.0])
        sets = [[bool(k >> i & 1) for i in range(6)] for k in range(64)]
        largest = max(abs(first[chosen].sum() - padded[chosen].sum()) for chosen in sets)
        assert total_variation(first, second) == pytest.approx(largest)


def test_gaps_are_within_a_box_and_a_time_on() -> None:
    rest = [
        "20:00:00,10.0.0.1,B,A", "20:00:01,10.0.0.2,B,A", "20:00:05,10.0.0.1,Volume: 3", "20:00:07,10.0.0.1,C,B",
        "20:00:08,10.0.0.1,Power: 0", "20:01:00,10.0.0.1,Power: 1", "20:01:00,10.0.0.1,C,C", "20:01:09,10.0.0.1,D,C",
        "20:01:10,10.0.0.1,E,D", "20:01:40,10.0.0.2,D,B",
    ]  # fmt: skip
    table = EventTable.of(parse_line(f"2024-01-01,{one}") for one in rest)
    assert sorted(gaps_s(table).tolist()) == [1, 7, 99]
    stops = find_stops(table)
    assert sorted(stops.gaps_s.tolist()) == [1.0, 7.0, 99.0]
    # cut off by power, and by the end of the log
    assert sorted(stops.cut_off_s.tolist()) == [0.0, 1.0, 30.0]
    assert rank_shares(table).tolist() == pytest.approx([2 / 6, 2 / 6, 1 / 6, 1 / 6])


def test_two_logs_of_one_law_differ_by_chance_only(day: EventTable) -> None:
    found = compare_logs(day, made(replace(TRUE, boxes=300), 86_400, seed=2))
    assert found.gap_distance < 2 * found.gap_chance < 0.05
    assert found.rank_distance < 2 * found.rank_chance
    other = compare_logs(day, made(replace(TRUE, boxes=300, zipf_exponent=1.2, surf_median_s=3.0), 86_400, seed=2))
    assert other.gap_distance > 5 * other.gap_chance
    assert other.rank_distance > 5 * other.rank_chance
    with pytest.raises(AssumptionError, match="second log has no two channel changes"):
        compare_logs(day, day[:1])


def test_what_a_time_looks_like_in_whole_seconds() -> None:
    """By drawing: times that begin anywhere within a second."""
    random = np.random.default_rng(2)
    for mu, sigma in ((-1.0, 1.3), (0.7, 0.4), (5.5, 0.2)):
        begin = random.random(400_000)
        seen = np.floor(begin + np.exp(mu + sigma * random.standard_normal(400_000)))
        values = np.arange(0.0, 600.0)
        drawn = np.array([(seen == value).mean() for value in values])
        assert np.abs(gap_chances(values, (mu, sigma)) - drawn).max() < 0.003


def test_the_parameters_of_generated_traffic_come_back(day: EventTable) -> None:
    found, notes = fit_traffic(day, replace(TRUE, hour_weights=(1.0,) * 24))
    assert notes.kept == ()
    for name, error in (
        ("surf_again", 0.03),
        ("surf_start", 0.1),
        ("surf_median_s", 0.05),
        ("surf_sigma", 0.05),
        ("stay_median_s", 0.06),
        ("stay_sigma", 0.06),
        ("on_mean_s", 0.05),
        ("on_per_day", 0.05),
    ):
        assert getattr(found, name) == pytest.approx(getattr(TRUE, name), rel=error), name
    assert found.channels == 200
    weights = np.array(TRUE.hour_weights) / np.mean(TRUE.hour_weights)
    assert np.abs(np.array(found.hour_weights) - weights).max() < 0.2
    # of channels, what they mean counts: several exponents and offsets are alike
    again = compare_logs(made(replace(found, boxes=300, retention_s=0.0), 86_400, seed=3), day)
    assert again.rank_distance < 0.06
    assert again.gap_distance < 0.03


def test_what_a_log_does_not_say_is_named_and_no_estimate(day: EventTable) -> None:
    assert fit_traffic(day, TRUE)[1].at_ends == ()
    # everybody stays 30 s on each of 40 channels, and each channel has the same number of zaps
    steady = [
        parse_line(
            f"2024-01-01,{20 + at // 3600:02}:{at // 60 % 60:02}:{at % 60:02},10.0.0.{box},c{(k + 1) % 40},c{k % 40}"
        )
        for box in range(1, 5)
        for k, at in enumerate(range(0, 14_000, 30))
    ]
    fitted, notes = fit_traffic(EventTable.of(steady))
    assert "stay_sigma" in notes.at_ends or "surf_sigma" in notes.at_ends
    assert set(notes.at_ends) <= {
        "surf_sigma",
        "stay_sigma",
        "surf_median_s",
        "stay_median_s",
        "surf_again",
        "zipf_offset",
    }
    assert min(fitted.surf_sigma, fitted.stay_sigma) == pytest.approx(0.05)


def test_little_is_not_enough_to_fit(day: EventTable) -> None:
    with pytest.raises(AssumptionError, match="a fit needs at least 100 of the first"):
        fit_traffic(day[:50])
    zaps, notes = fit_traffic(day[(day.kind == CHANGE)][:20_000])
    assert notes.kept == ("on_mean_s", "on_per_day", "hour_weights")
    assert zaps.on_mean_s == Traffic().on_mean_s
    powers, notes = fit_traffic(day[(day.kind == POWER)])
    assert "surf_again" in notes.kept
    assert "on_mean_s" not in notes.kept
    assert powers.on_mean_s == pytest.approx(TRUE.on_mean_s, rel=0.05)
    assert powers.stay_sigma == Traffic().stay_sigma


def test_hours_of_the_day_come_from_real_sessions(real_data: Path) -> None:
    """The default hours are those of the sessions, two hours later: docs/background/zap-traffic.md."""
    fitted, notes = fit_traffic(convert(real_data / "iptv" / "brighttv_sessions").table)
    assert notes.kept[0] == "channels"
    expected = np.roll(np.array(Traffic().hour_weights), -2)
    assert np.corrcoef(fitted.hour_weights, expected)[0, 1] > 0.99


def test_traffic_fitted_to_the_real_log_is_like_it(real_data: Path) -> None:
    """docs/background/zap-traffic.md has the figures."""
    real = convert(real_data / "iptv" / "stb_gobx")
    fitted, notes = fit_traffic(real.table)
    assert notes.gaps == len(gaps_s(real.table)) == 1337
    raw = compare_logs(made(replace(fitted, boxes=300, retention_s=0.0), 86_400), real.table)
    assert raw.gap_distance < raw.gap_chance
    assert raw.rank_distance < 0.16
    ruled = convert(real_data / "iptv" / "stb_gobx", retention_s=3.0)
    reported = compare_logs(made(replace(fitted, boxes=300), 86_400), ruled.table)
    assert reported.gap_distance < 0.12
    assert reported.rank_distance < 0.16
