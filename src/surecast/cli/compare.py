"""`surecast compare`: two answers, or all three, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from surecast.cli.options import (
    AsJson,
    Overrides,
    Pictures,
    SimulationOptions,
    TimeScale,
    Variants,
    parse_overrides,
    takes_groups,
)
from surecast.errors import ConfigurationError

if TYPE_CHECKING:
    from surecast.report import Comparison

__all__ = ["compare", "draw_comparison"]

SCENARIO_SUFFIXES = (".yaml", ".yml")
PICTURE_METRICS = ("reliability", "success_share", "delay_mean_s", "message_rate_per_s", "acknowledgement_mean_s")


@takes_groups
def compare(
    a: Annotated[Path, typer.Argument(help="A scenario, or a saved report (.json, .parquet).", show_default=False)],
    variants: Variants,
    options: SimulationOptions,
    b: Annotated[Path | None, typer.Argument(help="A saved report to compare with the first.")] = None,
    answers: Annotated[
        str,
        typer.Option(
            metavar="A,B[,C]", help="Which of predicted, simulated and measured to compare of a scenario: two or all."
        ),
    ] = "predicted,simulated",
    time_scale: TimeScale = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LABEL:FIELD=VALUE",
            help="Compare under several settings at once, such as 'busy:workload.publishers[0].rate=5/s'.",
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(help="The metric of the picture; reliability, or else success_share, where they are known."),
    ] = None,
    picture: Pictures = None,
    save: Annotated[Path | None, typer.Option(help="Save all differences to a .json or .parquet file.")] = None,
    limit: Annotated[int, typer.Option(min=0, help="How many of the largest disagreements to list.")] = 20,
    overrides: Overrides = None,
    json: AsJson = False,
) -> None:
    """Compare prediction, simulation and measurement of a scenario, two of them or all, or two saved reports."""
    import surecast
    from surecast.cli.output import (
        check_pictures,
        console,
        draw_pictures,
        print_drawn,
        print_json,
        print_saved,
        progress_bar,
        working,
    )
    from surecast.report import Comparison, load, render_comparison, render_side_by_side

    check_pictures(picture)
    if picture and answers.count(",") > 1:
        raise ConfigurationError(f"--picture {picture[0]}: a picture has two axes; name two --answers")
    if a.suffix in SCENARIO_SUFFIXES:
        if b is not None:
            raise ConfigurationError(
                f"{b}: a scenario is compared with nothing but its own answers; leave out the second file"
            )
        scenario = surecast.Scenario.load(a, parse_overrides(overrides))
        with progress_bar("comparing") as progress:
            comparison = surecast.compare(
                scenario,
                answers=answers.split(","),
                vary=_settings(vary or []),
                **variants.arguments(),
                **options.arguments(),
                time_scale=time_scale,
                progress=progress,
            )
    elif b is None:
        raise ConfigurationError(f"{a} needs a second report to compare with; or give one scenario (.yaml)")
    else:
        with working("comparing"):
            comparison = surecast.compare(load(a), load(b))
    if isinstance(comparison, Comparison):
        drawn = _metric_to_draw(comparison, metric, picture or [])
        draw_pictures(picture, lambda path: draw_comparison(comparison, drawn, path))
    elif metric is not None:
        raise ConfigurationError(f"--metric {metric}: it is for a picture, which has two axes; name two --answers")
    if save is not None:
        comparison.save(save)
    if json:
        print_json(comparison.as_dict(limit))
        return
    if isinstance(comparison, Comparison):
        console.print(render_comparison(comparison, limit=limit))
    else:
        console.print(render_side_by_side(comparison, limit=limit))
    print_drawn(picture)
    print_saved(save)


def _metric_to_draw(comparison: Comparison, metric: str | None, picture: list[Path]) -> str:
    """Returns the metric of the pictures; refuses one that the two do not share, and pictures of none."""
    shared = {row.metric for row in comparison.summary}
    listed = ", ".join(sorted(shared))
    if metric is not None and metric not in shared:
        raise ConfigurationError(f"--metric {metric}: the two have no such figure in common; they share {listed}")
    drawn = metric or next((name for name in PICTURE_METRICS if name in shared), None)
    if picture and drawn is None:
        raise ConfigurationError(f"--picture {picture[0]}: choose what to draw with --metric; the two share {listed}")
    return drawn or ""


def _settings(vary: list[str]) -> dict[str, dict[str, str]]:
    """Returns the fields to set under each label."""
    settings: dict[str, dict[str, str]] = {}
    for text in vary:
        label, separator, change = text.partition(":")
        if not separator or "=" not in change or not label.strip():
            raise ConfigurationError(f"--vary {text}: write --vary LABEL:FIELD=VALUE, such as --vary 'busy:seed=7'")
        fields, new = settings.setdefault(label.strip(), {}), parse_overrides([change])
        if fields.keys() & new.keys():
            raise ConfigurationError(f"--vary {text}: {label.strip()} sets this field already; use another label")
        fields.update(new)
    return settings


def draw_comparison(comparison: Comparison, metric: str, path: Path) -> None:
    """Draws a scatter of one report against the other, one colour per variant."""
    from surecast.report import find_metric
    from surecast.studio import ScatterGroup, scatter

    shared = {(row.scope, row.variant) for row in comparison.summary if row.metric == metric}
    scopes = [scope for scope in ("subscriber", *sorted(scope for scope, _ in shared)) if scope in dict(shared)]
    definition = find_metric(metric)
    factor, unit = (100.0, "%") if definition.unit == "share" else (1.0, definition.unit)
    groups = []
    for variant in sorted(variant for scope, variant in shared if scope == scopes[0]):
        points = comparison.points(metric, scope=scopes[0], variant=variant)
        if len(shared) > 1 and not points.a.any() and not points.b.any():
            continue  # nothing arrives in either: a point at the origin would only press the others together
        columns = (None if c is None else factor * c for c in (points.a, points.b, points.b_low, points.b_high))
        a, b, low, high = columns
        groups.append(ScatterGroup(variant or metric, a, b, low, high, points.labels))
    names = [comparison.a.scenario, comparison.b.scenario]
    answers = [comparison.a.source, comparison.b.source]
    if answers[0] == answers[1]:
        answers = [f"first {answers[0]}", f"second {answers[1]}"]
    label = definition.label[0].lower() + definition.label[1:]
    scatter(
        groups,
        path,
        title=f"{' and '.join(dict.fromkeys(names))}: {label}",
        x_label=f"{answers[0]} {label}",
        y_label=f"{answers[1]} {label}",
        unit=unit,
    )
