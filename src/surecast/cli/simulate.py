"""`surecast simulate`: the quality of service in virtual time."""

from __future__ import annotations

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
    check_out,
    check_policies,
    check_schemes,
    progress_bar,
    save_report,
    simulate_system,
)
from surecast.cli.options import AsJson, Overrides, ScenarioFile, parse_overrides
from surecast.cli.spark import SparkConf, SparkMaster, spark_folder, spark_settings
from surecast.errors import ConfigurationError

if TYPE_CHECKING:
    from surecast.report import QoSReport
    from surecast.scenario import System

__all__ = ["Duration", "MethodName", "Runs", "Seed", "Workers", "simulate"]

MethodName = Annotated[
    Method,
    typer.Option(help="walk: a fast compiled walk of events through failures; protocol: the real protocol code."),
]
Runs = Annotated[int | None, typer.Option(min=2, help="Independent runs; by default the scenario's.")]
Duration = Annotated[str | None, typer.Option(help="Simulated time of a run, such as 14d; by default the scenario's.")]
Seed = Annotated[int | None, typer.Option(min=0, help="Seed of the runs; by default the scenario's.")]
Workers = Annotated[int, typer.Option(min=1, max=64, help="Processes to share the runs; the result is the same.")]


def simulate(
    file: ScenarioFile,
    scheme: SchemeNames = None,
    algorithm: AlgorithmNames = None,
    policy: PolicyNames = None,
    method: MethodName = "walk",
    runs: Runs = None,
    duration: Duration = None,
    seed: Seed = None,
    workers: Workers = 1,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Save the report (.json or .parquet).")] = None,
    spark: SparkMaster = None,
    conf: SparkConf = None,
    runs_out: Annotated[
        Path | None, typer.Option(help="With --spark: folder of what each run found; can be interrupted.")
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="How many components of each scope to list.")] = 10,
    overrides: Overrides = None,
    json: AsJson = False,
) -> None:
    """Simulate the system and measure what each subscriber gets, with confidence intervals."""
    from surecast.cli.output import console, print_json
    from surecast.documents.units import format_duration
    from surecast.report import as_dict, render
    from surecast.scenario import load_system

    check_out(out)
    _, system = load_system(file, parse_overrides(overrides))
    plan = SimulationPlan(system, runs, duration, seed)
    schemes = check_schemes(scheme, packets=True)
    algorithms, policies = check_algorithms(algorithm), check_policies(policy)
    if spark is not None:
        if method != "walk" or algorithms or policies or workers > 1:
            raise ConfigurationError("--spark: shares the runs of failures (--method walk), without --workers")
        report = _simulate_on_spark(spark, system, schemes, plan, runs_out, conf)
    else:
        with progress_bar("simulating") as progress:
            report = simulate_system(system, schemes, plan, method, workers, progress, algorithms, policies)
    save_report(report, out)
    if json:
        print_json(as_dict(report))
        return
    console.print(
        f"seed {plan.seed}, {plan.runs} runs of {format_duration(plan.duration_s)}; the same seed gives the same result"
    )
    console.print(render(report, limit=limit))
    if out is not None:
        console.print(f"saved {out}", markup=False, soft_wrap=True)


def _simulate_on_spark(
    spark: str,
    system: System,
    schemes: list[str] | None,
    plan: SimulationPlan,
    runs_out: Path | None,
    conf: list[str] | None,
) -> QoSReport:
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
            schemes,
            runs=plan.runs,
            duration_s=plan.duration_s,
            seed=plan.seed,
            warm_up_s=plan.warm_up_s,
            progress=progress,
        )
