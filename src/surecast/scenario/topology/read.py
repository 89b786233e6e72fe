"""Reading a network from a file of any supported format."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from surecast.errors import TopologyError
from surecast.scenario.topology.brite import read_brite
from surecast.scenario.topology.edges import is_latency, read_edges, split_edge
from surecast.scenario.topology.finish import finish
from surecast.scenario.topology.graphml import read_graphml
from surecast.scenario.topology.mrinfo import read_mrinfo
from surecast.scenario.topology.raw import RawTopology, ReadOptions
from surecast.scenario.topology.repetita import read_repetita
from surecast.scenario.topology.rocketfuel import ROUTER_LINE, read_rocketfuel
from surecast.scenario.topology.rtt import read_rtt_matrix
from surecast.scenario.topology.sndlib import read_sndlib
from surecast.scenario.topology.topology_file import TopologyFile, open_source

if TYPE_CHECKING:
    from collections.abc import Callable

    from surecast.scenario.network import Network

__all__ = ["FORMATS", "detect_format", "read_network"]

_READERS: dict[str, Callable[[TopologyFile, ReadOptions], RawTopology]] = {
    "graphml": read_graphml,
    "brite": read_brite,
    "edges": read_edges,
    "sndlib": read_sndlib,
    "rocketfuel": read_rocketfuel,
    "repetita": read_repetita,
    "mrinfo": read_mrinfo,
    "rtt-matrix": read_rtt_matrix,
}
FORMATS = tuple(_READERS)
"""Names of the formats that `read_network` reads; it also takes `auto`."""

_SIGNS: tuple[tuple[str, re.Pattern[str], str], ...] = (
    ("graphml", re.compile(r"\s*<(?s:.{0,4000}?)<?graphml\b"), "no element <graphml>"),
    ("brite", re.compile(r"\s*Topology:\s*\("), "no first line 'Topology: ('"),
    ("sndlib", re.compile(r"\s*(?:\?SNDlib native|(?:#[^\n]*\n\s*)*(?:META|NODES)\s*\(\s*\n)"), "no section 'NODES ('"),
    ("rocketfuel", ROUTER_LINE, "no first line 'uid @place ... ->', and not named .intra or .cch"),
    ("repetita", re.compile(r"\s*NODES\s+\d+\s*\n"), "no first line 'NODES n'"),
    ("mrinfo", re.compile(r'\s*\{(?s:.*?)"topology"\s*:'), "no JSON object with 'topology'"),
)
_SUFFIXES = {
    ".graphml": "graphml",
    ".brite": "brite",
    ".intra": "rocketfuel",
    ".cch": "rocketfuel",
    ".graph": "repetita",
    ".json": "mrinfo",
    ".edges": "edges",
    ".edgelist": "edges",
}
_EDGES_LOOKED_AT = 20
_DEFAULTS = ReadOptions()


def read_network(path: str | Path, format: str = "auto", *, options: ReadOptions = _DEFAULTS) -> Network:
    """Returns the connected network of a topology file; `notes` of the result says what the file left open.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name) / "ring.edges"
    >>> _ = path.write_text("a b 5ms\\nb c 7ms\\nc a\\n")
    >>> network = read_network(path)
    >>> [(link.name, link.latency_s) for link in network.links]
    [('a--b', 0.005), ('b--c', 0.007), ('c--a', 0.001)]
    >>> network.notes[0]
    '1 of 3 links has no latency and no distance: 1ms assumed'
    >>> folder.cleanup()
    """
    source = open_source(Path(path))
    reader = _READERS.get(detect_format(source) if format == "auto" else format)
    if reader is None:
        raise TopologyError(f"{format!r} is not a format; use auto or one of {', '.join(FORMATS)}", source.name)
    return finish(reader(source, options), options)


def detect_format(source: TopologyFile) -> str:
    """Returns the format of a file by its content, then by its suffix; a matrix of round-trip times is never guessed.

    >>> detect_format(TopologyFile("net.txt", b"NODES 2\\nlabel x y\\n"))
    'repetita'
    """
    try:
        text = source.text
    except TopologyError:
        text = ""
    for name, sign, _ in _SIGNS:
        if sign.match(text):
            return name
    suffix = Path(source.stem).suffix
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    if text and _looks_like_edges(source):
        return "edges"
    if not text:
        _ = source.text
    tried = "; ".join(f"{name} ({absent})" for name, _, absent in _SIGNS)
    raise source.fail(
        f"the format cannot be told from the name or the content; tried {tried}; edges (no line 'a b 5ms'); "
        f"rtt-matrix is never guessed; name the format: one of {', '.join(FORMATS)}"
    )


def _looks_like_edges(source: TopologyFile) -> bool:
    looked_at = 0
    for _, line in source.lines():
        fields = split_edge(line)
        if not fields:
            continue
        if not all(fields) or not 2 <= len(fields) <= 3 or (len(fields) == 3 and not is_latency(fields[2])):
            return False
        looked_at += 1
        if looked_at == _EDGES_LOOKED_AT:
            break
    return looked_at > 0
