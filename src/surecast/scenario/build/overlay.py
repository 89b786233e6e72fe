"""Resolves the broker overlay of a scenario: places of brokers, links, failures, and the tree of each topic."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np

from surecast.documents.source import FieldPath
from surecast.errors import ScenarioError
from surecast.profile import BrokerProfile, load_profile
from surecast.scenario.build.collect import Collector, expand, unique_names
from surecast.scenario.build.failures import FailureTable
from surecast.scenario.build.network import service_time
from surecast.scenario.network import Network
from surecast.scenario.spec.overlay import (
    BuiltLinks,
    CandidatesSpec,
    LinkSpec,
    MatchingSpec,
    OverlaySpec,
    TopicTreesSpec,
)
from surecast.scenario.streams import Streams
from surecast.scenario.system import Broker, Matching, Overlay, OverlayLink, Publisher, Topic

__all__ = ["build_overlay", "build_trees"]

BROKERS: FieldPath = ("overlay", "brokers")
LINKS: FieldPath = ("overlay", "links")
Pair = tuple[int, int]
MOST_COMPLETE = 500
MOST_CENTRAL = 2000
MEASURED = {
    "brute-force": Matching("brute-force", 0.0, 0.08e-6, 0.27e-6, 0.0, 7.5e-6, 1.3e-6),
    "counting": Matching("counting", 0.6e-6, 0.0, 0.24e-6, 0.0, 7.5e-6, 1.3e-6),
    "index": Matching("index", 2.9e-6, 0.0, 0.0, 0.18e-6, 7.5e-6, 1.3e-6),
}
"""The times that matching takes in this software, from `benchmarks/matching_costs.py`."""


def build_overlay(
    spec: OverlaySpec, network: Network | None, failures: FailureTable, streams: Streams, collect: Collector
) -> Overlay | None:
    """Returns the overlay that a scenario describes, without its topic trees.

    With problems collected, it is what is known of it: None, or the brokers alone where the links are wrong.
    """
    candidates = _candidates(spec, network, streams, collect)
    brokers = _brokers(spec, network, candidates, failures, streams, collect)
    if brokers is None:
        return None
    if isinstance(spec.links, BuiltLinks):
        pairs = _built_pairs(spec.links, brokers, network, streams, collect)
        links = [_link(p, spec.links, spec, brokers, network, failures, streams) for p in pairs or []]
    else:
        pairs = _given_pairs(spec.links, brokers, collect)
        links = [
            _link(p, s, spec, brokers, network, failures, streams)
            for p, s in zip(pairs or [], spec.links, strict=False)
        ]
    overlay = Overlay(tuple(brokers), tuple(links), candidates=tuple(candidates))
    if pairs is None:
        return overlay
    failures.complain_about_unknown([b.name for b in brokers], [link.name for link in links], collect)
    if not _is_connected(overlay, collect):
        return overlay
    return replace(overlay, root=_root(spec, overlay, collect))


def _candidates(spec: OverlaySpec, network: Network | None, streams: Streams, collect: Collector) -> list[int]:
    path: FieldPath = ("overlay", "candidates")
    if not spec.candidates:
        return []
    if network is None:
        if collect.intact(("network",)):
            collect.add(path, "candidates are routers, and the scenario has no network", "add network:")
        return []
    if isinstance(spec.candidates, CandidatesSpec):
        return _drawn_candidates(spec.candidates, network, streams, collect)
    routers: list[int] = []
    for i, name in enumerate(spec.candidates):
        if name not in network.index:
            collect.unknown((*path, i), "router", name, network.index)
        elif network.index[name] in routers:
            collect.add((*path, i), f"{name!r} is given twice", "keep one")
        else:
            routers.append(network.index[name])
    return routers


def _drawn_candidates(spec: CandidatesSpec, network: Network, streams: Streams, collect: Collector) -> list[int]:
    weights = streams.uniforms("candidates", [router.name for router in network.routers])
    order = [int(i) for i in np.argsort(-weights, kind="stable")]
    if spec.count is not None:
        if spec.count > len(order):
            message = f"{spec.count} candidates among {len(order)} routers"
            collect.add(("overlay", "candidates", "count"), message, "write fewer")
        return sorted(order[: spec.count])
    per_domain = spec.per_domain or 0
    chosen: list[int] = []
    for domain in network.domains:
        members = [i for i in order if network.routers[i].domain == domain]
        if len(members) < per_domain:
            message = f"domain {domain} has only {len(members)} routers"
            collect.add(("overlay", "candidates", "per_domain"), message, "write fewer")
        chosen += sorted(members[:per_domain])
    if not network.domains:
        hint = "give the network domains:, or write count"
        collect.add(("overlay", "candidates", "per_domain"), "the network has no domains", hint)
    return chosen


def _brokers(
    spec: OverlaySpec,
    network: Network | None,
    candidates: list[int],
    failures: FailureTable,
    streams: Streams,
    collect: Collector,
) -> list[Broker] | None:
    before = len(collect.problems)
    brokers: list[Broker] = []
    named: list[tuple[FieldPath, str]] = []
    for i, entry in enumerate(spec.brokers):
        path = (*BROKERS, i)
        count = len(candidates) if entry.at == "candidates" and entry.count is None else entry.count
        names = expand(entry.name, count)
        routers = _routers(entry.at, names, network, candidates, streams, collect, path)
        profile = None if entry.profile is None else _profile(entry.profile, collect, (*path, "profile"))
        for name, router in zip(names, routers, strict=True):
            named.append((path, name))
            purpose = "capacity/broker"
            notify = service_time(entry.capacity, entry.service, streams, purpose, name, collect, (*path, "service"))
            control = notify
            if entry.control_service is not None:
                where = (*path, "control_service")
                capacity = None if entry.control_service.mean is not None else entry.capacity
                control = service_time(capacity, entry.control_service, streams, purpose, name, collect, where)
            matching = None if entry.matching is None else _matching(entry.matching)
            brokers.append(Broker(name, router, notify, control, failures.broker(name), matching, profile))
    unique_names(named, "broker", collect)
    return None if len(collect.problems) > before or not collect.intact(BROKERS) else brokers


def _profile(file: str, collect: Collector, path: FieldPath) -> BrokerProfile | None:
    """Returns the profile of a file; what is wrong with it is a problem of the scenario."""
    try:
        return load_profile(collect.source.folder / file)
    except ScenarioError as error:
        collect.add(path, str(error.problems[0]), error.problems[0].hint)
        return None


def _matching(spec: MatchingSpec) -> Matching:
    """Returns the costs of the scenario, and the measured ones for those it leaves out."""
    names = ("lookup", "entry", "predicate", "match", "update", "comparison")
    costs = {f"{name}_s": getattr(spec, name) for name in names if getattr(spec, name) is not None}
    return replace(MEASURED[spec.algorithm], **costs)


def _routers(
    router_name: str | None,
    names: list[str],
    network: Network | None,
    candidates: list[int],
    streams: Streams,
    collect: Collector,
    path: FieldPath,
) -> list[int] | list[None]:
    """Returns the router of each broker of an entry."""
    where = (*path, "at")
    if network is None:
        if router_name is not None and collect.intact(("network",)):
            collect.add(where, "the scenario has no network to stand in", "leave it out, or add network:")
        return [None] * len(names)
    if router_name is None or router_name == "random":
        return [int(i) for i in streams.choose("place", names, [r.name for r in network.routers])]
    if router_name == "candidates" and not candidates:
        if collect.intact(("overlay", "candidates")):
            collect.add(where, "there are no candidate positions", "give overlay.candidates")
        return [None] * len(names)
    if router_name == "candidates":
        if len(names) != len(candidates):
            message = f"{len(names)} brokers for {len(candidates)} candidate positions"
            collect.add(where, message, "leave out count, and give overlay.candidates")
            return [None] * len(names)
        return candidates
    if router_name not in network.index:
        collect.unknown(where, "router", router_name, network.index, "random", "candidates")
        return [None] * len(names)
    return [network.index[router_name]] * len(names)


def _given_pairs(specs: list[LinkSpec], brokers: list[Broker], collect: Collector) -> list[Pair] | None:
    index = {broker.name: i for i, broker in enumerate(brokers)}
    pairs: list[Pair] = []
    ends_so_far: set[frozenset[str]] = set()
    failed = False
    for i, link in enumerate(specs):
        path = (*LINKS, i, "between")
        unknown = [end for end in link.between if end not in index]
        for end in unknown:
            collect.unknown(path, "broker", end, index)
        if link.between[0] == link.between[1]:
            collect.add(path, f"joins {link.between[0]!r} to itself", "name two brokers")
            failed = True
        elif frozenset(link.between) in ends_so_far:
            collect.add(path, "this link is given twice", "keep one")
            failed = True
        failed = failed or bool(unknown)
        ends_so_far.add(frozenset(link.between))
        if not failed:
            pairs.append((index[link.between[0]], index[link.between[1]]))
    return None if failed or not collect.intact(LINKS) else pairs


def _built_pairs(
    spec: BuiltLinks, brokers: list[Broker], network: Network | None, streams: Streams, collect: Collector
) -> list[Pair] | None:
    n = len(brokers)
    names = [broker.name for broker in brokers]
    match spec.build:
        case "spanning-tree":
            if network is None:
                if collect.intact(("network",)):
                    hint = "add network:, or write build: random-tree"
                    collect.add((*LINKS, "build"), "a spanning tree needs a physical network", hint)
                return None
            return spanning_tree([b.router for b in brokers if b.router is not None], network, spec.by)
        case "random-tree":
            return _random_tree(names, streams)
        case "random-graph":
            return _random_graph(names, spec.mean_degree or 0.0, streams)
        case "star":
            return [(0, i) for i in range(1, n)]
        case "chain":
            return [(i, i + 1) for i in range(n - 1)]
        case "ring":
            return [(i, i + 1) for i in range(n - 1)] + ([(0, n - 1)] if n > 2 else [])
        case "complete":
            if n > MOST_COMPLETE:
                message = f"a complete overlay of {n} brokers has {n * (n - 1) // 2} links"
                collect.add((*LINKS, "build"), message, f"use at most {MOST_COMPLETE} brokers, or another shape")
                return None
            return list(itertools.combinations(range(n), 2))


def spanning_tree(routers: list[int], network: Network, by: str) -> list[Pair]:
    """Returns a minimum spanning tree of brokers at routers; of equally long links the one between earlier brokers
    wins."""
    import networkx as nx

    complete: nx.Graph[int] = nx.Graph()
    complete.add_nodes_from(range(len(routers)))
    for i, router in enumerate(routers):
        distances = network.distances_from(router, "hops" if by == "hops" else "latency")
        for j in range(i + 1, len(routers)):
            complete.add_edge(i, j, weight=distances[routers[j]])
    return sorted((min(a, b), max(a, b)) for a, b in nx.minimum_spanning_tree(complete).edges())


def _random_tree(names: list[str], streams: Streams) -> list[Pair]:
    """Returns a tree in which each broker joins a random earlier one, so that a further broker at the end changes
    nothing else."""
    return [(int(streams.choose("tree", [names[i]], names[:i])[0]), i) for i in range(1, len(names))]


def _random_graph(names: list[str], mean_degree: float, streams: Streams) -> list[Pair]:
    """Returns a random tree plus the pairs with the smallest draws, up to the mean degree."""
    tree = _random_tree(names, streams)
    wanted = min(round(len(names) * mean_degree / 2), len(names) * (len(names) - 1) // 2)
    draws = streams.uniform_pairs("graph", names, names)
    others = sorted(set(itertools.combinations(range(len(names)), 2)) - set(tree), key=lambda p: draws[p])
    return sorted(tree + others[: max(0, wanted - len(tree))])


def _link(
    ends: Pair,
    spec: LinkSpec | BuiltLinks,
    overlay: OverlaySpec,
    brokers: list[Broker],
    network: Network | None,
    failures: FailureTable,
    streams: Streams,
) -> OverlayLink:
    a, b = brokers[ends[0]], brokers[ends[1]]
    name = f"{a.name}--{b.name}"
    key = "--".join(sorted((a.name, b.name)))
    routers: tuple[int, ...] = ()
    latency_s = 0.0
    if network is not None and a.router is not None and b.router is not None:
        routers = network.path(a.router, b.router, overlay.paths)
        latency_s = sum(network.links[i].latency_s for i in network.links_on(routers))
    if spec.latency is not None:
        latency_s = streams.between("latency/overlay", key, *spec.latency)
    capacity = math.inf if spec.capacity is None else streams.between("capacity/overlay", key, *spec.capacity)
    return OverlayLink(name, *ends, routers, latency_s, capacity, spec.loss, failures.link(a.name, b.name), spec.burst)


def _is_connected(overlay: Overlay, collect: Collector) -> bool:
    import networkx as nx

    parts = [sorted(part) for part in nx.connected_components(overlay.graph)]
    if len(parts) == 1:
        return True
    shown = "; ".join(
        ", ".join(overlay.brokers[i].name for i in part[:4]) + (" ..." if part[4:] else "") for part in parts[:4]
    )
    message = f"the overlay falls into {len(parts)} parts that cannot reach each other: {shown}"
    collect.add(LINKS, message, "add links between them")
    return False


def _root(spec: OverlaySpec, overlay: Overlay, collect: Collector) -> int:
    if spec.root == "first":
        return 0
    if spec.root == "central":
        return _centre(overlay, collect)
    if spec.root not in overlay.index:
        collect.unknown(("overlay", "root"), "broker", spec.root, overlay.index, "central", "first")
        return 0
    return overlay.index[spec.root]


def _centre(overlay: Overlay, collect: Collector) -> int:
    """Returns the broker with the fewest hops to the farthest other; of equally central ones the first."""
    import networkx as nx

    if overlay.is_tree:
        return _tree_centre(overlay)
    if len(overlay.brokers) > MOST_CENTRAL:
        message = f"the centre of an overlay of more than {MOST_CENTRAL} brokers with cycles is not computed"
        collect.add(("overlay", "root"), message, "name the root, or write first")
        return 0
    farthest = {i: max(hops.values()) for i, hops in nx.all_pairs_shortest_path_length(overlay.graph)}
    return min(range(len(overlay.brokers)), key=lambda i: (farthest[i], i))


def _tree_centre(overlay: Overlay) -> int:
    """Returns the middle of a longest path of a tree, found by two searches."""
    import networkx as nx

    def farthest_from(start: int) -> list[int]:
        paths = nx.single_source_shortest_path(overlay.graph, start)
        return max(paths.values(), key=len)

    longest = farthest_from(farthest_from(0)[-1])
    return min(longest[(len(longest) - 1) // 2], longest[len(longest) // 2])


PATH: FieldPath = ("overlay", "topic_trees")


def build_trees(
    spec: TopicTreesSpec,
    overlay: Overlay,
    topics: tuple[Topic, ...],
    publishers: tuple[Publisher, ...],
    streams: Streams,
    collect: Collector,
) -> dict[str, tuple[int, ...]]:
    """Indices of the overlay links of each topic's tree: the whole overlay where that is a tree."""
    names = [topic.name for topic in topics]
    trees: dict[str, tuple[int, ...]] = {}
    for topic in spec.given:
        if topic not in names:
            collect.unknown((*PATH, "given", topic), "topic", topic, names)
    if spec.root not in ("random", "publisher") and spec.root not in overlay.index:
        collect.unknown((*PATH, "root"), "broker", spec.root, overlay.index, "random", "publisher")
        return {}
    by_root: dict[int, tuple[int, ...]] = {}
    for name in names:
        if name in spec.given:
            trees[name] = _written_tree(spec.given[name], (*PATH, "given", name), overlay, collect)
        elif overlay.is_tree:
            trees[name] = tuple(range(len(overlay.links)))
        else:
            root = _tree_root(spec.root, name, overlay, publishers, streams)
            if root not in by_root:
                by_root[root] = shortest_path_tree(overlay, root, spec.by)
            trees[name] = by_root[root]
    return trees


