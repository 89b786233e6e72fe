"""A chart as an interactive figure of a page, by Plotly. All use of Plotly is in this module.

Colours are CSS variables of the page. Plotly reads a little HTML in its texts, so every text is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surecast.studio.chart import (
    Area,
    Axis,
    Bars,
    Chart,
    Hover,
    Line,
    Names,
    Paths,
    Points,
    RuleLine,
    number_text,
    ticks_between,
)
from surecast.studio.names import Frame, place_names
from surecast.studio.style import FONT_STACK, LIGHT, SYMBOLS, clean, css_colour, shorten

__all__ = ["alternative_text", "figure_data", "plotly_js"]

Trace = dict[str, Any]
Array = NDArray[np.float64]
DASH = "7px,4px"
"""In pixels, as the legend draws thicker lines, whose dashes would be as long as its sample."""
NOMINAL_PX = 1080.0  # width of the drawing on a wide screen
WIDE_PX, AROUND_PX, HEIGHT_PX_MAX = 1152.0, 110.0, 736.0
NAME_PX, NAME_LENGTH, LABEL_LENGTH = 13.0, 26, 48
LEGEND_ROW_PX, RULE_PX = 22, 18
PAD_PX = 34.0


def plotly_js() -> str:
    """Returns Plotly's JavaScript from its wheel."""
    from plotly.offline import get_plotlyjs

    script: str = get_plotlyjs()
    return script.replace("\r\n", "\n").replace("</script", "<\\/script")


def figure_data(chart: Chart) -> dict[str, Any]:
    """Returns the figure as Plotly takes it: traces and layout."""
    height_px = max(float(chart.height_px_min), min(HEIGHT_PX_MAX, WIDE_PX * chart.ratio))
    frame = Frame.fitting(chart, NOMINAL_PX, height_px - AROUND_PX)
    shown: set[str] = set()
    intervals: list[Trace] = []
    traces: list[Trace] = []
    for layer in chart.layers:
        match layer:
            case Line():
                new = _line(chart, layer)
            case Area():
                new = _area(chart, layer)
            case Points():
                new = _points(chart, layer)
            case Bars():
                new = _bars(chart, layer)
            case Paths():
                new = _paths(layer)
            case Names():
                continue
        _into_legend(chart, new, layer.label if layer.in_legend else "", shown)
        if isinstance(layer, Points):
            intervals += new[:-1]
            new = new[-1:]
        traces += new
    return {"data": intervals + traces + _names(chart, frame), "layout": _layout(chart, frame)}


def alternative_text(chart: Chart) -> str:
    """Returns a sentence on the chart for who cannot see it."""
    if chart.about:
        return f"{chart.title}: {chart.about}"
    labels = [clean(label) for label in chart.labels]
    return f"{chart.title}: {chart.y.title} over {chart.x.title}: {', '.join(labels)}."


def _into_legend(chart: Chart, traces: list[Trace], label: str, shown: set[str]) -> None:
    """Names the traces of one layer; the legend has each label once, with its last trace."""
    named = label in chart.entries and label not in shown
    for trace in traces:
        trace["showlegend"] = named and trace is traces[-1]
        if label:
            trace |= {"legendgroup": str(chart.labels.index(label)), "name": _legend_text(label)}
    if named:
        traces[-1]["legendrank"] = chart.entries.index(label) + 1
        shown.add(label)


def _safe(text: str) -> str:
    return escape(clean(text), quote=False)


def _legend_text(label: str) -> str:
    return "<br>".join(escape(shorten(line, LABEL_LENGTH), quote=False) for line in label.split("\n"))


def _rich(lines: Hover) -> str:
    """Returns hover text with a bold first line."""
    safe = [_safe(line) for line in lines]
    return "<br>".join([f"<b>{safe[0]}</b>", *safe[1:]]) if safe else ""


def _hover(chart: Chart, layer: Line | Points) -> list[str]:
    if layer.hover is not None:
        return [_rich(lines) for lines in layer.hover]
    label = layer.label.split("\n")[0]
    return [
        _rich(
            (
                label,
                f"{chart.x.title}: {number_text(float(x))}",
                f"{chart.y.title}: {number_text(float(y))}",
                *([layer.how] if layer.how else []),
            )
        )
        for x, y in zip(layer.x, layer.y, strict=True)
    ]


