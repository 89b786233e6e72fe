"""Bars: a row for each thing, with values side by side and a target; and the answers of `surecast.planning` as bars."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from surecast.errors import ConfigurationError
from surecast.studio import wording
from surecast.studio.chart import Axis, Bars, Chart, Hover, RuleLine
from surecast.studio.draw import draw_chart
from surecast.studio.style import clean, shorten
from surecast.studio.wording import count

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from surecast.planning import Deployment, HomeChoice, Improvement, ReliabilityPromise, SchemeChoice
    from surecast.studio.page import Cell, Table

__all__ = [
    "BarSeries",
    "bar_rows",
    "bars",
    "common_target",
    "draw_admission",
    "draw_deployment",
    "draw_homes",
    "draw_improvements",
    "draw_schemes",
    "rows_px",
]

ROWS_MAX, BARS_MAX, SERIES_MAX = 40, 120, 6
ROW_LABEL_LENGTH = 32
GROUP_SHARE = 0.78
DECIMALS_MAX = 7
BAR_PX, ROW_PX_MIN, TWO_LINES_PX, ROW_PX_MAX, PLOT_PX_MIN = 19, 26, 36, 64, 240
FRAME_PX = 140


@dataclass(frozen=True)
class BarSeries:
    """Values under one label, such as all those before a change; `names` say what each is about.

    A value that is not known is NaN: its row stays, without a bar.
    """

    label: str
    names: Sequence[str]
    values: Sequence[float] | NDArray[np.float64]


@dataclass(frozen=True)
class _Rows:
    """All values, with a row for each series and a column for each name, NaN for no value, and how they are written."""

    title: str
    value_label: str
    unit: str
    labels: tuple[str, ...]
    names: tuple[str, ...]
    notes: tuple[str, ...]
    values: NDArray[np.float64]
    target: float | None
    target_label: str

    @property
    def rows(self) -> int:
        """The number of rows that are drawn; the others are named in `remainder`."""
        return min(len(self.names), ROWS_MAX, BARS_MAX // len(self.labels))

    @property
    def remainder(self) -> str:
        """The rows that are not drawn, in words; empty if all are."""
        left = len(self.names) - self.rows
        return f"The first {self.rows} of {len(self.names):,} rows are drawn; {left:,} more are not." if left else ""

    @property
    def defined(self) -> NDArray[np.float64]:
        """All values there are."""
        import numpy as np

        return self.values[~np.isnan(self.values)]

    @property
    def axis(self) -> str:
        """The label of the axis of values, with its unit."""
        return clean(self.value_label + (f" ({self.unit})" if self.unit else ""))

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the axis of values: bars begin at zero."""
        drawn = [0.0, *(float(v) for v in self.values[:, : self.rows].ravel() if not math.isnan(v))]
        if self.target is not None:
            drawn.append(self.target)
        low, high = min(drawn), max(drawn)
        more = 0.01 * (high - low)
        return (low - more if low < 0 else 0.0, high + more) if high > low else (0.0, 1.0)

    @property
    def whole(self) -> bool:
        """True if all values are whole numbers, such as counts."""
        return all(float(v).is_integer() for v in self.defined)

    @cached_property
    def decimals(self) -> int:
        """Enough for a thousandth of the largest value and a twentieth of the spread, or for all values in full."""
        largest, spread = float(abs(self.defined).max()), float(self.defined.max() - self.defined.min())
        steps = [step for step in (largest / 1000, spread / 20) if step > 0]
        enough = min(DECIMALS_MAX, max(0, math.ceil(-math.log10(min(steps, default=1.0)))))
        in_full = (n for n in range(enough) if all(round(float(v), n) == v for v in self.defined))
        return next(in_full, enough)

    @property
    def _sign(self) -> str:
        return " %" if self.unit == "%" else ""

    def written(self, value: float) -> str:
        """Returns the text of a value at the end of its bar."""
        if math.isnan(value):
            return "none"
        text = f"{value:.3g}" if abs(value) >= 1e9 else f"{value:,.{self.decimals}f}"
        return text.replace("-", "\N{MINUS SIGN}") + self._sign

    def target_text(self) -> str:
        """Returns the text at the line of the target."""
        if self.target is None:
            return ""
        number = f"{self.target:,.6g}".replace("-", "\N{MINUS SIGN}")
        return f"{shorten(self.target_label, 30)} {number}{self._sign}"

    @cached_property
    def _one_line(self) -> bool:
        """True if every name and its note fit on one line."""
        return all(
            len(clean(n)) + len(clean(m)) + 3 <= ROW_LABEL_LENGTH for n, m in zip(self.names, self.notes, strict=True)
        )

    def row_label(self, row: int) -> list[str]:
        """Returns the name of a row and its note, on one line or two."""
        name, note = clean(self.names[row]), clean(self.notes[row])
        if note and self._one_line:
            return [f"{name} · {note}"]
        if note:
            return [shorten(name, ROW_LABEL_LENGTH), shorten(note, ROW_LABEL_LENGTH)]
        lines = textwrap.wrap(name, ROW_LABEL_LENGTH) or [""]
        return lines if len(lines) < 3 else [lines[0], shorten(" ".join(lines[1:]), ROW_LABEL_LENGTH)]

    def hover(self, series: int, row: int) -> tuple[str, ...]:
        """Returns what a page says about one bar."""
        unit = f" {self.unit}" if self.unit else ""
        value = f"{self.value_label}: {self.values[series, row]:,.6g}{unit}"
        return (*(text for text in (self.names[row], self.notes[row], self.labels[series]) if text), value)

    def place(self, series: int) -> tuple[float, float]:
        """Returns the offset of a bar from the middle of its row, and its thickness; a row has height 1."""
        pitch = GROUP_SHARE / len(self.labels)
        return (series - (len(self.labels) - 1) / 2) * pitch, pitch * 0.92


