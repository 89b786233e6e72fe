"""Draws of gossip against enumeration in a group of two, sums by hand, and the protocol's steps in virtual time."""

from __future__ import annotations

import math

import numpy as np
import pytest

from surecast.prediction.coding import (
    Alternative,
    Forecaster,
    GossipGroup,
    PathStory,
    PeerConnections,
    audiences_of,
    gossip_draws,
    groups,
)
from surecast.prediction.coding.group_kernel import GossipState, Laws, Ways, new_state
from surecast.prediction.coding.groups import VIEW_SIZE, draws_of
from surecast.prediction.coding.packet_delivery import mean_delay
from surecast.protocol.coding import CodingSettings
from surecast.protocol.dissemination import DisseminationSettings
from surecast.scenario import System, build, parse_text
from surecast.scenario.spec.delivery import Gossip
from surecast.simulation.coding import simulate_coding


def near(places: int, success: float, latency_s: float = 0.0) -> PeerConnections:
    return PeerConnections(np.full((places, places), success), np.full((places, places), latency_s))


def at_once(missed: np.ndarray) -> PathStory:
    """Paths that bring what they bring at the start."""
    start_s = np.zeros(missed.shape[1])
    return PathStory(start_s, start_s, start_s, missed, missed)


@pytest.mark.parametrize("rounds", [1, 2, 3, 4])
def test_a_group_of_two_is_exact(rounds: int) -> None:
    """The publisher has the event and one other misses two packets: every digest, request and answer is summed over
    (coded delivery section IV). Messages take no time, and two of four rounds tell."""
    success = 0.7

    def ask(missing: int, tries: int, t: int) -> float:
        if missing == 0:
            return 1.0
        if t == rounds:
            return 0.0
        if not tries:
            return idle(missing, t)
        kept = 1.0 - success
        still = kept * ask(missing, tries - 1, t + 1)
        for got in range(missing + 1):
            chance = math.comb(missing, got) * success**got * kept ** (missing - got)
            still += success * chance * ask(missing - got, tries - 1, t + 1)
        return still

    def idle(missing: int, t: int) -> float:
        if t >= rounds:
            return 0.0
        met = success if t < 2 else 0.0
        return met * ask(missing, 2, t) + (1.0 - met) * idle(missing, t + 1)

    group = GossipGroup((1,), True, packets=2, coded=False, field_bits=8, deadline_s=0.1 * rounds - 0.01)
    found = gossip_draws(group, Gossip(fan_out=1, rounds=2), near(2, success), draws=20_000, seed=1)
    assert found.complete[0] == pytest.approx(idle(2, 0), abs=0.01)
    assert found.everyone == pytest.approx(found.complete[0])


def test_messages_of_one_round_by_hand() -> None:
    """Two of three have the event; each tells one of two others, and the third asks once for its two packets."""
    story = at_once(np.tile([0, 0, 2], (4000, 1)))
    group = GossipGroup((1, 1, 1), False, packets=2, coded=True, field_bits=8, deadline_s=1.0)
    found = gossip_draws(group, Gossip(fan_out=1, rounds=1), near(3, 1.0, 0.01), draws=4000, seed=2, story=story)
    # The third is complete, and tells another, where it was told.
    assert found.messages["digest"] == pytest.approx(2.75, abs=0.03)
    assert found.messages["request"] == pytest.approx(0.75, abs=0.03)
    assert found.messages["reply"] == pytest.approx(1.5, abs=0.06)
    assert found.helped == pytest.approx([0.0, 0.0, 0.75], abs=0.03)
    times_s, chances = found.delays[2]
    assert times_s == pytest.approx([0.03])  # announcement, request and answer
    assert chances.sum() == pytest.approx(found.complete[2])


def test_what_paths_bring_later_need_not_be_asked_for() -> None:
    """Packets come from 10 to 50 ms, and what relays make up for at 200 ms; nobody gossips within the deadline."""
    first_s, last_s, again_s = np.array([[0.01], [0.05], [0.2]])
    missed, missed_again = np.array([[[0], [1], [2], [2]], [[0], [0], [0], [1]]])
    story = PathStory(first_s, last_s, again_s, missed, missed_again)
    group = GossipGroup((2,), False, packets=4, coded=True, field_bits=8, deadline_s=1.0)
    found = gossip_draws(group, Gossip(rounds=1, fan_out=1, patience="2s"), near(1, 1.0), draws=4, seed=1, story=story)
    assert found.complete[0] == pytest.approx(0.75)
    assert found.delays[0][0] == pytest.approx([0.05, 0.2])
    assert found.delays[0][1] == pytest.approx([0.25, 0.5])
    assert found.messages["request"] == 0.0


