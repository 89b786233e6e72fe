"""A fast simulation of the delivery of events under failures: only the stochastic process, in compiled code.

Brokers and links go up and down, events walk their routes through these traces, and what becomes of each is booked:

- `none`: entries lost in a crash never come back; only routes over brokers that never fail deliver.
- `periodic-subscription`: an event gets through if its static route is up, and every broker on it holds the entry.
- `buffering`: it waits at each broker of its route until that broker, the link and the next broker are up together.
- `bypass`: it gets through if any way through the overlay is up when it is published.
- `bypass-buffering`: it moves as under buffering; wherever it gets to and a way to the home is up, it is delivered.

Everything takes no time but waiting. What is published to a home broker that is down is lost.
"""

from surecast.simulation.reliability.compiled.compiled_simulation import run_until, simulate_reliability
from surecast.simulation.reliability.compiled.outcomes import KINDS, REASONS, SCHEMES

__all__ = ["KINDS", "REASONS", "SCHEMES", "run_until", "simulate_reliability"]
