"""A scene as a page: an interactive figure by Plotly, and tables of the brokers and links below it."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from surecast.studio import wording
from surecast.studio.frame import Frame, small_network_names
from surecast.studio.labels import place_labels
from surecast.studio.page import Bullets, Downloads, Figure, Heading, Page, Paragraph, Section, Table, render_page
from surecast.studio.style import LIGHT, plotly_axis, plotly_layout, series_variable, shorten

if TYPE_CHECKING:
    from surecast.scenario.system import System
    from surecast.studio.scene import Hover, RouterGroup, Scene

__all__ = ["scene_page"]

Array = NDArray[np.float64]
Trace = dict[str, Any]
NOMINAL_PX = 1080.0  # width of the drawing on a wide screen
HEIGHT_PER_RATIO_PX = 1152.0
PAD_PX = 34.0
AROUND_PX = 110.0  # height of the colour bar and the legend
LABEL_PX, TOWN_PX = 13.0, 11.0
NAME_LENGTH = 26


def scene_page(scene: Scene, system: System, *, dark: bool) -> str:
    """Returns the page as HTML."""
    height_px = max(420.0, 40.0 * scene.rows + AROUND_PX)
    if scene.equal:
        height_px = min(736.0, HEIGHT_PER_RATIO_PX * scene.ratio)
    frame = Frame.fitting(scene, NOMINAL_PX, height_px - AROUND_PX)
    brokers, links = _broker_table(scene, system), _link_table(system)
    sections: list[Section] = [
        Figure(
            {"data": _traces(scene, frame), "layout": _layout(scene, frame)},
            alt=f"Drawing of {scene.title}: {'; '.join(scene.counts)}.",
            caption=scene.caption + " Point at anything for its details; names that would overlap are hidden.",
            ratio=scene.ratio,
            height_px_min=420 if scene.equal else int(height_px),
        ),
        Heading("Brokers"),
        brokers,
        Downloads(brokers, f"{system.name}-brokers"),
    ]
    if system.overlay.links:
        sections += [Heading("Overlay links"), links, Downloads(links, f"{system.name}-links")]
    else:
        sections.append(Paragraph("There are no overlay links."))
    notes = (*system.notes, *(system.network.notes if system.network is not None else ()))
    if notes:
        sections += [Heading("What was assumed"), Bullets(list(dict.fromkeys(notes)))]
    return render_page(Page(scene.title, sections, subtitle=wording.joined(scene.counts), dark=dark))


def _traces(scene: Scene, frame: Frame) -> list[Trace]:
    routers = sum(len(group.xy) for group in scene.routers)
    traces = []
    if len(scene.physical):
        width = float(np.clip(14 / np.sqrt(len(scene.physical)), 0.45, 1.3))
        traces.append(_lines("physical link", list(scene.physical), "var(--physical)", width, 7))
    traces += [_router_trace(group, routers) for group in scene.routers]
    paths = [link.path for link in scene.links if len(link.path) > 1]
    if paths:
        traces.append(_lines("its physical path", paths, "var(--overlay)", 6.0, 6) | {"opacity": 0.2})
    if scene.links:
        width = 3.0 if len(scene.brokers) <= 40 else 1.8
        traces.append(_lines("overlay link", [link.curve for link in scene.links], "var(--overlay)", width, 5))
        middles = np.array([link.middle for link in scene.links])
        handle = {"size": 16, "color": "var(--overlay)", "opacity": 0.0}
        traces.append(_points("links", middles, [link.hover for link in scene.links], handle) | {"showlegend": False})
    if len(scene.candidates):
        hollow = {"symbol": "diamond-open", "size": 13, "color": "var(--ink)", "line": {"width": 2}}
        traces.append(_points("free candidate position", scene.candidates, list(scene.candidate_hover), hollow, 4))
    return traces + _named_traces(scene, frame)


def _lines(name: str, lines: list[Array], colour: str, width: float, rank: int) -> Trace:
    """Returns many lines as one trace, with gaps between them."""
    gap = np.full((1, 2), np.nan)
    points = np.concatenate([part for line in lines for part in (line, gap)])
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": points[:, 0],
        "y": points[:, 1],
        "line": {"color": colour, "width": width},
        "hoverinfo": "skip",
        "legendrank": rank,
    }


def _points(name: str, xy: Array, hover: list[Hover], marker: dict[str, Any], rank: int = 9) -> Trace:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": xy[:, 0],
        "y": xy[:, 1],
        "hoverinfo": "text",
        "hovertext": [_rich(lines) for lines in hover],
        "marker": marker,
        "legendrank": rank,
    }


def _router_trace(group: RouterGroup, routers: int) -> Trace:
    colour = "var(--steady)" if group.series is None else series_variable(group.series)
    size = float(np.clip(60 / np.sqrt(routers), 3.0, 7.0))
    return _points(
        escape(shorten(group.label, 40), quote=False),
        group.xy,
        list(group.hover),
        {"size": size, "color": colour, "opacity": 0.75},
    )


def _named_traces(scene: Scene, frame: Frame) -> list[Trace]:
    """Returns names of the routers of a small network, and on top of them the brokers with theirs."""
    crowd = float(np.clip(np.sqrt(24 / max(1, len(scene.brokers))), 0.5, 1.0)) if scene.equal else 0.75
    sizes = np.array([(15 + (19 if scene.clients_max else 5) * broker.size) * crowd for broker in scene.brokers])
    towns, places = small_network_names(scene, frame)
    directions = _text_positions(scene, frame, sizes / 2, towns, places)
    traces = []
    if towns:
        names = {
            "mode": "markers+text",
            "text": [_label(town, where) for town, where in zip(towns, directions[len(sizes) :], strict=True)],
            "textposition": directions[len(sizes) :],
            "textfont": {"size": TOWN_PX, "color": "var(--muted)"},
            "showlegend": False,
            "hoverinfo": "skip",
            "hovertext": None,
        }
        xy = np.array([frame.plane(x, y) for x, y in places])
        bare = [14 if (np.abs(scene.candidates - place).max(axis=1) < 1e-9).any() else 7 for place in xy]
        traces.append(_points("names of routers", xy, [], {"size": bare, "opacity": 0.0}) | names)
    return traces + _broker_traces(scene, sizes, directions)


def _broker_traces(scene: Scene, sizes: Array, directions: list[str]) -> list[Trace]:
    """Brokers that never fail and brokers that do, each with names; one trace more for the root's legend."""
    traces = []
    if any(broker.is_root for broker in scene.brokers):
        ring = {"symbol": "circle-open", "size": 14, "color": "var(--accent)", "line": {"width": 4}}
        traces.append(_points("root broker", np.full((1, 2), np.nan), [], ring, 3) | {"hoverinfo": "skip"})
    for fails in (False, True):
        members = [i for i, broker in enumerate(scene.brokers) if (broker.availability is not None) == fails]
        if not members:
            continue
        members.sort(key=lambda i: (scene.brokers[i].is_root, -scene.brokers[i].size))
        brokers = [scene.brokers[i] for i in members]
        marker: dict[str, Any] = {
            "size": sizes[members],
            "line": {
                "color": ["var(--accent)" if b.is_root else "var(--overlay)" for b in brokers],
                "width": [4.0 if b.is_root else 1.6 for b in brokers],
            },
            "opacity": 1.0,
            "color": "var(--steady)",
        }
        if fails:
            marker |= {"color": [scene.shade(b.availability or 0.0) for b in brokers], **_scale(scene)}
        name = _broker_label(scene, fails)
        trace = _points(name, np.array([b.xy for b in brokers]), [b.hover for b in brokers], marker, 1 if fails else 2)
        traces.append(
            trace
            | {
                "mode": "markers+text",
                "text": [_label(scene.brokers[i].name, directions[i]) for i in members],
                "textposition": [directions[i] for i in members],
                "textfont": {"size": LABEL_PX, "color": "var(--ink)"},
                "cliponaxis": False,
            }
        )
    return traces


