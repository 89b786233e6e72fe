"""`surecast compare`: two answers side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from surecast.cli.answers import (
    AlgorithmNames,
    Method,
    PolicyNames,
    SchemeNames,
    SimulationPlan,
    check_algorithms,
    check_policies,
    check_schemes,
    predict_system,
    progress_bar,
    simulate_system,
)
from surecast.cli.options import AsJson, Overrides, parse_overrides
from surecast.cli.run import TimeScale, carry_out, plan_of
from surecast.cli.simulate import Duration, MethodName, Runs, Seed, Workers
from surecast.errors import AssumptionError, ConfigurationError

if TYPE_CHECKING:
    from surecast.report import Comparison, QoSReport, ReportBuilder
    from surecast.scenario import System

__all__ = ["beside_run", "compare", "draw_comparison"]

SOURCE_ORDER = ("measured", "predicted", "simulated")
SCENARIO_SUFFIXES = (".yaml", ".yml")
PICTURE_WIDTH = 1280
PICTURE_METRICS = ("reliability", "success_share", "delay_mean_s", "message_rate_per_s", "acknowledgement_mean_s")
COMPOSED = "composed"
Wanted = tuple[list[str] | None, list[str] | None, list[str] | None]
Timing = tuple[int | None, str | None, int | None, float | None]
How = tuple[Wanted, Method, Timing, int]


def compare(
    a: Annotated[Path, typer.Argument(help="A scenario, or a saved report (.json, .parquet).", show_default=False)],
    b: Annotated[Path | None, typer.Argument(help="A saved report to compare with the first.")] = None,
    scheme: SchemeNames = None,
    algorithm: AlgorithmNames = None,
    policy: PolicyNames = None,
    method: MethodName = "walk",
    runs: Runs = None,
    duration: Duration = None,
    seed: Seed = None,
    workers: Workers = 1,
    answers: Annotated[
        str,
        typer.Option(metavar="A,B", help="Which two of predicted, simulated and measured to compare of a scenario."),
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
    picture: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PICTURE", help="Draw one against the other to a .html, .svg or .png file. May be repeated."
        ),
    ] = None,
    save: Annotated[Path | None, typer.Option(help="Save all differences to a .json or .parquet file.")] = None,
    limit: Annotated[int, typer.Option(min=0, help="How many of the largest disagreements to list.")] = 20,
    overrides: Overrides = None,
    json: AsJson = False,
) -> None:
    """Compare any two of a scenario's prediction, its simulation and its run, or any two saved reports."""
    from surecast.cli.output import console, print_json, working
    from surecast.report import compare as compare_reports
    from surecast.report import load, render_comparison
    from surecast.studio.files import checked_path

    for path in picture or []:
        checked_path(path, PICTURE_WIDTH)
    if a.suffix in SCENARIO_SUFFIXES:
        if b is not None:
            raise ConfigurationError(f"{b}: a scenario is compared with its own answers; leave out the second file")
        changes = parse_overrides(overrides)
        wanted = check_schemes(scheme, packets=True), check_algorithms(algorithm), check_policies(policy)
        timing = (runs, duration, seed, time_scale)
        first, second = _both(a, changes, vary or [], _sources(answers, time_scale), (wanted, method, timing, workers))
    elif b is None:
        raise ConfigurationError(f"{a} is compared with what? Name a second report, or one scenario (.yaml)")
    else:
        first, second = load(a), load(b)
    with working("comparing"):
        comparison = compare_reports(first, second)
    shared = {row.metric for row in comparison.summary}
    listed = ", ".join(sorted(shared))
    if metric is not None and metric not in shared:
        raise ConfigurationError(f"--metric {metric}: the two have no such figure in common; they share {listed}")
    drawn = metric or next((name for name in PICTURE_METRICS if name in shared), None)
    for path in picture or []:
        if drawn is None:
            raise ConfigurationError(f"--picture {path}: choose what to draw with --metric; the two share {listed}")
        with working(f"drawing {path}"):
            draw_comparison(comparison, drawn, path)
    if save is not None:
        comparison.save(save)
    if json:
        print_json(comparison.as_dict(limit))
        return
    console.print(render_comparison(comparison, limit=limit))
    for path in picture or []:
        console.print(f"drew {path}", markup=False, soft_wrap=True)
    if save is not None:
        console.print(f"saved {save}", markup=False, soft_wrap=True)


def _sources(text: str, time_scale: float | None) -> tuple[str, str]:
    """Returns the two answers that the options ask for."""
    from surecast.report import SOURCES

    names = [name.strip() for name in text.split(",")]
    if len(names) != 2 or names[0] == names[1] or any(name not in SOURCES for name in names):
        raise ConfigurationError(f"--answers {text}: write two of {', '.join(SOURCES)}, such as predicted,measured")
    if time_scale is not None and "measured" not in names:
        raise ConfigurationError("--time-scale: only a run has one; write --answers predicted,measured")
    return names[0], names[1]


