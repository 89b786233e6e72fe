"""Predicted, simulated and measured reliability of every subscriber: ten real brokers, five schemes, tree and graph.

    python -m benchmarks.overlay_reliability run FOLDER        run cells that are missing, until it says that all were
    python -m benchmarks.overlay_reliability compare FOLDER    simulate and predict what was run
    python -m benchmarks.overlay_reliability show FOLDER       the tables; with --pictures FOLDER, pictures too

A cell is a scheme on a topology: `examples/reliability-tree.yaml` or `reliability-graph.yaml`, as processes that are
killed, and links that are cut. A seed draws the outages of all its cells. Each finished cell stays in the folder, so
that `run` goes on with the others; `--cells` says how many it starts this time, and `--beside` how many at once. With
`--seeds` a folder gets runs of further seeds, and each cell is the mean over them. Four figures of each subscriber are
compared:

- measured;
- simulated, with the outages as they were executed, and the publications of the run;
- predicted from the availabilities, the times up and down and the detection that the run had. By chance outages come
  together more or less often than those availabilities say: how far simulated runs of the same length are from the
  prediction of theirs stands beside it (*by chance*), and how far the outages of this seed are, simulated as they were
  drawn, without any process (*as drawn*);
- predicted from the scenario. One run has few failures: it is judged by the interval in which 95 % of simulated runs of
  the same length are, with failures of their own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import pickle
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surecast.measurement.executed_outages import (
    ExecutedOutages,
    executed_outages,
    executed_report,
    system_as_executed,
    with_outages,
)
from surecast.measurement.measured_report import build_report
from surecast.measurement.measurement_plan import make_plan
from surecast.measurement.workload_drive import Measured, measure, run_folder
from surecast.prediction import predict_reliability
from surecast.report import QoSReport
from surecast.report.report_files import load, save
from surecast.scenario import Streams, System, load_system
from surecast.scenario.spec.delivery import SCHEMES
from surecast.simulation import simulate_reliability
from surecast.simulation.reliability.compiled.traces import draw_trace
from surecast.studio import ScatterGroup, scatter

ROOT = Path(__file__).resolve().parent.parent
TOPOLOGIES = ("tree", "graph")
DAY_S = 86_400.0
_DRAWS: Final = 24
ANSWERS = ("measured", "executed", "as-run", "predicted")
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Settings:
    """What all cells of a folder have in common: the first `run` writes it down."""

    scale: float
    days: float
    subscribers: int
    rate: str
    detection: str
    refresh: str
    links_period: str
    brokers_period: str = "5d"

    def system(self, topology: str, scheme: str) -> System:
        """Returns the system of a cell."""
        changes = {
            "delivery.fault_tolerance.scheme": scheme,
            "delivery.fault_tolerance.retransmission_interval": "0s",
            "delivery.fault_tolerance.detection": self.detection,
            "delivery.fault_tolerance.refresh_interval": self.refresh,
            "availability.links.period": self.links_period,
            "availability.brokers.period": self.brokers_period,
            "workload.subscribers[0].count": self.subscribers,
            "workload.publishers[0].rate": self.rate,
        }
        return load_system(ROOT / "examples" / f"reliability-{topology}.yaml", changes)[1]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Returns the options."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overlay_reliability", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("step", choices=("run", "compare", "show", "cell"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cells", type=int, default=1000, help="how many cells to run now (all)")
    parser.add_argument("--beside", type=int, default=2, help="how many cells run at once (2)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[2014], help="what draws failures and events (2014)")
    parser.add_argument("--only", nargs="+", metavar="CELL", help="these cells alone, such as tree-bypass")
    parser.add_argument("--name", help="the cell of the step `cell`, which `run` starts in a process of its own")
    parser.add_argument("--runs", type=int, default=200, help="simulated runs for the interval of one run (200)")
    parser.add_argument("--pictures", type=Path, help="where to draw a picture for each topology")
    shared = parser.add_argument_group("of a new folder")
    shared.add_argument("--scale", type=float, default=4500.0, help="time scale (4500)")
    shared.add_argument("--days", type=float, default=14.0, help="time of the scenario (14)")
    shared.add_argument("--subscribers", type=int, default=60, help="how many (60)")
    shared.add_argument("--rate", default="1/600s", help="events of each publisher (1/600s)")
    shared.add_argument("--detection", default="225s", help="suspicion, 50 ms at least in real time (225s)")
    shared.add_argument("--refresh", default="675s", help="between refreshes of subscriptions (675s)")
    shared.add_argument("--brokers-period", default="5d", help="between failures of a broker (5d)")
    shared.add_argument("--links-period", default="240000s", help="between failures of a link (240000s)")
    shared.add_argument("--seed", type=int, default=2014, help="of failures and publications (2014)")
    return parser.parse_args(arguments)


def settings_of(options: argparse.Namespace) -> Settings:
    """Returns the settings of a folder, written there before its first cell."""
    file = options.folder / "settings.json"
    if not file.exists():
        options.folder.mkdir(parents=True, exist_ok=True)
        names = Settings.__dataclass_fields__
        file.write_text(json.dumps({name: getattr(options, name) for name in names}, indent=2) + "\n")
    return Settings(**json.loads(file.read_text()))


class Cell(NamedTuple):
    """One run, or what is known of it."""

    topology: str
    scheme: str
    seed: int

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"{self.topology}-{self.scheme}-{self.seed}"


def cells(seeds: Sequence[int]) -> list[Cell]:
    """Returns all cells, those of the first seed first."""
    return [Cell(topology, scheme, seed) for seed in seeds for topology in TOPOLOGIES for scheme in SCHEMES]


def places_of(options: argparse.Namespace, topology: str, scheme: str) -> list[Path]:
    """Returns the folders of a cell, one for each seed."""
    return sorted(options.folder.glob(f"{topology}-{scheme}-[0-9]*"))


# Run


def run(options: argparse.Namespace) -> int:
    """Runs cells that are missing; returns how many still are."""
    settings_of(options)
    only = options.only or [f"{cell.topology}-{cell.scheme}" for cell in cells([0])]
    wanted = [cell for cell in cells(options.seeds) if f"{cell.topology}-{cell.scheme}" in only]
    missing = [each for each in wanted if not (options.folder / each.name / "run.pickle").exists()]

    def start(cell: Cell) -> int:
        command = [sys.executable, "-m", "benchmarks.overlay_reliability", "cell", str(options.folder.resolve())]
        return subprocess.run([*command, "--name", cell.name], check=False, cwd=ROOT).returncode

    with ThreadPoolExecutor(options.beside) as pool:
        failed = sum(code != 0 for code in pool.map(start, missing[: options.cells]))
    left = len(missing) - len(missing[: options.cells]) + failed
    print(f"{left} of {len(wanted)} cells are missing: run the same command again" if left else "all cells were run")
    return left


def run_cell(options: argparse.Namespace) -> None:
    """Runs one cell, and keeps what was measured."""
    topology, _, rest = options.name.partition("-")
    scheme, _, seed = rest.rpartition("-")
    settings = settings_of(options)
    plan = make_plan(settings.system(topology, scheme), scale=settings.scale, duration_s=settings.days * DAY_S,
                     warm_up_s=0.0, seed=int(seed), client_processes=1)  # fmt: skip
    before, began = os.getloadavg()[0], time.time()
    print(f"{options.name}: {plan.real_s:.0f} s of real time, load average {before:.1f}", flush=True)
    with run_folder() as folder:
        measured = asyncio.run(measure(plan, Path(folder), None))
    report = build_report(measured)
    place = options.folder / options.name
    place.mkdir(parents=True, exist_ok=True)
    save(report, place / "measured.json")
    clients = resource.getrusage(resource.RUSAGE_SELF)
    facts = {
        "load_before": before,
        "load_after": os.getloadavg()[0],
        "real_s": time.time() - began,
        "processor_s": {name: counts.processor_s for name, counts in measured.counts.items()},
        "clients_processor_s": clients.ru_utime + clients.ru_stime,
        "suspect_s": measured.suspect_s,
        "kills": len(measured.crashes),
        "cuts": sum(cut for _, _, cut in measured.gate_changes),
    }
    (place / "facts.json").write_text(json.dumps(facts, indent=2) + "\n")
    kept = place / "run.part"
    kept.write_bytes(pickle.dumps(measured))
    kept.rename(place / "run.pickle")
    print(f"{options.name}: done after {time.time() - began:.0f} s, load average {os.getloadavg()[0]:.1f}", flush=True)


# Compare


def compare(options: argparse.Namespace) -> None:
    """Simulates and predicts every cell that was run and not compared yet."""
    settings = settings_of(options)
    for topology, scheme, _ in cells([0]):
        system = settings.system(topology, scheme)
        missing = [
            place
            for place in places_of(options, topology, scheme)
            if (place / "run.pickle").exists() and not (place / "compared.json").exists()
        ]
        spread = runs_of(system, scheme, options.runs, settings) if missing else np.zeros(0)
        chance = chance_of(system, scheme, settings, range(1, _DRAWS + 1)).tolist() if missing else []
        for place in missing:
            begun = time.process_time()
            measured: Measured = pickle.loads((place / "run.pickle").read_bytes())
            outages = executed_outages(measured)
            save(executed_report(measured), place / "executed.json")
            save(predict_reliability(system_as_executed(measured, outages), [scheme]), place / "as-run.json")
            save(predict_reliability(system, [scheme]), place / "predicted.json")
            low, high = np.quantile(spread, [0.025, 0.975], axis=0)
            availability = {name: outages.availability(name) for name in outages.up}
            drawn = chance_of(system, scheme, settings, [measured.plan.seed])[0].tolist()
            kept = {"low": low.tolist(), "high": high.tolist(), "runs": options.runs, "chance": chance, "drawn": drawn,
                    "availability": availability, "detection_s": outages.detection_s}  # fmt: skip
            (place / "compared.json").write_text(json.dumps(kept, indent=2) + "\n")
            print(f"{place.name}: compared in {time.process_time() - begun:.0f} s of processor time", flush=True)


def runs_of(system: System, scheme: str, runs: int, settings: Settings) -> Floats:
    """Returns the reliability of each subscriber (columns) in simulated runs of the same length (rows)."""
    return np.array([
        reliability(simulate_reliability(system, [scheme], runs=1, duration_s=settings.days * DAY_S, seed=seed), system)
        for seed in range(1, runs + 1)
    ])  # fmt: skip


def chance_of(system: System, scheme: str, settings: Settings, seeds: Sequence[int]) -> Floats:
    """Returns by how much simulated runs (rows, one for each seed) are off the prediction from their own
    availabilities, by subscriber."""
    rows = []
    end_s = settings.days * DAY_S + max(each.deadline_s for each in system.publishers)
    components = [("broker", each) for each in system.overlay.brokers] + [
        ("link", each) for each in system.overlay.links
    ]
    for seed in seeds:
        up: dict[str, list[tuple[float, float]]] = {}
        for kind, each in components:
            starts, ends = draw_trace(each.failures, Streams(seed), f"run 0/{kind}", each.name, end_s)
            up[each.name] = [(a, b if b < end_s else inf) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
        outages = ExecutedOutages(up, {}, system.delivery.fault_tolerance.detection, end_s)
        as_run = predict_reliability(with_outages(system, outages), [scheme])
        simulated = simulate_reliability(
            system, [scheme], runs=1, duration_s=settings.days * DAY_S, seed=seed, traces=up
        )  # fmt: skip
        rows.append(reliability(simulated, system) - reliability(as_run, system))
    return np.array(rows)


def reliability(report: QoSReport, system: System) -> Floats:
    """Returns the reliability of each subscriber."""
    found = {figure.name: figure.value for figure in report.figures(scope="subscriber", metric="reliability")}
    return np.array([found[each.name] for each in system.subscribers])


# Show


@dataclass(frozen=True)
class Seen:
    """What is known of one run: the reliability of every subscriber in each answer, and the rest."""

    values: dict[str, Floats]
    known: dict[str, Any]
    names: list[str]
    lost: float


def seen_of(options: argparse.Namespace, topology: str, scheme: str) -> list[Seen]:
    """Returns all runs of a cell that were compared."""
    seen = []
    for place in places_of(options, topology, scheme):
        if not (place / "compared.json").exists():
            continue
        system = settings_of(options).system(topology, scheme)
        reports = {name: load(place / f"{name}.json") for name in ANSWERS}
        known = json.loads((place / "compared.json").read_text()) | json.loads((place / "facts.json").read_text())
        values = {name: reliability(each, system) for name, each in reports.items()}
        dropped = reports["measured"].figures(scope="subscriber", metric="count_dropped")
        lost = sum(figure.value for figure in dropped if figure.detail == "lost although acknowledged")
        seen.append(Seen(values, known, [each.name for each in system.subscribers], lost))
    return seen


def show(options: argparse.Namespace) -> None:
    """Prints a row for every cell, and the means over all; draws the pictures."""
    print(json.dumps(asdict(settings_of(options))))
    print("| topology | scheme | runs, kills, cuts | measured | executed: mean, largest | as run "
          "| by chance: mean, 95 % | as drawn | plain: mean, within | lost | load |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    groups: dict[str, list[ScatterGroup]] = {}
    sums: list[tuple[float, float]] = []
    for topology, scheme, _ in cells([0]):
        runs = seen_of(options, topology, scheme)
        if not runs:
            continue
        mean = {name: np.mean([run.values[name] for run in runs], axis=0) for name in ANSWERS}
        executed = np.abs([run.values["measured"] - run.values["executed"] for run in runs])
        as_run, plain = (np.abs(mean["measured"] - mean[name]) for name in ("as-run", "predicted"))
        within = np.mean([
            (run.values["measured"] >= np.array(run.known["low"])) & (run.values["measured"] <= run.known["high"])
            for run in runs
        ])  # fmt: skip
        draws = np.array(runs[0].known["chance"])
        parts = np.array_split(draws, max(1, len(draws) // len(runs)))
        chance = [np.abs(part.mean(axis=0)).mean() for part in parts]
        low, high = np.quantile(chance, [0.025, 0.975])
        drawn = np.abs(np.mean([run.known["drawn"] for run in runs], axis=0)).mean()
        kills, cuts = (sum(run.known[name] for run in runs) for name in ("kills", "cuts"))
        loads = [run.known[name] for run in runs for name in ("load_before", "load_after")]
        print(
            f"| {topology} | {scheme} | {len(runs)}, {kills}, {cuts} | {mean['measured'].mean():.3f} "
            f"| {executed.mean():.4f}, {executed.max():.4f} | {as_run.mean():.4f} "
            f"| {np.mean(chance):.4f}, {low:.4f} to {high:.4f} | {drawn:.4f} "
            f"| {plain.mean():.3f}, {100 * within:.0f} % | {sum(run.lost for run in runs):.0f} "
            f"| {min(loads):.0f} to {max(loads):.0f} |"
        )
        sums.append((float(executed.mean()), float(as_run.mean()) if scheme != "none" else np.nan))
        if scheme != "none":  # its prediction is that of brokers that have forgotten everything
            points = ScatterGroup(scheme, 100 * mean["as-run"], 100 * mean["measured"], names=runs[0].names)
            groups.setdefault(topology, []).append(points)
    if sums:
        executed_mean, as_run_mean = np.nanmean(sums, axis=0)
        print(f"\nover {len(sums)} cells: {executed_mean:.4f} from the executed outages, {as_run_mean:.4f} from the "
              "prediction as run, without none")  # fmt: skip
    for topology, series in groups.items() if options.pictures else ():
        path = scatter(series, options.pictures / f"overlay-reliability-{topology}.png",
                       x_label="predicted from the run's availabilities", y_label="measured", unit="%",
                       title=f"Reliability of each subscriber, {topology} of ten real brokers")  # fmt: skip
        print(f"drew {path}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Does one step."""
    options = parse(arguments)
    if options.step == "run":
        return 1 if run(options) else 0
    {"cell": run_cell, "compare": compare, "show": show}[options.step](options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
