"""Rocketfuel maps: backbone links with latencies or weights (`.intra`), and router-level maps (`.cch`)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from surecast.scenario.topology.raw import RawTopology, ReadOptions

if TYPE_CHECKING:
    from surecast.scenario.topology.topology_file import TopologyFile

__all__ = ["ROUTER_LINE", "read_rocketfuel"]

ROUTER_LINE = re.compile(
    r"(?P<uid>\d+)\s+@(?P<place>\S*)\s*(?:\+\s*)?(?:bb\s*)?\(\d+\)\s*(?:&\d+\s*)?->(?P<neighbours>[^=]*)=", re.ASCII
)
_EXTERNAL_LINE = re.compile(r"-\d+\s+=", re.ASCII)
_INTERNAL = re.compile(r"<([^<>]*)>")
_UNKNOWN_PLACES = ("", "T", "?")


def read_rocketfuel(source: TopologyFile, options: ReadOptions) -> RawTopology:
    if ROUTER_LINE.match(source.text) or _EXTERNAL_LINE.match(source.text) or source.stem.endswith(".cch"):
        return _read_map(source)
    if "latenc" in source.stem:
        return _read_backbone(source, latencies=True)
    if "weight" in source.stem:
        return _read_backbone(source, latencies=False)
    raise source.fail(
        "cannot tell latencies from weights, or the file is not Rocketfuel's; "
        "name it like 1221.latencies.intra, 1221.weights.intra or 1221.r0.cch"
    )


def _city(location: str) -> str:
    """Returns a city's name with spaces for the plus signs of Rocketfuel.

    >>> _city("New+York,+NY"), _city("T")
    ('New York, NY', '')
    """
    return "" if location in _UNKNOWN_PLACES else location.replace("+", " ").strip()


def _read_backbone(source: TopologyFile, latencies: bool) -> RawTopology:
    raw = RawTopology(source.name, both_directions=True)
    value_name = "a latency in ms" if latencies else "a weight"
    for number, line in source.lines():
        fields = line.split()
        if len(fields) != 3:
            raise source.fail(f"{len(fields)} fields; expected a link: router router {value_name}", number)
        value = source.number(fields[2], value_name, number)
        if value < 0:
            raise source.fail(f"{value:g} is negative; expected {value_name} of 0 or more", number)
        a, b = (raw.known_or_new(name, domain=_city(name.rstrip("0123456789")), line=number) for name in fields[:2])
        raw.add_link(a, b, latency_s=value / 1000 if latencies else None, line=number)
    if not latencies:
        raw.notes.append("the weights were not used: a routing weight is not a delay")
    return raw


def _read_map(source: TopologyFile) -> RawTopology:
    raw = RawTopology(source.name, both_directions=True)
    neighbours: list[tuple[int, int, str]] = []
    for number, line in source.lines():
        if _EXTERNAL_LINE.match(line):
            continue
        router = ROUTER_LINE.match(line)
        if router is None:
            raise source.fail(f"expected a router, 'uid @place + bb (n) -> <uid> ... =name rN': {line[:40]!r}", number)
        index = raw.add_router(router["uid"], domain=_city(router["place"]), line=number)
        neighbours.extend((number, index, uid) for uid in _INTERNAL.findall(router["neighbours"]))
    for number, index, uid in neighbours:
        raw.add_link(index, raw.find(uid, number), line=number)
    return raw
