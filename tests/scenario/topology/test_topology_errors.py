"""Whatever is wrong with a file, the answer is a TopologyError that names the file and, if it can, the line."""

from __future__ import annotations

import gzip
import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from surecast.errors import TopologyError
from surecast.scenario.topology import FORMATS, ReadOptions, raw, read_network
from surecast.scenario.topology import topology_file as source

if TYPE_CHECKING:
    from pathlib import Path

NODES_XML = '<graphml><graph edgedefault="undirected">\n<node id="a"/>\n<node id="b"/>\n'
KEYS_XML = (
    '<graphml>\n<key id="x" for="node" attr.name="Longitude" attr.type="double"/>\n'
    '<key id="y" for="node" attr.name="Latitude" attr.type="double"/>\n<graph edgedefault="undirected">\n'
)
BRITE = "Topology: ( 2 Nodes, 1 Edges )\nNodes: ( 2 )\n0 1 1 1 1 -1 RT\n1 2 2 1 1 -1 RT\nEdges: ( 1 )\n"
SNDLIB = "NODES (\n a ( 1 2 )\n b ( 3 4 )\n)\n"
REPETITA = "NODES 2\nlabel x y\na 1 2\nb 3 4\n\nEDGES 1\nlabel src dest weight bw delay\n"
ROUTER = "1 @London + bb (1) -> <2> =a r0\n"

