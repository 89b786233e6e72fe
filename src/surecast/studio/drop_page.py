"""Pages on dropping: the paper's figures with formula and simulation side by side, and the answer to one question."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from surecast.scenario.mechanism import parameter_text
from surecast.studio import wording
from surecast.studio.chart import Axis, Chart, Layer, Line, Points, RuleLine
from surecast.studio.draw import draw_chart
from surecast.studio.page import Bullets, Cell, Downloads, Heading, Page, Paragraph, Section, Table, write_page

if TYPE_CHECKING:
    from surecast.planning.drop_figures import Effort, FigureRow, Setting
    from surecast.prediction.dropping.cases import Case, Gives

__all__ = ["case_chart", "draw_case", "draw_figures", "figure_charts", "write_case_page", "write_figures_page"]

RATE = "arrival rate (events/s)"
NAMES = {
    "none": "no dropping",
    "probabilistic": "join probability",
    "finite-buffer": "buffer",
    "expiry": "expiry, fixed lifetime",
    "exponential-expiry": "expiry, exponential lifetime",
    "optimal": "best policy, connected protected",
    "unprotected": "best admission policy",
    "threshold": "best threshold while disconnected",
}
"""The names of the mechanisms on pages and in tables."""
BUFFERED, EXPIRING = "join probability + buffer", "join probability + exponential expiry"
SHOWN = {
    **{kind: NAMES[kind] for kind in ("probabilistic", "finite-buffer", "expiry", "exponential-expiry")},
    **{mixture: mixture for mixture in (BUFFERED, EXPIRING)},
    "optimal": NAMES["optimal"],
    "best": NAMES["unprotected"],
}
"""Series of the paper's figures, and what pages call them."""
_COLOURS: dict[str, int | str] = {kind: i for i, kind in enumerate(SHOWN)}
_COLOURS |= {"unprotected": 7, "threshold": 8, "none": "steady"}
"""The colour of each mechanism."""


def figure_charts(rows: Sequence[FigureRow], setting: Setting) -> dict[str, Chart]:
    """Returns the charts of figures 4 to 7, by name."""
    four = list(dict.fromkeys(row.series for row in rows if row.figure == 4))
    charts = {}
    if four:
        charts["figure-4"] = _chart(
            [layer for series in four for layer in _series(rows, 4, series, "response_mean_s", series)],
            "Figure 4: mean response time of the subscriber's queue",
            "mean response time (s)",
        )
    for name, metric, kinds, label in (
        ("figure-5-join", "join_probability", ("probabilistic",), "join probability"),
        ("figure-5-buffer", "buffer_size", ("finite-buffer",), "buffer size (events)"),
        ("figure-5-lifetime", "event_lifetime_s", ("expiry", "exponential-expiry"), "lifetime (s)"),
    ):
        layers = [layer for kind in kinds for layer in _series(rows, 5, kind, metric, SHOWN[kind])]
        if layers:
            title = f"Figure 5: {label.split(' (')[0]} that meets a mean of {setting.target_s:g} s"
            charts[name] = _chart(layers, title, label, ratio=0.3, height_px_min=340)
    there = [kind for kind in SHOWN if any(row.figure == 6 and row.series == kind for row in rows)]
    if there:
        charts |= _comparisons(rows, there, setting)
    return charts


def _chart(layers: Sequence[Layer], title: str, label: str, *, from_zero: bool = True, **more: Any) -> Chart:
    """Returns a chart over the arrival rate."""
    how = {layer.how for layer in layers if isinstance(layer, Line | Points)}
    caption = "Lines: by formula. Points: simulated, with 95 % intervals." if "simulated" in how else ""
    look = {"caption": caption, "height_px_min": 460, **more}
    return Chart(layers, title=title, x=Axis(RATE), y=Axis(label, from_zero=from_zero), **look)


