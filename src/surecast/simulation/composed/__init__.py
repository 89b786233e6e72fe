"""One simulation of path failures, queues, replicated brokers and subscribers that come and go, all together."""

from surecast.simulation.composed.composed_simulation import simulate_composed

__all__ = ["simulate_composed"]
