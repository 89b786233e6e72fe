"""The replicated state machine in a world where everything goes wrong."""

from surecast.simulate.paxos.checks import Violation
from surecast.simulate.paxos.options import GroupOptions, divided, expand, harsher, overtaking, stalled
from surecast.simulate.paxos.run import MODES, Mode, Outcome, run_seed
from surecast.simulate.paxos.world import World

__all__ = [
    "MODES",
    "GroupOptions",
    "Mode",
    "Outcome",
    "Violation",
    "World",
    "divided",
    "expand",
    "harsher",
    "overtaking",
    "run_seed",
    "stalled",
]
