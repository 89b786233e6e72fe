"""One look for every figure of Surecast: colours, fonts and sizes, for light and for dark.

The series colours are told apart by people with any of the common colour deficiencies (after Okabe and Ito), and
every series has a marker shape of its own as well. A figure for a page names its colours as CSS variables such as
``var(--ink)``: the page resolves them, so one figure serves light, dark and print.
"""

from __future__ import annotations

import unicodedata
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

__all__ = [
    "DARK",
    "LIGHT",
    "MARKERS",
    "SYMBOLS",
    "Theme",
    "availability_map",
    "clean",
    "css_variables",
    "matplotlib_style",
    "new_figure",
    "plotly_layout",
    "save_figure",
    "series_variable",
    "shorten",
    "theme_for",
]

FONT_STACK = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'
MORE_FONTS = ("Noto Sans CJK SC", "Noto Sans CJK JP", "PingFang SC", "Microsoft YaHei", "Arial Unicode MS")
WIDE_IN, SQUARE_IN = 9.0, 6.4
TITLE_PT, TEXT_PT, SMALL_PT = 13.0, 9.0, 7.5
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
SYMBOLS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x", "pentagon")
_BIDI = {chr(c) for c in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F)}


@dataclass(frozen=True, slots=True)
class Theme:
    """The colours of one appearance. `series` tells groups apart; `ramp` runs from low to high."""

    surface: str
    panel: str
    ink: str
    muted: str
    grid: str
    accent: str
    physical: str
    overlay: str
    steady: str
    series: tuple[str, ...]
    ramp: tuple[str, ...]


LIGHT = Theme(
    surface="#ffffff",
    panel="#f5f7fa",
    ink="#1a2130",
    muted="#566071",
    grid="#e2e6ec",
    accent="#c2410c",
    physical="#c3cad5",
    overlay="#26365a",
    steady="#8794a8",
    series=("#0072b2", "#d55e00", "#008f68", "#b8578f", "#2f93cc", "#bd8000", "#6b5bb5", "#7a6a52"),
    ramp=("#ffe066", "#f5b13d", "#a3a76e", "#4f8f8f", "#2b6a9b", "#1d3f7d"),
)
DARK = Theme(
    surface="#12161e",
    panel="#1b212c",
    ink="#e9edf4",
    muted="#a3aebf",
    grid="#2a323f",
    accent="#ff9a5c",
    physical="#3d4859",
    overlay="#c8d6f2",
    steady="#7b8799",
    series=("#4fa8e0", "#f0884a", "#35c79b", "#e08fc0", "#93cff2", "#f0bf4c", "#a99cf0", "#c4b08d"),
    ramp=("#ffe066", "#f5b13d", "#b1b374", "#62a5a3", "#3f86c4", "#3563b8"),
)


def theme_for(dark: bool) -> Theme:
    """Returns the dark theme or the light one."""
    return DARK if dark else LIGHT


def css_variables(theme: Theme) -> str:
    """Returns the theme as CSS declarations.

    >>> css_variables(LIGHT)[:20]
    '--surface: #ffffff; '
    """
    names: list[str] = []
    for field in fields(theme):
        value = getattr(theme, field.name)
        if isinstance(value, str):
            names.append(f"--{field.name}: {value};")
        else:
            names.extend(f"--{field.name}-{i}: {colour};" for i, colour in enumerate(value))
    return " ".join(names)


def series_variable(index: int) -> str:
    """Returns the CSS variable of a series colour; colours come round again where there are more series than
    colours."""
    return f"var(--series-{index % len(LIGHT.series)})"


def clean(text: str) -> str:
    """Returns a name that any format can carry: control, surrogate and direction-changing characters replaced.

    >>> clean("a\\x00b\\nc")
    'a\\ufffdb c'
    """
    spaced = (" " if c in "\n\r\t\u2028\u2029" else c for c in text)
    return "".join("\ufffd" if unicodedata.category(c) in ("Cc", "Cs") or c in _BIDI else c for c in spaced)


