"""Bursty loss against the sum over all states of all links."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from surecast.errors import AssumptionError, ConfigurationError
from surecast.prediction.coding import (
    Alternative,
    Forecaster,
    GilbertElliott,
    audiences_of,
    bursty_delivery_probability,
    bursty_received,
    on_paths_probability,
)
from surecast.prediction.coding.bursty_links import binomial, passing, passing_up_to
from surecast.prediction.coding.multicast import CodedLink, Way, sample_ranks
from surecast.prediction.coding.ranks import LossyPath, end_ranks
from surecast.prediction.coding.tree_delivery import _Hop
from surecast.scenario import System, build, parse_text
from surecast.simulation.coding import simulate_coding


def enumerated(sent: int, channels: list[GilbertElliott]) -> np.ndarray:
    """Every sequence of states of every link, with the packets that pass in each."""
    found = np.zeros(sent + 1)
    for states in itertools.product(itertools.product((0, 1), repeat=sent), repeat=len(channels)):
        chance, passing = 1.0, np.ones(sent)
        for channel, line in zip(channels, states, strict=True):
            chance *= (1 - channel.bad_share, channel.bad_share)[line[0]]
            chance *= math.prod(float(channel.steps[a, b]) for a, b in itertools.pairwise(line))
            passing *= [1 - (channel.loss_good, channel.loss_bad)[state] for state in line]
        counts = np.ones(1)
        for p in passing:
            counts = np.convolve(counts, [1 - p, p])
        found += chance * counts
    return found


@pytest.mark.parametrize(
    "channels",
    [
        [GilbertElliott(0.1, 0.4)],
        [GilbertElliott(0.2, 0.3, 0.05, 0.7)],
        [GilbertElliott(0.1, 0.4), GilbertElliott(0.3, 0.2, 0.1, 0.9)],
    ],
)
def test_every_state_of_every_link(channels: list[GilbertElliott]) -> None:
    assert np.allclose(bursty_received(4, channels), enumerated(4, channels), atol=1e-12)


def test_without_memory_it_is_independent_loss() -> None:
    channel = GilbertElliott(0.3, 0.7, 0.1, 0.1)
    assert np.allclose(bursty_received(20, [channel]), binomial(20, 0.9), atol=1e-12)
    found = bursty_delivery_probability(16, 4, [[channel]], [20], 8)
    assert found == pytest.approx(on_paths_probability(16, 4, [LossyPath((0.1,))], 8), abs=1e-12)


def test_bursts_hurt_at_equal_loss() -> None:
    bursty = bursty_delivery_probability(32, 8, [[GilbertElliott(0.02, 0.18)]], [40], 8)
    assert bursty < on_paths_probability(32, 8, [LossyPath((0.1,))], 8)


def test_brokers_that_recode_keep_the_least_number_that_passes_a_link() -> None:
    one, other = GilbertElliott(0.02, 0.18), GilbertElliott(0.05, 0.3)
    expected = 0.0
    for a, p in enumerate(bursty_received(10, [one])):
        for b, q in enumerate(bursty_received(10, [other])):
            expected += p * q * (min(a, b) >= 8)
    found = bursty_delivery_probability(8, 2, [[one, other]], [10], 8, recode=True)
    assert found == pytest.approx(expected, abs=0.004)


def test_what_has_no_closed_form_is_refused() -> None:
    channel = GilbertElliott(0.02, 0.18)
    with pytest.raises(AssumptionError, match="simulate longer ones"):
        bursty_received(4, [channel] * 11)
    with pytest.raises(ConfigurationError, match="never changes"):
        GilbertElliott(0.0, 0.0)


def test_a_link_that_moves_with_its_packets() -> None:
    channel = GilbertElliott.of_loss(0.25, 3.0)
    assert channel.loss == pytest.approx(0.25)
    assert channel.burst_mean == pytest.approx(3.0)
    found = passing_up_to(4, 0.25, 3.0)
    for k in range(1, 5):
        assert np.allclose(found[k, : k + 1], enumerated(k, [channel]), atol=1e-12)
        assert np.allclose(passing(k, 0.25, 3.0), enumerated(k, [channel]), atol=1e-12)
    assert np.allclose(found.sum(axis=1), 1.0)


def test_packets_forwarded_as_they_are_over_two_such_links() -> None:
    """The second link sees only what came over the first: the sum over what that may be."""
    one, other = GilbertElliott.of_loss(0.25, 3.0), GilbertElliott.of_loss(0.1, 2.0)
    expected = np.zeros(5)
    for came, chance in enumerate(enumerated(4, [one])):
        expected[: came + 1] += chance * (enumerated(came, [other]) if came else np.ones(1))
    path = LossyPath((0.25, 0.1), bursts=(3.0, 2.0))
    assert np.allclose(end_ranks(4, path, 8, recode=False), expected, atol=1e-12)


def test_ranks_over_bursty_links_are_drawn_by_their_law() -> None:
    draws = sample_ranks(0, 20, [CodedLink(0, 1, 20, 0.2, 4.0)], [Way(1, (0,))], samples=20_000, seed=3)
    shares = np.bincount(draws[:, 0], minlength=21) / 20_000
    assert np.abs(shares - enumerated_by_steps(20, GilbertElliott.of_loss(0.2, 4.0))).max() < 0.012


def enumerated_by_steps(sent: int, channel: GilbertElliott) -> np.ndarray:
    """The same sum, state by state: packets that passed so far and whether the link is bad, in a dictionary."""
    states = {(0, 0): 1 - channel.bad_share, (0, 1): channel.bad_share}
    for packet in range(sent):
        after: dict[tuple[int, int], float] = {}
        for (passed, bad), chance in states.items():
            for to in (0, 1):
                step = float(channel.steps[bad, to]) if packet < sent - 1 else float(to == 0)
                key = (passed + (not bad), to)
                after[key] = after.get(key, 0.0) + chance * step
        states = after
    return np.array([sum(p for (passed, _), p in states.items() if passed == j) for j in range(sent + 1)])


@pytest.mark.parametrize("burst", [None, 3.0])
def test_one_packet_over_one_hop_by_hand(burst: float | None) -> None:
    """It is sent at once, after a silence of 50 ms (a round trip and 10 ms), and then after twice that each."""
    stays_bad = 0.3 if burst is None else 1.0 - 1.0 / burst
    for deadline_s, tries in ((0.04, 1), (0.08, 2), (0.18, 3), (0.28, 4)):
        hop = _Hop(0.3, burst, latency_s=0.02, busy_s=0.0, tries_max=9)
        words = np.array([7], dtype=np.uint64)
        over_s, sent = hop.cross(np.zeros((20_000, 1)), words, deadline_s)
        assert np.isfinite(over_s).mean() == pytest.approx(1.0 - 0.3 * stays_bad ** (tries - 1), abs=0.012)
        assert set(np.unique(over_s[np.isfinite(over_s)]).round(6)) <= {0.02, 0.07, 0.17, 0.27}
        assert sent[1] <= sent[0] <= tries
    over_s, _ = _Hop(0.3, burst, 0.02, 0.0, tries_max=2).cross(np.zeros((20_000, 1)), words, 9.0)
    assert np.isfinite(over_s).mean() == pytest.approx(1.0 - 0.3 * stays_bad, abs=0.012)


def test_a_loss_shows_by_the_packets_behind_it() -> None:
    """Of two packets the first is lost and the second acknowledged: the first is over a round trip later."""
    over_s, _ = _Hop(0.2, None, latency_s=0.02, busy_s=0.001, tries_max=9).cross(
        np.zeros((50_000, 2)), np.array([3], dtype=np.uint64), 9.0
    )
    # Both sent at once, 1 ms each; the second's acknowledgement at 42 ms; again 1 ms on the link, and 20 ms.
    shown = np.isclose(over_s[:, 0], 0.063) & np.isclose(over_s[:, 1], 0.022)
    assert shown.mean() == pytest.approx(0.2 * 0.8 * 0.8 * 0.8, abs=0.006)


def bursty_system() -> System:
    link = "loss: 0.1, burst: 4, latency: 10ms, capacity: 500/s"
    return build(
        parse_text(f"""
        {{surecast: 1, name: bursty, seed: 4, overlay: {{brokers: [{{name: b, count: 3}}],
          links: [{{between: [b-1, b-2], {link}}}, {{between: [b-2, b-3], {link}}}]}},
          workload: {{topics: [t], deadline: 2s, publishers: [{{name: p, home: b-1, topics: [t], rate: 1/s}}],
            subscribers: [{{name: s, home: b-2, topics: [t]}}, {{name: u, home: b-3, topics: [t]}}]}},
          delivery: {{coding: {{packets: 16, redundancy: 0.5, paths: tree, gossip: null}}}}}}
        """)
    )


def test_schemes_over_bursty_links_as_simulated() -> None:
    found = bursty_system()
    [audience] = audiences_of(found)
    report = simulate_coding(found, ["tree", "tree-retransmission", "coding"], events=4000, seed=2)
    for method in ("tree", "tree-retransmission", "coding"):
        outcome = Forecaster(found, samples=4000).outcome(audience, Alternative(method))
        for name, chance in zip("su", outcome.on_time, strict=True):
            share = report.value("reliability", scope="subscriber", name=name, variant=method)
            assert chance == pytest.approx(share, abs=0.005 + 3 * math.sqrt(share * (1 - share) / 4000)), (method, name)
        both = report.value("all_on_time_share", scope="system", variant=method)
        assert outcome.all_on_time == pytest.approx(both, abs=0.025), method
    tree = Forecaster(found).outcome(audience, Alternative("tree"))
    assert tree.how == "exact"
    # A link that is good at first stays so 15 times (Gilbert-Elliott: 0.1 / 0.9 / 4 to turn bad).
    assert tree.on_time.tolist() == pytest.approx([0.9 * (1 - 0.1 / 3.6) ** 15, (0.9 * (1 - 0.1 / 3.6) ** 15) ** 2])
