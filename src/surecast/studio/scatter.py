"""One report against another: a point for each thing both speak of, and the line on which they agree."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from surecast.errors import ConfigurationError
from surecast.studio import wording
from surecast.studio.chart import Axis, Chart, Hover, Layer, Line, Points
from surecast.studio.draw import draw_chart
from surecast.studio.style import clean, colours_of, shorten

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from surecast.studio.page import Cell, Section, Table

__all__ = ["ScatterGroup", "scatter"]


@dataclass(frozen=True)
class ScatterGroup:
    """Points under one label, such as one delivery scheme.

    `low` and `high` bound an interval of `y`; where there is none for a point, they are NaN. `names` say what each
    point is about.
    """

    label: str
    x: Sequence[float] | NDArray[np.float64]
    y: Sequence[float] | NDArray[np.float64]
    low: Sequence[float] | NDArray[np.float64] | None = None
    high: Sequence[float] | NDArray[np.float64] | None = None
    names: Sequence[str] = field(default=())


class _Series(NamedTuple):
    """A group, checked: arrays of one length, and how far y is from x."""

    label: str
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    low: NDArray[np.float64] | None
    high: NDArray[np.float64] | None
    names: tuple[str, ...]
    error_mean: float
    error_max: float
    worst: int


@dataclass(frozen=True)
class _Comparison:
    """All that a scatter shows; `low` and `high` bound both axes."""

    title: str
    x_label: str
    y_label: str
    unit: str
    caption: str
    series: tuple[_Series, ...]
    low: float
    high: float

    @property
    def axes(self) -> tuple[str, str]:
        """The labels of both axes, with their unit."""
        unit = f" ({self.unit})" if self.unit else ""
        return clean(self.x_label + unit), clean(self.y_label + unit)

    @property
    def error_unit(self) -> str:
        """The unit of differences: two percentages differ by percentage points."""
        return "percentage points" if self.unit == "%" else clean(self.unit)

    def legend(self, series: _Series) -> str:
        """Returns a group's name and number of points, and under it its mean and largest error."""
        name = f"{shorten(series.label, 34)} ({wording.count(len(series.x), 'point')})"
        sizes = (wording.number(series.error_mean), wording.number(series.error_max))
        mean, largest = (f"{size} {self.error_unit}".rstrip() for size in sizes)
        return f"{name}\nmean error {mean}, largest {largest}"


def scatter(
    points: Sequence[ScatterGroup],
    path: Path | str,
    *,
    x_label: str,
    y_label: str,
    unit: str = "",
    title: str | None = None,
    caption: str = "",
    width: int = 1280,
    dark: bool = False,
) -> Path:
    """Draws y against x on equal axes, with the diagonal on which both agree, and returns the file's path.

    The legend gives each group's mean and largest distance between x and y. `unit` is that of both axes, such as
    ``"s"``. The suffix decides the kind of file: ``.html`` is an interactive page with the numbers to save, ``.svg``
    and ``.png`` are pictures. `width` is that of a PNG in pixels; `dark` draws on a dark ground.

    >>> from tempfile import TemporaryDirectory
    >>> bypass = ScatterGroup("bypass", x=[0.90, 0.95], y=[0.91, 0.95], names=["s1", "s2"])
    >>> with TemporaryDirectory() as folder:
    ...     scatter([bypass], f"{folder}/a.svg", x_label="predicted", y_label="simulated").name
    'a.svg'
    """
    comparison = _compared(points, title or f"{y_label} against {x_label}", x_label, y_label, unit, caption)
    return draw_chart(_chart(comparison), path, width=width, dark=dark, sections=_sections(comparison))


def _chart(comparison: _Comparison) -> Chart:
    points = sum(len(series.x) for series in comparison.series)
    ends = (comparison.low, comparison.high)
    layers: list[Layer] = [Line("both agree", ends, ends, colour="ink", width_px=1.5, dashed=True, hover=())]
    colours = colours_of([series.label for series in comparison.series])
    layers += [
        Points(
            comparison.legend(series),
            series.x,
            series.y,
            series.low,
            series.high,
            colour=colours[series.label],
            size_px=10.0 if points <= 60 else 8.0 if points <= 400 else 5.0,
            edge_px=1.0 if points <= 400 else 0.5,
            opacity=0.9,
            hover=[_hover(comparison, series, k) for k in range(len(series.x))],
        )
        for series in comparison.series
    ]
    says = [
        comparison.caption,
        "On the dashed line both agree; the further a point lies from it, the more they differ.",
    ]
    if any(series.low is not None for series in comparison.series):
        says.append("Vertical bars are intervals.")
    x_label, y_label = comparison.axes
    return Chart(
        layers,
        title=comparison.title,
        x=Axis(x_label, ends=ends),
        y=Axis(y_label, ends=ends),
        caption=" ".join(text for text in says if text),
        form="square",
        ratio=0.64,
        height_px_min=460,
        about=f"a scatter plot of {wording.count(points, 'point')}.",
    )


