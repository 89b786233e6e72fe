"""Plans over all placements, interrupted ones, and local search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from surecast.errors import AssumptionError, ConfigurationError
from surecast.planning.placement import (
    OBJECTIVES,
    Constraints,
    PlacementPlan,
    PlacementProblem,
    count_placements,
    evaluate,
    exhaustive,
    kept_placements,
    misses,
    pieces,
    placement_problem,
    plan_placement,
    search_placement,
)
from surecast.scenario import Scenario, System, load_system

Make = Callable[..., tuple[Scenario, System]]


@pytest.fixture(scope="module")
def problem(offices: Make) -> PlacementProblem:
    scenario, system = offices(capacity="[60/s, 150/s]")
    return placement_problem(system, scenario)


def same(one: PlacementPlan, other: PlacementPlan) -> bool:
    return bool(one.table().equals(other.table())) and one.best == other.best and one.front == other.front


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_best_of_all_cases(problem: PlacementProblem, objective: str) -> None:
    limits = Constraints(max_utilisation=0.95, max_brokers=5)
    plan = plan_placement(problem, objective=objective, constraints=limits)
    assert plan.exact
    assert plan.evaluations == 62 == count_placements(problem, limits)
    rows = plan.table().to_pylist()
    assert len(rows) == 62 * 9
    kept = [row for row in rows if not row["overloaded"] and row["utilisation"] <= 0.95]
    assert len(kept) == plan.feasible_count == sum(row["feasible"] for row in rows)
    name, sign = OBJECTIVES[objective]
    assert plan.best is not None
    best = min(sign * row[name] for row in kept)
    assert sign * getattr(plan.best, name) == pytest.approx(best)
    for algorithm, case in plan.best_by_algorithm.items():
        of_algorithm = [sign * row[name] for row in kept if row["algorithm"] == algorithm]
        assert (case is None) == (not of_algorithm)
        if case is not None:
            assert sign * getattr(case, name) == pytest.approx(min(of_algorithm))


def test_overload_is_never_a_number(problem: PlacementProblem) -> None:
    plan = plan_placement(problem)
    rows = [row for row in plan.table().to_pylist() if row["overloaded"]]
    assert rows
    for row in rows:
        assert row["notification_delay_worst_s"] is row["notification_delay_mean_s"] is None
        assert row["utilisation"] >= 1.0
        assert row["headroom_factor"] <= 1.0
        assert not row["feasible"]


def test_costs_limit_the_placements(problem: PlacementProblem) -> None:
    dear = replace(problem, costs=np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0]))
    plan = plan_placement(dear, constraints=Constraints(max_cost=11.0))
    assert sorted(plan.evaluation.cost.tolist()) == list(range(1, 12))
    with pytest.raises(AssumptionError, match="even one broker costs more"):
        plan_placement(dear, constraints=Constraints(max_cost=0.5))


def test_an_interrupted_plan_goes_on(
    problem: PlacementProblem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exhaustive, "_STEP_MAX", 8)
    monkeypatch.setattr(pieces, "_SAVE_AFTER_S", 0.0)
    folder = tmp_path / "plan.work"
    whole = plan_placement(problem)

    def stop(done: int, total: int) -> None:
        if done >= 24:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        plan_placement(problem, checkpoint=folder, progress=stop)
    saved = sorted(folder.glob("*.npy"))
    kept = kept_placements(folder)
    assert kept >= 24
    lost = len(np.load(saved[1]))
    saved[1].write_bytes(saved[1].read_bytes()[:50])
    assert kept_placements(folder) == kept - lost
    seen: list[tuple[int, int]] = []
    again = plan_placement(
        problem, checkpoint=folder, objective="cost", progress=lambda done, total: seen.append((done, total))
    )
    assert seen[0] == (kept - lost, 63)
    assert seen[-1] == (63, 63)
    assert again.table().equals(whole.table())
    assert not folder.exists()
    assert same(plan_placement(problem, checkpoint=folder), whole)


def test_what_waits_to_be_saved_is_kept_too(
    problem: PlacementProblem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exhaustive, "_STEP_MAX", 8)
    monkeypatch.setattr(pieces, "_SAVE_AFTER_S", 1e9)
    folder = tmp_path / "plan.work"

    reached = 0

    def stop(done: int, total: int) -> None:
        nonlocal reached
        reached = done
        if done >= 24:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        plan_placement(problem, checkpoint=folder, progress=stop)
    assert len(list(folder.glob("*.npy"))) == 1
    assert kept_placements(folder) == reached >= 24


def test_one_plan_at_a_time_uses_a_folder(problem: PlacementProblem, tmp_path: Path) -> None:
    folder = tmp_path / "plan.work"
    refused = []

    def another(done: int, total: int) -> None:
        for resume in (True, False):
            with pytest.raises(ConfigurationError, match="another plan is writing to"):
                plan_placement(problem, checkpoint=folder, resume=resume)
            refused.append(done)

    plan = plan_placement(problem, checkpoint=folder, progress=another)
    assert refused
    assert same(plan, plan_placement(problem))
    assert not folder.exists()
    assert plan_placement(problem, checkpoint=folder).evaluations == 63


def test_steps_cover_what_is_not_known_once(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(5)
    for share in (0.0, 0.3, 1.0):
        known = generator.random(500) < share
        steps = exhaustive._Steps(known)
        seen: list[int] = []
        while (step := steps.next()) is not None:
            seen += range(*step)
            steps.took(step[1] - step[0], float(generator.choice([0.0, 0.01, 0.25, 5.0])))
        assert seen == np.flatnonzero(~known).tolist()


def test_what_nothing_fits_for(problem: PlacementProblem) -> None:
    assert misses(plan_placement(problem)) == ()
    rows = [row for row in plan_placement(problem).table().to_pylist() if not row["overloaded"]]
    fastest = min(row["notification_delay_worst_s"] for row in rows)
    (miss,) = misses(plan_placement(problem, constraints=Constraints(max_notification_delay_s=fastest / 2)))
    assert (miss.limit, miss.asked, miss.alone) == ("max_notification_delay_s", fastest / 2, True)
    assert miss.found == pytest.approx(fastest)
    assert miss.case.notification_delay_worst_s == miss.found
    least = min(row["utilisation"] for row in rows)
    apart = Constraints(max_notification_delay_s=1.0001 * fastest, max_utilisation=1.0001 * least)
    by = [
        max(row["notification_delay_worst_s"] / 1.0001 / fastest - 1, 0)
        + max(row["utilisation"] / 1.0001 / least - 1, 0)
        for row in rows
    ]
    found = misses(plan_placement(problem, constraints=apart))
    assert found
    assert not any(miss.alone for miss in found)
    assert sum(abs(miss.found / miss.asked - 1.0) for miss in found) == pytest.approx(min(by))
    (miss,) = misses(plan_placement(problem.scaled(publications=1e3, subscriptions=1e3)))
    assert miss.limit == "overload"
    assert miss.found >= 1.0


def test_a_folder_of_another_plan_is_refused(problem: PlacementProblem, tmp_path: Path) -> None:
    folder = tmp_path / "plan.work"

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        plan_placement(problem, checkpoint=folder, progress=stop)
    other = replace(problem, lifetime_s=61.0)
    with pytest.raises(ConfigurationError, match="another scenario or with other options"):
        plan_placement(other, checkpoint=folder)
    assert plan_placement(other, checkpoint=folder, resume=False).evaluations == 63
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "letter.txt").write_text("dear")
    for resume in (True, False):
        with pytest.raises(ConfigurationError, match="no folder of an interrupted plan"):
            plan_placement(problem, checkpoint=mine, resume=resume)
    assert (mine / "letter.txt").exists()


def test_workers_find_the_same(problem: PlacementProblem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exhaustive, "_STEP_MAX", 8)
    assert same(plan_placement(problem, workers=2), plan_placement(problem))


def test_the_table_in_a_file(problem: PlacementProblem, tmp_path: Path) -> None:
    plan = plan_placement(problem, algorithms=["flooding", "peer-to-peer merging"])
    table = pq.read_table(plan.save(tmp_path / "plan.parquet"))
    assert table.num_rows == 63 * 2
    assert table.to_pylist() == plan.table().to_pylist()


def test_the_front_is_of_feasible_cases(problem: PlacementProblem) -> None:
    plan = plan_placement(problem, front=["mean-delay", "cost"])
    kept = [row for row in plan.table().to_pylist() if row["feasible"]]
    assert plan.front
    for case in plan.front:
        assert not any(
            row["cost"] <= case.cost
            and row["notification_delay_mean_s"] < (case.notification_delay_mean_s or 0) - 1e-12
            for row in kept
        )
    assert [case.cost for case in plan.front] == sorted((case.cost for case in plan.front), reverse=True)
    assert plan.front[0].headroom_factor is None


def test_too_many_placements_are_refused(problem: PlacementProblem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exhaustive, "CASES_MAX", 100)
    with pytest.raises(AssumptionError, match=r"63 placements.*give max_brokers, or use search_placement"):
        plan_placement(problem)
    with pytest.raises(ConfigurationError, match="there is no objective 'speed'"):
        plan_placement(problem, objective="speed")
    with pytest.raises(ConfigurationError, match="min_reliability needs reliability"):
        plan_placement(problem, constraints=Constraints(min_reliability=0.9))


@pytest.mark.parametrize("objective", ["worst-delay", "mean-delay", "messages", "headroom"])
def test_local_search_finds_the_optimum_of_the_case_study(objective: str, repository: Path) -> None:
    """Ten candidates: all 1023 placements against a search that sees fewer."""
    scenario, system = load_system(repository / "examples" / "company.yaml")
    company = placement_problem(system, scenario)
    limits = Constraints(max_utilisation=0.9)
    exact = plan_placement(company, objective=objective, constraints=limits)
    found = search_placement(company, objective=objective, constraints=limits, exact_max=0, restarts=5)
    assert not found.exact
    assert found.evaluations < 1023
    assert found.best is not None
    assert exact.best is not None
    name = OBJECTIVES[objective][0]
    assert getattr(found.best, name) == pytest.approx(getattr(exact.best, name), rel=1e-9)
    for algorithm, case in exact.best_by_algorithm.items():
        near = found.best_by_algorithm[algorithm]
        assert (near is None) == (case is None)
        if near is not None and case is not None:
            assert getattr(near, name) == pytest.approx(getattr(case, name), rel=1e-9)


def test_local_search_is_exact_where_it_can_and_repeatable_elsewhere(problem: PlacementProblem) -> None:
    assert search_placement(problem).exact
    one = search_placement(problem, exact_max=0, seed=4, restarts=2)
    assert same(one, search_placement(problem, exact_max=0, seed=4, restarts=2))
    few = search_placement(problem, exact_max=0, evaluations_max=10)
    assert few.search is not None
    assert not few.search.converged
    assert few.search.restarts < few.search.restarts_asked == 8
    assert one.search is not None
    assert one.search.converged
    assert one.search.restarts == 2
    assert search_placement(problem).search is None
    assert few.evaluations == 10 == len(evaluate(problem, few.evaluation.placements).brokers)
    small = search_placement(problem, exact_max=0, constraints=Constraints(max_brokers=2))
    assert small.evaluation.brokers.max() <= 2