def bars(
    series: Sequence[BarSeries],
    path: Path | str,
    *,
    title: str,
    value_label: str,
    unit: str = "",
    caption: str = "",
    notes: Mapping[str, str] | None = None,
    target: float | None = None,
    target_label: str = "target",
    width: int = 1280,
    dark: bool = False,
) -> Path:
    """Draws horizontal bars, a row for each name in the order given, and returns the file's path.

    Several series stand side by side in each row; a name that a series lacks has no bar there. `notes` say more on
    some names, under them. `target` is a line across all rows, `target_label` what stands before its number. The
    suffix decides the kind of file: ``.html`` is an interactive page with the numbers to save, ``.svg`` and ``.png``
    are pictures. At most 40 rows are drawn, and what is left out is stated. `width` is that of a PNG in pixels;
    `dark` draws on a dark ground.

    >>> from tempfile import TemporaryDirectory
    >>> before = BarSeries("before", ["b1", "b2"], [0.81, 0.90])
    >>> after = BarSeries("after", ["b1", "b2"], [0.92, 0.91])
    >>> with TemporaryDirectory() as folder:
    ...     bars([before, after], f"{folder}/a.svg", title="Brokers", value_label="reliability", target=0.85).name
    'a.svg'
    """
    path = Path(path)
    if target is not None and not math.isfinite(target):
        raise ConfigurationError(f"a target of {target}: give a finite number, or none")
    names, values = _checked(series)
    remarks = tuple((notes or {}).get(name, "") for name in names)
    labels = tuple(s.label for s in series)
    rows = _Rows(title, value_label, unit, labels, names, remarks, values, target, target_label)
    from surecast.studio.page import Downloads, Heading

    table = _table(rows)
    on_page = path.suffix.lower() == ".html"
    more = f"{rows.remainder}{' The table has all.' if on_page else ''}" if rows.remainder else ""
    chart = _chart(rows, " ".join(text for text in (caption, more) if text))
    sections = (Heading("Numbers"), table, Downloads(table, "numbers")) if on_page else ()
    return draw_chart(chart, path, width=width, dark=dark, sections=sections)


def rows_px(rows: int, bars_in_row: int = 1, two_lines: bool = False) -> int:
    """Returns the height of a chart of bars: room for the bars and the name of each row, more where there are few."""
    least = max(TWO_LINES_PX if two_lines else ROW_PX_MIN, BAR_PX * bars_in_row + 8)
    return round(rows * max(least, min(ROW_PX_MAX, PLOT_PX_MIN / rows))) + FRAME_PX


