"""`surecast demo`: what Surecast can do, shown on real scenarios."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from surecast.cli.options import AsJson

if TYPE_CHECKING:
    from surecast.report import Comparison
    from surecast.scenario import Scenario, System

__all__ = ["demo"]

BROKEN = """\
surecast: 1
name: broken
overlay:
  brokers: [{name: paris, capacity: 1400}, {name: rome, capacty: 9/s}]
  links: [[paris, milan]]
availability:
  brokers: {availability: 1.2, period: 5d}
"""


def demo(
    out: Annotated[Path, typer.Option(help="Folder for pictures and pages.")] = Path("out/demo"),
    examples: Annotated[
        Path, typer.Option(help="Folder of scenarios to show; the templates where it is absent.")
    ] = Path("examples"),
    json: AsJson = False,
) -> None:
    """Show what Surecast does: describe systems, draw them, predict and simulate one, and refuse a bad one."""
    from surecast.cli.output import console, print_json
    from surecast.errors import ConfigurationError

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"{out} cannot be made: {error.strerror}") from None
    systems = _load(examples, out)
    pages = _draw(systems, out)
    shown = next((system for _, system in systems if system.name in ("reliability-graph", "overlay")), None)
    comparison = None if shown is None else _predict_and_simulate(shown, out, pages)
    if json:
        listed = {"systems": [system.name for _, system in systems], "pictures": [str(page) for page in pages]}
        print_json({**listed, "agreement": None if comparison is None else _agreement(comparison)})
        return
    console.rule("[bold]Describe a system once")
    _print_systems(systems)
    if comparison is not None:
        console.rule("[bold]Predict it by formula, and check by simulation")
        _print_agreement(comparison)
    console.rule("[bold]Get it wrong, and be told everything at once")
    _show_broken(out)
    console.rule("[bold]Look at it")
    for page in pages:
        console.print(f"  {page}", markup=False, soft_wrap=True)
    console.print("\nTry next: .venv/bin/surecast scenario new, or docs/tutorial.md", markup=False, soft_wrap=True)


def _load(examples: Path, out: Path) -> list[tuple[Scenario, System]]:
    from surecast.cli.output import working
    from surecast.scenario import TEMPLATES, load_system, template_text

    files = sorted(examples.glob("*.yaml"))
    if not files:
        for name in TEMPLATES:
            (out / f"{name}.yaml").write_text(template_text(name), encoding="utf-8")
        files = [out / f"{name}.yaml" for name in TEMPLATES]
    with working("reading the scenarios"):
        return [load_system(file) for file in files]


def _draw(systems: list[tuple[Scenario, System]], out: Path) -> list[Path]:
    from rich.progress import track

    from surecast.cli.output import errors
    from surecast.studio import draw_system

    pages: list[Path] = []
    for _, system in track(systems, "drawing", console=errors, transient=True, disable=not errors.is_terminal):
        name = re.sub(r"[^\w-]+", "-", system.name)
        pages += [draw_system(system, out / f"{name}.html"), draw_system(system, out / f"{name}.png")]
    return pages


def _predict_and_simulate(system: System, out: Path, pages: list[Path]) -> Comparison:
    """Both answers for all schemes, and a picture of one against the other."""
    from surecast.cli.answers import progress_bar
    from surecast.cli.compare import draw_comparison
    from surecast.cli.output import working
    from surecast.predict import predict_reliability
    from surecast.report import compare
    from surecast.simulate import simulate_reliability

    with working("predicting (compiling kernels the first time)"):
        predicted = predict_reliability(system)
    # Failures are slow and events are many: fewer events over more time tell more about reliability.
    calm = replace(system, publishers=tuple(replace(p, rate_per_s=p.rate_per_s / 30) for p in system.publishers))
    with progress_bar("simulating 8 runs of two years") as progress:
        simulated = simulate_reliability(calm, runs=8, duration_s=730 * 86400.0, seed=1, progress=progress)
    comparison = compare(predicted, simulated)
    for suffix in ("html", "png"):
        path = out / f"{system.name}-predicted-simulated.{suffix}"
        draw_comparison(comparison, "reliability", path)
        pages.append(path)
    return comparison


def _agreement(comparison: Comparison) -> dict[str, dict[str, float]]:
    """For each scheme: the mean over subscribers predicted and simulated, and their mean difference."""
    found = {}
    for row in comparison.summary:
        if (row.metric, row.scope) == ("reliability", "subscriber") and row.variant != "none":
            points = comparison.points("reliability", scope="subscriber", variant=row.variant)
            found[row.variant] = {
                "predicted": float(points.a.mean()),
                "simulated": float(points.b.mean()),
                "mean_difference": row.mean_absolute,
            }
    return dict(sorted(found.items(), key=lambda item: item[1]["predicted"]))


def _print_agreement(comparison: Comparison) -> None:
    from rich.table import Table

    from surecast.cli.output import console

    table = Table(
        "scheme", "predicted", "simulated", "mean difference", title=f"On-time reliability of {comparison.a.scenario}"
    )
    for scheme, row in _agreement(comparison).items():
        table.add_row(scheme, *(f"{row[key]:.4f}" for key in ("predicted", "simulated", "mean_difference")))
    console.print(table)


def _print_systems(systems: list[tuple[Scenario, System]]) -> None:
    from rich.table import Table
    from rich.text import Text

    from surecast.cli.output import console

    table = Table("scenario", "routers", "brokers", "links", "clients", "what it is")
    for scenario, system in systems:
        routers = len(system.network.routers) if system.network else 0
        clients = len(system.publishers) + len(system.subscribers)
        clients += len(system.class_workload.clients) if system.class_workload else 0
        counts = (routers, len(system.overlay.brokers), len(system.overlay.links), clients)
        table.add_row(Text(system.name), *(str(count) for count in counts), Text(scenario.description))
    console.print(table)


def _show_broken(out: Path) -> None:
    from rich.syntax import Syntax

    from surecast.cli.output import console, problem_text
    from surecast.errors import ScenarioError
    from surecast.scenario import load_system

    file = out / "broken.yaml"
    file.write_text(BROKEN, encoding="utf-8")
    console.print(Syntax(BROKEN, "yaml", line_numbers=True, background_color="default"))
    try:
        load_system(file)
    except ScenarioError as error:
        for problem in error.problems:
            console.print(problem_text(problem), soft_wrap=True)
