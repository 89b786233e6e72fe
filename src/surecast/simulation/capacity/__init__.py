"""Content-based routing in virtual time: the routing code itself, behind queues, on the paths of the network.

`simulate_routing` answers what `predict_capacity` answers by formula, with the same keys and confidence intervals.
"""

from surecast.simulation.capacity.capacity_simulation import simulate_routing, simulate_routing_until
from surecast.simulation.capacity.routing_plan import ALGORITHMS

__all__ = ["ALGORITHMS", "simulate_routing", "simulate_routing_until"]
