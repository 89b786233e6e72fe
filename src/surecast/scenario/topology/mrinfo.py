"""Router-level maps of autonomous systems in JSON: `topology.nodes` and `topology.links` with ends `u` and `v`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from surecast.scenario.topology.raw import RawTopology, ReadOptions

if TYPE_CHECKING:
    from surecast.scenario.topology.topology_file import TopologyFile

__all__ = ["read_mrinfo"]


def read_mrinfo(source: TopologyFile, options: ReadOptions) -> RawTopology:
    raw = RawTopology(source.name, both_directions=True)
    topology = _member(source, _parse(source), "topology", dict, "the file")
    for position, node in enumerate(_member(source, topology, "nodes", list, "topology")):
        raw.add_router(_identifier(source, node, f"topology.nodes[{position}]"))
    for position, link in enumerate(_member(source, topology, "links", list, "topology")):
        where = f"topology.links[{position}]"
        if not isinstance(link, dict) or "u" not in link or "v" not in link:
            raise source.fail(f'{where}: expected a link such as {{"u": "1", "v": "2"}}')
        ends = [_identifier(source, link[end], f"{where}.{end}") for end in ("u", "v")]
        raw.add_link(raw.find(ends[0]), raw.find(ends[1]))
    return raw


def _parse(source: TopologyFile) -> Any:
    try:
        return json.loads(source.text)
    except json.JSONDecodeError as error:
        raise source.fail(f"not JSON: {error.msg}; the file is damaged or cut off", error.lineno) from None
    except (ValueError, RecursionError) as error:
        raise source.fail(f"not JSON of a topology: {error}") from None


def _member(source: TopologyFile, holder: Any, name: str, kind: type, where: str) -> Any:
    if not isinstance(holder, dict) or not isinstance(holder.get(name), kind):
        expected = "an object" if kind is dict else "a list"
        raise source.fail(f"{where}: expected {expected} called {name!r}")
    return holder[name]


def _identifier(source: TopologyFile, value: object, where: str) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise source.fail(f"{where}: expected the identifier of a router, a string or a whole number")
    return str(value)
