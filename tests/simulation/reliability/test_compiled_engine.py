"""Runs, workers, stopping and refusals of the fast simulation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from surecast.errors import ConfigurationError, OverloadError
from surecast.report import check_accounts
from surecast.scenario import System, load_system
from surecast.simulation import run_until, simulate_reliability
from surecast.simulation.experiment.confidence import ratio_estimate
from surecast.simulation.reliability.compiled import SCHEMES
from surecast.simulation.reliability.compiled import compiled_run as run_module

EXAMPLES = Path(__file__).parents[3] / "examples"
DAY = 86400.0


@pytest.fixture(scope="module")
def graph() -> System:
    return load_system(EXAMPLES / "reliability-graph.yaml")[1]


def test_the_same_seed_gives_the_same_report(graph: System) -> None:
    options: dict[str, Any] = {"runs": 3, "duration_s": 2 * DAY}
    first, again, other = (simulate_reliability(graph, SCHEMES, seed=seed, **options) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert check_accounts(first) == []


def test_workers_change_nothing(graph: System) -> None:
    options: dict[str, Any] = {"runs": 3, "duration_s": DAY, "seed": 4}
    done: list[tuple[int, int]] = []
    alone = simulate_reliability(graph, SCHEMES, progress=lambda *step: done.append(step), **options)
    assert simulate_reliability(graph, SCHEMES, workers=2, **options) == alone
    assert done == [(1, 3), (2, 3), (3, 3)]


def test_a_scheme_alone_gives_the_same_figures(graph: System) -> None:
    options: dict[str, Any] = {"runs": 2, "duration_s": DAY, "seed": 4}
    everything = simulate_reliability(graph, SCHEMES, **options)
    for scheme in SCHEMES:
        alone = simulate_reliability(graph, [scheme], **options)
        assert list(alone) == everything.figures(variant=scheme)


def test_all_schemes_with_the_scenarios_intervals(graph: System) -> None:
    report = simulate_reliability(graph, runs=1, duration_s=DAY, seed=1)
    assert report.variants == SCHEMES
    assert report.info.parameters["refresh_interval_s"] == 60.0
    assert report.info.parameters["subscription_timeout_s"] == 180.0
    assert report.info.parameters["retransmission_interval_s"] == 10.0
    assert report.figure("reliability", variant="bypass").low is None


def test_run_until_stops_when_it_knows_enough(graph: System) -> None:
    options: dict[str, Any] = {"duration_s": 14 * DAY, "seed": 4}
    report = run_until(graph, ["buffering"], half_width=0.05, max_runs=200, **options)
    runs = report.info.parameters["runs"]
    assert 5 < runs < 200
    assert report == simulate_reliability(graph, ["buffering"], runs=runs, **options)
    widths = [f.high - f.low for f in report.figures(scope="subscriber", metric="reliability") if f.high and f.low]
    assert float(np.mean(widths)) / 2 <= 0.05


def test_run_until_says_when_the_runs_were_not_enough(graph: System) -> None:
    report = run_until(graph, ["buffering"], half_width=1e-6, max_runs=4, duration_s=DAY, seed=4)
    assert report.info.parameters["runs"] == 4
    assert report.info.warnings[-1].endswith("not to 1e-06: allow more runs")


def test_intervals_are_students_where_runs_are_equally_long() -> None:
    values = np.array([[0.9], [0.8], [0.95], [0.85]])
    value, half = ratio_estimate(values * 200, np.full((4, 1), 200.0))
    low, high = stats.t.interval(0.95, 3, loc=values.mean(), scale=stats.sem(values[:, 0]))
    assert value[0] == pytest.approx(values.mean())
    assert half[0] == pytest.approx((high - low) / 2)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"schemes": ["bypas"]}, "there is no scheme 'bypas'"),
        ({"schemes": "bypass"}, r"write a list, such as \['bypass'\]"),
        ({"schemes": ["bypass", "bypass"]}, "each only once"),
        ({"schemes": []}, "at least one scheme"),
        ({"runs": 0}, "runs: 0"),
        ({"duration_s": 0.0}, "duration_s: 0.0"),
        ({"warm_up_s": -1.0}, "warm_up_s: -1.0"),
        ({"retransmission_interval_s": float("nan")}, "retransmission_interval_s: nan"),
        ({"refresh_interval_s": 10.0, "subscription_timeout_s": 5.0}, "subscription_timeout_s must be longer"),
    ],
)
def test_wrong_arguments_are_refused(graph: System, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        simulate_reliability(graph, **{"runs": 1, "duration_s": DAY, "seed": 1, **options})


def test_too_many_changes_are_refused(graph: System, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "_LABELS_MAX", 100)
    with pytest.raises(OverloadError, match="simulate a shorter duration in more runs"):
        simulate_reliability(graph, ["bypass"], runs=1, duration_s=DAY, seed=1)
