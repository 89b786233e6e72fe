"""Generated traffic has the properties that its parameters say."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from surecast.errors import ConfigurationError
from surecast.zap import EventTable, Generator, Traffic, join_tables, load_traffic, save_traffic
from surecast.zap.event_table import CHANGE, MUTE, POWER, VOLUME
from surecast.zap.traffic import DayCycle, zipf_shares

EVENING = 1_704_132_000  # 2024-01-01 18:00:00
SMALL = Traffic(boxes=2000)


def made(traffic: Traffic, duration_s: float, seed: int = 1, start_s: int = EVENING, **more: bool) -> EventTable:
    return join_tables([batch.events for batch in Generator(traffic, start_s, seed, **more).batches(duration_s)])


def by_box(table: EventTable) -> dict[int, list[tuple[int, int, int, int]]]:
    found: dict[int, list[tuple[int, int, int, int]]] = defaultdict(list)
    columns = (table.address, table.time_s, table.kind, table.value, table.previous)
    for address, *rest in zip(*(column.tolist() for column in columns), strict=True):
        found[address].append((rest[0], rest[1], rest[2], rest[3]))
    return found


@pytest.fixture(scope="module")
def evening() -> EventTable:
    return made(SMALL, 3 * 3600)


def test_a_seed_makes_the_same_events_whatever_is_asked_for(evening: EventTable) -> None:
    short = made(SMALL, 1805)
    assert short.lines() == evening[evening.time_s < EVENING + 1805].lines()
    assert made(SMALL, 600, seed=2).lines() != short[: len(made(SMALL, 600, seed=2))].lines()


def test_batches_are_of_ten_seconds_and_sent_when_retention_is_known() -> None:
    batches = list(Generator(SMALL, EVENING).batches(100))
    assert [batch.sent_s - EVENING for batch in batches] == [10.0 * k + 13.0 for k in range(10)]
    for k, batch in enumerate(batches):
        assert ((batch.events.time_s - EVENING) // 10 == k).all()
        assert (np.diff(batch.events.time_s) >= 0).all()


def test_every_reported_channel_was_kept_for_more_than_three_seconds(evening: EventTable) -> None:
    """P2S section 4.1. Times are cut to seconds: more than 3 s are at least 3 of them."""
    for events in by_box(evening).values():
        changed_s = None
        for time_s, kind, value, _ in events:
            leaves = kind == CHANGE or (kind == POWER and value == 0)
            if leaves and changed_s is not None:
                assert time_s - changed_s >= 3
            changed_s = time_s if kind == CHANGE else None if leaves else changed_s
    raw = made(replace(SMALL, retention_s=0.0), 3600)
    assert (raw.kind == CHANGE).sum() > 3 * (evening.kind[evening.time_s < EVENING + 3600] == CHANGE).sum()


def test_changes_are_chained_and_power_goes_on_and_off_in_turns(evening: EventTable) -> None:
    for events in by_box(evening).values():
        tuned, on = None, None
        for _, kind, value, previous in events:
            if kind == CHANGE:
                assert tuned in (None, previous)
                assert on is not False
                tuned = value
            elif kind == POWER:
                assert value != on
                on = bool(value)
            else:
                assert on is not False


def test_volume_stays_in_its_scale_and_goes_in_steps_and_mute_toggles(evening: EventTable) -> None:
    volumes = evening.value[evening.kind == VOLUME]
    assert volumes.min() >= 0
    assert volumes.max() <= 100
    for events in by_box(evening).values():
        levels = [value for _, kind, value, _ in events if kind == VOLUME]
        mutes = [value for _, kind, value, _ in events if kind == MUTE]
        assert all(abs(a - b) <= 5 for a, b in pairwise(levels))
        assert mutes == [(k + 1) % 2 for k in range(len(mutes))]
    loud = made(replace(SMALL, boxes=50, volume_per_h=1000.0), 4 * 3600)
    values = loud.value[loud.kind == VOLUME]
    assert (values.min(), values.max()) == (0, 100)


def test_channels_follow_zipf() -> None:
    """Boxes that are switched on report where they go, whatever it was before: Zipf's shares, undisturbed."""
    traffic = Traffic(
        boxes=20_000, channels=50, zipf_exponent=0.8, on_mean_s=120.0, on_per_day=1000.0, surf_start=0.0, next_share=0.0
    )
    table = made(traffic, 1800)
    first = np.append(False, (table.kind[:-1] == POWER) & (table.value[:-1] == 1))
    follows = first & (table.kind == CHANGE) & np.append(False, table.address[1:] == table.address[:-1])
    counts = np.bincount(table.value[follows], minlength=50)
    assert counts.sum() > 20_000
    expected = counts.sum() * zipf_shares(50, 0.8)
    assert ((counts - expected) ** 2 / expected).sum() < 95  # chi square with 49 degrees of freedom: p = 0.0001
    slope = np.polyfit(np.log(np.arange(1, 51)), np.log(counts), 1)[0]
    assert slope == pytest.approx(-0.8, abs=0.03)


