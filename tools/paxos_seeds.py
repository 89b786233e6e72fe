"""Runs the replicated state machine through many simulated worlds in which everything goes wrong.

    python tools/paxos_seeds.py --seeds 10000 --replicas 3,5,7 --variant multi [--first 0] [--minutes 10]
    python tools/paxos_seeds.py --replay multi:5:4711 [--mode harsh]   # one run again, its options and what happened

Every seed runs with every number of replicas. A failure prints its options, the property that broke, and the command
that replays it; the exit code is then 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator

from surecast.protocol.paxos import VARIANTS, Variant
from surecast.simulation.replication.faults import MODES, Mode, Outcome, run_seed

PROGRESS_S = 10.0


def cases(arguments: argparse.Namespace) -> Iterator[tuple[Variant, int, int]]:
    """All runs asked for, in the order in which they run."""
    replicas = [int(number) for number in arguments.replicas.split(",")]
    variants = VARIANTS if arguments.variant == "all" else (arguments.variant,)
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        for variant in variants:
            for number in replicas:
                yield variant, number, seed


def report(case: str, outcome: Outcome) -> None:
    """Prints a failure and how to see it again."""
    print(f"FAILED {outcome.violation}")
    print(f"  {outcome.options}")
    print(f"  python tools/paxos_seeds.py --replay {case}", flush=True)


def replay(case: str, mode: Mode) -> int:
    """Runs one case and prints all about it."""
    name, replicas, seed = case.split(":")
    variant = next(one for one in VARIANTS if one == name)
    outcome = run_seed(int(seed), int(replicas), variant, mode)
    print(outcome.options)
    print(f"{outcome.slots} instances; {outcome.counts}")
    print(outcome.violation or "all properties hold")
    return 0 if outcome.held else 1


def run(arguments: argparse.Namespace) -> int:
    """Runs all cases until they or the time are over."""
    started = shown = time.monotonic()
    runs = failures = slots = 0
    totals: dict[str, int] = {}
    for variant, replicas, seed in cases(arguments):
        outcome = run_seed(seed, replicas, variant, arguments.mode)
        runs += 1
        slots += outcome.slots
        for name, count in outcome.counts.items():
            totals[name] = totals.get(name, 0) + count
        if not outcome.held:
            failures += 1
            report(f"{variant}:{replicas}:{seed} --mode {arguments.mode}", outcome)
        now = time.monotonic()
        if now - shown >= PROGRESS_S:
            shown = now
            print(f"{runs} runs, {failures} failures, seed {seed}, {runs / (now - started):.1f} runs/s", flush=True)
        if now - started >= arguments.minutes * 60:
            break
    print(f"{runs} runs, {failures} failures, {slots} instances; {totals}")
    return 1 if failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1_000, help="how many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--replicas", default="3,5,7", help="sizes of the group")
    parser.add_argument("--variant", choices=[*VARIANTS, "all"], default="all")
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after so long")
    parser.add_argument("--replay", metavar="VARIANT:REPLICAS:SEED", help="one run again")
    parser.add_argument(
        "--mode",
        choices=[*MODES],
        default="plain",
        help="plain: as the seed says; harsh: everything goes wrong at once; divided: leaders are cut off; "
        "forgetful: disks are set back; overtaking: messages overtake each other; "
        "stalled: busy machines, nothing fails",
    )
    arguments = parser.parse_args()
    return replay(arguments.replay, arguments.mode) if arguments.replay else run(arguments)


if __name__ == "__main__":
    sys.exit(main())
