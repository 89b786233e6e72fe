"""Predicted against simulated reliability on the two topologies of the paper (its Figures 6 and 7).

First with the paper's own 10 runs of 14 days, then with as many long runs as make the mean 95 % half-width smaller than
0.002. Events are published every 30 minutes in the long runs: reliability does not depend on the rate, and failures are
slow. Pictures go to out/validation.

Run: python benchmarks/reliability_validation.py   (about five minutes)
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from surecast.cli.compare import draw_comparison
from surecast.prediction import predict_reliability
from surecast.report import Comparison, ReportBuilder, compare
from surecast.scenario import load_system
from surecast.simulation import run_until, simulate_reliability

ROOT = Path(__file__).resolve().parent.parent
SCHEMES = ["periodic-subscription", "buffering", "bypass", "bypass-buffering"]
CLASSES = {"low-end": "[0.9, 0.95]", "high-end": "[0.99, 0.999]"}
DAY = 86400.0


def main() -> None:
    out = ROOT / "out" / "validation"
    out.mkdir(parents=True, exist_ok=True)
    for example in ("reliability-tree", "reliability-graph"):
        builders = [ReportBuilder(example, source) for source in ("predicted", "simulated")]
        for label, availability in CLASSES.items():
            file, changes = ROOT / "examples" / f"{example}.yaml", {"availability.brokers.availability": availability}
            _, system = load_system(file, changes)
            predicted = predict_reliability(system, SCHEMES)
            paper = simulate_reliability(system, SCHEMES, runs=10, duration_s=14 * DAY, seed=1)
            show(f"{example}, {label}, 10 runs of 14 days", compare(predicted, paper))
            _, calm = load_system(file, {**changes, "workload.publishers[0].rate": "1/30min"})
            start = time.process_time()
            report = run_until(
                calm, SCHEMES, half_width=0.002, max_runs=400, duration_s=1000 * DAY, seed=2, min_runs=10
            )
            show(f"{example}, {label}, long runs ({time.process_time() - start:.0f} s CPU)", compare(predicted, report))
            for builder, source in zip(builders, (predicted, report), strict=True):
                for scheme in SCHEMES:
                    chosen = source.select(variant=scheme, metric="reliability", scope="subscriber")
                    builder.add_report(chosen, variant=f"{scheme}, {label}")
        picture = out / f"{example}.png"
        draw_comparison(compare(*(builder.build() for builder in builders)), "reliability", picture)
        print(f"drew {picture.relative_to(ROOT)}")


def show(title: str, comparison: Comparison) -> None:
    print(f"\n{title}")
    print(f"  {'scheme':22} {'mean |d|':>9} {'largest':>9} {'bias':>9} {'half-width':>11}")
    for scheme in SCHEMES:
        points = comparison.points("reliability", scope="subscriber", variant=scheme)
        difference, half = points.b - points.a, (points.b_high - points.b_low) / 2
        figures = np.abs(difference).mean(), np.abs(difference).max(), difference.mean(), half.mean()
        print(f"  {scheme:22} {figures[0]:9.5f} {figures[1]:9.5f} {figures[2]:+9.5f} {figures[3]:11.5f}", flush=True)


if __name__ == "__main__":
    main()
