"""`surecast simulate`: the quality of service in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from surecast.cli.options import (
    AlgorithmNames,
    AsJson,
    Duration,
    Limit,
    MethodName,
    Overrides,
    PolicyNames,
    ReportOut,
    Runs,
    ScenarioFile,
    SchemeNames,
    Seed,
    Workers,
    parse_overrides,
)
from surecast.cli.spark import SparkConf, SparkMaster, spark_folder, spark_settings
from surecast.errors import ConfigurationError

if TYPE_CHECKING:
    from surecast.models import SimulationPlan
    from surecast.report import QoSReport
    from surecast.scenario import System

__all__ = ["simulate"]


def simulate(
    file: ScenarioFile,
    scheme: SchemeNames = None,
    algorithm: AlgorithmNames = None,
    policy: PolicyNames = None,
    method: MethodName = "compiled",
    runs: Runs = None,
    duration: Duration = None,
    seed: Seed = None,
    workers: Workers = 1,
    out: ReportOut = None,
    spark: SparkMaster = None,
    conf: SparkConf = None,
    runs_out: Annotated[
        Path | None, typer.Option(help="With --spark: folder of what each run found; can be interrupted.")
    ] = None,
    limit: Limit = 10,
    overrides: Overrides = None,
    json: AsJson = False,
) -> None:
    """Simulate the system and measure what each subscriber gets, with confidence intervals."""
    import surecast
    from surecast.cli.output import check_out, print_report, print_saved, progress_bar, save_report
    from surecast.documents.units import format_duration
    from surecast.models import plan_simulation

    check_out(out)
    scenario = surecast.Scenario.load(file, parse_overrides(overrides))
    plan = plan_simulation(scenario.system, runs=runs, duration=duration, seed=seed)
    if spark is not None:
        if method != "compiled" or algorithm or policy or workers > 1:
            raise ConfigurationError("--spark: shares the runs of failures (--method compiled), without --workers")
        report = _simulate_on_spark(spark, scenario.system, scheme, plan, runs_out, conf)
    else:
        with progress_bar("simulating") as progress:
            report = surecast.simulate(
                scenario,
                schemes=scheme,
                algorithms=algorithm,
                policies=policy,
                method=method,
                runs=runs,
                duration=duration,
                seed=seed,
                workers=workers,
                progress=progress,
            )
    save_report(report, out)
    heading = f"seed {plan.seed}, {plan.runs} runs of {format_duration(plan.duration_s)}"
    print_report(report, limit, json, f"{heading}; the same seed gives the same result")
    if not json:
        print_saved(out)


def _simulate_on_spark(
    spark: str,
    system: System,
    schemes: list[str] | None,
    plan: SimulationPlan,
    runs_out: Path | None,
    conf: list[str] | None,
) -> QoSReport:
    from surecast.cli.output import progress_bar
    from surecast.pipeline.sweep import sweep_session
    from surecast.pipeline.sweep_runs import simulate_on_spark

    folder = spark_folder(runs_out, "--runs-out")
    with (
        sweep_session(spark, folder.with_name(f"{folder.name}.spark"), spark_settings(spark, conf)) as session,
        progress_bar("simulating") as progress,
    ):
        return simulate_on_spark(
            session,
            system,
            str(folder),
            schemes or None,
            runs=plan.runs,
            duration_s=plan.duration_s,
            seed=plan.seed,
            warm_up_s=plan.warm_up_s,
            progress=progress,
        )
