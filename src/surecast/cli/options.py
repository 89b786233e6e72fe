"""Options and arguments that several commands share."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, overload

import typer

from surecast.errors import ConfigurationError

__all__ = ["AsJson", "Overrides", "ScenarioFile", "parse_overrides", "seconds_of"]

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


def parse_overrides(texts: list[str] | None) -> dict[str, str]:
    """Fields and values of repeated --set options."""
    fields: dict[str, str] = {}
    for text in texts or []:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise ConfigurationError(f"--set {text}: write --set FIELD=VALUE, such as --set seed=7")
        fields[name.strip()] = value.strip()
    return fields


@overload
def seconds_of(option: str, text: str, is_positive: bool = False) -> float: ...


@overload
def seconds_of(option: str, text: str | None, is_positive: bool = False) -> float | None: ...


def seconds_of(option: str, text: str | None, is_positive: bool = False) -> float | None:
    """The seconds of a duration that was given as an option; None where it was not."""
    from surecast.documents.units import parse_duration

    if text is None:
        return None
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise ConfigurationError(f"{option}: {error}") from None
    if is_positive and not 0.0 < seconds < math.inf:
        raise ConfigurationError(f"{option} {text}: give a time above 0, such as 200ms, or leave it out")
    return seconds
