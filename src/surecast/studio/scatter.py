"""One report against another: a point for each thing both speak of, and the line on which they agree."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from surecast.errors import ConfigurationError
from surecast.studio import wording
from surecast.studio.files import checked_path, write_atomically
from surecast.studio.style import clean, shorten, theme_for

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

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


class Series(NamedTuple):
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
class Comparison:
    """All that a scatter shows; `low` and `high` bound both axes."""

    title: str
    x_label: str
    y_label: str
    unit: str
    caption: str
    series: tuple[Series, ...]
    low: float
    high: float

    @property
    def axes(self) -> tuple[str, str]:
        """The labels of both axes, with their unit."""
        unit = f" ({self.unit})" if self.unit else ""
        return clean(self.x_label + unit), clean(self.y_label + unit)

    def measured(self, value: float) -> str:
        """Returns a number with its unit."""
        return wording.number(value) + (f" {clean(self.unit)}" if self.unit else "")

    def legend(self, series: Series) -> tuple[str, str]:
        """Returns a group's name and number of points; its mean and largest error."""
        name = f"{shorten(series.label, 34)} ({wording.count(len(series.x), 'point')})"
        return name, f"mean error {self.measured(series.error_mean)}, largest {self.measured(series.error_max)}"


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
    path = checked_path(path, width)
    comparison = _compared(points, title or f"{y_label} against {x_label}", x_label, y_label, unit, caption)
    suffix = path.suffix.lower()
    if suffix == ".html":
        from surecast.studio.scatter_page import scatter_page

        return write_atomically(path, scatter_page(comparison, dark=dark).encode())
    from surecast.studio.scatter_picture import scatter_picture

    return write_atomically(path, scatter_picture(comparison, suffix, width, theme_for(dark)))


def _compared(
    groups: Sequence[ScatterGroup], title: str, x_label: str, y_label: str, unit: str, caption: str
) -> Comparison:
    import numpy as np

    series = tuple(_checked(group) for group in groups if len(group.x) or len(group.y))
    if not series:
        raise ConfigurationError("nothing to compare: give at least one group with at least one point")
    arrays = [values for s in series for values in (s.x, s.y, s.low, s.high) if values is not None]
    everything = np.concatenate(arrays)
    everything = everything[np.isfinite(everything)]
    low, high = float(everything.min()), float(everything.max())
    pad = 0.05 * (high - low) or 0.05 * abs(high) or 0.05
    return Comparison(title, x_label, y_label, unit, caption, series, low - pad, high + pad)


def _checked(group: ScatterGroup) -> Series:
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
    return Series(group.label, x, y, low, high, names, float(error.mean()), float(error[worst]), worst)
