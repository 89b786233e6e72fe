"""Resolves the physical network of a scenario."""

from __future__ import annotations

from dataclasses import replace

from surecast.documents.source import FieldPath
from surecast.errors import TopologyError
from surecast.scenario.build.collect import Collector, unique_names
from surecast.scenario.distributions import Distribution
from surecast.scenario.network import Network
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
    """Returns the network that a scenario describes, or None with the problems collected."""
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
    if isinstance(spec, (FileNetwork, GivenNetwork)):
        overruled = spec.link_latency is not None
        collect.notes += [note for note in network.notes if not (overruled and "latency" in note)]
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
    from surecast.scenario.topology.finish import finish
    from surecast.scenario.topology.raw import RawTopology, ReadOptions

    before = len(collect.problems)
    unique_names([((*PATH, "routers", i), r.name) for i, r in enumerate(spec.routers)], "router", collect)
    geographic = any(r.longitude is not None for r in spec.routers)
    if geographic and any(r.x is not None for r in spec.routers):
        hint = "use x and y in kilometres, or longitude and latitude, for all routers"
        collect.add((*PATH, "routers"), "some routers have x and y, others longitude and latitude", hint)
    index = {router.name: i for i, router in enumerate(spec.routers)}
    _check_links(spec, index, collect)
    if len(collect.problems) > before:
        return None
    raw = RawTopology("the scenario", coordinates="geographic" if geographic else "planar")
    for router in spec.routers:
        x, y = (router.longitude, router.latitude) if geographic else (router.x, router.y)
        raw.add_router(router.name, position=None if x is None or y is None else (x, y), domain=router.domain)
    for link in spec.links:
        raw.add_link(index[link.between[0]], index[link.between[1]], latency_s=link.latency)
    options = ReadOptions(fallback_latency_s=spec.fallback_latency, km_per_unit=None if geographic else 1.0)
    return finish(raw, options)


def _check_links(spec: GivenNetwork, index: dict[str, int], collect: Collector) -> None:
    import networkx as nx

    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(index)
    for i, link in enumerate(spec.links):
        path = (*PATH, "links", i, "between")
        unknown = [end for end in link.between if end not in index]
        for end in unknown:
            collect.unknown(path, "router", end, index)
        if link.between[0] == link.between[1]:
            collect.add(path, f"joins {link.between[0]!r} to itself", "name two routers")
        elif graph.has_edge(*link.between):
            collect.add(path, "this link is given twice", "keep one")
        if not unknown:
            graph.add_edge(*link.between)
    parts = [min(part, key=lambda name: index[name]) for part in nx.connected_components(graph)]
    if len(parts) > 1 and not any(p.field.startswith("network") for p in collect.problems):
        message = f"the network falls into {len(parts)} parts, with {', '.join(parts[:5])}"
        collect.add((*PATH, "links"), message, "add links that join them")


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
    """Returns the service time of a component: its shape with the mean its capacity gives, or its own mean, or none at
    all."""
    if capacity is None:
        return shape if shape.has_mean else None
    if shape.has_mean:
        collect.add(path, "gives a mean, and the capacity gives another", "leave out one of the two")
        return None
    return shape.with_mean(1.0 / streams.between(purpose, name, *capacity))
