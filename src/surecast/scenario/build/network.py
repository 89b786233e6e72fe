"""Resolves the physical network of a scenario."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from surecast.errors import TopologyError
from surecast.scenario.build.collect import Collector, unique_names
from surecast.scenario.distributions import Distribution
from surecast.scenario.network import LIGHT_IN_FIBRE_KM_PER_S, Network, PhysicalLink, Router
from surecast.scenario.source import FieldPath
from surecast.scenario.spec.network import (
    FileNetwork,
    GivenNetwork,
    NetworkSpec,
    RandomNetwork,
    TransitStubNetwork,
    TreeNetwork,
)
from surecast.scenario.streams import Streams

__all__ = ["build_network", "service_time"]

PATH: FieldPath = ("network",)


def build_network(spec: NetworkSpec, streams: Streams, collect: Collector) -> Network | None:
    """The network a scenario means, or None with the problems collected."""
    try:
        network = _raw(spec, streams, collect)
    except TopologyError as error:
        line = f" in line {error.line}" if error.line else ""
        collect.add((*PATH, "path"), f"{error.file}{line}: {error.message}")
        return None
    except ValueError as error:
        collect.add(PATH, str(error))
        return None
    if network is None:
        return None
    if not isinstance(spec, TransitStubNetwork) and spec.domains is not None:
        if spec.domains > len(network.routers):
            collect.add((*PATH, "domains"), f"{spec.domains} domains for {len(network.routers)} routers", "write fewer")
            return None
        from surecast.scenario.topology import with_domains

        network = with_domains(network, spec.domains)
    if isinstance(spec, FileNetwork):
        collect.notes += network.notes
    return _with_services(network, spec, streams, collect)


def _raw(spec: NetworkSpec, streams: Streams, collect: Collector) -> Network | None:
    from surecast.scenario import topology

    match spec:
        case TransitStubNetwork():
            return topology.transit_stub(
                streams,
                domains=spec.domains,
                routers=spec.routers,
                transit_per_domain=spec.transit_per_domain,
                stubs_per_transit=spec.stubs_per_transit,
                width_km=spec.width_km,
            )
        case RandomNetwork():
            return topology.random_network(
                streams, routers=spec.routers, mean_degree=spec.mean_degree, width_km=spec.width_km
            )
        case TreeNetwork():
            return topology.tree_network(
                streams, routers=spec.routers, branching=spec.branching, width_km=spec.width_km
            )
        case FileNetwork():
            return _from_file(spec, collect)
        case GivenNetwork():
            return _from_scenario(spec, collect)


def _from_file(spec: FileNetwork, collect: Collector) -> Network:
    from surecast.scenario.topology import ReadOptions, read_network

    options = ReadOptions(
        fallback_latency_s=spec.fallback_latency,
        largest_component=spec.largest_component,
        unit=spec.unit,
        slice=spec.slice,
        limit=spec.limit,
        km_per_unit=spec.km_per_unit,
    )
    return read_network(collect.source.folder / spec.path, spec.format, options=options)


def _from_scenario(spec: GivenNetwork, collect: Collector) -> Network | None:
    before = len(collect.problems)
    unique_names([((*PATH, "routers", i), r.name) for i, r in enumerate(spec.routers)], "router", collect)
    geographic = all(r.longitude is not None for r in spec.routers)
    if not geographic and any(r.longitude is not None for r in spec.routers):
        hint = "use x and y in kilometres, or longitude and latitude, for all routers"
        collect.add((*PATH, "routers"), "only some routers have longitude and latitude", hint)
    places = [(r.longitude, r.latitude) if geographic else (r.x, r.y) for r in spec.routers]
    routers = tuple(
        Router(r.name, x or 0.0, y or 0.0, r.domain) for r, (x, y) in zip(spec.routers, places, strict=True)
    )
    network = Network(routers, (), geographic)
    placed = [x is not None for x, _ in places]
    links = _given_links(spec, network, placed, collect)
    if len(collect.problems) > before:
        return None
    network = replace(network, links=tuple(links))
    if not _is_connected(network, collect):
        return None
    return network if all(placed) else _laid_out(network)


def _given_links(spec: GivenNetwork, network: Network, placed: list[bool], collect: Collector) -> list[PhysicalLink]:
    links: list[PhysicalLink] = []
    seen: set[frozenset[str]] = set()
    for i, link in enumerate(spec.links):
        path = (*PATH, "links", i, "between")
        unknown = [end for end in link.between if end not in network.index]
        for end in unknown:
            collect.unknown(path, "router", end, network.index)
        if link.between[0] == link.between[1]:
            collect.add(path, f"joins {link.between[0]!r} to itself", "name two routers")
        elif frozenset(link.between) in seen:
            collect.add(path, "this link is given twice", "keep one")
        elif not unknown:
            a, b = (network.index[end] for end in link.between)
            latency = spec.fallback_latency
            if link.latency is not None:
                latency = link.latency
            elif placed[a] and placed[b]:
                latency = network.length_km(network.routers[a], network.routers[b]) / LIGHT_IN_FIBRE_KM_PER_S
            links.append(PhysicalLink("--".join(link.between), a, b, latency))
        seen.add(frozenset(link.between))
    return links


def _laid_out(network: Network) -> Network:
    """Coordinates for drawing only, where the scenario gives none."""
    from surecast.scenario.topology.layout import drawing_layout

    pairs = np.array([(link.a, link.b) for link in network.links], dtype=np.intp).reshape(-1, 2)
    lengths = np.array([link.latency_s * LIGHT_IN_FIBRE_KM_PER_S for link in network.links])
    places = drawing_layout(len(network.routers), pairs, lengths)
    routers = [replace(r, x=float(x), y=float(y)) for r, (x, y) in zip(network.routers, places, strict=True)]
    return replace(network, routers=tuple(routers))


def _is_connected(network: Network, collect: Collector) -> bool:
    import networkx as nx

    parts = list(nx.connected_components(network.graph))
    if len(parts) > 1:
        samples = ", ".join(network.routers[min(part)].name for part in parts[:5])
        message = f"the network falls into {len(parts)} parts, with {samples}"
        collect.add((*PATH, "links"), message, "add links that join them")
    return len(parts) == 1


def _with_services(network: Network, spec: NetworkSpec, streams: Streams, collect: Collector) -> Network:
    """Adds service times to routers and links: from the component's own entry, else from the network's."""
    routers, links = list(network.routers), list(network.links)
    for i, router in enumerate(routers):
        own = spec.routers[i] if isinstance(spec, GivenNetwork) else None
        capacity = own.capacity if own and own.capacity else spec.router_capacity
        shape = own.service if own and own.service else spec.router_service
        path = (*PATH, "routers", i, "service") if own and own.service else (*PATH, "router_service")
        service = service_time(capacity, shape, streams, "capacity/router", router.name, collect, path)
        routers[i] = replace(router, service=service)
    for i, link in enumerate(links):
        mine = spec.links[i] if isinstance(spec, GivenNetwork) else None
        capacity = mine.capacity if mine and mine.capacity else spec.link_capacity
        shape = mine.service if mine and mine.service else spec.link_service
        path = (*PATH, "links", i, "service") if mine and mine.service else (*PATH, "link_service")
        service = service_time(capacity, shape, streams, "capacity/link", link.name, collect, path)
        latency = link.latency_s
        if spec.link_latency is not None and not (mine and mine.latency is not None):
            latency = streams.between("latency/link", link.name, *spec.link_latency)
        links[i] = replace(link, service=service, latency_s=latency)
    return replace(network, routers=tuple(routers), links=tuple(links))


def service_time(
    capacity: tuple[float, float] | None,
    shape: Distribution,
    streams: Streams,
    purpose: str,
    name: str,
    collect: Collector,
    path: FieldPath,
) -> Distribution | None:
    """The service time of a component: its shape with the mean its capacity gives, or its own mean, or none at all."""
    if capacity is None:
        return shape if shape.has_mean else None
    if shape.mean is not None:
        collect.add(path, "gives a mean, and the capacity gives another", "leave out one of the two")
        return None
    if capacity[0] <= 0:
        collect.add(path[:-1], "a capacity of 0 serves nothing", "write a rate above 0, such as 1400/s")
        return None
    return shape.with_mean(1.0 / streams.between(purpose, name, *capacity))
