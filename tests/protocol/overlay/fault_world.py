"""Overlay nodes under every kind of fault, by seed; every event's fate at every broker is checked."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any, Literal

from tests.protocol.overlay.overlay_world import ALGORITHMS, SMALL, World

from surecast.protocol.overlay.overlay_node import OverlayNode

SCHEMES = ("none", "periodic-subscription", "buffering", "bypass", "bypass-buffering")


class FaultWorld(World):
    """As `World`, with brokers that freeze, slow and flapping links, partitions, and brokers that crash again while
    they resynchronise. A frozen broker does nothing; what comes waits, and its neighbours may give it up."""

    retains = 0.3

    def __init__(self, random: Random, scheme: str, algorithm: str, **named: Any):
        self.frozen: set[str] = set()
        self.slow: set[tuple[str, str]] = set()
        self.apart: set[str] = set()
        self.flapping: tuple[str, str] | None = None
        self.young: dict[str, int] = {}
        self.faults: dict[str, int] = {}
        super().__init__(random, scheme, algorithm, **named)

    def arrive(self, a: str, b: str) -> None:
        if b not in self.frozen and not ((a, b) in self.slow and self.random.random() < 0.9):
            super().arrive(a, b)

    def publish(self, name: str, *, lifetime_s: float = float("inf")) -> None:
        if name not in self.frozen:
            super().publish(name, lifetime_s=lifetime_s)

    def notice(self, name: str, other: str) -> None:
        if name not in self.frozen:
            super().notice(name, other)

    def join(self, a: str, b: str) -> None:
        if not self.frozen & {a, b} and (a in self.apart) == (b in self.apart):
            super().join(a, b)

    def tick(self) -> None:
        for name, machine in self.machines.items():
            if machine.node is not None and name not in self.frozen and machine.node.next_timer() <= self.now:
                machine.node.tick(self.now)
                self._flush(name)

    def restart(self, name: str) -> None:
        super().restart(name)
        self.young[name] = 8

    def disturb(self) -> None:
        """Begins or ends one fault."""
        random = self.random
        kind = random.choice(("freeze", "thaw", "slow", "partition", "flap", "crash again", "calm"))
        self.faults[kind] = self.faults.get(kind, 0) + 1
        name, link = random.choice(self.plan.brokers), random.choice(self.plan.links)
        if kind == "freeze" and self.machines[name].node is not None:
            self.frozen.add(name)
        elif kind == "thaw":
            self.frozen.clear()
        elif kind == "slow":
            self.slow |= {link, (link[1], link[0])}
        elif kind == "partition":
            self.apart = {other for other in self.plan.brokers if random.random() < 0.5}
            for a, b in self.plan.links:
                if (a in self.apart) != (b in self.apart):
                    self.cut(a, b)
        elif kind == "flap":
            self.flapping = link
        elif kind == "crash again":
            for other in [other for other, steps in self.young.items() if steps > 0]:
                if self.machines[other].node is not None:
                    self.crash(other)
        elif kind == "calm":
            self.calm()

    def calm(self) -> None:
        self.frozen.clear()
        self.slow.clear()
        self.apart.clear()
        self.flapping = None

    def step(self, **named: Any) -> None:
        super().step(**named)
        self.young = {name: steps - 1 for name, steps in self.young.items() if steps > 1}
        if self.random.random() < 0.04:
            self.disturb()
        if self.flapping is not None:
            (self.cut if self.random.random() < 0.5 else self.join)(*self.flapping)
        for name in sorted(self.frozen):
            hop = self.random.choice(self.plan.neighbours(name))
            if self.random.random() < 0.1 and self.wires[name, hop] is not None:
                self.cut(name, hop)  # its neighbour has given it up
                self.notice(hop, name)

    def crash(self, name: str) -> None:
        self.frozen.discard(name)
        super().crash(name)

    def heal(self) -> None:
        self.calm()
        super().heal()


def run_seed(seed: int, steps: int = 300, node: type[OverlayNode] = OverlayNode) -> tuple[str, list[str], FaultWorld]:
    """Returns what was run by one seed, what was wrong with it, and the world afterwards."""
    random = Random(f"faults {seed}")
    scheme, algorithm = random.choice(SCHEMES), random.choice(ALGORITHMS)
    refresh: Literal["link", "end-to-end"] = random.choice(("link", "end-to-end"))
    settings = replace(
        SMALL,
        refresh_s=5.0 if refresh == "end-to-end" else SMALL.refresh_s,
        timeout_s=15.0,
        resume_s=random.choice((0.0, 5.0, 20.0)),
        retransmission_interval_s=random.choice((0.0, 0.0, 2.0)),
        reconnect_s=(0.0, 0.5, 5.0)[seed % 3],
        ack_wait_s=(0.0, 0.5)[seed % 2],
        custody_events_max=random.choice((10, 100_000)),  # a store that is soon full refuses publishers
    )
    lifetime_s = random.choice((float("inf"), float("inf"), 30.0))
    drawn = Random(f"roots {seed}")
    roots = (None if algorithm == "flooding" else drawn.choice((None, drawn.randrange(6))), None)
    what = f"seed {seed}: {scheme}, {algorithm}, refresh {refresh}, roots {roots}, events live {lifetime_s:g} s"
    what += f", {settings}"
    world = FaultWorld(random, scheme, algorithm, settings=settings, refresh=refresh, roots=roots, node=node)
    for step in range(steps):
        world.step(lifetime_s=lifetime_s)
        if problems := world.problems():
            return what, [f"step {step}: {problem}" for problem in problems], world
    world.heal()
    problems = world.problems() + world.differing()
    if "buffering" in scheme and lifetime_s == float("inf"):
        problems += world.missing()
    world.now += 100.0
    world.tick()
    for name, machine in world.machines.items():
        assert machine.node is not None
        if len(machine.node.custody):
            problems.append(f"{name} still has {len(machine.node.custody)} events in custody")
        problems += [
            f"{name} has events on the link to {hop}" for hop, of in machine.node.accounts.hops.items() if of.on_link
        ]
    if scheme == "none" and refresh == "end-to-end":
        return what, problems, world  # what was lost in a crash never comes back
    world.heal()  # subscriptions have timed out in the meantime
    world.published.clear()
    for name in world.plan.brokers:  # liveness: all is as if nothing had been
        for _ in range(2):
            world.publish(name)
    world.heal()
    problems += world.missing() + world.problems() + world.differing()
    world.heal()
    for name, machine in world.machines.items():
        if machine.node is not None and machine.node.retained.tombstones:
            problems.append(f"{name} remembers {machine.node.retained.tombstones} deletions that all know")
    return what, problems, world
