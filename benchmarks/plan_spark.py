"""Cost of a case of a large plan on Spark, beside the same plan in one process. About three minutes on two cores.

    python benchmarks/plan_spark.py [--candidates 17] [--variants 8] [--spark 'local[2]'] [--headroom]

Every placement of the company's brokers on so many candidates, under so many routing algorithms: 2^17 placements and 8
algorithms are a million cases. Both ways write every case to Parquet and find the best and the front. CPU seconds are
those of all processes: of this one, or of this one, Spark and its workers. The start of Spark is told apart; that of
workers, with what they import, is part of the plan. With `--headroom` the headroom of each case is computed too, which
takes most of the time then.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from surecast.pipeline.spark_sweep import sweep_session
from surecast.pipeline.sweep_plan import plan_on_spark
from surecast.planning.placement import PlacementPlan, PlacementProblem, placement_problem, plan_placement
from surecast.prediction.capacity.capacity_model import ALGORITHMS
from surecast.scenario import load_system

FRONT = ("worst-delay", "messages", "cost")
HERTZ = os.sysconf("SC_CLK_TCK")


def cpu_s() -> float:
    """CPU seconds of this process and all that it started, also of those of them that ended."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(folder.name)] = int(fields[1])
        ticks[int(folder.name)] = sum(int(field) for field in fields[11:15])

    def is_ours(pid: int) -> bool:
        while pid != os.getpid():
            if pid not in parents:
                return False
            pid = parents[pid]
        return True

    return sum(count for pid, count in ticks.items() if is_ours(pid)) / HERTZ


def measured(work: Callable[[], PlacementPlan]) -> tuple[PlacementPlan, float, float]:
    """Returns the result, CPU seconds and seconds."""
    cpu, began_s = cpu_s(), time.perf_counter()
    plan = work()
    return plan, cpu_s() - cpu, time.perf_counter() - began_s


def tell(way: str, plan: PlacementPlan, cpu: float, took_s: float) -> float:
    cases = plan.evaluations * len(plan.evaluation.algorithms)
    each_us = cpu / cases * 1e6
    print(f"{way:<14} {cases:>10,} cases {took_s:7.1f} s {cpu:7.1f} CPU s {each_us:7.2f} us a case", flush=True)
    return each_us


def company(candidates: int) -> PlacementProblem:
    """The company of the examples, with one candidate in each of so many areas."""
    changes = {"network.domains": str(candidates), "overlay.candidates.per_domain": "1"}
    scenario, system = load_system("examples/company.yaml", changes)
    return placement_problem(system, scenario)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=int, default=17)
    parser.add_argument("--variants", type=int, default=8)
    parser.add_argument("--spark", default="local[2]")
    parser.add_argument("--headroom", action="store_true")
    chosen = parser.parse_args()
    problem = company(chosen.candidates)
    algorithms = ALGORITHMS[-chosen.variants :]
    front = (*FRONT, "headroom") if chosen.headroom else FRONT
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def here() -> PlacementPlan:
            plan = plan_placement(problem, algorithms=algorithms, front=front)
            plan.save(folder / "cases.parquet")
            assert plan.front
            return plan

        one = measured(here)
        cost = tell("one process", *one)
        before = cpu_s()
        with sweep_session(chosen.spark, folder / "spark") as spark:
            print(f"start of Spark {cpu_s() - before:49.1f} CPU s")

            def there() -> PlacementPlan:
                return plan_on_spark(spark, problem, str(folder / "cases"), algorithms=algorithms, front=front)

            other = measured(there)
        print(f"a case on Spark costs {tell('Spark', *other) / cost:.2f} times as much")
        same = (one[0].best, one[0].front, one[0].feasible_count) == (
            other[0].best,
            other[0].front,
            other[0].feasible_count,
        )
        print(f"best, front and counts are {'the same' if same else 'NOT the same'}")


if __name__ == "__main__":
    main()