def _chart(rows: _Rows, caption: str) -> Chart:
    drawn = range(rows.rows)
    layers = []
    for i, label in enumerate(rows.labels):
        aside, thickness = rows.place(i)
        values = rows.values[i, : rows.rows]
        layers.append(
            Bars(
                label,
                [row + aside for row in drawn],
                values,
                [rows.written(float(value)) for value in values],
                thickness=thickness,
                colour=i,
                hover=[rows.hover(i, row) for row in drawn],
            )
        )
    names = ["\n".join(rows.row_label(row)) for row in drawn]
    count, series = wording.count(len(rows.names), "row"), wording.count(len(rows.labels), "series", "series")
    return Chart(
        layers,
        title=rows.title,
        x=Axis(rows.axis, ends=rows.ends, whole=rows.whole),
        y=Axis(ends=(rows.rows - 0.5, -0.5), ticks=tuple(enumerate(names)), ruled=False),
        caption=caption,
        rules=() if rows.target is None else (RuleLine(rows.target_text(), rows.target, dashed=True),),
        ratio=0.0,
        height_px_min=rows_px(rows.rows, len(rows.labels), any("\n" in name for name in names)),
        about=f"a bar chart of {rows.axis} with {count} and {series}.",
    )


def bar_rows(
    names: Sequence[str],
    values: Sequence[float],
    texts: Sequence[str],
    axis: Axis,
    *,
    title: str,
    marked: int | None = None,
    hover: Sequence[Hover] = (),
    caption: str = "",
) -> Chart:
    """Returns a chart of one bar for each name, the one that is `marked` in the colour of attention."""
    places = list(range(len(names)))
    return Chart(
        [Bars(axis.title, places, values, texts, colour=0, marked=marked, hover=hover)],
        title=title,
        x=axis,
        y=Axis(ends=(len(names) - 0.5, -0.5), ticks=tuple(enumerate(names)), ruled=False),
        caption=caption,
        ratio=0.0,
        height_px_min=rows_px(len(names)),
        about=f"bar chart of {axis.title} of {wording.count(len(names), 'row')}.",
    )


def _table(rows: _Rows) -> Table:
    from surecast.studio.page import Table

    def cell(value: float) -> Cell:
        if math.isnan(value):
            return None
        return int(value) if rows.whole else float(value)

    first, last = ("Name", "Note") if not {"Name", "Note"} & set(rows.labels) else ("Row", "Row note")
    noted = any(rows.notes)
    cells: list[list[Cell]] = []
    for row, name in enumerate(rows.names):
        cells.append([name, *(cell(value) for value in rows.values[:, row]), *([rows.notes[row]] if noted else [])])
    return Table([first, *rows.labels, *([last] if noted else [])], cells, rows.axis[:1].upper() + rows.axis[1:])


def _checked(series: Sequence[BarSeries]) -> tuple[tuple[str, ...], NDArray[np.float64]]:
    """Returns the names of all rows, and the values of each series in that order."""
    import numpy as np

    _check(series)
    rows = {name: row for row, name in enumerate(dict.fromkeys(name for s in series for name in s.names))}
    values = np.full((len(series), len(rows)), np.nan)
    for i, s in enumerate(series):
        values[i, [rows[name] for name in s.names]] = s.values
    if np.isnan(values).all():
        raise ConfigurationError("nothing to draw: give at least one series with at least one value")
    return tuple(rows), values


def _check(series: Sequence[BarSeries]) -> None:
    """Refuses what cannot be drawn, and says which series it is."""
    if len(series) > SERIES_MAX:
        raise ConfigurationError(f"{len(series)} series: at most {SERIES_MAX} can be told apart in a row")
    labels = [s.label for s in series]
    for s in series:
        where = f"series {s.label!r}"
        if labels.count(s.label) > 1:
            raise ConfigurationError(f"{where} is given more than once: give each series a label of its own")
        if len(s.names) != len(s.values):
            raise ConfigurationError(f"{where}: {len(s.names)} names but {len(s.values)} values: give one for each")
        names: set[str] = set()
        for name, value in zip(s.names, s.values, strict=True):
            if name in names:
                raise ConfigurationError(f"{where}: {name} has more than one value")
            if math.isinf(value):
                raise ConfigurationError(f"{where}: the value of {name} is infinite; NaN says that there is none")
            names.add(name)


RELIABILITY = "predicted reliability"


def common_target(targets: Iterable[float | None]) -> float | None:
    """Returns the target that all subscribers with one share; None if they differ, or nobody has one.

    >>> common_target([0.9, None, 0.9]), common_target([0.9, 0.8])
    (0.9, None)
    """
    distinct = {target for target in targets if target is not None}
    return distinct.pop() if len(distinct) == 1 else None


