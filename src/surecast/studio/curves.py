"""Curves: something over a range, by formula as a line, and by simulation as points with intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from surecast.errors import ConfigurationError
from surecast.studio.files import checked_path, write_atomically
from surecast.studio.style import clean, theme_for

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    Numbers = Sequence[float] | NDArray[np.float64]

__all__ = ["Curve", "CurveChart", "Marks", "curve_chart", "curves"]

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

    `colour` numbers the series colours; left out, curves have those of their order.
    """

    label: str
    x: Numbers
    y: Numbers
    marks: Marks | None = None
    dashed: bool = False
    stepped: bool = False
    colour: int | None = None


@dataclass(frozen=True)
class CurveChart:
    """All that a chart of curves shows. `level` is a horizontal line, `moment` a vertical one, each with its label."""

    title: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    caption: str = ""
    x_log: bool = False
    y_log: bool = False
    y_from_zero: bool = False
    level: tuple[str, float] | None = None
    moment: tuple[str, float] | None = None

    @property
    def x_ends(self) -> tuple[float, float]:
        values = [float(v) for c in self.curves for v in _all_x(c)]
        if self.moment is not None:
            values.append(self.moment[1])
        return _padded(values, self.x_log, 0.02)

    @property
    def y_ends(self) -> tuple[float, float]:
        values = [v for c in self.curves for v in _all_y(c)]
        if self.level is not None:
            values.append(self.level[1])
        if self.y_from_zero and not self.y_log:
            low, high = _padded([0.0, *values], False, 0.05)
            return (0.0 if low > -0.2 * (high - low) and min(values) >= 0 else low), high
        return _padded(values, self.y_log, 0.05)

    @property
    def about(self) -> str:
        """What the marks are, in words."""
        marks = [c.marks for c in self.curves if c.marks is not None]
        if not marks:
            return self.caption
        bars = any(m.low is not None for m in marks)
        says = "Lines: by formula. Points: simulated" + (", with 95 % intervals." if bars else ".")
        return f"{self.caption} {says}".strip()


def _all_x(curve: Curve) -> list[float]:
    return [float(v) for part in (curve, curve.marks) if part is not None for v in part.x]


def _all_y(curve: Curve) -> list[float]:
    found = [float(v) for v in curve.y]
    if curve.marks is not None:
        for part in (curve.marks.y, curve.marks.low, curve.marks.high):
            found += [] if part is None else [float(v) for v in part]
    return [v for v in found if math.isfinite(v)]


def _padded(values: list[float], log: bool, share: float) -> tuple[float, float]:
    """The ends of an axis, with some room; on a logarithmic one values of 0 have no place."""
    kept = [v for v in values if v > 0] if log else values
    low, high = min(kept), max(kept)
    if log:
        room = (high / low) ** share if high > low else 1.5
        return low / room, high * room
    room = share * (high - low) or 0.1 * abs(high) or 1.0
    return low - room, high + room


def curve_chart(
    curves: Sequence[Curve],
    *,
    title: str,
    x_label: str,
    y_label: str,
    caption: str = "",
    x_log: bool = False,
    y_log: bool = False,
    y_from_zero: bool = False,
    level: tuple[str, float] | None = None,
    moment: tuple[str, float] | None = None,
) -> CurveChart:
    """The curves as a chart, once they are checked."""
    if not 1 <= len(curves) <= CURVES_MAX:
        raise ConfigurationError(f"{len(curves)} curves: give 1 to {CURVES_MAX}, which can be told apart")
    labels = [curve.label for curve in curves]
    for curve in curves:
        if labels.count(curve.label) > 1:
            raise ConfigurationError(f"curve {curve.label!r} is given more than once: give each a label of its own")
        _check(curve)
    if not any(_all_y(curve) for curve in curves):
        raise ConfigurationError("nothing to draw: give at least one curve with at least one value")
    for what, log, values in (("x", x_log, [_all_x(c) for c in curves]), ("y", y_log, [_all_y(c) for c in curves])):
        if log and not any(v > 0 for some in values for v in some):
            raise ConfigurationError(f"a logarithmic {what} axis needs values above 0")
    return CurveChart(title, x_label, y_label, tuple(curves), caption, x_log, y_log, y_from_zero, level, moment)


def _check(curve: Curve) -> None:
    where = f"curve {curve.label!r}"
    for what, part in (("", curve), ("marks: ", curve.marks)):
        if part is None:
            continue
        if len(part.x) != len(part.y):
            raise ConfigurationError(f"{where}: {what}{len(part.x)} x but {len(part.y)} y: give one of each")
        if not all(math.isfinite(v) for v in part.x):
            raise ConfigurationError(f"{where}: {what}every x must be finite")
        if any(math.isinf(v) for v in part.y):
            raise ConfigurationError(f"{where}: {what}a y is infinite; NaN leaves a gap")
    marks = curve.marks
    if marks is None:
        return
    if (marks.low is None) != (marks.high is None):
        raise ConfigurationError(f"{where}: an interval needs both low and high")
    for ends in (marks.low, marks.high):
        if ends is not None and len(ends) != len(marks.x):
            raise ConfigurationError(f"{where}: {len(marks.x)} points but {len(ends)} ends of intervals")


def curves(
    lines: Sequence[Curve],
    path: Path | str,
    *,
    title: str,
    x_label: str,
    y_label: str,
    caption: str = "",
    x_log: bool = False,
    y_log: bool = False,
    y_from_zero: bool = False,
    level: tuple[str, float] | None = None,
    moment: tuple[str, float] | None = None,
    width: int = 1280,
    dark: bool = False,
) -> Path:
    """Draws curves in one chart and returns the file's path.

    The suffix decides the kind of file: ``.html`` is an interactive page with the numbers to save, ``.svg`` and
    ``.png`` are pictures. `level` and `moment` are a horizontal and a vertical line with a label, such as a target.
    `width` is that of a PNG in pixels; `dark` draws on a dark ground.

    >>> from tempfile import TemporaryDirectory
    >>> line = Curve("join probability 0.5", [1.0, 2.0], [10.2, 11.0], Marks([1.0], [10.1], [10.0], [10.3]))
    >>> with TemporaryDirectory() as folder:
    ...     curves([line], f"{folder}/a.svg", title="Delay", x_label="events/s", y_label="mean delay (s)").name
    'a.svg'
    """
    path = checked_path(path, width)
    chart = curve_chart(
        lines,
        title=title,
        x_label=clean(x_label),
        y_label=clean(y_label),
        caption=caption,
        x_log=x_log,
        y_log=y_log,
        y_from_zero=y_from_zero,
        level=level,
        moment=moment,
    )
    suffix = path.suffix.lower()
    if suffix == ".html":
        from surecast.studio.curves_page import curves_page

        return write_atomically(path, curves_page(chart, dark=dark).encode())
    from surecast.studio.curves_picture import curves_picture

    return write_atomically(path, curves_picture(chart, suffix, width, theme_for(dark)))
