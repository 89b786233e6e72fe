"""Runs overlays of nodes through many seeded worlds in which everything goes wrong, and checks every event's fate.

    python tools/overlay_seeds.py --seeds 5000 [--first 0] [--minutes 10] [--steps 300] [--group | --moves]

Brokers crash, freeze and crash again while they resynchronise; links are cut, slow and flapping; overlays fall apart;
stores are full. A failure prints its options and what was wrong; the exit code is then 1. `--seeds 1 --first N` runs
one of them again.

With `--group` the broker in the middle is a group of replicas that die, lag, are cut off, take snapshots of each other
and lead in turn, with real MQTT packets and all five schemes in turn. Under faults nothing may come twice or to
somebody who did not ask for it, and replicas may not diverge (safety); when all is repaired, what was acknowledged in
custody has arrived, and all replicas have the same state as one that goes through the whole log (liveness).

With `--moves` clients hop between brokers, and their sessions move with them: in the end each client has one session,
where it is; with custody it has had every acknowledged message, and at QoS 2 once.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from types import ModuleType

# Some installed package has tests of its own under this name, which would be found first.
sys.modules["tests"] = ModuleType("tests")
sys.modules["tests"].__path__ = [str(Path(__file__).resolve().parents[1] / "tests")]

from tests.protocol.overlay.fault_world import run_seed  # noqa: E402
from tests.protocol.overlay_broker.group_in_overlay import MiddleGroupWorld, run_group_seed  # noqa: E402
from tests.protocol.overlay_broker.move_world import run_moves  # noqa: E402

PROGRESS_S = 10.0
SCHEMES = ("buffering", "bypass-buffering", "buffering", "none", "bypass")


def main() -> int:
    """Runs all seeds until they or the time are over."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--minutes", type=float, default=10.0, help="the longest time to take")
    parser.add_argument("--steps", type=int, default=300, help="what happens in each world")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--group", action="store_true", help="the broker in the middle is a group of replicas")
    kind.add_argument("--moves", action="store_true", help="clients hop between brokers, and sessions move")
    arguments = parser.parse_args()
    started = shown = time.monotonic()
    runs = failures = 0
    faults: Counter[str] = Counter()
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        if arguments.group:
            what, problems, group_world = run_group_seed(seed, arguments.steps, MiddleGroupWorld)
            faults.update({"kills of replicas": group_world.kills, "kills of brokers": group_world.crashes})
        elif arguments.moves:
            scheme = SCHEMES[seed % len(SCHEMES)]
            problems, move_world = run_moves(seed, scheme, steps=arguments.steps)
            what = f"seed {seed}, {scheme}"
            hoppers = move_world.hoppers
            faults.update({"crashes": move_world.crashes, "hops": sum(hopper.hops for hopper in hoppers)})
            faults.update({"sessions found": sum(hopper.found for hopper in hoppers)})
        else:
            what, problems, world = run_seed(seed, arguments.steps)
            faults.update(world.faults)
        runs += 1
        if problems:
            failures += 1
            print(f"FAILED {what}")
            print("".join(f"  {problem}\n" for problem in problems[:5]), end="", flush=True)
        now = time.monotonic()
        if now - shown > PROGRESS_S:
            shown = now
            print(f"{runs} of {arguments.seeds} seeds, {failures} failed", file=sys.stderr, flush=True)
        if now - started > 60.0 * arguments.minutes:
            break
    verdict = f"{failures} of {runs} seeds failed" if failures else f"all {runs} seeds hold"
    print(f"{verdict}; {', '.join(f'{kind} {count}' for kind, count in sorted(faults.items()))}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
