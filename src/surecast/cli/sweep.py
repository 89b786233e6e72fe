"""`surecast sweep`: how placements scale with load, and which routing algorithm is best by load and locality."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from surecast.cli.options import AlgorithmNames, AsJson, Overrides, ScenarioFile, parse_overrides
from surecast.cli.plan import check_file
from surecast.errors import ConfigurationError

if TYPE_CHECKING:
    from surecast.planning.sweeps import AlgorithmSweep, LoadSweep
    from surecast.studio.curves import CurveChart

__all__ = ["app"]

app = typer.Typer(help="How placements of brokers behave over load and locality.", no_args_is_help=True)

Steps = Annotated[int, typer.Option(min=1, max=10_000, help="Number of steps between the loads.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Save every point to a .parquet file.")]
HtmlPage = Annotated[
    Path | None, typer.Option("--page", help="Write a page with pictures and tables to an .html file.")
]
Picture = Annotated[Path | None, typer.Option(help="Draw the picture alone to an .svg or .png file.")]
Root = Annotated[
    str | None, typer.Option(help="Root of hierarchical schemes, central or first; by default the scenario's rule.")
]


@app.command("load")
def load(
    file: ScenarioFile,
    start: Annotated[float, typer.Option("--from", min=0.0, help="Least number of active subscriptions.")] = 0.0,
    to: Annotated[
        float | None,
        typer.Option(
            min=1.0, help="Largest number; by default somewhat beyond where the last configuration saturates."
        ),
    ] = None,
    steps: Steps = 30,
    algorithm: AlgorithmNames = None,
    root: Root = None,
    out: Out = None,
    page: HtmlPage = None,
    picture: Picture = None,
    overrides: Overrides = None,
    json: AsJson = False,
) -> None:
    """Show delay against load: the best placement, the most robust one, one broker per domain, and all candidates.

    Each placement has the algorithm that is best for it at the scenario's own load, and keeps it at every load. A
    configuration has no delay beyond the load at which its first component saturates.
    """
    from surecast.models.question import check_algorithms

    _check_files(out, page, picture)
    from surecast.cli.output import print_json, progress_bar
    from surecast.planning.placement import placement_problem
    from surecast.planning.sweeps import sweep_load
    from surecast.scenario import Scenario

    algorithms = check_algorithms(algorithm)
    scenario = Scenario.load(file, parse_overrides(overrides))
    system = scenario.system
    problem = placement_problem(system, scenario, root=root)
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
    if out is not None:
        sweep.save(out)
    if page is not None:
        from surecast.studio.sweep_page import write_load_page

        write_load_page(sweep, page)
    if picture is not None:
        from surecast.studio.sweep_page import load_chart

        _draw(load_chart(sweep), picture)
    if json:
        print_json(_load_data(sweep))
    else:
        _print_load(sweep, loads, out, page, picture)


@app.command("algorithms")
def algorithms(
    file: ScenarioFile,
    start: Annotated[float, typer.Option("--from", min=1.0, help="Least number of active subscriptions.")] = 10.0,
    to: Annotated[float, typer.Option(min=1.0, help="Largest number of active subscriptions.")] = 700_000.0,
    steps: Steps = 40,
    locality: Annotated[
        list[float] | None,
        typer.Option(
            min=0.0, max=1.0, help="A locality of the classes with a hot spot. May be repeated; 0.2, 0.4, 0.6, 0.8."
        ),
    ] = None,
    algorithm: AlgorithmNames = None,
    root: Root = None,
    out: Out = None,
    page: HtmlPage = None,
    picture: Picture = None,
    overrides: Overrides = None,
    json: AsJson = False,
) -> None:
    """Show the best routing algorithm by load and locality: for what share of all placements each has the least delay.

    The loads are equally spaced on a logarithmic scale. Placements under which several algorithms are alike, and those
    that no algorithm can carry, are counted by themselves.
    """
    from surecast.models.question import check_algorithms

    _check_files(out, page, picture)
    if not start < to < math.inf:
        raise ConfigurationError(f"--to {to:g} must be above --from {start:g} and finite")
    from surecast.cli.output import print_json, progress_bar
    from surecast.planning.sweeps import locality_problems, sweep_algorithms
    from surecast.scenario import Scenario

    chosen = check_algorithms(algorithm)
    scenario = Scenario.load(file, parse_overrides(overrides))
    problems = locality_problems(scenario, locality or [0.2, 0.4, 0.6, 0.8], root=root)
    loads = [start * (to / start) ** (i / steps) for i in range(steps + 1)]
    with progress_bar("evaluating loads") as progress:
        sweep = sweep_algorithms(problems, loads, algorithms=chosen, progress=progress)
    if out is not None:
        sweep.save(out)
    if page is not None:
        from surecast.studio.sweep_page import write_algorithms_page

        write_algorithms_page(sweep, page)
    if picture is not None:
        from surecast.studio.sweep_page import load_shares_chart

        _draw(load_shares_chart(sweep), picture)
    if json:
        print_json(_algorithm_data(sweep))
    else:
        _print_algorithms(sweep, out, page, picture)


def _check_files(out: Path | None, page: Path | None, picture: Path | None) -> None:
    check_file(out, ".parquet", "--out")
    check_file(page, ".html", "--page")
    if picture is not None and picture.suffix.lower() not in (".svg", ".png"):
        raise ConfigurationError(f"--picture {picture}: end its name in .svg or .png")
    check_file(picture, "" if picture is None else picture.suffix.lower(), "--picture")


def _draw(chart: CurveChart, path: Path) -> None:
    from surecast.studio.curves import draw_curves

    draw_curves(chart, path)


def _round_up(value: float) -> float:
    """Returns a round number, at most a tenth more."""
    unit = 10.0 ** math.floor(math.log10(value)) / 10.0
    return math.ceil(value / unit) * unit


def _print_load(sweep: LoadSweep, loads: list[float], *files: Path | None) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from surecast.cli.output import console
    from surecast.studio.sweep_page import load_chart_sentences

    table = Table(title=f"Delay on the worst path in ms, at {sweep.design:,.0f} and by load", box=SIMPLE_HEAD)
    table.add_column("configuration", no_wrap=True)
    wanted = [max(loads[i], 1.0) for i in _some(loads, 7)]
    picked = [int(abs(sweep.subscriptions - load).argmin()) for load in wanted]
    for name in ("design", *(f"{sweep.subscriptions[i]:,.0f}" for i in picked), "carries"):
        table.add_column(name, justify="right", no_wrap=True)
    for curve in sweep.curves[:3]:
        configuration = curve.configuration
        delays = [1000.0 * float(curve.delay_s[i]) for i in picked]
        cells = ["-" if math.isnan(delay) else f"{delay:.3g}" for delay in delays]
        design = "-" if configuration.delay_s is None else f"{1000.0 * configuration.delay_s:.3g}"
        carried = f"{configuration.saturates_at:,.0f}" if math.isfinite(configuration.saturates_at) else "any"
        table.add_row(curve.role, design, *cells, carried)
    console.print(table)
    for sentence in load_chart_sentences(sweep):
        console.print(sentence, markup=False, soft_wrap=True)
    _say_saved(*files)


def _print_algorithms(sweep: AlgorithmSweep, *files: Path | None) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from surecast.cli.output import console

    shares = sweep.by_load()
    shown = [i for i in range(len(sweep.outcomes)) if (shares[:, i] >= 0.005).any()]
    table = Table(title="Share of placements in %, all localities together", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("subscriptions", justify="right", no_wrap=True)
    for i in shown:
        table.add_column(sweep.outcomes[i].replace("hierarchical", "hier.").replace("peer-to-peer", "p2p"))
        table.columns[-1].justify = "right"
    for i in _some(sweep.subscriptions.tolist(), 14):
        cells = [f"{100 * shares[i, j]:.1f}" if shares[i, j] > 0 else "" for j in shown]
        table.add_row(f"{sweep.subscriptions[i]:,.0f}", *cells)
    console.print(table)
    left = [name for i, name in enumerate(sweep.algorithms) if i not in shown]
    if left:
        console.print(f"Never best for half a percent of the placements: {', '.join(left)}.", soft_wrap=True)
    _say_saved(*files)


def _some(values: list[float], most: int) -> list[int]:
    """Returns at most `most` indices of values, evenly spread, with the first and the last."""
    if len(values) <= most:
        return list(range(len(values)))
    return sorted({round(i * (len(values) - 1) / (most - 1)) for i in range(most)})


def _say_saved(*files: Path | None) -> None:
    from surecast.cli.output import console

    for file in files:
        if file is not None:
            console.print(f"saved {file}", markup=False, soft_wrap=True)


def _load_data(sweep: LoadSweep) -> dict[str, Any]:
    """Returns the sweep as plain values for JSON; null where there is no delay or no saturation."""

    def number_or_none(value: float) -> float | None:
        return value if math.isfinite(value) else None

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
                "saturates_at": number_or_none(curve.configuration.saturates_at),
                "saturates": curve.configuration.saturates,
                "notification_delay_worst_s": [number_or_none(float(delay)) for delay in curve.delay_s],
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
