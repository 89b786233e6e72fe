"""Predicted intervals against what comes later: learned from the first half of real traces, judged on the second.

    SURECAST_DATA=folder python benchmarks/predicted_intervals.py --choices 3 --draws 100

Ten machines of a source are the brokers of an example. Their failures in the first half of the trace are learned as
`surecast learn` does it: a mean with its interval, wider where the source drifts. The prediction of each subscriber's
reliability has an interval from draws of these estimates and of the failures in a window as long as the second half.
The truth is the same overlay with the failures of the second half. Beside it stands the plain prediction, plus and
minus its mean error in the half that it was learned from.

Printed by source and scheme: the share of subscribers whose later reliability is in the interval (aim 90 %), its mean
width, and the interval score (width, and 40 times what the truth is outside by; less is better) of both.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from reliability_traces import ROOT, SOURCES, usable, window

from surecast.models.estimate_intervals import with_intervals
from surecast.pipeline.learn.component_times import UpDown, fit_pair
from surecast.pipeline.learn.drift import drift_of, widened
from surecast.pipeline.learn.samples import ObservedPeriod, periods_of
from surecast.prediction import predict_reliability
from surecast.scenario import Scenario, System
from surecast.scenario.traces import AvailabilityTrace, read_traces
from surecast.simulation import simulate_reliability

SCHEMES = ["periodic-subscription", "bypass-buffering"]
LEVEL = 0.95
Row = tuple[float, float, float, float, float]


def half(trace: AvailabilityTrace, days: float, second: bool) -> AvailabilityTrace:
    """Returns one half of a trace, starting at 0."""
    middle = days * 43200.0
    shift = middle if second else 0.0
    up = tuple(
        (max(a, shift) - shift, min(b, shift + middle) - shift) for a, b in trace.up if b > shift and a < shift + middle
    )
    return AvailabilityTrace(trace.name, 0.0, middle, tuple((a, b) for a, b in up if b > a))


def periods(trace: AvailabilityTrace) -> list[ObservedPeriod]:
    return periods_of([(True, a, b) for a, b in trace.up], False, (trace.start_s, trace.end_s))


def learned(scenario: Scenario, traces: list[AvailabilityTrace], drifts: tuple[float, float]) -> Scenario:
    """Returns the scenario whose brokers fail as these traces say, with intervals."""
    settings: dict[str, object] = {}
    for broker, trace in zip(scenario.system.overlay.brokers, traces, strict=True):
        pair = fit_pair(*(times for times in _times(trace)))
        if isinstance(pair, str):
            settings[f"availability.each.{broker.name}"] = {"availability": 1}
            continue
        fields = {}
        for name, fit, drift in zip(("mtbf", "mttr"), pair, drifts, strict=True):
            low, high = widened(fit.mean_s, fit.low_s, fit.high_s, drift)
            high = high if np.isfinite(high) else 100.0 * fit.mean_s
            fields[name] = {"estimate": f"{fit.mean_s}s", "low": f"{max(low, 1e-3 * fit.mean_s)}s", "high": f"{high}s"}
        settings[f"availability.each.{broker.name}"] = fields
    return scenario.change(settings)


def _times(trace: AvailabilityTrace) -> tuple[object, object]:
    both = UpDown.of(periods(trace))
    return both.up, both.down


def happened(system: System, traces: list[AvailabilityTrace], days: float, seed: int) -> dict[str, dict[str, float]]:
    """Returns each subscriber's reliability by scheme with these failures."""
    given = {b.name: list(trace.up) for b, trace in zip(system.overlay.brokers, traces, strict=True)}
    brokers = tuple(replace(b, failures=b.failures or _never()) for b in system.overlay.brokers)
    failing = replace(system, overlay=replace(system.overlay, brokers=brokers))
    duration_s = days * 43200.0 - 7200.0
    report = simulate_reliability(failing, SCHEMES, runs=2, duration_s=duration_s, seed=seed, traces=given)
    return {scheme: report.values("reliability", scope="subscriber", variant=scheme) for scheme in SCHEMES}