# format, content, line of the error, what the message says
MALFORMED: list[tuple[str, str | bytes, int | None, str]] = [
    # graphml
    ("graphml", "<graphml><graph>", 1, "not well-formed XML"),
    ("graphml", "plain text", 1, "not well-formed XML"),
    ("graphml", "<html></html>", None, "root element graphml"),
    ("graphml", "<graphml></graphml>", None, "not GraphML that can be read"),
    ("graphml", "<graphml><graph></graph></graphml>", None, "no routers"),
    ("graphml", '<!DOCTYPE g [<!ENTITY a "b">]><graphml/>', None, "entities"),
    ("graphml", '<?xml version="1.0" encoding="klingon"?><graphml/>', None, "unknown encoding"),
    ("graphml", "<graphml><graph><node/></graph></graphml>", None, "without an id"),
    ("graphml", NODES_XML + '<node id="a"/></graph></graphml>', 2, "'a' is defined twice"),
    ("graphml", NODES_XML + '<edge source="a" target="c"/></graph></graphml>', 4, "refers to node 'c'"),
    ("graphml", NODES_XML + '<edge source="a"/></graph></graphml>', None, "refers to node None"),
    ("graphml", NODES_XML + "<hyperedge/></graph></graphml>", None, "hyperedge"),
    ("graphml", KEYS_XML + '<node id="n"><data key="x">east</data></node></graph></graphml>', None, "east"),
    ("graphml", KEYS_XML + '<node id="n"><data key="x">1</data></node></graph></graphml>', 5, "only one of Longitude"),
    (
        "graphml",
        KEYS_XML + '<node id="n"><data key="x">nan</data><data key="y">1</data></node></graph></graphml>',
        5,
        "'n': expected a longitude, a finite number",
    ),
    (
        "graphml",
        KEYS_XML + '<node id="n"><data key="x">1</data><data key="y">91</data></node></graph></graphml>',
        5,
        "not a place on Earth",
    ),
    ("graphml", NODES_XML + '<node id="z"><data key="q">1</data></node></graph></graphml>', None, "Bad GraphML"),
    # brite
    ("brite", "Nodes\n", 1, "expected the title"),
    ("brite", "Topology: ( 2 Nodes, 1 Edges )\n", 1, "2 nodes announced and 0 found"),
    ("brite", "Nodes: ( 1 )\n0 1 1 1 1 -1 RT\n", None, "no section 'Edges"),
    ("brite", BRITE, 5, "1 edges announced and 0 found"),
    ("brite", BRITE + "0 0 1 2.0 1.0 10\n1 1 0 2.0 1.0 10\n", 5, "1 edges announced and 2 found"),
    ("brite", BRITE.replace("1 2 2 1 1 -1 RT\n", ""), 2, "2 nodes announced and 1 found"),
    ("brite", BRITE.replace("Nodes: ( 2 )", "Nodes: ( 99999999999 )"), 2, "a whole number"),
    ("brite", BRITE.replace("1 2 2", "0 2 2"), 4, "'0' is defined twice"),
    ("brite", BRITE.replace("1 2 2", "1 two 2"), 4, "expected an x coordinate, a number, and found 'two'"),
    ("brite", BRITE.replace("1 2 2", "1 nan 2"), 4, "a finite number"),
    ("brite", BRITE.replace("1 2 2", "1 1e99 2"), 4, "too large"),
    ("brite", BRITE.replace("1 2 2 1 1 -1 RT", "1 2 2"), 4, "3 fields; expected a node"),
    ("brite", BRITE.replace("1 2 2 1 1 -1", "1 2 2 1 1 x"), 4, "autonomous system"),
    ("brite", BRITE + "0 0 1 2.0\n", 6, "4 fields; expected an edge"),
    ("brite", BRITE + "0 0 7 2.0 1.0\n", 6, "refers to router '7'"),
    ("brite", BRITE + "0 0 1 2.0 -3.0\n", 6, "the delay -3 is negative"),
    ("brite", BRITE + "0 0 1 -2.0 3.0\n", 6, "the length -2 is negative"),
    ("brite", BRITE + "0 0 1 2.0 slow\n", 6, "the delay of an edge, a number"),
    ("brite", BRITE + "0 0 1 2.0 1e12\n", 6, "over a day"),
    # edges
    ("edges", "# nothing\n", None, "no routers"),
    ("edges", "a b 5ms\na\n", 2, "1 fields; expected two router names"),
    ("edges", "a b 5 ms\n", 1, "4 fields"),
    ("edges", "a b 5\n", 1, "a latency with its unit, such as 5ms"),
    ("edges", "a b -5ms\n", 1, "negative"),
    ("edges", "a b never\n", 1, "over a day"),
    ("edges", "a b 1e999s\n", 1, "over a day"),
    ("edges", "a,,5ms\n", 1, "an empty field"),
    ("edges", "a, b 5ms\n", 1, "commas and spaces are mixed"),
    ("edges", "source,target,latency\n", 1, "a latency with its unit"),
    # sndlib
    ("sndlib", "hello\n", 1, "expected a section"),
    ("sndlib", "# only a comment\n", None, "no section NODES"),
    ("sndlib", SNDLIB, None, "no section LINKS"),
    ("sndlib", "NODES (\n a ( 1 2 )\n", 1, "not closed"),
    ("sndlib", SNDLIB + "LINKS (\n L1 ( a b ) 0\n", 5, "not closed"),
    ("sndlib", "NODES (\n a ( 1 )\n)\n", 2, "expected a node"),
    ("sndlib", "NODES (\n a ( 1 north )\n)\n", 2, "a y coordinate, a number, and found 'north'"),
    ("sndlib", "NODES (\n a ( 1 -inf )\n)\n", 2, "a finite number"),
    ("sndlib", SNDLIB + "LINKS (\n L1 ( a c ) 0\n)\n", 6, "refers to router 'c'"),
    ("sndlib", SNDLIB + "LINKS (\n L1 a b\n)\n", 6, "expected a link"),
    ("sndlib", SNDLIB.replace(" b", " a"), 3, "'a' is defined twice"),
    # rocketfuel; the file is called latencies.intra
    ("rocketfuel", "a1 b2\n", 1, "2 fields; expected a link"),
    ("rocketfuel", "a1 b2 3\na1 b2 fast\n", 2, "a latency in ms, a number, and found 'fast'"),
    ("rocketfuel", "a1 b2 -3\n", 1, "negative"),
    ("rocketfuel", "a1 b2 nan\n", 1, "a finite number"),
    ("rocketfuel", "a1 b2 1e300\n", 1, "over a day"),
    ("rocketfuel", ROUTER, 1, "refers to router '2'"),
    ("rocketfuel", ROUTER + ROUTER, 2, "'1' is defined twice"),
    ("rocketfuel", ROUTER + "2 @London (1) <1>\n", 2, "expected a router"),
    # repetita
    ("repetita", "NODES\n", 1, "1 fields; expected 'NODES n'"),
    ("repetita", "EDGES 3\nlabel x y\n", 1, "expected 'NODES n' and found 'EDGES'"),
    ("repetita", "NODES two\nlabel x y\n", 1, "the number of nodes, a whole number"),
    ("repetita", "NODES 2\nname x y\n", 2, "expected the titles"),
    ("repetita", "NODES 2\nlabel x y\na 1 2\n", 3, "cut off: expected a node"),
    ("repetita", "NODES 2\nlabel x y\na 1 2\nb 3\n", 4, "2 fields; expected a node"),
    ("repetita", REPETITA, 7, "cut off: expected an edge"),
    ("repetita", REPETITA.replace("NODES 2", "NODES 1"), 4, "3 fields; expected 'EDGES n'"),
    ("repetita", REPETITA + "e 0 2 1 1 1\n", 8, "refers to router '2'"),
    ("repetita", REPETITA + "e 0 1 1 1 x\n", 8, "a delay, a number"),
    ("repetita", REPETITA + "e 0 1 1 1 -5\n", 8, "the delay -5 is negative"),
    ("repetita", REPETITA + "e 0 1 1 1 5\nf 1 0 1 1 5\n", 9, "more lines than the 1 edges announced"),
    ("repetita", REPETITA.replace("b 3 4", "b 3 inf"), 4, "a finite number"),
    # mrinfo
    ("mrinfo", '{"topology":\n{"nodes": [', 2, "not JSON"),
    ("mrinfo", "[" * 100_000, None, "not JSON"),
    ("mrinfo", "9" * 10_000, None, "not JSON"),
    ("mrinfo", "[]", None, "an object called 'topology'"),
    ("mrinfo", '{"topology": []}', None, "an object called 'topology'"),
    ("mrinfo", '{"topology": {"nodes": "a"}}', None, "a list called 'nodes'"),
    ("mrinfo", '{"topology": {"nodes": ["a"]}}', None, "a list called 'links'"),
    ("mrinfo", '{"topology": {"nodes": [null], "links": []}}', None, "nodes[0]: expected the identifier"),
    ("mrinfo", '{"topology": {"nodes": ["a", "a"], "links": []}}', None, "'a' is defined twice"),
    ("mrinfo", '{"topology": {"nodes": ["a"], "links": [7]}}', None, "links[0]: expected a link"),
    ("mrinfo", '{"topology": {"nodes": ["a"], "links": [{"u": "a", "v": "b"}]}}', None, "refers to router 'b'"),
    ("mrinfo", '{"topology": {"nodes": ["a"], "links": [{"u": "a", "v": 1.5}]}}', None, "links[0].v"),
    # rtt-matrix
    ("rtt-matrix", "0 1\n1 0 2\n", 2, "3 entries in this row, 2 in the first"),
    ("rtt-matrix", "0 1\n1 0\n1 0\n", 3, "more rows than the 2 entries"),
    ("rtt-matrix", "0 1 2\n1 0 2\n", None, "2 rows of 3 entries"),
    ("rtt-matrix", "0 x\n1 0\n", 1, "a round-trip time, a number, and found 'x'"),
    ("rtt-matrix", "0 1\nnan 0\n", 2, "not finite"),
    ("rtt-matrix", "0 1e30\n1e30 0\n", None, "over a day"),
    ("rtt-matrix", b"\x1c", None, "the matrix is empty"),
    ("rtt-matrix", "0 0\n0 0\n", None, "not connected"),
    ("rtt-matrix", b"a".ljust(257, b"\0") + b"ustar\0" + b"junk" * 200, None, "archive"),
    # any text format
    ("edges", b"a b 5ms\n\xff\xfe\x00 b\n", 2, "byte 0xff is not UTF-8"),
    ("brite", b"Topology:\0\n", 1, "NUL bytes"),
    ("edges", b"", None, "the file is empty"),
    ("graphml", b" \n\n", None, "the file is empty"),
    ("edges", gzip.compress(b"a b 5ms\n" * 50, mtime=0)[:-12], None, "cut off gzip"),
    ("edges", b"\x1f\x8bnot gzip at all", None, "damaged or cut off gzip"),
    ("edges", gzip.compress(b"", mtime=0), None, "the file is empty"),
]


