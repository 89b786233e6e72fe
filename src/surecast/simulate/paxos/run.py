"""Runs a seed."""

from __future__ import annotations

from dataclasses import dataclass

from surecast.protocol.paxos import Variant
from surecast.simulate.paxos.checks import Violation
from surecast.simulate.paxos.options import GroupOptions, expand, harsher
from surecast.simulate.paxos.world import World

__all__ = ["Outcome", "run_seed"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a run: the violated property, empty where all held, and how much happened."""

    options: GroupOptions
    violation: str
    slots: int
    counts: dict[str, int]

    @property
    def held(self) -> bool:
        """Whether every property held."""
        return not self.violation


def run_seed(seed: int, replicas: int = 3, variant: Variant = "multi", harsh: bool = False) -> Outcome:
    """Expands a seed and runs it. The same seed gives the same run, event by event.

    >>> run_seed(1).held
    True
    """
    options = expand(seed, replicas, variant)
    world = World(harsher(options) if harsh else options)
    violation = ""
    try:
        world.run()
    except Violation as error:
        violation = str(error)
    return Outcome(world.options, violation, max(world.ledger.values, default=0), world.counts)
