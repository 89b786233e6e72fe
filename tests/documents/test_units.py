from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surecast.documents.units import (
    format_duration,
    format_rate,
    format_size,
    parse_duration,
    parse_rate,
    parse_size,
)

amounts = st.floats(min_value=0, max_value=1e18, allow_subnormal=False)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("60s", 60),
        ("2h", 7200),
        ("14d", 14 * 86400),
        ("1h30m", 5400),
        ("1 h 30 min", 5400),
        ("250ms", 0.25),
        ("3 us", 3e-6),
        ("3µs", 3e-6),
        ("2 weeks", 14 * 86400),
        ("1.5e3s", 1500),
        ("60_000s", 60000),
        ("never", math.inf),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds, rel=1e-15)


@pytest.mark.parametrize("text", ["", "60", "s", "1h1h", "1m1h", "-5s", "5 parsecs", "1:30", "5s later", "nans"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration|negative|unit"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "per_second"),
    [("1400/s", 1400), ("1/min", 1 / 60), ("5 per hour", 5 / 3600), ("1/10s", 0.1), ("0.05 / s", 0.05), ("0/s", 0)],
)
def test_rates(text: str, per_second: float) -> None:
    assert parse_rate(text) == pytest.approx(per_second, rel=1e-15)


@pytest.mark.parametrize("text", ["", "5", "5s", "-1/s", "1/0s", "1/parsec", "/s"])
def test_what_is_no_rate(text: str) -> None:
    with pytest.raises(ValueError, match=r"rate|negative|unit"):
        parse_rate(text)


@pytest.mark.parametrize(("text", "size"), [("64B", 64), ("1kB", 1000), ("16MiB", 16 * 2**20), ("1.5 MB", 1.5e6)])
def test_sizes(text: str, size: float) -> None:
    assert parse_size(text) == size


@given(amounts)
def test_what_is_written_reads_back_the_same(value: float) -> None:
    assert parse_duration(format_duration(value)) == value
    assert parse_rate(format_rate(value)) == value
    assert parse_size(format_size(value)) == value


@given(st.text(max_size=20))
def test_any_text_is_a_quantity_or_a_value_error(text: str) -> None:
    for parse in (parse_duration, parse_rate, parse_size):
        try:
            assert parse(text) >= 0
        except ValueError:
            pass
