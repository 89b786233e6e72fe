"""`surecast demo`: what Surecast can do, shown on real scenarios."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from surecast.cli.options import AsJson

if TYPE_CHECKING:
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
    """Show what Surecast does: describe systems, draw them, and say what is wrong with a bad one."""
    from surecast.cli.output import console, print_json
    from surecast.errors import ConfigurationError

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"{out} cannot be made: {error.strerror}") from None
    systems = _load(examples, out)
    pages = _draw(systems, out)
    if json:
        print_json({"systems": [system.name for _, system in systems], "pages": [str(page) for page in pages]})
        return
    console.rule("[bold]Describe a system once")
    _print_systems(systems)
    console.rule("[bold]Get it wrong, and be told everything at once")
    _show_broken(out)
    console.rule("[bold]Look at it")
    for page in pages:
        console.print(f"  {page}", markup=False, soft_wrap=True)
    console.print("\nTry next: surecast scenario show examples/company.yaml, or docs/tutorial.md", soft_wrap=True)


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
        pages.append(draw_system(system, out / f"{system.name}.html"))
        draw_system(system, out / f"{system.name}.png")
    return pages


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
