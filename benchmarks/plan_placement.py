"""Speed of planning the complete case study of the capacity paper, and the quality of local search. About a minute.

Prints CPU seconds on one core after compilation for all 1023 placements under all nine algorithms, with coinciding
classes and with 500 distinct ones, with and without headroom; the same by the plain NumPy model, from a sample of
placements; and the gap of local search to the optimum for ten candidates, with the share of placements it evaluated.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from surecast.planning.placement import (
    OBJECTIVES,
    Constraints,
    PlacementProblem,
    evaluate,
    placed_scenario,
    placement_problem,
    plan_placement,
    search_placement,
)
from surecast.prediction.capacity.capacity_model import ALGORITHMS, capacity_model
from surecast.prediction.capacity.delays import delays_of
from surecast.prediction.capacity.headroom import headroom
from surecast.scenario import Scenario, System, build, load_system

SAMPLE = 12
DISTINCT = {"workload.popularity_exponent": "0.5"}
SEEDS = 20


def cpu_s(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def plain_s(scenario: Scenario, system: System, with_headroom: bool) -> float:
    """CPU seconds of one placement under all algorithms by the plain model, the building of its system left out."""
    names = [broker.name for broker in system.overlay.brokers]
    generator = np.random.default_rng(1)
    total = 0.0
    for _ in range(SAMPLE):
        chosen = [name for name, wanted in zip(names, generator.random(len(names)) < 0.5, strict=True) if wanted]
        placed = build(placed_scenario(scenario, system, chosen or names[:1]))

        def figures(placed: System = placed) -> None:
            model = capacity_model(placed)
            for algorithm in ALGORITHMS:
                loads = model.loads(model.flows(algorithm))
                if loads.stable:
                    delays_of(model, algorithm, loads)
                if with_headroom:
                    headroom(model, algorithm)

        total += cpu_s(figures)
    return total / SAMPLE


def time_case_study(title: str, scenario: Scenario, system: System) -> PlacementProblem:
    problem = placement_problem(system, scenario)
    everything = range(1, 1 << len(problem.candidates))
    cases = len(everything) * len(ALGORITHMS)
    evaluate(problem, [1, 3])
    print(f"{title}: {len(problem.copies)} distinct classes, {len(everything)} placements, {cases} cases")
    for with_headroom in (False, True):

        def complete(with_headroom: bool = with_headroom) -> None:
            evaluate(problem, everything, headroom=with_headroom)

        took = min(cpu_s(complete) for _ in range(3))
        plain = plain_s(scenario, system, with_headroom) * len(everything)
        what = "with headroom   " if with_headroom else "without headroom"
        print(f"  {what}: {took:7.3f} s, {cases / took:9,.0f} cases/s; plain {plain:7.1f} s, {plain / took:6.0f} times")
    whole = cpu_s(lambda: plan_placement(problem).front)
    print(f"  the plan with its front: {whole:.3f} s")
    return problem


def local_gaps(problem: PlacementProblem) -> None:
    """The gap of local search to the optimum, over seeds, under every algorithm."""
    limits = Constraints(max_utilisation=0.9)
    for objective, (figure, _) in OBJECTIVES.items():
        exact = plan_placement(problem, objective=objective, constraints=limits).best_by_algorithm
        for restarts in (1, 3):
            gaps, evaluated = [], []
            for seed in range(SEEDS):
                found = search_placement(
                    problem, objective=objective, constraints=limits, exact_max=0, restarts=restarts, seed=seed
                )
                evaluated.append(found.evaluations)
                for algorithm, case in exact.items():
                    near = found.best_by_algorithm[algorithm]
                    if case is not None:
                        best = getattr(case, figure)
                        gaps.append(np.inf if near is None else abs(getattr(near, figure) / best - 1.0))
            missed = np.mean(np.array(gaps) > 1e-9)
            print(
                f"  {objective:12} {restarts} restarts: {missed:6.1%} of searches miss the optimum, largest gap "
                f"{max(gaps):.2%}, {np.mean(evaluated):.0f} of 1023 placements evaluated"
            )


def main() -> None:
    problem = time_case_study("coinciding classes", *load_system("examples/company.yaml"))
    time_case_study("distinct classes", *load_system("examples/company.yaml", DISTINCT))
    print("local search on ten candidates:")
    local_gaps(problem)


if __name__ == "__main__":
    main()
