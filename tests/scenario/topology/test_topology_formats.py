"""One small file of each format, with values worked out by hand."""

from __future__ import annotations

import gzip
import io
import math
import tarfile
from typing import TYPE_CHECKING

import pytest

from surecast.errors import TopologyError
from surecast.scenario.topology import ReadOptions, read_network

if TYPE_CHECKING:
    from pathlib import Path

    from surecast.scenario.network import Network

NEW_YORK, CHICAGO = (-74.00597, 40.71427), (-87.65005, 41.85003)
# 1145.84 km by the law of cosines on a sphere of 6371.0088 km, at 199,861.64 km/s.
NEW_YORK_TO_CHICAGO_S = 0.005733160

GRAPHML = """<?xml version="1.0" encoding="utf-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key attr.name="label" attr.type="string" for="node" id="l" />
  <key attr.name="Country" attr.type="string" for="node" id="c" />
  <key attr.name="Longitude" attr.type="double" for="node" id="x" />
  <key attr.name="Latitude" attr.type="double" for="node" id="y" />
  <key attr.name="Internal" attr.type="int" for="node" id="i" />
  <key attr.name="latency" attr.type="string" for="edge" id="t" />
  <graph edgedefault="undirected">
    <node id="0"><data key="l">New York</data><data key="c">United States</data>
      <data key="x">-74.00597</data><data key="y">40.71427</data></node>
    <node id="1"><data key="l">Chicago</data><data key="c">United States</data>
      <data key="x">-87.65005</data><data key="y">41.85003</data></node>
    <node id="2"><data key="l">Chicago</data><data key="i">0</data></node>
    <node id="3"><data key="l">None</data></node>
    <edge source="0" target="1" /><edge source="1" target="0" /><edge source="1" target="1" />
    <edge source="1" target="2" /><edge source="0" target="3"><data key="t">2ms</data></edge>
    <edge source="3" target="1" />
  </graph>
</graphml>
"""
BRITE = """Topology: ( 3 Nodes, 3 Edges )
Model (1 - RTWaxman):  3 5 5 1  2  0.15 0.2 1 1 10.0 1024.0

Nodes: ( 3 )
0\t0\t0\t2\t2\t7\tRT_NODE
1\t30\t40\t2\t2\t7\tRT_NODE
2\t30\t0\t2\t2\t-1\tRT_NODE

Edges: ( 3 )
0\t0\t1\t50.0\t\t1.5\t10.0\t7\t7\tE_RT\tU
1\t1\t2\t40.0\t\t-1\t10.0\t7\t-1\tE_RT\tU
2\t2\t0\t30.0\t\t-1\t10.0\t-1\t7\tE_RT\tU
"""
SNDLIB = """?SNDlib native format; type: network; version: 1.0
# network small
META (
  origin = somewhere (and a lone bracket
)
NODES (
  New_York ( -74.00597 40.71427 )
  Chicago ( -87.65005 41.85003 )
)
LINKS (
  L1 ( New_York Chicago ) 0.00 0.00 0.00 1300.00 ( 2500.00 200.00 )
)
DEMANDS (
  D1 ( New_York Chicago ) 1 195.00 UNLIMITED
)
ADMISSIBLE_PATHS (
  D1 (
    P_0 ( L1 )
  )
)
"""
LATENCIES = """New+York,+NY236 London217 29
London217 New+York,+NY236 29
London217 London218 1
London218 London217 2
"""
ROUTERS = """16 @New+York,+NY + bb\t(2) &3 -> <17> {-4} =a.example.net r0
17 @London + \t(2) -> <16> <18>  =b.example.net r0
18 @T \t(1) -> <17> =c.example.net! r1
-4 =elsewhere.example.org rn
"""
REPETITA = """NODES 3
label x y
0_New_York -74.00597 40.71427
1_Chicago -87.65005 41.85003
2_None 0.0 0.0

EDGES 4
label src dest weight bw delay
edge_0 0 1 10 9953280 1913
edge_1 1 0 10 9953280 1913
edge_2 1 2 10 9953280 15000
edge_3 2 1 10 9953280 15000
"""
MRINFO = """{"version": "0.1", "topology": {"nodes": ["2", 31, "7"], "links": [
  {"u": "2", "v": "31", "w_uv": 1, "w_vu": 1}, {"u": "31", "v": "2", "w_uv": 1, "w_vu": 1},
  {"u": 31, "v": "7", "w_uv": 1, "w_vu": 1}]}}
"""
MATRIX = """0 10 -1
14 0 8
-1 0 0
"""


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def latencies(network: Network) -> dict[str, float]:
    return {link.name: link.latency_s for link in network.links}


