"""A drawing of a system: the right file, whole, with everything in it that the system has."""

from __future__ import annotations

import struct
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.patience import PATIENCE_S

from surecast.errors import ConfigurationError, UserError
from surecast.scenario.network import Network, PhysicalLink, Router
from surecast.scenario.system import Broker, OverlayLink
from surecast.studio import draw_system
from surecast.studio import matplotlib_picture as picture_module
from surecast.studio.scene import build_scene
from surecast.studio.style import LIGHT

KINDS = ["tree", "large tree", "chain", "star", "graph", "single", "domains", "cities"]


def png_size(content: bytes) -> tuple[int, int]:
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", content[16:24])
    return width, height


@pytest.mark.parametrize("kind", ["large tree", "graph", "single", "domains"])
def test_a_picture_is_valid_and_nothing_else_is_left_behind(systems: Any, kind: str, tmp_path: Path) -> None:
    png = draw_system(systems[kind], tmp_path / "a.png", width=700)
    svg = draw_system(systems[kind], tmp_path / "a.svg", dark=True)
    assert png_size(png.read_bytes())[0] == 700
    root = ElementTree.parse(svg).getroot()
    assert root.tag.endswith("svg")
    assert root.findtext("{http://www.w3.org/2000/svg}title") == systems[kind].name
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.png", "a.svg"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_figure_of_a_page_is_one_that_plotly_accepts(
    systems: Any, figures_of: Any, kind: str, tmp_path: Path
) -> None:
    from plotly.graph_objects import Figure

    page = draw_system(systems[kind], tmp_path / "a.html").read_text()
    (figure,) = figures_of(page)
    Figure(figure)  # refuses unknown properties and wrong values
    names = [text for trace in figure["data"] for text in trace.get("text", [])]
    for broker in systems[kind].overlay.brokers:
        assert any(broker.name in name for name in names)
        assert f">{broker.name}" in page


def test_the_same_system_gives_the_same_bytes(systems: Any, tmp_path: Path) -> None:
    for suffix in ("svg", "png", "html"):
        first, second = (draw_system(systems["graph"], tmp_path / f"{i}.{suffix}").read_bytes() for i in range(2))
        assert first == second


def test_a_users_matplotlib_settings_change_nothing(systems: Any, tmp_path: Path) -> None:
    import matplotlib

    before = draw_system(systems["tree"], tmp_path / "a.svg").read_bytes()
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "lines.linewidth": 9}):
        assert draw_system(systems["tree"], tmp_path / "b.svg").read_bytes() == before
        assert matplotlib.rcParams["font.size"] == 30


def test_the_suffix_decides_and_any_other_is_refused(systems: Any, tmp_path: Path) -> None:
    assert draw_system(systems["single"], tmp_path / "A.PNG").is_file()
    for name in ("a.pdf", "a", "a.svgz", ".html"):
        with pytest.raises(ConfigurationError, match=r"\.html, \.svg, \.png") as error:
            draw_system(systems["single"], tmp_path / name)
        assert isinstance(error.value, UserError)
    with pytest.raises(ConfigurationError, match="does not exist"):
        draw_system(systems["single"], tmp_path / "nowhere" / "a.png")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(ConfigurationError, match="folder"):
        draw_system(systems["single"], tmp_path / "folder.png")
    with pytest.raises(ConfigurationError, match="width"):
        draw_system(systems["single"], tmp_path / "a.png", width=10_000_000)


