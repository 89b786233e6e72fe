"""A fast simulation of events dropped for subscribers that come and go: queues only, in compiled code.

Published events pass the input queue of their broker, and then the queue of each interested subscriber, which transmits
one event after the other while the subscriber is connected; a transmission that is interrupted goes on when the
subscriber is back. What is dropped, and why:

- `rejected while disconnected`, `rejected while connected`: the coin of its join probability fell so, which may depend
  on the state and on the number of events in the queue.
- `buffer full while disconnected`, `buffer full while connected`: no room was left, the event in transmission counted.
- `expired while disconnected`, `expired while connected`: its lifetime, from publication on, ended in that state, while
  it waited or was transmitted; `expired in input queue`: it ended before (the broker still processes the event).
- `input queue full`: the broker had no room for it.
"""

from surecast.simulation.dropping.dropping_simulation import simulate_dropping, simulate_dropping_until
from surecast.simulation.dropping.hybrid import HybridChoice, best_hybrid
from surecast.simulation.dropping.queue_sweep import QueueEstimate, QueueSweep, simulate_queue

__all__ = [
    "HybridChoice",
    "QueueEstimate",
    "QueueSweep",
    "best_hybrid",
    "simulate_dropping",
    "simulate_dropping_until",
    "simulate_queue",
]
