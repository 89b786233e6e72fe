"""Sweeps as pages and pictures: how placements scale with load, and which algorithm is best by load and locality."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from surecast.scenario.summary import short_names
from surecast.studio import wording
from surecast.studio.chart import Area, Axis, Chart, Hover, Layer, Line, Points, RuleLine, number_text
from surecast.studio.page import Bullets, Cell, Downloads, Heading, Page, Paragraph, Section, Table, write_page
from surecast.studio.style import colours_of

Array = NDArray[np.float64]

if TYPE_CHECKING:
    from pathlib import Path

    from surecast.planning.sweeps import AlgorithmSweep, LoadCurve, LoadSweep, SweptConfiguration

__all__ = [
    "load_chart",
    "load_chart_sentences",
    "load_shares_chart",
    "locality_shares_chart",
    "write_algorithms_page",
    "write_load_page",
]

_ROLES = ("best at the design load", "most robust", "all candidates")
_AXIS = "active subscriptions"


def load_chart(sweep: LoadSweep) -> Chart:
    """Returns the chart of the worst-path delay of the representative configurations against load; each line ends where
    it saturates."""
    drawn = [(role, curve) for role in _ROLES if (curve := sweep.curve(role)) is not None]
    top = _nice(2.5 * max(1000.0 * (curve.configuration.delay_s or 0.0) for _, curve in drawn))
    others = [_rising(sweep, curve) for curve in sweep.by_domain]
    layers: list[Layer] = []
    if len(others) > 1:
        layers.append(Area(f"the {len(others)} placements with one broker per domain", *_between(others)))
    for (x, y), curve in zip(others, sweep.by_domain, strict=True):
        look: dict[str, Any] = {"width_px": 0.8, "opacity": 0.55, "in_legend": False}
        name = _short(curve.configuration)
        layers.append(Line(f"{name}, {curve.configuration.algorithm}", x, y, colour="steady", **look))
    for i, (role, curve) in enumerate(drawn):
        word = "most robust with one broker per domain" if role == "most robust" else role
        x, y = _rising(sweep, curve)
        layers.append(Line(word, x, y, colour=i))
        last = _where_it_ends(x, y, top)
        if last is not None:
            hover: list[Hover] = [(word, _end(curve.configuration))]
            layers.append(Points(word, *last, symbol="x", size_px=10.0, hover=hover, in_legend=False))
    return Chart(
        layers,
        title=f"{sweep.name}: delay against load",
        x=Axis(_AXIS, from_zero=True),
        y=Axis("delay on the worst path (ms)", from_zero=True, high=top),
        caption="A cross marks where a line leaves the drawing; shortly after, the configuration saturates.",
        rules=(RuleLine(f"design load {sweep.design:,.0f}", sweep.design),),
        height_px_min=480,
    )


def _where_it_ends(x: Array, y: Array, top: float) -> tuple[list[float], list[float]] | None:
    """Returns the point at which a line leaves the drawing: its last point, or where it passes the upper edge.

    >>> _where_it_ends(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 12.0]), 7.0)
    ([2.5], [7.0])
    """
    if not len(x):
        return None
    beyond = np.flatnonzero(y > top)
    if not len(beyond):
        return [float(x[-1])], [float(y[-1])]
    k = int(beyond[0])
    if k == 0:
        return [float(x[0])], [top]
    share = (top - y[k - 1]) / (y[k] - y[k - 1])
    return [float(x[k - 1] + share * (x[k] - x[k - 1]))], [top]


def _between(lines: list[tuple[Array, Array]]) -> tuple[Array, Array, Array]:
    """Returns every x of the lines, and the lowest and the highest of them there; a line that has ended counts as high
    as any."""
    lines = [(x, y) for x, y in lines if len(x)]
    if not lines:
        return np.zeros(0), np.zeros(0), np.zeros(0)
    every = np.unique(np.concatenate([x for x, _ in lines]))
    top = max(float(np.max(y)) for _, y in lines)
    values = np.array([np.interp(every, x, y, right=top) for x, y in lines])
    return every, values.min(axis=0), values.max(axis=0)


def _rising(sweep: LoadSweep, curve: LoadCurve) -> tuple[Array, Array]:
    """Returns load and delay in ms; a line that ends rises on, to beyond any drawing, up to the load where it
    saturates."""
    defined = np.isfinite(curve.delay_s)
    x, y = sweep.subscriptions[defined], 1000.0 * curve.delay_s[defined]
    end = curve.configuration.saturates_at
    if not len(x) or defined[-1] or not x[-1] < end < sweep.subscriptions[-1]:
        return x, y
    return np.append(x, end), np.append(y, 1e3 * y.max())


def load_chart_sentences(sweep: LoadSweep) -> list[str]:
    """Returns the results of the sweep in sentences."""
    sentences = []
    for role in _ROLES:
        curve = sweep.curve(role)
        if curve is not None:
            word = "Most robust with one broker per domain" if role == "most robust" else role.capitalize()
            configuration = curve.configuration
            delay = (
                "overloaded at the design load"
                if configuration.delay_s is None
                else wording.duration(configuration.delay_s)
            )
            sentences.append(
                f"{word}: {delay}; {_short(configuration)}, {configuration.algorithm}. It {_end(configuration)}."
            )
    delays_by_domain = [curve.configuration.delay_s for curve in sweep.by_domain]
    delays = [delay for delay in delays_by_domain if delay is not None]
    if len(delays_by_domain) > 1 and delays:
        lost = len(delays_by_domain) - len(delays)
        words = f"One broker per domain: {len(delays_by_domain)} placements, {wording.duration(min(delays))} to "
        words += f"{wording.duration(max(delays))} at the design load, each with its own best algorithm."
        sentences.append(words + (f" {lost} of them {'is' if lost == 1 else 'are'} overloaded there." if lost else ""))
    return sentences


def write_load_page(sweep: LoadSweep, path: Path | str) -> Path:
    """Writes the page of a load sweep to an ``.html`` file and returns its path."""
    named = [curve for role in _ROLES if (curve := sweep.curve(role)) is not None]
    telling = _configurations(
        [(curve.role, curve.configuration) for curve in named],
        "The three that are drawn thick: delay at the design load, and subscriptions carried",
    )
    others = _configurations(
        sorted(((curve.role, curve.configuration) for curve in sweep.by_domain), key=lambda row: -row[1].saturates_at),
        "One broker per domain, the most robust first",
    )
    sections: list[Section] = [
        Bullets(load_chart_sentences(sweep)),
        load_chart(sweep),
        Paragraph(
            "A configuration is a placement of brokers with the routing algorithm that gives it the least delay at the "
            "design load. It stays as it is while the number of subscriptions changes; publications stay as frequent. "
            "The delay is the longest mean delay over a path that may be used. It grows without bound as the first "
            "broker, link or router comes near its capacity, and there the line ends: more load is not carried."
        ),
        Paragraph(
            "A placement that is best at the design load may be a poor choice if the load is uncertain. Compare where "
            "the lines end before choosing."
        ),
        Heading("Configurations"),
        telling,
        others,
        Downloads(others, f"{sweep.name}-one-per-domain"),
        Downloads(_points(sweep), f"{sweep.name}-load"),
    ]
    subtitle = f"{len(sweep.curves)} configurations at {wording.count(len(sweep.subscriptions), 'load')}, by formula"
    return write_page(Page(f"{sweep.name}: how placements scale with load", sections, subtitle=subtitle), path)


def load_shares_chart(sweep: AlgorithmSweep) -> Chart:
    """Returns the chart of the share of placements that each algorithm wins, against load; all localities together."""
    pooled = f", localities {_listed(sweep.localities)} pooled" if len(sweep.localities) > 1 else ""
    return _shares(
        sweep,
        sweep.subscriptions,
        sweep.by_load(),
        f"{sweep.name}: best routing algorithm against load",
        _AXIS,
        f"Over all {sweep.placements:,} placements{pooled}. Best is the least delay on the worst path.",
        x_log=len(sweep.subscriptions) > 1 and sweep.subscriptions[-1] > 20 * sweep.subscriptions[0],
    )


def locality_shares_chart(sweep: AlgorithmSweep) -> Chart:
    """Returns the chart of the share of placements that each algorithm wins, against locality; all loads together,
    overload left out."""
    counts = sweep.counts.sum(axis=1)[:, :-1]
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    x = np.array([np.nan if locality is None else locality for locality in sweep.localities])
    return _shares(
        sweep,
        x,
        shares,
        f"{sweep.name}: best routing algorithm against locality",
        "locality: share of a class's messages in its own domain",
        f"Over all {sweep.placements:,} placements and {len(sweep.subscriptions)} loads, of the cases that some "
        "algorithm carries.",
        x_ticks=tuple((float(value), f"{value:g}") for value in x),
    )


def write_algorithms_page(sweep: AlgorithmSweep, path: Path | str) -> Path:
    """Writes the page of a sweep of algorithms to an ``.html`` file and returns its path."""
    by_load = _share_table(sweep, [float(load) for load in sweep.subscriptions], sweep.by_load(), "Subscriptions")
    sections: list[Section] = [
        Bullets(_ranges(sweep)),
        Heading("By load"),
        load_shares_chart(sweep),
        Paragraph(
            "At each load every placement is evaluated under every algorithm. The height of a colour is the share of "
            "placements for which that algorithm has the least delay on the worst path. Several are alike where their "
            "delays agree to nine digits, as with a single broker, which passes nothing on. Where all are overloaded "
            "no algorithm is best: the messages that clients send are more than some broker can take."
        ),
    ]
    if len(sweep.localities) > 1:
        by_locality = _share_table(sweep, [value or 0.0 for value in sweep.localities], sweep.by_locality(), "Locality")
        sections += [
            Heading("By locality"),
            locality_shares_chart(sweep),
            Paragraph("The same cases counted by locality. Between the localities computed, the picture is a guess."),
            by_locality,
        ]
    sections += [by_load, Downloads(by_load, f"{sweep.name}-algorithms")]
    cases = sweep.placements * len(sweep.algorithms) * len(sweep.subscriptions) * len(sweep.localities)
    subtitle = f"{wording.count(cases, 'case')}, by formula"
    return write_page(Page(f"{sweep.name}: best routing algorithm", sections, subtitle=subtitle), path)


def _shares(
    sweep: AlgorithmSweep,
    x: Array,
    shares: Array,
    title: str,
    label: str,
    caption: str,
    *,
    x_log: bool = False,
    x_ticks: tuple[tuple[float, str], ...] = (),
) -> Chart:
    layers: list[Layer] = []
    names = [name for i, name in enumerate(sweep.outcomes[: shares.shape[1]]) if shares[:, i].any()]
    alike, overloaded = sweep.outcomes[len(sweep.algorithms) :]
    colours: dict[str, int | str] = {**colours_of(sweep.algorithms), alike: "steady", overloaded: "grid"}
    low = np.zeros(len(x))
    for name in names:
        share = 100.0 * shares[:, sweep.outcomes.index(name)]
        hover: list[Hover] = [
            (name, f"{label}: {number_text(float(shown))}", f"{value:.1f} %")
            for shown, value in zip(x, share, strict=True)
        ]
        layers.append(Area(name, x, low, low + share, colour=colours[name], hover=hover))
        low = low + share
    return Chart(
        layers,
        title=title,
        x=Axis(label, ends=(float(x.min()), float(x.max())), log=x_log, ticks=x_ticks),
        y=Axis("share of placements (%)", ends=(0.0, 100.0)),
        caption=caption,
        height_px_min=460,
    )


def _ranges(sweep: AlgorithmSweep) -> list[str]:
    """Returns sentences on the loads at which each algorithm is the most frequent winner, and at which nothing is
    carried."""
    shares = sweep.by_load()
    won = shares[:, : len(sweep.algorithms)]
    sentences = []
    for i, algorithm in enumerate(sweep.algorithms):
        leads = np.flatnonzero((won.argmax(axis=1) == i) & (won.max(axis=1) > 0))
        if len(leads):
            first, last = sweep.subscriptions[leads[0]], sweep.subscriptions[leads[-1]]
            where = f"at {first:,.0f}" if len(leads) == 1 else f"between {first:,.0f} and {last:,.0f}"
            sentences.append(
                f"{algorithm} is best for more placements than any other {where} subscriptions, for up to "
                f"{100 * shares[leads, i].max():.0f} % of them."
            )
    lost = np.flatnonzero(shares[:, -1] >= 1.0)
    if len(lost):
        sentences.append(f"From {sweep.subscriptions[lost[0]]:,.0f} subscriptions on, every placement is overloaded.")
    return sentences


def _configurations(rows: list[tuple[str, SweptConfiguration]], caption: str) -> Table:
    header = ["Role", "Brokers", "Algorithm", "Delay in ms", "Carries up to", "First to saturate"]
    cells: list[list[Cell]] = [
        [
            role,
            _short(configuration),
            configuration.algorithm,
            None if configuration.delay_s is None else 1000.0 * configuration.delay_s,
            round(configuration.saturates_at) if math.isfinite(configuration.saturates_at) else None,
            configuration.saturates or "nothing",
        ]
        for role, configuration in rows
    ]
    return Table(header, cells, caption)


def _points(sweep: LoadSweep) -> Table:
    header = ["Role", "Brokers", "Algorithm", "Subscriptions", "Delay in ms", "Utilisation"]
    rows: list[list[Cell]] = []
    for curve in sweep.curves:
        names = ", ".join(curve.configuration.brokers)
        for load, delay, used in zip(sweep.subscriptions, curve.delay_s, curve.utilisation, strict=True):
            delay_ms = None if math.isnan(delay) else 1000.0 * float(delay)
            rows.append([curve.role, names, curve.configuration.algorithm, float(load), delay_ms, float(used)])
    return Table(header, rows, "All points")


def _share_table(sweep: AlgorithmSweep, keys: list[float], shares: Array, name: str) -> Table:
    rows: list[list[Cell]] = [[key, *map(float, row.round(4))] for key, row in zip(keys, shares, strict=True)]
    return Table([name, *sweep.outcomes], rows, f"Share of placements by {name.lower()}")


def _short(configuration: SweptConfiguration) -> str:
    return short_names(configuration.brokers)


def _end(configuration: SweptConfiguration) -> str:
    if not math.isfinite(configuration.saturates_at):
        return "never saturates"
    return f"saturates at {configuration.saturates_at:,.0f} subscriptions ({configuration.saturates})"


def _listed(values: tuple[float | None, ...]) -> str:
    return ", ".join(f"{value:g}" for value in values if value is not None)


def _nice(value: float) -> float:
    """Returns a round number at or above."""
    if value <= 0.0:
        return 1.0
    unit = 10.0 ** math.floor(math.log10(value))
    return next(step * unit for step in (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0) if step * unit >= value)
