"""Time in which a replica itself did not run counts neither against its clients nor against the group."""

from __future__ import annotations

from tests.protocol.group.world import World

from surecast.protocol.broker import Origin
from surecast.protocol.group import Item
from surecast.protocol.mqtt import V5, Connect, encode


def test_a_replica_that_was_late_ends_no_connection_and_sends_nobody_away() -> None:
    world = World(1, sites=1)
    site = world.sites[0]
    connection = site.front_end.open(Origin(), world.now)
    site.front_end.receive(connection, encode(Connect("c", keep_alive_s=2, version=V5), V5), world.now)
    for _ in range(20):
        world.step()
    assert connection.silence_max_s == 3.0
    site.front_end.control(Item.TICK)
    site.front_end.take(world.now)  # in flight
    world.now += 10.0
    site.front_end.excuse(9.9)
    site.front_end.tick(world.now)
    assert not site.front_end.is_stuck(world.now)
    assert not site.front_end.is_ready
    assert not site.front_end.closing
    world.now += 4.0  # this time it ran, and heard nothing
    assert site.front_end.is_stuck(world.now)
    site.front_end.tick(world.now)
    assert site.front_end.closing == [connection]