def _broker_label(scene: Scene, fails: bool) -> str:
    if not fails:
        return "broker that never fails"
    return "broker" if scene.shade_ticks else f"broker, up {wording.percent(scene.availabilities[0])} of the time"


def _scale(scene: Scene) -> dict[str, Any]:
    """Returns the colours of availability, and their bar above the drawing."""
    last = len(LIGHT.ramp) - 1
    ticks = scene.shade_ticks
    return {
        "colorscale": [[i / last, f"var(--ramp-{i})"] for i in range(last + 1)],
        "cmin": 0.0,
        "cmax": 1.0,
        "showscale": bool(ticks),
        "colorbar": {
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
            "tickvals": [position for position, _ in ticks],
            "ticktext": [text for _, text in ticks],
            "tickfont": {"size": 11, "color": "var(--muted)"},
            "title": {
                "text": "availability of brokers (log scale)",
                "side": "top",
                "font": {"size": 11, "color": "var(--muted)"},
            },
        },
    }


def _text_positions(scene: Scene, frame: Frame, radii: Array, towns: list[str], places: Array) -> list[str]:
    """Returns the directions in which names fit at the usual width of the page; the page itself hides overlaps at other
    widths."""
    brokers = scene.brokers
    if not brokers and not towns:
        return []
    anchors = frame.points(np.array([broker.xy for broker in brokers]).reshape(-1, 2))
    names = [(broker.name, LABEL_PX) for broker in brokers] + [(town, TOWN_PX) for town in towns]
    sizes = np.array([(0.58 * px * len(shorten(name, NAME_LENGTH)), 1.3 * px) for name, px in names])
    preferred = [broker.label_at for broker in brokers] + ["bottom center"] * len(towns)
    lines = [(frame.points(np.concatenate([link.curve for link in scene.links])), 1.5)] if scene.links else []
    spots = place_labels(
        np.concatenate([anchors, places]),
        np.concatenate([radii + 1, np.full(len(towns), 4.0)]),
        sizes,
        (0, frame.width_pt, 0, frame.height_pt),
        lines=lines,
        preferred=preferred,
        distances=(0.0,),
    )
    return [usual if spot is None else spot.direction for usual, spot in zip(preferred, spots, strict=True)]