def _hover(comparison: _Comparison, series: _Series, k: int) -> Hover:
    unit = f" {comparison.unit}" if comparison.unit else ""
    lines = [
        series.names[k],
        series.label,
        f"{comparison.x_label}: {series.x[k]:.6g}{unit}",
        f"{comparison.y_label}: {series.y[k]:.6g}{unit}",
    ]
    if series.low is not None and series.high is not None and math.isfinite(series.low[k] + series.high[k]):
        lines.append(f"interval: {series.low[k]:.6g} to {series.high[k]:.6g}{unit}")
    return tuple(lines)


def _sections(comparison: _Comparison) -> list[Section]:
    from surecast.studio.page import Downloads, Heading, Table

    unit = f" ({comparison.error_unit})" if comparison.unit else ""
    header = ["Group", "Points", f"Mean error{unit}", f"Largest error{unit}", "Largest at"]
    rows: list[list[Cell]] = [
        [s.label, len(s.x), s.error_mean, s.error_max, s.names[s.worst]] for s in comparison.series
    ]
    errors = Table(header, rows, f"How far {comparison.y_label} is from {comparison.x_label}")
    return [Heading("Errors"), errors, Downloads(errors, "errors"), Downloads(_point_table(comparison), "points")]


def _point_table(comparison: _Comparison) -> Table:
    from surecast.studio.page import Table

    rows: list[list[Cell]] = []
    for s in comparison.series:
        for k in range(len(s.x)):
            interval = [None if v is None or not math.isfinite(v[k]) else float(v[k]) for v in (s.low, s.high)]
            rows.append([s.label, s.names[k], float(s.x[k]), float(s.y[k]), *interval])
    return Table(["Group", "Name", "x", "y", "Low", "High"], rows, "All points")


def _compared(
    groups: Sequence[ScatterGroup], title: str, x_label: str, y_label: str, unit: str, caption: str
) -> _Comparison:
    import numpy as np

    series = tuple(_checked(group) for group in groups if len(group.x) or len(group.y))
    if not series:
        raise ConfigurationError("nothing to compare: give at least one group with at least one point")
    arrays = [values for s in series for values in (s.x, s.y, s.low, s.high) if values is not None]
    everything = np.concatenate(arrays)
    everything = everything[np.isfinite(everything)]
    low, high = float(everything.min()), float(everything.max())
    pad = 0.05 * (high - low) or 0.05 * abs(high) or 0.05
    return _Comparison(title, x_label, y_label, unit, caption, series, low - pad, high + pad)


def _checked(group: ScatterGroup) -> _Series:
    import numpy as np

    where = f"group {group.label!r}"
    x, y = (np.asarray(values, dtype=np.float64) for values in (group.x, group.y))
    low, high = (None if v is None else np.asarray(v, dtype=np.float64) for v in (group.low, group.high))
    for name, values in (("y", y), ("low", low), ("high", high), ("names", group.names or None)):
        if values is not None and len(values) != len(x):
            raise ConfigurationError(f"{where}: {len(x)} x but {len(values)} {name}: give one of each for every point")
    names = tuple(group.names) or tuple(f"point {i + 1}" for i in range(len(x)))
    wrong = ~(np.isfinite(x) & np.isfinite(y))
    if wrong.any():
        first = names[int(np.argmax(wrong))]
        raise ConfigurationError(
            f"{where}: {first} has no finite x and y: leave out points that one side does not know"
        )
    if (low is None) != (high is None):
        raise ConfigurationError(f"{where}: an interval needs both low and high")
    if low is not None and high is not None and (low > high).any():
        first = names[int(np.argmax(low > high))]
        raise ConfigurationError(f"{where}: the interval of {first} has its low end above its high end")
    error = np.abs(y - x)
    worst = int(np.argmax(error))
    return _Series(group.label, x, y, low, high, names, float(error.mean()), float(error[worst]), worst)
