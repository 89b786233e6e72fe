"""The replicated state machine in a world where everything goes wrong."""

from surecast.simulate.paxos.checks import Violation
from surecast.simulate.paxos.options import GroupOptions, expand, harsher
from surecast.simulate.paxos.run import Outcome, run_seed
from surecast.simulate.paxos.world import World

__all__ = ["GroupOptions", "Outcome", "Violation", "World", "expand", "harsher", "run_seed"]
