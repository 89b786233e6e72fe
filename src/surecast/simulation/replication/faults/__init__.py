"""The replicated state machine under faults of processes, disks, clocks and the network."""

from surecast.simulation.replication.faults.fault_options import (
    GroupOptions,
    divided,
    expand,
    harsher,
    overtaking,
    stalled,
)
from surecast.simulation.replication.faults.faulty_group import MODES, FaultyGroup, Mode, Outcome, run_seed
from surecast.simulation.replication.faults.history_checks import Violation

__all__ = [
    "MODES",
    "FaultyGroup",
    "GroupOptions",
    "Mode",
    "Outcome",
    "Violation",
    "divided",
    "expand",
    "harsher",
    "overtaking",
    "run_seed",
    "stalled",
]
