"""The `.graph` files of Repetita: labelled nodes with coordinates, directed edges with weight, bandwidth and delay."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from surecast.scenario.topology.raw import RawTopology, ReadOptions

if TYPE_CHECKING:
    from surecast.scenario.topology.topology_file import TopologyFile

__all__ = ["read_repetita"]

_MISSING = (0.0, 0.0)
"""The place in the format's networks of a node that the map they were made from does not place."""
Lines = Iterator[tuple[int, str]]


def read_repetita(source: TopologyFile, options: ReadOptions) -> RawTopology:
    raw = RawTopology(source.name, coordinates="either", both_directions=True)
    lines = source.lines()
    for _ in range(_section(source, lines, "NODES", "label x y")):
        number, (label, x, y) = _row(source, lines, "a node: label x y", 3)
        position = source.position(x, y, number)
        raw.add_router(
            str(len(raw.routers)), name=label, position=None if position == _MISSING else position, line=number
        )
    for _ in range(_section(source, lines, "EDGES", "label src dest weight bw delay")):
        number, fields = _row(source, lines, "an edge: label src dest weight bw delay", 6)
        for text, quantity in zip(fields[3:], ("a weight", "a bandwidth", "a delay"), strict=True):
            value = source.number(text, quantity, number)
        if value < 0:
            raise source.fail(f"the delay {value:g} is negative; expected 0 or more", number)
        raw.add_link(raw.find(fields[1], number), raw.find(fields[2], number), line=number)
    for number, _line in lines:
        raise source.fail(f"more lines than the {len(raw.links)} edges announced; the file was edited", number)
    raw.notes.append(
        "the delay column was not used: the format does not say its unit, and it does not fit the distances"
    )
    return raw


def _section(source: TopologyFile, lines: Lines, name: str, columns: str) -> int:
    """Returns the number of rows that a section announces, its column titles skipped."""
    number, fields = _row(source, lines, f"'{name} n'", 2)
    if fields[0] != name:
        raise source.fail(f"expected '{name} n' and found {fields[0][:40]!r}; the count before it may be wrong", number)
    titles, row = _row(source, lines, f"the titles '{columns}'", len(columns.split()))
    if row != columns.split():
        raise source.fail(f"expected the titles '{columns}'", titles)
    return source.count(fields[1], f"the number of {name.lower()}", number)


def _row(source: TopologyFile, lines: Lines, expected: str, fields: int) -> tuple[int, list[str]]:
    number, line = next(lines, (0, ""))
    if not number:
        raise source.fail(f"the file is cut off: expected {expected}", source.text.rstrip().count("\n") + 1)
    parts = line.split()
    if len(parts) != fields:
        raise source.fail(f"{len(parts)} fields; expected {expected}", number)
    return number, parts
