"""Analysis against simulation by load: what Figure 5 of the capacity paper shows. About five minutes.

For 10,000 to 60,000 active subscriptions of the company example this prints, in CPU seconds on one core:

- the complete analysis: all 1023 placements under all nine routing algorithms, after compilation, and one case of it;
- one simulation of one case, the best placement under its best algorithm, run until the 95 % half-width of the delay on
  the worst path is 1 %. It is not run to the end: a few short runs give the CPU time per second of virtual time, the
  time to set a run up, and the variance of the delay, from which the virtual time needed follows. One long run then
  has one set-up and one warm-up. Runs are independent, so the variance of their mean falls with the virtual time; what
  is near saturation is correlated over longer times than a short run sees, and would take longer than printed.

Run: python benchmarks/plan_runtime.py
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from surecast.planning.placement import evaluate, placed_scenario, placement_problem, plan_placement
from surecast.prediction.capacity.capacity_model import ALGORITHMS
from surecast.scenario import System, build, load_system
from surecast.simulation.capacity import simulate_routing
from surecast.simulation.experiment import student_t

LOADS = (10_000, 20_000, 30_000, 40_000, 50_000, 60_000)
HALF_WIDTH = 0.01
WARM_UP_S = 5.0


def cpu_s(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def simulation_s(system: System, algorithm: str, duration_s: float, runs: int) -> tuple[float, float, float]:
    """CPU seconds that one simulation to the half-width takes, the virtual seconds for it, and the delay it found."""

    def simulate(length_s: float, warm_up_s: float, count: int) -> object:
        return simulate_routing(
            system, [algorithm], duration_s=length_s, warm_up_s=warm_up_s, runs=count, seed=1
        )  # fmt: skip

    set_up = cpu_s(lambda: simulate(1e-3, 0.0, 1))
    begin = time.process_time()
    report = simulate_routing(
        system, [algorithm], duration_s=duration_s, warm_up_s=WARM_UP_S, runs=runs, seed=1
    )  # fmt: skip
    per_run = (time.process_time() - begin) / runs
    rate = max(per_run - set_up, 0.0) / (duration_s + WARM_UP_S)
    figure = report.figure("notification_delay_worst_s")
    if figure.high is None:
        raise SystemExit("the simulation gave no interval; use more runs")
    deviation = (figure.high - figure.value) / student_t(runs - 1)  # of the mean of all runs
    virtual_s = duration_s * runs * (1.96 * deviation / (HALF_WIDTH * figure.value)) ** 2
    return set_up + rate * (virtual_s + WARM_UP_S), virtual_s, figure.value


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--duration", type=float, default=10.0, help="virtual seconds of each short run")
    parser.add_argument("--runs", type=int, default=6, help="short runs at each load")
    parser.add_argument("--loads", type=int, nargs="*", default=LOADS)
    options = parser.parse_args()
    scenario, system = load_system("examples/company.yaml")
    problem = placement_problem(system, scenario)
    evaluate(problem, [1, 3])
    best = plan_placement(problem, front=["worst-delay"]).best
    assert best is not None
    print(f"one case: {best.algorithm} with brokers at {', '.join(best.brokers)}")
    print(
        "subscriptions   all cases s   one case ms   simulation s (virtual s)   ratio per case   to all cases   delay"
    )
    everything = range(1, 1 << len(problem.candidates))
    for load in options.loads:
        scenario, system = load_system("examples/company.yaml", {"workload.subscriptions.active": str(load)})
        problem = placement_problem(system, scenario)
        whole = min(cpu_s(lambda p=problem: evaluate(p, everything, headroom=False)) for _ in range(3))  # type: ignore[misc]
        case = whole / (len(everything) * len(ALGORITHMS))
        placed = build(placed_scenario(scenario, system, best.brokers))
        needed, virtual, delay = simulation_s(placed, best.algorithm, options.duration, options.runs)
        bits = sum(1 << i for i, name in enumerate(problem.candidates) if name in best.brokers)
        predicted = evaluate(problem, [bits], [best.algorithm], headroom=False).notification_delay_worst_s[0, 0]
        print(
            f"{load:13,} {whole:13.3f} {1e3 * case:13.4f} {needed:14.1f} ({virtual:9,.0f}) {needed / case:16,.0f} "
            f"{needed / whole:14,.0f}   {1e3 * delay:.2f} ms simulated, {1e3 * predicted:.2f} predicted",
            flush=True,
        )


if __name__ == "__main__":
    main()
