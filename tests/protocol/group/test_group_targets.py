"""Response targets in a group: decisions are entries of the log, so all replicas keep and drop the same."""

from __future__ import annotations

import pytest
from tests.protocol.group.world import Client, Site, World

from surecast.protocol.broker.response_target import Decision
from surecast.protocol.broker.targets import Question
from surecast.protocol.group import Item
from surecast.protocol.group.commands import DECIDED, Decided

TARGET = (("surecast-response-mean-ms", "500"),)


def decision_for(question: Question, site: Site) -> Decision:
    """A decision that depends on all that was seen, and on who decides: two leaders may disagree."""
    seen = question.estimates
    threshold = 0.5 + seen.on.mean_s / (seen.on.mean_s + seen.off.mean_s) + 0.1 * site.number
    return Decision("optimal", join_probability=0.5, join_threshold=threshold, response_s=seen.off.mean_s, is_met=True)


def decide(site: Site) -> None:
    """One site thinks that it leads, and answers what is undecided as far as it knows."""
    for question in site.machine.broker.targets.questions():
        data = DECIDED.encode(Decided(question.key, question.revision, decision_for(question, site)))
        site.front_end.control(Item.DECISION, 0, data)


def run(seed: int) -> tuple[World, list[Client]]:
    """Clients come and go, sites die and come back, and several sites decide."""
    world = World(seed)
    clients = [Client(world, f"away-{n}", topics=("t",), subscribe_qos=1 + n % 2, target=TARGET) for n in range(3)]
    Client(world, "publisher", topics=("t",), publish_qos=1, count=400)
    down: list[Site] = []
    for step in range(500):
        world.step()
        if world.random.random() < 0.1 and world.up:
            decide(world.random.choice(world.up))
        if world.random.random() < 0.05:
            client = world.random.choice(clients)
            if client.connection is not None:
                client.cut()
        if step % 60 == 30 and len(world.up) > 1:
            site = world.random.choice(world.up)
            world.kill(site)
            down.append(site)
        elif step % 60 == 59 and down:
            world.revive(down.pop())
    while down:
        world.revive(down.pop())
    for _ in range(3):
        world.catch_up()
        decide(world.up[0])
    world.catch_up()
    return world, clients


@pytest.mark.parametrize("seed", range(8))
def test_replicas_agree_on_targets_and_on_what_they_drop(seed: int) -> None:
    world, clients = run(seed)
    first, *others = (site.machine for site in world.sites)
    for other in others:
        assert other.snapshot() == first.snapshot()
    dropped = 0
    for client in clients:
        assert client.subscribed, "every SUBSCRIBE was answered"
        session = first.broker.sessions.by_key[client.name]
        assert session.target is not None
        assert session.target.decided == session.target.revision > 0
        assert session.limits.join_threshold < 2.0
        accounts = session.accounts
        dropped += accounts.dropped.get("not-joined", 0)
        assert accounts.matched == accounts.delivered + accounts.expired + accounts.dropped_total + accounts.queued
        assert session.queued == accounts.queued
        assert session.target.results.delivered_count == accounts.delivered
    assert dropped > 0


def test_replicas_that_decide_for_themselves_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutation: a decision is applied where it is found, and not by the log."""

    def decide_here(site: Site) -> None:
        broker = site.machine.broker
        for question in broker.targets.questions():
            decision = decision_for(question, site)
            broker.deciding.decide(question.key, question.revision, decision, site.machine.time_us / 1e6)

    monkeypatch.setitem(globals(), "decide", decide_here)
    world, _ = run(0)
    first, *others = (site.machine.snapshot() for site in world.sites)
    assert any(other != first for other in others)
