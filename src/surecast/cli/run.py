"""`surecast run`: the quality of service of real brokers, measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from surecast.cli.options import AsJson, Limit, Overrides, ReportOut, ScenarioFile, TimeScale, parse_overrides

__all__ = ["run"]

INTERRUPTED = 130
"""The exit code of a command that was interrupted."""


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
    out: ReportOut = None,
    limit: Limit = 10,
    overrides: Overrides = None,
    json: AsJson = False,
) -> None:
    """Run the scenario's broker or group as real processes, with real clients, and measure what each subscriber gets.

    Processes are killed and started again by the scenario's availability, and subscribers come and go by their
    connectivity. Ctrl-C ends the run early, with a report of what was measured until then.
    """
    import surecast
    from surecast.cli.output import check_out, errors, print_report, print_saved, progress_bar, save_report
    from surecast.documents.units import format_duration
    from surecast.measurement import RunInterrupted

    check_out(out)
    scenario = surecast.Scenario.load(file, parse_overrides(overrides))
    try:
        with progress_bar("running") as progress:
            report = surecast.run(
                scenario,
                time_scale=time_scale,
                duration=duration,
                warm_up=warm_up,
                seed=seed,
                patience=patience,
                kill_leader=kill_leader or (),
                logs=logs,
                progress=progress,
            )
    except RunInterrupted as interruption:
        errors.print(str(interruption), markup=False)
        raise typer.Exit(INTERRUPTED) from None
    save_report(report, out)
    told = report.info.parameters
    heading = (
        f"seed {report.info.seed}, {format_duration(told['duration_s'])} at a time scale of {told['time_scale']:g}"
    )
    print_report(report, limit, json, f"{heading}: the same seed gives the same workload and failures")
    if not json:
        print_saved(logs, out)
    if told["interrupted"]:
        raise typer.Exit(INTERRUPTED)
