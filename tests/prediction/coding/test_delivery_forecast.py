"""Forecasts of whole schemes against the protocol's own objects, and against sums by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from lossy_world import LossyWorld

from surecast.errors import AssumptionError, ConfigurationError
from surecast.prediction.coding import (
    Alternative,
    ChannelAssumptions,
    Forecaster,
    alternatives,
    audiences_of,
    predict_coding,
)
from surecast.prediction.coding.coding_report import message_bytes, messages_minimum
from surecast.prediction.coding.packet_delivery import CodedEvent
from surecast.protocol.coding import CodingSettings
from surecast.protocol.dissemination import scheme_settings
from surecast.protocol.gossip import GossipSettings
from surecast.scenario import System, build, parse_text
from surecast.scenario.spec.delivery import Coding

CHAIN = "[{between: [b-1, b-2], %s}, {between: [b-2, b-3], %s}, {between: [b-3, b-4], %s}]"
SQUARE = """[{between: [b-1, b-2], %s}, {between: [b-2, b-4], %s}, {between: [b-1, b-3], %s},
  {between: [b-3, b-4], %s}]"""


def system(links: str, coding: str, subscribers: str, deadline: str = "2s", loss: float = 0.1) -> System:
    link = f"loss: {loss}, latency: 10ms, capacity: 1000/s"
    return build(
        parse_text(f"""
surecast: 1
name: small
seed: 11
overlay:
  brokers: [{{name: b, count: 4}}]
  links: {links.replace("%s", link)}
workload:
  topics: [t]
  deadline: {deadline}
  publishers: [{{name: p, home: b-1, topics: [t], rate: 1/s}}]
  subscribers: {subscribers}
delivery:
  coding: {coding}