def _comparisons(rows: Sequence[FigureRow], there: list[str], setting: Setting) -> dict[str, Chart]:
    """Returns figures 6 and 7, every line through the same rates: otherwise one would seem to cross another."""
    rows = [row for row in rows if row.arrival_per_s in setting.rates]
    shown = ("probabilistic", "finite-buffer", "expiry", "exponential-expiry", EXPIRING, "best")
    mixed = [k for k in ("finite-buffer", BUFFERED, "optimal", "best") if k in there]
    lost = [k for k in ("finite-buffer", BUFFERED, "expiry", "exponential-expiry", "best") if k in there]

    def series(figure: int, kinds: Sequence[str], metric: str) -> list[Layer]:
        return [layer for k in kinds for layer in _series(rows, figure, k, metric, SHOWN[k], 100.0)]

    success = series(6, [k for k in shown if k in there], "success_share")
    gains = [_gain(line, rows) for line in series(6, mixed, "success_share") if isinstance(line, Line)]
    return {
        "figure-6": _chart(
            success,
            f"Figure 6: events delivered, with a mean of at most {setting.target_s:g} s",
            "delivered (%)",
            from_zero=False,
        ),
        "figure-6-gain": _chart(
            gains,
            "Figure 6, closer: gain over the join probability alone",
            "above the join probability (percentage points)",
            from_zero=False,
            rules=(RuleLine("", 0.0, upright=False),),
        ),
        "figure-7": _chart(
            series(7, lost, "failed_connected_share"),
            "Figure 7: events that arrive while the subscriber is connected and are lost",
            "lost of those that arrive while connected (%)",
        ),
    }


def _gain(line: Line, rows: Sequence[FigureRow]) -> Line:
    """Returns the line less what a join probability alone delivers by formula."""
    (alone,) = (
        each for each in _series(rows, 6, "probabilistic", "success_share", "", 100.0) if isinstance(each, Line)
    )
    share_at = dict(zip(alone.x, alone.y, strict=True))
    there = [(x, y - share_at[x]) for x, y in zip(line.x, line.y, strict=True) if x in share_at]
    return replace(line, x=[x for x, _ in there], y=[gain for _, gain in there])


def _series(
    rows: Sequence[FigureRow],
    figure: int,
    series: str,
    metric: str,
    label: str,
    factor: float = 1.0,
) -> list[Line | Points]:
    """Returns the line by formula and the simulated points of one series, as far as there are any."""
    of = [row for row in rows if (row.figure, row.series, row.metric) == (figure, series, metric)]
    formula = sorted((row.arrival_per_s, factor * row.value) for row in of if row.how == "formula")
    simulated = sorted((row for row in of if row.how == "simulated"), key=lambda row: row.arrival_per_s)
    colour = _COLOURS.get(series)
    layers: list[Line | Points] = []
    if formula:
        x, y = (list(part) for part in zip(*formula, strict=True))
        look: dict[str, Any] = {"dashed": series in ("optimal", "best"), "stepped": metric == "buffer_size"}
        layers.append(Line(label, x, y, colour=colour, how="by formula", **look))
    if simulated:
        low, high = ([math.nan if end is None else factor * end for end in ends] for ends in _intervals(simulated))
        values = [factor * row.value for row in simulated]
        rates = [row.arrival_per_s for row in simulated]
        layers.append(Points(label, rates, values, low, high, colour=colour, how="simulated"))
    return layers


def _intervals(rows: Sequence[FigureRow]) -> tuple[list[float | None], list[float | None]]:
    return [row.low for row in rows], [row.high for row in rows]


