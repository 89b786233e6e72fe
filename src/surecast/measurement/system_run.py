"""The measured answer to a scenario."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path

import uvloop

from surecast.errors import ConfigurationError
from surecast.measurement.class_figures import build_class_report
from surecast.measurement.class_run import ClassRun, measure_classes
from surecast.measurement.measured_report import build_report
from surecast.measurement.measurement_plan import RunPlan, make_plan
from surecast.measurement.replayed_traces import TraceReplay
from surecast.measurement.workload_drive import Measured, Progress, measure, run_folder
from surecast.report import QoSReport
from surecast.scenario.system import System

__all__ = ["run_plan", "run_system"]


def run_system(
    system: System,
    *,
    scale: float = 1.0,
    duration_s: float | None = None,
    warm_up_s: float | None = None,
    seed: int | None = None,
    patience_s: float | None = None,
    leader_kills_s: Sequence[float] = (),
    freezes: bool = False,
    client_processes: int | None = None,
    replay: TraceReplay | None = None,
    asks_targets: bool = False,
    logs: Path | None = None,
    progress: Progress | None = None,
) -> QoSReport:
    """Starts the scenario's broker, group or overlay, drives its workload, and reports what was measured.

    `scale` seconds of the scenario pass in a second of real time. `duration_s` and `warm_up_s` are the scenario's time,
    by default that of its experiment. `patience_s` is how long, in real time, a publisher sends an event again that is
    not acknowledged: by default not at all with one process, and 5 s with a group. At `leader_kills_s`, in the
    scenario's time, whoever leads is killed and started again, beside the failures of the scenario. With `freezes`,
    brokers of an overlay are frozen while they are down, not killed. The clients are in `client_processes` processes,
    by default as many as their messages need. `replay` is an availability trace whose components brokers fail as.
    With `asks_targets`, subscribers that come and go ask their broker for their response target, and it chooses the
    parameter of the policy itself. `logs` is a new folder for the event logs of the broker, or of each replica, which
    are deleted otherwise.

    >>> from surecast.scenario import build, parse_text
    >>> system = build(parse_text('''
    ... {surecast: 1, name: one, overlay: {brokers: [{name: b}]}, workload: {topics: [t], deadline: 5s,
    ...  publishers: [{name: p, home: b, topics: [t], rate: 50/s}], subscribers: [{name: s, home: b, topics: [t]}]}}
    ... '''))
    >>> report = run_system(system, duration_s=1.0)  # doctest: +SKIP
    >>> report.value("reliability", scope="subscriber", name="s")  # doctest: +SKIP
    1.0
    """
    plan = make_plan(
        system,
        scale=scale,
        duration_s=duration_s,
        warm_up_s=warm_up_s,
        seed=seed,
        patience_s=patience_s,
        leader_kills_s=leader_kills_s,
        freezes=freezes,
        client_processes=client_processes,
        replay=replay,
        asks_targets=asks_targets,
    )
    return run_plan(plan, logs=logs, progress=progress)


def run_plan(
    plan: RunPlan, *, logs: Path | None = None, executed: Path | None = None, progress: Progress | None = None
) -> QoSReport:
    """Carries a plan out; nothing that it started or wrote is left, but the event logs where they are wanted.

    `executed` is where to save the simulation of the very run, with its outages as they were executed.
    """
    if executed is not None and (
        plan.overlay is None
        or plan.system.class_workload is not None
        or plan.freezes
        or plan.mechanisms
        or plan.group.replicas > 1
    ):
        raise ConfigurationError(
            "`executed`: the outages of a run are simulated again for overlays whose brokers are single processes that "
            "are killed, with publishers, and subscribers that stay connected; leave it out"
        )
    if logs is not None and logs.exists() and (not logs.is_dir() or any(logs.iterdir())):
        raise ConfigurationError(f"{logs}: the event logs need a new folder, or an empty one")
    measured: Measured | ClassRun
    with run_folder() as folder:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            if plan.system.class_workload is None:
                measured = runner.run(measure(plan, Path(folder), progress))
            else:
                measured = runner.run(measure_classes(plan, Path(folder), progress))
        if logs is not None:
            shutil.copytree(measured.logs, logs, dirs_exist_ok=True)
    if not isinstance(measured, Measured):
        return build_class_report(measured)
    report = build_report(measured)
    if executed is not None:
        from surecast.measurement.executed_outages import executed_report
        from surecast.report.report_files import save

        save(executed_report(measured), executed)
    return report
