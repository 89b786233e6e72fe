"""The page of delivery over lossy links: success and delivery time against loss, for all alternatives."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from surecast.studio.chart import SERIES_MAX, Axis, Chart, Line
from surecast.studio.page import Bullets, Cell, Downloads, Heading, Page, Paragraph, Section, Table, write_page
from surecast.studio.style import colours_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from surecast.simulation.coding import LossPoint, LossSweep

__all__ = ["loss_chart", "write_loss_page"]

_AXIS = "packets lost on each link (%)"


def loss_chart(sweep: LossSweep, figure: str) -> Chart:
    """Returns the chart of one figure: `all` (share of events at every subscriber in time), `each` (mean over
    subscribers), `delay` or `overhead`."""
    values: dict[str, tuple[str, str, Callable[[LossPoint], tuple[float, float]]]] = {
        "all": ("events in time at every subscriber (%)", "success rate", lambda p: _percent(p.all_on_time)),
        "each": ("events in time, mean over subscribers (%)", "success per subscriber", lambda p: _percent(p.on_time)),
        "delay": ("mean delivery time (ms)", "delivery time", lambda p: _scaled(p.delay_mean_s, 1000.0)),
        "overhead": ("messages over the least possible", "messages sent", _messages),
    }
    label, title, value = values[figure]
    lines = []
    colours = colours_of(sweep.alternatives)
    for name in sweep.alternatives:
        points = [(100.0 * p.loss, *value(p)) for p in sweep.of(name)]
        defined = [point for point in points if not math.isnan(point[1])]
        if defined:
            x, y = ([point[k] for point in defined] for k in range(2))
            lines.append(Line(name, x, y, colour=colours[name], dashed=" " in name, how="simulated"))
    left = ", ".join(line.label for line in lines[SERIES_MAX:])
    return Chart(
        lines[:SERIES_MAX],
        title=f"{sweep.name}: {title} against loss",
        x=Axis(_AXIS, from_zero=True),
        y=Axis(label, from_zero=True),
        caption=f"Simulated at {', '.join(f'{100 * loss:g}' for loss in sweep.losses)} %; lines join them, and the "
        "table has their intervals. Dashed: other paths." + (f" In the table only: {left}." if left else ""),
        height_px_min=460,
    )


def write_loss_page(sweep: LossSweep, path: Path | str) -> Path:
    """Writes the page of a sweep to an ``.html`` file and returns its path."""
    table = _table(sweep)
    sections: list[Section] = [
        Bullets(_sentences(sweep)),
        loss_chart(sweep, "all"),
        loss_chart(sweep, "each"),
        loss_chart(sweep, "delay"),
        Paragraph("Delivery times are of what arrived in time: a scheme that delivers little looks fast."),
        loss_chart(sweep, "overhead"),
        Paragraph(
            "The least possible is n / (1 - loss) packets for each home broker to be reached. Messages between peers "
            "count once, whatever the links on their way; short ones such as digests and acknowledgements count like "
            "packets here, and the table has the bytes. A scheme that delivers little may send less than that."
        ),
        Heading("Numbers"),
        table,
        Downloads(table, f"{sweep.name}-loss"),
    ]
    return write_page(Page(f"{sweep.name}: delivery over lossy links", sections), path)


def _percent(estimate: tuple[float, float]) -> tuple[float, float]:
    return _scaled(estimate, 100.0)


def _scaled(estimate: tuple[float, float], factor: float) -> tuple[float, float]:
    return factor * estimate[0], factor * estimate[1]


def _messages(point: LossPoint) -> tuple[float, float]:
    return _scaled(point.messages, 1.0 / point.messages_minimum) if point.messages_minimum else (math.nan, 0.0)


def _sentences(sweep: LossSweep) -> list[str]:
    widest = max(max(p.on_time[1], p.all_on_time[1]) for p in sweep.points)
    sentences = [
        f"{sweep.subscribers} subscribers, events of {sweep.packets} packets, {100 * sweep.redundancy:g} % redundancy "
        f"where coded, {sweep.deadline_s:g} s to the deadline; seed {sweep.seed}.",
        f"Shares are known to ± {100 * widest:.2g} % at worst (95 %).",
    ]
    for loss in sweep.losses[1:]:
        points = [p for p in sweep.points if p.loss == loss]
        best = max(points, key=lambda p: (round(p.all_on_time[0], 3), -p.messages[0]))
        sentences.append(
            f"At {100 * loss:g} % loss {best.alternative} gets most events to everybody in time: "
            f"{100 * best.all_on_time[0]:.1f} %, after {1000 * best.delay_mean_s[0]:.0f} ms on average."
        )
    return sentences


def _table(sweep: LossSweep) -> Table:
    names = ["Scheme", "Loss", "Events", "All in time", "±", "Each in time", "±", "Mean s", "p99 s", "Messages", "MB"]
    rows: list[list[Cell]] = []
    for p in sweep.points:
        delays: list[Cell] = [None if math.isnan(v) else v for v in (p.delay_mean_s[0], p.delay_p99_s)]
        rows.append(
            [p.alternative, p.loss, p.events, *p.all_on_time, *p.on_time, *delays, round(p.messages[0], 1), p.megabytes]
        )
    return Table(
        [*names, "Least messages"],
        [[*row, round(p.messages_minimum, 1)] for row, p in zip(rows, sweep.points, strict=True)],
        "All points",
    )
