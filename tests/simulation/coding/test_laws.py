"""Simulated deliveries against laws that are known: binomial losses, runs of losses, times, messages, bytes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from surecast.errors import ConfigurationError, ScenarioError
from surecast.protocol.coding import CodingSettings
from surecast.protocol.dissemination import scheme_settings
from surecast.scenario import build, parse_text
from surecast.scenario.system import Overlay, System
from surecast.simulation.coding import (
    Caster,
    LossyChannel,
    SimulatedAlternative,
    settings_for,
    simulate_coding,
    sweep_loss,
)
from surecast.simulation.coding.coding_simulation import estimate
from surecast.simulation.coding.compiled_parts import crosses
from surecast.simulation.coding.packet_network import network_of


def system(loss: float = 0.1, coding: str = "packets: 8, paths: tree", subscribers: int = 3) -> System:
    return build(
        parse_text(f"""
        {{surecast: 1, name: pair, overlay: {{brokers: [{{name: a}}, {{name: b}}],
          links: [{{between: [a, b], loss: {loss}, latency: 20ms, capacity: 100/s}}]}},
          workload: {{topics: [t], deadline: 2s, publishers: [{{name: p, home: a, topics: [t], rate: 1/s}}],
            subscribers: [{{name: s, count: {subscribers}, home: b, topics: [t]}}]}},
          delivery: {{coding: {{{coding}}}}}}}
        """)
    )


def pair(loss: float) -> Overlay:
    return system(loss).overlay


def run(
    scheme: str, loss: float, events: int, channel: LossyChannel, homes: list[int], redundancy: float = 0.25
) -> np.ndarray:
    coding = CodingSettings(packets=8, redundancy=redundancy, packet_bytes=1)
    caster = Caster(pair(loss), 0, homes, scheme_settings(scheme, coding), deadline_s=2.0, seed=7, channel=channel)
    return caster.run(events).on_time


def at_least(k: int, n: int, loss: float) -> float:
    return sum(math.comb(n, i) * (1 - loss) ** i * loss ** (n - i) for i in range(k, n + 1))


@pytest.mark.parametrize(("scheme", "sent"), [("tree", 8), ("coding", 10)])
def test_one_lossy_hop_follows_the_binomial_law(scheme: str, sent: int) -> None:
    """The subscriber is at the publisher's broker: its access link loses, and nobody makes up for it."""
    found = run(scheme, 0.0, 4000, LossyChannel(access_loss=0.15), [0])
    expected = at_least(8, sent, 0.15)
    # One combination in 256 or so tells nothing new.
    assert found.mean() == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / 4000) + 0.006)


def test_subscribers_of_one_broker_share_its_losses_and_not_those_of_their_access_links() -> None:
    shared = run("tree", 0.1, 3000, LossyChannel(), [1, 1])
    assert np.array_equal(shared[:, 0], shared[:, 1])
    own = run("tree", 0.0, 3000, LossyChannel(access_loss=0.1), [1, 1])
    assert own.all(axis=1).mean() == pytest.approx(0.9**16, abs=0.03)


def test_losses_in_bursts_have_their_mean_and_their_length() -> None:
    """Gilbert-Elliott: the share lost is the link's, and runs of losses are geometric with the mean asked for."""
    net = network_of(pair(0.1), [1], LossyChannel(burst_mean=5.0), seed=3)
    lost = []
    for event in range(400):
        passed, is_bad = np.zeros(len(net.loss), dtype=np.int64), np.zeros(len(net.loss), dtype=np.bool_)
        lost.append([not crosses(net, passed, is_bad, event, 0) for _ in range(100)])
    states = np.array(lost)
    assert states.mean() == pytest.approx(0.1, abs=0.012)
    stays = (states[:, 1:] & states[:, :-1]).sum() / states[:, :-1].sum()
    assert 1 / (1 - stays) == pytest.approx(5.0, rel=0.12)


def test_bursts_hurt_a_code_that_copes_with_the_same_loss_one_by_one() -> None:
    alone, bursts = (run("coding", 0.1, 2000, LossyChannel(burst_mean=b), [1]).mean() for b in (None, 6.0))
    assert alone > bursts + 0.03


def test_without_loss_the_time_is_that_of_the_link() -> None:
    """8 packets at 100 a second behind each other, and 20 ms on the way."""
    coding = CodingSettings(packets=8, redundancy=0.25, packet_bytes=1)
    for serialise, expected_s in ((True, 8 / 100 + 0.02), (False, 0.02)):
        channel = LossyChannel(serialise=serialise)
        caster = Caster(pair(0.0), 0, [1], scheme_settings("coding", coding), deadline_s=2.0, seed=1, channel=channel)
        assert caster.run(3).done_s == pytest.approx(np.full((3, 1), expected_s))


def test_retransmission_brings_everything_and_counts_each_try() -> None:
    """A packet is sent until it comes, 1 / 0.9 times. Acknowledgements say all that has come, so that only of the last
    packet one may be missed: it is sent again until packet and acknowledgement come, 0.1 / 0.81 times."""
    coding = CodingSettings(packets=8, packet_bytes=1)
    chosen = replace(scheme_settings("tree-retransmission", coding), tries_max=50)
    caster = Caster(pair(0.1), 0, [1], chosen, deadline_s=600.0, seed=2, channel=LossyChannel(serialise=False))
    found = caster.run(1500)
    assert found.on_time.all()
    expected = 8 / 0.9 + 0.1 / 0.81
    assert found.messages()["data"].mean() == pytest.approx(expected, rel=0.01)
    assert found.messages()["acknowledgement"].mean() == pytest.approx(0.9 * expected, rel=0.01)


