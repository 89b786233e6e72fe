"""The generator of `surecast load` beside the brokers that it loads: who is the faster one.

    python -m benchmarks.load_generator            every row for every broker: about three minutes
    python -m benchmarks.load_generator --quick    one short round

Each broker has one core and the generator another. In a closed loop the slower one of the two sets the rate. The table
has the rate, the processor time of broker and generator for one delivery, and their ratio: above 1 the generator needs
less time than the broker, so that a broker on as many cores can be driven to its limit. Publishers, subscribers and
their processes count as one generator.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import statistics
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.broker.contestants import HOST, PASSWORD, USER, Contestant, UnavailableError, start

from surecast.load import BrokerAccess, LoadError, LoadOutcome, LoadPlan, run_load
from surecast.protocol.mqtt import V311

BROKERS = ("mosquitto", "nats-mqtt", "surecast")
NOWHERE = BrokerAccess(HOST, 1)
ROWS = {
    "1 to 1, 64 in a write": LoadPlan(NOWHERE, burst=64, window=512),
    "1 to 1, varying sizes": LoadPlan(NOWHERE, burst=64, window=512, size_max_bytes=264),
    "1 to 50": LoadPlan(NOWHERE, subscribers=50, burst=16, window=64),
    "50 to 1, 4 in a write": LoadPlan(NOWHERE, publishers=50, burst=4, window=16),
    "50 to 50, 4 in a write": LoadPlan(NOWHERE, publishers=50, subscribers=50, topics=50, burst=4, window=16),
    "50 to 50, one by one": LoadPlan(NOWHERE, publishers=50, subscribers=50, topics=50, window=16),
    "1 to 1, QoS 1": LoadPlan(NOWHERE, burst=16, window=256, qos=1),
    "50 to 50, QoS 1": LoadPlan(NOWHERE, publishers=50, subscribers=50, topics=50, burst=4, window=16, qos=1),
}


@dataclass(frozen=True)
class Figures:
    """The results of one run."""

    rate_per_s: float
    broker_us: float
    generator_us: float
    broker_share: float
    problems: tuple[str, ...]

    @property
    def ratio(self) -> float:
        return self.broker_us / self.generator_us


def figures(outcome: LoadOutcome) -> Figures:
    """Returns the figures of a run; the generator's time includes that of its warm-up, in proportion."""
    plan, deliveries = outcome.plan, max(1, outcome.received.in_window)
    assert outcome.broker is not None
    own_s = outcome.generator_s * plan.seconds / (plan.seconds + plan.warm_up_s)
    return Figures(
        outcome.delivered_per_s,
        outcome.broker.processor_s / deliveries * 1e6,
        own_s / deliveries * 1e6,
        outcome.broker_share,
        tuple(outcome.problems()),
    )


def access(contestant: Contestant) -> BrokerAccess:
    user, password = (USER, PASSWORD.encode()) if contestant.name == "surecast" else (None, None)
    return BrokerAccess(HOST, contestant.port, V311, user, password)


def measure(contestants: list[Contestant], seconds: float, rounds: int) -> dict[tuple[str, str], list[Figures]]:
    """Visits every row of every broker in turn, as often as there are rounds."""
    found: dict[tuple[str, str], list[Figures]] = {}
    for number in range(rounds):
        for row, plan in ROWS.items():
            for contestant in contestants:
                name = secrets.token_hex(3)
                load = replace(
                    plan, access=access(contestant), seconds=seconds, warm_up_s=0.3, probes_per_s=0.0, prefix="bench",
                    name=name,
                )  # fmt: skip
                try:
                    outcome = run_load(load, [contestant.process.pid])
                except LoadError as error:
                    print(f"{row}, {contestant.name}: {error}", file=sys.stderr)
                    continue
                found.setdefault((row, contestant.name), []).append(figures(outcome))
        print(f"round {number + 1} of {rounds} done", file=sys.stderr, flush=True)
    return found


def main() -> int:
    """Measures and prints; 1 where something was lost or came out of order."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.load_generator", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--seconds", type=float, default=1.5, help="time of one run (1.5)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of every row (3)")
    parser.add_argument("--quick", action="store_true", help="half a second, one round")
    options = parser.parse_args()
    if options.quick:
        options.seconds, options.rounds = 0.5, 1
    cores = sorted(os.sched_getaffinity(0))
    broker_core, own_core = (cores[0], cores[-1]) if len(cores) > 1 else (None, None)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        contestants = []
        for name in BROKERS:
            try:
                contestants.append(start(name, Path(folder), broker_core))
            except UnavailableError as error:
                print(f"{name} is left out: {error}")
                continue
            stack.callback(contestants[-1].stop)
        if own_core is not None:
            os.sched_setaffinity(0, {own_core})
        before = os.getloadavg()[0]
        found = measure(contestants, options.seconds, options.rounds)
    print(f"broker on core {broker_core}, generator on core {own_core}; load average {before:.1f} at the beginning, "
          f"{os.getloadavg()[0]:.1f} at the end\n")  # fmt: skip
    print("| row | broker | deliveries/s | broker's core | broker, us | generator, us | broker / generator |")
    print("|---|---|---|---|---|---|---|")
    problems = 0
    for (row, name), each in found.items():
        ratio = statistics.median(one.ratio for one in each)
        median = {
            field: statistics.median(getattr(one, field) for one in each)
            for field in ("rate_per_s", "broker_us", "generator_us", "broker_share")
        }
        print(
            f"| {row} | {name} | {median['rate_per_s']:,.0f} | {median['broker_share']:.0%} | "
            f"{median['broker_us']:.2f} | {median['generator_us']:.2f} | {ratio:.2f} |"
        )
        for one in each:
            problems += bool(one.problems)
            for problem in one.problems:
                print(f"{row}, {name}: {problem}", file=sys.stderr)
    print(f"\n{problems} runs in which something was lost, out of order or refused")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