def test_a_failure_leaves_the_old_file_and_nothing_else(
    systems: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "a.png"
    target.write_bytes(b"old")

    def fail(*_: Any) -> bytes:
        raise MemoryError

    monkeypatch.setattr(picture_module, "_saved", fail)
    with pytest.raises(MemoryError):
        draw_system(systems["tree"], target)

    def no_room(self: Path, _target: Path) -> Path:
        raise OSError(28, "no room")

    monkeypatch.undo()
    monkeypatch.setattr(Path, "replace", no_room)
    with pytest.raises(UserError, match="cannot be written: no room"):
        draw_system(systems["tree"], target)
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_names_stay_names_in_every_format(hostile: Any, figures_of: Any, tmp_path: Path) -> None:
    ElementTree.parse(draw_system(hostile, tmp_path / "a.svg"))
    draw_system(hostile, tmp_path / "a.png")
    page = draw_system(hostile, tmp_path / "a.html").read_text(encoding="utf-8")
    assert page.count("<script") == 3  # the figure's data, Plotly and the page's own
    assert "<img" not in page
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    (figure,) = figures_of(page)
    for trace in figure["data"]:
        assert "hovertemplate" not in trace
        assert "texttemplate" not in trace
        for text in [*trace.get("text", []), *(trace.get("hovertext") or [])]:
            plain = text.replace("<br>", "").replace("<b>", "", 1).replace("</b>", "", 1)
            assert "<" not in plain


def test_the_drawing_counts_what_the_system_has(systems: Any) -> None:
    scene = build_scene(systems["domains"], None)
    links = f"{len(systems['domains'].network.links):,} physical links"
    assert scene.counts == (
        "6 brokers · 5 overlay links · 9 publishers · 119 subscribers",
        f"1,000 routers in 5 domains · {links} · 10 candidate positions",
    )
    assert [group.label for group in scene.routers] == [f"domain {i} (200 routers)" for i in range(5)]
    assert len(scene.candidates) == 4  # ten, six of them taken
    assert [broker.is_root for broker in scene.brokers] == [True] + [False] * 5
    assert scene.brokers[2].size == 1.0
    assert scene.brokers[2].clients == "3 pub · 45 sub"
    assert scene.shade(scene.availabilities[0]) == 0.0
    assert scene.shade(scene.availabilities[5]) == 1.0
    assert build_scene(systems["domains"], "<b>").title == "<b>"


def test_hover_text_tells_availability_capacity_latency_and_path(systems: Any) -> None:
    scene = build_scene(systems["cities"], None)
    assert scene.brokers[0].hover == (
        "Chicago (root)",
        "availability: 99.42 %",
        "MTBF 3 d, MTTR 25 min",
        "capacity: 900/s",
        "3 pub, 40 sub",
        "router: Chicago",
    )
    assert scene.brokers[3].hover[1] == "never fails"
    hover = scene.links[0].hover
    assert hover[0] == "Chicago to Denver"
    assert hover[1].startswith("latency: 8.5")
    assert hover[2] == "capacity: 2,500/s"
    assert hover[-1].startswith("path (3 hops): Chicago → ")


def test_more_domains_than_colours_share_a_last_one(systems: Any) -> None:
    network = systems["cities"].network
    routers = tuple(replace(router, domain=f"domain {i // 3}") for i, router in enumerate(network.routers))
    scene = build_scene(replace(systems["cities"], network=replace(network, routers=routers)), None)
    assert len(scene.routers) == len(LIGHT.series) + 1
    assert scene.routers[-1].series is None
    assert sum(len(group.xy) for group in scene.routers) == len(routers)
    alone = tuple(replace(router, domain=router.name) for router in network.routers)
    scene = build_scene(replace(systems["cities"], network=replace(network, routers=alone)), None)
    assert [group.label for group in scene.routers] == ["router (32)"]


def test_candidates_can_be_drawn_before_any_broker_is_placed(make_system: Any, systems: Any, tmp_path: Path) -> None:
    network = systems["cities"].network
    system = make_system([], [], network=network, candidates=(0, 1, 2))
    assert len(build_scene(system, None).candidates) == 3
    for suffix in ("svg", "html"):
        assert draw_system(system, tmp_path / f"a.{suffix}").is_file()
    with pytest.raises(ConfigurationError, match="neither brokers nor a network"):
        draw_system(make_system([], []), tmp_path / "b.png")


def test_brokers_on_one_router_are_parted(make_system: Any, tmp_path: Path) -> None:
    routers = (Router("r0", 0.0, 0.0), Router("r1", 100.0, 0.0))
    network = Network(routers, (PhysicalLink("l", 0, 1, 0.001),))
    links = [OverlayLink("l01", 0, 1, (0,)), OverlayLink("l12", 1, 2, (0, 1), 0.001)]
    system = make_system([Broker("a", 0), Broker("b", 0), Broker("c", 1)], links, network=network)
    places = {tuple(broker.xy) for broker in build_scene(system, None).brokers}
    assert len(places) == 3
    draw_system(system, tmp_path / "a.png")


def test_a_network_without_coordinates_is_laid_out(make_system: Any, tmp_path: Path) -> None:
    routers = tuple(Router(f"r{i}", 0.0, 0.0) for i in range(6))
    links = tuple(PhysicalLink(f"l{i}", i, (i + 1) % 6, 0.001) for i in range(6))
    system = make_system(
        [Broker("a", 0), Broker("b", 3)], [OverlayLink("l", 0, 1, (0, 1, 2, 3))], network=Network(routers, links)
    )
    scene = build_scene(system, None)
    assert scene.axes is None
    assert len({tuple(xy.round(3)) for group in scene.routers for xy in group.xy}) == 6
    draw_system(system, tmp_path / "a.svg")


def test_importing_is_cheap_and_drawing_uses_no_global_figures(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from surecast.studio import ScatterGroup, scatter\n"
        "heavy = {'matplotlib', 'plotly', 'networkx', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        f"scatter([ScatterGroup('a', [0.0], [1.0])], {str(tmp_path / 'a.png')!r}, x_label='x', y_label='y')\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE_S)