def test_the_smallest_field_wastes_combinations() -> None:
    """One who misses one packet learns it from a combination of two elements with chance one half."""
    story = at_once(np.tile([0, 1], (8000, 1)))
    for bits, chance in ((1, 0.5), (8, 1.0 - 1 / 256)):
        group = GossipGroup((1, 1), False, packets=4, coded=True, field_bits=bits, deadline_s=0.05)
        found = gossip_draws(group, Gossip(fan_out=1, rounds=1), near(2, 1.0), draws=8000, seed=3, story=story)
        assert found.complete[1] == pytest.approx(chance, abs=0.02)


def system(gossip: str, link: str, subscribers: int = 10) -> System:
    """Few enough that views are complete: what views bring is no part of the comparison."""
    return build(
        parse_text(f"""
        {{surecast: 1, name: ring, seed: 4, overlay: {{brokers: [{{name: b, count: 4}}],
          links: [{{between: [b-1, b-2], {link}}}, {{between: [b-2, b-3], {link}}}, {{between: [b-3, b-4], {link}}}]}},
          workload: {{topics: [t], deadline: 1s, publishers: [{{name: p, home: b-1, topics: [t], rate: 1/s}}],
            subscribers: [{{name: s, count: {subscribers}, home: b-2, topics: [t]}},
                          {{name: u, count: {subscribers}, home: b-4, topics: [t]}}]}},
          delivery: {{coding: {{packets: 16, redundancy: 0.25, paths: tree, gossip: {{{gossip}}}}}}}}}
        """)
    )


@pytest.mark.parametrize(
    ("gossip", "link"),
    [
        ("mode: push-pull, fan_out: 2, rounds: 3", "loss: 0.1, latency: 20ms, capacity: 1000/s"),
        ("mode: push-pull, fan_out: 2, rounds: 3", "loss: 0.1, burst: 4, latency: 20ms, capacity: 1000/s"),
        ("mode: push-pull, fan_out: 3, rounds: 2, patience: 60ms", "loss: 0.2, latency: 35ms, capacity: 1000/s"),
        ("mode: pull, fan_out: 2, rounds: 3", "loss: 0.1, latency: 20ms, capacity: 1000/s"),
        ("mode: push, fan_out: 3, rounds: 6, push_packets: 14", "loss: 0.1, latency: 20ms, capacity: 1000/s"),
    ],
)
def test_gossip_alone_as_simulated(gossip: str, link: str) -> None:
    """Coded delivery section IV: peer choice, tries, patience and answers are those of the protocol."""
    found = system(gossip, link)
    [audience] = audiences_of(found)
    said = Forecaster(found, samples=4000).outcome(audience, Alternative("gossip"))
    report = simulate_coding(found, ["gossip"], events=1000, seed=5)
    mean = float(said.on_time @ audience.weights) / audience.size
    forecast = {
        "reliability": mean,
        "all_on_time_share": said.all_on_time,
        "delay_mean_s": mean_delay(said.delays, audience.weights),
        "messages_per_event": sum(said.messages.values()),
    }
    for metric, value in forecast.items():
        figure = report.figure(metric, scope="system", name="", detail="")
        assert figure.low is not None
        # The forecast has draws of its own, and one percent for what it leaves out.
        half = figure.value - figure.low
        assert value == pytest.approx(figure.value, rel=0.0, abs=0.003 + 0.01 * figure.value + 1.6 * half), metric


def test_views_are_as_large_as_the_protocols() -> None:
    assert DisseminationSettings(CodingSettings()).view_size == VIEW_SIZE


def test_large_groups_have_fewer_draws() -> None:
    small, large = (GossipGroup((size,), True, 8, False, 8, 1.0) for size in (10, 5000))
    assert draws_of(small, Gossip(rounds=4, fan_out=3), 2000) == 2000
    assert draws_of(large, Gossip(rounds=14, fan_out=3), 2000) == groups.DRAWS_MIN


def test_draws_that_lack_something_come_first_and_weigh_what_they_are() -> None:
    lacks = np.arange(1000) < 50
    [(few, needy), (many, whole)] = groups._strata(lacks, 100)
    assert (few, len(needy), many, len(whole)) == (0.05, 50, 0.95, 50)
    [(all_of_them, rows)] = groups._strata(np.ones(1000, dtype=np.bool_), 100)
    assert (all_of_them, len(rows)) == (1.0, 100)


def test_without_room_for_what_happens_next_more_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    rooms: list[int] = []

    def narrow(laws: Laws, ways: Ways, capacity: int) -> GossipState:
        rooms.append(capacity if rooms else 2)
        return new_state(laws, ways, rooms[-1])

    group = GossipGroup((8,), True, packets=4, coded=False, field_bits=8, deadline_s=2.0)
    wide = gossip_draws(group, Gossip(rounds=4), near(2, 0.9, 0.01), draws=1000, seed=1)
    monkeypatch.setattr(groups, "new_state", narrow)
    found = gossip_draws(group, Gossip(rounds=4), near(2, 0.9, 0.01), draws=1000, seed=1)
    assert rooms[:3] == [2, 4, 8]
    assert found.complete[0] == pytest.approx(wide.complete[0], abs=0.01)
