"""The accounts of all brokers as of one cut add up, while messages are on their way and connections break."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from tests.protocol.overlay_broker.broker_line import BrokerLine, LineClient
from tests.protocol.overlay_broker.broker_world import BrokerWorld
from tests.protocol.overlay_broker.test_hostile_neighbour import Liar

from surecast.errors import PeerError
from surecast.protocol.overlay import accounts_cut
from surecast.protocol.overlay.accounts_cut import balance
from surecast.protocol.overlay.overlay_frames import Marker
from surecast.protocol.overlay.overlay_node import OverlayNode


def nodes_of(world: BrokerWorld) -> dict[str, OverlayNode]:
    return {name: machine.broker.node for name, machine in world.machines.items() if machine.broker is not None}


def rows_of(world: BrokerWorld, marker: Marker) -> dict[str, Any]:
    return balance({name: node.cuts.report(marker) for name, node in nodes_of(world).items()})


@pytest.mark.parametrize("scheme", ["none", "bypass", "buffering", "bypass-buffering"])
@pytest.mark.parametrize("seed", range(10))
def test_a_cut_while_messages_travel_and_connections_break_adds_up(scheme: str, seed: int) -> None:
    world = BrokerWorld(Random(f"cut {scheme} {seed}"), scheme)
    compared, in_transit, markers = 0, 0, []
    for step in range(300):
        world.step(crashes=False)
        if step % 60 == 30:
            name = world.random.choice(world.plan.brokers)
            markers.append(nodes_of(world)[name].cuts.begin())
            world.turn(name)
        for marker in markers:
            assert rows_of(world, marker)["problems"] == []
    world.heal()
    for marker in markers[-3:]:
        found = rows_of(world, marker)
        assert found["problems"] == []
        reports = [node.cuts.report(marker) for node in nodes_of(world).values()]
        assert all(report is not None and report["is_complete"] for report in reports)
        for row in found["links"]:
            if row["received"] is not None:
                compared += row["sent"]
                in_transit += row["in_transit"]
    assert compared > 0


def test_some_cuts_find_events_in_transit() -> None:
    """Else the test above would compare nothing but what has come to rest."""
    found = 0
    for seed in range(40):
        world = BrokerWorld(Random(seed), "none", size=4)
        for _ in range(60):
            world.step(crashes=False, cuts=False)
            name = world.random.choice(world.plan.brokers)
            marker = nodes_of(world)[name].cuts.begin()
            world.turn(name)
        world.heal()
        found += sum(row["in_transit"] or 0 for row in rows_of(world, marker)["links"])
    assert found > 0


def test_a_broker_that_counts_wrongly_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    events_of = accounts_cut.events_of
    calls = 0

    def wrong(frame: Any) -> int:
        nonlocal calls
        calls += 1
        return events_of(frame) + (calls % 50 == 0)

    monkeypatch.setattr(accounts_cut, "events_of", wrong)
    world = BrokerWorld(Random(1), "none", size=4)
    for _ in range(200):
        world.step(crashes=False, cuts=False)
    marker = nodes_of(world)["b0"].cuts.begin()
    world.turn("b0")
    world.heal()
    assert rows_of(world, marker)["problems"] != []


def test_a_link_that_is_down_leaves_its_part_open_until_it_is_back() -> None:
    line = BrokerLine(2)
    subscriber, publisher = LineClient(line, "b2", "s"), LineClient(line, "b1", "p")
    subscriber.subscribe("t", 1)
    publisher.publish("t", b"1", 1)
    line.cut("b1", "b2")
    publisher.publish("t", b"2", 1)
    marker = line.brokers["b1"].node.cuts.begin()
    line.run()
    reports = {name: broker.node.cuts.report(marker) for name, broker in line.brokers.items()}
    assert reports["b2"] is None
    (row,) = balance(reports)["links"]
    assert (row["sent"], row["note"]) == (1, "b2 has no report")
    line.join("b1", "b2")
    line.wait(1.0)
    reports = {name: broker.node.cuts.report(marker) for name, broker in line.brokers.items()}
    found = balance(reports)
    assert found["problems"] == []
    assert [(row["sent"], row["received"], row["in_transit"]) for row in found["links"]] == [(1, 1, 0), (0, 0, 0)]


def test_markers_of_a_liar_keep_few_reports_and_are_not_sent_to_who_reads_nothing() -> None:
    liar = Liar(2)
    for number in range(2_000):
        liar.send(Marker("b2", 5, number + 1))
    node = liar.broker.node
    assert len(node.cuts._cuts) == 8
    assert sum(frame.size for frame in node.kept_for("b2")) < 2 * liar.broker.node.settings.window_bytes
    liar.send(Marker("b2", 5, 7))  # an old one is none
    assert len(node.cuts._cuts) == 8
    with pytest.raises(PeerError, match="a marker of b9"):
        liar.send(Marker("b9", 1, 1))
