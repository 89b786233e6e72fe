"""The description of a chart, from which a page and a picture are drawn alike.

A chart is layers over two axes. A layer has a label, numbers, and a look: a colour by number or by role, and sizes in
pixels of a page. Layers of one label are one thing: they share a colour and an entry of the legend.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Literal

from surecast.errors import ConfigurationError
from surecast.studio.style import colours_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = Sequence[float] | NDArray[np.float64]

__all__ = [
    "Area",
    "Axis",
    "Bars",
    "Chart",
    "Colour",
    "ColourScale",
    "Hover",
    "Layer",
    "Line",
    "Names",
    "Paths",
    "Points",
    "RuleLine",
    "Span",
    "number_text",
    "ticks_between",
]

Colour = int | str
"""The number of a colour of the series, or the name of another colour of the theme."""
Hover = tuple[str, ...]
"""Lines on one mark, which a page shows when the reader points at it; the first is its name."""
SERIES_MAX = 9
DECADES_FULL_MAX = 3
FEW_POINTS, MANY_POINTS = 60, 200


@dataclass(frozen=True)
class Line:
    """A line through x and y (NaN: a gap); `stepped` stays until it changes, `dashed` is a bound or a reference.

    `how` says where the numbers come from, such as "by formula".
    """

    label: str
    x: Numbers
    y: Numbers
    _: KW_ONLY
    colour: Colour | None = None
    width_px: float = 2.2
    opacity: float = 1.0
    dashed: bool = False
    stepped: bool = False
    how: str = ""
    in_legend: bool = True
    hover: Sequence[Hover] | None = None


@dataclass(frozen=True)
class Area:
    """The area between `low` and `high`, behind the lines."""

    label: str
    x: Numbers
    low: Numbers
    high: Numbers
    _: KW_ONLY
    colour: Colour | None = "grid"
    hover: Sequence[Hover] = ()
    in_legend: bool = True


@dataclass(frozen=True)
class Points:
    """Marks at x and y. `low` and `high` are the ends of an interval of y, or of x with `across`; NaN: none.

    `shades` colours each by its place on the colour scale, from 0 to 1.
    """

    label: str
    x: Numbers
    y: Numbers
    low: Numbers | None = None
    high: Numbers | None = None
    _: KW_ONLY
    across: bool = False
    colour: Colour | None = None
    shades: Numbers | None = None
    symbol: str = ""
    hollow: bool = False
    size_px: float | Numbers = 8.0
    edge: Colour = "surface"
    edge_px: float = 1.0
    opacity: float = 1.0
    how: str = ""
    in_legend: bool = True
    hover: Sequence[Hover] | None = None

    @property
    def interval_opacity(self) -> float:
        """The opacity of the intervals: where there are many they are the ground, not the drawing."""
        return 0.7 if len(self.x) <= FEW_POINTS else 0.3 if len(self.x) <= MANY_POINTS else 0.12


@dataclass(frozen=True)
class Bars:
    """Horizontal bars from zero to `values` at the heights `places`, with a text at the end of each."""

    label: str
    places: Numbers
    values: Numbers
    texts: Sequence[str]
    _: KW_ONLY
    thickness: float = 0.72
    colour: Colour | None = None
    marked: int | None = None
    """The bar in the colour of attention."""
    in_legend: bool = True
    hover: Sequence[Hover] = ()


@dataclass(frozen=True)
class Paths:
    """Many curves of one look. `avoid` says how much names keep off; `cased` sets them off from what they cross."""

    label: str
    paths: Sequence[NDArray[np.float64]]
    _: KW_ONLY
    colour: Colour
    width_px: float
    opacity: float = 1.0
    cased: bool = False
    avoid: float = 0.0
    in_legend: bool = True


@dataclass(frozen=True)
class Names:
    """Names beside marks at `xy`, each where there is room; of two Names the later ones are placed first.

    `radii_px` are those of the marks, `sides` the preferred places, `seconds` a second line where there is room.
    `centred` names stand on their place or nowhere.
    """

    texts: Sequence[str]
    xy: NDArray[np.float64]
    _: KW_ONLY
    radii_px: Numbers
    sides: Sequence[str]
    seconds: Sequence[str] = ()
    quiet: bool = False
    centred: bool = False


Layer = Line | Area | Points | Bars | Paths | Names


@dataclass(frozen=True)
class RuleLine:
    """A line across the whole chart at a value of y, or `upright` at one of x, with its name at its end."""

    label: str
    value: float
    upright: bool = True
    dashed: bool = False
    colour: Colour = "ink"


@dataclass(frozen=True)
class Span:
    """A stretch of x in the colour of attention."""

    low: float
    high: float


@dataclass(frozen=True)
class Axis:
    """An axis: its `title` is the quantity with its unit in brackets.

    `ends` fix it, `high` its upper end; otherwise it holds all layers, and zero if `from_zero`. `ticks` are its only
    ticks, each with its text; `whole` has ticks at whole numbers only. Without `ruled` there are no lines across the
    chart, and a `hidden` axis is not drawn.
    """

    title: str = ""
    _: KW_ONLY
    ends: tuple[float, float] | None = None
    high: float | None = None
    log: bool = False
    from_zero: bool = False
    ticks: Sequence[tuple[float, str]] = ()
    whole: bool = False
    ruled: bool = True
    hidden: bool = False


@dataclass(frozen=True)
class ColourScale:
    """The meaning of the shades: a title, and texts at some places from 0 to 1."""

    title: str
    ticks: tuple[tuple[float, str], ...]


@dataclass(frozen=True)
class Chart:
    """All that a chart shows.

    `lines` stand under the title of a picture, `caption` says what to see. `form` is "free"; "square", where both axes
    have one quantity; "plane", where a unit is as long across as upwards; or "layers", for a tree with its names at the
    right. Height is `ratio` times the width of a wide page, and at least `height_px_min`.
    """

    layers: Sequence[Layer]
    _: KW_ONLY
    title: str
    x: Axis
    y: Axis
    caption: str = ""
    lines: Sequence[str] = ()
    rules: Sequence[RuleLine] = ()
    spans: Sequence[Span] = ()
    scale: ColourScale | None = None
    form: Literal["free", "square", "plane", "layers"] = "free"
    ratio: float = 0.5
    height_px_min: int = 420
    about: str = ""
    """A sentence on what is shown, for who cannot see it."""
    x_ends: tuple[float, float] = field(init=False, compare=False)
    y_ends: tuple[float, float] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        for layer in self.layers:
            _check(layer)
        crowd = [label for label in self._by_order if label in self.entries]
        if len(crowd) > SERIES_MAX:
            raise ConfigurationError(f"{len(crowd)} series: at most {SERIES_MAX} can be told apart")
        xs = [float(v) for layer in self.layers for part in _x_parts(layer) for v in part]
        ys = [float(v) for layer in self.layers for part in _y_parts(layer) for v in part]
        if not any(map(math.isfinite, ys)):
            raise ConfigurationError("nothing to draw: give at least one series with at least one value")
        object.__setattr__(self, "x_ends", _ends(self.x, xs, [r.value for r in self.rules if r.upright], "x", 0.02))
        object.__setattr__(self, "y_ends", _ends(self.y, ys, [r.value for r in self.rules if not r.upright], "y", 0.05))

    @property
    def labels(self) -> list[str]:
        """The labels of all layers, each once."""
        return list(dict.fromkeys(layer.label for layer in self.layers if not isinstance(layer, Names)))

    @property
    def entries(self) -> list[str]:
        """The labels of the legend: none where one thing is shown. References and a drawing's ground come last."""
        named = [layer for layer in self.layers if not isinstance(layer, Names) and layer.in_legend and layer.label]
        if self.form in ("plane", "layers"):
            named.reverse()
        else:
            named.sort(key=lambda layer: layer.colour in ("grid", "ink", "muted"))
        entries = list(dict.fromkeys(layer.label for layer in named))
        return entries if len(entries) > 1 else []

    @property
    def _by_order(self) -> list[str]:
        """The labels whose colour is not said by a layer."""
        said = {layer.label for layer in self.layers if not isinstance(layer, Names) and layer.colour is not None}
        return [label for label in self.labels if label not in said]

    def colour(self, layer: Line | Area | Points | Bars | Paths) -> Colour:
        """Returns the colour of a layer: its own, that of its label on all charts, or the next that is free."""
        if layer.colour is not None:
            return layer.colour
        same = (other.colour for other in self.layers if not isinstance(other, Names) and other.label == layer.label)
        said = next((colour for colour in same if colour is not None), None)
        return colours_of(self._by_order)[layer.label] if said is None else said

    def share(self, x: float) -> float:
        """Returns the position of x between the ends of its axis, from 0 to 1."""
        low, high = self.x_ends
        if self.x.log:
            low, high, x = math.log10(low), math.log10(high), math.log10(x)
        return (x - low) / (high - low)


