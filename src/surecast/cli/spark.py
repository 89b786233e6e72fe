"""Options of commands that can work on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from surecast.errors import ConfigurationError

__all__ = ["SparkMaster", "spark_folder"]

SparkMaster = Annotated[
    str | None,
    typer.Option(
        "--spark",
        metavar="MASTER",
        help="Share the work on Spark: local[4], spark://HOST:PORT, or a Spark Connect server, sc://HOST:PORT.",
    ),
]


def spark_folder(path: Path | None, option: str = "--out") -> Path:
    """The folder that all machines of the cluster write to; refuses none, and a file."""
    if path is None:
        raise ConfigurationError(
            f"--spark: name a folder for the results with {option}; all machines of the cluster must see it"
        )
    if path.is_file():
        raise ConfigurationError(f"{option} {path}: this is a file; with --spark the results are a folder of files")
    if not path.absolute().parent.is_dir():
        raise ConfigurationError(f"{option} {path}: the folder {path.parent} does not exist; create it first")
    return path.absolute()
