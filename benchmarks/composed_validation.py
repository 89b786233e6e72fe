"""Compares predicted with simulated figures of random systems in which every part may be there, or not.

    python benchmarks/composed_validation.py --systems 100 --seed 1 --keep out/composed-1.jsonl

Each system has two to five brokers and a utilisation of up to 0.95; failures, losses, latency, queues on links, groups,
regular or varied service, subscribers that come and go, dropping, and the scheme are drawn. A part is in both answers:
nothing counts as agreement that both leave out. Runs are lengthened until the half-width of the simulation's own
interval is below half of what is tolerated, or until the events are used up.

A subscriber is off if its reliability is off by more than 0.02 or its mean delay by more than 15 %. One that the
prediction itself names in a warning, with the size of the error, counts as warned. The table has a line for each that
is off and not warned, and a summary over all. With `--keep` what was simulated is kept in a file, and a run that was
interrupted goes on; predictions are always those of now. `--until S` stops after so many seconds.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from pathlib import Path
from typing import Any

from surecast.errors import SurecastError
from surecast.prediction.composed import composed_mechanisms, predict_composed
from surecast.scenario import System, build, parse_text
from surecast.scenario.spec.delivery import SCHEMES
from surecast.simulation.composed import simulate_composed

RELIABILITY_ERROR, DELAY_ERROR = 0.02, 0.15
HALF_WIDTH, DELAY_HALF_WIDTH = 0.01, 0.075
RUNS = 8
FIRST_SHARE = 0.1
"""The share of all events with which a simulation begins; it is doubled while its intervals are too wide."""
EVENTS_MAX = 2_500_000


def random_system(draw: random.Random, number: int) -> tuple[System, str]:
    """Returns a system, and the parts that it has."""
    count = draw.randint(2, 5)
    parts: list[str] = []

    def maybe(name: str, text: str, share: float = 0.5) -> str:
        if draw.random() >= share:
            return ""
        parts.append(name)
        return text

    scheme = draw.choice(SCHEMES)
    shape = draw.choice(["chain", "star", "ring"]) if count > 2 else "chain"
    rate = draw.uniform(1.0, 4.0)
    busiest = draw.uniform(0.3, 0.95)
    # all events of both publishers, and an acknowledgement of each hop where they are stored
    capacity = 2.0 * rate * (2.0 if scheme.endswith("buffering") else 1.0) / busiest
    service = draw.choice(["exponential", "deterministic", "{distribution: erlang, stages: 3}"])
    brokers = maybe("queues", f", capacity: {capacity:.3f}/s, service: {service}", 0.8)
    if brokers:
        parts[-1] = f"queues {busiest:.2f}"
    links = maybe("latency", f", latency: {draw.uniform(5, 200):.0f}ms")
    links += maybe("loss", f", loss: {draw.uniform(0.01, 0.1):.3f}", 0.3)
    links += maybe("link capacity", f", capacity: {3.0 * rate / draw.uniform(0.3, 0.9):.3f}/s", 0.3)
    fails = maybe(
        "brokers fail", f"brokers: {{mtbf: {draw.uniform(300, 900):.0f}s, mttr: {draw.uniform(5, 60):.0f}s}}, "
    )
    fails += maybe("links fail", f"links: {{mtbf: {draw.uniform(300, 900):.0f}s, mttr: {draw.uniform(5, 60):.0f}s}}")
    coming = maybe("come and go", ", connectivity: {on: 30s, off: 15s}", 0.4)
    coming += f", service: {2.0 * rate * draw.uniform(2, 4):.2f}/s" if coming else ""
    policies = ["probabilistic, join_probability: 0.5", "finite-buffer, buffer_size: 20"]
    dropping = maybe("dropping", f", dropping: {{policy: {draw.choice(policies)}}}", 0.5 if coming else 0.0)
    groups = maybe("groups", ", replication: {replicas: 3}", 0.15)
    homes = [f"b-{draw.randint(1, count)}" for _ in range(4)]
    deadline = draw.choice([1, 5, 20, 60])
    interval, refresh = draw.choice([1, 2, 5]), draw.choice([10, 30])
    system = build(
        parse_text(f"""