def _line(chart: Chart, layer: Line) -> list[Trace]:
    look = {
        "color": css_colour(chart.colour(layer)),
        "width": layer.width_px,
        "dash": DASH if layer.dashed else "solid",
        "shape": "hv" if layer.stepped else "linear",
    }
    trace: Trace = {"type": "scatter", "mode": "lines", "x": list(layer.x), "y": list(layer.y), "line": look}
    trace |= {"opacity": layer.opacity} if layer.opacity < 1 else {}
    hover = _hover(chart, layer)
    return [trace | ({"hoverinfo": "text", "hovertext": hover} if hover else {"hoverinfo": "skip"})]


def _area(chart: Chart, layer: Area) -> list[Trace]:
    x, low, high = (np.asarray(values, dtype=np.float64) for values in (layer.x, layer.low, layer.high))
    some = np.isfinite(low) & np.isfinite(high)
    stroke = {"width": 0.8, "color": "var(--surface)"}
    edge: Trace = {"type": "scatter", "mode": "lines", "x": x[some], "hoverinfo": "skip", "line": stroke}
    filled: Trace = {"fill": "tonexty", "fillcolor": css_colour(chart.colour(layer))}
    if layer.hover:
        texts = [_rich(lines) for lines, drawn in zip(layer.hover, some, strict=True) if drawn]
        filled |= {"hoverinfo": "text", "hovertext": texts, "hoveron": "points"}
    return [edge | {"y": low[some]}, edge | {"y": high[some]} | filled]


def _points(chart: Chart, layer: Points) -> list[Trace]:
    colour = css_colour(chart.colour(layer))
    number = chart.colour(layer)
    symbol = layer.symbol or (SYMBOLS[number % len(SYMBOLS)] if isinstance(number, int) else SYMBOLS[0])
    marker: dict[str, Any] = {
        "symbol": f"{symbol}-open" if layer.hollow else symbol,
        "size": layer.size_px if isinstance(layer.size_px, float | int) else list(layer.size_px),
        "color": colour if layer.shades is None else list(layer.shades),
        "opacity": layer.opacity,
        "line": {"color": colour if layer.hollow else css_colour(layer.edge), "width": layer.edge_px},
    }
    if layer.shades is not None:
        marker |= _scale(chart)
    hover = _hover(chart, layer)
    trace: Trace = {"type": "scatter", "mode": "markers", "x": list(layer.x), "y": list(layer.y), "marker": marker}
    trace |= {"hoverinfo": "text", "hovertext": hover} if hover else {"hoverinfo": "skip"}
    trace |= {"cliponaxis": False} if layer.symbol == "x" else {}
    if layer.low is None or layer.high is None:
        return [trace]
    ends = np.column_stack([layer.low, layer.high, np.full(len(layer.x), np.nan)]).ravel()
    places = np.repeat(np.asarray(layer.y if layer.across else layer.x, dtype=np.float64), 3)
    x, y = (ends, places) if layer.across else (places, ends)
    stroke = {"color": colour, "width": 1.6}
    interval = {"type": "scatter", "mode": "lines", "x": x, "y": y, "hoverinfo": "skip", "line": stroke}
    return [interval | {"opacity": layer.interval_opacity}, trace]


def _scale(chart: Chart) -> dict[str, Any]:
    """Returns the colours of shades, and their bar above the drawing."""
    last = len(LIGHT.ramp) - 1
    scale = chart.scale
    small = {"size": 11, "color": "var(--muted)"}
    colours: dict[str, Any] = {"colorscale": [[i / last, f"var(--ramp-{i})"] for i in range(last + 1)]}
    colours |= {"cmin": 0.0, "cmax": 1.0, "showscale": scale is not None}
    if scale is None:
        return colours
    bar = {
        "orientation": "h",
        "x": 0.0,
        "xanchor": "left",
        "y": 1.0,
        "yanchor": "bottom",
        "len": 230,
        "lenmode": "pixels",
        "thickness": 10,
        "outlinewidth": 0,
        "xpad": 30,
        "ypad": 16,
        "tickvals": [position for position, _ in scale.ticks],
        "ticktext": [text for _, text in scale.ticks],
        "tickfont": small,
        "title": {"text": _safe(scale.title), "side": "top", "font": small},
    }
    return colours | {"colorbar": bar}