def write_figures_page(
    rows: Sequence[FigureRow], setting: Setting, effort: Effort, path: Path | str, *, quick: bool = False
) -> Path:
    """Writes the page of figures 4 to 7 to an ``.html`` file and returns its path. A `quick` one says so."""
    charts = figure_charts(rows, setting)
    sections: list[Section] = [
        Paragraph(
            f"A subscriber is connected for {setting.on_s:g} s and away for {setting.off_s:g} s on average. Its events "
            f"are transmitted at {setting.service_per_s:g}/s while it is connected, after an input queue of the broker "
            f"({setting.input_per_s:g}/s). The mean time from publication to delivery is to be {setting.target_s:g} s "
            "or less, so events have to be dropped. Which ones are dropped decides how many arrive."
        )
    ]
    if quick:
        sections.append(
            Paragraph(
                f"A quick page (--quick): {len(setting.rates)} arrival rates in Figures 6 and 7 and at most "
                f"{effort.runs_max} runs of {effort.duration_s:g} s. Without --quick there are more rates, and the "
                "simulated intervals are narrower."
            )
        )
    agreement = _agreement(rows)
    if agreement.rows:
        sections += [Heading("How well formula and simulation agree"), Paragraph(_AGREEMENT)]
        sections += [agreement, Downloads(agreement, "agreement")]
    for name, heading, words in _WORDS:
        there = [key for key in charts if key.startswith(name)]
        if there:
            sections.append(Heading(heading))
            sections += [Paragraph(text) for text in words]
            sections += [charts[key] for key in there]
    sections += [Heading("Numbers"), _parameter_table(rows)]
    every = Table([*asdict(rows[0])] if rows else [], [list(asdict(row).values()) for row in rows], "All numbers")
    sections.append(Downloads(every, "dropping-figures"))
    simulated = f"; simulated with seed {effort.seed}" if effort.runs else ""
    effort_note = "; made with --quick" if quick else ""
    subtitle = f"Figures 4 to 7 of the dropping paper, by formula{simulated}{effort_note}"
    return write_page(Page("Dropping events for subscribers that come and go", sections, subtitle=subtitle), path)


_AGREEMENT = (
    "Errors and the widest 95 % half-width are absolute, in the unit of the metric: seconds, or shares from 0 to 1. "
    "The relative error is the mean over the points at which the formula is above 0, in percent of the formula. The "
    "last column counts the points at which the formula lies inside the 95 % interval of the simulation."
)
_WORDS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "figure-4",
        "Response time against arrival rate (Figure 4)",
        (
            "The queue of the subscriber alone, without a target. Events that arrive while it is away join the queue "
            "with the join probability. With 1 nothing is dropped, and the queue saturates where the arrival rate "
            "comes near the service rate times the share of time connected.",
        ),
    ),
    (
        "figure-5",
        "Parameters that meet the target (Figure 5)",
        (
            "The largest parameter with which each mechanism alone still meets the target. A buffer holds whole "
            "events, hence the steps. The paper bounds the input queue as well; here it has room for all. Lifetimes "
            "count from publication.",
        ),
    ),
    (
        "figure-6",
        "Events delivered (Figure 6)",
        (
            "The dashed line is a ceiling for all mechanisms that decide on arrival whether an event joins, by the "
            "state of the connection and the length of the queue: join probability, buffer, both together, and others.",
            "Expiry lies above this ceiling, which is no contradiction: it decides later. It removes events that were "
            "accepted, and what expires no longer counts in the mean time of what is delivered. So part of its "
            "advantage is that the target bounds the mean over delivered events alone.",
            "The second chart is closer, with the mixture of join probability and buffer and a second ceiling, for "
            "policies that may turn nobody away while the subscriber is connected. A mixture of join probability and "
            "exponential lifetimes is better than lifetimes alone only near saturation; before, their lines are one.",
            "In Figures 6 and 7 all lines join the same arrival rates, and are straight between them.",
        ),
    ),
    (
        "figure-7",
        "Losses while connected (Figure 7)",
        (
            "Of the events that arrive while the subscriber is connected, the share that it never gets. With a join "
            "probability there are none. A buffer that is full turns events away while the subscriber is there. An "
            "event that arrives while it is there may still expire later; for that there are simulated points only.",
        ),
    ),
)


def _agreement(rows: Sequence[FigureRow]) -> Table:
    """Returns the table of formula against simulation, for each figure and series."""
    formula = {(r.figure, r.series, r.metric, r.arrival_per_s): r.value for r in rows if r.how == "formula"}
    groups: dict[tuple[int, str, str], list[tuple[float, FigureRow]]] = {}
    for row in rows:
        predicted = formula.get((row.figure, row.series, row.metric, row.arrival_per_s))
        if row.how == "simulated" and predicted is not None:
            groups.setdefault((row.figure, row.series, row.metric), []).append((predicted, row))
    table_rows: list[list[Cell]] = []
    for (figure, series, metric), pairs in sorted(groups.items()):
        apart = [abs(row.value - predicted) for predicted, row in pairs]
        inside = [
            row.low is not None and row.high is not None and row.low - 1e-9 <= predicted <= row.high + 1e-9
            for predicted, row in pairs
        ]
        halves = [(row.high - row.low) / 2 for _, row in pairs if row.low is not None and row.high is not None]
        name = SHOWN.get(series, series)
        widest = max(halves, default=math.nan)
        relative = [100.0 * abs(row.value / predicted - 1.0) for predicted, row in pairs if predicted > 1e-12]
        cells = [max(apart), sum(apart) / len(apart), None if math.isnan(widest) else widest]
        cells.append(sum(relative) / len(relative) if relative else None)
        unit = "s" if metric.endswith("_s") else "share"
        table_rows.append([f"{figure}", name, metric, unit, len(pairs), *cells, f"{sum(inside)} of {len(inside)}"])
    header = ["Figure", "Series", "Metric", "Unit", "Points", "Largest error", "Mean error", "Widest ±"]
    return Table([*header, "Mean relative error (%)", "Inside"], table_rows, "Formula against simulation")


