"""Published = on time + late + dropped (by reason) + queued."""

from __future__ import annotations

import pytest

from surecast.report import ReportBuilder, check_accounts


def accounts(figures: dict[str, float], scope: str = "subscriber", name: str = "s1") -> ReportBuilder:
    """A report of one component; `metric:detail` as key."""
    b = ReportBuilder("star", "measured")
    for key, value in figures.items():
        metric, _, detail = key.partition(":")
        b.add(scope, name, metric, value, how="measured", detail=detail)
    return b


@pytest.mark.parametrize(
    "figures",
    [
        {},
        {"share_on_time": 0.4},
        {"share_dropped:expired": 0.4, "share_dropped:lost": 0.1},
        {"share_on_time": 0.4, "share_late": 0.6},
        {"share_on_time": 0.4, "share_late": 0.1, "share_dropped:expired": 0.2, "share_dropped:full": 0.2,
         "share_queued": 0.1},
        {"share_on_time": 0.4, "share_dropped": 0.6, "share_dropped:expired": 0.25, "share_dropped:full": 0.35},
        {"share_on_time": 0.4, "share_dropped": 0.6},
        {"count_published": 10, "count_on_time": 7, "count_dropped:expired": 3},
        {"count_published": 10},
        {"count_on_time": 7},
        {"count_published": 0, "count_on_time": 0},
    ],
)  # fmt: skip
def test_accounts_that_balance(figures: dict[str, float]) -> None:
    assert check_accounts(accounts(figures).build()) == []


@pytest.mark.parametrize(
    ("figures", "total", "expected"),
    [
        ({"share_on_time": 0.4, "share_late": 0.5}, 0.9, 1.0),
        ({"share_on_time": 0.9, "share_dropped:expired": 0.2}, 1.1, 1.0),
        ({"count_published": 10, "count_on_time": 7, "count_dropped:expired": 2}, 9, 10),
        ({"count_published": 1000, "count_on_time": 999}, 999, 1000),
        ({"count_published": 0, "count_late": 1}, 1, 0),
    ],
)
def test_accounts_that_do_not(figures: dict[str, float], total: float, expected: float) -> None:
    (imbalance,) = check_accounts(accounts(figures).build())
    assert imbalance.total == pytest.approx(total)
    assert imbalance.expected == expected
    assert imbalance.parts == {key: value for key, value in figures.items() if key != "count_published"}
    assert "subscriber s1" in str(imbalance)


def test_a_total_must_be_the_sum_of_its_reasons() -> None:
    figures: dict[str, float] = {
        "count_published": 10,
        "count_on_time": 7,
        "count_dropped": 3,
        "count_dropped:expired": 2,
    }
    problems = check_accounts(accounts(figures).build())
    assert [(p.metric, p.total, p.expected) for p in problems] == [("count_published", 9, 10), ("count_dropped", 2, 3)]


def test_the_tolerance_is_relative_for_counts() -> None:
    report = accounts({"count_published": 1e9, "count_on_time": 1e9 - 1}).build()
    assert check_accounts(report, tolerance=1e-6) == []
    assert len(check_accounts(report, tolerance=0)) == 1


def test_every_component_and_variant_has_accounts_of_its_own() -> None:
    b = ReportBuilder("star", "simulated")
    for variant, late in (("bypass", 0.5), ("buffering", 0.4)):
        for scope, name in (("subscriber", "s1"), ("class", "s1"), ("system", "")):
            b.add(scope, name, "share_on_time", 0.5, how="simulated", variant=variant)
            b.add(scope, name, "share_late", late, how="simulated", variant=variant)
    problems = check_accounts(b.build())
    assert [(p.variant, p.scope) for p in problems] == [
        ("buffering", "subscriber"), ("buffering", "class"), ("buffering", "system")
    ]  # fmt: skip
