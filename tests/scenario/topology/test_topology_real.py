"""Every published map and matrix that we can read, read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import networkx as nx
import pytest

from surecast.errors import TopologyError
from surecast.scenario.topology import ReadOptions, read_network

if TYPE_CHECKING:
    from pathlib import Path

    from surecast.scenario.network import Network

LARGEST = ReadOptions(largest_component=True)
# Routers of the whole file, and its links, one a pair; None where only a part of the file is connected.
COUNTS: dict[str, tuple[int, int | None]] = {
    "brite/topology.brite": (5, 8),
    "mrinfo/AS-2914.json": (180, 318),
    "mrinfo/AS-3356.json": (66, 118),
    "mrinfo/AS-680.json": (190, 232),
    "mrinfo/AS-701.json": (83, 160),
    "mrinfo/AS-786.json": (340, 456),
    "repetita/Abilene.graph": (11, 14),
    "repetita/Geant2012.graph": (40, 61),
    "rocketfuel/1221.latencies.intra": (108, None),
    "rocketfuel/1221.weights.intra": (108, None),
    "rocketfuel/1755.latencies.intra": (87, 161),
    "rocketfuel/3257.latencies.intra": (161, 328),
    "rocketfuel/3257.r0.cch": (248, None),
    "sndlib/abilene.txt": (12, 15),
    "sndlib/germany50.txt": (50, 88),
    "sndlib/nobel-eu.txt": (28, 41),
    "zoo/Abilene.graphml": (11, 14),
    "zoo/Geant2009.graphml": (34, 52),
    "zoo/Sprint.graphml": (11, 18),
}


def assert_sound(network: Network) -> None:
    assert nx.is_connected(network.graph)
    assert network.graph.number_of_edges() == len(network.links)
    assert all(0 < link.latency_s < 60 for link in network.links)
    assert len(network.index) == len(network.routers)
    if network.geographic:
        assert all(abs(router.x) <= 180 and abs(router.y) <= 90 for router in network.routers)


def test_every_topology_reads(real_data: Path) -> None:
    folder = real_data / "topologies"
    found: dict[str, tuple[int, int | None]] = {}
    for path in sorted(folder.glob("*/*")):
        if path.name.endswith(".demands.gz"):
            continue
        network = read_network(path, options=LARGEST)
        assert_sound(network)
        name = f"{path.parent.name}/{path.name}"
        part = re.search(r"largest part kept, \d+ of (\d+) routers", "\n".join(network.notes))
        found[name] = (int(part[1]), None) if part else (len(network.routers), len(network.links))
    assert {name: found[name] for name in COUNTS} == COUNTS


def test_a_network_in_parts_is_refused_unless_its_largest_part_is_asked_for(real_data: Path) -> None:
    with pytest.raises(TopologyError, match=r"3 parts, of sizes 104 with 'Townsville,.*, 2 with .*, 2 with"):
        read_network(real_data / "topologies/rocketfuel/1221.latencies.intra")


def test_demands_are_not_a_topology(real_data: Path) -> None:
    with pytest.raises(TopologyError, match="the format cannot be told"):
        read_network(real_data / "topologies/repetita/Abilene.0000.demands.gz")


@pytest.mark.parametrize(("file", "low", "high"), [("1221", 1, 17), ("1755", 1, 31), ("3257", 1, 47)])
def test_rocketfuel_latencies(real_data: Path, file: str, low: int, high: int) -> None:
    network = read_network(real_data / f"topologies/rocketfuel/{file}.latencies.intra", options=LARGEST)
    latencies = [link.latency_s * 1000 for link in network.links]
    assert (min(latencies), max(latencies)) == (low, high)


@pytest.mark.parametrize("name", ["Abilene", "AttMpls", "Bellcanada", "Colt", "Deltacom", "Geant2012"])
def test_repetita_agrees_with_the_map_it_was_made_from(real_data: Path, name: str) -> None:
    ours = read_network(real_data / f"topologies/repetita/{name}.graph")
    zoo = read_network(real_data / f"topologies/zoo/{name}.graphml")
    ends = {frozenset((link.a, link.b)): link.latency_s for link in zoo.links}
    assert {frozenset((link.a, link.b)): link.latency_s for link in ours.links} == pytest.approx(ends, rel=1e-3)


def test_planetlab_is_a_full_mesh(real_data: Path) -> None:
    for slot in (1, 7, 13):
        path = real_data / f"latency/planetlab/PlanetLabData_{slot}.gz"
        # The whole matrix once; its corner is enough for the others.
        limit = None if slot == 1 else 100
        network = read_network(path, "rtt-matrix", options=ReadOptions(unit="ms", limit=limit))
        routers = limit or 490
        assert len(network.routers) == routers
        assert len(network.links) == routers * (routers - 1) // 2
        assert all(link.latency_s > 0 for link in network.links)
        # The median round trip of the data is 135 ms.
        if limit is None:
            latencies = sorted(link.latency_s for link in network.links)
            assert 2 * latencies[len(latencies) // 2] == pytest.approx(0.135, abs=0.005)


def test_seattle_slices(real_data: Path) -> None:
    path = real_data / "latency/seattle/SeattleData_1-100.tar.gz"
    for number in (1, 50, 100):
        network = read_network(path, "rtt-matrix", options=ReadOptions(unit="s", slice=number, largest_component=True))
        assert_sound(network)
        assert len(network.routers) <= 99
        latencies = sorted(link.latency_s for link in network.links)
        assert 2 * latencies[len(latencies) // 2] == pytest.approx(0.21, abs=0.1)
