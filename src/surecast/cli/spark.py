"""Options of commands that can work on Spark."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from surecast.errors import ConfigurationError

if TYPE_CHECKING:
    from surecast.pipeline import ServerSettings

__all__ = ["SparkOptions", "spark_folder", "spark_settings"]


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
