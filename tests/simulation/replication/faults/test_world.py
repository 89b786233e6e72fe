"""The world itself: it gives replicas their turns in time, and makes the trouble that its options ask for."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from surecast.protocol.paxos import Message, Replica
from surecast.protocol.paxos.leader import Leader
from surecast.protocol.paxos.machine import Answer
from surecast.simulation.replication.faults import FaultyGroup, GroupOptions, expand
from surecast.simulation.replication.faults.faulty_group import Clients

TIMER_S = 0.001


def calm(**changes: object) -> GroupOptions:
    """A world in which nothing goes wrong but clocks, with a load of which a part overlaps."""
    nothing = dict.fromkeys(
        ("loss", "duplication", "straggling", "crash", "disk_s", "batching_delay_s", "selective"), 0.0
    )
    few = {"partition_every_s": 1e9, "urgent_every_s": 1e9, "replacements": 0}
    load = {"clients": 4, "requests": 100, "in_flight": 4, "alpha": 10, "vote_window": 60, "suspect_s": 0.4}
    options = replace(expand(1), **(nothing | few | load))  # type: ignore[arg-type]
    return replace(options, delay_s=0.002, to_leader=1.0, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("drift", [0.0, 0.2])
def test_what_is_held_back_goes_in_time(drift: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long before the next tick, on the clock of the replica."""
    held_s = []
    release = Leader.send_lazy

    def watch(self: Leader) -> None:
        if self.lazy:
            held_s.append(self.node.now - self._lazy_since_s)
        release(self)

    monkeypatch.setattr(Leader, "send_lazy", watch)
    FaultyGroup(calm(lazy_delay=4.0, drift=drift)).run()
    latest_s = 4.0 * 0.002 + TIMER_S * (1 + drift)
    assert len(held_s) > 10
    assert max(held_s) <= latest_s + 1e-9
    assert sum(one > 0.99 * 4.0 * 0.002 for one in held_s) > len(held_s) / 4  # not for another reason before


def test_nothing_is_held_back_for_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Leader, "send_lazy", lambda self: pytest.fail("nothing waits") if self.lazy else None)
    FaultyGroup(calm(lazy_delay=0.0)).run()


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_clients_hear_what_is_applied_between_sending_and_storing(
    share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, heard = [], []
    apply_chosen, answered = Replica.apply_chosen, Clients.answered

    def watch(self: Replica) -> list[tuple[int, list[Answer]]]:
        replies = apply_chosen(self)
        told.extend(replies)
        return replies

    def hear(self: Clients, replies: list[tuple[int, list[Answer]]]) -> None:
        heard.extend(replies)
        answered(self, replies)

    monkeypatch.setattr(Replica, "apply_chosen", watch)
    monkeypatch.setattr(Clients, "answered", hear)
    world = FaultyGroup(calm(apply_early=share, batching_delay_s=0.02))  # requests wait when votes come in
    world.run()
    assert world.clients.all_answered
    assert bool(told) == (share > 0)
    assert all(reply in heard for reply in told)


def test_some_replicas_hear_only_some_kinds_of_messages() -> None:
    world = FaultyGroup(calm(selective=1.0, partition_every_s=0.5))
    kinds, partial = set(get_args(Message)), 0
    while world.counts["partitions"] < 10:
        before = world.counts["partitions"]
        world._run(world.now + 0.05, lambda: False)
        if world.counts["partitions"] > before:
            for link in {(source, to) for source, to, _ in world.blocked}:
                lost = {kind for source, to, kind in world.blocked if (source, to) == link}
                assert lost <= kinds
                partial += 0 < len(lost) < len(kinds)
    assert partial > 10


def test_somebody_begins_and_ceases_to_wait_at_replicas() -> None:
    world = FaultyGroup(calm(urgent_every_s=0.2))
    seen = set()
    for step in range(40):
        world._run(0.1 * step, lambda: False)
        seen |= {(one, host.replica.urgent) for one, host in world.hosts.items() if host.replica is not None}
    assert seen == {(one, urgent) for one in world.hosts for urgent in (False, True)}