def test_graphml_takes_labels_countries_and_degrees(tmp_path: Path) -> None:
    network = read_network(write(tmp_path, "small.graphml", GRAPHML))
    assert [router.name for router in network.routers] == ["New York", "Chicago", "Chicago-2", "node-3"]
    assert [router.domain for router in network.routers] == ["United States", "United States", "", ""]
    assert network.geographic
    assert (network.routers[0].x, network.routers[0].y) == NEW_YORK
    assert (network.routers[2].x, network.routers[2].y) == pytest.approx(CHICAGO)
    found = latencies(network)
    assert found["New York--Chicago"] == pytest.approx(NEW_YORK_TO_CHICAGO_S, rel=1e-6)
    assert found["New York--node-3"] == 0.002
    # The unplaced node lies in the middle of the great circle.
    assert found["Chicago--node-3"] == pytest.approx(NEW_YORK_TO_CHICAGO_S / 2, rel=1e-6)
    assert found["Chicago--Chicago-2"] == pytest.approx(1 / 199_861.639, rel=1e-6)
    assert network.notes == (
        "1 of 4 nodes has no label: named by identifier",
        "1 of 4 nodes is marked as outside the network: kept",
        "1 link from a router to itself dropped",
        "1 parallel link merged: the lowest latency kept",
        "1 of 4 routers shares a name with an earlier one: numbered",
        "2 of 4 routers have no coordinates: placed at the mean of their neighbours",
        "latency of 3 of 4 links derived from the great-circle distance at 2/3 of the speed of light",
        "1 of 4 links is shorter than 1 km: latency of 1 km of fibre, 5 us, assumed",
    )


def test_graphml_may_use_another_encoding(tmp_path: Path) -> None:
    text = GRAPHML.replace("utf-8", "utf-16").replace("New York", "Zürich")
    network = read_network(write(tmp_path, "small.graphml", text.encode("utf-16")))
    assert network.routers[0].name == "Zürich"


def test_brite_takes_delays_in_milliseconds_and_systems_as_domains(tmp_path: Path) -> None:
    network = read_network(write(tmp_path, "small.brite", BRITE))
    assert latencies(network) == {"0--1": 0.0015, "1--2": 0.001, "2--0": 0.001}
    assert [router.domain for router in network.routers] == ["AS7", "AS7", ""]
    assert not network.geographic
    assert (network.routers[1].x, network.routers[1].y) == (30.0, 40.0)
    assert network.notes == (
        "delays taken as milliseconds: the BRITE format does not name their unit",
        "2 of 3 links have no latency, and coordinates of unknown scale: 1ms assumed (set km_per_unit to derive it)",
    )


def test_brite_derives_unknown_delays_where_the_scale_is_given(tmp_path: Path) -> None:
    network = read_network(write(tmp_path, "small.brite", BRITE), options=ReadOptions(km_per_unit=10.0))
    assert latencies(network)["1--2"] == pytest.approx(400 / 199_861.639, rel=1e-6)
    assert (network.routers[1].x, network.routers[1].y) == (300.0, 400.0)


def test_edges_take_latencies_with_units_commas_and_comments(tmp_path: Path) -> None:
    text = "# a comment\na b 5ms # leased\n\nNew York, a, 250us\nb,New York\na#1 a 1s\n"
    network = read_network(write(tmp_path, "small.txt", text))
    assert latencies(network) == {"a--b": 0.005, "New York--a": 0.00025, "b--New York": 0.001, "a#1--a": 1.0}
    assert network.notes == (
        "1 of 4 links has no latency and no distance: 1ms assumed",
        "no router has coordinates: positions are for drawing only",
    )
    assert not network.geographic


