"""A scene as a chart, and the tables of its brokers and links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from surecast.studio import wording
from surecast.studio.chart import Axis, Chart, ColourScale, Layer, Names, Paths, Points
from surecast.studio.page import Bullets, Downloads, Heading, Paragraph, Section, Table
from surecast.studio.scene import Scene, build_scene
from surecast.studio.style import shorten

if TYPE_CHECKING:
    from surecast.scenario.system import System

__all__ = ["placement_chart", "scene_chart", "scene_sections"]

Array = NDArray[np.float64]
CROWD, NAMES_MAX, ROUTER_NAMES_MAX, LATENCIES_MAX = 40, 200, 60, 20
CANDIDATE_PX = 11.0


def placement_chart(placed: System, system: System, title: str) -> Chart:
    """Returns the drawing of a placement: `placed` has its brokers, `system` all that may be placed."""
    brokers = [broker for broker in system.overlay.brokers if broker.router is not None]
    candidates = tuple(broker.router for broker in brokers if broker.router is not None)
    drawn = replace(placed, overlay=replace(placed.overlay, candidates=candidates))
    held = {broker.router for broker in placed.overlay.brokers}
    free = {broker.router: broker.name for broker in brokers if broker.router not in held}
    return scene_chart(build_scene(drawn, title), tuple(free.values()))


def scene_chart(scene: Scene, candidate_names: Sequence[str] = ()) -> Chart:
    """Returns the chart of a scene: the network, the overlay above it, the brokers, and all names."""
    names = _names(scene)
    if candidate_names:
        count = len(candidate_names)
        radii, sides = [CANDIDATE_PX / 2 + 1] * count, ["middle right"] * count
        names.insert(0, Names(candidate_names, scene.candidates, radii_px=radii, sides=sides, quiet=True))
    left, right, bottom, top = scene.bounds
    x_ticks, y_ticks = ((), ()) if scene.axes is None else (scene.axes.x_ticks, scene.axes.y_ticks)
    hidden = scene.axes is None
    return Chart(
        [*_network(scene), *_overlay(scene), *_brokers(scene), *names],
        title=scene.title,
        x=Axis(ends=(left, right), ticks=x_ticks, hidden=hidden),
        y=Axis(ends=(bottom, top), ticks=y_ticks, hidden=hidden),
        caption=scene.caption,
        lines=scene.counts,
        scale=ColourScale("availability of brokers (log scale)", scene.shade_ticks) if scene.shade_ticks else None,
        form="plane" if scene.equal else "layers",
        ratio=scene.ratio,
        height_px_min=420 if scene.equal else max(420, 40 * scene.rows + 110),
        about=f"a drawing of {'; '.join(scene.counts)}.",
    )


def _network(scene: Scene) -> list[Layer]:
    layers: list[Layer] = []
    routers = max(1, sum(len(group.xy) for group in scene.routers))
    if len(scene.physical):
        width_px = float(np.clip(14 / np.sqrt(len(scene.physical)), 0.45, 1.3))
        layers.append(Paths("physical link", list(scene.physical), colour="physical", width_px=width_px))
    layers += [
        Points(
            shorten(group.label, 40),
            *group.xy.T,
            colour="steady" if group.series is None else group.series,
            symbol="circle",
            size_px=float(np.clip(60 / np.sqrt(routers), 3.0, 7.0)),
            edge_px=0.0,
            opacity=0.75,
            hover=group.hover,
        )
        for group in reversed(scene.routers)
    ]
    return layers


def _overlay(scene: Scene) -> list[Layer]:
    layers: list[Layer] = []
    paths = [link.path for link in scene.links if len(link.path) > 1]
    crowded = len(scene.brokers) > CROWD
    if paths:
        path = Paths("its physical path", paths, colour="overlay", width_px=5.5, opacity=0.2, avoid=0.8)
        layers.append(path)
    if scene.links:
        width_px, avoid = (1.8, 1.0) if crowded else (3.0, 2.5)
        curves = [link.curve for link in scene.links]
        layers.append(
            Paths("overlay link", curves, colour="overlay", width_px=width_px, cased=bool(paths), avoid=avoid)
        )
        middles = np.array([link.middle for link in scene.links])
        # What is not seen can be pointed at.
        layers.append(
            Points(
                "",
                *middles.T,
                colour="overlay",
                size_px=8.0,
                opacity=0.0,
                in_legend=False,
                hover=[link.hover for link in scene.links],
            )
        )
    if len(scene.candidates):
        layers.append(
            Points(
                "free candidate position",
                *scene.candidates.T,
                colour="ink",
                symbol="diamond",
                hollow=True,
                size_px=CANDIDATE_PX,
                edge_px=1.8,
                hover=scene.candidate_hover,
            )
        )
    return layers


def _sizes_px(scene: Scene) -> Array:
    """Returns the size of each broker's mark, which shrinks as the drawing fills."""
    crowd = float(np.clip(np.sqrt(24 / max(1, len(scene.brokers))), 0.5, 1.0)) if scene.equal else 0.75
    more = 19.0 if scene.clients_max else 5.0
    return np.array([(15.0 + more * broker.size) * crowd for broker in scene.brokers])


