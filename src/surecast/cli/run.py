"""`surecast run`: the quality of service of real brokers, measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from surecast.cli.options import ReportOutput, ScenarioInput, TimeScale, takes_groups
from surecast.errors import ConfigurationError

if TYPE_CHECKING:
    from surecast.measurement import TraceReplay

__all__ = ["run"]

INTERRUPTED = 130
"""The exit code of a command that was interrupted."""


@takes_groups
def run(
    source: ScenarioInput,
    output: ReportOutput,
    time_scale: TimeScale = None,
    duration: Annotated[
        str | None,
        typer.Option(help="Measured time of the scenario, such as 10min; by default the scenario's."),
    ] = None,
    warm_up: Annotated[
        str | None, typer.Option(help="Time before the measurement starts; by default the scenario's.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the workload; by default the scenario's.")] = None,
    patience: Annotated[
        str | None,
        typer.Option(
            help="How long, in real time, a publisher repeats an event that is not acknowledged; by default 0s for a "
            "single broker and 5s for a group."
        ),
    ] = None,
    kill_leader: Annotated[
        list[str] | None,
        typer.Option(metavar="TIME", help="Kill the leader at this time of the run. May be repeated."),
    ] = None,
    freeze: Annotated[
        bool,
        typer.Option("--freeze", help="Freeze brokers of an overlay while they are down, in place of killing them."),
    ] = False,
    client_processes: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER",
            min=1,
            help="Spread the clients over so many processes; by default as many as their messages need, up to one for "
            "each processor.",
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Let brokers fail when components of this availability trace did."),
    ] = None,
    trace_format: Annotated[
        str | None, typer.Option(metavar="FORMAT", help="Its format: avt, fta, lanl or outages.")
    ] = None,
    trace_of: Annotated[
        list[str] | None,
        typer.Option(
            metavar="BROKER=COMPONENT",
            help="The component of the trace as which a broker fails; by default the first one that fits. May be "
            "repeated.",
        ),
    ] = None,
    trace_start: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="When in the trace the run begins, such as 30d from its start."),
    ] = None,
    ask_targets: Annotated[
        bool,
        typer.Option(
            "--ask-targets",
            help="Let subscribers that come and go ask the broker for their response target: it watches them, and "
            "chooses the parameter of the policy itself.",
        ),
    ] = False,
    logs: Annotated[
        Path | None, typer.Option(help="Keep the brokers' event logs in this new folder, to learn from them.")
    ] = None,
    executed: Annotated[
        Path | None,
        typer.Option(
            help="Save here a report to compare with: an overlay's run simulated again, with its publications and its "
            "outages as they were executed."
        ),
    ] = None,
) -> None:
    """Run the scenario's broker, group or overlay as real processes, with real clients: what do subscribers get?

    Processes are killed and restarted, and links cut, by the scenario's availability; subscribers connect and
    disconnect by their connectivity. Ctrl-C ends the run early, with a report of what was measured until then.
    """
    import surecast
    from surecast.cli.output import errors, progress_bar
    from surecast.documents.units import format_duration
    from surecast.measurement import RunInterrupted

    output.check()
    replay = _replay(trace, trace_format, trace_of or [], trace_start)
    scenario = source.load()
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
                freeze=freeze,
                client_processes=client_processes,
                replay=replay,
                ask_targets=ask_targets,
                logs=logs,
                executed=executed,
                progress=progress,
            )
    except RunInterrupted as interruption:
        errors.print(str(interruption), markup=False)
        raise typer.Exit(INTERRUPTED) from None
    parameters = report.info.parameters
    duration_text = format_duration(parameters["duration_s"])
    heading = f"seed {report.info.seed}, {duration_text} at a time scale of {parameters['time_scale']:g}"
    output.finish(report, f"{heading}: the same seed gives the same workload and failures", logs, executed)
    if parameters["interrupted"]:
        raise typer.Exit(INTERRUPTED)


def _replay(file: Path | None, kind: str | None, pairs: list[str], start: str | None) -> TraceReplay | None:
    """Returns the trace that the options name; ConfigurationError where they do not fit together."""
    from surecast.documents.units import seconds_of
    from surecast.measurement import TraceReplay
    from surecast.scenario.traces import TRACE_FORMATS

    if file is None:
        for option, value in (("--trace-format", kind), ("--trace-of", pairs), ("--trace-start", start)):
            if value:
                raise ConfigurationError(f"{option}: there is no trace; name its file with --trace")
        return None
    if kind is None:
        raise ConfigurationError(f"--trace-format: name the format of {file}: {', '.join(TRACE_FORMATS)}")
    components = {}
    for pair in pairs:
        broker, equals, component = pair.partition("=")
        if not equals or not broker or not component:
            raise ConfigurationError(f"--trace-of {pair}: write BROKER=COMPONENT, such as b-1=node7")
        components[broker] = component
    return TraceReplay(file, kind, components, seconds_of("--trace-start", start) or 0.0)