def test_sndlib_reads_nodes_and_links_and_passes_over_the_rest(tmp_path: Path) -> None:
    network = read_network(write(tmp_path, "small.txt", SNDLIB))
    assert latencies(network) == {"New_York--Chicago": pytest.approx(NEW_YORK_TO_CHICAGO_S, rel=1e-6)}
    assert network.geographic


def test_sndlib_on_a_plane_needs_a_scale(tmp_path: Path) -> None:
    text = SNDLIB.replace("-74.00597 40.71427", "200.00 175.00").replace("-87.65005 41.85003", "203.00 171.00")
    path = write(tmp_path, "plane.txt", text)
    assert read_network(path, options=ReadOptions(fallback_latency_s=0.02)).links[0].latency_s == 0.02
    scaled = read_network(path, options=ReadOptions(km_per_unit=2.0))
    assert scaled.links[0].latency_s == pytest.approx(10 / 199_861.639, rel=1e-6)
    assert not scaled.geographic


def test_a_scale_says_that_small_coordinates_are_no_degrees(tmp_path: Path) -> None:
    network = read_network(write(tmp_path, "small.txt", SNDLIB), options=ReadOptions(km_per_unit=1.0))
    assert not network.geographic
    assert network.links[0].latency_s == pytest.approx(math.dist(NEW_YORK, CHICAGO) / 199_861.639, rel=1e-6)


def test_sndlib_nodes_may_lack_coordinates(tmp_path: Path) -> None:
    text = SNDLIB.replace(" ( -74.00597 40.71427 )", "")
    network = read_network(write(tmp_path, "small.txt", text))
    assert "1 of 2 routers has no coordinates: placed at the mean of its neighbours" in network.notes


def test_rocketfuel_latencies_are_milliseconds_and_cities_are_domains(tmp_path: Path) -> None:
    network = read_network(write(tmp_path, "1.latencies.intra", LATENCIES))
    assert latencies(network) == {"New+York,+NY236--London217": 0.029, "London217--London218": 0.001}
    assert network.domains == ("New York, NY", "London")
    assert network.notes == (
        "1 of 2 links differs between directions: the lower latency kept",
        "no router has coordinates: positions are for drawing only",
    )


def test_rocketfuel_weights_are_not_delays(tmp_path: Path) -> None:
    network = read_network(write(tmp_path, "1.weights.intra", LATENCIES))
    assert set(latencies(network).values()) == {0.001}
    assert network.notes[:2] == (
        "the weights were not used: a routing weight is not a delay",
        "all 2 links have no latency and no distance: 1ms assumed",
    )


def test_rocketfuel_router_maps(tmp_path: Path) -> None:
    network = read_network(write(tmp_path, "anything.txt", ROUTERS))
    assert [(router.name, router.domain) for router in network.routers] == [
        ("16", "New York, NY"),
        ("17", "London"),
        ("18", ""),
    ]
    assert list(latencies(network)) == ["16--17", "17--18"]


def test_repetita_derives_delays_and_takes_zero_zero_for_unknown(tmp_path: Path) -> None:
    network = read_network(write(tmp_path, "small.graph", REPETITA))
    assert latencies(network)["0_New_York--1_Chicago"] == pytest.approx(NEW_YORK_TO_CHICAGO_S, rel=1e-6)
    assert (network.routers[2].x, network.routers[2].y) == pytest.approx(CHICAGO)
    assert network.notes[0].startswith("the delay column was not used")
    assert not any("parallel" in note for note in network.notes)


def test_mrinfo_has_routers_and_links_only(tmp_path: Path) -> None:
    network = read_network(write(tmp_path, "AS-1.json", MRINFO), options=ReadOptions(fallback_latency_s=0.003))
    assert latencies(network) == {"2--31": 0.003, "31--7": 0.003}
    assert network.notes[0] == "all 2 links have no latency and no distance: 3ms assumed"


