"""Resolves the broker tree of each topic."""

from __future__ import annotations

from surecast.documents.source import FieldPath
from surecast.scenario.build.collect import Collector
from surecast.scenario.spec.overlay import TopicTreesSpec
from surecast.scenario.streams import Streams
from surecast.scenario.system import Overlay, Publisher, Topic

__all__ = ["build_trees"]

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
            root = _root(spec.root, name, overlay, publishers, streams)
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


def _root(root: str, topic: str, overlay: Overlay, publishers: tuple[Publisher, ...], streams: Streams) -> int:
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
