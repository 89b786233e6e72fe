"""Charts as files: an interactive page with the numbers to save, or a picture."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from surecast.studio.chart import Chart, Line, Points
from surecast.studio.files import checked_path, write_atomically
from surecast.studio.style import theme_for

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from surecast.scenario.system import System
    from surecast.studio.page import Cell, Section, Table

__all__ = ["draw_chart", "draw_system", "numbers_table"]


def draw_chart(
    chart: Chart,
    path: Path | str,
    *,
    width: int = 1280,
    dark: bool = False,
    sections: Sequence[Section] | None = None,
    subtitle: str = "",
) -> Path:
    """Draws a chart to a file and returns its path; the suffix decides the kind of file.

    ``.html`` is an interactive page in one file that needs no network, with `sections` below the chart, or else its
    numbers; ``.svg`` and ``.png`` are pictures. `width` is that of a PNG in pixels; `dark` draws on a dark ground, and
    a page follows its reader's setting unless `dark` is set. The file appears whole or not at all.

    >>> from tempfile import TemporaryDirectory
    >>> from surecast.studio.chart import Axis
    >>> lines = [Line("join probability 0.5", [1.0, 2.0], [10.2, 11.0], how="by formula")]
    >>> chart = Chart(lines, title="Delay", x=Axis("events/s"), y=Axis("mean delay (s)"))
    >>> with TemporaryDirectory() as folder:
    ...     draw_chart(chart, f"{folder}/a.svg").name
    'a.svg'
    """
    path = checked_path(path, width)
    suffix = path.suffix.lower()
    if suffix == ".html":
        from surecast.studio.page import Downloads, Heading, Page, render_page

        if sections is None:
            table = numbers_table(chart)
            sections = [Heading("Numbers"), table, Downloads(table, "numbers")]
        page = Page(chart.title, [chart, *sections], subtitle=subtitle, dark=dark)
        return write_atomically(path, render_page(page).encode())
    from surecast.studio.matplotlib_picture import picture

    return write_atomically(path, picture(chart, suffix, width, theme_for(dark)))


def numbers_table(chart: Chart) -> Table:
    """Returns the table of all lines and points: a row for each x of each label, a column for each way to know y."""
    from surecast.studio.page import Table

    layers = [layer for layer in chart.layers if isinstance(layer, Line | Points) and layer.in_legend]
    ways = list(dict.fromkeys(layer.how for layer in layers))
    has_ends = any(isinstance(layer, Points) and layer.low is not None for layer in layers)
    values: dict[tuple[str, float], dict[str, float]] = {}
    for layer in layers:
        for k, (x, y) in enumerate(zip(layer.x, layer.y, strict=True)):
            row = values.setdefault((layer.label, float(x)), {})
            row[layer.how] = float(y)
            if isinstance(layer, Points) and layer.low is not None and layer.high is not None:
                row |= {"low": float(layer.low[k]), "high": float(layer.high[k])}
    order = {label: i for i, label in enumerate(chart.labels)}
    columns = [*ways, *(("low", "high") if has_ends else ())]
    rows: list[list[Cell]] = []
    for (label, x), of_columns in sorted(values.items(), key=lambda item: (order[item[0][0]], item[0][1])):
        cells = [of_columns.get(column, math.nan) for column in columns]
        rows.append([label, x, *(None if math.isnan(cell) else cell for cell in cells)])
    names = [name[:1].upper() + name[1:] or chart.y.title for name in columns]
    return Table(["Series", chart.x.title, *names], rows, chart.title)


def draw_system(
    system: System, path: Path | str, *, title: str | None = None, width: int = 1800, dark: bool = False
) -> Path:
    """Draws the broker overlay, on its physical network if it has one, as `draw_chart` does; returns the file's path.

    A page has tables of brokers and links below the figure. `title` replaces the system's name.

    >>> from tempfile import TemporaryDirectory
    >>> from surecast.scenario import build, parse_text
    >>> overlay = "{brokers: [{name: east}, {name: west}], links: [[east, west]]}"
    >>> system = build(parse_text(f"surecast: 1\\nname: two brokers\\noverlay: {overlay}"))
    >>> with TemporaryDirectory() as folder:
    ...     draw_system(system, f"{folder}/a.svg").name
    'a.svg'
    """
    path = checked_path(path, width)
    from surecast.studio.scene import build_scene
    from surecast.studio.scene_chart import scene_chart, scene_sections
    from surecast.studio.wording import joined

    scene = build_scene(system, title)
    sections = scene_sections(scene, system) if path.suffix.lower() == ".html" else ()
    return draw_chart(
        scene_chart(scene), path, width=width, dark=dark, sections=sections, subtitle=joined(scene.counts)
    )
