"""Files of the BRITE topology generator."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from surecast.scenario.topology.raw import RawTopology, ReadOptions

if TYPE_CHECKING:
    from surecast.scenario.topology.topology_file import TopologyFile

__all__ = ["read_brite"]

_TITLE = re.compile(r"Topology:\s*\(\s*(\d+)\s*Nodes?,\s*(\d+)\s*Edges?\s*\)", re.ASCII)
_SECTION = re.compile(r"(Nodes|Edges):\s*\(\s*(\d+)\s*\)", re.ASCII)
_UNKNOWN = -1.0
"""BRITE writes -1 where it has no autonomous system, and no delay."""


def read_brite(source: TopologyFile, options: ReadOptions) -> RawTopology:
    raw = RawTopology(source.name)
    section, announced = "", {}
    for number, line in source.lines():
        if title := _TITLE.match(line):
            announced = {"Nodes": (title[1], number), "Edges": (title[2], number)}
        elif heading := _SECTION.match(line):
            section = heading[1]
            announced[section] = (heading[2], number)
        elif section == "Nodes":
            _read_node(source, raw, line, number)
        elif section == "Edges":
            _read_edge(source, raw, line, number)
        elif not line.startswith("Model"):
            raise source.fail("expected the title of a BRITE file: Topology: ( n Nodes, m Edges )", number)
    for name, count in (("Nodes", len(raw.routers)), ("Edges", len(raw.links))):
        if name not in announced:
            raise source.fail(f"no section '{name}: ( n )'; the file is not BRITE, or it is cut off")
        text, number = announced[name]
        if source.count(text, f"a number of {name.lower()}", number) != count:
            raise source.fail(
                f"{text} {name.lower()} announced and {count} found; the file is cut off or edited", number
            )
    if any(link.latency_s is not None for link in raw.links):
        raw.notes.append("delays taken as milliseconds: the BRITE format does not name their unit")
    return raw


def _read_node(source: TopologyFile, raw: RawTopology, line: str, number: int) -> None:
    fields = line.split()
    if len(fields) < 6:
        raise source.fail(f"{len(fields)} fields; expected a node: id x y indegree outdegree ASid type", number)
    system = source.number(fields[5], "the id of an autonomous system, or -1", number)
    domain = "" if system == _UNKNOWN else f"AS{fields[5]}"
    raw.add_router(fields[0], position=source.position(fields[1], fields[2], number), domain=domain, line=number)


def _read_edge(source: TopologyFile, raw: RawTopology, line: str, number: int) -> None:
    fields = line.split()
    if len(fields) < 5:
        raise source.fail(f"{len(fields)} fields; expected an edge: id from to length delay bandwidth ...", number)
    a, b = raw.find(fields[1], number), raw.find(fields[2], number)
    length = source.number(fields[3], "the length of an edge", number)
    if length < 0 and length != _UNKNOWN:
        raise source.fail(f"the length {length:g} is negative; expected 0 or more, or -1 for unknown", number)
    delay_ms = source.number(fields[4], "the delay of an edge", number)
    if delay_ms < 0 and delay_ms != _UNKNOWN:
        raise source.fail(f"the delay {delay_ms:g} is negative; expected 0 or more, or -1 for unknown", number)
    raw.add_link(
        a,
        b,
        latency_s=None if delay_ms == _UNKNOWN else delay_ms / 1000,
        length=None if length == _UNKNOWN else length,
        line=number,
    )
