"""Curves: something over a range, by formula as lines, bands or stacked shares, and by simulation as points with
intervals."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from surecast.errors import ConfigurationError
from surecast.studio.files import checked_path, write_atomically
from surecast.studio.style import theme_for

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    Numbers = Sequence[float] | NDArray[np.float64]

__all__ = ["Band", "Curve", "CurveChart", "Marks", "draw_curves"]

CURVES_MAX = 8


@dataclass(frozen=True)
class Marks:
    """Points beside a line, such as simulated ones; `low` and `high` are the ends of the interval of each."""

    x: Numbers
    y: Numbers
    low: Numbers | None = None
    high: Numbers | None = None


@dataclass(frozen=True)
class Curve:
    """A line through x and y (NaN: a gap), and points that belong to it; a `dashed` one is a bound or a reference.

    `colour` numbers the series colours, -1 is grey and -2 a lighter grey; left out, curves have those of their order.
    A `faint` line is thin, has no points and stays out of the legend. `ends` says what stops the line: it gets a cross
    where it leaves the drawing.
    """

    label: str
    x: Numbers
    y: Numbers
    marks: Marks | None = None
    dashed: bool = False
    stepped: bool = False
    colour: int | None = None
    faint: bool = False
    ends: str = ""


@dataclass(frozen=True)
class Band:
    """The area between low and high, behind the lines."""

    label: str
    x: Numbers
    low: Numbers
    high: Numbers
    colour: int = -2


@dataclass(frozen=True)
class CurveChart:
    """All that a chart of curves shows.

    `level` is a horizontal line, `moment` a vertical one, each with its label. `stacked` puts the curves, which share
    their x, on top of each other as shares of 1. `y_max` cuts the drawing off; `x_ticks` are the only ticks.
    """

    curves: Sequence[Curve]
    _: KW_ONLY
    title: str
    x_label: str
    y_label: str
    caption: str = ""
    bands: Sequence[Band] = ()
    x_log: bool = False
    y_log: bool = False
    x_from_zero: bool = False
    y_from_zero: bool = False
    y_max: float | None = None
    x_ticks: Sequence[float] = ()
    stacked: bool = False
    level: tuple[str, float] | None = None
    moment: tuple[str, float] | None = None

    def __post_init__(self) -> None:
        named = [curve.label for curve in self.named]
        if not named or (len(named) > CURVES_MAX and not self.stacked):
            raise ConfigurationError(f"{len(named)} curves: give 1 to {CURVES_MAX}, which can be told apart")
        for curve in self.curves:
            if not curve.faint and named.count(curve.label) > 1:
                raise ConfigurationError(f"curve {curve.label!r} is given more than once: give each a label of its own")
            _check(curve)
            if self.stacked and list(curve.x) != list(self.curves[0].x):
                raise ConfigurationError(f"curve {curve.label!r}: stacked curves must have the same x")
        for band in self.bands:
            if not len(band.x) == len(band.low) == len(band.high):
                raise ConfigurationError(f"band {band.label!r}: give as many low and high as x")
        if not any(_all_y(curve) for curve in self.curves):
            raise ConfigurationError("nothing to draw: give at least one curve with at least one value")
        for axis, log, all_of in (("x", self.x_log, _all_x), ("y", self.y_log, _all_y)):
            if log and not any(v > 0 for curve in self.curves for v in all_of(curve)):
                raise ConfigurationError(f"a logarithmic {axis} axis needs values above 0")

    @property
    def named(self) -> list[Curve]:
        """The curves that the legend names."""
        return [curve for curve in self.curves if not curve.faint]

    @property
    def coloured(self) -> list[tuple[Curve, int]]:
        """Each curve with the number of its colour."""
        pairs, place = [], 0
        for curve in self.curves:
            pairs.append((curve, (-1 if curve.faint else place) if curve.colour is None else curve.colour))
            place += not curve.faint
        return pairs

    @property
    def x_ends(self) -> tuple[float, float]:
        values = [v for c in self.curves for v in _all_x(c)]
        if self.x_ticks or self.stacked:
            ends = [v for v in (self.x_ticks or values) if v > 0 or not self.x_log]
            if min(ends) < max(ends):
                return min(ends), max(ends)
        if self.moment is not None:
            values.append(self.moment[1])
        low, high = _padded(values, self.x_log, 0.02)
        return (0.0 if self.x_from_zero and not self.x_log else low), high

    @property
    def y_ends(self) -> tuple[float, float]:
        if self.stacked:
            return 0.0, 1.0
        values = [v for c in self.curves for v in _all_y(c)]
        if self.level is not None:
            values.append(self.level[1])
        if self.y_from_zero and not self.y_log:
            low, high = _padded([0.0, *values], False, 0.05)
            low = 0.0 if low > -0.2 * (high - low) and min(values) >= 0 else low
        else:
            low, high = _padded(values, self.y_log, 0.05)
        return low, high if self.y_max is None else self.y_max

    @property
    def about(self) -> str:
        """The meaning of the marks, in words."""
        marks = [c.marks for c in self.curves if c.marks is not None]
        if not marks:
            return self.caption
        bars = any(m.low is not None for m in marks)
        says = "Lines: by formula. Points: simulated" + (", with 95 % intervals." if bars else ".")
        return f"{self.caption} {says}".strip()

    def end_of(self, curve: Curve) -> tuple[float, float] | None:
        """Returns the point at which a curve leaves the drawing: its last point, or where it passes the upper edge.

        >>> steep = Curve("steep", [1.0, 2.0, 3.0], [1.0, 2.0, 12.0])
        >>> CurveChart([steep], title="", x_label="", y_label="", y_max=7.0).end_of(steep)
        (2.5, 7.0)
        """
        points = [(float(x), float(y)) for x, y in zip(curve.x, curve.y, strict=True) if math.isfinite(y)]
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


def _all_x(curve: Curve) -> list[float]:
    return [float(v) for part in (curve, curve.marks) if part is not None for v in part.x]


def _all_y(curve: Curve) -> list[float]:
    values = [float(v) for v in curve.y]
    if curve.marks is not None:
        for part in (curve.marks.y, curve.marks.low, curve.marks.high):
            values += [] if part is None else [float(v) for v in part]
    return [v for v in values if math.isfinite(v)]


def _padded(values: list[float], log: bool, share: float) -> tuple[float, float]:
    """Returns the ends of an axis, with some room; a logarithmic one leaves out values of 0."""
    drawable = [v for v in values if v > 0] if log else values
    low, high = min(drawable), max(drawable)
    if log:
        room = (high / low) ** share if high > low else 1.5
        return low / room, high * room
    room = share * (high - low) or 0.1 * abs(high) or 1.0
    return low - room, high + room


def _check(curve: Curve) -> None:
    where = f"curve {curve.label!r}"
    for prefix, part in (("", curve), ("marks: ", curve.marks)):
        if part is None:
            continue
        if len(part.x) != len(part.y):
            raise ConfigurationError(f"{where}: {prefix}{len(part.x)} x but {len(part.y)} y: give one of each")
        if not all(math.isfinite(v) for v in part.x):
            raise ConfigurationError(f"{where}: {prefix}every x must be finite")
        if any(math.isinf(v) for v in part.y):
            raise ConfigurationError(f"{where}: {prefix}a y is infinite; NaN leaves a gap")
    marks = curve.marks
    if marks is None:
        return
    if (marks.low is None) != (marks.high is None):
        raise ConfigurationError(f"{where}: an interval needs both low and high")
    for ends in (marks.low, marks.high):
        if ends is not None and len(ends) != len(marks.x):
            raise ConfigurationError(f"{where}: {len(marks.x)} points but {len(ends)} ends of intervals")


def draw_curves(chart: CurveChart, path: Path | str, *, width: int = 1280, dark: bool = False) -> Path:
    """Draws a chart and returns the file's path.

    The suffix decides the kind of file: ``.html`` is an interactive page with the numbers to save, ``.svg`` and
    ``.png`` are pictures. `width` is that of a PNG in pixels; `dark` draws on a dark ground.

    >>> from tempfile import TemporaryDirectory
    >>> line = Curve("join probability 0.5", [1.0, 2.0], [10.2, 11.0], Marks([1.0], [10.1], [10.0], [10.3]))
    >>> chart = CurveChart([line], title="Delay", x_label="events/s", y_label="mean delay (s)")
    >>> with TemporaryDirectory() as folder:
    ...     draw_curves(chart, f"{folder}/a.svg").name
    'a.svg'
    """
    path = checked_path(path, width)
    suffix = path.suffix.lower()
    if suffix == ".html":
        from surecast.studio.curves_page import curves_page

        return write_atomically(path, curves_page(chart, dark=dark).encode())
    from surecast.studio.curves_picture import curves_picture

    return write_atomically(path, curves_picture(chart, suffix, width, theme_for(dark)))
