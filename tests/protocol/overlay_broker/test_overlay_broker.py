"""Brokers of an overlay, with real MQTT packets at both ends and links of bytes that break anywhere."""

from __future__ import annotations

from random import Random

import pytest
from tests.protocol.overlay_broker.broker_world import BrokerWorld

SCHEMES = ("none", "periodic-subscription", "buffering", "bypass", "bypass-buffering")


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("seed", range(16))
def test_whatever_fails_what_is_acknowledged_in_custody_arrives_and_nothing_twice_at_qos_2(
    scheme: str, seed: int
) -> None:
    world = BrokerWorld(Random(f"{scheme} {seed}"), scheme)
    for _ in range(250):
        world.step()
        assert world.problems(scheme) == []
    world.heal()
    assert world.problems(scheme) == []
    assert sum(len(publisher.acknowledged) for publisher in world.publishers) > 0
    if "buffering" in scheme:
        assert world.missing() == []


@pytest.mark.parametrize("scheme", SCHEMES)
def test_without_failures_everything_arrives(scheme: str) -> None:
    world = BrokerWorld(Random(scheme), scheme)
    for _ in range(200):
        world.step(crashes=False, cuts=False)
    world.heal()
    assert world.problems(scheme) == []
    assert world.missing() == []