def _brokers(scene: Scene) -> list[Layer]:
    sizes = _sizes_px(scene)
    shares = scene.availabilities
    larger = " (larger: more clients)" if scene.clients_max and len(scene.brokers) > 1 else ""
    up = f", up {wording.percent(shares[0])} of the time" if shares and not scene.shade_ticks else ""
    labels = {True: f"broker{up}{larger}", False: f"broker that never fails{'' if shares else larger}"}
    layers: list[Layer] = []
    for fails in (False, True):
        members = [i for i, broker in enumerate(scene.brokers) if (broker.availability is not None) == fails]
        members.sort(key=lambda i: -scene.brokers[i].size)
        if members:
            brokers = [scene.brokers[i] for i in members]
            layers.append(
                Points(
                    labels[fails],
                    *np.array([broker.xy for broker in brokers]).T,
                    colour="steady",
                    symbol="circle",
                    shades=[scene.shade(broker.availability or 0.0) for broker in brokers] if fails else None,
                    size_px=sizes[members],
                    edge="overlay",
                    edge_px=1.6,
                    hover=[broker.hover for broker in brokers],
                )
            )
    for broker, size in zip(scene.brokers, sizes, strict=True):
        if broker.is_root:
            layers.append(
                Points(
                    "root broker",
                    broker.xy[:1],
                    broker.xy[1:],
                    colour="accent",
                    symbol="circle",
                    hollow=True,
                    size_px=float(size) + 8.0,
                    edge_px=2.8,
                    hover=[broker.hover],
                )
            )
    return layers


def _names(scene: Scene) -> list[Layer]:
    """Returns the latencies of few links, the routers of a small network, and the brokers, the most important last."""
    layers: list[Layer] = []
    named = [link for link in scene.links if link.latency]
    if named and len(scene.links) <= LATENCIES_MAX:
        middles, count = np.array([link.middle for link in named]), len(named)
        texts = [link.latency for link in named]
        layers.append(Names(texts, middles, radii_px=[1.0] * count, sides=[""] * count, quiet=True, centred=True))
    routers = [(lines[0], xy) for group in scene.routers for lines, xy in zip(group.hover, group.xy, strict=True)]
    if 0 < len(routers) <= ROUTER_NAMES_MAX:
        held = np.array([broker.xy for broker in scene.brokers]).reshape(-1, 2)
        free = [(name, xy) for name, xy in routers if not (np.abs(held - xy).max(axis=1) < 1e-9).any()]
        if free:
            places = np.array([xy for _, xy in free])
            on_candidate = [bool((np.abs(scene.candidates - xy).max(axis=1) < 1e-9).any()) for xy in places]
            radii = [CANDIDATE_PX / 2 + 1 if on else 3.5 for on in on_candidate]
            sides = ["bottom center"] * len(free)
            layers.append(Names([name for name, _ in free], places, radii_px=radii, sides=sides, quiet=True))
    if scene.brokers:
        sizes = _sizes_px(scene)
        order = sorted(range(len(scene.brokers)), key=lambda i: (not scene.brokers[i].is_root, -scene.brokers[i].size))[
            :NAMES_MAX
        ]
        brokers = [scene.brokers[i] for i in order]
        layers.append(
            Names(
                [broker.name for broker in brokers],
                np.array([broker.xy for broker in brokers]),
                radii_px=[sizes[i] / 2 + (5.0 if scene.brokers[i].is_root else 1.0) for i in order],
                sides=[broker.label_at for broker in brokers],
                seconds=[broker.clients for broker in brokers],
            )
        )
    return layers


def scene_sections(scene: Scene, system: System) -> list[Section]:
    """Returns what stands below the drawing on a page: tables of brokers and links, and what was assumed."""
    brokers, links = _broker_table(scene, system), _link_table(system)
    sections: list[Section] = [
        Paragraph("Point at anything for its details. Names that would lie on others are hidden."),
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
    return sections


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
