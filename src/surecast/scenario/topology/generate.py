"""Networks made from a seed. Every part draws from a stream of its own name, so no part depends on another."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from surecast.scenario.topology.finish import finish
from surecast.scenario.topology.raw import LINKS_MAX, ROUTERS_MAX, RawTopology, ReadOptions

if TYPE_CHECKING:
    from surecast.scenario.network import Network
    from surecast.scenario.streams import Streams

__all__ = [
    "Pair",
    "in_disc",
    "link_count",
    "nearest_tree",
    "random_network",
    "recursive_tree",
    "short_pairs",
    "tidy_tree",
    "transit_stub",
    "tree_network",
    "uniform_pairs",
]

Array = NDArray[np.float64]
_IN_KM = ReadOptions(km_per_unit=1.0)
WIDTH_MAX_KM = 1e6
CENTRE_OFFERS = 20
DOMAIN_SHARE = 1 / 8
"""Radius of a domain, in widths of the plane."""
STUB_AWAY, STUB_RADIUS = 0.25, 0.1
"""Distance of a stub from its transit router, and radius of a stub, in radii of its domain."""


def transit_stub(
    streams: Streams,
    *,
    domains: int,
    routers: int,
    transit_per_domain: int = 8,
    stubs_per_transit: int = 3,
    transit_degree: float = 3.0,
    stub_degree: float = 2.5,
    stub_uplinks: int = 1,
    domain_degree: float = 3.0,
    interdomain_links: int = 2,
    width_km: float = 12000.0,
) -> Network:
    """Returns an Internet-like network: domains of transit routers, and stub networks of routers at each of those.

    A further domain of the same size leaves the routers and the links of the others as they were.

    >>> from surecast.scenario.streams import Streams
    >>> network = transit_stub(Streams(1), domains=3, routers=200, transit_per_domain=4)
    >>> len(network.routers), network.domains, network.routers[0].name, network.routers[4].name
    (200, ('d0', 'd1', 'd2'), 'd0-t0', 'd0-t0-s0-r0')
    """
    _check(routers, width_km, transit_degree=transit_degree, stub_degree=stub_degree, domain_degree=domain_degree)
    _at_least(1, domains=domains, transit_per_domain=transit_per_domain, interdomain_links=interdomain_links)
    _at_least(1, stub_uplinks=stub_uplinks)
    _at_least(0, stubs_per_transit=stubs_per_transit)
    if stub_uplinks > transit_per_domain:
        raise ValueError(f"stub_uplinks is {stub_uplinks}, but a domain has only {transit_per_domain} transit routers")
    transit, stubs = domains * transit_per_domain, domains * transit_per_domain * stubs_per_transit
    if routers < transit + stubs or (stubs == 0 and routers > transit):
        wanted = f"at least {transit + stubs}" if stubs else f"exactly {transit}"
        raise ValueError(
            f"{routers} routers do not fit: {domains} domains of {transit_per_domain} transit routers with "
            f"{stubs_per_transit} stub networks each take {wanted}; "
            "change routers, domains, transit_per_domain or stubs_per_transit"
        )
    raw = RawTopology("transit_stub")
    radius = width_km * DOMAIN_SHARE
    centres = _centres(streams, domains, width_km - 2 * radius) + radius
    gateways: list[list[int]] = []
    for number, sizes in enumerate(_stub_sizes(routers - transit, domains, transit_per_domain * stubs_per_transit)):
        domain = f"d{number}"
        positions = in_disc(
            streams.generator("topology/transit/places", domain), transit_per_domain, centres[number], radius
        )
        names = [f"{domain}-t{i}" for i in range(transit_per_domain)]
        gateways.append(_cluster(streams, raw, domain, domain, names, positions, transit_degree))
        for stub, size in enumerate(sizes):
            host, step = divmod(stub, stubs_per_transit)
            name = f"{names[host]}-s{step}"
            _stub(streams, raw, name, domain, size, stub_degree, positions[host], radius)
            _attach(streams, raw, name, size, gateways[-1], host, stub_uplinks)
    _join_domains(streams, raw, gateways, domain_degree, interdomain_links)
    raw.notes.append(f"generated from seed {streams.seed}: transit-stub, {domains} domains")
    return finish(raw, _IN_KM)


def random_network(streams: Streams, *, routers: int, mean_degree: float = 3.0, width_km: float = 3000.0) -> Network:
    """Returns a connected network without structure: a random recursive tree, and further pairs up to the mean degree.

    >>> from surecast.scenario.streams import Streams
    >>> network = random_network(Streams(1), routers=40)
    >>> len(network.routers), len(network.links), network.routers[39].name
    (40, 60, 'r39')
    """
    _check(routers, width_km, mean_degree=mean_degree)
    count = _limited_links(routers, mean_degree)
    raw = RawTopology("random_network")
    positions = streams.generator("topology/random/places").uniform(0, width_km, (routers, 2))
    for i, (x, y) in enumerate(positions.tolist()):
        raw.add_router(f"r{i}", position=(x, y))
    pairs = recursive_tree(streams.generator("topology/random/tree"), routers)
    pairs += uniform_pairs(streams.generator("topology/random/extra"), routers, pairs, count - len(pairs))
    for a, b in pairs:
        raw.add_link(a, b)
    raw.notes.append(f"generated from seed {streams.seed}: random, mean degree {2 * count / routers:.3g}")
    return finish(raw, _IN_KM)


def tree_network(streams: Streams, *, routers: int, branching: int | None = None, width_km: float = 3000.0) -> Network:
    """Returns a tree with router r0 as its root: balanced with that many children each, or a random recursive tree.

    >>> from surecast.scenario.streams import Streams
    >>> network = tree_network(Streams(1), routers=7, branching=2)
    >>> [link.name for link in network.links]
    ['r0--r1', 'r0--r2', 'r1--r3', 'r1--r4', 'r2--r5', 'r2--r6']
    """
    _check(routers, width_km)
    if branching is None:
        parents = [a for a, _ in recursive_tree(streams.generator("topology/tree"), routers)]
    else:
        _at_least(1, branching=branching)
        parents = [(child - 1) // branching for child in range(1, routers)]
    raw = RawTopology("tree_network")
    for i, (x, y) in enumerate(tidy_tree(parents, width_km, width_km / 2).tolist()):
        raw.add_router(f"r{i}", position=(x, y))
    for child, parent in enumerate(parents, start=1):
        raw.add_link(parent, child)
    kind = (
        f"generated from seed {streams.seed}: random tree"
        if branching is None
        else f"generated: tree, branching {branching}"
    )
    raw.notes.append(kind)
    return finish(raw, _IN_KM)


def _check(routers: int, width_km: float, **degrees: float) -> None:
    if not 1 <= routers <= ROUTERS_MAX:
        raise ValueError(f"routers is {routers}; it must be between 1 and {ROUTERS_MAX:,}")
    if not 0 < width_km <= WIDTH_MAX_KM:
        raise ValueError(f"width_km is {width_km:g}; it must be above 0 and at most {WIDTH_MAX_KM:g}")
    for name, degree in degrees.items():
        if not 0 < degree < math.inf:
            raise ValueError(f"{name} is {degree:g}; it must be above 0 and finite")


def _at_least(least: int, **counts: int) -> None:
    for name, count in counts.items():
        if count < least:
            raise ValueError(f"{name} is {count}; it must be at least {least}")


def _limited_links(routers: int, degree: float) -> int:
    count = link_count(routers, degree)
    if count > LINKS_MAX:
        raise ValueError(f"{count:,} links are too many; the limit is {LINKS_MAX:,}: lower the routers or the degree")
    return count


def _centres(streams: Streams, domains: int, width: float) -> Array:
    """Centres of the domains: each the farthest from those before it among a few that its own stream offers."""
    centres = np.empty((domains, 2))
    for i in range(domains):
        offers = streams.generator("topology/domain/centre", f"d{i}").uniform(0, width, (CENTRE_OFFERS, 2))
        if i:
            away = np.linalg.norm(offers[:, None] - centres[None, :i], axis=2).min(axis=1)
            centres[i] = offers[np.argmax(away)]
        else:
            centres[0] = offers[0]
    return centres


def _stub_sizes(routers: int, domains: int, stubs: int) -> list[list[int]]:
    """Returns sizes of the stub networks of each domain; they differ by at most one, the larger ones spread evenly."""
    total = domains * stubs
    bounds = [routers * i // total for i in range(total + 1)] if total else []
    sizes = [after - before for before, after in pairwise(bounds)]
    return [sizes[i * stubs : (i + 1) * stubs] for i in range(domains)]


def _cluster(
    streams: Streams, raw: RawTopology, key: str, domain: str, names: list[str], positions: Array, degree: float
) -> list[int]:
    """Adds routers that form one connected random graph, mostly of short links; returns their indices."""
    added = [
        raw.add_router(name, position=(x, y), domain=domain)
        for name, (x, y) in zip(names, positions.tolist(), strict=True)
    ]
    pairs = nearest_tree(positions)
    extra = _limited_links(len(names), degree) - len(pairs)
    pairs += short_pairs(streams.generator("topology/cluster/extra", key), positions, pairs, extra)
    for a, b in pairs:
        raw.add_link(added[a], added[b])
    return added


def _stub(
    streams: Streams, raw: RawTopology, name: str, domain: str, size: int, degree: float, host: Array, radius: float
) -> None:
    rng = streams.generator("topology/stub/places", name)
    angle = rng.uniform(0, 2 * math.pi)
    centre = host + STUB_AWAY * radius * np.array([math.cos(angle), math.sin(angle)])
    positions = in_disc(rng, size, centre, STUB_RADIUS * radius)
    # The first router of a stub is its way out: the one nearest to the transit router.
    positions = positions[np.argsort(np.hypot(*(positions - host).T), kind="stable")]
    _cluster(streams, raw, name, domain, [f"{name}-r{i}" for i in range(size)], positions, degree)


def _attach(
    streams: Streams, raw: RawTopology, name: str, size: int, transit: list[int], host: int, uplinks: int
) -> None:
    """Joins a stub to its own transit router, and by further uplinks to others of the domain."""
    first = len(raw.routers) - size
    raw.add_link(transit[host], first)
    if uplinks > 1:
        rng = streams.generator("topology/stub/uplinks", name)
        others = rng.permutation([router for router in transit if router != transit[host]])[: uplinks - 1]
        for router in others.tolist():
            raw.add_link(router, first + int(rng.integers(size)))


def _join_domains(streams: Streams, raw: RawTopology, gateways: list[list[int]], degree: float, links: int) -> None:
    """Joins each domain to one or more of those before it, each time by links between different transit routers."""
    growth = max(0.0, degree / 2 - 1)
    for i in range(1, len(gateways)):
        rng = streams.generator("topology/domain/links", f"d{i}")
        extra = math.floor(i * growth) - math.floor((i - 1) * growth)
        for partner in rng.permutation(i)[: 1 + extra].tolist():
            here, there = rng.permutation(gateways[i]), rng.permutation(gateways[partner])
            size = len(here)
            for step in range(min(links, size * size)):
                raw.add_link(int(there[(step + step // size) % size]), int(here[step % size]))


Pair = tuple[int, int]
WAXMAN_ROUTERS_MAX = 1500
WAXMAN_REACH = 0.25
"""The chance of a redundant link falls by a factor of e over this share of the longest distance."""


def link_count(routers: int, mean_degree: float) -> int:
    """Returns the number of links for a mean degree: at least those of a tree, at most one for each pair.

    >>> link_count(10, 3.0), link_count(10, 1.0), link_count(3, 8.0)
    (15, 9, 3)
    """
    pairs = routers * (routers - 1) // 2
    return min(max(math.floor(routers * mean_degree / 2 + 0.5), routers - 1), pairs)


def recursive_tree(rng: np.random.Generator, routers: int) -> list[Pair]:
    """Returns a random recursive tree: each router joins one of those before it, all equally likely."""
    if routers < 2:
        return []
    parents = rng.integers(0, np.arange(1, routers))
    return [(int(parent), child) for child, parent in enumerate(parents, start=1)]


def nearest_tree(xy: Array) -> list[Pair]:
    """Returns a tree in which each router joins the nearest of those before it."""
    pairs = []
    for child in range(1, len(xy)):
        away = xy[:child] - xy[child]
        pairs.append((int(np.argmin((away * away).sum(axis=1))), child))
    return pairs


def uniform_pairs(rng: np.random.Generator, routers: int, existing: list[Pair], count: int) -> list[Pair]:
    """Returns further pairs, all equally likely, none of them existing."""
    total = routers * (routers - 1) // 2
    drawn = rng.choice(total, size=min(total, count + len(existing)), replace=False)
    used = set(existing)
    pairs: list[Pair] = []
    for number in drawn.tolist():
        # Pairs are numbered (0,1), (0,2), (1,2), (0,3), ...
        high = (1 + math.isqrt(1 + 8 * number)) // 2
        pair = (number - high * (high - 1) // 2, high)
        if len(pairs) < count and pair not in used:
            pairs.append(pair)
    return pairs


def short_pairs(rng: np.random.Generator, xy: Array, existing: list[Pair], count: int) -> list[Pair]:
    """Returns further pairs, near ones more likely.

    Waxman, "Routing of multipoint connections", IEEE JSAC 6(9), 1988: the chance falls exponentially with distance.
    """
    if count == 0 or len(xy) > WAXMAN_ROUTERS_MAX:
        return uniform_pairs(rng, len(xy), existing, count) if count else []
    high, low = np.tril_indices(len(xy), k=-1)
    distance = np.hypot(*(xy[high] - xy[low]).T)
    # The largest of log weight plus Gumbel noise is a draw without replacement by weight.
    score = rng.gumbel(size=len(distance)) - distance / (WAXMAN_REACH * max(float(distance.max()), 1e-9))
    for a, b in existing:
        score[b * (b - 1) // 2 + a] = -np.inf
    best = np.argsort(-score, kind="stable")[:count]
    return [(int(low[i]), int(high[i])) for i in best]


def in_disc(rng: np.random.Generator, routers: int, centre: Array, radius: float) -> Array:
    """Returns points spread evenly over a disc."""
    angle = rng.uniform(0, 2 * math.pi, routers)
    distance = radius * np.sqrt(rng.uniform(0, 1, routers))
    return np.asarray(centre + np.stack([distance * np.cos(angle), distance * np.sin(angle)], axis=1))


def tidy_tree(parents: list[int], width: float, height: float) -> Array:
    """Positions of a tree, its root on top: leaves side by side, every parent above the middle of its children.

    Router 0 is the root, and `parents[i]` is the parent of router i + 1, which always comes before it.
    """
    routers = len(parents) + 1
    children: list[list[int]] = [[] for _ in range(routers)]
    depth = [0] * routers
    for child, parent in enumerate(parents, start=1):
        children[parent].append(child)
        depth[child] = depth[parent] + 1
    column, leaves = [0.0] * routers, 0
    stack = [0]
    while stack:
        router = stack.pop()
        if not children[router]:
            column[router] = float(leaves)
            leaves += 1
        stack.extend(reversed(children[router]))
    for router in range(routers - 1, -1, -1):
        if children[router]:
            column[router] = (column[children[router][0]] + column[children[router][-1]]) / 2
    x = np.array(column) * width / max(1, leaves - 1)
    y = (max(depth) - np.array(depth, dtype=np.float64)) * height / max(1, max(depth))
    return np.stack([x, y], axis=1)
