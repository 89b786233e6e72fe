"""The head of a report: its scenario, how it was answered, and its assumptions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

import numpy as np

from surecast.report.figure import SOURCES
from surecast.report.report_errors import ReportError, listing, suggestion

__all__ = ["ReportInfo"]

FORMAT = "surecast-report"
FORMAT_VERSION = 1


@cache
def surecast_version() -> str:
    """Returns the installed version, or `unknown` where the package runs from its source tree."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("surecast")
    except PackageNotFoundError:
        return "unknown"


@dataclass(frozen=True)
class ReportInfo:
    """The head of a report. It holds no time stamp: the same input gives the same bytes.

    `notes` are assumptions made on the way, `warnings` what the reader should worry about, `parameters` a small
    mapping of what the answer depends on besides the scenario.

    >>> ReportInfo("star", "simulated", seed=7, parameters={"runs": 20}).parameters
    {'runs': 20}
    >>> ReportInfo("star", "predicted", parameters={"limit": float("inf")})
    Traceback (most recent call last):
    ...
    surecast.report.report_errors.ReportError: parameters.limit: inf is not a finite number
    """

    scenario: str
    source: str
    seed: int | None = None
    surecast_version: str = field(default_factory=surecast_version)
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.source not in SOURCES:
            raise ReportError(
                f"unknown source {self.source!r}; known are {listing(SOURCES)}{suggestion(self.source, SOURCES)}"
            )
        for field_name, text in (("scenario", self.scenario), ("surecast_version", self.surecast_version)):
            check_text(field_name, text)
        if self.seed is not None and (isinstance(self.seed, bool) or not isinstance(self.seed, int | np.integer)):
            raise ReportError(f"seed: {self.seed!r} is not a whole number")
        if not isinstance(self.parameters, Mapping):
            raise ReportError("parameters: must be a mapping")
        object.__setattr__(self, "seed", None if self.seed is None else int(self.seed))
        object.__setattr__(self, "notes", _texts("notes", self.notes))
        object.__setattr__(self, "warnings", _texts("warnings", self.warnings))
        object.__setattr__(self, "parameters", _plain("parameters", self.parameters))

    def __str__(self) -> str:
        return f"{self.scenario or 'unnamed scenario'}, {self.source}"

    def as_dict(self) -> dict[str, Any]:
        """Returns the head as plain values, ready for JSON."""
        return {**asdict(self), "notes": list(self.notes), "warnings": list(self.warnings)}

    def head(self) -> dict[str, Any]:
        """Returns the head of a report file: its format, and the head of the report."""
        return {"format": FORMAT, "format_version": FORMAT_VERSION, **self.as_dict()}

    @classmethod
    def from_head(cls, head: object) -> ReportInfo:
        """Reads the head of a report file; refuses other files and formats of the future, ignores further keys.

        >>> ReportInfo.from_head({"format": "surecast-report", "format_version": 99})
        Traceback (most recent call last):
        ...
        surecast.report.report_errors.ReportError: it has format version 99, and this Surecast reads up to 1: ...
        """
        if not isinstance(head, Mapping) or head.get("format") != FORMAT:
            kind = head.get("format") if isinstance(head, Mapping) else None
            raise ReportError(f"this is a {kind!r} file, not a QoS report" if kind else "this is not a QoS report")
        version = head.get("format_version")
        if isinstance(version, bool) or not isinstance(version, int) or version < 1:
            raise ReportError(f"format version {version!r} is not a whole number from 1 on: the file is damaged")
        if version > FORMAT_VERSION:
            raise ReportError(
                f"it has format version {version}, and this Surecast reads up to {FORMAT_VERSION}: upgrade Surecast"
            )
        missing = [name for name in cls.__dataclass_fields__ if name not in head]
        if missing:
            raise ReportError(f"the head of the report lacks {listing(missing)}")
        return cls(**{name: head[name] for name in cls.__dataclass_fields__})


def check_text(where: str, text: object) -> str:
    """Refuses what is not text that every file format can hold."""
    if not isinstance(text, str):
        raise ReportError(f"{where}: {text!r} is not text")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ReportError(f"{where}: {text!r} is not valid Unicode") from None
    return text


def _texts(where: str, texts: object) -> tuple[str, ...]:
    if isinstance(texts, str) or not isinstance(texts, list | tuple):
        raise ReportError(f"{where}: must be a list of texts, not {texts!r}")
    return tuple(check_text(f"{where}[{i}]", text) for i, text in enumerate(texts))


def _plain(where: str, value: object) -> object:
    """Returns the value as JSON can hold it exactly; refuses anything else and names its place."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return check_text(where, value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ReportError(f"{where}: {value} is not a finite number")
        return value
    if isinstance(value, Mapping):
        return {check_text(f"{where}, key", key): _plain(f"{where}.{key}", item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(f"{where}[{i}]", item) for i, item in enumerate(value)]
    raise ReportError(f"{where}: {type(value).__name__} cannot be stored; use numbers, texts, lists and mappings")