def shorten(text: str, length: int) -> str:
    """Returns a cleaned name of at most `length` characters.

    >>> shorten("rather-long-name", 10)
    'rather-lo…'
    """
    text = clean(text)
    return text if len(text) <= length else text[: length - 1] + "…"


@contextmanager
def matplotlib_style(theme: Theme) -> Iterator[None]:
    """Sets Matplotlib's own defaults with our look on top, whatever the user's settings; restores them afterwards.

    Names are never read as mathematics, and the same figure always gives the same bytes. Characters that no font
    here can write become boxes, without a warning.
    """
    import matplotlib
    from matplotlib.font_manager import fontManager

    installed = set(fontManager.get_font_names())
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(
            {
                "font.family": ["DejaVu Sans", *(font for font in MORE_FONTS if font in installed)],
                "font.size": TEXT_PT,
                "text.parse_math": False,
                "text.color": theme.ink,
                "axes.labelcolor": theme.muted,
                "axes.labelsize": TEXT_PT,
                "axes.edgecolor": theme.grid,
                "axes.linewidth": 0.8,
                "axes.facecolor": theme.surface,
                "axes.axisbelow": True,
                "figure.facecolor": theme.surface,
                "grid.color": theme.grid,
                "grid.linewidth": 0.6,
                "xtick.color": theme.muted,
                "ytick.color": theme.muted,
                "xtick.labelsize": SMALL_PT,
                "ytick.labelsize": SMALL_PT,
                "xtick.major.size": 0,
                "ytick.major.size": 0,
                "legend.frameon": False,
                "legend.fontsize": TEXT_PT - 1,
                "svg.hashsalt": "surecast",
                "svg.fonttype": "path",
            }
        )
        yield


def new_figure(width_in: float, height_in: float) -> Figure:
    """Returns a figure that no window and no global state knows of; make it inside `matplotlib_style`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width_in, height_in))
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Figure, suffix: str, width: int, title: str) -> bytes:
    """Returns the bytes of the figure as ``.svg`` or ``.png``; a PNG is `width` pixels wide."""
    from io import BytesIO

    content = BytesIO()
    width_in = float(figure.get_size_inches()[0])
    if suffix == ".svg":
        about = {"Title": clean(title), "Creator": "Surecast", "Date": None}
        figure.savefig(content, format="svg", metadata=about)
    else:
        # Half a hundredth of a pixel more, lest the product be rounded down to one pixel less.
        figure.savefig(content, format="png", dpi=(width + 0.005) / width_in, metadata={"Software": "Surecast"})
    return content.getvalue()


def availability_map(theme: Theme) -> Colormap:
    """Returns the colours from a component that is often down to one that is nearly always up."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("availability", theme.ramp)


def plotly_layout(**more: Any) -> dict[str, Any]:
    """Returns the layout that every figure of a page starts from; `more` adds to it or replaces parts of it."""
    hover = {"align": "left", "bgcolor": "var(--panel)", "bordercolor": "var(--grid)"}
    layout: dict[str, Any] = {
        "paper_bgcolor": "var(--surface)",
        "plot_bgcolor": "var(--surface)",
        "font": {"family": FONT_STACK, "size": 13, "color": "var(--ink)"},
        "colorway": [series_variable(i) for i in range(len(LIGHT.series))],
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
        "hoverlabel": {**hover, "font": {"family": FONT_STACK, "size": 13, "color": "var(--ink)"}},
        "hovermode": "closest",
        "dragmode": "pan",
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 0,
            "yref": "container",
            "yanchor": "bottom",
            "itemsizing": "constant",
            "font": {"size": 12, "color": "var(--ink)"},
            "bgcolor": "var(--surface)",
        },
        "uirevision": "keep",
    }
    return layout | more


def plotly_axis(**more: Any) -> dict[str, Any]:
    """Returns an axis in the colours of the page; `more` adds to it or replaces parts of it."""
    axis: dict[str, Any] = {
        "gridcolor": "var(--grid)",
        "linecolor": "var(--grid)",
        "zeroline": False,
        "tickfont": {"size": 11, "color": "var(--muted)"},
        "automargin": True,
    }
    return axis | more
