"""GraphML as the Internet Topology Zoo writes it: labels, countries, longitudes and latitudes."""

from __future__ import annotations

import io
import re
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from surecast.errors import TopologyError
from surecast.scenario.topology.edges import read_latency
from surecast.scenario.topology.positions import counted
from surecast.scenario.topology.raw import RawTopology, ReadOptions

if TYPE_CHECKING:
    import networkx as nx

    from surecast.scenario.topology.topology_file import TopologyFile

__all__ = ["read_graphml"]

_NO_LABEL = ("", "None")
"""The Zoo's tools write the label None for nodes that stand for a shared medium."""


def read_graphml(source: TopologyFile, options: ReadOptions) -> RawTopology:
    _check_references(source)
    graph = _load(source)
    raw = RawTopology(source.name, coordinates="geographic", both_directions=graph.is_directed())
    unnamed = external = 0
    for node, data in graph.nodes(data=True):
        attributes = {str(key).lower(): value for key, value in data.items()}
        label = " ".join(str(attributes.get("label", "")).split())
        unnamed += label in _NO_LABEL
        external += str(attributes.get("internal", 1)) in ("0", "0.0", "False")
        raw.add_router(
            str(node),
            name=f"node-{node}" if label in _NO_LABEL else label,
            position=_position(source, str(node), attributes),
            domain=" ".join(str(attributes.get("country", "")).split()),
        )
    for a, b, data in graph.edges(data=True):
        latency = data.get("latency")
        latency_s = None if latency is None else read_latency(source, str(latency), None)
        raw.add_link(raw.find(str(a)), raw.find(str(b)), latency_s=latency_s)
    if unnamed:
        raw.notes.append(f"{counted(unnamed, len(raw.routers), 'node', 'have')} no label: named by identifier")
    if external:
        raw.notes.append(f"{counted(external, len(raw.routers), 'node', 'are')} marked as outside the network: kept")
    return raw


def _check_references(source: TopologyFile) -> None:
    """Refuses edges that name an undefined node; networkx would quietly create it."""
    if b"<!ENTITY" in source.data.replace(b"\0", b""):
        raise source.fail("the file defines XML entities, which are not read; save it without them")
    try:
        root = ElementTree.fromstring(source.data)
    except ElementTree.ParseError as error:
        raise source.fail(f"not well-formed XML: {error}; the file is damaged or cut off", error.position[0]) from None
    except (ValueError, LookupError) as error:
        raise source.fail(f"not XML in an encoding that can be read: {error}") from None
    if _local(root) != "graphml":
        raise source.fail(f"expected the root element graphml and found {_local(root)!r}")
    nodes = [element.get("id") for element in root.iter() if _local(element) == "node"]
    defined = set(nodes)
    if None in defined:
        raise source.fail("a node without an id; every node needs one")
    if len(defined) < len(nodes):
        twice = Counter(nodes).most_common(1)[0][0]
        raise source.fail(f"node {twice!r} is defined twice", _line_of(source, "node", "id", str(twice)))
    for edge in (element for element in root.iter() if _local(element) == "edge"):
        for end in ("source", "target"):
            if edge.get(end) not in defined:
                line = _line_of(source, "edge", end, str(edge.get(end)))
                raise source.fail(f"an edge refers to node {edge.get(end)!r}, which the file does not define", line)


def _load(source: TopologyFile) -> nx.Graph[str]:
    import networkx as nx

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about keys that are not read here anyway
            return nx.read_graphml(io.BytesIO(source.data), force_multigraph=True)
    except Exception as error:  # the reader documents no set of exceptions and raises at least six kinds
        raise source.fail(f"not GraphML that can be read: {type(error).__name__}: {error}") from None


def _position(source: TopologyFile, node: str, attributes: dict[str, Any]) -> tuple[float, float] | None:
    longitude, latitude = attributes.get("longitude"), attributes.get("latitude")
    if longitude is None and latitude is None:
        return None
    try:
        if longitude is None or latitude is None:
            raise source.fail("only one of Longitude and Latitude; give both or none")
        return source.degrees(str(longitude), str(latitude), None)
    except TopologyError as error:
        raise source.fail(f"node {node!r}: {error.message}", _line_of(source, "node", "id", node)) from None


def _local(element: ElementTree.Element) -> str:
    return str(element.tag).rpartition("}")[2]


def _line_of(source: TopologyFile, tag: str, attribute: str, value: str) -> int | None:
    """Returns the line of an element, found by its text: parsed XML no longer knows its lines."""
    pattern = rf"<{tag}\b[^>]*\b{attribute}\s*=\s*[\"']{re.escape(value)}[\"']"
    match = re.search(pattern.encode(), source.data)
    return source.data.count(b"\n", 0, match.start()) + 1 if match else None