def _parameter_table(rows: Sequence[FigureRow]) -> Table:
    cells: list[list[Cell]] = [
        [row.arrival_per_s, SHOWN[row.series], row.parameters, row.value]
        for row in rows
        if row.figure == 6 and row.metric == "success_share" and row.how == "formula"
    ]
    return Table(["Arrival rate (/s)", "Mechanism", "Parameters", "Delivered (share)"], cells, "Mechanisms compared")


def case_chart(gives: Sequence[Gives], case: Case) -> Chart:
    """Returns the chart of the share of all events delivered within a time, for each mechanism."""
    drawn = [each for each in gives if each.outcome is not None]
    longest = max(each.law.quantile_s(0.99) for each in drawn)
    shortest = min(min(each.law.quantile_s(0.05) for each in drawn), longest / 100)
    times = np.geomspace(shortest, longest, 90)
    lines = []
    for each in drawn:
        assert each.outcome is not None
        share = each.outcome.success_share
        values = [100.0 * share * min(max(each.law.within(float(t)), 0.0), 1.0) for t in times]
        dashed = each.kind in ("optimal", "unprotected", "threshold")
        name = NAMES.get(each.kind, each.kind)
        colour = _COLOURS.get(each.kind)
        lines.append(Line(name, times.tolist(), values, colour=colour, dashed=dashed, how="by formula"))
    aim = () if case.target_s is None else (RuleLine(f"target {wording.duration(case.target_s)}", case.target_s),)
    return Chart(
        lines,
        title="Events delivered within a time",
        x=Axis("time from publication (s)", log=True),
        y=Axis("delivered by then, of all events (%)", from_zero=True),
        caption="In the end each line comes to the share that is delivered at all.",
        rules=aim,
    )


def draw_figures(rows: Sequence[FigureRow], setting: Setting, folder: Path) -> list[Path]:
    """Draws each figure to an ``.svg`` file of a folder that exists, and returns their paths."""
    return [draw_chart(chart, folder / f"{name}.svg") for name, chart in figure_charts(rows, setting).items()]


def draw_case(gives: Sequence[Gives], case: Case, path: Path | str) -> Path:
    """Draws what is delivered within which time to an ``.html``, ``.svg`` or ``.png`` file and returns its path."""
    return draw_chart(case_chart(gives, case), path)


def write_case_page(
    gives: Sequence[Gives], case: Case, summary: str, notes: Sequence[str], tables: Sequence[Table], path: Path | str
) -> Path:
    """Writes the answer to one question to an ``.html`` file: what is delivered when, and the tables."""
    sections: list[Section] = [Paragraph(summary), case_chart(gives, case)]
    for table in tables:
        sections += [table, Downloads(table, table.caption)]
    refused = [f"{NAMES.get(g.kind, g.kind)}: {g.refusal}" for g in gives if g.refusal]
    if refused:
        sections += [Heading("What cannot be done"), Bullets(refused)]
    if notes:
        sections += [Heading("Notes"), Bullets(notes)]
    chosen = [f"{NAMES.get(g.kind, g.kind)}: {parameter_text(g.mechanism)}" for g in gives if g.outcome is not None]
    sections += [Heading("Parameters"), Bullets(chosen)]
    return write_page(Page("Which events to drop", sections, subtitle="One subscriber that comes and goes"), path)