def test_the_share_that_is_on_follows_the_day() -> None:
    """The formula of the day beside a simple simulation of many boxes, minute by minute."""
    traffic = Traffic(on_mean_s=7200.0, on_per_day=4.0)
    cycle = DayCycle(traffic)
    random = np.random.default_rng(5)
    weights = np.array(traffic.hour_weights) / np.mean(traffic.hour_weights)
    on = np.zeros(20_000, dtype=bool)
    for minute in range(3 * 1440):
        if minute >= 2 * 1440 and minute % 180 == 0:
            assert on.mean() == pytest.approx(cycle.on_share(60.0 * minute), abs=0.015)
        rate = 4.0 / 1440 * weights[minute // 60 % 24]
        on = np.where(on, random.random(len(on)) >= 1 / 120, random.random(len(on)) < rate)


def test_boxes_are_switched_on_by_the_hours_of_the_day() -> None:
    traffic = Traffic(boxes=20_000, volume_per_h=0.0, mute_per_h=0.0, surf_start=0.0, stay_median_s=80_000.0)
    midnight = EVENING - 18 * 3600
    table = made(traffic, 86_400, start_s=midnight)
    power = table[table.kind == POWER]
    hours = np.bincount((power.time_s[power.value == 1] - midnight) // 3600, minlength=24)
    cycle = DayCycle(traffic)
    weights = np.array(traffic.hour_weights) / np.mean(traffic.hour_weights)
    middle = [1.0 - cycle.on_share(3600.0 * (h + 0.5)) for h in range(24)]
    expected = traffic.boxes * traffic.on_per_day / 24 * weights * np.array(middle)
    assert np.abs(hours - expected).max() < 5 * np.sqrt(expected.max())
    assert (np.abs(hours - expected) < 6 * np.sqrt(expected) + 0.02 * expected).all()
    # and it goes on from midnight as it began: nothing has to settle
    share = 1.0 - cycle.on_share(0.0)
    assert hours[0] == pytest.approx(expected[0] * share / middle[0], rel=0.1)


def test_hours_without_weight_switch_nothing_on() -> None:
    traffic = Traffic(boxes=2000, hour_weights=(0.0,) * 12 + (1.0,) + (0.0,) * 11, on_mean_s=600.0, on_per_day=50.0)
    midnight = EVENING - 18 * 3600
    table = made(traffic, 86_400, start_s=midnight)
    hours = (table.time_s[(table.kind == POWER) & (table.value == 1)] - midnight) // 3600
    assert set(hours.tolist()) == {12}


def test_nothing_has_to_settle_at_the_start() -> None:
    """Zaps in the first ten minutes are as many as in later ones, once the number of boxes that are on is the same."""
    flat = Traffic(boxes=30_000, hour_weights=(1.0,) * 24)
    table = made(flat, 3600)
    times = table.time_s[table.kind == CHANGE] - EVENING
    counts = np.bincount(times // 600, minlength=6)
    assert np.abs(counts - counts.mean()).max() < 0.06 * counts.mean()


def test_announced_boxes_are_those_that_are_on() -> None:
    first = next(Generator(SMALL, EVENING, announce=True).batches()).events
    announced = (first.kind == CHANGE) & (first.value == first.previous) & (first.time_s == EVENING)
    assert announced.sum() / 2000 == pytest.approx(DayCycle(SMALL).on_share(EVENING), abs=0.05)


def test_publishers_have_boxes_of_their_own() -> None:
    one, other = (next(Generator(SMALL, EVENING, publisher=p, announce=True).batches()).events for p in (0, 1))
    assert not set(one.address.tolist()) & set(other.address.tolist())
    assert one.boxes()[0].startswith("10.0.")
    with pytest.raises(ConfigurationError, match=r"10\.0\.0\.0/8"):
        Generator(Traffic(), EVENING, publisher=100)


def test_parameters_come_back_from_their_file(tmp_path: Path) -> None:
    wanted = replace(Traffic(), boxes=7, zipf_offset=2.5, hour_weights=tuple(float(h) for h in range(24)))
    save_traffic(wanted, tmp_path / "a.json")
    assert load_traffic(tmp_path / "a.json") == wanted
    for text, what in (
        ("[", "not JSON"),
        ('{"boxs": 1}', "some of the fields"),
        ('{"boxes": 1.5}', "boxes: write a whole number"),
        ('{"surf_again": "x"}', "surf_again: write a number"),
        ('{"hour_weights": [1]}', "write 24 numbers"),
        ('{"stay_sigma": 9}', "stay_sigma 9"),
    ):
        (tmp_path / "b.json").write_text(text)
        with pytest.raises(ConfigurationError, match=what):
            load_traffic(tmp_path / "b.json")