def test_a_loss_costs_a_round_trip_and_no_timeout() -> None:
    """Of 8 packets 10 ms apart the fourth is lost: the fifth's acknowledgement is back after 50 + 2 * 20 ms, the fourth
    is behind the eighth on the link, and comes 10 + 20 ms after that one has left."""
    coding = CodingSettings(packets=8, packet_bytes=1)
    chosen = scheme_settings("tree-retransmission", coding)
    overlay = pair(0.02)
    for seed in range(300):
        caster = Caster(overlay, 0, [1], chosen, deadline_s=2.0, seed=seed)
        passed, is_bad = np.zeros(len(caster.net.loss), dtype=np.int64), np.zeros(len(caster.net.loss), dtype=np.bool_)
        come = [crosses(caster.net, passed, is_bad, 0, 0) for _ in range(9)]
        back = [crosses(caster.net, passed, is_bad, 0, 1) for _ in range(8)]
        if come == [True] * 3 + [False] + [True] * 5 and all(back):
            assert caster.run(1).done_s == pytest.approx(np.array([[0.09 + 0.01 + 0.02]]))
            return
    raise AssertionError("no seed has just that loss")


def test_bytes_are_those_of_the_datagrams() -> None:
    """Plain packets: 1000 bytes, a number of 2, and headers; coded ones have a seed of 8 instead."""
    coding = CodingSettings(packets=8, redundancy=0.25, packet_bytes=1)
    caster = Caster(pair(0.0), 0, [1], scheme_settings("coding", coding), deadline_s=2.0, seed=1)
    found = caster.run(1)
    assert found.messages()["data"].tolist() == [10]
    assert found.bytes_sent(coding, 1000)["data"].tolist() == [8 * (1000 + 62 + 2) + 2 * (1000 + 62 + 8)]


def test_the_report_has_the_figures_of_the_prediction_with_intervals() -> None:
    report = simulate_coding(system(), events=400, seed=1)
    assert set(report.variants) >= {"tree", "tree-retransmission", "gossip", "coding", "coding-gossip"}
    figure = report.figure("reliability", scope="system", variant="coding")
    assert figure.low is not None
    assert figure.low <= figure.value <= (figure.high or 0.0)
    assert report.value("messages_minimum_per_event", scope="system", variant="tree") == pytest.approx(8 / 0.9)
    assert report.value("overhead_ratio", scope="system", variant="coding") == pytest.approx(10 / (8 / 0.9) - 1)
    objects = simulate_coding(system(), ["tree"], events=400, seed=1, how="objects")
    for metric in ("reliability", "all_on_time_share", "messages_per_event"):
        a, b = (one.value(metric, scope="system", variant="tree") for one in (report, objects))
        assert a == pytest.approx(b)


def test_half_widths_are_reached() -> None:
    found = sweep_loss(system(), [0.0, 0.1], ["tree", "coding"], half_width=0.02, seed=1)
    for point in found.points:
        assert max(point.on_time[1], point.all_on_time[1]) <= 0.02
    worst = next(p for p in found.of("tree") if p.loss == 0.1)
    assert worst.on_time[0] == pytest.approx(0.9**8, abs=0.04)
    assert worst.events > 200
    assert [p.on_time[0] for p in found.points if p.loss == 0.0] == [1.0] * len(found.alternatives)


def test_the_interval_of_independent_events_is_the_binomial_one() -> None:
    values = np.random.default_rng(1).random(20_000) < 0.3
    share, half = estimate(values)
    assert share == values.mean()
    assert half == pytest.approx(2.09 * math.sqrt(0.21 / 20_000), rel=0.5)


def test_a_scenario_says_what_its_links_and_subscribers_do() -> None:
    """Bursts of a link, losses of the last hop and between subscribers, patience and tries, as written in the file."""
    given = "packets: 8, paths: tree, access_loss: 0.05, flush: 80ms, retransmission: {wait: 50ms, tries: 3}"
    found = system(coding=given + ", gossip: {patience: 70ms, push_packets: 4}")
    spec = found.delivery.coding
    assert spec is not None
    assert LossyChannel.of_scenario(spec) == LossyChannel(access_loss=0.05)
    chosen = settings_for(spec, SimulatedAlternative("coding-gossip"))
    assert chosen.gossip is not None
    assert (chosen.flush_s, chosen.retransmit_s, chosen.tries_max) == (0.08, 0.05, 3)
    assert (chosen.gossip.patience_s, chosen.gossip.push_packets) == (0.07, 4)
    link = replace(pair(0.1).links[0], burst_mean=5.0)
    said = network_of(replace(pair(0.1), links=(link,)), [1], LossyChannel(), seed=3)
    asked = network_of(pair(0.1), [1], LossyChannel(burst_mean=5.0), seed=3)
    np.testing.assert_array_equal(said.to_bad[:2], asked.to_bad[:2])
    np.testing.assert_array_equal(said.to_good[:2], asked.to_good[:2])


@pytest.mark.parametrize(
    ("wrong", "said"), [({"burst_mean": 0.5}, "burst_mean"), ({"access_loss": 1.0}, "access_loss")]
)
def test_what_is_wrong_is_named(wrong: dict[str, float], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        LossyChannel(**wrong)  # type: ignore[arg-type]


def test_bursts_that_cannot_be_are_refused_with_what_would_do() -> None:
    """A link that loses nine packets in ten loses nine in a row at least, as it passes one between two bursts."""
    with pytest.raises(
        ScenarioError, match=r"a link of loss 0\.9 has more than 2 packets in a row to lose; write 9 or"
    ):
        build(
            parse_text("""
            {surecast: 1, name: x, overlay: {brokers: [{name: a}, {name: b}],
             links: [{between: [a, b], loss: 0.9, burst: 2}]}}
            """)
        )
