"""Lines, bands and stacked shares over one axis, such as delay against load."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from surecast.errors import ConfigurationError
from surecast.studio.files import checked_path, write_atomically
from surecast.studio.style import theme_for

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Band", "Line", "LineChart", "Mark", "draw_lines"]


@dataclass(frozen=True, slots=True)
class Line:
    """y by x under one label; where y is NaN there is no line. `colour` numbers the series colours, -1 is grey and -2
    a lighter grey. A `faint` line is thin and stays out of the legend. `ends` says what stops the line: it gets a
    cross at its last point."""

    label: str
    x: Sequence[float] | NDArray[np.float64]
    y: Sequence[float] | NDArray[np.float64]
    colour: int = 0
    faint: bool = False
    ends: str = ""


@dataclass(frozen=True, slots=True)
class Band:
    """The area between low and high."""

    label: str
    x: Sequence[float] | NDArray[np.float64]
    low: Sequence[float] | NDArray[np.float64]
    high: Sequence[float] | NDArray[np.float64]
    colour: int = -1


@dataclass(frozen=True, slots=True)
class Mark:
    """A vertical line at x with a word to it."""

    x: float
    text: str


@dataclass(frozen=True, slots=True)
class LineChart:
    """All that a chart of lines shows. `stacked` puts the lines on top of each other, as shares that sum up to 1."""

    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    bands: tuple[Band, ...] = ()
    marks: tuple[Mark, ...] = ()
    stacked: bool = False
    log_x: bool = False
    y_max: float | None = None
    caption: str = ""
    ticks: tuple[float, ...] = field(default=())

    def __post_init__(self) -> None:
        if not self.lines:
            raise ConfigurationError("nothing to draw: give at least one line")
        for line in self.lines:
            if len(line.x) != len(line.y):
                raise ConfigurationError(f"line {line.label!r}: {len(line.x)} x but {len(line.y)} y")

    def end_of(self, line: Line) -> tuple[float, float] | None:
        """Where a line leaves the drawing: its last point, or where it passes the upper edge."""
        points = [(float(x), float(y)) for x, y in zip(line.x, line.y, strict=True) if math.isfinite(y)]
        top = math.inf if self.y_max is None else self.y_max
        before: tuple[float, float] | None = None
        for x, y in points:
            if y > top:
                if before is None:
                    return x, top
                share = (top - before[1]) / (y - before[1])
                return before[0] + share * (x - before[0]), top
            before = x, y
        return before


def draw_lines(chart: LineChart, path: Path | str, *, width: int = 1280, dark: bool = False) -> Path:
    """Draws the chart to an ``.html``, ``.svg`` or ``.png`` file and returns its path.

    `width` is that of a PNG in pixels; `dark` draws on a dark ground.

    >>> from tempfile import TemporaryDirectory
    >>> chart = LineChart("delay", "load", "ms", (Line("one broker", [1.0, 2.0], [3.0, 5.0]),))
    >>> with TemporaryDirectory() as folder:
    ...     draw_lines(chart, f"{folder}/a.svg").name
    'a.svg'
    """
    path = checked_path(path, width)
    suffix = path.suffix.lower()
    if suffix == ".html":
        from surecast.studio.lines_page import line_figure
        from surecast.studio.page import Page, render_page

        return write_atomically(path, render_page(Page(chart.title, [line_figure(chart)], dark=dark)).encode())
    from surecast.studio.lines_picture import lines_picture

    return write_atomically(path, lines_picture(chart, suffix, width, theme_for(dark)))