def _both(
    file: Path,
    changes: dict[str, str],
    vary: list[str],
    sources: tuple[str, str],
    how: How,
) -> tuple[QoSReport, QoSReport]:
    """Returns two answers to a scenario, under each of the settings to vary."""
    from surecast.report import ReportBuilder
    from surecast.scenario import load_system

    builders: dict[str, ReportBuilder] = {}
    for label, fields in _settings(vary).items():
        _, system = load_system(file, {**changes, **fields})
        # A run comes first: what it refuses is refused at once.
        reports: dict[str, QoSReport] = {}
        for source in sorted(sources, key=SOURCE_ORDER.index):
            reports[source] = _answer(source, system, label, how)
            if "measured" in reports and source != "measured":
                reports |= beside_run(
                    system, reports["measured"], reports[source], partial(_named, source, system, label, how)
                )
        variants = reports["measured"].variants if "measured" in reports else ()
        for source in sources:
            report = reports[source]
            builder = builders.setdefault(
                source,
                ReportBuilder(system.name, source, seed=report.info.seed),
            )
            _add(builder, report, label, variants)
    return builders[sources[0]].build(), builders[sources[1]].build()


def _answer(source: str, system: System, label: str, how: How) -> QoSReport:
    """Returns one answer to a scenario. A measurement has the scenario's own policy and the scheme of a durable
    broker."""
    (schemes, algorithms, policies), method, (runs, duration, seed, time_scale), workers = how
    if source == "measured":
        if schemes or algorithms or policies:
            raise ConfigurationError(
                "--scheme, --algorithm and --policy: a run has what the scenario says; set it there, such as with "
                "--set delivery.dropping.policy=none"
            )
        return carry_out(plan_of(system, time_scale, duration, seed), activity=f"running {label}".strip())
    if source == "predicted":
        return predict_system(system, schemes, algorithms, policies)
    plan = SimulationPlan(system, runs, duration, seed)
    with progress_bar(f"simulating {label}".strip()) as progress:
        return simulate_system(system, schemes, plan, method, workers, progress, algorithms, policies)


def _named(
    source: str, system: System, label: str, how: How, schemes: list[str] | None, policies: list[str] | None
) -> QoSReport:
    """Returns one answer to a scenario, of these schemes and policies alone."""
    return _answer(source, system, label, ((schemes, None, policies), *how[1:]))


def beside_run(
    system: System,
    measured: QoSReport,
    whole: QoSReport,
    named: Callable[[list[str] | None, list[str] | None], QoSReport],
) -> dict[str, QoSReport]:
    """Returns a run and another answer, with names in common where the other composes several models.

    What was measured of a subscriber stands beside the composed answer, and beside that of the scheme or policy under
    which the run has it, which `named` gives. Without composition both stay as they are.
    """
    from surecast.prediction.composed import composes
    from surecast.report import ReportBuilder

    source = whole.info.source
    if COMPOSED not in whole.variants or not composes(system):
        return {"measured": measured, source: whole}
    coming = {s.name for s in system.subscribers if s.connectivity is not None and system.publishers_of(s)}
    of_subscribers = measured.select(scope="subscriber")
    schemes = sorted({figure.variant for figure in of_subscribers.figures() if figure.name not in coming})
    answers = {"measured": [measured], source: [whole.select(variant=COMPOSED)]}
    try:
        answers[source].append(named(schemes or None, [system.delivery.dropping.policy] if coming else None))
    except AssumptionError:
        # A model may refuse by itself what it takes as a part of the composed one.
        answers[source] = [whole]
    joined: dict[str, QoSReport] = {}
    for name, reports in answers.items():
        info = reports[0].info
        builder = ReportBuilder(info.scenario, info.source, seed=info.seed, parameters=info.parameters)
        for report in reports:
            builder.add_report(report)
        if name == "measured":
            builder.add_report(of_subscribers, variant=COMPOSED)
        joined[name] = builder.build()
    return joined


def _add(builder: ReportBuilder, report: QoSReport, label: str, variants: Sequence[str]) -> None:
    """Adds a report under a label; beside a run, only the variants that it has."""
    for variant in [each for each in report.variants if not variants or each in variants]:
        builder.add_report(report.select(variant=variant), variant=f"{variant}, {label}" if label else variant)


def _settings(vary: list[str]) -> dict[str, dict[str, str]]:
    """Fields to set under each label; one empty setting where nothing varies."""
    settings: dict[str, dict[str, str]] = {}
    for text in vary:
        label, separator, change = text.partition(":")
        if not separator or "=" not in change or not label.strip():
            raise ConfigurationError(f"--vary {text}: write --vary LABEL:FIELD=VALUE, such as --vary 'busy:seed=7'")
        fields, new = settings.setdefault(label.strip(), {}), parse_overrides([change])
        if fields.keys() & new.keys():
            raise ConfigurationError(f"--vary {text}: {label.strip()} sets this field already; use another label")
        fields.update(new)
    return settings or {"": {}}


def draw_comparison(comparison: Comparison, metric: str, path: Path) -> None:
    """Draws a scatter of one report against the other, one colour per variant."""
    from surecast.report import find_metric
    from surecast.studio import ScatterGroup, scatter

    shared = {(row.scope, row.variant) for row in comparison.summary if row.metric == metric}
    scopes = [scope for scope in ("subscriber", *sorted(scope for scope, _ in shared)) if scope in dict(shared)]
    groups = []
    for variant in sorted(variant for scope, variant in shared if scope == scopes[0]):
        points = comparison.points(metric, scope=scopes[0], variant=variant)
        if len(shared) > 1 and not points.a.any() and not points.b.any():
            continue  # nothing arrives in either: a point at the origin would only press the others together
        groups.append(ScatterGroup(variant or metric, points.a, points.b, points.b_low, points.b_high, points.labels))
    definition = find_metric(metric)
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
        unit=definition.unit,
    )
