"""Where things stand: layouts are right, repeatable, and leave room for every name."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surecast.scenario.network import Network, PhysicalLink, Router
from surecast.studio import layout as layout_module
from surecast.studio.layout import graph_layout, network_layout
from surecast.studio.names import Frame, place_labels
from surecast.studio.scene import build_scene
from surecast.studio.scene_chart import scene_chart


def geographic(*places: tuple[float, float]) -> Network:
    routers = tuple(Router(f"r{i}", lon, lat) for i, (lon, lat) in enumerate(places))
    links = tuple(PhysicalLink(f"l{i}", i, i + 1, 0.01) for i in range(len(places) - 1))
    return Network(routers, links, geographic=True)


def test_a_tree_stands_in_layers_with_parents_amid_their_children() -> None:
    tree = nx.balanced_tree(2, 2)
    layout = graph_layout(tree, 0)
    assert layout.shape == "rightwards"
    assert layout.xy[:, 0].tolist() == [0, 1, 1, 2, 2, 2, 2]
    y = layout.xy[:, 1]
    assert y[0] == pytest.approx((y[1] + y[2]) / 2)
    assert y[1] == pytest.approx((y[3] + y[4]) / 2)
    assert len(set(y[3:])) == 4


def test_the_shape_follows_the_tree() -> None:
    assert graph_layout(nx.path_graph(10), 0).shape == "downwards"
    assert graph_layout(nx.star_graph(80), 0).shape == "radial"
    assert graph_layout(nx.path_graph(5000), 0).shape == "radial"  # deep, but no recursion
    assert graph_layout(nx.cycle_graph(10), 0).shape == "force"


def test_a_ring_becomes_a_circle() -> None:
    xy = graph_layout(nx.cycle_graph(12), 0).xy
    radius = np.hypot(*(xy - xy.mean(axis=0)).T)
    assert radius.max() / radius.min() < 1.05
    assert np.array_equal(xy, graph_layout(nx.cycle_graph(12), 0).xy)


def test_no_two_nodes_of_a_general_graph_coincide() -> None:
    for graph in (nx.complete_bipartite_graph(2, 9), nx.complete_graph(8), nx.petersen_graph()):
        xy = graph_layout(graph, 0).xy
        apart = np.linalg.norm(xy[:, None] - xy[None, :], axis=2) + np.eye(len(xy))
        assert apart.min() > 0.1


def test_a_very_large_graph_falls_back_to_circles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout_module, "STRESS_NODES_MAX", 20)
    graph = nx.connected_watts_strogatz_graph(60, 4, 0.2, seed=1)
    layout = graph_layout(graph, 0)
    assert layout.shape == "radial"
    assert np.isfinite(layout.xy).all()


def test_longitudes_shrink_with_the_cosine_of_the_mean_latitude() -> None:
    xy = network_layout(geographic((0.0, 60.0), (10.0, 60.0))).xy
    assert xy[1, 0] - xy[0, 0] == pytest.approx(5.0)


def test_a_network_across_the_date_line_stays_in_one_piece() -> None:
    placed = network_layout(geographic((139.7, 35.7), (178.0, -18.0), (-157.9, 21.3), (-122.4, 37.8)))
    assert np.ptp(placed.xy[:, 0]) < 110
    assert (np.diff(placed.xy[:, 0]) > 0).all()
    assert placed.axes is not None
    assert [text for _, text in placed.axes.x_ticks] == ["140°E", "160°E", "180°W", "160°W", "140°W"]


def boxes(centres: Any, sizes: Any) -> Any:
    return np.concatenate([centres - sizes / 2, centres + sizes / 2], axis=1)


def overlapping(a: Any, b: Any) -> bool:
    return bool(a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 300)), min_size=1, max_size=25), st.integers(5, 90))
def test_names_touch_neither_each_other_nor_a_marker_nor_the_edge(places: list[tuple[int, int]], width: int) -> None:
    anchors = np.array(places, dtype=float)
    sizes = np.tile([float(width), 12.0], (len(places), 1))
    spots = place_labels(anchors, np.full(len(places), 5.0), sizes, (0, 500, 0, 300))
    written = [(i, spot) for i, spot in enumerate(spots) if spot is not None]
    framed = {i: boxes(np.array([[s.x, s.y]]), sizes[i : i + 1])[0] for i, s in written}
    for i, box in framed.items():
        assert box[0] >= 0
        assert box[1] >= 0
        assert box[2] <= 500
        assert box[3] <= 300
        assert not any(overlapping(box, other) for j, other in framed.items() if j != i)
        nearest = np.clip(anchors, box[:2], box[2:])
        assert np.hypot(*(anchors - nearest).T).min() >= 5.0


@pytest.mark.parametrize("n", range(10, 31, 4))
def test_every_broker_of_a_usual_overlay_gets_its_name(make_tree: Any, make_graph: Any, n: int) -> None:
    for system in (make_tree(n), make_graph(n)):
        scene = build_scene(system, None)
        frame = Frame.fitting(scene_chart(scene), 620.0, 450.0 if scene.equal else max(245.0, 30.0 * scene.rows))
        anchors = frame.place(np.array([broker.xy for broker in scene.brokers]))
        sizes = np.array([(5.5 * len(broker.name), 11.0) for broker in scene.brokers])
        bounds = (0.0, frame.width, 0.0, frame.height)
        assert None not in place_labels(anchors, np.full(n, 8.0), sizes, bounds)
