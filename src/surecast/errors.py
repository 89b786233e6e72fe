"""The one exception tree: the user's mistakes, the peer's mistakes, and limits that are reached.

Three branches say whose fault it was: the user's (a scenario, a configuration, a command line, a model used
outside its assumptions), the peer's (bytes that break a protocol), or nobody's (a limit was reached).
Every message says what was wrong, where, and what to do.
"""

from __future__ import annotations

import errno
import os
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
    "connection_problem",
    "refuse_unknown",
]


class SurecastError(Exception):
    """Base of everything Surecast raises on purpose."""


class UserError(SurecastError):
    """A request of the user cannot be carried out as written."""


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


def connection_problem(error: Exception, where: str, what: str = "broker") -> str:
    """Returns why a connection to a broker or replica failed, in words and with what to look at.

    >>> connection_problem(ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 1883)"), "127.0.0.1:1883")
    'connection refused: is the broker running at 127.0.0.1:1883?'
    >>> connection_problem(OSError("Multiple exceptions: [Errno 111] Connect call failed"), "localhost:1883", "replica")
    'connection refused: is the replica running at localhost:1883?'
    >>> connection_problem(OSError(113, "Connect call failed"), "10.0.0.9:1883")
    'No route to host'
    >>> connection_problem(ConnectionResetError(), "10.0.0.9:1883")
    'the other side closed the connection at once'
    """
    text = str(error)
    if f"[Errno {errno.ECONNREFUSED}]" in text:
        return f"connection refused: is the {what} running at {where}?"
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    if isinstance(error, ConnectionError) and not text:
        return "the other side closed the connection at once"
    return text or "no answer"


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
