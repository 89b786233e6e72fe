"""The overlay protocol itself, run in virtual time over failing brokers and links.

One seed decides everything, and the same seed gives the same run, bit for bit. While it runs, the promises of the
protocol are checked: no subscriber gets an event twice, and the accounts balance.
"""

from surecast.simulation.experiment.clock import SafetyError
from surecast.simulation.reliability.protocol.accounts import REASONS, Fate, Target
from surecast.simulation.reliability.protocol.given_run import GivenPublication, GivenRun
from surecast.simulation.reliability.protocol.network import KINDS
from surecast.simulation.reliability.protocol.options import Options
from surecast.simulation.reliability.protocol.protocol_run import simulate_world
from surecast.simulation.reliability.protocol.protocol_simulation import simulate_protocol
from surecast.simulation.reliability.protocol.result import Transition, WorldResult

__all__ = [
    "KINDS",
    "REASONS",
    "Fate",
    "GivenPublication",
    "GivenRun",
    "Options",
    "SafetyError",
    "Target",
    "Transition",
    "WorldResult",
    "simulate_protocol",
    "simulate_world",
]
