"""The replicated state machine under faults of processes, disks, clocks and the network."""

from surecast.simulation.replication.faults.checks import Violation
from surecast.simulation.replication.faults.faulty_group import MODES, Mode, Outcome, World, run_seed
from surecast.simulation.replication.faults.options import GroupOptions, divided, expand, harsher, overtaking, stalled

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