@pytest.mark.parametrize(("unit", "scale"), [("ms", 1e-3), ("s", 1.0)])
def test_rtt_matrix_halves_and_averages(tmp_path: Path, unit: str, scale: float) -> None:
    options = ReadOptions(unit="ms" if unit == "ms" else "s")
    network = read_network(write(tmp_path, "rtt.txt", MATRIX), "rtt-matrix", options=options)
    # (10 + 14) / 2 / 2 = 6; only one direction of the second pair answered: 8 / 2 = 4; the third pair never did.
    assert latencies(network) == pytest.approx({"n0--n1": 6 * scale, "n1--n2": 4 * scale})
    assert network.notes[:3] == (
        "latency is half of the measured round-trip time, the two directions averaged",
        "1 of 3 pairs answered in one direction only: that direction taken for both",
        "1 of 3 pairs never answered: no direct link between them",
    )


def test_rtt_matrix_limit_takes_the_first_nodes(tmp_path: Path) -> None:
    path = write(tmp_path, "rtt.gz", gzip.compress(MATRIX.encode()))
    network = read_network(path, "rtt-matrix", options=ReadOptions(unit="ms", limit=2))
    assert latencies(network) == pytest.approx({"n0--n1": 0.006})
    assert len(read_network(path, "rtt-matrix", options=ReadOptions(unit="ms", limit=99)).routers) == 3


def archive(**members: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, text in members.items():
            member = tarfile.TarInfo(f"folder/{name}")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


@pytest.mark.parametrize("chosen", [2, "2", "rtt_2"])
def test_rtt_archive_slices_are_chosen_by_number_or_name(tmp_path: Path, chosen: int | str) -> None:
    path = write(tmp_path, "rtt.tar.gz", archive(rtt_1="0 2\n2 0\n", rtt_2="0 4\n4 0\n", rtt_12="0 8\n8 0\n"))
    network = read_network(path, "rtt-matrix", options=ReadOptions(unit="s", slice=chosen))
    assert latencies(network) == {"n0--n1": 2.0}


def test_rtt_archive_of_one_slice_needs_no_choice(tmp_path: Path) -> None:
    path = write(tmp_path, "rtt.tgz", archive(only="0 2\n2 0\n"))
    assert read_network(path, "rtt-matrix", options=ReadOptions(unit="s")).links[0].latency_s == 1.0


@pytest.mark.parametrize("choice", [{}, {"slice": 3}, {"slice": "rtt_"}])
def test_rtt_archive_says_what_it_holds(tmp_path: Path, choice: dict[str, int | str]) -> None:
    path = write(tmp_path, "rtt.tar.gz", archive(rtt_1=MATRIX, rtt_2=MATRIX))
    with pytest.raises(TopologyError, match=r"an archive of 2 slices, rtt_1 to rtt_2; .* set the option slice"):
        read_network(path, "rtt-matrix", options=ReadOptions(unit="s", **choice))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "text", "format"),
    [
        ("a.graphml", GRAPHML, "graphml"),
        ("a.brite", BRITE, "brite"),
        ("a.txt", SNDLIB, "sndlib"),
        ("a.latencies.intra", LATENCIES, "rocketfuel"),
        ("a.cch", ROUTERS, "rocketfuel"),
        ("a.graph", REPETITA, "repetita"),
        ("a.json", MRINFO, "mrinfo"),
        ("a.edges", "a b 5ms\r\nb c\r\n", "edges"),
    ],
)
def test_auto_is_the_same_as_the_named_format_compressed_or_not(
    tmp_path: Path, name: str, text: str, format: str
) -> None:
    plain = read_network(write(tmp_path, name, text))
    assert plain == read_network(tmp_path / name, format)
    assert plain == read_network(write(tmp_path, name + ".gz", gzip.compress(text.encode())))
    if not name.endswith(".intra"):
        assert plain == read_network(write(tmp_path, "no-suffix", text))


def test_importing_loads_neither_networkx_nor_scipy(repository: Path) -> None:
    for module in (repository / "src/surecast/scenario/topology").glob("*.py"):
        top_level = [line for line in module.read_text().splitlines() if line.startswith(("import ", "from "))]
        assert not any("networkx" in line or "scipy" in line for line in top_level), module