@pytest.mark.parametrize(("format", "content", "line", "message"), MALFORMED, ids=range(len(MALFORMED)))
def test_malformed_files_are_refused_with_line_and_reason(
    tmp_path: Path, format: str, content: str | bytes, line: int | None, message: str
) -> None:
    path = tmp_path / "latencies.intra"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(TopologyError) as caught:
        read_network(path, format, options=ReadOptions(unit="s"))
    assert message in caught.value.message
    assert caught.value.line == line
    assert caught.value.file == str(path)


def test_paths_that_cannot_be_opened(tmp_path: Path) -> None:
    for path, message in [
        (tmp_path, "is a folder"),
        (tmp_path / "missing.brite", "no such file"),
        (tmp_path / ("x" * 5000), "cannot be opened"),
        (tmp_path / "a\0b", "cannot be opened"),
    ]:
        with pytest.raises(TopologyError, match=message):
            read_network(path)


def test_a_gz_file_that_is_not_compressed(tmp_path: Path) -> None:
    path = tmp_path / "net.edges.gz"
    path.write_text("a b 5ms\n")
    with pytest.raises(TopologyError, match="its name says gzip"):
        read_network(path)


def test_auto_says_what_it_tried(tmp_path: Path) -> None:
    path = tmp_path / "matrix.txt"
    path.write_text("0 10 20\n10 0 5\n20 5 0\n")
    with pytest.raises(TopologyError) as caught:
        read_network(path)
    assert all(name in caught.value.message for name in FORMATS)
    assert "rtt-matrix is never guessed" in caught.value.message


