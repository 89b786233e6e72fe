"""Runs of a simulation on Spark: each run is what `simulate_reliability` does, and so is the report."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from surecast.pipeline.spark_sweep import Sweep, run_blocks
from surecast.report import QoSReport
from surecast.scenario import System
from surecast.simulation.experiment import Progress, check_at_least_one
from surecast.simulation.reliability.compiled.compiled_plan import CompiledPlan
from surecast.simulation.reliability.compiled.compiled_run import simulate_run
from surecast.simulation.reliability.compiled.compiled_simulation import lay_out, report_head
from surecast.simulation.reliability.compiled.outcomes import (
    KINDS,
    OUTCOMES,
    CompiledRunResult,
    ReliabilitySettings,
    SchemeAccounts,
)
from surecast.simulation.reliability.compiled.simulated_reliability_report import build_report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["RUNS_PER_BLOCK", "simulate_on_spark"]

RUNS_PER_BLOCK: Final = 64
SCHEMA: Final = pa.schema(
    [
        ("run", pa.int64()),
        ("scheme", pa.string()),
        ("published", pa.int64()),
        ("outcomes", pa.list_(pa.int64())),
        ("delay_s", pa.list_(pa.float64())),
        ("messages", pa.list_(pa.int64())),
    ]
)
"""One row for each run and scheme. `outcomes` has, interest by interest, the counts of `OUTCOMES`; `delay_s` the sum of
delays of each interest; `messages` the counts of `KINDS`."""


@dataclass(frozen=True)
class _Task:
    """All that a run needs, as it is sent to the workers."""

    plan: CompiledPlan
    settings: ReliabilitySettings

    def __call__(self, numbers: NDArray[np.int64]) -> pa.Table:
        rows = []
        for run in numbers.tolist():
            result = simulate_run(self.plan, self.settings, {}, run)
            rows += [
                {
                    "run": run,
                    "scheme": scheme,
                    "published": result.published,
                    "outcomes": accounts.outcomes.ravel().tolist(),
                    "delay_s": accounts.delay_s.tolist(),
                    "messages": accounts.messages.tolist(),
                }
                for scheme, accounts in result.accounts.items()
            ]
        return pa.Table.from_pylist(rows, schema=SCHEMA)


def simulate_on_spark(
    spark: SparkSession,
    system: System,
    storage: str,
    schemes: Sequence[str] | None = None,
    *,
    runs: int,
    duration_s: float,
    seed: int,
    warm_up_s: float = 0.0,
    block: int = RUNS_PER_BLOCK,
    resume: bool = True,
    progress: Progress | None = None,
) -> QoSReport:
    """Returns the report of `simulate_reliability`, its runs shared by the cores of a cluster and kept in `storage`."""
    check_at_least_one("runs", runs)
    settings = ReliabilitySettings.of(system, schemes, duration_s=duration_s, warm_up_s=warm_up_s, seed=seed)
    plan = lay_out(system)
    sweep = Sweep(storage, _fingerprint(system, settings), runs, block, SCHEMA)
    rows = run_blocks(spark, sweep, _Task(plan, settings), resume=resume, progress=progress)
    accounts: dict[int, dict[str, SchemeAccounts]] = {}
    published: dict[int, int] = {}
    for row in rows.to_table().to_pylist():
        outcomes = np.array(row["outcomes"], np.int64).reshape(-1, len(OUTCOMES))
        messages = np.array(row["messages"], np.int64).reshape(len(KINDS))
        accounts.setdefault(row["run"], {})[row["scheme"]] = SchemeAccounts(
            outcomes, np.array(row["delay_s"], float), messages
        )
        published[row["run"]] = row["published"]
    results = [
        CompiledRunResult(published[run], {scheme: accounts[run][scheme] for scheme in settings.schemes})
        for run in range(runs)
    ]
    return build_report(plan, settings, results, report_head(plan, settings, runs))


def _fingerprint(system: System, settings: ReliabilitySettings) -> str:
    # Filter classes have no part in these runs, and long arrays are not written out in full.
    described = replace(system, class_workload=None)
    return hashlib.sha256(f"{described!r} {asdict(settings)!r}".encode()).hexdigest()
