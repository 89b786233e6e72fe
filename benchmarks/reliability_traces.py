"""Predictions against real failures: brokers fail as real machines did, and the prediction knows only their means.

Real availability traces give each broker of the tree and graph examples its failures, in simulation; the prediction
gets the mean up and down times estimated from the same trace (exponential), or their variability too (shaped). Printed,
for each source of traces and each scheme, the mean difference over subscribers and draws of ten machines.

Run: SURECAST_DATA=folder python benchmarks/reliability_traces.py   (about two minutes)
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from surecast.prediction import predict_reliability
from surecast.scenario import System, load_system
from surecast.scenario.traces import AvailabilityTrace, failures_of, read_traces
from surecast.simulation import simulate_reliability

ROOT = Path(__file__).resolve().parent.parent
SOURCES = {
    "grid5000": ("grid5000/event_trace.tab.gz", "fta", 120),
    "microsoft": ("microsoft_pcs/microsoft_a.avt.gz", "avt", 35),
    "web sites": ("web_sites/web_sites_a.avt.gz", "avt", 120),
    "lanl": ("lanl/lanl_failures.csv.gz", "lanl", 365),
}
SCHEMES = ["periodic-subscription", "buffering", "bypass", "bypass-buffering"]
DRAWS = 5


def window(trace: AvailabilityTrace, days: float) -> AvailabilityTrace:
    """The first days of a trace, starting at 0."""
    length = min(days * 86400.0, trace.end_s - trace.start_s)
    shifted = ((a - trace.start_s, b - trace.start_s) for a, b in trace.up)
    up = tuple((a, min(b, length)) for a, b in shifted if a < length)
    return AvailabilityTrace(trace.name, 0.0, length, up)


def usable(trace: AvailabilityTrace, days: float) -> bool:
    """Returns whether a machine was observed long enough, failed some times, and was mostly up."""
    if trace.end_s < 0.99 * days * 86400.0 or not 0.8 <= trace.availability <= 0.9995:
        return False
    failed, repaired = trace.counts()
    return failed >= 3 and repaired >= 3


def with_failures(system: System, traces: list[AvailabilityTrace], shaped: bool) -> System:
    pairs = zip(system.overlay.brokers, traces, strict=True)
    brokers = tuple(replace(broker, failures=failures_of(trace, shaped=shaped)) for broker, trace in pairs)
    return replace(system, overlay=replace(system.overlay, brokers=brokers))


def main() -> None:
    folder = Path(os.environ.get("SURECAST_DATA") or ROOT.parent / "shared" / "data") / "availability"
    if not folder.is_dir():
        sys.exit(f"no availability traces at {folder}: set SURECAST_DATA to a folder that holds availability/")
    print(f"{'source':10} {'example':18} {'scheme':22} {'trace-driven':>12} {'error exp.':>11} {'error shaped':>13}")
    for source, (file, kind, days) in SOURCES.items():
        traces = [window(trace, days) for trace in read_traces(folder / file, kind)]
        chosen = [trace for trace in traces if usable(trace, days)]
        for example in ("reliability-tree", "reliability-graph"):
            _, system = load_system(ROOT / "examples" / f"{example}.yaml", {"workload.publishers[0].rate": "1/10min"})
            rows: dict[str, list[tuple[float, float, float]]] = {scheme: [] for scheme in SCHEMES}
            for draw in range(DRAWS):
                rng = np.random.default_rng(draw)
                drawn = [chosen[i] for i in rng.choice(len(chosen), size=10, replace=False)]
                compare(system, drawn, days, draw, rows)
            for scheme in SCHEMES:
                simulated, plain, shaped = np.mean(rows[scheme], axis=0)
                print(f"{source:10} {example:18} {scheme:22} {simulated:12.4f} {plain:11.4f} {shaped:13.4f}")


def compare(
    system: System,
    drawn: list[AvailabilityTrace],
    days: float,
    draw: int,
    rows: dict[str, list[tuple[float, float, float]]],
) -> None:
    plain, shaped = (with_failures(system, drawn, shape) for shape in (False, True))
    given = {b.name: list(trace.up) for b, trace in zip(system.overlay.brokers, drawn, strict=True)}
    measured = simulate_reliability(plain, SCHEMES, runs=3, duration_s=days * 86400.0 - 7200, seed=draw, traces=given)
    predictions = [predict_reliability(s, SCHEMES) for s in (plain, shaped)]
    for scheme in SCHEMES:
        truth = measured.values("reliability", scope="subscriber", variant=scheme)
        errors = []
        for prediction in predictions:
            values = prediction.values("reliability", scope="subscriber", variant=scheme)
            errors.append(float(np.mean([abs(values[name] - truth[name]) for name in truth])))
        rows[scheme].append((float(np.mean(list(truth.values()))), *errors))


if __name__ == "__main__":
    main()