def _bars(chart: Chart, layer: Bars) -> list[Trace]:
    """Returns the bars, and the texts at their ends."""
    values = np.asarray(layer.values, dtype=np.float64)
    colours = [css_colour(chart.colour(layer))] * len(values)
    if layer.marked is not None:
        colours[layer.marked] = "var(--accent)"
    hover = {"hoverinfo": "text", "hovertext": [_rich(lines) for lines in layer.hover]}
    bars: Trace = {
        "type": "bar",
        "orientation": "h",
        "x": values,
        "y": list(layer.places),
        "width": layer.thickness,
        "marker": {"color": colours},
        **(hover if layer.hover else {"hoverinfo": "skip"}),
    }
    defined = ~np.isnan(values)
    texts: Trace = {
        "type": "scatter",
        "mode": "text",
        # A value below zero stands right of the zero line, where its row is empty.
        "x": np.where(defined, np.maximum(values, 0.0), 0.0),
        "y": list(layer.places),
        "text": [f"\N{NO-BREAK SPACE}{_safe(text)}" for text in layer.texts],
        "textposition": "middle right",
        "cliponaxis": False,
        "hoverinfo": "skip",
        "textfont": {"size": 12, "color": ["var(--ink)" if k else "var(--muted)" for k in defined]},
    }
    return [texts, bars]


def _paths(layer: Paths) -> list[Trace]:
    """Returns many curves as one trace, with gaps between them."""
    gap = np.full((1, 2), np.nan)
    points = np.concatenate([np.zeros((0, 2)), *(part for path in layer.paths for part in (path, gap))])
    look = {"color": css_colour(layer.colour), "width": layer.width_px}
    trace: Trace = {"type": "scatter", "mode": "lines", "x": points[:, 0], "y": points[:, 1], "line": look}
    return [trace | {"hoverinfo": "skip", "opacity": layer.opacity}]


def _names(chart: Chart, frame: Frame) -> list[Trace]:
    """Returns the names, on marks that are not seen; the page hides those that overlap at its width."""
    layers = [layer for layer in chart.layers if isinstance(layer, Names) and len(layer.texts)]
    traces = []
    for layer in layers:
        sides = ["middle center" if layer.centred else side for side in layer.sides or [""] * len(layer.texts)]
        sides = sides if layer.centred else _sides(chart, frame, layer, sides)
        size = NAME_PX if not layer.quiet else NAME_PX - 2
        traces.append(
            {
                "type": "scatter",
                "mode": "markers+text",
                "x": layer.xy[:, 0],
                "y": layer.xy[:, 1],
                "marker": {"size": [2.0 * float(radius) for radius in layer.radii_px], "opacity": 0.0},
                "text": [_beside(text, side) for text, side in zip(layer.texts, sides, strict=True)],
                "textposition": sides,
                "textfont": {"size": size, "color": "var(--muted)" if layer.quiet else "var(--ink)"},
                "hoverinfo": "skip",
                "showlegend": False,
                "cliponaxis": False,
            }
        )
    return traces


def _sides(chart: Chart, frame: Frame, layer: Names, preferred: Sequence[str]) -> list[str]:
    """Returns the sides on which names fit at the usual width of a page."""
    placed, _ = place_names(chart, frame, lambda text, px: 0.58 * px * len(text), (NAME_PX,) * 3, 1.0)
    by_text = {name.lines[0].text: name.spot.direction for name in placed if name.leader_to is None}
    return [by_text.get(shorten(text, 22)) or side for text, side in zip(layer.texts, preferred, strict=True)]


def _beside(text: str, side: str) -> str:
    """Returns a name with a little room between it and its mark."""
    name = escape(shorten(text, NAME_LENGTH), quote=False)
    return f"\u00a0{name}" if "right" in side else f"{name}\u00a0" if "left" in side else name


def _axis(axis: Axis, ends: tuple[float, float]) -> dict[str, Any]:
    low, high = (math.log10(end) for end in ends) if axis.log else ends
    drawn: dict[str, Any] = {
        "range": [low, high],
        "gridcolor": "var(--grid)",
        "linecolor": "var(--grid)",
        "showgrid": axis.ruled,
        "zeroline": False,
        "tickfont": {"size": 12, "color": "var(--muted)" if axis.ruled else "var(--ink)"},
        "tickangle": 0,
        "automargin": True,
    }
    if axis.hidden:
        return drawn | {"visible": False}
    if axis.title:
        font = {"size": 13, "color": "var(--ink)"}
        drawn |= {"title": {"text": _safe(axis.title), "font": font, "standoff": 10}}
    if axis.ruled:
        drawn |= {"showline": True}
    if axis.log or axis.ticks:
        ticks = ticks_between(axis, *ends)
        texts = ["<br>".join(_safe(line) for line in text.split("\n")) for _, text in ticks]
        return (
            drawn
            | {"tickmode": "array", "tickvals": [value for value, _ in ticks], "ticktext": texts}
            | ({"type": "log"} if axis.log else {"ticks": "outside", "ticklen": 6, "tickcolor": "var(--surface)"})
        )
    if axis.whole and high - low < 8:
        drawn |= {"dtick": 1}
    return drawn | {"tickformat": ",.12~g"}


