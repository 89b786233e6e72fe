"""Charts, described once and drawn on a page or as a picture: systems, comparisons, bars; and the HTML page of them.

Importing this package loads neither Matplotlib nor Plotly; drawing loads what it needs.
"""

from surecast.studio.bars import BarSeries, bars
from surecast.studio.chart import Area, Axis, Bars, Chart, Line, Points, RuleLine
from surecast.studio.draw import draw_chart, draw_system
from surecast.studio.page import (
    Bullets,
    Downloads,
    Heading,
    Page,
    Paragraph,
    Section,
    Table,
    render_page,
    write_page,
)
from surecast.studio.scatter import ScatterGroup, scatter

__all__ = [
    "Area",
    "Axis",
    "BarSeries",
    "Bars",
    "Bullets",
    "Chart",
    "Downloads",
    "Heading",
    "Line",
    "Page",
    "Paragraph",
    "Points",
    "RuleLine",
    "ScatterGroup",
    "Section",
    "Table",
    "bars",
    "draw_chart",
    "draw_system",
    "render_page",
    "scatter",
    "write_page",
]
