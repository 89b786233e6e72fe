"""`surecast simulate`: the quality of service in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from surecast.cli.options import (
    ReportOutput,
    ScenarioInput,
    SimulationOptions,
    SparkOptions,
    Variants,
    spark_folder,
    spark_settings,
    takes_groups,
)
from surecast.errors import ConfigurationError

if TYPE_CHECKING:
    from surecast.models import SimulationPlan
    from surecast.report import QoSReport
    from surecast.scenario import System

__all__ = ["simulate"]


@takes_groups
def simulate(
    source: ScenarioInput,
    variants: Variants,
    options: SimulationOptions,
    on_spark: SparkOptions,
    output: ReportOutput,
    runs_out: Annotated[
        Path | None,
        typer.Option(help="With --spark: folder of the result of each run; the same command resumes."),
    ] = None,
) -> None:
    """Simulate the system and measure what each subscriber gets, with confidence intervals."""
    import surecast
    from surecast.cli.output import progress_bar
    from surecast.documents.units import format_duration
    from surecast.models import plan_simulation

    output.check()
    scenario = source.load()
    plan = plan_simulation(scenario.system, runs=options.runs, duration=options.duration, seed=options.seed)
    if on_spark.spark is not None:
        if options.method != "compiled" or variants.algorithm or variants.policy or options.workers > 1:
            raise ConfigurationError("--spark: shares the runs of failures (--method compiled), without --workers")
        report = _simulate_on_spark(on_spark.spark, scenario.system, variants.scheme, plan, runs_out, on_spark.conf)
    else:
        with progress_bar("simulating") as progress:
            report = surecast.simulate(scenario, **variants.arguments(), **options.arguments(), progress=progress)
    heading = f"seed {plan.seed}, {plan.runs} runs of {format_duration(plan.duration_s)}"
    output.finish(report, f"{heading}; the same seed gives the same result")


def _simulate_on_spark(
    spark: str,
    system: System,
    schemes: list[str] | None,
    plan: SimulationPlan,
    runs_out: Path | None,
    conf: list[str] | None,
) -> QoSReport:
    from surecast.cli.output import progress_bar
    from surecast.pipeline.spark_sweep import sweep_session
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
