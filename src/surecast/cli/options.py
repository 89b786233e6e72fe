"""Options and arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from surecast.errors import ConfigurationError

__all__ = ["AsJson", "Overrides", "ScenarioFile", "parse_overrides"]

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
    found: dict[str, str] = {}
    for text in texts or []:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise ConfigurationError(f"--set {text}: write --set FIELD=VALUE, such as --set seed=7")
        found[name.strip()] = value.strip()
    return found
