"""Figures 5 to 7 of the dropping paper on real brokers: predicted, simulated, measured, and with targets asked for.

Each cell is a policy at a rate: `examples/dropping.yaml`, one subscriber that is connected half of the time and accepts
a mean response of 7 s. A cell is run twice by `surecast.run`: with the parameter of the formula, and with the target
asked of the broker (`ask_targets`), which watches the subscriber and decides itself. The simulation of the same seed
has the same publications and periods; its interval is that of many longer runs.

Cells run beside each other, since a run waits more than it computes: `--beside` says how many. A cell that is done is
kept in FOLDER, and not run again: python -m benchmarks.dropping_measured FOLDER [--time-scale 10] [--duration 2000s]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

POLICIES = ("probabilistic", "expiry", "finite-buffer", "optimal")
RATES = ("0.5/s", "2/s", "5/s")
PARAMETERS = {"probabilistic": "join_probability", "expiry": "lifetime", "finite-buffer": "buffer_size"}
SCENARIO = Path(__file__).parent.parent / "examples" / "dropping.yaml"
METRICS = ("success_share", "response_mean_s")


def cell(policy: str, rate: str, answer: str, scale: float, duration: str, warm_up: str) -> dict[str, Any]:
    """Returns one answer for one cell: each metric with its interval, and what a broker decided."""
    from surecast import Scenario, predict, run, simulate

    changes: dict[str, Any] = {"workload.publishers[0].rate": rate, "delivery.dropping": {"policy": policy}}
    if policy in PARAMETERS:
        changes["delivery.dropping"][PARAMETERS[policy]] = "auto"
    scenario = Scenario.load(SCENARIO).change(changes)
    if answer == "predicted":
        report = predict(scenario, alone=True)
    elif answer == "simulated":
        report = simulate(scenario, alone=True)
    else:
        asks = answer == "asked"
        report = run(scenario, time_scale=scale, duration=duration, warm_up=warm_up, ask_targets=asks)
    found: dict[str, Any] = {"notes": [note for note in report.info.notes if "decided on" in note]}
    found["warnings"] = [*report.info.warnings]
    for metric in METRICS:
        figure = report.figure(metric, scope="subscriber", name="subscriber")
        found[metric] = [figure.value, figure.low, figure.high]
    return found


def run_cell(folder: Path, options: argparse.Namespace, policy: str, rate: str, answer: str) -> None:
    """Runs a cell in a process of its own, unless it is there."""
    file = folder / f"{policy}-{rate.removesuffix('/s')}-{answer}.json"
    if file.exists():
        return
    command = [sys.executable, "-m", "benchmarks.dropping_measured", str(folder), "--cell", policy, rate, answer]
    command += ["--time-scale", str(options.time_scale), "--duration", options.duration, "--warm-up", options.warm_up]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=3600)
    if done.returncode:
        file.with_suffix(".error").write_text(done.stderr, encoding="utf-8")
        print(f"{file.stem} failed: {done.stderr.strip().splitlines()[-1:]}", flush=True)
        return
    file.write_text(done.stdout, encoding="utf-8")


def show(folder: Path) -> None:
    """Prints a row for each cell that is whole."""
    names = ("predicted", "simulated", "measured", "asked")
    print(f"| policy | rate | success: {' | '.join(names)} | mean response: {' | '.join(names)} |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for policy in POLICIES:
        for rate in RATES:
            files = [folder / f"{policy}-{rate.removesuffix('/s')}-{answer}.json" for answer in names]
            if not all(file.exists() for file in files):
                continue
            answers = [json.loads(file.read_text(encoding="utf-8")) for file in files]
            success = [f"{100 * each['success_share'][0]:.1f} %" for each in answers]
            response = [_with_interval(each["response_mean_s"]) for each in answers]
            print(f"| {policy} | {rate} | {' | '.join(success)} | {' | '.join(response)} |")
            for each in answers:
                for note in each["notes"]:
                    print(f"|   | | {note.split(': ', 1)[1]} | | | | | | | |")


def _with_interval(figure: list[float | None]) -> str:
    value, low, high = figure
    return f"{value:.2f} s" if low is None or high is None else f"{value:.2f} s ({low:.2f} to {high:.2f})"


def main() -> None:
    """Runs what is missing, and shows all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--time-scale", type=float, default=10.0)
    parser.add_argument("--duration", default="2000s")
    parser.add_argument("--warm-up", default="400s")
    parser.add_argument("--beside", type=int, default=6, help="Cells that run at the same time.")
    parser.add_argument("--policies", nargs="+", default=list(POLICIES), choices=POLICIES)
    parser.add_argument("--rates", nargs="+", default=list(RATES))
    parser.add_argument("--cell", nargs=3, metavar=("POLICY", "RATE", "ANSWER"), help="Compute one cell, as JSON.")
    options = parser.parse_args()
    if options.cell:
        print(json.dumps(cell(*options.cell, options.time_scale, options.duration, options.warm_up)))
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    cells = [
        (policy, rate, answer)
        for answer in ("predicted", "simulated", "measured", "asked")
        for policy in options.policies
        for rate in options.rates
    ]
    with ThreadPoolExecutor(options.beside) as pool:
        tasks = [pool.submit(run_cell, options.folder, options, *each) for each in cells]
        for count, task in enumerate(as_completed(tasks), 1):
            task.result()
            print(f"{count} of {len(tasks)}", file=sys.stderr, flush=True)
    show(options.folder)


if __name__ == "__main__":
    main()
