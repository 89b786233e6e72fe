"""The simulated world: the overlay protocol itself, run in virtual time over failing brokers and links.

One seed decides everything, and the same seed gives the same run, bit for bit. While it runs, the promises of the
protocol are checked: no subscriber gets an event twice, and the books balance.
"""

from surecast.simulate.world.answer import simulate_protocol
from surecast.simulate.world.errors import SafetyError
from surecast.simulate.world.ledger import REASONS, Fate, Target
from surecast.simulate.world.network import KINDS
from surecast.simulate.world.options import Options
from surecast.simulate.world.result import Transition, WorldResult
from surecast.simulate.world.run import simulate_world

__all__ = [
    "KINDS",
    "REASONS",
    "Fate",
    "Options",
    "SafetyError",
    "Target",
    "Transition",
    "WorldResult",
    "simulate_protocol",
    "simulate_world",
]