surecast: 1
name: random-{number}
overlay: {{brokers: [{{name: b, count: {count}{brokers}}}], links: {{build: {shape}{links}}}}}
availability: {{{fails}}}
workload:
  topics: [t, u]
  deadline: {deadline}s
  publishers:
    - {{name: p, home: {homes[0]}, topics: [t], rate: {rate:.3f}/s}}
    - {{name: q, home: {homes[1]}, topics: [t, u], rate: {rate:.3f}/s}}
  subscribers: [{{name: s, home: {homes[2]}, topics: [t]}}, {{name: r, home: {homes[3]}, topics: [t, u]{coming}}}]
delivery:
  fault_tolerance: {{scheme: {scheme}, retransmission_interval: {interval}s, refresh_interval: {refresh}s}}
  {dropping[2:]}
  {groups[2:]}
""")
    )
    return system, ", ".join([scheme, f"deadline {deadline} s", *parts])


def simulated_rows(system: System, seed: int) -> list[dict[str, Any]]:
    """Returns the simulated reliability and mean delay of each subscriber, with the half-width of each."""
    mechanisms = composed_mechanisms(system)
    rate = sum(publisher.rate_per_s for publisher in system.publishers)
    duration_s = FIRST_SHARE * EVENTS_MAX / RUNS / rate
    while True:
        report = simulate_composed(
            system, mechanisms=mechanisms, runs=RUNS, duration_s=duration_s, warm_up_s=0.1 * duration_s, seed=seed
        )
        rows = []
        for subscriber in system.subscribers:
            row: dict[str, Any] = {"name": subscriber.name}
            for metric, half in (("reliability", "half"), ("delay_mean_s", "late_half")):
                for figure in report.figures(metric=metric, name=subscriber.name, scope="subscriber"):
                    row[metric], row[half] = figure.value, (figure.high - figure.low) / 2.0
            if "reliability" in row:
                rows.append(row)
        narrow = all(
            row["half"] <= HALF_WIDTH
            and row.get("late_half", 0.0) <= DELAY_HALF_WIDTH * max(row.get("delay_mean_s", 1.0), 1e-9)
            for row in rows
        )
        if narrow or duration_s * rate * RUNS * 1.1 * 2.0 > EVENTS_MAX:
            return rows
        duration_s *= 2.0


def compared(system: System, simulated: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns, for each subscriber, predicted less simulated reliability and mean delay, relative for delays, with the
    half-width of each, the predicted reliability, and the warning of the prediction that names it."""
    predicted = predict_composed(system, factors=False)
    rows = []
    for found in simulated:
        name = found["name"]
        row: dict[str, Any] = {"name": name, "late": 0.0, "late_half": 0.0, "half": found["half"]}
        for figure in predicted.figures(metric="reliability", name=name, scope="subscriber"):
            row |= {"value": figure.value, "error": figure.value - found["reliability"]}
        for figure in predicted.figures(metric="delay_mean_s", name=name, scope="subscriber"):
            scale = max(found.get("delay_mean_s", 0.0), 1e-9)
            if "delay_mean_s" in found and max(scale, figure.value) > 1e-6:
                row |= {"late": (figure.value - scale) / scale, "late_half": found["late_half"] / scale}
        row["warning"] = next(
            (w for w in predicted.info.warnings if w.startswith(f"composed: subscriber {name}: may be off")), ""
        )
        if "value" in row:
            rows.append(row)
    return rows


def is_off(row: dict[str, Any], *, beyond: bool = False) -> bool:
    """Returns whether a row is off by more than is tolerated; `beyond` the half-width of the interval if so."""
    reliability = abs(row["error"]) - (row["half"] if beyond else 0.0)
    delay = abs(row["late"]) - (row["late_half"] if beyond else 0.0)
    return bool(reliability > RELIABILITY_ERROR or delay > DELAY_ERROR)


def kept_rows(keep: Path | None) -> dict[tuple[int, int], dict[str, Any]]:
    """Returns the results that a file has, by seed and number of the system."""
    if keep is None or not keep.exists():
        return {}
    entries = [json.loads(line) for line in keep.read_text().splitlines() if line.endswith("}")]
    return {(entry["seed"], entry["number"]): entry for entry in entries}


