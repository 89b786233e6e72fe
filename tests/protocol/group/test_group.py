"""A replicated broker is one broker: same order everywhere, nothing acknowledged lost, QoS 2 once (P2S 3.3, 3.5)."""

from __future__ import annotations

import pytest
from tests.protocol.group.world import Client, World
from tests.seeds import seeds


def firsts(got: list[bytes]) -> list[bytes]:
    return list(dict.fromkeys(got))


def run(seed: int, kills: bool) -> tuple[World, list[Client], list[Client]]:
    world = World(seed)
    subscribers = [Client(world, f"sub{n}", topics=["t/#"], subscribe_qos=1 + n % 2) for n in range(4)]
    while not all(s.subscribed for s in subscribers):
        world.step()
    publishers = [Client(world, f"pub{n}", topics=["t/a", "t/b"], publish_qos=1 + n % 2, count=25) for n in range(4)]
    down: list[object] = []
    for step in range(400):
        world.step()
        if kills and step % 40 == 20 and not down:
            site = world.random.choice(world.sites)
            world.kill(site)
            down = [site]
        elif kills and step % 40 == 35 and down:
            world.revive(down.pop())
    while any(p.left for p in publishers):
        world.step()
    world.catch_up()
    return world, publishers, subscribers


@pytest.mark.parametrize("seed", seeds(20, range(40)))
@pytest.mark.parametrize("kills", [False, True])
def test_replicas_behave_like_one_broker(seed: int, kills: bool) -> None:
    world, publishers, subscribers = run(seed, kills)
    acknowledged = {payload for p in publishers for payload in p.acknowledged}
    assert not any(p.open for p in publishers)
    assert len(acknowledged) == 100
    order = firsts(subscribers[1].got)
    for subscriber in subscribers:
        assert acknowledged <= set(subscriber.got)
        # The order of first receptions is that of the log, for all alike.
        assert firsts(subscriber.got) == order
    twice = [p for p in subscribers[1].got if subscribers[1].got.count(p) > 1]
    assert not [p for p in twice if p.startswith((b"pub1", b"pub3"))], "QoS 2 from end to end is exactly once"
    accounts = {repr(site.machine.broker.accounts()) for site in world.sites if site.position == len(world.log)}
    assert len(accounts) == 1
    effects: dict[int, bytes] = {}
    for site in world.sites:
        for slot, told in site.effects.items():
            assert effects.setdefault(slot, told) == told, (
                f"the effects of instance {slot} differ at site {site.number}"
            )
    assert len({site.machine.snapshot() for site in world.sites if site.position == len(world.log)}) == 1
