"""Answers in virtual time, by running the protocol code itself or a compiled model of it."""

from surecast.simulation.capacity import simulate_routing, simulate_routing_until
from surecast.simulation.dropping import best_hybrid, simulate_dropping, simulate_dropping_until, simulate_queue
from surecast.simulation.reliability.compiled import run_until, simulate_reliability
from surecast.simulation.reliability.protocol import simulate_protocol

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
