"""Runs a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from surecast.protocol.paxos import Variant
from surecast.simulation.replication.faults.checks import Violation
from surecast.simulation.replication.faults.faulty_group import World
from surecast.simulation.replication.faults.options import (
    GroupOptions,
    divided,
    expand,
    forgetful,
    harsher,
    overtaking,
    stalled,
)

__all__ = ["MODES", "Mode", "Outcome", "run_seed"]

Mode: TypeAlias = Literal["plain", "harsh", "divided", "forgetful", "overtaking", "stalled"]
MODES: Final[dict[Mode, Callable[[GroupOptions], GroupOptions]]] = {
    "plain": lambda options: options,
    "harsh": harsher,
    "divided": divided,
    "forgetful": forgetful,
    "overtaking": overtaking,
    "stalled": stalled,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a run: the violated property, empty where all held, and counts of what happened."""

    options: GroupOptions
    violation: str
    slots: int
    counts: dict[str, int]

    @property
    def held(self) -> bool:
        """True if every property held."""
        return not self.violation


def run_seed(seed: int, replicas: int = 3, variant: Variant = "multi", mode: Mode = "plain") -> Outcome:
    """Expands a seed and runs it. The same seed gives the same run, event by event.

    >>> run_seed(1).held
    True
    """
    world = World(MODES[mode](expand(seed, replicas, variant)))
    violation = ""
    try:
        world.run()
    except Violation as error:
        violation = str(error)
    return Outcome(world.options, violation, max(world.applied_log.values, default=0), world.counts)
