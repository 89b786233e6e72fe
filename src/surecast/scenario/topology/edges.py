"""Plain edge lists: `a b [latency]`, separated by white space or by commas."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from surecast.documents.units import parse_duration
from surecast.scenario.topology.raw import RawTopology, ReadOptions

if TYPE_CHECKING:
    from surecast.scenario.topology.topology_file import TopologyFile

__all__ = ["is_latency", "read_edges", "read_latency", "split_edge"]

_COMMENT = re.compile(r"(?:^|\s)#.*$")
EXPECTED = "expected two router names and, if known, a latency: a b 5ms"


def split_edge(line: str) -> list[str]:
    """Fields of a line; a line with a comma is split at its commas, so that names may hold spaces.

    >>> split_edge("New York, Chicago, 6ms  # leased"), split_edge("a b"), split_edge("# note")
    (['New York', 'Chicago', '6ms'], ['a', 'b'], [])
    """
    content = _COMMENT.sub("", line).strip()
    if "," in content:
        return [" ".join(part.split()) for part in content.split(",")]
    return content.split()


def read_edges(source: TopologyFile, options: ReadOptions) -> RawTopology:
    raw = RawTopology(source.name)
    for number, line in source.lines():
        fields = split_edge(line)
        if not fields:
            continue
        if not 2 <= len(fields) <= 3:
            raise source.fail(f"{len(fields)} fields; {EXPECTED}", number)
        if not all(fields):
            raise source.fail(f"an empty field; {EXPECTED}", number)
        if len(fields) == 2 and is_latency(fields[1].split()[-1]) and " " in fields[1]:
            raise source.fail("commas and spaces are mixed; write a, b, 5ms or a b 5ms", number)
        a, b = (raw.known_or_new(name, line=number) for name in fields[:2])
        latency_s = read_latency(source, fields[2], number) if len(fields) == 3 else None
        raw.add_link(a, b, latency_s=latency_s, line=number)
    return raw


def read_latency(source: TopologyFile, text: str, line: int | None) -> float:
    """Returns seconds of a latency that is written with its unit."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise source.fail(f"expected a latency with its unit, such as 5ms: {error}", line) from None


def is_latency(text: str) -> bool:
    """Returns whether a field is a latency with its unit."""
    try:
        parse_duration(text)
    except ValueError:
        return False
    return True
