"""`surecast sweep`: how placements scale with load, and which routing algorithm is best by load and locality."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from surecast.cli.options import AlgorithmNames, AsJson, ScenarioInput, takes_groups
from surecast.cli.plan import check_file
from surecast.errors import ConfigurationError

if TYPE_CHECKING:
    from surecast.planning.sweeps import AlgorithmSweep, LoadSweep
    from surecast.studio.chart import Chart

__all__ = ["app"]

app = typer.Typer(help="Show how placements of brokers behave as load and locality change.", no_args_is_help=True)

Steps = Annotated[int, typer.Option(min=1, max=10_000, help="Number of steps between the loads.")]


@dataclass(frozen=True, kw_only=True)
class SweepOptions(ScenarioInput):
    """The scenario to sweep, the algorithms, and the form of the answer."""

    algorithm: AlgorithmNames = None
    root: Annotated[
        str | None, typer.Option(help="Root of hierarchical schemes, central or first; by default the scenario's rule.")
    ] = None
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Save every point to a .parquet file.")] = None
    page: Annotated[Path | None, typer.Option(help="Write a page with pictures and tables to an .html file.")] = None
    picture: Annotated[Path | None, typer.Option(help="Draw the picture alone to an .svg or .png file.")] = None
    json: AsJson = False

    def check_files(self) -> None:
        """Refuses files that cannot be written, before any work is done."""
        check_file(self.out, ".parquet", "--out")
        check_file(self.page, ".html", "--page")
        if self.picture is not None and self.picture.suffix.lower() not in (".svg", ".png"):
            raise ConfigurationError(f"--picture {self.picture}: end its name in .svg or .png")
        check_file(self.picture, "" if self.picture is None else self.picture.suffix.lower(), "--picture")

    def write(
        self, sweep: LoadSweep | AlgorithmSweep, write_page: Callable[[Path], Any], chart: Callable[[], Chart]
    ) -> None:
        """Writes the files that were asked for."""
        from surecast.studio import draw_chart

        if self.out is not None:
            sweep.save(self.out)
        if self.page is not None:
            write_page(self.page)
        if self.picture is not None:
            draw_chart(chart(), self.picture)


@app.command("load")
@takes_groups
def load(
    options: SweepOptions,
    start: Annotated[float, typer.Option("--from", min=0.0, help="Least number of active subscriptions.")] = 0.0,
    to: Annotated[
        float | None,
        typer.Option(
            min=1.0, help="Largest number; by default just above the load at which the last configuration saturates."
        ),
    ] = None,
    steps: Steps = 30,
) -> None:
    """Show delay against load: the best placement, the most robust one, one broker per domain, and all candidates.

    Each placement has the algorithm that is best for it at the scenario's own load, and keeps it at every load. A
    configuration has no delay beyond the load at which its first component saturates.
    """
    from surecast.models.question import check_algorithms

    options.check_files()
    from surecast.cli.output import print_json, progress_bar
    from surecast.planning.placement import placement_problem
    from surecast.planning.sweeps import sweep_load
    from surecast.studio.sweep_page import load_chart, write_load_page

    algorithms = check_algorithms(options.algorithm)
    scenario = options.load()
    system = scenario.system
    problem = placement_problem(system, scenario, root=options.root)
    if to is None:
        first = sweep_load(problem, [problem.active_subscriptions], algorithms=algorithms)
        ends = [curve.configuration.saturates_at for curve in first.curves]
        finite_ends = [end for end in ends if math.isfinite(end)]
        to = _round_up(1.05 * max(finite_ends)) if finite_ends else 4.0 * problem.active_subscriptions
    if not start < to < math.inf:
        raise ConfigurationError(f"--to {to:g} must be above --from {start:g} and finite")
    loads = [start + (to - start) * i / steps for i in range(steps + 1)]
    with progress_bar("evaluating loads") as progress:
        sweep = sweep_load(problem, loads, algorithms=algorithms, refined=True, progress=progress)
    options.write(sweep, lambda page: write_load_page(sweep, page), lambda: load_chart(sweep))
    if options.json:
        print_json(_load_data(sweep))
    else:
        _print_load(sweep, loads, options.out, options.page, options.picture)


@app.command("algorithms")
@takes_groups
def algorithms(
    options: SweepOptions,
    start: Annotated[float, typer.Option("--from", min=1.0, help="Least number of active subscriptions.")] = 10.0,
    to: Annotated[float, typer.Option(min=1.0, help="Largest number of active subscriptions.")] = 700_000.0,
    steps: Steps = 40,
    locality: Annotated[
        list[float] | None,
        typer.Option(
            min=0.0, max=1.0, help="A locality of the classes with a hot spot. May be repeated; 0.2, 0.4, 0.6, 0.8."
        ),
    ] = None,
) -> None:
    """Show the best routing algorithm by load and locality: for what share of all placements each has the least delay.

    The loads are equally spaced on a logarithmic scale. Placements under which several algorithms are alike, and those
    that no algorithm can carry, are counted by themselves.
    """
    from surecast.models.question import check_algorithms

    options.check_files()
    if not start < to < math.inf:
        raise ConfigurationError(f"--to {to:g} must be above --from {start:g} and finite")
    from surecast.cli.output import print_json, progress_bar
    from surecast.planning.sweeps import locality_problems, sweep_algorithms
    from surecast.studio.sweep_page import load_shares_chart, write_algorithms_page

    chosen = check_algorithms(options.algorithm)
    scenario = options.load()
    problems = locality_problems(scenario, locality or [0.2, 0.4, 0.6, 0.8], root=options.root)
    loads = [start * (to / start) ** (i / steps) for i in range(steps + 1)]
    with progress_bar("evaluating loads") as progress:
        sweep = sweep_algorithms(problems, loads, algorithms=chosen, progress=progress)
    options.write(sweep, lambda page: write_algorithms_page(sweep, page), lambda: load_shares_chart(sweep))
    if options.json:
        print_json(_algorithm_data(sweep))
    else:
        _print_algorithms(sweep, options.out, options.page, options.picture)


def _round_up(value: float) -> float:
    """Returns a round number, at most a tenth more."""
    unit = 10.0 ** math.floor(math.log10(value)) / 10.0
    return math.ceil(value / unit) * unit


def _print_load(sweep: LoadSweep, loads: list[float], *files: Path | None) -> None:
    from surecast.cli.output import console, print_saved, print_table
    from surecast.studio.sweep_page import load_chart_sentences

    for sentence in load_chart_sentences(sweep):
        console.print(sentence, markup=False, soft_wrap=True)
    wanted = [max(loads[i], 1.0) for i in _some(loads, 7)]
    picked = [int(abs(sweep.subscriptions - load).argmin()) for load in wanted]
    headers = ("design", *(f"{sweep.subscriptions[i]:,.0f}" for i in picked), "carries")
    rows = []
    for curve in sweep.curves[:3]:
        configuration = curve.configuration
        delays = [1000.0 * float(curve.delay_s[i]) for i in picked]
        cells = ["-" if math.isnan(delay) else f"{delay:.3g}" for delay in delays]
        design = "-" if configuration.delay_s is None else f"{1000.0 * configuration.delay_s:.3g}"
        carried = f"{configuration.saturates_at:,.0f}" if math.isfinite(configuration.saturates_at) else "any"
        rows.append([curve.role, design, *cells, carried])
    title = f"Delay on the worst path in ms, at {sweep.design:,.0f} and by load"
    print_table(("configuration",), headers, rows, title=title)
    print_saved(*files)


def _print_algorithms(sweep: AlgorithmSweep, *files: Path | None) -> None:
    from surecast.cli.output import console, print_saved, print_table

    shares = sweep.by_load()
    shown = [i for i in range(len(sweep.outcomes)) if (shares[:, i] >= 0.005).any()]
    headers = [sweep.outcomes[i] for i in shown]
    rows = []
    for i in _some(sweep.subscriptions.tolist(), 14):
        cells = [f"{100 * shares[i, j]:.1f}" if shares[i, j] > 0 else "" for j in shown]
        rows.append([f"{sweep.subscriptions[i]:,.0f}", *cells])
    title = "Share of placements in %, all localities together"
    print_table(("subscriptions",), headers, rows, title=title)
    left = [name for i, name in enumerate(sweep.algorithms) if i not in shown]
    if left:
        console.print(f"Never best for half a percent of the placements: {', '.join(left)}.", soft_wrap=True)
    print_saved(*files)


def _some(values: list[float], most: int) -> list[int]:
    """Returns at most `most` indices of values, evenly spread, with the first and the last."""
    if len(values) <= most:
        return list(range(len(values)))
    return sorted({round(i * (len(values) - 1) / (most - 1)) for i in range(most)})


def _load_data(sweep: LoadSweep) -> dict[str, Any]:
    """Returns the sweep as plain values for JSON; null where there is no delay or no saturation."""
    return {
        "scenario": sweep.name,
        "design": sweep.design,
        "exact": sweep.exact,
        "subscriptions": sweep.subscriptions.tolist(),
        "curves": [
            {
                "role": curve.role,
                "brokers": list(curve.configuration.brokers),
                "algorithm": curve.configuration.algorithm,
                "delay_at_design_s": curve.configuration.delay_s,
                "saturates_at": curve.configuration.saturates_at,
                "saturates": curve.configuration.saturates,
                "notification_delay_worst_s": curve.delay_s.tolist(),
                "utilisation": curve.utilisation.tolist(),
            }
            for curve in sweep.curves
        ],
    }


def _algorithm_data(sweep: AlgorithmSweep) -> dict[str, Any]:
    return {
        "scenario": sweep.name,
        "placements": sweep.placements,
        "outcomes": list(sweep.outcomes),
        "localities": list(sweep.localities),
        "subscriptions": sweep.subscriptions.tolist(),
        "counts": sweep.counts.tolist(),
        "share_by_load": sweep.by_load().tolist(),
        "share_by_locality": sweep.by_locality().tolist(),
    }
