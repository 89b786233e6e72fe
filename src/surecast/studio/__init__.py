"""Pictures and pages: drawings of systems, comparisons of reports, bars, and the HTML page that carries them.

Importing this package loads neither Matplotlib nor Plotly; each figure loads what it needs.
"""

from surecast.studio.bars import BarSeries, bars
from surecast.studio.draw import draw_system
from surecast.studio.page import (
    Bullets,
    Downloads,
    Figure,
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
    "BarSeries",
    "Bullets",
    "Downloads",
    "Figure",
    "Heading",
    "Page",
    "Paragraph",
    "ScatterGroup",
    "Section",
    "Table",
    "bars",
    "draw_system",
    "render_page",
    "scatter",
    "write_page",
]
