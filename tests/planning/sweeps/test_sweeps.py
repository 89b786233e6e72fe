"""Sweeps against the plain capacity model of the system at each load and locality, one placement at a time."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from surecast.errors import AssumptionError, ConfigurationError
from surecast.planning.placement import PlacementProblem, placed_scenario, placement_problem
from surecast.planning.sweeps import (
    OVERLOAD,
    TIE,
    at_load,
    count_optimal,
    locality_problems,
    one_per_domain,
    saturation_load,
    sweep_algorithms,
    sweep_load,
)
from surecast.prediction.capacity.capacity_model import capacity_model
from surecast.prediction.capacity.delays import delays_of
from surecast.scenario import Scenario, System, build

Make = Callable[..., tuple[Scenario, System]]
CLOSE = 1e-9
FEW = ("flooding", "peer-to-peer covering", "hierarchical merging")


def plain_delays(
    scenario: Scenario, system: System, brokers: tuple[str, ...], algorithms: tuple[str, ...]
) -> list[float]:
    """The worst-path delay under each algorithm by the plain model; NaN if it is overloaded."""
    model = capacity_model(build(placed_scenario(scenario, system, brokers)))
    found = []
    for algorithm in algorithms:
        loads = model.loads(model.flows(algorithm))
        delay = delays_of(model, algorithm, loads).notification_worst_s if loads.stable else None
        found.append(np.nan if delay is None else delay)
    return found


def test_curves_are_those_of_the_plain_model(offices: Make) -> None:
    scenario, system = offices()
    sweep = sweep_load(placement_problem(system, scenario), [200, 600, 3000, 30_000], algorithms=FEW)
    assert sweep.design == pytest.approx(600.0)
    for i, active in enumerate(sweep.subscriptions):
        at, there = offices(active=active)
        for curve in sweep.curves[:4]:
            (delay,) = plain_delays(at, there, curve.configuration.brokers, (curve.configuration.algorithm,))
            assert curve.delay_s[i] == pytest.approx(delay, rel=CLOSE, nan_ok=True)
            assert (curve.configuration.saturates_at <= active) == np.isnan(delay)
    assert any(np.isnan(curve.delay_s).any() for curve in sweep.curves)


def test_roles_of_a_load_sweep(offices: Make) -> None:
    scenario, system = offices()
    problem = placement_problem(system, scenario)
    sweep = sweep_load(problem, [0, 600, 20_000], algorithms=FEW, refined=True)
    best, robust, full = (sweep.curve(r) for r in ("best at the design load", "most robust", "all candidates"))
    assert best is not None
    assert robust is not None
    assert full is not None
    assert full.configuration.brokers == problem.candidates
    assert len(sweep.by_domain) == len(one_per_domain(problem)) == 8
    assert robust.configuration.saturates_at == max(c.configuration.saturates_at for c in sweep.by_domain)
    for brokers in (curve.configuration.brokers for curve in sweep.by_domain):
        domains = [problem.domains[problem.candidates.index(name)] for name in brokers]
        assert sorted(domains) == sorted(set(problem.domains))
    everything = [plain_delays(scenario, system, brokers, FEW) for brokers in _subsets(problem, 3)]
    assert best.configuration.delay_s is not None
    assert best.configuration.delay_s <= np.nanmin(everything) * (1 + CLOSE)
    # No subscription is as good as one, and loads shortly before saturation are added.
    assert sweep.subscriptions[0] == 1.0
    assert 0.99 * best.configuration.saturates_at == pytest.approx(
        sweep.subscriptions[np.abs(sweep.subscriptions - 0.99 * best.configuration.saturates_at).argmin()]
    )
    # Every curve has a point close to its end, and at the design load all are what they are said to be.
    for curve in sweep.curves:
        end = curve.configuration.saturates_at
        if 1.0 < end < 20_000:
            close = sweep.subscriptions[np.isfinite(curve.delay_s)].max()
            assert 0.99 * end - 20_000 / 400 <= close < end
    (at_design,) = np.flatnonzero(sweep.subscriptions == sweep.design)
    for curve in sweep.curves:
        if curve.configuration.delay_s is not None:
            assert curve.delay_s[at_design] == pytest.approx(curve.configuration.delay_s)


def _subsets(problem: PlacementProblem, step: int) -> list[tuple[str, ...]]:
    names = problem.candidates
    return [tuple(n for i, n in enumerate(names) if number >> i & 1) for number in range(1, 1 << len(names), step)]


def test_saturation_lies_between_a_stable_and_an_overloaded_load(offices: Make) -> None:
    scenario, system = offices()
    problem = placement_problem(system, scenario)
    mask = np.array([True, False, True, True, False, False])
    brokers = tuple(name for name, used in zip(problem.candidates, mask, strict=True) if used)
    for algorithm in (*FEW, "peer-to-peer identity"):
        end, what = saturation_load(problem, mask, algorithm, 1e6)
        for factor, stable in ((0.999, True), (1.001, False)):
            at, there = offices(active=factor * end)
            model = capacity_model(build(placed_scenario(at, there, brokers)))
            assert model.loads(model.flows(algorithm)).stable == stable
        assert what.split(" ")[0] in ("broker", "router", "physical")
        assert saturation_load(problem, mask, algorithm, 0.5 * end) == (np.inf, "")


def test_counts_of_best_algorithms_by_brute_force(offices: Make) -> None:
    scenario, _ = offices(candidates="{count: 4}")
    localities = [0.3, 0.9]
    problems = locality_problems(scenario, localities)
    loads = [20.0, 3000.0, 20_000.0]
    sweep = sweep_algorithms(problems, loads, algorithms=FEW)
    assert sweep.outcomes == (*FEW, TIE, OVERLOAD)
    assert sweep.counts.sum(axis=2).tolist() == [[15] * 3] * 2
    for i, locality in enumerate(localities):
        for j, active in enumerate(loads):
            given, _ = offices(candidates="{count: 4}", active=active)
            classes = [
                each if each.hot_spot is None else each.model_copy(update={"locality": locality})
                for each in given.workload.classes
            ]
            given = given.model_copy(update={"workload": given.workload.model_copy(update={"classes": classes})})
            system = build(given)
            expected = dict.fromkeys(sweep.outcomes, 0)
            for brokers in _subsets(problems[locality], 1):
                delays = plain_delays(given, system, brokers, FEW)
                if np.isnan(delays).all():
                    expected[OVERLOAD] += 1
                    continue
                near = [a for a, d in zip(FEW, delays, strict=True) if d <= np.nanmin(delays) * (1 + 1e-9)]
                expected[near[0] if len(near) == 1 else TIE] += 1
            assert sweep.counts[i, j].tolist() == list(expected.values())
    assert sweep.counts[:, :, -1].any()
    assert sweep.by_load().sum(axis=1) == pytest.approx(np.ones(3))
    assert sweep.by_locality().shape == (2, 5)


def test_locality_changes_rates_alone(offices: Make) -> None:
    scenario, system = offices()
    own = placement_problem(system, scenario)
    two = locality_problems(scenario, [0.2, 1.0], root="first")
    assert two[0.2].candidates == own.candidates
    assert np.array_equal(two[0.2].nearest, own.nearest)
    assert not two[0.2].central
    assert two[0.2].active_subscriptions == pytest.approx(own.active_subscriptions)
    assert two[0.2].fingerprint != two[1.0].fingerprint


def test_tables_are_saved_whole_and_functions_can_be_sent(offices: Make, tmp_path: Path) -> None:
    scenario, system = offices()
    problem = placement_problem(system, scenario)
    sweep = sweep_load(problem, [600, 50_000], algorithms=FEW)
    table = pq.read_table(sweep.save(tmp_path / "load.parquet"))
    assert table.num_rows == 2 * len(sweep.curves)
    assert table["notification_delay_worst_s"].null_count == sum(np.isnan(c.delay_s).sum() for c in sweep.curves)
    counted = sweep_algorithms({None: problem}, [600.0], algorithms=FEW)
    table = pq.read_table(counted.save(tmp_path / "algorithms.parquet"))
    assert table["placements"].to_pylist() == counted.counts.ravel().tolist()
    assert table["locality"].null_count == table.num_rows
    function, again = pickle.loads(pickle.dumps((count_optimal, problem)))
    assert function(again, 600.0, FEW).tolist() == counted.counts[0, 0].tolist()


def test_refusals(offices: Make) -> None:
    scenario, system = offices()
    problem = placement_problem(system, scenario)
    with pytest.raises(ConfigurationError, match="above 0 and finite"):
        at_load(problem, 0.0)
    with pytest.raises(ConfigurationError, match="0 or more"):
        sweep_load(problem, [-1.0])
    with pytest.raises(AssumptionError, match="every placement is overloaded"):
        sweep_load(at_load(problem, 1e6), [1.0])
    with pytest.raises(ConfigurationError, match="from 0 to 1"):
        locality_problems(scenario, [1.5])
    with pytest.raises(ConfigurationError, match="at least one locality"):
        sweep_algorithms({}, [1.0])
    everywhere = scenario.workload.model_copy(update={"classes": [scenario.workload.classes[2]]})
    with pytest.raises(AssumptionError, match="no class has a hot spot"):
        locality_problems(scenario.model_copy(update={"workload": everywhere}), [0.5])