def test_auto_on_binary_content_says_that_it_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "picture"
    path.write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    with pytest.raises(TopologyError, match="not text"):
        read_network(path)


def test_an_unknown_format_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    path = tmp_path / "net.edges"
    path.write_text("a b 5ms\n")
    with pytest.raises(TopologyError, match="'gml' is not a format; use auto or one of graphml, brite"):
        read_network(path, "gml")


def test_rocketfuel_weights_and_latencies_are_told_apart_by_name_only(tmp_path: Path) -> None:
    path = tmp_path / "1221.intra"
    path.write_text("a1 b2 3\n")
    with pytest.raises(TopologyError, match="cannot tell latencies from weights"):
        read_network(path)


def test_rtt_matrix_needs_its_unit_and_takes_no_slice(tmp_path: Path) -> None:
    path = tmp_path / "rtt.txt"
    path.write_text("0 1\n1 0\n")
    with pytest.raises(TopologyError, match="set the option unit to ms or s"):
        read_network(path, "rtt-matrix")
    with pytest.raises(TopologyError, match="the file is no archive"):
        read_network(path, "rtt-matrix", options=ReadOptions(unit="s", slice=1))


def test_limits_of_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "net.edges"
    path.write_text("a b\nb c\nc a\n")
    monkeypatch.setattr(raw, "LINKS_MAX", 2)
    with pytest.raises(TopologyError, match="3: more than 2 links, which is the limit"):
        read_network(path)
    monkeypatch.setattr(raw, "ROUTERS_MAX", 2)
    with pytest.raises(TopologyError, match="2: more than 2 routers, which is the limit"):
        read_network(path)
    monkeypatch.setattr(source, "BYTES_MAX", 2**20)
    path.write_bytes(b"#" * (2**20 + 1))
    with pytest.raises(TopologyError, match="larger than 1 MiB, which is the limit"):
        read_network(path)
    path.write_bytes(gzip.compress(b"#" * (2**20 + 1)))
    with pytest.raises(TopologyError, match="larger than 1 MiB when decompressed"):
        read_network(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fallback_latency_s": 0}, "fallback_latency_s is 0"),
        ({"fallback_latency_s": float("nan")}, "fallback_latency_s is nan"),
        ({"unit": "us"}, "use 'ms' or 's'"),
        ({"limit": 0}, "limit is 0"),
        ({"km_per_unit": -1}, "km_per_unit is -1"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ReadOptions(**options)  # type: ignore[arg-type]


SAMPLES = {
    "graphml": KEYS_XML.encode()
    + b'<node id="a"><data key="x">1</data><data key="y">2</data></node>\n<node id="b"/>\n'
    + b'<edge source="a" target="b"/></graph></graphml>',
    "brite": BRITE.encode() + b"0 0 1 2.0 1.0 10\n",
    "edges": b"a b 5ms\nb,c,3ms # x\n",
    "sndlib": SNDLIB.encode() + b"LINKS (\n L1 ( a b ) 0\n)\n",
    "rocketfuel": ROUTER.encode() + b"2 @T (1) -> <1> =b r0\n",
    "repetita": REPETITA.encode() + b"e 0 1 1 1 5\n",
    "mrinfo": b'{"topology": {"nodes": ["a", "b"], "links": [{"u": "a", "v": "b"}]}}',
    "rtt-matrix": b"0 1 2\n1 0 -1\n2 3 0\n",
    "auto": b"a b 5ms\n",
}
PIECES = [b"", b"\n", b" ", b"nan", b"inf", b"-1", b"1e999", b"\0", b"\xff", b"(", b")", b"<", b">", b'"', b"\x1f\x8b"]


def attempt(path: Path, content: bytes, format: str) -> None:
    """Any bytes either read or raise TopologyError."""
    path.write_bytes(content)
    options = ReadOptions(unit="s", largest_component=True)
    try:
        network = read_network(path, format, options=options)
    except TopologyError:
        return
    assert len(network.index) == len(network.routers) > 0
    assert len({link.name for link in network.links}) == len(network.links)
    assert all(link.latency_s > 0 for link in network.links)


FUZZ = settings(
    max_examples=100, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.parametrize("format", [*FORMATS, "auto"])
@FUZZ
@given(content=st.binary(max_size=300))
def test_any_bytes_either_read_or_raise_topology_error(tmp_path: Path, format: str, content: bytes) -> None:
    attempt(tmp_path / "latencies", content, format)


@pytest.mark.parametrize("format", [*FORMATS, "auto"])
@FUZZ
@given(seed=st.integers(0, 2**32), edits=st.integers(1, 4))
def test_any_damage_either_reads_or_raises_topology_error(tmp_path: Path, format: str, seed: int, edits: int) -> None:
    rng = random.Random(seed)
    content = SAMPLES[format]
    for _ in range(edits):
        start = rng.randrange(len(content) + 1)
        end = min(len(content), start + rng.choice([0, 1, 5, 1000]))
        content = content[:start] + rng.choice(PIECES) + content[end:]
    attempt(tmp_path / "latencies", content, format)


@pytest.mark.parametrize("format", [name for name in SAMPLES if name != "auto"])
def test_undamaged_samples_read(tmp_path: Path, format: str) -> None:
    path = tmp_path / "latencies"
    path.write_bytes(SAMPLES[format])
    assert read_network(path, format, options=ReadOptions(unit="s")).links


def test_a_path_may_be_text(tmp_path: Path) -> None:
    path = tmp_path / "pair.edges"
    path.write_text("a b 5ms\n")
    assert read_network(str(path)) == read_network(path)
    with pytest.raises(TopologyError, match="check the path"):
        read_network(str(tmp_path / "none.edges"))
