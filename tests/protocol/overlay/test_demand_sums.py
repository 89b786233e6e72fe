"""Sums of hashes by which one sees from outside whether both ends of every link know the same."""

from __future__ import annotations

import random
from collections import deque
from typing import Literal

import pytest

from surecast.protocol.demand import JointFilter
from surecast.protocol.overlay.node_links import NodeSettings
from surecast.protocol.overlay.overlay_node import OverlayNode
from surecast.protocol.overlay.overlay_plan import OverlayPlan, Tree

LINKS = (("a", "b"), ("b", "c"), ("b", "d"), ("d", "e"))
NAMES = ("a", "b", "c", "d", "e")


def differing(nodes: dict[str, OverlayNode]) -> set[tuple[str, str]]:
    pairs = [pair for a, b in LINKS for pair in ((a, b), (b, a))]
    return {
        (a, b)
        for a, b in pairs
        if (announced := nodes[a].demand_sums(b, 0)[1]) is not None and nodes[b].demand_sums(a, 0)[0] != announced
    }


@pytest.mark.parametrize("refresh", ["link", "end-to-end"])
@pytest.mark.parametrize(
    ("algorithm", "root"),
    [("flooding", None), *((name, root) for name in ("simple", "covering", "merging") for root in (None, "b"))],
)
def test_sums_differ_exactly_while_something_is_on_its_way(
    algorithm: str, root: str | None, refresh: Literal["link", "end-to-end"]
) -> None:
    rng = random.Random(f"{algorithm} {root} {refresh}")
    plan = OverlayPlan(NAMES, LINKS, (Tree(LINKS, "none", algorithm, root=root, refresh=refresh),), (("", (0,)),))
    nodes = {name: OverlayNode(name, plan, 1, NodeSettings(), 0.0) for name in NAMES}
    for a, b in LINKS:
        hellos = nodes[a].hello(b), nodes[b].hello(a)
        nodes[a].link_up(b, hellos[1], 0.0)
        nodes[b].link_up(a, hellos[0], 0.0)
    pipes: dict[tuple[str, str], deque[object]] = {pair: deque() for a, b in LINKS for pair in ((a, b), (b, a))}

    def write() -> None:
        for a, b in pipes:
            pipes[a, b].extend(nodes[a].output(b))

    def deliver() -> None:
        a, b = rng.choice([pair for pair, pipe in pipes.items() if pipe])
        nodes[b].receive(a, pipes[a, b].popleft(), 0.0)  # type: ignore[arg-type]
        write()

    write()
    while any(pipes.values()):
        deliver()
    assert differing(nodes) == set()
    seen = False
    for number in range(12):
        topic = rng.choice(["x", "x/#", f"x/{number % 4}", "y"])
        nodes[rng.choice(NAMES)].demand(added=[JointFilter(topic, qos=rng.choice([0, 1]))])
        write()
        seen = seen or bool(differing(nodes))
        while any(pipes.values()):
            deliver()
        assert differing(nodes) == set()
    assert seen or algorithm == "flooding"
