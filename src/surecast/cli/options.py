"""Options and arguments that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer

from surecast.errors import ConfigurationError

if TYPE_CHECKING:
    from surecast.pipeline import ServerSettings
    from surecast.report import QoSReport
    from surecast.scenario import Scenario

__all__ = [
    "AlgorithmNames",
    "Alone",
    "AsJson",
    "Duration",
    "Limit",
    "MethodName",
    "Overrides",
    "Pictures",
    "PolicyNames",
    "ReportOut",
    "ReportOutput",
    "Runs",
    "ScenarioFile",
    "ScenarioInput",
    "SchemeNames",
    "Seed",
    "SimulationOptions",
    "SparkOptions",
    "TimeScale",
    "Variants",
    "Workers",
    "parse_overrides",
    "spark_folder",
    "spark_settings",
    "takes_groups",
]

ScenarioFile = Annotated[
    Path, typer.Argument(metavar="SCENARIO", help="A scenario file.", show_default=False, readable=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON in place of tables.")]
Alone = Annotated[
    bool,
    typer.Option("--alone", help="Show each model alone, without what the others add; composed by default."),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="Set a field of the scenario, such as 'overlay.brokers[0].capacity=2000/s'. May be repeated.",
    ),
]
SchemeNames = Annotated[
    list[str] | None,
    typer.Option(
        "--scheme",
        metavar="SCHEME",
        help="A fault-tolerance scheme, such as buffering or bypass, or of coded delivery, such as coding or tree. "
        "May be repeated; all by default.",
    ),
]
AlgorithmNames = Annotated[
    list[str] | None,
    typer.Option(
        "--algorithm",
        metavar="ALGORITHM",
        help="A routing algorithm of filter classes, such as 'peer-to-peer covering'. May be repeated; all by default.",
    ),
]
PolicyNames = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        metavar="POLICY",
        help="A drop policy for subscribers that are not always connected: none, probabilistic, expiry, finite-buffer, "
        "optimal, or all. May be repeated; the scenario's by default.",
    ),
]
Pictures = Annotated[
    list[Path] | None,
    typer.Option(
        "--picture", metavar="PICTURE", help="Draw the answer to a .html, .svg or .png file. May be repeated."
    ),
]
MethodName = Annotated[
    Literal["compiled", "protocol"],
    typer.Option(
        help="compiled: the stochastic process alone, in compiled code; protocol: the real protocol code, much slower."
    ),
]
Runs = Annotated[int | None, typer.Option(min=2, help="Independent runs; by default the scenario's.")]
Duration = Annotated[str | None, typer.Option(help="Simulated time of a run, such as 14d; by default the scenario's.")]
Seed = Annotated[int | None, typer.Option(min=0, help="Seed of the runs; by default the scenario's.")]
Workers = Annotated[
    int, typer.Option(min=1, max=64, help="Processes that share the runs; the result does not depend on it.")
]
TimeScale = Annotated[
    float | None,
    typer.Option(
        metavar="FACTOR",
        help="Seconds of the scenario that pass in one second of real time; rates, failures, connected periods and "
        "lifetimes are faster by this factor. 1 by default.",
    ),
]
ReportOut = Annotated[Path | None, typer.Option("--out", "-o", help="Save the report (.json or .parquet).")]
Limit = Annotated[int, typer.Option(min=0, help="How many components of each scope to list.")]


def parse_overrides(texts: list[str] | None) -> dict[str, str]:
    """Fields and values of repeated --set options."""
    settings: dict[str, str] = {}
    for text in texts or []:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise ConfigurationError(f"--set {text}: write --set FIELD=VALUE, such as --set seed=7")
        settings[name.strip()] = value.strip()
    return settings


def takes_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Replaces each parameter of a command whose type is a dataclass by one option for each of its fields.

    >>> from surecast.cli.options import Limit
    >>> from surecast.cli.options import ScenarioInput
    >>> @takes_groups
    ... def predict(source: ScenarioInput, limit: Limit = 10) -> None:
    ...     print(source.file, limit)
    >>> list(signature(predict).parameters)
    ['file', 'overrides', 'limit']
    >>> predict(file="shop.yaml", overrides=None, limit=3)
    shop.yaml 3
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, type[Any]] = {}
    parameters = []
    for parameter in signature(command).parameters.values():
        annotation = hints[parameter.name]
        if isinstance(annotation, type) and is_dataclass(annotation):
            groups[parameter.name] = annotation
            parameters += _parameters(annotation)
        else:
            parameters.append(parameter.replace(annotation=annotation, kind=Parameter.KEYWORD_ONLY))

    @wraps(command)
    def run(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{each.name: values.pop(each.name) for each in fields(group)})
        command(**values)

    del run.__wrapped__
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _parameters(group: type[Any]) -> list[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        Parameter(
            each.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if each.default is MISSING else each.default,
            annotation=hints[each.name],
        )
        for each in fields(group)
    ]


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
    alone: Alone = False

    def arguments(self) -> dict[str, Any]:
        """Returns them as `surecast.predict` and `surecast.simulate` take them."""
        return {
            "schemes": self.scheme,
            "algorithms": self.algorithm,
            "policies": self.policy,
            "alone": self.alone,
        }


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


@dataclass(frozen=True, kw_only=True)
class SparkOptions:
    """The options of a command whose work Spark can share."""

    spark: Annotated[
        str | None,
        typer.Option(
            metavar="MASTER",
            help="Share the work on Spark: local[4], spark://HOST:PORT, or a Spark Connect server, sc://HOST:PORT.",
        ),
    ] = None
    conf: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="With --spark: a setting with which Spark starts, such as spark.cores.max=4. May be repeated.",
        ),
    ] = None


def spark_folder(path: Path | None, option: str = "--out") -> Path:
    """Returns the folder that all machines of the cluster write to; refuses none, and a file."""
    if path is None:
        raise ConfigurationError(
            f"--spark: name a folder for the results with {option}; all machines of the cluster must see it"
        )
    if path.is_file():
        raise ConfigurationError(f"{option} {path}: this is a file; with --spark results are written to a folder")
    if not path.absolute().parent.is_dir():
        raise ConfigurationError(f"{option} {path}: the folder {path.parent} does not exist; create it first")
    return path.absolute()


def spark_settings(spark: str, conf: list[str] | None) -> ServerSettings:
    """Returns the settings that Spark is started with; refuses settings for a server that runs already."""
    from surecast.cli.pipeline import server_settings

    if spark.startswith("sc://") and conf:
        raise ConfigurationError(f"--conf {conf[0]}: the server at {spark} runs already; give it its settings there")
    return server_settings("local[*]", "1g", None, conf)
