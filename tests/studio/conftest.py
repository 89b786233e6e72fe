"""Systems to draw, made by hand from the resolved dataclasses, and a look into the files that come out."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from surecast.scenario.distributions import Exponential
from surecast.scenario.network import LIGHT_IN_FIBRE_KM_PER_S, Network, PhysicalLink, Router, great_circle_km
from surecast.scenario.system import Broker, Failures, Overlay, OverlayLink, Publisher, Subscriber, System

DAY_S = 86400.0

CITIES = {
    "Seattle": (-122.33, 47.61),
    "Portland": (-122.68, 45.52),
    "Sunnyvale": (-122.04, 37.37),
    "Los Angeles": (-118.24, 34.05),
    "San Diego": (-117.16, 32.72),
    "Las Vegas": (-115.14, 36.17),
    "Phoenix": (-112.07, 33.45),
    "Salt Lake City": (-111.89, 40.76),
    "Boise": (-116.20, 43.62),
    "Denver": (-104.99, 39.74),
    "Albuquerque": (-106.65, 35.08),
    "El Paso": (-106.49, 31.76),
    "Dallas": (-96.80, 32.78),
    "Houston": (-95.37, 29.76),
    "San Antonio": (-98.49, 29.42),
    "Kansas City": (-94.58, 39.10),
    "Minneapolis": (-93.27, 44.98),
    "Chicago": (-87.63, 41.88),
    "St. Louis": (-90.20, 38.63),
    "Memphis": (-90.05, 35.15),
    "New Orleans": (-90.07, 29.95),
    "Nashville": (-86.78, 36.16),
    "Indianapolis": (-86.16, 39.77),
    "Detroit": (-83.05, 42.33),
    "Cleveland": (-81.69, 41.50),
    "Atlanta": (-84.39, 33.75),
    "Jacksonville": (-81.66, 30.33),
    "Miami": (-80.19, 25.76),
    "Charlotte": (-80.84, 35.23),
    "Washington": (-77.04, 38.91),
    "New York": (-74.01, 40.71),
    "Boston": (-71.06, 42.36),
}


def failures(mtbf_days: float, mttr_minutes: float) -> Failures:
    return Failures(
        Exponential().with_mean(mtbf_days * DAY_S),
        Exponential().with_mean(mttr_minutes * 60.0),
    )


def system_of(
    brokers: Iterable[Broker],
    links: Iterable[OverlayLink],
    *,
    name: str = "test system",
    network: Network | None = None,
    candidates: tuple[int, ...] = (),
    clients: Iterable[tuple[int, int]] = (),
    root: int = 0,
    notes: tuple[str, ...] = (),
) -> System:
    """`clients` are publishers and subscribers at each broker; what no drawing reads is None."""
    counts = list(enumerate(clients))
    publishers = [Publisher(f"p{home}.{i}", home, ("t",), 1.0, 1.0) for home, (n, _) in counts for i in range(n)]
    subscribers = [Subscriber(f"s{home}.{i}", home, ("t",)) for home, (_, n) in counts for i in range(n)]
    drawn: dict[str, Any] = {
        "name": name,
        "seed": 1,
        "network": network,
        "overlay": Overlay(tuple(brokers), tuple(links), root=root, candidates=candidates),
        "topics": (),
        "publishers": tuple(publishers),
        "subscribers": tuple(subscribers),
        "notes": notes,
    }
    every: dict[str, Any] = {field.name: drawn.get(field.name) for field in fields(System)}
    return System(**every)


def overlay_links(pairs: Iterable[tuple[int, int]], latency_s: float = 0.012) -> list[OverlayLink]:
    return [
        OverlayLink(f"b{a}-b{b}", a, b, latency_s=latency_s * (1 + (3 * a + b) % 5), failures=failures(20, 15))
        for a, b in pairs
    ]


def tree_system(n: int = 10) -> System:
    """A tree without a network: broker i hangs on broker (i - 1) // 2 or so; every fourth never fails."""
    brokers = [
        Broker(
            f"broker-{i}",
            notification_service=Exponential().with_mean(1 / 1400),
            failures=None if i % 4 == 3 else failures(2 + 3 * (i % 7), 20 + 10 * (i % 3)),
        )
        for i in range(n)
    ]
    pairs = [((i - 1) // (2 + i % 2), i) for i in range(1, n)]
    clients = [(1 + i % 2, (7 * i) % 23) for i in range(n)]
    return system_of(brokers, overlay_links(pairs), name=f"{n} brokers in a tree", clients=clients)


def graph_system(n: int = 10) -> System:
    """A ring with chords, without a network."""
    brokers = [Broker(f"broker-{i}", failures=failures(2 + i % 9, 30)) for i in range(n)]
    pairs = [(i, (i + 1) % n) for i in range(n)] + [(i, (i + 3) % n) for i in range(0, n - 3, 4)]
    return system_of(brokers, overlay_links(pairs), name=f"{n} brokers in a graph", clients=[(1, i) for i in range(n)])


def single_system() -> System:
    return system_of([Broker("alone")], [], name="one broker", clients=[(2, 5)])


def _routed(network: Network, at: list[int], pairs: Iterable[tuple[int, int]]) -> list[OverlayLink]:
    links = []
    for a, b in pairs:
        routers = network.path(at[a], at[b], by="latency")
        latency_s = sum(network.links[i].latency_s for i in network.links_on(routers))
        links.append(
            OverlayLink(f"b{a}-b{b}", a, b, routers, latency_s, capacity_per_s=2500.0, failures=failures(30, 60))
        )
    return links


def synthetic_system(domains: int = 5, per_domain: int = 200) -> System:
    """A transit-stub-like network: clusters of routers around hubs, 10 candidates, 6 brokers."""
    rng = np.random.default_rng(4)
    routers: list[Router] = []
    links: list[PhysicalLink] = []
    for d in range(domains):
        angle = 2 * math.pi * d / domains
        centre = np.array([1500 * math.cos(angle), 950 * math.sin(angle)])
        start = len(routers)
        for i, (dx, dy) in enumerate(rng.normal(0, 260, (per_domain, 2))):
            if i == 0:
                dx = dy = 0.0
            routers.append(Router(f"d{d}r{i}", float(centre[0] + dx), float(centre[1] + dy), f"domain {d}"))
        for i in range(1, per_domain):
            near = min(range(i), key=lambda j: _km(routers[start + j], routers[start + i]) * (1 + 0.2 * (j > 20)))
            links.append(_link(routers, start + near, start + i))
            if rng.random() < 0.5:
                links.append(_link(routers, start + int(rng.integers(0, min(i, 12))), start + i))
    hubs = [d * per_domain for d in range(domains)]
    links += [_link(routers, a, b) for a in hubs for b in hubs if a < b]
    unique = {(link.a, link.b): link for link in links}
    network = Network(tuple(routers), tuple(unique.values()))
    candidates = tuple(d * per_domain + k for d in range(domains) for k in (3, 41))
    at = [*candidates[::2], candidates[1]]
    brokers = [
        Broker(f"b{i}", router, Exponential().with_mean(1 / 1400), failures=failures(1 + 4 * i, 40))
        for i, router in enumerate(at)
    ]
    overlay = _routed(network, at, [(0, 1), (0, 4), (1, 2), (4, 3), (0, 5)])
    clients = [(2, 30), (1, 12), (3, 45), (0, 8), (1, 20), (2, 4)]
    return system_of(brokers, overlay, name="five domains", network=network, candidates=candidates, clients=clients)


def city_system() -> System:
    """A geographic network of cities, each linked to its nearest, with eight brokers."""
    routers = tuple(Router(name, lon, lat) for name, (lon, lat) in CITIES.items())
    pairs = set()
    for i, a in enumerate(routers):
        nearest = sorted(range(len(routers)), key=lambda j: great_circle_km(a.x, a.y, routers[j].x, routers[j].y))
        pairs |= {(min(i, j), max(i, j)) for j in nearest[1:4]}
    pairs |= {(7, 9), (0, 16), (9, 15), (11, 14), (10, 12), (29, 30), (25, 29)}
    links = tuple(
        PhysicalLink(
            f"l{a}-{b}",
            a,
            b,
            great_circle_km(routers[a].x, routers[a].y, routers[b].x, routers[b].y) / LIGHT_IN_FIBRE_KM_PER_S,
        )
        for a, b in sorted((min(p), max(p)) for p in pairs)
    )
    network = Network(routers, links, geographic=True, notes=("latencies follow from distances",))
    names = ["Chicago", "Seattle", "Sunnyvale", "Denver", "Dallas", "Atlanta", "New York", "Washington"]
    at = [network.index[name] for name in names]
    brokers = [
        Broker(
            name,
            router,
            failures=None if name == "Denver" else failures(3 + 5 * i, 25),
            notification_service=Exponential().with_mean(1 / 900),
        )
        for i, (name, router) in enumerate(zip(names, at, strict=True))
    ]
    overlay = _routed(network, at, [(0, 3), (3, 1), (3, 2), (0, 4), (4, 5), (0, 6), (6, 7), (2, 4), (5, 7)])
    clients = [(3, 40), (1, 14), (2, 22), (1, 6), (2, 18), (1, 15), (4, 55), (1, 20)]
    candidates = (*at, network.index["Houston"], network.index["Minneapolis"], network.index["Boston"])
    return system_of(
        brokers, overlay, name="backbone of the United States", network=network, candidates=candidates, clients=clients
    )


def _km(a: Router, b: Router) -> float:
    return math.hypot(a.x - b.x, a.y - b.y)


def _link(routers: list[Router], a: int, b: int) -> PhysicalLink:
    return PhysicalLink(f"l{a}-{b}", min(a, b), max(a, b), _km(routers[a], routers[b]) / LIGHT_IN_FIBRE_KM_PER_S)


@pytest.fixture(scope="session")
def make_system() -> Callable[..., System]:
    """A system from its brokers and links."""
    return system_of


@pytest.fixture(scope="session")
def make_tree() -> Callable[[int], System]:
    return tree_system


@pytest.fixture(scope="session")
def make_graph() -> Callable[[int], System]:
    return graph_system


@pytest.fixture(scope="session")
def systems() -> dict[str, System]:
    """One system of every kind that is drawn differently."""
    star = [Broker(f"broker-{i}") for i in range(60)]
    chain = [Broker(f"broker-{i}", failures=failures(5, 20)) for i in range(12)]
    return {
        "tree": tree_system(10),
        "large tree": tree_system(100),
        "chain": system_of(chain, overlay_links([(i, i + 1) for i in range(11)])),
        "star": system_of(star, overlay_links([(0, i) for i in range(1, 60)])),
        "graph": graph_system(10),
        "single": single_system(),
        "domains": synthetic_system(),
        "cities": city_system(),
    }


@pytest.fixture(scope="session")
def hostile() -> System:
    """Names that try to leave the place they are written in."""
    names = [
        "<script>alert(1)</script>",
        "</script><script>document.title='owned'</script>",
        '"><img src=x onerror=alert(1)>',
        "$\\frac{1}{0}$",
        "line\nbreak\x00\x1b[31m",
        "%{x} <b>bold</b> &amp;",
        "var(--ink)",
        "北京 \ud800 \u202e",
        "",
        "x" * 300,
    ]
    brokers = [Broker(name, failures=failures(1 + i, 5)) for i, name in enumerate(names)]
    links = [OverlayLink(names[i], 0, i, latency_s=0.01) for i in range(1, len(names))]
    clients = [(1, i) for i in range(len(names))]
    return system_of(brokers, links, name=names[1], clients=clients, notes=(names[0], names[2]))


@pytest.fixture(scope="session")
def figures_of() -> Callable[[str], list[dict[str, Any]]]:
    """The figures a page carries, as data."""

    def read(html: str) -> list[dict[str, Any]]:
        found = re.findall(r'<script type="application/json" id="figure-\d+-data">(.*?)</script>', html, re.S)
        return [json.loads(text) for text in found]

    return read