def shortest_path_tree(overlay: Overlay, root: int, by: str) -> tuple[int, ...]:
    """Returns links of the tree of shortest paths from a root to all brokers."""
    import networkx as nx

    paths = nx.single_source_dijkstra_path(overlay.graph, root, weight="hops" if by == "hops" else "latency")
    last_hops = [path[-2:] for path in paths.values() if len(path) > 1]
    return tuple(sorted(overlay.graph.edges[a, b]["link"] for a, b in last_hops))


def _tree_root(root: str, topic: str, overlay: Overlay, publishers: tuple[Publisher, ...], streams: Streams) -> int:
    if root in overlay.index:
        return overlay.index[root]
    if root == "publisher":
        for publisher in publishers:
            if topic in publisher.topics:
                return publisher.home
    return int(streams.choose("topic-tree", [topic], [broker.name for broker in overlay.brokers])[0])


def _written_tree(
    pairs: list[tuple[str, str]], path: FieldPath, overlay: Overlay, collect: Collector
) -> tuple[int, ...]:
    """Returns the links of a tree that is written out, checked to reach all brokers without a cycle."""
    import networkx as nx

    links: list[int] = []
    for i, (a, b) in enumerate(pairs):
        unknown = [end for end in (a, b) if end not in overlay.index]
        for end in unknown:
            collect.unknown((*path, i), "broker", end, overlay.index)
        if unknown:
            continue
        ends = overlay.index[a], overlay.index[b]
        if not overlay.graph.has_edge(*ends):
            collect.add((*path, i), f"there is no overlay link between {a} and {b}", "add it to overlay.links")
        else:
            links.append(overlay.graph.edges[ends]["link"])
    if len(links) == len(pairs) and not nx.is_tree(overlay.subgraph(tuple(links))):
        hint = f"give {len(overlay.brokers) - 1} links that join all {len(overlay.brokers)} brokers without a cycle"
        collect.add(path, "these links are not a tree of all brokers", hint)
    return tuple(sorted(links))
