"""Answer in virtual time."""

from surecast.simulate.walk import run_until, simulate_reliability
from surecast.simulate.world import simulate_protocol

__all__ = ["run_until", "simulate_protocol", "simulate_reliability"]
