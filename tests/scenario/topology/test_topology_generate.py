"""Generated networks: connected, of exactly the size asked for, and the same for the same seed."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surecast.scenario.network import LIGHT_IN_FIBRE_KM_PER_S, Network, PhysicalLink, Router
from surecast.scenario.streams import Streams
from surecast.scenario.topology import random_network, transit_stub, tree_network, with_domains
from surecast.scenario.topology.finish import SHORTEST_S

if TYPE_CHECKING:
    from collections.abc import Callable

FAST = settings(max_examples=40, deadline=None, database=None)
SEEDS = st.integers(0, 2**32)


def assert_sound(network: Network, routers: int) -> None:
    assert len(network.routers) == routers
    assert len(network.index) == routers
    assert nx.is_connected(network.graph)
    assert network.graph.number_of_edges() == len(network.links)
    assert not network.geographic
    for link in network.links:
        km = network.length_km(network.routers[link.a], network.routers[link.b])
        assert link.latency_s == pytest.approx(max(SHORTEST_S, km / LIGHT_IN_FIBRE_KM_PER_S))


@FAST
@given(
    seed=SEEDS,
    domains=st.integers(1, 5),
    transit=st.integers(1, 5),
    stubs=st.integers(1, 3),
    spare=st.integers(0, 80),
    uplinks=st.integers(1, 3),
    links=st.integers(1, 4),
)
def test_transit_stub_is_sound(
    seed: int, domains: int, transit: int, stubs: int, spare: int, uplinks: int, links: int
) -> None:
    routers = domains * transit * (1 + stubs) + spare
    network = transit_stub(
        Streams(seed),
        domains=domains,
        routers=routers,
        transit_per_domain=transit,
        stubs_per_transit=stubs,
        stub_uplinks=min(uplinks, transit),
        interdomain_links=links,
    )
    assert_sound(network, routers)
    assert network.domains == tuple(f"d{i}" for i in range(domains))
    for i in range(domains):
        names = [router.name for router in network.routers if router.domain == f"d{i}"]
        assert [name for name in names if name.count("-") == 1] == [f"d{i}-t{t}" for t in range(transit)]
        assert all(name.startswith(f"d{i}-t") for name in names)
        assert nx.is_connected(network.graph.subgraph(network.index[name] for name in names))
    sizes = Counter(name.rpartition("-r")[0] for name in network.index if "-r" in name)
    assert len(sizes) == domains * transit * stubs
    assert max(sizes.values()) - min(sizes.values()) <= 1


@FAST
@given(seed=SEEDS, domains=st.integers(1, 4), each=st.integers(24, 60))
def test_a_further_domain_changes_nothing_else(seed: int, domains: int, each: int) -> None:
    def build(count: int) -> Network:
        return transit_stub(
            Streams(seed), domains=count, routers=count * each, transit_per_domain=6, stubs_per_transit=2
        )

    before, after = build(domains), build(domains + 1)
    assert set(before.routers) <= set(after.routers)
    new = {router.name for router in after.routers} - {router.name for router in before.routers}
    assert {name.split("-")[0] for name in new} == {f"d{domains}"}
    kept = {(link.name, link.latency_s) for link in before.links}
    others = {(link.name, link.latency_s) for link in after.links} - kept
    assert kept <= {(link.name, link.latency_s) for link in after.links}
    assert all(set(name.split("--")) & new for name, _ in others)


def test_transit_stub_keeps_to_its_degrees_and_its_hierarchy() -> None:
    network = transit_stub(Streams(5), domains=4, routers=1000)
    inside: Counter[str] = Counter()
    for link in network.links:
        a, b = (network.routers[end] for end in (link.a, link.b))
        transit = a.name.count("-") + b.name.count("-")
        if a.domain != b.domain:
            assert transit == 2
            inside["between domains"] += 1
        elif transit == 2:
            inside["transit"] += 1
        elif transit == 4:
            inside["uplink"] += 1
            assert b.name.startswith(a.name + "-")
        else:
            assert a.name.rpartition("-")[0] == b.name.rpartition("-")[0]
            inside["stub"] += 1
    assert inside["transit"] == 4 * 12  # 8 routers of mean degree 3 a domain
    assert inside["uplink"] == 4 * 8 * 3
    assert inside["between domains"] == 2 * 4  # three pairs make a tree, one more is redundant, two links each
    assert inside["stub"] * 2 / (1000 - 32) == pytest.approx(2.5, abs=0.1)
    assert all(
        0 <= axis <= 12000 for router in network.routers if "-s" not in router.name for axis in (router.x, router.y)
    )


def test_transit_stub_without_stubs() -> None:
    network = transit_stub(Streams(1), domains=2, routers=10, transit_per_domain=5, stubs_per_transit=0)
    assert_sound(network, 10)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"routers": 127}, r"127 routers do not fit: 4 domains of 8 transit routers .* take at least 128"),
        ({"stubs_per_transit": 0}, r"200 routers do not fit: .* take exactly 32"),
        ({"domains": 0}, "domains is 0; it must be at least 1"),
        ({"transit_per_domain": 0}, "transit_per_domain is 0"),
        ({"stubs_per_transit": -1}, "stubs_per_transit is -1"),
        ({"interdomain_links": 0}, "interdomain_links is 0"),
        ({"stub_uplinks": 9}, "stub_uplinks is 9, but a domain has only 8"),
        ({"transit_degree": 0.0}, "transit_degree is 0; it must be above 0"),
        ({"stub_degree": math.nan}, "stub_degree is nan"),
        ({"domain_degree": math.inf}, "domain_degree is inf"),
        ({"width_km": -1.0}, "width_km is -1"),
        ({"routers": 200_001}, "between 1 and 200,000"),
    ],
)
def test_transit_stub_says_which_numbers_cannot_work(changed: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        transit_stub(Streams(1), **{"domains": 4, "routers": 200, **changed})  # type: ignore[arg-type]


@FAST
@given(seed=SEEDS, routers=st.integers(1, 60), mean_degree=st.floats(0.5, 12))
def test_random_networks_are_sound_and_of_their_degree(seed: int, routers: int, mean_degree: float) -> None:
    network = random_network(Streams(seed), routers=routers, mean_degree=mean_degree)
    assert_sound(network, routers)
    wanted = min(max(math.floor(routers * mean_degree / 2 + 0.5), routers - 1), math.comb(routers, 2))
    assert len(network.links) == wanted


def test_random_network_refuses_too_many_links() -> None:
    with pytest.raises(ValueError, match="links are too many"):
        random_network(Streams(1), routers=10_000, mean_degree=1000)


@FAST
@given(seed=SEEDS, routers=st.integers(1, 80), branching=st.none() | st.integers(1, 5))
def test_trees_are_trees_drawn_without_crossings(seed: int, routers: int, branching: int | None) -> None:
    network = tree_network(Streams(seed), routers=routers, branching=branching)
    assert_sound(network, routers)
    assert len(network.links) == routers - 1
    levels: dict[float, list[tuple[float, float]]] = {}
    for link in network.links:
        parent, child = network.routers[link.a], network.routers[link.b]
        assert parent.y > child.y
        levels.setdefault(child.y, []).append((child.x, parent.x))
    for joined in levels.values():
        assert len({child for child, _ in joined}) == len(joined)
        parents = [parent for _, parent in sorted(joined)]
        assert parents == sorted(parents)
    if branching is not None:
        assert Counter(link.a for link in network.links).most_common(1)[:1] in ([], [(0, min(branching, routers - 1))])


def test_a_tree_needs_a_branching() -> None:
    with pytest.raises(ValueError, match="branching is 0"):
        tree_network(Streams(1), routers=5, branching=0)


GENERATORS: list[Callable[[Streams], Network]] = [
    lambda streams: transit_stub(streams, domains=4, routers=1000),
    lambda streams: random_network(streams, routers=1000),
    lambda streams: tree_network(streams, routers=1000),
]


@pytest.mark.parametrize("generate", GENERATORS, ids=["transit_stub", "random", "tree"])
def test_a_seed_means_one_network(generate: Callable[[Streams], Network]) -> None:
    network = generate(Streams(7))
    assert network == generate(Streams(7))
    assert network.links != generate(Streams(8)).links


@FAST
@given(seed=SEEDS, routers=st.integers(1, 50), data=st.data())
def test_domains_part_a_network_into_connected_pieces(seed: int, routers: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, routers))
    plain = random_network(Streams(seed), routers=routers, mean_degree=2.4)
    network = with_domains(plain, count)
    assert sorted(network.domains) == sorted(f"d{i}" for i in range(count))
    for domain in network.domains:
        members = [i for i, router in enumerate(network.routers) if router.domain == domain]
        assert nx.is_connected(network.graph.subgraph(members))
    assert network == with_domains(plain, count)
    assert network.links == plain.links


def test_each_router_is_in_the_domain_of_a_nearest_seed() -> None:
    plain = random_network(Streams(3), routers=120)
    network = with_domains(plain, 5)
    hops = dict(nx.all_pairs_shortest_path_length(plain.graph))
    # The slow way: seeds one by one, the farthest first, hops before latency.
    latency = dict(nx.all_pairs_dijkstra_path_length(plain.graph, weight=lambda a, b, d: 1e6 + d["latency"]))
    seeds = [max(range(120), key=lambda r: (latency[0][r], -r))]
    while len(seeds) < 5:
        seeds.append(max(range(120), key=lambda r: (min(latency[s][r] for s in seeds), -r)))
    for i, router in enumerate(network.routers):
        own = seeds[int(router.domain[1:])]
        assert hops[own][i] == min(hops[s][i] for s in seeds)


def test_in_a_full_mesh_latency_decides() -> None:
    places = [0, 1, 2, 100, 101, 102]
    routers = tuple(Router(f"r{i}", float(x), 0.0) for i, x in enumerate(places))
    links = tuple(PhysicalLink(f"{a}{b}", a, b, abs(places[a] - places[b]) / 1000) for b in range(6) for a in range(b))
    parted = with_domains(Network(routers, links), 2)
    assert [router.domain for router in parted.routers] == ["d1", "d1", "d1", "d0", "d0", "d0"]


@pytest.mark.parametrize("count", [0, 8])
def test_there_cannot_be_more_domains_than_routers(count: int) -> None:
    network = tree_network(Streams(1), routers=7, branching=2)
    with pytest.raises(ValueError, match=f"{count} domains cannot be made of 7 routers"):
        with_domains(network, count)
