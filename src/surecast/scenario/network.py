"""The physical network, resolved: routers and links with their latency and service times."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from surecast.scenario.distributions import Distribution

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["LIGHT_IN_FIBRE_KM_PER_S", "Network", "PhysicalLink", "Router", "great_circle_km"]

EARTH_RADIUS_KM = 6371.0088
LIGHT_IN_FIBRE_KM_PER_S = 299_792.458 * 2 / 3
Distance = Literal["hops", "latency"]


@dataclass(frozen=True, slots=True)
class Router:
    """A place of the network where brokers and clients can be attached.

    `x` and `y` are longitude and latitude in degrees where the network is geographic, else kilometres on a plane.
    `service` is None where the router adds no queueing delay.
    """

    name: str
    x: float
    y: float
    domain: str = ""
    service: Distribution | None = None


@dataclass(frozen=True, slots=True)
class PhysicalLink:
    """A link between the routers with indices `a` and `b`, used in both directions."""

    name: str
    a: int
    b: int
    latency_s: float
    service: Distribution | None = None


@dataclass(frozen=True)
class Network:
    """Routers and links, connected. `notes` says what was assumed where the source was silent.

    `located` says that positions are real, in degrees or kilometres; otherwise they serve for drawing only.
    """

    routers: tuple[Router, ...]
    links: tuple[PhysicalLink, ...]
    geographic: bool = False
    located: bool = True
    notes: tuple[str, ...] = field(default=())

    @cached_property
    def index(self) -> dict[str, int]:
        """Index of each router by its name."""
        return {router.name: i for i, router in enumerate(self.routers)}

    @cached_property
    def domains(self) -> tuple[str, ...]:
        """Names of the domains, in order of first appearance."""
        return tuple(dict.fromkeys(router.domain for router in self.routers if router.domain))

    @cached_property
    def graph(self) -> nx.Graph[int]:
        """The network as a graph on router indices; each edge carries `link` (index), `latency` and `hops` (1)."""
        import networkx as nx

        graph: nx.Graph[int] = nx.Graph()
        graph.add_nodes_from(range(len(self.routers)))
        for i, link in enumerate(self.links):
            graph.add_edge(link.a, link.b, link=i, latency=link.latency_s, hops=1)
        return graph

    def distances_from(self, router: int, by: Distance = "hops") -> dict[int, float]:
        """Returns the distance to every router, in hops or in seconds of latency."""
        import networkx as nx

        if by == "hops":
            return {k: float(v) for k, v in nx.single_source_shortest_path_length(self.graph, router).items()}
        return {k: float(v) for k, v in nx.single_source_dijkstra_path_length(self.graph, router, weight=by).items()}

    def path(self, start: int, end: int, by: Distance = "hops") -> tuple[int, ...]:
        """Returns the routers of a shortest path, both ends included; the same for both directions, reversed."""
        import networkx as nx

        low, high = min(start, end), max(start, end)
        routers = nx.shortest_path(self.graph, low, high, weight=None if by == "hops" else by)
        return tuple(routers if start == low else reversed(routers))

    def links_on(self, routers: Sequence[int]) -> tuple[int, ...]:
        """Indices of the links between consecutive routers of a path."""
        return tuple(self.graph.edges[a, b]["link"] for a, b in itertools.pairwise(routers))

    def length_km(self, a: Router, b: Router) -> float:
        """Returns the distance between two routers: along the great circle, or on the plane."""
        if self.geographic:
            return great_circle_km(a.x, a.y, b.x, b.y)
        return math.hypot(a.x - b.x, a.y - b.y)


def great_circle_km(lon_1: float, lat_1: float, lon_2: float, lat_2: float) -> float:
    """Returns the distance on the Earth's surface between two points given in degrees.

    >>> round(great_circle_km(-74.006, 40.7143, -87.65, 41.85))  # New York to Chicago
    1146
    """
    phi_1, phi_2 = math.radians(lat_1), math.radians(lat_2)
    half_dphi, half_dlambda = (phi_2 - phi_1) / 2, math.radians(lon_2 - lon_1) / 2
    h = math.sin(half_dphi) ** 2 + math.cos(phi_1) * math.cos(phi_2) * math.sin(half_dlambda) ** 2
    return 2 * EARTH_RADIUS_KM * math.asin(min(1.0, math.sqrt(h)))
