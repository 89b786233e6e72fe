"""The one exception tree: the user's mistakes, the peer's mistakes, and limits that are reached.

Three branches say whose fault it was: the user's (a scenario, a configuration, a command line, a model used
outside its assumptions), the peer's (bytes that break a protocol), or nobody's (a limit was reached).
Every message says what was wrong, where, and what to do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass

__all__ = [
    "AssumptionError",
    "ConfigurationError",
    "FileError",
    "OverloadError",
    "PeerError",
    "Problem",
    "SaturationError",
    "ScenarioError",
    "SurecastError",
    "TopologyError",
    "TraceError",
    "UserError",
    "refuse_unknown",
]


class SurecastError(Exception):
    """Base of everything Surecast raises on purpose."""


class UserError(SurecastError):
    """What the user asked for cannot be done as written."""


class ConfigurationError(UserError):
    """A command line or a configuration file is wrong."""


class AssumptionError(UserError):
    """A model was asked about a system outside its assumptions; the message names the component."""


class SaturationError(AssumptionError):
    """A component of the described system gets more than it can carry: no queue is stable, so there is no answer.

    The message names the component, its load and its capacity. Commands exit with status 3.
    """


class PeerError(SurecastError):
    """The other side of a connection broke the protocol."""


class OverloadError(SurecastError):
    """A stated limit was reached; nothing is wrong with the request itself."""


class FileError(UserError):
    """A data file cannot be read: which file, which line where that can be known, and what was expected.

    >>> print(TopologyError("a node without a name", "net.brite", 7))
    net.brite:7: a node without a name
    """

    def __init__(self, message: str, file: str, line: int | None = None):
        self.message = message
        self.file = file
        self.line = line
        super().__init__(f"{file}{f':{line}' if line else ''}: {message}")


class TopologyError(FileError):
    """A topology file cannot be read."""


class TraceError(FileError):
    """An availability trace cannot be read."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a scenario: where it stands, what is wrong, what would be right.

    >>> print(Problem("a.yaml", 7, "overlay.brokers[0].capacity", "-5/s is negative", "write a rate such as 1400/s"))
    a.yaml:7: overlay.brokers[0].capacity: -5/s is negative; write a rate such as 1400/s
    """

    file: str
    line: int | None
    field: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        where = self.file + (f":{self.line}" if self.line else "")
        field = f"{self.field}: " if self.field else ""
        return f"{where}: {field}{self.message}" + (f"; {self.hint}" if self.hint else "")

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


class ScenarioError(UserError):
    """A scenario is wrong in one or more places; `problems` lists them all."""

    def __init__(self, problems: Iterable[Problem]):
        self.problems = sorted(problems, key=lambda p: (p.file, p.line or 0, p.field))
        super().__init__("\n".join(str(p) for p in self.problems))


def refuse_unknown(kind: str, names: Iterable[str], known: Collection[str]) -> None:
    """Refuses the first name that is not among those known, and lists these.

    >>> refuse_unknown("scheme", ["bypass", "hope"], ["bypass", "buffering"])
    Traceback (most recent call last):
    ...
    surecast.errors.ConfigurationError: there is no scheme 'hope'; there are: bypass, buffering
    """
    for name in names:
        if name not in known:
            raise ConfigurationError(f"there is no {kind} {name!r}; there are: {', '.join(known)}")
