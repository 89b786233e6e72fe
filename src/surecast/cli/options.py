"""Options and arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from surecast.errors import ConfigurationError

__all__ = [
    "AlgorithmNames",
    "AsJson",
    "Duration",
    "Limit",
    "MethodName",
    "Overrides",
    "Pictures",
    "PolicyNames",
    "ReportOut",
    "Runs",
    "ScenarioFile",
    "SchemeNames",
    "Seed",
    "TimeScale",
    "Workers",
    "parse_overrides",
]

ScenarioFile = Annotated[
    Path, typer.Argument(metavar="SCENARIO", help="A scenario file.", show_default=False, readable=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON in place of tables.")]
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
