"""The native format of SNDlib: its nodes and links; capacities, costs and demands are left aside."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from surecast.scenario.topology.raw import RawTopology, ReadOptions

if TYPE_CHECKING:
    from surecast.scenario.topology.topology_file import TopologyFile

__all__ = ["read_sndlib"]

_HEADING = re.compile(r"([A-Z_]+)\s*\(\s*(\))?$")
_NODE = re.compile(r"(\S+)(?:\s+\(\s*([^\s,()]+)(?:\s*,\s*|\s+)([^\s,()]+)\s*\))?$")
_LINK = re.compile(r"(\S+)\s+\(\s*(\S+)\s+(\S+)\s*\)")


def read_sndlib(source: TopologyFile, options: ReadOptions) -> RawTopology:
    raw = RawTopology(source.name, coordinates="either")
    sections: set[str] = set()
    section, started, depth = "", 0, 0
    for number, line in source.lines():
        if line.startswith(("#", "?")):
            continue
        if not section:
            heading = _HEADING.match(line)
            if heading is None:
                raise source.fail(f"expected a section such as 'NODES (' and found {line[:40]!r}", number)
            section, started, depth = "" if heading[2] else heading[1], number, 1
            sections.add(heading[1])
        elif line == ")" and depth == 1:
            section = ""
        elif section == "NODES":
            _read_node(source, raw, line, number)
        elif section == "LINKS":
            _read_link(source, raw, line, number)
        elif section != "META":
            # Sections of paths nest; free text of META may hold lone brackets.
            depth = max(1, depth + line.count("(") - line.count(")"))
    if section:
        raise source.fail(f"the section {section} is not closed by ')'; the file is cut off", started)
    for wanted in ("NODES", "LINKS"):
        if wanted not in sections:
            raise source.fail(f"no section {wanted}; the file is not in the native format of SNDlib, or is cut off")
    return raw


def _read_node(source: TopologyFile, raw: RawTopology, line: str, number: int) -> None:
    node = _NODE.match(line)
    if node is None:
        raise source.fail(f"expected a node, 'name ( x y )', and found {line[:40]!r}", number)
    position = None if node[2] is None else source.position(node[2], node[3], number)
    raw.add_router(node[1], position=position, line=number)


def _read_link(source: TopologyFile, raw: RawTopology, line: str, number: int) -> None:
    link = _LINK.match(line)
    if link is None:
        raise source.fail(f"expected a link, 'name ( from to ) ...', and found {line[:40]!r}", number)
    raw.add_link(raw.find(link[2], number), raw.find(link[3], number), line=number)
