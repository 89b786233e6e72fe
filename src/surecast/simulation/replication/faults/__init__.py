"""The replicated state machine under faults of processes, disks, clocks and the network."""

from surecast.simulation.replication.faults.checks import Violation
from surecast.simulation.replication.faults.faulty_group import World
from surecast.simulation.replication.faults.options import GroupOptions, divided, expand, harsher, overtaking, stalled
from surecast.simulation.replication.faults.seed_run import MODES, Mode, Outcome, run_seed

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
