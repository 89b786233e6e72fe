"""What is filled in where a file is silent."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surecast.errors import TopologyError
from surecast.scenario.network import LIGHT_IN_FIBRE_KM_PER_S, great_circle_km
from surecast.scenario.topology.finish import SHORTEST_S, finish
from surecast.scenario.topology.positions import drawing_layout
from surecast.scenario.topology.raw import RawTopology, ReadOptions

OPTIONS = ReadOptions()


def topology(
    places: dict[str, tuple[float, float] | None],
    links: list[tuple[str, str] | tuple[str, str, float]],
    coordinates: str = "geographic",
) -> RawTopology:
    raw = RawTopology("net", coordinates)  # type: ignore[arg-type]
    for name, place in places.items():
        raw.add_router(name, position=place)
    for a, b, *latency_s in links:
        raw.add_link(raw.find(a), raw.find(b), latency_s=latency_s[0] if latency_s else None)
    return raw


def test_parallel_links_keep_the_lowest_latency_and_loops_go() -> None:
    raw = topology({"a": None, "b": None}, [("a", "b", 0.005), ("b", "a", 0.003), ("a", "b"), ("b", "b", 0.001)])
    network = finish(raw, OPTIONS)
    assert [(link.name, link.latency_s) for link in network.links] == [("a--b", 0.003)]
    assert network.notes[:2] == (
        "1 link from a router to itself dropped",
        "2 parallel links merged: the lowest latency kept",
    )


def test_a_latency_of_zero_becomes_that_of_one_kilometre() -> None:
    network = finish(topology({"a": None, "b": None}, [("a", "b", 0.0)]), OPTIONS)
    assert network.links[0].latency_s == SHORTEST_S == pytest.approx(5.0e-6, rel=1e-3)
    assert network.notes[0] == "1 of 1 link is shorter than 1 km: latency of 1 km of fibre, 5 us, assumed"


def test_a_network_in_parts_is_refused_with_sizes_examples_and_the_way_out() -> None:
    places = dict.fromkeys("abcdefghijk")
    links: list[tuple[str, str] | tuple[str, str, float]] = [("c", "d"), ("e", "f"), ("f", "g")]
    with pytest.raises(TopologyError) as caught:
        finish(topology(places, links), OPTIONS)
    assert str(caught.value) == (
        "net: the network is not connected: it has 8 parts, of sizes 3 with 'e', 2 with 'c', 1 with 'a', 1 with 'b', "
        "1 with 'h' and 3 smaller; set the option largest_component to read the largest part alone"
    )
    network = finish(topology(places, links), replace(OPTIONS, largest_component=True))
    assert [router.name for router in network.routers] == ["e", "f", "g"]
    assert [link.name for link in network.links] == ["e--f", "f--g"]
    assert network.notes[0] == "the network is not connected: largest part kept, 3 of 11 routers"


def test_one_router_is_a_network() -> None:
    network = finish(topology({"a": None}, []), OPTIONS)
    assert len(network.routers) == 1
    assert network.links == ()


def test_a_chain_without_coordinates_divides_the_way_evenly() -> None:
    chain = topology({"a": (0.0, 0.0), "b": None, "c": None, "d": (30.0, 0.0)}, [("a", "b"), ("b", "c"), ("c", "d")])
    network = finish(chain, OPTIONS)
    assert [(router.x, router.y) for router in network.routers] == [
        (0.0, 0.0),
        pytest.approx((10.0, 0.0), abs=1e-5),
        pytest.approx((20.0, 0.0), abs=1e-5),
        (30.0, 0.0),
    ]
    # A sixth of a quadrant of the equator each: 10007.557 km / 9.
    assert network.links[0].latency_s == pytest.approx(10007.557 / 9 / LIGHT_IN_FIBRE_KM_PER_S, rel=1e-5)


def test_the_mean_of_tokyo_and_los_angeles_lies_in_the_pacific() -> None:
    raw = topology({"Tokyo": (139.7, 35.7), "x": None, "LA": (-118.2, 34.1)}, [("Tokyo", "x"), ("x", "LA")])
    middle = finish(raw, OPTIONS).routers[1]
    assert -180 < middle.x < -150
    assert great_circle_km(139.7, 35.7, middle.x, middle.y) == pytest.approx(
        great_circle_km(-118.2, 34.1, middle.x, middle.y), rel=1e-6
    )


def test_neighbours_at_opposite_ends_of_the_earth_still_give_a_place() -> None:
    raw = topology({"a": (0.0, 0.0), "x": None, "b": (180.0, 0.0)}, [("a", "x"), ("x", "b")])
    middle = finish(raw, OPTIONS).routers[1]
    assert abs(middle.x) <= 180
    assert abs(middle.y) <= 90


def test_equal_coordinates_everywhere_are_no_coordinates() -> None:
    raw = topology(dict.fromkeys("abc", (5.0, 5.0)), [("a", "b"), ("b", "c")])
    network = finish(raw, OPTIONS)
    assert network.notes == (
        "all 3 routers have the same coordinates: not used",
        "all 2 links have no latency and no distance: 1ms assumed",
        "no router has coordinates: positions are for drawing only",
    )
    assert not network.geographic


def test_two_routers_in_one_place_are_one_kilometre_of_fibre_apart() -> None:
    raw = topology({"a": (5.0, 5.0), "b": (5.0, 5.0), "c": (6.0, 5.0)}, [("a", "b"), ("b", "c")])
    network = finish(raw, OPTIONS)
    assert network.links[0].latency_s == SHORTEST_S
    assert network.links[1].latency_s == pytest.approx(great_circle_km(5, 5, 6, 5) / LIGHT_IN_FIBRE_KM_PER_S)


def test_coordinates_out_of_the_range_of_degrees_lie_on_a_plane() -> None:
    raw = topology({"a": (100.0, 100.0), "b": (103.0, 104.0)}, [("a", "b")], "either")
    network = finish(raw, OPTIONS)
    assert not network.geographic
    assert network.links[0].latency_s == 0.001
    scaled = finish(raw, replace(OPTIONS, km_per_unit=100.0))
    assert scaled.links[0].latency_s == pytest.approx(500 / LIGHT_IN_FIBRE_KM_PER_S)
    assert (scaled.routers[1].x, scaled.routers[1].y) == (10300.0, 10400.0)


@given(names=st.lists(st.sampled_from(["", " ", "a", "a-2", "a-3", "a  b", "a b", "router"]), min_size=1, max_size=12))
def test_router_and_link_names_are_unique_and_never_empty(names: list[str]) -> None:
    raw = RawTopology("net")
    for i, name in enumerate(names):
        raw.add_router(str(i), name=name)
        raw.add_link(0, i)
    network = finish(raw, OPTIONS)
    assert len(network.index) == len(names)
    assert all(name.strip() for name in network.index)
    assert len({link.name for link in network.links}) == len(names) - 1


def test_the_first_of_equal_names_keeps_it() -> None:
    raw = RawTopology("net")
    for i, name in enumerate(["x", "x", "x-2", "x"]):
        raw.add_router(str(i), name=name)
        raw.add_link(0, i)
    assert [router.name for router in finish(raw, OPTIONS).routers] == ["x", "x-3", "x-2", "x-4"]


def test_link_names_stay_unique_where_router_names_hold_dashes() -> None:
    raw = topology(dict.fromkeys(["a", "b--c", "a--b", "c"]), [("a", "b--c"), ("a--b", "c"), ("a", "c")])
    assert [link.name for link in finish(raw, OPTIONS).links] == ["a--b--c", "a--b--c-2", "a--c"]


@settings(deadline=None)
@given(routers=st.integers(1, 40), seed=st.integers(0, 1000), extra=st.integers(0, 60))
def test_drawings_are_finite_spread_out_and_repeatable(routers: int, seed: int, extra: int) -> None:
    rng = np.random.default_rng(seed)
    pairs = {(int(rng.integers(i)), i) for i in range(1, routers)}
    pairs |= {(a, b) for a, b in rng.integers(routers, size=(extra, 2)).tolist() if a < b}
    ends = np.array(sorted(pairs), dtype=np.intp).reshape(-1, 2)
    lengths = rng.uniform(1, 100, len(ends))
    xy = drawing_layout(routers, ends, lengths)
    assert xy.shape == (routers, 2)
    assert np.isfinite(xy).all()
    assert (xy == drawing_layout(routers, ends, lengths)).all()
    assert len({(round(x, 9), round(y, 9)) for x, y in xy.tolist()}) == routers
    if len(ends):
        drawn = [math.dist(xy[a], xy[b]) for a, b in ends]
        assert np.mean(drawn) == pytest.approx(np.mean(lengths))


def test_drawing_a_full_mesh_keeps_its_distances() -> None:
    rng = np.random.default_rng(3)
    true = rng.uniform(0, 100, (12, 2))
    pairs = np.array([(a, b) for b in range(12) for a in range(b)])
    lengths = np.array([math.dist(true[a], true[b]) for a, b in pairs])
    xy = drawing_layout(12, pairs, lengths)
    drawn = np.array([math.dist(xy[a], xy[b]) for a, b in pairs])
    assert drawn == pytest.approx(lengths, abs=6)  # routers are shifted by 2 % of the width, so that none coincide


def test_five_hundred_routers_are_drawn_apart() -> None:
    rng = np.random.default_rng(1)
    pairs = np.array([(int(rng.integers(i)), i) for i in range(1, 500)])
    xy = drawing_layout(500, pairs, np.ones(499))
    assert np.isfinite(xy).all()
    assert len(np.unique(xy, axis=0)) == 500
