"""`surecast report`: look at reports that were saved."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from surecast.cli.options import AsJson

app = typer.Typer(help="Show and convert saved reports.", no_args_is_help=True)

ReportFile = Annotated[Path, typer.Argument(metavar="REPORT", help="A .json or .parquet report.", show_default=False)]


@app.command()
def show(
    file: ReportFile,
    scope: Annotated[str | None, typer.Option(help="Show this scope only, such as subscriber or broker.")] = None,
    variant: Annotated[str | None, typer.Option(help="Show this variant only, such as a scheme.")] = None,
    sort_by: Annotated[str | None, typer.Option(help="Metric by which components are sorted, worst first.")] = None,
    limit: Annotated[int, typer.Option(min=0, help="How many components of each scope to list.")] = 20,
    json: AsJson = False,
) -> None:
    """Show a report as tables: the whole system, a summary of each metric, the worst components."""
    from surecast.cli.output import console, print_json, working
    from surecast.report import as_dict, load, render

    with working(f"reading {file}"):
        report = load(file)
    shown = render(report, scope=scope, variant=variant, limit=limit, sort_by=sort_by)
    if json:
        print_json(as_dict(report.select(scope=scope, variant=variant)))
    else:
        console.print(shown)


@app.command()
def convert(
    file: ReportFile,
    out: Annotated[Path, typer.Argument(help="The .json or .parquet file to write.", show_default=False)],
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it exists.")] = False,
) -> None:
    """Write a report in the other format."""
    from surecast.cli.output import console, working
    from surecast.errors import ConfigurationError
    from surecast.report import load, save

    if out.exists() and not force:
        raise ConfigurationError(f"{out} exists; add --force to overwrite it")
    with working(f"writing {out}"):
        save(load(file), out)
    console.print(f"wrote {out}", markup=False, soft_wrap=True)


@app.command()
def metrics(json: AsJson = False) -> None:
    """List all metrics, with unit and meaning."""
    from surecast.cli.output import print_json, print_table
    from surecast.report import metrics as catalogue

    if json:
        print_json(
            [{"name": m.name, "scopes": list(m.scopes), "unit": m.unit, "meaning": m.meaning} for m in catalogue()]
        )
        return
    rows = [[metric.name, ", ".join(metric.scopes), metric.unit, metric.meaning] for metric in catalogue()]
    print_table(("metric", "of", "unit", "meaning"), (), rows, title="Metrics")