""")
    )


def forecast(
    found: System, alternative: Alternative, channel: ChannelAssumptions
) -> tuple[np.ndarray, dict[str, float]]:
    """On-time probability of each subscriber, and the messages."""
    [audience] = audiences_of(found)
    outcome = Forecaster(found, channel, 4000).outcome(audience, alternative)
    chances = np.empty(audience.size)
    for home, members in enumerate(audience.members):
        chances[list(members)] = outcome.on_time[home]
    return chances, outcome.messages


def played(
    found: System, scheme: str, events: int, peer_loss: float = 0.0, peer_s: float = 0.02
) -> tuple[np.ndarray, dict[str, float]]:
    spec = found.delivery.coding
    assert spec is not None
    coding = CodingSettings(spec.packets, spec.redundancy, spec.field_bits, 2)
    gossip = None if spec.gossip is None else GossipSettings.of_scenario(spec.gossip)
    world = LossyWorld(found, scheme_settings(scheme, coding, gossip, spec.paths), peer_loss, peer_s, seed=5)
    complete = world.publish(events, found.publishers[0].deadline_s)
    return complete, {kind: count / events for kind, count in world.sent.items()}


def test_recoding_along_a_chain_as_the_protocol_does_it() -> None:
    """Ranks fall from hop to hop (coded delivery section IV); brokers make up for losses."""
    coding = "{packets: 8, redundancy: 0.5, paths: tree, gossip: null}"
    found = system(CHAIN, coding, "[{name: s, home: b-2, topics: [t]}, {name: u, home: b-4, topics: [t]}]", loss=0.2)
    chances, messages = forecast(found, Alternative("coding"), ChannelAssumptions())
    complete, sent = played(found, "coding", events=300)
    assert messages["data"] == 36
    assert sent["Data"] == pytest.approx(36, abs=0.5)
    for chance, share in zip(chances, complete.mean(axis=0), strict=True):
        assert chance == pytest.approx(share, abs=0.02 + 2.5 * math.sqrt(share * (1 - share) / 300))


def test_two_paths_as_the_protocol_uses_them() -> None:
    coding = "{packets: 8, redundancy: 0.5, paths: maximum-flow, gossip: null}"
    found = system(SQUARE, coding, "[{name: s, home: b-4, topics: [t]}]", loss=0.2)
    [chance], messages = forecast(found, Alternative("coding"), ChannelAssumptions())
    complete, sent = played(found, "coding", events=300)
    assert messages["data"] == 24
    assert sent["Data"] == pytest.approx(24, abs=0.5)
    share = float(complete.mean())
    assert chance == pytest.approx(share, abs=0.03 + 2.5 * math.sqrt(share * (1 - share) / 300))


def test_gossip_after_coding_as_the_protocol_does_it() -> None:
    """Nobody is early here: all are equally far, and a single hop leaves nothing to make up for."""
    coding = "{packets: 8, redundancy: 0.25, paths: tree, gossip: {mode: push-pull, fan_out: 2, rounds: 2}}"
    star = "[{between: [b-1, b-2], %s}, {between: [b-1, b-3], %s}, {between: [b-1, b-4], %s}]"
    homes = "[{name: s, count: 8, home: b-2, topics: [t]}, {name: u, count: 8, home: b-3, topics: [t]}, "
    found = system(star, coding, homes + "{name: v, count: 8, home: b-4, topics: [t]}]", loss=0.25)
    channel = ChannelAssumptions(peer_loss=0.3)
    chances, messages = forecast(found, Alternative("coding-gossip"), channel)
    complete, sent = played(found, "coding-gossip", events=150, peer_loss=0.3)
    # Subscribers of one broker share its fate, so that events count, not subscribers.
    share, spread = float(complete.mean()), float(complete.mean(axis=1).std())
    assert chances.mean() == pytest.approx(share, abs=0.02 + 2.5 * spread / math.sqrt(150))
    alone, _ = forecast(found, Alternative("coding"), channel)
    assert chances.mean() > alone.mean() + 0.1
    assert messages["digest"] == pytest.approx(sent["Announcement"], rel=0.15)
    assert messages["reply"] == pytest.approx(sent["Reply"], rel=0.35)


def test_a_tree_that_forwards_once_by_hand() -> None:
    coding = "{packets: 4, redundancy: 0, gossip: null}"
    found = system(CHAIN, coding, "[{name: s, home: b-2, topics: [t]}, {name: u, home: b-4, topics: [t]}]")
    chances, messages = forecast(found, Alternative("tree"), ChannelAssumptions())
    assert chances.tolist() == pytest.approx([0.9**4, 0.9**12])
    assert messages["data"] == pytest.approx(4 + 4 * 0.9 + 4 * 0.81)
    [audience] = audiences_of(found)
    outcome = Forecaster(found).outcome(audience, Alternative("tree"))
    assert outcome.all_on_time == pytest.approx(0.9**12)
    assert messages_minimum(found.overlay, audience, 4) == pytest.approx(2 * 4 / 0.9)


def test_sending_again_as_the_protocol_does_it() -> None:
    """Two hops and a deadline that leaves time for a few tries; and one subscriber's time with much of it."""
    coding = "{packets: 8, redundancy: 0, gossip: null}"
    homes = "[{name: s, home: b-2, topics: [t]}, {name: u, home: b-3, topics: [t]}]"
    found = system(CHAIN, coding, homes, deadline="250ms", loss=0.3)
    chances, messages = forecast(found, Alternative("tree-retransmission"), ChannelAssumptions(serialise=False))
    complete, sent = played(found, "tree-retransmission", events=400)
    for chance, share in zip(chances, complete.mean(axis=0), strict=True):
        assert chance == pytest.approx(share, abs=0.06 + 2.5 * math.sqrt(share * (1 - share) / 400))
    assert messages["data"] == pytest.approx(sent["Data"], rel=0.1)
    # What subscribers have in common counts: the one behind is on time only if the first hop was quick.
    [audience] = audiences_of(found)
    outcome = Forecaster(found, ChannelAssumptions(serialise=False)).outcome(
        audience, Alternative("tree-retransmission")
    )
    assert outcome.all_on_time == pytest.approx(outcome.on_time.min(), abs=0.01)


def test_without_loss_nothing_is_sent_again() -> None:
    coding = "{packets: 8, redundancy: 0, gossip: null}"
    found = system(CHAIN, coding, "[{name: u, home: b-4, topics: [t]}]", loss=0.0)
    [audience] = audiences_of(found)
    outcome = Forecaster(found).outcome(audience, Alternative("tree-retransmission"))
    assert outcome.messages == {"data": 24, "acknowledgement": 24}
    # 8 packets at 1000 a second, one more for each further link, and 10 ms on each.
    assert outcome.delays[0][0] == pytest.approx(0.03 + 0.008 + 0.002)


