"""`surecast run`: the quality of service of real brokers, measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from surecast.cli.answers import check_out, progress_bar, save_report
from surecast.cli.options import AsJson, Overrides, ScenarioFile, parse_overrides, seconds_of
from surecast.errors import ConfigurationError

if TYPE_CHECKING:
    from surecast.measurement import RunPlan
    from surecast.report import QoSReport
    from surecast.scenario import System

__all__ = ["TimeScale", "carry_out", "plan_of", "run"]

LONG_S = 600.0
"""Who asks for a longer run than this has to say so."""
INTERRUPTED = 130
"""The exit code of a command that was interrupted."""

TimeScale = Annotated[
    float | None,
    typer.Option(
        metavar="FACTOR",
        help="How many seconds of the scenario pass in one of real time: rates, failures, connected periods and "
        "lifetimes are so much faster. 1 by default.",
    ),
]


def run(
    file: ScenarioFile,
    time_scale: TimeScale = None,
    duration: Annotated[
        str | None,
        typer.Option(help="Measured time of the scenario, such as 10min; by default the scenario's."),
    ] = None,
    warm_up: Annotated[
        str | None, typer.Option(help="Time before that which does not count; by default the scenario's.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the workload; by default the scenario's.")] = None,
    patience: Annotated[
        str | None,
        typer.Option(
            help="How long, in real time, a publisher sends an event again that is not acknowledged; by default 0s "
            "with one process, and 5s with a group."
        ),
    ] = None,
    kill_leader: Annotated[
        list[str] | None,
        typer.Option(metavar="TIME", help="Kill whoever leads at this time of the run too. May be repeated."),
    ] = None,
    logs: Annotated[
        Path | None, typer.Option(help="Keep the brokers' event logs in this new folder, to learn from them.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Save the report (.json or .parquet).")] = None,
    limit: Annotated[int, typer.Option(min=0, help="How many components of each scope to list.")] = 10,
    overrides: Overrides = None,
    json: AsJson = False,
) -> None:
    """Run the scenario's broker or group as real processes, with real clients, and measure what each subscriber gets.

    Processes are killed and started again by the scenario's availability, and subscribers come and go by their
    connectivity. Ctrl-C ends the run early, with a report of what was measured until then.
    """
    from surecast.cli.output import console, errors, print_json
    from surecast.documents.units import format_duration
    from surecast.measurement import RunInterrupted
    from surecast.report import as_dict, render
    from surecast.scenario import load_system

    check_out(out)
    _, system = load_system(file, parse_overrides(overrides))
    plan = plan_of(system, time_scale, duration, seed, warm_up=warm_up, patience=patience, kill_leader=kill_leader)
    try:
        report = carry_out(plan, logs=logs)
    except RunInterrupted as interruption:
        errors.print(str(interruption), markup=False)
        raise typer.Exit(INTERRUPTED) from None
    save_report(report, out)
    if json:
        print_json(as_dict(report))
    else:
        console.print(
            f"seed {plan.seed}, {format_duration(plan.duration_s)} at a time scale of {plan.scale:g}: the same seed "
            "gives the same workload and failures"
        )
        console.print(render(report, limit=limit))
        for saved in (logs, out):
            if saved is not None:
                console.print(f"saved {saved}", markup=False, soft_wrap=True)
    if report.info.parameters["interrupted"]:
        raise typer.Exit(INTERRUPTED)


def plan_of(
    system: System,
    time_scale: float | None,
    duration: str | None,
    seed: int | None,
    *,
    warm_up: str | None = None,
    patience: str | None = None,
    kill_leader: list[str] | None = None,
) -> RunPlan:
    """Returns the run that the options describe; a long run that was not asked for is refused."""
    from surecast.documents.units import format_duration
    from surecast.measurement import make_plan

    plan = make_plan(
        system,
        scale=1.0 if time_scale is None else time_scale,
        duration_s=seconds_of("--duration", duration),
        warm_up_s=seconds_of("--warm-up", warm_up),
        seed=seed,
        patience_s=seconds_of("--patience", patience),
        leader_kills_s=[seconds_of("--kill-leader", text) for text in kill_leader or []],
    )
    if plan.real_s > LONG_S and time_scale is None and duration is None:
        raise ConfigurationError(
            f"{system.name} runs for {format_duration(plan.end_s)}, and so would this: give a --time-scale, a "
            "--duration, or both"
        )
    return plan


def carry_out(plan: RunPlan, *, logs: Path | None = None, activity: str = "running") -> QoSReport:
    """Carries a run out, with its progress shown."""
    from surecast.measurement import run_plan

    with progress_bar(activity) as progress:
        return run_plan(plan, logs=logs, progress=progress)
