"""Answers in virtual time, by running the protocol code itself or a compiled model of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surecast.lazy import lazy_names

if TYPE_CHECKING:
    from surecast.simulation.capacity import simulate_routing, simulate_routing_until
    from surecast.simulation.dropping import best_hybrid, simulate_dropping, simulate_dropping_until, simulate_queue
    from surecast.simulation.reliability.compiled import run_until, simulate_reliability
    from surecast.simulation.reliability.protocol import simulate_protocol
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "surecast.simulation.capacity": ["simulate_routing", "simulate_routing_until"],
            "surecast.simulation.dropping": [
                "best_hybrid",
                "simulate_dropping",
                "simulate_dropping_until",
                "simulate_queue",
            ],
            "surecast.simulation.reliability.compiled": ["run_until", "simulate_reliability"],
            "surecast.simulation.reliability.protocol": ["simulate_protocol"],
        },
    )

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
