"""The contents of a drawing of a system, independent of whether it becomes a picture or a page."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from surecast.errors import ConfigurationError
from surecast.studio import wording
from surecast.studio.layout import Axes, GraphLayout, Shape, arc, graph_layout, network_layout, s_curve, spread
from surecast.studio.names import DIRECTIONS
from surecast.studio.style import LIGHT, clean

if TYPE_CHECKING:
    from surecast.scenario.network import Network
    from surecast.scenario.system import Broker, Overlay, OverlayLink, System

__all__ = ["BrokerMark", "LinkMark", "RouterGroup", "Scene", "build_scene"]

Array = NDArray[np.float64]
Hover = tuple[str, ...]
BULGE = 0.13
DOMAIN_ROUTERS_MIN = 3


@dataclass(frozen=True)
class RouterGroup:
    """Routers of one domain; `series` is None for the rest, where there are more domains than colours."""

    label: str
    series: int | None
    xy: Array
    hover: tuple[Hover, ...]


@dataclass(frozen=True)
class LinkMark:
    """An overlay link: its curve, and the path under it (no points where there is no network)."""

    curve: Array
    path: Array
    latency: str
    hover: Hover

    @property
    def middle(self) -> Array:
        return np.asarray(self.curve[len(self.curve) // 2], dtype=np.float64)


@dataclass(frozen=True)
class BrokerMark:
    """A broker: `size` from 0 to 1 grows with its clients; `availability` is None if it never fails."""

    name: str
    clients: str
    xy: Array
    size: float
    availability: float | None
    is_root: bool
    label_at: str
    hover: Hover


@dataclass(frozen=True)
class Scene:
    """All that is drawn. Coordinates are on one plane; `equal` says that a unit is as long across as upwards."""

    title: str
    counts: tuple[str, ...]
    caption: str
    physical: Array
    routers: tuple[RouterGroup, ...]
    links: tuple[LinkMark, ...]
    brokers: tuple[BrokerMark, ...]
    candidates: Array
    candidate_hover: tuple[Hover, ...]
    clients_max: int
    axes: Axes | None
    equal: bool
    bounds: tuple[float, float, float, float]
    rows: int

    @property
    def ratio(self) -> float:
        """Height over width that suits the contents."""
        if not self.equal:
            return 0.56
        left, right, bottom, top = self.bounds
        return float(np.clip((top - bottom) / max(right - left, 1e-9), 0.42, 0.74))

    @property
    def availabilities(self) -> list[float]:
        """Availability of every broker that can fail."""
        return [b.availability for b in self.brokers if b.availability is not None]

    def shade(self, availability: float) -> float:
        """Returns the position of an availability on the colour ramp, 0 to 1: by nines, so that 99 % and 99.9 % look
        different."""
        low, high = nines(min(self.availabilities)), nines(max(self.availabilities))
        return 1.0 if high == low else (nines(availability) - low) / (high - low)

    @property
    def shade_ticks(self) -> tuple[tuple[float, str], ...]:
        """Both ends of the colour ramp and their availabilities; nothing where all are equal."""
        shares = sorted(set(self.availabilities))
        return () if len(shares) < 2 else ((0.0, wording.percent(shares[0])), (1.0, wording.percent(shares[-1])))


def nines(availability: float) -> float:
    """Returns the number of nines of an availability.

    >>> round(nines(0.999), 6)
    3.0
    """
    return -math.log10(max(1.0 - availability, 1e-12))


def build_scene(system: System, title: str | None) -> Scene:
    """Lays the system out and words everything that is written on it."""
    overlay, network = system.overlay, system.network
    if network is None and not overlay.brokers:
        raise ConfigurationError(f"{system.name}: nothing to draw: the system has neither brokers nor a network")
    axes: Axes | None = None
    shape: Shape = "force"
    rows = 1
    routers = np.zeros((0, 2))
    if network is None:
        laid_out: GraphLayout = graph_layout(overlay.graph, overlay.root)
        xy, shape, rows = laid_out.xy, laid_out.shape, laid_out.rows
    else:
        placed = network_layout(network)
        routers, axes = placed.xy, placed.axes
        xy = _broker_positions(overlay, routers)
    links = _link_marks(system, xy, routers, shape)
    free = _free_candidates(overlay)
    counts = _client_counts(system)
    brokers = _broker_marks(system, xy, counts, shape)
    return Scene(
        title=clean(title if title is not None else system.name or "The system"),
        counts=wording.system_counts(system),
        caption=wording.system_caption(system, bool(len(free)), int(counts.sum(axis=1).max(initial=0))),
        physical=_physical(network, routers),
        routers=_router_groups(network, routers),
        links=links,
        brokers=brokers,
        candidates=routers[list(free)] if network is not None else np.zeros((0, 2)),
        candidate_hover=tuple((clean(network.routers[r].name), "free candidate position") for r in free)
        if network is not None
        else (),
        clients_max=int(counts.sum(axis=1).max(initial=0)),
        axes=axes,
        equal=shape not in ("rightwards", "downwards"),
        bounds=_bounds([xy, routers, *(link.curve for link in links)]),
        rows=rows,
    )


def _broker_positions(overlay: Overlay, routers: Array) -> Array:
    """Brokers stand on their routers; one without a router stands in the middle, several on one are parted."""
    middle = routers.mean(axis=0) if len(routers) else np.zeros(2)
    xy = np.array([middle if b.router is None else routers[b.router] for b in overlay.brokers]).reshape(-1, 2)
    extent = float(np.ptp(routers, axis=0).max(initial=0.0)) if len(routers) else 0.0
    return spread(xy, 0.022 * (extent or 1.0))


def _link_marks(system: System, xy: Array, routers: Array, shape: Shape) -> tuple[LinkMark, ...]:
    marks = []
    for link in system.overlay.links:
        start, end = xy[link.a], xy[link.b]
        if system.network is not None:
            low, high = (start, end) if tuple(start) <= tuple(end) else (end, start)
            curve = arc(low, high, BULGE)
        elif shape in ("rightwards", "downwards"):
            curve = s_curve(start, end, 0 if shape == "rightwards" else 1)
        else:
            curve = arc(start, end, 0.0)
        path = routers[list(link.routers)] if system.network is not None and link.routers else np.zeros((0, 2))
        latency = wording.duration(link.latency_s) if link.latency_s > 0 else ""
        marks.append(LinkMark(curve, path, latency, _link_hover(link, system)))
    return tuple(marks)


def _broker_marks(system: System, xy: Array, counts: NDArray[np.int64], shape: Shape) -> tuple[BrokerMark, ...]:
    overlay = system.overlay
    totals = counts.sum(axis=1)
    most = max(1, int(totals.max(initial=0)))
    marks = []
    for i, broker in enumerate(overlay.brokers):
        published, subscribed, other = (int(n) for n in counts[i])
        clients = wording.joined(
            f"{n:,} {word}"
            for n, word in ((published, "pub"), (subscribed, "sub"), (other, "client" if other == 1 else "clients"))
            if n
        )
        marks.append(
            BrokerMark(
                name=clean(broker.name),
                clients=clients,
                xy=xy[i],
                size=float(np.sqrt(totals[i] / most)),
                availability=None if broker.failures is None else broker.availability,
                is_root=i == overlay.root,
                label_at=_label_at(overlay, i, xy, shape),
                hover=_broker_hover(broker, i == overlay.root, clients, system.network),
            )
        )
    return tuple(marks)


def _label_at(overlay: Overlay, i: int, xy: Array, shape: Shape) -> str:
    """Returns the best direction for a name: beyond it at the end of a branch, else above it where branches run
    across."""
    neighbours = list(overlay.graph.neighbors(i))
    if shape in ("rightwards", "downwards"):
        return "top center" if shape == "rightwards" and len(neighbours) > 1 else "middle right"
    if len(neighbours) != 1:
        return "middle right"
    away = xy[i] - xy[neighbours[0]]
    outward = away / (float(np.hypot(*away)) or 1.0)
    return max(DIRECTIONS, key=lambda name: float(outward @ DIRECTIONS[name]) / math.hypot(*DIRECTIONS[name]))


def _broker_hover(broker: Broker, is_root: bool, clients: str, network: Network | None) -> Hover:
    share, mtbf, mttr = wording.failing(broker.failures)
    rate = wording.capacity(broker.notification_service)
    return (
        clean(broker.name) + (" (root)" if is_root else ""),
        f"availability: {share}" if mtbf else "never fails",
        *((f"MTBF {mtbf}, MTTR {mttr}",) if mtbf else ()),
        *((f"capacity: {rate}",) if rate else ()),
        clients.replace(" · ", ", ") if clients else "no clients",
        *((f"router: {clean(network.routers[broker.router].name)}",) if network and broker.router is not None else ()),
    )


def _link_hover(link: OverlayLink, system: System) -> Hover:
    brokers = system.overlay.brokers
    share, mtbf, mttr = wording.failing(link.failures)
    stops = [system.network.routers[r].name for r in link.routers] if system.network is not None else []
    return (
        f"{clean(brokers[link.a].name)} to {clean(brokers[link.b].name)}",
        f"latency: {wording.duration(link.latency_s)}",
        f"capacity: {wording.rate(link.capacity_per_s)}",
        *((f"loss: {100 * link.loss:.3g} %",) if link.loss else ()),
        f"availability: {share}" if mtbf else "never fails",
        *((f"MTBF {mtbf}, MTTR {mttr}",) if mtbf else ()),
        *((f"path ({wording.count(len(stops) - 1, 'hop')}): {wording.route(stops)}",) if len(stops) > 1 else ()),
    )


def _router_groups(network: Network | None, xy: Array) -> tuple[RouterGroup, ...]:
    """Returns routers by domain. Where domains outnumber the colours, only the largest get a group of their own."""
    if network is None:
        return ()
    members: dict[str, list[int]] = {}
    for i, router in enumerate(network.routers):
        members.setdefault(router.domain, []).append(i)
    named = [d for d in network.domains if d]
    coloured = named
    if len(named) > len(LIGHT.series):
        large = [d for d in named if len(members[d]) >= DOMAIN_ROUTERS_MIN]
        coloured = sorted(large, key=lambda d: -len(members[d]))[: len(LIGHT.series)]
    rest = [i for d, inside in members.items() if d not in coloured for i in inside]
    groups = []
    for series, domain in enumerate(d for d in named if d in coloured):
        inside = members[domain]
        label = f"{clean(domain)} ({wording.count(len(inside), 'router')})"
        groups.append(RouterGroup(label, series, xy[inside], _router_hover(network, inside)))
    if rest:
        label = f"{'other routers' if groups else 'router'} ({len(rest):,})"
        groups.append(RouterGroup(label, None, xy[rest], _router_hover(network, rest)))
    return tuple(groups)


def _router_hover(network: Network, members: list[int]) -> tuple[Hover, ...]:
    rows = []
    for router in (network.routers[i] for i in members):
        domain = (f"domain: {clean(router.domain)}",) if router.domain else ()
        rows.append((clean(router.name), "router", *domain))
    return tuple(rows)


def _physical(network: Network | None, xy: Array) -> Array:
    """Returns the two ends of every physical link."""
    if network is None:
        return np.zeros((0, 2, 2))
    ends = np.array([(link.a, link.b) for link in network.links], dtype=np.intp).reshape(-1, 2)
    return np.asarray(xy[ends], dtype=np.float64)


def _free_candidates(overlay: Overlay) -> tuple[int, ...]:
    held = {broker.router for broker in overlay.brokers}
    return tuple(r for r in dict.fromkeys(overlay.candidates) if r not in held)


def _client_counts(system: System) -> NDArray[np.int64]:
    """Publishers, subscribers and clients of the class workload attached to each broker, one row per broker."""
    counts = np.zeros((len(system.overlay.brokers), 3), dtype=np.int64)
    for publisher in system.publishers:
        counts[publisher.home, 0] += 1
    for subscriber in system.subscribers:
        counts[subscriber.home, 1] += 1
    if system.class_workload is not None:
        for home in system.class_workload.client_home:
            counts[home, 2] += 1
    return counts


def _bounds(parts: list[Array]) -> tuple[float, float, float, float]:
    """Returns left, right, bottom and top of everything, with room around a single item."""
    points = np.concatenate(parts)
    (left, bottom), (right, top) = points.min(axis=0), points.max(axis=0)
    across, up = float(right - left), float(top - bottom)
    least = max(across, up) * 0.15 or 1.0
    least_x = 2.4 * least if across == up == 0 else least
    grow_x, grow_y = max(0.0, least_x - across) / 2, max(0.0, least - up) / 2
    return float(left) - grow_x, float(right) + grow_x, float(bottom) - grow_y, float(top) + grow_y
