"""A broker of an overlay that takes over the state of another goes on exactly as that would have."""

from __future__ import annotations

from random import Random

import pytest
from tests.protocol.overlay_broker.broker_world import BrokerWorld

from surecast.errors import PeerError
from surecast.protocol.overlay.overlay_node import OverlayNode
from surecast.protocol.overlay_broker.broker_state import restore_state, state_of
from surecast.protocol.overlay_broker.local_demand import LocalDemand

SCHEMES = ("none", "periodic-subscription", "buffering", "bypass", "bypass-buffering")


def exchange(world: BrokerWorld, name: str) -> None:
    """Puts a new node with the state of the one before in its place."""
    broker = world.machines[name].broker
    if broker is None:
        return
    state = state_of(broker)
    broker.node = OverlayNode(name, world.plan, 0, world.settings)
    broker._demand, broker.held = LocalDemand(), {}
    restore_state(broker, state)
    assert state_of(broker) == state


def outcome(scheme: str, seed: int, *, exchanges: bool) -> list[object]:
    world = BrokerWorld(Random(f"{scheme} {seed}"), scheme)
    draw = Random(seed)
    for _ in range(150):
        world.step()
        if exchanges and draw.random() < 0.3:
            exchange(world, draw.choice(world.plan.brokers))
    world.heal()
    received = [subscriber.received for subscriber in world.subscribers]
    return [received, *(state_of(machine.broker) for machine in world.machines.values() if machine.broker)]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_with_the_state_of_another_all_goes_on_as_it_would_have(scheme: str) -> None:
    assert outcome(scheme, 1, exchanges=True) == outcome(scheme, 1, exchanges=False)


def test_a_state_that_is_damaged_or_of_another_kind_is_refused() -> None:
    world = BrokerWorld(Random(1), "bypass-buffering", size=3)
    broker = world.machines["b1"].broker
    assert broker is not None
    state = state_of(broker)
    for damaged in (b"", state[:-1], state + b"\0", state.replace(b"_refreshes_s", b"_refreshes_t")):
        broker.node = OverlayNode("b1", world.plan, 0, world.settings)
        with pytest.raises(PeerError, match="state of OverlayBroker"):
            restore_state(broker, damaged)


def test_a_class_without_a_form_is_named() -> None:
    world = BrokerWorld(Random(1), "none", size=2)
    broker = world.machines["b1"].broker
    assert broker is not None
    broker.held = {"p": world}  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="BrokerWorld has no form"):
        state_of(broker)