def draw_admission(promises: Sequence[ReliabilityPromise], path: Path | str) -> Path:
    """Draws the share of subscribers at each home broker that can be promised their target, the least first.

    Subscribers whose topics nobody publishes are left aside.
    """
    promises = [promise for promise in promises if promise.reliability is not None]
    homes: dict[str, list[ReliabilityPromise]] = {}
    for promise in promises:
        homes.setdefault(promise.home, []).append(promise)
    share, notes = {}, {}
    for home, there in homes.items():
        mean = f"mean {fmean(p.reliability or 0.0 for p in there):.4f}"
        share[home] = round(100 * fmean(p.met for p in there), 1)
        notes[home] = f"{sum(p.met for p in there)} of {len(there)} · {mean}"
    names = sorted(homes, key=lambda home: share[home])
    met, target = sum(p.met for p in promises), common_target(p.target for p in promises)
    wanted = "their targets, which differ" if target is None else f"their target of {target:g}"
    return bars(
        [BarSeries("can be promised", names, [share[name] for name in names])],
        path,
        title="Which home brokers can promise the target",
        value_label="subscribers that can be promised their target",
        unit="%",
        caption=f"{met} of {count(len(promises), 'subscriber')} can be promised {wanted}. "
        "Means are of predicted reliability.",
        notes=notes,
    )


def draw_homes(choice: HomeChoice, path: Path | str, *, limit: int | None = None) -> Path:
    """Draws the number of subscribers of each broker before and after, the best homes first."""
    import numpy as np

    before, after = Counter(choice.before), Counter(choice.after)
    names = sorted({*before, *after}, key=lambda name: (-after[name], -before[name], name))
    was, becomes = (float(np.nanmean(v)) for v in (choice.reliability_before, choice.reliability_after))
    if choice.moved:
        says = (
            f"Moving {choice.moved} of {count(len(choice.subscribers), 'subscriber')} changes the mean predicted "
            f"reliability from {was:.4f} to {becomes:.4f}."
        )
    else:
        says = f"Nobody gains by moving: the mean predicted reliability is {was:.4f}."
    return bars(
        [
            BarSeries("now", names, [before[name] for name in names]),
            BarSeries("with the best homes", names, [after[name] for name in names]),
        ],
        path,
        title="Subscribers at each home broker",
        value_label="subscribers",
        caption=says,
        target=limit,
        target_label="at most",
    )


def draw_improvements(rows: Sequence[Improvement], path: Path | str) -> Path:
    """Draws the gain from repairing each component twice as fast, the best first."""
    names = [f"{row.kind} {row.component}" for row in rows]
    return bars(
        [BarSeries("if repaired twice as fast", names, [row.gain_half_repair for row in rows])],
        path,
        title="Which component to improve first",
        value_label="gain in mean predicted reliability",
        caption="What subscribers gain on average if this one component is repaired twice as fast.",
    )


def draw_schemes(choices: Sequence[SchemeChoice], path: Path | str, *, target: float | None = None) -> Path:
    """Draws the mean and worst reliability with each scheme, the cheapest first."""
    names = [choice.scheme for choice in choices]
    notes = {choice.scheme: f"{choice.messages_per_event:.3g} messages per event" for choice in choices}
    best = [choice.scheme for choice in choices if choice.cheapest]
    if best:
        says = f"The cheapest scheme that meets all targets is {best[0]}."
    else:
        says = "No scheme meets all targets." if choices and choices[0].targets else "There are no targets."
    return bars(
        [
            BarSeries("mean of all subscribers", names, [choice.mean for choice in choices]),
            BarSeries("worst subscriber", names, [choice.worst for choice in choices]),
        ],
        path,
        title="What each scheme gives, the cheapest first",
        value_label=RELIABILITY,
        caption=says,
        notes=notes,
        target=target,
    )


def draw_deployment(plan: Deployment, path: Path | str) -> Path:
    """Draws the number of subscribers still below target after each addition, with the mean reliability."""
    names = ["as it is", *(f"{i}. {addition}" for i, addition in enumerate(plan.additions, 1))]
    below = f"{count(plan.below_target[-1], 'subscriber')} stay{'s' if plan.below_target[-1] == 1 else ''} below target"
    says = f"All targets are met at cost {plan.cost:g}" if plan.met else f"{below} at cost {plan.cost:g}"
    return bars(
        [BarSeries("below target", names, plan.below_target)],
        path,
        title="Subscribers below target after each addition",
        value_label="subscribers below target",
        caption=f"{says}. Each addition comes on top of those above it.",
        notes={name: f"mean reliability {mean:.4f}" for name, mean in zip(names, plan.mean, strict=True)},
    )