def test_losses_on_the_last_hop_count_as_one_hop_more() -> None:
    coding = "{packets: 8, redundancy: 0.5, paths: tree, gossip: null}"
    near = system(CHAIN, coding, "[{name: s, home: b-2, topics: [t]}]")
    far = system(CHAIN, coding, "[{name: s, home: b-3, topics: [t]}]")
    [lossy], _ = forecast(near, Alternative("coding"), ChannelAssumptions(access_loss=0.1))
    [longer], _ = forecast(far, Alternative("coding"), ChannelAssumptions())
    assert lossy == pytest.approx(longer, abs=1e-12)


def test_bytes_are_those_of_the_wire() -> None:
    from surecast.protocol.coding import EventEncoder, Packet, VectorKind
    from surecast.protocol.dissemination import Data, HopAck
    from surecast.protocol.dissemination import message_bytes as wire_bytes
    from surecast.protocol.gossip import Announced, Announcement, PacketRequest, Reply, Wanted

    settings = CodingSettings(packets=4, redundancy=0.5, packet_bytes=100)
    event = CodedEvent(4, 2, 8, 100.0)
    encoder = EventEncoder(1, bytes(400), settings, seed=1)
    data = [wire_bytes(Data(0, i, 1.0, packet), settings) for i, packet in enumerate(encoder.packets())]
    assert message_bytes("data", event) == pytest.approx(float(np.mean(data)))
    recoded = Packet(1, 400, 0, 4, VectorKind.RECODED, bytes(100), full_vector=np.ones(4, dtype=np.uint8))
    assert message_bytes("reply", event) == wire_bytes(Reply(0, 1.0, recoded), settings)
    assert message_bytes("digest", event) == wire_bytes(Announcement((Announced(1, 0, 400, 1.0),)), settings)
    assert message_bytes("request", event) == wire_bytes(PacketRequest(1, (Wanted(0, 2),)), settings)
    assert message_bytes("acknowledgement", event) == wire_bytes(HopAck(1, 0, 2, 1, 0b1111), settings)


def test_the_report_has_every_alternative_and_says_what_it_leaves_out() -> None:
    coding = "{packets: 8, redundancy: 0.5, gossip: {rounds: 2}}"
    found = system(SQUARE, coding, "[{name: s, count: 3, home: b-4, topics: [t]}]")
    report = predict_coding(found, samples=500)
    assert report.variants == tuple(a.name for a in alternatives(Coding(packets=8)))
    coded = report.value("reliability", variant="coding-gossip", scope="system", name="")
    assert coded > report.value("reliability", variant="tree", scope="system", name="")
    assert report.value("overhead_ratio", variant="coding", scope="system", name="") > 0.0
    assert report == predict_coding(found, samples=500)


def test_what_is_outside_the_model_is_refused() -> None:
    coding = "{packets: 8, redundancy: 0.5, gossip: null}"
    found = system(SQUARE, coding, "[{name: s, home: b-4, topics: [t]}]")
    with pytest.raises(ConfigurationError, match="no scheme of packets 'carrier pigeon'"):
        predict_coding(found, ["carrier pigeon"])
    with pytest.raises(ConfigurationError, match=r"access_loss: 1\.5"):
        ChannelAssumptions(access_loss=1.5)
    unlimited = build(
        parse_text("""
{surecast: 1, name: two, overlay: {brokers: [{name: a}, {name: b}], links: [[a, b]]},
 workload: {topics: [t], publishers: [{name: p, home: a, topics: [t], rate: 1/s}],
            subscribers: [{name: s, home: b, topics: [t]}]}, delivery: {coding: {gossip: null}}}
""")
    )
    report = predict_coding(unlimited)
    assert any("coding is left out" in text and "give links a capacity" in text for text in report.info.warnings)
    fast = system(SQUARE, "{packets: 2000, gossip: null}", "[{name: s, home: b-4, topics: [t]}]")
    with pytest.raises(AssumptionError, match="lower the rate"):
        predict_coding(fast, ["coding"])
