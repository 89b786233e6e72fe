"""Answer in virtual time."""

from surecast.simulate.dropping import best_hybrid, simulate_dropping, simulate_dropping_until, simulate_queue
from surecast.simulate.routing import simulate_routing, simulate_routing_until
from surecast.simulate.walk import run_until, simulate_reliability
from surecast.simulate.world import simulate_protocol

__all__ = [
    "best_hybrid",
    "run_until",
    "simulate_dropping",
    "simulate_dropping_until",
    "simulate_protocol",
    "simulate_queue",
    "simulate_reliability",
    "simulate_routing",
    "simulate_routing_until",
]
