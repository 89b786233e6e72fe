"""From what a file says to a network: the one place where gaps are filled, and every filling is noted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from surecast.documents.units import format_duration
from surecast.scenario.network import LIGHT_IN_FIBRE_KM_PER_S, Network, PhysicalLink, Router, great_circle_km
from surecast.scenario.topology.positions import Meaning, Positions, counted, drawing_layout, locate
from surecast.scenario.topology.raw import RawLink, RawTopology, ReadOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["SHORTEST_KM", "SHORTEST_S", "finish"]

SHORTEST_KM = 1.0
SHORTEST_S = SHORTEST_KM / LIGHT_IN_FIBRE_KM_PER_S
"""Latency of one kilometre of fibre: no link is faster, not even between two routers of one building."""


def finish(raw: RawTopology, options: ReadOptions) -> Network:
    """Returns the network of a raw topology: connected, with a place for every router and a latency for every link."""
    if not raw.routers:
        raise raw.fail("the file names no routers; expected at least one")
    notes = list(raw.notes)
    links = _merge(raw, notes)
    raw, links = _connect(raw, links, options, notes)
    names = _unique((router.name for router in raw.routers), notes)
    positions = locate(raw, [(link.a, link.b) for link in links], options, notes)
    latencies = _latencies(links, positions, options, notes)
    xy = positions.xy
    if positions.meaning == "none":
        lengths = np.array(latencies) * LIGHT_IN_FIBRE_KM_PER_S
        xy = drawing_layout(len(names), np.array([(x.a, x.b) for x in links], dtype=np.intp).reshape(-1, 2), lengths)
        notes.append("no router has coordinates: positions are for drawing only")
    link_names = _unique((f"{names[link.a]}--{names[link.b]}" for link in links), [])
    return Network(
        routers=tuple(
            Router(name, float(x), float(y), router.domain)
            for name, (x, y), router in zip(names, xy.tolist(), raw.routers, strict=True)
        ),
        links=tuple(
            PhysicalLink(name, link.a, link.b, latency_s)
            for name, link, latency_s in zip(link_names, links, latencies, strict=True)
        ),
        geographic=positions.meaning == "geographic",
        located=positions.meaning in ("geographic", "kilometres"),
        notes=tuple(notes),
    )


def _merge(raw: RawTopology, notes: list[str]) -> list[RawLink]:
    """Returns one link for each pair of routers, with the lowest latency that the file gives for the pair."""
    merged: dict[tuple[int, int], RawLink] = {}
    directions: set[tuple[int, int]] = set()
    loops = parallel = 0
    unequal: set[tuple[int, int]] = set()
    for link in raw.links:
        if link.a == link.b:
            loops += 1
            continue
        key = (link.a, link.b) if link.a < link.b else (link.b, link.a)
        other = merged.setdefault(key, link)
        if other is link:
            directions.add((link.a, link.b))
            continue
        if not raw.both_directions or (link.a, link.b) in directions:
            parallel += 1
        elif link.latency_s != other.latency_s:
            unequal.add(key)
        directions.add((link.a, link.b))
        lowest = RawLink(other.a, other.b, _lower(other.latency_s, link.latency_s), _lower(other.length, link.length))
        merged[key] = lowest
    if loops:
        notes.append(f"{loops} link{'s' * (loops > 1)} from a router to itself dropped")
    if parallel:
        notes.append(f"{parallel} parallel link{'s' * (parallel > 1)} merged: the lowest latency kept")
    if unequal:
        notes.append(
            f"{counted(len(unequal), len(merged), 'link', 'differ')} between directions: the lower latency kept"
        )
    return list(merged.values())


def _lower(a: float | None, b: float | None) -> float | None:
    return b if a is None else a if b is None else min(a, b)


def _connect(
    raw: RawTopology, links: list[RawLink], options: ReadOptions, notes: list[str]
) -> tuple[RawTopology, list[RawLink]]:
    """Returns the topology if it is connected, or its largest part if the options ask for it; raises an error
    otherwise."""
    parts = _components(len(raw.routers), links)
    if len(parts) == 1:
        return raw, links
    if not options.largest_component:
        examples = ", ".join(f"{len(part)} with {raw.routers[part[0]].name!r}" for part in parts[:5])
        more = f" and {len(parts) - 5} smaller" if len(parts) > 5 else ""
        raise raw.fail(
            f"the network is not connected: it has {len(parts)} parts, of sizes {examples}{more}; "
            "set the option largest_component to read the largest part alone"
        )
    largest = parts[0]
    notes.append(f"the network is not connected: largest part kept, {len(largest)} of {len(raw.routers)} routers")
    index = {old: new for new, old in enumerate(largest)}
    part = RawTopology(raw.file, raw.coordinates, raw.both_directions, [raw.routers[i] for i in largest])
    inside = (link for link in links if link.a in index)
    return part, [RawLink(index[x.a], index[x.b], x.latency_s, x.length) for x in inside]


def _components(routers: int, links: Iterable[RawLink]) -> list[list[int]]:
    """Returns connected parts, the largest first and among equals the one with the first router; routers in file
    order."""
    parent = list(range(routers))

    def find(router: int) -> int:
        while parent[router] != router:
            parent[router] = parent[parent[router]]
            router = parent[router]
        return router

    for link in links:
        a, b = find(link.a), find(link.b)
        parent[max(a, b)] = min(a, b)
    parts: dict[int, list[int]] = {}
    for router in range(routers):
        parts.setdefault(find(router), []).append(router)
    return sorted(parts.values(), key=lambda part: (-len(part), part[0]))


def _unique(names: Iterable[str], notes: list[str]) -> list[str]:
    """Returns names made unique: the first keeps its name, the next become name-2, name-3."""
    wanted = [" ".join(name.split()) or "router" for name in names]
    used = set(wanted)
    counts: dict[str, int] = {}
    result: list[str] = []
    renamed = 0
    for name in wanted:
        count = counts[name] = counts.get(name, 0) + 1
        if count > 1:
            renamed += 1
            while f"{name}-{count}" in used:
                count += 1
            counts[name] = count
            name = f"{name}-{count}"
            used.add(name)
        result.append(name)
    if renamed:
        notes.append(f"{counted(renamed, len(result), 'router', 'share')} a name with an earlier one: numbered")
    return result


@dataclass(slots=True)
class _Counts:
    """The number of links that got their latency in each way."""

    derived: int = 0
    short: int = 0
    assumed: int = 0


def _latencies(links: Sequence[RawLink], positions: Positions, options: ReadOptions, notes: list[str]) -> list[float]:
    counts = _Counts()
    xy = positions.xy.tolist()
    result = []
    for link in links:
        latency_s = link.latency_s
        if latency_s is None:
            km = _length_km(link, xy, positions.meaning, options)
            if km is None:
                counts.assumed += 1
                result.append(options.fallback_latency_s)
                continue
            counts.derived += 1
            latency_s = km / LIGHT_IN_FIBRE_KM_PER_S
        counts.short += latency_s < SHORTEST_S
        result.append(max(latency_s, SHORTEST_S))
    _note_latencies(counts, len(links), positions.meaning, options, notes)
    return result


def _length_km(link: RawLink, xy: list[list[float]], meaning: Meaning, options: ReadOptions) -> float | None:
    if meaning == "geographic":
        return great_circle_km(*xy[link.a], *xy[link.b])
    if link.length is not None and options.km_per_unit is not None:
        return link.length * options.km_per_unit
    if meaning == "kilometres":
        return math.dist(xy[link.a], xy[link.b])
    return None


def _note_latencies(counts: _Counts, total: int, meaning: Meaning, options: ReadOptions, notes: list[str]) -> None:
    if counts.derived:
        distance = "great-circle distance" if meaning == "geographic" else "distance on the plane"
        share = f"all {total}" if counts.derived == total > 1 else f"{counts.derived} of {total}"
        notes.append(
            f"latency of {share} link{'s' * (total > 1)} derived from the {distance} at 2/3 of the speed of light"
        )
    if counts.short:
        start = counted(counts.short, total, "link", "are")
        notes.append(f"{start} shorter than {SHORTEST_KM:g} km: latency of {SHORTEST_KM:g} km of fibre, 5 us, assumed")
    if counts.assumed:
        start = counted(counts.assumed, total, "link", "have")
        why = (
            "no latency, and coordinates of unknown scale"
            if meaning == "unknown scale"
            else "no latency and no distance"
        )
        hint = " (set km_per_unit to derive it)" if meaning == "unknown scale" else ""
        notes.append(f"{start} {why}: {format_duration(options.fallback_latency_s)} assumed{hint}")