def _layout(chart: Chart, frame: Frame) -> dict[str, Any]:
    plain = frame.left, frame.right
    x_axis, y_axis = _axis(chart.x, plain), _axis(chart.y, (frame.bottom, frame.top))
    margin = {"l": 16, "r": 16, "t": 30, "b": 16}
    if chart.form == "plane":  # Plotly widens one of the ranges to fit the shape of the screen
        pad = PAD_PX * (frame.right - frame.left) / frame.width
        x_axis["range"], y_axis["range"] = ([end[0] - pad, end[1] + pad] for end in (chart.x_ends, chart.y_ends))
        y_axis |= {"scaleanchor": "x", "scaleratio": 1}
    if chart.form == "square":
        y_axis |= {"scaleanchor": "x", "scaleratio": 1}
        for axis in (x_axis, y_axis):
            axis |= {"constrain": "domain", "mirror": True}
    texts = [text for layer in chart.layers if isinstance(layer, Bars) for text in layer.texts]
    if texts:
        x_axis |= {"zeroline": True, "zerolinecolor": "var(--muted)"}
        margin["r"] = 14 + 8 * max(map(len, texts))
    # below, as many lines as the names need on a narrow page: a legend grows into it
    rows = math.ceil(len(chart.entries) / 4) * max((label.count("\n") + 1 for label in chart.entries), default=1)
    margin["b"] = (46 if chart.x.title else 26) + (LEGEND_ROW_PX * rows + 14 if rows else 0)
    if any(rule.label and rule.upright for rule in chart.rules):
        margin["t"] = 30 + RULE_PX * sum(rule.upright and bool(rule.label) for rule in chart.rules)
    shapes, notes = _rules(chart)
    text = {"family": FONT_STACK, "size": 13, "color": "var(--ink)"}
    return {
        "paper_bgcolor": "var(--surface)",
        "plot_bgcolor": "var(--surface)",
        "font": text,
        "colorway": [css_colour(i) for i in range(len(LIGHT.series))],
        "hoverlabel": {"align": "left", "bgcolor": "var(--panel)", "bordercolor": "var(--grid)", "font": text},
        "hovermode": "closest",
        "dragmode": "pan",
        "barmode": "overlay",
        "uirevision": "keep",
        "xaxis": x_axis,
        "yaxis": y_axis,
        "shapes": shapes,
        "annotations": notes,
        "margin": margin,
        "showlegend": bool(chart.entries),
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 0,
            "yref": "container",
            "yanchor": "bottom",
            "itemsizing": "constant",
            "traceorder": "normal",
            "font": {"size": 12, "color": "var(--ink)"},
            "bgcolor": "var(--surface)",
        },
    }


def _rules(chart: Chart) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns lines across the chart with stretches of x, and the names of the lines."""
    shapes: list[dict[str, Any]] = [
        {"type": "rect", "xref": "x", "yref": "paper", "x0": span.low, "x1": span.high, "y0": 0, "y1": 1}
        | {"fillcolor": "var(--accent)", "opacity": 0.14, "line": {"width": 0}, "layer": "below"}
        for span in chart.spans
    ]
    notes: list[dict[str, Any]] = []
    row = 0
    for rule in chart.rules:
        shapes.append(_shape(rule))
        if not rule.label:
            continue
        note: dict[str, Any] = {"text": _safe(rule.label), "showarrow": False, "yanchor": "bottom"}
        note |= {"font": {"size": 12, "color": css_colour(rule.colour)}}
        position = math.log10(rule.value) if (chart.x if rule.upright else chart.y).log else rule.value
        if rule.upright:
            share = chart.share(rule.value)
            side = "right" if share > 0.7 else "left" if share < 0.15 else "center"
            note |= {"x": position, "y": 1, "yref": "paper", "yshift": RULE_PX * row, "xanchor": side}
            row += 1
        else:
            note |= {"x": 1, "xref": "paper", "y": position, "xanchor": "right"}
        notes.append(note)
    return shapes, notes


def _shape(rule: RuleLine) -> dict[str, Any]:
    line = {"color": css_colour(rule.colour), "width": 1.4, "dash": "dash" if rule.dashed else "dot"}
    along, across = ("x", "y") if rule.upright else ("y", "x")
    ends = {f"{along}0": rule.value, f"{along}1": rule.value, f"{across}0": 0, f"{across}1": 1}
    return {"type": "line", f"{across}ref": "paper", **ends, "line": line}
