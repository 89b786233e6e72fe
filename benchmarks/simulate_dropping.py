"""Speed of the compiled simulation of ON/OFF queues, beside the same queues in Ciw.

Run it without arguments; it takes about a minute. Both get the same events, service times, coins, and connected
periods (Ciw by a distribution that looks them up, a baulking function, and a server schedule that resumes what it
interrupted), so both must deliver the same events after the same times. Speed is events published per second of
processor time, the best of three: of Ciw, its simulation alone; ours, the whole of `simulate_queue` in one thread, with
its drawing of random numbers and its statistics.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from surecast.scenario.mechanism import Mechanism
from surecast.simulation.dropping import simulate_queue
from surecast.simulation.dropping.dropping_plan import DroppingSettings
from surecast.simulation.dropping.queue_kernel import DELIVERED, RESPONSE
from surecast.simulation.dropping.queue_sweep import Sweeper

try:
    import ciw  # type: ignore[import-untyped]
except ImportError:
    ciw = None

SEED = 1
RATE, SERVICE, PERIOD_S = 2.0, 8.0, 20.0
DURATION_S = 10_000.0
OURS_S, OURS_RUNS = 20_000.0, 100
REPEATS = 3

CASES = {
    "M/M/1": (None, Mechanism()),
    "ON/OFF, all join": (PERIOD_S, Mechanism()),
    "ON/OFF, join probability 0.5": (PERIOD_S, Mechanism(join_probability=0.5)),
}
MORE = {
    "ON/OFF, 23 fit": Mechanism(buffer_size=23),
    "ON/OFF, lifetime 29 s": Mechanism(lifetime_s=29.0),
    "ON/OFF, mean lifetime 29 s": Mechanism(lifetime_s=29.0, lifetime_distribution="exponential"),
    "ON/OFF, all three": Mechanism(join_probability=0.9, buffer_size=100, lifetime_s=29.0),
}


def given(times: np.ndarray) -> Any:
    """A Ciw distribution that gives the n-th individual the n-th time, and an infinite one after the last."""

    class Given(ciw.dists.Distribution):  # type: ignore[misc]
        def __init__(self) -> None:
            self.times, self.at = [*times.tolist(), math.inf], 0

        def sample(self, t: float | None = None, ind: Any = None) -> float:
            if ind is not None:
                return float(self.times[ind.id_number - 1])
            self.at += 1
            return float(self.times[min(self.at, len(self.times)) - 1])

    return Given()


def in_ciw(sweeper: Sweeper, mechanism: Mechanism) -> tuple[int, float, float]:
    """Events delivered, their mean response time, and the seconds that the simulation took."""
    unit_arrivals, _, coins, _, unit_services, is_on, switches = sweeper.draw(0)
    arrivals = unit_arrivals / RATE
    drawn = iter(coins.tolist())

    def baulks(n: int, Q: Any = None, next_ind: Any = None, next_node: Any = None) -> float:  # noqa: N803
        joins = next(drawn) < mechanism.join_probability
        return 0.0 if joins or next_node.c > 0 else 1.0

    servers: Any = 1
    if len(switches):
        states = [int(is_on) if i % 2 == 0 else int(not is_on) for i in range(len(switches))]
        servers = ciw.Schedule(numbers_of_servers=states, shift_end_dates=switches.tolist(), preemption="resume")
    network = ciw.create_network(
        arrival_distributions=[given(np.diff(arrivals, prepend=0.0))],
        service_distributions=[given(unit_services / SERVICE)],
        number_of_servers=[servers],
        baulking_functions=[baulks if mechanism.join_probability < 1 else None],
    )
    start = time.process_time()
    simulation = ciw.Simulation(network)
    simulation.simulate_until_max_time(sweeper.settings.window[2])
    seconds = time.process_time() - start
    done = [r for r in simulation.get_all_records() if r.record_type == "service"]
    return len(done), sum(r.exit_date - r.arrival_date for r in done) / len(done), seconds


def ours(period: float | None, mechanism: Mechanism) -> float:
    """Events per second."""
    best = 0.0
    for _ in range(REPEATS):
        start = time.process_time()
        result = simulate_queue(
            RATE, SERVICE, period, period, mechanism, runs=OURS_RUNS, duration_s=OURS_S, warm_up_s=0.0, seed=SEED
        )
        best = max(best, int(result.published) / (time.process_time() - start))
    return best


def main() -> None:
    start = time.perf_counter()
    simulate_queue(RATE, SERVICE, PERIOD_S, PERIOD_S, duration_s=100.0, seed=SEED)
    print(f"compiled, or loaded from the cache, in {time.perf_counter() - start:.1f} s")
    print(f"{RATE:g} events/s, {SERVICE:g}/s transmitted, ON and OFF {PERIOD_S:g} s\n")
    if ciw is None:
        print("Ciw is not installed: `pip install ciw` to compare with it\n")
    print(f"{'queue':32}{'ours, events/s':>16}{'Ciw, events/s':>16}{'ratio':>8}   delivered, mean response in s (both)")
    for name, (period, mechanism) in CASES.items():
        speed = ours(period, mechanism)
        line = f"{name:32}{speed:16,.0f}"
        if ciw is not None:
            sweeper = Sweeper(period, period, None, DroppingSettings(duration_s=DURATION_S, seed=SEED), RATE)
            run = sweeper.run(0, np.array([RATE]), np.array([SERVICE]), np.array([math.inf]), [mechanism])
            delivered = int(run.counts[0, :, DELIVERED].sum())
            response = run.sums[0, RESPONSE] / delivered
            count, mean, seconds = min((in_ciw(sweeper, mechanism) for _ in range(REPEATS)), key=lambda row: row[2])
            other = int(run.counts.sum()) / seconds
            line += f"{other:16,.0f}{speed / other:8,.0f}   {delivered} {response:.9f}, {count} {mean:.9f}"
            if count != delivered or not math.isclose(mean, response, rel_tol=1e-9):
                line += "  THEY DISAGREE"
        print(line)
    for name, mechanism in MORE.items():
        print(f"{name:32}{ours(PERIOD_S, mechanism):16,.0f}")


if __name__ == "__main__":
    main()
