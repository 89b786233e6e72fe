"""A histogram against the sorted list of all times."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from surecast.load.histogram import SAMPLES_MAX, Histogram

TIMES = st.lists(st.integers(0, 10**12), min_size=1, max_size=200)


@given(TIMES, st.floats(0.0, 1.0))
def test_quantiles_are_within_half_a_class_of_the_exact_ones(times_ns: list[int], share: float) -> None:
    histogram = Histogram()
    for time_ns in times_ns:
        histogram.add(time_ns)
    exact_ns = sorted(times_ns)[max(1, math.ceil(share * len(times_ns))) - 1]
    assert abs(histogram.quantile_s(share) * 1e9 - exact_ns) <= exact_ns / 256 + 1e-3
    assert histogram.max_s == max(times_ns) / 1e9
    assert math.isclose(histogram.mean_s(), sum(times_ns) / len(times_ns) / 1e9, rel_tol=1e-12, abs_tol=1e-18)


@given(TIMES, TIMES)
def test_merging_is_adding_all(first_ns: list[int], second_ns: list[int]) -> None:
    both, first, second = Histogram(), Histogram(), Histogram()
    for time_ns in first_ns + second_ns:
        both.add(time_ns)
    for histogram, times_ns in ((first, first_ns), (second, second_ns)):
        for time_ns in times_ns:
            histogram.add(time_ns)
    first.merge(second)
    assert first.as_dict() == both.as_dict()


@given(st.integers(1, 300))
def test_times_noted_together_count_as_many_as_they_are(count: int) -> None:
    histogram = Histogram()
    histogram.add_since(10**9, [10**9 - 1000 * at for at in range(count)])
    assert histogram.count == count
    assert sum(number for _, number in histogram.classes()) == count
    assert len(histogram.classes()) <= SAMPLES_MAX


def test_an_empty_histogram_has_no_figures() -> None:
    histogram = Histogram()
    assert math.isnan(histogram.quantile_s(0.5))
    assert math.isnan(histogram.mean_s())
    assert math.isnan(histogram.max_s)