def number_text(value: float) -> str:
    """Returns a number as pages write it in full.

    >>> number_text(12345.678), number_text(0.125)
    ('12,346', '0.125')
    """
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.6g}"


def ticks_between(axis: Axis, low: float, high: float, wanted: int = 7) -> list[tuple[float, str]]:
    """Returns the ticks of an axis within its ends: its own, or round numbers.

    >>> [text for _, text in ticks_between(Axis(), 0.0, 2000.0, 4)]
    ['0', '500', '1,000', '1,500', '2,000']
    >>> [text for _, text in ticks_between(Axis(log=True), 0.8, 30.0)]
    ['1', '2', '5', '10', '20']
    """
    low, high = sorted((low, high))
    room = 1e-9 * (high - low)
    if axis.ticks:
        return [tick for tick in axis.ticks if low - room <= tick[0] <= high + room]
    if axis.log:
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        steps = (1, 2, 5) if math.log10(high / low) <= DECADES_FULL_MAX else (1,)
        values = [step * 10.0**decade for decade in decades for step in steps]
        return [(value, f"{value:,.10g}") for value in values if low - room <= value <= high + room]
    raw = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1.0, 2.0, 2.5, 5.0, 10.0) if m * power >= raw * 0.999)
    if axis.whole:
        step = max(1.0, math.ceil(step))
    first, last = math.ceil((low - room) / step), math.floor((high + room) / step)
    return [(k * step, f"{round(k * step, 12):,.12g}") for k in range(first, last + 1)]