def _layout(scene: Scene, frame: Frame) -> dict[str, Any]:
    hidden = plotly_axis(visible=False)
    x_axis, y_axis = dict(hidden), dict(hidden)
    if scene.axes is not None:
        for axis, ticks in ((x_axis, scene.axes.x_ticks), (y_axis, scene.axes.y_ticks)):
            axis |= {
                "visible": True,
                "tickvals": [position for position, _ in ticks],
                "ticktext": [text for _, text in ticks],
            }
    x_axis["range"], y_axis["range"] = [frame.left, frame.right], [frame.bottom, frame.top]
    if scene.equal:  # Plotly widens one of the ranges to fit the shape of the screen
        left, right, bottom, top = scene.bounds
        pad = PAD_PX * (frame.right - frame.left) / frame.width_pt
        x_axis["range"], y_axis["range"] = [left - pad, right + pad], [bottom - pad, top + pad]
        y_axis |= {"scaleanchor": "x", "scaleratio": 1}
    return plotly_layout(xaxis=x_axis, yaxis=y_axis)


def _broker_table(scene: Scene, system: System) -> Table:
    network = system.network
    rows = []
    for broker, mark in zip(system.overlay.brokers, scene.brokers, strict=True):
        share, mtbf, mttr = wording.failing(broker.failures)
        name = broker.name + (" (root)" if mark.is_root else "")
        router = [network.routers[broker.router].name if broker.router is not None else ""] if network else []
        rate = wording.capacity(broker.notification_service)
        rows.append([name, *router, share, mtbf, mttr, rate or "no limit", mark.clients or "none"])
    router_column = ["Router"] if network else []
    header = ["Broker", *router_column, "Availability", "MTBF", "MTTR", "Capacity", "Clients"]
    return Table(header, rows, f"Availability, capacity and clients of {wording.count(len(rows), 'broker')}")


def _link_table(system: System) -> Table:
    network, brokers = system.network, system.overlay.brokers
    rows = []
    for link in system.overlay.links:
        share, mtbf, mttr = wording.failing(link.failures)
        rate = wording.rate(link.capacity_per_s)
        path = [wording.route([network.routers[r].name for r in link.routers], 40)] if network else []
        ends = f"{brokers[link.a].name} to {brokers[link.b].name}"
        latency = wording.duration(link.latency_s)
        rows.append([link.name, ends, latency, rate, f"{100 * link.loss:.3g} %", share, mtbf, mttr, *path])
    path_column = ["Path"] if network else []
    header = ["Link", "Between", "Latency", "Capacity", "Loss", "Availability", "MTBF", "MTTR", *path_column]
    return Table(header, rows, f"Latency, capacity and availability of {wording.count(len(rows), 'overlay link')}")


def _label(text: str, where: str) -> str:
    """Returns a name with a little room between it and its marker."""
    name = escape(shorten(text, NAME_LENGTH), quote=False)
    return f"\u00a0{name}" if "right" in where else f"{name}\u00a0" if "left" in where else name


def _rich(lines: Hover) -> str:
    """Returns hover text with a bold first line; Plotly reads a little HTML there, so names are escaped."""
    safe = [escape(line, quote=False) for line in lines]
    return "<br>".join([f"<b>{safe[0]}</b>", *safe[1:]]) if safe else ""
