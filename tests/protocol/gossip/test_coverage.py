"""How far gossip gets among many: the recursion of epidemics in large populations."""

from __future__ import annotations

import heapq
import math

import numpy as np
import pytest

from surecast.protocol.coding import CodingSettings, EventEncoder
from surecast.protocol.gossip import (
    Announced,
    Announcement,
    Draws,
    Gossiper,
    GossipSettings,
    Holding,
    PacketRequest,
    Push,
    Reply,
)

CODING = CodingSettings(packets=1, redundancy=0.0, packet_bytes=1)
EVENT = Announced(1, 0, 1, 1000.0)
LATENCY_S = 0.001


def recursion(nodes: int, fan_out: int, loss: float) -> list[float]:
    """Expected numbers who have the event after each generation, if everybody tells `fan_out` others once.

    Of those without it, each is missed by one teller with probability 1 - (1 - loss) fan_out / (nodes - 1).
    """
    fresh, total = 1.0, [1.0]
    while fresh > 1e-6:
        missed = (1.0 - (1.0 - loss) * fan_out / (nodes - 1)) ** fresh
        fresh = (nodes - total[-1]) * (1.0 - missed)
        total.append(total[-1] + fresh)
    return total


def spread(nodes: int, settings: GossipSettings, seed: int, view: int | None = None, loss: float = 0.0) -> list[float]:
    """The times at which nodes get an event that node 0 has at time 0. Only announcements and pushes are lost."""
    rng = np.random.default_rng(seed)
    draws = Draws(seed)
    everybody = range(nodes)
    gossipers = [Gossiper(node, settings, seed) for node in everybody]
    holdings = [Holding(EVENT, CODING) for _ in everybody]
    for gossiper in gossipers:
        # A sample that may hold the node itself, which is left out, is one more than the view.
        gossiper.meet(0, list(everybody) if view is None else draws.sample(everybody, view))
    (packet,) = EventEncoder(1, b"x", CODING, seed=1).plain()
    holdings[0].add(packet)
    got = [0.0]
    queue: list[tuple[float, int, int, int, object]] = []
    timers = [math.inf] * nodes
    serial = 0

    def post(now: float, sender: int, out: list[tuple[int, object]]) -> None:
        nonlocal serial
        for to, message in out:
            serial += 1
            if not (isinstance(message, Announcement | Push) and rng.random() < loss):
                heapq.heappush(queue, (now + LATENCY_S, serial, sender, to, message))
        timer = gossipers[sender].next_timer()
        if timer != timers[sender] and timer < math.inf:
            serial += 1
            heapq.heappush(queue, (timer, serial, sender, sender, None))
        timers[sender] = timer

    post(0.0, 0, gossipers[0].offer(holdings[0], 0.0))  # type: ignore[arg-type]
    while queue:
        now, _, sender, to, message = heapq.heappop(queue)
        gossiper, holding = gossipers[to], holdings[to]
        out = []
        if message is None:
            out = gossiper.handle_timer(now) if timers[to] <= now else []
        elif isinstance(message, Announcement):
            out = gossiper.announced(EVENT, holding, sender, now)
        elif isinstance(message, PacketRequest):
            out = gossiper.asked(message, sender, now)
        elif isinstance(message, Push | Reply) and holding.add(message.packet):
            got.append(now)
            out = gossiper.offer(holding, now)
        post(now, to, out)  # type: ignore[arg-type]
    return got


@pytest.mark.parametrize(("fan_out", "loss"), [(2, 0.0), (3, 0.0), (3, 0.2)])
def test_push_follows_the_recursion_generation_by_generation(fan_out: int, loss: float) -> None:
    nodes = 1000
    settings = GossipSettings("push", fan_out, rounds=1)
    expected = recursion(nodes, fan_out, loss)
    got = np.array(spread(nodes, settings, 2, loss=loss))
    assert len(got) / nodes == pytest.approx(expected[-1] / nodes, abs=0.04)
    # Chance in the first few generations delays or hastens the whole by a generation at most.
    for generation, total in enumerate(expected[:12]):
        early, late = ((got <= (generation + shift) * LATENCY_S * 1.0001).sum() for shift in (-1, 1))
        assert early - 0.04 * nodes <= total <= late + 0.04 * nodes


@pytest.mark.parametrize("fan_out", [2, 4])
def test_the_recursion_ends_where_the_fixed_point_of_large_populations_is(fan_out: int) -> None:
    share = 0.5
    for _ in range(200):
        share = 1.0 - math.exp(-fan_out * share)
    assert recursion(100_000, fan_out, 0.0)[-1] / 100_000 == pytest.approx(share, abs=1e-3)


@pytest.mark.parametrize(("mode", "rounds", "view"), [("push-pull", 1, None), ("push", 1, 30), ("pull", 1, None)])
def test_other_modes_and_partial_views_reach_as_many(mode: str, rounds: int, view: int | None) -> None:
    nodes = 600
    settings = GossipSettings(mode, 3, rounds=rounds, interval_s=0.02)  # type: ignore[arg-type]
    expected = recursion(nodes, 3, 0.0)[-1]
    assert len(spread(nodes, settings, 5, view)) / nodes == pytest.approx(expected / nodes, abs=0.05)


def test_more_rounds_reach_as_many_as_a_larger_fan_out() -> None:
    """Two rounds with fan-out 2 tell as many others as one with fan-out 4."""
    nodes = 600
    expected = recursion(nodes, 4, 0.0)[-1]
    assert len(spread(nodes, GossipSettings("push", 2, rounds=2), 3)) / nodes == pytest.approx(
        expected / nodes, abs=0.03
    )
