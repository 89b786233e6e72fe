"""The experiments. Each starts what it needs, measures, and hands every figure on as a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.broker.contestants import UnavailableError
from benchmarks.group.load import Load
from benchmarks.group.measure import Row, visit
from benchmarks.group.systems import Alone, JetStreamGroup, Replicated, System

__all__ = ["DELAY_S", "PUBLISHERS", "RATE_PER_S", "delay", "goals", "order", "paper", "variants"]

PUBLISHERS = (1, 4, 8, 16, 24)
RATE_PER_S = 5_000.0
DELAY_S = 0.010
Keep = Callable[[Row], None]


def goals(
    folder: Path, seconds: float, rounds: int, keep: Keep, nats: str | None, loads: Sequence[str] = ("",)
) -> None:
    """The broker alone, three replicas and JetStream under 50 publishers with 16 unacknowledged publications each.

    Only loads whose name contains one of some texts are measured.
    """
    with ExitStack() as stack:

        def up(system: Any) -> Any:
            stack.callback(system.close)
            return system

        alone = up(Alone("alone", folder / "alone"))
        durable = up(Alone("alone, durable", folder / "durable", "full"))
        group = up(Replicated("3 replicas", folder / "three", 3))
        synced = up(Replicated("3 replicas, fsync", folder / "synced", 3, "majority"))
        ours: list[System] = [alone, group, synced]
        others: list[System] = []
        if nats is not None:
            try:
                others.append(up(JetStreamGroup("JetStream R3", folder / "js", nats)))
                others.append(up(JetStreamGroup("JetStream R3, sync always", folder / "jsync", nats, "always")))
            except UnavailableError as error:
                print(f"JetStream is left out: {error}")
        for system in (*ours, durable, *others):
            print(f"{system.name}: {system.promise}")
        persistent = Load("QoS 1, persistent", 50, 16, subscribe_qos=1, persistent=True)
        plan: list[tuple[Load, list[System]]] = [
            (Load("QoS 0", 50, 16), [*ours, *others]),
            (Load("QoS 0, varying", 50, 16, varying=True), [*ours, *others]),
            (Load("QoS 1", 50, 16, subscribe_qos=1), ours),
            (Load("QoS 1, varying", 50, 16, subscribe_qos=1, varying=True), ours),
            (Load("QoS 2", 50, 16, subscribe_qos=2), ours),
            (persistent, [alone, durable, group, synced]),
            (Load("window 1", 50, 1), [*ours, *others]),
            (Load("window 1, varying", 50, 1, varying=True), [*ours, *others]),
            (Load("5,000/s", 50, 1, RATE_PER_S), [*ours, *others]),
        ]
        plan = [row for row in plan if any(text in row[0].name for text in loads)]
        # Where the subscriber has a queue, other replicas work more than the leader, and need room on both cores.
        visit("goals", [row for row in plan if not row[0].subscribe_qos], seconds, rounds, keep, apart=True)
        visit("goals", [row for row in plan if row[0].subscribe_qos], seconds, rounds, keep)
        if free := [row for row in plan if row[0].name == "QoS 0"]:
            visit("goals, free", free, seconds, rounds, keep, free=True)


def paper(folder: Path, seconds: float, rounds: int, keep: Keep) -> None:
    """The evaluation of P2S: 1, 3, 5 and 7 replicas, 1 to 24 publishers that wait for each acknowledgement."""
    with ExitStack() as stack:
        systems: list[System] = [Alone("alone", folder / "alone")]
        stack.callback(systems[0].close)
        for replicas in (1, 3, 5, 7):
            group = Replicated(f"{replicas}", folder / f"paper-{replicas}", replicas)
            stack.callback(group.close)
            group.freeze()
            systems.append(group)
        plan = [(Load(f"{count} publishers", count, 1), systems) for count in PUBLISHERS]
        visit("paper", plan, seconds, rounds, keep)


def variants(folder: Path, seconds: float, rounds: int, keep: Keep) -> None:
    """The three protocols side by side, with publishers at the leader, and at all replicas."""
    with ExitStack() as stack:
        systems: list[System] = []
        for variant in ("multi", "batch", "fast"):
            group = Replicated(variant, folder / variant, 3, paxos={"variant": variant})
            stack.callback(group.close)
            systems.append(group)
        loads = (Load("1 publisher", 1, 1), Load("24 publishers", 24, 1), Load("50 publishers, 16 each", 50, 16))
        plan = [(load, systems) for load in loads]
        visit("variants at the leader", plan, seconds, rounds, keep)
        visit("variants at all replicas", plan, seconds, rounds, keep, spread=True)


def delay(folder: Path, seconds: float, rounds: int, keep: Keep) -> None:
    """Measures the gain of several instances under way where messages between replicas take a while."""
    with ExitStack() as stack:
        systems: list[System] = []
        for alpha in (1, 10):
            options: dict[str, Any] = {"link_delay": f"{1e3 * DELAY_S:g}ms", "paxos": {"alpha": alpha}}
            group = Replicated(f"window {alpha}", folder / f"a{alpha}", 3, **options)
            stack.callback(group.close)
            systems.append(group)
        loads = (
            Load("1,000/s", 50, 1, 1_000.0),
            Load("50 publishers, 1 each", 50, 1),
            Load("50 publishers, 16 each", 50, 16),
        )
        visit("delay", [(load, systems) for load in loads], seconds, rounds, keep)


def order(folder: Path, seconds: float, rounds: int, keep: Keep) -> None:
    """Measures what the weaker order saves at QoS 0."""
    with ExitStack() as stack:
        systems: list[System] = []
        for name, rules in (("total", []), ("publisher", [{"topics": "#", "order": "publisher"}])):
            group = Replicated(name, folder / name, 3, order=rules)
            stack.callback(group.close)
            systems.append(group)
        loads = (
            Load("5,000/s", 50, 1, RATE_PER_S, publish_qos=0),
            Load("50 publishers, 1 each", 50, 1, publish_qos=0),
            Load("50 publishers, 16 each", 50, 16, publish_qos=0),
        )
        visit("order", [(load, systems) for load in loads], seconds, rounds, keep)