def _never() -> object:
    from surecast.scenario.distributions import parse_distribution
    from surecast.scenario.system import Failures

    plain = parse_distribution("exponential")
    return Failures(plain.with_mean(1e9), plain.with_mean(1.0))


def main() -> int:
    """Prints the table; returns 1 where a source is covered by less than 90 %."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--choices", type=int, default=3, help="choices of ten machines of each source")
    options.add_argument("--draws", type=int, default=100)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--source", choices=SOURCES, action="append")
    chosen = options.parse_args()
    folder = Path(os.environ.get("SURECAST_DATA") or ROOT.parent / "shared" / "data") / "availability"
    if not folder.is_dir():
        sys.exit(f"no availability traces at {folder}: set SURECAST_DATA to a folder that holds availability/")
    print(f"{'source':10} {'scheme':22} {'n':>4} {'inside':>7} {'width':>7} {'score':>7} {'plain':>7} {'inside':>7}")
    worst, begin = 1.0, time.process_time()
    for source in chosen.source or SOURCES:
        rows = judge(folder, source, chosen.choices, chosen.draws, chosen.seed)
        for scheme in SCHEMES:
            worst = min(worst, show(source, scheme, rows[scheme]))
    print(f"{time.process_time() - begin:.0f} s of processor time")
    return 0 if worst >= 0.9 else 1


def judge(folder: Path, source: str, choices: int, draws: int, seed: int) -> dict[str, list[Row]]:
    """Returns a row for each subscriber by scheme: truth, low, high, plain prediction, and its error in the first
    half."""
    file, kind, days = SOURCES[source]
    traces = [window(trace, days) for trace in read_traces(folder / file, kind)]
    usables = [trace for trace in traces if usable(trace, days)]
    firsts = [periods(half(trace, days, False)) for trace in usables[:300]]
    drifts = drift_of(firsts, True), drift_of(firsts, False)
    rows: dict[str, list[Row]] = {scheme: [] for scheme in SCHEMES}
    for choice in range(choices):
        rng = np.random.default_rng([seed, choice])
        machines = [usables[i] for i in rng.choice(len(usables), size=10, replace=False)]
        example = ("reliability-tree", "reliability-graph")[choice % 2]
        base = Scenario.load(ROOT / "examples" / f"{example}.yaml", {"workload.publishers[0].rate": "1/10min"})
        scenario = learned(base, [half(trace, days, False) for trace in machines], drifts)
        plain = predict_reliability(scenario.system, SCHEMES)
        report = with_intervals(
            scenario, plain, lambda s: predict_reliability(s, SCHEMES), draws=draws, over_s=days * 43200.0
        )
        before = happened(scenario.system, [half(trace, days, False) for trace in machines], days, choice)
        after = happened(scenario.system, [half(trace, days, True) for trace in machines], days, choice)
        for scheme in SCHEMES:
            figures = report.figures(metric="reliability", scope="subscriber", variant=scheme)
            error = float(np.mean([abs(f.value - before[scheme][f.name]) for f in figures]))
            for f in figures:
                low, high = (f.value if end is None else end for end in (f.low, f.high))
                rows[scheme].append((after[scheme][f.name], low, high, f.value, error))
    print(f"{source:10} {len(usables)} machines, drift by {np.exp(drifts[0]):.3g} up and {np.exp(drifts[1]):.3g} down")
    return rows


def show(source: str, scheme: str, rows: list[Row]) -> float:
    """Prints one line; returns the share that is inside."""
    truth, low, high, plain, error = np.array(rows).T

    def score(below: np.ndarray, above: np.ndarray) -> float:
        missed = np.maximum(below - truth, 0.0) + np.maximum(truth - above, 0.0)
        return float(np.mean(above - below + 2.0 / (1.0 - LEVEL) * missed))

    inside = float(np.mean((truth >= low) & (truth <= high)))
    plainly = float(np.mean(np.abs(truth - plain) <= error))
    print(
        f"{source:10} {scheme:22} {len(rows):4} {inside:7.1%} {np.mean(high - low):7.3f} {score(low, high):7.3f} "
        f"{score(plain - error, plain + error):7.3f} {plainly:7.1%}",
        flush=True,
    )
    return inside


if __name__ == "__main__":
    sys.exit(main())