def simulated(number: int, seed: int) -> dict[str, Any]:
    """Returns what a simulation says of one system, or why it is refused."""
    entry: dict[str, Any] = {"seed": seed, "number": number, "rows": []}
    try:
        system, _ = random_system(random.Random(f"{seed} {number}"), number)
        entry["rows"] = simulated_rows(system, seed)
    except SurecastError as refusal:
        entry["refused"] = str(refusal)
    return entry


def judged(entry: dict[str, Any]) -> dict[str, Any]:
    """Returns the same with what is predicted now beside it."""
    try:
        system, parts = random_system(random.Random(f"{entry['seed']} {entry['number']}"), entry["number"])
        return {**entry, "parts": parts, "rows": compared(system, entry["rows"]) if entry["rows"] else []}
    except SurecastError as refusal:
        return {**entry, "refused": str(refusal), "rows": []}


def main() -> int:
    """Prints the table; returns 1 where a subscriber is off and not warned, or more than one in ten is warned."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--systems", type=int, default=100)
    options.add_argument("--first", type=int, default=0, help="number of the first system")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--keep", type=Path, help="file of the results")
    options.add_argument("--until", type=float, default=math.inf, help="seconds after which to stop")
    chosen = options.parse_args()
    begin, since, known = time.process_time(), time.monotonic(), kept_rows(chosen.keep)
    entries = []
    for number in range(chosen.first, chosen.first + chosen.systems):
        entry = known.get((chosen.seed, number))
        if entry is None and time.monotonic() - since > chosen.until:
            break
        if entry is None:
            entry = simulated(number, chosen.seed)
            if chosen.keep is not None:
                with chosen.keep.open("a") as file:
                    file.write(json.dumps(entry) + "\n")
        entry = judged(entry)
        entries.append(entry)
        if "refused" in entry:
            print(f"{number:3}  refused: {entry['refused'][:110]}", flush=True)
        for row in entry["rows"]:
            if is_off(row) and not row["warning"]:
                print(
                    f"{number:3} {row['name']} reliability {row['value']:.3f} {row['error']:+.3f} ± {row['half']:.3f}  "
                    f"mean delay {row['late']:+.1%} ± {row['late_half']:.1%}  {entry['parts']}",
                    flush=True,
                )
    return summarise(entries, chosen.seed, time.process_time() - begin)


def summarise(entries: list[dict[str, Any]], seed: int, took_s: float) -> int:
    """Prints the summary of all systems; returns the exit status."""
    rows = [row for entry in entries for row in entry["rows"]]
    if not rows:
        print("no system was answered")
        return 1
    refused, count = sum("refused" in entry for entry in entries), len(rows)
    errors, delays = sorted(abs(row["error"]) for row in rows), sorted(abs(row["late"]) for row in rows)
    warned = [row for row in rows if row["warning"]]
    silent = [row for row in rows if is_off(row) and not row["warning"]]
    sure = sum(is_off(row, beyond=True) for row in silent)
    print(
        f"{len(entries)} systems, seed {seed}: {count} subscribers, {refused} systems refused\n"
        f"off by more than {RELIABILITY_ERROR} or {DELAY_ERROR:.0%} and not warned: {len(silent)} "
        f"({len(silent) / count:.1%}), of these {sure} beyond the simulation's own interval\n"
        f"warned: {len(warned)} ({len(warned) / count:.1%}), of these {sum(is_off(row) for row in warned)} off\n"
        f"|reliability|: mean {sum(errors) / count:.4f}, 90 % within {errors[int(0.9 * count)]:.4f}, largest "
        f"{errors[-1]:.4f}\n|mean delay|: mean {sum(delays) / count:.1%}, 90 % within "
        f"{delays[int(0.9 * count)]:.1%}, largest {delays[-1]:.1%}\n{took_s:.0f} s of processor time"
    )
    return 0 if not sure and len(warned) <= 0.1 * count else 1


if __name__ == "__main__":
    sys.exit(main())