def _ends(axis: Axis, values: list[float], rules: list[float], name: str, room: float) -> tuple[float, float]:
    """Returns the ends of an axis."""
    if axis.ends is not None and axis.ends[0] != axis.ends[1]:
        return axis.ends
    values = [v for v in (*values, *rules) if math.isfinite(v) and (v > 0 or not axis.log)]
    if not values:
        raise ConfigurationError(f"a logarithmic {name} axis needs values above 0")
    low, high = min(values), max(values)
    if axis.log:
        factor = (high / low) ** room if high > low else 1.5
        low, high = low / factor, high * factor
    elif axis.from_zero and low >= 0.0:
        low, high = 0.0, high * (1 + room) or 1.0
    else:
        low, high = (min(0.0, low), max(0.0, high)) if axis.from_zero else (low, high)
        more = room * (high - low) or 0.1 * abs(high) or 1.0
        low, high = low - more, high + more
    return low, high if axis.high is None else axis.high


def _x_parts(layer: Layer) -> list[Numbers]:
    match layer:
        case Points():
            ends = (layer.low, layer.high) if layer.across else ()
            return [layer.x, *(part for part in ends if part is not None)]
        case Bars():
            return [[0.0], layer.values]
        case Paths():
            return [path[:, 0] for path in layer.paths]
        case Names():
            return [layer.xy[:, 0]]
        case _:
            return [layer.x]


def _y_parts(layer: Layer) -> list[Numbers]:
    match layer:
        case Line():
            return [layer.y]
        case Points():
            ends = () if layer.across else (layer.low, layer.high)
            return [layer.y, *(part for part in ends if part is not None)]
        case Area():
            return [layer.low, layer.high]
        case Bars():
            return [layer.places]
        case Paths():
            return [path[:, 1] for path in layer.paths]
        case Names():
            return [layer.xy[:, 1]]


def _check(layer: Layer) -> None:
    """Refuses what cannot be drawn, and names the series."""
    if not isinstance(layer, Line | Area | Points):
        return
    where = f"series {layer.label!r}"
    columns = {"y": layer.y} if not isinstance(layer, Area) else {}
    if not isinstance(layer, Line):
        if (layer.low is None) != (layer.high is None):
            raise ConfigurationError(f"{where}: an interval needs both low and high")
        columns |= {name: part for name, part in (("low", layer.low), ("high", layer.high)) if part is not None}
    for name, part in columns.items():
        if len(part) != len(layer.x):
            raise ConfigurationError(f"{where}: {len(layer.x)} x but {len(part)} {name}: give one of each")
    if not all(math.isfinite(v) for v in layer.x) and isinstance(layer, Line):
        raise ConfigurationError(f"{where}: every x must be finite")
    if any(math.isinf(v) for part in columns.values() for v in part):
        raise ConfigurationError(f"{where}: a y is infinite; NaN leaves a gap")
