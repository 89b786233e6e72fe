"""The content that a stage of the tour gives to the page: a sentence, key figures, pictures with their numbers, and
verdicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from surecast.studio.chart import Chart
from surecast.studio.page import Cell, Table, plain_values

if TYPE_CHECKING:
    from surecast.tour.live_clients import Live

__all__ = [
    "Block",
    "CheckedClaim",
    "CheckedClaims",
    "Code",
    "Key",
    "Picture",
    "Result",
    "SavedTable",
    "StageOutcome",
    "State",
    "Text",
    "Tile",
    "TourContext",
    "Wanted",
    "picture",
    "share",
]

State = Literal["done", "failed", "skipped"]
Wanted = Literal["quick", "full"]
Key = Mapping[str, float | int | str | bool | None]
"""Figures by name, as JSON has them."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A key figure in large letters: what it is, its value with its unit, and a few words more."""

    label: str
    value: str
    more: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph, under a heading where it has one."""

    text: str
    heading: str = ""


@dataclass(frozen=True, slots=True)
class SavedTable:
    """A table that can be saved; `name` is the file's. With `folded` it is shown on request only."""

    table: Table
    name: str
    folded: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """A chart and the numbers behind it."""

    chart: Chart
    numbers: SavedTable


@dataclass(frozen=True, slots=True)
class CheckedClaim:
    """Something that was checked; `holds` is None where it could not be."""

    holds: bool | None
    claim: str
    evidence: str


@dataclass(frozen=True, slots=True)
class CheckedClaims:
    """Checks, one after the other."""

    title: str
    all: tuple[CheckedClaim, ...]


@dataclass(frozen=True, slots=True)
class Code:
    """Text of a file that can be saved under `name`."""

    title: str
    text: str
    name: str


Block = Text | SavedTable | Picture | CheckedClaims | Code


@dataclass(frozen=True, slots=True)
class StageOutcome:
    """The result of a stage. `lead` states it in a sentence or two; `key` are the figures of the summary."""

    lead: str
    tiles: tuple[Tile, ...]
    blocks: tuple[Block, ...]
    key: Key

    @property
    def broken(self) -> list[str]:
        """The checks that do not hold."""
        return [
            verdict.claim
            for block in self.blocks
            if isinstance(block, CheckedClaims)
            for verdict in block.all
            if verdict.holds is False
        ]


@dataclass(frozen=True, slots=True)
class Result:
    """A stage as the page shows it: `why` says why it failed or was skipped."""

    name: str
    title: str
    question: str
    state: State
    seconds: float
    outcome: StageOutcome | None = None
    why: str = ""


Show = Callable[[str, int, int], None]
"""Told what is under way, and how much of how much is done; 0 of 0 where that is not known."""


def _silent(step: str, done: int, total: int) -> None:
    """Shows nothing."""


@dataclass(slots=True)
class TourContext:
    """The state that the stages share: the wanted length, a folder to work in, and results of earlier stages."""

    wanted: Wanted
    work: Path
    out: Path
    show: Show = _silent
    seed: int = 1
    live: Live | None = None
    logs: Path | None = None
    """Folder of the replicas' event logs, of the run that `live` saw."""
    learned: Path | None = None

    @property
    def quick(self) -> bool:
        """True if the tour is to take a minute rather than a few."""
        return self.wanted == "quick"


def picture(chart: Chart, header: Sequence[str], rows: Sequence[Sequence[Cell]], name: str) -> Picture:
    """Returns a chart with the numbers behind it, which are shown on request."""
    plain = [[plain_values(cell) for cell in row] for row in rows]
    return Picture(chart, SavedTable(Table(header, plain, chart.title), name, folded=True))


def share(value: float, digits: int = 1) -> str:
    """Returns a share in percent.

    >>> share(0.8514), share(0.6, 0)
    ('85.1 %', '60 %')
    """
    return f"{100.0 * value:.{digits}f} %"
