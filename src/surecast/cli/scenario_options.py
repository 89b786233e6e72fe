"""Options of the commands that answer questions about a scenario."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from surecast.report import QoSReport
    from surecast.scenario import Scenario

__all__ = ["ReportOutput", "ScenarioInput", "SimulationOptions", "Variants"]


@dataclass(frozen=True, kw_only=True)
class ScenarioInput:
    """A scenario file, and the fields of it that the command line sets."""

    file: ScenarioFile
    overrides: Overrides = None

    def load(self) -> Scenario:
        """Returns the scenario with its fields set."""
        from surecast.scenario import Scenario

        return Scenario.load(self.file, parse_overrides(self.overrides))


@dataclass(frozen=True, kw_only=True)
class Variants:
    """The fault-tolerance schemes, routing algorithms and drop policies to answer for."""

    scheme: SchemeNames = None
    algorithm: AlgorithmNames = None
    policy: PolicyNames = None

    def arguments(self) -> dict[str, Any]:
        """Returns them as `surecast.predict` and `surecast.simulate` take them."""
        return {"schemes": self.scheme, "algorithms": self.algorithm, "policies": self.policy}


@dataclass(frozen=True, kw_only=True)
class SimulationOptions:
    """The options of a simulation: method, runs, duration, seed, workers."""

    method: MethodName = "compiled"
    runs: Runs = None
    duration: Duration = None
    seed: Seed = None
    workers: Workers = 1

    def arguments(self) -> dict[str, Any]:
        """Returns them as `surecast.simulate` takes them."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


@dataclass(frozen=True, kw_only=True)
class ReportOutput:
    """The output options of a report: tables or JSON on standard output, and a file."""

    out: ReportOut = None
    limit: Limit = 10
    json: AsJson = False

    def check(self) -> None:
        """Refuses a file that cannot be written, before any work is done."""
        from surecast.cli.output import check_out

        check_out(self.out)

    def finish(self, report: QoSReport, heading: str = "", *others: Path | None) -> None:
        """Saves and prints a report, under a heading; names the other files that were written, and its own."""
        from surecast.cli.output import print_report, print_saved, save_report

        save_report(report, self.out)
        print_report(report, self.limit, self.json, heading)
        if not self.json:
            print_saved(*others, self.out)
