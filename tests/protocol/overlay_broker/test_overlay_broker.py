"""Brokers of an overlay, with real MQTT packets at both ends and links of bytes that break anywhere."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from tests.protocol.overlay_broker.broker_world import BrokerWorld
from tests.seeds import seeds

from surecast.protocol.overlay.node_records import INCARNATION_KEY
from surecast.protocol.overlay_broker import OverlayBroker

SCHEMES = ("none", "periodic-subscription", "buffering", "bypass", "bypass-buffering")


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("seed", seeds(8, range(16)))
def test_whatever_fails_what_is_acknowledged_in_custody_arrives_and_nothing_twice_at_qos_2(
    scheme: str, seed: int
) -> None:
    world = BrokerWorld(Random(f"{scheme} {seed}"), scheme)
    for _ in range(250):
        world.step()
        assert world.problems(scheme) == []
    world.heal()
    assert world.problems(scheme) + world.differing() == []
    assert sum(len(publisher.acknowledged) for publisher in world.publishers) > 0
    if "buffering" in scheme:
        assert world.missing() == []


@pytest.mark.parametrize("scheme", SCHEMES)
def test_without_failures_everything_arrives(scheme: str) -> None:
    world = BrokerWorld(Random(scheme), scheme)
    for _ in range(200):
        world.step(crashes=False, cuts=False)
    world.heal()
    assert world.problems(scheme) + world.differing() == []
    assert world.missing() == []


class WritesNothingOfTheNode(OverlayBroker):
    """Acknowledges what is on no disk."""

    def settle(self, now: float) -> None:
        before = len(self.core.journal.records)
        super().settle(now)
        del self.core.journal.records[before:]


class BeginsAtTheSameIncarnation(OverlayBroker):
    """Gives identities again that it gave before it was restarted."""

    def __init__(self, name: str, plan: Any, core: Any, **named: Any):
        named["records"] = [record for record in named["records"] if record[0] != INCARNATION_KEY]
        named["now"] = 1.0
        super().__init__(name, plan, core, **named)


class ForgetsRestoredSubscriptions(OverlayBroker):
    """Tells nobody what sessions want that were restored from disk."""

    def __init__(self, *arguments: Any, **named: Any):
        super().__init__(*arguments, **named)
        self._traffic.subscriptions.clear()


class DeliversAgain(OverlayBroker):
    """Gives every third batch to its clients twice."""

    turns = 0

    def settle(self, now: float) -> None:
        deliver = self.deliveries.deliver

        def twice(events: Any, now: float) -> None:
            self.turns += 1
            deliver(events, now)
            if self.turns % 3 == 0:
                deliver(events, now)

        self.deliveries.deliver = twice  # type: ignore[method-assign]
        super().settle(now)
        self.deliveries.deliver = deliver  # type: ignore[method-assign]


class LosesABatch(OverlayBroker):
    """Drops some of what clients publish, and acknowledges it."""

    def settle(self, now: float) -> None:
        if len(self._traffic.publications) > 1:
            self._traffic.publications.pop()
        super().settle(now)


@pytest.mark.parametrize(
    "mutant",
    [WritesNothingOfTheNode, BeginsAtTheSameIncarnation, ForgetsRestoredSubscriptions, DeliversAgain, LosesABatch],
)
def test_a_broker_with_a_part_taken_out_is_noticed(mutant: type[OverlayBroker]) -> None:
    def is_sound(seed: int) -> bool:
        world = BrokerWorld(Random(f"buffering {seed}"), "buffering", broker=mutant)
        for _ in range(250):
            world.step()
        world.heal()
        return not world.problems("buffering") and not world.missing()

    assert not all(is_sound(seed) for seed in range(16))
