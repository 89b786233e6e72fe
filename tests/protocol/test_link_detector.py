"""The detector of a link: silence is noticed in time, own lateness is held against nobody, flapping is damped."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surecast.protocol.link import DetectorTimes, LinkDetector

TIMES = DetectorTimes(ping_s=0.1, suspect_s=0.5, hold_down_s=0.1, hold_down_max_s=30.0)


def run(detector: LinkDetector, until_s: float, *, hears: list[float] | None = None, late_s: float = 0.0) -> float:
    """Calls the detector when it asks for it, `late_s` later; returns when it suspected its neighbour."""
    words = sorted(hears or [])
    while (due_s := detector.next_timer() + late_s) <= until_s:
        while words and words[0] <= due_s:
            detector.heard(words.pop(0))
        if detector.tick(due_s) == "suspect":
            return due_s
    return inf


def test_a_silent_neighbour_is_suspected_after_the_time_for_it() -> None:
    detector = LinkDetector(TIMES)
    detector.connected(10.0)
    assert run(detector, 100.0) == pytest.approx(10.5)


@given(st.lists(st.floats(0.0, 10.0), max_size=60), st.floats(0.02, 0.2), st.floats(0.25, 2.0))
def test_it_is_suspected_at_the_first_gap_that_is_long_enough(
    words: list[float], ping_s: float, suspect_s: float
) -> None:
    detector = LinkDetector(DetectorTimes(ping_s, suspect_s))
    detector.connected(0.0)
    moments = [0.0, *sorted(words)]
    gaps = [a for a, b in zip(moments, [*moments[1:], inf], strict=True) if b - a > suspect_s + 1e-9]
    assert run(detector, 20.0, hears=words) == pytest.approx(gaps[0] + suspect_s, abs=1e-6)


def test_a_neighbour_that_answers_every_question_is_well() -> None:
    detector = LinkDetector(TIMES)
    detector.connected(0.0)
    asked = 0
    for _ in range(1_000):
        now = detector.next_timer()
        verdict = detector.tick(now)
        assert verdict != "suspect"
        if verdict == "ask":
            asked += 1
            detector.heard(now + 0.01)
    assert asked >= 450


def test_a_broker_that_was_stopped_itself_suspects_nobody_at_once() -> None:
    detector = LinkDetector(TIMES)
    detector.connected(0.0)
    stopped_until_s = 60.0
    assert detector.tick(stopped_until_s) == "ask"
    assert detector.late_s == pytest.approx(59.9)
    assert run(detector, 100.0) == pytest.approx(60.4)


@pytest.mark.parametrize("late_s", [0.02, 0.3])
def test_lateness_is_added_to_the_time_that_a_neighbour_has(late_s: float) -> None:
    detector = LinkDetector(TIMES)
    detector.connected(0.0)
    suspected_s = run(detector, 100.0, late_s=late_s)
    assert 0.5 + late_s <= suspected_s <= 0.5 + 10 * late_s


def test_a_link_that_flaps_stays_down_twice_as_long_each_time_up_to_the_longest() -> None:
    detector = LinkDetector(TIMES)
    now, held = 0.0, []
    for _ in range(12):
        detector.connected(now)
        now += 0.05
        detector.disconnected(now)
        held.append(detector.may_connect_s - now)
        now = detector.may_connect_s
    assert held == pytest.approx([min(0.1 * 2**n, 30.0) for n in range(12)])


def test_a_link_that_was_up_for_long_begins_anew() -> None:
    detector = LinkDetector(TIMES)
    for now in (0.0, 1.0, 2.0):
        detector.connected(now)
        detector.disconnected(now + 0.1)
    assert detector.may_connect_s == pytest.approx(2.1 + 0.4)
    detector.connected(10.0)
    detector.disconnected(10.0 + 10 * 0.8)
    assert detector.may_connect_s == pytest.approx(18.1)


def test_a_link_that_never_was_up_may_come_up_at_once() -> None:
    assert LinkDetector(TIMES).may_connect_s == -inf
    assert LinkDetector(TIMES).next_timer() == inf


def test_faults_that_come_every_few_seconds_find_links_that_are_up_again() -> None:
    """Only a link that breaks as soon as it is up flaps."""
    detector = LinkDetector(DetectorTimes())
    now = 0.0
    for _ in range(20):
        detector.connected(now)
        detector.disconnected(now + 2.0)
        assert detector.may_connect_s - (now + 2.0) == pytest.approx(0.1)
        now += 2.2


def test_a_link_that_carries_nothing_flaps_however_long_it_takes_to_suspect_it() -> None:
    detector = LinkDetector(DetectorTimes(suspect_s=3.0))
    now = 0.0
    for _ in range(12):
        detector.connected(now)
        detector.disconnected(now + 3.0)
        now = detector.may_connect_s
    assert detector.hold_s == 30.0
