"""`surecast compare`: two reports side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from surecast.cli.options import AsJson

if TYPE_CHECKING:
    from surecast.report import Comparison

__all__ = ["compare", "draw_comparison"]

Report = Annotated[Path, typer.Argument(help="A .json or .parquet report.", show_default=False)]


def compare(
    a: Report,
    b: Report,
    metric: Annotated[str, typer.Option(help="The metric of the picture.")] = "reliability",
    picture: Annotated[
        list[Path] | None,
        typer.Option(metavar="PICTURE", help="Draw b against a to a .html, .svg or .png file. May be repeated."),
    ] = None,
    save: Annotated[Path | None, typer.Option(help="Save all differences to a .json or .parquet file.")] = None,
    limit: Annotated[int, typer.Option(min=0, help="How many of the largest disagreements to list.")] = 20,
    json: AsJson = False,
) -> None:
    """Compare two reports: how far apart they are by metric, and where they disagree most."""
    from surecast.cli.output import console, print_json, working
    from surecast.report import compare as compare_reports
    from surecast.report import load, render_comparison

    with working("comparing"):
        comparison = compare_reports(load(a), load(b))
    for path in picture or []:
        with working(f"drawing {path}"):
            draw_comparison(comparison, metric, path)
    if save is not None:
        comparison.save(save)
    if json:
        print_json(comparison.as_dict(limit))
        return
    console.print(render_comparison(comparison, limit=limit))
    for path in picture or []:
        console.print(f"drew {path}", markup=False, soft_wrap=True)


def draw_comparison(comparison: Comparison, metric: str, path: Path) -> None:
    """A scatter of one report against the other, one colour per variant."""
    from surecast.report import find_metric
    from surecast.studio import ScatterGroup, scatter

    groups = []
    for variant in sorted({row.variant for row in comparison.summary if row.metric == metric}):
        points = comparison.points(metric, variant=variant)
        groups.append(ScatterGroup(variant or metric, points.a, points.b, points.b_low, points.b_high, points.labels))
    label, unit = find_metric(metric).label, find_metric(metric).unit
    scatter(
        groups,
        path,
        title=f"{comparison.a.scenario}: {label}",
        x_label=f"{comparison.a.source} {label}",
        y_label=f"{comparison.b.source} {label}",
        unit=unit,
    )
