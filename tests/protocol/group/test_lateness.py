"""Time in which a replica itself did not run counts neither against its clients nor against the group."""

from __future__ import annotations

from tests.protocol.group.world import World

from surecast.protocol.broker import Origin
from surecast.protocol.group import Item
from surecast.protocol.mqtt import V5, Connect, encode


def test_a_replica_that_was_late_ends_no_connection_and_sends_nobody_away() -> None:
    world = World(1, sites=1)
    site = world.sites[0]
    connection = site.edge.open(Origin(), world.now)
    site.edge.receive(connection, encode(Connect("c", keep_alive_s=2, version=V5), V5), world.now)
    for _ in range(20):
        world.step()
    assert connection.silence_max_s == 3.0
    site.edge.control(Item.TICK)
    site.edge.take(world.now)  # under way
    world.now += 10.0
    site.edge.excuse(9.9)
    site.edge.tick(world.now)
    assert not site.edge.is_stuck(world.now)
    assert not site.edge.is_ready
    assert not site.edge.closing
    world.now += 4.0  # this time it ran, and heard nothing
    assert site.edge.is_stuck(world.now)
    site.edge.tick(world.now)
    assert site.edge.closing == [connection]
